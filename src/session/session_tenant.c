/* Whoever sessions belong to: counts, ceilings, turns to start, the disk. */
#include "session_tenant.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "session_private.h"

#include <stdlib.h>
#include <string.h>

enum { COMMAND_SHARE = 4 };

/* -- records -- */

static struct tenant *tenant_new(const char *name)
{
    struct tenant *tenant = alloc_zero(sizeof *tenant);

    tenant->disk_bytes = -1;
    (void)snprintf(tenant->name, sizeof tenant->name, "%s", name);
    return tenant;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
    tenant->references++;
    return tenant;
}

void tenant_unref(struct tenant *tenant)
{
    tenant->references--;
}

struct tenant *tenant_get_locked(struct sessions *sessions, const char *name)
{
    struct tenant *tenant = name[0] ? map_get(&sessions->tenants, name) : sessions->nobody;

    if (!tenant) {
        tenant = tenant_new(name);
        (void)map_put(&sessions->tenants, name, tenant);
    }
    return tenant_ref(tenant);
}

struct gathering {
    struct tenant **list;
    size_t count;
};

static void gather_unused(void *value, void *context)
{
    struct tenant *tenant = value;
    struct gathering *gathering = context;

    if (tenant->references == 0)
        gathering->list[gathering->count++] = tenant;
}

void tenants_sweep(struct sessions *sessions)
{
    struct gathering gathering = {NULL, 0};

    sessions_lock(sessions);
    gathering.list = alloc_array(sessions->tenants.count, sizeof *gathering.list);
    map_each(&sessions->tenants, gather_unused, &gathering);
    for (size_t i = 0; i < gathering.count; i++) {
        (void)map_remove(&sessions->tenants, gathering.list[i]->name);
        free(gathering.list[i]);
    }
    sessions_unlock(sessions);
    free(gathering.list);
}

static void drop_limits(void *value, void *context)
{
    struct tenant *tenant = value;

    if (tenant->has_limits)
        tenant_unref(tenant);
    tenant->has_limits = false;
}

void tenants_done(struct sessions *sessions)
{
    map_each(&sessions->tenants, drop_limits, NULL);
    tenants_sweep(sessions);
    map_done(&sessions->tenants);
    free(sessions->nobody);
}

static void set_limits_locked(struct tenant *tenant, const struct tenant_limits *limits)
{
    bool has_limits = limits->max_open_sessions.is_set || limits->max_resident_sessions.is_set ||
                      limits->max_running_commands.is_set || limits->max_disk_bytes.is_set;

    tenant->limits = *limits;
    if (has_limits == tenant->has_limits)
        return;
    tenant->has_limits = has_limits;
    if (has_limits)
        (void)tenant_ref(tenant);
    else
        tenant_unref(tenant);
}

int tenants_load(struct sessions *sessions, struct error *err)
{
    auto_free struct store_tenant *rows = NULL;
    size_t count;

    sessions->nobody = tenant_new("");
    if (store_tenants(sessions->store, &rows, &count, err) < 0)
        return -1;
    sessions_lock(sessions);
    for (size_t i = 0; i < count; i++) {
        struct tenant_limits limits = {rows[i].max_open_sessions, rows[i].max_resident_sessions,
                                       rows[i].max_running_commands, rows[i].max_disk_bytes};
        struct tenant *tenant = tenant_get_locked(sessions, rows[i].tenant);

        set_limits_locked(tenant, &limits);
        tenant_unref(tenant);
    }
    sessions_unlock(sessions);
    return 0;
}

/* -- ceilings -- */

static bool is_at(struct opt_int ceiling, int64_t held)
{
    return ceiling.is_set && held >= ceiling.value;
}

int tenant_check_open_locked(const struct tenant *tenant, const struct policy *policy, struct error *err)
{
    struct opt_int ceiling = tenant->limits.max_open_sessions;

    if (!ceiling.is_set)
        ceiling = policy->max_sessions_per_tenant;
    if (!tenant->name[0] || !is_at(ceiling, tenant->open))
        return 0;
    return fail(err, LIMIT,
                "Tenant '%s' already holds %u of %lld sessions. Release an idle session before opening another.",
                tenant->name, tenant->open, (long long)ceiling.value);
}

bool tenant_is_full_locked(const struct tenant *tenant)
{
    return is_at(tenant->limits.max_resident_sessions, tenant->resident);
}

struct opt_int tenant_disk_limit(struct sessions *sessions, const char *name)
{
    struct opt_int disk_limit;
    struct tenant *tenant;

    sessions_lock(sessions);
    tenant = tenant_get_locked(sessions, name);
    disk_limit = tenant->limits.max_disk_bytes;
    tenant_unref(tenant);
    sessions_unlock(sessions);
    return disk_limit;
}

int tenant_check_disk_locked(const struct tenant *tenant, const char *prefix, struct error *err)
{
    if (!is_at(tenant->limits.max_disk_bytes, tenant->disk_bytes))
        return 0;
    return fail(err, LIMIT, "%sTenant '%s' holds %lld of %lld bytes of disk. Remove files or purge a session first.",
                prefix, tenant->name, (long long)tenant->disk_bytes, (long long)tenant->limits.max_disk_bytes.value);
}

/* May it have one more of the places that all share? One that holds some already leaves one for whoever comes, and holds no more
 * than COMMAND_SHARE times what is free: alone four fifths, two that flood four ninths each, and a newcomer finds room however
 * many flood. Nobody's sessions may have all, as long as there are no others. */
static bool within_share_locked(const struct sessions *sessions, const struct tenant *tenant)
{
    unsigned total = sessions->settings.max_running_commands;
    unsigned left = sessions->running_commands < total ? total - sessions->running_commands : 0;
    bool is_alone = !tenant->name[0] && tenant->open == sessions->open_count;

    if (tenant->running_commands == 0 || is_alone)
        return left > 0;
    return left > 1 && tenant->running_commands < (uint64_t)COMMAND_SHARE * left;
}

bool session_command_room_locked(const struct session *session)
{
    const struct tenant *tenant = session->of_tenant;

    return within_share_locked(session->owner, tenant) &&
           !is_at(tenant->limits.max_running_commands, tenant->running_commands);
}

/* -- turns to start a sandbox -- */

static void queue_turn_locked(struct sessions *sessions, struct tenant *tenant)
{
    tenant->next_turn = NULL;
    if (sessions->last_turn)
        sessions->last_turn->next_turn = tenant;
    else
        sessions->first_turn = tenant;
    sessions->last_turn = tenant;
}

static struct tenant *pop_turn_locked(struct sessions *sessions)
{
    struct tenant *tenant = sessions->first_turn;

    sessions->first_turn = tenant->next_turn;
    if (!sessions->first_turn)
        sessions->last_turn = NULL;
    return tenant;
}

static void push_ticket_locked(struct sessions *sessions, struct tenant *tenant, struct start_ticket *ticket)
{
    if (tenant->last_start) {
        tenant->last_start->next = ticket;
    } else {
        tenant->first_start = ticket;
        queue_turn_locked(sessions, tenant);
    }
    tenant->last_start = ticket;
}

static void drop_ticket_locked(struct tenant *tenant, struct start_ticket *ticket)
{
    struct start_ticket *before = NULL;

    for (struct start_ticket *at = tenant->first_start; at != ticket; at = at->next)
        before = at;
    if (before)
        before->next = ticket->next;
    else
        tenant->first_start = ticket->next;
    if (tenant->last_start == ticket)
        tenant->last_start = before;
}

static void take_out_of_turn_locked(struct sessions *sessions, struct tenant *tenant)
{
    struct tenant *before = NULL;

    for (struct tenant *at = sessions->first_turn; at != tenant; at = at->next_turn)
        before = at;
    if (before)
        before->next_turn = tenant->next_turn;
    else
        sessions->first_turn = tenant->next_turn;
    if (sessions->last_turn == tenant)
        sessions->last_turn = before;
}

/* One of each tenant in turn, as long as there are workers. */
static void grant_locked(struct sessions *sessions)
{
    bool granted = false;

    while (sessions->first_turn && sessions->starting < sessions->settings.max_workers) {
        struct tenant *tenant = pop_turn_locked(sessions);
        struct start_ticket *ticket = tenant->first_start;

        tenant->first_start = ticket->next;
        if (!tenant->first_start)
            tenant->last_start = NULL;
        else
            queue_turn_locked(sessions, tenant);
        ticket->granted = true;
        sessions->starting++;
        granted = true;
    }
    if (granted)
        waitq_wake_all(&sessions->start_free);
}

int start_take(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct tenant *tenant = session->of_tenant;
    struct start_ticket ticket = {NULL, false};
    int result = 0;

    sessions_lock(sessions);
    push_ticket_locked(sessions, tenant, &ticket);
    grant_locked(sessions);
    while (result == 0 && !ticket.granted)
        result = waitq_wait(&sessions->start_free, &sessions->lock, cancel, err);
    if (result < 0 && ticket.granted) { /* granted while it gave up: somebody else's now */
        sessions->starting--;
        grant_locked(sessions);
    } else if (result < 0) {
        drop_ticket_locked(tenant, &ticket);
        if (!tenant->first_start)
            take_out_of_turn_locked(sessions, tenant);
    }
    sessions_unlock(sessions);
    return result;
}

void start_give(struct sessions *sessions)
{
    sessions_lock(sessions);
    sessions->starting--;
    grant_locked(sessions);
    waitq_wake_all(&sessions->changed);
    sessions_unlock(sessions);
}

/* -- looking and changing -- */

static void view_locked(const struct tenant *tenant, struct tenant_view *ret)
{
    *ret = (struct tenant_view){.open = tenant->open,
                                .resident = tenant->resident,
                                .running_commands = tenant->running_commands,
                                .disk_bytes = tenant->disk_bytes,
                                .limits = tenant->limits};
    memcpy(ret->tenant, tenant->name, sizeof ret->tenant);
}

struct viewing {
    struct tenant_view *views;
    size_t count;
};

static void view_one(void *value, void *context)
{
    const struct tenant *tenant = value;
    struct viewing *viewing = context;

    if (tenant->references)
        view_locked(tenant, &viewing->views[viewing->count++]);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tenant_view *)a)->tenant, ((const struct tenant_view *)b)->tenant);
}

void sessions_tenants(struct sessions *sessions, struct tenant_view **ret, size_t *ret_count)
{
    struct viewing viewing = {NULL, 0};

    sessions_lock(sessions);
    viewing.views = alloc_array(sessions->tenants.count, sizeof *viewing.views);
    map_each(&sessions->tenants, view_one, &viewing);
    sessions_unlock(sessions);
    if (viewing.count)
        qsort(viewing.views, viewing.count, sizeof *viewing.views, by_name);
    *ret = viewing.views;
    *ret_count = viewing.count;
}

static void apply(struct opt_int *limit, const struct tenant_change_int *change)
{
    if (change->is_given)
        *limit = change->to;
}

/* The sum of what was measured of its workspaces (session_stored.c). */
static void measured(struct sessions *sessions, const char *name)
{
    struct error err = ERROR_INIT;
    struct tenant *tenant;
    int64_t bytes;
    int64_t files;

    if (store_stored_tenant(sessions->store, name, &bytes, &files, &err) < 0) {
        log_warn("tenant.disk", log_s("tenant", name), log_e(&err));
        return;
    }
    sessions_lock(sessions);
    tenant = tenant_get_locked(sessions, name);
    tenant->disk_bytes = bytes;
    tenant_unref(tenant);
    sessions_unlock(sessions);
}

int sessions_tenant_change(struct sessions *sessions, const char *name, const struct tenant_change *change,
                           struct tenant_view *ret_view, struct error *err)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    struct store_tenant row = {.tenant = ""};
    struct tenant_limits limits;
    struct tenant *tenant;
    int result;

    (void)pthread_mutex_lock(&one_at_a_time);
    sessions_lock(sessions);
    tenant = tenant_get_locked(sessions, name);
    limits = tenant->limits;
    sessions_unlock(sessions);
    apply(&limits.max_open_sessions, &change->max_open_sessions);
    apply(&limits.max_resident_sessions, &change->max_resident_sessions);
    apply(&limits.max_running_commands, &change->max_running_commands);
    apply(&limits.max_disk_bytes, &change->max_disk_bytes);
    (void)snprintf(row.tenant, sizeof row.tenant, "%s", name);
    row.max_open_sessions = limits.max_open_sessions;
    row.max_resident_sessions = limits.max_resident_sessions;
    row.max_running_commands = limits.max_running_commands;
    row.max_disk_bytes = limits.max_disk_bytes;
    result = store_tenant_put(sessions->store, &row, err);

    sessions_lock(sessions);
    if (result == 0) {
        set_limits_locked(tenant, &limits);
        waitq_wake_all(&sessions->command_free);
        view_locked(tenant, ret_view);
    }
    tenant_unref(tenant);
    sessions_unlock(sessions);
    (void)pthread_mutex_unlock(&one_at_a_time);
    if (result == 0 && sessions->root) {
        stored_limit_tenant(sessions, name);
        measured(sessions, name);
    }
    if (result == 0)
        feed_record(sessions, "tenant", "", name, "ceilings changed");
    return result;
}

void tenants_measured(struct sessions *sessions, const struct cancel *cancel)
{
    auto_free struct tenant_view *views = NULL;
    struct error ignored = ERROR_INIT;
    size_t count;

    sessions_tenants(sessions, &views, &count);
    for (size_t i = 0; sessions->root && i < count && cancel_check(cancel, &ignored) == 0; i++)
        measured(sessions, views[i].tenant);
}
