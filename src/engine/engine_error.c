#include "engine_json.h"
#include "engine_private.h"
#include "utf8.h"

#include <string.h>

enum { REASON_MAX = 150, HEAD_MAX = 50 };

/* One line without control bytes, in valid UTF-8, as far as it goes into `size` bytes of `out`. */
static size_t one_line(char *out, size_t size, const char *text, size_t text_size)
{
    size_t used = 0;

    while (text_size > 0) {
        size_t bytes, length;
        uint32_t character = utf8_next(text, text_size, &bytes);
        char encoded[4];

        if (character < 0x20 || (character >= 0x7f && character < 0xa0))
            character = ' ';
        length = utf8_encode(character, encoded);
        if (used + length > size)
            break;
        if (character != ' ' || (used > 0 && out[used - 1] != ' ')) {
            memcpy(out + used, encoded, length);
            used += length;
        }
        text += bytes;
        text_size -= bytes;
    }
    while (used > 0 && out[used - 1] == ' ')
        used--;
    return used;
}

/* The engine wraps reasons: what went wrong in the end stands at the end. A long text keeps both ends. */
void engine_error_clean(char out[160], const char *text, size_t size)
{
    static const char gap[] = " ... ";
    const size_t tail_max = REASON_MAX - HEAD_MAX - (sizeof gap - 1);
    size_t used;

    if (size <= REASON_MAX) {
        out[one_line(out, REASON_MAX, text, size)] = '\0';
        return;
    }
    used = one_line(out, HEAD_MAX, text, size);
    memcpy(out + used, gap, sizeof gap - 1);
    used += sizeof gap - 1;
    text += size - tail_max;
    for (size = tail_max; size > 0 && ((unsigned char)*text & 0xc0) == 0x80; size--)
        text++; /* not in the middle of a character */
    out[used + one_line(out + used, tail_max, text, size)] = '\0';
}

/* What the engine says in its {"message": …}, or in plain text (a refused attach does). */
static void reason_of(const struct buf *body, char out[160])
{
    auto_engine_json struct json_object *root = NULL;
    struct error ignored = ERROR_INIT;
    const char *message = "";

    if (engine_json_parse(buf_str(body), body->size, &root, &ignored) < 0) {
        engine_error_clean(out, buf_str(body), body->size);
        return;
    }
    if (engine_json_string(root, "message", &message, &ignored) < 0)
        message = "";
    engine_error_clean(out, message, strlen(message));
}

int engine_error(const char *what, int status, const struct buf *body, struct error *err)
{
    char reason[160];

    reason_of(body, reason);
    if (reason[0] == '\0')
        (void)snprintf(reason, sizeof reason, "status %d", status);
    switch (status) {
    case 404:
        return fail(err, NOT_FOUND, "%s: %s", what, reason);
    case 409:
        return fail(err, CONFLICT, "%s: %s", what, reason);
    default:
        return fail(err, ENGINE, "%s: %s", what, reason);
    }
}
