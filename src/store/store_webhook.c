/* How far the operator's receiver has been told. */
#include "alloc.h"
#include "store_private.h"

struct place_item {
    struct store_item item;
    uint64_t place;
};

static int write_place(struct store_db *db, void *args, struct error *err)
{
    const struct place_item *queued = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "INSERT OR REPLACE INTO webhook (one, place) VALUES (1, ?)");

    store_bind_int(stmt, 1, (int64_t)queued->place);
    return store_step(db, stmt, err);
}

static int forget_place(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM webhook");

    return store_step(db, stmt, err);
}

static void queue(struct store *store, store_write_fn *write, uint64_t place)
{
    struct place_item *queued = alloc_zero(sizeof *queued);

    queued->item.write = write;
    queued->item.args = queued;
    queued->place = place;
    store_queue(store, &queued->item);
}

void store_webhook_place_set(struct store *store, uint64_t place)
{
    queue(store, write_place, place);
}

void store_webhook_forget(struct store *store)
{
    queue(store, forget_place, 0);
}

/* The first time: behind what there is. */
static int begin_place(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT OR IGNORE INTO webhook (one, place)"
                       " SELECT 1, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0)");

    return store_step(db, stmt, err);
}

int store_webhook_place(struct store *store, uint64_t *ret_place, struct error *err)
{
    if (store_write(store, STORE_ORDERED, begin_place, NULL, err) < 0)
        return -1;

    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT place FROM webhook");

    if (store_step(reading.db, stmt, err) <= 0)
        return err->code == ERROR_NONE ? fail(err, INTERNAL, "the webhook's place is missing") : -1;
    *ret_place = (uint64_t)sqlite3_column_int64(stmt, 0);
    return 0;
}
