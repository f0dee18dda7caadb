/* Getting a session ready for a command: waking, healing, and making room by putting others to sleep. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

#include <string.h>

enum { SLEEP_TIMEOUT_MS = 60000, FREEZE_TIMEOUT_MS = 10000 };

static bool alive_locked(const struct session *session)
{
    return session->sandbox && session->owner->provider->ops->sandbox_alive(session->sandbox);
}

/* -- making room -- */

struct idlest {
    const struct tenant *tenant; /* NULL: anybody's */
    int64_t idle_before_mono_us;
    struct session *found;
};

static void look_idle(void *value, void *context)
{
    struct session *session = value;
    struct idlest *search = context;

    if ((search->tenant && session->of_tenant != search->tenant) || session->state != SESSION_RUNNING ||
        session->busy || session->in_flight || session->last_activity_mono_us > search->idle_before_mono_us)
        return;
    if (!search->found || session->last_activity_mono_us < search->found->last_activity_mono_us)
        search->found = session;
}

static struct session *eviction_candidate_locked(struct sessions *sessions, const struct policy *policy,
                                                 const struct tenant *tenant)
{
    struct idlest search = {.tenant = tenant};

    if (!policy->evict_idle_after.is_set || !sessions->root)
        return NULL;
    search.idle_before_mono_us = clock_mono_us() - policy->evict_idle_after.value * 1000000;
    map_each(&sessions->by_id, look_idle, &search);
    return search.found;
}

int session_hibernate_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = cancel_detached(cancel);
    struct workspace *workspace = NULL;
    int64_t last_activity_unix_ms = session->last_activity_unix_us / 1000;
    int result;

    bounded = cancel_within(&bounded, SLEEP_TIMEOUT_MS);
    session->busy = true;
    sessions_unlock(sessions);
    result = sandbox_put_away(session, &bounded, err);
    if (result == 0)
        result = store_session_state(sessions->store, session->id, STORE_HIBERNATED, last_activity_unix_ms, err);
    sessions_lock(sessions);
    if (result == 0) {
        session_state_locked(session, SESSION_HIBERNATED);
        registry_resident_locked(session, false);
        session_touch_locked(session);            /* the wire: last_activity is the moment it was put to sleep */
        workspace = take_ptr(session->workspace); /* many sleep */
    }
    session_settled_locked(session);
    workspace_unref(workspace);
    if (result == 0) {
        log_info("session.hibernated", LOG_SESSION(session));
        feed_record(sessions, "hibernated", session->id, session->tenant, "");
    } else {
        log_warn("session.hibernate_failed", LOG_SESSION(session), log_e(err));
    }
    return result;
}

/* Whose ceiling is in the way: 0 nobody's, else *ret_tenant is the one whose session has to sleep (NULL: anybody's). */
static bool is_full_locked(const struct session *session, const struct policy *policy, const struct tenant **ret_tenant)
{
    struct sessions *sessions = session->owner;

    *ret_tenant = tenant_is_full_locked(session->of_tenant) ? session->of_tenant : NULL;
    return *ret_tenant ||
           (policy->max_sessions.is_set && (int64_t)sessions->resident_count >= policy->max_sessions.value);
}

static int refuse_place(const struct session *session, const struct policy *policy, const struct tenant *full,
                        const char *prefix, struct error *err)
{
    if (full)
        return fail(err, LIMIT, "%sTenant '%s' already has %lld running sandboxes. Release an idle session first.",
                    prefix, full->name, (long long)full->limits.max_resident_sessions.value);
    return fail(err, LIMIT, "%sSession limit of %lld reached. Release an idle session before opening another.", prefix,
                (long long)policy->max_sessions.value);
}

int session_take_place_locked(struct session *session, const struct policy *policy, const char *refusal_prefix,
                              const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    const struct tenant *full;

    if (tenant_check_disk_locked(session->of_tenant, refusal_prefix, err) < 0)
        return -1;
    while (is_full_locked(session, policy, &full)) {
        struct session *victim = eviction_candidate_locked(sessions, policy, full);
        struct error ignored = ERROR_INIT;
        int slept;

        if (!victim)
            return refuse_place(session, policy, full, refusal_prefix, err);
        (void)session_ref(victim);
        slept = session_hibernate_locked(victim, cancel, &ignored);
        session_unref(victim);
        if (slept < 0)
            return refuse_place(session, policy, full, refusal_prefix, err);
    }
    registry_resident_locked(session, true);
    return 0;
}

/* -- freezing -- */

int session_freeze_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = cancel_within(cancel, FREEZE_TIMEOUT_MS);
    int result;

    session->busy = true;
    sessions_unlock(sessions);
    result = sessions->provider->ops->pause(sessions->provider, session->ref, &bounded, err);
    sessions_lock(sessions);
    session_frozen_locked(session, result == 0);
    session_settled_locked(session);
    if (result == 0)
        feed_record(sessions, "frozen", session->id, session->tenant, "");
    else
        log_warn("session.freeze_failed", LOG_SESSION(session), log_e(err));
    return result;
}

/* One that cannot be thawed is healed. */
int session_thaw_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = cancel_detached(cancel);
    int result;

    bounded = cancel_within(&bounded, FREEZE_TIMEOUT_MS);
    session->busy = true;
    sessions_unlock(sessions);
    result = sessions->provider->ops->thaw(sessions->provider, session->ref, &bounded, err);
    sessions_lock(sessions);
    if (result < 0 && err->code == ERROR_NOT_FOUND) {
        sessions->provider->ops->sandbox_close(session->sandbox);
        error_clear(err);
        result = 0;
    }
    if (result == 0)
        session_frozen_locked(session, false);
    session_settled_locked(session);
    if (result == 0)
        feed_record(sessions, "thawed", session->id, session->tenant, "");
    return result;
}

int session_thaw_for_use_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    int result = 0;

    while (result == 0 && (session->busy || session->frozen)) {
        result = session_wait_idle_locked(session, cancel, err);
        if (result == 0 && session->frozen)
            result = session_thaw_locked(session, cancel, err);
        if (result == 0)
            session_touch_locked(session); /* or it is frozen again before it was spoken to */
    }
    return result;
}

/* -- waking and healing: lock held on entry and exit -- */

static int wake_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    auto_policy struct policy *policy = policy_ref(sessions->policy);
    char refusal[SESSION_ID_BYTES + 32];
    int result;

    (void)snprintf(refusal, sizeof refusal, "Cannot wake session %s: ", session->id);
    session->busy = true;
    result = session_take_place_locked(session, policy, refusal, cancel, err);
    if (result == 0) {
        struct cancel detached = cancel_detached(cancel); /* a wake is finished although its caller went away */

        detached.deadline_ms = 0;
        sessions_unlock(sessions);
        result = sandbox_ensure(session, policy, sandbox_outlives(sessions), &detached, err);
        if (result == 0)
            result = store_session_state(sessions->store, session->id, STORE_RUNNING, clock_unix_ms(), err);
        sessions_lock(sessions);
        if (result == 0) {
            session_state_locked(session, SESSION_RUNNING);
            session_touch_locked(session);
        } else {
            registry_resident_locked(session, false);
        }
    }
    session_settled_locked(session);
    feed_record(sessions, result == 0 ? "woken" : "refused", session->id, session->tenant,
                result == 0 ? "" : error_public_text(err));
    return result;
}

static int heal_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    auto_policy struct policy *policy = policy_ref(sessions->policy);
    struct cancel detached = cancel_detached(cancel);
    /* What lay in a container that is not kept went with it, unless the files are on the host. */
    bool may_create = sandbox_outlives(sessions);
    int result;

    detached.deadline_ms = 0;
    if (!may_create && !sessions->settings.persist_containers)
        return fail(err, GONE, "The sandbox of session %s is gone, and its files with it", session->id);
    session->busy = true;
    sessions_unlock(sessions);
    log_info("session.healing", LOG_SESSION(session));
    result = sandbox_ensure(session, policy, may_create, &detached, err);
    recover_doubt(sessions); /* one that the engine made late, for a broker that is dead, may be there beside it */
    sessions_lock(sessions);
    session_settled_locked(session);
    if (result == 0)
        feed_record(sessions, "healed", session->id, session->tenant, "");
    return result;
}

int session_enter(struct session *session, const struct cancel *cancel, struct sandbox **ret_sandbox,
                  uint32_t *ret_number, struct error *err)
{
    struct sessions *sessions = session->owner;
    int result = 0;

    sessions_lock(sessions);
    while (result == 0) {
        result = session_wait_idle_locked(session, cancel, err);
        if (result == 0 && session->over_quota)
            result = fail(err, NO_SPACE,
                          "Session %s is over the disk quota of its workspace. Remove files through the service first.",
                          session->id);
        if (result < 0 || (session->state == SESSION_RUNNING && alive_locked(session) && !session->frozen))
            break;
        if (session->state == SESSION_HIBERNATED)
            result = wake_locked(session, cancel, err);
        else
            result =
                alive_locked(session) ? session_thaw_locked(session, cancel, err) : heal_locked(session, cancel, err);
    }
    if (result == 0) {
        session->in_flight++;
        session_touch_locked(session);
        *ret_sandbox = sandbox_ref(session->sandbox);
        *ret_number = sandbox_next_run_locked(session);
    }
    sessions_unlock(sessions);
    return result;
}

void session_leave(struct session *session)
{
    sessions_lock(session->owner);
    session->in_flight--;
    session_touch_locked(session);
    sessions_unlock(session->owner);
    sandbox_reserve_runs(session);
}

void session_sandbox_lost(struct session *session, struct sandbox *sandbox)
{
    /* The link is dead by itself mostly; closing it makes sure that the next to enter heals. */
    session->owner->provider->ops->sandbox_close(sandbox);
}
