/* Berth's own: sleep, wake and longer life on demand; whoever sessions belong to. */
#include "id.h"
#include "session_tenant.h"
#include "wire_private.h"

#include <stdlib.h>

static int reply_session(struct http_reply *reply, const struct session_view *view, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_session(&writer, NULL, view);
    return wire_reply_json(reply, &writer, err);
}

/* POST /sessions/{session_id}/hibernate */
int route_session_hibernate(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_view view;

    if (sessions_hibernate(call->sessions, call->id, call->cancel, &view, err) < 0)
        return -1;
    return reply_session(reply, &view, err);
}

/* POST /sessions/{session_id}/wake */
int route_session_wake(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_view view;

    if (sessions_wake(call->sessions, call->id, call->cancel, &view, err) < 0)
        return -1;
    return reply_session(reply, &view, err);
}

/* POST /sessions/{session_id}/keepalive {seconds} */
int route_session_keepalive(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    int64_t expires_unix_us;
    int64_t seconds = 0;

    (void)wire_read_int_within(&call->body, "seconds", WIRE_REQUIRED, 0, SESSION_KEEP_MOST_S, &seconds);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_keepalive(call->sessions, call->id, seconds, call->cancel, &expires_unix_us, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "session_id", call->id);
    wire_put_seconds(&writer, "expires_at", expires_unix_us);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* -- tenants -- */

static void put_tenant(struct wire_writer *writer, const struct tenant_view *view)
{
    wire_put_open(writer, NULL, '{');
    wire_put_str(writer, "tenant", view->tenant);
    wire_put_int(writer, "open_sessions", view->open);
    wire_put_int(writer, "resident_sessions", view->resident);
    wire_put_int(writer, "running_commands", view->running_commands);
    wire_put_size(writer, "disk_bytes", view->disk_bytes);
    wire_put_opt_int(writer, "max_open_sessions", view->limits.max_open_sessions);
    wire_put_opt_int(writer, "max_resident_sessions", view->limits.max_resident_sessions);
    wire_put_opt_int(writer, "max_running_commands", view->limits.max_running_commands);
    wire_put_opt_int(writer, "max_disk_bytes", view->limits.max_disk_bytes);
    wire_put_close(writer, '}');
}

/* GET /tenants */
int route_tenants_list(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_free struct tenant_view *views = NULL;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    size_t count;

    sessions_tenants(call->sessions, &views, &count);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "tenants", '[');
    for (size_t i = 0; i < count; i++)
        put_tenant(&writer, &views[i]);
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static const int64_t disk_most_bytes = INT64_MAX / 2; /* numbers too large for JSON's reader end up at its most */

/* Absent is left alone, null is none. */
static void read_ceiling(struct wire_call *call, const char *field, int64_t most, struct tenant_change_int *ret)
{
    struct json_object *value;

    if (!json_object_object_get_ex(call->body.object, field, &value))
        return;
    ret->is_given = true;
    ret->to.is_set = value && wire_read_int_within(&call->body, field, WIRE_REQUIRED, 0, most, &ret->to.value);
}

/* PUT /tenants/{tenant} */
int route_tenant_put(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const char *const known[] = {"max_open_sessions", "max_resident_sessions", "max_running_commands",
                                        "max_disk_bytes", NULL};
    struct tenant_change change = {.max_open_sessions = {.is_given = false}};
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct tenant_view view;
    size_t size;
    const char *tenant = http_request_param(call->request, 0, &size);

    if (!id_name_valid(tenant, size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("path", "tenant"), WIRE_NAME_PATTERN);
    wire_read_only(&call->body, known);
    read_ceiling(call, "max_open_sessions", INT32_MAX, &change.max_open_sessions);
    read_ceiling(call, "max_resident_sessions", INT32_MAX, &change.max_resident_sessions);
    read_ceiling(call, "max_running_commands", INT32_MAX, &change.max_running_commands);
    read_ceiling(call, "max_disk_bytes", disk_most_bytes, &change.max_disk_bytes);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_tenant_change(call->sessions, tenant, &change, &view, err) < 0)
        return -1;
    put_tenant(&writer, &view);
    return wire_reply_json(reply, &writer, err);
}
