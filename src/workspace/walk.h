/* workspace/walk.h: everything below a directory of a workspace on the host, one entry at a time, links and special files as
 * themselves. Iterative, never follows a link, holds one directory open, and keeps what waits within bounds whatever the tree's
 * shape. Acts as whoever the calling thread is: the caller enters the workspace's identity around its calls. */
#ifndef BERTH_WALK_H
#define BERTH_WALK_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>

struct workspace;
struct walk;

struct walk_entry {
    const char *path;   /* below the start; borrowed until the next call, as all of this */
    const char *name;   /* its last component */
    int dir_fd;         /* the directory it lies in */
    unsigned depth;     /* 1: a child of the start */
    unsigned char type; /* DT_*, never DT_UNKNOWN */
    int trouble;        /* 0, or the errno for which this directory (told before) cannot be gone into */
};

/* Errors of `path` itself as workspace_list(). Caller frees. */
int walk_new(struct workspace *workspace, const char *path, struct walk **ret, struct error *err);
/* The entries of a directory, in no order, then its directories. 1, 0 at the end. Never fails. Leftovers are left out. */
bool walk_next(struct walk *walk, struct walk_entry *ret);
/* Do not go into the directory that was told last. */
void walk_prune(struct walk *walk);
void walk_free(struct walk *walk);

#endif
