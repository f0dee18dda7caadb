/* workspace/pack_read.h: what a directory holds, read ahead by a thread of its own.
 *
 * Of an archive of small files one half of the time goes into opening and reading them, the other into headers and sending: both go
 * on at once. What is read and not yet taken is a few blocks. Threads: one owner, beside the reader's own thread. */
#ifndef BERTH_PACK_READ_H
#define BERTH_PACK_READ_H

#include "cancel.h"
#include "workspace.h"

#include <stdbool.h>
#include <sys/stat.h>

enum pack_item_kind {
    PACK_ITEM_ENTRY,   /* path, status, target, same_as. A regular file without `same_as`: its content follows */
    PACK_ITEM_CONTENT, /* data, size: never more than the entry's status says in all */
    PACK_ITEM_END,     /* path, missing: the content's end */
    PACK_ITEM_SKIPPED, /* path: cannot be read, or is nothing that an archive holds */
};
struct pack_item {
    enum pack_item_kind kind;
    const char *path; /* below the start */
    struct stat status;
    const char *target;  /* a symbolic link's, else NULL */
    const char *same_as; /* the path told before of the same file, else NULL */
    const char *data;
    size_t size;
    uint64_t missing; /* bytes: so much less than its status says could be read */
};

struct pack_reader;
/* Begins to read the directory `path`, as the workspace's identity. With `tells_links`, files of several names are told once and then
 * by `same_as`. Errors as workspace_list(), UNAVAILABLE. Caller frees. */
int pack_reader_new(struct workspace *workspace, const char *path, bool tells_links, struct pack_reader **ret,
                    struct error *err);
/* 1: the next item, borrowed until the next call; 0 at the end; -1, also as cancel_check(). Blocks until something was read. */
int pack_reader_next(struct pack_reader *reader, const struct cancel *cancel, struct pack_item *ret, struct error *err);
/* Blocks until the thread's system call at hand returns. */
void pack_reader_free(struct pack_reader *reader);

#endif
