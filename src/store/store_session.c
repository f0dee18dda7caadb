#include "store_private.h"

#include <assert.h>

/* -- opening -- */

static int count_opening(struct store_db *db, const char *id, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT INTO opening (id, last) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET last = last + 1");

    store_bind_text(stmt, 1, id);
    return store_step(db, stmt, err);
}

static int read_opening(struct store_db *db, const char *id, uint32_t *ret_opening, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "SELECT last FROM opening WHERE id = ?");

    store_bind_text(stmt, 1, id);
    if (store_step(db, stmt, err) < 0)
        return -1;
    *ret_opening = (uint32_t)sqlite3_column_int64(stmt, 0);
    return 0;
}

static int insert_session(struct store_db *db, struct store_session *session, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT INTO session (id, opening, nonce, tenant, runtime, slot, state, created_at_unix_ms,"
                       " last_activity_unix_ms, fresh) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");

    store_bind_text(stmt, 1, session->id);
    store_bind_int(stmt, 2, session->opening);
    store_bind_text(stmt, 3, session->nonce);
    store_bind_text(stmt, 4, session->tenant);
    store_bind_text(stmt, 5, session->runtime);
    store_bind_text(stmt, 6, session->slot);
    store_bind_int(stmt, 7, session->state);
    store_bind_int(stmt, 8, session->created_at_unix_ms);
    store_bind_int(stmt, 9, session->last_activity_unix_ms);
    store_bind_int(stmt, 10, session->fresh);
    if (store_step(db, stmt, err) < 0) {
        if (err->code != ERROR_CONFLICT)
            return -1;
        error_clear(err);
        return fail(err, CONFLICT, "The session is open already");
    }
    session->order = sqlite3_last_insert_rowid(db->handle);
    return 0;
}

static int write_open(struct store_db *db, void *args, struct error *err)
{
    struct store_session *session = args;

    if (count_opening(db, session->id, err) < 0 || read_opening(db, session->id, &session->opening, err) < 0)
        return -1;
    return insert_session(db, session, err);
}

int store_session_open(struct store *store, struct store_session *session, struct error *err)
{
    struct store_session opened = *session;

    opened.state = STORE_OPENING;
    if (store_write(store, STORE_DURABLE, write_open, &opened, err) < 0)
        return -1;
    *session = opened;
    return 0;
}

struct adoption {
    struct store_session session;
    const struct store_workspace *workspace;
    const struct store_slot *slot;
};

static int write_adopt(struct store_db *db, void *args, struct error *err)
{
    struct adoption *adoption = args;

    if (write_open(db, &adoption->session, err) < 0 || store_slot_write(db, adoption->slot, err) < 0)
        return -1;
    return store_workspace_write(db, adoption->workspace, err);
}

int store_session_adopt(struct store *store, struct store_session *session, const struct store_workspace *workspace,
                        const struct store_slot *slot, struct error *err)
{
    struct adoption adoption = {*session, workspace, slot};

    adoption.session.state = STORE_RUNNING;
    if (store_write(store, STORE_DURABLE, write_adopt, &adoption, err) < 0)
        return -1;
    *session = adoption.session;
    return 0;
}

/* -- living -- */

struct state_change {
    const char *id;
    enum store_state state;
    int64_t last_activity_unix_ms;
};

static int write_state(struct store_db *db, void *args, struct error *err)
{
    const struct state_change *change = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        db, "UPDATE session SET state = ?, last_activity_unix_ms = max(last_activity_unix_ms, ?) WHERE id = ?");
    int changed;

    store_bind_int(stmt, 1, change->state);
    store_bind_int(stmt, 2, change->last_activity_unix_ms);
    store_bind_text(stmt, 3, change->id);
    changed = store_change(db, stmt, err);
    if (changed == 0)
        return fail(err, NOT_FOUND, "No such session");
    return changed < 0 ? -1 : 0;
}

int store_session_state(struct store *store, const char *id, enum store_state state, int64_t last_activity_unix_ms,
                        struct error *err)
{
    struct state_change change = {id, state, last_activity_unix_ms};

    return store_write(store, STORE_DURABLE, write_state, &change, err);
}

struct opened {
    struct state_change change;
    const struct store_workspace *workspace;
};

static int write_opened(struct store_db *db, void *args, struct error *err)
{
    struct opened *opened = args;

    if (write_state(db, &opened->change, err) < 0)
        return -1;
    return store_workspace_write(db, opened->workspace, err);
}

int store_session_opened(struct store *store, const struct store_workspace *workspace, int64_t last_activity_unix_ms,
                         struct error *err)
{
    struct opened opened = {{workspace->id, STORE_RUNNING, last_activity_unix_ms}, workspace};

    return store_write(store, STORE_DURABLE, write_opened, &opened, err);
}

struct move {
    const char *id;
    const char *from_slot;
    const struct store_slot *to;
    int64_t at_unix_ms;
};

static int change_slot(struct store_db *db, const char *sql, const char *slot, const char *key, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, sql);

    store_bind_text(stmt, 1, slot);
    store_bind_text(stmt, 2, key);
    return store_change(db, stmt, err);
}

static int write_move(struct store_db *db, void *args, struct error *err)
{
    const struct move *move = args;
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE workspace SET slot = ?, last_use_unix_ms = max(last_use_unix_ms, ?) WHERE id = ?");
    auto_stmt sqlite3_stmt *old = store_stmt(db, "DELETE FROM slot WHERE slot = ?");
    int changed = change_slot(db, "UPDATE session SET slot = ? WHERE id = ?", move->to->slot, move->id, err);

    if (changed == 0)
        return fail(err, NOT_FOUND, "No such session");
    store_bind_text(stmt, 1, move->to->slot);
    store_bind_int(stmt, 2, move->at_unix_ms);
    store_bind_text(stmt, 3, move->id);
    store_bind_text(old, 1, move->from_slot);
    if (changed < 0 || store_step(db, stmt, err) < 0 || store_slot_write(db, move->to, err) < 0 ||
        change_slot(db, "UPDATE run SET slot = ? WHERE slot = ?", move->to->slot, move->from_slot, err) < 0)
        return -1;
    return store_step(db, old, err);
}

int store_session_move(struct store *store, const char *id, const char *from_slot, const struct store_slot *to,
                       int64_t at_unix_ms, struct error *err)
{
    struct move move = {id, from_slot, to, at_unix_ms};

    return store_write(store, STORE_DURABLE, write_move, &move, err);
}

struct keep {
    const char *id;
    int64_t until_unix_ms;
};

static int write_keep(struct store_db *db, void *args, struct error *err)
{
    const struct keep *keep = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE session SET keep_until_unix_ms = ? WHERE id = ?");
    int changed;

    store_bind_int(stmt, 1, keep->until_unix_ms);
    store_bind_text(stmt, 2, keep->id);
    changed = store_change(db, stmt, err);
    if (changed == 0)
        return fail(err, NOT_FOUND, "No such session");
    return changed < 0 ? -1 : 0;
}

int store_session_keep(struct store *store, const char *id, int64_t keep_until_unix_ms, struct error *err)
{
    struct keep keep = {id, keep_until_unix_ms};

    return store_write(store, STORE_DURABLE, write_keep, &keep, err);
}

struct touches {
    const struct store_touch *touches;
    size_t count;
};

static int touch(struct store_db *db, const struct store_touch *touch, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE session SET last_activity_unix_ms = max(last_activity_unix_ms, ?) WHERE id = ?");

    store_bind_int(stmt, 1, touch->last_activity_unix_ms);
    store_bind_text(stmt, 2, touch->id);
    return store_step(db, stmt, err);
}

static int write_touches(struct store_db *db, void *args, struct error *err)
{
    const struct touches *all = args;

    for (size_t i = 0; i < all->count; i++)
        if (touch(db, &all->touches[i], err) < 0)
            return -1;
    return 0;
}

int store_sessions_touch(struct store *store, const struct store_touch *touches, size_t count, struct error *err)
{
    struct touches all = {touches, count};

    return count ? store_write(store, STORE_ORDERED, write_touches, &all, err) : 0;
}

/* -- closing -- */

/* The columns that closing needs. 1: there, 0: no such session. */
struct closing {
    int64_t key;
    int64_t opening;
    char nonce[33];
    char slot[STORE_SLOT_BYTES];
};

static int read_closing(struct store_db *db, const char *id, struct closing *ret, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "SELECT key, opening, nonce, slot FROM session WHERE id = ?");
    int row;

    store_bind_text(stmt, 1, id);
    row = store_step(db, stmt, err);
    if (row > 0) {
        ret->key = sqlite3_column_int64(stmt, 0);
        ret->opening = sqlite3_column_int64(stmt, 1);
        store_column_text(stmt, 2, ret->nonce, sizeof ret->nonce);
        store_column_text(stmt, 3, ret->slot, sizeof ret->slot);
    }
    return row;
}

static int delete_events(struct store_db *db, int64_t key, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM event WHERE session_key = ?");

    store_bind_int(stmt, 1, key);
    return store_step(db, stmt, err);
}

static int delete_runs(struct store_db *db, const char *slot, const char *id, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM run WHERE slot = ? AND id = ?");

    store_bind_text(stmt, 1, slot);
    store_bind_text(stmt, 2, id);
    return store_step(db, stmt, err);
}

static int delete_session(struct store_db *db, int64_t key, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM session WHERE key = ?");

    store_bind_int(stmt, 1, key);
    return store_step(db, stmt, err);
}

/* The row, its events and its runs. */
static int remove_session(struct store_db *db, const char *id, const struct closing *closing, struct error *err)
{
    if (delete_events(db, closing->key, err) < 0 || delete_runs(db, closing->slot, id, err) < 0)
        return -1;
    return delete_session(db, closing->key, err);
}

static int insert_tombstone(struct store_db *db, const char *id, const struct closing *closing, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "INSERT INTO tombstone (id, opening, nonce) VALUES (?, ?, ?)");

    store_bind_text(stmt, 1, id);
    store_bind_int(stmt, 2, closing->opening);
    store_bind_text(stmt, 3, closing->nonce);
    return store_step(db, stmt, err);
}

static int trim_tombstones(struct store_db *db, const char *id, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "DELETE FROM tombstone WHERE id = ?1 AND opening NOT IN"
                       " (SELECT opening FROM tombstone WHERE id = ?1 ORDER BY opening DESC LIMIT ?2)");

    store_bind_text(stmt, 1, id);
    store_bind_int(stmt, 2, STORE_TOMBSTONES);
    return store_step(db, stmt, err);
}

static int use_workspace(struct store_db *db, const char *id, int64_t at_unix_ms, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE workspace SET last_use_unix_ms = max(last_use_unix_ms, ?) WHERE id = ?");

    store_bind_int(stmt, 1, at_unix_ms);
    store_bind_text(stmt, 2, id);
    return store_step(db, stmt, err);
}

static int mark_workspace(struct store_db *db, const char *id, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE workspace SET purging = 1 WHERE id = ?");

    store_bind_text(stmt, 1, id);
    return store_step(db, stmt, err);
}

struct close {
    const char *id;
    int64_t at_unix_ms;
    bool forget;
};

static int write_close(struct store_db *db, void *args, struct error *err)
{
    const struct close *close = args;
    struct closing closing;
    int row = read_closing(db, close->id, &closing, err);

    if (row < 0)
        return -1;
    if (row == 0 && !close->forget)
        return fail(err, NOT_FOUND, "No such session");
    if (row && (remove_session(db, close->id, &closing, err) < 0 ||
                insert_tombstone(db, close->id, &closing, err) < 0 || trim_tombstones(db, close->id, err) < 0))
        return -1;
    return close->forget ? mark_workspace(db, close->id, err) : use_workspace(db, close->id, close->at_unix_ms, err);
}

int store_session_close(struct store *store, const char *id, int64_t at_unix_ms, bool forget, struct error *err)
{
    struct close close = {id, at_unix_ms, forget};

    return store_write(store, STORE_DURABLE, write_close, &close, err);
}

static int write_undo(struct store_db *db, void *args, struct error *err)
{
    const char *id = args;
    struct closing closing;
    int row = read_closing(db, id, &closing, err);

    if (row < 0)
        return -1;
    return row ? remove_session(db, id, &closing, err) : fail(err, NOT_FOUND, "No such session");
}

int store_session_undo(struct store *store, const char *id, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_undo, (void *)id, err);
}

/* -- reading -- */

int store_sessions(struct store *store, struct store_session **ret, size_t *ret_count, struct error *err)
{
    auto_free struct store_session *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT id, opening, nonce, tenant, runtime, slot, state, created_at_unix_ms,"
                               " last_activity_unix_ms, key, keep_until_unix_ms, fresh FROM session ORDER BY key");
    int row;

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        struct store_session *session;

        rows = store_rows_room(rows, count, &room, sizeof *rows);
        session = &rows[count++];
        store_column_text(stmt, 0, session->id, sizeof session->id);
        session->opening = (uint32_t)sqlite3_column_int64(stmt, 1);
        store_column_text(stmt, 2, session->nonce, sizeof session->nonce);
        store_column_text(stmt, 3, session->tenant, sizeof session->tenant);
        store_column_text(stmt, 4, session->runtime, sizeof session->runtime);
        store_column_text(stmt, 5, session->slot, sizeof session->slot);
        session->state = (enum store_state)sqlite3_column_int(stmt, 6);
        session->created_at_unix_ms = sqlite3_column_int64(stmt, 7);
        session->last_activity_unix_ms = sqlite3_column_int64(stmt, 8);
        session->order = sqlite3_column_int64(stmt, 9);
        session->keep_until_unix_ms = sqlite3_column_int64(stmt, 10);
        session->fresh = sqlite3_column_int(stmt, 11) != 0;
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}

int store_tombstones(struct store *store, const char *id, struct store_tombstone ret[STORE_TOMBSTONES],
                     size_t *ret_count, struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT nonce FROM tombstone WHERE id = ? ORDER BY opening DESC LIMIT 4");
    size_t count = 0;
    int row;

    static_assert(STORE_TOMBSTONES == 4, "the statement's limit");
    store_bind_text(stmt, 1, id);
    while ((row = store_step(reading.db, stmt, err)) > 0 && count < STORE_TOMBSTONES)
        store_column_text(stmt, 0, ret[count++].nonce, sizeof ret->nonce);
    if (row < 0)
        return -1;
    *ret_count = count;
    return 0;
}
