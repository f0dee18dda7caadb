#include "metric.h"

#include "error.h"

#include <string.h>

struct metrics metrics;

const int64_t metric_bounds_us[METRIC_BOUNDS] = {500,      1000,     2500,     5000,     10000,   25000,
                                                 50000,    100000,   250000,   500000,   1000000, 2500000,
                                                 10000000, 30000000, 60000000, 300000000};

void metric_observe(struct metric_histogram *histogram, int64_t us)
{
    int at = 0;

    if (us < 0)
        us = 0;
    while (at < METRIC_BOUNDS && us > metric_bounds_us[at])
        at++;
    (void)atomic_fetch_add_explicit(&histogram->counts[at], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&histogram->sum_us, (uint64_t)us, memory_order_relaxed);
}

void metric_seen_add(struct metric_seen *ret, const struct metric_histogram *histogram)
{
    for (int i = 0; i <= METRIC_BOUNDS; i++) {
        uint64_t count = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);

        ret->counts[i] += count;
        ret->count += count;
    }
    ret->sum_us += atomic_load_explicit(&histogram->sum_us, memory_order_relaxed);
}

void metric_see(const struct metric_histogram *histogram, struct metric_seen *ret)
{
    *ret = (struct metric_seen){.count = 0};
    metric_seen_add(ret, histogram);
}

#define TEXT(identifier, text) text,
#define TEXTS(list, LIST)                                      \
    const char *metric_##list##_text(enum metric_##list value) \
    {                                                          \
        static const char *const texts[] = {LIST(TEXT)};       \
                                                               \
        return texts[value];                                   \
    }
TEXTS(one, METRIC_ONE_VALUES)
TEXTS(open, METRIC_OPEN_VALUES)
TEXTS(run, METRIC_RUN_VALUES)
TEXTS(pool, METRIC_POOL_VALUES)
TEXTS(webhook, METRIC_WEBHOOK_VALUES)
TEXTS(engine, METRIC_ENGINE_VALUES)
TEXTS(op, METRIC_OP_VALUES)

const char *metric_error_text(enum metric_error value)
{
    return error_code_name((enum error_code)value);
}

enum metric_op metric_op_of(const char *text)
{
    for (int i = 0; i < METRIC_OP_OTHER; i++)
        if (strcmp(metric_op_text((enum metric_op)i), text) == 0)
            return (enum metric_op)i;
    return METRIC_OP_OTHER;
}
