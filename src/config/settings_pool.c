/* SANDBOXD_POOL: alias=count,… */
#include "settings_private.h"

#include "alloc.h"
#include "cleanup.h"

#include <string.h>

static struct runtime_setting *find(const struct settings *settings, const char *alias)
{
    for (size_t i = 0; i < settings->runtime_count; i++)
        if (strcmp(settings->runtime_list[i].alias, alias) == 0)
            return &settings->runtime_list[i];
    return NULL;
}

/* Blanks at both ends are left out. */
static char *trimmed(const char *text, size_t size)
{
    while (size && (*text == ' ' || *text == '\t')) {
        text++;
        size--;
    }
    while (size && (text[size - 1] == ' ' || text[size - 1] == '\t'))
        size--;
    return alloc_str_n(text, size);
}

static int one(struct settings *settings, const char *item, size_t size, struct error *err)
{
    const char *equals = memchr(item, '=', size);
    auto_free char *alias = trimmed(item, equals ? (size_t)(equals - item) : size);
    auto_free char *count = NULL;
    struct runtime_setting *runtime = find(settings, alias);
    char shown[SETTINGS_SHOWN_BYTES];
    int64_t value;

    if (!equals)
        return fail(err, INVALID, "\"%s\" is not alias=count", settings_shown(alias, shown));
    if (!runtime)
        return fail(err, INVALID, "\"%s\" is no runtime of SANDBOXD_RUNTIMES", settings_shown(alias, shown));
    count = trimmed(equals + 1, size - (size_t)(equals + 1 - item));
    if (settings_parse_int(count, &value, err) < 0)
        return -1;
    if (value < 0 || value > SETTINGS_POOL_MAX)
        return fail(err, INVALID, "%s: not from 0 to %d", alias, SETTINGS_POOL_MAX);
    runtime->pool = (unsigned)value;
    return 0;
}

int settings_parse_pool(struct settings *settings, struct error *err)
{
    const char *text = settings->pool;

    while (text && *text) {
        size_t size = strcspn(text, ",");

        if (one(settings, text, size, err) < 0)
            return error_prefix(err, "SANDBOXD_POOL");
        text += size;
        text += *text == ',';
    }
    return 0;
}
