#include "text.h"

#include "utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* Names that never fail to decode: the wire's list, and what Python's mimetypes calls text (classic contract, section
 * 4). */
static const char *const text_extensions[] = {
    "csv", "json", "log",  "md",   "toml", "txt", "xml", "yaml", "yml", "c",   "cpp",  "cs",  "css",
    "go",  "h",    "html", "java", "js",   "jsx", "php", "py",   "rb",  "rs",  "sh",   "sql", "ts",
    "tsx", "bat",  "etx",  "htm",  "ksh",  "mjs", "n3",  "pl",   "rtx", "sgm", "sgml", "tsv", "vcf",
};

/* Behind the last dot; "" for none. */
static const char *extension_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && !strchr(dot, '/') ? dot + 1 : "";
}

static bool has_text_extension(const char *name)
{
    for (size_t i = 0; i < sizeof text_extensions / sizeof *text_extensions; i++)
        if (strcasecmp(extension_of(name), text_extensions[i]) == 0)
            return true;
    return false;
}

/* One encoding of 16 or 32 bit units. */
struct units {
    size_t unit_bytes;
    bool big_endian;
};

static uint32_t unit_at(const struct units *units, const unsigned char *at)
{
    uint32_t value = 0;

    for (size_t i = 0; i < units->unit_bytes; i++)
        value |= (uint32_t)at[i] << 8 * (units->big_endian ? units->unit_bytes - 1 - i : i);
    return value;
}

/* The character at `at`; *ret_size 0: malformed. */
static uint32_t character_at(const struct units *units, const unsigned char *at, size_t left, size_t *ret_size)
{
    uint32_t unit;
    uint32_t low;

    *ret_size = 0;
    if (left < units->unit_bytes)
        return 0;
    unit = unit_at(units, at);
    if (unit < 0xd800 || (unit > 0xdfff && unit <= 0x10ffff)) {
        *ret_size = units->unit_bytes;
        return unit;
    }
    if (units->unit_bytes != 2 || unit > 0xdbff || left < 4)
        return 0;
    low = unit_at(units, at + 2);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *ret_size = 4;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* Characters on their way to UTF-8, a few thousand at a time. */
struct encoder {
    struct buf *out;
    size_t used;
    char pending[4096];
};

static int encoder_flush(struct encoder *encoder, struct error *err)
{
    size_t used = encoder->used;

    encoder->used = 0;
    return buf_append(encoder->out, encoder->pending, used, err);
}

static int encoder_put(struct encoder *encoder, uint32_t character, struct error *err)
{
    if (encoder->used + 4 > sizeof encoder->pending && encoder_flush(encoder, err) < 0)
        return -1;
    encoder->used += utf8_encode(character, encoder->pending + encoder->used);
    return 0;
}

/* The next character, U+FFFD for what is none, which is counted; *ret_size as far as that goes. */
static uint32_t next_character(const struct units *units, const unsigned char *at, size_t left, size_t *ret_size,
                               size_t *bad)
{
    uint32_t character = character_at(units, at, left, ret_size);

    if (*ret_size)
        return character;
    ++*bad;
    *ret_size = left < units->unit_bytes ? left : units->unit_bytes;
    return 0xfffd;
}

/* 1: decoded; 0: not of this encoding (more than one in a hundred characters bad, and more than one at all), `out` is as
 * it was; -1. */
static int decode_units(const struct units *units, const char *data, size_t size, struct buf *out, struct error *err)
{
    const unsigned char *at = (const unsigned char *)data;
    struct encoder encoder = {.out = out};
    size_t characters = 0;
    size_t bad = 0;
    size_t used;

    for (size_t i = 0; i < size; i += used, characters++)
        (void)next_character(units, at + i, size - i, &used, &bad);
    if (bad >= (characters / 100 > 2 ? characters / 100 : 2))
        return 0;
    for (size_t i = 0; i < size; i += used)
        if (encoder_put(&encoder, next_character(units, at + i, size - i, &used, &bad), err) < 0)
            return -1;
    return encoder_flush(&encoder, err) < 0 ? -1 : 1;
}

static int decode_latin1(const char *data, size_t size, struct buf *out, struct error *err)
{
    struct encoder encoder = {.out = out};

    for (size_t i = 0; i < size; i++)
        if (encoder_put(&encoder, (unsigned char)data[i], err) < 0)
            return -1;
    return encoder_flush(&encoder, err);
}

static bool starts_with(const char *data, size_t size, const char *mark, size_t mark_size)
{
    return size >= mark_size && memcmp(data, mark, mark_size) == 0;
}

int text_decode(const char *name, const char *data, size_t size, struct buf *out, struct error *err)
{
    static const struct {
        const char *mark;
        size_t mark_size;
        struct units units;
    } marks[] = {
        {"\xff\xfe\0\0", 4, {4, false}}, /* before UTF-16, whose mark it starts with */
        {"\0\0\xfe\xff", 4, {4, true}},
        {"\xff\xfe", 2, {2, false}},
        {"\xfe\xff", 2, {2, true}},
    };

    if (strcasecmp(extension_of(name), "pdf") == 0) /* its source is no text to a reader */
        return fail(err, INVALID, "Failed to parse PDF: no text can be taken from it here");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        int done = 0;

        if (starts_with(data, size, marks[i].mark, marks[i].mark_size))
            done = decode_units(&marks[i].units, data + marks[i].mark_size, size - marks[i].mark_size, out, err);
        if (done)
            return done < 0 ? -1 : 0;
    }
    if (starts_with(data, size, "\xef\xbb\xbf", 3)) {
        data += 3;
        size -= 3;
    }
    if (utf8_valid(data, size))
        return buf_append(out, data, size, err);
    if (has_text_extension(name))
        return decode_latin1(data, size, out, err);
    return fail(err, INVALID, "[Binary File]");
}

/* Bytes of the line end at `at`, 0 if there is none. */
static size_t line_end_at(const char *at, size_t left)
{
    switch ((unsigned char)*at) {
    case '\r':
        return left > 1 && at[1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case 0x1c:
    case 0x1d:
    case 0x1e:
        return 1;
    case 0xc2: /* U+0085 */
        return left > 1 && (unsigned char)at[1] == 0x85 ? 2 : 0;
    case 0xe2: /* U+2028, U+2029 */
        return left > 2 && (unsigned char)at[1] == 0x80 &&
                       ((unsigned char)at[2] == 0xa8 || (unsigned char)at[2] == 0xa9)
                   ? 3
                   : 0;
    default:
        return 0;
    }
}

/* May a line end start with this byte? */
static const bool may_end[256] = {
    ['\n'] = true, ['\v'] = true, ['\f'] = true, ['\r'] = true, [0x1c] = true,
    [0x1d] = true, [0x1e] = true, [0xc2] = true, [0xe2] = true,
};

/* The line at `text`; *ret_end: bytes of its end. */
static size_t line_size(const char *text, size_t size, size_t *ret_end)
{
    for (size_t i = 0; i < size; i++)
        if (may_end[(unsigned char)text[i]] && (*ret_end = line_end_at(text + i, size - i)) > 0)
            return i;
    *ret_end = 0;
    return size;
}

int text_slice(const char *text, size_t size, int64_t offset, int64_t limit, struct buf *out, struct error *err)
{
    int64_t stop = limit > INT64_MAX - offset ? INT64_MAX : offset + limit;
    int64_t line = 0;

    for (size_t at = 0; at < size; line++) {
        size_t end;
        size_t length = line_size(text + at, size - at, &end);

        if (line >= offset && line < stop &&
            ((line > offset && buf_append(out, "\n", 1, err) < 0) || buf_append(out, text + at, length, err) < 0))
            return -1;
        at += length + end;
    }
    if (offset >= line)
        return buf_append_str(out, "[End of file]", err);
    if (line > stop)
        return buf_append_format(out, err, "\n\n[... %" PRId64 " more lines. Use offset=%" PRId64 " to read more.]",
                                 line - stop, stop);
    return 0;
}
