/* store/store_private.h: what the files of this room share: a connection with its statements, the writer, the reader.
 *
 * Two connections: the writer's belongs to the writer thread alone, the reader's to whoever holds its lock. Under WAL
 * neither waits for the other, so that no read waits for an fsync.
 */
#ifndef BERTH_STORE_PRIVATE_H
#define BERTH_STORE_PRIVATE_H

#include "cleanup.h"
#include "store.h"
#include "waitq.h"

#include <pthread.h>
#include <sqlite3.h>

/* -- schema/NNN_name.sql, embedded by schema/embed.awk -- */
struct store_migration {
    int number;
    const char *sql;
};
extern const struct store_migration store_migrations[]; /* store_schema_newest of them, by number from 1 */
extern const int store_schema_newest;

/* -- store_db.c: one connection. One thread at a time. -- */
enum { STORE_STATEMENTS_MAX = 96 };
struct store_db {
    sqlite3 *handle;
    struct {
        const char *sql; /* found by address: every statement is a literal of its own */
        sqlite3_stmt *stmt;
    } statements[STORE_STATEMENTS_MAX];
    int synchronous; /* as last set: 1 NORMAL, 2 FULL */
    int wal_pages;   /* in the log after the last commit */
};

/* `path` exists. The caller closes, also after an error. CONFLICT: its schema is newer than ours. */
int store_db_open(struct store_db *db, const char *path, struct error *err);
void store_db_close(struct store_db *db);
/* Bring the schema to store_schema_newest; each migration is one durable transaction. */
int store_db_migrate(struct store_db *db, struct error *err);
int store_db_exec(struct store_db *db, const char *sql, struct error *err);
int store_db_set_synchronous(struct store_db *db, int level, struct error *err);
/* Move the log into the database as far as no reader is in the way. What cannot be moved now stays in the log. */
void store_db_checkpoint(struct store_db *db);
/* The last failure of the connection as an error: NO_SPACE, CONFLICT (a constraint), INVALID (too big), INTERNAL. */
int store_db_fail(struct store_db *db, const char *what, struct error *err);

/* The prepared statement of a string literal, ready to be bound. Borrowed; use auto_stmt, which resets it. NULL when it
 * cannot be prepared: binding is then without effect and store_step() reports it. */
sqlite3_stmt *store_stmt(struct store_db *db, const char *literal);
void store_bind_text(sqlite3_stmt *stmt, int index, const char *text); /* borrowed until the reset */
void store_bind_int(sqlite3_stmt *stmt, int index, int64_t number);
/* 1: a row, 0: done, -1: error. */
int store_step(struct store_db *db, sqlite3_stmt *stmt, struct error *err);
/* The same for a statement without rows: the count of changed rows or -1. */
int store_change(struct store_db *db, sqlite3_stmt *stmt, struct error *err);
void store_column_text(sqlite3_stmt *stmt, int column, char *out, size_t out_bytes);

static inline void store_stmt_reset(sqlite3_stmt *stmt)
{
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
}
DEFINE_CLEANUP(stmt, sqlite3_stmt *, store_stmt_reset)
#define auto_stmt auto_cleanup(cleanup_stmt)

/* Room for one more row of `row_bytes` behind `count`; grows by doubling. */
void *store_rows_room(void *rows, size_t count, size_t *room, size_t row_bytes);

/* -- store_writer.c: the one thread that writes -- */

/* Runs in the writer thread, inside a transaction and a savepoint of its own: an error undoes what it did. CONFLICT,
 * NOT_FOUND and INVALID are its own; any other fails the transaction, and it may be called again. */
typedef int store_write_fn(struct store_db *db, void *args, struct error *err);

enum store_promise { STORE_ORDERED, STORE_DURABLE };

/* Write and wait for the commit. Blocks on the disk. */
int store_write(struct store *store, enum store_promise promise, store_write_fn *write, void *args, struct error *err);

/* First member of what is queued without waiting; made by malloc, freed by the writer. */
struct store_item {
    struct store_item *next;
    store_write_fn *write;
    void *args;
    struct store_call *call; /* who waits for it; NULL: nobody */
    bool kept;               /* the disk refused it: it goes back to the queue */
    bool feeds;              /* holds an event of the feed: its commit is told */
};
struct store_list {
    struct store_item *first;
    struct store_item *last;
};
/* Takes the item. Blocks only while STORE_QUEUE_MAX are queued and the disk takes them; drops it where it does not. */
void store_queue(struct store *store, struct store_item *item);
enum { STORE_QUEUE_MAX = 10000 };

/* Wait until everything queued before is committed. Blocks on the disk. The writer's error while the disk refuses. */
int store_wait_queued(struct store *store, struct error *err);

struct store_writer {
    pthread_mutex_t queue_lock;
    pthread_cond_t wake;      /* the writer: there is work */
    pthread_cond_t room;      /* store_queue(): there is room again */
    pthread_cond_t committed; /* store_wait_queued() */
    struct store_list queue;
    size_t queued;            /* items nobody waits for, in the queue or in the writer's hand */
    size_t calls;             /* items of store_write() in the queue */
    uint64_t given;           /* items ever queued … */
    uint64_t done;            /* … and committed or given up; they are so in the order of the queue */
    uint64_t dropped;         /* since the disk began to refuse */
    int64_t retry_at_ms;      /* clock_mono_ms() */
    struct error failure;     /* why the disk refuses what is queued; code ERROR_NONE: it does not */
    int64_t writing_since_ms; /* clock_mono_ms(); 0: no transaction is under way */
    bool asleep;
    bool closing;
    bool running;
    pthread_t thread;
};
int store_writer_start(struct store *store, struct error *err);
void store_writer_stop(struct store *store); /* commits what is queued */

/* -- store_workspace.c: within a transaction of the writer -- */
int store_workspace_write(struct store_db *db, const struct store_workspace *workspace, struct error *err);

/* -- store_slot.c: likewise -- */
int store_slot_write(struct store_db *db, const struct store_slot *slot, struct error *err);

/* -- store_feed.c: a commit held events -- */
void store_feed_committed(struct store *store);

/* -- store.c -- */
struct store {
    char *path;      /* of the database */
    char *owned_dir; /* removed at close: ":memory:" */
    int lock_fd;
    char install[37];
    uint32_t epoch;
    struct store_writer writer;
    struct store_db write_db; /* of the writer thread */
    pthread_mutex_t reader_lock;
    struct store_db read_db; /* under reader_lock */
    pthread_mutex_t feed_lock;
    uint64_t feed_commits; /* under feed_lock, as what follows */
    struct waitq feed_waiting;
};

/* auto_reading struct store_reading reading = store_read(store); holds the reader's lock to the end of the block. */
struct store_reading {
    struct store *store;
    struct store_db *db;
};
static inline struct store_reading store_read(struct store *store)
{
    (void)pthread_mutex_lock(&store->reader_lock);
    return (struct store_reading){store, &store->read_db};
}
static inline void store_reading_done(struct store_reading *reading)
{
    (void)pthread_mutex_unlock(&reading->store->reader_lock);
}
#define auto_reading auto_cleanup(store_reading_done)

#endif
