/* The service as a whole: made, started, stopped. */
#include "session_prepare.h"
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    STOP_TOTAL_MS = 15000,
    DRAIN_TOTAL_MS = 5000,
    STOP_THREADS = 16,
    PREWARM_PAUSE_MS = 10000,
    THREAD_STACK_BYTES = 512 * 1024
};

int sessions_new(const struct sessions_settings *settings, struct store *store, struct workspace_root *root,
                 struct provider *provider, struct policy *policy, struct sessions **ret_sessions, struct error *err)
{
    struct sessions *sessions = alloc_zero(sizeof *sessions);

    sessions->settings = *settings;
    sessions->store = store;
    sessions->root = root;
    sessions->provider = provider;
    sessions->policy = policy;
    (void)pthread_mutex_init(&sessions->lock, NULL);
    (void)pthread_mutex_init(&sessions->limits_lock, NULL);
    (void)snprintf(sessions->spool_dir, sizeof sessions->spool_dir, "%s/spool", settings->state_dir);
    if ((mkdir(sessions->spool_dir, 0700) < 0 && errno != EEXIST &&
         fail_errno(err, "making %s", sessions->spool_dir)) ||
        token_load_key(sessions, err) < 0 || tenants_load(sessions, err) < 0 || recover_load(sessions, err) < 0) {
        sessions_free(sessions);
        return -1;
    }
    *ret_sessions = sessions;
    return 0;
}

struct policy *sessions_policy(struct sessions *sessions)
{
    struct policy *policy;

    sessions_lock(sessions);
    policy = policy_ref(sessions->policy);
    sessions_unlock(sessions);
    return policy;
}

const struct sessions_settings *sessions_settings(const struct sessions *sessions)
{
    return &sessions->settings;
}

static int start_thread(pthread_t *thread, void *(*run)(void *), void *context, struct error *err)
{
    pthread_attr_t attributes;
    int number;

    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    number = pthread_create(thread, &attributes, run, context);
    (void)pthread_attr_destroy(&attributes);
    if (number != 0) {
        errno = number;
        return fail_errno(err, "starting a thread");
    }
    return 0;
}

/* Images before the first session asks for them: two tries each, failures are left to that session. */
void *prewarm_run(void *context)
{
    struct sessions *sessions = context;
    struct cancel cancel = {.stop_fd = sessions->settings.stop_fd, .client_fd = -1};
    struct policy *policy = sessions_policy(sessions);

    for (size_t i = 0; policy->prewarm && i < policy->runtime_count; i++) {
        const char *image = policy->runtimes[i].image;

        for (int attempt = 0; attempt < 2; attempt++) {
            struct error err = ERROR_INIT;
            struct cancel pause;
            struct sandbox_image found;

            if (sessions->provider->ops->image(sessions->provider, image, true, &cancel, &found, &err) == 0)
                break;
            if (cancel_check(&cancel, &(struct error)ERROR_INIT) < 0)
                break;
            log_warn("prewarm.failed", log_s("image", image), log_e(&err));
            if (attempt == 0) {
                pause = cancel_within(&cancel, PREWARM_PAUSE_MS);
                (void)cancel_poll(&pause, NULL, 0, &err);
            }
        }
    }
    policy_unref(policy);
    return NULL;
}

int sessions_start(struct sessions *sessions, struct error *err)
{
    if (networks_look(sessions, err) < 0)
        return -1;
    stored_start(sessions);
    if (start_thread(&sessions->watcher_thread, watcher_run, sessions, err) < 0 ||
        start_thread(&sessions->reaper_thread, reaper_run, sessions, err) < 0 ||
        start_thread(&sessions->prewarm_thread, prewarm_run, sessions, err) < 0 ||
        start_thread(&sessions->pool_thread, pool_run, sessions, err) < 0 ||
        start_thread(&sessions->measure_thread, measure_run, sessions, err) < 0 ||
        start_thread(&sessions->keeper_thread, runs_keeper_run, sessions, err) < 0 ||
        start_thread(&sessions->probe_thread, probe_run, sessions, err) < 0)
        return -1;
    sessions->threads_started = true;
    return 0;
}

/* -- the end -- */

struct stopping {
    struct sessions *sessions;
    struct session **list;
    size_t count;
    _Atomic size_t next;
    struct cancel cancel;
    struct cancel drain; /* of the pool, which the next start removes as well */
};

/* Asleep, so that the next start finds it; a session whose files went with its container is closed. */
static void stop_one(struct session *session, const struct cancel *cancel)
{
    struct sessions *sessions = session->owner;
    struct error err = ERROR_INIT;

    runs_lose(session, "broker stopped");
    if (!sandbox_outlives(sessions) && !sessions->settings.persist_containers) {
        if (session_close(session, false, -1, "closed", cancel, &err) < 0 && err.code != ERROR_NOT_FOUND)
            log_warn("stop.close", LOG_SESSION(session), log_e(&err));
        return;
    }
    sessions_lock(sessions);
    if (session_wait_idle_locked(session, cancel, &err) == 0 && session->state == SESSION_RUNNING)
        (void)session_hibernate_locked(session, cancel, &err);
    sessions_unlock(sessions);
}

static void *stopper_run(void *context)
{
    struct stopping *stopping = context;
    size_t i;

    pool_drain(stopping->sessions, &stopping->drain);
    while ((i = stopping->next++) < stopping->count)
        stop_one(stopping->list[i], &stopping->cancel);
    return NULL;
}

/* Those started ahead go; sessions sleep, unless they are to be left as they are. Side by side, and within STOP_TOTAL_MS. */
static void stop_containers(struct sessions *sessions)
{
    struct stopping stopping = {.sessions = sessions, .cancel = CANCEL_NEVER};
    pthread_t threads[STOP_THREADS];
    size_t started = 0;
    size_t wanted;
    size_t listed;
    struct error err = ERROR_INIT;

    stopping.cancel = cancel_within(&stopping.cancel, STOP_TOTAL_MS);
    stopping.drain = cancel_within(&stopping.cancel, DRAIN_TOTAL_MS);
    stopping.list = registry_list(sessions, &listed);
    stopping.count = sessions->settings.keep_on_stop ? 0 : listed;
    wanted = stopping.count + sessions->pool_count; /* before the first of them takes from the pool */
    while (started < STOP_THREADS && started < wanted &&
           start_thread(&threads[started], stopper_run, &stopping, &err) == 0)
        started++;
    (void)stopper_run(&stopping);
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    registry_list_free(stopping.list, listed);
}

void sessions_stop(struct sessions *sessions)
{
    if (!sessions->threads_started)
        return;
    (void)pthread_join(sessions->watcher_thread, NULL);
    (void)pthread_join(sessions->reaper_thread, NULL);
    (void)pthread_join(sessions->prewarm_thread, NULL);
    (void)pthread_join(sessions->pool_thread, NULL);
    (void)pthread_join(sessions->measure_thread, NULL);
    (void)pthread_join(sessions->keeper_thread, NULL);
    (void)pthread_join(sessions->probe_thread, NULL);
    sessions->threads_started = false;
    prepare_stop(sessions);
    stop_containers(sessions);
}

void sessions_free(struct sessions *sessions)
{
    size_t count;
    struct session **list;
    struct provider *provider;

    if (!sessions)
        return;
    provider = sessions->provider;
    list = registry_list(sessions, &count);
    for (size_t i = 0; i < count; i++) {
        if (list[i]->sandbox)
            provider->ops->sandbox_close(
                list[i]->sandbox); /* first: what is kept must not be stopped by being let go */
        runs_drop(list[i]);
    }
    sessions_lock(sessions);
    for (size_t i = 0; i < count; i++)
        registry_remove_locked(list[i]);
    sessions_unlock(sessions);
    registry_list_free(list, count);
    map_done(&sessions->by_id);
    tenants_done(sessions);
    pool_done(sessions);
    policy_unref(sessions->policy);
    free(sessions->orphan_slots);
    restore_forget(sessions);
    (void)pthread_mutex_destroy(&sessions->limits_lock);
    (void)pthread_mutex_destroy(&sessions->lock);
    free(sessions);
}
