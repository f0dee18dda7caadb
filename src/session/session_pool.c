/* Containers started ahead on empty slots, so that opening a session is a link and a commit.
 *
 * A member is a session that nobody sees: it is in no registry, has no name and no row, and is counted apart. A slot is used once.
 * After a death of the broker members are nobody's: the reconciler removes their containers and slots. One thread fills up, one
 * container at a time, only while no request waits for a start; it also gives adopted containers their name, after the answer. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "log.h"
#include "metric.h"

#include <stdlib.h>
#include <string.h>

enum {
    RETRY_MS = 5000, /* after a failure to make one */
    LOOK_MS = 30000, /* members that died meanwhile are replaced then at the latest */
    IMAGE_LOOK_MS = 2000,
    IMAGE_TIMEOUT_MS = 5000,
    MAKE_TIMEOUT_MS = 120000,
};

struct pool_rename {
    struct pool_rename *next;
    char ref[SANDBOX_REF_BYTES];
    char name[SESSION_ID_BYTES + 8];
};

static void digest_of(struct sessions *sessions, const struct policy *policy, const struct policy_runtime *runtime,
                      char ret_digest[65])
{
    struct sandbox_spec spec;

    sandbox_spec_of(sessions, policy, runtime, "", &spec);
    if (sessions->root)
        spec.workspace_path = ""; /* whether there is one is what counts */
    provider_spec_digest(&spec, ret_digest);
}

static bool usable_locked(struct sessions *sessions, const struct policy *policy, struct session *member)
{
    const struct policy_runtime *runtime = policy_runtime(policy, member->runtime);
    const char *image;
    char digest[65];

    if (!runtime || !member->sandbox || !sessions->provider->ops->sandbox_alive(member->sandbox))
        return false;
    image = map_get(&sessions->pool_images, runtime->image);
    if (image && strcmp(image, member->pool_image) != 0)
        return false; /* its name is another image's by now */
    digest_of(sessions, policy, runtime, digest);
    return strcmp(digest, member->pool_digest) == 0;
}

/* -- taking -- */

static struct session *pop_locked(struct sessions *sessions, const char *runtime)
{
    for (struct session **link = &sessions->pool; *link; link = &(*link)->pool_next) {
        struct session *member = *link;

        if (runtime && strcmp(member->runtime, runtime) != 0)
            continue;
        *link = member->pool_next;
        member->pool_next = NULL;
        sessions->pool_count--;
        return member;
    }
    return NULL;
}

static void push_locked(struct sessions *sessions, struct session *member)
{
    member->pool_next = sessions->pool;
    sessions->pool = member;
    sessions->pool_count++;
}

/* The container, its slot and its directory go; what cannot be removed now, the reconciler takes. One that a stop of the broker
 * interrupts is a member again: pool_drain() sees to it. */
static void discard(struct sessions *sessions, struct session *member, const struct cancel *cancel)
{
    struct cancel bounded = cancel_within(cancel, MAKE_TIMEOUT_MS);
    struct cancel stop = {.stop_fd = cancel->stop_fd, .client_fd = -1};
    struct error err = ERROR_INIT;
    struct error stopped = ERROR_INIT;

    if (sandbox_discard(member, &bounded, &err) < 0 && cancel_check(&stop, &stopped) < 0) {
        sessions_lock(sessions);
        push_locked(sessions, member);
        sessions_unlock(sessions);
        return;
    }
    if (err.code != ERROR_NONE)
        log_warn("pool.container_left", log_s("slot", member->slot), log_e(&err));
    error_clear(&err);
    if (sessions->root && workspace_slot_remove(sessions->root, member->slot, &bounded, &err) < 0)
        log_warn("pool.slot_left", log_s("slot", member->slot), log_e(&err));
    session_unref(member);
}

bool pool_take(struct session *session, const struct policy *policy)
{
    struct sessions *sessions = session->owner;
    const struct cancel stop = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};

    for (;;) {
        struct session *member;

        sessions_lock(sessions);
        member = pop_locked(sessions, session->runtime);
        if (member && usable_locked(sessions, policy, member)) {
            memcpy(session->slot, member->slot, sizeof session->slot);
            memcpy(session->ref, member->ref, sizeof session->ref);
            session->files_uid = member->files_uid;
            session->files_gid = member->files_gid;
            session->uid = member->uid;
            session->gid = member->gid;
            session->next_run = member->next_run;
            session->reserved_run = member->reserved_run;
            session->sandbox = take_ptr(member->sandbox);
            session->attached_mono_us = clock_mono_us();
            member->ref[0] = member->slot[0] = '\0';
            waitq_wake_all(&sessions->pool_changed);
            sessions_unlock(sessions);
            session_unref(member);
            metric_count(pool_takes, METRIC_POOL_HIT);
            return true;
        }
        sessions_unlock(sessions);
        if (!member) {
            metric_count(pool_takes, METRIC_POOL_MISS);
            return false;
        }
        discard(sessions, member, &stop);
        if (cancel_check(&stop, &(struct error)ERROR_INIT) < 0)
            return false;
    }
}

void pool_name(struct session *session)
{
    struct sessions *sessions = session->owner;
    struct pool_rename *job = alloc_zero(sizeof *job);

    (void)snprintf(job->ref, sizeof job->ref, "%s", session->ref);
    (void)snprintf(job->name, sizeof job->name, "berth-%s", session->id);
    sessions_lock(sessions);
    job->next = sessions->pool_renames;
    sessions->pool_renames = job;
    waitq_wake_all(&sessions->pool_changed);
    sessions_unlock(sessions);
}

/* -- filling -- */

unsigned pool_held_locked(const struct sessions *sessions, const char *runtime)
{
    unsigned held = 0;

    for (const struct session *member = sessions->pool; member; member = member->pool_next)
        held += strcmp(member->runtime, runtime) == 0;
    return held;
}

static const struct policy_runtime *wanting_locked(const struct sessions *sessions, const struct policy *policy)
{
    for (size_t i = 0; i < policy->runtime_count; i++)
        if (pool_held_locked(sessions, policy->runtimes[i].alias) < policy->runtimes[i].pool)
            return &policy->runtimes[i];
    return NULL;
}

/* One member that cannot be used any more (died, or its runtime's limits or image changed), taken out; NULL: none. */
static struct session *spoilt(struct sessions *sessions, const struct policy *policy)
{
    struct session *found = NULL;

    sessions_lock(sessions);
    for (struct session **link = &sessions->pool; *link && !found; link = &(*link)->pool_next) {
        if (usable_locked(sessions, policy, *link))
            continue;
        found = *link;
        *link = found->pool_next;
        found->pool_next = NULL;
        sessions->pool_count--;
        break;
    }
    sessions_unlock(sessions);
    return found;
}

/* Ask the engine what is behind an image's name. One that does not answer, or has no such image, changes nothing. */
static void look_at_image(struct sessions *sessions, const char *image, const struct cancel *cancel)
{
    struct cancel bounded = cancel_within(cancel, IMAGE_TIMEOUT_MS);
    struct error ignored = ERROR_INIT;
    struct sandbox_image found;
    auto_free char *before = NULL;

    if (sessions->provider->ops->image(sessions->provider, image, false, &bounded, &found, &ignored) < 0)
        return;
    sessions_lock(sessions);
    before = map_put(&sessions->pool_images, image, alloc_str(found.id));
    sessions_unlock(sessions);
    if (before && strcmp(before, found.id) != 0)
        log_info("pool.image_changed", log_s("image", image), log_s("id", found.id));
}

/* True: there are some to look at. */
static bool look_at_images(struct sessions *sessions, const struct policy *policy, const struct cancel *cancel)
{
    bool some = false;

    for (size_t i = 0; i < policy->runtime_count; i++) {
        if (policy->runtimes[i].pool == 0)
            continue;
        look_at_image(sessions, policy->runtimes[i].image, cancel);
        some = true;
    }
    return some;
}

/* What the container is about to be made of, as asked right before: if the name changes hands in between, the member is thought to
 * be older than it is, and goes. */
static void note_image(struct session *member, const char *image)
{
    const char *id;

    sessions_lock(member->owner);
    id = map_get(&member->owner->pool_images, image);
    (void)snprintf(member->pool_image, sizeof member->pool_image, "%s", id ? id : "");
    sessions_unlock(member->owner);
}

static int make(struct sessions *sessions, const struct policy *policy, const struct policy_runtime *runtime,
                const struct cancel *cancel, struct error *err)
{
    struct cancel bounded = cancel_within(cancel, MAKE_TIMEOUT_MS);
    char slot[WORKSPACE_SLOT_BYTES] = "";
    char id[SESSION_ID_BYTES];
    struct session *member;

    if (!sessions->root)
        id_random_hex(slot, WORKSPACE_SLOT_HEX);
    else if (workspace_slot_create(sessions->root, sessions->settings.sandbox_uid, sessions->settings.sandbox_uid, slot,
                                   err) < 0)
        return -1;
    stored_limit_slot(sessions, slot, "");
    (void)snprintf(id, sizeof id, "pool-%.40s", slot);
    member = session_new(sessions, id);
    member->state = SESSION_OPENING;
    member->busy = true;
    member->pooled = true;
    (void)snprintf(member->runtime, sizeof member->runtime, "%s", runtime->alias);
    sessions_lock(sessions);
    memcpy(member->slot, slot, sizeof member->slot);
    member->pool_next = sessions->pool_making; /* seen by the reconciler from here on */
    sessions->pool_making = member;
    sessions_unlock(sessions);
    digest_of(sessions, policy, runtime, member->pool_digest);
    note_image(member, runtime->image);

    if (sandbox_ensure(member, policy, true, &bounded, err) < 0) {
        sessions_lock(sessions);
        sessions->pool_making = NULL;
        sessions_unlock(sessions);
        discard(sessions, member, cancel);
        return -1;
    }
    sessions_lock(sessions);
    sessions->pool_making = NULL;
    push_locked(sessions, member);
    sessions_unlock(sessions);
    return 0;
}

static void rename_adopted(struct sessions *sessions, const struct cancel *cancel)
{
    for (;;) {
        struct error ignored = ERROR_INIT;
        struct pool_rename *job;

        sessions_lock(sessions);
        job = sessions->pool_renames;
        if (job)
            sessions->pool_renames = job->next;
        sessions_unlock(sessions);
        if (!job)
            return;
        /* For people only: taken, or gone meanwhile, is fine. */
        (void)sessions->provider->ops->rename(sessions->provider, job->ref, job->name, cancel, &ignored);
        free(job);
    }
}

/* Until there is something to do, or `timeout_ms`. */
static void wait_for_work(struct sessions *sessions, const struct cancel *cancel, int64_t timeout_ms)
{
    struct cancel bounded = cancel_within(cancel, timeout_ms);
    struct error ignored = ERROR_INIT;

    sessions_lock(sessions);
    if (!sessions->pool_renames)
        (void)waitq_wait(&sessions->pool_changed, &sessions->lock, &bounded, &ignored);
    sessions_unlock(sessions);
}

/* Requests go first: nothing is made while one waits for a start. */
static void wait_for_quiet(struct sessions *sessions, const struct cancel *cancel)
{
    struct error ignored = ERROR_INIT;

    sessions_lock(sessions);
    while (sessions->starting > 0 && waitq_wait(&sessions->changed, &sessions->lock, cancel, &ignored) == 0)
        continue;
    sessions_unlock(sessions);
}

void *pool_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    struct error err = ERROR_INIT;

    while (cancel_check(&cancel, &err) == 0) {
        auto_policy struct policy *policy = sessions_policy(sessions);
        const struct policy_runtime *runtime;
        struct session *member;
        bool has_images;

        error_clear(&err);
        rename_adopted(sessions, &cancel);
        has_images = look_at_images(sessions, policy, &cancel);
        while (cancel_check(&cancel, &err) == 0 && (member = spoilt(sessions, policy)) != NULL)
            discard(sessions, member, &cancel);
        sessions_lock(sessions);
        runtime = wanting_locked(sessions, policy);
        sessions_unlock(sessions);
        if (!runtime) {
            wait_for_work(sessions, &cancel, has_images ? IMAGE_LOOK_MS : LOOK_MS);
            continue;
        }
        wait_for_quiet(sessions, &cancel);
        if (cancel_check(&cancel, &err) < 0)
            break;
        if (make(sessions, policy, runtime, &cancel, &err) < 0) {
            if (err.code != ERROR_UNAVAILABLE)
                log_warn("pool.make_failed", log_s("runtime", runtime->alias), log_e(&err));
            error_clear(&err);
            wait_for_work(sessions, &cancel, RETRY_MS);
        }
    }
    return NULL;
}

void pool_drain(struct sessions *sessions, const struct cancel *cancel)
{
    struct session *member;

    for (;;) {
        sessions_lock(sessions);
        member = pop_locked(sessions, NULL);
        sessions_unlock(sessions);
        if (!member)
            break;
        discard(sessions, member, cancel);
    }
}

static void free_value(void *value, void *unused)
{
    free(value);
}

void pool_done(struct sessions *sessions)
{
    while (sessions->pool_renames) {
        struct pool_rename *job = sessions->pool_renames;

        sessions->pool_renames = job->next;
        free(job);
    }
    map_each(&sessions->pool_images, free_value, NULL);
    map_done(&sessions->pool_images);
}

struct session *pool_find_slot_locked(struct sessions *sessions, const char *slot)
{
    for (struct session *member = sessions->pool; member; member = member->pool_next)
        if (strcmp(member->slot, slot) == 0)
            return member;
    return sessions->pool_making && strcmp(sessions->pool_making->slot, slot) == 0 ? sessions->pool_making : NULL;
}
