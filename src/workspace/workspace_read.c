/* Looking and reading: stat, realpath, open, read. */
#include "workspace_jail.h"
#include "workspace_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* A regular file, opened so that nothing can make us wait: a FIFO has no writer to wait for, a socket is ENXIO. */
static int open_regular(const struct workspace *workspace, int below_fd, const char *path, struct stat *ret_status,
                        struct error *err)
{
    auto_close int fd = workspace_jail_open(below_fd, path, O_RDONLY | O_NONBLOCK);

    if (fd < 0 || fstat(fd, ret_status) < 0)
        return workspace_fail(workspace, err, "cannot open the file");
    if (S_ISDIR(ret_status->st_mode))
        return error_set(err, ERROR_INVALID, EISDIR, "is a directory");
    if (!S_ISREG(ret_status->st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    return take_fd(&fd);
}

int workspace_open_file(struct workspace *workspace, const char *path, int *ret_fd, struct workspace_entry *ret,
                        struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct stat status;
    int fd;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    fd = open_regular(workspace, workspace->fd, path, &status, err);
    if (fd < 0)
        return -1;
    if (ret)
        workspace_entry_of_stat(&status, ret);
    *ret_fd = fd;
    return 0;
}

/* To the end of file. One byte more than is expected is asked for: a short answer of a regular file is its end, so that
 * a file that does not change meanwhile costs one read. */
static int read_all(const struct workspace *workspace, int fd, uint64_t expected, struct buf *out, struct error *err)
{
    static const size_t more_bytes = 64 * 1024;
    size_t room = out->max - out->size;
    size_t wanted = expected < room ? (size_t)expected + 1 : room + 1;

    if (expected > room)
        return fail(err, TOO_LARGE, "more than %zu bytes", out->max);
    for (;;) {
        char *space;
        ssize_t got;

        /* The byte that tells the end from too much has its place behind the maximum: a buf keeps one for its NUL. */
        if (buf_reserve(out, wanted <= room ? wanted : room, &space, err) < 0)
            return -1;
        got = read(fd, space, wanted);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return workspace_fail(workspace, err, "cannot read the file");
        if ((size_t)got > room)
            return fail(err, TOO_LARGE, "more than %zu bytes", out->max);
        buf_commit(out, (size_t)got);
        if ((size_t)got < wanted)
            return 0;
        room -= (size_t)got;
        wanted = room < more_bytes ? room + 1 : more_bytes;
    }
}

int workspace_read_below(const struct workspace *workspace, int below_fd, const char *path, struct buf *out,
                         struct error *err)
{
    struct stat status;
    auto_close int fd = open_regular(workspace, below_fd, path, &status, err);

    return fd < 0 ? -1 : read_all(workspace, fd, (uint64_t)status.st_size, out, err);
}

/* Searching opens files by the thousand. One that the listing called regular can have become a directory, a FIFO or a socket by
 * now (devices are nobody's to make here): opening never waits, a link is refused, and reading fails or finds what little is there.
 * So a small one is not asked again what it is; a large one is. */
int workspace_read_listed(const struct workspace *workspace, int dir_fd, const char *name, struct buf *out,
                          struct error *err)
{
    static const size_t small_bytes = 32 * 1024;
    size_t room = out->max - out->size;
    size_t wanted = room < small_bytes ? room + 1 : small_bytes;
    auto_close int fd = -1;
    struct stat status;
    char *space;
    ssize_t got;

    assert(!strchr(name, '/'));
    fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return workspace_fail(workspace, err, "cannot open the file");
    if (buf_reserve(out, wanted <= room ? wanted : room, &space, err) < 0)
        return -1;
    got = read(fd, space, wanted);
    if (got >= 0 && (size_t)got < wanted) {
        buf_commit(out, (size_t)got);
        return 0;
    }
    if (fstat(fd, &status) < 0)
        return workspace_fail(workspace, err, "cannot read the file");
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    if (lseek(fd, 0, SEEK_SET) < 0)
        return workspace_fail(workspace, err, "cannot read the file");
    return read_all(workspace, fd, (uint64_t)status.st_size, out, err);
}

int workspace_read(struct workspace *workspace, const char *path, struct buf *out, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    return workspace_read_below(workspace, workspace->fd, path, out, err);
}

int workspace_stat(struct workspace *workspace, const char *path, struct workspace_entry *ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int fd = -1;
    struct stat status;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    fd = workspace_jail_open(workspace->fd, path, O_PATH | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &status) < 0)
        return workspace_fail(workspace, err, "cannot look at the file");
    if (S_ISLNK(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ELOOP, "is a link");
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    workspace_entry_of_stat(&status, ret);
    return 0;
}

int workspace_realpath(struct workspace *workspace, const char *path, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int fd = -1;
    struct stat status;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    fd = workspace_jail_open(workspace->fd, path, O_PATH | O_NOFOLLOW);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0; /* everything before what is missing was walked, without a link */
    if (fd < 0 || fstat(fd, &status) < 0)
        return workspace_fail(workspace, err, "cannot resolve the path");
    return S_ISLNK(status.st_mode) ? error_set(err, ERROR_HANDOVER, ELOOP, "is a link") : 0;
}
