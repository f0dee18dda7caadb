/* Records of watched runs: how they are kept, end, survive links and brokers, and are forgotten. */
#include "session_runs_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENDED_KEPT = 200, /* a session */
    ENDED_KEPT_S = 24 * 3600,
    FLYING_MAX_S = 24 * 3600, /* a run without a deadline is activity for no longer */
    KEEPER_TICK_MS = 2000,
};

static const struct run_exit lost_exit = {.lost = true, .exit_code = -1};

/* -- references and lists -- */

struct kept_run *kept_find_locked(struct session *session, const char *run_id)
{
    struct kept_run *kept = session->kept;

    while (kept && strcmp(kept->run_id, run_id) != 0)
        kept = kept->next;
    return kept;
}

void runs_view_locked(const struct session *session, struct session_view *ret)
{
    const struct kept_run *kept = session->kept_alive ? session->kept : NULL;
    const char *command = "";
    int64_t newest_us = -1;
    size_t size;

    ret->running_commands = session->kept_alive;
    while (kept && kept->state == RUN_STATE_ENDED)
        kept = kept->next;
    if (kept) {
        command = kept->command;
        newest_us = kept->started_at_unix_us;
    }
    for (const struct active_run *run = session->runs; run; run = run->next) {
        ret->running_commands++;
        if (run->command && run->started_at_unix_us > newest_us) {
            command = run->command;
            newest_us = run->started_at_unix_us;
        }
    }
    size = strlen(command);
    if (size >= sizeof ret->running)
        size = utf8_valid_prefix(command, sizeof ret->running - 1);
    memcpy(ret->running, command, size);
    ret->running[size] = '\0';
}

bool kept_is_use(const struct kept_run *kept)
{
    return !kept->tty || kept->has_deadline;
}

bool runs_is_alive_locked(struct session *session, const char *run_id)
{
    const struct kept_run *kept = kept_find_locked(session, run_id);

    return kept && kept->state != RUN_STATE_ENDED;
}

struct run_handle *handle_ref_locked(struct run_handle *handle)
{
    handle->references++;
    return handle;
}

void handle_unref_locked(struct sessions *sessions, struct run_handle *handle)
{
    if (!handle || --handle->references > 0)
        return;
    sessions->provider->ops->run_free(handle->run);
    free(handle);
}

void kept_set_handle_locked(struct kept_run *kept, struct sandbox_run *run)
{
    handle_unref_locked(kept->session->owner, kept->handle);
    kept->handle = NULL;
    if (run) {
        kept->handle = alloc_zero(sizeof *kept->handle);
        kept->handle->references = 1;
        kept->handle->run = run;
        kept->handle->serial = ++kept->session->owner->last_serial;
    }
    waitq_wake_all(&kept->session->owner->runs_changed);
}

void kept_unref_locked(struct kept_run *kept)
{
    if (--kept->references > 0)
        return;
    assert(!kept->handle && kept->is_dropped);
    free(kept->command);
    free(kept);
}

void kept_put(struct sessions *sessions, struct kept_run *kept)
{
    sessions_lock(sessions);
    kept_unref_locked(kept);
    sessions_unlock(sessions);
}

void kept_insert_locked(struct session *session, struct kept_run *kept)
{
    struct sessions *sessions = session->owner;

    kept->session = session;
    kept->serial = ++sessions->last_serial;
    kept->next = session->kept;
    session->kept = kept;
    if (kept->state == RUN_STATE_ENDED)
        return;
    kept->next_live = sessions->live_runs;
    sessions->live_runs = kept;
    session->kept_alive++;
    sessions->running_commands++;
    session->of_tenant->running_commands++;
}

static void unlive_locked(struct kept_run *kept)
{
    struct sessions *sessions = kept->session->owner;
    struct kept_run **link = &sessions->live_runs;

    while (*link && *link != kept)
        link = &(*link)->next_live;
    if (!*link)
        return;
    *link = kept->next_live;
    kept->session->kept_alive--;
    sessions->running_commands--;
    kept->session->of_tenant->running_commands--;
    if (kept->is_flying) {
        kept->is_flying = false;
        kept->session->in_flight--;
        session_touch_locked(kept->session);
    }
    waitq_wake_all(&sessions->command_free);
    waitq_wake_all(&sessions->runs_changed);
}

void kept_remove_locked(struct kept_run *kept)
{
    struct kept_run **link = &kept->session->kept;

    while (*link != kept)
        link = &(*link)->next;
    *link = kept->next;
    unlive_locked(kept);
    kept->is_dropped = kept->is_gone = true;
    kept->state = RUN_STATE_ENDED;
    kept_set_handle_locked(kept, NULL);
    kept_unref_locked(kept);
}

void kept_view_locked(const struct kept_run *kept, struct run_view *ret)
{
    *ret = (struct run_view){.number = kept->number,
                             .state = kept->state,
                             .started_at_unix_us = kept->started_at_unix_us,
                             .ended_at_unix_us = kept->ended_at_unix_us,
                             .tty = kept->tty,
                             .exit = kept->exit};
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", kept->run_id);
    (void)snprintf(ret->cause, sizeof ret->cause, "%s", kept->cause);
    (void)snprintf(ret->command, sizeof ret->command, "%s", kept->command);
}

int kept_get(struct sessions *sessions, const char *id, const char *run_id, struct session **ret_session,
             struct kept_run **ret_kept, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct kept_run *kept;

    if (!session)
        return -1;
    sessions_lock(sessions);
    kept = kept_find_locked(session, run_id);
    if (kept)
        kept->references++;
    sessions_unlock(sessions);
    if (!kept)
        return fail(err, NOT_FOUND, "No such run: %s", run_id);
    *ret_session = take_ptr(session);
    *ret_kept = kept;
    return 0;
}

/* -- the end -- */

/* The oldest that ended, beyond the number or the age that is kept. Returns how many were forgotten: their places, for the store. */
static size_t forget_old_locked(struct session *session, uint32_t numbers[ENDED_KEPT])
{
    int64_t oldest_us = clock_unix_us() - (int64_t)ENDED_KEPT_S * 1000000;
    struct kept_run *next;
    unsigned ended = 0;
    size_t count = 0;

    for (struct kept_run *kept = session->kept; kept && count < ENDED_KEPT; kept = next) { /* newest first */
        next = kept->next;
        if (kept->state != RUN_STATE_ENDED || (++ended <= ENDED_KEPT && kept->ended_at_unix_us >= oldest_us))
            continue;
        numbers[count++] = kept->number;
        kept_remove_locked(kept);
    }
    return count;
}

static void forget_rows(struct sessions *sessions, const char *slot, const uint32_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store_run_forget(sessions->store, slot, numbers[i]);
}

static void forget_old(struct session *session)
{
    struct sessions *sessions = session->owner;
    uint32_t numbers[ENDED_KEPT];
    char slot[STORE_SLOT_BYTES];
    size_t count;

    sessions_lock(sessions);
    memcpy(slot, session->slot, sizeof slot);
    count = forget_old_locked(session, numbers);
    sessions_unlock(sessions);
    forget_rows(sessions, slot, numbers, count);
}

static void record_end(struct kept_run *kept, const struct run_view *view)
{
    struct session *session = kept->session;
    const struct run_exit *exit = &view->exit;
    bool by_itself = !view->cause[0] && !exit->timed_out;
    char ended[32];
    char detail[STORE_EVENT_DETAIL_BYTES];
    const char *how = view->cause[0] ? view->cause : exit->timed_out ? "timed out" : ended;

    (void)snprintf(ended, sizeof ended, "exit %d", session_run_exit_code(exit));
    session_run_count(exit, view->cause[0] != '\0', exit->timed_out, clock_mono_us() - kept->started_mono_us);
    event_record(session, "run", view->command, strlen(view->command), by_itself && session_run_exit_code(exit) == 0,
                 how, kept->started_mono_us);
    if (by_itself && exit->stopped)
        how = "stopped";
    (void)snprintf(detail, sizeof detail, "%.64s: %.64s", view->run_id, how);
    feed_record(session->owner, "run_ended", session->id, session->tenant, detail);
}

void kept_end(struct kept_run *kept, const struct run_exit *exit, const char *cause)
{
    struct sessions *sessions = kept->session->owner;
    char slot[STORE_SLOT_BYTES];
    uint32_t old[ENDED_KEPT];
    struct run_view view;
    size_t count;

    sessions_lock(sessions);
    if (kept->state == RUN_STATE_ENDED) {
        sessions_unlock(sessions);
        return;
    }
    memcpy(slot, kept->slot, sizeof slot);
    kept->references++;
    kept->state = RUN_STATE_ENDED;
    kept->ended_at_unix_us = clock_unix_us();
    kept->exit = *exit;
    (void)snprintf(kept->cause, sizeof kept->cause, "%s",
                   cause[0]        ? cause
                   : exit->lost    ? "its supervisor was killed"
                   : exit->stopped ? "stopped"
                                   : "");
    unlive_locked(kept);
    kept_view_locked(kept, &view);
    count = forget_old_locked(kept->session, old); /* whoever hears of this end finds no more than are kept */
    sessions_unlock(sessions);
    store_run_end(sessions->store, slot, kept->number, view.ended_at_unix_us / 1000, exit, view.cause);
    record_end(kept, &view);
    forget_rows(sessions, slot, old, count);
    kept_put(sessions, kept);
}

void runs_move_locked(struct session *session)
{
    for (struct kept_run *kept = session->kept; kept; kept = kept->next)
        memcpy(kept->slot, session->slot, sizeof kept->slot);
}

void runs_lose(struct session *session, const char *cause)
{
    struct sessions *sessions = session->owner;

    for (;;) {
        struct kept_run *kept;

        sessions_lock(sessions);
        kept = session->kept;
        while (kept && (kept->is_gone || kept->state == RUN_STATE_STARTING)) /* whoever starts one sees to it */
            kept = kept->next;
        if (!kept) {
            sessions_unlock(sessions);
            return;
        }
        kept->references++;
        kept->is_gone = true;
        kept_set_handle_locked(kept, NULL);
        sessions_unlock(sessions);
        kept_end(kept, &lost_exit, cause);
        kept_put(sessions, kept);
    }
}

void runs_drop(struct session *session)
{
    sessions_lock(session->owner);
    while (session->kept)
        kept_remove_locked(session->kept);
    sessions_unlock(session->owner);
}

/* -- links -- */

uint32_t *runs_known(struct session *session, size_t *ret_count)
{
    struct sessions *sessions = session->owner;
    uint32_t *numbers;
    size_t count = 0;

    sessions_lock(sessions);
    for (struct kept_run *kept = session->kept; kept; kept = kept->next)
        count++;
    numbers = alloc_array(count + 1, sizeof *numbers);
    count = 0;
    for (struct kept_run *kept = session->kept; kept; kept = kept->next)
        if (kept->number && !kept->is_gone)
            numbers[count++] = kept->number;
    sessions_unlock(sessions);
    *ret_count = count;
    return numbers;
}

bool kept_attach(struct kept_run *kept, struct sandbox *sandbox)
{
    struct sessions *sessions = kept->session->owner;
    const struct provider_ops *ops = sessions->provider->ops;
    struct error err = ERROR_INIT;
    struct sandbox_run *run;
    bool alive;

    if (ops->run_resume(sandbox, kept->number, &run, &err) < 0)
        return err.code == ERROR_GONE; /* this link died as well: the next one tells */
    sessions_lock(sessions);
    kept_set_handle_locked(kept, run);
    alive = kept->state != RUN_STATE_ENDED;
    if (alive)
        ops->run_watch(run, kept->serial);
    if (kept->stop_asked)
        ops->run_stop(run);
    sessions_unlock(sessions);
    return true;
}

void runs_attach(struct session *session, struct sandbox *sandbox)
{
    struct sessions *sessions = session->owner;
    struct kept_run **list;
    size_t count = 0;

    sessions_lock(sessions);
    for (struct kept_run *kept = session->kept; kept; kept = kept->next)
        count++;
    list = alloc_array(count + 1, sizeof *list);
    count = 0;
    for (struct kept_run *kept = session->kept; kept; kept = kept->next) {
        if (!kept->number || kept->is_gone || kept->state == RUN_STATE_STARTING)
            continue;
        kept->references++;
        list[count++] = kept;
    }
    sessions_unlock(sessions);
    for (size_t i = 0; i < count; i++) {
        if (!kept_attach(list[i], sandbox)) {
            sessions_lock(sessions);
            list[i]->is_gone = true;
            kept_set_handle_locked(list[i], NULL);
            sessions_unlock(sessions);
            kept_end(list[i], &lost_exit, "the sandbox does not know it");
        }
        kept_put(sessions, list[i]);
    }
    free(list);
}

/* -- a start -- */

int runs_note_start(struct session *session, struct kept_run *kept, uint32_t number, struct error *err)
{
    struct store_kept_run row = {.tty = kept->tty, .has_deadline = kept->has_deadline};

    row.run = (struct store_run){.number = number,
                                 .epoch = store_epoch(session->owner->store),
                                 .keep = true,
                                 .started_at_unix_ms = kept->started_at_unix_us / 1000};
    (void)snprintf(row.run.id, sizeof row.run.id, "%s", session->id);
    (void)snprintf(row.run.run_id, sizeof row.run.run_id, "%s", kept->run_id);
    (void)snprintf(row.command, sizeof row.command, "%s", kept->command);
    sessions_lock(session->owner);
    kept->number = number;
    memcpy(kept->slot, session->slot, sizeof kept->slot);
    memcpy(row.run.slot, session->slot, sizeof row.run.slot);
    sessions_unlock(session->owner);
    return store_run_keep(session->owner->store, &row, err);
}

static void load_one(struct session *session, const struct store_kept_run *row)
{
    struct kept_run *kept = alloc_zero(sizeof *kept);

    kept->references = 1;
    kept->number = row->run.number;
    memcpy(kept->slot, row->run.slot, sizeof kept->slot);
    memcpy(kept->run_id, row->run.run_id, sizeof kept->run_id);
    kept->command = alloc_str(row->command);
    kept->tty = row->tty;
    kept->has_deadline = row->has_deadline;
    kept->started_at_unix_us = row->run.started_at_unix_ms * 1000;
    kept->started_mono_us = clock_mono_us() - (clock_unix_us() - kept->started_at_unix_us);
    kept->ended_at_unix_us = row->ended_at_unix_ms * 1000;
    kept->state = row->ended_at_unix_ms ? RUN_STATE_ENDED : RUN_STATE_RUNNING;
    kept->exit = row->exit;
    memcpy(kept->cause, row->cause, sizeof kept->cause);
    kept->is_flying = kept->state == RUN_STATE_RUNNING && kept_is_use(kept);
    session->in_flight += kept->is_flying;
    kept_insert_locked(session, kept);
}

int runs_load(struct sessions *sessions, struct error *err)
{
    auto_free struct store_kept_run *rows = NULL;
    struct session **list;
    size_t count;

    if (store_runs_kept(sessions->store, &rows, &count, err) < 0)
        return -1;
    sessions_lock(sessions);
    for (size_t i = 0; i < count; i++) {
        struct session *session = registry_find_locked(sessions, rows[i].run.id);

        if (session && strcmp(session->slot, rows[i].run.slot) == 0)
            load_one(session, &rows[i]);
    }
    sessions_unlock(sessions);
    for (size_t i = 0; i < count; i++)
        if (!rows[i].ended_at_unix_ms)
            log_info("recover.run", log_s("session", rows[i].run.id), log_s("run", rows[i].run.run_id));
    list = registry_list(sessions, &count);
    for (size_t i = 0; i < count; i++) {
        if (list[i]->state == SESSION_HIBERNATED || !list[i]->ref[0])
            runs_lose(list[i], "sandbox gone");
        forget_old(list[i]);
    }
    registry_list_free(list, count);
    return 0;
}

/* -- the thread -- */

bool runs_somewhere(const struct sandbox_listed *listed, size_t count, const char *ref)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(listed[i].ref, ref) == 0)
            return listed[i].phase == SANDBOX_RUNNING || listed[i].phase == SANDBOX_PAUSED;
    return false;
}

void runs_lose_orphans(struct sessions *sessions, const struct sandbox_listed *listed, size_t listed_count,
                       int64_t listed_mono_us)
{
    size_t count;
    struct session **list = registry_list(sessions, &count);

    for (size_t i = 0; i < count; i++) {
        bool orphaned;

        sessions_lock(sessions);
        orphaned = list[i]->kept_alive > 0 && !list[i]->busy && list[i]->state != SESSION_OPENING &&
                   list[i]->attached_mono_us < listed_mono_us && !runs_somewhere(listed, listed_count, list[i]->ref) &&
                   !(list[i]->sandbox && sessions->provider->ops->sandbox_alive(list[i]->sandbox));
        sessions_unlock(sessions);
        if (orphaned)
            runs_lose(list[i], "sandbox gone");
    }
    registry_list_free(list, count);
}

/* What ended, or whose link died. */
static void ended(struct sessions *sessions, uint64_t serial)
{
    auto_session struct session *session = NULL;
    struct kept_run *kept;
    struct run_exit exit;
    bool is_cut = false;

    sessions_lock(sessions);
    for (kept = sessions->live_runs; kept && kept->serial != serial; kept = kept->next_live)
        continue;
    if (!kept || kept->state == RUN_STATE_STARTING || !kept->handle ||
        !sessions->provider->ops->run_ended(kept->handle->run, &exit)) {
        sessions_unlock(sessions); /* ended otherwise, or attached anew meanwhile */
        return;
    }
    is_cut = exit.lost && sessions->provider->ops->run_cut(kept->handle->run);
    kept->references++;
    session = session_ref(kept->session);
    if (is_cut)
        kept_set_handle_locked(kept, NULL);
    sessions_unlock(sessions);
    if (is_cut)
        recover_doubt(sessions); /* attached again if its container lives, lost otherwise */
    else
        kept_end(kept, &exit, "");
    kept_put(sessions, kept);
}

/* The agent did not end a run at its deadline: its container is killed. */
static void check_deadlines(struct sessions *sessions)
{
    const int64_t now_ms = clock_mono_ms();
    struct sandbox *overdue = NULL;
    struct session *session = NULL;

    sessions_lock(sessions);
    for (struct kept_run *kept = sessions->live_runs; kept && !overdue; kept = kept->next_live) {
        if (!kept->deadline_mono_ms || now_ms < kept->deadline_mono_ms + SESSION_RUN_GRACE_MS || !kept->handle)
            continue;
        overdue = sandbox_ref(kept->handle->run->sandbox);
        session = session_ref(kept->session);
    }
    for (struct kept_run *kept = sessions->live_runs; kept; kept = kept->next_live) {
        if (!kept->is_flying || kept->has_deadline ||
            clock_unix_us() - kept->started_at_unix_us < (int64_t)FLYING_MAX_S * 1000000)
            continue;
        kept->is_flying = false;
        kept->session->in_flight--;
        session_touch_locked(kept->session);
    }
    sessions_unlock(sessions);
    if (!overdue)
        return;
    session_run_overdue(session, overdue);
    runs_lose(session, "sandbox killed");
    sandbox_unref(overdue);
    session_unref(session);
}

static void forget_all_old(struct sessions *sessions)
{
    size_t count;
    struct session **list = registry_list(sessions, &count);

    for (size_t i = 0; i < count; i++)
        forget_old(list[i]);
    registry_list_free(list, count);
}

void *runs_keeper_run(void *context)
{
    struct sessions *sessions = context;
    const struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    int64_t sweep_at_ms = 0;

    for (;;) {
        struct cancel tick = cancel_within(&cancel, KEEPER_TICK_MS);
        struct error err = ERROR_INIT;
        uint64_t serial;

        if (sessions->provider->ops->next_end(sessions->provider, &tick, &serial, &err) == 0)
            ended(sessions, serial);
        else if (err.code != ERROR_TIMEOUT)
            return NULL;
        if (clock_mono_ms() < sweep_at_ms)
            continue;
        sweep_at_ms = clock_mono_ms() + KEEPER_TICK_MS;
        check_deadlines(sessions);
        forget_all_old(sessions);
    }
}
