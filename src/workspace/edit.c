#include "edit.h"

#include "utf8.h"

#include <string.h>

/* The next occurrence at or behind `at`, or NULL. An empty string is found at once, also at the very end. */
static const char *find(const char *at, const char *end, const char *old, size_t old_size)
{
    return old_size ? memmem(at, (size_t)(end - at), old, old_size) : at;
}

/* How far an occurrence of `old` at `at` moves us on; for an empty one the character behind it is passed as it is. */
static size_t stride(const char *at, const char *end, size_t old_size)
{
    size_t size = old_size;

    if (size == 0 && at < end)
        (void)utf8_next(at, (size_t)(end - at), &size);
    return size;
}

int64_t edit_count(const char *text, size_t size, const char *old, size_t old_size)
{
    const char *end = text + size;
    const char *at = text;
    int64_t count = 0;

    while ((at = find(at, end, old, old_size)) != NULL) {
        count++;
        if (at == end)
            break;
        at += stride(at, end, old_size);
    }
    return count;
}

int edit_replace(const char *text, size_t size, const char *old, size_t old_size, const char *new, size_t new_size,
                 bool all, struct buf *out, struct error *err)
{
    const char *end = text + size;
    const char *done = text;
    const char *at = text;

    while ((at = find(at, end, old, old_size)) != NULL) {
        if (buf_append(out, done, (size_t)(at - done), err) < 0 || buf_append(out, new, new_size, err) < 0)
            return -1;
        done = at + old_size;
        if (!all || at == end)
            break;
        at += stride(at, end, old_size);
    }
    return buf_append(out, done, (size_t)(end - done), err);
}
