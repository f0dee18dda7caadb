#include "store_private.h"

int store_clock_get(struct store *store, char ret_boot[40], int64_t *ret_ahead_ms, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT boot, ahead_ms FROM clock");
    int row = store_step(reading.db, stmt, err);

    ret_boot[0] = '\0';
    *ret_ahead_ms = 0;
    if (row > 0) {
        store_column_text(stmt, 0, ret_boot, 40);
        *ret_ahead_ms = sqlite3_column_int64(stmt, 1);
    }
    return row < 0 ? -1 : 0;
}

struct clock_change {
    const char *boot;
    int64_t ahead_ms;
    int64_t shift_ms;
};

static int shift_sessions(struct store_db *db, int64_t shift_ms, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE session SET last_activity_unix_ms = last_activity_unix_ms + ?1,"
                       " keep_until_unix_ms = CASE keep_until_unix_ms WHEN 0 THEN 0 ELSE keep_until_unix_ms + ?1 END");

    store_bind_int(stmt, 1, shift_ms);
    return store_step(db, stmt, err);
}

static int shift_workspaces(struct store_db *db, int64_t shift_ms, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE workspace SET last_use_unix_ms = last_use_unix_ms + ?");

    store_bind_int(stmt, 1, shift_ms);
    return store_step(db, stmt, err);
}

static int write_clock(struct store_db *db, void *args, struct error *err)
{
    const struct clock_change *change = args;
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT OR REPLACE INTO clock (one, boot, ahead_ms) VALUES (1, ?, ?)");

    store_bind_text(stmt, 1, change->boot);
    store_bind_int(stmt, 2, change->ahead_ms);
    if (store_step(db, stmt, err) < 0)
        return -1;
    if (change->shift_ms == 0)
        return 0;
    if (shift_sessions(db, change->shift_ms, err) < 0)
        return -1;
    return shift_workspaces(db, change->shift_ms, err);
}

int store_clock_put(struct store *store, const char *boot, int64_t ahead_ms, int64_t shift_ms, struct error *err)
{
    struct clock_change change = {boot, ahead_ms, shift_ms};

    return store_write(store, STORE_ORDERED, write_clock, &change, err);
}
