/* Removing a tree: no recursion, few descriptors, no link followed, whatever its depth and size.
 *
 * The path from the top to where we are is a stack of levels. The deepest OPEN_LEVELS of them are open; one above is
 * closed and comes back by openat("..") from below, believed only if it is the directory it was (device and inode):
 * should a sandbox move directories about while we work, we start again from the top instead of going on somewhere
 * else.
 */
#include "alloc.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    OPEN_LEVELS = 32,
    LEVEL_BUFFER_BYTES = 8 * 1024,
    RESTARTS_MAX = 100,   /* directories moved under our hands */
    REFILLED_MAX = 10000, /* directories that were filled again before their rmdir */
    CANCEL_EVERY = 256,   /* removed names between two looks at `cancel` */
};

struct level {
    dev_t device;
    ino_t inode;
    bool changed_mode;        /* tried already */
    char *name;               /* in the level above */
    struct dir_reader reader; /* .fd -1 and no buffer while closed */
};

struct remover {
    int parent_fd; /* borrowed */
    const char *top_name;
    bool forced;
    const struct cancel *cancel;
    struct error *err;
    struct level *levels;
    size_t depth;
    size_t capacity;
    unsigned restarts;
    unsigned refilled;
    unsigned long removed;
};

static void level_close(struct level *level)
{
    if (level->reader.fd >= 0)
        (void)close(level->reader.fd);
    free(level->reader.buffer);
    level->reader = (struct dir_reader){.fd = -1};
}

static void pop(struct remover *remover)
{
    struct level *level = &remover->levels[--remover->depth];

    level_close(level);
    free(level->name);
}

static void remover_done(struct remover *remover)
{
    int saved = errno;

    while (remover->depth)
        pop(remover);
    free(remover->levels);
    errno = saved;
}

static struct level *current(struct remover *remover)
{
    return &remover->levels[remover->depth - 1];
}

static int current_fd(struct remover *remover)
{
    return remover->depth ? current(remover)->reader.fd : remover->parent_fd;
}

/* Make the directory ours to change, if we may. `fd` may be O_PATH: it goes by /proc, never by a name that could be a
 * link. */
static void unlock(int fd)
{
    char path[32];

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)chmod(path, 0700);
}

static int open_dir(struct remover *remover, const char *name)
{
    int parent_fd = current_fd(remover);
    int fd = workspace_jail_open_dir_at(parent_fd, name);
    int path_fd;

    if (fd >= 0 || errno != EACCES || !remover->forced)
        return fd;
    path_fd = openat(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (path_fd < 0)
        return -1;
    unlock(path_fd);
    (void)close(path_fd);
    return workspace_jail_open_dir_at(parent_fd, name);
}

static void start_reading(struct level *level, int fd)
{
    level->reader = (struct dir_reader){.fd = fd, .size = LEVEL_BUFFER_BYTES};
    level->reader.buffer = alloc_zero(LEVEL_BUFFER_BYTES);
}

/* Go down. -1 with errno: ENOTDIR or ELOOP when it is a directory no more. */
static int push(struct remover *remover, const char *name)
{
    struct level level = {.reader.fd = -1};
    struct stat status;
    int fd = open_dir(remover, name);

    if (fd < 0)
        return -1;
    if (fstat(fd, &status) < 0) {
        (void)close(fd);
        return -1;
    }
    level.device = status.st_dev;
    level.inode = status.st_ino;
    level.name = alloc_str(name);
    start_reading(&level, fd);
    if (remover->depth == remover->capacity) {
        remover->capacity = remover->capacity ? remover->capacity * 2 : OPEN_LEVELS;
        remover->levels = alloc_grow(remover->levels, remover->capacity, sizeof *remover->levels);
    }
    remover->levels[remover->depth++] = level;
    if (remover->depth > OPEN_LEVELS)
        level_close(&remover->levels[remover->depth - 1 - OPEN_LEVELS]);
    return 0;
}

/* Go up, opening the level above again if it was closed. 1: done; 0: it is not where it was, start again. */
static int go_up(struct remover *remover, char **ret_name)
{
    auto_close int above_fd = -1;
    struct level *above = remover->depth > 1 ? &remover->levels[remover->depth - 2] : NULL;
    struct stat status;

    if (above && above->reader.fd < 0) {
        above_fd = openat(current_fd(remover), "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (above_fd < 0 || fstat(above_fd, &status) < 0 || status.st_dev != above->device ||
            status.st_ino != above->inode)
            return 0;
        start_reading(above, take_fd(&above_fd));
    }
    *ret_name = take_ptr(current(remover)->name);
    pop(remover);
    return 1;
}

static int unlink_name(struct remover *remover, const char *name, bool as_dir)
{
    struct level *level = remover->depth ? current(remover) : NULL;
    int done = unlinkat(current_fd(remover), name, as_dir ? AT_REMOVEDIR : 0);

    if (done < 0 && errno == EACCES && remover->forced && level && !level->changed_mode) {
        level->changed_mode = true;
        unlock(level->reader.fd);
        done = unlinkat(current_fd(remover), name, as_dir ? AT_REMOVEDIR : 0);
    }
    return done;
}

/* Remove one name of the current directory, or go down into it. -1 with errno. */
static int remove_name(struct remover *remover, const char *name, bool is_dir_likely)
{
    if (++remover->removed % CANCEL_EVERY == 0 && cancel_check(remover->cancel, remover->err) < 0) {
        errno = ECANCELED;
        return -1;
    }
    for (unsigned attempt = 0; attempt < RESTARTS_MAX; attempt++) {
        if (!is_dir_likely) {
            if (unlink_name(remover, name, false) == 0)
                return 0;
            if (errno != EISDIR && errno != EPERM)
                return -1;
        }
        int why_not_file = is_dir_likely ? 0 : errno;
        if (unlink_name(remover, name, true) == 0)
            return 0;
        if (errno == ENOTEMPTY || errno == EEXIST) {
            if (push(remover, name) == 0)
                return 0;
            if (errno != ENOTDIR && errno != ELOOP)
                return -1;
        } else if (errno != ENOTDIR) {
            return -1;
        } else if (why_not_file == EPERM) {
            errno = EPERM; /* a file that we may not remove (immutable, sticky) */
            return -1;
        }
        is_dir_likely = false; /* it changed its kind meanwhile */
    }
    errno = EBUSY;
    return -1;
}

/* Directories moved under our hands. */
static int restart(struct remover *remover)
{
    while (remover->depth)
        pop(remover);
    if (++remover->restarts > RESTARTS_MAX) {
        errno = EBUSY;
        return -1;
    }
    return remove_name(remover, remover->top_name, false) == 0 || errno == ENOENT ? 0 : -1;
}

/* The current directory is read to its end: take it away. */
static int finish_level(struct remover *remover)
{
    auto_free char *name = NULL;

    if (go_up(remover, &name) == 0)
        return restart(remover);
    if (unlink_name(remover, name, true) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTDIR)
        return remove_name(remover, name, false);
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    /* Some file systems skip names while others are removed; or somebody fills it. */
    if (++remover->refilled > REFILLED_MAX)
        return -1;
    return push(remover, name);
}

static int step(struct remover *remover)
{
    struct dir_name entry;
    int more = dir_reader_next(&current(remover)->reader, &entry);

    if (more < 0)
        return -1;
    if (more == 0)
        return finish_level(remover);
    if (remove_name(remover, entry.name, entry.type == DT_DIR) == 0 || errno == ENOENT)
        return 0;
    return -1;
}

int workspace_remove_at(int parent_fd, const char *name, bool forced, const struct cancel *cancel, struct error *err)
{
    auto_cleanup(remover_done) struct remover remover = {
        .parent_fd = parent_fd, .top_name = name, .forced = forced, .cancel = cancel, .err = err};

    if (remove_name(&remover, name, false) < 0)
        return -1;
    while (remover.depth)
        if (step(&remover) < 0)
            return -1;
    return 0;
}

int workspace_remove(struct workspace *workspace, const char *path, const struct cancel *cancel, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int parent = -1;
    const char *name;

    if (path[0] == '\0')
        return error_set(err, ERROR_INVALID, EINVAL, "the workspace itself cannot be removed");
    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    parent = workspace_jail_open_parent(workspace->fd, path, &name);
    if (parent < 0)
        return workspace_fail(workspace, err, "cannot open the directory of the file");
    /* The kernel judges what the identity may remove: no mode is changed for it. */
    if (workspace_remove_at(parent, name, false, cancel, err) < 0)
        return errno == ECANCELED ? -1 : workspace_fail(workspace, err, "cannot remove");
    return 0;
}
