/* Sleep, wake and longer life on demand. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

bool session_is_due_locked(const struct session *session, int64_t idle_us)
{
    static const int64_t grace_us = INT64_C(60) * 1000000; /* after a start: whoever was cut off comes back first */
    int64_t now_us = clock_mono_us();
    int64_t up_us = now_us - session->owner->started_mono_us;

    return session->in_flight == 0 && now_us - session->last_activity_mono_us > idle_us &&
           now_us >= session->keep_until_mono_us && up_us > (idle_us / 2 < grace_us ? idle_us / 2 : grace_us);
}

int sessions_hibernate(struct sessions *sessions, const char *id, const struct cancel *cancel,
                       struct session_view *ret_view, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    int result;

    if (!session)
        return -1;
    sessions_lock(sessions);
    result = session_wait_idle_locked(session, cancel, err);
    if (result == 0 && session->state == SESSION_RUNNING) {
        if (session->in_flight)
            result = fail(err, CONFLICT, "Session %s is in use", id);
        else if (!sandbox_outlives(sessions) && !sessions->settings.persist_containers)
            result = fail(err, CONFLICT, "Nothing of session %s would be left: close it instead", id);
        else
            result = session_hibernate_locked(session, cancel, err);
    }
    if (result == 0)
        session_view_locked(session, ret_view);
    sessions_unlock(sessions);
    return result;
}

int sessions_wake(struct sessions *sessions, const char *id, const struct cancel *cancel, struct session_view *ret_view,
                  struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct sandbox *sandbox;
    uint32_t number;

    if (!session || session_enter(session, cancel, &sandbox, &number, err) < 0)
        return -1;
    sandbox_unref(sandbox);
    session_leave(session);
    sessions_lock(sessions);
    session_view_locked(session, ret_view);
    sessions_unlock(sessions);
    return 0;
}

/* In force before it is written, so that the timer cannot come in between; taken back if it cannot be written. */
int sessions_keepalive(struct sessions *sessions, const char *id, int64_t seconds, const struct cancel *cancel,
                       int64_t *ret_expires_unix_us, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    int64_t until_us = seconds ? clock_mono_us() + seconds * 1000000 : 0;
    int64_t idle_until_us;
    int64_t before_us;

    if (!session)
        return -1;
    sessions_lock(sessions);
    if (session_wait_idle_locked(session, cancel, err) < 0) {
        sessions_unlock(sessions);
        return err->code == ERROR_GONE ? fail(err, NOT_FOUND, "No such session: %s", id) : -1;
    }
    session_touch_locked(session);
    before_us = session->keep_until_mono_us;
    session->keep_until_mono_us = until_us;
    idle_until_us = session->last_activity_mono_us + sessions->policy->idle_timeout_s * 1000000;
    sessions_unlock(sessions);

    if (store_session_keep(sessions->store, id, seconds ? clock_unix_ms() + seconds * 1000 : 0, err) < 0) {
        sessions_lock(sessions);
        if (session->keep_until_mono_us == until_us)
            session->keep_until_mono_us = before_us;
        sessions_unlock(sessions);
        return -1;
    }
    *ret_expires_unix_us = clock_unix_us() + (until_us > idle_until_us ? until_us : idle_until_us) - clock_mono_us();
    return 0;
}
