/* What a request line may hold: matching, decoding, the query. Half of all bytes stand for a word that the routes know. */
#include "fuzz.h"
#include "http_private.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static int nothing(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    return 0;
}

static const struct http_route routes[] = {
    {HTTP_GET, "/", nothing, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/sessions", nothing, HTTP_BODY_NONE, 0},
    {HTTP_POST, "/sessions", nothing, HTTP_BODY_JSON, 0},
    {HTTP_DELETE, "/sessions/{id}", nothing, HTTP_BODY_NONE, 1},
    {HTTP_POST, "/sessions/{id}/run", nothing, HTTP_BODY_JSON, 1},
    {HTTP_POST, "/sessions/{id}/{verb}/stop", nothing, HTTP_BODY_JSON, 2},
    {HTTP_GET, "/sessions/run/run", nothing, HTTP_BODY_NONE, 0},
};

static const char *const words[] = {"/",  "/sessions", "/run", "/stop", "%2F", "%00", "%2e", "%",
                                    "%4", "?",         "&",    "=",     "+",   "k",   "%ff", "a"};

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The words of the input as one string, without the bytes that end a request line. */
static char *text_of(const uint8_t *data, size_t size)
{
    char *text = malloc(size * 10 + 1);
    size_t used = 0;

    require(text != NULL);
    for (size_t i = 0; i < size; i++) {
        const char *word = words[data[i] % (sizeof words / sizeof *words)];

        if (data[i] < 128) {
            memcpy(text + used, word, strlen(word));
            used += strlen(word);
        } else if (data[i] > ' ') {
            text[used++] = (char)(data[i] & (i % 2 ? 0x7f : 0xff));
            if (text[used - 1] == '\0')
                used--;
        }
    }
    text[used] = '\0';
    return text;
}

static void check_match(struct http_router *router, struct http_request *request)
{
    struct http_match *match = &request->match;

    http_router_match(router, request->method, request->path, request->path_size, request->scratch, match);
    require(!match->route || (match->param_count == (unsigned)match->route->access && match->methods));
    for (unsigned i = 0; match->route && i < match->param_count; i++)
        require(match->params[i].size > 0 && !memchr(match->params[i].data, '/', match->params[i].size) &&
                match->params[i].data[match->params[i].size] == '\0');
    if (match->slash) {
        require(!match->route && !match->methods);
        http_router_match(router, request->method, request->path, request->path_size - 1, request->scratch, match);
        require(match->methods != 0 && (request->path_size == 2 || request->path[1] != '/'));
    }
}

static void check_query(struct http_request *request, const char *key)
{
    size_t size = 0;
    const char *value = http_request_query(request, key, &size);

    require(!value || (value[size] == '\0' && utf8_valid(value, size)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_server server;
    static struct http_conn conn;
    struct http_request *request;
    char *text;

    if (size == 0)
        return 0;
    if (!server.router)
        server.router = http_router_new(routes, sizeof routes / sizeof *routes);
    text = text_of(data + 1, size - 1);
    request = http_request_new(&server, &conn, text);
    request->method = data[0] % (HTTP_METHODS + 1) - 1;
    check_match(server.router, request);
    check_query(request, "k");
    check_query(request, "");
    check_query(request, "sessions");
    http_request_free(request);
    free(text);
    return 0;
}
