/* A snapshot put in the place of its workspace. The copy is made first, beside everything; then the name leads to it, in one step:
 * that is the moment of the restoring, and rows that a death left behind follow it at the next start (session_recover.c). */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <string.h>

enum { RESTORE_TIMEOUT_MS = 900000 };

/* -- what was there before: nobody's, but whoever reads it reads on, and it goes with the last of them. What a death leaves of it a
 * start removes -- */

/* False: somebody reads it. */
static bool remove_unread(struct sessions *sessions, const char *slot, const struct cancel *cancel)
{
    struct error err = ERROR_INIT;

    if (workspace_slot_retire(sessions->root, slot, &err) < 0)
        return false;
    if (workspace_slot_remove(sessions->root, slot, cancel, &err) < 0)
        log_warn("restore.slot_left", log_s("slot", slot), log_e(&err));
    workspace_slot_unretire(sessions->root, slot);
    return true;
}

static void remove_old(struct sessions *sessions, const char *slot, const struct cancel *cancel)
{
    struct replaced_slot *replaced;

    if (remove_unread(sessions, slot, cancel))
        return;
    replaced = alloc_zero(sizeof *replaced);
    (void)snprintf(replaced->slot, sizeof replaced->slot, "%s", slot);
    sessions_lock(sessions);
    replaced->next = sessions->replaced;
    sessions->replaced = replaced;
    sessions_unlock(sessions);
}

void restore_sweep(struct sessions *sessions, const struct cancel *cancel)
{
    struct replaced_slot *list;

    sessions_lock(sessions);
    list = take_ptr(sessions->replaced);
    sessions_unlock(sessions);
    while (list) {
        auto_free struct replaced_slot *replaced = list;

        list = replaced->next;
        remove_old(sessions, replaced->slot, cancel);
    }
}

void restore_forget(struct sessions *sessions)
{
    while (sessions->replaced) {
        auto_free struct replaced_slot *replaced = sessions->replaced;

        sessions->replaced = replaced->next;
    }
}

/* -- of a closed session: the id is claimed meanwhile -- */

/* The kept container goes: what it has mounted is the old slot. */
static int discard_container(struct session *claim, const char *slot, const struct cancel *cancel, struct error *err)
{
    struct store_slot row;
    struct error missing = ERROR_INIT;
    int result;

    if (store_slot_get(claim->owner->store, slot, &row, &missing) < 0)
        return missing.code == ERROR_NOT_FOUND ? 0 : (*err = missing, -1);
    session_hold_container(claim, slot, row.ref);
    result = sandbox_discard(claim, cancel, err);
    session_hold_container(claim, "", "");
    return result;
}

/* What is copied, and the copy. */
struct restoring {
    const char *snapshot_id;
    const char *slot;
};

static int put_in_place_of_closed(struct session *claim, const struct restoring *restoring, const struct cancel *cancel,
                                  struct error *err)
{
    struct sessions *sessions = claim->owner;
    struct store_workspace row;
    char before[WORKSPACE_SLOT_BYTES];
    char old[WORKSPACE_SLOT_BYTES];
    struct error late = ERROR_INIT;

    /* Deleted while it was copied, perhaps with the workspace: half. */
    if (fork_find_snapshot(sessions, claim->id, restoring->snapshot_id, err) < 0 ||
        store_workspace_get(sessions->store, claim->id, &row, err) < 0 ||
        workspace_find(sessions->root, claim->id, before, err) < 0 ||
        discard_container(claim, before, cancel, err) < 0 ||
        workspace_swap(sessions->root, claim->id, restoring->slot, old, err) < 0)
        return -1;
    memcpy(row.slot, restoring->slot, sizeof row.slot);
    row.last_use_unix_ms = clock_unix_ms();
    if (store_workspace_put(sessions->store, &row, err) < 0)
        return -1;
    remove_old(sessions, old, cancel);
    (void)store_slot_delete(sessions->store, before, &late);
    return 0;
}

static int restore_closed(struct sessions *sessions, const char *id, const struct restoring *restoring,
                          const struct cancel *cancel, struct error *err)
{
    struct session *claim = session_claim_id(sessions, id, err);
    int result;

    if (!claim)
        return -1;
    result = put_in_place_of_closed(claim, restoring, cancel, err);
    session_unclaim_id(claim);
    return result;
}

/* -- of an open one: what runs in it ends, and it is at work or asleep again as it was -- */

/* The name leads there now. */
static void move_session(struct session *session, const char *slot)
{
    struct sessions *sessions = session->owner;
    struct workspace *workspace;
    struct workspace_room *room;

    sessions_lock(sessions);
    (void)snprintf(session->slot, sizeof session->slot, "%s", slot);
    runs_move_locked(session);
    workspace = take_ptr(session->workspace);
    room = session->room;
    session->room = workspace_room_new();
    session->over_quota = false;
    sessions_unlock(sessions);
    workspace_unref(workspace);
    workspace_room_unref(room);
}

/* `busy` is held. */
static int put_in_place_of_open(struct session *session, const struct restoring *restoring, const struct cancel *cancel,
                                struct error *err)
{
    struct sessions *sessions = session->owner;
    char before[STORE_SLOT_BYTES];
    char old[WORKSPACE_SLOT_BYTES];
    struct store_slot row;
    int result;

    if (fork_find_snapshot(sessions, session->id, restoring->snapshot_id, err) < 0)
        return -1;
    memcpy(before, session->slot, sizeof before);
    runs_lose(session, "workspace restored");
    if (sandbox_discard(session, cancel, err) < 0 ||
        workspace_swap(sessions->root, session->id, restoring->slot, old, err) < 0)
        return -1;
    move_session(session, restoring->slot);
    sandbox_slot_row(session, &row);
    result = store_session_move(sessions->store, session->id, before, &row, clock_unix_ms(), err);
    remove_old(sessions, old, cancel);
    return result;
}

static void run_again(struct session *session, const struct cancel *cancel)
{
    auto_policy struct policy *policy = sessions_policy(session->owner);
    struct error late = ERROR_INIT;

    if (sandbox_ensure(session, policy, true, cancel, &late) < 0)
        log_warn("restore.not_started", log_s("session", session->id), log_e(&late)); /* healed at its next use */
}

static int restore_open(struct session *session, const struct restoring *restoring, const struct cancel *cancel,
                        struct error *err)
{
    struct sessions *sessions = session->owner;
    bool is_at_work;
    int result;

    sessions_lock(sessions);
    if (session_wait_idle_locked(session, cancel, err) < 0) {
        sessions_unlock(sessions);
        return err->code == ERROR_GONE ? fail(err, CONFLICT, "Session was closed meanwhile: %s", session->id) : -1;
    }
    session->busy = true;
    is_at_work = session->state == SESSION_RUNNING;
    sessions_unlock(sessions);
    result = put_in_place_of_open(session, restoring, cancel, err);
    if (is_at_work)
        run_again(session, cancel);
    sessions_lock(sessions);
    session_touch_locked(session);
    session_settled_locked(session);
    sessions_unlock(sessions);
    return result;
}

int sessions_snapshot_restore(struct sessions *sessions, const char *id, const char *snapshot_id,
                              const struct cancel *cancel, const char **ret_how, struct error *err)
{
    struct cancel bounded = cancel_detached(cancel);
    struct error ignored = ERROR_INIT;
    auto_session struct session *session = registry_get(sessions, id, &ignored);
    char slot[WORKSPACE_SLOT_BYTES];
    char now[WORKSPACE_SLOT_BYTES];
    struct restoring restoring = {snapshot_id, slot};
    int result;

    error_clear(&ignored);
    bounded = cancel_within(&bounded, RESTORE_TIMEOUT_MS);
    if (fork_copy_snapshot(sessions, id, snapshot_id, &bounded, slot, ret_how, err) < 0)
        return -1;
    result = session ? restore_open(session, &restoring, &bounded, err)
                     : restore_closed(sessions, id, &restoring, &bounded, err);
    /* Nothing was changed, or it is in place and only its rows could not be written. */
    if (result < 0 && (workspace_find(sessions->root, id, now, &ignored) < 0 || strcmp(now, slot) != 0)) {
        error_clear(&ignored);
        (void)workspace_slot_remove(sessions->root, slot, &(struct cancel)CANCEL_NEVER, &ignored);
    }
    if (result == 0)
        feed_record(sessions, "restored", id, session ? session->tenant : "", snapshot_id);
    return result;
}
