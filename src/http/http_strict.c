/* libmicrohttpd 0.9.75 believes the first of two Content-Lengths, prefers Transfer-Encoding to a Content-Length, takes
 * any coding for a body without end, ends lines at a bare LF, cuts values at a NUL and glues a folded line to the
 * header's *name*. Each of them lets a client and a proxy in front of us disagree on where a request ends, so that a
 * request can be smuggled past the proxy. All are refused here, before anything else looks at the request. (A Content-Length that is no
 * number it refuses itself, with the head of its 400 sent twice, and closes: nothing behind it is run either.)
 *
 * Folds, bare LFs and NULs cannot be seen in what the library hands over, but in where it lies: it cuts the head into
 * strings in place, so that each must begin where the one before ended, two bytes (CR LF) on. */
#include "http_private.h"

#include "alloc.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

bool http_strict_layout_known(void)
{
    return strncmp(MHD_get_version(), "0.9.75", 6) == 0;
}

static bool is_token(const char *text, size_t size)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c && strchr(marks, c) != NULL)))
            return false;
    }
    return size > 0;
}

static bool has_control(const char *text, size_t size, bool blanks_allowed)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == 0x7f || (c < ' ' && !(blanks_allowed && c == '\t')) || (c == ' ' && !blanks_allowed))
            return true;
    }
    return false;
}

struct collector {
    struct http_request *request;
    bool too_many;
};

static enum MHD_Result collect(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                               const char *value, size_t value_size)
{
    struct collector *collector = context;
    struct http_request *request = collector->request;

    if (request->header_count == HTTP_HEADERS_MAX) {
        collector->too_many = true;
        return MHD_NO;
    }
    request->headers[request->header_count++] =
        (struct http_header){name, value ? value : "", name_size, value ? value_size : 0};
    return MHD_YES;
}

/* Whether the strings of the head lie one behind the other, as they do when nothing was cut or glued. */
static bool lies_in_order(const struct http_request *request, const char *method, const char *version, size_t head_size)
{
    const char *at = version + strlen(version) + 2;

    if (request->uri_at != method + strlen(method) + 1 || version != request->uri_at + request->uri_size + 1)
        return false;
    for (unsigned i = 0; i < request->header_count; i++) {
        const struct http_header *header = &request->headers[i];

        if (header->name != at || (uintptr_t)header->value <= (uintptr_t)(at + header->name_size) ||
            (uintptr_t)header->value > (uintptr_t)(method + head_size))
            return false;
        for (const char *blank = at + header->name_size + 1; blank < header->value; blank++)
            if (*blank != ' ' && *blank != '\t')
                return false;
        at = header->value + header->value_size + 2;
    }
    return at + 2 == method + head_size;
}

/* White space behind a value is not part of it (RFC 9110, 5.5). It lies in the connection's own memory, ours to cut. */
static void trim(struct http_header *header)
{
    size_t size = header->value_size;

    while (size > 0 && (header->value[size - 1] == ' ' || header->value[size - 1] == '\t'))
        size--;
    if (size < header->value_size)
        ((char *)(uintptr_t)header->value)[size] = '\0';
    header->value_size = size;
}

static bool parse_length(const struct http_header *header, int64_t *ret_length)
{
    int64_t length = 0;

    for (size_t i = 0; i < header->value_size; i++) {
        int digit = header->value[i] - '0';

        if (digit < 0 || digit > 9 || length > (INT64_MAX - digit) / 10)
            return false;
        length = length * 10 + digit;
    }
    *ret_length = length;
    return header->value_size > 0;
}

static int refuse(struct error *err, int status, const char *text)
{
    (void)fail(err, INVALID, "%s", text);
    return status;
}

#define NAME_IS(header, name) http_name_is((header), (name), sizeof(name) - 1)

int http_strict_check(struct http_request *request, struct MHD_Connection *connection, const char *method,
                      const char *version, struct error *err)
{
    struct collector collector = {request, false};
    struct http_header found[HTTP_HEADERS_MAX];
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    size_t head_size = info ? info->header_size : 0;
    unsigned hosts = 0;
    unsigned lengths = 0;
    unsigned codings = 0;

    request->headers = found;
    (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, collect, &collector);
    request->headers = alloc_array(request->header_count + 1, sizeof *found);
    memcpy(request->headers, found, request->header_count * sizeof *found);
    if (collector.too_many || head_size > request->server->settings.max_header_bytes)
        return refuse(err, 431, "Request header fields too large");
    if (request->server->layout_known && !lies_in_order(request, method, version, head_size))
        return refuse(err, 400, "Malformed request head");
    if (!is_token(method, strlen(method)) || request->uri_size == 0 ||
        has_control(request->memory, strlen(request->memory), false) ||
        has_control(request->query, request->query_size, false))
        return refuse(err, 400, "Malformed request line");
    for (unsigned i = 0; i < request->header_count; i++) {
        struct http_header *header = &request->headers[i];

        if (!is_token(header->name, header->name_size) || has_control(header->value, header->value_size, true))
            return refuse(err, 400, "Malformed header");
        trim(header);
        if (NAME_IS(header, "Host")) {
            hosts++;
        } else if (NAME_IS(header, "Content-Length")) {
            lengths++;
            if (!parse_length(header, &request->content_length))
                return refuse(err, 400, "Malformed Content-Length");
        } else if (NAME_IS(header, "Transfer-Encoding")) {
            codings++;
            if (header->value_size != 7 || strcasecmp(header->value, "chunked") != 0)
                return refuse(err, 400, "Unsupported Transfer-Encoding");
            request->chunked = true;
        } else if (NAME_IS(header, "Expect")) {
            if (header->value_size != 12 || strcasecmp(header->value, "100-continue") != 0)
                return refuse(err, 417, "Unsupported expectation");
            request->expects = true;
        }
    }
    if (hosts > 1 || lengths > 1 || codings > 1)
        return refuse(err, 400, "Repeated header");
    if (lengths && codings)
        return refuse(err, 400, "Content-Length together with Transfer-Encoding");
    if (strcmp(version, "HTTP/1.1") == 0 ? hosts == 0 : codings > 0)
        return refuse(err, 400, hosts ? "Transfer-Encoding in HTTP/1.0" : "No Host");
    return 0;
}
