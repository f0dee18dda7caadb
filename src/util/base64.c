#include "base64.h"

#include <stdint.h>
#include <string.h>

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Without padding; returns the number of characters. */
static size_t encode(const unsigned char *in, size_t size, const char *alphabet, char *out)
{
    char *start = out;

    for (; size >= 3; in += 3, size -= 3) {
        uint32_t word = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

        *out++ = alphabet[word >> 18];
        *out++ = alphabet[word >> 12 & 63];
        *out++ = alphabet[word >> 6 & 63];
        *out++ = alphabet[word & 63];
    }
    if (size) {
        uint32_t word = (uint32_t)in[0] << 16 | (size > 1 ? (uint32_t)in[1] << 8 : 0);

        *out++ = alphabet[word >> 18];
        *out++ = alphabet[word >> 12 & 63];
        if (size > 1)
            *out++ = alphabet[word >> 6 & 63];
    }
    return (size_t)(out - start);
}

int base64_encode(const void *data, size_t size, struct buf *out, struct error *err)
{
    size_t needed = (size + 2) / 3 * 4;
    char *space;
    size_t used;

    if (buf_reserve(out, needed, &space, err) < 0)
        return -1;
    used = encode(data, size, standard, space);
    while (used < needed)
        space[used++] = '=';
    buf_commit(out, needed);
    return 0;
}

void base64_url(const void *data, size_t size, char *out)
{
    out[encode(data, size, url_safe, out)] = '\0';
}

static int value_of(char c)
{
    const char *at = c ? memchr(standard, c, 64) : NULL;

    return at ? (int)(at - standard) : -1;
}

int base64_decode(const char *text, size_t size, struct buf *out, struct error *err)
{
    size_t padding = 0;
    char *space;
    char *end;

    if (size % 4 != 0)
        return fail(err, INVALID, "length is not a multiple of four");
    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    if (buf_reserve(out, size / 4 * 3, &space, err) < 0)
        return -1;
    end = space;
    for (size_t i = 0; i < size; i += 4) {
        size_t pad = i + 4 == size ? padding : 0;
        uint32_t word = 0;

        for (size_t k = 0; k < 4; k++) {
            int value = k >= 4 - pad ? 0 : value_of(text[i + k]);

            if (value < 0)
                return fail(err, INVALID, "character %zu is not of the alphabet", i + k);
            word = word << 6 | (uint32_t)value;
        }
        if ((pad == 1 && (word & 0xff)) || (pad == 2 && (word & 0xffff)))
            return fail(err, INVALID, "bits behind the end");
        *end++ = (char)(word >> 16);
        if (pad < 2)
            *end++ = (char)(word >> 8);
        if (pad < 1)
            *end++ = (char)word;
    }
    buf_commit(out, (size_t)(end - space));
    return 0;
}
