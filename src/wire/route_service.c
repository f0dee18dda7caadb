/* What the service says of itself. */
#include "wire_private.h"
#include "wire_ui.h"

#include <stdlib.h>

static struct buf answer_buf(void)
{
    return (struct buf)BUF_INIT(WIRE_ANSWER_MAX_BYTES);
}

/* GET / */
int route_index(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = answer_buf();
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "service", "sandboxd");
    wire_put_health(&writer, "health", call->sessions);
    wire_put_str(&writer, "docs_url", "/docs");
    wire_put_str(&writer, "openapi_url", "/openapi.json");
    wire_put_str(&writer, "ui_url", call->wire->serves_page && wire_ui_file_count ? "/ui" : NULL);
    wire_put_open(&writer, "endpoints", '[');
    for (size_t i = 0; i < call->wire->endpoint_count; i++)
        wire_put_str(&writer, NULL, call->wire->endpoints[i]);
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* GET /healthz */
int route_healthz(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = answer_buf();
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_health(&writer, NULL, call->sessions);
    return wire_reply_json(reply, &writer, err);
}

static const char *state_name(enum isolation_state state)
{
    switch (state) {
    case ISOLATION_ENFORCED:
        return "enforced";
    case ISOLATION_ACCOUNTED:
        return "accounted";
    case ISOLATION_NOT_ENFORCED:
        break;
    }
    return "not enforced";
}

/* GET /isolation: {alias: {control: {state, detail}}} */
int route_isolation(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_isolation *runtimes;
    size_t count;
    struct buf body = answer_buf();
    struct wire_writer writer = WIRE_WRITER(&body);

    if (sessions_isolation(call->sessions, call->cancel, &runtimes, &count, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    for (size_t i = 0; i < count; i++) {
        wire_put_open(&writer, runtimes[i].runtime, '{');
        for (int k = 0; k < runtimes[i].count; k++) {
            const struct isolation_control *control = &runtimes[i].controls[k];

            wire_put_open(&writer, control->name, '{');
            wire_put_str(&writer, "state", state_name(control->state));
            wire_put_str(&writer, "detail", control->detail);
            wire_put_close(&writer, '}');
        }
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, '}');
    free(runtimes);
    return wire_reply_json(reply, &writer, err);
}
