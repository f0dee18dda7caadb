#include "alloc.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"
#include "log.h"

#include <string.h>

void engine_mounts_done(struct engine_mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++) {
        free(mounts->list[i].type);
        free(mounts->list[i].source);
        free(mounts->list[i].destination);
    }
    free(mounts->list);
    *mounts = (struct engine_mounts)ENGINE_MOUNTS_INIT;
}

static int read_mounts(struct json_object *list, struct engine_mounts *ret, struct error *err)
{
    ret->list = alloc_array(engine_json_count(list) + 1, sizeof *ret->list);
    for (size_t i = 0; i < engine_json_count(list); i++) {
        struct json_object *item = engine_json_item(list, i);
        const char *type, *source, *destination;

        if (engine_json_string(item, "Type", &type, err) < 0 || engine_json_string(item, "Source", &source, err) < 0 ||
            engine_json_string(item, "Destination", &destination, err) < 0)
            return -1;
        ret->list[ret->count++] = (struct engine_mount){
            .type = alloc_str(type), .source = alloc_str(source), .destination = alloc_str(destination)};
    }
    return 0;
}

int engine_is_on_network(struct engine *engine, const char *id, const char *network, const struct cancel *cancel,
                         bool *ret, struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    struct json_object *settings, *networks = NULL, *found = NULL;

    if (engine_container_inspect(engine, id, cancel, &root, err) < 0 ||
        engine_json_object(root, "NetworkSettings", &settings, err) < 0 ||
        (settings && engine_json_object(settings, "Networks", &networks, err) < 0) ||
        (networks && engine_json_object(networks, network, &found, err) < 0))
        return -1;
    *ret = found != NULL;
    return 0;
}

int engine_inspect_mounts(struct engine *engine, const char *id, const struct cancel *cancel, struct engine_mounts *ret,
                          struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    struct json_object *mounts;

    if (engine_container_inspect(engine, id, cancel, &root, err) < 0)
        return -1;
    if (engine_json_copy(root, "Id", ret->id, sizeof ret->id, err) < 0 ||
        engine_json_array(root, "Mounts", &mounts, err) < 0 || read_mounts(mounts, ret, err) < 0) {
        engine_mounts_done(ret);
        return -1;
    }
    return 0;
}

int engine_sees(struct engine *engine, const char *path, const struct cancel *cancel, enum engine_sight *ret,
                struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_buf struct buf answer = BUF_INIT(ENGINE_BODY_MAX);
    struct engine_version version;
    int status;

    if (engine_version(engine, cancel, &version, err) < 0)
        return -1;
    *ret = ENGINE_UNTOLD;
    if (version.is_podman)
        return 0;
    if (buf_append_str(&target, "/containers/create", err) < 0 || engine_template_probe(path, &body, err) < 0 ||
        engine_request(engine, METRIC_ENGINE_PROBE, "POST", &target, &body, cancel, &status, &answer, err) < 0)
        return -1;
    if (status == 404) {
        *ret = ENGINE_SEEN; /* it got as far as the image */
    } else if (status == 400 && strstr(buf_str(&answer), "bind source path does not exist")) {
        *ret = ENGINE_NOT_SEEN;
    } else {
        struct error why = ERROR_INIT;

        (void)engine_error("cannot ask the engine for a path of its host", status, &answer, &why);
        log_warn("engine.untold", log_s("path", path), log_e(&why));
    }
    return 0;
}
