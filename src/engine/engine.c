#include "engine.h"

#include "alloc.h"
#include "clock.h"
#include "engine_json.h"
#include "engine_private.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

/* API versions as numbers, so that 1.9 comes before 1.41: minor only, the major has been 1 for ever. */
enum { API_OLDEST = 41, API_NEWEST = 47 };

/* The youngest known ways out of a runtime's container: a broker on something older says so. Distributions mend old
 * versions without changing the number, so it is a warning. */
static const struct {
    const char *component;
    int fixed[3];
    const char *advisory;
} escapes[] = {
    {"runc", {1, 1, 12}, "CVE-2024-21626"},
    {"runc", {1, 2, 8}, "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881"},
    {"containerd", {1, 6, 38}, "CVE-2024-40635"},
};

int engine_new(const struct engine_settings *settings, struct engine **ret_engine, struct error *err)
{
    struct engine *engine = alloc_zero(sizeof *engine);

    net_http_init();
    engine->socket_path = alloc_str(settings->socket_path);
    (void)pthread_mutex_init(&engine->version_lock, NULL);
    *ret_engine = engine;
    return 0;
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    (void)pthread_mutex_destroy(&engine->version_lock);
    free(engine->socket_path);
    free(engine);
}

/* "1.41" becomes 41; -1: something else. */
static int api_minor(const char *text)
{
    int major, minor, end = 0;

    return sscanf(text, "%3d.%3d%n", &major, &minor, &end) == 2 && text[end] == '\0' && major == 1 && minor >= 0 ? minor
                                                                                                                 : -1;
}

static bool older(const char *version, const int fixed[3])
{
    int have[3] = {0, 0, 0};

    if (sscanf(version, "%5d.%5d.%5d", &have[0], &have[1], &have[2]) < 2)
        return false;
    for (int i = 0; i < 3; i++) {
        if (have[i] != fixed[i])
            return have[i] < fixed[i];
    }
    return false;
}

/* Say once, for each component, which escapes its version number does not cover. */
static void report_old(struct json_object *components)
{
    struct error ignored = ERROR_INIT;

    for (size_t i = 0; i < engine_json_count(components); i++) {
        struct json_object *component = engine_json_item(components, i);
        const char *name, *version;

        if (engine_json_string(component, "Name", &name, &ignored) < 0 ||
            engine_json_string(component, "Version", &version, &ignored) < 0)
            continue;
        for (size_t k = 0; k < sizeof escapes / sizeof escapes[0]; k++) {
            if (strcmp(name, escapes[k].component) == 0 && older(version, escapes[k].fixed))
                log_warn("engine.old", log_s("component", name), log_s("version", version),
                         log_s("advisory", escapes[k].advisory),
                         log_s("hint", "update it unless your distribution has mended this version"));
        }
    }
}

static int read_version(struct json_object *root, struct engine_version *version, struct json_object **ret_components,
                        struct error *err)
{
    const char *api, *oldest;
    int theirs, least;

    if (engine_json_string(root, "ApiVersion", &api, err) < 0 ||
        engine_json_string(root, "MinAPIVersion", &oldest, err) < 0 ||
        engine_json_copy(root, "Version", version->engine, sizeof version->engine, err) < 0 ||
        engine_json_array(root, "Components", ret_components, err) < 0)
        return -1;
    theirs = api_minor(api);
    least = oldest[0] ? api_minor(oldest) : 0;
    if (theirs < 0)
        return fail(err, ENGINE, "the engine tells no API version");
    if (theirs < API_OLDEST)
        return fail(err, ENGINE, "the engine's API 1.%d is too old, 1.%d is needed", theirs, API_OLDEST);
    if (least > API_NEWEST)
        return fail(err, ENGINE, "the engine's oldest API 1.%d is newer than ours, 1.%d", least, API_NEWEST);
    (void)snprintf(version->api, sizeof version->api, "1.%d", theirs < API_NEWEST ? theirs : API_NEWEST);
    (void)snprintf(version->name, sizeof version->name, "docker");
    for (size_t i = 0; i < engine_json_count(*ret_components); i++) {
        const char *name;

        if (engine_json_string(engine_json_item(*ret_components, i), "Name", &name, err) < 0)
            return -1;
        if (strcmp(name, "Podman Engine") == 0) {
            version->is_podman = true;
            (void)snprintf(version->name, sizeof version->name, "podman");
        }
    }
    return 0;
}

/* Counts a call whose result is there, which it returns. "304: was so already" and "404: gone already" are answers like others. */
static int counting(enum metric_engine counted, int64_t began_us, const int *status, int result)
{
    metric_count(engine_calls, counted);
    if (result < 0 || *status >= 500)
        metric_count(engine_errors, counted);
    metric_observe(&metrics.engine_durations[counted], clock_mono_us() - began_us);
    return result;
}

static int fetch(struct engine *engine, enum metric_engine counted, const char *target, const char *what,
                 const struct cancel *cancel, struct buf *body, struct error *err)
{
    struct net_http_request request = {.socket_path = engine->socket_path, .method = "GET", .target = target};
    int64_t began_us = clock_mono_us();
    int status = 0;

    if (counting(counted, began_us, &status, net_http_fetch(&request, cancel, &status, body, err)) < 0)
        return error_prefix(err, "engine at %s", engine->socket_path);
    return status == 200 ? 0 : engine_error(what, status, body, err);
}

static int read_kind(struct engine *engine, const char *api, const struct cancel *cancel, struct engine_version *ret,
                     struct error *err)
{
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    struct json_object *options;
    char target[32];

    (void)snprintf(target, sizeof target, "/v%s/info", api);
    if (fetch(engine, METRIC_ENGINE_INFO, target, "cannot ask the engine about itself", cancel, &body, err) < 0 ||
        engine_json_parse(body.data, body.size, &root, err) < 0 ||
        engine_json_array(root, "SecurityOptions", &options, err) < 0 ||
        engine_json_copy(root, "DockerRootDir", ret->root_dir, sizeof ret->root_dir, err) < 0)
        return -1;
    ret->is_rootless = false;
    for (size_t i = 0; i < engine_json_count(options); i++) {
        const char *option = engine_json_item_string(options, i);

        ret->is_rootless = ret->is_rootless || (option && strcmp(option, "name=rootless") == 0);
    }
    return 0;
}

static int negotiate(struct engine *engine, const struct cancel *cancel, struct engine_version *ret, struct error *err)
{
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    struct json_object *components;
    struct engine_version version = {0};
    bool report;

    if (fetch(engine, METRIC_ENGINE_VERSION, "/version", "cannot ask the engine for its version", cancel, &body, err) <
            0 ||
        engine_json_parse(body.data, body.size, &root, err) < 0 || read_version(root, &version, &components, err) < 0 ||
        read_kind(engine, version.api, cancel, &version, err) < 0)
        return -1;
    pthread_mutex_lock(&engine->version_lock);
    engine->version = version;
    engine->negotiated = true;
    report = !engine->old_reported;
    engine->old_reported = true;
    pthread_mutex_unlock(&engine->version_lock);
    if (report)
        report_old(components);
    *ret = version;
    return 0;
}

int engine_version(struct engine *engine, const struct cancel *cancel, struct engine_version *ret, struct error *err)
{
    bool known;

    pthread_mutex_lock(&engine->version_lock);
    known = engine->negotiated;
    *ret = engine->version;
    pthread_mutex_unlock(&engine->version_lock);
    return known ? 0 : negotiate(engine, cancel, ret, err);
}

/* The engine was away: what comes back may be another one. */
static int away(struct engine *engine, struct error *err)
{
    if (err->code == ERROR_UNAVAILABLE) {
        pthread_mutex_lock(&engine->version_lock);
        engine->negotiated = false;
        pthread_mutex_unlock(&engine->version_lock);
    }
    return error_prefix(err, "engine at %s", engine->socket_path);
}

static int versioned(struct engine *engine, const struct buf *target, const struct cancel *cancel, struct buf *out,
                     struct error *err)
{
    struct engine_version version;

    if (engine_version(engine, cancel, &version, err) < 0)
        return -1;
    return buf_append_format(out, err, "/v%s%s", version.api, buf_str(target));
}

int engine_request(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                   const struct buf *body, const struct cancel *cancel, int *ret_status, struct buf *ret_body,
                   struct error *err)
{
    auto_buf struct buf full = BUF_INIT(ENGINE_TARGET_MAX);
    struct net_http_request request = {.socket_path = engine->socket_path,
                                       .method = method,
                                       .body = body ? body->data : NULL,
                                       .body_size = body ? body->size : 0};
    int64_t began_us;

    if (versioned(engine, target, cancel, &full, err) < 0)
        return -1;
    request.target = full.data;
    began_us = clock_mono_us();
    return counting(counted, began_us, ret_status, net_http_fetch(&request, cancel, ret_status, ret_body, err)) < 0
               ? away(engine, err)
               : 0;
}

int engine_request_open(struct engine *engine, enum metric_engine counted, const struct net_http_request *wanted,
                        const struct buf *target, const struct cancel *cancel, struct net_http **ret_http,
                        int *ret_status, struct error *err)
{
    auto_buf struct buf full = BUF_INIT(ENGINE_TARGET_MAX);
    struct net_http_request request = *wanted;
    int64_t began_us;

    if (versioned(engine, target, cancel, &full, err) < 0)
        return -1;
    request.socket_path = engine->socket_path;
    request.target = full.data;
    began_us = clock_mono_us();
    return counting(counted, began_us, ret_status, net_http_open(&request, cancel, ret_http, ret_status, err)) < 0
               ? away(engine, err)
               : 0;
}

int engine_request_upgrade(struct engine *engine, enum metric_engine counted, const struct buf *target,
                           const struct cancel *cancel, int *ret_status, struct net_stream **ret_stream,
                           struct buf *ret_body, struct error *err)
{
    auto_buf struct buf full = BUF_INIT(ENGINE_TARGET_MAX);
    struct net_http_request request = {.socket_path = engine->socket_path, .method = "POST"};
    int64_t began_us;

    if (versioned(engine, target, cancel, &full, err) < 0)
        return -1;
    request.target = full.data;
    began_us = clock_mono_us();
    return counting(counted, began_us, ret_status,
                    net_http_upgrade(&request, cancel, ret_status, ret_stream, ret_body, err)) < 0
               ? away(engine, err)
               : 0;
}

int engine_ping(struct engine *engine, const struct cancel *cancel, struct error *err)
{
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);

    return fetch(engine, METRIC_ENGINE_PING, "/_ping", "the engine is not well", cancel, &body, err) < 0
               ? away(engine, err)
               : 0;
}
