#include "store.h"

#include "alloc.h"
#include "id.h"
#include "log.h"
#include "store_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* -- the directory: ours alone -- */

static int open_dir(const char *dir, int *ret_fd, struct error *err)
{
    auto_close int fd = -1;
    auto_close int parent = -1;
    struct stat status;
    bool made = mkdir(dir, 0700) == 0;

    if (!made && errno != EEXIST)
        return fail_errno(err, "store: make %s", dir);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        return fail_errno(err, "store: open %s", dir);
    if ((status.st_mode & 077) && fchmod(fd, 0700) < 0)
        return fail_errno(err, "store: %s: keep others out", dir);
    if (made && ((parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fsync(parent) < 0))
        return fail_errno(err, "store: sync above %s", dir);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* One berthd a directory. The lock ends with the process, whatever ends it. */
static int lock_dir(int dir_fd, const char *dir, int *ret_fd, struct error *err)
{
    auto_close int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    char holder[24] = "";
    char own[24];

    if (fd < 0)
        return fail_errno(err, "store: %s/lock", dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return fail_errno(err, "store: lock %s/lock", dir);
        if (pread(fd, holder, sizeof holder - 1, 0) > 0)
            holder[strcspn(holder, "\n")] = '\0';
        return fail(err, CONFLICT, "%s is in use by another berthd (process %s)", dir, *holder ? holder : "unknown");
    }
    (void)snprintf(own, sizeof own, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, own, strlen(own), 0) < 0)
        log_warn("store.lock",
                 log_s("error", "who holds it could not be written")); /* for people only: no reason to stop */
    *ret_fd = take_fd(&fd);
    return 0;
}

/* SQLite makes its files with the mode of the database, so that one is made here. Closed again before SQLite opens it:
 * closing any descriptor of a file drops the locks that the process has on it. */
static int make_file(int dir_fd, const char *dir, struct error *err)
{
    auto_close int fd = openat(dir_fd, "berth.db", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return fail_errno(err, "store: %s/berth.db", dir);
    if (!S_ISREG(status.st_mode))
        return fail(err, INTERNAL, "store: %s/berth.db is not a file", dir);
    if ((status.st_mode & 077) && fchmod(fd, 0600) < 0)
        return fail_errno(err, "store: %s/berth.db: keep others out", dir);
    return 0;
}

static int own_dir(char **ret_dir, struct error *err)
{
    const char *above = getenv("TMPDIR");
    auto_free char *dir = alloc_format("%s/berth-store-XXXXXX", above && *above ? above : "/tmp");

    if (!mkdtemp(dir))
        return fail_errno(err, "store: make %s", dir);
    *ret_dir = take_ptr(dir);
    return 0;
}

static void remove_own_dir(const char *path)
{
    static const char *const names[] = {"berth.db", "berth.db-wal", "berth.db-shm", "lock"};
    auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; fd >= 0 && i < sizeof names / sizeof *names; i++)
        (void)unlinkat(fd, names[i], 0);
    (void)rmdir(path);
}

/* -- this start -- */

static void make_uuid(char out[37])
{
    char hex[33];

    id_random_hex(hex, 32);
    (void)snprintf(out, 37, "%.8s-%.4s-4%.3s-%c%.3s-%.12s", hex, hex + 8, hex + 13, "89ab"[hex[16] & 3], hex + 17,
                   hex + 20);
}

static int write_start(struct store_db *db, void *args, struct error *err)
{
    struct store *store = args;
    char install[37];

    make_uuid(install);
    {
        auto_stmt sqlite3_stmt *stmt = store_stmt(db, "INSERT INTO broker (one, install, epoch) VALUES (1, ?, 1)"
                                                      " ON CONFLICT (one) DO UPDATE SET epoch = epoch + 1");

        store_bind_text(stmt, 1, install);
        if (store_step(db, stmt, err) < 0)
            return -1;
    }
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "SELECT install, epoch FROM broker");

    if (store_step(db, stmt, err) < 0)
        return -1;
    store_column_text(stmt, 0, store->install, sizeof store->install);
    store->epoch = (uint32_t)sqlite3_column_int64(stmt, 1);
    return 0;
}

static int open_in(struct store *store, const char *dir, struct error *err)
{
    auto_close int dir_fd = -1;
    auto_free char *real = NULL;

    if (open_dir(dir, &dir_fd, err) < 0 || lock_dir(dir_fd, dir, &store->lock_fd, err) < 0 ||
        make_file(dir_fd, dir, err) < 0)
        return -1;
    real = realpath(dir, NULL); /* SQLite follows no link at all: NOFOLLOW */
    if (!real)
        return fail_errno(err, "store: %s", dir);
    store->path = alloc_format("%s/berth.db", real);
    if (store_db_open(&store->write_db, store->path, err) < 0 || store_db_migrate(&store->write_db, err) < 0 ||
        store_db_open(&store->read_db, store->path, err) < 0 ||
        store_db_exec(&store->read_db, "PRAGMA query_only = ON", err) < 0 || store_writer_start(store, err) < 0)
        return -1;
    return store_write(store, STORE_DURABLE, write_start, store, err);
}

int store_open(const char *dir, struct store **ret_store, struct error *err)
{
    struct store *store = alloc_zero(sizeof *store);
    int result = 0;

    store->lock_fd = -1;
    (void)pthread_mutex_init(&store->reader_lock, NULL);
    (void)pthread_mutex_init(&store->feed_lock, NULL);
    if (strcmp(dir, ":memory:") == 0)
        result = own_dir(&store->owned_dir, err);
    if (result == 0)
        result = open_in(store, store->owned_dir ? store->owned_dir : dir, err);
    if (result < 0) {
        store_close(store);
        return -1;
    }
    *ret_store = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    store_writer_stop(store);
    store_db_close(&store->read_db);
    store_db_close(&store->write_db);
    if (store->owned_dir)
        remove_own_dir(store->owned_dir);
    if (store->lock_fd >= 0)
        (void)close(store->lock_fd);
    (void)pthread_mutex_destroy(&store->reader_lock);
    (void)pthread_mutex_destroy(&store->feed_lock);
    free(store->owned_dir);
    free(store->path);
    free(store);
}

const char *store_install(const struct store *store)
{
    return store->install;
}

uint32_t store_epoch(const struct store *store)
{
    return store->epoch;
}

/* -- the key's fingerprint -- */

int store_key_fingerprint(struct store *store, char ret_known[65], struct error *err)
{
    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt = store_stmt(reading.db, "SELECT key_fingerprint FROM broker");

    if (store_step(reading.db, stmt, err) < 0)
        return -1;
    store_column_text(stmt, 0, ret_known, 65);
    return 0;
}

static int write_fingerprint(struct store_db *db, void *args, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "UPDATE broker SET key_fingerprint = ?");

    store_bind_text(stmt, 1, args);
    return store_step(db, stmt, err);
}

int store_key_fingerprint_set(struct store *store, const char *fingerprint, struct error *err)
{
    return store_write(store, STORE_DURABLE, write_fingerprint, (void *)fingerprint, err);
}
