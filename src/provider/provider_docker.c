#include "agent_blob.h"
#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "provider.h"
#include "provider_docker_private.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    GREET_TIMEOUT_MS = 10000,
    CLEAN_TIMEOUT_MS = 10000,
    STOP_GRACE_S = 2, /* the agent ends at TERM; what does not is frozen and gets KILL */
    SECCOMP_MAX = 64 * 1024,
    IMAGE_USER_MS = 5000,
};

struct docker_sandbox {
    struct sandbox base;
    struct agent_link *link;
    atomic_bool paused; /* by somebody else, since it was opened */
};

struct docker_run {
    struct sandbox_run base;
    struct agent_run *run;
};

static struct docker_provider *docker(struct provider *provider)
{
    return (struct docker_provider *)provider;
}

/* -- containers -- */

static int docker_check(struct provider *provider, const struct cancel *cancel, struct error *err)
{
    return engine_ping(docker(provider)->engine, cancel, err);
}

static void remember_user(struct docker_provider *self, const char *image, const char *user)
{
    struct image_user *known = alloc_zero(sizeof *known);

    (void)snprintf(known->user, sizeof known->user, "%s", user);
    known->until_mono_ms = clock_mono_ms() + IMAGE_USER_MS;
    pthread_mutex_lock(&self->lock);
    free(map_put(&self->image_users, image, known));
    pthread_mutex_unlock(&self->lock);
}

/* The number at the front of "1000", "1000:1000", "root", ""; -1: a name. */
static int64_t uid_of(const char *user)
{
    size_t size = strcspn(user, ":");
    char *end;
    long uid;

    if (size == 0 || (size == 4 && strncmp(user, "root", 4) == 0))
        return 0;
    uid = strtol(user, &end, 10);
    return end == user + size && uid >= 0 && uid <= UINT32_MAX ? uid : -1;
}

static int find_image(struct docker_provider *self, const char *image, const struct cancel *cancel,
                      struct sandbox_image *ret_image, struct error *err)
{
    struct engine_image found;

    if (engine_image_inspect(self->engine, image, cancel, &found, err) < 0)
        return -1;
    remember_user(self, image, found.user);
    *ret_image = (struct sandbox_image){.uid = uid_of(found.user)};
    (void)snprintf(ret_image->id, sizeof ret_image->id, "%s", found.id);
    return 0;
}

/* By a build or by a pull. */
static int get_image(struct docker_provider *self, const char *image, void (*say)(void *context, const char *text),
                     void *context, const struct cancel *cancel, struct error *err)
{
    if (docker_builds(self, image))
        return docker_build(self, image, say, context, cancel, err);
    log_info("image.pull", log_s("image", image));
    return engine_image_pull(self->engine, image, say, context, cancel, err);
}

static int docker_prepare(struct provider *provider, const char *image, void (*say)(void *context, const char *text),
                          void *context, const struct cancel *cancel, struct sandbox_image *ret_image,
                          bool *ret_was_here, struct error *err)
{
    struct docker_provider *self = docker(provider);
    struct error why = ERROR_INIT;

    *ret_was_here = find_image(self, image, cancel, ret_image, &why) == 0;
    if (*ret_was_here)
        return 0;
    if (why.code != ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if (get_image(self, image, say, context, cancel, err) < 0 || find_image(self, image, cancel, ret_image, err) < 0)
        return error_prefix(err, "image %.80s", image);
    log_info("image.here", log_s("image", image), log_s("id", ret_image->id));
    return 0;
}

static int docker_image(struct provider *provider, const char *image, bool pull, const struct cancel *cancel,
                        struct sandbox_image *ret_image, struct error *err)
{
    bool was_here;

    return pull ? docker_prepare(provider, image, NULL, NULL, cancel, ret_image, &was_here, err)
                : find_image(docker(provider), image, cancel, ret_image, err);
}

/* "uid:gid" of the container, "" for the image's own. A broker that is not root can share files with its own user only. */
static void user_of(const struct sandbox_spec *spec, char user[48])
{
    int64_t uid = spec->sandbox_uid, gid = spec->sandbox_uid;

    if (geteuid() != 0 && (uid < 0 || uid == geteuid())) {
        uid = geteuid();
        gid = getegid();
    }
    user[0] = '\0';
    if (uid >= 0)
        (void)snprintf(user, 48, "%" PRId64 ":%" PRId64, uid, gid);
}

int docker_runs_as_root(struct docker_provider *self, const struct sandbox_spec *spec, const struct cancel *cancel,
                        bool *ret_root, struct error *err)
{
    char user[64];
    struct sandbox_image image = {.uid = -1};
    const struct image_user *known;
    bool fresh;

    user_of(spec, user);
    if (user[0]) {
        *ret_root = uid_of(user) == 0;
        return 0;
    }
    pthread_mutex_lock(&self->lock);
    known = map_get(&self->image_users, spec->image);
    fresh = known && clock_mono_ms() < known->until_mono_ms;
    if (fresh)
        image.uid = uid_of(known->user);
    pthread_mutex_unlock(&self->lock);
    if (!fresh && docker_image(&self->base, spec->image, false, cancel, &image, err) < 0)
        return -1;
    *ret_root = image.uid == 0;
    return 0;
}

/* Podman takes the profile as a file, Docker inline. */
static int seccomp_path(struct docker_provider *self, const struct engine_version *version, const struct cancel *cancel,
                        char **ret_path, struct error *err)
{
    auto_buf struct buf profile = BUF_INIT(SECCOMP_MAX);

    if (!version->is_podman)
        return 0;
    return engine_seccomp_render(&profile, err) < 0 ||
                   provider_file_keep(self->seccomp_path, profile.data, profile.size, 0644, err) < 0 ||
                   docker_host_path(self, self->seccomp_path, cancel, ret_path, err) < 0
               ? -1
               : 0;
}

static void note_fresh(struct docker_provider *self, const char *ref)
{
    pthread_mutex_lock(&self->lock);
    (void)map_put(&self->fresh, ref, self);
    pthread_mutex_unlock(&self->lock);
}

static bool take_fresh(struct docker_provider *self, const char *ref)
{
    bool was;

    pthread_mutex_lock(&self->lock);
    was = map_remove(&self->fresh, ref) != NULL;
    pthread_mutex_unlock(&self->lock);
    return was;
}

static int docker_create(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                         char ret_ref[SANDBOX_REF_BYTES], struct error *err)
{
    struct docker_provider *self = docker(provider);
    struct error why = ERROR_INIT;
    auto_free char *agent_path = NULL, *workspace_path = NULL, *seccomp = NULL;
    struct engine_version version;
    char user[48], digest[65];
    bool root;
    struct engine_create create = {
        .name = spec->name,
        .image = spec->image,
        .hostname = "sandbox",
        .work_dir = spec->work_dir,
        .oci_runtime = spec->oci_runtime,
        .network_mode = spec->network_mode,
        .memory_bytes = spec->memory_bytes,
        .memory_swap_bytes = spec->memory_swap_bytes,
        .nano_cpus = spec->nano_cpus,
        .cpu_shares = spec->cpu_shares,
        .pids_limit = spec->pids_limit,
        .tmpfs_size = spec->tmpfs_size,
        .env = spec->env,
        .label_install = self->install,
        .label_slot = spec->slot,
        .label_spec = digest,
    };

    provider_spec_digest(spec, digest);
    user_of(spec, user);
    create.user = user[0] ? user : NULL;
    if (docker_runs_as_root(self, spec, cancel, &root, err) < 0 ||
        engine_version(self->engine, cancel, &version, err) < 0 ||
        seccomp_path(self, &version, cancel, &seccomp, err) < 0 ||
        provider_file_keep(self->agent_path, agent_blob, agent_blob_size, 0755, err) < 0 ||
        docker_host_path(self, self->agent_path, cancel, &agent_path, err) < 0 ||
        (spec->workspace_path && docker_host_path(self, spec->workspace_path, cancel, &workspace_path, err) < 0))
        return -1;
    create.engine_root = version.root_dir;
    create.seccomp_path = seccomp;
    create.agent_path = agent_path;
    create.workspace_path = workspace_path;
    create.root_caps = root && !spec->drop_all_caps;
    if (engine_create(self->engine, &create, cancel, ret_ref, &why) < 0) {
        if (why.code != ERROR_CONFLICT || !create.name) {
            *err = why;
            return -1;
        }
        create.name = NULL; /* taken: names are for people only */
        if (engine_create(self->engine, &create, cancel, ret_ref, err) < 0)
            return -1;
    }
    note_fresh(self, ret_ref);
    return 0;
}

static int docker_stop(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    return engine_stop(docker(provider)->engine, ref, STOP_GRACE_S, cancel, err);
}

static int docker_kill(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct docker_provider *self = docker(provider);
    struct engine_container container;
    struct error why = ERROR_INIT, ignored = ERROR_INIT;

    if (engine_kill(self->engine, ref, cancel, &why) == 0)
        return 0;
    /* It does not run: dead enough. Engines differ in how they say so. */
    if ((why.code == ERROR_CONFLICT || why.code == ERROR_ENGINE) &&
        engine_inspect(self->engine, ref, cancel, &container, &ignored) == 0 && container.state != ENGINE_RUNNING &&
        container.state != ENGINE_PAUSED)
        return 0;
    *err = why;
    return -1;
}

static int docker_pause(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct docker_provider *self = docker(provider);
    struct engine_container container;
    struct error why = ERROR_INIT, ignored = ERROR_INIT;

    if (engine_pause(self->engine, ref, cancel, &why) == 0 ||
        (why.code == ERROR_CONFLICT && engine_inspect(self->engine, ref, cancel, &container, &ignored) == 0 &&
         container.state == ENGINE_PAUSED)) /* by somebody else */
        return 0;
    *err = why;
    return -1;
}

static int docker_remove(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    (void)take_fresh(docker(provider), ref);
    return engine_remove(docker(provider)->engine, ref, cancel, err);
}

static int docker_rename(struct provider *provider, const char *ref, const char *name, const struct cancel *cancel,
                         struct error *err)
{
    return engine_rename(docker(provider)->engine, ref, name, cancel, err);
}

static void to_listed(const struct engine_container *container, struct sandbox_listed *ret)
{
    *ret = (struct sandbox_listed){.finished_at_unix_ms = container->finished_at_unix_ms,
                                   .oom_killed = container->oom_killed};
    (void)snprintf(ret->ref, sizeof ret->ref, "%s", container->id);
    (void)snprintf(ret->slot, sizeof ret->slot, "%s", container->label_slot);
    (void)snprintf(ret->spec_digest, sizeof ret->spec_digest, "%s", container->label_spec);
    ret->phase = container->state == ENGINE_CREATED   ? SANDBOX_CREATED
                 : container->state == ENGINE_RUNNING ? SANDBOX_RUNNING
                 : container->state == ENGINE_PAUSED  ? SANDBOX_PAUSED
                                                      : SANDBOX_STOPPED;
}

/* Only what carries our label is ours to touch. */
static int inspect_ours(struct docker_provider *self, const char *ref, const struct cancel *cancel,
                        struct engine_container *ret, struct error *err)
{
    if (engine_inspect(self->engine, ref, cancel, ret, err) < 0)
        return -1;
    return strcmp(ret->label_install, self->install) == 0 ? 0
                                                          : fail(err, NOT_FOUND, "%.12s is no container of ours", ref);
}

static int docker_inspect(struct provider *provider, const char *ref, const struct cancel *cancel,
                          struct sandbox_listed *ret, struct error *err)
{
    struct engine_container container;

    if (inspect_ours(docker(provider), ref, cancel, &container, err) < 0)
        return -1;
    to_listed(&container, ret);
    return 0;
}

static int docker_list(struct provider *provider, const struct cancel *cancel, struct sandbox_listed **ret_list,
                       size_t *ret_count, struct error *err)
{
    struct docker_provider *self = docker(provider);
    auto_free struct engine_container *list = NULL;
    size_t count;

    if (engine_list(self->engine, self->install, cancel, &list, &count, err) < 0)
        return -1;
    *ret_list = alloc_array(count + 1, sizeof **ret_list);
    *ret_count = count;
    for (size_t i = 0; i < count; i++)
        to_listed(&list[i], &(*ret_list)[i]);
    return 0;
}

static int docker_strangers(struct provider *provider, const struct cancel *cancel, struct sandbox_stranger **ret_list,
                            size_t *ret_count, struct error *err)
{
    struct docker_provider *self = docker(provider);
    auto_free struct engine_stranger *list = NULL;
    size_t count;

    if (engine_strangers(self->engine, self->install, cancel, &list, &count, err) < 0)
        return -1;
    *ret_list = alloc_array(count + 1, sizeof **ret_list);
    *ret_count = count;
    for (size_t i = 0; i < count; i++) {
        struct sandbox_stranger *to = &(*ret_list)[i];
        struct sandbox_listed listed;

        to_listed(&list[i].container, &listed);
        to->phase = listed.phase;
        (void)snprintf(to->ref, sizeof to->ref, "%s", listed.ref);
        (void)snprintf(to->slot, sizeof to->slot, "%s", listed.slot);
        (void)snprintf(to->name, sizeof to->name, "%s", list[i].container.name);
        (void)snprintf(to->install, sizeof to->install, "%s", list[i].container.label_install);
        (void)snprintf(to->workspace_source, sizeof to->workspace_source, "%s", list[i].workspace_source);
    }
    return 0;
}

/* -- live sandboxes -- */

/* Whoever talks to it now is cut off: a second attach would stall the container and mix up the conversation. */
static void close_live(struct docker_provider *self, const char *ref)
{
    struct docker_sandbox *live;

    pthread_mutex_lock(&self->lock);
    live = map_remove(&self->live, ref);
    if (live)
        agent_link_close(live->link);
    pthread_mutex_unlock(&self->lock);
}

static int make_running(struct docker_provider *self, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct engine_container container;
    struct engine_version version;

    if (take_fresh(self, ref)) /* the agent's file was seen to right before */
        return engine_start(self->engine, ref, cancel, err);
    if (engine_version(self->engine, cancel, &version, err) < 0 || inspect_ours(self, ref, cancel, &container, err) < 0)
        return -1;
    if (container.state == ENGINE_PAUSED && engine_unpause(self->engine, ref, cancel, err) < 0)
        return -1;
    if (container.state == ENGINE_RUNNING || container.state == ENGINE_PAUSED) {
        if (!version.is_podman)
            return 0;
        /* Podman closed its standard input when the last conversation ended: the agent hears nobody any more. */
        if (engine_stop(self->engine, ref, 0, cancel, err) < 0)
            return -1;
    }
    if (provider_file_keep(self->agent_path, agent_blob, agent_blob_size, 0755, err) < 0)
        return -1;
    if (engine_start(self->engine, ref, cancel, err) == 0)
        return 0;
    if (err->code == ERROR_NOT_FOUND && strstr(err->text, "network "))
        err->code = ERROR_ENGINE; /* the container is there, its network is not any more */
    return -1;
}

/* What a container that does not answer gets: it may be anything by now. Whoever asked goes on with another one. */
static void put_down(struct docker_provider *self, const char *ref, const struct error *why)
{
    const struct cancel never = CANCEL_NEVER;
    struct cancel bounded = cancel_within(&never, CLEAN_TIMEOUT_MS);
    struct error ignored = ERROR_INIT;

    log_warn("sandbox.killed", log_s("container", ref), log_e(why));
    (void)docker_kill(&self->base, ref, &bounded, &ignored);
}

static int greet(struct docker_provider *self, const char *ref, const uint32_t *known_runs, size_t known_count,
                 const struct cancel *cancel, struct agent_link **ret_link, struct agent_hello_info *ret_hello,
                 struct error *err)
{
    struct cancel bounded = cancel_within(cancel, GREET_TIMEOUT_MS);
    struct error why = ERROR_INIT;
    struct net_stream *stream;

    if (engine_attach(self->engine, ref, &bounded, &stream, err) < 0)
        return -1;
    if (agent_link_open(self->hub, stream, known_runs, known_count, &bounded, ret_link, ret_hello, &why) == 0)
        return 0;
    if (cancel_check(cancel, err) < 0)
        return -1; /* nothing is wrong with the container */
    put_down(self, ref, &why);
    return fail(err, GONE, "the sandbox does not answer: %.150s", why.text);
}

/* A kernel on which runs cannot be ended or kept off the agent's stream: nothing of ours holds there. */
static int check_kernel(struct docker_provider *self, const char *ref, const struct agent_hello_info *hello,
                        struct error *err)
{
    if (hello->subreaper && hello->stream_safe)
        return 0;
    (void)fail(err, ENGINE, "the container runtime is not fit for sandboxes: %s (with gVisor: use a current runsc)",
               !hello->subreaper ? "it has no child subreaper" : "a run can reach the agent's stream");
    put_down(self, ref, err);
    return -1;
}

static int docker_open(struct provider *provider, const char *ref, const uint32_t *known_runs, size_t known_count,
                       const struct cancel *cancel, struct sandbox **ret_sandbox, struct sandbox_hello *ret_hello,
                       struct error *err)
{
    struct docker_provider *self = docker(provider);
    struct docker_sandbox *sandbox, *earlier;
    struct agent_hello_info hello;
    struct agent_link *link;

    close_live(self, ref);
    if (make_running(self, ref, cancel, err) < 0 ||
        greet(self, ref, known_runs, known_count, cancel, &link, &hello, err) < 0)
        return -1;
    if (check_kernel(self, ref, &hello, err) < 0) {
        agent_link_unref(link);
        return -1;
    }
    sandbox = alloc_zero(sizeof *sandbox);
    sandbox->base.provider = provider;
    sandbox->base.references = 1;
    (void)snprintf(sandbox->base.ref, sizeof sandbox->base.ref, "%s", ref);
    sandbox->link = link;
    pthread_mutex_lock(&self->lock);
    earlier = map_put(&self->live, ref, sandbox);
    if (earlier)
        agent_link_close(earlier->link); /* somebody opened it at the same time */
    pthread_mutex_unlock(&self->lock);
    *ret_hello = (struct sandbox_hello){hello.uid, hello.gid};
    *ret_sandbox = &sandbox->base;
    return 0;
}

static struct agent_link *link_of(const struct sandbox *sandbox)
{
    return ((const struct docker_sandbox *)sandbox)->link;
}

static void docker_sandbox_close(struct sandbox *sandbox)
{
    agent_link_close(link_of(sandbox));
}

static void docker_sandbox_free(struct sandbox *sandbox)
{
    struct docker_provider *self = docker(sandbox->provider);

    pthread_mutex_lock(&self->lock);
    if (map_get(&self->live, sandbox->ref) == sandbox)
        (void)map_remove(&self->live, sandbox->ref);
    pthread_mutex_unlock(&self->lock);
    agent_link_unref(link_of(sandbox));
    free(sandbox);
}

static bool docker_sandbox_alive(const struct sandbox *sandbox)
{
    return agent_link_alive(link_of(sandbox));
}

void docker_note_paused(struct docker_provider *self, const char *ref, bool paused)
{
    struct docker_sandbox *live;

    pthread_mutex_lock(&self->lock);
    live = map_get(&self->live, ref);
    if (live)
        atomic_store(&live->paused, paused);
    pthread_mutex_unlock(&self->lock);
    if (live && paused)
        log_info("sandbox.paused", log_s("container", ref));
}

/* A frozen process 1 would take the run and answer nothing. Who froze it is not asked: a session wakes when it is used. */
static int thaw(struct docker_sandbox *sandbox, const struct cancel *cancel, struct error *err)
{
    struct error why = ERROR_INIT;

    if (!atomic_exchange(&sandbox->paused, false))
        return 0;
    log_info("sandbox.thawed", log_s("container", sandbox->base.ref));
    if (engine_unpause(docker(sandbox->base.provider)->engine, sandbox->base.ref, cancel, &why) == 0 ||
        why.code == ERROR_CONFLICT) /* not paused any more */
        return 0;
    atomic_store(&sandbox->paused, true);
    *err = why;
    return -1;
}

static struct sandbox_run *run_of_sandbox(struct sandbox *sandbox, struct agent_run *started)
{
    struct docker_run *run = alloc_zero(sizeof *run);

    run->base.sandbox = sandbox_ref(sandbox);
    run->run = started;
    return &run->base;
}

static int docker_thaw(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct error why = ERROR_INIT;

    if (engine_unpause(docker(provider)->engine, ref, cancel, &why) < 0 && why.code != ERROR_CONFLICT) {
        *err = why;
        return -1;
    }
    docker_note_paused(docker(provider), ref, false);
    return 0;
}

static int docker_run_start(struct sandbox *sandbox, uint32_t number, const struct run_spec *spec,
                            const struct cancel *cancel, bool *ret_sent, struct sandbox_run **ret_run,
                            struct error *err)
{
    struct agent_run *started;

    *ret_sent = false;
    if (thaw((struct docker_sandbox *)sandbox, cancel, err) < 0)
        return -1;
    if (agent_run_start(link_of(sandbox), number, spec, cancel, ret_sent, &started, err) < 0)
        return -1;
    *ret_run = run_of_sandbox(sandbox, started);
    return 0;
}

static int docker_run_resume(struct sandbox *sandbox, uint32_t number, struct sandbox_run **ret_run, struct error *err)
{
    struct agent_run *resumed;

    if (agent_run_resume(link_of(sandbox), number, false, &resumed, err) < 0)
        return -1;
    *ret_run = run_of_sandbox(sandbox, resumed);
    return 0;
}

static struct agent_run *run_of(const struct sandbox_run *run)
{
    return ((const struct docker_run *)run)->run;
}

static int docker_run_next(struct sandbox_run *run, const struct cancel *cancel, struct run_chunk *ret_chunk,
                           struct error *err)
{
    return agent_run_next(run_of(run), cancel, ret_chunk, err);
}

static int docker_run_stdin_write(struct sandbox_run *run, const void *data, size_t size, const struct cancel *cancel,
                                  struct error *err)
{
    return agent_run_stdin_write(run_of(run), data, size, cancel, err);
}

static void docker_run_stdin_eof(struct sandbox_run *run)
{
    agent_run_stdin_eof(run_of(run));
}

static int docker_run_wait_started(struct sandbox_run *run, const struct cancel *cancel, struct error *err)
{
    return agent_run_wait_started(run_of(run), cancel, err);
}

static int docker_run_seek(struct sandbox_run *run, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                           uint64_t *ret_place, struct error *err)
{
    return agent_run_seek(run_of(run), out, err_offset, cancel, ret_place, err);
}

static void docker_run_leave(struct sandbox_run *run, uint32_t hold_ms)
{
    agent_run_leave(run_of(run), hold_ms);
}

static void docker_run_interrupt(struct sandbox_run *run)
{
    agent_run_interrupt(run_of(run));
}

static bool docker_run_ended(struct sandbox_run *run, struct run_exit *ret_exit)
{
    return agent_run_ended(run_of(run), ret_exit);
}

static bool docker_run_cut(const struct sandbox_run *run)
{
    return agent_run_cut(run_of(run));
}

static void docker_run_watch(struct sandbox_run *run, uint64_t cookie)
{
    agent_run_watch(run_of(run), cookie);
}

static int docker_next_end(struct provider *provider, const struct cancel *cancel, uint64_t *ret_cookie,
                           struct error *err)
{
    return agent_hub_next_end(docker(provider)->hub, cancel, ret_cookie, err);
}

static void docker_run_signal(struct sandbox_run *run, int number)
{
    agent_run_signal(run_of(run), number);
}

static void docker_run_resize(struct sandbox_run *run, unsigned rows, unsigned cols)
{
    agent_run_resize(run_of(run), rows, cols);
}

static const struct run_exit *docker_run_exit(const struct sandbox_run *run)
{
    return agent_run_exit(run_of(run));
}

static void docker_run_stop(struct sandbox_run *run)
{
    agent_run_stop(run_of(run));
}

static void docker_run_free(struct sandbox_run *run)
{
    agent_run_free(run_of(run));
    sandbox_unref(run->sandbox);
    free(run);
}

static void docker_usage(struct provider *provider, struct sandbox *const *sandboxes, size_t count,
                         const struct cancel *cancel, struct sandbox_usage *ret_usages, bool *ret_answered)
{
    auto_free struct agent_link **links = alloc_array(count + 1, sizeof *links);

    for (size_t i = 0; i < count; i++)
        links[i] = sandboxes[i] ? link_of(sandboxes[i]) : NULL;
    agent_links_usage(links, count, cancel, ret_usages, ret_answered);
}

/* -- life -- */

static void free_value(void *value, void *unused)
{
    free(value);
}

static void docker_free(struct provider *provider)
{
    struct docker_provider *self = docker(provider);

    docker_builds_done(self);
    engine_events_free(self->events);
    agent_hub_free(self->hub);
    engine_free(self->engine);
    map_each(&self->image_users, free_value, NULL);
    map_done(&self->image_users);
    map_done(&self->live);
    map_done(&self->fresh);
    (void)pthread_mutex_destroy(&self->lock);
    free(self->agent_path);
    free(self->seccomp_path);
    free(self->state_dir);
    free(self->build_network);
    free(self->workspace_root);
    engine_mounts_done(&self->place);
    free(self->install);
    free(self);
}

static const struct provider_ops docker_ops = {
    .name = "docker",
    .agent_path = ENGINE_AGENT_MOUNT,
    .free = docker_free,
    .check = docker_check,
    .image = docker_image,
    .prepare = docker_prepare,
    .create = docker_create,
    .open = docker_open,
    .stop = docker_stop,
    .kill = docker_kill,
    .pause = docker_pause,
    .thaw = docker_thaw,
    .remove = docker_remove,
    .rename = docker_rename,
    .inspect = docker_inspect,
    .list = docker_list,
    .strangers = docker_strangers,
    .next_event = docker_next_event,
    .isolation = docker_isolation,
    .network = docker_network,
    .sandbox_free = docker_sandbox_free,
    .sandbox_close = docker_sandbox_close,
    .sandbox_alive = docker_sandbox_alive,
    .run_start = docker_run_start,
    .run_next = docker_run_next,
    .run_stdin_write = docker_run_stdin_write,
    .run_stdin_eof = docker_run_stdin_eof,
    .run_resume = docker_run_resume,
    .run_wait_started = docker_run_wait_started,
    .run_seek = docker_run_seek,
    .run_leave = docker_run_leave,
    .run_interrupt = docker_run_interrupt,
    .run_ended = docker_run_ended,
    .run_cut = docker_run_cut,
    .run_watch = docker_run_watch,
    .next_end = docker_next_end,
    .run_signal = docker_run_signal,
    .run_resize = docker_run_resize,
    .run_exit = docker_run_exit,
    .run_stop = docker_run_stop,
    .run_free = docker_run_free,
    .usage = docker_usage,
};

static int setup(struct docker_provider *self, const struct provider_docker_settings *settings, struct error *err)
{
    const struct engine_settings engine = {.socket_path = settings->socket_path};
    const struct agent_hub_settings hub = {.epoch = settings->epoch};
    auto_buf struct buf profile = BUF_INIT(SECCOMP_MAX);

    if (engine_seccomp_render(&profile, err) < 0)
        return -1;
    self->install = alloc_str(settings->install);
    self->state_dir = alloc_str(settings->state_dir);
    self->build_network = alloc_str(settings->build_network);
    self->build_timeout_ms = settings->build_timeout_ms;
    self->stop_fd = settings->stop_fd;
    self->workspace_root = alloc_str(settings->workspace_root);
    self->agent_path = provider_file_path(settings->state_dir, "agent-", agent_blob, agent_blob_size);
    self->seccomp_path = provider_file_path(settings->state_dir, "seccomp-", profile.data, profile.size);
    return provider_file_keep(self->agent_path, agent_blob, agent_blob_size, 0755, err) < 0 ||
                   engine_new(&engine, &self->engine, err) < 0 || agent_hub_new(&hub, &self->hub, err) < 0
               ? -1
               : 0;
}

int provider_docker_new(const struct provider_docker_settings *settings, struct provider **ret_provider,
                        struct error *err)
{
    struct docker_provider *self = alloc_zero(sizeof *self);

    self->base.ops = &docker_ops;
    (void)pthread_mutex_init(&self->lock, NULL);
    if (setup(self, settings, err) < 0) {
        docker_free(&self->base);
        return -1;
    }
    *ret_provider = &self->base;
    return 0;
}
