/* Errors as the wire writes them: {"detail": …}. */
#include "log.h"
#include "metric.h"
#include "wire_private.h"

#include <errno.h>

/* What the operator must hear about: the client is not told why, or the host is in trouble. */
static void log_failure(const struct http_request *request, const struct error *err)
{
    struct log_field path = log_s("path", http_request_path(request));

    switch (err->code) {
    case ERROR_INTERNAL:
        log_error("request.failed", path, log_e(err));
        break;
    case ERROR_ENGINE:
    case ERROR_UNAVAILABLE:
    case ERROR_NO_SPACE:
    case ERROR_TIMEOUT:
        log_warn("request.failed", path, log_e(err));
        break;
    default:
        log_debug("request.refused", path, log_e(err));
    }
}

static void reply_list(struct http_reply *reply, int status, const char *items)
{
    struct buf body = BUF_INIT(WIRE_INVALID_MAX_BYTES + 32);
    struct error err = ERROR_INIT;

    http_reply_status(reply, status);
    if (buf_append_format(&body, &err, "{\"detail\":[%s]}", items) < 0)
        buf_clear(&body);
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
}

bool wire_refused(const struct wire_call *call, struct http_reply *reply)
{
    if (!wire_invalid_any(&call->invalid))
        return false;
    metric_count(errors, METRIC_ERROR_UNPROCESSABLE);
    reply_list(reply, 422, buf_str(&call->invalid.items));
    return true;
}

void wire_on_error(struct http_request *request, struct http_reply *reply, const struct error *err, void *context)
{
    struct buf body = BUF_INIT(4096); /* a text of 240 bytes, each escaped */
    struct wire_writer writer = WIRE_WRITER(&body);
    auto_wire_invalid struct wire_invalid invalid = WIRE_INVALID_INIT;

    metric_count(errors, err->code);
    log_failure(request, err);
    if (err->code == ERROR_UNPROCESSABLE) {
        wire_invalid_add(&invalid, WIRE_AT("body", NULL), "value_error", err->text);
        reply_list(reply, 422, buf_str(&invalid.items));
        return;
    }
    if (err->code == ERROR_INTERNAL) {
        http_reply_text(reply, error_http_status(err->code), "text/plain; charset=utf-8", error_public_text(err));
        return;
    }
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "detail", error_public_text(err));
    wire_put_close(&writer, '}');
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
}

static const char *python_name(const struct error *err)
{
    if (err->code == ERROR_NOT_FOUND)
        return "FileNotFoundError";
    if (err->code != ERROR_INVALID)
        return NULL;
    switch (err->sys_errno) {
    case EISDIR:
        return "IsADirectoryError";
    case ENOTDIR:
        return "NotADirectoryError";
    case EEXIST:
        return "FileExistsError";
    default:
        return "ValueError";
    }
}

int wire_native_failure(struct http_reply *reply, struct error *err)
{
    const char *name = python_name(err);
    struct buf body = BUF_INIT(4096);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (err->code == ERROR_TOO_LARGE || err->code == ERROR_FORBIDDEN)
        err->code = ERROR_HANDOVER; /* the sandbox may be able to */
    if (!name)
        return -1;
    metric_count(errors, err->code);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "detail", '{');
    wire_put_str(&writer, "error", name);
    wire_put_str(&writer, "message", err->text);
    wire_put_close(&writer, '}');
    wire_put_close(&writer, '}');
    http_reply_status(reply, error_http_status(err->code));
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
    return 0;
}
