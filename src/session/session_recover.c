/* What a start finds: rows, slots, containers; and the thread that keeps comparing containers with rows, whatever happens to the
 * engine. Removed is only what is provably ours (label) and unwanted. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

enum {
    RETRY_MS = 1000,
    MEND_TIMEOUT_MS = 60000,
    TICK_MS = 2000,
    DOUBT_MS = 900000, /* an engine that comes to itself after that is found by the usual comparisons */
    DOUBT_EVERY_MS = 4000,
};

/* -- rows -- */

static void load_slot(struct session *session)
{
    struct error err = ERROR_INIT;
    struct store_slot slot;

    if (store_slot_get(session->owner->store, session->slot, &slot, &err) < 0)
        return; /* a heal makes a new container */
    memcpy(session->ref, slot.ref, sizeof session->ref);
    session->files_uid = slot.files_uid;
    session->files_gid = slot.files_gid;
    session->uid = slot.uid;
    session->gid = slot.gid;
    session->next_run = session->reserved_run = slot.last_run ? slot.last_run : 1;
}

/* No longer than it can have been asked for, whatever the clock did. */
static int64_t keep_until(int64_t unix_ms)
{
    int64_t left_us = unix_ms * 1000 - clock_unix_us();
    int64_t most_us = (int64_t)SESSION_KEEP_MOST_S * 1000000;

    if (unix_ms == 0 || left_us <= 0)
        return 0;
    return clock_mono_us() + (left_us < most_us ? left_us : most_us);
}

/* A restore that died before its rows were written: the name leads to what was restored already. */
static void follow_name(struct sessions *sessions, const struct workspace_name *name)
{
    struct session *session = registry_find_locked(sessions, name->id);
    char before[STORE_SLOT_BYTES];
    struct error err = ERROR_INIT;
    struct store_slot row;

    if (!session || strcmp(name->slot, session->slot) == 0 || strncmp(name->slot, "dir:", 4) == 0)
        return;
    memcpy(before, session->slot, sizeof before);
    memcpy(session->slot, name->slot, sizeof session->slot);
    session->ref[0] = '\0';
    session->uid = session->gid = -1;
    sandbox_slot_row(session, &row);
    if (store_session_move(sessions->store, session->id, before, &row, clock_unix_ms(), &err) < 0)
        log_error("recover.not_moved", log_s("session", session->id), log_s("slot", name->slot), log_e(&err));
    else
        log_info("recover.restored", log_s("session", session->id), log_s("slot", name->slot));
}

static void load_session(struct sessions *sessions, const struct store_session *row)
{
    struct session *session = session_new(sessions, row->id);
    int64_t idle_us = clock_unix_us() - row->last_activity_unix_ms * 1000;

    memcpy(session->runtime, row->runtime, sizeof session->runtime);
    memcpy(session->nonce, row->nonce, sizeof session->nonce);
    memcpy(session->slot, row->slot, sizeof session->slot);
    token_make(sessions, session->id, session->nonce, session->token);
    session->opening = row->opening;
    session->order = row->order;
    session->created_at_unix_us = row->created_at_unix_ms * 1000;
    session->last_activity_unix_us = row->last_activity_unix_ms * 1000;
    session->last_activity_mono_us = clock_mono_us() - (idle_us > 0 ? idle_us : 0);
    session->keep_until_mono_us = keep_until(row->keep_until_unix_ms);
    session->state = row->state == STORE_HIBERNATED ? SESSION_HIBERNATED : SESSION_RUNNING;
    load_slot(session); /* the files are opened when they are looked at */

    sessions_lock(sessions);
    session_set_tenant_locked(session, row->tenant);
    registry_add_locked(sessions, session);
    registry_order_locked(session);
    registry_resident_locked(session, session->state == SESSION_RUNNING);
    sessions_unlock(sessions);
    if (session->state == SESSION_RUNNING) /* a wake promises by itself */
        sandbox_reserve_runs(session);
}

/* -- slots that an interrupted open or purge left: on the disk, named by nobody -- */

static int by_slot(const void *a, const void *b)
{
    return strcmp(((const struct workspace_name *)a)->slot, ((const struct workspace_name *)b)->slot);
}

/* A slot that lost its name, or never got it, though a commit says whose it is: a death in between, or a power cut. */
static bool name_again(struct sessions *sessions, const char *slot, const struct store_workspace *workspaces,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct error err = ERROR_INIT;
        char named[WORKSPACE_SLOT_BYTES];

        if (workspaces[i].purging || strcmp(workspaces[i].slot, slot) != 0)
            continue;
        /* A restore that died before its row was written: the name leads to what was restored, this is what was there before. */
        if (workspace_find(sessions->root, workspaces[i].id, named, &err) == 0 && strncmp(named, "dir:", 4) != 0)
            return false;
        error_clear(&err);
        if (workspace_link(sessions->root, workspaces[i].id, slot, &err) == 0)
            log_info("recover.named", log_s("session", workspaces[i].id), log_s("slot", slot));
        else
            log_error("recover.not_named", log_s("session", workspaces[i].id), log_s("slot", slot), log_e(&err));
        return true;
    }
    return false;
}

static bool is_snapshot(const char *slot, const struct store_snapshot *snapshots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(snapshots[i].slot, slot) == 0)
            return true;
    return false;
}

static int find_orphan_slots(struct sessions *sessions, struct error *err)
{
    auto_free struct store_workspace *workspaces = NULL;
    auto_free struct store_snapshot *snapshots = NULL;
    size_t workspace_count;
    size_t snapshot_count;
    auto_free struct workspace_name *names = NULL;
    auto_free char(*slots)[WORKSPACE_SLOT_BYTES] = NULL;
    size_t name_count;
    size_t slot_count;

    if (!sessions->root)
        return 0;
    if (workspace_names(sessions->root, &names, &name_count, err) < 0)
        return -1;
    for (size_t i = 0; i < name_count; i++)
        follow_name(sessions, &names[i]);
    if (workspace_slots(sessions->root, &slots, &slot_count, err) < 0 ||
        store_workspaces(sessions->store, &workspaces, &workspace_count, err) < 0 ||
        store_snapshots(sessions->store, NULL, &snapshots, &snapshot_count, err) < 0)
        return -1;
    if (name_count > 0) /* NULL is not even to be looked at */
        qsort(names, name_count, sizeof *names, by_slot);
    sessions->orphan_slots = alloc_array(slot_count, sizeof *slots);
    for (size_t i = 0; i < slot_count; i++) {
        struct workspace_name key = {.id = ""};

        memcpy(key.slot, slots[i], sizeof key.slot);
        if ((name_count > 0 && bsearch(&key, names, name_count, sizeof *names, by_slot)) ||
            is_snapshot(slots[i], snapshots, snapshot_count) ||
            name_again(sessions, slots[i], workspaces, workspace_count) ||
            registry_find_slot_locked(sessions, slots[i]))
            continue;
        memcpy(sessions->orphan_slots[sessions->orphan_count++], slots[i], sizeof *slots);
    }
    return 0;
}

/* Commands that were waited for when the broker died: the first HELLO stops them, nobody saw their end. */
static int end_open_runs(struct sessions *sessions, struct error *err)
{
    static const struct run_exit lost = {.lost = true, .exit_code = -1};
    auto_free struct store_run *runs = NULL;
    size_t count;

    if (store_runs_open(sessions->store, &runs, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!runs[i].keep)
            store_run_end(sessions->store, runs[i].slot, runs[i].number, clock_unix_ms(), &lost, "");
    if (count)
        log_info("recover.runs_lost", log_i("count", (int64_t)count));
    return 0;
}

/* As if it had never been. What it made is a slot that nobody names then, and a container on it. */
static int undo_opening(struct sessions *sessions, const struct store_session *row, struct error *err)
{
    char slot[WORKSPACE_SLOT_BYTES];
    struct error missing = ERROR_INIT;

    log_info("recover.undone", log_s("session", row->id));
    if (row->fresh && sessions->root && workspace_find(sessions->root, row->id, slot, &missing) == 0 &&
        strcmp(slot, row->slot) == 0 && workspace_unlink(sessions->root, row->id, err) < 0)
        return -1;
    if (row->fresh && (store_workspace_delete(sessions->store, row->id, err) < 0 ||
                       store_slot_delete(sessions->store, row->slot, err) < 0))
        return -1;
    return store_session_undo(sessions->store, row->id, err);
}

/* Purges that were begun before the death of the broker, or that failed since; with the engine there. */
static void finish_purges(struct sessions *sessions, const struct cancel *cancel)
{
    auto_free struct store_workspace *rows = NULL;
    struct error err = ERROR_INIT;
    size_t count;
    bool left;

    sessions_lock(sessions);
    left = sessions->purges_left;
    sessions->purges_left = false;
    sessions_unlock(sessions);
    if (!left)
        return;
    if (store_workspaces(sessions->store, &rows, &count, &err) < 0) {
        log_warn("recover.workspaces", log_e(&err));
        return;
    }
    for (size_t i = 0; i < count && cancel_check(cancel, &err) == 0; i++) {
        if (!rows[i].purging)
            continue;
        if (session_purge_closed(sessions, rows[i].id, -1, cancel, &err) == 0)
            log_info("recover.purged", log_s("session", rows[i].id));
        else if (err.code != ERROR_CONFLICT && err.code != ERROR_NOT_FOUND)
            log_warn("recover.purge_left", log_s("session", rows[i].id), log_e(&err));
        error_clear(&err);
    }
}

int recover_load(struct sessions *sessions, struct error *err)
{
    auto_free struct store_session *rows = NULL;
    size_t count;

    if (clock_load(sessions, err) < 0 || store_sessions(sessions->store, &rows, &count, err) < 0)
        return -1;
    sessions->purges_left = true; /* looked for once at a start */
    for (size_t i = 0; i < count; i++) {
        if (rows[i].state == STORE_OPENING) {
            if (undo_opening(sessions, &rows[i], err) < 0)
                return -1;
            continue;
        }
        load_session(sessions, &rows[i]);
    }
    if (find_orphan_slots(sessions, err) < 0 || end_open_runs(sessions, err) < 0 || runs_load(sessions, err) < 0)
        return -1;
    log_info("recover.loaded", log_i("sessions", (int64_t)sessions->open_count),
             log_i("epoch", store_epoch(sessions->store)));
    return 0;
}

static void remove_orphan_slots(struct sessions *sessions, const struct cancel *cancel)
{
    while (sessions->orphan_count > 0) {
        const char *slot = sessions->orphan_slots[sessions->orphan_count - 1];
        struct error err = ERROR_INIT;

        if (workspace_slot_remove(sessions->root, slot, cancel, &err) < 0) {
            log_warn("recover.slot_left", log_s("slot", slot), log_e(&err));
            if (cancel_check(cancel, &err) < 0)
                return;
        } else {
            log_info("recover.slot_removed", log_s("slot", slot));
            (void)store_slot_delete(sessions->store, slot, &err);
        }
        sessions->orphan_count--;
    }
}

/* -- containers -- */

/* One whose slot belongs to a session, as it was at `listed_mono_us`. */
static void mend_session(struct session *session, const struct sandbox_listed *listed, int64_t listed_mono_us,
                         const struct cancel *cancel)
{
    struct sessions *sessions = session->owner;
    struct error err = ERROR_INIT;
    bool runs = listed->phase == SANDBOX_RUNNING || listed->phase == SANDBOX_PAUSED;

    sessions_lock(sessions);
    if (session->busy || session->state == SESSION_OPENING || session->state == SESSION_CLOSED ||
        session->attached_mono_us >= listed_mono_us) { /* newer than what was seen: its runs are not lost by that */
        /* Perhaps a second one, of a broker that died before it was told so: looked at again soon. */
        if (strcmp(session->ref, listed->ref) != 0)
            sessions->in_doubt = true;
        sessions_unlock(sessions);
        return;
    }
    if (!session->ref[0])
        memcpy(session->ref, listed->ref, sizeof session->ref);
    if (strcmp(session->ref, listed->ref) != 0) {
        sessions_unlock(sessions);
        log_warn("recover.second_container", LOG_SESSION(session), log_s("container", listed->ref));
        if (sessions->provider->ops->remove(sessions->provider, listed->ref, cancel, &err) < 0)
            log_warn("recover.container_left", log_s("container", listed->ref), log_e(&err));
        return;
    }
    if (!runs || (session->sandbox && sessions->provider->ops->sandbox_alive(session->sandbox))) {
        sessions_unlock(sessions); /* well, asleep as it should be, or to be healed at its next use */
        if (!runs)
            runs_lose(session, "sandbox died");
        return;
    }
    session->busy = true;
    sessions_unlock(sessions);
    if (session->state == SESSION_HIBERNATED) {
        if (sandbox_put_away(session, cancel, &err) < 0)
            log_warn("recover.still_running", LOG_SESSION(session), log_e(&err));
    } else {
        struct policy *policy = sessions_policy(sessions);

        if (sandbox_ensure(session, policy, false, cancel, &err) < 0) {
            log_warn("recover.not_adopted", LOG_SESSION(session), log_e(&err));
            if (session->kept_alive > 0)
                recover_doubt(sessions); /* runs go on in there: try again soon */
        } else
            log_info("recover.adopted", LOG_SESSION(session));
        policy_unref(policy);
    }
    sessions_lock(sessions);
    session_settled_locked(session);
    sessions_unlock(sessions);
}

/* One whose slot no session holds: kept stopped if it is a closed session's kept container, removed otherwise. The slot is
 * claimed, so that an opening waits for the outcome. */
static void mend_stray(struct sessions *sessions, const struct sandbox_listed *listed, const struct cancel *cancel)
{
    struct provider *provider = sessions->provider;
    struct error err = ERROR_INIT;
    struct store_slot slot = {.ref = ""};
    bool kept;

    kept = sessions->settings.persist_containers && store_slot_get(sessions->store, listed->slot, &slot, &err) == 0 &&
           strcmp(slot.ref, listed->ref) == 0;
    error_clear(&err);
    if (kept) {
        if (listed->phase != SANDBOX_RUNNING && listed->phase != SANDBOX_PAUSED)
            return;
        log_info("recover.stopped", log_s("container", listed->ref), log_s("slot", listed->slot));
        if (provider->ops->stop(provider, listed->ref, cancel, &err) < 0)
            log_warn("recover.still_running", log_s("container", listed->ref), log_e(&err));
        return;
    }
    log_info("recover.removed", log_s("container", listed->ref), log_s("slot", listed->slot));
    if (provider->ops->remove(provider, listed->ref, cancel, &err) < 0) {
        log_warn("recover.container_left", log_s("container", listed->ref), log_e(&err));
        return;
    }
    if (strcmp(slot.ref, listed->ref) == 0) {
        slot.ref[0] = '\0';
        (void)store_slot_put(sessions->store, &slot, &err);
    }
}

bool session_claim_slot(struct sessions *sessions, const char *slot)
{
    struct cancel never = CANCEL_NEVER;
    struct error err = ERROR_INIT;
    bool claimed;

    sessions_lock(sessions);
    while (sessions->claimed_slot[0])
        (void)waitq_wait(&sessions->changed, &sessions->lock, &never, &err);
    claimed = !registry_find_slot_locked(sessions, slot);
    if (claimed)
        (void)snprintf(sessions->claimed_slot, sizeof sessions->claimed_slot, "%s", slot);
    sessions_unlock(sessions);
    return claimed;
}

void session_unclaim_slot(struct sessions *sessions)
{
    sessions_lock(sessions);
    sessions->claimed_slot[0] = '\0';
    waitq_wake_all(&sessions->changed);
    sessions_unlock(sessions);
}

static void mend(struct sessions *sessions, const struct sandbox_listed *listed, int64_t listed_mono_us,
                 const struct cancel *cancel)
{
    struct cancel bounded = cancel_within(cancel, MEND_TIMEOUT_MS);
    auto_session struct session *session = NULL;

    if (session_claim_slot(sessions, listed->slot)) {
        mend_stray(sessions, listed, &bounded);
        session_unclaim_slot(sessions);
        return;
    }
    sessions_lock(sessions);
    session = registry_find_slot_locked(sessions, listed->slot);
    if (session)
        (void)session_ref(session);
    sessions_unlock(sessions);
    if (session) /* otherwise it was closed this moment: whoever closed it saw to the container */
        mend_session(session, listed, listed_mono_us, &bounded);
}

int recover_reconcile(struct sessions *sessions, const struct cancel *cancel, struct error *err)
{
    auto_free struct sandbox_listed *list = NULL;
    const int64_t listed_mono_us = clock_mono_us();
    size_t count;

    if (sessions->provider->ops->list(sessions->provider, cancel, &list, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (cancel_check(cancel, err) < 0)
            return -1;
        mend(sessions, &list[i], listed_mono_us, cancel);
    }
    runs_lose_orphans(sessions, list, count, listed_mono_us);
    return 0;
}

/* -- the thread -- */

/* A word that comes late speaks of an earlier life of the container, which was stopped and has been started again meanwhile: a link
 * that lives contradicts it, and the engine decides. */
static int decide(struct sessions *sessions, const char *ref, bool *ret_runs, const struct cancel *cancel,
                  struct error *err)
{
    auto_free struct sandbox_listed *list = NULL;
    size_t count;

    if (sessions->provider->ops->list(sessions->provider, cancel, &list, &count, err) < 0)
        return -1;
    *ret_runs = runs_somewhere(list, count, ref);
    return 0;
}

/* -1: the engine does not answer who contradicts it, and everything is to be compared. */
static int died(struct sessions *sessions, const struct sandbox_event *event, const struct cancel *cancel,
                struct error *err)
{
    auto_session struct session *session = NULL;
    int64_t attached_mono_us;
    bool runs;

    sessions_lock(sessions);
    session = registry_find_container_locked(sessions, event->ref);
    if (!session || session->busy || session->state != SESSION_RUNNING) {
        waitq_wake_all(&sessions->pool_changed); /* a transition of ours, or nobody's: perhaps the pool's */
        session = NULL;
        sessions_unlock(sessions);
        return 0;
    }
    (void)session_ref(session);
    runs = session->sandbox && sessions->provider->ops->sandbox_alive(session->sandbox);
    attached_mono_us = session->attached_mono_us;
    sessions_unlock(sessions);
    if (runs && decide(sessions, event->ref, &runs, cancel, err) < 0)
        return -1;
    sessions_lock(sessions);
    if (runs || session->busy || session->state != SESSION_RUNNING || session->attached_mono_us != attached_mono_us) {
        sessions_unlock(sessions); /* it lives, or has another life by now */
        return 0;
    }
    if (session->sandbox)
        sessions->provider->ops->sandbox_close(session->sandbox);
    sessions_unlock(sessions);
    runs_lose(session, event->oom ? "sandbox out of memory" : "sandbox died");
    log_warn("session.sandbox_died", LOG_SESSION(session), log_s("oom", event->oom ? "yes" : "no"));
    feed_record(sessions, "died", session->id, session->tenant, event->oom ? "out of memory" : "");
    return 0;
}

void recover_doubt(struct sessions *sessions)
{
    sessions_lock(sessions);
    sessions->in_doubt = true;
    sessions_unlock(sessions);
}

void recover_doubt_long(struct sessions *sessions)
{
    sessions_lock(sessions);
    sessions->in_doubt = true;
    sessions->doubt_until_mono_ms = clock_mono_ms() + DOUBT_MS;
    sessions_unlock(sessions);
}

/* Nothing happened for a moment: is it time to compare all the same? */
static bool is_time(struct sessions *sessions)
{
    int64_t now_ms = clock_mono_ms();
    int64_t every_ms = sessions->settings.cleanup_interval_s * 1000;
    bool in_doubt;

    sessions_lock(sessions);
    in_doubt = sessions->in_doubt;
    if (now_ms < sessions->doubt_until_mono_ms && every_ms > DOUBT_EVERY_MS)
        every_ms = DOUBT_EVERY_MS;
    sessions_unlock(sessions);
    return in_doubt || now_ms - sessions->compared_mono_ms >= every_ms;
}

/* What a failure left behind after the list was taken is the next comparison's. */
static int compare(struct sessions *sessions, const struct cancel *cancel, struct error *err)
{
    sessions_lock(sessions);
    sessions->in_doubt = false;
    sessions_unlock(sessions);
    if (recover_reconcile(sessions, cancel, err) < 0)
        return -1;
    finish_purges(sessions, cancel);
    sessions->compared_mono_ms = clock_mono_ms();
    return 0;
}

/* One thing that happened, or the comparison that is due. */
static int watch_once(struct sessions *sessions, const struct cancel *cancel, bool *due, struct error *err)
{
    struct sandbox_event event = {.kind = SANDBOX_EVENT_RELIST};

    struct cancel tick = cancel_within(cancel, TICK_MS);

    if (!*due && sessions->provider->ops->next_event(sessions->provider, &tick, &event, err) < 0) {
        if (err->code == ERROR_TIMEOUT) {
            error_clear(err);
            *due = is_time(sessions);
            return 0;
        }
        *due = true; /* deaf for a while: things may have been missed */
        return -1;
    }
    if (event.kind == SANDBOX_EVENT_RELIST) {
        *due = true;
        if (compare(sessions, cancel, err) < 0)
            return -1;
        *due = false;
    } else if (died(sessions, &event, cancel, err) < 0) {
        *due = true;
        return -1;
    }
    return 0;
}

void *watcher_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    bool away = false;
    bool due = true;
    struct error err = ERROR_INIT;

    remove_orphan_slots(sessions, &cancel);
    while (cancel_check(&cancel, &err) == 0) {
        struct cancel pause = cancel;

        if (watch_once(sessions, &cancel, &due, &err) == 0) {
            if (away)
                log_info("engine.back");
            away = false;
            continue;
        }
        if (!away && cancel_check(&cancel, &(struct error)ERROR_INIT) == 0)
            log_warn("engine.away", log_e(&err));
        away = true;
        error_clear(&err);
        pause = cancel_within(&cancel, RETRY_MS);
        (void)cancel_poll(&pause, NULL, 0, &err);
        error_clear(&err);
    }
    return NULL;
}
