/* POSIX basic regular expressions, as GNU grep 3.8 reads them, to PCRE2's. Words of errors are GNU's.
 *
 * The result is searched for in whole texts with PCRE2_MULTILINE: whatever could match a newline is kept from it, so that no
 * match ever crosses a line.
 */
#include "match_private.h"

#include "utf8.h"

#include <ctype.h>
#include <string.h>

enum { REPEAT_MAX = 32767, GROUPS_MAX = 64, DEPTH_MAX = 200, WRAPS_MAX = 100 };

struct translator {
    const char *at;
    const char *end;
    struct buf *out;
    size_t item;            /* where the last item that can be repeated starts in `out` */
    bool has_item;          /* is there one? Not at the start of an alternative */
    char repeated;          /* by which sign it is repeated already: 0, '*', '+', '?', '{' */
    unsigned wraps;         /* items that were wrapped to be repeated once more */
    unsigned groups;        /* opened so far */
    unsigned groups_before; /* in the alternatives (lines of the pattern) before this one */
    unsigned depth;
    size_t open_item[DEPTH_MAX];    /* `item` of each open group: where its "(" stands */
    unsigned open_group[DEPTH_MAX]; /* its number */
    uint64_t closed;                /* bit n: group n of this alternative is complete */
};

static int emit(struct translator *t, const char *text, struct error *err)
{
    return buf_append_str(t->out, text, err);
}

static int emit_character(struct translator *t, uint32_t character, struct error *err)
{
    char utf8[4];

    if (character < 0x80 && !isalnum((int)character) && character != '_')
        return buf_append_format(t->out, err, "\\x{%x}", (unsigned)character);
    return buf_append(t->out, utf8, utf8_encode(character, utf8), err);
}

static uint32_t take(struct translator *t)
{
    size_t size;
    uint32_t character = utf8_next(t->at, (size_t)(t->end - t->at), &size);

    t->at += size;
    return character;
}

static bool looking_at(const struct translator *t, const char *text)
{
    size_t size = strlen(text);

    return (size_t)(t->end - t->at) >= size && memcmp(t->at, text, size) == 0;
}

static void start_item(struct translator *t)
{
    t->item = t->out->size;
    t->has_item = true;
    t->repeated = 0;
}

/* -- brackets -- */

/* "[:name:]", "[=c=]" or "[.c.]" inside a bracket, its opening passed; the text in between. */
static int special_text(struct translator *t, char kind, const char **ret_text, size_t *ret_size, struct error *err)
{
    const char close[] = {kind, ']', '\0'};
    const char *end = memmem(t->at, (size_t)(t->end - t->at), close, 2);

    if (!end)
        return fail(err, INVALID, "Unmatched [, [^, [:, [., or [=");
    *ret_text = t->at;
    *ret_size = (size_t)(end - t->at);
    t->at = end + 2;
    return 0;
}

static int emit_class(struct translator *t, const char *name, size_t size, struct error *err)
{
    static const char *const names[] = {"alpha", "digit", "alnum", "upper", "lower", "space",
                                        "blank", "punct", "print", "graph", "cntrl", "xdigit"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0)
            return buf_append_format(t->out, err, "[:%s:]", names[i]);
    return fail(err, INVALID, "Invalid character class name");
}

/* One end of a range. *ret_is_class: it was a class and is emitted already. */
static int bracket_item(struct translator *t, uint32_t *ret_character, bool *ret_is_class, struct error *err)
{
    const char *text = NULL;
    size_t size = 0;
    size_t used;
    char kind;

    *ret_is_class = false;
    if (*t->at != '[' || t->end - t->at < 2 || !memchr(":=.", t->at[1], 3)) {
        *ret_character = take(t);
        return 0;
    }
    kind = t->at[1];
    t->at += 2;
    if (special_text(t, kind, &text, &size, err) < 0)
        return -1;
    if (kind == ':') {
        *ret_is_class = true;
        return emit_class(t, text, size, err);
    }
    if (size)
        *ret_character = utf8_next(text, size, &used);
    if (size == 0 || used != size)
        return fail(err, INVALID, "Invalid collation character");
    return 0;
}

/* After a character: "-" and the other end of a range, unless the "-" is the bracket's last. */
static int bracket_range(struct translator *t, uint32_t low, struct error *err)
{
    uint32_t high = low;
    bool is_class;

    if (t->end - t->at >= 2 && t->at[0] == '-' && t->at[1] != ']') {
        t->at++;
        if (bracket_item(t, &high, &is_class, err) < 0)
            return -1;
        if (is_class || high < low)
            return fail(err, INVALID, "Invalid range end");
    }
    return buf_append_format(t->out, err, high == low ? "\\x{%x}" : "\\x{%x}-\\x{%x}", low, high);
}

/* "[:space:]" for "[[:space:]]": GNU refuses what is surely a slip. */
static bool is_bare_class(const struct translator *t)
{
    const char *close = memchr(t->at, ']', (size_t)(t->end - t->at));

    return *t->at == ':' && close && close - t->at > 2 && close[-1] == ':';
}

/* The "[" has been passed. */
static int bracket(struct translator *t, struct error *err)
{
    const char *first;
    bool negated;

    if (t->at < t->end && is_bare_class(t))
        return fail(err, INVALID, "character class syntax is [[:space:]], not [:space:]");
    negated = looking_at(t, "^");
    t->at += negated;
    if (t->at == t->end)
        return fail(err, INVALID, "Invalid regular expression");
    if (emit(t, negated ? "[^\\n" : "[", err) < 0)
        return -1;
    for (first = t->at; t->at == first || !looking_at(t, "]");) {
        uint32_t low = 0;
        bool is_class;

        if (t->at == t->end)
            return fail(err, INVALID, "Unmatched [, [^, [:, [., or [=");
        if (bracket_item(t, &low, &is_class, err) < 0)
            return -1;
        if (!is_class && bracket_range(t, low, err) < 0)
            return -1;
    }
    t->at++;
    return emit(t, "]", err);
}

/* -- repetitions -- */

/* "a**", "a*\{2\}": what is repeated already is repeated as a whole; PCRE2 would take a second sign for something else. */
static int wrap(struct translator *t, struct error *err)
{
    auto_free char *before = strndup(t->out->data + t->item, t->out->size - t->item);

    if (!before)
        abort();
    if (++t->wraps > WRAPS_MAX)
        return fail(err, INVALID, "Regular expression too big");
    t->out->size = t->item;
    return buf_append_format(t->out, err, "(?:%s)", before);
}

static int repeat(struct translator *t, const char *how, struct error *err)
{
    bool both_simple = t->repeated && t->repeated != '{' && how[0] != '{';

    if (both_simple) { /* of the same kind it changes nothing, of two kinds it is any number */
        t->repeated = t->repeated == how[0] ? t->repeated : '*';
        t->out->data[t->out->size - 1] = t->repeated;
        return 0;
    }
    if (t->repeated && wrap(t, err) < 0)
        return -1;
    t->repeated = how[0];
    return emit(t, how, err);
}

static bool take_number(struct translator *t, long *ret)
{
    const char *start = t->at;

    for (*ret = 0; t->at < t->end && isdigit((unsigned char)*t->at); t->at++)
        *ret = *ret > REPEAT_MAX ? *ret : *ret * 10 + (*t->at - '0');
    return t->at > start;
}

/* The "\{" has been passed. */
static int interval(struct translator *t, struct error *err)
{
    const char *close = memmem(t->at, (size_t)(t->end - t->at), "\\}", 2);
    long low = 0;
    long high = -1;
    bool has_low;
    char how[40];

    if (!close)
        return fail(err, INVALID, "Unmatched \\{");
    has_low = take_number(t, &low);
    if (looking_at(t, ",")) {
        t->at++;
        if (!take_number(t, &high))
            high = -1;
    } else {
        high = has_low ? low : -2;
    }
    if (t->at != close || high == -2 || (high >= 0 && high < low))
        return fail(err, INVALID, "Invalid content of \\{\\}");
    if (low > REPEAT_MAX || high > REPEAT_MAX)
        return fail(err, INVALID, "Regular expression too big");
    t->at += 2;
    if (high < 0)
        (void)snprintf(how, sizeof how, "{%ld,}", low);
    else
        (void)snprintf(how, sizeof how, "{%ld,%ld}", low, high);
    return repeat(t, how, err);
}

/* -- groups and the rest of what follows a backslash -- */

static int open_group(struct translator *t, struct error *err)
{
    if (t->depth == DEPTH_MAX)
        return fail(err, INVALID, "Regular expression too big");
    t->open_item[t->depth] = t->out->size;
    t->open_group[t->depth++] = ++t->groups;
    t->has_item = false;
    return emit(t, "(", err);
}

static int close_group(struct translator *t, struct error *err)
{
    unsigned group;

    if (t->depth == 0)
        return fail(err, INVALID, "Unmatched ) or \\)");
    group = t->open_group[--t->depth] - t->groups_before;
    if (group < GROUPS_MAX)
        t->closed |= UINT64_C(1) << group;
    t->item = t->open_item[t->depth];
    t->has_item = true;
    t->repeated = 0;
    return emit(t, ")", err);
}

static int back_reference(struct translator *t, unsigned group, struct error *err)
{
    if (!(t->closed >> group & 1))
        return fail(err, INVALID, "Invalid back reference");
    start_item(t);
    return buf_append_format(t->out, err, "\\g{%u}", t->groups_before + group);
}

static int next_alternative(struct translator *t, struct error *err)
{
    t->has_item = false;
    return emit(t, "|", err);
}

/* The backslash has been passed. */
static int escape(struct translator *t, struct error *err)
{
    static const struct {
        char letter;
        const char *translation;
    } letters[] = {
        {'w', "[\\w]"},   {'W', "[^\\w\\n]"},      {'s', "[^\\S\\n]"},       {'S', "[\\S]"}, {'b', "(?:\\b)"},
        {'B', "(?:\\B)"}, {'<', "(?:\\b(?=\\w))"}, {'>', "(?:\\b(?<=\\w))"}, {'`', "(?:^)"}, {'\'', "(?:$)"},
    };
    uint32_t letter;

    if (t->at == t->end)
        return fail(err, INVALID, "Trailing backslash");
    letter = take(t);
    if (letter == '(')
        return open_group(t, err);
    if (letter == ')')
        return close_group(t, err);
    if (letter == '|')
        return next_alternative(t, err);
    if (letter >= '1' && letter <= '9')
        return back_reference(t, letter - '0', err);
    if (t->has_item && letter == '{')
        return interval(t, err);
    if (t->has_item && (letter == '+' || letter == '?'))
        return repeat(t, letter == '+' ? "+" : "?", err);
    start_item(t);
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letter == (uint32_t)(unsigned char)letters[i].letter)
            return emit(t, letters[i].translation, err);
    return emit_character(t, letter, err);
}

/* "^" is an anchor at the start of an alternative, "$" at its end. */
static bool at_start(const struct translator *t)
{
    return !t->has_item && (t->out->size == 0 || strchr("(|", t->out->data[t->out->size - 1]));
}

static bool at_end(const struct translator *t)
{
    return t->at == t->end || looking_at(t, "\\)") || looking_at(t, "\\|");
}

static int one(struct translator *t, struct error *err)
{
    bool is_at_start = at_start(t);
    uint32_t character = take(t);

    switch (character) {
    case '\\':
        return escape(t, err);
    case '^':
        if (is_at_start)
            return emit(t, "^", err);
        break;
    case '$':
        if (at_end(t)) {
            start_item(t); /* what follows can only end the alternative */
            return emit(t, "$", err);
        }
        break;
    case '*':
        if (t->has_item)
            return repeat(t, "*", err);
        break;
    case '.':
        start_item(t);
        return emit(t, ".", err);
    case '[':
        start_item(t);
        return bracket(t, err);
    default:
        break;
    }
    start_item(t);
    return emit_character(t, character, err);
}

/* One line of the pattern. */
static int alternative(struct translator *t, struct error *err)
{
    t->groups_before = t->groups;
    t->closed = 0;
    while (t->at < t->end)
        if (one(t, err) < 0)
            return -1;
    return t->depth ? fail(err, INVALID, "Unmatched ( or \\(") : 0;
}

int match_grep_translate(const char *pattern, size_t size, struct buf *out, struct error *err)
{
    const char *end = pattern + size;
    struct translator t = {.at = pattern, .out = out};

    for (;;) {
        const char *newline = t.at < end ? memchr(t.at, '\n', (size_t)(end - t.at)) : NULL;

        t.end = newline ? newline : end;
        if (alternative(&t, err) < 0)
            return -1;
        if (!newline)
            return buf_append(out, "", 0, err);
        t.at = newline + 1;
        if (next_alternative(&t, err) < 0)
            return -1;
    }
}
