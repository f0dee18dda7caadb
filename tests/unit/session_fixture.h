/* Sessions on a provider in memory, with a real store and real directories. Every test runs in a process of its own. */
#ifndef BERTH_SESSION_FIXTURE_H
#define BERTH_SESSION_FIXTURE_H

#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "policy_change.h"
#include "provider_fake.h"
#include "session.h"
#include "session_run.h"
#include "store.h"
#include "workspace.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct cancel never = CANCEL_NEVER;
static char home[64];
static struct store *store;
static struct workspace_root *root;
static struct provider *provider;
static struct sessions *sessions;
static int stop_fd;

/* What a test may set before begin(). */
static struct {
    bool no_root;
    bool persist;
    bool keep_on_stop;
    int64_t max_sessions;
    int64_t max_open;
    int64_t per_tenant;
    int64_t evict_idle_after; /* -1: off */
    int64_t idle_timeout_s;
    int64_t freeze_after_s;
    unsigned max_commands;
    unsigned max_runs; /* of one session */
    unsigned runtimes; /* python, and node if there are two */
    unsigned pool;     /* of python */
} wish;

static __attribute__((unused)) struct policy *make_policy(void)
{
    static const char *const aliases[] = {"python", "node"};
    struct policy *policy = policy_new();

    policy->runtimes = alloc_array(wish.runtimes, sizeof *policy->runtimes);
    for (unsigned i = 0; i < wish.runtimes; i++) {
        policy->runtimes[i].alias = alloc_str(aliases[i]);
        policy->runtimes[i].image = alloc_str(aliases[i]);
        policy->runtimes[i].description = alloc_str(aliases[i]);
    }
    policy->runtime_count = wish.runtimes;
    policy->runtimes[0].pool = wish.pool;
    policy_sort(policy);
    policy->default_runtime = alloc_str("python");
    policy->max_sessions = (struct opt_int){wish.max_sessions > 0, wish.max_sessions};
    policy->max_open_sessions = (struct opt_int){wish.max_open > 0, wish.max_open};
    policy->max_sessions_per_tenant = (struct opt_int){wish.per_tenant > 0, wish.per_tenant};
    policy->evict_idle_after = (struct opt_int){wish.evict_idle_after >= 0, wish.evict_idle_after};
    policy->idle_timeout_s = wish.idle_timeout_s;
    policy->execute_timeout_s = 30;
    policy->max_read_bytes = 1 << 20;
    policy->limits.mem_bytes = 64 << 20;
    return policy;
}

static __attribute__((unused)) void begin(void)
{
    struct error err = ERROR_INIT;
    char path[96];
    struct sessions_settings settings = {
        .service_token = "service-secret",
        .state_dir = home,
        .work_dir = "/workspace",
        .persist_containers = wish.persist,
        .native_files = true,
        .keep_on_stop = wish.keep_on_stop,
        .sandbox_uid = -1,
        .cleanup_interval_s = 1,
        .freeze_after_s = wish.freeze_after_s,
        .max_workers = 8,
        .engine_timeout_ms = 30000,
        .max_runs_per_session = wish.max_runs,
        .max_running_commands = wish.max_commands,
    };

    (void)snprintf(path, sizeof path, "%s/root", home);
    stop_fd = eventfd(0, EFD_CLOEXEC);
    settings.stop_fd = stop_fd;
    cr_assert_eq(store_open(home, &store, &err), 0, "%s", err.text);
    root = NULL;
    if (!wish.no_root)
        cr_assert_eq(workspace_root_open(path, &root, &err), 0, "%s", err.text);
    cr_assert_eq(sessions_new(&settings, store, root, provider, make_policy(), &sessions, &err), 0, "%s", err.text);
    cr_assert_eq(sessions_start(sessions, &err), 0, "%s", err.text);
}

/* As SIGTERM does it. */
static __attribute__((unused)) void end(void)
{
    const uint64_t one = 1;

    cr_assert_eq(write(stop_fd, &one, sizeof one), (ssize_t)sizeof one);
    sessions_stop(sessions);
    sessions_free(sessions);
    store_close(store);
    workspace_root_close(root);
    (void)close(stop_fd);
}

static __attribute__((unused)) void setup(void)
{
    (void)snprintf(home, sizeof home, "/tmp/berth-test-session.XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    memset(&wish, 0, sizeof wish);
    wish.evict_idle_after = -1;
    wish.idle_timeout_s = 1800;
    wish.max_commands = 64;
    wish.max_runs = 4;
    wish.runtimes = 2;
    log_set_level(LOG_LEVEL_ERROR);
    provider = provider_fake_new();
}

static __attribute__((unused)) int remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    return remove(path);
}

static __attribute__((unused)) void teardown(void)
{
    provider->ops->free(provider);
    (void)nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Until it is so, or the test's own timeout ends it. */
#define until(condition)                                 \
    do {                                                 \
        struct cancel pause_ = cancel_within(&never, 5); \
        struct error err_ = ERROR_INIT;                  \
        if (condition)                                   \
            break;                                       \
        (void)cancel_poll(&pause_, NULL, 0, &err_);      \
    } while (1)

#endif
