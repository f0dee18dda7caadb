/* A workspace made again in a new slot: a btrfs snapshot where that is whole, else name by name, file data shared where the file
 * system can (FICLONE).
 *
 * What is copied may be changed by its sandbox meanwhile: it is read as archives are (no link followed, nothing opened but regular
 * files and directories), what vanishes is left out. The new slot is nobody's yet. */
#include "map.h"
#include "workspace_btrfs.h"
#include "workspace_jail.h"
#include "workspace_private.h"
#include "workspace_queue.h"
#include "workspace_trail.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <linux/xattr.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { CHUNK_BYTES = 16 * 1024 * 1024, PIECE_BYTES = 256 * 1024, CANCEL_EVERY = 256, MODE_BITS = 07777 };

struct copier {
    int from_fd; /* the two tops */
    int to_fd;
    struct workspace_trail from;
    struct workspace_trail to;
    struct workspace_queue queue;
    struct map links; /* device and inode of files with several names: the path of the first in the copy */
    char *piece;
    bool is_by_hand; /* nothing is to be shared: copy_file_range() shares as well, where it can */
    bool no_clone;   /* the file system does not share data */
    int64_t cloned;
    int64_t copied;
    int64_t entries;
    const struct cancel *cancel;
    struct error *err;
};

static void free_path(void *value, void *context)
{
    (void)context;
    free(value);
}

static void copier_done(struct copier *copier)
{
    workspace_queue_done(&copier->queue);
    workspace_trail_done(&copier->from);
    workspace_trail_done(&copier->to);
    map_each(&copier->links, free_path, NULL);
    map_done(&copier->links);
    free(copier->piece);
}

static bool is_gone(int number)
{
    return number == ENOENT || number == ENOTDIR || number == ELOOP || number == ENXIO;
}

/* -- data -- */

static int copy_by_hand(struct copier *copier, int from_fd, int to_fd, off_t at, off_t end)
{
    if (!copier->piece)
        copier->piece = alloc_zero(PIECE_BYTES);
    while (at < end) {
        size_t wanted = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
        ssize_t got = pread(from_fd, copier->piece, wanted, at);

        if (got <= 0)
            return got < 0 ? fail_errno(copier->err, "cannot read a file") : 0;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = pwrite(to_fd, copier->piece + done, (size_t)(got - done), at + done);

            if (put < 0)
                return fail_errno(copier->err, "cannot write a copy");
            done += put;
        }
        at += got;
        if (cancel_check(copier->cancel, copier->err) < 0)
            return -1;
    }
    return 0;
}

static int copy_extent(struct copier *copier, int from_fd, int to_fd, off_t at, off_t end)
{
    if (copier->is_by_hand)
        return copy_by_hand(copier, from_fd, to_fd, at, end);
    while (at < end) {
        off_t to = at;
        size_t wanted = end - at < CHUNK_BYTES ? (size_t)(end - at) : CHUNK_BYTES;
        ssize_t done = copy_file_range(from_fd, &at, to_fd, &to, wanted, 0);

        if (done < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
            return copy_by_hand(copier, from_fd, to_fd, at, end);
        if (done < 0)
            return fail_errno(copier->err, "cannot copy a file");
        if (done == 0) /* it became shorter */
            return 0;
        if (cancel_check(copier->cancel, copier->err) < 0)
            return -1;
    }
    return 0;
}

/* Holes stay holes. */
static int copy_data(struct copier *copier, int from_fd, int to_fd, off_t size)
{
    off_t end = 0;

    if (!copier->is_by_hand && !copier->no_clone && ioctl(to_fd, FICLONE, from_fd) == 0) {
        copier->cloned++;
        return 0;
    }
    copier->no_clone = true;
    copier->copied++;
    while (end < size) {
        off_t at = lseek(from_fd, end, SEEK_DATA);

        if (at < 0 && errno == ENXIO)
            break;
        if (at < 0)
            return copy_extent(copier, from_fd, to_fd, end, size);
        end = lseek(from_fd, at, SEEK_HOLE);
        if (end < 0 || end > size)
            end = size;
        if (at < end && copy_extent(copier, from_fd, to_fd, at, end) < 0)
            return -1;
    }
    return ftruncate(to_fd, size) < 0 ? fail_errno(copier->err, "cannot size a copy") : 0;
}

/* -- what an entry is besides its data -- */

/* Those of the namespace `user.`. Others are the system's or the operator's: capabilities of programs, labels, access lists. */
static int copy_attributes(struct copier *copier, int from_fd, int to_fd)
{
    auto_free char *names = NULL;
    auto_free char *value = NULL;
    ssize_t size = flistxattr(from_fd, NULL, 0);

    if (size <= 0)
        return 0; /* the file system has none, or they cannot be listed */
    names = alloc_zero(XATTR_LIST_MAX);
    value = alloc_zero(XATTR_SIZE_MAX);
    size = flistxattr(from_fd, names, XATTR_LIST_MAX);
    for (const char *name = names; size > 0 && name < names + size; name += strlen(name) + 1) {
        ssize_t length;

        if (strncmp(name, XATTR_USER_PREFIX, XATTR_USER_PREFIX_LEN) != 0)
            continue;
        length = fgetxattr(from_fd, name, value, XATTR_SIZE_MAX);
        if (length >= 0 && fsetxattr(to_fd, name, value, (size_t)length, 0) < 0 && errno != EOPNOTSUPP)
            return fail_errno(copier->err, "cannot give a copy its attributes");
    }
    return 0;
}

static int give(int fd, const struct stat *status, struct error *err)
{
    const struct timespec times[2] = {status->st_atim, status->st_mtim};

    /* A broker that is not root cannot give away, and all that it reads is its own. */
    if (fchown(fd, status->st_uid, status->st_gid) < 0 && (errno != EPERM || geteuid() == 0))
        return fail_errno(err, "cannot give a copy its owner");
    if (fchmod(fd, status->st_mode & MODE_BITS) < 0 || futimens(fd, times) < 0)
        return fail_errno(err, "cannot give a copy its mode and times");
    return 0;
}

static int give_at(int dir_fd, const char *name, const struct stat *status, struct error *err)
{
    const struct timespec times[2] = {status->st_atim, status->st_mtim};

    if (fchownat(dir_fd, name, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW) < 0 &&
        (errno != EPERM || geteuid() == 0))
        return fail_errno(err, "cannot give a copy its owner");
    if (utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(err, "cannot give a copy its times");
    return 0;
}

/* -- entries -- */

static void key_of(const struct stat *status, char out[48])
{
    (void)snprintf(out, 48, "%" PRIx64 ".%" PRIx64, (uint64_t)status->st_dev, (uint64_t)status->st_ino);
}

/* 1: it is a further name of what was copied already. */
static int link_again(struct copier *copier, const struct stat *status, int to_dir, const char *name)
{
    auto_close int parent = -1;
    const char *first_name;
    const char *first;
    char key[48];

    if (status->st_nlink < 2)
        return 0;
    key_of(status, key);
    first = map_get(&copier->links, key);
    if (!first)
        return 0;
    parent = workspace_jail_open_parent(copier->to_fd, first, &first_name);
    if (parent < 0 || linkat(parent, first_name, to_dir, name, 0) < 0)
        return fail_errno(copier->err, "cannot link a copy");
    return 1;
}

static void remember_link(struct copier *copier, const struct stat *status, const char *path, const char *name)
{
    char key[48];

    if (status->st_nlink < 2)
        return;
    key_of(status, key);
    free(map_put(&copier->links, key, alloc_format("%s%s%s", path, path[0] ? "/" : "", name)));
}

static int copy_file(struct copier *copier, int from_dir, int to_dir, const char *path, const char *name)
{
    auto_close int from_fd = workspace_jail_open(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    auto_close int to_fd = -1;
    struct stat status;
    int linked;

    if (from_fd < 0)
        return is_gone(errno) ? 0 : fail_errno(copier->err, "cannot read a file");
    if (fstat(from_fd, &status) < 0)
        return fail_errno(copier->err, "cannot look at a file");
    if (!S_ISREG(status.st_mode))
        return 0;
    linked = link_again(copier, &status, to_dir, name);
    if (linked != 0)
        return linked < 0 ? -1 : 0;
    to_fd = openat(to_dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to_fd < 0)
        return fail_errno(copier->err, "cannot make a copy");
    if (copy_data(copier, from_fd, to_fd, status.st_size) < 0 || copy_attributes(copier, from_fd, to_fd) < 0 ||
        give(to_fd, &status, copier->err) < 0)
        return -1;
    remember_link(copier, &status, path, name);
    return 0;
}

static int copy_link(struct copier *copier, int from_dir, int to_dir, const char *name, const struct stat *status)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(from_dir, name, target, sizeof target - 1);

    if (size < 0)
        return errno == EINVAL || is_gone(errno) ? 0 : fail_errno(copier->err, "cannot read a link");
    target[size] = '\0';
    if (symlinkat(target, to_dir, name) < 0)
        return fail_errno(copier->err, "cannot make a link");
    return give_at(to_dir, name, status, copier->err);
}

/* FIFOs and sockets; a device is nothing that a sandbox could have made. */
static int copy_special(struct copier *copier, int to_dir, const char *name, const struct stat *status)
{
    if (!S_ISFIFO(status->st_mode) && !S_ISSOCK(status->st_mode))
        return 0;
    if (mknodat(to_dir, name, (status->st_mode & S_IFMT) | 0600, 0) < 0)
        return fail_errno(copier->err, "cannot make a copy");
    if (give_at(to_dir, name, status, copier->err) < 0)
        return -1;
    return fchmodat(to_dir, name, status->st_mode & MODE_BITS, 0) < 0
               ? fail_errno(copier->err, "cannot give a copy its mode")
               : 0;
}

static int copy_entry(struct copier *copier, int from_dir, int to_dir, const char *path, const char *name)
{
    struct stat status;

    if (++copier->entries % CANCEL_EVERY == 0 && cancel_check(copier->cancel, copier->err) < 0)
        return -1;
    if (workspace_is_leftover(name))
        return 0;
    if (fstatat(from_dir, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return errno == ENOENT ? 0 : fail_errno(copier->err, "cannot look at an entry");
    if (S_ISREG(status.st_mode))
        return copy_file(copier, from_dir, to_dir, path, name);
    if (S_ISLNK(status.st_mode))
        return copy_link(copier, from_dir, to_dir, name, &status);
    if (!S_ISDIR(status.st_mode))
        return copy_special(copier, to_dir, name, &status);
    if (mkdirat(to_dir, name, 0700) < 0)
        return fail_errno(copier->err, "cannot make a directory");
    workspace_queue_push_below(&copier->queue, path, name);
    return 0;
}

/* Its own mode and times last: what is put into directories below it later does not change them. */
static int copy_directory(struct copier *copier, const char *path)
{
    char buffer[DIR_READER_BYTES] __attribute__((aligned(8)));
    int from_fd = workspace_trail_open(&copier->from, path);
    struct dir_reader reader = {.fd = from_fd, .buffer = buffer, .size = sizeof buffer};
    struct dir_name entry;
    struct stat status;
    int to_fd;
    int more;

    if (from_fd < 0)
        return is_gone(errno) && path[0] ? 0 : fail_errno(copier->err, "cannot list a directory");
    to_fd = workspace_trail_open(&copier->to, path);
    if (to_fd < 0 || fstat(from_fd, &status) < 0)
        return fail_errno(copier->err, "cannot open a directory");
    while ((more = dir_reader_next(&reader, &entry)) > 0)
        if (copy_entry(copier, from_fd, to_fd, path, entry.name) < 0)
            return -1;
    if (more < 0)
        return fail_errno(copier->err, "cannot list a directory");
    return copy_attributes(copier, from_fd, to_fd) < 0 ? -1 : give(to_fd, &status, copier->err);
}

/* `may_share`: files may be one on the disk. */
static int copy_tree(int from_fd, int to_fd, bool may_share, const struct cancel *cancel,
                     enum workspace_fork_kind *ret_how, struct error *err)
{
    auto_cleanup(copier_done) struct copier copier = {.from_fd = from_fd,
                                                      .to_fd = to_fd,
                                                      .from.top_fd = from_fd,
                                                      .to.top_fd = to_fd,
                                                      .links = MAP_INIT,
                                                      .is_by_hand = !may_share,
                                                      .cancel = cancel,
                                                      .err = err};

    workspace_queue_push(&copier.queue, alloc_str(""));
    for (;;) {
        auto_free char *path = workspace_queue_pop(&copier.queue);

        if (!path)
            break;
        if (copy_directory(&copier, path) < 0)
            return -1;
    }
    *ret_how = copier.cloned && !copier.copied ? WORKSPACE_FORK_REFLINK : WORKSPACE_FORK_COPY;
    return 0;
}

/* The workspace of the new slot, empty so far, becomes what `from_fd` is. */
static int fill(struct workspace_root *root, const char *slot, int from_fd, const struct workspace_group *group,
                const struct cancel *cancel, enum workspace_fork_kind *ret_how, struct error *err)
{
    auto_close int slot_fd = openat(root->slots_fd, slot, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int to_fd = -1;

    if (slot_fd < 0)
        return fail_errno(err, "cannot open slot %s", slot);
    if (workspace_btrfs_snapshot(slot_fd, "workspace", from_fd, group->number)) {
        *ret_how = WORKSPACE_FORK_SNAPSHOT;
        return 0;
    }
    to_fd = workspace_jail_open(slot_fd, "workspace", O_RDONLY | O_DIRECTORY);
    if (to_fd < 0)
        return fail_errno(err, "cannot open slot %s", slot);
    if (group->number)
        (void)workspace_btrfs_join(to_fd, group->number, group->bytes);
    /* The limit of a group holds back what is written, not what comes to be shared. */
    return copy_tree(from_fd, to_fd, !group->number || group->bytes < 0, cancel, ret_how, err);
}

int workspace_slot_copy(struct workspace_root *root, const char *from_slot, const struct workspace_group *group,
                        const struct cancel *cancel, char ret_slot[WORKSPACE_SLOT_BYTES],
                        enum workspace_fork_kind *ret_how, struct error *err)
{
    auto_close int place_fd = workspace_root_open_slot(root, from_slot, err);
    auto_close int from_fd = -1;
    char slot[WORKSPACE_SLOT_BYTES];

    if (place_fd < 0)
        return -1;
    from_fd = workspace_jail_open(place_fd, "", O_RDONLY | O_DIRECTORY);
    if (from_fd < 0)
        return fail_errno(err, "cannot read the workspace");
    if (workspace_slot_create(root, -1, -1, slot, err) < 0)
        return -1;
    if (fill(root, slot, from_fd, group, cancel, ret_how, err) < 0) {
        struct error ignored = ERROR_INIT;

        (void)workspace_slot_remove(root, slot, &(struct cancel)CANCEL_NEVER, &ignored);
        return -1;
    }
    memcpy(ret_slot, slot, sizeof slot);
    return 0;
}
