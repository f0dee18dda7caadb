/* engine/engine_json.h: the engine's JSON, strictly: the only file of this room that knows json-c.
 *
 * Reading: bounded depth, the whole text, valid UTF-8; a member of another type than asked for is an error, an absent
 * or null one is not. Writing: values are copied; nothing is made by printf. Never blocks. Errors: ENGINE (what came is
 * not as agreed).
 */
#ifndef BERTH_ENGINE_JSON_H
#define BERTH_ENGINE_JSON_H

#include "buf.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

void engine_json_free(struct json_object *value);
DEFINE_CLEANUP(engine_json, struct json_object *, engine_json_free)
#define auto_engine_json auto_cleanup(cleanup_engine_json)

/* Caller frees *ret_value. */
int engine_json_parse(const char *text, size_t size, struct json_object **ret_value, struct error *err);

/* All borrow from `object`, which must be an object, else ENGINE. Absent and null: NULL, "", 0, false. */
int engine_json_object(struct json_object *object, const char *name, struct json_object **ret, struct error *err);
int engine_json_array(struct json_object *object, const char *name, struct json_object **ret, struct error *err);
int engine_json_string(struct json_object *object, const char *name, const char **ret, struct error *err);
int engine_json_int(struct json_object *object, const char *name, int64_t *ret, struct error *err);
int engine_json_bool(struct json_object *object, const char *name, bool *ret, struct error *err);
/* The string into a field of `size` bytes; one that does not fit, or holds a NUL, is an error: nothing is cut. */
int engine_json_copy(struct json_object *object, const char *name, char *field, size_t size, struct error *err);

bool engine_json_is_object(struct json_object *value);
bool engine_json_is_array(struct json_object *value);
size_t engine_json_count(struct json_object *array); /* of an array; NULL: 0 */
struct json_object *engine_json_item(struct json_object *array, size_t index);
const char *engine_json_item_string(struct json_object *array, size_t index); /* NULL: no string */
/* Calls visit for each member of an object. */
void engine_json_each(struct json_object *object,
                      void (*visit)(const char *name, struct json_object *value, void *context), void *context);

/* Writing. Containers given to a parent belong to it. NULL text writes nothing, 0 in put_positive neither. */
struct json_object *engine_json_new_object(void);
struct json_object *engine_json_put_object(struct json_object *object, const char *name);
struct json_object *engine_json_put_array(struct json_object *object, const char *name);
void engine_json_put_string(struct json_object *object, const char *name, const char *text);
void engine_json_put_int(struct json_object *object, const char *name, int64_t value);
void engine_json_put_positive(struct json_object *object, const char *name, int64_t value);
void engine_json_put_bool(struct json_object *object, const char *name, bool value);
void engine_json_add_string(struct json_object *array, const char *text);
struct json_object *engine_json_add_object(struct json_object *array);
int engine_json_write(struct json_object *value, struct buf *out, struct error *err);
/* {"label": ["<label>=<value>"], "type": ["<type>"]}, the `filters` of lists and events; type NULL: none. */
int engine_json_filter_label(const char *label, const char *value, const char *type, struct buf *out,
                             struct error *err);

#endif
