/* A thread that walks a directory and fills blocks with what it reads; its owner empties them in the same order. */
#include "pack_read.h"

#include "alloc.h"
#include "clock.h"
#include "map.h"
#include "waitq.h"
#include "walk.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    BLOCKS = 4,
    BLOCK_BYTES = 64 * 1024, /* full; one piece of a file or one name may lie beyond */
    LARGE_BYTES = 4 * BLOCK_BYTES,
    BLOCK_MAX_BYTES = 64 << 20, /* two names of the walk's longest, and more */
    LINKS_MAX_BYTES = 16 << 20, /* of paths kept in mind */
    HAND_OVER_MS = 2,           /* a block that is not full, while it is waited for */
    STACK_BYTES = 256 * 1024,
};

/* An item in a block: this, then path and link with a NUL each, then the data. */
struct record {
    enum pack_item_kind kind;
    bool is_same; /* the link is `same_as`, else `target` */
    size_t path_bytes, link_bytes, data_bytes;
    uint64_t missing;
    struct stat status;
};

struct pack_reader {
    struct workspace *workspace;
    pthread_t thread;
    pthread_mutex_t lock;
    struct waitq filled;    /* the owner waits for a block */
    pthread_cond_t emptied; /* the thread waits for one to fill */
    struct buf blocks[BLOCKS];
    unsigned first;        /* the oldest full block: the one that is being emptied */
    unsigned count;        /* of full ones */
    bool done;             /* no more will be filled */
    struct error failure;  /* why, if not at the end of all */
    atomic_bool is_wanted; /* the owner waits */
    atomic_bool is_stopped;

    /* the owner's */
    size_t taken; /* of the block being emptied */

    /* the thread's */
    struct walk *walk;
    unsigned filling; /* the block that it fills; nobody else touches it */
    int64_t begun_ms; /* clock_mono_ms() of that block's first item */
    bool tells_links;
    struct map links; /* "dev:inode" of files with several names -> the first one's path */
    size_t links_bytes;
};

/* -- the thread's side -- */

/* Hands the block at hand over and waits for an empty one. False: nobody wants any more. */
static bool hand_over(struct pack_reader *reader)
{
    /* One that names of megabytes made large is the only one: whoever made them does not fill the memory with four. */
    unsigned most = reader->blocks[reader->filling].size > LARGE_BYTES ? 1 : BLOCKS;
    bool goes_on;

    (void)pthread_mutex_lock(&reader->lock);
    reader->count++;
    reader->filling = (reader->filling + 1) % BLOCKS;
    atomic_store(&reader->is_wanted, false);
    waitq_wake_all(&reader->filled);
    while (reader->count >= most && !atomic_load(&reader->is_stopped))
        (void)pthread_cond_wait(&reader->emptied, &reader->lock);
    goes_on = !atomic_load(&reader->is_stopped);
    (void)pthread_mutex_unlock(&reader->lock);
    return goes_on;
}

/* Between two items. False: nobody wants any more. */
static bool go_on(struct pack_reader *reader)
{
    const struct buf *block = &reader->blocks[reader->filling];

    if (block->size >= BLOCK_BYTES ||
        (block->size > 0 && atomic_load(&reader->is_wanted) && clock_mono_ms() - reader->begun_ms >= HAND_OVER_MS))
        return hand_over(reader);
    return !atomic_load(&reader->is_stopped);
}

static int put(struct pack_reader *reader, struct record *record, const char *path, const char *link, struct error *err)
{
    struct buf *block = &reader->blocks[reader->filling];

    if (block->size == 0)
        reader->begun_ms = clock_mono_ms();
    record->path_bytes = path ? strlen(path) + 1 : 0;
    record->link_bytes = link ? strlen(link) + 1 : 0;
    if (buf_append(block, record, sizeof *record, err) < 0 ||
        (path && buf_append(block, path, record->path_bytes, err) < 0) ||
        (link && buf_append(block, link, record->link_bytes, err) < 0))
        return -1;
    return 0;
}

static int put_skipped(struct pack_reader *reader, const char *path, struct error *err)
{
    struct record record = {.kind = PACK_ITEM_SKIPPED};

    return put(reader, &record, path, NULL, err);
}

static int put_link(struct pack_reader *reader, const struct walk_entry *entry, struct error *err)
{
    auto_close int fd = openat(entry->dir_fd, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct record record = {.kind = PACK_ITEM_ENTRY};
    char target[PATH_MAX];
    ssize_t size;

    if (fd < 0 || fstat(fd, &record.status) < 0 || !S_ISLNK(record.status.st_mode) ||
        (size = readlinkat(fd, "", target, sizeof target - 1)) < 0)
        return put_skipped(reader, entry->path, err);
    target[size] = '\0';
    return put(reader, &record, entry->path, target, err);
}

static int put_directory(struct pack_reader *reader, const struct walk_entry *entry, struct error *err)
{
    struct record record = {.kind = PACK_ITEM_ENTRY};

    if (fstatat(entry->dir_fd, entry->name, &record.status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(record.status.st_mode)) {
        walk_prune(reader->walk);
        return put_skipped(reader, entry->path, err);
    }
    return put(reader, &record, entry->path, NULL, err);
}

/* The first path of a file with several names; NULL: this is it. */
static const char *first_name(struct pack_reader *reader, const struct stat *status, const char *path)
{
    char key[48];
    const char *first;
    size_t size = strlen(path) + sizeof key + 64;

    if (!reader->tells_links || status->st_nlink < 2)
        return NULL;
    (void)snprintf(key, sizeof key, "%llx:%llx", (unsigned long long)status->st_dev,
                   (unsigned long long)status->st_ino);
    first = map_get(&reader->links, key);
    if (first || reader->links_bytes + size > LINKS_MAX_BYTES)
        return first; /* beyond what is kept in mind it is stored once more */
    (void)map_put(&reader->links, key, alloc_str(path));
    reader->links_bytes += size;
    return NULL;
}

/* The next piece of a file, into the block at hand. How much was read; 0 at an early end, also when it cannot be read on. */
static int64_t put_piece(struct pack_reader *reader, int fd, uint64_t left, struct error *err)
{
    struct buf *block = &reader->blocks[reader->filling];
    size_t wanted = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
    size_t at = block->size;
    struct record record = {.kind = PACK_ITEM_CONTENT};
    char *space;
    ssize_t got;

    if (put(reader, &record, NULL, NULL, err) < 0 || buf_reserve(block, wanted, &space, err) < 0)
        return -1;
    do
        got = read(fd, space, wanted);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        block->size = at; /* nothing: as if there had been no record */
        return 0;
    }
    buf_commit(block, (size_t)got);
    record.data_bytes = (size_t)got;
    memcpy(block->data + at, &record, sizeof record);
    return got;
}

static int put_file(struct pack_reader *reader, const struct walk_entry *entry, struct error *err)
{
    auto_close int fd = openat(entry->dir_fd, entry->name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    struct record record = {.kind = PACK_ITEM_ENTRY};
    struct record end = {.kind = PACK_ITEM_END};
    const char *first;
    int64_t got = 1;

    if (fd < 0 || fstat(fd, &record.status) < 0 || !S_ISREG(record.status.st_mode))
        return put_skipped(reader, entry->path, err);
    first = first_name(reader, &record.status, entry->path);
    record.is_same = first != NULL;
    if (put(reader, &record, entry->path, first, err) < 0)
        return -1;
    if (first)
        return 0;
    end.missing = (uint64_t)record.status.st_size;
    while (end.missing > 0 && got > 0) {
        if (!go_on(reader))
            return 0; /* half a file that nobody takes */
        got = put_piece(reader, fd, end.missing, err);
        if (got < 0)
            return -1;
        end.missing -= (uint64_t)got;
    }
    return put(reader, &end, entry->path, NULL, err);
}

static int put_entry(struct pack_reader *reader, const struct walk_entry *entry, struct error *err)
{
    if (entry->trouble) /* one that is gone: as if it had never been */
        return entry->trouble == ENOENT ? 0 : put_skipped(reader, entry->path, err);
    switch (entry->type) {
    case DT_DIR:
        return put_directory(reader, entry, err);
    case DT_LNK:
        return put_link(reader, entry, err);
    case DT_REG:
        return put_file(reader, entry, err);
    default:
        return put_skipped(reader, entry->path, err);
    }
}

static int read_all(struct pack_reader *reader, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct walk_entry entry;

    if (workspace_identity_enter(reader->workspace, &guard, err) < 0)
        return -1;
    while (go_on(reader) && walk_next(reader->walk, &entry))
        if (put_entry(reader, &entry, err) < 0)
            return -1;
    return 0;
}

static void *work(void *context)
{
    struct pack_reader *reader = context;
    struct error err = ERROR_INIT;

    if (read_all(reader, &err) < 0)
        buf_clear(&reader->blocks[reader->filling]); /* its last record may be half of one */
    (void)pthread_mutex_lock(&reader->lock);
    reader->count += reader->blocks[reader->filling].size > 0;
    reader->failure = err;
    reader->done = true;
    waitq_wake_all(&reader->filled);
    (void)pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* -- the owner's side -- */

static int start(struct pack_reader *reader, struct error *err)
{
    pthread_attr_t attributes;
    int failed;

    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    failed = pthread_create(&reader->thread, &attributes, work, reader);
    (void)pthread_attr_destroy(&attributes);
    return failed ? fail(err, UNAVAILABLE, "no thread to read a directory") : 0;
}

static void free_path(void *value, void *context)
{
    free(value);
}

static void dispose(struct pack_reader *reader)
{
    walk_free(reader->walk);
    map_each(&reader->links, free_path, NULL);
    map_done(&reader->links);
    for (unsigned i = 0; i < BLOCKS; i++)
        buf_done(&reader->blocks[i]);
    (void)pthread_mutex_destroy(&reader->lock);
    (void)pthread_cond_destroy(&reader->emptied);
    workspace_unref(reader->workspace);
    free(reader);
}

static int open_walk(struct workspace *workspace, const char *path, struct walk **ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;

    return workspace_identity_enter(workspace, &guard, err) < 0 ? -1 : walk_new(workspace, path, ret, err);
}

int pack_reader_new(struct workspace *workspace, const char *path, bool tells_links, struct pack_reader **ret,
                    struct error *err)
{
    struct pack_reader *reader;
    struct walk *walk;

    if (open_walk(workspace, path, &walk, err) < 0)
        return -1;
    reader = alloc_zero(sizeof *reader);
    reader->workspace = workspace_ref(workspace);
    reader->walk = walk;
    reader->tells_links = tells_links;
    for (unsigned i = 0; i < BLOCKS; i++)
        reader->blocks[i].max = BLOCK_MAX_BYTES;
    (void)pthread_mutex_init(&reader->lock, NULL);
    (void)pthread_cond_init(&reader->emptied, NULL);
    if (start(reader, err) < 0) {
        dispose(reader);
        return -1;
    }
    *ret = reader;
    return 0;
}

/* 1: there is a block to be emptied; 0: there will be none; -1 */
static int wait_for_block(struct pack_reader *reader, const struct cancel *cancel, struct error *err)
{
    int result = 0;

    (void)pthread_mutex_lock(&reader->lock);
    while (reader->count == 0 && !reader->done && result == 0) {
        atomic_store(&reader->is_wanted, true);
        result = waitq_wait(&reader->filled, &reader->lock, cancel, err);
    }
    if (result == 0 && reader->count > 0)
        result = 1;
    else if (result == 0 && reader->failure.code != ERROR_NONE) {
        *err = reader->failure;
        result = -1;
    }
    (void)pthread_mutex_unlock(&reader->lock);
    return result;
}

static void give_back(struct pack_reader *reader)
{
    struct buf *block = &reader->blocks[reader->first];

    if (block->capacity > LARGE_BYTES)
        buf_done(block); /* a name of megabytes does not keep them */
    buf_clear(block);
    reader->taken = 0;
    (void)pthread_mutex_lock(&reader->lock);
    reader->first = (reader->first + 1) % BLOCKS;
    reader->count--;
    (void)pthread_cond_signal(&reader->emptied);
    (void)pthread_mutex_unlock(&reader->lock);
}

static const char *take(struct pack_reader *reader, size_t size)
{
    const char *taken = reader->blocks[reader->first].data + reader->taken;

    reader->taken += size;
    return size ? taken : NULL;
}

int pack_reader_next(struct pack_reader *reader, const struct cancel *cancel, struct pack_item *ret, struct error *err)
{
    struct record record;
    const char *link;

    if (reader->taken > 0 && reader->taken == reader->blocks[reader->first].size)
        give_back(reader);
    if (reader->taken == 0) {
        int result = wait_for_block(reader, cancel, err);

        if (result <= 0)
            return result;
    }
    memcpy(&record, take(reader, sizeof record), sizeof record);
    *ret = (struct pack_item){
        .kind = record.kind, .status = record.status, .size = record.data_bytes, .missing = record.missing};
    ret->path = take(reader, record.path_bytes);
    link = take(reader, record.link_bytes);
    *(record.is_same ? &ret->same_as : &ret->target) = link;
    ret->data = take(reader, record.data_bytes);
    return 1;
}

void pack_reader_free(struct pack_reader *reader)
{
    if (!reader)
        return;
    (void)pthread_mutex_lock(&reader->lock);
    atomic_store(&reader->is_stopped, true);
    (void)pthread_cond_signal(&reader->emptied);
    (void)pthread_mutex_unlock(&reader->lock);
    (void)pthread_join(reader->thread, NULL);
    dispose(reader);
}
