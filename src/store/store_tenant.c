#include "store_private.h"

static void bind_opt(sqlite3_stmt *stmt, int index, struct opt_int number)
{
    if (number.is_set)
        store_bind_int(stmt, index, number.value); /* NULL otherwise */
}

static struct opt_int column_opt(sqlite3_stmt *stmt, int column)
{
    return (struct opt_int){sqlite3_column_type(stmt, column) != SQLITE_NULL, sqlite3_column_int64(stmt, column)};
}

static int delete_tenant(struct store_db *db, const char *tenant, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM tenant WHERE tenant = ?");

    store_bind_text(stmt, 1, tenant);
    return store_step(db, stmt, err);
}

static int write_tenant(struct store_db *db, void *args, struct error *err)
{
    const struct store_tenant *tenant = args;

    if (!tenant->max_open_sessions.is_set && !tenant->max_resident_sessions.is_set &&
        !tenant->max_running_commands.is_set && !tenant->max_disk_bytes.is_set)
        return delete_tenant(db, tenant->tenant, err);

    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT OR REPLACE INTO tenant (tenant, max_open_sessions, max_resident_sessions,"
                       " max_running_commands, max_disk_bytes) VALUES (?, ?, ?, ?, ?)");

    store_bind_text(stmt, 1, tenant->tenant);
    bind_opt(stmt, 2, tenant->max_open_sessions);
    bind_opt(stmt, 3, tenant->max_resident_sessions);
    bind_opt(stmt, 4, tenant->max_running_commands);
    bind_opt(stmt, 5, tenant->max_disk_bytes);
    return store_step(db, stmt, err);
}

int store_tenant_put(struct store *store, const struct store_tenant *tenant, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_tenant, (void *)tenant, err);
}

int store_tenants(struct store *store, struct store_tenant **ret, size_t *ret_count, struct error *err)
{
    auto_free struct store_tenant *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        reading.db, "SELECT tenant, max_open_sessions, max_resident_sessions, max_running_commands, max_disk_bytes"
                    " FROM tenant ORDER BY tenant");
    int row;

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        struct store_tenant *tenant;

        rows = store_rows_room(rows, count, &room, sizeof *rows);
        tenant = &rows[count++];
        store_column_text(stmt, 0, tenant->tenant, sizeof tenant->tenant);
        tenant->max_open_sessions = column_opt(stmt, 1);
        tenant->max_resident_sessions = column_opt(stmt, 2);
        tenant->max_running_commands = column_opt(stmt, 3);
        tenant->max_disk_bytes = column_opt(stmt, 4);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}
