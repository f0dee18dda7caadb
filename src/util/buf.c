#include "buf.h"

#include "alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

int buf_reserve(struct buf *buf, size_t size, char **ret_space, struct error *err)
{
    size_t needed;

    if (size > buf->max || buf->size > buf->max - size)
        return fail(err, TOO_LARGE, "more than %zu bytes", buf->max);
    needed = buf->size + size + 1;
    if (needed > buf->capacity) {
        size_t capacity = buf->capacity ? buf->capacity : FIRST_CAPACITY;
        char *data;

        while (capacity < needed)
            capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
        if (capacity > buf->max + 1)
            capacity = buf->max + 1;
        data = realloc(buf->data, capacity);
        if (!data)
            return fail(err, TOO_LARGE, "no memory for %zu bytes", capacity);
        buf->data = data;
        buf->capacity = capacity;
        data[buf->size] = '\0'; /* also when nothing is committed after all */
    }
    *ret_space = buf->data + buf->size;
    return 0;
}

void buf_commit(struct buf *buf, size_t size)
{
    buf->size += size;
    buf->data[buf->size] = '\0';
}

int buf_append(struct buf *buf, const void *data, size_t size, struct error *err)
{
    char *space;

    if (buf_reserve(buf, size, &space, err) < 0)
        return -1;
    if (size)
        memcpy(space, data, size);
    buf_commit(buf, size);
    return 0;
}

int buf_append_str(struct buf *buf, const char *text, struct error *err)
{
    return buf_append(buf, text, strlen(text), err);
}

int buf_append_format(struct buf *buf, struct error *err, const char *format, ...)
{
    va_list args;
    va_list again;
    char *space;
    int length;

    va_start(args, format);
    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || buf_reserve(buf, (size_t)length, &space, err) < 0) {
        va_end(again);
        return length < 0 ? fail(err, INTERNAL, "bad format") : -1;
    }
    (void)vsnprintf(space, (size_t)length + 1, format, again);
    va_end(again);
    buf_commit(buf, (size_t)length);
    return 0;
}

void buf_consume(struct buf *buf, size_t size)
{
    if (size == 0)
        return;
    memmove(buf->data, buf->data + size, buf->size - size + 1);
    buf->size -= size;
}

void buf_clear(struct buf *buf)
{
    buf->size = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

void buf_done(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->size = buf->capacity = 0;
}

char *buf_take(struct buf *buf, size_t *ret_size)
{
    char *data = buf->data ? buf->data : alloc_zero(1);

    if (ret_size)
        *ret_size = buf->size;
    buf->data = NULL;
    buf->size = buf->capacity = 0;
    return data;
}

const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}
