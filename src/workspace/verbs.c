#include "verbs.h"

#include "alloc.h"
#include "walk.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { SEND_BYTES = 4 * 1024 * 1024 };

/* -- moving -- */

static int check_names(const char *from, const char *to, struct error *err)
{
    size_t size = strlen(from);

    if (!*from || !*to)
        return error_set(err, ERROR_INVALID, EINVAL, "the workspace itself cannot be moved, copied or replaced");
    if (strncmp(from, to, size) == 0 && to[size] == '/')
        return error_set(err, ERROR_INVALID, EINVAL, "a directory cannot go into itself");
    return 0;
}

static bool is_dir_at(int fd, const char *name)
{
    struct stat status;

    return fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

/* 0 or -1 with an error. */
static int put_in_place(const struct workspace *workspace, int from_fd, const char *from, int to_fd, const char *to,
                        bool replaces, struct error *err)
{
    if (renameat2(from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EINVAL || errno == ENOSYS) { /* a file system that cannot say "only if it is free" */
        struct stat status;

        if (fstatat(to_fd, to, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT &&
            renameat(from_fd, from, to_fd, to) == 0)
            return 0;
        errno = EEXIST;
    }
    if (errno != EEXIST)
        return workspace_fail(workspace, err, "cannot rename");
    if (!replaces || is_dir_at(to_fd, to) || is_dir_at(from_fd, from))
        return error_set(err, ERROR_CONFLICT, EEXIST, "Something of that name is there already");
    return renameat(from_fd, from, to_fd, to) < 0 ? workspace_fail(workspace, err, "cannot rename") : 0;
}

int workspace_move(struct workspace *workspace, const char *from, const char *to, bool replaces, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int from_fd = -1;
    auto_close int to_fd = -1;
    const char *from_name;
    const char *to_name;

    if (check_names(from, to, err) < 0 || workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    from_fd = workspace_jail_open_parent(workspace->fd, from, &from_name);
    to_fd = from_fd < 0 ? -1 : workspace_jail_open_parent(workspace->fd, to, &to_name);
    if (from_fd < 0 || to_fd < 0)
        return workspace_fail(workspace, err, "cannot open the directory");
    if (workspace_is_leftover(from_name) || workspace_is_leftover(to_name))
        return error_set(err, ERROR_INVALID, EINVAL, "the name is reserved");
    if (strcmp(from, to) == 0 && faccessat(from_fd, from_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return put_in_place(workspace, from_fd, from_name, to_fd, to_name, replaces, err);
}

/* -- copying: to a name of our own first -- */

struct copying {
    struct workspace *workspace;
    const struct cancel *cancel;
    struct workspace_copied *copied;
    int stage_fd; /* the copy of the directory */
    struct copied_dir {
        char *path;
        struct stat status;
    } * dirs; /* whose modes and times come last */
    size_t dir_count;
    size_t dir_capacity;
};

/* 0, or -1 with errno. */
static int copy_content(struct copying *copying, int in, int out, struct error *err)
{
    ssize_t got;

    if (ioctl(out, FICLONE, in) == 0)
        return 0;
    while ((got = sendfile(out, in, NULL, SEND_BYTES)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return workspace_fail(copying->workspace, err, "cannot copy");
        copying->copied->bytes += (uint64_t)got;
        if (cancel_check(copying->cancel, err) < 0)
            return -1;
    }
    return 0;
}

/* 1: skipped. */
static int copy_file(struct copying *copying, int from_fd, const char *from, int to_fd, const char *to,
                     struct error *err)
{
    auto_close int in = openat(from_fd, from, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    auto_close int out = -1;
    struct stat status;
    struct timespec times[2];

    if (in < 0 || fstat(in, &status) < 0 || !S_ISREG(status.st_mode))
        return 1;
    out = openat(to_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return workspace_fail(copying->workspace, err, "cannot make a file");
    if (copy_content(copying, in, out, err) < 0)
        return -1;
    times[0] = times[1] = status.st_mtim;
    if (fchmod(out, status.st_mode & 0777) < 0 || futimens(out, times) < 0)
        return workspace_fail(copying->workspace, err, "cannot set a file's mode and time");
    copying->copied->entries++;
    return 0;
}

static int copy_link(struct copying *copying, int from_fd, const char *from, int to_fd, const char *to,
                     struct error *err)
{
    char target[PATH_MAX];
    struct stat status;
    ssize_t size = readlinkat(from_fd, from, target, sizeof target - 1);

    if (size < 0 || fstatat(from_fd, from, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return 1;
    target[size] = '\0';
    if (symlinkat(target, to_fd, to) < 0)
        return workspace_fail(copying->workspace, err, "cannot make a link");
    (void)utimensat(to_fd, to, (struct timespec[2]){status.st_mtim, status.st_mtim}, AT_SYMLINK_NOFOLLOW);
    copying->copied->entries++;
    return 0;
}

static void remember_dir(struct copying *copying, const char *path, const struct stat *status)
{
    if (copying->dir_count == copying->dir_capacity)
        copying->dirs =
            alloc_grow(copying->dirs, copying->dir_capacity = copying->dir_capacity ? copying->dir_capacity * 2 : 64,
                       sizeof *copying->dirs);
    copying->dirs[copying->dir_count++] = (struct copied_dir){alloc_str(path), *status};
    copying->copied->entries++;
}

/* The directory that holds `path` in the copy. Ours alone: but the sandbox sees it as well. */
static int copy_entry(struct copying *copying, const struct walk_entry *entry, struct error *err)
{
    const char *name;
    auto_close int to_fd = workspace_jail_open_parent(copying->stage_fd, entry->path, &name);
    struct stat status;

    if (to_fd < 0)
        return 1;
    switch (entry->type) {
    case DT_REG:
        return copy_file(copying, entry->dir_fd, entry->name, to_fd, name, err);
    case DT_LNK:
        return copy_link(copying, entry->dir_fd, entry->name, to_fd, name, err);
    case DT_DIR:
        if (fstatat(entry->dir_fd, entry->name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            return 1;
        if (mkdirat(to_fd, name, 0755) < 0)
            return workspace_fail(copying->workspace, err, "cannot make a directory");
        remember_dir(copying, entry->path, &status);
        return 0;
    default:
        return 1;
    }
}

static int copy_tree(struct copying *copying, struct walk *walk, struct error *err)
{
    struct walk_entry entry;

    while (walk_next(walk, &entry)) {
        int result = entry.trouble ? 1 : copy_entry(copying, &entry, err);

        if (result < 0 || cancel_check(copying->cancel, err) < 0)
            return -1;
        copying->copied->skipped += result > 0;
    }
    for (size_t i = copying->dir_count; i-- > 0;) { /* children were told behind their parents */
        const struct copied_dir *dir = &copying->dirs[i];
        auto_close int fd = workspace_jail_open(copying->stage_fd, dir->path, O_RDONLY | O_DIRECTORY);

        if (fd < 0)
            continue;
        (void)futimens(fd, (struct timespec[2]){dir->status.st_mtim, dir->status.st_mtim});
        if (dir->path[0]) /* the copy itself is renamed yet */
            (void)fchmod(fd, dir->status.st_mode & 0777);
    }
    return 0;
}

static int copy_directory(struct copying *copying, const char *from, const char *stage, struct error *err)
{
    struct workspace *workspace = copying->workspace;
    struct walk *walk;
    int result;

    if (mkdirat(workspace->fd, stage, 0755) < 0)
        return workspace_fail(workspace, err, "cannot make a directory");
    copying->stage_fd = workspace_jail_open_dir_at(workspace->fd, stage);
    if (copying->stage_fd < 0)
        return workspace_fail(workspace, err, "cannot open a directory");
    if (walk_new(workspace, from, &walk, err) < 0)
        return -1;
    copying->copied->entries++;
    result = copy_tree(copying, walk, err);
    walk_free(walk);
    return result;
}

static int copy_to_stage(struct copying *copying, const char *from, int from_fd, const char *name, const char *stage,
                         struct stat *ret_status, struct error *err)
{
    int result;

    if (fstatat(from_fd, name, ret_status, AT_SYMLINK_NOFOLLOW) < 0)
        return workspace_fail(copying->workspace, err, "cannot look at it");
    if (S_ISDIR(ret_status->st_mode))
        return copy_directory(copying, from, stage, err);
    result = S_ISREG(ret_status->st_mode)   ? copy_file(copying, from_fd, name, copying->workspace->fd, stage, err)
             : S_ISLNK(ret_status->st_mode) ? copy_link(copying, from_fd, name, copying->workspace->fd, stage, err)
                                            : 1;
    return result > 0 ? error_set(err, ERROR_HANDOVER, ENXIO, "is a special file, or cannot be read") : result;
}

static void copying_done(struct copying *copying)
{
    cleanup_fd(&copying->stage_fd);
    for (size_t i = 0; i < copying->dir_count; i++)
        free(copying->dirs[i].path);
    free(copying->dirs);
}

int workspace_copy(struct workspace *workspace, const char *from, const char *to, bool replaces,
                   const struct cancel *cancel, struct workspace_copied *ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_cleanup(copying_done) struct copying copying = {workspace, cancel, ret, -1, NULL, 0, 0};
    auto_close int from_fd = -1;
    auto_close int to_fd = -1;
    const struct cancel never = CANCEL_NEVER;
    struct error ignored = ERROR_INIT;
    char stage[LEFTOVER_BYTES];
    struct stat status;
    const char *from_name;
    const char *to_name;

    *ret = (struct workspace_copied){0, 0, 0};
    if (check_names(from, to, err) < 0 || workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    from_fd = workspace_jail_open_parent(workspace->fd, from, &from_name);
    to_fd = from_fd < 0 ? -1 : workspace_jail_open_parent(workspace->fd, to, &to_name);
    if (from_fd < 0 || to_fd < 0)
        return workspace_fail(workspace, err, "cannot open the directory");
    if (workspace_is_leftover(from_name) || workspace_is_leftover(to_name))
        return error_set(err, ERROR_INVALID, EINVAL, "the name is reserved");
    workspace_leftover_name(stage);
    if (copy_to_stage(&copying, from, from_fd, from_name, stage, &status, err) == 0 &&
        put_in_place(workspace, workspace->fd, stage, to_fd, to_name, replaces, err) == 0) {
        if (S_ISDIR(status.st_mode)) {
            (void)futimens(copying.stage_fd, (struct timespec[2]){status.st_mtim, status.st_mtim});
            (void)fchmod(copying.stage_fd, status.st_mode & 0777);
        }
        return 0;
    }
    (void)workspace_remove_at(workspace->fd, stage, true, &never, &ignored);
    return -1;
}

/* -- modes -- */

int workspace_chmod(struct workspace *workspace, const char *path, unsigned mode, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int fd = -1;
    struct stat status;
    char self[32];

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    fd = workspace_jail_open(workspace->fd, path, O_PATH | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &status) < 0)
        return workspace_fail(workspace, err, "cannot open it");
    if (S_ISLNK(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ELOOP, "is a link");
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return chmod(self, mode & 0777) < 0 ? workspace_fail(workspace, err, "cannot change the mode") : 0;
}
