/* POST /sessions: the order of decisions is the wire's (wires/sandboxd-current.md, 4.3). */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "log.h"
#include "metric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPEN_TIMEOUT_MS = 900000, /* an image may have to be pulled */
    UNDO_TIMEOUT_MS = 10000,  /* for its container; the reconciler takes what is left */
};

static int unknown_runtime(const struct policy *policy, const char *alias, struct error *err)
{
    auto_buf struct buf allowed = BUF_INIT(160);
    struct error ignored = ERROR_INIT;

    for (size_t i = 0; i < policy->runtime_count; i++)
        (void)buf_append_format(&allowed, &ignored, "%s%s", i ? ", " : "", policy->runtimes[i].alias);
    return fail(err, INVALID, "Unknown runtime '%.64s'. Allowed: %s", alias, buf_str(&allowed));
}

/* An id that is open already. The lock is held; released when it returns. */
static int attach_locked(struct session *session, const struct session_open *request, const struct cancel *cancel,
                         struct session_view *ret_view, char ret_token[SESSION_TOKEN_BYTES], struct error *err)
{
    struct sessions *sessions = session->owner;
    struct sandbox *sandbox = NULL;
    uint32_t number;

    if (!request->reuse && !request->attach) {
        sessions_unlock(sessions);
        return fail(err, CONFLICT, "Session exists: %s", session->id);
    }
    if (request->runtime && request->runtime[0] && strcmp(request->runtime, session->runtime) != 0) {
        sessions_unlock(sessions);
        return fail(err, CONFLICT, "Session %s is open on runtime '%s', not '%s'. Close it before changing runtime.",
                    session->id, session->runtime, request->runtime);
    }
    if (session->state == SESSION_HIBERNATED) {
        sessions_unlock(sessions);
        if (session_enter(session, cancel, &sandbox, &number, err) < 0)
            return -1;
        sandbox_unref(sandbox);
        session_leave(session);
        sessions_lock(sessions);
    }
    session_view_locked(session, ret_view);
    memcpy(ret_token, session->token, SESSION_TOKEN_BYTES);
    sessions_unlock(sessions);
    metric_count(opens, METRIC_OPEN_ATTACHED);
    return 0;
}

struct longest_asleep {
    struct session *found;
};

static void look_asleep(void *value, void *context)
{
    struct session *session = value;
    struct longest_asleep *search = context;

    if (session->state == SESSION_HIBERNATED && !session->busy && session->keep_until_mono_us <= clock_mono_us() &&
        (!search->found || session->last_activity_mono_us < search->found->last_activity_mono_us))
        search->found = session;
}

/* Lock held, released meanwhile. `tenant` may be NULL. Leaves the session counted as open. */
static int claim_locked(struct sessions *sessions, struct session *session, const struct policy *policy,
                        const struct cancel *cancel, struct error *err)
{
    if (tenant_check_open_locked(session->of_tenant, policy, err) <
        0) /* nobody's session is closed for one that is refused */
        return -1;
    while (policy->max_open_sessions.is_set && (int64_t)sessions->open_count >= policy->max_open_sessions.value) {
        struct longest_asleep search = {NULL};
        struct error ignored = ERROR_INIT;
        int closed;

        map_each(&sessions->by_id, look_asleep, &search);
        if (!search.found)
            return fail(err, LIMIT,
                        "Service holds its ceiling of %lld open sessions and all of them are in use. Close one before "
                        "opening another.",
                        (long long)policy->max_open_sessions.value);
        (void)session_ref(search.found);
        sessions_unlock(sessions);
        closed = session_close(search.found, false, -1, "closed", cancel, &ignored);
        session_unref(search.found);
        sessions_lock(sessions);
        if (closed < 0 && ignored.code != ERROR_NOT_FOUND) {
            *err = ignored;
            return -1;
        }
        if (registry_find_locked(sessions, session->id))
            return fail(err, CONFLICT, "Session is opening: %s", session->id);
    }
    if (tenant_check_open_locked(session->of_tenant, policy, err) < 0)
        return -1;
    registry_add_locked(sessions, session_ref(session));
    if (session_take_place_locked(session, policy, "", cancel, err) < 0) {
        registry_remove_locked(session);
        return -1;
    }
    return 0;
}

/* What an opening has made so far, for undo(). */
struct opening {
    bool made_slot;
    bool has_row;
    bool from_pool;
    const struct session_open *request;
};

/* A new one: empty, or a copy. */
static int make_slot(const struct session *session, const struct session_open *request,
                     char ret_slot[WORKSPACE_SLOT_BYTES], const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;

    if (request->fork_of)
        return fork_copy(sessions, request->fork_of, session->tenant, cancel, ret_slot, request->ret_how, err);
    return workspace_slot_create(sessions->root, sessions->settings.sandbox_uid, sessions->settings.sandbox_uid,
                                 ret_slot, err);
}

/* The slot of an id: the one its workspace lies in, or a new one. *ret_made: it was made here. */
static int find_slot(struct session *session, const struct session_open *request, bool *ret_made,
                     const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct store_workspace workspace = {.slot = ""};
    char slot[WORKSPACE_SLOT_BYTES] = "";
    bool made = false;

    if (sessions->root) {
        if (workspace_find(sessions->root, session->id, slot, err) < 0) {
            if (err->code != ERROR_NOT_FOUND)
                return -1;
            error_clear(err);
            if (make_slot(session, request, slot, cancel, err) < 0)
                return -1;
            made = true;
        } else if (request->fork_of) {
            return fail(err, CONFLICT, "Workspace exists: %s", session->id);
        }
    } else {
        /* No files on the host: the slot is a name only; a kept container is found by it again. */
        if (store_workspace_get(sessions->store, session->id, &workspace, err) == 0) {
            memcpy(slot, workspace.slot, sizeof slot);
        } else if (err->code == ERROR_NOT_FOUND) {
            error_clear(err);
            id_random_hex(slot, WORKSPACE_SLOT_HEX);
        } else {
            return -1;
        }
    }
    *ret_made = made;
    stored_limit_slot(sessions, slot, session->tenant);
    /* From here on the reconciler sees whose slot it is; one it works on is waited for. */
    sessions_lock(sessions);
    while (strcmp(sessions->claimed_slot, slot) == 0) {
        if (waitq_wait(&sessions->changed, &sessions->lock, cancel, err) < 0) {
            sessions_unlock(sessions);
            return -1;
        }
    }
    memcpy(session->slot, slot, sizeof session->slot);
    sessions_unlock(sessions);
    return 0;
}

static void workspace_row(const struct session *session, struct store_workspace *ret)
{
    *ret = (struct store_workspace){.created_at_unix_ms = session->created_at_unix_us / 1000,
                                    .last_use_unix_ms = session->created_at_unix_us / 1000};
    memcpy(ret->id, session->id, sizeof ret->id);
    memcpy(ret->slot, session->slot, sizeof ret->slot);
    memcpy(ret->tenant, session->tenant, sizeof ret->tenant);
    memcpy(ret->runtime, session->runtime, sizeof ret->runtime);
}

static void session_row(const struct session *session, bool fresh, struct store_session *ret)
{
    *ret = (struct store_session){.created_at_unix_ms = session->created_at_unix_us / 1000,
                                  .last_activity_unix_ms = session->created_at_unix_us / 1000,
                                  .fresh = fresh};
    memcpy(ret->id, session->id, sizeof ret->id);
    memcpy(ret->nonce, session->nonce, sizeof ret->nonce);
    memcpy(ret->tenant, session->tenant, sizeof ret->tenant);
    memcpy(ret->runtime, session->runtime, sizeof ret->runtime);
    memcpy(ret->slot, session->slot, sizeof ret->slot);
}

/* The directory, as its user's. */
static int open_workspace(struct session *session, bool new_slot, struct error *err)
{
    struct sessions *sessions = session->owner;

    if (!sessions->root)
        return 0;
    /* An image with a user of its own: a workspace that it could not write to would be of no use to it. */
    if (new_slot && sessions->settings.sandbox_uid < 0 && session->uid != (int64_t)geteuid() &&
        workspace_slot_chown(sessions->root, session->slot, session->uid, session->gid, err) < 0)
        return -1;
    return session_workspace_open(session, err);
}

/* The name comes after the commit that says it is owed: a start gives it again if it is not there (session_recover.c). So it
 * needs no fsync, and a death in between leaves nothing half. */
static int name_slot(struct session *session, bool new_slot, struct error *err)
{
    struct sessions *sessions = session->owner;

    return sessions->root && new_slot ? workspace_link_unsynced(sessions->root, session->id, session->slot, err) : 0;
}

static void opened_as(struct session *session, const struct store_session *row)
{
    sessions_lock(session->owner);
    session->opening = row->opening;
    session->order = row->order;
    sessions_unlock(session->owner);
}

/* Nothing of this id is kept anywhere: a container that was started ahead will do. One commit. */
static int adopt(struct session *session, struct opening *made, struct error *err)
{
    struct store_workspace workspace;
    struct store_session row;
    struct store_slot slot;

    workspace_row(session, &workspace);
    session_row(session, true, &row);
    sandbox_slot_row(session, &slot);
    if (open_workspace(session, true, err) < 0 ||
        store_session_adopt(session->owner->store, &row, &workspace, &slot, err) < 0)
        return -1;
    made->has_row = true;
    opened_as(session, &row);
    return name_slot(session, true, err);
}

static bool is_new(struct session *session)
{
    char slot[WORKSPACE_SLOT_BYTES];
    struct store_workspace row;
    struct error err = ERROR_INIT;

    if (session->owner->root)
        return workspace_find(session->owner->root, session->id, slot, &err) < 0 && err.code == ERROR_NOT_FOUND;
    return store_workspace_get(session->owner->store, session->id, &row, &err) < 0 && err.code == ERROR_NOT_FOUND;
}

/* What the slot's row knows of a container that is kept. */
static int load_slot(struct session *session, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct store_slot slot;

    if (store_slot_get(sessions->store, session->slot, &slot, err) < 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        error_clear(err);
        return 0;
    }
    sessions_lock(sessions);
    memcpy(session->ref, slot.ref, sizeof session->ref);
    session->files_uid = slot.files_uid;
    session->files_gid = slot.files_gid;
    session->uid = slot.ref[0] ? slot.uid : -1;
    session->gid = slot.ref[0] ? slot.gid : -1;
    session->next_run = slot.last_run ? slot.last_run : 1;
    session->reserved_run = session->next_run;
    sessions_unlock(sessions);
    return 0;
}

/* The work of an opening, its places being held. */
static int start(struct session *session, const struct policy *policy, struct opening *made,
                 const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct store_workspace workspace;
    struct store_session row;

    if (session_purge_rest(session, cancel, err) < 0)
        return -1;
    if (!made->request->fork_of && policy_runtime(policy, session->runtime)->pool && is_new(session) &&
        pool_take(session, policy)) {
        made->from_pool = made->made_slot = true;
        stored_limit_slot(sessions, session->slot, session->tenant);
        return adopt(session, made, err);
    }
    if (find_slot(session, made->request, &made->made_slot, cancel, err) < 0)
        return -1;
    session_row(session, made->made_slot, &row);
    if (store_session_open(sessions->store, &row, err) < 0)
        return -1;
    made->has_row = true;
    opened_as(session, &row);
    if (load_slot(session, err) < 0 || sandbox_ensure(session, policy, true, cancel, err) < 0 ||
        open_workspace(session, made->made_slot, err) < 0)
        return -1;
    workspace_row(session, &workspace);
    if (store_session_opened(sessions->store, &workspace, clock_unix_ms(), err) < 0)
        return -1;
    return name_slot(session, made->made_slot, err);
}

/* As if it had never been: no row, no container of a fresh slot, no empty workspace that a later attach would take for real. */
static void undo(struct session *session, const struct opening *made, const struct cancel *cancel)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = cancel_within(cancel, UNDO_TIMEOUT_MS);
    struct error err = ERROR_INIT;

    if (made->made_slot || !sessions->settings.persist_containers) {
        if (sandbox_discard(session, &bounded, &err) < 0)
            log_warn("open.container_left", LOG_SESSION(session), log_e(&err));
        error_clear(&err);
    } else if (sandbox_put_away(session, &bounded, &err) < 0) {
        log_warn("open.container_left", LOG_SESSION(session), log_e(&err));
        error_clear(&err);
    }
    if (made->has_row && store_session_undo(sessions->store, session->id, &err) < 0)
        log_warn("open.row_left", LOG_SESSION(session), log_e(&err));
    error_clear(&err);
    if (made->made_slot) {
        char linked[WORKSPACE_SLOT_BYTES];

        if (sessions->root && workspace_find(sessions->root, session->id, linked, &err) == 0 &&
            strcmp(linked, session->slot) == 0)
            (void)workspace_unlink(sessions->root, session->id, &err);
        error_clear(&err);
        if (sessions->root && workspace_slot_remove(sessions->root, session->slot, cancel, &err) < 0)
            log_warn("open.slot_left", LOG_SESSION(session), log_e(&err));
        error_clear(&err);
        (void)store_workspace_delete(sessions->store, session->id, &err);
        error_clear(&err);
        (void)store_slot_delete(sessions->store, session->slot, &err);
    }
}

static bool something_to_attach_to(struct sessions *sessions, const char *id)
{
    char slot[WORKSPACE_SLOT_BYTES];
    struct error ignored = ERROR_INIT;

    return sessions->root && workspace_find(sessions->root, id, slot, &ignored) == 0;
}

int sessions_open(struct sessions *sessions, const struct session_open *request, const struct cancel *cancel,
                  struct session_view *ret_view, char ret_token[SESSION_TOKEN_BYTES], struct error *err)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    const char *alias = request->runtime && request->runtime[0] ? request->runtime : policy->default_runtime;
    struct cancel detached = cancel_detached(cancel);
    auto_session struct session *session = NULL;
    int64_t started_us = clock_mono_us();
    char made_id[3 + 16];
    const char *id = request->id;
    struct session *existing;
    struct opening made = {false, false, false, request};
    bool attachable;

    detached = cancel_within(&detached, OPEN_TIMEOUT_MS);
    if (!policy_runtime(policy, alias))
        return unknown_runtime(policy, alias, err);
    if (request->attach && !id)
        return fail(err, INVALID, "attach needs a session_id");
    if (!id) {
        memcpy(made_id, "s-", 2);
        id_random_hex(made_id + 2, 16);
        id = made_id;
    }

    attachable = request->attach && something_to_attach_to(sessions, id);
    sessions_lock(sessions);
    while ((existing = registry_find_locked(sessions, id)) != NULL) {
        if (existing->state == SESSION_OPENING) {
            sessions_unlock(sessions);
            return fail(err, CONFLICT, "Session is opening: %s", id);
        }
        session = session_ref(existing);
        if (existing->busy) { /* closing, or waking: look again when it is settled */
            int waited = waitq_wait(&sessions->changed, &sessions->lock, &detached, err);

            session_unref(take_ptr(session));
            if (waited < 0) {
                sessions_unlock(sessions);
                return -1;
            }
            continue;
        }
        return attach_locked(session, request, cancel, ret_view, ret_token, err);
    }
    if (request->attach && !attachable) {
        sessions_unlock(sessions);
        return fail(err, NOT_FOUND, "Nothing to attach to: %s", id);
    }

    session = session_new(sessions, id);
    session->state = SESSION_OPENING;
    session->busy = true;
    session->created_at_unix_us = clock_unix_us();
    (void)snprintf(session->runtime, sizeof session->runtime, "%s", alias);
    session_set_tenant_locked(session, request->tenant ? request->tenant : "");
    id_random_hex(session->nonce, sizeof session->nonce - 1);
    token_make(sessions, id, session->nonce, session->token);
    session_touch_locked(session);
    if (claim_locked(sessions, session, policy, &detached, err) < 0) {
        sessions_unlock(sessions);
        metric_count(opens, METRIC_OPEN_REFUSED);
        feed_record(sessions, "refused", id, session->tenant, error_public_text(err));
        return -1;
    }
    sessions_unlock(sessions);

    if (start(session, policy, &made, &detached, err) < 0) {
        undo(session, &made, &detached);
        sessions_lock(sessions);
        registry_remove_locked(session);
        sessions_unlock(sessions);
        log_warn("session.open_failed", log_s("session", id), log_e(err));
        metric_count(opens, METRIC_OPEN_FAILED);
        feed_record(sessions, "refused", id, session->tenant, "could not start");
        /* What is not the client's fault, nor a passing one of the engine, is the wire's 502. */
        if (request->fork_of && !made.made_slot && (err->code == ERROR_CONFLICT || err->code == ERROR_NOT_FOUND))
            return -1;
        if (err->code != ERROR_UNAVAILABLE && err->code != ERROR_NO_SPACE && err->code != ERROR_CANCELLED)
            err->code = ERROR_ENGINE;
        return err->code == ERROR_ENGINE ? error_prefix(err, "Could not start sandbox") : -1;
    }

    sessions_lock(sessions);
    session_state_locked(session, SESSION_RUNNING);
    session_touch_locked(session);
    registry_order_locked(session);
    session_settled_locked(session);
    session_view_locked(session, ret_view);
    sessions_unlock(sessions);
    memcpy(ret_token, session->token, SESSION_TOKEN_BYTES);
    if (made.from_pool)
        pool_name(session);
    metric_count(opens, made.from_pool ? METRIC_OPEN_POOL : METRIC_OPEN_CREATED);
    metric_observe(&metrics.open_durations[METRIC_ONE_ALL], clock_mono_us() - started_us);
    log_info("session.opened", log_s("session", id), log_s("tenant", session->tenant),
             log_s("runtime", session->runtime), log_i("ms", (clock_mono_us() - started_us) / 1000));
    feed_record(sessions, "opened", id, session->tenant, "");
    return 0;
}
