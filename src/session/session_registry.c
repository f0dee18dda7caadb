/* Which sessions there are, and how they are counted. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct session *session_new(struct sessions *sessions, const char *id)
{
    struct session *session = alloc_zero(sizeof *session);

    session->owner = sessions;
    session->references = 1;
    session->uid = session->gid = session->files_uid = session->files_gid = -1;
    session->next_run = session->reserved_run = 1;
    (void)snprintf(session->id, sizeof session->id, "%s", id);
    session->of_tenant = tenant_ref(sessions->nobody);
    session->room = workspace_room_new();
    return session;
}

struct session *session_ref(struct session *session)
{
    session->references++;
    return session;
}

void session_unref(struct session *session)
{
    if (!session || --session->references > 0)
        return;
    assert(!session->runs && !session->kept);
    sandbox_unref(session->sandbox);
    workspace_unref(session->workspace);
    workspace_room_unref(session->room);
    tenant_unref(session->of_tenant);
    free(session);
}

struct session *registry_find_locked(struct sessions *sessions, const char *id)
{
    return map_get(&sessions->by_id, id);
}

struct session *registry_get(struct sessions *sessions, const char *id, struct error *err)
{
    struct session *session;

    sessions_lock(sessions);
    session = registry_find_locked(sessions, id);
    if (session && session->state != SESSION_OPENING)
        (void)session_ref(session);
    else
        session = NULL;
    sessions_unlock(sessions);
    if (!session)
        (void)fail(err, NOT_FOUND, "No such session: %s", id);
    return session;
}

bool sessions_exists(struct sessions *sessions, const char *id)
{
    struct error err = ERROR_INIT;
    auto_session struct session *session = registry_get(sessions, id, &err);

    return session != NULL;
}

bool sessions_tenant(struct sessions *sessions, const char *id, char ret_tenant[SESSION_ID_BYTES])
{
    struct error err = ERROR_INIT;
    auto_session struct session *session = registry_get(sessions, id, &err);

    (void)snprintf(ret_tenant, SESSION_ID_BYTES, "%s", session ? session->tenant : "");
    return session != NULL;
}

struct find {
    const char *ref;
    const char *slot;
    struct session *found;
};

static void match(void *value, void *context)
{
    struct session *session = value;
    struct find *find = context;

    if ((find->ref && session->ref[0] && strcmp(session->ref, find->ref) == 0) ||
        (find->slot && session->slot[0] && strcmp(session->slot, find->slot) == 0))
        find->found = session;
}

struct session *registry_find_container_locked(struct sessions *sessions, const char *ref)
{
    struct find find = {.ref = ref};

    map_each(&sessions->by_id, match, &find);
    return find.found;
}

struct session *registry_find_slot_locked(struct sessions *sessions, const char *slot)
{
    struct find find = {.slot = slot};

    map_each(&sessions->by_id, match, &find);
    return find.found ? find.found : pool_find_slot_locked(sessions, slot);
}

void registry_resident_locked(struct session *session, bool resident)
{
    if (session->rooms_resident == resident)
        return;
    session->rooms_resident = resident;
    if (resident) {
        session->owner->resident_count++;
        session->of_tenant->resident++;
    } else {
        session->owner->resident_count--;
        session->of_tenant->resident--;
    }
}

void registry_add_locked(struct sessions *sessions, struct session *session)
{
    void *replaced = map_put(&sessions->by_id, session->id, session);

    assert(!replaced);
    (void)replaced;
    sessions->open_count++;
    sessions->state_counts[session->state]++;
    session->of_tenant->open++;
    figures_show_locked(session->of_tenant, sessions);
}

void session_state_locked(struct session *session, enum session_state state)
{
    session->owner->state_counts[session->state]--;
    session->owner->state_counts[state]++;
    session->state = state;
}

void session_frozen_locked(struct session *session, bool frozen)
{
    if (session->frozen == frozen)
        return;
    session->frozen = frozen;
    session->owner->frozen_count += frozen ? 1 : -1u;
}

void registry_order_locked(struct session *session)
{
    struct sessions *sessions = session->owner;
    struct session *before = sessions->order_last;

    while (before && before->order > session->order)
        before = before->order_before;
    session->order_before = before;
    session->order_next = before ? before->order_next : sessions->order_first;
    *(before ? &before->order_next : &sessions->order_first) = session;
    *(session->order_next ? &session->order_next->order_before : &sessions->order_last) = session;
    session->is_ordered = true;
}

static void unorder_locked(struct session *session)
{
    struct sessions *sessions = session->owner;

    if (!session->is_ordered)
        return;
    *(session->order_before ? &session->order_before->order_next : &sessions->order_first) = session->order_next;
    *(session->order_next ? &session->order_next->order_before : &sessions->order_last) = session->order_before;
    session->is_ordered = false;
}

void registry_remove_locked(struct session *session)
{
    struct sessions *sessions = session->owner;

    registry_resident_locked(session, false);
    unorder_locked(session);
    if (map_remove(&sessions->by_id, session->id)) {
        sessions->open_count--;
        sessions->state_counts[session->state]--;
        session->of_tenant->open--;
        figures_hide_locked(session->of_tenant, sessions);
    }
    session_frozen_locked(session, false);
    session->state = SESSION_CLOSED;
    session->busy = false;
    waitq_wake_all(&sessions->changed);
    session_unref(session);
}

struct gather {
    struct session **list;
    size_t count;
};

static void gather_one(void *value, void *context)
{
    struct gather *gather = context;

    gather->list[gather->count++] = session_ref(value);
}

static int by_order(const void *a, const void *b)
{
    int64_t left = (*(struct session *const *)a)->order;
    int64_t right = (*(struct session *const *)b)->order;

    return left < right ? -1 : left > right;
}

struct session **registry_list(struct sessions *sessions, size_t *ret_count)
{
    struct gather gather = {NULL, 0};

    sessions_lock(sessions);
    gather.list = alloc_array(sessions->by_id.count, sizeof *gather.list);
    map_each(&sessions->by_id, gather_one, &gather);
    sessions_unlock(sessions);
    qsort(gather.list, gather.count, sizeof *gather.list, by_order);
    *ret_count = gather.count;
    return gather.list;
}

void registry_list_free(struct session **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        session_unref(list[i]);
    free(list);
}

void session_set_tenant_locked(struct session *session, const char *tenant)
{
    tenant_unref(session->of_tenant);
    (void)snprintf(session->tenant, sizeof session->tenant, "%s", tenant);
    session->of_tenant = tenant_get_locked(session->owner, session->tenant);
}

void sessions_health(struct sessions *sessions, struct sessions_health *ret)
{
    sessions_lock(sessions);
    ret->resident = sessions->resident_count;
    ret->open = sessions->open_count;
    sessions_unlock(sessions);
}

void session_touch_locked(struct session *session)
{
    session->last_activity_mono_us = clock_mono_us();
    session->last_activity_unix_us = clock_unix_us();
    session->activity_unsaved = true;
}

int session_wait_idle_locked(struct session *session, const struct cancel *cancel, struct error *err)
{
    while (session->busy)
        if (waitq_wait(&session->owner->changed, &session->owner->lock, cancel, err) < 0)
            return -1;
    if (session->state == SESSION_CLOSED)
        return fail(err, GONE, "Session is closed: %s", session->id);
    return 0;
}

void session_settled_locked(struct session *session)
{
    session->busy = false;
    waitq_wake_all(&session->owner->changed);
}

void session_view_locked(struct session *session, struct session_view *ret)
{
    int64_t idle_us = clock_mono_us() - session->last_activity_mono_us;

    *ret = (struct session_view){.memory_limit_bytes = -1, .cpu_percent = -1};
    memcpy(ret->id, session->id, sizeof ret->id);
    memcpy(ret->runtime, session->runtime, sizeof ret->runtime);
    memcpy(ret->tenant, session->tenant, sizeof ret->tenant);
    ret->hibernated = session->state == SESSION_HIBERNATED;
    ret->alive = !ret->hibernated && session->sandbox && session->owner->provider->ops->sandbox_alive(session->sandbox);
    ret->created_at_unix_us = session->created_at_unix_us;
    ret->last_activity_unix_us = session->last_activity_unix_us;
    ret->idle_us = idle_us > 0 ? idle_us : 0;
    ret->frozen = session->frozen;
    ret->over_quota = session->over_quota;
    runs_view_locked(session, ret);
    if (ret->running_commands == 0) {
        int64_t until_us = session->last_activity_mono_us + session->owner->policy->idle_timeout_s * 1000000;

        if (session->keep_until_mono_us > until_us)
            until_us = session->keep_until_mono_us;
        ret->expires_at_unix_us = clock_unix_us() + until_us - clock_mono_us();
    }
}
