/* The page: static files that are part of the program. It asks for the token itself; every call it makes carries it. */
#include "wire_private.h"
#include "wire_ui.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Nothing comes from anywhere else, nothing runs that is not one of our files, and no text becomes markup (Trusted Types): what a
 * sandbox says can only be shown. Style attributes alone are let be: Chromium writes them itself while somebody types into an editable
 * element (the look of what is replaced), and complains of its own otherwise. Without markup from strings nobody else has a way to one. */
#define UI_POLICY                                                                                            \
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "              \
    "img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

enum { TAG_BYTES = 96 };

/* Does Accept-Encoding name it, and not with q=0? "*" is not looked at: the plain form is always right. */
static bool accepts(const char *header, const char *coding)
{
    size_t length = strlen(coding);

    for (const char *at = header; at && *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        if (strncasecmp(at, coding, length) != 0 || !strchr(" \t;,", at[length]))
            continue;
        at += length;
        at += strspn(at, " \t");
        if (*at != ';')
            return true;
        at += 1 + strspn(at + 1, " \t");
        return strncasecmp(at, "q=", 2) != 0 || strtod(at + 2, NULL) > 0;
    }
    return false;
}

static const struct wire_ui_file *file_of(const char *name, size_t size)
{
    for (size_t i = 0; i < wire_ui_file_count; i++)
        if (strlen(wire_ui_files[i].name) == size && memcmp(wire_ui_files[i].name, name, size) == 0)
            return &wire_ui_files[i];
    return NULL;
}

static void put_headers(const struct wire_ui_file *file, struct http_reply *reply)
{
    http_reply_header(reply, "Content-Security-Policy", UI_POLICY);
    http_reply_header(reply, "X-Content-Type-Options", "nosniff");
    http_reply_header(reply, "X-Frame-Options", "DENY");
    http_reply_header(reply, "Referrer-Policy", "no-referrer");
    http_reply_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
    http_reply_header(reply, "Cross-Origin-Resource-Policy", "same-origin");
    http_reply_header(reply, "Vary", "Accept-Encoding");
    http_reply_header(reply, "Cache-Control", file->is_hashed ? "public, max-age=31536000, immutable" : "no-cache");
}

static int reply_file(const struct wire_call *call, const char *name, size_t size, struct http_reply *reply,
                      struct error *err)
{
    const char *accepted = http_request_header(call->request, "Accept-Encoding");
    const char *known = http_request_header(call->request, "If-None-Match");
    const struct wire_ui_file *file;
    const struct wire_ui_bytes *bytes;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    const char *coding = NULL;
    char tag[TAG_BYTES];

    if (!call->wire->serves_page)
        return fail(err, NOT_FOUND, "Not Found");
    if (wire_ui_file_count == 0)
        return fail(err, NOT_FOUND,
                    "This berthd was built without its page: build it where Node is, without --without-ui");
    file = file_of(name, size);
    if (!file)
        return fail(err, NOT_FOUND, "Not Found");
    bytes = &file->plain;
    if (file->brotli.size && accepts(accepted, "br")) {
        bytes = &file->brotli;
        coding = "br";
    } else if (file->gzip.size && accepts(accepted, "gzip")) {
        bytes = &file->gzip;
        coding = "gzip";
    }
    (void)snprintf(tag, sizeof tag, "\"%s%s%s\"", file->digest, coding ? "-" : "", coding ? coding : "");
    put_headers(file, reply);
    http_reply_header(reply, "ETag", tag);
    if (known && strstr(known, tag)) {
        http_reply_empty(reply, 304);
        return 0;
    }
    if (coding)
        http_reply_header(reply, "Content-Encoding", coding);
    if (buf_append(&body, bytes->data, bytes->size, err) < 0) {
        buf_done(&body);
        return -1;
    }
    http_reply_buf(reply, file->type, &body);
    return 0;
}

/* GET /ui */
int route_ui(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    return reply_file(call, "index.html", strlen("index.html"), reply, err);
}

/* GET /ui/{file} */
int route_ui_file(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    size_t size;
    const char *name = http_request_param(call->request, 0, &size);

    return reply_file(call, name, size, reply, err);
}
