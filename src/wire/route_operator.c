/* What the operator's command needs beside what clients do: images ahead of their use, and what a lost broker left. */
#include "alloc.h"
#include "session_orphans.h"
#include "session_prepare.h"
#include "wire_private.h"

#include <string.h>

enum { PING_MS = 10000, PIECE_BYTES = 8 * 1024, ORPHANS_MOST = 1000 };

/* -- GET /runtimes -- */

int route_runtimes(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct runtime_view *list;
    size_t count;

    sessions_runtimes(call->sessions, call->cancel, &list, &count);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "runtimes", '[');
    for (size_t i = 0; i < count; i++) {
        wire_put_open(&writer, NULL, '{');
        wire_put_str(&writer, "alias", list[i].alias);
        wire_put_str(&writer, "image", list[i].image);
        wire_put_str(&writer, "description", list[i].description);
        wire_put_str(&writer, "image_id", list[i].image_id[0] ? list[i].image_id : NULL);
        wire_put_str(&writer, "detail", list[i].why.code == ERROR_NONE ? NULL : error_public_text(&list[i].why));
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    runtime_views_free(list, count);
    return wire_reply_json(reply, &writer, err);
}

/* -- POST /runtimes/{alias}/prepare -- */

struct preparing {
    struct preparation *preparation;
    uint64_t seen;
    bool is_over;
    struct buf out;
};

static int put_view(struct preparing *preparing, const struct preparation_view *view, struct error *err)
{
    auto_buf struct buf data = BUF_INIT(PIECE_BYTES / 2);
    struct wire_writer writer = WIRE_WRITER(&data);
    bool failed = view->is_done && view->why.code != ERROR_NONE;

    preparing->is_over = view->is_done;
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "image", view->image);
    if (failed) {
        wire_put_int(&writer, "status", error_http_status(view->why.code));
        wire_put_str(&writer, "detail", error_public_text(&view->why));
    } else if (view->is_done) {
        wire_put_str(&writer, "image_id", view->image_id);
        wire_put_bool(&writer, "was_here", view->was_here);
    } else {
        wire_put_str(&writer, "text", view->text);
    }
    wire_put_close(&writer, '}');
    if (wire_writer_end(&writer, err) < 0)
        return -1;
    return buf_append_format(&preparing->out, err, "event: %s\ndata: %s\n\n",
                             failed          ? "failed"
                             : view->is_done ? "ready"
                                             : "progress",
                             buf_str(&data));
}

static int make(struct preparing *preparing, const struct cancel *cancel, struct error *err)
{
    struct cancel until_ping = cancel_within(cancel, PING_MS);
    struct preparation_view view;

    if (preparation_next(preparing->preparation, &preparing->seen, &until_ping, &view, err) == 0)
        return put_view(preparing, &view, err);
    if (err->code != ERROR_TIMEOUT)
        return -1;
    error_clear(err);
    return buf_append_str(&preparing->out, ": nothing new\n\n", err);
}

static int64_t stream_next(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct preparing *preparing = context;
    struct error err = ERROR_INIT;
    size_t size;

    if (preparing->out.size == 0) {
        if (preparing->is_over)
            return 0;
        if (make(preparing, cancel, &err) < 0)
            return -1;
    }
    size = preparing->out.size < max ? preparing->out.size : max;
    memcpy(out, preparing->out.data, size);
    buf_consume(&preparing->out, size);
    return (int64_t)size;
}

static void stream_free(void *context)
{
    struct preparing *preparing = context;

    preparation_leave(preparing->preparation);
    buf_done(&preparing->out);
    free(preparing);
}

int route_runtime_prepare(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct http_stream stream = {.next = stream_next, .free = stream_free};
    size_t size;
    const char *alias = http_request_param(call->request, 0, &size);
    struct preparation *preparation;
    struct preparing *preparing;

    if (size != strlen(alias))
        return fail(err, NOT_FOUND, "Unknown runtime");
    if (sessions_prepare(call->sessions, alias, &preparation, err) < 0)
        return -1;
    preparing = alloc_zero(sizeof *preparing);
    preparing->preparation = preparation;
    preparing->out.max = PIECE_BYTES;
    stream.context = preparing;
    http_reply_header(reply, "Cache-Control", "no-store");
    http_reply_header(reply, "X-Accel-Buffering", "no");
    http_reply_stream(reply, "text/event-stream", &stream);
    return 0;
}

/* -- GET /orphans, POST /orphans/remove -- */

int route_orphans(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_free struct session_orphan *list = NULL;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    size_t count;

    if (sessions_orphans(call->sessions, call->cancel, &list, &count, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "containers", '[');
    for (size_t i = 0; i < count; i++) {
        wire_put_open(&writer, NULL, '{');
        wire_put_str(&writer, "id", list[i].ref);
        wire_put_str(&writer, "name", list[i].name);
        wire_put_str(&writer, "install", list[i].install);
        wire_put_str(&writer, "slot", list[i].slot);
        wire_put_str(&writer, "state", list[i].state);
        wire_put_bool(&writer, "below_root", list[i].below_root);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* The texts of body.containers; what is none of that is in call->invalid. Caller frees the array; the texts are borrowed. */
static const char **read_ids(struct wire_call *call, size_t *ret_count)
{
    struct json_object *array;
    const char **ids;

    *ret_count = 0;
    if (!json_member(call->body.object, "containers", &array) || !json_object_is_type(array, json_type_array)) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "containers"), "list_type", "Input should be a valid list");
        return NULL;
    }
    if (json_object_array_length(array) > ORPHANS_MOST) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "containers"), "too_long", "At most 1000 at once");
        return NULL;
    }
    ids = alloc_array(json_object_array_length(array) + 1, sizeof *ids);
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        struct json_object *item = json_object_array_get_idx(array, i);

        if (json_object_is_type(item, json_type_string))
            ids[(*ret_count)++] = json_object_get_string(item);
        else
            wire_invalid_add(&call->invalid, WIRE_AT("body", "containers"), "string_type",
                             "Input should be a valid string");
    }
    return ids;
}

int route_orphans_remove(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    size_t count;
    auto_free const char **ids = read_ids(call, &count);
    struct error *whys;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (wire_refused(call, reply))
        return 0;
    whys = alloc_array(count + 1, sizeof *whys);
    for (size_t i = 0; i < count; i++)
        (void)sessions_orphan_remove(call->sessions, ids[i], call->cancel, &whys[i]);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "removed", '[');
    for (size_t i = 0; i < count; i++)
        if (whys[i].code == ERROR_NONE)
            wire_put_str(&writer, NULL, ids[i]);
    wire_put_close(&writer, ']');
    wire_put_open(&writer, "failed", '[');
    for (size_t i = 0; i < count; i++) {
        if (whys[i].code == ERROR_NONE)
            continue;
        wire_put_open(&writer, NULL, '{');
        wire_put_str(&writer, "id", ids[i]);
        wire_put_str(&writer, "detail", error_public_text(&whys[i]));
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    free(whys);
    return wire_reply_json(reply, &writer, err);
}
