/* workspace/tree_grep_private.h: one thread's part of a search; what tree_grep.c and tree_grep_host.c share. */
#ifndef BERTH_TREE_GREP_PRIVATE_H
#define BERTH_TREE_GREP_PRIVATE_H

#include "tree_private.h"

struct grepping {
    struct tree_source *source;
    const struct tree_grep *grep;
    const struct cancel *cancel;
    struct tree_hits *hits;
    size_t capacity;
    size_t printed_bytes; /* as grep would have printed it */
    bool full;
    unsigned long seen;         /* entries of the walk before the one that is searched */
    struct error first_trouble; /* of what could not be read */
    struct buf text;            /* of the hits: path NUL line NUL … */
    struct tree_waiting waiting;
    struct buf content; /* of the file being searched */
    struct buf decoded;
};

struct grepping grepping_start(struct tree_source *source, const struct tree_grep *grep, const struct cancel *cancel,
                               struct tree_hits *hits);
void grepping_done(struct grepping *grepping);
/* A file of the source's current directory, which lies at `directory` below the top. Sets `full` at the hit without room. -1: the
 * whole search ends. */
int grepping_file(struct grepping *grepping, const char *directory, const char *name, struct error *err);
/* Something that could not be read. */
void grepping_pass_over(struct grepping *grepping, const struct error *why);
/* Hand the text over to the hits. */
void grepping_finish(struct grepping *grepping);

#endif
