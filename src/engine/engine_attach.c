#include "alloc.h"
#include "engine.h"
#include "engine_demux.h"
#include "engine_private.h"
#include "log.h"

#include <errno.h>
#include <string.h>

enum { RAW_BYTES = 64 * 1024, STDERR_LOG_MAX = 16 * 1024 };

/* The agent's standard output as a stream of its own, over the engine's multiplexed one. */
struct attach_stream {
    struct net_stream base;
    struct net_stream *inner;
    struct engine_demux demux;
    size_t raw_size; /* bytes in raw, of which raw_used are taken */
    size_t raw_used;
    size_t stderr_logged;
    char id[13];
    char raw[RAW_BYTES];
};

/* Where the agent writes when it must not use its stream: a few words for the operator, hostile and therefore few. */
static void log_stderr(struct attach_stream *self, const char *data, size_t size)
{
    char line[160];

    if (self->stderr_logged >= STDERR_LOG_MAX)
        return;
    self->stderr_logged += size;
    engine_error_clean(line, data, size);
    log_warn("agent.stderr", log_s("container", self->id), log_s("text", line));
}

static ssize_t attach_read(struct net_stream *stream, void *data, size_t size)
{
    struct attach_stream *self = (struct attach_stream *)stream;
    size_t done = 0;

    while (done < size) {
        struct engine_demux_piece piece;
        struct error err = ERROR_INIT;
        size_t used;
        int found;

        if (self->raw_used == self->raw_size) {
            ssize_t got = done > 0 ? 0 : net_stream_read(self->inner, self->raw, sizeof self->raw);

            if (got <= 0)
                return done > 0 ? (ssize_t)done : got;
            self->raw_size = (size_t)got;
            self->raw_used = 0;
        }
        /* Never take more than the caller has room for: a piece is cut by cutting its input. */
        used = self->raw_size - self->raw_used;
        if (self->demux.left > 0 && used > size - done)
            used = size - done;
        else if (self->demux.left == 0 && used > sizeof self->demux.header - self->demux.header_size)
            used = sizeof self->demux.header - self->demux.header_size;
        found = engine_demux_next(&self->demux, self->raw + self->raw_used, used, &used, &piece, &err);
        if (found < 0) {
            log_warn("engine.attach", log_s("container", self->id), log_e(&err));
            errno = EPROTO;
            return -1;
        }
        self->raw_used += used;
        if (found && piece.stream == ENGINE_DEMUX_STDERR)
            log_stderr(self, piece.data, piece.size);
        if (found && piece.stream == ENGINE_DEMUX_STDOUT) {
            memcpy((char *)data + done, piece.data, piece.size);
            done += piece.size;
        }
    }
    return (ssize_t)done;
}

static ssize_t attach_write(struct net_stream *stream, const void *data, size_t size)
{
    return net_stream_write(((struct attach_stream *)stream)->inner, data, size);
}

static void attach_close(struct net_stream *stream)
{
    struct attach_stream *self = (struct attach_stream *)stream;

    net_stream_close(self->inner);
    free(self);
}

static const struct net_stream_ops attach_ops = {attach_read, attach_write, attach_close};

int engine_attach(struct engine *engine, const char *id, const struct cancel *cancel, struct net_stream **ret_stream,
                  struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    struct net_stream *inner;
    struct attach_stream *self;
    int status;

    if (buf_append_str(&target, "/containers/", err) < 0 || net_http_escape(&target, id, err) < 0 ||
        buf_append_str(&target, "/attach?stream=1&stdin=1&stdout=1&stderr=1", err) < 0 ||
        engine_request_upgrade(engine, METRIC_ENGINE_ATTACH, &target, cancel, &status, &inner, &body, err) < 0)
        return -1;
    if (!inner)
        return engine_error("cannot attach to the container", status, &body, err);
    self = alloc_zero(sizeof *self);
    self->base = (struct net_stream){&attach_ops, net_stream_fd(inner)};
    self->inner = inner;
    (void)snprintf(self->id, sizeof self->id, "%.12s", id);
    *ret_stream = &self->base;
    return 0;
}
