#include "alloc.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <stdio.h>
#include <string.h>

struct reading {
    struct engine_info *info;
    struct error *err;
    bool failed;
};

static void read_runtime(const char *name, struct json_object *value, void *context)
{
    struct reading *reading = context;
    struct engine_info *info = reading->info;
    struct engine_oci_runtime *runtime;
    struct json_object *args;

    if (reading->failed || strlen(name) >= sizeof runtime->name)
        return;
    info->runtimes = alloc_grow(info->runtimes, info->runtime_count + 1, sizeof *info->runtimes);
    runtime = &info->runtimes[info->runtime_count];
    *runtime = (struct engine_oci_runtime){0};
    (void)snprintf(runtime->name, sizeof runtime->name, "%s", name);
    if (engine_json_copy(value, "path", runtime->path, sizeof runtime->path, reading->err) < 0 ||
        engine_json_array(value, "runtimeArgs", &args, reading->err) < 0) {
        reading->failed = true;
        return;
    }
    for (size_t i = 0; i < engine_json_count(args); i++) {
        const char *arg = engine_json_item_string(args, i);

        if (arg && (strcmp(arg, "--ignore-cgroups") == 0 || strcmp(arg, "--ignore-cgroups=true") == 0))
            runtime->ignores_cgroups = true;
    }
    info->runtime_count++;
}

static int read_info(struct json_object *root, struct engine_info *info, struct error *err)
{
    struct json_object *options, *runtimes;
    struct reading reading = {info, err, false};
    bool quota_by_another_name;

    if (engine_json_bool(root, "MemoryLimit", &info->memory_limit, err) < 0 ||
        engine_json_bool(root, "SwapLimit", &info->swap_limit, err) < 0 ||
        engine_json_bool(root, "CpuCfsQuota", &info->cpu_quota, err) < 0 ||
        engine_json_bool(root, "CPUCfsQuota", &quota_by_another_name, err) < 0 ||
        engine_json_bool(root, "CPUShares", &info->cpu_shares, err) < 0 ||
        engine_json_bool(root, "PidsLimit", &info->pids_limit, err) < 0 ||
        engine_json_copy(root, "DefaultRuntime", info->default_runtime, sizeof info->default_runtime, err) < 0 ||
        engine_json_array(root, "SecurityOptions", &options, err) < 0 ||
        engine_json_object(root, "Runtimes", &runtimes, err) < 0)
        return -1;
    info->cpu_quota = info->cpu_quota || quota_by_another_name;
    for (size_t i = 0; i < engine_json_count(options); i++) {
        const char *option = engine_json_item_string(options, i);

        if (option && strncmp(option, "name=seccomp", strlen("name=seccomp")) == 0)
            info->seccomp = true;
    }
    if (runtimes)
        engine_json_each(runtimes, read_runtime, &reading);
    return reading.failed ? -1 : 0;
}

int engine_info(struct engine *engine, const struct cancel *cancel, struct engine_info *ret, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    int status;

    if (buf_append_str(&target, "/info", err) < 0 ||
        engine_request(engine, METRIC_ENGINE_INFO, "GET", &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    if (status != 200)
        return engine_error("cannot ask the engine about itself", status, &body, err);
    if (engine_json_parse(buf_str(&body), body.size, &root, err) < 0)
        return -1;
    return read_info(root, ret, err);
}

void engine_info_done(struct engine_info *info)
{
    free(info->runtimes);
    *info = (struct engine_info)ENGINE_INFO_INIT;
}
