/* Making: whole files and directories. */
#include "fd.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum {
    NEW_FILE_MODE = 0644,
    NEW_DIR_MODE = 0755,
    UMASK_AT_MOST = 022,
    SEND_BYTES = 1 << 20,
    COPY_BYTES = 64 * 1024,
    TAKE_BYTES = 256 * 1024,
};

/* mkdir -p below `root_fd`. The last directory as an O_PATH descriptor, or -1 with errno: ENOTDIR for what is none. */
static int make_dirs(int root_fd, const char *path)
{
    auto_close int current = -1;
    const char *at = path;

    for (;;) {
        const char *slash = strchrnul(at, '/');
        size_t size = (size_t)(slash - at);
        char name[NAME_MAX + 1];
        int parent = current >= 0 ? current : root_fd;
        int next;

        if (size > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, at, size);
        name[size] = '\0';
        next = workspace_jail_open(parent, name, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            if (mkdirat(parent, name, NEW_DIR_MODE) < 0 && errno != EEXIST)
                return -1;
            next = workspace_jail_open(parent, name, O_PATH | O_DIRECTORY);
        }
        if (next < 0)
            return -1;
        if (current >= 0)
            (void)close(current);
        current = next;
        if (*slash == '\0')
            return take_fd(&current);
        at = slash + 1;
    }
}

int workspace_mkdir(struct workspace *workspace, const char *path, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;

    return workspace_identity_enter(workspace, &guard, err) < 0 ? -1 : workspace_mkdir_entered(workspace, path, err);
}

int workspace_mkdir_entered(struct workspace *workspace, const char *path, struct error *err)
{
    auto_close int fd = -1;
    auto_close int parent = -1;
    const char *name;

    fd = workspace_jail_open(workspace->fd, path, O_PATH | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT && path[0] != '\0')
        fd = make_dirs(workspace->fd, path);
    if (fd >= 0)
        return 0;
    if (errno != ENOTDIR)
        return workspace_fail(workspace, err, "cannot make the directory");
    /* Is it the last component that is a file, or one on the way? */
    parent = workspace_jail_open_parent(workspace->fd, path, &name);
    if (parent < 0)
        return error_set(err, ERROR_INVALID, ENOTDIR, "a part of the path is not a directory");
    return error_set(err, ERROR_INVALID, EEXIST, "exists and is not a directory");
}

/* The directory a file goes to, made if missing. O_PATH. */
static int open_target_dir(const struct workspace *workspace, const char *path, const char **ret_name,
                           struct error *err)
{
    auto_close int fd = workspace_jail_open_parent(workspace->fd, path, ret_name);

    if (fd < 0 && errno == ENOENT && *ret_name != path) {
        auto_free char *parent = strndup(path, (size_t)(*ret_name - path - 1));

        if (!parent)
            abort();
        fd = make_dirs(workspace->fd, parent);
    }
    return fd < 0 ? workspace_fail(workspace, err, "cannot open the directory of the file") : take_fd(&fd);
}

struct target {
    int dir_fd;
    const char *name;
    bool exists;
    mode_t mode; /* the new file's */
};

static int look_at_target(const struct workspace *workspace, struct target *target, struct error *err)
{
    struct stat status;

    target->mode = NEW_FILE_MODE;
    target->exists = fstatat(target->dir_fd, target->name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!target->exists)
        return errno == ENOENT ? 0 : workspace_fail(workspace, err, "cannot look at the file");
    if (S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, EISDIR, "is a directory");
    if (S_ISLNK(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ELOOP, "is a link");
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    target->mode = status.st_mode & 0777;
    return 0;
}

/* From `in` to its end. 0 or -1 with errno. */
static int copy_fd(int in, int out)
{
    auto_free char *buffer = NULL;
    ssize_t got;

    do {
        got = sendfile(out, in, NULL, SEND_BYTES);
    } while (got > 0 || (got < 0 && errno == EINTR));
    if (got == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    buffer = malloc(COPY_BYTES);
    if (!buffer)
        abort();
    while ((got = read(in, buffer, COPY_BYTES)) != 0) {
        struct error err = ERROR_INIT;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (fd_write_all(out, buffer, (size_t)got, &err) < 0) {
            errno = err.sys_errno;
            return -1;
        }
    }
    return 0;
}

/* Give the unnamed file a name in `dir_fd`. */
static int link_unnamed(int fd, int dir_fd, const char *name)
{
    char path[32];

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, dir_fd, name, AT_SYMLINK_FOLLOW);
}

static bool has_proc(void)
{
    static atomic_int known; /* 0: not asked yet */

    if (atomic_load(&known) == 0)
        atomic_store(&known, access("/proc/self/fd", F_OK) == 0 ? 1 : -1);
    return atomic_load(&known) > 0;
}

/* What is written, and where to. Homes: the directories where a file that replaces another waits for its name, best
 * first: the workspace's top, which is swept should we die in between; the target's own where the top cannot serve
 * (rights; another subvolume, which only an unnamed file meets: rename and link across them are EXDEV). */
struct writing {
    const void *data;
    size_t size;
    int fd;
    const struct workspace_bytes *bytes; /* instead of the three above */
    struct error bytes_error;            /* what ended them */
    struct target target;
    int homes[2];
    struct workspace_room *room;
    bool has_name;        /* what is written can be seen at once */
    int64_t unseen_bytes; /* taken from the room, and nobody sees them yet */
};

static int take_room(struct writing *writing, int64_t bytes)
{
    if (workspace_room_take(writing->room, bytes) < 0)
        return -1;
    writing->unseen_bytes += bytes;
    return 0;
}

/* They lie at their place, or are gone again. */
static void settle_room(struct writing *writing)
{
    workspace_room_settle(writing->room, writing->unseen_bytes);
    writing->unseen_bytes = 0;
}

/* 0 or -1 with errno (ECANCELED: see bytes_error). */
static int take_bytes(struct writing *writing, int out)
{
    auto_free char *buffer = malloc(TAKE_BYTES);
    struct error err = ERROR_INIT;
    int64_t got;

    if (!buffer)
        abort();
    while ((got = writing->bytes->next(writing->bytes->context, buffer, TAKE_BYTES, &writing->bytes_error)) > 0) {
        if (take_room(writing, got) < 0)
            return -1;
        if (fd_write_all(out, buffer, (size_t)got, &err) < 0) {
            errno = err.sys_errno;
            return -1;
        }
        if (writing->has_name)
            settle_room(writing);
    }
    errno = ECANCELED;
    return got < 0 ? -1 : 0;
}

static int fill(struct writing *writing, int out)
{
    struct error err = ERROR_INIT;
    mode_t mode = writing->target.mode;

    if (writing->bytes) {
        if (take_bytes(writing, out) < 0)
            return -1;
    } else if (writing->fd >= 0) {
        struct stat status;

        if (fstat(writing->fd, &status) < 0 ||
            take_room(writing, status.st_size - lseek(writing->fd, 0, SEEK_CUR)) < 0 || copy_fd(writing->fd, out) < 0)
            return -1;
    } else if (take_room(writing, (int64_t)writing->size) < 0) {
        return -1;
    } else if (fd_write_all(out, writing->data, writing->size, &err) < 0) {
        errno = err.sys_errno;
        return -1;
    }
    /* The umask took these away at creation. */
    return mode & UMASK_AT_MOST ? fchmod(out, mode) : 0;
}

static int move_over_target(const struct writing *writing, int home, const char *name)
{
    int saved;

    if (renameat(home, name, writing->target.dir_fd, writing->target.name) == 0)
        return 0;
    saved = errno;
    (void)unlinkat(home, name, 0);
    errno = saved;
    return -1;
}

static int write_unnamed(struct writing *writing, int out)
{
    const struct target *target = &writing->target;
    char name[LEFTOVER_BYTES];

    if (fill(writing, out) < 0)
        return -1;
    if (!target->exists) {
        if (link_unnamed(out, target->dir_fd, target->name) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
        /* Somebody made it meanwhile: replace it as one that was there. */
    }
    workspace_leftover_name(name);
    for (int i = 0; i < 2; i++)
        if (link_unnamed(out, writing->homes[i], name) == 0 && move_over_target(writing, writing->homes[i], name) == 0)
            return 0;
    return -1;
}

/* Where the file system knows no unnamed files. */
static int write_named(struct writing *writing)
{
    auto_close int out = -1;
    char name[LEFTOVER_BYTES];
    int home = -1;

    writing->has_name = true;
    workspace_leftover_name(name);
    for (int i = 0; i < 2 && out < 0; i++) {
        home = writing->homes[i];
        out = openat(home, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, writing->target.mode);
    }
    if (out < 0)
        return -1;
    if (fill(writing, out) < 0) {
        int saved = errno;

        (void)unlinkat(home, name, 0);
        errno = saved;
        return -1;
    }
    return move_over_target(writing, home, name);
}

/* An unnamed file in the target's directory; -1 with EOPNOTSUPP where there is no such thing. */
static int open_unnamed(const struct target *target)
{
    int fd;

    if (workspace_jail_is_forced() || !has_proc()) {
        errno = EOPNOTSUPP;
        return -1;
    }
    fd = openat(target->dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, target->mode);
    if (fd < 0 && errno == EISDIR)
        errno = EOPNOTSUPP; /* a kernel or file system that took it for a directory opened for writing */
    return fd;
}

static int write_file(struct workspace *workspace, const char *path, struct writing *writing, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int dir_fd = -1;
    auto_close int out = -1;
    const char *name;
    int result;

    if (path[0] == '\0')
        return error_set(err, ERROR_INVALID, EISDIR, "is a directory");
    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    dir_fd = open_target_dir(workspace, path, &name, err);
    if (dir_fd < 0)
        return -1;
    if (workspace_is_leftover(name))
        return error_set(err, ERROR_INVALID, EINVAL, "the name is reserved");
    writing->target = (struct target){.dir_fd = dir_fd, .name = name};
    writing->homes[0] = workspace->fd;
    writing->homes[1] = dir_fd;
    if (look_at_target(workspace, &writing->target, err) < 0)
        return -1;
    out = open_unnamed(&writing->target);
    if (out < 0 && errno != EOPNOTSUPP)
        return workspace_fail(workspace, err, "cannot make the file");
    result = out >= 0 ? write_unnamed(writing, out) : write_named(writing);
    settle_room(writing);
    if (result == 0)
        return 0;
    if (writing->bytes_error.code != ERROR_NONE) {
        *err = writing->bytes_error;
        return -1;
    }
    return workspace_fail(workspace, err, "cannot write the file");
}

int workspace_write(struct workspace *workspace, const char *path, const void *data, size_t size, int fd,
                    struct error *err)
{
    struct writing writing = {.data = data, .size = size, .fd = fd, .room = workspace->room};

    return write_file(workspace, path, &writing, err);
}

int workspace_write_bytes(struct workspace *workspace, const char *path, const struct workspace_bytes *bytes,
                          bool *ret_created, struct error *err)
{
    struct writing writing = {.bytes = bytes, .fd = -1, .room = workspace->room};

    if (write_file(workspace, path, &writing, err) < 0)
        return -1;
    *ret_created = !writing.target.exists;
    return 0;
}
