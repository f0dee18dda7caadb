/* A store in a directory of its own, for the tests of room store. Every test runs in a process of its own. */
#ifndef BERTH_STORE_FIXTURE_H
#define BERTH_STORE_FIXTURE_H

#include "clock.h"
#include "store.h"
#include "store_private.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct error err;
static struct store *store;

static __attribute__((unused)) void make_dir(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/berth-store-test-XXXXXX");
    cr_assert(mkdtemp(dir));
    err = (struct error)ERROR_INIT;
    store = NULL;
}

static __attribute__((unused)) void remove_dir(void)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;

    store_close(store);
    while (listing && (entry = readdir(listing)))
        (void)unlinkat(dirfd(listing), entry->d_name, 0);
    if (listing)
        (void)closedir(listing);
    (void)rmdir(dir);
}

static __attribute__((unused)) void open_it(void)
{
    cr_assert_eq(store_open(dir, &store, &err), 0, "%s", err.text);
}

static __attribute__((unused)) void reopen(void)
{
    store_close(store);
    store = NULL;
    open_it();
}

static __attribute__((unused)) void setup(void)
{
    make_dir();
    open_it();
}

TestSuite(store, .init = setup, .fini = remove_dir, .timeout = 40);
TestSuite(store_file, .init = make_dir, .fini = remove_dir, .timeout = 40);

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, expected)                                     \
    do {                                                          \
        error_clear(&err);                                        \
        cr_assert_eq((call), -1);                                 \
        cr_assert_eq(err.code, ERROR_##expected, "%s", err.text); \
        error_clear(&err);                                        \
    } while (0)

/* Another program at the same database. */
static __attribute__((unused)) sqlite3 *raw_open(void)
{
    char path[96];
    sqlite3 *raw;

    (void)snprintf(path, sizeof path, "%s/berth.db", dir);
    cr_assert_eq(sqlite3_open(path, &raw), SQLITE_OK);
    (void)sqlite3_busy_timeout(raw, 5000);
    return raw;
}

static __attribute__((unused)) void raw_exec(sqlite3 *raw, const char *sql)
{
    char *text = NULL;
    int code = sqlite3_exec(raw, sql, NULL, NULL, &text);

    cr_assert_eq(code, SQLITE_OK, "%s: %s", sql, text);
}

static __attribute__((unused)) void raw_text(const char *sql, char out[64])
{
    sqlite3 *raw = raw_open();
    sqlite3_stmt *stmt;

    cr_assert_eq(sqlite3_prepare_v2(raw, sql, -1, &stmt, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(stmt), SQLITE_ROW);
    (void)snprintf(out, 64, "%s", sqlite3_column_text(stmt, 0));
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(raw);
}

static __attribute__((unused)) bool wait_until(bool (*is_so)(void), int timeout_ms)
{
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;

    while (!is_so()) {
        if (clock_mono_ms() > deadline_ms)
            return false;
        (void)poll(NULL, 0, 1);
    }
    return true;
}

static __attribute__((unused)) struct store_session session_of(const char *id)
{
    struct store_session session = {.nonce = "n", .tenant = "acme", .runtime = "python", .slot = "slot"};

    (void)snprintf(session.id, sizeof session.id, "%s", id);
    return session;
}

static __attribute__((unused)) uint32_t open_session(const char *id)
{
    struct store_session session = session_of(id);

    OK(store_session_open(store, &session, &err));
    return session.opening;
}

static __attribute__((unused)) void append(const char *id, uint32_t opening, int64_t mark)
{
    struct store_event event = {.op = "run", .target = "echo", .at_unix_us = mark, .ok = true};

    store_event_append(store, id, opening, &event);
}

/* Reads; the numbers are without a gap; the caller frees. */
static __attribute__((unused)) struct store_event *read_events(const char *id, uint32_t opening, uint64_t after,
                                                               size_t *ret_count, uint64_t *ret_latest)
{
    struct store_event *events;

    OK(store_events_read(store, id, opening, after, &events, ret_count, ret_latest, &err));
    for (size_t i = 0; i < *ret_count; i++)
        cr_assert_eq(events[i].seq, *ret_latest - *ret_count + 1 + i);
    return events;
}

static __attribute__((unused)) uint64_t latest_of(const char *id, uint32_t opening)
{
    size_t count;
    uint64_t latest;

    free(read_events(id, opening, 0, &count, &latest));
    cr_assert_eq(count, latest < STORE_EVENTS_KEPT ? latest : STORE_EVENTS_KEPT);
    return latest;
}

static __attribute__((unused)) void feed(const char *session, int64_t at_unix_us)
{
    struct store_feed_event event = {.op = "opened", .tenant = "acme", .detail = "d", .at_unix_us = at_unix_us};

    (void)snprintf(event.session, sizeof event.session, "%s", session);
    store_feed_append(store, &event);
}

static __attribute__((unused)) size_t read_feed(uint64_t after, size_t limit, uint64_t *ret_first, uint64_t *ret_latest)
{
    struct store_feed_event *events;
    size_t count;

    OK(store_feed_read(store, after, &(struct store_feed_filter){NULL}, limit, &events, &count, ret_first, ret_latest,
                       &err));
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(events[i].seq, (after + 1 > *ret_first ? after + 1 : *ret_first) + i);
    free(events);
    return count;
}

#endif
