/* workspace/tree_private.h: what tree_list.c, tree_glob.c and tree_grep.c share. */
#ifndef BERTH_TREE_PRIVATE_H
#define BERTH_TREE_PRIVATE_H

#include "cleanup.h"
#include "tree.h"

/* Directories that wait to be opened take this much at most; what is beyond is passed over and told. */
enum { TREE_WAITING_MAX_BYTES = 64 * 1024 * 1024, TREE_CANCEL_EVERY = 512 };

/* Is it the walk that is to end, or only one directory or file that cannot be read? */
bool tree_error_ends_the_walk(const struct error *err);

/* Paths that wait, one after the other in a buffer; taken from the front or from the back. */
struct tree_waiting {
    struct buf paths; /* each with its NUL in front and behind: "\0path\0" */
    size_t first;     /* of the front */
};
#define TREE_WAITING_INIT                   \
    {                                       \
        BUF_INIT(TREE_WAITING_MAX_BYTES), 0 \
    }
/* False: no room. `dir` "" is the top. */
bool tree_waiting_push(struct tree_waiting *waiting, const char *dir, const char *name);
/* A copy of the path taken from the front (first in, first out) or the back; NULL when nothing waits. Caller frees. */
char *tree_waiting_take_first(struct tree_waiting *waiting);
char *tree_waiting_take_last(struct tree_waiting *waiting);
static inline void tree_waiting_done(struct tree_waiting *waiting)
{
    buf_done(&waiting->paths);
}

/* Rows while they grow: paths are offsets until tree_rows_finish(). */
struct tree_row_list {
    struct tree_row *rows;
    size_t count;
    size_t capacity;
    struct buf paths;
};
#define TREE_ROW_LIST_INIT                               \
    {                                                    \
        NULL, 0, 0, BUF_INIT((size_t)1024 * 1024 * 1024) \
    }
/* path = before + middle + name. */
int tree_row_add(struct tree_row_list *list, const char *before, const char *middle, const char *name,
                 const struct workspace_entry *entry, struct error *err);
void tree_rows_finish(struct tree_row_list *list, struct tree_rows *ret);
void tree_row_list_done(struct tree_row_list *list);

#endif
