/* Looking at sessions: never wakes, never heals, is no activity. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"

#include <stdlib.h>
#include <string.h>

enum { USAGE_TIMEOUT_MS = 1000 };

/* cpu_percent needs an earlier sample: the share of one processor since then, in percent. */
static void add_usage(struct session *session, const struct sandbox_usage *usage, struct session_view *view)
{
    struct sessions *sessions = session->owner;
    int64_t now_us = clock_mono_us();
    const struct policy_runtime *runtime;

    sessions_lock(sessions);
    view->has_usage = true;
    view->usage = *usage;
    if (session->has_sample && usage->cpu_ns >= session->sample_cpu_ns && now_us > session->sample_mono_us)
        view->cpu_percent =
            (double)(usage->cpu_ns - session->sample_cpu_ns) / 10.0 / (double)(now_us - session->sample_mono_us);
    session->has_sample = usage->cpu_ns >= 0;
    session->sample_cpu_ns = usage->cpu_ns;
    session->sample_mono_us = now_us;
    runtime = policy_runtime(sessions->policy, session->runtime);
    if (runtime && policy_effective(sessions->policy, runtime).mem_bytes > 0)
        view->memory_limit_bytes = policy_effective(sessions->policy, runtime).mem_bytes;
    sessions_unlock(sessions);
}

/* Ask all, then hear all: as long as the slowest, a second at most. */
static void sample(struct session **list, size_t count, struct session_view *views, const struct cancel *cancel)
{
    auto_free struct sandbox **sandboxes = alloc_array(count, sizeof *sandboxes);
    auto_free struct sandbox_usage *usages = alloc_array(count, sizeof *usages);
    auto_free bool *answered = alloc_array(count, sizeof *answered);
    struct cancel bounded = cancel_within(cancel, USAGE_TIMEOUT_MS);
    const struct provider_ops *ops;
    struct provider *provider;

    if (count == 0)
        return;
    provider = list[0]->owner->provider;
    ops = provider->ops;
    for (size_t i = 0; i < count; i++) {
        sessions_lock(list[i]->owner);
        if (views[i].alive && list[i]->sandbox && !list[i]->frozen) /* a frozen one answers nothing */
            sandboxes[i] = sandbox_ref(list[i]->sandbox);
        sessions_unlock(list[i]->owner);
    }
    ops->usage(provider, sandboxes, count, &bounded, usages, answered);
    for (size_t i = 0; i < count; i++) {
        if (answered[i])
            add_usage(list[i], &usages[i], &views[i]);
        sandbox_unref(sandboxes[i]);
    }
}

int sessions_list(struct sessions *sessions, bool usage, const struct cancel *cancel, struct session_view **ret_views,
                  size_t *ret_count, struct error *err)
{
    size_t all_count;
    struct session **all = registry_list(sessions, &all_count);
    struct session_view *views = alloc_array(all_count, sizeof *views);
    auto_free struct session **shown = alloc_array(all_count, sizeof *shown);
    size_t count = 0;

    sessions_lock(sessions);
    for (size_t i = 0; i < all_count; i++) {
        if (all[i]->state != SESSION_RUNNING && all[i]->state != SESSION_HIBERNATED)
            continue;
        session_view_locked(all[i], &views[count]);
        shown[count++] = all[i];
    }
    sessions_unlock(sessions);
    if (usage)
        sample(shown, count, views, cancel);
    registry_list_free(all, all_count);
    *ret_views = views;
    *ret_count = count;
    return 0;
}

int sessions_page(struct sessions *sessions, const char *after, size_t limit, struct session_view **ret_views,
                  size_t *ret_count, bool *ret_more, struct error *err)
{
    struct session *at;
    struct session_view *views;
    size_t count = 0;

    sessions_lock(sessions);
    at = after[0] ? registry_find_locked(sessions, after) : sessions->order_first;
    if (after[0] && (!at || !at->is_ordered)) {
        sessions_unlock(sessions);
        return fail(err, NOT_FOUND, "No such session: %s", after);
    }
    if (after[0])
        at = at->order_next;
    views = alloc_array(limit < sessions->by_id.count ? limit : sessions->by_id.count, sizeof *views);
    for (; at && count < limit; at = at->order_next)
        session_view_locked(at, &views[count++]);
    *ret_more = at != NULL;
    sessions_unlock(sessions);
    *ret_views = views;
    *ret_count = count;
    return 0;
}

int sessions_inspect(struct sessions *sessions, const char *id, bool usage, const struct cancel *cancel,
                     struct session_view *ret_view, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);

    if (!session)
        return -1;
    sessions_lock(sessions);
    session_view_locked(session, ret_view);
    sessions_unlock(sessions);
    if (usage)
        sample(&session, 1, ret_view, cancel);
    return 0;
}

static struct isolation_control disk_control(const struct sessions *sessions)
{
    const struct sessions_settings *settings = &sessions->settings;
    struct isolation_control control = {.name = "disk",
                                        .state = ISOLATION_NOT_ENFORCED,
                                        .detail =
                                            "no quota is set up: a sandbox can fill the disk of the workspace root"};

    if (!sessions->root)
        return control;
    if (!settings->quota_bytes && !settings->quota_files) {
        if (sessions->quota_kept == WORKSPACE_QUOTA_GROUPS)
            (void)snprintf(control.detail, sizeof control.detail,
                           "no quota of one workspace is set up; btrfs keeps what a tenant may hold (max_disk_bytes)");
        return control;
    }
    control.state = ISOLATION_ENFORCED;
    if (sessions->quota_kept == WORKSPACE_QUOTA_PROJECTS) {
        (void)snprintf(control.detail, sizeof control.detail,
                       "project quotas keep %lld bytes and %lld files (0: any) for each workspace",
                       (long long)settings->quota_bytes, (long long)settings->quota_files);
    } else if (sessions->quota_kept == WORKSPACE_QUOTA_GROUPS && settings->quota_bytes) {
        (void)snprintf(
            control.detail, sizeof control.detail,
            "btrfs keeps %lld bytes for each workspace, and tenants' max_disk_bytes; files are counted by a sweep",
            (long long)settings->quota_bytes);
    } else {
        control.state = ISOLATION_ACCOUNTED;
        (void)snprintf(control.detail, sizeof control.detail,
                       "uploads stop at the quota; a sweep freezes who is above%s%s",
                       sessions->quota_missing ? ": " : "", sessions->quota_missing ? sessions->quota_missing : "");
    }
    return control;
}

int sessions_isolation(struct sessions *sessions, const struct cancel *cancel, struct session_isolation **ret,
                       size_t *ret_count, struct error *err)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    auto_free struct session_isolation *list = alloc_array(policy->runtime_count, sizeof *list);

    for (size_t i = 0; i < policy->runtime_count; i++) {
        struct sandbox_spec spec;
        int count;

        sandbox_spec_of(sessions, policy, &policy->runtimes[i], "", &spec);
        (void)snprintf(list[i].runtime, sizeof list[i].runtime, "%s", policy->runtimes[i].alias);
        count = sessions->provider->ops->isolation(sessions->provider, &spec, cancel, list[i].controls, err);
        if (count < 0)
            return -1;
        if (count < ISOLATION_CONTROLS_MAX)
            list[i].controls[count++] = disk_control(sessions);
        list[i].count = count;
    }
    *ret = take_ptr(list);
    *ret_count = policy->runtime_count;
    return 0;
}
