/* Everything at once from eight threads, as a plain program so that it also runs under TSan. Prints what an event
 * costs. */
#include "clock.h"
#include "store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 300, COST_EVENTS = 20000 };

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static struct store *store;

static void *hammer(void *arg)
{
    int me = *(int *)arg;
    struct error err = ERROR_INIT;
    struct store_session session = {.slot = "s", .runtime = "python"};
    struct store_slot slot = {.uid = -1, .gid = -1};

    (void)snprintf(session.id, sizeof session.id, "thread-%d", me);
    (void)snprintf(slot.slot, sizeof slot.slot, "slot-%d", me);
    CHECK(store_slot_put(store, &slot, &err) == 0);
    CHECK(store_session_open(store, &session, &err) == 0);
    for (int round = 1; round <= ROUNDS; round++) {
        struct store_event event = {.op = "run", .target = "echo", .at_unix_us = round, .ok = true};
        struct store_feed_event fed = {.op = "woken", .at_unix_us = clock_unix_us()};
        struct store_run run = {.number = (uint32_t)round};
        struct run_exit run_exit = {.exit_code = 0};
        struct store_touch touch = {.last_activity_unix_ms = round};
        struct store_event *events = NULL;
        size_t count = 0;
        uint64_t latest = 0;

        memcpy(run.slot, slot.slot, sizeof run.slot);
        memcpy(touch.id, session.id, sizeof touch.id);
        store_event_append(store, session.id, session.opening, &event);
        store_feed_append(store, &fed);
        store_run_put(store, &run);
        store_run_end(store, slot.slot, run.number, round, &run_exit, "");
        if (round % 10 == 0) {
            CHECK(store_slot_last_run(store, slot.slot, (uint32_t)round, &err) == 0);
            CHECK(store_sessions_touch(store, &touch, 1, &err) == 0);
        }
        if (round % 50 == 0)
            CHECK(store_session_state(store, session.id, STORE_RUNNING, round, &err) == 0);
        CHECK(store_events_read(store, session.id, session.opening, (uint64_t)round - 1, &events, &count, &latest,
                                &err) == 0);
        CHECK(latest == (uint64_t)round && count == 1 && events[0].seq == latest && events[0].at_unix_us == round);
        free(events);
    }
    CHECK(store_session_close(store, session.id, 1, false, &err) == 0);
    return NULL;
}

static void print_cost(void)
{
    struct error err = ERROR_INIT;
    struct store_session session = {.id = "cost"};
    struct store_event event = {.op = "run", .target = "python3 -c 'print(1)'", .detail = "exit 0", .ok = true};
    struct store_event *events = NULL;
    size_t count = 0;
    uint64_t latest = 0;
    int64_t start_us;
    int64_t pushed_us;
    int64_t seen_us;

    CHECK(store_session_open(store, &session, &err) == 0);
    pushed_us = 0;
    start_us = clock_mono_us();
    for (int burst = 0; burst < COST_EVENTS / 2000; burst++) { /* below the bound, so that none waits for room */
        int64_t burst_us = clock_mono_us();

        for (int i = 0; i < 2000; i++)
            store_event_append(store, session.id, session.opening, &event);
        pushed_us += clock_mono_us() - burst_us;
        CHECK(store_events_read(store, session.id, session.opening, UINT64_MAX, &events, &count, &latest, &err) == 0);
    }
    seen_us = clock_mono_us() - start_us;
    CHECK(latest == COST_EVENTS && count == 0);
    (void)printf("event, in bursts: %.2f us to the caller, %.2f us until committed\n", (double)pushed_us / COST_EVENTS,
                 (double)seen_us / COST_EVENTS);

    pushed_us = 0;
    start_us = clock_mono_us();
    for (int i = 0; i < 2000; i++) {
        int64_t before_us = clock_mono_us();

        store_event_append(store, session.id, session.opening, &event);
        pushed_us += clock_mono_us() - before_us;
        CHECK(store_events_read(store, session.id, session.opening, UINT64_MAX, &events, &count, &latest, &err) == 0);
    }
    (void)printf("event, one at a time: %.2f us to the caller, %.2f us until committed and read\n",
                 (double)pushed_us / 2000, (double)(clock_mono_us() - start_us) / 2000);
}

int main(void)
{
    struct error err = ERROR_INIT;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    struct store_feed_event *feed = NULL;
    struct store_run *runs = NULL;
    size_t count = 0;
    uint64_t first = 0;
    uint64_t latest = 0;

    (void)alarm(50);
    if (store_open(":memory:", &store, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, hammer, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(store_feed_read(store, 0, &(struct store_feed_filter){NULL}, STORE_FEED_KEPT, &feed, &count, &first, &latest,
                          &err) == 0);
    CHECK(first == 1 && latest == THREADS * ROUNDS && count == THREADS * ROUNDS);
    for (size_t i = 0; i < count; i++)
        CHECK(feed[i].seq == i + 1);
    CHECK(store_runs_open(store, &runs, &count, &err) == 0 && count == 0);
    free(feed);
    print_cost();
    store_close(store);
    return 0;
}
