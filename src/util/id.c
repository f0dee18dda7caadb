#include "id.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool id_name_valid(const char *text, size_t size)
{
    if (size < 1 || size > ID_NAME_MAX || !is_alnum(text[0]))
        return false;
    for (size_t i = 1; i < size; i++)
        if (!is_alnum(text[i]) && text[i] != '.' && text[i] != '_' && text[i] != '-')
            return false;
    return true;
}

bool id_run_valid(const char *text, size_t size)
{
    if (size != ID_RUN_BYTES)
        return false;
    for (size_t i = 0; i < size; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

void id_random_bytes(void *out, size_t size)
{
    unsigned char *bytes = out;

    while (size) {
        ssize_t got = getrandom(bytes, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            abort(); /* a kernel without randomness cannot make tokens */
        bytes += got;
        size -= (size_t)got;
    }
}

void id_random_hex(char *out, size_t digits)
{
    static const char hex[] = "0123456789abcdef";

    id_random_bytes(out, digits);
    for (size_t i = 0; i < digits; i++)
        out[i] = hex[(unsigned char)out[i] & 15];
    out[digits] = '\0';
}
