#include "settings_private.h"

#include "utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char blanks[] = " \t\r\n\f\v";

/* What is left of `text` without white space around it, in a small buffer; -1 if that does not hold it or nothing is left. */
static int trim(const char *text, char *out, size_t size)
{
    size_t length;

    text += strspn(text, blanks);
    length = strlen(text);
    while (length && strchr(blanks, text[length - 1]))
        length--;
    if (length == 0 || length >= size)
        return -1;
    memcpy(out, text, length);
    out[length] = '\0';
    return 0;
}

const char *settings_shown(const char *value, char out[SETTINGS_SHOWN_BYTES])
{
    size_t good = strlen(value);
    size_t used = 0;

    if (good > SETTINGS_SHOWN_BYTES - 4)
        good = SETTINGS_SHOWN_BYTES - 4;
    good = utf8_valid_prefix(value, good);
    for (; used < good; used++)
        out[used] = (unsigned char)value[used] < ' ' || value[used] == 0x7f ? '?' : value[used];
    (void)snprintf(out + used, SETTINGS_SHOWN_BYTES - used, "%s", value[used] ? "..." : "");
    return out;
}

bool settings_is_printable(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return utf8_valid(text, strlen(text));
}

int settings_parse_int(const char *text, int64_t *ret, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];
    char number[64];
    char *end;
    long long value;

    if (trim(text, number, sizeof number) < 0)
        return fail(err, INVALID, "\"%s\" is not a whole number", settings_shown(text, shown));
    errno = 0;
    value = strtoll(number, &end, 10);
    if (errno || *end || end == number)
        return fail(err, INVALID, "\"%s\" is not a whole number%s", settings_shown(text, shown),
                    errno == ERANGE ? " of 64 bits" : "");
    *ret = value;
    return 0;
}

int settings_parse_float(const char *text, double *ret, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];
    char number[64];
    char *end;
    double value;

    /* strtod() would take "inf", "nan" and hexadecimal as well. */
    if (trim(text, number, sizeof number) < 0 || strspn(number, "+-.eE0123456789") != strlen(number))
        return fail(err, INVALID, "\"%s\" is not a number", settings_shown(text, shown));
    value = strtod(number, &end);
    if (*end || end == number || !isfinite(value))
        return fail(err, INVALID, "\"%s\" is not a number", settings_shown(text, shown));
    *ret = value;
    return 0;
}

int settings_parse_bool(const char *text, bool *ret, struct error *err)
{
    static const char *const words[][2] = {{"0", "1"}, {"false", "true"}, {"no", "yes"}, {"off", "on"}};
    char shown[SETTINGS_SHOWN_BYTES];
    char word[16];

    if (trim(text, word, sizeof word) == 0)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            for (int value = 0; value < 2; value++)
                if (strcasecmp(word, words[i][value]) == 0) {
                    *ret = value != 0;
                    return 0;
                }
    return fail(err, INVALID, "\"%s\" is not one of 1, 0, true, false, yes, no, on, off", settings_shown(text, shown));
}
