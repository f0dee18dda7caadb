#include "engine_json.h"

#include "alloc.h"
#include "json.h"

#include <string.h>

void engine_json_free(struct json_object *value)
{
    (void)json_object_put(value);
}

int engine_json_parse(const char *text, size_t size, struct json_object **ret_value, struct error *err)
{
    struct error why = ERROR_INIT;

    if (json_parse(text, size, ret_value, NULL, &why) < 0)
        return fail(err, ENGINE, "the engine's answer cannot be read: %s", why.text);
    return 0;
}

/* 1: *ret is a member of that type. 0: absent or null. */
static int member(struct json_object *object, const char *name, enum json_type type, struct json_object **ret,
                  struct error *err)
{
    struct json_object *value = NULL;

    if (!json_object_is_type(object, json_type_object))
        return fail(err, ENGINE, "the engine's answer holds no object where %s should be", name);
    if (!json_object_object_get_ex(object, name, &value) || !value)
        return 0;
    if (!json_object_is_type(value, type))
        return fail(err, ENGINE, "the engine's answer has a %s of another type than agreed", name);
    *ret = value;
    return 1;
}

int engine_json_object(struct json_object *object, const char *name, struct json_object **ret, struct error *err)
{
    *ret = NULL;
    return member(object, name, json_type_object, ret, err) < 0 ? -1 : 0;
}

int engine_json_array(struct json_object *object, const char *name, struct json_object **ret, struct error *err)
{
    *ret = NULL;
    return member(object, name, json_type_array, ret, err) < 0 ? -1 : 0;
}

int engine_json_string(struct json_object *object, const char *name, const char **ret, struct error *err)
{
    struct json_object *value;
    int found = member(object, name, json_type_string, &value, err);

    if (found < 0)
        return -1;
    *ret = found ? json_object_get_string(value) : "";
    if (found && strlen(*ret) != (size_t)json_object_get_string_len(value))
        return fail(err, ENGINE, "the engine's answer has a NUL in %s", name);
    return 0;
}

int engine_json_int(struct json_object *object, const char *name, int64_t *ret, struct error *err)
{
    struct json_object *value;
    int found = member(object, name, json_type_int, &value, err);

    if (found < 0)
        return -1;
    *ret = found ? json_object_get_int64(value) : 0;
    return 0;
}

int engine_json_bool(struct json_object *object, const char *name, bool *ret, struct error *err)
{
    struct json_object *value;
    int found = member(object, name, json_type_boolean, &value, err);

    if (found < 0)
        return -1;
    *ret = found && json_object_get_boolean(value);
    return 0;
}

int engine_json_copy(struct json_object *object, const char *name, char *field, size_t size, struct error *err)
{
    const char *text;
    size_t length;

    if (engine_json_string(object, name, &text, err) < 0)
        return -1;
    length = strlen(text);
    if (length >= size)
        return fail(err, ENGINE, "the engine's answer has a %s of %zu bytes", name, length);
    memcpy(field, text, length + 1);
    return 0;
}

bool engine_json_is_object(struct json_object *value)
{
    return json_object_is_type(value, json_type_object);
}

bool engine_json_is_array(struct json_object *value)
{
    return json_object_is_type(value, json_type_array);
}

size_t engine_json_count(struct json_object *array)
{
    return array ? json_object_array_length(array) : 0;
}

struct json_object *engine_json_item(struct json_object *array, size_t index)
{
    return json_object_array_get_idx(array, index);
}

const char *engine_json_item_string(struct json_object *array, size_t index)
{
    struct json_object *value = json_object_array_get_idx(array, index);

    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

void engine_json_each(struct json_object *object,
                      void (*visit)(const char *name, struct json_object *value, void *context), void *context)
{
    json_object_object_foreach(object, name, value) visit(name, value, context);
}

/* Out of memory on small things aborts (util/alloc.h). */
static struct json_object *must(struct json_object *value)
{
    if (!value)
        abort();
    return value;
}

static void put(struct json_object *object, const char *name, struct json_object *value)
{
    if (json_object_object_add(object, name, must(value)) < 0)
        abort();
}

static void add(struct json_object *array, struct json_object *value)
{
    if (json_object_array_add(array, must(value)) < 0)
        abort();
}

struct json_object *engine_json_new_object(void)
{
    return must(json_object_new_object());
}

struct json_object *engine_json_put_object(struct json_object *object, const char *name)
{
    struct json_object *value = must(json_object_new_object());

    put(object, name, value);
    return value;
}

struct json_object *engine_json_put_array(struct json_object *object, const char *name)
{
    struct json_object *value = must(json_object_new_array());

    put(object, name, value);
    return value;
}

void engine_json_put_string(struct json_object *object, const char *name, const char *text)
{
    if (text)
        put(object, name, json_object_new_string(text));
}

void engine_json_put_int(struct json_object *object, const char *name, int64_t value)
{
    put(object, name, json_object_new_int64(value));
}

void engine_json_put_positive(struct json_object *object, const char *name, int64_t value)
{
    if (value > 0)
        engine_json_put_int(object, name, value);
}

void engine_json_put_bool(struct json_object *object, const char *name, bool value)
{
    put(object, name, json_object_new_boolean(value));
}

void engine_json_add_string(struct json_object *array, const char *text)
{
    add(array, json_object_new_string(text));
}

struct json_object *engine_json_add_object(struct json_object *array)
{
    struct json_object *value = must(json_object_new_object());

    add(array, value);
    return value;
}

int engine_json_write(struct json_object *value, struct buf *out, struct error *err)
{
    size_t size = 0;
    const char *text = json_object_to_json_string_length(value, JSON_C_TO_STRING_PLAIN, &size);

    if (!text)
        abort();
    return buf_append(out, text, size, err);
}

int engine_json_filter_label(const char *label, const char *value, const char *type, struct buf *out, struct error *err)
{
    auto_engine_json struct json_object *root = engine_json_new_object();
    auto_free char *text = alloc_format("%s=%s", label, value);

    engine_json_add_string(engine_json_put_array(root, "label"), text);
    if (type)
        engine_json_add_string(engine_json_put_array(root, "type"), type);
    return engine_json_write(root, out, err);
}
