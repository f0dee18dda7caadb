#include "match.h"

#include "utf8.h"

#include <string.h>
#include <wctype.h>

static uint32_t next_character(const char **at)
{
    size_t size;
    uint32_t character = utf8_next(*at, strlen(*at), &size);

    /* A byte that is no UTF-8 stands for itself, beyond all characters. */
    if (character == 0xfffd && !(size == 3 && memcmp(*at, "\xef\xbf\xbd", 3) == 0)) {
        character = 0x110000 + (unsigned char)**at;
        size = 1;
    }
    *at += size;
    return character;
}

/* ASCII needs no decoding, and is most of what there is. */
static uint32_t take(const char **at)
{
    return (unsigned char)**at < 0x80 ? (unsigned char)*(*at)++ : next_character(at);
}

static bool in_class(const char *name, size_t size, uint32_t character)
{
    static const struct {
        const char *name;
        int (*is)(wint_t);
    } classes[] = {
        {"alpha", iswalpha}, {"digit", iswdigit}, {"alnum", iswalnum}, {"upper", iswupper},
        {"lower", iswlower}, {"space", iswspace}, {"blank", iswblank}, {"punct", iswpunct},
        {"print", iswprint}, {"graph", iswgraph}, {"cntrl", iswcntrl}, {"xdigit", iswxdigit},
    };

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == size && memcmp(classes[i].name, name, size) == 0)
            return classes[i].is((wint_t)character) != 0;
    return false;
}

/* One end of a range in a bracket, a backslash taken away. */
static uint32_t bracket_character(const char **at)
{
    if (**at == '\\' && (*at)[1] != '\0')
        (*at)++;
    return take(at);
}

/* The bracket whose '[' has been passed. -1: it has no end, so that the '[' is an ordinary character; else whether it matches,
 * with *ret_end behind it. */
static int match_bracket(const char *at, uint32_t character, const char **ret_end)
{
    bool negated = *at == '!' || *at == '^';
    bool matches = false;
    const char *first;

    at += negated;
    for (first = at; *at != ']' || at == first;) {
        const char *close = at[0] == '[' && at[1] == ':' ? strstr(at + 2, ":]") : NULL;
        uint32_t low;
        uint32_t high;

        if (*at == '\0')
            return -1;
        if (close) {
            matches |= in_class(at + 2, (size_t)(close - at - 2), character);
            at = close + 2;
            continue;
        }
        low = high = bracket_character(&at);
        if (at[0] == '-' && at[1] != ']' && at[1] != '\0') {
            at++;
            high = bracket_character(&at);
        }
        matches |= low <= character && character <= high;
    }
    *ret_end = at + 1;
    return matches != negated;
}

/* One item of the pattern (no star) against the character at *text; both move on if it matches. */
static bool match_one(const char **pattern, const char **text)
{
    const char *in_pattern = *pattern;
    const char *in_text = *text;
    uint32_t wanted;
    uint32_t character;

    if (*in_pattern == '\0' || *in_text == '\0')
        return false;
    character = take(&in_text);
    wanted = take(&in_pattern);
    if (wanted == '[') {
        const char *end = NULL;
        int matches = match_bracket(in_pattern, character, &end);

        if (matches == 0)
            return false;
        if (matches > 0) {
            *pattern = end;
            *text = in_text;
            return true;
        }
    } else if (wanted == '\\') {
        if (*in_pattern == '\0')
            return false;
        wanted = take(&in_pattern);
    } else if (wanted == '?') {
        wanted = character;
    }
    if (wanted != character)
        return false;
    *pattern = in_pattern;
    *text = in_text;
    return true;
}

bool match_glob(const char *pattern, const char *text)
{
    const char *after_star =
        NULL; /* only the last star can still give way: those before it matched as little as possible */
    const char *star_text = NULL;

    for (;;) {
        if (*pattern == '*') {
            while (*pattern == '*')
                pattern++;
            if (*pattern == '\0')
                return true;
            after_star = pattern;
            star_text = text;
        } else if (*pattern == '\0' && *text == '\0') {
            return true;
        } else if (!match_one(&pattern, &text)) {
            if (!after_star || *star_text == '\0')
                return false;
            (void)take(&star_text);
            pattern = after_star;
            text = star_text;
        }
    }
}
