/* Patterns: what must stand in every match is looked for first, the expression judges the lines where it was found. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "alloc.h"
#include "cleanup.h"
#include "scan.h"
#include "search.h"
#include "utf8.h"

#include <pcre2.h>
#include <string.h>

enum {
    PATTERN_BYTES = 64 * 1024,
    STEPS_MAX = 2 * 1000 * 1000, /* of one search: milliseconds, however bad the expression */
    DEPTH_MAX_KIB = 8 * 1024,
    PIECE_BYTES = 64 * 1024, /* lines searched at once where there is no literal to look for */
};

struct search_pattern {
    char *text;
    pcre2_code *code; /* NULL: a literal */
    pcre2_match_data *data;
    pcre2_match_context *context;
    bool has_scan;
    bool crosses_lines; /* only lines alone can be judged */
    struct scan scan;
    char *literals[SCAN_LITERALS_MAX];
    bool is_share; /* all but the match data is another's */
};

/* -- what every match begins with -- */

struct prefixes {
    size_t count;
    struct buf texts[SCAN_LITERALS_MAX];
};

static bool is_plain(char c)
{
    return c != '\0' && c != '\n' && !strchr("\\^$.[|()?*+{}", c);
}

static bool is_quantified(const char *at)
{
    return *at && strchr("?*+{", *at);
}

/* A plain or escaped character; its bytes in the pattern, 0: something else. */
static size_t plain_at(const char *at, char *ret)
{
    if (is_plain(*at))
        return *ret = *at, 1;
    if (*at == '\\' && at[1] && strchr("\\^$.[]|()?*+{}-/\"'#&@!%,:;=<>~` ", at[1]))
        return *ret = at[1], 2;
    return 0;
}

static void append_to_all(struct prefixes *prefixes, char c)
{
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < prefixes->count; i++)
        (void)buf_append(&prefixes->texts[i], &c, 1, &err);
}

/* "(foo|bar)" or "(?:foo|bar)" of plain literals: its bytes in the pattern, 0: something else, or too many. */
static size_t take_group(struct prefixes *prefixes, const char *at)
{
    const char *start = at;
    struct prefixes old = *prefixes;
    struct prefixes made = {.count = 0};
    struct buf word = BUF_INIT(256);
    struct error err = ERROR_INIT;
    bool whole = false;
    char c;

    at += strncmp(at, "(?:", 3) == 0 ? 3 : 1;
    for (;;) {
        size_t size = plain_at(at, &c);

        if (size) {
            if (buf_append(&word, &c, 1, &err) < 0)
                break;
            at += size;
            continue;
        }
        if ((*at != '|' && *at != ')') || word.size == 0 || made.count + old.count > SCAN_LITERALS_MAX)
            break;
        for (size_t i = 0; i < old.count; i++) {
            struct buf *text = &made.texts[made.count++];

            *text = (struct buf)BUF_INIT(512);
            (void)buf_append(text, buf_str(&old.texts[i]), old.texts[i].size, &err);
            (void)buf_append(text, buf_str(&word), word.size, &err);
        }
        buf_clear(&word);
        if (*at++ == ')') {
            whole = !is_quantified(at) && err.code == ERROR_NONE;
            break;
        }
    }
    buf_done(&word);
    if (!whole) {
        for (size_t i = 0; i < made.count; i++)
            buf_done(&made.texts[i]);
        return 0;
    }
    for (size_t i = 0; i < old.count; i++)
        buf_done(&old.texts[i]);
    *prefixes = made;
    return (size_t)(at - start);
}

/* A bar outside of all groups: the pattern has several beginnings. */
static bool has_alternatives(const char *at)
{
    int depth = 0;

    for (; *at; at++) {
        if (*at == '\\' && at[1]) {
            at++;
        } else if (*at == '[') {
            at += at[1] == '^' ? 2 : 1;
            at += *at == ']';
            while (*at && *at != ']')
                at += *at == '\\' && at[1] ? 2 : 1;
            if (!*at)
                return true;
        } else if (*at == '(') {
            depth++;
        } else if (*at == ')') {
            depth--;
        } else if (*at == '|' && depth == 0) {
            return true;
        }
    }
    return false;
}

static void find_prefixes(struct search_pattern *pattern, const char *text)
{
    struct prefixes prefixes = {.count = 1, .texts = {BUF_INIT(512)}};
    const char *literals[SCAN_LITERALS_MAX];
    size_t sizes[SCAN_LITERALS_MAX];
    auto_free char *grouped = has_alternatives(text) ? alloc_format("(%s)", text) : NULL;
    bool all_long = true;

    for (const char *at = grouped ? grouped : text; *at;) {
        char c = 0;
        size_t size = *at == '(' ? take_group(&prefixes, at) : plain_at(at, &c);

        if (size == 0 || is_quantified(at + size) || prefixes.texts[0].size > 200)
            break;
        if (*at != '(')
            append_to_all(&prefixes, c);
        at += size;
    }
    for (size_t i = 0; i < prefixes.count; i++) {
        all_long = all_long && prefixes.texts[i].size >= 2;
        sizes[i] = prefixes.texts[i].size;
        literals[i] = pattern->literals[i] = buf_take(&prefixes.texts[i], NULL);
    }
    pattern->has_scan = all_long;
    if (all_long)
        scan_init(&pattern->scan, literals, sizes, prefixes.count);
}

/* -- compiling -- */

/* Could what a line holds be judged otherwise when other lines stand around it? Then lines are matched alone. */
static bool looks_beyond_lines(const char *at)
{
    for (; *at; at++) {
        if (*at == '\\' && at[1]) {
            if (strchr("AzZGKXR", at[1]))
                return true;
            at++;
        } else if (*at == '(' && (at[1] == '*' || (at[1] == '?' && at[2] != ':'))) {
            return true;
        } else if (strchr("*+?}", *at) && at[1] == '+') {
            return true;
        }
    }
    return false;
}

/* Bytes are enough where no character of the pattern can stand for several bytes. */
static bool needs_utf8(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] > 127 || text[i] == '.' || (text[i] == '[' && text[i + 1] == '^') ||
            (text[i] == '\\' &&
             ((text[i + 1] >= 'a' && text[i + 1] <= 'z') || (text[i + 1] >= 'A' && text[i + 1] <= 'Z'))))
            return true;
    return false;
}

static int compile(struct search_pattern *pattern, const char *text, size_t size, uint32_t options, struct error *err)
{
    pcre2_compile_context *how = pcre2_compile_context_create(NULL);
    size_t offset;
    int code;

    if (!how)
        abort();
    (void)pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    (void)pcre2_set_parens_nest_limit(how, 200);
    pattern->code = pcre2_compile((PCRE2_SPTR)text, size,
                                  options | (options & PCRE2_LITERAL ? 0 : PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C),
                                  &code, &offset, how);
    pcre2_compile_context_free(how);
    if (!pattern->code) {
        char reason[160];

        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return fail(err, INVALID, "Bad expression at byte %zu: %s", offset, reason);
    }
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    pattern->data = pcre2_match_data_create(1, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->data || !pattern->context)
        abort();
    (void)pcre2_set_match_limit(pattern->context, STEPS_MAX);
    (void)pcre2_set_heap_limit(pattern->context, DEPTH_MAX_KIB);
    return 0;
}

static int prepare(struct search_pattern *pattern, size_t size, bool is_regex, bool ignores_case, struct error *err)
{
    static const uint32_t utf = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    const char *text = pattern->text;
    const char *literal = text;

    if (!is_regex && !ignores_case) {
        scan_init(&pattern->scan, &literal, &size, 1);
        pattern->has_scan = true;
        return 0;
    }
    if (!utf8_valid(text, size))
        return fail(err, INVALID, "The pattern is not UTF-8");
    if (!is_regex)
        return compile(pattern, text, size, PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_CASELESS | PCRE2_LITERAL, err);
    if (!ignores_case && !memchr(text, '\0', size) && !strstr(text, "(?") && !strstr(text, "(*"))
        find_prefixes(pattern, text);
    else if (!ignores_case && strncmp(text, "(?:", 3) == 0)
        find_prefixes(pattern, text);
    pattern->crosses_lines = memchr(text, '\0', size) || looks_beyond_lines(text);
    return compile(pattern, text, size, (ignores_case ? utf | PCRE2_CASELESS : 0) | (needs_utf8(text, size) ? utf : 0),
                   err);
}

int search_pattern_new(const char *text, size_t size, bool is_regex, bool ignores_case, struct search_pattern **ret,
                       struct error *err)
{
    struct search_pattern *pattern;

    if (size == 0)
        return fail(err, INVALID, "The pattern is empty");
    if (size > PATTERN_BYTES)
        return fail(err, INVALID, "The pattern is too long");
    if (!is_regex && memchr(text, '\n', size))
        return fail(err, INVALID, "The pattern holds a newline: lines are searched");
    pattern = alloc_zero(sizeof *pattern);
    pattern->text = alloc_str_n(text, size);
    if (prepare(pattern, size, is_regex, ignores_case, err) < 0) {
        search_pattern_free(pattern);
        return -1;
    }
    *ret = pattern;
    return 0;
}

struct search_pattern *search_pattern_share(const struct search_pattern *pattern)
{
    struct search_pattern *share = alloc_zero(sizeof *share);

    *share = *pattern;
    share->is_share = true;
    share->data = pattern->code ? pcre2_match_data_create(1, NULL) : NULL;
    if (pattern->code && !share->data)
        abort();
    return share;
}

void search_pattern_free(struct search_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_match_data_free(pattern->data);
    if (pattern->is_share) {
        free(pattern);
        return;
    }
    pcre2_match_context_free(pattern->context);
    pcre2_code_free(pattern->code);
    for (size_t i = 0; i < SCAN_LITERALS_MAX; i++)
        free(pattern->literals[i]);
    free(pattern->text);
    free(pattern);
}

/* -- matching -- */

/* 1 and where, 0, or -1: TIMEOUT. */
static int match(struct search_pattern *pattern, const char *subject, size_t size, size_t from, size_t *ret_start,
                 size_t *ret_end, struct error *err)
{
    int code = pcre2_match(pattern->code, (PCRE2_SPTR)subject, size, from, 0, pattern->data, pattern->context);
    const size_t *where = pcre2_get_ovector_pointer(pattern->data);

    if (code >= 0) {
        *ret_start = where[0];
        *ret_end = where[1];
        return 1;
    }
    if (code == PCRE2_ERROR_NOMATCH)
        return 0;
    return fail(err, TIMEOUT, "The expression takes too many steps");
}

static const char *line_start(const char *begin, const char *at)
{
    const char *newline = memrchr(begin, '\n', (size_t)(at - begin));

    return newline ? newline + 1 : begin;
}

static const char *line_end(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    return newline ? newline : end;
}

static int tell(const char *line, const char *stop, size_t column, const char **ret_line, size_t *ret_size,
                size_t *ret_column)
{
    *ret_line = line;
    *ret_size = (size_t)(stop - line);
    *ret_column = column;
    return 1;
}

/* By what every match begins with. */
static int next_by_scan(struct search_pattern *pattern, const char *at, const char *end, const char **ret_line,
                        size_t *ret_size, size_t *ret_column, struct error *err)
{
    const char *place;

    while ((place = scan_find(&pattern->scan, at, end))) {
        const char *line = line_start(at, place);
        const char *stop = line_end(place, end);
        size_t start = (size_t)(place - line);
        size_t match_end;
        int found = pattern->code ? match(pattern, line, (size_t)(stop - line), start, &start, &match_end, err) : 1;

        if (found != 0) {
            (void)tell(line, stop, start, ret_line, ret_size, ret_column);
            return found;
        }
        if (stop == end)
            return 0;
        at = stop + 1;
    }
    return 0;
}

static int next_by_line(struct search_pattern *pattern, const char *at, const char *end, const char **ret_line,
                        size_t *ret_size, size_t *ret_column, struct error *err)
{
    while (at < end) {
        const char *stop = line_end(at, end);
        size_t start = 0;
        size_t match_end;
        int found = match(pattern, at, (size_t)(stop - at), 0, &start, &match_end, err);

        if (found != 0) {
            (void)tell(at, stop, start, ret_line, ret_size, ret_column);
            return found;
        }
        at = stop + 1;
    }
    return 0;
}

/* Many lines at once; a match that goes over the end of its line is tried again on the line alone. */
static int next_by_piece(struct search_pattern *pattern, const char *at, const char *end, const char **ret_line,
                         size_t *ret_size, size_t *ret_column, struct error *err)
{
    while (at < end) {
        const char *piece = end - at > PIECE_BYTES ? line_end(at + PIECE_BYTES, end) : end;
        size_t start;
        size_t match_end;
        struct error too_slow = ERROR_INIT;
        int found = match(pattern, at, (size_t)(piece - at), 0, &start, &match_end, &too_slow);
        const char *stop;

        if (found < 0) {
            found = next_by_line(pattern, at, piece, ret_line, ret_size, ret_column, err);
            if (found != 0)
                return found;
        }
        if (found == 0 || at + start >= end) {
            at = piece + 1;
            continue;
        }
        stop = line_end(at + start, end);
        if (at + match_end <= stop) {
            const char *line = line_start(at, at + start);

            return tell(line, stop, (size_t)(at + start - line), ret_line, ret_size, ret_column);
        }
        at = line_start(at, at + start);
        found = next_by_line(pattern, at, stop, ret_line, ret_size, ret_column, err);
        if (found != 0)
            return found;
        at = stop + 1;
    }
    return 0;
}

int search_pattern_next(struct search_pattern *pattern, const char *at, const char *end, const char **ret_line,
                        size_t *ret_size, size_t *ret_column, struct error *err)
{
    if (pattern->has_scan)
        return next_by_scan(pattern, at, end, ret_line, ret_size, ret_column, err);
    return (pattern->crosses_lines ? next_by_line : next_by_piece)(pattern, at, end, ret_line, ret_size, ret_column,
                                                                   err);
}

/* -- globs -- */

struct search_glob {
    struct search_pattern expression;
    bool names_only;
};

static int translate_class(const char **at, const char *end, struct buf *out, struct error *err)
{
    const char *close = *at + 1;
    bool negated = close < end && (*close == '!' || *close == '^');

    close += negated;
    close += close < end && *close == ']';
    close = close < end ? memchr(close, ']', (size_t)(end - close)) : NULL;
    if (!close)
        return buf_append_str(out, "\\[", err);
    if (buf_append_str(out, negated ? "(?!/)[^" : "(?!/)[", err) < 0)
        return -1;
    for (const char *c = *at + 1 + negated; c < close; c++)
        if ((strchr("\\[]^", *c) && buf_append_str(out, "\\", err) < 0) || buf_append(out, c, 1, err) < 0)
            return -1;
    *at = close;
    return buf_append_str(out, "]", err);
}

static int translate_glob(const char *at, const char *end, struct buf *out, struct error *err)
{
    const char *begin = at;
    int braces = 0;
    int result = buf_append_str(out, "\\A", err);

    for (; at < end && result == 0; at++) {
        bool at_start = at == begin || at[-1] == '/';

        if (at_start && end - at >= 3 && memcmp(at, "**/", 3) == 0) {
            result = buf_append_str(out, "(?:.*/)?", err);
            at += 2;
        } else if (at_start && end - at == 2 && memcmp(at, "**", 2) == 0) {
            result = buf_append_str(out, ".+", err);
            at++;
        } else if (*at == '*') {
            result = buf_append_str(out, "[^/]*", err);
        } else if (*at == '?') {
            result = buf_append_str(out, "[^/]", err);
        } else if (*at == '[') {
            result = translate_class(&at, end, out, err);
        } else if (*at == '{' && memchr(at, '}', (size_t)(end - at))) {
            braces++;
            result = buf_append_str(out, "(?:", err);
        } else if (*at == '}' && braces) {
            braces--;
            result = buf_append_str(out, ")", err);
        } else if (*at == ',' && braces) {
            result = buf_append_str(out, "|", err);
        } else {
            if (*at == '\\' && at + 1 < end)
                at++;
            result = (unsigned char)*at > 127 ? buf_append(out, at, 1, err)
                                              : buf_append_format(out, err, "\\x{%x}", (unsigned char)*at);
        }
    }
    return result < 0 ? -1 : buf_append_str(out, "\\z", err);
}

int search_glob_new(const char *text, size_t size, struct search_glob **ret, struct error *err)
{
    auto_buf struct buf translated = BUF_INIT(1024 * 1024);
    struct search_glob *glob;
    uint32_t options = PCRE2_DOTALL;

    if (size == 0 || memchr(text, '\0', size))
        return fail(err, INVALID, "The glob is empty, or holds a NUL");
    if (translate_glob(text, text + size, &translated, err) < 0)
        return fail(err, INVALID, "The glob is too long");
    if (utf8_valid(text, size))
        options |= PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
    glob = alloc_zero(sizeof *glob);
    glob->names_only = !memchr(text, '/', size);
    if (compile(&glob->expression, buf_str(&translated), translated.size, options, err) < 0) {
        search_glob_free(glob);
        return fail(err, INVALID, "The glob is malformed");
    }
    *ret = glob;
    return 0;
}

void search_glob_free(struct search_glob *glob)
{
    if (!glob)
        return;
    pcre2_match_context_free(glob->expression.context);
    pcre2_match_data_free(glob->expression.data);
    pcre2_code_free(glob->expression.code);
    free(glob);
}

bool search_glob_matches(struct search_glob *glob, const char *path)
{
    const char *slash = glob->names_only ? strrchr(path, '/') : NULL;
    const char *subject = slash ? slash + 1 : path;
    struct error too_slow = ERROR_INIT;
    size_t start;
    size_t end;

    return match(&glob->expression, subject, strlen(subject), 0, &start, &end, &too_slow) > 0;
}
