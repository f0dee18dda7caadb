#include "wire_json.h"

#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes that stand for themselves inside a JSON string. */
static const bool is_plain[256] = {[' '] = true, ['!'] = true, ['#' ... '['] = true, [']' ... 0x7f] = true};

static size_t plain_run(const char *in, size_t max)
{
    size_t count = 0;

    while (count < max && is_plain[(unsigned char)in[count]])
        count++;
    return count;
}

static size_t escape_ascii(char c, char *out)
{
    static const char digits[] = "0123456789abcdef";
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *found = c ? strchr(from, c) : NULL;

    out[0] = '\\';
    if (found) {
        out[1] = to[found - from];
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = digits[(unsigned char)c >> 4];
    out[5] = digits[(unsigned char)c & 15];
    return 6;
}

size_t wire_escape(const char *in, size_t size, bool is_last, char *out, size_t max, size_t *ret_taken)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t taken = 0;
    size_t written = 0;

    for (;;) {
        size_t room = max - written;
        size_t plain = plain_run(in + taken, size - taken < room ? size - taken : room);
        size_t length;

        memcpy(out + written, in + taken, plain);
        written += plain;
        taken += plain;
        if (taken == size || max - written < WIRE_ESCAPED_MAX)
            break;
        if ((unsigned char)in[taken] < 0x80) {
            written += escape_ascii(in[taken++], out + written);
            continue;
        }
        if (utf8_next(in + taken, size - taken, &length) == 0xfffd &&
            !(length == 3 && memcmp(in + taken, replacement, 3) == 0)) {
            if (!is_last && taken + length == size)
                break;
            memcpy(out + written, replacement, 3);
            written += 3;
        } else {
            memcpy(out + written, in + taken, length);
            written += length;
        }
        taken += length;
    }
    *ret_taken = taken;
    return written;
}

int wire_append_escaped(struct buf *out, const char *text, size_t size, struct error *err)
{
    while (size) {
        size_t room = size + WIRE_ESCAPED_MAX;
        size_t taken;
        char *space;

        if (buf_reserve(out, room, &space, err) < 0)
            return -1;
        buf_commit(out, wire_escape(text, size, true, space, room, &taken));
        text += taken;
        size -= taken;
    }
    return 0;
}

int wire_writer_end(const struct wire_writer *writer, struct error *err)
{
    if (writer->err.code == ERROR_NONE)
        return 0;
    *err = writer->err;
    return -1;
}

static void put(struct wire_writer *writer, const char *text, size_t size)
{
    if (writer->err.code == ERROR_NONE)
        (void)buf_append(writer->out, text, size, &writer->err);
}

static void put_quoted(struct wire_writer *writer, const char *text, size_t size)
{
    put(writer, "\"", 1);
    if (writer->err.code == ERROR_NONE)
        (void)wire_append_escaped(writer->out, text, size, &writer->err);
    put(writer, "\"", 1);
}

/* What goes before a value: a comma, unless it is the first one, and its key. */
static void put_key(struct wire_writer *writer, const char *key)
{
    if (writer->out->size && !strchr("{[:", writer->out->data[writer->out->size - 1]))
        put(writer, ",", 1);
    if (!key)
        return;
    put_quoted(writer, key, strlen(key));
    put(writer, ":", 1);
}

static void put_plain(struct wire_writer *writer, const char *key, const char *value)
{
    put_key(writer, key);
    put(writer, value, strlen(value));
}

void wire_put_raw(struct wire_writer *writer, const char *json)
{
    put(writer, json, strlen(json));
}

void wire_put_open(struct wire_writer *writer, const char *key, char bracket)
{
    put_key(writer, key);
    put(writer, &bracket, 1);
}

void wire_put_close(struct wire_writer *writer, char bracket)
{
    put(writer, &bracket, 1);
}

void wire_put_text(struct wire_writer *writer, const char *key, const char *text, size_t size)
{
    put_key(writer, key);
    put_quoted(writer, text, size);
}

void wire_put_str(struct wire_writer *writer, const char *key, const char *text)
{
    if (text)
        wire_put_text(writer, key, text, strlen(text));
    else
        wire_put_null(writer, key);
}

/* Listings are made of numbers: they are written without printf. `width` digits at least; returns behind the last one. */
static char *write_digits(char *out, uint64_t value, int width)
{
    char reversed[20];
    int count = 0;

    do {
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (width-- > count)
        *out++ = '0';
    while (count > 0)
        *out++ = reversed[--count];
    return out;
}

void wire_put_int(struct wire_writer *writer, const char *key, int64_t value)
{
    char text[24] = "-";
    char *digits = text + (value < 0);

    *write_digits(digits, value < 0 ? -(uint64_t)value : (uint64_t)value, 1) = '\0';
    put_plain(writer, key, text);
}

void wire_put_opt_int(struct wire_writer *writer, const char *key, struct opt_int value)
{
    if (value.is_set)
        wire_put_int(writer, key, value.value);
    else
        wire_put_null(writer, key);
}

void wire_put_size(struct wire_writer *writer, const char *key, int64_t value)
{
    wire_put_opt_int(writer, key, (struct opt_int){value >= 0, value});
}

void wire_put_float(struct wire_writer *writer, const char *key, double value)
{
    char text[40];
    int digits = 15;

    do
        (void)snprintf(text, sizeof text - 2, "%.*g", digits, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    if (!strpbrk(text, ".en"))
        memcpy(text + strlen(text), ".0", 3);
    put_plain(writer, key, text);
}

void wire_put_opt_float(struct wire_writer *writer, const char *key, struct opt_float value)
{
    if (value.is_set)
        wire_put_float(writer, key, value.value);
    else
        wire_put_null(writer, key);
}

void wire_put_seconds(struct wire_writer *writer, const char *key, int64_t us)
{
    char text[40];

    if (us < 0)
        us = 0;
    (void)snprintf(text, sizeof text, "%lld.%06lld", (long long)(us / 1000000), (long long)(us % 1000000));
    put_plain(writer, key, text);
}

void wire_put_milliseconds(struct wire_writer *writer, const char *key, int64_t us)
{
    int64_t tenths = us < 0 ? 0 : (us + 50) / 100;
    char text[40];

    (void)snprintf(text, sizeof text, "%lld.%lld", (long long)(tenths / 10), (long long)(tenths % 10));
    put_plain(writer, key, text);
}

void wire_put_time(struct wire_writer *writer, const char *key, int64_t unix_us)
{
    int64_t us = unix_us % 1000000;
    time_t seconds = (time_t)(unix_us / 1000000);
    struct tm parts;
    char text[40];
    char *out = text;

    if (us < 0) {
        us += 1000000;
        seconds--;
    }
    /* What Python's datetime cannot hold, no client can read. */
    if (!gmtime_r(&seconds, &parts) || parts.tm_year < 1 - 1900 || parts.tm_year > 9999 - 1900) {
        wire_put_null(writer, key);
        return;
    }
    *out++ = '"';
    out = write_digits(out, (uint64_t)parts.tm_year + 1900, 4);
    *out++ = '-';
    out = write_digits(out, (uint64_t)parts.tm_mon + 1, 2);
    *out++ = '-';
    out = write_digits(out, (uint64_t)parts.tm_mday, 2);
    *out++ = 'T';
    out = write_digits(out, (uint64_t)parts.tm_hour, 2);
    *out++ = ':';
    out = write_digits(out, (uint64_t)parts.tm_min, 2);
    *out++ = ':';
    out = write_digits(out, (uint64_t)parts.tm_sec, 2);
    if (us) {
        *out++ = '.';
        out = write_digits(out, (uint64_t)us, 6);
    }
    memcpy(out, "+00:00\"", 8);
    put_plain(writer, key, text);
}

void wire_put_bool(struct wire_writer *writer, const char *key, bool value)
{
    put_plain(writer, key, value ? "true" : "false");
}

void wire_put_null(struct wire_writer *writer, const char *key)
{
    put_plain(writer, key, "null");
}
