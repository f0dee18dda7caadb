/* How much lies in a workspace. */
#include "workspace_private.h"
#include "workspace_queue.h"
#include "workspace_trail.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PAUSE_EVERY = 512, BLOCK_BYTES = 512 };

struct measuring {
    struct workspace_queue queue;
    struct workspace_trail trail;
    struct workspace_size size;
    int64_t looked_at;
    unsigned pause_ms;
    const struct cancel *cancel;
};

static void measuring_done(struct measuring *measuring)
{
    workspace_queue_done(&measuring->queue);
    workspace_trail_done(&measuring->trail);
}

/* A name of a file with several: its share. */
static int64_t bytes_of(const struct stat *status)
{
    int64_t bytes = (int64_t)status->st_blocks * BLOCK_BYTES;

    return S_ISDIR(status->st_mode) || status->st_nlink < 2 ? bytes : bytes / (int64_t)status->st_nlink;
}

static int take_breath(struct measuring *measuring, struct error *err)
{
    struct cancel pause = cancel_within(measuring->cancel, measuring->pause_ms);
    struct error over = ERROR_INIT;

    if (++measuring->looked_at % PAUSE_EVERY)
        return 0;
    if (measuring->pause_ms)
        (void)cancel_poll(&pause, NULL, 0, &over);
    return cancel_check(measuring->cancel, err);
}

static int measure_directory(struct measuring *measuring, int fd, const char *path, struct error *err)
{
    char buffer[DIR_READER_BYTES] __attribute__((aligned(8)));
    struct dir_reader reader = {.fd = fd, .buffer = buffer, .size = sizeof buffer};
    struct dir_name entry;

    while (dir_reader_next(&reader, &entry) > 0) {
        struct stat status;

        if (take_breath(measuring, err) < 0)
            return -1;
        if (fstatat(fd, entry.name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
            continue;
        measuring->size.bytes += bytes_of(&status);
        measuring->size.files++;
        if (S_ISDIR(status.st_mode))
            workspace_queue_push_below(&measuring->queue, path, entry.name);
    }
    return 0;
}

int workspace_measure(struct workspace *workspace, unsigned pause_ms, const struct cancel *cancel,
                      struct workspace_size *ret, struct error *err)
{
    auto_cleanup(measuring_done) struct measuring measuring = {
        .trail.top_fd = workspace->fd, .pause_ms = pause_ms, .cancel = cancel};

    workspace_queue_push(&measuring.queue, alloc_str(""));
    for (;;) {
        auto_free char *path = workspace_queue_pop(&measuring.queue);
        int fd;

        if (!path)
            break;
        fd = workspace_trail_open(&measuring.trail, path);
        if (fd >= 0 && measure_directory(&measuring, fd, path, err) < 0)
            return -1;
    }
    *ret = measuring.size;
    return 0;
}
