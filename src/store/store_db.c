#include "alloc.h"
#include "log.h"
#include "store_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BUSY_TIMEOUT_MS = 5000 };

/* errno of the last failed call on the log; sqlite3_system_errno() is not told of a failure within COMMIT. */
static int log_errno(struct store_db *db)
{
    sqlite3_file *file = NULL;
    int last = 0;

    if (sqlite3_file_control(db->handle, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &file) == SQLITE_OK && file &&
        file->pMethods)
        (void)file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &last);
    return last;
}

static bool is_no_space(int sys_errno)
{
    return sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EFBIG;
}

int store_db_fail(struct store_db *db, const char *what, struct error *err)
{
    int code = sqlite3_extended_errcode(db->handle);
    int sys_errno = 0;
    enum error_code ours = ERROR_INTERNAL;

    switch (code & 0xff) {
    case SQLITE_FULL:
        ours = ERROR_NO_SPACE;
        break;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        sys_errno = sqlite3_system_errno(db->handle);
        if (!is_no_space(sys_errno) && (code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_FSYNC))
            sys_errno = log_errno(db);
        if (is_no_space(sys_errno))
            ours = ERROR_NO_SPACE;
        break;
    case SQLITE_CONSTRAINT:
        ours = ERROR_CONFLICT;
        break;
    case SQLITE_TOOBIG:
        ours = ERROR_INVALID;
        break;
    }
    return error_set(err, ours, sys_errno, "store: %s (%d): %.100s", sqlite3_errmsg(db->handle), code, what);
}

int store_db_exec(struct store_db *db, const char *sql, struct error *err)
{
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) != SQLITE_OK)
        return store_db_fail(db, sql, err);
    return 0;
}

/* A PRAGMA that answers one value. */
static int pragma_text(struct store_db *db, const char *sql, char *out, size_t out_bytes, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0;

    out[0] = '\0';
    if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) != SQLITE_OK || sqlite3_step(stmt) != SQLITE_ROW)
        result = store_db_fail(db, sql, err);
    else
        store_column_text(stmt, 0, out, out_bytes);
    (void)sqlite3_finalize(stmt);
    return result;
}

static int schema_version(struct store_db *db, int *ret_version, struct error *err)
{
    char text[24];

    if (pragma_text(db, "PRAGMA user_version", text, sizeof text, err) < 0)
        return -1;
    *ret_version = (int)strtol(text, NULL, 10);
    if (*ret_version > store_schema_newest || *ret_version < 0)
        return fail(err, CONFLICT,
                    "the store's schema is %d, this berthd knows up to %d: start the newer berthd that made it",
                    *ret_version, store_schema_newest);
    return 0;
}

static int count_wal_pages(void *context, sqlite3 *handle, const char *name, int pages)
{
    struct store_db *db = context;

    db->wal_pages = pages;
    return SQLITE_OK;
}

int store_db_open(struct store_db *db, const char *path, struct error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
    char mode[16];
    int version;

    memset(db, 0, sizeof *db);
    if (sqlite3_open_v2(path, &db->handle, flags, NULL) != SQLITE_OK)
        return db->handle ? store_db_fail(db, path, err) : fail(err, INTERNAL, "store: no memory");
    (void)sqlite3_busy_timeout(db->handle, BUSY_TIMEOUT_MS); /* for an operator's sqlite3 beside us */
    if (schema_version(db, &version, err) < 0 ||
        pragma_text(db, "PRAGMA journal_mode = WAL", mode, sizeof mode, err) < 0)
        return -1;
    if (strcmp(mode, "wal") != 0)
        return fail(err, INTERNAL, "store: %s: no write-ahead log here, journal is \"%s\"", path, mode);
    /* The writer decides when to move the log: a hook of ours replaces SQLite's. */
    (void)sqlite3_wal_hook(db->handle, count_wal_pages, db);
    db->synchronous = 2;
    return store_db_exec(db,
                         "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -1024;"
                         "PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = 33554432",
                         err);
}

void store_db_close(struct store_db *db)
{
    for (size_t i = 0; i < STORE_STATEMENTS_MAX; i++)
        (void)sqlite3_finalize(db->statements[i].stmt);
    if (sqlite3_close(db->handle) != SQLITE_OK)
        log_error("store.close", log_s("error", sqlite3_errmsg(db->handle)));
    memset(db, 0, sizeof *db);
}

static int migrate_one(struct store_db *db, const struct store_migration *migration, struct error *err)
{
    char version[48];

    (void)snprintf(version, sizeof version, "PRAGMA user_version = %d", migration->number);
    if (store_db_exec(db, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (store_db_exec(db, migration->sql, err) < 0 || store_db_exec(db, version, err) < 0 ||
        store_db_exec(db, "COMMIT", err) < 0) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
        return error_prefix(err, "migration %d", migration->number);
    }
    return 0;
}

int store_db_migrate(struct store_db *db, struct error *err)
{
    int version;

    if (schema_version(db, &version, err) < 0)
        return -1;
    for (; version < store_schema_newest; version++)
        if (migrate_one(db, &store_migrations[version], err) < 0)
            return -1;
    return 0;
}

int store_db_set_synchronous(struct store_db *db, int level, struct error *err)
{
    if (level == db->synchronous)
        return 0;
    if (store_db_exec(db, level == 2 ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", err) < 0)
        return -1;
    db->synchronous = level;
    return 0;
}

void store_db_checkpoint(struct store_db *db)
{
    int code = sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY)
        log_warn("store.checkpoint", log_s("error", sqlite3_errmsg(db->handle)));
    db->wal_pages = 0;
}

sqlite3_stmt *store_stmt(struct store_db *db, const char *literal)
{
    size_t i;

    for (i = 0; i < STORE_STATEMENTS_MAX && db->statements[i].sql; i++)
        if (db->statements[i].sql == literal)
            return db->statements[i].stmt;
    assert(i < STORE_STATEMENTS_MAX);
    if (sqlite3_prepare_v3(db->handle, literal, -1, SQLITE_PREPARE_PERSISTENT, &db->statements[i].stmt, NULL) !=
        SQLITE_OK)
        return NULL; /* not remembered: tried again at the next use */
    db->statements[i].sql = literal;
    return db->statements[i].stmt;
}

void store_bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    if (stmt) {
        int code = sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);

        assert(code == SQLITE_OK || code == SQLITE_TOOBIG);
        (void)code; /* too big leaves NULL, which every column refuses */
    }
}

void store_bind_int(sqlite3_stmt *stmt, int index, int64_t number)
{
    if (stmt) {
        int code = sqlite3_bind_int64(stmt, index, number);

        assert(code == SQLITE_OK);
        (void)code;
    }
}

int store_step(struct store_db *db, sqlite3_stmt *stmt, struct error *err)
{
    int code = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;

    if (code == SQLITE_ROW)
        return 1;
    if (code == SQLITE_DONE)
        return 0;
    return store_db_fail(db, stmt ? sqlite3_sql(stmt) : "prepare", err);
}

int store_change(struct store_db *db, sqlite3_stmt *stmt, struct error *err)
{
    if (store_step(db, stmt, err) < 0)
        return -1;
    return sqlite3_changes(db->handle);
}

void store_column_text(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);

    (void)snprintf(out, out_bytes, "%s", text ? (const char *)text : "");
}

void *store_rows_room(void *rows, size_t count, size_t *room, size_t row_bytes)
{
    if (count < *room)
        return rows;
    *room = *room ? *room * 2 : 16;
    return alloc_grow(rows, *room, row_bytes);
}
