/* workspace/match.h: the one matcher for glob and grep, on the host and over the agent alike. Pure functions over bytes.
 *
 * Globs are fnmatch(3) without FNM_PATHNAME, over UTF-8 (a byte that is none counts as a character), in time
 * pattern * text at most. Expressions are POSIX basic regular expressions as GNU grep has them, translated for PCRE2, with a
 * limit on steps. Threads: one owner of each struct.
 */
#ifndef BERTH_MATCH_H
#define BERTH_MATCH_H

#include "buf.h"
#include "cancel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the whole text match? `*` and `?` take slashes and leading dots as well. */
bool match_glob(const char *pattern, const char *text);

enum match_syntax {
    MATCH_BASIC,   /* GNU grep without -E; a newline separates alternatives */
    MATCH_LITERAL, /* grep -F of one pattern */
};

struct match_grep;

/* INVALID: a bad expression, in the words of GNU grep without its name ("Unmatched ( or \\("). `pattern` is UTF-8. Caller frees. */
int match_grep_new(enum match_syntax syntax, const char *pattern, size_t size, struct match_grep **ret,
                   struct error *err);
void match_grep_free(struct match_grep *grep);
/* Another one for another thread; it shares what was compiled, and must be freed before `grep`. */
struct match_grep *match_grep_share(const struct match_grep *grep);

/* The expression a pattern is translated to, for tests and fuzzers. */
int match_grep_translate(const char *pattern, size_t size, struct buf *out, struct error *err);

/* Can a file of these bytes hold a match at all? False is certain, and far cheaper than to read its text and search it. */
bool match_grep_can_match(const struct match_grep *grep, const char *data, size_t size);

/* A file's text for searching, or INVALID "[Binary File]": bytes with a NUL, or that are not UTF-8 where the name does not say
 * text (those are Latin-1). *ret_text is `data`, or what was appended to `scratch`. */
int match_grep_text(const char *name, const char *data, size_t size, struct buf *scratch, const char **ret_text,
                    size_t *ret_size, struct error *err);

struct match_line {
    const char *line; /* in the text; without its newline, a carriage return kept */
    size_t size;
    int64_t number; /* from 1 */
};
/* Start on valid UTF-8 text, which must stay until the last match_grep_next(). */
void match_grep_start(struct match_grep *grep, const char *text, size_t size);
/* The next matching line: 1, 0 at the end, -1: TIMEOUT (more steps than any honest expression takes), or as cancel_check(). */
int match_grep_next(struct match_grep *grep, const struct cancel *cancel, struct match_line *ret, struct error *err);

#endif
