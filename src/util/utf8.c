#include "utf8.h"

#include <string.h>

uint32_t utf8_next(const char *text, size_t size, size_t *ret_size)
{
    const unsigned char *in = (const unsigned char *)text;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t needed;
    uint32_t value;

    *ret_size = 1;
    if (in[0] < 0x80)
        return in[0];
    if (in[0] >= 0xc2 && in[0] <= 0xdf) {
        needed = 1;
        value = in[0] & 0x1fU;
    } else if ((in[0] & 0xf0) == 0xe0) {
        needed = 2;
        value = in[0] & 0x0fU;
        if (in[0] == 0xe0)
            low = 0xa0;
        if (in[0] == 0xed)
            high = 0x9f;
    } else if (in[0] >= 0xf0 && in[0] <= 0xf4) {
        needed = 3;
        value = in[0] & 0x07U;
        if (in[0] == 0xf0)
            low = 0x90;
        if (in[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0xfffd;
    }
    for (size_t i = 1; i <= needed; i++) {
        if (i >= size || in[i] < low || in[i] > high) {
            *ret_size = i;
            return 0xfffd;
        }
        value = value << 6 | (in[i] & 0x3fU);
        low = 0x80;
        high = 0xbf;
    }
    *ret_size = needed + 1;
    return value;
}

size_t utf8_encode(uint32_t character, char out[4])
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (char)(0xc0 | character >> 6);
        out[1] = (char)(0x80 | (character & 0x3f));
        return 2;
    }
    if (character < 0x10000) {
        out[0] = (char)(0xe0 | character >> 12);
        out[1] = (char)(0x80 | (character >> 6 & 0x3f));
        out[2] = (char)(0x80 | (character & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | character >> 18);
    out[1] = (char)(0x80 | (character >> 12 & 0x3f));
    out[2] = (char)(0x80 | (character >> 6 & 0x3f));
    out[3] = (char)(0x80 | (character & 0x3f));
    return 4;
}

size_t utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        uint64_t word;
        size_t length;

        /* Eight ASCII bytes at once: most text is that. */
        while (size - at >= 8) {
            memcpy(&word, text + at, 8);
            if (word & 0x8080808080808080ULL)
                break;
            at += 8;
        }
        if (at == size)
            break;
        if (utf8_next(text + at, size - at, &length) == 0xfffd &&
            !(length == 3 && memcmp(text + at, "\xef\xbf\xbd", 3) == 0))
            return at;
        at += length;
    }
    return at;
}

bool utf8_valid(const char *text, size_t size)
{
    return utf8_valid_prefix(text, size) == size;
}

int utf8_append_lossy(struct buf *out, const char *text, size_t size, struct error *err)
{
    while (size) {
        size_t good = utf8_valid_prefix(text, size);
        size_t bad;

        if (buf_append(out, text, good, err) < 0)
            return -1;
        text += good;
        size -= good;
        if (size == 0)
            break;
        (void)utf8_next(text, size, &bad);
        if (buf_append(out, "\xef\xbf\xbd", 3, err) < 0)
            return -1;
        text += bad;
        size -= bad;
    }
    return 0;
}

size_t utf8_count(const char *text, size_t size)
{
    size_t count = 0;

    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

size_t utf8_offset(const char *text, size_t size, size_t characters)
{
    size_t at = 0;

    while (at < size && characters--) {
        at++;
        while (at < size && ((unsigned char)text[at] & 0xc0) == 0x80)
            at++;
    }
    return at;
}
