/* Stored workspaces: what the store tells of them, keeping and removing them, and the thread that measures them. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <sodium.h>
#include <string.h>
#include <sys/resource.h>

enum {
    MEASURE_PAUSE_MS = 5,
    PAGE_MAX = 1000,
    QUOTA_INTERVAL_S = 10,  /* how long a session may be above its quota before somebody looks */
    NICE_OF_MEASURING = 15, /* of this thread alone, as Linux has it */
    GROUP_BYTES = 6,        /* of a number of a group */
};

static int need_root(const struct sessions *sessions, struct error *err)
{
    return sessions->root ? 0
                          : fail(err, CONFLICT, "This service keeps no workspaces on disk (SANDBOXD_WORKSPACE_ROOT)");
}

bool stored_over_quota(const struct sessions *sessions, int64_t bytes, int64_t files)
{
    const struct sessions_settings *settings = &sessions->settings;

    return (settings->quota_bytes && bytes > settings->quota_bytes) ||
           (settings->quota_files && files > settings->quota_files);
}

static int64_t room_of(const struct sessions *sessions, int64_t bytes, int64_t files)
{
    const struct sessions_settings *settings = &sessions->settings;

    if (settings->quota_files && files > settings->quota_files)
        return 0;
    return settings->quota_bytes ? settings->quota_bytes - bytes : INT64_MAX;
}

int64_t stored_room(struct sessions *sessions, const char *id)
{
    struct store_stored row;
    struct error missing = ERROR_INIT;

    if (store_stored_get(sessions->store, id, &row, &missing) < 0 || row.size_bytes < 0)
        return room_of(sessions, 0, 0);
    return room_of(sessions, row.size_bytes, row.file_count);
}

/* -- limits that the file system keeps -- */

/* By name and installation: the same after a restart, another one for another broker on the same disk. */
static uint64_t group_number(const struct sessions *sessions, const char *tenant)
{
    const char *install = store_install(sessions->store);
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;
    uint64_t number = 0;

    (void)crypto_hash_sha256_init(&state);
    (void)crypto_hash_sha256_update(&state, (const unsigned char *)install, strlen(install) + 1);
    (void)crypto_hash_sha256_update(&state, (const unsigned char *)tenant, strlen(tenant));
    (void)crypto_hash_sha256_final(&state, hash);
    for (size_t i = 0; i < GROUP_BYTES; i++)
        number = number << 8 | hash[i];
    return number ? number : 1;
}

static struct workspace_group group_of(struct sessions *sessions, const char *tenant)
{
    struct opt_int disk_limit = tenant_disk_limit(sessions, tenant);

    return (struct workspace_group){group_number(sessions, tenant), disk_limit.is_set ? disk_limit.value : -1};
}

struct workspace_group stored_group(struct sessions *sessions, const char *tenant)
{
    return sessions->quota_kept == WORKSPACE_QUOTA_GROUPS ? group_of(sessions, tenant)
                                                          : (struct workspace_group){0, -1};
}

/* All that a slot is counted in. A snapshot has no limit of its own. */
static void limit_slot(struct sessions *sessions, const char *slot, const char *tenant, bool has_own)
{
    const struct sessions_settings *settings = &sessions->settings;
    struct workspace_group group;
    bool is_kept = true;

    (void)pthread_mutex_lock(&sessions->limits_lock);
    if (sessions->quota_kept == WORKSPACE_QUOTA_GROUPS) {
        group = group_of(sessions, tenant);
        is_kept = workspace_slot_join(sessions->root, slot, &group);
    }
    if (is_kept && has_own && (settings->quota_bytes || settings->quota_files))
        is_kept = workspace_slot_limit(sessions->root, slot, settings->quota_bytes, settings->quota_files);
    (void)pthread_mutex_unlock(&sessions->limits_lock);
    if (!is_kept)
        log_warn("quota.not_enforced", log_s("slot", slot),
                 log_s("why", "it was not made where limits are kept: a sweep watches it"));
}

void stored_limit_slot(struct sessions *sessions, const char *slot, const char *tenant)
{
    if (sessions->quota_kept != WORKSPACE_QUOTA_NONE)
        limit_slot(sessions, slot, tenant, true);
}

/* What was there before the file system counted, and snapshots. */
static void limit_all(struct sessions *sessions)
{
    auto_free struct store_workspace *rows = NULL;
    auto_free struct store_snapshot *snapshots = NULL;
    struct error err = ERROR_INIT;
    size_t count;
    size_t snapshot_count;

    if (store_workspaces(sessions->store, &rows, &count, &err) < 0 ||
        store_snapshots(sessions->store, NULL, &snapshots, &snapshot_count, &err) < 0) {
        log_warn("quota.rows", log_e(&err));
        return;
    }
    for (size_t i = 0; i < count; i++)
        limit_slot(sessions, rows[i].slot, rows[i].tenant, true);
    for (size_t i = 0, at = 0; i < snapshot_count; i++) {
        for (at = 0; at < count && strcmp(rows[at].id, snapshots[i].id) != 0;)
            at++;
        limit_slot(sessions, snapshots[i].slot, at < count ? rows[at].tenant : "", false);
    }
}

void stored_limit_tenant(struct sessions *sessions, const char *tenant)
{
    struct workspace_group group;
    const char *why;

    if (sessions->quota_kept == WORKSPACE_QUOTA_NONE && tenant_disk_limit(sessions, tenant).is_set &&
        workspace_quota_enforce(sessions->root, &why) == WORKSPACE_QUOTA_GROUPS) {
        sessions->quota_kept = WORKSPACE_QUOTA_GROUPS;
        log_info("quota.tier", log_s("disk", "enforced"), log_s("since", "a tenant has a limit"));
        limit_all(sessions);
    }
    if (sessions->quota_kept != WORKSPACE_QUOTA_GROUPS)
        return;
    (void)pthread_mutex_lock(&sessions->limits_lock);
    group = group_of(sessions, tenant);
    if (!workspace_group_limit(sessions->root, &group))
        log_warn("quota.tenant", log_s("tenant", tenant), log_s("why", "the file system does not keep its limit"));
    (void)pthread_mutex_unlock(&sessions->limits_lock);
}

static bool any_tenant_is_limited(struct sessions *sessions)
{
    auto_free struct tenant_view *views = NULL;
    bool is_any = false;
    size_t count;

    sessions_tenants(sessions, &views, &count);
    for (size_t i = 0; i < count; i++)
        is_any = is_any || views[i].limits.max_disk_bytes.is_set;
    return is_any;
}

void stored_start(struct sessions *sessions)
{
    const struct sessions_settings *settings = &sessions->settings;

    if (!sessions->root || (!settings->quota_bytes && !settings->quota_files && !any_tenant_is_limited(sessions)))
        return;
    sessions->quota_kept = workspace_quota_enforce(sessions->root, &sessions->quota_missing);
    log_info("quota.tier", log_s("disk", sessions->quota_kept == WORKSPACE_QUOTA_NONE ? "accounted" : "enforced"),
             log_i("bytes", settings->quota_bytes), log_i("files", settings->quota_files),
             log_s("missing", sessions->quota_missing ? sessions->quota_missing : ""));
}

static void tell(const struct sessions *sessions, const struct policy *policy, const struct store_stored *row,
                 struct session_stored *ret)
{
    *ret = (struct session_stored){
        .created_at_unix_ms = row->workspace.created_at_unix_ms,
        .last_use_unix_ms = row->workspace.last_use_unix_ms,
        .measured_at_unix_ms = row->measured_at_unix_ms,
        .size_bytes = row->size_bytes,
        .file_count = row->file_count,
        .expires_at_unix_ms = -1,
        .is_open = row->is_open,
        .is_pinned = row->is_pinned,
        .is_over_quota = stored_over_quota(sessions, row->size_bytes, row->file_count),
    };
    memcpy(ret->id, row->workspace.id, sizeof ret->id);
    memcpy(ret->tenant, row->workspace.tenant, sizeof ret->tenant);
    memcpy(ret->runtime, row->workspace.runtime, sizeof ret->runtime);
    if (policy->workspace_ttl.is_set && !row->is_open && !row->is_pinned)
        ret->expires_at_unix_ms = row->workspace.last_use_unix_ms + policy->workspace_ttl.value * 1000;
}

int sessions_stored(struct sessions *sessions, const struct session_stored_query *query, struct session_stored **ret,
                    size_t *ret_count, bool *ret_more, struct error *err)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    struct store_stored_query wanted = {
        .tenant = query->tenant,
        .prefix = query->prefix ? query->prefix : "",
        .contains = query->contains ? query->contains : "",
        .sort = query->sort == SESSION_STORED_BY_SIZE       ? STORE_STORED_BY_SIZE
                : query->sort == SESSION_STORED_BY_LAST_USE ? STORE_STORED_BY_LAST_USE
                                                            : STORE_STORED_BY_ID,
        .is_descending = query->is_descending,
        .has_after = query->after_id != NULL,
        .after_key = query->after_key,
        .after_id = query->after_id,
        .limit = (query->limit < PAGE_MAX ? query->limit : PAGE_MAX) + 1,
    };
    auto_free struct store_stored *rows = NULL;
    struct session_stored *list;
    size_t count;

    if (need_root(sessions, err) < 0 || store_stored(sessions->store, &wanted, &rows, &count, err) < 0)
        return -1;
    *ret_more = count == (size_t)wanted.limit;
    count -= *ret_more;
    list = alloc_array(count, sizeof *list);
    for (size_t i = 0; i < count; i++)
        tell(sessions, policy, &rows[i], &list[i]);
    *ret = list;
    *ret_count = count;
    return 0;
}

int stored_row(struct sessions *sessions, const char *id, struct store_stored *ret, struct error *err)
{
    struct store_workspace row = {.created_at_unix_ms = clock_unix_ms(), .last_use_unix_ms = clock_unix_ms()};
    struct error missing = ERROR_INIT;

    if (store_stored_get(sessions->store, id, ret, err) == 0)
        return 0;
    if (err->code != ERROR_NOT_FOUND)
        return -1;
    error_clear(err);
    if (!sessions->root || workspace_find(sessions->root, id, row.slot, &missing) < 0)
        return fail(err, NOT_FOUND, "No workspace for session: %s", id);
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    if (store_workspace_put(sessions->store, &row, err) < 0)
        return -1;
    return store_stored_get(sessions->store, id, ret, err);
}

int sessions_stored_get(struct sessions *sessions, const char *id, struct session_stored *ret, struct error *err)
{
    auto_policy struct policy *policy = sessions_policy(sessions);
    struct store_stored row;

    if (need_root(sessions, err) < 0 || stored_row(sessions, id, &row, err) < 0)
        return -1;
    tell(sessions, policy, &row, ret);
    return 0;
}

/* An opening, or somebody who removes it, holds the id: what was written may be gone with the row. */
static int wait_for_id(struct sessions *sessions, const char *id, const struct cancel *cancel, struct error *err)
{
    const struct session *holder;
    int result = 0;

    sessions_lock(sessions);
    while (result == 0 && (holder = registry_find_locked(sessions, id)) && holder->state == SESSION_OPENING)
        result = waitq_wait(&sessions->changed, &sessions->lock, cancel, err);
    sessions_unlock(sessions);
    return result;
}

int sessions_stored_pin(struct sessions *sessions, const char *id, bool pinned, const struct cancel *cancel,
                        struct session_stored *ret, struct error *err)
{
    struct store_stored row;

    if (need_root(sessions, err) < 0 || stored_row(sessions, id, &row, err) < 0 ||
        store_stored_pin(sessions->store, id, pinned, err) < 0 || wait_for_id(sessions, id, cancel, err) < 0)
        return -1;
    return sessions_stored_get(sessions, id, ret, err);
}

int sessions_stored_remove(struct sessions *sessions, const char *id, const struct cancel *cancel, struct error *err)
{
    struct cancel detached = cancel_detached(cancel);

    if (need_root(sessions, err) < 0)
        return -1;
    if (sessions_exists(sessions, id))
        return fail(err, CONFLICT, "A session is open on it: %s", id);
    if (session_purge_closed(sessions, id, -1, &detached, err) < 0)
        return err->code == ERROR_NOT_FOUND ? fail(err, NOT_FOUND, "No workspace for session: %s", id) : -1;
    return 0;
}

/* -- measuring -- */

static bool is_due(const struct store_stored *row, int64_t interval_ms)
{
    int64_t now_ms = clock_unix_ms();

    if (row->size_bytes < 0 || row->measured_at_unix_ms <= row->workspace.last_use_unix_ms ||
        row->measured_at_unix_ms > now_ms)
        return true;
    return row->is_open && now_ms - row->measured_at_unix_ms >= interval_ms;
}

/* What is waited for would be answered by nobody once the session is frozen: it ends first. */
static void stop_runs_locked(struct session *session)
{
    for (struct active_run *active = session->runs; active; active = active->next) {
        active->stop_asked = true;
        if (active->run)
            session->owner->provider->ops->run_stop(active->run);
    }
    waitq_wake_all(&session->owner->command_free);
}

/* An open session above its quota runs nothing more, and is frozen, until it is below again. `room`: its slot's that was measured,
 * and what lay there `seen` before. */
static void judge(struct sessions *sessions, const char *id, const struct workspace_size *size,
                  struct workspace_room *room, int64_t seen, const struct cancel *cancel)
{
    bool is_over = stored_over_quota(sessions, size->bytes, size->files);
    struct error err = ERROR_INIT;
    auto_session struct session *session = registry_get(sessions, id, &err);
    bool was_over;

    if (!session || (!sessions->settings.quota_bytes && !sessions->settings.quota_files))
        return;
    error_clear(&err);
    sessions_lock(sessions);
    if (session->room != room) { /* opened, or led to a snapshot, while it was measured: the next time */
        sessions_unlock(sessions);
        return;
    }
    was_over = session->over_quota;
    session->over_quota = is_over;
    workspace_room_set(room, room_of(sessions, size->bytes, size->files), seen);
    if (session_wait_idle_locked(session, cancel, &err) == 0 && session->state == SESSION_RUNNING && session->sandbox) {
        if (is_over && session->runs)
            stop_runs_locked(session); /* frozen when it is looked at again: they end within two seconds */
        else if (is_over && !session->frozen)
            (void)session_freeze_locked(session, cancel, &err);
        else if (!is_over && was_over && session->frozen)
            (void)session_thaw_locked(session, cancel, &err);
    }
    sessions_unlock(sessions);
    if (is_over != was_over) {
        char detail[STORE_EVENT_DETAIL_BYTES];

        (void)snprintf(detail, sizeof detail, "%lld bytes in %lld files", (long long)size->bytes,
                       (long long)size->files);
        feed_record(sessions, is_over ? "over_quota" : "within_quota", id, session->tenant, detail);
    }
}

/* A reference; NULL: not open, or its name leads elsewhere now. */
static struct workspace_room *room_in(struct sessions *sessions, const char *id, const char *slot)
{
    const struct session *session;
    struct workspace_room *room = NULL;

    sessions_lock(sessions);
    session = registry_find_locked(sessions, id);
    if (session && strcmp(session->slot, slot) == 0)
        room = workspace_room_ref(session->room);
    sessions_unlock(sessions);
    return room;
}

static int measure_one(struct sessions *sessions, const struct workspace_name *name, int64_t interval_ms,
                       const struct cancel *cancel, struct error *err)
{
    static const struct workspace_identity operator_identity = {-1, -1};
    struct workspace *workspace;
    struct workspace_size size;
    struct store_stored row;
    int64_t at_unix_ms = clock_unix_ms();
    auto_workspace_room struct workspace_room *room = room_in(sessions, name->id, name->slot);
    int64_t seen = room ? workspace_room_seen(room) : 0; /* what is written from here on is counted on top */
    int result;

    if (stored_row(sessions, name->id, &row, err) < 0)
        return -1;
    if (strcmp(row.workspace.slot, name->slot) != 0 && !row.is_open) {
        memcpy(row.workspace.slot, name->slot, sizeof row.workspace.slot);
        if (store_workspace_put(sessions->store, &row.workspace, err) < 0)
            return -1;
    }
    if (!is_due(&row, interval_ms))
        return 0;
    if (workspace_open(sessions->root, name->slot, &operator_identity, &workspace, err) < 0)
        return -1;
    result = workspace_measure(workspace, MEASURE_PAUSE_MS, cancel, &size, err);
    workspace_unref(workspace);
    if (result < 0)
        return -1;
    if (store_stored_measured(sessions->store, name->id, name->slot, size.bytes, size.files, at_unix_ms, err) < 0)
        return -1;
    if (room)
        judge(sessions, name->id, &size, room, seen, cancel);
    return 0;
}

static void measure_all(struct sessions *sessions, int64_t interval_ms, const struct cancel *cancel)
{
    auto_free struct workspace_name *names = NULL;
    struct error err = ERROR_INIT;
    size_t count;

    if (workspace_names(sessions->root, &names, &count, &err) < 0) {
        log_warn("measure.names", log_e(&err));
        return;
    }
    for (size_t i = 0; i < count && cancel_check(cancel, &err) == 0; i++) {
        if (measure_one(sessions, &names[i], interval_ms, cancel, &err) < 0 && err.code != ERROR_NOT_FOUND &&
            cancel_check(cancel, &(struct error)ERROR_INIT) == 0)
            log_warn("measure.failed", log_s("session", names[i].id), log_e(&err));
        error_clear(&err);
    }
}

void *measure_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    bool has_quota = sessions->settings.quota_bytes || sessions->settings.quota_files;
    int64_t interval_ms = has_quota && sessions->settings.cleanup_interval_s > QUOTA_INTERVAL_S
                              ? QUOTA_INTERVAL_S * 1000
                              : sessions->settings.cleanup_interval_s * 1000;
    struct error err = ERROR_INIT;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE_OF_MEASURING);
    if (sessions->quota_kept != WORKSPACE_QUOTA_NONE)
        limit_all(sessions);
    while (sessions->root && cancel_check(&cancel, &err) == 0) {
        struct cancel pause = cancel_within(&cancel, interval_ms);

        measure_all(sessions, interval_ms, &cancel);
        tenants_measured(sessions, &cancel);
        if (sessions->quota_kept != WORKSPACE_QUOTA_NONE)
            workspace_quota_sweep(sessions->root);
        (void)cancel_poll(&pause, NULL, 0, &err);
        error_clear(&err);
    }
    return NULL;
}
