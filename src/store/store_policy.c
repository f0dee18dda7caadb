#include "alloc.h"
#include "store_private.h"

int store_policy_get(struct store *store, char **ret_json, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT json FROM policy");
    int row = store_step(reading.db, stmt, err);

    if (row < 0)
        return -1;
    *ret_json = row ? alloc_str((const char *)sqlite3_column_text(stmt, 0)) : NULL;
    return 0;
}

static int write_policy(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "INSERT OR REPLACE INTO policy (one, json) VALUES (1, ?)");

    store_bind_text(stmt, 1, args);
    return store_step(db, stmt, err);
}

int store_policy_put(struct store *store, const char *json, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_policy, (void *)json, err);
}
