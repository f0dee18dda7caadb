/* Opening, listing, inspecting, closing; the events of a session. */
#include "id.h"
#include "wire_private.h"

#include <stdlib.h>

static bool wants(struct wire_call *call, const char *key)
{
    bool value = false;
    size_t size;
    const char *text = http_request_query(call->request, key, &size);

    wire_query_bool(&call->invalid, key, text, text ? size : 0, &value);
    return value;
}

/* A session id or tenant: missing and null are NULL. */
static const char *read_name(struct wire_call *call, const char *field)
{
    struct wire_text text;

    if (!wire_read_text(&call->body, field, WIRE_NULLABLE, &text))
        return NULL;
    if (!id_name_valid(text.data, text.size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("body", field), WIRE_NAME_PATTERN);
    return text.data;
}

static const char *read_runtime(struct wire_call *call)
{
    struct wire_text text;

    if (!wire_read_text(&call->body, "runtime", WIRE_NULLABLE, &text))
        return NULL;
    if (wire_has_nul(text))
        wire_invalid_add(&call->invalid, WIRE_AT("body", "runtime"), "value_error", "A NUL is in the string");
    return text.data;
}

/* POST /sessions */
int route_sessions_open(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_open request = {0};
    struct session_view view;
    char token[SESSION_TOKEN_BYTES];
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    request.id = read_name(call, "session_id");
    request.runtime = read_runtime(call);
    request.tenant = read_name(call, "tenant");
    (void)wire_read_bool(&call->body, "reuse", WIRE_OPTIONAL, &request.reuse);
    (void)wire_read_bool(&call->body, "attach", WIRE_OPTIONAL, &request.attach);
    if (request.reuse)
        request.attach = false; /* a classic client's, which does not know the word: what it says of `reuse` holds */
    if (wire_refused(call, reply))
        return 0;
    if (sessions_open(call->sessions, &request, call->cancel, &view, token, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_session(&writer, "session", &view);
    wire_put_str(&writer, "token", token);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

enum { PAGE_MAX = 1000 };

/* GET /sessions?limit=&after=: Berth's own; as the whole list, and the id to go on after. */
static int reply_page(struct wire_call *call, int64_t limit, struct http_reply *reply, struct error *err)
{
    const char *after = http_request_query(call->request, "after", NULL);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct session_view *views;
    size_t count;
    bool more;

    if (sessions_page(call->sessions, after ? after : "", (size_t)limit, &views, &count, &more, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "sessions", '[');
    for (size_t i = 0; i < count; i++)
        wire_put_session(&writer, NULL, &views[i]);
    wire_put_close(&writer, ']');
    wire_put_str(&writer, "next_after", more ? views[count - 1].id : NULL);
    wire_put_close(&writer, '}');
    free(views);
    return wire_reply_json(reply, &writer, err);
}

/* GET /sessions */
int route_sessions_list(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    bool usage = wants(call, "usage");
    bool detail = wants(call, "detail");
    int64_t limit = 1;
    size_t size = 0;
    const char *text;
    struct session_view *views;
    size_t count;
    struct policy *policy;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if ((text = http_request_query(call->request, "limit", &size)) != NULL) {
        wire_query_int(&call->invalid, "limit", text, size, 1, &limit);
        if (limit > PAGE_MAX)
            limit = PAGE_MAX;
    }
    if (wire_refused(call, reply))
        return 0;
    if (text)
        return reply_page(call, limit, reply, err);
    if (sessions_list(call->sessions, usage, call->cancel, &views, &count, err) < 0)
        return -1;
    policy = sessions_policy(call->sessions);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "sessions", '[');
    for (size_t i = 0; i < count; i++)
        (detail ? wire_put_session_detail : wire_put_session)(&writer, NULL, &views[i]);
    wire_put_close(&writer, ']');
    wire_put_opt_int(&writer, "limit", policy->max_sessions);
    wire_put_opt_int(&writer, "open_limit", policy->max_open_sessions);
    wire_put_opt_int(&writer, "tenant_limit", policy->max_sessions_per_tenant);
    wire_put_close(&writer, '}');
    policy_unref(policy);
    free(views);
    return wire_reply_json(reply, &writer, err);
}

/* GET /sessions/{session_id} */
int route_session_inspect(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    bool usage = wants(call, "usage");
    bool detail = wants(call, "detail");
    struct session_view view;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (wire_refused(call, reply))
        return 0;
    if (sessions_inspect(call->sessions, call->id, usage, call->cancel, &view, err) < 0)
        return -1;
    (detail ? wire_put_session_detail : wire_put_session)(&writer, NULL, &view);
    return wire_reply_json(reply, &writer, err);
}

/* DELETE /sessions/{session_id}. With purge also of a session that is closed already: nothing of it is left then. */
int route_session_close(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    bool purge = wants(call, "purge");

    if (wire_refused(call, reply))
        return 0;
    if (sessions_close(call->sessions, call->id, purge, call->cancel, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* GET /sessions/{session_id}/events */
int route_session_events(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    size_t size = 0;
    const char *text = http_request_query(call->request, "after", &size);
    struct session_event *events;
    size_t count;
    uint64_t latest;
    int64_t after = 0;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_query_int(&call->invalid, "after", text, size, 0, &after);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_events(call->sessions, call->id, (uint64_t)after, &events, &count, &latest, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "events", '[');
    for (size_t i = 0; i < count; i++)
        wire_put_event(&writer, &events[i]);
    wire_put_close(&writer, ']');
    wire_put_int(&writer, "latest_seq", (int64_t)latest);
    wire_put_close(&writer, '}');
    free(events);
    return wire_reply_json(reply, &writer, err);
}
