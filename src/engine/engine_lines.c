#include "alloc.h"
#include "engine_private.h"

#include <string.h>

enum { LINE_BYTES_MAX = 1024 * 1024 };

struct engine_lines {
    struct net_http *http;
    struct buf text; /* received, not given yet, and what the reader holds */
    size_t given;    /* bytes of it that the reader has had, newline included */
};

DEFINE_CLEANUP(net_http, struct net_http *, net_http_close)

void engine_lines_free(struct engine_lines *lines)
{
    if (!lines)
        return;
    net_http_close(lines->http);
    buf_done(&lines->text);
    free(lines);
}

int engine_lines_open(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                      const struct cancel *cancel, struct engine_lines **ret_lines, int *ret_status,
                      struct buf *ret_body, struct error *err)
{
    return engine_lines_send(engine, counted, method, target, NULL, NULL, 0, cancel, ret_lines, ret_status, ret_body,
                             err);
}

int engine_lines_send(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                      const char *body_type, const void *body, size_t body_size, const struct cancel *cancel,
                      struct engine_lines **ret_lines, int *ret_status, struct buf *ret_body, struct error *err)
{
    const struct net_http_request request = {
        .method = method, .body = body, .body_size = body_size, .body_type = body_type};
    auto_cleanup(cleanup_net_http) struct net_http *http = NULL;
    const char *data;
    size_t size;
    int more;

    if (engine_request_open(engine, counted, &request, target, cancel, &http, ret_status, err) < 0)
        return -1;
    if (*ret_status == 200) {
        struct engine_lines *lines = alloc_zero(sizeof *lines);

        lines->http = take_ptr(http);
        lines->text = (struct buf)BUF_INIT(LINE_BYTES_MAX);
        *ret_lines = lines;
        return 0;
    }
    while ((more = net_http_read(http, cancel, &data, &size, err)) > 0) {
        if (buf_append(ret_body, data, size, err) < 0)
            return -1;
    }
    return more;
}

int engine_lines_next(struct engine_lines *lines, const struct cancel *cancel, const char **ret_line, size_t *ret_size,
                      struct error *err)
{
    const char *data, *end;
    size_t size;
    int more;

    for (;;) {
        size_t left = lines->text.size - lines->given;

        end = left ? memchr(lines->text.data + lines->given, '\n', left) : NULL;
        if (end) {
            *ret_line = lines->text.data + lines->given;
            *ret_size = (size_t)(end - *ret_line);
            lines->given += *ret_size + 1;
            return 1;
        }
        buf_consume(&lines->text, lines->given);
        lines->given = 0;
        if ((more = net_http_read(lines->http, cancel, &data, &size, err)) < 0)
            return -1;
        if (more == 0 && lines->text.size > 0)
            return fail(err, UNAVAILABLE, "the engine's answer ended within a line");
        if (more == 0)
            return 0;
        if (buf_append(&lines->text, data, size, err) < 0)
            return -1;
    }
}
