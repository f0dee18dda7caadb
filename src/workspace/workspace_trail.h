/* workspace/workspace_trail.h: directories of a tree opened one after the other, by paths below its top. The last ones above the one
 * that was opened last stay open, so that a chain of ten thousand levels, with whatever beside it, costs little more than a broad
 * tree. Each component through the jail. Threads: one owner. Blocks on the disk. */
#ifndef BERTH_WORKSPACE_TRAIL_H
#define BERTH_WORKSPACE_TRAIL_H

#include "cleanup.h"

#include <stddef.h>

enum { TRAIL_LEVELS = 32 };
struct workspace_trail {
    int top_fd; /* borrowed */
    char *path; /* that was opened last */
    size_t count;
    struct {
        int fd;
        size_t size; /* of the path that leads here: its begin */
    } levels[TRAIL_LEVELS];
};

/* The directory `path` below the top ("" itself) for reading: borrowed, until the next call. -1 with errno, as workspace_jail_open(). */
int workspace_trail_open(struct workspace_trail *trail, const char *path);
void workspace_trail_done(struct workspace_trail *trail);
#define auto_workspace_trail auto_cleanup(workspace_trail_done)

#endif
