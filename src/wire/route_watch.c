/* GET /sessions/{session_id}/watch?path=: what changes below a directory, as server-sent events. */
#include "alloc.h"
#include "clock.h"
#include "watch.h"
#include "wire_place.h"

#include <string.h>

enum { PING_MS = 15 * 1000, EVENT_BYTES = 1024 * 1024 };

struct watching {
    struct sessions *sessions;
    struct watch *watch;
    char id[SESSION_ID_BYTES];
    bool over;
    struct buf out; /* made and not yet taken */
};

static const char *const kinds[] = {
    [WATCH_CREATED] = "created",
    [WATCH_MODIFIED] = "modified",
    [WATCH_ATTRIBUTES] = "attributes",
    [WATCH_DELETED] = "deleted",
    [WATCH_MOVED_FROM] = "moved_from",
    [WATCH_MOVED_TO] = "moved_to",
    [WATCH_LOST] = "lost",
    [WATCH_GONE] = "gone",
};

static int put_event(struct watching *watching, const struct watch_event *event, struct error *err)
{
    auto_buf struct buf data = BUF_INIT(EVENT_BYTES / 2);
    struct wire_writer writer = WIRE_WRITER(&data);

    wire_put_open(&writer, NULL, '{');
    if (event->kind != WATCH_LOST) {
        wire_put_path(&writer, event->path);
        wire_put_bool(&writer, "directory", event->is_dir);
        if (event->cookie)
            wire_put_int(&writer, "move", event->cookie);
    }
    wire_put_close(&writer, '}');
    if (wire_writer_end(&writer, err) < 0)
        return -1;
    return buf_append_format(&watching->out, err, "event: %s\ndata: %s\n\n", kinds[event->kind], buf_str(&data));
}

/* The next event, or a comment when nothing happened for a while. */
static int make(struct watching *watching, const struct cancel *cancel, struct error *err)
{
    struct cancel until_ping = cancel_within(cancel, PING_MS);
    struct watch_event event;

    if (watch_next(watching->watch, &until_ping, &event, err) < 0) {
        if (err->code != ERROR_TIMEOUT)
            return -1;
        error_clear(err);
        watching->over = !sessions_exists(watching->sessions, watching->id);
        return buf_append_str(&watching->out, ": nothing new\n\n", err);
    }
    watching->over = event.kind == WATCH_GONE;
    return put_event(watching, &event, err);
}

static int64_t watch_stream_next(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct watching *watching = context;
    struct error err = ERROR_INIT;
    size_t size;

    if (watching->out.size == 0) {
        if (watching->over)
            return 0;
        if (make(watching, cancel, &err) < 0)
            return -1;
    }
    size = watching->out.size < max ? watching->out.size : max;
    memcpy(out, watching->out.data, size);
    buf_consume(&watching->out, size);
    return (int64_t)size;
}

static void watch_stream_free(void *context)
{
    struct watching *watching = context;

    watch_free(watching->watch);
    buf_done(&watching->out);
    free(watching);
}

static int start(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    struct http_stream stream = {.next = watch_stream_next, .free = watch_stream_free};
    struct watching *watching;
    struct watch *watch;

    if (watch_new(place->workspace, place->path, &watch, err) < 0)
        return -1;
    watching = alloc_zero(sizeof *watching);
    watching->sessions = place->call->sessions;
    watching->watch = watch;
    watching->out.max = EVENT_BYTES;
    (void)snprintf(watching->id, sizeof watching->id, "%s", place->call->id);
    stream.context = watching;
    if (buf_append_str(&watching->out, "event: ready\ndata: {}\n\n", err) < 0) {
        watch_stream_free(watching);
        return -1;
    }
    http_reply_header(reply, "Cache-Control", "no-store");
    http_reply_header(reply, "X-Accel-Buffering", "no");
    http_reply_stream(reply, "text/event-stream", &stream);
    return 0;
}

/* GET /sessions/{session_id}/watch?path= */
int route_watch(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", false, false, &place, err);

    if (result == 0)
        result = start(&place, reply, err);
    result = wire_place_end(&place, "watch", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}
