/* What /metrics, /stats and /readyz are made of, and the thread that asks so that they need not. */
#include "session_figures.h"

#include "clock.h"
#include "session_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    PROBE_MS = 5000,    /* between two rounds */
    ENGINE_MS = 3000,   /* an engine that says nothing for so long hangs */
    DEAF_MS = 20000,    /* no round ended for so long: the disk hangs */
    WRITING_MS = 10000, /* one transaction takes so long: the disk under the database hangs */
    FREE_INODES_LEAST = 1000,
};
static const int64_t free_bytes_least = INT64_C(64) << 20;

/* -- tenants that are told one by one: first come, first shown -- */

void figures_show_locked(struct tenant *tenant, struct sessions *sessions)
{
    if (tenant->shown || tenant == sessions->nobody || sessions->shown_count == FIGURES_TENANTS_MAX)
        return;
    sessions->shown[sessions->shown_count++] = tenant;
    tenant->shown = sessions->shown_count;
}

void figures_hide_locked(struct tenant *tenant, struct sessions *sessions)
{
    struct tenant *last;

    if (!tenant->shown || tenant->open > 0)
        return;
    last = sessions->shown[--sessions->shown_count];
    sessions->shown[tenant->shown - 1] = last;
    last->shown = tenant->shown;
    tenant->shown = 0;
}

/* -- the thread -- */

static void note_disk(struct probe *probe, const char *of, bool is_known, const struct statvfs *at)
{
    struct figures_disk *disk = &probe->disks[probe->disk_count++];

    *disk = (struct figures_disk){.of = of, .is_known = is_known};
    if (!is_known)
        return;
    disk->size_bytes = (int64_t)(at->f_blocks * at->f_frsize);
    disk->free_bytes = (int64_t)(at->f_bavail * at->f_frsize);
    disk->free_inodes = at->f_files ? (int64_t)at->f_favail : INT64_MAX; /* btrfs counts none */
}

static void probe_once(struct sessions *sessions, const struct cancel *cancel)
{
    struct cancel bounded = cancel_within(cancel, ENGINE_MS);
    struct probe found = {.is_known = true};
    struct error err = ERROR_INIT;
    struct statvfs at;
    bool is_known = statvfs(sessions->settings.state_dir, &at) == 0;

    note_disk(&found, "state", is_known, &at);
    if (sessions->root) {
        is_known = workspace_root_space(sessions->root, &at, &err) == 0;
        note_disk(&found, "workspaces", is_known, &at);
        error_clear(&err);
    }
    found.engine_answers = sessions->provider->ops->check(sessions->provider, &bounded, &err) == 0;
    found.engine_code = err.code;
    found.heard_mono_ms = clock_mono_ms();
    sessions_lock(sessions);
    sessions->probe = found;
    sessions_unlock(sessions);
}

void *probe_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    struct error err = ERROR_INIT;

    while (cancel_check(&cancel, &err) == 0) {
        struct cancel pause;

        probe_once(sessions, &cancel);
        pause = cancel_within(&cancel, PROBE_MS);
        (void)cancel_poll(&pause, NULL, 0, &err);
        error_clear(&err);
    }
    return NULL;
}

/* -- readiness -- */

static void says(struct figures_check *check, bool ok, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void says(struct figures_check *check, bool ok, const char *format, ...)
{
    va_list args;

    check->ok = ok;
    va_start(args, format);
    (void)vsnprintf(check->words, sizeof check->words, format, args);
    va_end(args);
}

static void judge_engine(const struct probe *probe, struct figures_check *ret)
{
    int64_t silent_ms = clock_mono_ms() - probe->heard_mono_ms;

    if (!probe->is_known)
        says(ret, false, "it has not been asked yet");
    else if (silent_ms > DEAF_MS)
        says(ret, false, "it was heard of %lld seconds ago", (long long)silent_ms / 1000);
    else if (probe->engine_answers)
        says(ret, true, "it answers");
    else if (probe->engine_code == ERROR_TIMEOUT)
        says(ret, false, "it is there, but does not answer within %d seconds", ENGINE_MS / 1000);
    else if (probe->engine_code == ERROR_UNAVAILABLE)
        says(ret, false, "it cannot be reached");
    else
        says(ret, false, "it answers, but with an error");
}

static void judge_store(const struct store_health *health, struct figures_check *ret)
{
    if (health->writing_ms > WRITING_MS)
        says(ret, false, "a write has been waiting for the disk for %lld seconds",
             (long long)health->writing_ms / 1000);
    else if (health->code == ERROR_NO_SPACE)
        says(ret, false, "there is no room on the disk; %zu writes wait", health->queued);
    else if (health->code != ERROR_NONE)
        says(ret, false, "the disk refuses; %zu writes wait", health->queued);
    else
        says(ret, true, "it takes writes");
}

static void judge_disk(const struct probe *probe, struct figures_check *ret)
{
    if (!probe->is_known) {
        says(ret, false, "it has not been looked at yet");
        return;
    }
    if (clock_mono_ms() - probe->heard_mono_ms > DEAF_MS) {
        says(ret, false, "it was looked at %lld seconds ago",
             (long long)(clock_mono_ms() - probe->heard_mono_ms) / 1000);
        return;
    }
    for (unsigned i = 0; i < probe->disk_count; i++) {
        const struct figures_disk *disk = &probe->disks[i];

        if (!disk->is_known)
            says(ret, false, "%s: it cannot be looked at", disk->of);
        else if (disk->free_bytes < free_bytes_least)
            says(ret, false, "%s: %lld MiB are free, %lld are needed", disk->of, (long long)disk->free_bytes >> 20,
                 (long long)free_bytes_least >> 20);
        else if (disk->free_inodes < FREE_INODES_LEAST)
            says(ret, false, "%s: %lld inodes are free, %d are needed", disk->of, (long long)disk->free_inodes,
                 FREE_INODES_LEAST);
        else
            continue;
        return;
    }
    says(ret, true, "there is room");
}

static void judge(const struct probe *probe, const struct store_health *health, struct session_readiness *ret)
{
    judge_engine(probe, &ret->engine);
    judge_store(health, &ret->store);
    judge_disk(probe, &ret->disk);
    ret->ready = ret->engine.ok && ret->store.ok && ret->disk.ok;
}

void sessions_readiness(struct sessions *sessions, struct session_readiness *ret)
{
    struct store_health health;
    struct probe probe;

    store_health(sessions->store, &health);
    sessions_lock(sessions);
    probe = sessions->probe;
    sessions_unlock(sessions);
    judge(&probe, &health, ret);
}

/* -- figures -- */

static void count_tenant_locked(struct session_figures *figures, const struct tenant *tenant)
{
    struct figures_tenant *to = &figures->tenants[figures->tenant_count++];

    memcpy(to->tenant, tenant->name, sizeof to->tenant);
    to->open = tenant->open;
    to->resident = tenant->resident;
    to->running_commands = tenant->running_commands;
    to->disk_bytes = tenant->disk_bytes;
    figures->others.open -= tenant->open;
    figures->others.resident -= tenant->resident;
    figures->others.running_commands -= tenant->running_commands;
}

static void count_locked(struct sessions *sessions, struct session_figures *ret)
{
    const struct policy *policy = sessions->policy;

    ret->open = sessions->open_count;
    ret->opening = sessions->state_counts[SESSION_OPENING];
    ret->frozen = sessions->frozen_count;
    ret->running = sessions->state_counts[SESSION_RUNNING] - sessions->frozen_count;
    ret->hibernated = sessions->state_counts[SESSION_HIBERNATED];
    ret->resident = sessions->resident_count;
    ret->running_commands = sessions->running_commands;
    ret->max_running_commands = sessions->settings.max_running_commands;
    ret->max_sessions = policy->max_sessions;
    ret->max_open_sessions = policy->max_open_sessions;
    ret->tenant_total = (unsigned)sessions->tenants.count;
    ret->others = (struct figures_tenant){.open = sessions->open_count,
                                          .resident = sessions->resident_count,
                                          .running_commands = sessions->running_commands,
                                          .disk_bytes = -1};
    count_tenant_locked(ret, sessions->nobody);
    for (unsigned i = 0; i < sessions->shown_count; i++)
        count_tenant_locked(ret, sessions->shown[i]);
    for (size_t i = 0; i < policy->runtime_count && ret->pool_count < FIGURES_POOLS_MAX; i++) {
        const struct policy_runtime *runtime = &policy->runtimes[i];
        struct figures_pool *pool = &ret->pools[ret->pool_count];

        if (!runtime->pool)
            continue;
        (void)snprintf(pool->runtime, sizeof pool->runtime, "%s", runtime->alias);
        pool->ready = pool_held_locked(sessions, runtime->alias);
        pool->wanted = runtime->pool;
        ret->pool_count++;
    }
    ret->disk_count = sessions->probe.disk_count;
    memcpy(ret->disks, sessions->probe.disks, sizeof ret->disks);
}

void sessions_figures(struct sessions *sessions, struct session_figures *ret)
{
    struct store_health health;
    struct probe probe;

    memset(ret, 0, sizeof *ret);
    store_health(sessions->store, &health);
    ret->store_queued = health.queued;
    sessions_lock(sessions);
    count_locked(sessions, ret);
    probe = sessions->probe;
    sessions_unlock(sessions);
    judge(&probe, &health, &ret->readiness);
}
