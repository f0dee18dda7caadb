/* workspace/tree.h: walking, globbing and searching a tree, wherever it lies.
 *
 * A struct tree_source shows directories and files: the host's workspace is one (workspace_tree_source()), the agent's FILE
 * verbs the other, made by session/. The walks are iterative, never follow a link, open one directory at a time, and keep what
 * waits within bounds whatever the tree's shape. Results are plain memory. Threads: one owner each. Blocking: as the source does;
 * `cancel` is asked between directories and every few hundred entries.
 */
#ifndef BERTH_TREE_H
#define BERTH_TREE_H

#include "match.h"
#include "workspace.h"

struct tree_source;
struct tree_source_ops {
    /* Make `path` ("" is the top) the current directory; the one before is closed. Errors as workspace_list(). */
    int (*open)(struct tree_source *source, const char *path, const struct cancel *cancel, struct error *err);
    /* The next entry of the current directory, in no order, without leftovers: 1, 0 at the end, -1. ret->name is borrowed
     * until the next call. Size, time and mode are there for regular files, if `with_details`. */
    int (*next)(struct tree_source *source, bool with_details, struct workspace_entry *ret, const struct cancel *cancel,
                struct error *err);
    /* A regular file of the current directory, whole, appended to `out`. Errors as workspace_read(). */
    int (*read)(struct tree_source *source, const char *name, struct buf *out, const struct cancel *cancel,
                struct error *err);
    void (*free)(struct tree_source *source);
};
/* The first member of what a source is. */
struct tree_source {
    const struct tree_source_ops *ops;
};
void tree_source_free(struct tree_source *source);

/* The host's. Until it is freed (by the same thread) the calling thread acts as the workspace's identity: do nothing with it
 * but calls of this header. Holds a reference to the workspace. */
int workspace_tree_source(struct workspace *workspace, struct tree_source **ret_source, struct error *err);

/* -- rows: what a walk finds -- */
struct tree_row {
    const char *path; /* owned by the rows */
    const char *name; /* its last component, in `path` */
    bool is_dir;
    int64_t size_bytes;    /* of files of tree_list() */
    int64_t mtime_unix_us; /* of files of tree_list() */
};
struct tree_rows {
    struct tree_row *rows;
    size_t count;
    bool truncated;
    char *paths; /* what the rows point into */
};
#define TREE_ROWS_INIT       \
    {                        \
        NULL, 0, false, NULL \
    }
void tree_rows_done(struct tree_rows *rows);
#define auto_tree_rows auto_cleanup(tree_rows_done)

/* Everything below `path`, breadth first, each directory with its directories first, then by name; links left out, FIFOs,
 * sockets and devices as files. Paths are those below the top. `path` itself fails as it does in workspace_list(); trouble below
 * it, a directory at `max_depth` (1: only the children of `path`), or more than `max_entries` set `truncated`. */
int tree_list(struct tree_source *source, const char *path, unsigned max_depth, size_t max_entries,
              const struct cancel *cancel, struct tree_rows *ret, struct error *err);

/* Regular files below `path` whose full path, `shown` + "/" + the rest, matches the wire's glob (classic contract, section 4):
 * one leading double star and slash dropped, then as `find -path`: anything, a slash, the pattern. Rows carry the full path, sorted;
 * of "." it is shown without "./". Directories that cannot be opened are passed over and set `truncated`, as do more than
 * `max_entries` matches. */
int tree_glob(struct tree_source *source, const char *path, const char *shown, const char *pattern, size_t max_entries,
              const struct cancel *cancel, struct tree_rows *ret, struct error *err);

/* -- searching -- */
struct tree_grep {
    const char *path;  /* below the top: a directory, or one file */
    const char *shown; /* what stands for `path` in results */
    struct match_grep *expression;
    const char *name_glob; /* only files whose name matches; NULL: all */
    bool ignore_hidden;    /* files and directories whose name starts with a dot, but not `path` itself */
    size_t max_bytes;      /* of results as grep would print them (path:number:line) */
    size_t max_line_bytes; /* what is longer is cut, and says so */
    size_t max_file_bytes; /* larger files are passed over */
};
struct tree_hit {
    const char *path; /* owned by the hits */
    const char *line;
    size_t line_size;
    int64_t line_number; /* from 1 */
    size_t printed_bytes;
    unsigned long order; /* of its file in the walk */
};
enum { TREE_HITS_TEXTS = 4 };
struct tree_hits {
    struct tree_hit *hits;
    size_t count;
    bool truncated;               /* something was cut or passed over for its size */
    size_t unreadable;            /* files and directories that could not be read */
    enum error_code code;         /* why, of the first of them; ERROR_NONE */
    unsigned long full_at;        /* `order` of the file whose hit had no room any more; 0: none */
    char *texts[TREE_HITS_TEXTS]; /* what the hits point into */
};
#define TREE_HITS_INIT                    \
    {                                     \
        NULL, 0, false, 0, ERROR_NONE, 0, \
        {                                 \
            NULL                          \
        }                                 \
    }
void tree_hits_done(struct tree_hits *hits);
#define auto_tree_hits auto_cleanup(tree_hits_done)

/* Lines that match, files of a directory before its subdirectories, in directory order. Binary files (match.h) never match.
 * Errors: of `path` itself; TIMEOUT also for an expression that takes more steps than any honest one. */
int tree_grep(struct tree_source *source, const struct tree_grep *grep, const struct cancel *cancel,
              struct tree_hits *ret, struct error *err);
/* The same over a workspace, by as many threads as there are processors (four at most): opening and reading the files is nearly all of
 * it. The hits are those of one walk, in its order. */
int workspace_grep(struct workspace *workspace, const struct tree_grep *grep, const struct cancel *cancel,
                   struct tree_hits *ret, struct error *err);

#endif
