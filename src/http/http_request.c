#include "http_private.h"

#include "alloc.h"
#include "clock.h"
#include "utf8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Distinct within a start and not to be guessed from one another at a glance: a counter from a random start, mixed by a
 * bijection (splitmix64). A secret it is not. */
static void make_id(struct http_server *server, char out[static HTTP_ID_MAX + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t x = atomic_fetch_add_explicit(&server->next_id, 0x9e3779b97f4a7c15u, memory_order_relaxed);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    for (int i = 0; i < HTTP_ID_DIGITS; i++, x >>= 4)
        out[i] = digits[x & 15];
    out[HTTP_ID_DIGITS] = '\0';
}

/* 8 to 64 of letters, digits, '.', '_', '-': it goes into answers and logs. */
static bool is_id(const char *text)
{
    size_t size = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-");

    return size >= 8 && size <= HTTP_ID_MAX && text[size] == '\0';
}

static bool is_hex(const char *text, size_t size)
{
    bool is_zero = true;

    for (size_t i = 0; i < size; i++) {
        if (!text[i] || !strchr("0123456789abcdef", text[i]))
            return false;
        is_zero = is_zero && text[i] == '0';
    }
    return !is_zero;
}

/* W3C Trace Context, 3.2: version-trace-parent-flags; later versions may have more behind. */
static bool is_traceparent(const char *text)
{
    size_t size = strlen(text);

    if (size < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' || strspn(text, "0123456789abcdef") != 2 ||
        strncmp(text, "ff", 2) == 0 || strspn(text + 53, "0123456789abcdef") != 2)
        return false;
    if (size > 55 && (strncmp(text, "00", 2) == 0 || text[55] != '-'))
        return false;
    return is_hex(text + 3, 32) && is_hex(text + 36, 16);
}

void http_request_adopt_ids(struct http_request *request)
{
    const char *id = http_request_header(request, "X-Request-Id");
    const char *parent = http_request_header(request, "traceparent");

    if (id && is_id(id) && http_request_header_count(request, "X-Request-Id") == 1)
        (void)snprintf(request->id, sizeof request->id, "%s", id);
    if (parent && is_traceparent(parent) && http_request_header_count(request, "traceparent") == 1)
        (void)snprintf(request->trace, sizeof request->trace, "%.32s", parent + 3);
}

/* RFC 9112, 3.2.2: "GET http://host/path" means the same as "GET /path". */
static const char *skip_authority(const char *uri)
{
    size_t scheme = strncasecmp(uri, "http://", 7) == 0 ? 7 : strncasecmp(uri, "https://", 8) == 0 ? 8 : 0;

    return scheme ? uri + scheme + strcspn(uri + scheme, "/?") : uri;
}

struct http_request *http_request_new(struct http_server *server, struct http_conn *conn, const char *uri)
{
    size_t size = strlen(uri);
    struct http_request *request = alloc_zero(sizeof *request + 2 * (size + 1));
    char *copy = request->memory;
    char *mark;

    memcpy(copy, uri, size + 1);
    request->uri_at = uri;
    request->uri_size = size;
    request->server = server;
    request->conn = conn;
    request->cancel = (struct cancel){server->settings.stop_fd, conn->fd, 0};
    request->linger = true; /* until the whole request was read */
    request->content_length = -1;
    request->method = -1;
    request->began_us = clock_mono_us();
    make_id(server, request->id);
    request->path = skip_authority(copy);
    mark = strchr(request->path, '?');
    request->query = "";
    if (mark) {
        *mark = '\0';
        request->query = mark + 1;
        request->query_size = strlen(mark + 1);
    }
    request->path_size = strlen(request->path);
    request->scratch = copy + size + 1;
    request->body.fd = -1;
    request->body_limit = UINT64_MAX;
    return request;
}

void http_request_free(struct http_request *request)
{
    http_body_done(request);
    buf_done(&request->query_text);
    free(request->query_items);
    free(request->headers);
    free(request);
}

enum http_method http_request_method(const struct http_request *request)
{
    return request->method < 0 ? HTTP_GET : (enum http_method)request->method;
}

const struct http_route *http_request_route(const struct http_request *request)
{
    return request->route;
}

const char *http_request_id(const struct http_request *request)
{
    return request->id;
}

const char *http_request_path(const struct http_request *request)
{
    return request->path;
}

const char *http_request_param(const struct http_request *request, unsigned n, size_t *ret_size)
{
    if (n >= request->match.param_count) {
        if (ret_size)
            *ret_size = 0;
        return "";
    }
    if (ret_size)
        *ret_size = request->match.params[n].size;
    return request->match.params[n].data;
}

/* Appends the decoded text, mended if `mends`, and a NUL; returns where it begins (an offset until the buffer stops moving). */
static struct http_text put_decoded(struct http_request *request, char *scratch, const char *text, size_t size,
                                    bool mends)
{
    struct error err = ERROR_INIT;
    struct buf *out = &request->query_text;
    size_t at = out->size;
    size_t decoded = http_percent_decode(scratch, text, size, true);

    if ((mends ? utf8_append_lossy(out, scratch, decoded, &err) : buf_append(out, scratch, decoded, &err)) < 0 ||
        buf_append(out, "", 1, &err) < 0)
        abort(); /* no memory for a query of max_header_bytes at most: as alloc.h */
    return (struct http_text){(const char *)(uintptr_t)at, out->size - at - 1};
}

static void settle(const struct http_request *request, struct http_text *text)
{
    text->data = request->query_text.data + (uintptr_t)text->data;
}

static void parse_query(struct http_request *request)
{
    const char *at = request->query;
    const char *end = at + request->query_size;
    char *scratch = alloc_array(request->query_size + 1, 1);
    size_t items = 1;

    for (const char *c = at; c < end; c++)
        items += *c == '&';
    request->query_items = alloc_array(items, sizeof *request->query_items);
    request->query_text.max = request->query_size * 4 + items * 3 + 1; /* each bad byte becomes three */
    while (at < end) {
        const char *stop = memchr(at, '&', (size_t)(end - at));
        const char *equals;
        struct http_query_item *item = &request->query_items[request->query_count];

        if (!stop)
            stop = end;
        if (stop == at) {
            at++;
            continue;
        }
        equals = memchr(at, '=', (size_t)(stop - at));
        if (!equals)
            equals = stop;
        item->key = put_decoded(request, scratch, at, (size_t)(equals - at), true);
        if (equals < stop)
            equals++;
        item->value = put_decoded(request, scratch, equals, (size_t)(stop - equals), true);
        item->bytes = put_decoded(request, scratch, equals, (size_t)(stop - equals), false);
        request->query_count++;
        at = stop < end ? stop + 1 : end;
    }
    for (size_t i = 0; i < request->query_count; i++) {
        settle(request, &request->query_items[i].key);
        settle(request, &request->query_items[i].value);
        settle(request, &request->query_items[i].bytes);
    }
    free(scratch);
}

static const struct http_query_item *find_query(const struct http_request *request, const char *key)
{
    size_t size = strlen(key);

    if (request->query_size == 0)
        return NULL;
    if (!request->query_items)
        parse_query((struct http_request *)(uintptr_t)request); /* parsed when first asked for */
    for (size_t i = request->query_count; i-- > 0;) {
        const struct http_query_item *item = &request->query_items[i];

        if (item->key.size == size && memcmp(item->key.data, key, size) == 0)
            return item;
    }
    return NULL;
}

const char *http_request_query(const struct http_request *request, const char *key, size_t *ret_size)
{
    const struct http_query_item *item = find_query(request, key);

    if (item && ret_size)
        *ret_size = item->value.size;
    return item ? item->value.data : NULL;
}

const char *http_request_query_bytes(const struct http_request *request, const char *key, size_t *ret_size)
{
    const struct http_query_item *item = find_query(request, key);

    if (item && ret_size)
        *ret_size = item->bytes.size;
    return item ? item->bytes.data : NULL;
}

bool http_name_is(const struct http_header *header, const char *name, size_t size)
{
    return header->name_size == size && strncasecmp(header->name, name, size) == 0;
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    size_t size = strlen(name);

    for (unsigned i = 0; i < request->header_count; i++)
        if (http_name_is(&request->headers[i], name, size))
            return request->headers[i].value;
    return NULL;
}

unsigned http_request_header_count(const struct http_request *request, const char *name)
{
    size_t size = strlen(name);
    unsigned count = 0;

    for (unsigned i = 0; i < request->header_count; i++)
        count += http_name_is(&request->headers[i], name, size);
    return count;
}

bool http_request_has_body(const struct http_request *request)
{
    return request->chunked || request->content_length > 0;
}

int64_t http_request_content_length(const struct http_request *request)
{
    return request->content_length;
}

const struct cancel *http_request_cancel(const struct http_request *request)
{
    return &request->cancel;
}

void http_request_limit_body(struct http_request *request, uint64_t max_bytes)
{
    request->body_limit = max_bytes;
}

void http_request_set_note(struct http_request *request, int note)
{
    request->note = note;
}

int http_request_note(const struct http_request *request)
{
    return request->note;
}

const struct http_body *http_request_body(const struct http_request *request)
{
    return &request->body;
}
