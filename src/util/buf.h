/* util/buf.h: bytes that grow up to a maximum given at birth.
 *
 * The only home for anything a client, a sandbox or the engine can size. Always NUL-terminated behind `size`.
 * Threads: one owner. Errors: TOO_LARGE over the maximum, and when memory is refused.
 */
#ifndef BERTH_BUF_H
#define BERTH_BUF_H

#include "cleanup.h"
#include "error.h"

#include <stddef.h>

struct buf {
    char *data; /* NULL until something was appended */
    size_t size;
    size_t capacity;
    size_t max;
};

#define BUF_INIT(max_bytes)     \
    {                           \
        NULL, 0, 0, (max_bytes) \
    }

int buf_append(struct buf *buf, const void *data, size_t size, struct error *err);
int buf_append_str(struct buf *buf, const char *text, struct error *err);
int buf_append_format(struct buf *buf, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Room for `size` more bytes; *ret_space is borrowed until the next call; follow with buf_commit(). */
int buf_reserve(struct buf *buf, size_t size, char **ret_space, struct error *err);
void buf_commit(struct buf *buf, size_t size);
void buf_consume(struct buf *buf, size_t size); /* drop bytes from the front */
void buf_clear(struct buf *buf);                /* keeps the memory */
void buf_done(struct buf *buf);
char *buf_take(struct buf *buf, size_t *ret_size); /* caller frees; never NULL; the buffer is empty after */
const char *buf_str(const struct buf *buf);        /* "" when empty; borrowed */

#define auto_buf auto_cleanup(buf_done)

#endif
