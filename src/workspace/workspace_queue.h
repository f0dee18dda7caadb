/* workspace/workspace_queue.h: directories that a walk has still to look at, as paths below its top. A stack: the deepest first,
 * so that what waits is one path's siblings. Paths are taken and given. Threads: one owner. Never blocks. */
#ifndef BERTH_WORKSPACE_QUEUE_H
#define BERTH_WORKSPACE_QUEUE_H

#include "alloc.h"

#include <stdlib.h>

struct workspace_queue {
    char **paths;
    size_t count;
    size_t capacity;
};

static inline void workspace_queue_push(struct workspace_queue *queue, char *path)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity ? queue->capacity * 2 : 64;
        queue->paths = alloc_grow(queue->paths, queue->capacity, sizeof *queue->paths);
    }
    queue->paths[queue->count++] = path;
}

/* `name` in the directory `path` ("" is the top). */
static inline void workspace_queue_push_below(struct workspace_queue *queue, const char *path, const char *name)
{
    workspace_queue_push(queue, alloc_format("%s%s%s", path, path[0] ? "/" : "", name));
}

/* The caller frees; NULL: none left. */
static inline char *workspace_queue_pop(struct workspace_queue *queue)
{
    return queue->count ? queue->paths[--queue->count] : NULL;
}

static inline void workspace_queue_done(struct workspace_queue *queue)
{
    while (queue->count)
        free(queue->paths[--queue->count]);
    free(queue->paths);
}
#define auto_workspace_queue auto_cleanup(workspace_queue_done)

#endif
