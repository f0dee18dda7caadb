/* From the staging to the place: what is new is moved whole, directories that are there already are gone into. */
#include "alloc.h"
#include "tree_private.h"
#include "unpack_private.h"
#include "workspace_jail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_dir_at(int fd, const char *name)
{
    struct stat status;

    return fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

/* 0 moved, 1 both are directories, -1 with errno. */
static int move_one(int from_fd, int to_fd, const char *name)
{
    bool from_is_dir;

    if (renameat2(from_fd, name, to_fd, name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EEXIST && errno != EINVAL && errno != ENOSYS)
        return -1;
    from_is_dir = is_dir_at(from_fd, name);
    if (is_dir_at(to_fd, name)) {
        errno = EISDIR;
        return from_is_dir ? 1 : -1;
    }
    if (from_is_dir && errno == EEXIST) {
        errno = ENOTDIR;
        return -1;
    }
    return renameat(from_fd, name, to_fd, name); /* a file or a link in the place of another; never followed */
}

static const char *reason_of(int number)
{
    switch (number) {
    case EISDIR:
        return "is a directory already";
    case ENOTDIR:
    case EEXIST:
        return "is there already and no directory";
    case ELOOP:
        return "is a link already";
    case EACCES:
    case EPERM:
        return "the sandbox's user may not";
    default:
        return "cannot be put into its place";
    }
}

/* Everything of one directory. */
static int merge_directory(struct unpacking *unpacking, int place_fd, const char *path, struct tree_waiting *waiting,
                           struct error *err)
{
    auto_close int from_fd = workspace_jail_open(unpacking->stage_fd, path, O_RDONLY | O_DIRECTORY);
    auto_close int to_fd = workspace_jail_open(place_fd, path, O_PATH | O_DIRECTORY);
    auto_free char *buffer = malloc(DIR_READER_BYTES);
    struct dir_reader reader = {.fd = from_fd, .buffer = buffer, .size = DIR_READER_BYTES};
    struct dir_name entry;

    if (!buffer)
        abort();
    if (from_fd < 0 || to_fd < 0)
        return unpack_refuse(unpacking, path, reason_of(errno));
    while (dir_reader_next(&reader, &entry) > 0) {
        auto_free char *shown = alloc_format("%s%s%s", path, *path ? "/" : "", entry.name);
        int moved = move_one(from_fd, to_fd, entry.name);

        if (moved < 0)
            (void)unpack_refuse(unpacking, shown, reason_of(errno));
        if (moved == 1 && !tree_waiting_push(waiting, path, entry.name))
            (void)unpack_refuse(unpacking, shown, "too many directories");
    }
    return 0;
}

static int children_first(const void *left, const void *right)
{
    return strcmp(((const struct unpacked_dir *)right)->path, ((const struct unpacked_dir *)left)->path);
}

static void finish_directories(struct unpacking *unpacking, int place_fd)
{
    if (unpacking->dir_count)
        qsort(unpacking->dirs, unpacking->dir_count, sizeof *unpacking->dirs, children_first);
    for (size_t i = 0; i < unpacking->dir_count; i++) {
        const struct unpacked_dir *dir = &unpacking->dirs[i];
        auto_close int fd = workspace_jail_open(place_fd, dir->path, O_RDONLY | O_DIRECTORY);
        struct timespec times[2] = {dir->mtime, dir->mtime};

        if (fd < 0)
            continue; /* refused, or taken away again */
        (void)futimens(fd, times);
        (void)fchmod(fd, dir->mode);
    }
}

int unpack_merge(struct unpacking *unpacking, struct error *err)
{
    auto_cleanup(tree_waiting_done) struct tree_waiting waiting = TREE_WAITING_INIT;
    auto_close int place_fd = -1;
    char *taken;

    if (workspace_mkdir_entered(unpacking->workspace, unpacking->below, err) < 0)
        return -1;
    place_fd = workspace_jail_open(unpacking->workspace->fd, unpacking->below, O_PATH | O_DIRECTORY);
    if (place_fd < 0)
        return workspace_fail(unpacking->workspace, err, "cannot open the directory");
    if (merge_directory(unpacking, place_fd, "", &waiting, err) < 0)
        return -1;
    while ((taken = tree_waiting_take_first(&waiting)) != NULL) {
        auto_free char *path = taken;

        if (merge_directory(unpacking, place_fd, path, &waiting, err) < 0)
            return -1;
    }
    finish_directories(unpacking, place_fd);
    return 0;
}
