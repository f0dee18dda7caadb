/* What an event says of a command. */
#include "utf8.h"
#include "wire_private.h"

#include <string.h>

struct target {
    char *out;
    size_t size;
};

/* Appends whole characters of valid UTF-8 while there is room; false once there is none. */
static bool add(struct target *target, const char *text, size_t size)
{
    size_t room = WIRE_TARGET_BYTES - 1 - target->size;
    size_t fits = size <= room ? size : utf8_valid_prefix(text, room);

    memcpy(target->out + target->size, text, fits);
    target->size += fits;
    target->out[target->size] = '\0';
    return fits == size;
}

static bool is_safe(const char *text)
{
    return *text &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")] == '\0';
}

static bool add_quoted(struct target *target, const char *text)
{
    if (!add(target, "'", 1))
        return false;
    for (;;) {
        size_t size = strcspn(text, "'");

        if (!add(target, text, size))
            return false;
        if (!text[size])
            return add(target, "'", 1);
        if (!add(target, "'\"'\"'", 5))
            return false;
        text += size + 1;
    }
}

void wire_quote_argv(const char *const *argv, size_t argc, char out[static WIRE_TARGET_BYTES])
{
    struct target target = {out, 0};

    out[0] = '\0';
    for (size_t i = 0; i < argc; i++) {
        if (i && !add(&target, " ", 1))
            return;
        if (is_safe(argv[i]) ? !add(&target, argv[i], strlen(argv[i])) : !add_quoted(&target, argv[i]))
            return;
    }
}

size_t wire_quote_text(const char *text, size_t size, char out[static WIRE_TARGET_BYTES])
{
    struct target target = {out, 0};
    const char *end = text + size;

    out[0] = '\0';
    while (text < end) {
        const char *nul = memchr(text, '\0', (size_t)(end - text));

        if (!add(&target, text, (size_t)((nul ? nul : end) - text)) || (nul && !add(&target, "\xef\xbf\xbd", 3)))
            break;
        text = nul ? nul + 1 : end;
    }
    return target.size;
}
