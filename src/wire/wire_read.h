/* wire/wire_read.h: fields of a request, read as the reference reads them, and the list of what is wrong with them.
 *
 * Numbers and booleans are taken laxly (5.0, "5", " 5 ", true are the integer 5; "yes" is true), strings strictly; unknown
 * fields are ignored, of a repeated one the last counts. What is wrong is gathered, all of it, for one 422
 * (wires/sandboxd-current.md, 1.1); the offending value is never repeated. Never blocks. Threads: one owner.
 */
#ifndef BERTH_WIRE_READ_H
#define BERTH_WIRE_READ_H

#include "buf.h"
#include "json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- what is wrong -- */
enum { WIRE_INVALID_MAX_BYTES = 64 * 1024 };

struct wire_invalid {
    struct buf items; /* JSON, comma separated; what does not fit any more is left out */
};
#define WIRE_INVALID_INIT                \
    {                                    \
        BUF_INIT(WIRE_INVALID_MAX_BYTES) \
    }
void wire_invalid_done(struct wire_invalid *invalid);
#define auto_wire_invalid auto_cleanup(wire_invalid_done)

/* Where: ["body", field, key, member or index]. What is not there is NULL, or negative. */
struct wire_at {
    const char *where;
    const char *field;
    const char *key;
    const char *member;
    int64_t index;
};
#define WIRE_AT(where, field)            \
    (struct wire_at)                     \
    {                                    \
        (where), (field), NULL, NULL, -1 \
    }
void wire_invalid_add(struct wire_invalid *invalid, struct wire_at at, const char *type, const char *message);
bool wire_invalid_any(const struct wire_invalid *invalid);

#define WIRE_NAME_PATTERN "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" /* id_name_valid() */
#define WIRE_RUN_PATTERN "^[0-9a-f]{32}$"                     /* id_run_valid() */
void wire_invalid_pattern(struct wire_invalid *invalid, struct wire_at at, const char *pattern);

/* -- fields of a JSON object -- */
struct wire_reader {
    struct json_object *object;
    struct wire_invalid *invalid;
    const char *field; /* of an object inside the body: where it lies (body, field, key); NULL, NULL for the body */
    const char *key;
};

enum wire_need {
    WIRE_REQUIRED,
    WIRE_OPTIONAL, /* may be missing, not null */
    WIRE_NULLABLE, /* may be missing or null */
};

/* Borrowed from the object; NUL-terminated behind `size`, and may hold NULs before. */
struct wire_text {
    const char *data; /* NULL: not there */
    size_t size;
};

/* false: the value is not there or not fit (told); *ret is untouched then. */
bool wire_read_text(const struct wire_reader *reader, const char *field, enum wire_need need, struct wire_text *ret);
bool wire_read_bool(const struct wire_reader *reader, const char *field, enum wire_need need, bool *ret);
bool wire_read_int(const struct wire_reader *reader, const char *field, enum wire_need need, int64_t minimum,
                   int64_t *ret);
bool wire_read_int_within(const struct wire_reader *reader, const char *field, enum wire_need need, int64_t minimum,
                          int64_t maximum, int64_t *ret);
/* Finite and above 0. */
bool wire_read_positive(const struct wire_reader *reader, const char *field, enum wire_need need, double *ret);
/* The same, but may be infinite: more than any ceiling. */
bool wire_read_seconds(const struct wire_reader *reader, const char *field, enum wire_need need, double *ret);
/* One element of a list, or one value of an object. */
bool wire_text_of(struct wire_invalid *invalid, struct wire_at at, struct json_object *value, struct wire_text *ret);
bool wire_has_nul(struct wire_text text);
/* Every field that is not one of the `known` (NULL-terminated) is told, as extra_forbidden. */
void wire_read_only(const struct wire_reader *reader, const char *const *known);
/* A field that is a list; its elements are told where they lie with .index set. NULL: not there, or told. */
struct json_object *wire_read_list(const struct wire_reader *reader, const char *field, enum wire_need need,
                                   size_t minimum, size_t maximum);
/* A field that is an object. NULL: not there, or told. */
struct json_object *wire_read_object(const struct wire_reader *reader, const char *field, enum wire_need need);

/* -- query values; `text` NULL: not there, *ret is untouched -- */
void wire_query_bool(struct wire_invalid *invalid, const char *key, const char *text, size_t size, bool *ret);
void wire_query_int(struct wire_invalid *invalid, const char *key, const char *text, size_t size, int64_t minimum,
                    int64_t *ret);

#endif
