/* wire/wire_metrics.h: what was counted and asked for, written as OpenMetrics, as Prometheus' older text, or as JSON.
 *
 * The families and their order are util/metrics.def. No engine is asked and nothing is walked: as much work for ten thousand
 * sessions as for ten. Threads: any.
 */
#ifndef BERTH_WIRE_METRICS_H
#define BERTH_WIRE_METRICS_H

#include "metric.h"
#include "session_figures.h"
#include "wire_json.h"

struct http_table;

enum { WIRE_STATUS_CLASSES = 6 }; /* 0: none was sent; 1xx to 5xx */

/* What one route has answered. */
struct wire_traffic {
    struct metric_histogram durations;
    _Atomic uint64_t by_class[WIRE_STATUS_CLASSES];
};

struct wire_metrics {
    const struct http_table *table;
    const struct wire_traffic *traffic; /* one a route of the table, then one for what found none */
    const struct session_figures *figures;
    int64_t started_unix_ms;
    unsigned connections;
};

/* `is_open`: OpenMetrics 1.0, else text 0.0.4. */
int wire_metrics_text(const struct wire_metrics *metrics, bool is_open, struct buf *out, struct error *err);
void wire_metrics_json(const struct wire_metrics *metrics, struct wire_writer *writer);
/* {"status", "checks": {…}}: the members of an object that is open. */
void wire_put_readiness(struct wire_writer *writer, const struct session_readiness *readiness);

#endif
