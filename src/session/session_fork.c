/* Copies of workspaces: forks, which become sessions of their own, and snapshots, which are slots that nobody runs on. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <string.h>

enum { COPY_TIMEOUT_MS = 900000, SNAPSHOTS_MAX = 100, COPY_TRIES = 4 };

static const char *how_it_was(enum workspace_fork_kind how)
{
    switch (how) {
    case WORKSPACE_FORK_SNAPSHOT:
        return "snapshot";
    case WORKSPACE_FORK_REFLINK:
        return "reflink";
    case WORKSPACE_FORK_COPY:
        break;
    }
    return "copy";
}

static int copy_slot(struct sessions *sessions, const char *from_slot, const char *tenant, const struct cancel *cancel,
                     char ret_slot[WORKSPACE_SLOT_BYTES], const char **ret_how, struct error *err)
{
    struct workspace_group group = stored_group(sessions, tenant);
    enum workspace_fork_kind how;

    if (workspace_slot_copy(sessions->root, from_slot, &group, cancel, ret_slot, &how, err) < 0)
        return -1;
    *ret_how = how_it_was(how);
    return 0;
}

/* -- what is copied from -- */

/* A workspace, open or not, that no sweep takes while it is held; drop with source_done(). */
struct source {
    struct workspace *held;
    char slot[WORKSPACE_SLOT_BYTES];
    struct store_stored row;
};

static void source_done(struct source *source)
{
    workspace_unref(source->held);
}

static int source_find(struct sessions *sessions, const char *id, struct source *ret, struct error *err)
{
    if (!sessions->root)
        return fail(err, CONFLICT, "This service keeps no workspaces on disk (SANDBOXD_WORKSPACE_ROOT)");
    if (stored_open(sessions, id, ret->slot, &ret->held, err) < 0 || stored_row(sessions, id, &ret->row, err) < 0)
        return err->code == ERROR_NOT_FOUND ? fail(err, NOT_FOUND, "No workspace for session: %s", id) : -1;
    return 0;
}

int fork_copy(struct sessions *sessions, const char *from_id, const char *tenant, const struct cancel *cancel,
              char ret_slot[WORKSPACE_SLOT_BYTES], const char **ret_how, struct error *err)
{
    for (int tries = 0; tries < COPY_TRIES; tries++) {
        auto_cleanup(source_done) struct source source = {.held = NULL};
        struct error ignored = ERROR_INIT;
        struct store_workspace now;
        char slot[WORKSPACE_SLOT_BYTES];
        bool is_there;

        if (source_find(sessions, from_id, &source, err) < 0 ||
            copy_slot(sessions, source.slot, tenant ? tenant : source.row.workspace.tenant, cancel, ret_slot, ret_how,
                      err) < 0)
            return -1;
        /* Whoever removes it says so before the first file goes: what was copied is whole if nobody has. */
        is_there = store_workspace_get(sessions->store, from_id, &now, &ignored) == 0 && !now.purging &&
                   workspace_find(sessions->root, from_id, slot, &ignored) == 0;
        if (is_there && strcmp(slot, source.slot) == 0)
            return 0;
        error_clear(&ignored);
        (void)workspace_slot_remove(sessions->root, ret_slot, &(struct cancel)CANCEL_NEVER, &ignored);
        if (!is_there)
            break; /* else a snapshot has taken its place */
    }
    return fail(err, NOT_FOUND, "The workspace was removed meanwhile: %s", from_id);
}

/* -- forks -- */

int sessions_fork(struct sessions *sessions, const char *from_id, const struct session_open *request,
                  const struct cancel *cancel, struct session_view *ret_view, char ret_token[SESSION_TOKEN_BYTES],
                  const char **ret_how, struct error *err)
{
    auto_cleanup(source_done) struct source source = {.held = NULL};
    struct session_open open = *request;
    struct error missing = ERROR_INIT;
    char taken[WORKSPACE_SLOT_BYTES];

    if (source_find(sessions, from_id, &source, err) < 0)
        return -1;
    if (open.id && workspace_find(sessions->root, open.id, taken, &missing) == 0)
        return fail(err, CONFLICT, "Workspace exists: %s", open.id);
    if (!open.tenant && source.row.workspace.tenant[0])
        open.tenant = source.row.workspace.tenant;
    if ((!open.runtime || !open.runtime[0]) && source.row.workspace.runtime[0])
        open.runtime = source.row.workspace.runtime;
    open.reuse = open.attach = false;
    open.fork_of = from_id;
    open.ret_how = ret_how;
    return sessions_open(sessions, &open, cancel, ret_view, ret_token, err);
}

/* -- snapshots -- */

static void tell(const struct store_snapshot *row, struct session_snapshot *ret)
{
    *ret = (struct session_snapshot){.created_at_unix_ms = row->created_at_unix_ms};
    (void)snprintf(ret->snapshot_id, sizeof ret->snapshot_id, "%s", row->slot);
    (void)snprintf(ret->name, sizeof ret->name, "%s", row->name);
}

int sessions_snapshots(struct sessions *sessions, const char *id, struct session_snapshot **ret, size_t *ret_count,
                       struct error *err)
{
    auto_cleanup(source_done) struct source source = {.held = NULL};
    auto_free struct store_snapshot *rows = NULL;
    struct session_snapshot *list;
    size_t count;

    if (source_find(sessions, id, &source, err) < 0 || store_snapshots(sessions->store, id, &rows, &count, err) < 0)
        return -1;
    list = alloc_array(count, sizeof *list);
    for (size_t i = 0; i < count; i++)
        tell(&rows[i], &list[i]);
    *ret = list;
    *ret_count = count;
    return 0;
}

int sessions_snapshot(struct sessions *sessions, const char *id, const char *name, const struct cancel *cancel,
                      struct session_snapshot *ret, const char **ret_how, struct error *err)
{
    auto_free struct store_snapshot *rows = NULL;
    struct cancel bounded = cancel_within(cancel, COPY_TIMEOUT_MS);
    struct store_snapshot row = {.slot = ""};
    struct error ignored = ERROR_INIT;
    size_t count;

    if (store_snapshots(sessions->store, id, &rows, &count, err) < 0)
        return -1;
    if (count >= SNAPSHOTS_MAX)
        return fail(err, LIMIT, "There are %zu snapshots of %s already. Delete one first.", count, id);
    if (fork_copy(sessions, id, NULL, &bounded, row.slot, ret_how, err) < 0)
        return -1;
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    (void)snprintf(row.name, sizeof row.name, "%s", name ? name : "");
    row.created_at_unix_ms = clock_unix_ms();
    if (store_snapshot_put(sessions->store, &row, err) < 0) {
        (void)workspace_slot_remove(sessions->root, row.slot, &(struct cancel)CANCEL_NEVER, &ignored);
        return -1;
    }
    tell(&row, ret);
    feed_record(sessions, "snapshot", id, "", row.slot);
    return 0;
}

int fork_find_snapshot(struct sessions *sessions, const char *id, const char *snapshot_id, struct error *err)
{
    auto_free struct store_snapshot *rows = NULL;
    size_t count;

    if (store_snapshots(sessions->store, id, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].slot, snapshot_id) == 0)
            return 0;
    return fail(err, NOT_FOUND, "No such snapshot: %s", snapshot_id);
}

/* The row first: what is left by a death in between is a slot that nobody names, which a start removes. */
static int remove_snapshot(struct sessions *sessions, const char *slot, const struct cancel *cancel, struct error *err)
{
    if (store_snapshot_delete(sessions->store, slot, err) < 0)
        return -1;
    return workspace_slot_remove(sessions->root, slot, cancel, err);
}

int sessions_snapshot_delete(struct sessions *sessions, const char *id, const char *snapshot_id,
                             const struct cancel *cancel, struct error *err)
{
    struct cancel detached = cancel_detached(cancel);

    if (!sessions->root)
        return fail(err, CONFLICT, "This service keeps no workspaces on disk (SANDBOXD_WORKSPACE_ROOT)");
    if (fork_find_snapshot(sessions, id, snapshot_id, err) < 0)
        return -1;
    return remove_snapshot(sessions, snapshot_id, &detached, err);
}

int fork_forget_snapshots(struct sessions *sessions, const char *id, const struct cancel *cancel, struct error *err)
{
    auto_free struct store_snapshot *rows = NULL;
    size_t count;

    if (store_snapshots(sessions->store, id, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (remove_snapshot(sessions, rows[i].slot, cancel, err) < 0)
            return -1;
    return 0;
}

int fork_copy_snapshot(struct sessions *sessions, const char *id, const char *snapshot_id, const struct cancel *cancel,
                       char ret_slot[WORKSPACE_SLOT_BYTES], const char **ret_how, struct error *err)
{
    auto_cleanup(source_done) struct source source = {.held = NULL};

    if (source_find(sessions, id, &source, err) < 0 || fork_find_snapshot(sessions, id, snapshot_id, err) < 0 ||
        copy_slot(sessions, snapshot_id, source.row.workspace.tenant, cancel, ret_slot, ret_how, err) < 0)
        return -1;
    stored_limit_slot(sessions, ret_slot, source.row.workspace.tenant);
    return 0;
}
