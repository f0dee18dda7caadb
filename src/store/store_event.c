#include "alloc.h"
#include "store_private.h"

#include <assert.h>
#include <string.h>

/* Made as large as its texts: a queue of 10,000 is a few megabytes at most times, 12 at worst. */
struct event_item {
    struct store_item item;
    uint32_t opening;
    int64_t at_unix_us;
    int64_t duration_us;
    bool ok;
    const char *id; /* all in `texts`, each with its NUL */
    const char *op;
    const char *target;
    const char *detail;
    char texts[];
};

static const char *put_text(char **at, const char *text, size_t length)
{
    char *start = *at;

    memcpy(start, text, length);
    start[length] = '\0';
    *at = start + length + 1;
    return start;
}

/* *ret_open: whether that opening is (still) there. */
static int take_number(struct store_db *db, const struct event_item *event, bool *ret_open, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE session SET last_seq = last_seq + 1 WHERE id = ? AND opening = ?");
    int changed;

    store_bind_text(stmt, 1, event->id);
    store_bind_int(stmt, 2, event->opening);
    changed = store_change(db, stmt, err);
    *ret_open = changed > 0;
    return changed < 0 ? -1 : 0;
}

static int write_event(struct store_db *db, void *args, struct error *err)
{
    const struct event_item *event = args;
    bool open;

    static_assert(STORE_EVENTS_KEPT == 200, "the statement's ring");
    if (take_number(db, event, &open, err) < 0)
        return -1;
    if (!open)
        return 0;

    auto_stmt sqlite3_stmt *stmt = store_stmt(
        db, "INSERT OR REPLACE INTO event (session_key, place, seq, at_unix_us, duration_us, ok, op, target, detail)"
            " SELECT key, last_seq % 200, last_seq, ?, ?, ?, ?, ?, ? FROM session WHERE id = ?");

    store_bind_int(stmt, 1, event->at_unix_us);
    store_bind_int(stmt, 2, event->duration_us);
    store_bind_int(stmt, 3, event->ok);
    store_bind_text(stmt, 4, event->op);
    store_bind_text(stmt, 5, event->target);
    store_bind_text(stmt, 6, event->detail);
    store_bind_text(stmt, 7, event->id);
    return store_step(db, stmt, err);
}

void store_event_append(struct store *store, const char *id, uint32_t opening, const struct store_event *event)
{
    size_t id_length = strlen(id);
    size_t op_length = strnlen(event->op, sizeof event->op - 1);
    size_t target_length = strnlen(event->target, sizeof event->target - 1);
    size_t detail_length = strnlen(event->detail, sizeof event->detail - 1);
    struct event_item *queued = alloc_zero(sizeof *queued + id_length + op_length + target_length + detail_length + 4);
    char *at = queued->texts;

    queued->item.write = write_event;
    queued->item.args = queued;
    queued->opening = opening;
    queued->at_unix_us = event->at_unix_us;
    queued->duration_us = event->duration_us;
    queued->ok = event->ok;
    queued->id = put_text(&at, id, id_length);
    queued->op = put_text(&at, event->op, op_length);
    queued->target = put_text(&at, event->target, target_length);
    queued->detail = put_text(&at, event->detail, detail_length);
    store_queue(store, &queued->item);
}

/* -- reading -- */

/* *ret_key 0: that opening is not open. */
static int read_latest(struct store_db *db, const char *id, uint32_t opening, int64_t *ret_key, uint64_t *ret_latest,
                       struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "SELECT key, last_seq FROM session WHERE id = ? AND opening = ?");
    int row;

    store_bind_text(stmt, 1, id);
    store_bind_int(stmt, 2, opening);
    row = store_step(db, stmt, err);
    *ret_key = row > 0 ? sqlite3_column_int64(stmt, 0) : 0;
    *ret_latest = row > 0 ? (uint64_t)sqlite3_column_int64(stmt, 1) : 0;
    return row < 0 ? -1 : 0;
}

static int read_events(struct store_db *db, int64_t key, uint64_t after, uint64_t latest, struct store_event *rows,
                       size_t *ret_count, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "SELECT seq, at_unix_us, duration_us, ok, op, target, detail FROM event"
                       " WHERE session_key = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 200");
    size_t count = 0;
    int row;

    store_bind_int(stmt, 1, key);
    store_bind_int(stmt, 2, (int64_t)after);
    store_bind_int(stmt, 3, (int64_t)latest);
    while ((row = store_step(db, stmt, err)) > 0 && count < STORE_EVENTS_KEPT) {
        struct store_event *event = &rows[count++];

        event->seq = (uint64_t)sqlite3_column_int64(stmt, 0);
        event->at_unix_us = sqlite3_column_int64(stmt, 1);
        event->duration_us = sqlite3_column_int64(stmt, 2);
        event->ok = sqlite3_column_int(stmt, 3) != 0;
        store_column_text(stmt, 4, event->op, sizeof event->op);
        store_column_text(stmt, 5, event->target, sizeof event->target);
        store_column_text(stmt, 6, event->detail, sizeof event->detail);
    }
    *ret_count = count;
    return row < 0 ? -1 : 0;
}

int store_events_read(struct store *store, const char *id, uint32_t opening, uint64_t after, struct store_event **ret,
                      size_t *ret_count, uint64_t *ret_latest, struct error *err)
{
    auto_free struct store_event *rows = NULL;
    uint64_t latest;
    int64_t key;
    size_t count = 0;

    if (store_wait_queued(store, err) < 0)
        return -1;

    auto_reading struct store_reading reading = store_read(store);

    if (read_latest(reading.db, id, opening, &key, &latest, err) < 0)
        return -1;
    if (key && after < latest) {
        rows = alloc_array(latest - after < STORE_EVENTS_KEPT ? latest - after : STORE_EVENTS_KEPT, sizeof *rows);
        /* Between the two statements newer ones may have taken places: `latest` bounds what is told, not what is kept.
         */
        if (read_events(reading.db, key, after, latest, rows, &count, err) < 0)
            return -1;
    }
    *ret = take_ptr(rows);
    *ret_count = count;
    *ret_latest = latest;
    return 0;
}
