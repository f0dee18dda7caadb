#include "store_private.h"

static void workspace_of_row(sqlite3_stmt *stmt, struct store_workspace *workspace)
{
    store_column_text(stmt, 0, workspace->id, sizeof workspace->id);
    store_column_text(stmt, 1, workspace->slot, sizeof workspace->slot);
    store_column_text(stmt, 2, workspace->tenant, sizeof workspace->tenant);
    store_column_text(stmt, 3, workspace->runtime, sizeof workspace->runtime);
    workspace->created_at_unix_ms = sqlite3_column_int64(stmt, 4);
    workspace->last_use_unix_ms = sqlite3_column_int64(stmt, 5);
    workspace->purging = sqlite3_column_int(stmt, 6) != 0;
}

int store_workspace_write(struct store_db *db, const struct store_workspace *workspace, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        db,
        "INSERT INTO workspace (id, slot, tenant, runtime, created_at_unix_ms, last_use_unix_ms, purging)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET slot = excluded.slot, tenant = excluded.tenant, runtime = excluded.runtime,"
        " created_at_unix_ms = excluded.created_at_unix_ms, last_use_unix_ms = excluded.last_use_unix_ms,"
        " purging = excluded.purging");

    store_bind_text(stmt, 1, workspace->id);
    store_bind_text(stmt, 2, workspace->slot);
    store_bind_text(stmt, 3, workspace->tenant);
    store_bind_text(stmt, 4, workspace->runtime);
    store_bind_int(stmt, 5, workspace->created_at_unix_ms);
    store_bind_int(stmt, 6, workspace->last_use_unix_ms);
    store_bind_int(stmt, 7, workspace->purging);
    return store_step(db, stmt, err);
}

static int write_put(struct store_db *db, void *args, struct error *err)
{
    return store_workspace_write(db, args, err);
}

int store_workspace_put(struct store *store, const struct store_workspace *workspace, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_put, (void *)workspace, err);
}

int store_workspace_get(struct store *store, const char *id, struct store_workspace *ret, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        reading.db,
        "SELECT id, slot, tenant, runtime, created_at_unix_ms, last_use_unix_ms, purging FROM workspace WHERE id = ?");
    int row;

    store_bind_text(stmt, 1, id);
    row = store_step(reading.db, stmt, err);
    if (row < 0)
        return -1;
    if (row == 0)
        return fail(err, NOT_FOUND, "No such workspace");
    workspace_of_row(stmt, ret);
    return 0;
}

static int write_delete(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM workspace WHERE id = ?");

    store_bind_text(stmt, 1, args);
    return store_step(db, stmt, err);
}

int store_workspace_delete(struct store *store, const char *id, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_delete, (void *)id, err);
}

int store_workspaces(struct store *store, struct store_workspace **ret, size_t *ret_count, struct error *err)
{
    auto_free struct store_workspace *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        reading.db,
        "SELECT id, slot, tenant, runtime, created_at_unix_ms, last_use_unix_ms, purging FROM workspace ORDER BY id");
    int row;

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        workspace_of_row(stmt, &rows[count++]);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}
