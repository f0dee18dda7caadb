/* What every match of an expression holds: characters in a row that can be looked for before anything dearer is done with a text. */
#include "match_private.h"

#include <string.h>

/* Only printable ASCII: it lies in a file as it does in the text that is made of the file, whatever that is encoded in. */
static bool is_printable(char c)
{
    return c >= ' ' && c <= '~';
}

struct runs {
    struct buf current;
    struct buf longest;
    struct error err; /* a pattern is short: there is always room */
};

static void end_run(struct runs *runs)
{
    if (runs->current.size > runs->longest.size) {
        buf_clear(&runs->longest);
        (void)buf_append(&runs->longest, runs->current.data, runs->current.size, &runs->err);
    }
    buf_clear(&runs->current);
}

static void take(struct runs *runs, const char *c)
{
    if (is_printable(*c))
        (void)buf_append(&runs->current, c, 1, &runs->err);
    else
        end_run(runs);
}

static void drop_last(struct runs *runs)
{
    if (runs->current.size > 0)
        runs->current.size--;
}

/* Of a basic regular expression without alternatives. Behind a group, a bracket or an interval nothing is known any more. */
static void take_basic(struct runs *runs, const char *at, const char *end)
{
    for (; at < end && *at != '['; at++) {
        if (*at == '\\' && end - at >= 2 && memchr("\\.[]*^$/", at[1], 8)) {
            take(runs, ++at);
        } else if (*at == '\\') { /* it may repeat what stood before it, or leave it out */
            drop_last(runs);
            return;
        } else if (*at == '*') {
            drop_last(runs);
            end_run(runs);
        } else if (memchr(".^$", *at, 3)) {
            end_run(runs);
        } else {
            take(runs, at);
        }
    }
}

int match_grep_literal(enum match_syntax syntax, const char *pattern, size_t size, struct buf *out, struct error *err)
{
    struct runs runs = {BUF_INIT(PATTERN_MAX_BYTES), BUF_INIT(PATTERN_MAX_BYTES), ERROR_INIT};
    int result = 0;

    if (syntax == MATCH_LITERAL)
        for (size_t i = 0; i < size; i++)
            take(&runs, pattern + i);
    else if (!memchr(pattern, '\n', size) && !memmem(pattern, size, "\\|", 2))
        take_basic(&runs, pattern, pattern + size);
    end_run(&runs);
    if (runs.longest.size > 0)
        result = buf_append(out, runs.longest.data, runs.longest.size, err);
    buf_done(&runs.current);
    buf_done(&runs.longest);
    return result;
}
