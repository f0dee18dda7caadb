/* A session's container: how it is had, kept and let go. Callers hold the session's `busy`, not the lock, so that ref, slot and
 * sandbox have one writer. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

#include <string.h>

enum {
    RUN_BLOCK = 1024, /* run numbers promised in the store at a time; more than max_running_commands */
    PULL_TIMEOUT_MS = 900000,
    STOP_TIMEOUT_MS = 30000,
    CLEAN_TIMEOUT_MS = 10000, /* after a failure; what is left then is the reconciler's */
};

/* The wire's environment of every sandbox (wires/sandboxd-current.md, section 8). */
#define COMMON_ENV                                                                                                 \
    "GIT_CONFIG_COUNT=5", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=user.name", \
        "GIT_CONFIG_VALUE_1=Agent", "GIT_CONFIG_KEY_2=user.email", "GIT_CONFIG_VALUE_2=agent@sandbox.local",       \
        "GIT_CONFIG_KEY_3=init.defaultBranch", "GIT_CONFIG_VALUE_3=main", "GIT_CONFIG_KEY_4=advice.detachedHead",  \
        "GIT_CONFIG_VALUE_4=false", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "PAGER=cat", "NO_COLOR=1",           \
        "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1",                 \
        "PIP_ROOT_USER_ACTION=ignore", "UV_CONCURRENT_DOWNLOADS=2", "UV_CONCURRENT_INSTALLS=2",                    \
        "UV_COMPILE_BYTECODE=1", "DEBIAN_FRONTEND=noninteractive"

static const char *const root_env[] = {COMMON_ENV, "UV_SYSTEM_PYTHON=1", NULL};
static const char *const unprivileged_env[] = {COMMON_ENV, NULL};

void sandbox_spec_of(const struct sessions *sessions, const struct policy *policy, const struct policy_runtime *runtime,
                     const char *slot, struct sandbox_spec *ret)
{
    struct policy_limits limits = policy_effective(policy, runtime);

    *ret = (struct sandbox_spec){
        .slot = slot,
        .image = runtime->image,
        .work_dir = sessions->settings.work_dir,
        .sandbox_uid = sessions->settings.sandbox_uid,
        .oci_runtime = limits.oci_runtime,
        .network_mode = limits.network_mode ? limits.network_mode : "none",
        .memory_bytes = limits.mem_bytes,
        .memory_swap_bytes = limits.memswap_bytes ? limits.memswap_bytes : limits.mem_bytes,
        .nano_cpus = limits.cpus.is_set ? (int64_t)(limits.cpus.value * 1e9) : 0,
        .cpu_shares = limits.cpu_shares.is_set ? limits.cpu_shares.value : 0,
        .pids_limit = limits.pids_limit.is_set ? limits.pids_limit.value : 0,
        .tmpfs_size = policy->tmpfs_size,
        .env = sessions->settings.sandbox_uid > 0 ? unprivileged_env : root_env,
        .drop_all_caps = runtime->caps_none,
    };
}

bool sandbox_outlives(const struct sessions *sessions)
{
    return sessions->root != NULL;
}

void sandbox_slot_row(const struct session *session, struct store_slot *ret)
{
    *ret = (struct store_slot){.uid = session->uid,
                               .gid = session->gid,
                               .files_uid = session->files_uid,
                               .files_gid = session->files_gid,
                               .last_run = session->reserved_run};
    (void)snprintf(ret->slot, sizeof ret->slot, "%s", session->slot);
    (void)snprintf(ret->ref, sizeof ret->ref, "%s", session->ref);
    (void)snprintf(ret->runtime, sizeof ret->runtime, "%s", session->runtime);
}

int sandbox_save_slot(struct session *session, struct error *err)
{
    struct store_slot row;

    if (session->pooled)
        return 0; /* nobody's: what a dead broker leaves of it is to be removed */
    sandbox_slot_row(session, &row);
    return store_slot_put(session->owner->store, &row, err);
}

static void set_ref(struct session *session, const char *ref)
{
    sessions_lock(session->owner);
    (void)snprintf(session->ref, sizeof session->ref, "%s", ref);
    session->uid = session->gid = -1;
    session->reserved_run =
        session->next_run + RUN_BLOCK; /* never used twice on a slot, so that rows keep their names */
    session->has_sample = false;
    sessions_unlock(session->owner);
}

static void drop_link(struct session *session)
{
    struct sandbox *sandbox;

    sessions_lock(session->owner);
    sandbox = session->sandbox;
    session->sandbox = NULL;
    session_frozen_locked(session, false);
    sessions_unlock(session->owner);
    if (sandbox)
        session->owner->provider->ops->sandbox_close(sandbox);
    sandbox_unref(sandbox);
}

int sandbox_discard(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct cancel bounded = cancel_within(cancel, STOP_TIMEOUT_MS);

    runs_lose(session, "sandbox removed");
    drop_link(session);
    if (!session->ref[0])
        return 0;
    if (session->owner->provider->ops->remove(session->owner->provider, session->ref, &bounded, err) < 0) {
        recover_doubt(session->owner);
        return error_prefix(err, "removing the container of %s", session->id);
    }
    set_ref(session, "");
    return sandbox_save_slot(session, err);
}

int sandbox_put_away(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct provider *provider = session->owner->provider;
    struct cancel bounded = cancel_within(cancel, STOP_TIMEOUT_MS);

    if (!session->owner->settings.persist_containers)
        return sandbox_discard(session, cancel, err);
    runs_lose(session, "session hibernated");
    drop_link(session);
    if (!session->ref[0])
        return 0;
    if (provider->ops->stop(provider, session->ref, &bounded, err) < 0) {
        if (err->code != ERROR_NOT_FOUND) {
            recover_doubt(session->owner);
            return error_prefix(err, "stopping the container of %s", session->id);
        }
        error_clear(err); /* removed behind our back: stopped enough */
    }
    return 0;
}

/* Making and starting have a deadline of their own: an engine that took the call and says nothing is as good as away. */
static struct cancel engine_bound(const struct sessions *sessions, const struct cancel *cancel)
{
    return cancel_within(cancel, sessions->settings.engine_timeout_ms);
}

/* Attach to the container that session->ref names, starting it if need be. */
static int open_existing(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = engine_bound(sessions, cancel);
    auto_free uint32_t *known = NULL;
    struct sandbox_hello hello;
    struct sandbox *sandbox;
    size_t known_count;

    drop_link(session);
    known = runs_known(session, &known_count);
    if (sessions->provider->ops->open(sessions->provider, session->ref, known, known_count, &bounded, &sandbox, &hello,
                                      err) < 0)
        return -1;
    if (session->uid >= 0 && (session->uid != hello.uid || session->gid != hello.gid)) {
        struct error ignored = ERROR_INIT;

        /* The first HELLO was taken before anything ran; one that differs was made up inside. */
        log_error("sandbox.identity_changed", LOG_SESSION(session), log_i("uid", hello.uid));
        sessions->provider->ops->sandbox_close(sandbox);
        sandbox_unref(sandbox);
        (void)sessions->provider->ops->kill(sessions->provider, session->ref, &bounded, &ignored);
        return fail(err, GONE, "the sandbox claims another user than before");
    }
    sessions_lock(sessions);
    session->sandbox = sandbox;
    session->attached_mono_us = clock_mono_us();
    session->uid = session->files_uid = hello.uid;
    session->gid = session->files_gid = hello.gid;
    sessions_unlock(sessions);
    runs_attach(session, sandbox);
    return 0;
}

/* Whatever the failure looks like, the container may have been made and its name lost on the way, or may yet be made: it is
 * looked for. */
static int create_once(struct sessions *sessions, const struct sandbox_spec *spec, const struct cancel *cancel,
                       char ret_ref[SANDBOX_REF_BYTES], struct error *err)
{
    struct cancel bounded = engine_bound(sessions, cancel);
    int result = sessions->provider->ops->create(sessions->provider, spec, &bounded, ret_ref, err);

    if (result < 0 && err->code == ERROR_TIMEOUT)
        recover_doubt_long(sessions);
    else if (result < 0 && err->code != ERROR_NOT_FOUND)
        recover_doubt(sessions);
    return result;
}

static int pull(struct sessions *sessions, const char *image, const struct cancel *cancel, struct error *err)
{
    struct cancel bounded = cancel_within(cancel, PULL_TIMEOUT_MS);
    struct sandbox_image found;

    return sessions->provider->ops->image(sessions->provider, image, true, &bounded, &found, err);
}

static int create(struct session *session, const struct sandbox_spec *spec, const struct cancel *cancel,
                  struct error *err)
{
    struct sessions *sessions = session->owner;
    char ref[SANDBOX_REF_BYTES];

    if (create_once(sessions, spec, cancel, ref, err) < 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        error_clear(err);
        if (pull(sessions, spec->image, cancel, err) < 0 || create_once(sessions, spec, cancel, ref, err) < 0)
            return -1;
    }
    set_ref(session, ref);
    return sandbox_save_slot(session, err);
}

/* Is the container that the session has one that this spec would make? NOT_FOUND: there is none. */
static int fits(struct session *session, const struct sandbox_spec *spec, const struct cancel *cancel, bool *ret_fits,
                struct error *err)
{
    struct provider *provider = session->owner->provider;
    struct cancel bounded = engine_bound(session->owner, cancel);
    struct sandbox_listed listed;
    char digest[65];

    if (provider->ops->inspect(provider, session->ref, &bounded, &listed, err) < 0)
        return -1;
    provider_spec_digest(spec, digest);
    /* One that runs keeps what it was started with. */
    *ret_fits =
        strcmp(listed.slot, spec->slot) == 0 &&
        (listed.phase == SANDBOX_RUNNING || listed.phase == SANDBOX_PAUSED || strcmp(listed.spec_digest, digest) == 0);
    return 0;
}

static int ensure(struct session *session, const struct policy *policy, bool may_create, const struct cancel *cancel,
                  struct error *err)
{
    struct sessions *sessions = session->owner;
    const struct policy_runtime *runtime = policy_runtime(policy, session->runtime);
    auto_free char *workspace_path = NULL;
    char name[SESSION_ID_BYTES + 8];
    struct sandbox_spec spec;
    bool fitting = false;

    if (!runtime)
        return fail(err, INVALID, "Runtime '%s' is not allowed any more", session->runtime);
    sandbox_spec_of(sessions, policy, runtime, session->slot, &spec);
    (void)snprintf(name, sizeof name, "berth-%s", session->id);
    spec.name = name;
    if (sessions->root) {
        if (workspace_slot_path(sessions->root, session->slot, &workspace_path, err) < 0)
            return -1;
        spec.workspace_path = workspace_path;
        if (sessions->settings.sandbox_uid >= 0 &&
            workspace_slot_chown(sessions->root, session->slot, sessions->settings.sandbox_uid,
                                 sessions->settings.sandbox_uid, err) < 0)
            return -1;
    }
    if (session->ref[0] && fits(session, &spec, cancel, &fitting, err) < 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        error_clear(err);
        runs_lose(session, "sandbox gone");
        set_ref(session, "");
    }
    if (session->ref[0] && fitting) {
        if (open_existing(session, cancel, err) == 0)
            return 0;
        if (err->code == ERROR_UNAVAILABLE || err->code == ERROR_CANCELLED || !may_create)
            return -1;
        log_warn("sandbox.unusable", LOG_SESSION(session), log_e(err));
        error_clear(err);
    }
    if (!may_create)
        return fail(err, GONE, "The sandbox of session %s is gone, and its files with it", session->id);
    if (session->ref[0]) {
        log_info("sandbox.replaced", LOG_SESSION(session), log_s("why", fitting ? "unusable" : "other limits"));
        if (sandbox_discard(session, cancel, err) < 0)
            return -1;
    }
    if (create(session, &spec, cancel, err) < 0)
        return -1;
    if (open_existing(session, cancel, err) < 0) {
        struct cancel cleaning = cancel_detached(cancel);
        struct error ignored = ERROR_INIT;

        cleaning = cancel_within(&cleaning, CLEAN_TIMEOUT_MS);
        if (sandbox_discard(session, &cleaning, &ignored) < 0)
            log_warn("sandbox.left", LOG_SESSION(session), log_e(&ignored)); /* the reconciler takes it */
        return -1;
    }
    return 0;
}

/* A deadline that was not the caller's own was the engine's. */
static void say_overdue(const struct sessions *sessions, const struct cancel *cancel, struct error *err)
{
    struct error ignored = ERROR_INIT;

    if (err->code != ERROR_TIMEOUT || cancel_check(cancel, &ignored) < 0)
        return;
    error_clear(err);
    (void)fail(err, UNAVAILABLE, "The engine did not start the sandbox within %lld s. Try again later.",
               (long long)sessions->settings.engine_timeout_ms / 1000);
}

/* Numbers that the slot's row, written next, will promise. */
static void promise_runs(struct session *session)
{
    sessions_lock(session->owner);
    if (session->reserved_run - session->next_run < RUN_BLOCK / 2)
        session->reserved_run = session->next_run + RUN_BLOCK;
    sessions_unlock(session->owner);
}

int sandbox_ensure(struct session *session, const struct policy *policy, bool may_create, const struct cancel *cancel,
                   struct error *err)
{
    int64_t started_us = clock_mono_us();
    int result;

    if (start_take(session, cancel, err) < 0)
        return -1;
    result = ensure(session, policy, may_create, cancel, err);
    start_give(session->owner);
    if (result < 0)
        say_overdue(session->owner, cancel, err);
    promise_runs(session);
    if (result == 0 && sandbox_save_slot(session, err) < 0)
        result = -1;
    if (result == 0)
        log_info("sandbox.ready", LOG_SESSION(session), log_i("ms", (clock_mono_us() - started_us) / 1000));
    return result;
}

uint32_t sandbox_next_run_locked(struct session *session)
{
    return session->next_run++;
}

void sandbox_reserve_runs(struct session *session)
{
    struct error err = ERROR_INIT;
    char slot[STORE_SLOT_BYTES];
    uint32_t up_to = 0;

    sessions_lock(session->owner);
    if (session->reserved_run - session->next_run < RUN_BLOCK / 2) {
        up_to = session->reserved_run = session->next_run + RUN_BLOCK;
        memcpy(slot, session->slot, sizeof slot);
    }
    sessions_unlock(session->owner);
    if (up_to && store_slot_last_run(session->owner->store, slot, up_to, &err) < 0)
        log_warn("store.run_numbers", LOG_SESSION(session), log_e(&err));
}
