#include "wire_metrics.h"

#include "clock.h"
#include "http.h"
#include "process.h"

#include <stdio.h>
#include <string.h>

enum { LABELS_BYTES = 512 };

static const char *const methods[] = {
    [HTTP_GET] = "GET", [HTTP_POST] = "POST", [HTTP_PUT] = "PUT", [HTTP_DELETE] = "DELETE"};
static const char *const classes[WIRE_STATUS_CLASSES] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
static const char *const bounds[METRIC_BOUNDS + 1] = {"0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025",
                                                      "0.05",   "0.1",   "0.25",   "0.5",   "1.0",  "2.5",
                                                      "10.0",   "30.0",  "60.0",   "300.0", "+Inf"};

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM, KIND_INFO };

struct page {
    struct buf *out;
    struct error err;
    const struct wire_metrics *of;
    struct process_figures process;
    bool is_open;
    const char *name; /* of the family */
    enum kind kind;
};

/* -- lines: made by hand, for there may be thousands -- */

static void put_n(struct page *page, const char *text, size_t size)
{
    struct buf *out = page->out;

    if (size <
        out->capacity - out->size) { /* room for it and the NUL: nearly always, and a page has five thousand of them */
        memcpy(out->data + out->size, text, size);
        buf_commit(out, size);
    } else if (page->err.code == ERROR_NONE) {
        (void)buf_append(out, text, size, &page->err);
    }
}

/* Inline: the compiler counts the letters of what is written here. */
static inline void put(struct page *page, const char *text)
{
    put_n(page, text, strlen(text));
}

static void put_number(struct page *page, int64_t value)
{
    char text[24];
    char *at = text + sizeof text;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;

    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        *--at = '-';
    put_n(page, at, (size_t)(text + sizeof text - at));
}

static void put_seconds(struct page *page, int64_t us)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%lld.%06lld", (long long)(us / 1000000), (long long)(us % 1000000));
    put(page, text);
}

/* name[_suffix]{labels} */
static void put_head(struct page *page, const char *suffix, const char *labels)
{
    put(page, page->name);
    put(page, suffix);
    if (labels[0]) {
        put(page, "{");
        put(page, labels);
        put(page, "}");
    }
    put(page, " ");
}

static void sample(struct page *page, const char *labels, int64_t value)
{
    put_head(page, page->kind == KIND_COUNTER ? "_total" : "", labels);
    put_number(page, value);
    put(page, "\n");
}

static void sample_seconds(struct page *page, const char *labels, int64_t us)
{
    put_head(page, page->kind == KIND_COUNTER ? "_total" : "", labels);
    put_seconds(page, us);
    put(page, "\n");
}

static void sample_histogram(struct page *page, const char *labels, const struct metric_seen *seen)
{
    char head[LABELS_BYTES + 128];
    uint64_t below = 0;

    (void)snprintf(head, sizeof head, "%s_bucket{%s%sle=\"", page->name, labels, labels[0] ? "," : "");
    for (int i = 0; i <= METRIC_BOUNDS; i++) {
        below += seen->counts[i];
        put(page, head);
        put(page, bounds[i]);
        put(page, "\"} ");
        put_number(page, (int64_t)below);
        put(page, "\n");
    }
    put_head(page, "_count", labels);
    put_number(page, (int64_t)seen->count);
    put(page, "\n");
    put_head(page, "_sum", labels);
    put_seconds(page, (int64_t)seen->sum_us);
    put(page, "\n");
}

/* key="value", escaped, behind the labels that are `used` bytes of `out`. Returns how many it is then; what has no room is left out. */
static size_t label(char out[LABELS_BYTES], size_t used, const char *key, const char *value)
{
    size_t size = strlen(key);

    if (used + size + sizeof ",=\"\"" > LABELS_BYTES)
        return used;
    if (used)
        out[used++] = ',';
    memcpy(out + used, key, size);
    used += size;
    out[used++] = '=';
    out[used++] = '"';
    for (; *value && used < LABELS_BYTES - 4; value++) {
        if (*value == '"' || *value == '\\' || *value == '\n')
            out[used++] = '\\';
        out[used++] = *value == '\n' ? 'n' : *value;
    }
    out[used++] = '"';
    out[used] = '\0';
    return used;
}

static void family(struct page *page, const char *name, enum kind kind, const char *help)
{
    static const char *const open[] = {"counter", "gauge", "histogram", "info"};
    static const char *const old[] = {"counter", "gauge", "histogram", "gauge"};
    const char *suffix = page->is_open ? "" : kind == KIND_COUNTER ? "_total" : kind == KIND_INFO ? "_info" : "";
    const char *unit = strrchr(name, '_');

    page->name = name;
    page->kind = kind;
    put(page, "# TYPE ");
    put(page, name);
    put(page, suffix);
    put(page, " ");
    put(page, (page->is_open ? open : old)[kind]);
    if (page->is_open && (strcmp(unit, "_seconds") == 0 || strcmp(unit, "_bytes") == 0)) {
        put(page, "\n# UNIT ");
        put(page, name);
        put(page, " ");
        put(page, unit + 1);
    }
    put(page, "\n# HELP ");
    put(page, name);
    put(page, suffix);
    put(page, " ");
    for (; *help; help++) { /* the table's texts hold quotes, which are escaped in this form alone */
        size_t plain = page->is_open ? strcspn(help, "\"\\") : strlen(help);

        put_n(page, help, plain);
        help += plain;
        if (!*help)
            break;
        put(page, "\\");
        put_n(page, help, 1);
    }
    put(page, "\n");
}

/* -- what is kept in util/metric.h -- */

static void put_counters(struct page *page, const char *key, const _Atomic uint64_t *values, int count,
                         const char *(*text)(int value))
{
    char labels[LABELS_BYTES];

    for (int i = 0; i < count; i++) {
        labels[0] = '\0';
        if (key)
            (void)label(labels, 0, key, text(i));
        sample(page, labels, (int64_t)atomic_load_explicit(&values[i], memory_order_relaxed));
    }
}

static void put_histograms(struct page *page, const char *key, const struct metric_histogram *values, int count,
                           const char *(*text)(int value))
{
    char labels[LABELS_BYTES];

    for (int i = 0; i < count; i++) {
        struct metric_seen seen;

        metric_see(&values[i], &seen);
        labels[0] = '\0';
        if (key)
            (void)label(labels, 0, key, text(i));
        if (!key || seen.count)
            sample_histogram(page, labels, &seen);
    }
}

#define METRIC_ASKED(field, TYPE, name, help)
#define TEXT_OF(field, VALUES)                 \
    static const char *field##_text(int value) \
    {                                          \
        return VALUES##_TEXT(value);           \
    }
#define METRIC_ONE_TEXT(value) metric_one_text((enum metric_one)(value))
#define METRIC_OPEN_TEXT(value) metric_open_text((enum metric_open)(value))
#define METRIC_RUN_TEXT(value) metric_run_text((enum metric_run)(value))
#define METRIC_WEBHOOK_TEXT(value) metric_webhook_text((enum metric_webhook)(value))
#define METRIC_POOL_TEXT(value) metric_pool_text((enum metric_pool)(value))
#define METRIC_ENGINE_TEXT(value) metric_engine_text((enum metric_engine)(value))
#define METRIC_OP_TEXT(value) metric_op_text((enum metric_op)(value))
#define METRIC_ERROR_TEXT(value) metric_error_text((enum metric_error)(value))
#define METRIC_COUNTER(field, name, key, VALUES, help) TEXT_OF(field, VALUES)
#define METRIC_HISTOGRAM(field, name, key, VALUES, help) TEXT_OF(field, VALUES)
#include "metrics.def"

/* -- what is asked for -- */

static void put_build(struct page *page)
{
    put_head(page, "_info", "version=\"" PACKAGE_VERSION "\"");
    put(page, "1\n");
}

static void put_ready(struct page *page)
{
    const struct session_readiness *readiness = &page->of->figures->readiness;

    sample(page, "part=\"engine\"", readiness->engine.ok);
    sample(page, "part=\"store\"", readiness->store.ok);
    sample(page, "part=\"disk\"", readiness->disk.ok);
}

/* route="GET /x": the table's own words, and none for what found no route. */
static void label_route(const struct page *page, size_t i, char out[LABELS_BYTES])
{
    const struct http_table *table = page->of->table;

    if (i == table->count)
        (void)snprintf(out, LABELS_BYTES, "route=\"none\"");
    else
        (void)snprintf(out, LABELS_BYTES, "route=\"%s %s\"", methods[table->routes[i].method], table->routes[i].path);
}

static void put_requests(struct page *page)
{
    char route[LABELS_BYTES];
    char labels[LABELS_BYTES + 32];

    for (size_t i = 0; i <= page->of->table->count; i++)
        for (int class = 0; class < WIRE_STATUS_CLASSES; class ++) {
            uint64_t count = atomic_load_explicit(&page->of->traffic[i].by_class[class], memory_order_relaxed);

            if (!count)
                continue;
            label_route(page, i, route);
            (void)snprintf(labels, sizeof labels, "%s,status=\"%s\"", route, classes[class]);
            sample(page, labels, (int64_t)count);
        }
}

static void put_request_durations(struct page *page)
{
    char labels[LABELS_BYTES];

    for (size_t i = 0; i <= page->of->table->count; i++) {
        struct metric_seen seen;

        metric_see(&page->of->traffic[i].durations, &seen);
        if (!seen.count)
            continue;
        label_route(page, i, labels);
        sample_histogram(page, labels, &seen);
    }
}

static void put_connections(struct page *page)
{
    sample(page, "", page->of->connections);
}

static void put_sessions(struct page *page)
{
    const struct session_figures *figures = page->of->figures;

    sample(page, "state=\"opening\"", figures->opening);
    sample(page, "state=\"running\"", figures->running);
    sample(page, "state=\"frozen\"", figures->frozen);
    sample(page, "state=\"hibernated\"", figures->hibernated);
}

static void put_sessions_limit(struct page *page)
{
    const struct session_figures *figures = page->of->figures;

    if (figures->max_sessions.is_set)
        sample(page, "of=\"resident\"", figures->max_sessions.value);
    if (figures->max_open_sessions.is_set)
        sample(page, "of=\"open\"", figures->max_open_sessions.value);
}

static void put_tenants(struct page *page)
{
    sample(page, "", page->of->figures->tenant_total);
}

static void put_tenant_sessions(struct page *page)
{
    const struct session_figures *figures = page->of->figures;
    char labels[LABELS_BYTES];

    for (unsigned i = 0; i <= figures->tenant_count; i++) {
        const struct figures_tenant *at = i < figures->tenant_count ? &figures->tenants[i] : &figures->others;

        size_t used =
            i < figures->tenant_count ? label(labels, 0, "tenant", at->tenant) : label(labels, 0, "other", "true");

        (void)label(labels, used, "are", "open");
        sample(page, labels, at->open);
        (void)label(labels, used, "are", "resident");
        sample(page, labels, at->resident);
    }
}

static void put_tenant_commands(struct page *page)
{
    const struct session_figures *figures = page->of->figures;
    char labels[LABELS_BYTES];

    for (unsigned i = 0; i < figures->tenant_count; i++) {
        (void)label(labels, 0, "tenant", figures->tenants[i].tenant);
        sample(page, labels, figures->tenants[i].running_commands);
    }
    (void)label(labels, 0, "other", "true");
    sample(page, labels, figures->others.running_commands);
}

static void put_tenant_disk(struct page *page)
{
    const struct session_figures *figures = page->of->figures;
    char labels[LABELS_BYTES];

    for (unsigned i = 0; i < figures->tenant_count; i++) {
        (void)label(labels, 0, "tenant", figures->tenants[i].tenant);
        if (figures->tenants[i].disk_bytes >= 0)
            sample(page, labels, figures->tenants[i].disk_bytes);
    }
}

static void put_commands(struct page *page)
{
    sample(page, "", page->of->figures->running_commands);
}

static void put_pool(struct page *page)
{
    const struct session_figures *figures = page->of->figures;
    char labels[LABELS_BYTES];

    for (unsigned i = 0; i < figures->pool_count; i++) {
        size_t used = label(labels, 0, "runtime", figures->pools[i].runtime);

        (void)label(labels, used, "are", "ready");
        sample(page, labels, figures->pools[i].ready);
        (void)label(labels, used, "are", "wanted");
        sample(page, labels, figures->pools[i].wanted);
    }
}

static void put_store_queue(struct page *page)
{
    sample(page, "", (int64_t)page->of->figures->store_queued);
}

static void put_disk(struct page *page, bool is_free)
{
    const struct session_figures *figures = page->of->figures;
    char labels[LABELS_BYTES];

    for (unsigned i = 0; i < figures->disk_count; i++) {
        const struct figures_disk *disk = &figures->disks[i];

        (void)label(labels, 0, "of", disk->of);
        if (disk->is_known)
            sample(page, labels, is_free ? disk->free_bytes : disk->size_bytes);
    }
}

static void put_disk_size(struct page *page)
{
    put_disk(page, false);
}

static void put_disk_free(struct page *page)
{
    put_disk(page, true);
}

static void put_cpu(struct page *page)
{
    sample_seconds(page, "", page->process.cpu_us);
}

static void put_known(struct page *page, int64_t value)
{
    if (value >= 0)
        sample(page, "", value);
}

static void put_resident(struct page *page)
{
    put_known(page, page->process.resident_bytes);
}

static void put_virtual(struct page *page)
{
    put_known(page, page->process.virtual_bytes);
}

static void put_fds(struct page *page)
{
    put_known(page, page->process.fds);
}

static void put_max_fds(struct page *page)
{
    put_known(page, page->process.max_fds);
}

static void put_start_time(struct page *page)
{
    sample_seconds(page, "", page->of->started_unix_ms * 1000);
}

int wire_metrics_text(const struct wire_metrics *of, bool is_open, struct buf *out, struct error *err)
{
    struct page page = {.out = out, .err = ERROR_INIT, .of = of, .is_open = is_open};

    process_look(&page.process);
#define METRIC_COUNTER(field, name, key, VALUES, help) \
    family(&page, name, KIND_COUNTER, help);           \
    put_counters(&page, key, metrics.field, VALUES##_COUNT, field##_text);
#define METRIC_HISTOGRAM(field, name, key, VALUES, help) \
    family(&page, name, KIND_HISTOGRAM, help);           \
    put_histograms(&page, key, metrics.field, VALUES##_COUNT, field##_text);
#define METRIC_ASKED(field, TYPE, name, help) \
    family(&page, name, KIND_##TYPE, help);   \
    put_##field(&page);
#include "metrics.def"
    put(&page, "# EOF\n");
    if (page.err.code == ERROR_NONE)
        return 0;
    *err = page.err;
    return -1;
}

/* -- JSON -- */

void wire_put_readiness(struct wire_writer *writer, const struct session_readiness *readiness)
{
    const struct {
        const char *key;
        const struct figures_check *check;
    } parts[] = {{"engine", &readiness->engine}, {"store", &readiness->store}, {"disk", &readiness->disk}};

    wire_put_str(writer, "status", readiness->ready ? "ready" : "not ready");
    wire_put_open(writer, "checks", '{');
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        wire_put_open(writer, parts[i].key, '{');
        wire_put_bool(writer, "ok", parts[i].check->ok);
        wire_put_str(writer, "detail", parts[i].check->words);
        wire_put_close(writer, '}');
    }
    wire_put_close(writer, '}');
}

/* {count, sum_seconds, counts: not cumulative, by latency_bounds_seconds} */
static void put_seen(struct wire_writer *writer, const char *key, const struct metric_seen *seen)
{
    wire_put_open(writer, key, '{');
    wire_put_int(writer, "count", (int64_t)seen->count);
    wire_put_seconds(writer, "sum_seconds", (int64_t)seen->sum_us);
    wire_put_open(writer, "counts", '[');
    for (int i = 0; i <= METRIC_BOUNDS; i++)
        wire_put_int(writer, NULL, (int64_t)seen->counts[i]);
    wire_put_close(writer, ']');
    wire_put_close(writer, '}');
}

static void put_sum(struct wire_writer *writer, const char *key, const struct metric_histogram *histograms, int count)
{
    struct metric_seen seen = {.count = 0};

    for (int i = 0; i < count; i++)
        metric_seen_add(&seen, &histograms[i]);
    put_seen(writer, key, &seen);
}

/* {text: count} of those that are not 0. */
static void put_counts(struct wire_writer *writer, const char *key, const _Atomic uint64_t *values, int count,
                       const char *(*text)(int value))
{
    wire_put_open(writer, key, '{');
    for (int i = 0; i < count; i++) {
        uint64_t value = atomic_load_explicit(&values[i], memory_order_relaxed);

        if (value)
            wire_put_int(writer, text(i), (int64_t)value);
    }
    wire_put_close(writer, '}');
}

static void put_json_sessions(struct wire_writer *writer, const struct session_figures *figures)
{
    wire_put_open(writer, "sessions", '{');
    wire_put_int(writer, "open", figures->open);
    wire_put_opt_int(writer, "open_limit", figures->max_open_sessions);
    wire_put_int(writer, "resident", figures->resident);
    wire_put_opt_int(writer, "resident_limit", figures->max_sessions);
    wire_put_int(writer, "opening", figures->opening);
    wire_put_int(writer, "running", figures->running);
    wire_put_int(writer, "frozen", figures->frozen);
    wire_put_int(writer, "hibernated", figures->hibernated);
    wire_put_close(writer, '}');
}

static void put_json_tenant(struct wire_writer *writer, const char *key, const struct figures_tenant *tenant)
{
    wire_put_open(writer, key, '{');
    if (!key)
        wire_put_str(writer, "tenant", tenant->tenant[0] ? tenant->tenant : NULL);
    wire_put_int(writer, "open", tenant->open);
    wire_put_int(writer, "resident", tenant->resident);
    wire_put_int(writer, "running_commands", tenant->running_commands);
    if (!key)
        wire_put_size(writer, "disk_bytes", tenant->disk_bytes);
    wire_put_close(writer, '}');
}

static void put_json_tenants(struct wire_writer *writer, const struct session_figures *figures)
{
    wire_put_open(writer, "tenants", '{');
    wire_put_int(writer, "total", figures->tenant_total);
    wire_put_open(writer, "shown", '[');
    for (unsigned i = 0; i < figures->tenant_count; i++)
        put_json_tenant(writer, NULL, &figures->tenants[i]);
    wire_put_close(writer, ']');
    put_json_tenant(writer, "others", &figures->others);
    wire_put_close(writer, '}');
}

static void put_json_requests(struct wire_writer *writer, const struct wire_metrics *of)
{
    struct metric_seen seen = {.count = 0};
    uint64_t by_class[WIRE_STATUS_CLASSES] = {0};

    for (size_t i = 0; i <= of->table->count; i++) {
        metric_seen_add(&seen, &of->traffic[i].durations);
        for (int class = 0; class < WIRE_STATUS_CLASSES; class ++)
            by_class[class] += atomic_load_explicit(&of->traffic[i].by_class[class], memory_order_relaxed);
    }
    wire_put_open(writer, "requests", '{');
    wire_put_open(writer, "by_status", '{');
    for (int class = 0; class < WIRE_STATUS_CLASSES; class ++)
        wire_put_int(writer, classes[class], (int64_t)by_class[class]);
    wire_put_close(writer, '}');
    put_counts(writer, "errors", metrics.errors, METRIC_ERROR_COUNT, errors_text);
    put_seen(writer, "durations", &seen);
    wire_put_int(writer, "connections", of->connections);
    wire_put_close(writer, '}');
}

static void put_json_engine(struct wire_writer *writer)
{
    uint64_t calls = 0;
    uint64_t errors = 0;

    for (int i = 0; i < METRIC_ENGINE_COUNT; i++) {
        calls += atomic_load_explicit(&metrics.engine_calls[i], memory_order_relaxed);
        errors += atomic_load_explicit(&metrics.engine_errors[i], memory_order_relaxed);
    }
    wire_put_open(writer, "engine", '{');
    wire_put_int(writer, "calls", (int64_t)calls);
    wire_put_int(writer, "errors", (int64_t)errors);
    put_sum(writer, "durations", metrics.engine_durations, METRIC_ENGINE_COUNT);
    wire_put_close(writer, '}');
}

static void put_json_lists(struct wire_writer *writer, const struct session_figures *figures)
{
    wire_put_open(writer, "pool", '[');
    for (unsigned i = 0; i < figures->pool_count; i++) {
        wire_put_open(writer, NULL, '{');
        wire_put_str(writer, "runtime", figures->pools[i].runtime);
        wire_put_int(writer, "ready", figures->pools[i].ready);
        wire_put_int(writer, "wanted", figures->pools[i].wanted);
        wire_put_close(writer, '}');
    }
    wire_put_close(writer, ']');
    wire_put_open(writer, "disks", '[');
    for (unsigned i = 0; i < figures->disk_count; i++) {
        const struct figures_disk *disk = &figures->disks[i];

        wire_put_open(writer, NULL, '{');
        wire_put_str(writer, "of", disk->of);
        wire_put_size(writer, "size_bytes", disk->is_known ? disk->size_bytes : -1);
        wire_put_size(writer, "free_bytes", disk->is_known ? disk->free_bytes : -1);
        wire_put_close(writer, '}');
    }
    wire_put_close(writer, ']');
}

static void put_json_process(struct wire_writer *writer)
{
    struct process_figures process;

    process_look(&process);
    wire_put_open(writer, "process", '{');
    wire_put_seconds(writer, "cpu_seconds", process.cpu_us);
    wire_put_size(writer, "resident_bytes", process.resident_bytes);
    wire_put_size(writer, "open_fds", process.fds);
    wire_put_size(writer, "max_fds", process.max_fds);
    wire_put_close(writer, '}');
}

void wire_metrics_json(const struct wire_metrics *of, struct wire_writer *writer)
{
    const struct session_figures *figures = of->figures;

    wire_put_open(writer, NULL, '{');
    wire_put_seconds(writer, "at", clock_unix_us());
    wire_put_str(writer, "version", PACKAGE_VERSION);
    wire_put_seconds(writer, "started_at", of->started_unix_ms * 1000);
    wire_put_readiness(writer, &figures->readiness);
    put_json_sessions(writer, figures);
    put_json_tenants(writer, figures);
    wire_put_open(writer, "latency_bounds_seconds", '[');
    for (int i = 0; i < METRIC_BOUNDS; i++)
        wire_put_seconds(writer, NULL, metric_bounds_us[i]);
    wire_put_close(writer, ']');
    wire_put_open(writer, "opens", '{');
    put_counts(writer, "ended", metrics.opens, METRIC_OPEN_COUNT, opens_text);
    put_counts(writer, "pool", metrics.pool_takes, METRIC_POOL_COUNT, pool_takes_text);
    put_sum(writer, "durations", metrics.open_durations, METRIC_ONE_COUNT);
    wire_put_close(writer, '}');
    wire_put_open(writer, "runs", '{');
    wire_put_int(writer, "running", figures->running_commands);
    wire_put_int(writer, "running_limit", figures->max_running_commands);
    put_counts(writer, "ended", metrics.runs, METRIC_RUN_COUNT, runs_text);
    put_sum(writer, "durations", metrics.run_durations, METRIC_ONE_COUNT);
    wire_put_close(writer, '}');
    put_counts(writer, "events", metrics.events, METRIC_OP_COUNT, events_text);
    put_json_requests(writer, of);
    put_json_engine(writer);
    put_json_lists(writer, figures);
    wire_put_int(writer, "store_queued_writes", (int64_t)figures->store_queued);
    put_json_process(writer);
    wire_put_close(writer, '}');
}
