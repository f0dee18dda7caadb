#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    LIMIT_MAX = 1048576,
    NOFILE_SOFT_MAX = 65536, /* old programs close every descriptor up to the soft limit before each exec */
    SECCOMP_MAX = 64 * 1024,
};

/* What package managers and tar need as root, and nothing that reaches out of the container. */
static const char *const root_caps[] = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL"};

static bool is_below(const char *path, const char *parent)
{
    size_t size = parent ? strlen(parent) : 0;

    return size > 0 && strncmp(path, parent, size) == 0 && path[size] == '/';
}

/* Nothing that is mounted inside gets out. From within the engine's own folder (a named volume) Docker takes nothing but rslave,
 * by which mounts of the host below the source would be seen inside: there are none below ours. */
static void put_mount(struct json_object *mounts, const char *source, const char *target, bool read_only,
                      const char *engine_root)
{
    struct json_object *mount = engine_json_add_object(mounts);

    engine_json_put_string(mount, "Type", "bind");
    engine_json_put_string(mount, "Source", source);
    engine_json_put_string(mount, "Target", target);
    engine_json_put_bool(mount, "ReadOnly", read_only);
    engine_json_put_string(engine_json_put_object(mount, "BindOptions"), "Propagation",
                           is_below(source, engine_root) ? "rslave" : "rprivate");
}

/* What no number of processes can exceed. Podman lowers its own nproc to it and can give no more. */
static int64_t pid_max(void)
{
    auto_file FILE *file = fopen("/proc/sys/kernel/pid_max", "re");
    int64_t value;

    return file && fscanf(file, "%" SCNd64, &value) == 1 && value > 0 ? value : LIMIT_MAX;
}

/* Explicit, since Podman does not start without, and as high as this process itself may go: an engine without
 * CAP_SYS_RESOURCE, started beside us, cannot give more. nproc counts a uid over the whole host, so that a low one would let one
 * session stop another's forks; pids_limit is what bounds a session. */
static void put_ulimit(struct json_object *ulimits, const char *name, int resource, int64_t soft_max, int64_t hard_max)
{
    struct json_object *ulimit = engine_json_add_object(ulimits);
    struct rlimit own = {LIMIT_MAX, LIMIT_MAX};
    int64_t hard;

    (void)getrlimit((__rlimit_resource_t)resource, &own);
    hard = own.rlim_max < LIMIT_MAX ? (int64_t)own.rlim_max : LIMIT_MAX; /* RLIM_INFINITY is the largest number */
    if (hard > hard_max)
        hard = hard_max;
    engine_json_put_string(ulimit, "Name", name);
    engine_json_put_int(ulimit, "Soft", hard < soft_max ? hard : soft_max);
    engine_json_put_int(ulimit, "Hard", hard);
}

static int put_security(struct json_object *host, const struct engine_create *spec, struct error *err)
{
    struct json_object *options = engine_json_put_array(host, "SecurityOpt");
    auto_buf struct buf seccomp = BUF_INIT(SECCOMP_MAX);

    engine_json_add_string(options, "no-new-privileges");
    if (buf_append_str(&seccomp, "seccomp=", err) < 0 ||
        (spec->seccomp_path ? buf_append_str(&seccomp, spec->seccomp_path, err)
                            : engine_seccomp_render(&seccomp, err)) < 0)
        return -1;
    engine_json_add_string(options, seccomp.data);
    engine_json_add_string(engine_json_put_array(host, "CapDrop"), "ALL");
    if (spec->root_caps) {
        struct json_object *caps = engine_json_put_array(host, "CapAdd");

        for (size_t i = 0; i < sizeof root_caps / sizeof root_caps[0]; i++)
            engine_json_add_string(caps, root_caps[i]);
    }
    engine_json_put_bool(host, "Privileged", false);
    engine_json_put_string(host, "IpcMode", "private");
    return 0;
}

static int put_host(struct json_object *root, const struct engine_create *spec, struct error *err)
{
    struct json_object *host = engine_json_put_object(root, "HostConfig");
    struct json_object *mounts = engine_json_put_array(host, "Mounts");
    struct json_object *ulimits = engine_json_put_array(host, "Ulimits");

    put_mount(mounts, spec->agent_path, ENGINE_AGENT_MOUNT, true, spec->engine_root);
    if (spec->workspace_path)
        put_mount(mounts, spec->workspace_path, spec->work_dir, false, spec->engine_root);
    if (put_security(host, spec, err) < 0)
        return -1;
    engine_json_put_string(engine_json_put_object(host, "LogConfig"), "Type", "none");
    engine_json_put_bool(host, "Init", false);
    engine_json_put_bool(host, "AutoRemove", false);
    engine_json_put_string(host, "Runtime", spec->oci_runtime);
    engine_json_put_string(host, "NetworkMode", spec->network_mode ? spec->network_mode : "none");
    engine_json_put_positive(host, "Memory", spec->memory_bytes);
    engine_json_put_positive(host, "MemorySwap", spec->memory_swap_bytes);
    engine_json_put_positive(host, "NanoCpus", spec->nano_cpus);
    engine_json_put_positive(host, "CpuShares", spec->cpu_shares);
    engine_json_put_positive(host, "PidsLimit", spec->pids_limit);
    put_ulimit(ulimits, "nofile", RLIMIT_NOFILE, NOFILE_SOFT_MAX, LIMIT_MAX);
    put_ulimit(ulimits, "nproc", RLIMIT_NPROC, LIMIT_MAX, pid_max());
    if (spec->tmpfs_size) {
        auto_buf struct buf options = BUF_INIT(256);

        if (buf_append_format(&options, err, "rw,exec,nosuid,nodev,mode=1777,size=%s", spec->tmpfs_size) < 0)
            return -1;
        engine_json_put_string(engine_json_put_object(host, "Tmpfs"), "/tmp", options.data);
    }
    return 0;
}

int engine_template_create(const struct engine_create *spec, struct buf *out, struct error *err)
{
    auto_engine_json struct json_object *root = engine_json_new_object();
    struct json_object *labels, *env;

    engine_json_put_string(root, "Image", spec->image);
    engine_json_put_string(root, "Hostname", spec->hostname ? spec->hostname : "sandbox");
    engine_json_put_string(root, "User", spec->user);
    engine_json_put_string(root, "WorkingDir", spec->work_dir);
    engine_json_add_string(engine_json_put_array(root, "Entrypoint"), ENGINE_AGENT_MOUNT);
    (void)engine_json_put_array(root, "Cmd");
    env = engine_json_put_array(root, "Env");
    for (const char *const *item = spec->env; item && *item; item++)
        engine_json_add_string(env, *item);
    engine_json_put_string(root, "StopSignal", "SIGTERM");
    engine_json_add_string(engine_json_put_array(engine_json_put_object(root, "Healthcheck"), "Test"), "NONE");
    engine_json_put_bool(root, "Tty", false);
    engine_json_put_bool(root, "OpenStdin", true);
    engine_json_put_bool(root, "StdinOnce", false); /* stdin stays open when an attach ends */
    engine_json_put_bool(root, "AttachStdin", true);
    engine_json_put_bool(root, "AttachStdout", true);
    engine_json_put_bool(root, "AttachStderr", true);
    labels = engine_json_put_object(root, "Labels");
    engine_json_put_string(labels, ENGINE_LABEL_INSTALL, spec->label_install);
    engine_json_put_string(labels, ENGINE_LABEL_SLOT, spec->label_slot);
    engine_json_put_string(labels, ENGINE_LABEL_SPEC, spec->label_spec);
    if (put_host(root, spec, err) < 0)
        return -1;
    return engine_json_write(root, out, err);
}

int engine_template_probe(const char *path, struct buf *out, struct error *err)
{
    auto_engine_json struct json_object *root = engine_json_new_object();
    struct json_object *host = engine_json_put_object(root, "HostConfig");

    engine_json_put_string(root, "Image", "berth.invalid/probe:none");
    put_mount(engine_json_put_array(host, "Mounts"), path, "/probe", true, NULL);
    engine_json_put_string(host, "NetworkMode", "none");
    return engine_json_write(root, out, err);
}
