/* agent/inside/agent_files_walk.c: a whole tree, deep first, with two descriptors and one stack of names. */
#include "agent_files_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { WAITING_MAX = 64 * 1024 * 1024, DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC };

/* A directory that is to be visited lies on the stack as its name, then this. As children are visited before siblings, the
 * parents of all that wait are on the way to where we are: a length of the path is enough to name one. */
struct waiting {
    uint32_t parent_size;
    uint32_t name_size;
};

static struct {
    char *bytes;
    size_t size;
    size_t capacity;
} stack;

static struct {
    int top;
    bool top_is_pseudo;
    int here; /* the directory at path, open; -1: it could not be */
    char path[AGENT_FILE_BYTES_MAX + 1];
    size_t path_size;
} walk; /* zeros: it is not to lie in the file */

static int push(const char *name)
{
    struct waiting waiting = {.parent_size = (uint32_t)walk.path_size, .name_size = (uint32_t)strlen(name)};
    size_t size = waiting.name_size + sizeof waiting;

    if (stack.capacity - stack.size < size) {
        size_t capacity = stack.capacity ? 2 * stack.capacity : 64 * 1024;
        char *bytes = capacity <= WAITING_MAX ? realloc(stack.bytes, capacity) : NULL;

        if (!bytes)
            return ENOMEM;
        stack.bytes = bytes;
        stack.capacity = capacity;
    }
    memcpy(stack.bytes + stack.size, name, waiting.name_size);
    memcpy(stack.bytes + stack.size + waiting.name_size, &waiting, sizeof waiting);
    stack.size += size;
    return 0;
}

/* File systems that are the kernel's voice: endless, changing, or not to be read by accident. */
static bool is_pseudo(int dir)
{
    static const uint32_t kinds[] = {/* as linux/magic.h has them, which not every libc brings along */
                                     0x9fa0 /* proc */,        0x62656572 /* sysfs */,
                                     0x27e0eb /* cgroup */,    0x63677270 /* cgroup2 */,
                                     0x1cd1 /* devpts */,      0x64626720 /* debugfs */,
                                     0x74726163 /* tracefs */, 0x73636673 /* security */,
                                     0xcafe4a11 /* bpf */,     0x19800202 /* mqueue */};
    struct statfs status;

    if (fstatfs(dir, &status) < 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((uint32_t)status.f_type == kinds[i])
            return true;
    return false;
}

static int open_from_top(void)
{
    const char *rest = walk.path;
    int dir = walk.top;

    for (;;) {
        char piece[PATH_MAX];
        size_t left = strlen(rest);
        const char *cut = left >= sizeof piece ? memrchr(rest, '/', sizeof piece - 1) : rest + left;
        int next;

        if (!cut) {
            next = -1;
            errno = ENAMETOOLONG;
        } else {
            memcpy(piece, rest, (size_t)(cut - rest));
            piece[cut - rest] = '\0';
            next = openat(dir, piece, DIR_FLAGS | O_NOFOLLOW);
        }
        if (dir != walk.top)
            close(dir);
        if (next < 0 || !*cut)
            return next;
        dir = next;
        rest = cut + 1;
    }
}

/* Go on to the one pushed last. *ret_error: it cannot be opened. False: none is left. */
static bool pop(int *ret_error)
{
    struct waiting waiting;
    bool is_child;
    char *name;
    int dir;

    if (stack.size == 0)
        return false;
    memcpy(&waiting, stack.bytes + stack.size - sizeof waiting, sizeof waiting);
    stack.size -= sizeof waiting + waiting.name_size;
    is_child = walk.here >= 0 && waiting.parent_size == walk.path_size;
    name = walk.path + waiting.parent_size + (waiting.parent_size > 0);
    if (waiting.parent_size)
        name[-1] = '/';
    memcpy(name, stack.bytes + stack.size, waiting.name_size);
    name[waiting.name_size] = '\0';
    walk.path_size = (size_t)(name - walk.path) + waiting.name_size;
    dir = is_child ? openat(walk.here, name, DIR_FLAGS | O_NOFOLLOW) : open_from_top();
    *ret_error = dir < 0 ? errno : 0;
    if (walk.here >= 0 && walk.here != walk.top)
        close(walk.here);
    walk.here = dir;
    return true;
}

static int put_file(const char *name, uint64_t max)
{
    struct stat status;
    int fd, error = files_open_regular(walk.here, name, O_NOFOLLOW, &fd, &status);

    if (!error) {
        error = status.st_size > 0 && (uint64_t)status.st_size > max ? EFBIG : files_put_content(fd, max);
        close(fd);
    }
    files_put(error ? AGENT_FILE_SKIPPED : AGENT_FILE_DONE, error, NULL, 0);
    return 0;
}

static int visit(bool with_content, uint64_t max)
{
    const char *name;
    bool first = true;
    int error;

    while ((name = files_next_name(walk.here, first, &error))) {
        struct stat status;

        first = false;
        if (fstatat(walk.here, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        files_put_entry(&status, name);
        if (S_ISREG(status.st_mode) && with_content)
            (void)put_file(name, max);
        /* What is deeper than a record can say is not visited; who asks for it gets ENAMETOOLONG. */
        if (S_ISDIR(status.st_mode) && walk.path_size + 1 + strlen(name) <= AGENT_FILE_BYTES_MAX) {
            error = push(name);
            if (error)
                return error;
        }
    }
    if (error)
        files_put(AGENT_FILE_SKIPPED, error, NULL, 0);
    return 0;
}

static int walk_all(bool with_content, uint64_t max)
{
    int error = 0;

    do {
        int failure = 0;

        files_put(AGENT_FILE_DIR, error, walk.path, walk.path_size);
        if (!error && (walk.top_is_pseudo || !is_pseudo(walk.here)))
            failure = visit(with_content, max);
        if (failure)
            return failure;
    } while (pop(&error));
    return 0;
}

static int begin(const char *path, const char *below)
{
    int dir, error = files_locate(path, &dir, &path);

    walk.path_size = strlen(below);
    if (walk.path_size > AGENT_FILE_BYTES_MAX)
        return ENAMETOOLONG;
    if (error)
        return error;
    memcpy(walk.path, below, walk.path_size + 1);
    walk.top = openat(dir, path, DIR_FLAGS);
    if (walk.top < 0)
        return errno;
    walk.top_is_pseudo = is_pseudo(walk.top);
    walk.here = walk.path_size ? open_from_top() : walk.top;
    return walk.here < 0 ? errno : 0;
}

int files_walk(const char *path, const char *below, bool with_content, uint64_t max)
{
    int error = begin(path, below);

    if (!error)
        error = walk_all(with_content, max);
    free(stack.bytes);
    return error;
}
