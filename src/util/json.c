#include "json.h"

#include "buf.h"

#include "utf8.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, NUMBER_BYTES = 256 };

/* -- the grammar of RFC 8259 --
 *
 * json-c builds the objects but is no judge: even when told to be strict it takes NaN, Infinity, -01, "1.", control
 * characters in strings, cuts a key at \u0000, and makes U+FFFD of a lone surrogate. So the text is read here first. */

struct scan {
    const char *at;
    const char *end;
    bool lax;          /* json_parse_lax() */
    const char *wrong; /* set once it is known what is wrong */
};

static int refuse(struct scan *scan, const char *wrong)
{
    scan->wrong = wrong;
    return -1;
}

static int peek(const struct scan *scan)
{
    return scan->at < scan->end ? (unsigned char)*scan->at : -1;
}

static void skip_blanks(struct scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
        scan->at++;
}

static bool skip_digits(struct scan *scan)
{
    const char *first = scan->at;

    while (peek(scan) >= '0' && peek(scan) <= '9')
        scan->at++;
    return scan->at > first;
}

static int scan_word(struct scan *scan, const char *word)
{
    size_t size = strlen(word);

    if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0)
        return refuse(scan, "an unknown word");
    scan->at += size;
    return 0;
}

/* Does a double hold it? */
static bool is_finite(const char *number, size_t size)
{
    char text[NUMBER_BYTES];

    memcpy(text, number, size);
    text[size] = '\0';
    return isfinite(strtod(text, NULL));
}

static int scan_number(struct scan *scan)
{
    const char *first = scan->at;
    bool is_whole = true; /* those saturate when they are long */

    if (peek(scan) == '-')
        scan->at++;
    if (scan->lax && peek(scan) == 'I')
        return scan_word(scan, "Infinity");
    if (peek(scan) == '0')
        scan->at++;
    else if (!skip_digits(scan))
        return refuse(scan, "no value where one should be");
    if (peek(scan) == '.') {
        is_whole = false;
        scan->at++;
        if (!skip_digits(scan))
            return refuse(scan, "no digit behind a decimal point");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        is_whole = false;
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-')
            scan->at++;
        if (!skip_digits(scan))
            return refuse(scan, "no digit in an exponent");
    }
    if (is_whole)
        return 0;
    if (scan->at - first >= NUMBER_BYTES || !is_finite(first, (size_t)(scan->at - first))) {
        scan->at = first;
        return refuse(scan, "a number out of range");
    }
    return 0;
}

/* The four digits of \uXXXX; -1: there are none. */
static int scan_hex(struct scan *scan)
{
    int value = 0;

    for (int i = 0; i < 4; i++, scan->at++) {
        int c = peek(scan);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Behind a backslash. */
static int scan_escape(struct scan *scan, bool is_key)
{
    int unit;

    if (peek(scan) != 'u') {
        if (peek(scan) <= 0 || !strchr("\"\\/bfnrt", peek(scan)))
            return refuse(scan, "an unknown escape in a string");
        scan->at++;
        return 0;
    }
    scan->at++;
    unit = scan_hex(scan);
    if (unit < 0)
        return refuse(scan, "a bad \\u escape in a string");
    if (unit == 0 && is_key)
        return refuse(scan, "a NUL in a name");
    if (unit < 0xd800 || unit > 0xdfff)
        return 0;
    if (unit < 0xdc00 && scan->end - scan->at >= 2 && memcmp(scan->at, "\\u", 2) == 0) {
        const char *second = scan->at;

        scan->at += 2;
        unit = scan_hex(scan);
        if (unit >= 0xdc00 && unit <= 0xdfff)
            return 0;
        if (scan->lax)
            scan->at = second; /* an escape of its own */
    }
    if (scan->lax && unit >= 0)
        return 0;
    return refuse(scan, "half a surrogate pair in a string");
}

/* At the opening quote. */
static int scan_string(struct scan *scan, bool is_key)
{
    for (scan->at++; scan->at < scan->end;) {
        unsigned char c = (unsigned char)*scan->at;

        if (c < ' ')
            return refuse(scan, "a control character in a string");
        scan->at++;
        if (c == '"')
            return 0;
        if (c == '\\' && scan_escape(scan, is_key) < 0)
            return -1;
    }
    return refuse(scan, "a string without an end");
}

static int scan_value(struct scan *scan, int depth);

/* A name and its colon. */
static int scan_name(struct scan *scan)
{
    skip_blanks(scan);
    if (peek(scan) != '"')
        return refuse(scan, "no name in double quotes");
    if (scan_string(scan, true) < 0)
        return -1;
    skip_blanks(scan);
    if (peek(scan) != ':')
        return refuse(scan, "no colon behind a name");
    scan->at++;
    return 0;
}

/* At the opening bracket. */
static int scan_members(struct scan *scan, bool is_object, int depth)
{
    int closing = is_object ? '}' : ']';

    if (depth >= MAX_DEPTH)
        return refuse(scan, "nested too deep");
    scan->at++;
    skip_blanks(scan);
    if (peek(scan) == closing) {
        scan->at++;
        return 0;
    }
    for (;;) {
        if ((is_object && scan_name(scan) < 0) || scan_value(scan, depth + 1) < 0)
            return -1;
        skip_blanks(scan);
        if (peek(scan) != ',' && peek(scan) != closing)
            return refuse(scan, "no comma between two members");
        if (*scan->at++ == closing)
            return 0;
    }
}

static int scan_value(struct scan *scan, int depth)
{
    skip_blanks(scan);
    switch (peek(scan)) {
    case -1:
        return refuse(scan, "an end where a value should be");
    case '{':
        return scan_members(scan, true, depth);
    case '[':
        return scan_members(scan, false, depth);
    case '"':
        return scan_string(scan, false);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    default:
        return scan_number(scan);
    }
}

static int scan_document(struct scan *scan)
{
    if (scan_value(scan, 0) < 0)
        return -1;
    skip_blanks(scan);
    return scan->at == scan->end ? 0 : refuse(scan, "something behind the end");
}

/* -- */

static void cleanup_tokener(struct json_tokener **tokener)
{
    if (*tokener)
        json_tokener_free(*tokener);
}

static int parse(const char *text, size_t size, bool lax, struct json_object **ret, size_t *ret_offset,
                 struct error *err)
{
    auto_cleanup(cleanup_tokener) struct json_tokener *tokener = NULL;
    auto_json struct json_object *object = NULL;
    struct scan scan = {text, text + size, lax, NULL};
    size_t offset = utf8_valid_prefix(text, size);

    if (ret_offset)
        *ret_offset = offset;
    if (offset != size)
        return fail(err, INVALID, "There was an error parsing the body");
    if (size > INT_MAX)
        return fail(err, TOO_LARGE, "JSON of %zu bytes", size);
    if (scan_document(&scan) < 0) {
        if (ret_offset)
            *ret_offset = (size_t)(scan.at - text);
        return fail(err, UNPROCESSABLE, "JSON decode error: %s", scan.wrong);
    }
    tokener = json_tokener_new_ex(MAX_DEPTH + 1);
    if (!tokener)
        return fail(err, INTERNAL, "no memory for a JSON parser");
    object = json_tokener_parse_ex(tokener, text, (int)size);
    if (json_tokener_get_error(tokener) == json_tokener_continue)
        object = json_tokener_parse_ex(tokener, "", 1); /* the NUL: a number at the very end is finished by it */
    if (json_tokener_get_error(tokener) != json_tokener_success)
        return fail(err, UNPROCESSABLE, "JSON decode error: %s",
                    json_tokener_error_desc(json_tokener_get_error(tokener)));
    *ret = take_ptr(object);
    return 0;
}

int json_parse(const char *text, size_t size, struct json_object **ret, size_t *ret_offset, struct error *err)
{
    return parse(text, size, false, ret, ret_offset, err);
}

int json_parse_lax(const char *text, size_t size, struct json_object **ret, size_t *ret_offset, struct error *err)
{
    return parse(text, size, true, ret, ret_offset, err);
}

int json_append_string(struct buf *out, const char *text, struct error *err)
{
    size_t left = strlen(text);

    if (buf_append(out, "\"", 1, err) < 0)
        return -1;
    while (left > 0) {
        unsigned char c = (unsigned char)*text;
        size_t size = 1;
        int result;

        if (c == '"' || c == '\\')
            result = buf_append_format(out, err, "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            result = buf_append_format(out, err, "\\u%04x", c);
        else if (c < 0x80)
            result = buf_append(out, text, 1, err);
        else if (utf8_next(text, left, &size) == 0xfffd)
            result = buf_append_str(out, "\xef\xbf\xbd", err);
        else
            result = buf_append(out, text, size, err);
        if (result < 0)
            return -1;
        text += size;
        left -= size;
    }
    return buf_append(out, "\"", 1, err);
}
