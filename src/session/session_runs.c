/* Watched runs: started, found, looked at, told. */
#include "session_runs_private.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_TIMEOUT_MS = 10000 };

/* -- starting -- */

/* The run of that name, once it is more than a name; NULL: there is none (any more). Lock held, released meanwhile. */
static int find_started_locked(struct session *session, const char *run_id, const struct cancel *cancel,
                               struct kept_run **ret_kept, struct error *err)
{
    struct sessions *sessions = session->owner;

    while ((*ret_kept = kept_find_locked(session, run_id)) && (*ret_kept)->state == RUN_STATE_STARTING)
        if (waitq_wait(&sessions->runs_changed, &sessions->lock, cancel, err) < 0)
            return -1;
    return 0;
}

static int check_limits_locked(struct session *session, const char *run_id, struct error *err)
{
    const struct sessions_settings *settings = &session->owner->settings;

    for (const struct active_run *active = session->runs; active; active = active->next)
        if (strcmp(active->run_id, run_id) == 0)
            return fail(err, CONFLICT, "Run is running: %s", run_id);
    if (session->kept_alive >= settings->max_runs_per_session)
        return fail(err, LIMIT, "%u commands are running in session %s: no more at once", session->kept_alive,
                    session->id);
    if (!session_command_room_locked(session))
        return fail(err, LIMIT, "As many commands are running as may at once, or as are this tenant's share");
    return 0;
}

static struct kept_run *new_record(const char *run_id, const struct run_spec *spec, const char *command)
{
    struct kept_run *kept = alloc_zero(sizeof *kept);

    kept->references = 2; /* the list's and the caller's */
    (void)snprintf(kept->run_id, sizeof kept->run_id, "%s", run_id);
    kept->command = alloc_str(command);
    kept->tty = spec->tty;
    kept->has_deadline = spec->timeout_ms > 0;
    kept->deadline_mono_ms = spec->timeout_ms > 0 ? clock_mono_ms() + spec->timeout_ms : 0;
    kept->started_at_unix_us = clock_unix_us();
    kept->started_mono_us = clock_mono_us();
    kept->state = RUN_STATE_STARTING;
    return kept;
}

/* It was not, and nobody needs to know that it was tried. */
static void undo(struct session *session, struct kept_run *kept)
{
    struct sessions *sessions = session->owner;
    char slot[STORE_SLOT_BYTES];
    uint32_t number;

    sessions_lock(sessions);
    number = kept->number;
    memcpy(slot, kept->slot, sizeof slot);
    if (!kept->is_dropped)
        kept_remove_locked(kept);
    sessions_unlock(sessions);
    if (number)
        store_run_forget(sessions->store, slot, number);
}

static int refuse_cwd(const struct run_spec *spec, const struct run_exit *exit, struct error *err)
{
    char reason[64];

    return fail(err, INVALID, "cwd: %.128s: %s", spec->cwd ? spec->cwd : "the work dir",
                strerror_r(exit->spawn_errno, reason, sizeof reason));
}

/* START, and what the agent makes of it. */
static int launch(struct session *session, struct kept_run *kept, const struct run_spec *spec,
                  const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    const struct provider_ops *ops = sessions->provider->ops;
    struct sandbox *sandbox;
    struct sandbox_run *run;
    struct run_exit exit;
    uint32_t number;
    bool is_cut = false;
    int result;

    if (session_run_begin(session, spec, kept, cancel, &sandbox, &run, &number, err) < 0)
        return -1;
    result = ops->run_wait_started(run, cancel, err);
    if (result == 0 && ops->run_ended(run, &exit)) {
        is_cut = exit.lost && ops->run_cut(run);
        if (exit.spawn_failed && exit.spawn_cwd)
            result = refuse_cwd(spec, &exit, err);
    }
    if (result < 0) {
        ops->run_free(run);
        session_leave(session);
        sandbox_unref(sandbox);
        return -1;
    }
    sessions_lock(sessions);
    if (kept->is_dropped) {
        sessions_unlock(sessions);
        ops->run_free(run);
        session_leave(session);
        sandbox_unref(sandbox);
        return fail(err, GONE, "Session is closed: %s", session->id);
    }
    kept->is_flying = kept_is_use(kept);
    if (!kept->is_flying) { /* session_run_begin() counted it */
        session->in_flight--;
        session_touch_locked(session);
    }
    kept->state = RUN_STATE_RUNNING;
    kept_set_handle_locked(kept, run);
    if (!is_cut)
        ops->run_watch(run, kept->serial);
    if (kept->stop_asked)
        ops->run_stop(run);
    sessions_unlock(sessions);
    sandbox_unref(sandbox);
    sandbox_reserve_runs(session);
    if (is_cut) { /* what was the sandbox is not there any more; it may have been attached again already */
        sessions_lock(sessions);
        sandbox = session->state == SESSION_RUNNING && session->sandbox ? sandbox_ref(session->sandbox) : NULL;
        sessions_unlock(sessions);
        if (!sandbox || !ops->sandbox_alive(sandbox) || !kept_attach(kept, sandbox)) {
            static const struct run_exit lost = {.lost = true, .exit_code = -1};

            kept_end(kept, &lost, "sandbox gone");
        }
        sandbox_unref(sandbox);
    }
    return 0;
}

static int start_new(struct session *session, struct kept_run *kept, const struct run_spec *wanted,
                     const struct cancel *cancel, struct error *err)
{
    struct run_spec spec = *wanted;
    char detail[STORE_EVENT_DETAIL_BYTES];

    spec.keep = spec.watch = true;
    spec.has_reader = false;
    spec.merge = spec.merge || spec.tty;
    if (launch(session, kept, &spec, cancel, err) < 0) {
        undo(session, kept);
        return -1;
    }
    (void)snprintf(detail, sizeof detail, "%.64s: %.128s", kept->run_id, kept->command);
    detail[utf8_valid_prefix(detail, strlen(detail))] = '\0';
    feed_record(session->owner, "run_started", session->id, session->tenant, detail);
    return 0;
}

int session_runs_start(struct sessions *sessions, const char *id, const char *run_id, const struct run_spec *spec,
                       const char *command, const struct cancel *cancel, struct run_view *ret_view, bool *ret_new,
                       struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct kept_run *kept = NULL;
    char made[ID_RUN_BYTES + 1];
    int result;

    if (!session)
        return -1;
    if (!run_id) {
        id_random_hex(made, ID_RUN_BYTES);
        run_id = made;
    }
    sessions_lock(sessions);
    result = find_started_locked(session, run_id, cancel, &kept, err);
    *ret_new = result == 0 && !kept;
    if (kept && result == 0)
        kept_view_locked(kept, ret_view);
    if (*ret_new && (result = check_limits_locked(session, run_id, err)) == 0) {
        kept = new_record(run_id, spec, command);
        kept_insert_locked(session, kept);
    }
    sessions_unlock(sessions);
    if (result < 0 || !*ret_new)
        return result;
    result = start_new(session, kept, spec, cancel, err);
    sessions_lock(sessions);
    kept_view_locked(kept, ret_view);
    kept_unref_locked(kept);
    sessions_unlock(sessions);
    return result;
}

/* -- looking -- */

static void view_active(const struct active_run *active, struct run_view *ret)
{
    *ret = (struct run_view){.state = RUN_STATE_RUNNING, .started_at_unix_us = active->started_at_unix_us};
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", active->run_id);
    (void)snprintf(ret->command, sizeof ret->command, "%s", active->command);
    ret->command[utf8_valid_prefix(ret->command, strlen(ret->command))] = '\0';
}

static int by_start(const void *a, const void *b)
{
    int64_t left = ((const struct run_view *)a)->started_at_unix_us;
    int64_t right = ((const struct run_view *)b)->started_at_unix_us;

    return left > right ? -1 : left < right;
}

int session_runs_list(struct sessions *sessions, const char *id, bool only_running, struct run_view **ret,
                      size_t *ret_count, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    size_t count = 0;

    if (!session)
        return -1;
    sessions_lock(sessions);
    for (const struct active_run *active = session->runs; active; active = active->next)
        count++;
    for (const struct kept_run *kept = session->kept; kept; kept = kept->next)
        count++;
    *ret = alloc_array(count + 1, sizeof **ret);
    count = 0;
    for (const struct active_run *active = session->runs; active; active = active->next)
        if (active->run)
            view_active(active, &(*ret)[count++]);
    for (const struct kept_run *kept = session->kept; kept; kept = kept->next)
        if (!only_running || kept->state != RUN_STATE_ENDED)
            kept_view_locked(kept, &(*ret)[count++]);
    sessions_unlock(sessions);
    qsort(*ret, count, sizeof **ret, by_start);
    *ret_count = count;
    return 0;
}

static const struct active_run *find_active_locked(const struct session *session, const char *run_id)
{
    const struct active_run *active = session->runs;

    while (active && strcmp(active->run_id, run_id) != 0)
        active = active->next;
    return active;
}

int session_runs_get(struct sessions *sessions, const char *id, const char *run_id, const struct cancel *cancel,
                     struct run_view *ret, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    const struct active_run *active;
    struct kept_run *kept;
    int result = 0;

    if (!session)
        return -1;
    sessions_lock(sessions);
    kept = kept_find_locked(session, run_id);
    active = kept ? NULL : find_active_locked(session, run_id);
    if (kept) {
        kept->references++;
        while (result == 0 && cancel && kept->state != RUN_STATE_ENDED)
            result = waitq_wait(&sessions->runs_changed, &sessions->lock, cancel, err);
        if (result == 0 || err->code == ERROR_TIMEOUT) {
            kept_view_locked(kept, ret);
            error_clear(err);
            result = 0;
        }
        kept_unref_locked(kept);
    } else if (active) {
        view_active(active, ret);
    } else {
        result = fail(err, NOT_FOUND, "No such run: %s", run_id);
    }
    sessions_unlock(sessions);
    return result;
}

/* -- telling: what has no link now is told when it has one (stop), or not at all -- */

/* One that is frozen, or becomes so this moment, hears of it now. What cannot be thawed hears of it when it is. */
static void thaw_to_tell_locked(struct kept_run *kept)
{
    const struct cancel stop = {.stop_fd = kept->session->owner->settings.stop_fd, .client_fd = -1};
    const struct cancel bounded = cancel_within(&stop, TELL_TIMEOUT_MS);
    struct error ignored = ERROR_INIT;

    if (kept->state == RUN_STATE_RUNNING)
        (void)session_thaw_for_use_locked(kept->session, &bounded, &ignored);
}

void kept_signal_locked(struct kept_run *kept, int signal_number)
{
    thaw_to_tell_locked(kept);
    if (kept->state == RUN_STATE_RUNNING && kept->handle)
        kept->session->owner->provider->ops->run_signal(kept->handle->run, signal_number);
}

void kept_stop_locked(struct kept_run *kept)
{
    kept->stop_asked = kept->state != RUN_STATE_ENDED;
    if (kept->state == RUN_STATE_RUNNING && !kept->is_flying) { /* not frozen again before it has ended */
        kept->is_flying = true;
        kept->session->in_flight++;
    }
    thaw_to_tell_locked(kept);
    if (kept->state == RUN_STATE_RUNNING && kept->handle)
        kept->session->owner->provider->ops->run_stop(kept->handle->run);
}

void kept_resize_locked(struct kept_run *kept, unsigned rows, unsigned cols)
{
    thaw_to_tell_locked(kept);
    if (kept->state == RUN_STATE_RUNNING && kept->handle)
        kept->session->owner->provider->ops->run_resize(kept->handle->run, rows, cols);
}

int session_runs_signal(struct sessions *sessions, const char *id, const char *run_id, int signal_number,
                        struct error *err)
{
    auto_session struct session *session = NULL;
    struct kept_run *kept;

    if (signal_number < 1 || signal_number > 63)
        return fail(err, INVALID, "signal: no signal %d", signal_number);
    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    sessions_lock(sessions);
    kept_signal_locked(kept, signal_number);
    kept_unref_locked(kept);
    sessions_unlock(sessions);
    return 0;
}

int session_runs_stop(struct sessions *sessions, const char *id, const char *run_id, struct error *err)
{
    auto_session struct session *session = NULL;
    struct kept_run *kept;

    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    sessions_lock(sessions);
    kept_stop_locked(kept);
    kept_unref_locked(kept);
    sessions_unlock(sessions);
    return 0;
}

int session_runs_resize(struct sessions *sessions, const char *id, const char *run_id, unsigned rows, unsigned cols,
                        struct error *err)
{
    auto_session struct session *session = NULL;
    struct kept_run *kept;
    int result = 0;

    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    sessions_lock(sessions);
    if (!kept->tty)
        result = fail(err, INVALID, "Run has no terminal: %s", run_id);
    else
        kept_resize_locked(kept, rows, cols);
    kept_unref_locked(kept);
    sessions_unlock(sessions);
    return result;
}
