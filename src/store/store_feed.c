#include "alloc.h"
#include "clock.h"
#include "store_private.h"

#include <string.h>

static const int64_t kept_us = INT64_C(7) * 24 * 3600 * 1000 * 1000;

struct feed_item {
    struct store_item item;
    struct store_feed_event event;
};

static int insert(struct store_db *db, const struct store_feed_event *event, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT INTO feed (at_unix_us, op, session, tenant, detail, trace) VALUES (?, ?, ?, ?, ?, ?)");

    store_bind_int(stmt, 1, event->at_unix_us);
    store_bind_text(stmt, 2, event->op);
    store_bind_text(stmt, 3, event->session);
    store_bind_text(stmt, 4, event->tenant);
    store_bind_text(stmt, 5, event->detail);
    store_bind_text(stmt, 6, event->trace);
    return store_step(db, stmt, err);
}

/* The oldest two go when they are too many or too old: one comes, two go, so that the bound holds without a scan. */
static int trim(struct store_db *db, int64_t latest, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM feed WHERE seq < (SELECT min(seq) FROM feed) + 2"
                                                  " AND (seq <= ? OR (at_unix_us < ? AND seq < ?))");

    store_bind_int(stmt, 1, latest - STORE_FEED_KEPT);
    store_bind_int(stmt, 2, clock_unix_us() - kept_us);
    store_bind_int(stmt, 3, latest);
    return store_step(db, stmt, err);
}

static int write_feed(struct store_db *db, void *args, struct error *err)
{
    const struct feed_item *queued = args;

    if (insert(db, &queued->event, err) < 0)
        return -1;
    return trim(db, sqlite3_last_insert_rowid(db->handle), err);
}

void store_feed_append(struct store *store, const struct store_feed_event *event)
{
    struct feed_item *queued = alloc_zero(sizeof *queued);

    queued->item.write = write_feed;
    queued->item.args = queued;
    queued->item.feeds = true;
    queued->event = *event;
    store_queue(store, &queued->item);
}

static int read_bounds(struct store_db *db, uint64_t *ret_first, uint64_t *ret_latest, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "SELECT coalesce((SELECT min(seq) FROM feed), latest + 1), latest"
                       " FROM (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0) AS latest)");

    if (store_step(db, stmt, err) < 0)
        return -1;
    *ret_first = (uint64_t)sqlite3_column_int64(stmt, 0);
    *ret_latest = (uint64_t)sqlite3_column_int64(stmt, 1);
    return 0;
}

static void bind_filter(sqlite3_stmt *stmt, int index, const char *text)
{
    if (text)
        store_bind_text(stmt, index, text); /* NULL otherwise: any */
}

int store_feed_read(struct store *store, uint64_t after, const struct store_feed_filter *filter, size_t limit,
                    struct store_feed_event **ret, size_t *ret_count, uint64_t *ret_first, uint64_t *ret_latest,
                    struct error *err)
{
    auto_free struct store_feed_event *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    int row;

    if (!filter->only_committed && store_wait_queued(store, err) < 0)
        return -1;

    auto_reading struct store_reading reading = store_read(store);

    if (read_bounds(reading.db, ret_first, ret_latest, err) < 0)
        return -1;

    auto_stmt sqlite3_stmt *stmt = store_stmt(
        reading.db, "SELECT seq, at_unix_us, op, session, tenant, detail, trace FROM feed"
                    " WHERE seq > ?1 AND seq <= ?2 AND (?4 IS NULL OR op = ?4)"
                    " AND (?5 IS NULL OR session = ?5) AND (?6 IS NULL OR tenant = ?6) ORDER BY seq LIMIT ?3");

    store_bind_int(stmt, 1, after > INT64_MAX ? INT64_MAX : (int64_t)after);
    store_bind_int(stmt, 2, (int64_t)*ret_latest);
    store_bind_int(stmt, 3, limit > STORE_FEED_KEPT ? STORE_FEED_KEPT : (int64_t)limit);
    bind_filter(stmt, 4, filter->op);
    bind_filter(stmt, 5, filter->session);
    bind_filter(stmt, 6, filter->tenant);
    while ((row = store_step(reading.db, stmt, err)) > 0) {
        struct store_feed_event *event;

        rows = store_rows_room(rows, count, &room, sizeof *rows);
        event = &rows[count++];
        event->seq = (uint64_t)sqlite3_column_int64(stmt, 0);
        event->at_unix_us = sqlite3_column_int64(stmt, 1);
        store_column_text(stmt, 2, event->op, sizeof event->op);
        store_column_text(stmt, 3, event->session, sizeof event->session);
        store_column_text(stmt, 4, event->tenant, sizeof event->tenant);
        store_column_text(stmt, 5, event->detail, sizeof event->detail);
        store_column_text(stmt, 6, event->trace, sizeof event->trace);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}

/* -- telling who waits -- */

void store_feed_committed(struct store *store)
{
    (void)pthread_mutex_lock(&store->feed_lock);
    store->feed_commits++;
    waitq_wake_all(&store->feed_waiting);
    (void)pthread_mutex_unlock(&store->feed_lock);
}

uint64_t store_feed_commits(struct store *store)
{
    uint64_t commits;

    (void)pthread_mutex_lock(&store->feed_lock);
    commits = store->feed_commits;
    (void)pthread_mutex_unlock(&store->feed_lock);
    return commits;
}

int store_feed_wait(struct store *store, uint64_t seen, const struct cancel *cancel, struct error *err)
{
    int result = 0;

    (void)pthread_mutex_lock(&store->feed_lock);
    while (result == 0 && store->feed_commits <= seen)
        result = waitq_wait(&store->feed_waiting, &store->feed_lock, cancel, err);
    (void)pthread_mutex_unlock(&store->feed_lock);
    return result;
}
