/* Copies of workspaces: forks and snapshots. */
#include "id.h"
#include "wire_private.h"

#include <stdlib.h>
#include <string.h>

/* A name as ids have it: missing and null are NULL. */
static const char *read_name(struct wire_call *call, const char *field)
{
    struct wire_text text;

    if (!wire_read_text(&call->body, field, WIRE_NULLABLE, &text))
        return NULL;
    if (!id_name_valid(text.data, text.size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("body", field), WIRE_NAME_PATTERN);
    return text.data;
}

/* POST …/fork {session_id?, tenant?, runtime?} */
int route_fork(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const char *const known[] = {"session_id", "tenant", "runtime", NULL};
    struct session_open request = {0};
    struct session_view view;
    char token[SESSION_TOKEN_BYTES];
    const char *how;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    request.id = read_name(call, "session_id");
    request.tenant = read_name(call, "tenant");
    request.runtime = read_name(call, "runtime");
    wire_read_only(&call->body, known);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_fork(call->sessions, call->id, &request, call->cancel, &view, token, &how, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_session(&writer, "session", &view);
    wire_put_str(&writer, "token", token);
    wire_put_str(&writer, "method", how);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* -- snapshots -- */

static void put_snapshot(struct wire_writer *writer, const struct session_snapshot *snapshot, const char *how)
{
    wire_put_open(writer, NULL, '{');
    wire_put_str(writer, "snapshot_id", snapshot->snapshot_id);
    wire_put_str(writer, "name", snapshot->name[0] ? snapshot->name : NULL);
    wire_put_seconds(writer, "created_at", snapshot->created_at_unix_ms * 1000);
    if (how)
        wire_put_str(writer, "method", how);
    wire_put_close(writer, '}');
}

/* The path's second parameter: 16 hex digits, or there is no such snapshot. */
static int snapshot_of(struct wire_call *call, char out[static 17], struct error *err)
{
    size_t size;
    const char *text = http_request_param(call->request, 1, &size);

    if (size != 16 || strspn(text, "0123456789abcdef") < 16)
        return fail(err, NOT_FOUND, "No such snapshot");
    memcpy(out, text, 16);
    out[16] = '\0';
    return 0;
}

/* POST …/snapshots {name?} */
int route_snapshot(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const char *const known[] = {"name", NULL};
    struct session_snapshot snapshot;
    const char *how;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    const char *name = read_name(call, "name");

    wire_read_only(&call->body, known);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_snapshot(call->sessions, call->id, name, call->cancel, &snapshot, &how, err) < 0)
        return -1;
    put_snapshot(&writer, &snapshot, how);
    return wire_reply_json(reply, &writer, err);
}

/* GET …/snapshots */
int route_snapshots(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_snapshot *list;
    size_t count;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (wire_refused(call, reply))
        return 0;
    if (sessions_snapshots(call->sessions, call->id, &list, &count, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "snapshots", '[');
    for (size_t i = 0; i < count; i++)
        put_snapshot(&writer, &list[i], NULL);
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    free(list);
    return wire_reply_json(reply, &writer, err);
}

/* DELETE …/snapshots/{snapshot_id} */
int route_snapshot_delete(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    char snapshot_id[17];

    if (wire_refused(call, reply))
        return 0;
    if (snapshot_of(call, snapshot_id, err) < 0 ||
        sessions_snapshot_delete(call->sessions, call->id, snapshot_id, call->cancel, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* POST …/snapshots/{snapshot_id}/restore */
int route_snapshot_restore(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    char snapshot_id[17];
    const char *how;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (wire_refused(call, reply))
        return 0;
    if (snapshot_of(call, snapshot_id, err) < 0 ||
        sessions_snapshot_restore(call->sessions, call->id, snapshot_id, call->cancel, &how, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "snapshot_id", snapshot_id);
    wire_put_str(&writer, "method", how);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}
