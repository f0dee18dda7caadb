#include "http_private.h"

#include "cleanup.h"
#include "clock.h"
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_RESERVE_BYTES = 256 * 1024 };

/* A file without a name, gone with its descriptor. */
static int spool_open(const char *dir, int *ret_fd, struct error *err)
{
    auto_close int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        char name[4096];

        if (snprintf(name, sizeof name, "%s/.berth-body-XXXXXX", dir) >= (int)sizeof name)
            return fail(err, INTERNAL, "body_dir is too long");
        fd = mkostemp(name, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(name);
    }
    if (fd < 0)
        return fail_errno(err, "a file for a request body in %s", dir);
    *ret_fd = take_fd(&fd);
    return 0;
}

int http_body_begin(struct http_request *request, struct error *err)
{
    const struct http_settings *settings = &request->server->settings;
    enum http_body_kind kind = request->route->body;
    uint64_t max = settings->max_body_bytes;
    uint64_t length = request->content_length > 0 ? (uint64_t)request->content_length : 0;

    if (kind != HTTP_BODY_RAW || request->body_limit > max)
        request->body_limit = max;
    request->swallow_limit = request->chunked ? max * 2 : max;
    if (kind != HTTP_BODY_RAW && length > max)
        return fail(err, TOO_LARGE, "Request body too large");
    request->body_buf.max = kind == HTTP_BODY_JSON  ? (size_t)max
                            : kind == HTTP_BODY_RAW ? settings->body_memory_bytes
                                                    : 0;
    request->body.too_large = length > request->body_limit;
    if (request->body.too_large)
        return 0;
    if (kind == HTTP_BODY_RAW && length > settings->body_memory_bytes)
        return spool_open(settings->body_dir, &request->body.fd, err);
    if (length > 0 && kind != HTTP_BODY_NONE) {
        char *space;

        return buf_reserve(&request->body_buf, length < FIRST_RESERVE_BYTES ? (size_t)length : FIRST_RESERVE_BYTES,
                           &space, err);
    }
    return 0;
}

static int keep(struct http_request *request, const char *data, size_t size, struct error *err)
{
    struct buf *buf = &request->body_buf;

    if (request->route->body == HTTP_BODY_NONE)
        return 0;
    if (request->body.fd < 0 && request->route->body == HTTP_BODY_RAW && size > buf->max - buf->size) {
        if (spool_open(request->server->settings.body_dir, &request->body.fd, err) < 0 ||
            fd_write_all(request->body.fd, buf_str(buf), buf->size, err) < 0)
            return -1;
        buf_done(buf);
    }
    if (request->body.fd >= 0)
        return fd_write_all(request->body.fd, data, size, err);
    return buf_append(buf, data, size, err);
}

void http_body_count(struct http_request *request, size_t size)
{
    struct http_conn *conn = request->conn;

    request->body_seen += size;
    atomic_store_explicit(&conn->active_ms, clock_mono_ms(), memory_order_relaxed);
    atomic_store_explicit(&conn->received, (long long)request->body_seen, memory_order_relaxed);
}

int http_body_take(struct http_request *request, const char *data, size_t size)
{
    http_body_count(request, size);
    if (request->refused)
        return request->body_seen > HTTP_DRAIN_BYTES ? -1 : 0;
    if (request->body_seen > request->swallow_limit)
        return -1;
    if (request->body_seen > request->body_limit && !request->body.too_large) {
        request->body.too_large = true;
        buf_done(&request->body_buf);
        cleanup_fd(&request->body.fd);
        request->body.fd = -1;
    }
    if (!request->body.too_large && request->body_error.code == ERROR_NONE)
        (void)keep(request, data, size, &request->body_error);
    return 0;
}

int http_body_end(struct http_request *request, struct error *err)
{
    struct http_body *body = &request->body;

    if (request->body_error.code != ERROR_NONE) {
        *err = request->body_error;
        return -1;
    }
    if (body->too_large && request->route->body != HTTP_BODY_RAW)
        return fail(err, TOO_LARGE, "Request body too large");
    if (body->too_large)
        return 0;
    if (body->fd >= 0 && lseek(body->fd, 0, SEEK_SET) < 0)
        return fail_errno(err, "a request body");
    body->data = body->fd >= 0 ? NULL : buf_str(&request->body_buf);
    body->size = request->route->body == HTTP_BODY_NONE ? 0 : request->body_seen;
    return 0;
}

void http_body_done(struct http_request *request)
{
    buf_done(&request->body_buf);
    cleanup_fd(&request->body.fd);
    request->body.fd = -1;
}
