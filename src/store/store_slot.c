#include "store_private.h"

#define SLOT_COLUMNS "slot, ref, runtime, uid, gid, last_run, files_uid, files_gid"

static void slot_of_row(sqlite3_stmt *stmt, struct store_slot *slot)
{
    store_column_text(stmt, 0, slot->slot, sizeof slot->slot);
    store_column_text(stmt, 1, slot->ref, sizeof slot->ref);
    store_column_text(stmt, 2, slot->runtime, sizeof slot->runtime);
    slot->uid = sqlite3_column_int64(stmt, 3);
    slot->gid = sqlite3_column_int64(stmt, 4);
    slot->last_run = (uint32_t)sqlite3_column_int64(stmt, 5);
    slot->files_uid = sqlite3_column_int64(stmt, 6);
    slot->files_gid = sqlite3_column_int64(stmt, 7);
}

int store_slot_write(struct store_db *db, const struct store_slot *slot, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT OR REPLACE INTO slot (slot, ref, runtime, uid, gid, last_run, files_uid, files_gid)"
                       " VALUES (?, ?, ?, ?, ?, ?, ?, ?)");

    store_bind_text(stmt, 1, slot->slot);
    store_bind_text(stmt, 2, slot->ref);
    store_bind_text(stmt, 3, slot->runtime);
    store_bind_int(stmt, 4, slot->uid);
    store_bind_int(stmt, 5, slot->gid);
    store_bind_int(stmt, 6, slot->last_run);
    store_bind_int(stmt, 7, slot->files_uid);
    store_bind_int(stmt, 8, slot->files_gid);
    return store_step(db, stmt, err);
}

static int write_put(struct store_db *db, void *args, struct error *err)
{
    return store_slot_write(db, args, err);
}

int store_slot_put(struct store *store, const struct store_slot *slot, struct error *err)
{
    return store_write(store, STORE_ORDERED, write_put, (void *)slot, err);
}

static int delete_runs(struct store_db *db, const char *slot, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM run WHERE slot = ?");

    store_bind_text(stmt, 1, slot);
    return store_step(db, stmt, err);
}

static int write_delete(struct store_db *db, void *args, struct error *err)
{
    const char *slot = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM slot WHERE slot = ?");

    store_bind_text(stmt, 1, slot);
    if (store_step(db, stmt, err) < 0)
        return -1;
    return delete_runs(db, slot, err);
}

int store_slot_delete(struct store *store, const char *slot, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_delete, (void *)slot, err);
}

int store_slots(struct store *store, struct store_slot **ret_slots, size_t *ret_count, struct error *err)
{
    auto_free struct store_slot *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT " SLOT_COLUMNS " FROM slot ORDER BY slot");
    int row;

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        slot_of_row(stmt, &rows[count++]);
    }
    if (row < 0)
        return -1;
    *ret_slots = take_ptr(rows);
    *ret_count = count;
    return 0;
}

int store_slot_get(struct store *store, const char *slot, struct store_slot *ret, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT " SLOT_COLUMNS " FROM slot WHERE slot = ?");
    int row;

    store_bind_text(stmt, 1, slot);
    row = store_step(reading.db, stmt, err);
    if (row < 0)
        return -1;
    if (row == 0)
        return fail(err, NOT_FOUND, "No such slot");
    slot_of_row(stmt, ret);
    return 0;
}

struct last_run {
    const char *slot;
    uint32_t up_to;
};

static int write_last_run(struct store_db *db, void *args, struct error *err)
{
    const struct last_run *last = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE slot SET last_run = max(last_run, ?) WHERE slot = ?");
    int changed;

    store_bind_int(stmt, 1, last->up_to);
    store_bind_text(stmt, 2, last->slot);
    changed = store_change(db, stmt, err);
    if (changed == 0)
        return fail(err, NOT_FOUND, "No such slot");
    return changed < 0 ? -1 : 0;
}

int store_slot_last_run(struct store *store, const char *slot, uint32_t up_to, struct error *err)
{
    struct last_run last = {slot, up_to};

    return store_write(store, STORE_ORDERED, write_last_run, &last, err);
}
