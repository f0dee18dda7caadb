/* Stored workspaces as they are told to people, and their snapshots. */
#include "store_private.h"

#define STORED_COLUMNS                                                                                  \
    "SELECT w.id, w.slot, w.tenant, w.runtime, w.created_at_unix_ms,"                                   \
    " MAX(w.last_use_unix_ms, IFNULL(s.last_activity_unix_ms, 0)) AS used, s.id IS NOT NULL, w.pinned," \
    " w.size_bytes, w.file_count, w.measured_at_unix_ms FROM workspace w LEFT JOIN session s ON s.id = w.id"

static void stored_of_row(sqlite3_stmt *stmt, struct store_stored *stored)
{
    store_column_text(stmt, 0, stored->workspace.id, sizeof stored->workspace.id);
    store_column_text(stmt, 1, stored->workspace.slot, sizeof stored->workspace.slot);
    store_column_text(stmt, 2, stored->workspace.tenant, sizeof stored->workspace.tenant);
    store_column_text(stmt, 3, stored->workspace.runtime, sizeof stored->workspace.runtime);
    stored->workspace.created_at_unix_ms = sqlite3_column_int64(stmt, 4);
    stored->workspace.last_use_unix_ms = sqlite3_column_int64(stmt, 5);
    stored->is_open = sqlite3_column_int(stmt, 6) != 0;
    stored->is_pinned = sqlite3_column_int(stmt, 7) != 0;
    stored->size_bytes = sqlite3_column_int64(stmt, 8);
    stored->file_count = sqlite3_column_int64(stmt, 9);
    stored->measured_at_unix_ms = sqlite3_column_int64(stmt, 10);
}

int store_stored(struct store *store, const struct store_stored_query *query, struct store_stored **ret,
                 size_t *ret_count, struct error *err)
{
    int64_t sign = query->is_descending ? -1 : 1;
    auto_free struct store_stored *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    /* The key is negated for a descending order, so that one comparison does for both. */
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        reading.db,
        "SELECT *, ?1 * (CASE ?2 WHEN 1 THEN used WHEN 2 THEN size_bytes ELSE 0 END) AS place FROM (" STORED_COLUMNS
        ") WHERE (?3 OR tenant = ?4) AND substr(id, 1, length(?5)) = ?5 AND (?6 OR (place, id) > (?7, ?8))"
        " AND (?10 = '' OR instr(id, ?10) OR instr(tenant, ?10))"
        " ORDER BY place, id LIMIT ?9");
    int row;

    store_bind_int(stmt, 1, sign);
    store_bind_int(stmt, 2, query->sort);
    store_bind_int(stmt, 3, query->tenant == NULL);
    store_bind_text(stmt, 4, query->tenant ? query->tenant : "");
    store_bind_text(stmt, 5, query->prefix);
    store_bind_int(stmt, 6, !query->has_after);
    store_bind_int(stmt, 7, sign * query->after_key);
    store_bind_text(stmt, 8, query->has_after ? query->after_id : "");
    store_bind_int(stmt, 9, query->limit);
    store_bind_text(stmt, 10, query->contains);
    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        stored_of_row(stmt, &rows[count++]);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}

int store_stored_get(struct store *store, const char *id, struct store_stored *ret, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, STORED_COLUMNS " WHERE w.id = ?");
    int row;

    store_bind_text(stmt, 1, id);
    row = store_step(reading.db, stmt, err);
    if (row < 0)
        return -1;
    if (row == 0)
        return fail(err, NOT_FOUND, "No such workspace: %s", id);
    stored_of_row(stmt, ret);
    return 0;
}

struct pin {
    const char *id;
    bool pinned;
};

static int write_pin(struct store_db *db, void *args, struct error *err)
{
    const struct pin *pin = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE workspace SET pinned = ? WHERE id = ?");
    int changed;

    store_bind_int(stmt, 1, pin->pinned);
    store_bind_text(stmt, 2, pin->id);
    changed = store_change(db, stmt, err);
    return changed == 0 ? fail(err, NOT_FOUND, "No such workspace: %s", pin->id) : changed < 0 ? -1 : 0;
}

int store_stored_pin(struct store *store, const char *id, bool pinned, struct error *err)
{
    struct pin pin = {id, pinned};

    return store_write(store, STORE_DURABLE, write_pin, &pin, err);
}

struct measured {
    const char *id;
    const char *slot;
    int64_t size_bytes;
    int64_t file_count;
    int64_t at_unix_ms;
};

static int write_measured(struct store_db *db, void *args, struct error *err)
{
    const struct measured *measured = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        db, "UPDATE workspace SET size_bytes = ?, file_count = ?, measured_at_unix_ms = ? WHERE id = ? AND slot = ?");

    store_bind_int(stmt, 1, measured->size_bytes);
    store_bind_int(stmt, 2, measured->file_count);
    store_bind_int(stmt, 3, measured->at_unix_ms);
    store_bind_text(stmt, 4, measured->id);
    store_bind_text(stmt, 5, measured->slot);
    return store_step(db, stmt, err);
}

int store_stored_measured(struct store *store, const char *id, const char *slot, int64_t size_bytes, int64_t file_count,
                          int64_t at_unix_ms, struct error *err)
{
    struct measured measured = {id, slot, size_bytes, file_count, at_unix_ms};

    return store_write(store, STORE_ORDERED, write_measured, &measured, err);
}

int store_stored_tenant(struct store *store, const char *tenant, int64_t *ret_bytes, int64_t *ret_files,
                        struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT IFNULL(SUM(size_bytes), 0), IFNULL(SUM(file_count), 0) FROM workspace"
                               " WHERE tenant = ? AND size_bytes >= 0");

    store_bind_text(stmt, 1, tenant);
    if (store_step(reading.db, stmt, err) < 0)
        return -1;
    *ret_bytes = sqlite3_column_int64(stmt, 0);
    *ret_files = sqlite3_column_int64(stmt, 1);
    return 0;
}

/* -- snapshots -- */

static int write_snapshot(struct store_db *db, void *args, struct error *err)
{
    const struct store_snapshot *snapshot = args;
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT INTO snapshot (slot, id, name, created_at_unix_ms) VALUES (?, ?, ?, ?)");

    store_bind_text(stmt, 1, snapshot->slot);
    store_bind_text(stmt, 2, snapshot->id);
    store_bind_text(stmt, 3, snapshot->name);
    store_bind_int(stmt, 4, snapshot->created_at_unix_ms);
    return store_step(db, stmt, err);
}

int store_snapshot_put(struct store *store, const struct store_snapshot *snapshot, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_snapshot, (void *)snapshot, err);
}

int store_snapshots(struct store *store, const char *id, struct store_snapshot **ret, size_t *ret_count,
                    struct error *err)
{
    auto_free struct store_snapshot *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT slot, id, name, created_at_unix_ms FROM snapshot WHERE ? OR id = ?"
                               " ORDER BY created_at_unix_ms, slot");
    int row;

    store_bind_int(stmt, 1, id == NULL);
    store_bind_text(stmt, 2, id ? id : "");
    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        store_column_text(stmt, 0, rows[count].slot, sizeof rows[count].slot);
        store_column_text(stmt, 1, rows[count].id, sizeof rows[count].id);
        store_column_text(stmt, 2, rows[count].name, sizeof rows[count].name);
        rows[count++].created_at_unix_ms = sqlite3_column_int64(stmt, 3);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}

static int write_snapshot_delete(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM snapshot WHERE slot = ?");

    store_bind_text(stmt, 1, args);
    return store_step(db, stmt, err);
}

int store_snapshot_delete(struct store *store, const char *slot, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_snapshot_delete, (void *)slot, err);
}
