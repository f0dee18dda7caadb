/* util/metric.h: what is counted while it happens: metrics.def is the table of it.
 *
 *     metric_count(opens, METRIC_OPEN_CREATED);
 *     metric_observe(&metrics.open_durations[METRIC_ONE_ALL], took_us);
 *
 * Relaxed atomics, one process-wide struct: counting costs nanoseconds, never blocks, and reading disturbs nobody. A label's values
 * are a list of this header, so that no client can make a series. Threads: any.
 */
#ifndef BERTH_METRIC_H
#define BERTH_METRIC_H

#include <stdatomic.h>
#include <stdint.h>

/* -- labels' values: V(identifier, text) -- */
#define METRIC_ONE_VALUES(V) V(ALL, "")
#define METRIC_OPEN_VALUES(V) \
    V(CREATED, "created")     \
    V(POOL, "pool")           \
    V(ATTACHED, "attached")   \
    V(REFUSED, "refused")     \
    V(FAILED, "failed")
#define METRIC_RUN_VALUES(V)  \
    V(OK, "ok")               \
    V(NONZERO, "nonzero")     \
    V(SIGNAL, "signal")       \
    V(TIMED_OUT, "timed_out") \
    V(STOPPED, "stopped")     \
    V(LOST, "lost")
#define METRIC_WEBHOOK_VALUES(V) \
    V(DELIVERED, "delivered")    \
    V(REFUSED, "refused")        \
    V(UNREACHED, "unreached")    \
    V(GIVEN_UP, "given_up")
#define METRIC_POOL_VALUES(V) V(HIT, "hit") V(MISS, "miss")
#define METRIC_ENGINE_VALUES(V) \
    V(VERSION, "version")       \
    V(PING, "ping")             \
    V(INFO, "info")             \
    V(EVENTS, "events")         \
    V(IMAGE, "image")           \
    V(PULL, "pull")             \
    V(BUILD, "build")           \
    V(NETWORK, "network")       \
    V(PROBE, "probe")           \
    V(CREATE, "create")         \
    V(START, "start")           \
    V(ATTACH, "attach")         \
    V(STOP, "stop")             \
    V(KILL, "kill")             \
    V(PAUSE, "pause")           \
    V(UNPAUSE, "unpause")       \
    V(REMOVE, "remove")         \
    V(RENAME, "rename")         \
    V(INSPECT, "inspect")       \
    V(LIST, "list")
#define METRIC_OP_VALUES(V)         \
    V(OPENED, "opened")             \
    V(CLOSED, "closed")             \
    V(PURGED, "purged")             \
    V(REAPED, "reaped")             \
    V(HIBERNATED, "hibernated")     \
    V(FROZEN, "frozen")             \
    V(THAWED, "thawed")             \
    V(WOKEN, "woken")               \
    V(HEALED, "healed")             \
    V(DIED, "died")                 \
    V(REFUSED, "refused")           \
    V(POLICY, "policy")             \
    V(TENANT, "tenant")             \
    V(SNAPSHOT, "snapshot")         \
    V(RESTORED, "restored")         \
    V(RUN_STARTED, "run_started")   \
    V(RUN_ENDED, "run_ended")       \
    V(OVER_QUOTA, "over_quota")     \
    V(WITHIN_QUOTA, "within_quota") \
    V(OTHER, "other")

enum metric_one { METRIC_ONE_ALL, METRIC_ONE_COUNT };
#define METRIC_ID(identifier, text) METRIC_OPEN_##identifier,
enum metric_open { METRIC_OPEN_VALUES(METRIC_ID) METRIC_OPEN_COUNT };
#undef METRIC_ID
#define METRIC_ID(identifier, text) METRIC_RUN_##identifier,
enum metric_run { METRIC_RUN_VALUES(METRIC_ID) METRIC_RUN_COUNT };
#undef METRIC_ID
#define METRIC_ID(identifier, text) METRIC_WEBHOOK_##identifier,
enum metric_webhook { METRIC_WEBHOOK_VALUES(METRIC_ID) METRIC_WEBHOOK_COUNT };
#undef METRIC_ID
#define METRIC_ID(identifier, text) METRIC_POOL_##identifier,
enum metric_pool { METRIC_POOL_VALUES(METRIC_ID) METRIC_POOL_COUNT };
#undef METRIC_ID
#define METRIC_ID(identifier, text) METRIC_ENGINE_##identifier,
enum metric_engine { METRIC_ENGINE_VALUES(METRIC_ID) METRIC_ENGINE_COUNT };
#undef METRIC_ID
#define METRIC_ID(identifier, text) METRIC_OP_##identifier,
enum metric_op { METRIC_OP_VALUES(METRIC_ID) METRIC_OP_COUNT };
#undef METRIC_ID
/* By enum error_code: METRIC_ERROR_COUNT of them. */
enum metric_error {
#define ERROR(name, status, is_public, sentence) METRIC_ERROR_##name,
#include "errors.def"
#undef ERROR
    METRIC_ERROR_COUNT
};

/* -- what is kept -- */
enum { METRIC_BOUNDS = 16 };
extern const int64_t metric_bounds_us[METRIC_BOUNDS]; /* inclusive, ascending */

struct metric_histogram {
    _Atomic uint64_t counts[METRIC_BOUNDS + 1]; /* not cumulative; the last: above all bounds */
    _Atomic uint64_t sum_us;
};

struct metrics {
#define METRIC_COUNTER(field, name, label, VALUES, help) _Atomic uint64_t field[VALUES##_COUNT];
#define METRIC_HISTOGRAM(field, name, label, VALUES, help) struct metric_histogram field[VALUES##_COUNT];
#define METRIC_ASKED(field, TYPE, name, help)
#include "metrics.def"
};
extern struct metrics metrics;

#define metric_count(field, value) ((void)atomic_fetch_add_explicit(&metrics.field[value], 1, memory_order_relaxed))

void metric_observe(struct metric_histogram *histogram, int64_t us);

/* What a histogram held at one moment of no particular choice. */
struct metric_seen {
    uint64_t counts[METRIC_BOUNDS + 1];
    uint64_t count; /* the sum of them */
    uint64_t sum_us;
};
void metric_see(const struct metric_histogram *histogram, struct metric_seen *ret);
/* Adds up: `ret` is zero at first. */
void metric_seen_add(struct metric_seen *ret, const struct metric_histogram *histogram);

/* The text of a value; static. */
const char *metric_open_text(enum metric_open value);
const char *metric_run_text(enum metric_run value);
const char *metric_webhook_text(enum metric_webhook value);
const char *metric_pool_text(enum metric_pool value);
const char *metric_engine_text(enum metric_engine value);
const char *metric_op_text(enum metric_op value);
const char *metric_error_text(enum metric_error value);
const char *metric_one_text(enum metric_one value);
/* METRIC_OP_OTHER: a word that is not in the list. */
enum metric_op metric_op_of(const char *text);

#endif
