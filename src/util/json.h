/* util/json.h: strict reading of JSON (RFC 8259) over json-c, and its cleanup.
 *
 * Used where JSON comes from outside: wire/, config/. Depth 32 at most. Refused beside what is no JSON: invalid UTF-8, a NUL in
 * a name, half a surrogate pair, a fraction or power that no double holds. Duplicate names: the last wins. An integer over 64
 * bits saturates. Strings may hold NUL: take their length. Never blocks.
 */
#ifndef BERTH_JSON_H
#define BERTH_JSON_H

#include "cleanup.h"
#include "error.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

static inline void cleanup_json(struct json_object **object)
{
    if (*object)
        (void)json_object_put(*object);
}
#define auto_json auto_cleanup(cleanup_json)

/* UNPROCESSABLE when it is no JSON, too deep, or followed by something; INVALID when it is not UTF-8. A JSON `null`
 * gives 0 with *ret NULL. Caller frees with json_object_put(). *ret_offset (may be NULL): where it went wrong. */
int json_parse(const char *text, size_t size, struct json_object **ret, size_t *ret_offset, struct error *err);

/* The same, and what clients in Python may send beyond the RFC: Infinity (readers of numbers judge it), and half a surrogate
 * pair, which becomes U+FFFD. */
int json_parse_lax(const char *text, size_t size, struct json_object **ret, size_t *ret_offset, struct error *err);

/* Text between quotes, escaped; what is no UTF-8 becomes U+FFFD. */
struct buf;
int json_append_string(struct buf *out, const char *text, struct error *err);

/* A member: false if it is not there. A null member gives true with *ret NULL. Borrowed. */
static inline bool json_member(struct json_object *object, const char *key, struct json_object **ret)
{
    return json_object_object_get_ex(object, key, ret);
}

#endif
