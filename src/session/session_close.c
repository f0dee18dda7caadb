/* Closing and purging. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

#include <string.h>

enum { CLOSE_TIMEOUT_MS = 60000, PURGE_TIMEOUT_MS = 600000 };

/* The name first: what then remains is a slot without a name, which the next start sweeps. */
static int remove_files(struct sessions *sessions, const char *id, const char *slot, const struct cancel *cancel,
                        struct error *err)
{
    struct cancel bounded = cancel_within(cancel, PURGE_TIMEOUT_MS);

    if (!sessions->root)
        return 0;
    if (fork_forget_snapshots(sessions, id, &bounded, err) < 0)
        return error_prefix(err, "purging %s", id);
    if (workspace_unlink(sessions->root, id, err) < 0)
        return error_prefix(err, "purging %s", id);
    if (slot[0] && workspace_slot_remove(sessions->root, slot, &bounded, err) < 0)
        return error_prefix(err, "purging %s", id);
    return 0;
}

static int forget_slot(struct sessions *sessions, const char *id, const char *slot, struct error *err)
{
    if (store_workspace_delete(sessions->store, id, err) < 0 && err->code != ERROR_NOT_FOUND)
        return -1;
    error_clear(err);
    if (slot[0] && store_slot_delete(sessions->store, slot, err) < 0 && err->code != ERROR_NOT_FOUND)
        return -1;
    error_clear(err);
    return 0;
}

/* The container goes (purge), or is put away; busy is held. */
static int end_container(struct session *session, bool purge, const struct cancel *cancel, struct error *err)
{
    if (purge || !sandbox_outlives(session->owner))
        return purge || !session->owner->settings.persist_containers ? sandbox_discard(session, cancel, err)
                                                                     : sandbox_put_away(session, cancel, err);
    return sandbox_put_away(session, cancel, err);
}

int session_close(struct session *session, bool purge, int64_t idle_for_us, const char *feed_op,
                  const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct cancel bounded = cancel_detached(cancel);
    int result;

    bounded = cancel_within(&bounded, CLOSE_TIMEOUT_MS);
    sessions_lock(sessions);
    if (session_wait_idle_locked(session, &bounded, err) < 0) {
        sessions_unlock(sessions);
        return err->code == ERROR_GONE ? fail(err, NOT_FOUND, "No such session: %s", session->id) : -1;
    }
    if (idle_for_us >= 0 && !session_is_due_locked(session, idle_for_us)) {
        sessions_unlock(sessions);
        return fail(err, CONFLICT, "not idle any more");
    }
    session->busy = true;
    sessions_unlock(sessions);

    runs_lose(session, purge ? "session purged" : "session closed");
    result = end_container(session, purge, &bounded, err);
    if (result < 0 && !purge) {
        /* The engine is away or refuses: the session closes all the same, the reconciler deals with the container. */
        log_warn("session.container_left", LOG_SESSION(session), log_e(err));
        error_clear(err);
        result = 0;
    }
    if (result == 0)
        result = store_session_close(sessions->store, session->id, clock_unix_ms(), purge, err);
    if (result == 0 && purge)
        result = remove_files(sessions, session->id, session->slot, &bounded, err);
    if (result == 0 && purge)
        result = forget_slot(sessions, session->id, session->slot, err);

    if (result == 0)
        runs_drop(session);
    sessions_lock(sessions);
    if (result == 0)
        registry_remove_locked(session);
    else
        session_settled_locked(session);
    sessions_unlock(sessions);
    if (result == 0) {
        log_info("session.closed", LOG_SESSION(session), log_s("how", feed_op));
        feed_record(sessions, feed_op, session->id, session->tenant, "");
    }
    return result;
}

/* The holder is in the registry: whoever looks a container or a slot up reads these. */
void session_hold_container(struct session *holder, const char *slot, const char *ref)
{
    sessions_lock(holder->owner);
    (void)snprintf(holder->slot, sizeof holder->slot, "%s", slot);
    (void)snprintf(holder->ref, sizeof holder->ref, "%s", ref);
    sessions_unlock(holder->owner);
}

/* The kept container and the files of an id whose workspace's row says that they are to go. `holder` holds the id. */
static int purge_marked(struct session *holder, const char *slot_name, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = holder->owner;
    struct store_slot slot = {.ref = ""};
    struct error ignored = ERROR_INIT;
    int result = 0;

    if (slot_name[0] && store_slot_get(sessions->store, slot_name, &slot, &ignored) == 0) {
        session_hold_container(holder, slot_name, slot.ref);
        result = sandbox_discard(holder, cancel, err);
        session_hold_container(holder, "", "");
    }
    if (result == 0)
        result = remove_files(sessions, holder->id, slot_name, cancel, err);
    if (result == 0)
        result = forget_slot(sessions, holder->id, slot_name, err);
    if (result < 0) {
        sessions_lock(sessions);
        sessions->purges_left = true;
        sessions_unlock(sessions);
    }
    return result;
}

int session_purge_rest(struct session *holder, const struct cancel *cancel, struct error *err)
{
    struct store_workspace workspace;
    struct error missing = ERROR_INIT;

    if (store_workspace_get(holder->owner->store, holder->id, &workspace, &missing) < 0 || !workspace.purging)
        return 0;
    return purge_marked(holder, workspace.slot, cancel, err);
}

/* The workspace's row, made if there is none, says from here on that it goes. NOT_FOUND: nothing of that id is there. */
static int mark(struct sessions *sessions, const char *id, struct store_workspace *workspace, struct error *err)
{
    char found[WORKSPACE_SLOT_BYTES] = "";
    struct error ignored = ERROR_INIT;
    bool known = store_workspace_get(sessions->store, id, workspace, &ignored) == 0;
    bool is_there;

    error_clear(&ignored);
    is_there = sessions->root && workspace_find(sessions->root, id, found, &ignored) == 0;
    if (!known && !is_there)
        return fail(err, NOT_FOUND, "No such session: %s", id);
    if (!known)
        *workspace = (struct store_workspace){.created_at_unix_ms = clock_unix_ms()};
    (void)snprintf(workspace->id, sizeof workspace->id, "%s", id);
    if (is_there)
        memcpy(workspace->slot, found, sizeof workspace->slot);
    workspace->purging = true;
    return store_workspace_put(sessions->store, workspace, err);
}

/* The id is claimed: nobody opens it. From here on nobody begins to read it either: `ret_retired` is its slot, "" there is none. */
static int may_expire(struct sessions *sessions, const char *id, int64_t ttl_ms, char ret_retired[WORKSPACE_SLOT_BYTES],
                      struct error *err)
{
    char slot[WORKSPACE_SLOT_BYTES];
    struct store_stored row;

    clock_look(sessions); /* it may have been set a moment ago: the row's time moves along */
    if (store_stored_get(sessions->store, id, &row, err) < 0)
        return -1;
    if (row.is_pinned || clock_unix_ms() - row.workspace.last_use_unix_ms <= ttl_ms)
        return fail(err, CONFLICT, "The workspace is to stay: %s", id);
    if (!sessions->root || workspace_find(sessions->root, id, slot, err) < 0)
        return 0;
    if (workspace_slot_retire(sessions->root, slot, err) < 0)
        return -1;
    memcpy(ret_retired, slot, sizeof slot);
    return 0;
}

struct session *session_claim_id(struct sessions *sessions, const char *id, struct error *err)
{
    struct session *claim = session_new(sessions, id);
    const struct session *holder;

    claim->state = SESSION_OPENING;
    claim->busy = true;
    sessions_lock(sessions);
    holder = registry_find_locked(sessions, id);
    if (holder)
        (void)fail(err, CONFLICT, holder->state == SESSION_OPENING ? "Session is opening: %s" : "Session is open: %s",
                   id);
    else
        registry_add_locked(sessions, session_ref(claim));
    sessions_unlock(sessions);
    if (!holder)
        return claim;
    session_unref(claim);
    return NULL;
}

void session_unclaim_id(struct session *claim)
{
    struct sessions *sessions = claim->owner;

    sessions_lock(sessions);
    registry_remove_locked(claim);
    sessions_unlock(sessions);
    session_unref(claim);
}

/* A session that is closed already: its kept container and its files. Its id is claimed meanwhile by an opening session, so that
 * nobody opens on what is going away. */
int session_purge_closed(struct sessions *sessions, const char *id, int64_t ttl_ms, const struct cancel *cancel,
                         struct error *err)
{
    struct store_workspace workspace = {.slot = ""};
    struct session *claim = session_claim_id(sessions, id, err);
    char retired[WORKSPACE_SLOT_BYTES] = "";
    int result;

    if (!claim)
        return -1;
    result = ttl_ms >= 0 ? may_expire(sessions, id, ttl_ms, retired, err) : 0;
    if (result == 0)
        result = mark(sessions, id, &workspace, err);
    if (result == 0)
        result = purge_marked(claim, workspace.slot, cancel, err);
    if (retired[0])
        workspace_slot_unretire(sessions->root, retired);
    session_unclaim_id(claim);
    if (result == 0)
        feed_record(sessions, "purged", id, workspace.tenant, "");
    return result;
}

int sessions_close(struct sessions *sessions, const char *id, bool purge, const struct cancel *cancel,
                   struct error *err)
{
    struct cancel detached = cancel_detached(cancel);
    struct error missing = ERROR_INIT;
    auto_session struct session *session = registry_get(sessions, id, &missing);

    if (session)
        return session_close(session, purge, -1, purge ? "purged" : "closed", &detached, err);
    if (purge)
        return session_purge_closed(sessions, id, -1, &detached, err);
    *err = missing;
    return -1;
}
