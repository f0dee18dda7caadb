/* Who may call what, and which error wins.
 *
 * The order is the contract's (wires/sandboxd-current.md, section 2): route and method (http/), JSON syntax, the id's
 * pattern on session routes, the token, existence, fields, the handler. A small JSON body is therefore read before its
 * token is judged; whoever sends more, or an unknown amount, shows a good token first.
 */
#include "base64.h"
#include "http_websocket.h"
#include "id.h"
#include "log.h"
#include "wire_private.h"

#include <string.h>
#include <strings.h>

enum { TOKEN_MAX_BYTES = 8192 }; /* in base64, of one that comes as a subprotocol */

static bool is_session_route(enum wire_access access)
{
    return access == ACCESS_SESSION || access == ACCESS_SESSION_WORK || access == ACCESS_SESSION_CLOSE;
}

static bool id_of(const struct wire_route *route, const struct http_request *request, const char **ret_id)
{
    const char *id;
    size_t size;

    *ret_id = "";
    if (!route->has_id)
        return true;
    id = http_request_param(request, 0, &size);
    if (!id_name_valid(id, size))
        return false;
    *ret_id = id;
    return true;
}

/* Base64url of a token among the subprotocols that are offered: of the route that browsers open as a WebSocket. NULL: none. */
static const char *offered_token_of(const struct wire_route *route, const struct http_request *request, struct buf *out)
{
    auto_buf struct buf standard = BUF_INIT(TOKEN_MAX_BYTES);
    const char *offered;
    struct error err = ERROR_INIT;
    size_t size;

    offered = route->handler == route_terminal ? http_websocket_offer(request, WIRE_TOKEN_PROTOCOL, &size) : NULL;
    if (!offered)
        return NULL;
    for (size_t i = 0; i < size; i++)
        if (buf_append(&standard, offered[i] == '-' ? "+" : offered[i] == '_' ? "/" : &offered[i], 1, &err) < 0)
            return NULL;
    if (buf_append(&standard, "===", (4 - size % 4) % 4, &err) < 0 ||
        base64_decode(buf_str(&standard), standard.size, out, &err) < 0 || memchr(buf_str(out), '\0', out->size))
        return NULL;
    return buf_str(out);
}

/* The one token header; NULL for none, several, or one that no token can be. */
static const char *token_of(const struct wire_route *route, const struct http_request *request, struct buf *scratch)
{
    const char *token = http_request_header(request, "X-Sandbox-Token");

    if (!token)
        token = offered_token_of(route, request, scratch);
    if (!token || http_request_header_count(request, "X-Sandbox-Token") > 1)
        return NULL;
    for (const char *at = token; *at; at++)
        if ((unsigned char)*at > 127)
            return NULL;
    return token;
}

static int authorize(struct wire *wire, const struct http_request *request, struct error *err)
{
    const struct wire_route *route = wire_route_of(wire, request);
    bool on_session = is_session_route(route->access);
    auto_buf struct buf scratch = BUF_INIT(TOKEN_MAX_BYTES);
    enum session_caller caller;
    char tenant[SESSION_ID_BYTES];
    const char *id;
    bool named;
    bool is_open;

    if (route->access == ACCESS_ANYONE)
        return 0;
    named = id_of(route, request, &id) && route->has_id;
    caller = sessions_caller(wire->sessions, on_session && named ? id : NULL, token_of(route, request, &scratch));
    if (caller == SESSION_CALLER_CLOSED && route->access == ACCESS_SESSION_WORK)
        return fail(err, GONE, "Session is closed: %s", id);
    if (caller != SESSION_CALLER_SERVICE && !(on_session && caller == SESSION_CALLER_SESSION))
        return fail(err, UNAUTHENTICATED, "no token that opens this");
    if (!named)
        return 0;
    is_open = sessions_tenant(wire->sessions, id, tenant);
    if (on_session && route->access != ACCESS_SESSION_CLOSE && !is_open)
        return fail(err, NOT_FOUND, "No such session: %s", id);
    log_set_session(id, tenant);
    return 0;
}

/* A web page of another site has no business here, whatever token it found: its Origin is not where it was sent to. */
static bool is_foreign_page(const struct http_request *request)
{
    const char *origin = http_request_header(request, "Origin");
    const char *host = http_request_header(request, "Host");
    const char *authority;

    if (!origin)
        return false;
    if (!host || http_request_header_count(request, "Origin") != 1)
        return true;
    authority = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
                : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                          : NULL;
    return !authority || strcasecmp(authority, host) != 0;
}

int wire_gate(struct http_request *request, void *context, struct error *err)
{
    const struct http_route *route = http_request_route(request);
    struct wire *wire = context;
    int64_t length = http_request_content_length(request);
    struct policy *policy;

    if (is_foreign_page(request))
        return fail(err, FORBIDDEN, "the Origin is not ours");
    if (route->body == HTTP_BODY_STREAM) {
        /* Standard input is for a command to take, not for us to keep. */
        http_request_limit_body(request, wire_route_of(wire, request)->handler == route_runs_stdin
                                             ? UINT64_MAX
                                             : (uint64_t)sessions_settings(wire->sessions)->max_upload_bytes);
    } else if (route->body == HTTP_BODY_RAW) {
        policy = sessions_policy(wire->sessions);
        http_request_limit_body(request, (uint64_t)policy->max_read_bytes);
        policy_unref(policy);
    } else if (!http_request_has_body(request) || (length >= 0 && length <= WIRE_LATE_BODY_MAX_BYTES)) {
        return 0;
    }
    return authorize(wire, request, err);
}

/* -- bodies -- */

/* application/json, application/<anything>+json; parameters do not matter. */
static bool is_json_type(const char *type)
{
    size_t size;

    if (!type)
        return false;
    size = strcspn(type, ";");
    while (size && (type[size - 1] == ' ' || type[size - 1] == '\t'))
        size--;
    if (size < 12 || strncasecmp(type, "application/", 12) != 0)
        return false;
    return (size == 16 && strncasecmp(type + 12, "json", 4) == 0) ||
           (size > 17 && strncasecmp(type + size - 5, "+json", 5) == 0);
}

/* Reads the JSON; what is wrong with it beyond its syntax is kept until the token was judged. */
static int parse_body(struct wire_call *call, struct http_reply *reply, struct json_object **ret_object,
                      bool *ret_replied, struct error *err)
{
    const struct http_body *body = http_request_body(call->request);
    size_t size = (size_t)body->size;
    size_t offset;

    if (size == 0 || !is_json_type(http_request_header(call->request, "Content-Type")))
        return 0;
    if (json_parse_lax(body->data, size, ret_object, &offset, err) < 0) {
        struct wire_at at = {"body", NULL, NULL, NULL, (int64_t)offset};

        if (err->code != ERROR_UNPROCESSABLE)
            return -1;
        error_clear(err);
        wire_invalid_add(&call->invalid, at, "json_invalid", "JSON decode error");
    }
    *ret_replied = wire_refused(call, reply);
    return 0;
}

static void check_body(struct wire_call *call)
{
    struct wire_at at = WIRE_AT("body", NULL);

    if (http_request_body(call->request)->size == 0)
        wire_invalid_add(&call->invalid, at, "missing", "Field required");
    else if (!json_object_is_type(call->body.object, json_type_object))
        wire_invalid_add(&call->invalid, at, "model_attributes_type",
                         "Input should be a valid dictionary or object to extract fields from");
}

static int checked(struct wire_call *call, const struct wire_route *route, bool has_json, struct http_reply *reply,
                   struct error *err)
{
    struct wire_at at = WIRE_AT("path", "session_id");
    bool id_fits = id_of(route, call->request, &call->id);

    if (!id_fits)
        wire_invalid_pattern(&call->invalid, at, WIRE_NAME_PATTERN);
    if (is_session_route(route->access) && wire_refused(call, reply))
        return 0;
    if (authorize(call->wire, call->request, err) < 0)
        return -1;
    if (has_json)
        check_body(call);
    if (wire_refused(call, reply))
        return 0;
    return route->handler(call, reply, err);
}

int wire_dispatch(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    struct wire *wire = context;
    const struct wire_route *route = wire_route_of(wire, request);
    bool has_json = http_request_route(request)->body == HTTP_BODY_JSON;
    auto_json struct json_object *object = NULL;
    struct wire_call call = {wire, wire->sessions,   request,          http_request_cancel(request),
                             "",   {.object = NULL}, WIRE_INVALID_INIT};
    bool replied = false;
    int result = has_json ? parse_body(&call, reply, &object, &replied, err) : 0;

    call.body = (struct wire_reader){.object = object, .invalid = &call.invalid};
    if (result == 0 && !replied)
        result = checked(&call, route, has_json, reply, err);
    wire_invalid_done(&call.invalid);
    return result;
}
