#include "size.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char digits[] = "0123456789";
static const char blanks[] = " \t\r\n\f\v";

/* What a unit multiplies by, as a shift: "", "b", "k", "kb", "kib" and so on, blanks behind it; -1 for anything else. */
static int unit_shift(const char *unit)
{
    static const char letters[] = "kmgtp";
    static const char *const endings[] = {"", "b", "ib"};
    const char *letter = *unit ? strchr(letters, *unit | 0x20) : NULL;
    size_t length;

    if (letter)
        unit++;
    length = strlen(unit);
    while (length && strchr(blanks, unit[length - 1]))
        length--;
    for (size_t i = 0; i < (letter ? 3 : 2); i++)
        if (strlen(endings[i]) == length && strncasecmp(unit, endings[i], length) == 0)
            return letter ? 10 * (int)(letter - letters + 1) : 0;
    return -1;
}

int size_parse(const char *text, int64_t *ret_bytes, struct error *err)
{
    const char *number;
    const char *unit;
    double bytes;
    int shift;

    *ret_bytes = 0;
    if (!text || !*text)
        return 0;
    number = text + strspn(text, blanks);
    unit = number + strspn(number, digits);
    if (unit > number && *unit == '.' && unit[1] >= '0' && unit[1] <= '9')
        unit += 1 + strspn(unit + 1, digits);
    shift = unit_shift(unit + strspn(unit, " "));
    if (unit == number || shift < 0)
        return fail(err, INVALID, "\"%.40s\" is not a size such as 512m or 1g", text);
    if (!memchr(number, '.', (size_t)(unit - number))) {
        long long whole;

        /* Exact where a double would round. */
        errno = 0;
        whole = strtoll(number, NULL, 10);
        if (errno || whole > INT64_MAX >> shift)
            return fail(err, INVALID, "\"%.40s\" is too large a size", text);
        *ret_bytes = (int64_t)whole << shift;
        return 0;
    }
    bytes = ldexp(strtod(number, NULL), shift);
    if (bytes >= 0x1p63)
        return fail(err, INVALID, "\"%.40s\" is too large a size", text);
    *ret_bytes = (int64_t)bytes;
    return 0;
}
