#include "settings_private.h"

#include "size.h"

#include "alloc.h"
#include "id.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

struct list {
    struct runtime_setting *items;
    size_t count;
};

static void runtime_done(struct runtime_setting *runtime)
{
    free(runtime->alias);
    free(runtime->image);
    free(runtime->build.base_image);
    free(runtime->build.apt);
    free(runtime->build.pip);
    free(runtime->build.npm);
    free(runtime->build.setup);
    free(runtime->build.env);
    free(runtime->build.dockerfile);
    free(runtime->description);
    free(runtime->mem_limit);
    free(runtime->memswap_limit);
    free(runtime->network_mode);
    free(runtime->oci_runtime);
    *runtime = (struct runtime_setting){0};
}

void settings_runtimes_done(struct runtime_setting *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        runtime_done(&list[i]);
    free(list);
}

static void list_done(struct list *list)
{
    settings_runtimes_done(list->items, list->count);
}

/* White space off both ends, in place. */
static char *trim(char *text)
{
    static const char blanks[] = " \t\r\n";
    size_t size;

    text += strspn(text, blanks);
    size = strlen(text);
    while (size && strchr(blanks, text[size - 1]))
        size--;
    text[size] = '\0';
    return text;
}

/* -- one entry: both forms end here -- */

static int check_alias(const char *alias, struct error *err)
{
    if (!*alias)
        return fail(err, INVALID, "an alias is empty");
    if (strlen(alias) > ID_NAME_MAX)
        return fail(err, INVALID, "an alias is longer than %d bytes", ID_NAME_MAX);
    if (!settings_is_printable(alias) || strpbrk(alias, "/\"\\"))
        return fail(err, INVALID, "an alias holds a slash, a quote or a control character");
    return 0;
}

static int check_image(const char *image, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    if (!*image)
        return fail(err, INVALID, "its image is empty");
    if (!settings_is_printable(image) || strpbrk(image, " \"\\@") == image || strpbrk(image, " \"\\"))
        return fail(err, INVALID, "\"%s\" is not the name of an image", settings_shown(image, shown));
    return 0;
}

/* An alias of its own with room for its fields. On failure nothing is added. */
static int add_runtime(struct list *list, const char *alias, struct runtime_setting **ret, struct error *err)
{
    if (check_alias(alias, err) < 0)
        return -1;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].alias, alias) == 0)
            return fail(err, INVALID, "%s: is there twice", alias);
    list->items = alloc_grow(list->items, list->count + 1, sizeof *list->items);
    *ret = &list->items[list->count++];
    **ret = (struct runtime_setting){.alias = alloc_str(alias)};
    return 0;
}

static void set_text(char **field, const char *value)
{
    free(*field);
    *field = *value ? alloc_str(value) : NULL;
}

static int set_int(struct opt_int *field, const char *value, struct error *err)
{
    *field = (struct opt_int){*value != '\0', 0};
    return field->is_set ? settings_parse_int(value, &field->value, err) : 0;
}

static int set_float(struct opt_float *field, const char *value, struct error *err)
{
    *field = (struct opt_float){*value != '\0', 0};
    return field->is_set ? settings_parse_float(value, &field->value, err) : 0;
}

static int set_size(char **field, const char *value, struct error *err)
{
    int64_t bytes;

    if (size_parse(value, &bytes, err) < 0)
        return -1;
    set_text(field, value);
    return 0;
}

static int set_network(char **field, const char *value, struct error *err)
{
    if (*value && settings_check_network(value, err) < 0)
        return -1;
    set_text(field, value);
    return 0;
}

static int set_caps(bool *field, const char *value, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    if (*value && strcmp(value, "none") != 0)
        return fail(err, INVALID, "\"%s\" is not none, the one word it knows", settings_shown(value, shown));
    *field = *value != '\0';
    return 0;
}

static int set_description(char **field, const char *value, struct error *err)
{
    if (!settings_is_printable(value))
        return fail(err, INVALID, "holds a control character");
    set_text(field, value);
    return 0;
}

/* -- what an image is built of -- */

/* One more word or line; NULL: none. */
static void add_text(char **field, const char *text, char between)
{
    char *longer;

    if (!text)
        return;
    longer = *field ? alloc_format("%s%c%s", *field, between, text) : alloc_str(text);

    free(*field);
    *field = longer;
}

/* The field of a package manager; NULL: none that we know. */
static char **packages_of(struct runtime_setting *runtime, const char *manager)
{
    return strcmp(manager, "apt") == 0   ? &runtime->build.apt
           : strcmp(manager, "pip") == 0 ? &runtime->build.pip
           : strcmp(manager, "npm") == 0 ? &runtime->build.npm
                                         : NULL;
}

static int set_builtin(struct runtime_setting *runtime, const char *name, struct error *err)
{
    static const struct {
        const char *name, *image, *apt, *pip, *npm, *setup, *description;
    } builtins[] = {
#define BUILTIN(name, image, apt, pip, npm, setup, description) {name, image, apt, pip, npm, setup, description},
#include "runtimes.def"
    };
    char shown[SETTINGS_SHOWN_BYTES];

    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
        if (strcmp(builtins[i].name, name) != 0)
            continue;
        if (runtime->image)
            return fail(err, INVALID, "names its image twice");
        runtime->build.is_wanted = runtime->build.is_wanted || builtins[i].apt || builtins[i].pip || builtins[i].npm;
        runtime->image = alloc_str(builtins[i].image);
        add_text(&runtime->build.apt, builtins[i].apt, ' ');
        add_text(&runtime->build.pip, builtins[i].pip, ' ');
        add_text(&runtime->build.npm, builtins[i].npm, ' ');
        add_text(&runtime->build.setup, builtins[i].setup, '\n');
        if (!runtime->description)
            runtime->description = alloc_str(builtins[i].description);
        return 0;
    }
    return fail(err, INVALID, "\"@%s\" is no runtime that comes with this version", settings_shown(name, shown));
}

/* 1: it is a field of what is built, and set. 0: another one. */
static int set_build(struct runtime_setting *runtime, const char *field, const char *value, struct error *err)
{
    char **packages = packages_of(runtime, field);
    char shown[SETTINGS_SHOWN_BYTES];

    if (packages) {
        add_text(packages, value, ' ');
    } else if (strcmp(field, "setup") == 0) {
        if (strchr(value, '\n'))
            return fail(err, INVALID, "a command is one line");
        add_text(&runtime->build.setup, value, '\n');
    } else if (strcmp(field, "env") == 0) {
        if (strchr(value, '\n'))
            return fail(err, INVALID, "a value is one line");
        add_text(&runtime->build.env, value, '\n');
    } else if (strcmp(field, "base_image") == 0) {
        if (*value && check_image(value, err) < 0)
            return -1;
        set_text(&runtime->build.base_image, value);
    } else if (strcmp(field, "dockerfile") == 0) {
        if (*value && (*value != '/' || !settings_is_printable(value)))
            return fail(err, INVALID, "\"%s\" is not the absolute path of a folder", settings_shown(value, shown));
        set_text(&runtime->build.dockerfile, value);
    } else {
        return 0;
    }
    runtime->build.is_wanted = runtime->build.is_wanted || *value;
    return 1;
}

/* Once all fields are there. */
static int complete(struct runtime_setting *runtime, struct error *err)
{
    bool has_parts =
        runtime->build.apt || runtime->build.pip || runtime->build.npm || runtime->build.setup || runtime->build.env;

    if (!runtime->build.is_wanted)
        return runtime->image ? 0 : fail(err, INVALID, "%s: names no image", runtime->alias);
    if (runtime->build.dockerfile && (has_parts || runtime->build.base_image || runtime->image))
        return fail(err, INVALID, "%s: dockerfile says all there is: no image, packages or commands beside it",
                    runtime->alias);
    if (runtime->build.base_image && runtime->image)
        return fail(err, INVALID, "%s: has both image and base_image", runtime->alias);
    if (!runtime->build.base_image)
        runtime->build.base_image = take_ptr(runtime->image);
    if (!runtime->build.base_image && !runtime->build.dockerfile)
        return fail(err, INVALID, "%s: names no image to build on", runtime->alias);
    return 0;
}

/* An empty value is none: the service's default applies. Errors begin with what is wrong, without alias and field. */
static int set_value(struct runtime_setting *runtime, const char *field, const char *value, struct error *err)
{
    if (strcmp(field, "description") == 0)
        return set_description(&runtime->description, value, err);
    if (strcmp(field, "mem_limit") == 0)
        return set_size(&runtime->mem_limit, value, err);
    if (strcmp(field, "memswap_limit") == 0)
        return set_size(&runtime->memswap_limit, value, err);
    if (strcmp(field, "cpus") == 0)
        return set_float(&runtime->cpus, value, err);
    if (strcmp(field, "cpu_shares") == 0)
        return set_int(&runtime->cpu_shares, value, err);
    if (strcmp(field, "pids_limit") == 0)
        return set_int(&runtime->pids_limit, value, err);
    if (strcmp(field, "network_mode") == 0 || strcmp(field, "network") == 0)
        return set_network(&runtime->network_mode, value, err);
    if (strcmp(field, "oci_runtime") == 0) {
        set_text(&runtime->oci_runtime, value);
        return 0;
    }
    if (strcmp(field, "caps") == 0)
        return set_caps(&runtime->caps_none, value, err);
    switch (set_build(runtime, field, value, err)) {
    case 0:
        return fail(err, INVALID, "is not a field of a runtime");
    case 1:
        return 0;
    default:
        return -1;
    }
}

static int set_field(struct runtime_setting *runtime, const char *field, const char *value, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    if (set_value(runtime, field, value, err) < 0)
        return error_prefix(err, "%s: %s", runtime->alias, settings_shown(field, shown));
    return 0;
}

static int set_image(struct runtime_setting *runtime, const char *image, struct error *err)
{
    if (image[0] == '@')
        return set_builtin(runtime, image + 1, err) < 0 ? error_prefix(err, "%s", runtime->alias) : 0;
    if (check_image(image, err) < 0)
        return error_prefix(err, "%s", runtime->alias);
    set_text(&runtime->image, image);
    return 0;
}

/* -- alias=image[;field=value...],... -- */

static int list_entry(struct list *list, char *entry, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];
    char *modifiers = strchr(entry, ';');
    char *image;
    char *field;
    struct runtime_setting *runtime;

    if (modifiers)
        *modifiers++ = '\0';
    image = strchr(entry, '=');
    if (!image)
        return fail(err, INVALID, "\"%s\" has no '=' (alias=image)", settings_shown(trim(entry), shown));
    *image++ = '\0';
    if (add_runtime(list, trim(entry), &runtime, err) < 0 || (*trim(image) && set_image(runtime, trim(image), err) < 0))
        return -1;
    while ((field = strsep(&modifiers, ";"))) {
        char *value = strchr(field, '=');

        if (!*trim(field))
            continue;
        if (!value)
            return fail(err, INVALID, "%s: \"%s\" has no '=' (field=value)", runtime->alias,
                        settings_shown(trim(field), shown));
        *value++ = '\0';
        if (strcmp(trim(field), "image") == 0)
            return fail(err, INVALID, "%s: names its image twice", runtime->alias);
        if (set_field(runtime, trim(field), trim(value), err) < 0)
            return -1;
    }
    return complete(runtime, err);
}

static int parse_list(const char *text, struct list *list, struct error *err)
{
    auto_free char *copy = alloc_str(text);
    char *rest = copy;
    char *entry;

    while ((entry = strsep(&rest, ",")))
        if (*trim(entry) && list_entry(list, trim(entry), err) < 0)
            return -1;
    return 0;
}

/* -- a JSON object: alias -> image, or an object of fields -- */

/* The text that the list form would hold; NULL where the type cannot be meant. Borrowed. */
static const char *text_of(const char *field, struct json_object *value)
{
    bool is_number = strcmp(field, "cpus") == 0 || strcmp(field, "cpu_shares") == 0 || strcmp(field, "pids_limit") == 0;

    switch (json_object_get_type(value)) {
    case json_type_null:
        return "";
    case json_type_string:
        if (strlen(json_object_get_string(value)) != (size_t)json_object_get_string_len(value))
            return NULL; /* a NUL in it */
        return is_number && json_object_get_string_len(value) == 0 ? NULL : json_object_get_string(value);
    case json_type_int:
    case json_type_double:
        return is_number ? json_object_to_json_string(value) : NULL;
    default:
        return NULL;
    }
}

static int json_text(const struct runtime_setting *runtime, const char *field, struct json_object *value,
                     const char **ret, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    *ret = text_of(field, value);
    return *ret ? 0 : fail(err, INVALID, "%s: %s: has the wrong type", runtime->alias, settings_shown(field, shown));
}

/* A text, or a list of texts, into a field that takes several. */
static int json_texts(struct runtime_setting *runtime, const char *field, const char *to, struct json_object *value,
                      struct error *err)
{
    bool is_list = json_object_is_type(value, json_type_array);
    size_t count = is_list ? json_object_array_length(value) : 1;

    for (size_t i = 0; i < count; i++) {
        const char *text;

        if (json_text(runtime, field, is_list ? json_object_array_get_idx(value, i) : value, &text, err) < 0 ||
            (*text && set_field(runtime, to, text, err) < 0))
            return -1;
    }
    return 0;
}

static int json_env(struct runtime_setting *runtime, struct json_object *object, struct error *err)
{
    if (!json_object_is_type(object, json_type_object))
        return object ? fail(err, INVALID, "%s: env_vars: has the wrong type", runtime->alias) : 0;
    json_object_object_foreach(object, name, value)
    {
        auto_free char *line = NULL;
        const char *text;

        if (json_text(runtime, "env_vars", value, &text, err) < 0)
            return -1;
        line = alloc_format("%s=%s", name, text);
        if (set_field(runtime, "env", line, err) < 0)
            return -1;
    }
    return 0;
}

static int json_packages(struct runtime_setting *runtime, struct json_object *object, struct json_object *packages,
                         struct error *err)
{
    struct json_object *manager = NULL;
    const char *name = "pip";

    if (json_object_object_get_ex(object, "package_manager", &manager) && manager &&
        json_text(runtime, "package_manager", manager, &name, err) < 0)
        return -1;
    if (!packages_of(runtime, name))
        return fail(err, INVALID, "%s: package_manager: it is apt, pip or npm (others by setup_commands)",
                    runtime->alias);
    return json_texts(runtime, "packages", name, packages, err);
}

static int json_fields(struct runtime_setting *runtime, struct json_object *object, struct error *err);

/* The reference's name of a runtime that comes along, or its definition of one. */
static int json_runtime(struct runtime_setting *runtime, struct json_object *value, struct error *err)
{
    const char *name;

    if (json_object_is_type(value, json_type_object))
        return json_fields(runtime, value, err);
    if (json_text(runtime, "runtime", value, &name, err) < 0)
        return -1;
    name += *name == '@';
    return *name && set_builtin(runtime, name, err) < 0 ? error_prefix(err, "%s: runtime", runtime->alias) : 0;
}

static int json_field(struct runtime_setting *runtime, struct json_object *object, const char *field,
                      struct json_object *value, struct error *err)
{
    const char *text;

    /* Of the reference's definitions: names are ours, and where it works is the service's to say. */
    if (strcmp(field, "name") == 0 || strcmp(field, "work_dir") == 0 || strcmp(field, "cache_image") == 0 ||
        strcmp(field, "package_manager") == 0)
        return 0;
    if (strcmp(field, "runtime") == 0)
        return json_runtime(runtime, value, err);
    if (strcmp(field, "packages") == 0)
        return json_packages(runtime, object, value, err);
    if (strcmp(field, "setup_commands") == 0)
        return json_texts(runtime, field, "setup", value, err);
    if (strcmp(field, "env_vars") == 0)
        return json_env(runtime, value, err);
    if (packages_of(runtime, field))
        return json_texts(runtime, field, field, value, err);
    if (json_text(runtime, field, value, &text, err) < 0)
        return -1;
    if (strcmp(field, "image") != 0)
        return set_field(runtime, field, text, err);
    return value ? set_image(runtime, text, err) : 0;
}

static int json_fields(struct runtime_setting *runtime, struct json_object *object, struct error *err)
{
    json_object_object_foreach(object, field, value)
    {
        if (json_field(runtime, object, field, value, err) < 0)
            return -1;
    }
    return 0;
}

static int json_entry(struct list *list, const char *alias, struct json_object *value, struct error *err)
{
    struct runtime_setting *runtime;

    if (add_runtime(list, alias, &runtime, err) < 0)
        return -1;
    if (json_object_is_type(value, json_type_object))
        return json_fields(runtime, value, err) < 0 ? -1 : complete(runtime, err);
    if (!json_object_is_type(value, json_type_string) || !text_of("image", value))
        return fail(err, INVALID, "%s: is neither an image nor an object", alias);
    return set_image(runtime, json_object_get_string(value), err) < 0 ? -1 : complete(runtime, err);
}

static int parse_json(const char *text, struct list *list, struct error *err)
{
    auto_json struct json_object *object = NULL;
    size_t offset;

    if (json_parse(text, strlen(text), &object, &offset, err) < 0)
        return error_prefix(err, "near byte %zu", offset);
    json_object_object_foreach(object, alias, value)
    {
        if (json_entry(list, alias, value, err) < 0)
            return -1;
    }
    return 0;
}

int settings_parse_runtimes(const char *text, struct runtime_setting **ret_list, size_t *ret_count, struct error *err)
{
    auto_cleanup(list_done) struct list list = {NULL, 0};

    text += strspn(text, " \t\r\n");
    if ((*text == '{' ? parse_json(text, &list, err) : parse_list(text, &list, err)) < 0)
        return -1;
    if (list.count == 0)
        return fail(err, INVALID, "names no runtime");
    *ret_list = take_ptr(list.items);
    *ret_count = list.count;
    list.count = 0;
    return 0;
}
