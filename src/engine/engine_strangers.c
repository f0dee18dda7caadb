/* Containers that carry our label with another install's name: what a broker whose database is gone left, or another broker's. */
#include "alloc.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <string.h>

/* Where it has its workspace from, on the engine's host: the mount that is not the agent's. */
static int read_source(struct json_object *item, struct engine_stranger *ret, struct error *err)
{
    struct json_object *mounts;

    if (engine_json_array(item, "Mounts", &mounts, err) < 0)
        return -1;
    for (size_t i = 0; i < engine_json_count(mounts); i++) {
        struct json_object *mount = engine_json_item(mounts, i);
        const char *destination;
        const char *source;

        if (!engine_json_is_object(mount))
            continue;
        if (engine_json_string(mount, "Destination", &destination, err) < 0 ||
            engine_json_string(mount, "Source", &source, err) < 0)
            return -1;
        if (strcmp(destination, ENGINE_AGENT_MOUNT) != 0 && strlen(source) < sizeof ret->workspace_source)
            (void)snprintf(ret->workspace_source, sizeof ret->workspace_source, "%s", source);
    }
    return 0;
}

static int read_stranger(struct json_object *item, struct engine_stranger *ret, struct error *err)
{
    return engine_container_read_listed(item, &ret->container, err) < 0 || read_source(item, ret, err) < 0 ? -1 : 0;
}

int engine_strangers(struct engine *engine, const char *install, const struct cancel *cancel,
                     struct engine_stranger **ret_list, size_t *ret_count, struct error *err)
{
    static const char filter[] = "{\"label\":[\"" ENGINE_LABEL_INSTALL "\"]}";
    auto_engine_json struct json_object *root = NULL;
    auto_free struct engine_stranger *list = NULL;
    size_t count;
    size_t kept = 0;

    if (engine_container_list(engine, filter, cancel, &root, err) < 0)
        return -1;
    count = engine_json_count(root);
    list = alloc_array(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        if (read_stranger(engine_json_item(root, i), &list[kept], err) < 0)
            return -1;
        if (list[kept].container.label_install[0] && strcmp(list[kept].container.label_install, install) != 0)
            kept++;
        else
            list[kept] = (struct engine_stranger){.workspace_source = ""};
    }
    *ret_list = take_ptr(list);
    *ret_count = kept;
    return 0;
}
