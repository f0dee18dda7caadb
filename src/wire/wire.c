/* The table of routes, made of routes.def. */
#include "alloc.h"
#include "clock.h"
#include "wire_private.h"

#include <stdlib.h>
#include <string.h>

#define ROUTE(method, path, handler, access, body) {HTTP_##method, path, wire_dispatch, body, access},
static const struct http_route http_routes[] = {
#include "routes.def"
};
#undef ROUTE

#define ROUTE(method, path, handler, access, body) {handler, access, false},
static const struct wire_route wire_routes[] = {
#include "routes.def"
};
#undef ROUTE

enum { ROUTE_COUNT = sizeof http_routes / sizeof http_routes[0] };

/* What the other listener serves: who reaches it needs no token. */
static int dispatch_probe(struct http_request *request, struct http_reply *reply, void *context, struct error *err);
static const struct http_route probe_routes[] = {
    {HTTP_GET, "/healthz", dispatch_probe, HTTP_BODY_NONE, ACCESS_ANYONE},
    {HTTP_GET, "/readyz", dispatch_probe, HTTP_BODY_NONE, ACCESS_ANYONE},
    {HTTP_GET, "/metrics", dispatch_probe, HTTP_BODY_NONE, ACCESS_ANYONE},
};
static const wire_handler probe_handlers[] = {route_healthz, route_readyz, route_metrics};

enum { PROBE_COUNT = sizeof probe_routes / sizeof probe_routes[0] };

static int dispatch_probe(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    struct wire *wire = context;
    struct wire_call call = {.wire = wire,
                             .sessions = wire->sessions,
                             .request = request,
                             .cancel = http_request_cancel(request),
                             .id = "",
                             .invalid = WIRE_INVALID_INIT};

    return probe_handlers[http_request_route(request) - probe_routes](&call, reply, err);
}

/* http_table.on_end */
static void count_end(const struct http_request *request, int status, int64_t us, void *context)
{
    struct wire *wire = context;
    const struct http_route *route = http_request_route(request);
    struct wire_traffic *traffic = &wire->traffic[route ? route - http_routes : ROUTE_COUNT];
    int status_class = status / 100;

    metric_observe(&traffic->durations, us);
    (void)atomic_fetch_add_explicit(
        &traffic->by_class[status_class > 0 && status_class < WIRE_STATUS_CLASSES ? status_class : 0], 1,
        memory_order_relaxed);
}

static int compare_paths(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void list_endpoints(struct wire *wire)
{
    size_t kept = 0;

    wire->endpoints = alloc_array(ROUTE_COUNT, sizeof *wire->endpoints);
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        wire->endpoints[i] = http_routes[i].path;
    qsort(wire->endpoints, ROUTE_COUNT, sizeof *wire->endpoints, compare_paths);
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        bool is_page = strncmp(wire->endpoints[i], "/ui", 3) == 0;

        if (strcmp(wire->endpoints[i], "/") == 0 || (is_page && !wire->serves_page) ||
            (kept && strcmp(wire->endpoints[kept - 1], wire->endpoints[i]) == 0))
            continue;
        wire->endpoints[kept++] = wire->endpoints[i];
    }
    wire->endpoint_count = kept;
}

struct wire *wire_new(struct sessions *sessions, bool serves_page)
{
    struct wire *wire = alloc_zero(sizeof *wire);

    wire->sessions = sessions;
    wire->serves_page = serves_page;
    (void)pthread_mutex_init(&wire->policy_lock, NULL);
    wire->routes = alloc_array(ROUTE_COUNT, sizeof *wire->routes);
    memcpy(wire->routes, wire_routes, sizeof wire_routes);
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        wire->routes[i].has_id = strstr(http_routes[i].path, "{session_id}") != NULL;
    wire->table = (struct http_table){http_routes, ROUTE_COUNT, wire, wire_gate, wire_on_error, count_end};
    wire->probe_table = (struct http_table){probe_routes, PROBE_COUNT, wire, NULL, wire_on_error, NULL};
    wire->traffic = alloc_array(ROUTE_COUNT + 1, sizeof *wire->traffic);
    wire->started_unix_ms = clock_unix_ms();
    list_endpoints(wire);
    return wire;
}

void wire_free(struct wire *wire)
{
    if (!wire)
        return;
    (void)pthread_mutex_destroy(&wire->policy_lock);
    free(wire->endpoints);
    free(wire->routes);
    free(wire->overrides);
    free(wire->traffic);
    free(wire);
}

const struct http_table *wire_table(const struct wire *wire)
{
    return &wire->table;
}

const struct http_table *wire_probe_table(const struct wire *wire)
{
    return &wire->probe_table;
}

void wire_watch_server(struct wire *wire, struct http_server *server)
{
    atomic_store(&wire->server, server);
}

const struct wire_route *wire_route_of(const struct wire *wire, const struct http_request *request)
{
    return &wire->routes[http_request_route(request) - http_routes];
}
