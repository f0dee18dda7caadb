/* wire/wire_json.h: JSON written as the wire wants it: compact, UTF-8, non-ASCII unescaped, bad bytes as U+FFFD.
 *
 * A writer remembers its first failure (the answer is too large), so that an answer is written down as a list of its
 * members and judged once, by wire_writer_end(). Never blocks. Threads: one owner.
 */
#ifndef BERTH_WIRE_JSON_H
#define BERTH_WIRE_JSON_H

#include "buf.h"
#include "opt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_writer {
    struct buf *out;
    struct error err;
};

#define WIRE_WRITER(buffer)  \
    {                        \
        (buffer), ERROR_INIT \
    }
int wire_writer_end(const struct wire_writer *writer, struct error *err);

/* What is JSON already, as it is; after it a key of one's own with its colon, or a value, may follow. */
void wire_put_raw(struct wire_writer *writer, const char *json);

/* A value, with its key inside an object, with NULL in an array or at the top. Commas are put where they belong. */
void wire_put_open(struct wire_writer *writer, const char *key, char bracket); /* '{' or '[' */
void wire_put_close(struct wire_writer *writer, char bracket);
void wire_put_text(struct wire_writer *writer, const char *key, const char *text, size_t size);
void wire_put_str(struct wire_writer *writer, const char *key, const char *text); /* NULL: null */
void wire_put_int(struct wire_writer *writer, const char *key, int64_t value);
void wire_put_opt_int(struct wire_writer *writer, const char *key, struct opt_int value);
void wire_put_size(struct wire_writer *writer, const char *key, int64_t value); /* negative: null */
void wire_put_float(struct wire_writer *writer, const char *key, double value); /* as Python's repr(): 2.0 */
void wire_put_opt_float(struct wire_writer *writer, const char *key, struct opt_float value);
void wire_put_seconds(struct wire_writer *writer, const char *key, int64_t us);      /* 12.000345 */
void wire_put_milliseconds(struct wire_writer *writer, const char *key, int64_t us); /* one decimal */
void wire_put_time(struct wire_writer *writer, const char *key, int64_t unix_us);    /* ISO 8601, +00:00 */
void wire_put_bool(struct wire_writer *writer, const char *key, bool value);
void wire_put_null(struct wire_writer *writer, const char *key);

/* The inside of a JSON string, piece by piece: escapes what fits of `in` into `out` (max >= WIRE_ESCAPED_MAX to get on).
 * An unfinished character at the end waits for the next piece unless `is_last`. Returns the bytes written, *ret_taken
 * those read. */
enum { WIRE_ESCAPED_MAX = 6 };
size_t wire_escape(const char *in, size_t size, bool is_last, char *out, size_t max, size_t *ret_taken);
int wire_append_escaped(struct buf *out, const char *text, size_t size, struct error *err);

#endif
