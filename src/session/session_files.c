/* File operations that the host answers, on sessions and on stored workspaces. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { NAME_TRIES = 4 }; /* a restore may come between a name and what it leads to */

bool sessions_keep_workspaces(const struct sessions *sessions)
{
    return sessions->root != NULL;
}

bool sessions_native_files(const struct sessions *sessions)
{
    return sessions->settings.native_files && sessions->root;
}

bool sessions_native_writes(const struct sessions *sessions)
{
    return sessions_native_files(sessions) &&
           (sessions->settings.sandbox_uid < 0 || sessions->settings.sandbox_uid == (int64_t)geteuid());
}

void session_slot(struct session *session, char ret[STORE_SLOT_BYTES])
{
    sessions_lock(session->owner);
    memcpy(ret, session->slot, STORE_SLOT_BYTES);
    sessions_unlock(session->owner);
}

static bool leads_to(struct session *session, const char *slot)
{
    bool does;

    sessions_lock(session->owner);
    does = strcmp(session->slot, slot) == 0;
    sessions_unlock(session->owner);
    return does;
}

/* 1: open; 0: the session's name led to another slot meanwhile. */
static int open_slot(struct session *session, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct workspace_identity identity;
    struct workspace *before;
    struct workspace *opened;
    char slot[STORE_SLOT_BYTES];
    int64_t room = stored_room(sessions, session->id);

    sessions_lock(sessions);
    memcpy(slot, session->slot, sizeof slot);
    identity = (struct workspace_identity){session->files_uid, session->files_gid};
    sessions_unlock(sessions);
    if (workspace_open(sessions->root, slot, &identity, &opened, err) < 0)
        return leads_to(session, slot) ? -1 : 0;
    sessions_lock(sessions);
    if (strcmp(slot, session->slot) != 0) {
        sessions_unlock(sessions);
        workspace_unref(opened);
        return 0;
    }
    before = take_ptr(session->workspace);
    workspace_room_begin(session->room, room);
    workspace_use_room(opened, session->room);
    session->workspace = opened;
    session->workspace_uid = identity.uid;
    session->workspace_gid = identity.gid;
    sessions_unlock(sessions);
    workspace_unref(before);
    return 1;
}

int session_workspace_open(struct session *session, struct error *err)
{
    for (int tries = 0; tries < NAME_TRIES; tries++) {
        int result;

        error_clear(err);
        result = open_slot(session, err);
        if (result != 0)
            return result < 0 ? -1 : 0;
    }
    error_clear(err);
    return fail(err, UNAVAILABLE, "The workspace is replaced by snapshots of it again and again");
}

void session_workspace_get(struct session *session, struct session_workspace *ret)
{
    struct sessions *sessions = session->owner;
    struct error err = ERROR_INIT;
    bool is_to_open;

    sessions_lock(sessions);
    is_to_open = sessions->root && (!session->workspace || session->files_uid != session->workspace_uid ||
                                    session->files_gid != session->workspace_gid);
    sessions_unlock(sessions);
    if (is_to_open && session_workspace_open(session, &err) < 0)
        log_warn("session.workspace", LOG_SESSION(session), log_e(&err));
    sessions_lock(sessions);
    ret->workspace = session->workspace ? workspace_ref(session->workspace) : NULL;
    ret->is_its_users = ret->workspace && session->workspace_uid >= 0 && session->files_uid == session->workspace_uid &&
                        (session->workspace_uid == (int64_t)geteuid() || geteuid() == 0);
    sessions_unlock(sessions);
}

int session_files_begin(struct sessions *sessions, const char *id, bool write, struct session_files *ret,
                        struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct session_workspace held;
    int64_t uid;

    if (!session)
        return -1;
    if (!sessions_native_files(sessions))
        return fail(err, HANDOVER, "Native files are off");
    session_workspace_get(session, &held);
    sessions_lock(sessions);
    uid = session->files_uid;
    /* The wire: a foreign owner's files are written by the sandbox itself. */
    if (held.workspace && (!write || uid == (int64_t)geteuid())) {
        session->in_flight++;
        session_touch_locked(session);
        ret->session = take_ptr(session);
        ret->workspace = take_ptr(held.workspace);
    }
    sessions_unlock(sessions);
    if (ret->session)
        return 0;
    workspace_unref(held.workspace);
    return fail(err, HANDOVER, write ? "The sandbox has another user" : "Native files are off");
}

int session_place_begin(struct sessions *sessions, const char *id, bool write, struct session_files *ret,
                        struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    struct session_workspace held;

    if (!session)
        return -1;
    if (!sessions->root)
        return fail(err, CONFLICT, "This service keeps no workspaces on disk (SANDBOXD_WORKSPACE_ROOT)");
    session_workspace_get(session, &held);
    if (!held.workspace || (write && !held.is_its_users)) {
        workspace_unref(held.workspace);
        return fail(err, CONFLICT, "The sandbox's user is not known, or not one that the service can act as");
    }
    sessions_lock(sessions);
    session->in_flight++;
    session_touch_locked(session);
    sessions_unlock(sessions);
    ret->session = take_ptr(session);
    ret->workspace = held.workspace;
    return 0;
}

/* What the wire calls an error of a file operation in the log. */
static const char *failure_word(const struct error *failure)
{
    if (failure->code == ERROR_HANDOVER || failure->code == ERROR_TOO_LARGE)
        return "via the sandbox";
    if (failure->code == ERROR_NOT_FOUND)
        return "not found";
    switch (failure->sys_errno) {
    case EISDIR:
        return "IsADirectoryError";
    case ENOTDIR:
        return "NotADirectoryError";
    case EEXIST:
        return "FileExistsError";
    case EINVAL:
        return "ValueError";
    default:
        return failure->code == ERROR_INVALID ? "ValueError" : "OSError";
    }
}

bool session_files_replaced(const struct session_files *files)
{
    return !leads_to(files->session, workspace_slot(files->workspace));
}

void session_files_end(struct sessions *sessions, struct session_files *files, const char *op, const char *target,
                       size_t target_size, const struct error *failure, int64_t started_mono_us)
{
    struct session *session = files->session;

    sessions_lock(sessions);
    session->in_flight--;
    session_touch_locked(session);
    sessions_unlock(sessions);
    event_record(session, op, target, target_size, failure == NULL, failure ? failure_word(failure) : "",
                 started_mono_us);
    workspace_unref(files->workspace);
    session_unref(session);
    files->session = NULL;
    files->workspace = NULL;
}

int stored_open(struct sessions *sessions, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES],
                struct workspace **ret_workspace, struct error *err)
{
    static const struct workspace_identity operator_identity = {-1, -1};

    for (int tries = 0; tries < NAME_TRIES; tries++) {
        error_clear(err);
        if (workspace_find(sessions->root, id, ret_slot, err) < 0)
            break;
        if (workspace_open(sessions->root, ret_slot, &operator_identity, ret_workspace, err) == 0)
            return 0;
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        /* a snapshot may have taken its place between the two */
    }
    return err->code == ERROR_NOT_FOUND ? fail(err, NOT_FOUND, "No workspace for session: %s", id) : -1;
}

int sessions_archive(struct sessions *sessions, const char *id, struct workspace **ret_workspace, struct error *err)
{
    char slot[WORKSPACE_SLOT_BYTES];

    if (!sessions->root)
        return fail(
            err, CONFLICT,
            "This service keeps no workspaces on disk. Set SANDBOXD_WORKSPACE_ROOT (workspace_root) to read files "
            "without a sandbox.");
    return stored_open(sessions, id, slot, ret_workspace, err);
}
