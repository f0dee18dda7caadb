#include "workspace_jail.h"

#include "workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { RACE_RETRIES = 16, PIECE_MAX = PATH_MAX - 1 };
enum method { METHOD_UNKNOWN, METHOD_OPENAT2, METHOD_WALK };

static atomic_int method_of_kernel = METHOD_UNKNOWN;
static atomic_bool walk_forced;

void workspace_jail_force_walk(bool force)
{
    atomic_store(&walk_forced, force);
}

bool workspace_jail_is_forced(void)
{
    return atomic_load_explicit(&walk_forced, memory_order_relaxed);
}

static int openat2_call(int fd, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)flags, .resolve = resolve};
    int opened = -1;

    /* EAGAIN: a rename ran at the same time and the kernel could not tell. */
    for (int i = 0; i < RACE_RETRIES; i++) {
        opened = (int)syscall(SYS_openat2, fd, path, &how, sizeof how);
        if (opened >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return opened;
}

/* Asked once: old kernels say ENOSYS, old container runtimes' filters EPERM. */
static bool has_openat2(void)
{
    int method = atomic_load_explicit(&method_of_kernel, memory_order_relaxed);

    if (atomic_load_explicit(&walk_forced, memory_order_relaxed))
        return false;
    if (method == METHOD_UNKNOWN) {
        int fd = openat2_call(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);

        method = fd >= 0 ? METHOD_OPENAT2 : METHOD_WALK;
        if (fd >= 0)
            (void)close(fd);
        atomic_store(&method_of_kernel, method);
    }
    return method == METHOD_OPENAT2;
}

/* openat() without following; a link where a directory was asked for is ELOOP rather than ENOTDIR. */
static int open_component(int fd, const char *name, int flags)
{
    struct stat status;
    int opened = openat(fd, name, flags | O_NOFOLLOW);

    if (opened < 0 && errno == ENOTDIR)
        errno = fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode) ? ELOOP : ENOTDIR;
    return opened;
}

static int walk(int root_fd, const char *path, int flags)
{
    auto_close int current = -1;
    const char *at = path;

    for (;;) {
        const char *slash = strchrnul(at, '/');
        size_t size = (size_t)(slash - at);
        char name[NAME_MAX + 1];
        int next;

        if (size > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, at, size);
        name[size] = '\0';
        if (*slash == '\0')
            return open_component(current >= 0 ? current : root_fd, name, flags);
        next = open_component(current >= 0 ? current : root_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (next < 0)
            return -1;
        if (current >= 0)
            (void)close(current);
        current = next;
        at = slash + 1;
    }
}

static int open_piece(int root_fd, const char *path, int flags)
{
    static const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;

    if (!has_openat2())
        return walk(root_fd, path, flags);
    return openat2_call(root_fd, path, flags, resolve);
}

int workspace_jail_open(int root_fd, const char *path, int flags)
{
    auto_close int current = -1;
    size_t left = strlen(path);

    flags |= O_CLOEXEC | ((flags & O_PATH) ? 0 : O_NOCTTY);
    if (left == 0)
        return open_piece(root_fd, ".", flags);
    while (left > PIECE_MAX) {
        char piece[PIECE_MAX + 1];
        const char *cut = memrchr(path, '/', PIECE_MAX);
        int next;

        if (!cut) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(piece, path, (size_t)(cut - path));
        piece[cut - path] = '\0';
        next = open_piece(current >= 0 ? current : root_fd, piece, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (next < 0)
            return -1;
        if (current >= 0)
            (void)close(current);
        current = next;
        left -= (size_t)(cut + 1 - path);
        path = cut + 1;
    }
    return open_piece(current >= 0 ? current : root_fd, path, flags);
}

int workspace_jail_open_parent(int root_fd, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    auto_free char *parent = slash ? strndup(path, (size_t)(slash - path)) : strdup("");

    if (!parent)
        abort();
    *ret_name = slash ? slash + 1 : path;
    return workspace_jail_open(root_fd, parent, O_PATH | O_DIRECTORY);
}

int workspace_jail_open_dir_at(int parent_fd, const char *name)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY;

    if (!has_openat2())
        return open_component(parent_fd, name, flags);
    return openat2_call(parent_fd, name, flags,
                        RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}
