#include "walk.h"

#include "alloc.h"
#include "tree_private.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct walk {
    struct workspace *workspace;
    char *start;
    char *current; /* the open directory, below the start; "" is the start */
    unsigned current_depth;
    struct dir_reader reader;
    bool is_broken; /* the rest of the open directory cannot be listed, which has been told */
    struct tree_waiting waiting;
    char *pending; /* name of the directory told last, to be gone into unless it is pruned */
    struct buf path;
    char buffer[DIR_READER_BYTES] __attribute__((aligned(8)));
};

static const size_t path_max_bytes = 16u * 1024 * 1024;

static unsigned depth_of(const char *path)
{
    unsigned depth = *path != '\0';

    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

int walk_new(struct workspace *workspace, const char *path, struct walk **ret, struct error *err)
{
    auto_close int fd = workspace_jail_open(workspace->fd, path, O_RDONLY | O_DIRECTORY);
    struct walk *walk;

    if (fd < 0)
        return workspace_fail(workspace, err, "cannot open the directory");
    walk = alloc_zero(sizeof *walk);
    walk->workspace = workspace_ref(workspace);
    walk->start = alloc_str(path);
    walk->current = alloc_str("");
    walk->waiting = (struct tree_waiting)TREE_WAITING_INIT;
    walk->path.max = path_max_bytes;
    walk->reader = (struct dir_reader){.fd = take_fd(&fd), .buffer = walk->buffer, .size = sizeof walk->buffer};
    *ret = walk;
    return 0;
}

void walk_free(struct walk *walk)
{
    if (!walk)
        return;
    cleanup_fd(&walk->reader.fd);
    tree_waiting_done(&walk->waiting);
    buf_done(&walk->path);
    free(walk->pending);
    free(walk->current);
    free(walk->start);
    workspace_unref(walk->workspace);
    free(walk);
}

void walk_prune(struct walk *walk)
{
    free(walk->pending);
    walk->pending = NULL;
}

/* A child of the open directory is opened from there, so that a deep chain costs no more than a broad tree. */
static int open_waiting(const struct walk *walk, const char *path)
{
    size_t size = strlen(walk->current);
    const char *rest = path + size + (size > 0);
    auto_free char *whole = NULL;

    if (strncmp(path, walk->current, size) == 0 && (size == 0 || path[size] == '/') && !strchr(rest, '/'))
        return workspace_jail_open_dir_at(walk->reader.fd, rest);
    whole = alloc_format("%s%s%s", walk->start, walk->start[0] ? "/" : "", path);
    return workspace_jail_open(walk->workspace->fd, whole, O_RDONLY | O_DIRECTORY);
}

static bool tell(struct walk *walk, const char *directory, const char *name, struct walk_entry *ret)
{
    struct error err = ERROR_INIT;

    buf_clear(&walk->path);
    if ((*directory &&
         (buf_append_str(&walk->path, directory, &err) < 0 || buf_append_str(&walk->path, "/", &err) < 0)) ||
        buf_append_str(&walk->path, name, &err) < 0)
        return false;
    ret->path = buf_str(&walk->path);
    ret->name = ret->path + walk->path.size - strlen(name);
    ret->dir_fd = walk->reader.fd;
    return true;
}

/* The next directory. False: there is none; `ret` is filled in with `trouble` when it cannot be opened. */
static bool go_on(struct walk *walk, struct walk_entry *ret)
{
    auto_free char *path = tree_waiting_take_last(&walk->waiting);
    int fd;

    if (!path)
        return false;
    fd = open_waiting(walk, path);
    if (fd < 0) {
        ret->trouble = errno;
        if (!tell(walk, "", path, ret))
            ret->path = ret->name = "";
        ret->type = DT_DIR;
        return true;
    }
    (void)close(walk->reader.fd);
    walk->reader = (struct dir_reader){.fd = fd, .buffer = walk->buffer, .size = sizeof walk->buffer};
    walk->is_broken = false;
    free(walk->current);
    walk->current = take_ptr(path);
    walk->current_depth = depth_of(walk->current);
    return true;
}

static unsigned char type_of(int dir_fd, const struct dir_name *name)
{
    struct stat status;

    if (name->type != DT_UNKNOWN)
        return name->type;
    return fstatat(dir_fd, name->name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? IFTODT(status.st_mode) : DT_UNKNOWN;
}

bool walk_next(struct walk *walk, struct walk_entry *ret)
{
    struct dir_name name;

    *ret = (struct walk_entry){.dir_fd = -1};
    if (walk->pending) {
        auto_free char *pending = take_ptr(walk->pending);

        if (!tree_waiting_push(&walk->waiting, walk->current, pending)) {
            ret->trouble = ENOMEM;
            ret->type = DT_DIR;
            return tell(walk, walk->current, pending, ret);
        }
    }
    for (;;) {
        int more = walk->is_broken ? 0 : dir_reader_next(&walk->reader, &name);

        if (more < 0) {
            walk->is_broken = true;
            ret->trouble = errno;
            ret->type = DT_DIR;
            return tell(walk, "", walk->current, ret);
        }
        if (more == 0) {
            if (!go_on(walk, ret))
                return false;
            if (ret->trouble)
                return true;
            continue;
        }
        if (workspace_is_leftover(name.name))
            continue;
        ret->type = type_of(walk->reader.fd, &name);
        ret->depth = walk->current_depth + 1;
        if (ret->type == DT_UNKNOWN || !tell(walk, walk->current, name.name, ret))
            continue;
        if (ret->type == DT_DIR)
            walk->pending = alloc_str(name.name);
        return true;
    }
}
