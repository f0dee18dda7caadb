#include "provider_docker_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double MEBI = 1024.0 * 1024;

struct controls {
    struct isolation_control *list;
    int count;
};

__attribute__((format(printf, 4, 5))) static void add(struct controls *controls, const char *name, bool is_enforced,
                                                      const char *format, ...)
{
    struct isolation_control *control = &controls->list[controls->count++];
    va_list args;

    control->name = name;
    control->state = is_enforced ? ISOLATION_ENFORCED : ISOLATION_NOT_ENFORCED;
    va_start(args, format);
    (void)vsnprintf(control->detail, sizeof control->detail, format, args);
    va_end(args);
}

/* A ceiling: asked for, and something the engine can hold a container to. One of `scale` is a `unit`, so that people can read it. */
static void add_limit(struct controls *controls, const char *name, int64_t value, double scale, const char *unit,
                      bool can, bool ignored)
{
    double amount = (double)value / scale;

    if (value <= 0)
        add(controls, name, false, "no limit is set");
    else if (ignored)
        add(controls, name, false, "%.10g %s asked for, but the runtime is started with --ignore-cgroups", amount,
            unit);
    else if (!can)
        add(controls, name, false, "%.10g %s asked for, but the engine has no such limit on this kernel", amount, unit);
    else
        add(controls, name, true, "%.10g %s", amount, unit);
}

static const struct engine_oci_runtime *find_runtime(const struct engine_info *info, const char *name)
{
    for (size_t i = 0; i < info->runtime_count; i++) {
        if (strcmp(info->runtimes[i].name, name) == 0)
            return &info->runtimes[i];
    }
    return NULL;
}

static void add_kernel(struct controls *controls, const struct engine_info *info, const char *name,
                       const struct engine_oci_runtime *runtime)
{
    bool is_gvisor = strstr(name, "runsc") || (runtime && strstr(runtime->path, "runsc"));
    bool is_vm = strstr(name, "kata") || (runtime && strstr(runtime->path, "kata"));

    if (!runtime)
        add(controls, "runtime", false, "the engine has no runtime %.40s: sandboxes cannot start", name);
    else if (is_gvisor)
        add(controls, "runtime", true, "%.40s (gVisor): a kernel of its own in user space", name);
    else if (is_vm)
        add(controls, "runtime", true, "%.40s: a virtual machine for each sandbox", name);
    else
        add(controls, "runtime", true, "%.40s: namespaces and cgroups on the host's kernel", name);
    if (is_gvisor)
        add(controls, "seccomp", true,
            "gVisor answers system calls itself and filters its own; our profile is not used");
    else if (!info->seccomp)
        add(controls, "seccomp", false, "the engine was built without it");
    else
        add(controls, "seccomp", true, "an allow-list of our own; what is not on it is EPERM");
}

int docker_isolation(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                     struct isolation_control controls[ISOLATION_CONTROLS_MAX], struct error *err)
{
    struct docker_provider *self = (struct docker_provider *)provider;
    auto_cleanup(engine_info_done) struct engine_info info = ENGINE_INFO_INIT;
    struct controls added = {controls, 0};
    const struct engine_oci_runtime *runtime;
    const char *name, *network = spec->network_mode ? spec->network_mode : "none";
    struct error ignored = ERROR_INIT, why = ERROR_INIT;
    char reach[PROVIDER_NETWORK_TEXT_BYTES];
    bool root = true, no_cgroups;

    if (engine_info(self->engine, cancel, &info, err) < 0)
        return -1;
    /* An image that is not there yet may turn out to be anybody's: said as the weaker case. */
    (void)docker_runs_as_root(self, spec, cancel, &root, &ignored);
    name = spec->oci_runtime ? spec->oci_runtime : info.default_runtime;
    runtime = find_runtime(&info, name);
    no_cgroups = runtime && runtime->ignores_cgroups;
    add_kernel(&added, &info, name, runtime);
    add(&added, "capabilities", true, "%s",
        root && !spec->drop_all_caps ? "root inside, with CHOWN DAC_OVERRIDE FOWNER FSETID SETUID SETGID KILL only"
                                     : "none");
    add(&added, "no_new_privileges", true, "set-user-id programs gain nothing");
    add_limit(&added, "memory", spec->memory_bytes, MEBI, "MiB", info.memory_limit, no_cgroups);
    add_limit(&added, "swap", spec->memory_swap_bytes, MEBI, "MiB of memory and swap", info.swap_limit, no_cgroups);
    add_limit(&added, "cpu", spec->nano_cpus, 1e9, "CPU", info.cpu_quota, no_cgroups);
    add_limit(&added, "cpu_shares", spec->cpu_shares, 1, "shares", info.cpu_shares, no_cgroups);
    add_limit(&added, "pids", spec->pids_limit, 1, "processes and threads", info.pids_limit, no_cgroups);
    if (strcmp(network, "none") != 0 && docker_network(provider, network, cancel, reach, &why) < 0)
        (void)snprintf(reach, sizeof reach, "%s", why.text);
    if (strcmp(network, "none") == 0)
        add(&added, "network", true, "none: its own loopback only");
    else
        add(&added, "network", false, "%s", reach);
    if (spec->tmpfs_size)
        add(&added, "tmp", true, "/tmp is memory, %.20s at most", spec->tmpfs_size);
    else
        add(&added, "tmp", false, "/tmp is on the engine's disk");
    return added.count;
}
