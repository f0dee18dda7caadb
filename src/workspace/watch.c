#include "watch.h"

#include "alloc.h"
#include "walk.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>

enum { READ_BYTES = 16 * 1024 };

static const uint32_t dir_mask =
    IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK;

struct watched_dir {
    int number; /* inotify's; they grow */
    char *path; /* NULL: not watched any more */
};

struct pending {
    enum watch_kind kind;
    bool is_dir;
    uint32_t cookie;
    char *path;
};

struct watch {
    struct workspace *workspace;
    char *start;
    int fd;
    int start_number;
    struct watched_dir *dirs; /* by number */
    size_t dir_count;
    size_t live_count;
    size_t dir_capacity;
    struct pending *pending; /* WATCH_PENDING_MAX + 1 of them, from `first` on */
    size_t first;
    size_t count;
    char *told; /* path of the event given out last */
    char buffer[READ_BYTES] __attribute__((aligned(8)));
};

static void push(struct watch *watch, enum watch_kind kind, bool is_dir, uint32_t cookie, const char *path)
{
    struct pending *last = watch->count ? &watch->pending[watch->first + watch->count - 1] : NULL;

    if (last && last->kind == kind && kind == WATCH_MODIFIED && strcmp(last->path, path) == 0)
        return;
    if (watch->count >= WATCH_PENDING_MAX)
        kind = WATCH_LOST;
    if (kind == WATCH_LOST && last && last->kind == WATCH_LOST)
        return;
    if (watch->first > 0 && watch->first + watch->count > WATCH_PENDING_MAX) {
        memmove(watch->pending, watch->pending + watch->first, watch->count * sizeof *watch->pending);
        watch->first = 0;
    }
    if (watch->first + watch->count > WATCH_PENDING_MAX)
        return;
    watch->pending[watch->first + watch->count++] =
        (struct pending){kind, is_dir, cookie, alloc_str(kind == WATCH_LOST ? "" : path)};
}

/* -- directories -- */

static struct watched_dir *dir_of(struct watch *watch, int number)
{
    size_t low = 0;
    size_t high = watch->dir_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (watch->dirs[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < watch->dir_count && watch->dirs[low].number == number ? &watch->dirs[low] : NULL;
}

static void forget(struct watch *watch, struct watched_dir *dir)
{
    if (dir->path)
        watch->live_count--;
    free(dir->path);
    dir->path = NULL;
}

static void squeeze(struct watch *watch)
{
    size_t kept = 0;

    for (size_t i = 0; i < watch->dir_count; i++)
        if (watch->dirs[i].path)
            watch->dirs[kept++] = watch->dirs[i];
    watch->dir_count = kept;
}

/* Takes `path`. */
static void remember(struct watch *watch, int number, char *path)
{
    struct watched_dir *known = dir_of(watch, number);

    if (known) { /* watched by another name: it was moved */
        if (!known->path)
            watch->live_count++;
        free(known->path);
        known->path = path;
        return;
    }
    if (watch->dir_count > 64 && watch->live_count < watch->dir_count / 2)
        squeeze(watch);
    if (watch->dir_count == watch->dir_capacity)
        watch->dirs = alloc_grow(watch->dirs, watch->dir_capacity = watch->dir_capacity ? watch->dir_capacity * 2 : 64,
                                 sizeof *watch->dirs);
    watch->dirs[watch->dir_count++] = (struct watched_dir){number, path};
    watch->live_count++;
}

/* By its descriptor, so that no name is looked up again. inotify's number, or -1 with errno. */
static int add_watch(struct watch *watch, int dir_fd, uint32_t mask)
{
    char path[32];

    if (watch->live_count >= WATCH_DIRECTORIES_MAX) {
        errno = ENOSPC;
        return -1;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", dir_fd);
    return inotify_add_watch(watch->fd, path, mask);
}

static char *joined(const char *directory, const char *name)
{
    return alloc_format("%s%s%s", directory, directory[0] && name[0] ? "/" : "", name);
}

/* Everything below `path`. `tells`: as created. What cannot be watched is lost. */
static void add_below(struct watch *watch, const char *path, bool tells)
{
    struct error err = ERROR_INIT;
    struct walk_entry entry;
    struct walk *walk;

    if (walk_new(watch->workspace, path, &walk, &err) < 0) {
        if (err.code != ERROR_NOT_FOUND)
            push(watch, WATCH_LOST, true, 0, "");
        return;
    }
    while (walk_next(walk, &entry)) {
        auto_free char *shown = joined(path, entry.path);
        auto_close int fd = -1;
        int number;

        if (entry.trouble) {
            if (entry.trouble != ENOENT)
                push(watch, WATCH_LOST, true, 0, "");
            continue;
        }
        if (tells)
            push(watch, WATCH_CREATED, entry.type == DT_DIR, 0, shown);
        if (entry.type != DT_DIR)
            continue;
        fd = workspace_jail_open_dir_at(entry.dir_fd, entry.name);
        number = fd < 0 ? -1 : add_watch(watch, fd, dir_mask);
        if (number >= 0) {
            remember(watch, number, take_ptr(shown));
            continue;
        }
        if (errno != ENOENT)
            push(watch, WATCH_LOST, true, 0, "");
        if (errno == ENOSPC)
            walk_prune(walk);
    }
    walk_free(walk);
}

/* A directory that came into being, or was moved here. */
static void add_directory(struct watch *watch, const char *path)
{
    auto_close int fd = workspace_jail_open(watch->workspace->fd, path, O_RDONLY | O_DIRECTORY);
    int number = fd < 0 ? -1 : add_watch(watch, fd, dir_mask);

    if (number < 0) {
        if (errno != ENOENT && errno != ENOTDIR &&
            errno != ELOOP) /* gone again, or another thing by now: its own event comes */
            push(watch, WATCH_LOST, true, 0, "");
        return;
    }
    remember(watch, number, alloc_str(path));
    add_below(watch, path, true); /* it may have been filled before it was watched */
}

/* It went away with all that is below it. */
static void drop_directory(struct watch *watch, const char *path)
{
    size_t size = strlen(path);

    for (size_t i = 0; i < watch->dir_count; i++) {
        struct watched_dir *dir = &watch->dirs[i];

        if (!dir->path || strncmp(dir->path, path, size) != 0 || (dir->path[size] && dir->path[size] != '/'))
            continue;
        (void)inotify_rm_watch(watch->fd, dir->number);
        forget(watch, dir);
    }
}

/* -- events -- */

static void take_change(struct watch *watch, const struct inotify_event *event, const char *path)
{
    bool is_dir = (event->mask & IN_ISDIR) != 0;

    if (event->mask & IN_CREATE)
        push(watch, WATCH_CREATED, is_dir, 0, path);
    if (event->mask & IN_MODIFY)
        push(watch, WATCH_MODIFIED, is_dir, 0, path);
    if (event->mask & IN_ATTRIB)
        push(watch, WATCH_ATTRIBUTES, is_dir, 0, path);
    if (event->mask & IN_DELETE)
        push(watch, WATCH_DELETED, is_dir, 0, path);
    if (event->mask & IN_MOVED_FROM)
        push(watch, WATCH_MOVED_FROM, is_dir, event->cookie, path);
    if (event->mask & IN_MOVED_TO)
        push(watch, WATCH_MOVED_TO, is_dir, event->cookie, path);
    if (is_dir && (event->mask & (IN_MOVED_FROM | IN_DELETE)))
        drop_directory(watch, path);
    if (is_dir && (event->mask & (IN_CREATE | IN_MOVED_TO)))
        add_directory(watch, path);
}

static void take_event(struct watch *watch, const struct inotify_event *event)
{
    struct watched_dir *dir = dir_of(watch, event->wd);
    auto_free char *path = NULL;

    if (event->mask & IN_Q_OVERFLOW) {
        push(watch, WATCH_LOST, true, 0, "");
        return;
    }
    if (event->wd == watch->start_number && (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT))) {
        push(watch, WATCH_GONE, true, 0, watch->start);
        return;
    }
    if (!dir)
        return;
    if (event->mask & IN_IGNORED) {
        forget(watch, dir);
        return;
    }
    if (event->len == 0 || !dir->path || workspace_is_leftover(event->name))
        return;
    path = joined(dir->path, event->name);
    take_change(watch, event, path);
}

/* 0, or -1 with an error. */
static int take_events(struct watch *watch, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    ssize_t size = read(watch->fd, watch->buffer, sizeof watch->buffer);

    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : fail_errno(err, "inotify");
    if (workspace_identity_enter(watch->workspace, &guard, err) < 0)
        return -1;
    for (ssize_t at = 0; at < size;) {
        const struct inotify_event *event = (const struct inotify_event *)(const void *)(watch->buffer + at);

        take_event(watch, event);
        at += (ssize_t)(sizeof *event + event->len);
    }
    return 0;
}

int watch_next(struct watch *watch, const struct cancel *cancel, struct watch_event *ret, struct error *err)
{
    struct pending *next;

    while (watch->count == 0) {
        struct pollfd fd = {.fd = watch->fd, .events = POLLIN};

        if (cancel_poll(cancel, &fd, 1, err) < 0 || take_events(watch, err) < 0)
            return -1;
    }
    next = &watch->pending[watch->first];
    free(watch->told);
    watch->told = next->path;
    *ret = (struct watch_event){next->kind, next->is_dir, next->cookie, next->path};
    watch->first++;
    watch->count--;
    if (watch->count == 0)
        watch->first = 0;
    return 0;
}

void watch_free(struct watch *watch)
{
    if (!watch)
        return;
    cleanup_fd(&watch->fd);
    for (size_t i = 0; i < watch->dir_count; i++)
        free(watch->dirs[i].path);
    for (size_t i = 0; i < watch->count; i++)
        free(watch->pending[watch->first + i].path);
    free(watch->dirs);
    free(watch->pending);
    free(watch->told);
    free(watch->start);
    workspace_unref(watch->workspace);
    free(watch);
}

int watch_new(struct workspace *workspace, const char *path, struct watch **ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_close int dir_fd = -1;
    auto_close int fd = -1;
    struct watch *watch;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    dir_fd = workspace_jail_open(workspace->fd, path, O_RDONLY | O_DIRECTORY);
    if (dir_fd < 0)
        return workspace_fail(workspace, err, "cannot open the directory");
    fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return fail(err, LIMIT, "The host has no more watches (fs.inotify.max_user_instances)");
    watch = alloc_zero(sizeof *watch);
    watch->workspace = workspace_ref(workspace);
    watch->start = alloc_str(path);
    watch->fd = take_fd(&fd);
    watch->pending = alloc_array(WATCH_PENDING_MAX + 1, sizeof *watch->pending);
    watch->start_number = add_watch(watch, dir_fd, dir_mask | IN_DELETE_SELF | IN_MOVE_SELF);
    if (watch->start_number < 0) {
        watch_free(watch);
        return fail(err, LIMIT, "The host has no more watches (fs.inotify.max_user_watches)");
    }
    remember(watch, watch->start_number, alloc_str(path));
    add_below(watch, path, false);
    *ret = watch;
    return 0;
}
