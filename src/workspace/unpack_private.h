/* workspace/unpack_private.h: between unpack.c, which fills the staging, and unpack_merge.c, which moves it to its place. */
#ifndef BERTH_UNPACK_PRIVATE_H
#define BERTH_UNPACK_PRIVATE_H

#include "pack.h"
#include "workspace_private.h"

#include <time.h>

struct archive;

struct unpacked_dir {
    char *path;
    mode_t mode;
    struct timespec mtime;
};

struct unpacking {
    struct workspace *workspace;
    const char *below; /* where to */
    const char *work_dir;
    const struct workspace_bytes *bytes;
    const struct unpack_limits *limits;
    const struct cancel *cancel;
    struct archive *archive;
    char stage_name[LEFTOVER_BYTES];
    int stage_fd;
    int64_t touched_ms;
    int parent_fd; /* of the last entry, O_PATH */
    struct buf parent;
    struct buf path;   /* of the entry, clean */
    struct buf target; /* of its hard link */
    uint64_t content_end;
    uint64_t charged; /* bytes, of refused entries as well */
    uint64_t made;    /* entries, implied directories as well */
    uint64_t received;
    struct error bytes_error;  /* what ended the body */
    struct unpacked_dir *dirs; /* whose modes and times come last */
    size_t dir_count;
    size_t dir_capacity;
    struct unpack_result result;
    size_t peeked; /* bytes in `in` that were read ahead */
    char *in;
};

int unpack_refuse(struct unpacking *unpacking, const char *path, const char *reason);
/* Moves the staging's content to its place, then sets modes and times of directories. What collides is refused. */
int unpack_merge(struct unpacking *unpacking, struct error *err);

#endif
