/* The surface as a machine and as a reader want it, both made of the table of routes. */
#include "wire_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const methods[] = {
    [HTTP_GET] = "get", [HTTP_POST] = "post", [HTTP_PUT] = "put", [HTTP_DELETE] = "delete"};

static const char *const callers[] = {
    [ACCESS_ANYONE] = "Anyone.",
    [ACCESS_SERVICE] = "The service token.",
    [ACCESS_SESSION] = "The service token or the session's own.",
    [ACCESS_SESSION_WORK] = "The service token or the session's own.",
    [ACCESS_SESSION_CLOSE] = "The service token or the session's own.",
};

static const struct operation {
    wire_handler handler;
    const char *summary;
    const char *parameters; /* of openapi.json, with blanks between */
    const char *body;
    const char *statuses;
    const char *answer;
} operations[] = {
#define OPERATION(handler, summary, parameters, body, statuses, answer) \
    {handler, summary, parameters, body, statuses, answer},
#include "openapi.def"
};

/* NULL: not described. */
static const struct operation *operation_of(const struct wire *wire, const struct http_route *route)
{
    wire_handler handler = wire->routes[route - wire->table.routes].handler;

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (operations[i].handler == handler)
            return &operations[i];
    return NULL;
}

/* The next of some words with blanks between; 0: the end. */
static size_t next_word(const char **at)
{
    *at += strspn(*at, " ");
    return strcspn(*at, " ");
}

static void put_reference(struct wire_writer *writer, const char *kind, const char *name, size_t size)
{
    char path[128];

    (void)snprintf(path, sizeof path, "#/components/%s/%.*s", kind, (int)size, name);
    wire_put_str(writer, "$ref", path);
}

static void put_path_parameter(struct wire_writer *writer, const char *name, size_t size)
{
    wire_put_open(writer, NULL, '{');
    wire_put_text(writer, "name", name, size);
    wire_put_str(writer, "in", "path");
    wire_put_bool(writer, "required", true);
    wire_put_open(writer, "schema", '{');
    wire_put_str(writer, "type", "string");
    wire_put_str(writer, "pattern", WIRE_NAME_PATTERN);
    wire_put_close(writer, '}');
    wire_put_close(writer, '}');
}

static void put_parameters(struct wire_writer *writer, const char *path, const struct operation *operation)
{
    const char *at = operation ? operation->parameters : "";
    size_t size;

    wire_put_open(writer, "parameters", '[');
    for (const char *name = strchr(path, '{'); name; name = strchr(name, '{')) {
        name++;
        put_path_parameter(writer, name, strcspn(name, "}"));
    }
    for (; (size = next_word(&at)) > 0; at += size) {
        wire_put_open(writer, NULL, '{');
        put_reference(writer, "parameters", at, size);
        wire_put_close(writer, '}');
    }
    wire_put_close(writer, ']');
}

/* {"<type>": {"schema": …}}; the name of a schema is JSON of it, what has a slash in it is a media type of bytes. */
static void put_content(struct wire_writer *writer, const char *at)
{
    size_t size;

    wire_put_open(writer, "content", '{');
    for (; (size = next_word(&at)) > 0; at += size) {
        char type[64];

        (void)snprintf(type, sizeof type, "%.*s", (int)size, at);
        wire_put_open(writer, strchr(type, '/') ? type : WIRE_JSON_TYPE, '{');
        wire_put_open(writer, "schema", '{');
        if (!strchr(type, '/'))
            put_reference(writer, "schemas", at, size);
        wire_put_close(writer, '}');
        wire_put_close(writer, '}');
    }
    wire_put_close(writer, '}');
}

static void put_body(struct wire_writer *writer, enum http_body_kind kind, const struct operation *operation)
{
    if (kind == HTTP_BODY_NONE)
        return;
    wire_put_open(writer, "requestBody", '{');
    wire_put_bool(writer, "required", kind == HTTP_BODY_JSON);
    put_content(writer, kind != HTTP_BODY_JSON         ? "application/octet-stream"
                        : operation && operation->body ? operation->body
                                                       : "Object");
    wire_put_close(writer, '}');
}

static void put_response(struct wire_writer *writer, const char *status, const char *description, const char *content)
{
    wire_put_open(writer, status, '{');
    wire_put_str(writer, "description", description);
    if (content)
        put_content(writer, content);
    wire_put_close(writer, '}');
}

static void put_responses(struct wire_writer *writer, const struct operation *operation)
{
    const char *at = operation ? operation->statuses : "200";
    const char *answer = operation ? operation->answer : "Object";
    size_t size;

    wire_put_open(writer, "responses", '{');
    for (; (size = next_word(&at)) > 0; at += size) {
        char status[8];

        (void)snprintf(status, sizeof status, "%.*s", (int)size, at);
        if (strcmp(status, "304") == 0 || strcmp(status, "416") == 0)
            put_response(writer, status, "Nothing is sent.", NULL);
        else
            put_response(writer, status, "The answer.", answer);
    }
    put_response(writer, "4XX", "Refused, and why.", "Error");
    put_response(writer, "5XX", "Not possible now (502, 503, 504, 507), and why.", "Error text/plain");
    wire_put_close(writer, '}');
}

static void put_operation(struct wire_writer *writer, const struct wire *wire, const struct http_route *route)
{
    const struct operation *operation = operation_of(wire, route);

    wire_put_open(writer, methods[route->method], '{');
    if (operation)
        wire_put_str(writer, "summary", operation->summary);
    wire_put_str(writer, "description", callers[route->access]);
    put_parameters(writer, route->path, operation);
    put_body(writer, route->body, operation);
    if (route->access != ACCESS_ANYONE) {
        wire_put_open(writer, "security", '[');
        wire_put_open(writer, NULL, '{');
        wire_put_open(writer, "token", '[');
        wire_put_close(writer, ']');
        wire_put_close(writer, '}');
        wire_put_close(writer, ']');
    }
    put_responses(writer, operation);
    wire_put_close(writer, '}');
}

/* GET /openapi.json: routes.def and openapi.def, and the schemas of openapi.json. */
int route_openapi(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const struct http_table *table = &call->wire->table;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "openapi", "3.1.0");
    wire_put_open(&writer, "info", '{');
    wire_put_str(&writer, "title", "sandboxd");
    wire_put_str(&writer, "version", PACKAGE_VERSION);
    wire_put_close(&writer, '}');
    wire_put_open(&writer, "paths", '{');
    for (size_t i = 0; i <= call->wire->endpoint_count; i++) {
        const char *path = i ? call->wire->endpoints[i - 1] : "/";

        wire_put_open(&writer, path, '{');
        for (size_t k = 0; k < table->count; k++)
            if (strcmp(table->routes[k].path, path) == 0)
                put_operation(&writer, call->wire, &table->routes[k]);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, '}');
    wire_put_raw(&writer, ",\"components\":");
    wire_put_raw(&writer, wire_openapi_json);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static int append_upper(struct buf *out, const char *word, struct error *err)
{
    for (; *word; word++) {
        char c = (char)toupper((unsigned char)*word);

        if (buf_append(out, &c, 1, err) < 0)
            return -1;
    }
    return 0;
}

/* GET /docs: the table, to be read. */
int route_docs(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const struct http_table *table = &call->wire->table;
    auto_buf struct buf body = BUF_INIT(256 * 1024);

    if (buf_append_str(&body,
                       "<!doctype html><html lang=en><meta charset=utf-8><title>sandboxd</title>"
                       "<h1>Routes</h1><p>Tokens go in the header <code>X-Sandbox-Token</code>; "
                       "for machines: <a href=\"/openapi.json\">openapi.json</a>.</p><table>",
                       err) < 0)
        return -1;
    for (size_t i = 0; i < table->count; i++) {
        const struct http_route *route = &table->routes[i];
        const struct operation *operation = operation_of(call->wire, route);

        if (buf_append_str(&body, "<tr><td>", err) < 0 || append_upper(&body, methods[route->method], err) < 0 ||
            buf_append_format(&body, err, "<td><code>%s</code><td>%s<td>%s\n", route->path,
                              operation ? operation->summary : "", callers[route->access]) < 0)
            return -1;
    }
    if (buf_append_str(&body, "</table></html>\n", err) < 0)
        return -1;
    http_reply_header(reply, "Content-Security-Policy", "default-src 'none'");
    http_reply_buf(reply, "text/html; charset=utf-8", &body);
    return 0;
}
