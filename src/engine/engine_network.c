#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <stdio.h>
#include <string.h>

/* "172.18.0.0/16, fd00::/64", as far as it fits. */
static int read_subnets(struct json_object *root, struct engine_network *ret, struct error *err)
{
    struct json_object *ipam, *list;
    size_t used = 0;

    if (engine_json_object(root, "IPAM", &ipam, err) < 0 || (ipam && engine_json_array(ipam, "Config", &list, err) < 0))
        return -1;
    for (size_t i = 0; ipam && i < engine_json_count(list); i++) {
        const char *subnet;
        int size;

        if (engine_json_string(engine_json_item(list, i), "Subnet", &subnet, err) < 0)
            return -1;
        size = snprintf(ret->subnets + used, sizeof ret->subnets - used, "%s%s", used ? ", " : "", subnet);
        if (size < 0 || (size_t)size >= sizeof ret->subnets - used)
            break;
        used += (size_t)size;
    }
    return 0;
}

static int read_network(struct json_object *root, struct engine_network *ret, struct error *err)
{
    struct json_object *options;
    const char *icc = "";

    if (engine_json_copy(root, "Name", ret->name, sizeof ret->name, err) < 0 ||
        engine_json_copy(root, "Driver", ret->driver, sizeof ret->driver, err) < 0 ||
        engine_json_bool(root, "Internal", &ret->internal, err) < 0 || read_subnets(root, ret, err) < 0 ||
        engine_json_object(root, "Options", &options, err) < 0 ||
        (options && engine_json_string(options, "com.docker.network.bridge.enable_icc", &icc, err) < 0))
        return -1;
    ret->apart = strcmp(icc, "false") == 0;
    return 0;
}

int engine_network_inspect(struct engine *engine, const char *name, const struct cancel *cancel,
                           struct engine_network *ret, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    struct engine_network found = {0};
    int status;

    if (buf_append_str(&target, "/networks/", err) < 0 || net_http_escape(&target, name, err) < 0 ||
        engine_request(engine, METRIC_ENGINE_NETWORK, "GET", &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    if (status != 200 && status != 404)
        return engine_error("cannot inspect the network", status, &body, err);
    if (status == 200 &&
        (engine_json_parse(buf_str(&body), body.size, &root, err) < 0 || read_network(root, &found, err) < 0))
        return -1;
    if (strcmp(found.name, name) != 0) /* the engine takes the beginning of an id for a name */
        return fail(err, NOT_FOUND, "the engine has no network %.60s", name);
    *ret = found;
    return 0;
}
