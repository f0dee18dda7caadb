#include "wire_place.h"

#include "alloc.h"
#include "clock.h"
#include "utf8.h"

#include <errno.h>
#include <string.h>

int wire_place_path(struct wire_call *call, const char *key, bool required, char **ret_path, struct error *err)
{
    const char *work_dir = sessions_settings(call->sessions)->work_dir;
    size_t size = 0;
    const char *bytes = http_request_query_bytes(call->request, key, &size);

    if (!bytes && required) {
        wire_invalid_add(&call->invalid, WIRE_AT("query", key), "missing", "Field required");
        return 1;
    }
    return workspace_path_place(work_dir, bytes ? bytes : "", size, ret_path, err);
}

int wire_place_begin(struct wire_call *call, const char *key, bool required, bool writes, struct wire_place *ret,
                     struct error *err)
{
    int result;

    ret->call = call;
    ret->started_us = clock_mono_us();
    ret->writes = writes;
    ret->sent.data = http_request_query_bytes(call->request, key, &ret->sent.size);
    result = wire_place_path(call, key, required, &ret->path, err);
    if (result != 0)
        return result;
    ret->is_session = http_request_route(call->request)->access == ACCESS_SESSION_WORK;
    if (!ret->is_session)
        return sessions_archive(call->sessions, call->id, &ret->workspace, err);
    if (session_place_begin(call->sessions, call->id, writes, &ret->files, err) < 0)
        return -1;
    ret->workspace = ret->files.workspace;
    return 0;
}

/* There is nobody to hand over to: what the jail leaves to the sandbox is an answer of its own here. */
static void explain(const struct wire_place *place, struct error *err)
{
    if (err->code == ERROR_FORBIDDEN || err->sys_errno == EACCES || err->sys_errno == EPERM)
        err->code = ERROR_FORBIDDEN;
    else if (err->code == ERROR_NOT_FOUND)
        err->code = ERROR_NOT_FOUND;
    else if (err->code == ERROR_HANDOVER && err->sys_errno == ELOOP && !place->writes)
        (void)error_set(err, ERROR_NOT_FOUND, ELOOP, "The path leads over a link, which is not followed");
    else if (err->code == ERROR_HANDOVER && err->sys_errno == ELOOP)
        (void)error_set(err, ERROR_CONFLICT, ELOOP, "The path leads over a link, which is not followed");
    else if (err->sys_errno == ENAMETOOLONG)
        err->code = ERROR_INVALID;
    else if (err->code == ERROR_INVALID && err->sys_errno == ENOTDIR && !place->writes)
        err->code = ERROR_NOT_FOUND;
    else if (err->sys_errno == EDQUOT || err->sys_errno == EFBIG)
        err->code = ERROR_NO_SPACE;
    else if (err->code == ERROR_HANDOVER)
        err->code = ERROR_CONFLICT;
}

int wire_place_end(struct wire_place *place, const char *op, int result, struct error *err)
{
    if (result == 0 && place->writes && place->files.session && session_files_replaced(&place->files))
        result = fail(err, CONFLICT, "The workspace was replaced by a snapshot of it meanwhile: nothing is written");
    if (place->files.session) {
        char target[WIRE_TARGET_BYTES];
        size_t size = wire_quote_text(place->sent.data ? place->sent.data : "", place->sent.size, target);

        session_files_end(place->call->sessions, &place->files, op, target, size, result < 0 ? err : NULL,
                          place->started_us);
    } else if (place->workspace) {
        workspace_unref(place->workspace);
    }
    free(place->path);
    place->path = NULL;
    place->workspace = NULL;
    if (result < 0)
        explain(place, err);
    return result;
}

int wire_put_percent(struct buf *out, const char *text, size_t size, struct error *err)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";

    for (size_t i = 0; i < size; i++) {
        char c = text[i];

        if (c && strchr(plain, c) ? buf_append(out, &c, 1, err) < 0
                                  : buf_append_format(out, err, "%%%02X", (unsigned char)c) < 0)
            return -1;
    }
    return 0;
}

void wire_put_path(struct wire_writer *writer, const char *path)
{
    size_t size = strlen(path);
    auto_buf struct buf encoded = BUF_INIT(3 * size + 1);
    struct error err = ERROR_INIT;

    wire_put_text(writer, "path", path, size);
    if (wire_put_percent(&encoded, path, size, &err) == 0)
        wire_put_text(writer, "path_encoded", buf_str(&encoded), encoded.size);
}

void wire_reply_attachment(struct http_reply *reply, const char *name, const char *suffix)
{
    auto_free char *whole = alloc_format("%s%s", name, suffix);
    auto_buf struct buf mended = BUF_INIT(4 * strlen(whole) + 1);
    auto_buf struct buf out = BUF_INIT(16 * strlen(whole) + 128);
    struct error err = ERROR_INIT;

    if (utf8_append_lossy(&mended, whole, strlen(whole), &err) < 0)
        return;
    for (char *c = whole; *c; c++)
        if (*c < 0x20 || *c > 0x7e || strchr("\"\\%;'", *c))
            *c = '_';
    if (buf_append_format(&out, &err, "attachment; filename=\"%s\"; filename*=UTF-8''", whole) == 0 &&
        wire_put_percent(&out, buf_str(&mended), mended.size, &err) == 0)
        http_reply_header(reply, "Content-Disposition", buf_str(&out));
}

void wire_reply_inert(struct http_reply *reply)
{
    http_reply_header(reply, "X-Content-Type-Options", "nosniff");
    http_reply_header(reply, "Content-Security-Policy", "sandbox; default-src 'none'");
    http_reply_header(reply, "Cross-Origin-Resource-Policy", "same-origin");
    http_reply_header(reply, "Cache-Control", "private, no-cache");
}
