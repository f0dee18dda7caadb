/* The thread that closes what nobody uses, sweeps what nobody came back to, and writes down who was active. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

enum { SHORTEST_TICK_MS = 250, LONGEST_TICK_MS = 30000 };

static void save_activity(struct sessions *sessions, struct session **list, size_t count)
{
    auto_free struct store_touch *touches = alloc_array(count, sizeof *touches);
    struct error err = ERROR_INIT;
    size_t touched = 0;

    sessions_lock(sessions);
    for (size_t i = 0; i < count; i++) {
        if (!list[i]->activity_unsaved || list[i]->state == SESSION_OPENING)
            continue;
        list[i]->activity_unsaved = false;
        memcpy(touches[touched].id, list[i]->id, sizeof touches[touched].id);
        touches[touched++].last_activity_unix_ms = list[i]->last_activity_unix_us / 1000;
    }
    sessions_unlock(sessions);
    if (touched && store_sessions_touch(sessions->store, touches, touched, &err) < 0)
        log_warn("reaper.touch", log_e(&err));
}

static void reap(struct sessions *sessions, struct session **list, size_t count, int64_t idle_timeout_s,
                 const struct cancel *cancel)
{
    int64_t idle_us = idle_timeout_s * 1000000;

    for (size_t i = 0; i < count; i++) {
        struct error err = ERROR_INIT;
        bool due;

        sessions_lock(sessions);
        due = (list[i]->state == SESSION_RUNNING || list[i]->state == SESSION_HIBERNATED) && !list[i]->busy &&
              session_is_due_locked(list[i], idle_us);
        sessions_unlock(sessions);
        if (!due || cancel_check(cancel, &err) < 0)
            continue;
        if (session_close(list[i], false, idle_us, "reaped", cancel, &err) < 0 && err.code != ERROR_CONFLICT &&
            err.code != ERROR_NOT_FOUND)
            log_warn("reaper.close", log_s("session", list[i]->id), log_e(&err));
    }
}

static void freeze(struct sessions *sessions, struct session **list, size_t count, const struct cancel *cancel)
{
    int64_t after_us = sessions->settings.freeze_after_s * 1000000;

    for (size_t i = 0; i < count && after_us > 0; i++) {
        struct session *session = list[i];
        struct error err = ERROR_INIT;

        sessions_lock(sessions);
        if (session->state == SESSION_RUNNING && !session->busy && !session->frozen && session->in_flight == 0 &&
            session->sandbox && sessions->provider->ops->sandbox_alive(session->sandbox) &&
            clock_mono_us() - session->last_activity_mono_us > after_us)
            (void)session_freeze_locked(session, cancel, &err);
        sessions_unlock(sessions);
    }
}

/* How long until somebody may be due: a quarter of the time a session may be idle, within bounds. */
static int64_t next_tick_ms(const struct sessions *sessions, const struct policy *policy)
{
    int64_t tick_ms = policy->idle_timeout_s < LONGEST_TICK_MS ? policy->idle_timeout_s * 1000 / 4 : LONGEST_TICK_MS;

    if (sessions->settings.freeze_after_s > 0 && tick_ms > sessions->settings.freeze_after_s * 1000 / 4)
        tick_ms = sessions->settings.freeze_after_s * 1000 / 4;
    if (tick_ms > sessions->settings.cleanup_interval_s * 1000)
        tick_ms = sessions->settings.cleanup_interval_s * 1000;
    return tick_ms < SHORTEST_TICK_MS ? SHORTEST_TICK_MS : tick_ms > LONGEST_TICK_MS ? LONGEST_TICK_MS : tick_ms;
}

static void sweep(struct sessions *sessions, const struct policy *policy, const struct cancel *cancel)
{
    if (policy->workspace_ttl.is_set)
        sweep_workspaces(sessions, policy->workspace_ttl.value, cancel);
    if (policy->container_ttl.is_set && sessions->settings.persist_containers)
        sweep_containers(sessions, policy->container_ttl.value, cancel);
}

void *reaper_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    int64_t sweep_at_ms = clock_mono_ms() + sessions->settings.cleanup_interval_s * 1000;

    for (;;) {
        auto_policy struct policy *policy = sessions_policy(sessions);
        struct cancel pause = cancel_within(&cancel, next_tick_ms(sessions, policy));
        struct error err = ERROR_INIT;
        struct session **list;
        size_t count;

        (void)cancel_poll(&pause, NULL, 0, &err);
        error_clear(&err);
        clock_look(sessions);
        list = registry_list(sessions, &count);
        save_activity(sessions, list, count);
        reap(sessions, list, count, policy->idle_timeout_s, &cancel);
        freeze(sessions, list, count, &cancel);
        registry_list_free(list, count);
        tenants_sweep(sessions);
        restore_sweep(sessions, &cancel);
        if (clock_mono_ms() >= sweep_at_ms) {
            sweep(sessions, policy, &cancel);
            sweep_at_ms = clock_mono_ms() + sessions->settings.cleanup_interval_s * 1000;
        }
        if (cancel_check(&cancel, &err) < 0)
            return NULL;
    }
}
