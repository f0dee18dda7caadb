#include "workspace_trail.h"

#include "alloc.h"
#include "workspace_jail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void drop_last(struct workspace_trail *trail)
{
    int number = errno;

    (void)close(trail->levels[--trail->count].fd);
    errno = number;
}

static void push(struct workspace_trail *trail, int fd, size_t size)
{
    if (trail->count == TRAIL_LEVELS) {
        (void)close(trail->levels[0].fd);
        memmove(&trail->levels[0], &trail->levels[1], (TRAIL_LEVELS - 1) * sizeof trail->levels[0]);
        trail->count--;
    }
    trail->levels[trail->count].fd = fd;
    trail->levels[trail->count++].size = size;
}

/* Those that do not lead to `path` go. */
static void go_back(struct workspace_trail *trail, const char *path)
{
    size_t same = 0;

    while (trail->path && path[same] && path[same] == trail->path[same])
        same++;
    while (trail->count) {
        size_t size = trail->levels[trail->count - 1].size;

        if (size <= same && (size == 0 || path[size] == '/' || path[size] == '\0'))
            break;
        drop_last(trail);
    }
}

/* Where the last components begin that all have a place in the trail. */
static size_t begin_of_last(const char *path, size_t from)
{
    size_t at = strlen(path);

    for (unsigned components = 0; at > from; at--)
        if (path[at] == '/' && ++components == TRAIL_LEVELS - 1)
            return at;
    return from;
}

static int open_first(struct workspace_trail *trail, const char *path, size_t size)
{
    char *begin = alloc_format("%.*s", (int)size, path);
    int fd = workspace_jail_open(trail->top_fd, begin, O_RDONLY | O_DIRECTORY);
    int number = errno;

    free(begin);
    errno = number;
    if (fd >= 0)
        push(trail, fd, size);
    return fd;
}

int workspace_trail_open(struct workspace_trail *trail, const char *path)
{
    size_t at;

    go_back(trail, path);
    free(trail->path);
    trail->path = alloc_str(path);
    at = begin_of_last(path, trail->count ? trail->levels[trail->count - 1].size : 0);
    if (trail->count && at != trail->levels[trail->count - 1].size)
        while (trail->count)
            drop_last(trail);
    if (!trail->count && open_first(trail, path, at) < 0)
        return -1;
    while (path[at]) {
        size_t begin = at + (path[at] == '/');
        size_t size = strcspn(path + begin, "/");
        char *name = alloc_format("%.*s", (int)size, path + begin);
        int fd = workspace_jail_open_dir_at(trail->levels[trail->count - 1].fd, name);
        int number = errno;

        free(name);
        errno = number;
        if (fd < 0)
            return -1;
        at = begin + size;
        push(trail, fd, at);
    }
    return trail->levels[trail->count - 1].fd;
}

void workspace_trail_done(struct workspace_trail *trail)
{
    while (trail->count)
        drop_last(trail);
    free(trail->path);
    trail->path = NULL;
}
