/* Commands that are waited for: /run and /exec are thin callers of this. */
#include "session_run.h"

#include "clock.h"
#include "log.h"
#include "metric.h"
#include "session_private.h"
#include "session_runs.h"

#include <errno.h>
#include <string.h>

void session_run_result_done(struct session_run_result *result)
{
    spool_done(&result->out);
    spool_done(&result->err);
}

/* -- command slots -- */

int session_command_take(struct session *session, const struct active_run *active, const struct cancel *cancel,
                         struct error *err)
{
    struct sessions *sessions = session->owner;
    int result = 0;

    sessions_lock(sessions);
    while (result == 0 && !active->stop_asked && !session_command_room_locked(session))
        result = waitq_wait(&sessions->command_free, &sessions->lock, cancel, err);
    if (result == 0) {
        sessions->running_commands++;
        session->of_tenant->running_commands++;
    }
    sessions_unlock(sessions);
    return result;
}

void session_command_give(struct session *session)
{
    struct sessions *sessions = session->owner;

    sessions_lock(sessions);
    sessions->running_commands--;
    session->of_tenant->running_commands--;
    waitq_wake_all(&sessions->command_free);
    sessions_unlock(sessions);
}

/* -- names of runs -- */

static int active_add(struct session *session, struct active_run *active, struct error *err)
{
    sessions_lock(session->owner);
    for (struct active_run *other = session->runs; other && active->run_id[0]; other = other->next) {
        if (strcmp(other->run_id, active->run_id) == 0) {
            sessions_unlock(session->owner);
            return fail(err, CONFLICT, "Run is running: %s", active->run_id);
        }
    }
    if (active->run_id[0] && runs_is_alive_locked(session, active->run_id)) {
        sessions_unlock(session->owner);
        return fail(err, CONFLICT, "Run is running: %s", active->run_id);
    }
    active->next = session->runs;
    active->link = &session->runs;
    if (active->next)
        active->next->link = &active->next;
    session->runs = active;
    sessions_unlock(session->owner);
    return 0;
}

static void active_remove(struct session *session, struct active_run *active)
{
    sessions_lock(session->owner);
    *active->link = active->next;
    if (active->next)
        active->next->link = active->link;
    sessions_unlock(session->owner);
}

static void active_set_run(struct session *session, struct active_run *active, struct sandbox_run *run)
{
    bool stop;

    sessions_lock(session->owner);
    active->run = run;
    stop = run && active->stop_asked;
    if (stop)
        session->owner->provider->ops->run_stop(run);
    sessions_unlock(session->owner);
}

int session_run_stop(struct sessions *sessions, const char *id, const char *run_id, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct error missing = ERROR_INIT;

    if (!session)
        return -1;
    sessions_lock(sessions);
    for (struct active_run *active = session->runs; active; active = active->next) {
        if (strcmp(active->run_id, run_id) != 0)
            continue;
        active->stop_asked = true;
        if (active->run)
            sessions->provider->ops->run_stop(active->run);
        waitq_wake_all(&sessions->command_free);
    }
    sessions_unlock(sessions);
    return session_runs_stop(sessions, id, run_id, &missing) < 0 && missing.code != ERROR_NOT_FOUND
               ? (*err = missing, -1)
               : 0;
}

/* -- one run -- */

int session_run_exit_code(const struct run_exit *exit)
{
    if (exit->spawn_failed)
        return exit->spawn_errno == ENOENT || exit->spawn_errno == ENOTDIR ? 127 : 126;
    if (exit->signal)
        return 128 + exit->signal;
    return exit->exit_code;
}

/* Keep what fits under the ceiling of both streams together. */
static int keep(struct session_run_result *result, const char *dir, const struct run_chunk *chunk, uint64_t max_bytes,
                struct error *err)
{
    struct spool *spool = chunk->stream == RUN_STDERR ? &result->err : &result->out;
    uint64_t room = max_bytes - (result->out.size + result->err.size);
    size_t size = chunk->size;

    if (chunk->dropped)
        result->output_limited = true;
    if (size > room) {
        size = (size_t)room;
        result->output_limited = true;
    }
    return size ? spool_append(spool, dir, chunk->data, size, err) : 0;
}

/* Take the output to the end. 0: the run has ended. */
static int gather(struct session *session, struct sandbox_run *run, const struct session_run_request *request,
                  const struct cancel *cancel, struct session_run_result *result, struct error *err)
{
    const struct provider_ops *ops = session->owner->provider->ops;
    struct run_chunk chunk;
    bool stopping = false;
    int got;

    while ((got = ops->run_next(run, cancel, &chunk, err)) > 0) {
        if (keep(result, session->owner->spool_dir, &chunk, request->output_max_bytes, err) < 0)
            return -1;
        if (result->output_limited && request->stop_over_output && !stopping) {
            ops->run_stop(run);
            stopping = true;
        }
    }
    return got;
}

/* All of its input. A link that dies meanwhile is gather()'s to tell. */
static int feed(struct session *session, struct sandbox_run *run, const struct session_run_request *request,
                const struct cancel *cancel, struct error *err)
{
    const struct provider_ops *ops = session->owner->provider->ops;

    if (ops->run_stdin_write(run, request->stdin_data, request->stdin_size, cancel, err) < 0 && err->code != ERROR_GONE)
        return -1;
    error_clear(err);
    ops->run_stdin_eof(run);
    return 0;
}

void session_run_overdue(struct session *session, struct sandbox *sandbox)
{
    struct provider *provider = session->owner->provider;
    struct cancel bounded = {.stop_fd = session->owner->settings.stop_fd, .client_fd = -1};
    struct error err = ERROR_INIT;

    bounded = cancel_within(&bounded, 10000);
    log_error("run.agent_overdue", LOG_SESSION(session));
    if (provider->ops->kill(provider, sandbox->ref, &bounded, &err) < 0)
        log_error("run.kill_failed", LOG_SESSION(session), log_e(&err));
    session_sandbox_lost(session, sandbox);
    feed_record(session->owner, "died", session->id, session->tenant, "killed: a command did not end at its deadline");
}

/* So that a start knows what was running when the broker died. */
static void note_start(struct session *session, uint32_t number, const struct session_run_request *request)
{
    struct store_run row = {
        .number = number, .epoch = store_epoch(session->owner->store), .started_at_unix_ms = clock_unix_ms()};

    session_slot(session, row.slot);
    (void)snprintf(row.id, sizeof row.id, "%s", session->id);
    (void)snprintf(row.run_id, sizeof row.run_id, "%s", request->run_id ? request->run_id : "");
    store_run_put(session->owner->store, &row);
}

int session_run_begin(struct session *session, const struct run_spec *spec, struct kept_run *kept,
                      const struct cancel *cancel, struct sandbox **ret_sandbox, struct sandbox_run **ret_run,
                      uint32_t *ret_number, struct error *err)
{
    for (int attempt = 0;; attempt++) {
        struct sandbox *sandbox;
        bool sent = false;

        if (session_enter(session, cancel, &sandbox, ret_number, err) < 0)
            return -1;
        if ((!kept || runs_note_start(session, kept, *ret_number, err) == 0) &&
            session->owner->provider->ops->run_start(sandbox, *ret_number, spec, cancel, &sent, ret_run, err) == 0) {
            *ret_sandbox = sandbox;
            return 0;
        }
        if (err->code == ERROR_GONE)
            session_sandbox_lost(session, sandbox);
        sandbox_unref(sandbox);
        session_leave(session);
        if (err->code != ERROR_GONE || sent || attempt > 0)
            return -1;
        error_clear(err);
    }
}

static int run_once(struct session *session, struct active_run *active, const struct session_run_request *request,
                    int64_t deadline_mono_ms, const struct cancel *cancel, struct session_run_result *result,
                    struct error *err)
{
    const struct provider_ops *ops = session->owner->provider->ops;
    struct run_spec spec = request->spec;
    char slot[STORE_SLOT_BYTES];
    struct cancel waiting = *cancel;
    struct sandbox *sandbox;
    struct sandbox_run *run;
    uint32_t number;
    int gathered;

    spec.has_reader = true;
    spec.stdin_open = request->stdin_size > 0;
    if (session_run_begin(session, &spec, NULL, cancel, &sandbox, &run, &number, err) < 0)
        return -1;
    note_start(session, number, request);
    active_set_run(session, active, run);
    waiting.deadline_ms = deadline_mono_ms + SESSION_RUN_GRACE_MS;
    gathered = request->stdin_size ? feed(session, run, request, &waiting, err) : 0;
    if (gathered == 0)
        gathered = gather(session, run, request, &waiting, result, err);
    if (gathered < 0 && err->code == ERROR_TIMEOUT) {
        session_run_overdue(session, sandbox);
        error_clear(err);
        gathered = 0;
        result->exit = (struct run_exit){.lost = true, .timed_out = true, .exit_code = -1};
    } else if (gathered == 0) {
        result->exit = *ops->run_exit(run);
    } else {
        result->exit = (struct run_exit){.stopped = true, .exit_code = -1}; /* by run_free() below */
    }
    session_slot(session, slot);
    store_run_end(session->owner->store, slot, number, clock_unix_ms(), &result->exit, "");
    active_set_run(session, active, NULL);
    ops->run_free(run); /* stops what has not ended: the client hung up, or the disk is full */
    sandbox_unref(sandbox);
    session_leave(session);
    return gathered;
}

static int judge(struct session *session, const struct session_run_request *request, struct session_run_result *result,
                 struct error *err)
{
    result->timed_out = result->timed_out || result->exit.timed_out;
    if (result->exit.lost && !result->timed_out)
        return fail(err, GONE, "The sandbox of session %s went away while the command ran", session->id);
    result->exit_code = result->timed_out || (result->output_limited && request->stop_over_output)
                            ? -1
                            : session_run_exit_code(&result->exit);
    if (result->exit_code < 0 && request->cut_bytes) {
        spool_cut(&result->out, request->cut_bytes);
        spool_cut(&result->err, request->cut_bytes);
    }
    return 0;
}

void session_run_count(const struct run_exit *exit, bool failed, bool timed_out, int64_t took_us)
{
    enum metric_run outcome = timed_out                               ? METRIC_RUN_TIMED_OUT
                              : failed || exit->lost                  ? METRIC_RUN_LOST
                              : exit->stopped                         ? METRIC_RUN_STOPPED
                              : exit->signal                          ? METRIC_RUN_SIGNAL
                              : exit->spawn_failed || exit->exit_code ? METRIC_RUN_NONZERO
                                                                      : METRIC_RUN_OK;

    metric_count(runs, outcome);
    metric_observe(&metrics.run_durations[METRIC_ONE_ALL], took_us);
}

static void record(struct session *session, const struct session_run_request *request,
                   const struct session_run_result *result, const struct error *failure, int64_t started_us)
{
    char detail[32] = "";
    bool ok = false;

    session_run_count(&result->exit, failure && failure->code == ERROR_GONE, result->timed_out,
                      clock_mono_us() - started_us);
    if (failure) {
        if (failure->code == ERROR_GONE)
            (void)snprintf(detail, sizeof detail, "sandbox gone");
    } else if (result->timed_out) {
        (void)snprintf(detail, sizeof detail, "%s", request->event_late);
    } else if (result->output_limited && request->stop_over_output) {
        (void)snprintf(detail, sizeof detail, "output limit");
    } else {
        (void)snprintf(detail, sizeof detail, "exit %d", result->exit_code);
        ok = result->exit_code == 0;
    }
    event_record(session, request->event_op, request->event_target, strlen(request->event_target), ok, detail,
                 started_us);
}

int session_run_wait(struct sessions *sessions, const char *id, const struct session_run_request *request,
                     const struct cancel *cancel, struct session_run_result *ret_result, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    int64_t deadline_mono_ms = clock_mono_ms() + request->spec.timeout_ms;
    int64_t started_us = clock_mono_us();
    struct session_run_request timed = *request;
    struct cancel queueing = cancel_within(cancel, request->spec.timeout_ms);
    struct active_run active = {.run = NULL, .command = request->event_target, .started_at_unix_us = clock_unix_us()};
    bool woken = false;
    int result;

    if (!session)
        return -1;
    if (request->run_id)
        (void)snprintf(active.run_id, sizeof active.run_id, "%s", request->run_id);
    if (active_add(session, &active, err) < 0)
        return -1;
    if (session_command_take(session, &active, &queueing, err) < 0) {
        active_remove(session, &active);
        if (err->code != ERROR_TIMEOUT)
            return -1;
        error_clear(err);
        ret_result->timed_out = true;
        record(session, request, ret_result, NULL, started_us);
        return 0;
    }
    timed.spec.timeout_ms = deadline_mono_ms - clock_mono_ms();
    if (timed.spec.timeout_ms <= 0)
        timed.spec.timeout_ms = 1; /* 0 would be none */
    result = run_once(session, &active, &timed, deadline_mono_ms, cancel, ret_result, err);
    session_command_give(session);
    active_remove(session, &active);

    woken = result == 0 || err->code == ERROR_GONE || err->code == ERROR_CANCELLED || err->code == ERROR_NO_SPACE;
    if (result == 0)
        result = judge(session, request, ret_result, err);
    if (woken) /* failures to wake leave no event: the wire records operations */
        record(session, request, ret_result, result < 0 ? err : NULL, started_us);
    return result;
}

int session_run_refused(struct sessions *sessions, const char *id, const char *event_op, const char *event_target,
                        struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);

    if (!session)
        return -1;
    event_record(session, event_op, event_target, strlen(event_target), false, "refused", clock_mono_us());
    return 0;
}
