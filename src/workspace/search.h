/* workspace/search.h: Berth's own search below a directory of the host: literals and Perl's expressions (PCRE2) over the lines of text
 * files, and names by globs with `**`. Bounded in time, matches and bytes whatever pattern and files are. Threads: any. */
#ifndef BERTH_SEARCH_H
#define BERTH_SEARCH_H

#include "buf.h"
#include "cancel.h"
#include "workspace.h"

#include <stdbool.h>

/* -- lines -- */
struct search_pattern;
/* INVALID with the reason: a bad expression, a newline in a literal. Matches lines, as bytes; UTF-8 where that makes a difference.
 * Caller frees. May not be used by two threads at once. */
int search_pattern_new(const char *text, size_t size, bool is_regex, bool ignores_case, struct search_pattern **ret,
                       struct error *err);
/* The same for another thread; the first one must outlive it. */
struct search_pattern *search_pattern_share(const struct search_pattern *pattern);
void search_pattern_free(struct search_pattern *pattern);

/* The first line in [at, end) that matches: 1, 0 none, -1: TIMEOUT, more steps than any honest expression takes (what stands before
 * *ret_line was searched). `at` is the beginning of a line. The line is without its newline. */
int search_pattern_next(struct search_pattern *pattern, const char *at, const char *end, const char **ret_line,
                        size_t *ret_size, size_t *ret_column, struct error *err);

struct search {
    const char *path; /* below the workspace: a directory, or one file */
    struct search_pattern *pattern;
    struct search_glob *glob; /* NULL: all files */
    size_t max_hits;
    size_t max_line_bytes; /* of a line that is shown; what is longer is cut around the match */
    size_t max_bytes;      /* of all that is shown */
};
struct search_hit {
    size_t path; /* where they lie in `text`, NUL-terminated */
    size_t line;
    size_t line_size;
    int64_t number; /* from 1 */
    int64_t column; /* of the match in the whole line, in bytes from 1 */
    bool cut;       /* not all of the line is shown */
};
struct search_result {
    struct search_hit *hits;
    size_t count;
    size_t capacity;
    struct buf text;
    const char *truncated; /* why not all was found; static; NULL: all was */
    uint64_t files;
    uint64_t binary;     /* files with a NUL: left out from there on */
    uint64_t unreadable; /* files and directories */
};
void search_result_done(struct search_result *result);
/* Several files at once, by threads of its own while it lasts; sorted by path and line. Errors of `path` itself. The deadline of `cancel` is no error: it is said in `truncated`. Blocks on the disk. */
int search_run(struct workspace *workspace, const struct search *search, const struct cancel *cancel,
               struct search_result *ret, struct error *err);

/* -- names -- */
struct search_glob;
/* `*` and `?` stop at slashes, a component `**` is any number of directories, [a-z] [!a], {a,b}; without a slash the name alone is
 * matched, at any depth. INVALID. Caller frees. */
int search_glob_new(const char *text, size_t size, struct search_glob **ret, struct error *err);
void search_glob_free(struct search_glob *glob);
bool search_glob_matches(struct search_glob *glob, const char *path);

struct found_entry {
    char *path;
    unsigned char type; /* DT_* */
    uint32_t mode;
    int64_t size_bytes;
    int64_t mtime_unix_us;
};
struct find_result {
    struct found_entry *entries; /* sorted by path */
    size_t count;
    const char *truncated;
    uint64_t unreadable;
};
void find_result_done(struct find_result *result);
/* Entries of all kinds below the directory `path`, to `max_depth`; `glob` NULL: all. As search_run(). */
int find_run(struct workspace *workspace, const char *path, struct search_glob *glob, unsigned max_depth,
             size_t max_entries, const struct cancel *cancel, struct find_result *ret, struct error *err);

#endif
