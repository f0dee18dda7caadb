/* How it goes: for probes, for Prometheus, and for pages that draw it. No engine is asked by any of these. */
#include "alloc.h"
#include "wire_private.h"

#include <string.h>

enum { METRICS_MAX_BYTES = 4 * 1024 * 1024 };

/* GET /readyz: can it do its work? 503 says what is wrong. */
int route_readyz(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(METRICS_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct session_readiness readiness;

    sessions_readiness(call->sessions, &readiness);
    wire_put_open(&writer, NULL, '{');
    wire_put_readiness(&writer, &readiness);
    wire_put_close(&writer, '}');
    http_reply_status(reply, readiness.ready ? 200 : 503);
    return wire_reply_json(reply, &writer, err);
}

/* The figures are 10 kB: on the heap, for threads of connections have small stacks. */
static void gather(const struct wire_call *call, struct session_figures *figures, struct wire_metrics *ret)
{
    struct http_server *server = atomic_load(&call->wire->server);

    sessions_figures(call->sessions, figures);
    *ret = (struct wire_metrics){.table = &call->wire->table,
                                 .traffic = call->wire->traffic,
                                 .figures = figures,
                                 .started_unix_ms = call->wire->started_unix_ms,
                                 .connections = server ? http_server_connections(server) : 0};
}

/* GET /metrics */
int route_metrics(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_free struct session_figures *figures = alloc_zero(sizeof *figures);
    auto_buf struct buf body = BUF_INIT(METRICS_MAX_BYTES);
    const char *accept = http_request_header(call->request, "Accept");
    bool is_open = accept && strstr(accept, "application/openmetrics-text");
    struct wire_metrics asked;

    gather(call, figures, &asked);
    if (wire_metrics_text(&asked, is_open, &body, err) < 0)
        return -1;
    http_reply_buf(reply,
                   is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                           : "text/plain; version=0.0.4; charset=utf-8",
                   &body);
    return 0;
}

/* GET /stats: the same for programs that draw. */
int route_stats(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_free struct session_figures *figures = alloc_zero(sizeof *figures);
    struct buf body = BUF_INIT(METRICS_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_metrics asked;

    gather(call, figures, &asked);
    wire_metrics_json(&asked, &writer);
    return wire_reply_json(reply, &writer, err);
}
