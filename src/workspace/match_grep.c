/* Compiled expressions and the lines they match. The only user of PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "alloc.h"
#include "match_private.h"
#include "scan.h"
#include "text.h"
#include "utf8.h"

#include <pcre2.h>
#include <string.h>

enum {
    STEPS_MAX = 2 * 1000 * 1000, /* of one search: milliseconds, however bad the expression */
    DEPTH_MAX_KIB = 8 * 1024,    /* memory of one search */
    PIECE_BYTES = 64 * 1024,     /* whole lines searched at once */
};

struct match_grep {
    pcre2_code *code;
    bool is_share; /* code and literal are another's */
    char *literal; /* stands in every match; "": none is known */
    struct scan scan;
    pcre2_match_data *data;
    pcre2_match_context *context;
    const char *at; /* the next line to look at */
    const char *end;
    const char *counted; /* newlines before this are in `number` */
    int64_t number;
};

static void prepare(struct match_grep *grep)
{
    grep->data = pcre2_match_data_create(1, NULL);
    grep->context = pcre2_match_context_create(NULL);
    if (!grep->data || !grep->context)
        abort();
    (void)pcre2_set_match_limit(grep->context, STEPS_MAX);
    (void)pcre2_set_heap_limit(grep->context, DEPTH_MAX_KIB);
}

static int compile(struct match_grep *grep, const struct buf *translated, struct error *err)
{
    pcre2_compile_context *how = pcre2_compile_context_create(NULL);
    size_t offset;
    int code;

    if (!how)
        abort();
    (void)pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    grep->code = pcre2_compile((PCRE2_SPTR)buf_str(translated), translated->size,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset, how);
    pcre2_compile_context_free(how);
    if (!grep->code) {
        char reason[120];

        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return fail(err, INVALID, "%s", reason);
    }
    (void)pcre2_jit_compile(grep->code, PCRE2_JIT_COMPLETE); /* where there is none, the interpreter serves */
    prepare(grep);
    return 0;
}

static int prepare_scan(struct match_grep *grep, enum match_syntax syntax, const char *pattern, size_t size,
                        struct error *err)
{
    auto_buf struct buf literal = BUF_INIT(PATTERN_MAX_BYTES);
    const char *text;

    if (match_grep_literal(syntax, pattern, size, &literal, err) < 0)
        return -1;
    text = grep->literal = buf_take(&literal, &size);
    if (size > 0)
        scan_init(&grep->scan, &text, &size, 1);
    return 0;
}

static int translate_literal(const char *pattern, size_t size, struct buf *out, struct error *err)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)pattern[i];

        if ((byte < 0x80 ? buf_append_format(out, err, "\\x{%x}", byte) : buf_append(out, pattern + i, 1, err)) < 0)
            return -1;
    }
    return 0;
}

int match_grep_new(enum match_syntax syntax, const char *pattern, size_t size, struct match_grep **ret,
                   struct error *err)
{
    auto_buf struct buf translated = BUF_INIT(TRANSLATION_MAX_BYTES);
    struct match_grep *grep;

    if (size > PATTERN_MAX_BYTES)
        return fail(err, INVALID, "Regular expression too big");
    if (!utf8_valid(pattern, size))
        return fail(err, INVALID, "the pattern is not UTF-8");
    if ((syntax == MATCH_BASIC ? match_grep_translate : translate_literal)(pattern, size, &translated, err) < 0)
        return err->code == ERROR_TOO_LARGE ? fail(err, INVALID, "Regular expression too big") : -1;
    grep = alloc_zero(sizeof *grep);
    if (compile(grep, &translated, err) < 0 || prepare_scan(grep, syntax, pattern, size, err) < 0) {
        match_grep_free(grep);
        return -1;
    }
    *ret = grep;
    return 0;
}

void match_grep_free(struct match_grep *grep)
{
    if (!grep)
        return;
    pcre2_match_context_free(grep->context);
    pcre2_match_data_free(grep->data);
    if (!grep->is_share) {
        pcre2_code_free(grep->code);
        free(grep->literal);
    }
    free(grep);
}

struct match_grep *match_grep_share(const struct match_grep *grep)
{
    struct match_grep *shared = alloc_zero(sizeof *shared);

    shared->code = grep->code;
    shared->literal = grep->literal;
    shared->scan = grep->scan;
    shared->is_share = true;
    prepare(shared);
    return shared;
}

bool match_grep_can_match(const struct match_grep *grep, const char *data, size_t size)
{
    return !*grep->literal || scan_find(&grep->scan, data, data + size);
}

int match_grep_text(const char *name, const char *data, size_t size, struct buf *scratch, const char **ret_text,
                    size_t *ret_size, struct error *err)
{
    if (size && memchr(data, '\0', size))
        return fail(err, INVALID, "[Binary File]");
    if (utf8_valid(data, size)) {
        *ret_text = data;
        *ret_size = size;
        return 0;
    }
    if (text_decode(name, data, size, scratch, err) < 0)
        return -1;
    *ret_text = buf_str(scratch);
    *ret_size = scratch->size;
    return 0;
}

void match_grep_start(struct match_grep *grep, const char *text, size_t size)
{
    grep->at = grep->counted = text;
    grep->end = text + size;
    grep->number = 1;
}

static const char *line_end(const struct match_grep *grep, const char *at)
{
    const char *newline = at < grep->end ? memchr(at, '\n', (size_t)(grep->end - at)) : NULL;

    return newline ? newline : grep->end;
}

/* The end of the whole lines that are searched at once. */
static const char *piece_end(const struct match_grep *grep)
{
    return grep->end - grep->at <= PIECE_BYTES ? grep->end : line_end(grep, grep->at + PIECE_BYTES);
}

/* The first match in [at, end): 1 with *ret_at, 0 none, -1 with *ret_code. */
static int search(struct match_grep *grep, const char *end, uint32_t options, const char **ret_at, int *ret_code)
{
    int code = pcre2_match(grep->code, (PCRE2_SPTR)grep->at, (size_t)(end - grep->at), 0, PCRE2_NO_UTF_CHECK | options,
                           grep->data, grep->context);

    if (code == PCRE2_ERROR_NOMATCH)
        return 0;
    *ret_code = code;
    if (code < 0)
        return -1;
    *ret_at = grep->at + pcre2_get_ovector_pointer(grep->data)[0];
    return 1;
}

/* The line that holds `at`. */
static void line_of(struct match_grep *grep, const char *at, struct match_line *ret)
{
    const char *before = at > grep->counted ? memrchr(grep->counted, '\n', (size_t)(at - grep->counted)) : NULL;
    const char *start = before ? before + 1 : grep->counted;
    const char *end = line_end(grep, at);

    for (const char *newline = grep->counted; newline < start; newline++) {
        newline = memchr(newline, '\n', (size_t)(start - newline));
        grep->number++;
    }
    grep->counted = start;
    *ret = (struct match_line){.line = start, .size = (size_t)(end - start), .number = grep->number};
    grep->at = end < grep->end ? end + 1 : grep->end;
}

int match_grep_next(struct match_grep *grep, const struct cancel *cancel, struct match_line *ret, struct error *err)
{
    while (grep->at < grep->end) {
        const char *end = piece_end(grep);
        const char *found;
        int code = 0;
        int matched = search(grep, end, 0, &found, &code);

        if (matched < 0) {
            /* Many lines may add up to too many steps, and compiled code has a small stack; one line alone must do. */
            end = line_end(grep, grep->at);
            matched = search(grep, end, PCRE2_NO_JIT, &found, &code);
        }
        if (matched < 0)
            return fail(err, TIMEOUT, "the expression takes too long (%d)", code);
        /* An empty match right behind a last newline is no line. */
        if (matched > 0 && !(found == grep->end && grep->end[-1] == '\n')) {
            line_of(grep, found, ret);
            return 1;
        }
        grep->at = end < grep->end ? end + 1 : grep->end;
        if (grep->at < grep->end && cancel_check(cancel, err) < 0)
            return -1;
    }
    return 0;
}
