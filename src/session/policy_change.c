#include "policy_change.h"

#include "alloc.h"
#include "log.h"
#include "session_private.h"
#include "size.h"

#include <stdlib.h>
#include <string.h>

/* As config/ has them. */
enum { MEMORY_LEAST_BYTES = 6 * 1024 * 1024, CPU_SHARES_MOST = 262144 };
#define CPUS_LEAST 0.01
#define CPUS_MOST 100000.0

static void copy_limits(const struct policy_limits *from, struct policy_limits *to)
{
    *to = *from;
    to->mem_limit = alloc_str(from->mem_limit);
    to->memswap_limit = alloc_str(from->memswap_limit);
    to->network_mode = alloc_str(from->network_mode);
    to->oci_runtime = alloc_str(from->oci_runtime);
}

static struct policy *copy(const struct policy *from)
{
    struct policy *to = policy_new();

    to->runtimes = alloc_array(from->runtime_count, sizeof *to->runtimes);
    to->runtime_count = from->runtime_count;
    for (size_t i = 0; i < from->runtime_count; i++) {
        to->runtimes[i].alias = alloc_str(from->runtimes[i].alias);
        to->runtimes[i].image = alloc_str(from->runtimes[i].image);
        to->runtimes[i].description = alloc_str(from->runtimes[i].description);
        to->runtimes[i].caps_none = from->runtimes[i].caps_none;
        to->runtimes[i].builds = from->runtimes[i].builds;
        to->runtimes[i].pool = from->runtimes[i].pool;
        copy_limits(&from->runtimes[i].own, &to->runtimes[i].own);
    }
    to->default_runtime = alloc_str(from->default_runtime);
    to->max_sessions = from->max_sessions;
    to->max_open_sessions = from->max_open_sessions;
    to->max_sessions_per_tenant = from->max_sessions_per_tenant;
    to->evict_idle_after = from->evict_idle_after;
    copy_limits(&from->limits, &to->limits);
    to->tmpfs_size = alloc_str(from->tmpfs_size);
    to->idle_timeout_s = from->idle_timeout_s;
    to->execute_timeout_s = from->execute_timeout_s;
    to->max_read_bytes = from->max_read_bytes;
    to->workspace_ttl = from->workspace_ttl;
    to->container_ttl = from->container_ttl;
    to->prewarm = from->prewarm;
    return to;
}

static void set_opt(struct opt_int *number, const struct change_int *change)
{
    if (change->is_given)
        *number = change->to;
}

/* Null has been refused for these by wire/. */
static void set_int(int64_t *number, const struct change_int *change)
{
    if (change->is_given && change->to.is_set)
        *number = change->to.value;
}

static int set_size(char **text, int64_t *bytes, const char *name, const struct change_text *change, struct error *err)
{
    if (!change->is_given)
        return 0;
    free(*text);
    *text = alloc_str(change->to);
    if (size_parse(change->to, bytes, err) < 0)
        return error_prefix(err, "%s", name);
    return 0;
}

static int set_limits(struct policy_limits *limits, const struct change_limits *change, struct error *err)
{
    if (set_size(&limits->mem_limit, &limits->mem_bytes, "mem_limit", &change->mem_limit, err) < 0 ||
        set_size(&limits->memswap_limit, &limits->memswap_bytes, "memswap_limit", &change->memswap_limit, err) < 0)
        return -1;
    if (change->cpus.is_given)
        limits->cpus = change->cpus.to;
    set_opt(&limits->cpu_shares, &change->cpu_shares);
    set_opt(&limits->pids_limit, &change->pids_limit);
    return 0;
}

static int check_runtime(const struct policy *policy, const struct policy_runtime *runtime, struct error *err)
{
    struct policy_limits limits = policy_effective(policy, runtime);

    /* What the engine would refuse at the next opening. */
    if (limits.mem_limit && limits.mem_bytes < MEMORY_LEAST_BYTES)
        return fail(err, INVALID, "mem_limit of runtime '%s' is too small for a container (6m at least)",
                    runtime->alias);
    if (limits.cpus.is_set && (limits.cpus.value < CPUS_LEAST || limits.cpus.value > CPUS_MOST))
        return fail(err, INVALID, "cpus of runtime '%s' are not between %g and %g", runtime->alias, CPUS_LEAST,
                    CPUS_MOST);
    if (limits.cpu_shares.is_set && (limits.cpu_shares.value < 2 || limits.cpu_shares.value > CPU_SHARES_MOST))
        return fail(err, INVALID, "cpu_shares of runtime '%s' are not between 2 and %d", runtime->alias,
                    CPU_SHARES_MOST);
    if (limits.memswap_bytes > 0 && limits.mem_bytes > 0 && limits.memswap_bytes < limits.mem_bytes)
        return fail(err, INVALID, "memswap_limit of runtime '%s' is below its mem_limit", runtime->alias);
    if (limits.memswap_bytes > 0 && limits.mem_bytes == 0)
        return fail(err, INVALID, "memswap_limit of runtime '%s' needs a mem_limit", runtime->alias);
    return 0;
}

/* What the start would refuse. */
static int check(const struct policy *policy, bool has_root, struct error *err)
{
    if (policy->max_open_sessions.is_set && policy->max_sessions.is_set &&
        policy->max_open_sessions.value < policy->max_sessions.value)
        return fail(err, INVALID, "max_open_sessions is below max_sessions");
    if (policy->evict_idle_after.is_set && !has_root)
        return fail(err, INVALID, "evict_idle_after needs a workspace_root");
    for (size_t i = 0; i < policy->runtime_count; i++)
        if (check_runtime(policy, &policy->runtimes[i], err) < 0)
            return -1;
    return 0;
}

static int unknown_default(const struct policy *policy, const char *alias, struct error *err)
{
    char allowed[160] = "";
    size_t size = 0;

    for (size_t i = 0; i < policy->runtime_count && size < sizeof allowed - 1; i++)
        size +=
            (size_t)snprintf(allowed + size, sizeof allowed - size, "%s%s", i ? ", " : "", policy->runtimes[i].alias);
    return fail(err, INVALID, "Unknown runtime '%.40s'. The default has to be one of: %s", alias ? alias : "None",
                allowed);
}

static int apply(struct policy *policy, const struct policy_change *change, struct error *err)
{
    int64_t unused;

    if (change->default_runtime.is_given) {
        const char *alias = change->default_runtime.to;

        if (!alias || !policy_runtime(policy, alias))
            return unknown_default(policy, alias, err);
        free(policy->default_runtime);
        policy->default_runtime = alloc_str(alias);
    }
    set_opt(&policy->max_sessions, &change->max_sessions);
    set_opt(&policy->max_open_sessions, &change->max_open_sessions);
    set_opt(&policy->max_sessions_per_tenant, &change->max_sessions_per_tenant);
    set_opt(&policy->evict_idle_after, &change->evict_idle_after);
    set_int(&policy->idle_timeout_s, &change->idle_timeout);
    set_int(&policy->execute_timeout_s, &change->execute_timeout);
    set_int(&policy->max_read_bytes, &change->max_read_bytes);
    set_opt(&policy->workspace_ttl, &change->workspace_ttl);
    set_opt(&policy->container_ttl, &change->container_ttl);
    if (set_size(&policy->tmpfs_size, &unused, "tmpfs_size", &change->tmpfs_size, err) < 0 ||
        set_limits(&policy->limits, &change->limits, err) < 0)
        return -1;
    for (size_t i = 0; i < change->runtime_count; i++) {
        /* The policy is our own copy. */
        struct policy_runtime *runtime = (struct policy_runtime *)policy_runtime(policy, change->runtimes[i].alias);

        if (!runtime)
            return fail(
                err, INVALID,
                "Unknown runtime '%.64s'. Ceilings can be changed for an allowed runtime; a new one is a deployment "
                "change, because it names an image.",
                change->runtimes[i].alias);
        if (set_limits(&runtime->own, &change->runtimes[i].limits, err) < 0)
            return error_prefix(err, "runtime '%s'", runtime->alias);
    }
    return 0;
}

int policy_changed(const struct policy *policy, const struct policy_change *change, bool has_root, struct policy **ret,
                   struct error *err)
{
    auto_policy struct policy *changed = copy(policy);

    if (apply(changed, change, err) < 0 || check(changed, has_root, err) < 0)
        return -1;
    *ret = take_ptr(changed);
    return 0;
}

int sessions_policy_change(struct sessions *sessions, const struct policy_change *change, const char *document,
                           struct error *err)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    auto_policy struct policy *before = NULL;
    struct policy *after;
    int result;

    (void)pthread_mutex_lock(&one_at_a_time);
    before = sessions_policy(sessions);
    result = policy_changed(before, change, sessions->root != NULL, &after, err);
    if (result == 0 && document && store_policy_put(sessions->store, document, err) < 0) {
        policy_unref(after);
        result = -1;
    }
    if (result == 0) {
        sessions_lock(sessions);
        policy_unref(sessions->policy);
        sessions->policy = after;
        waitq_wake_all(&sessions->changed);
        waitq_wake_all(&sessions->pool_changed);
        sessions_unlock(sessions);
        log_info("policy.changed");
        if (sessions->threads_started) /* otherwise it is what a start puts in force again */
            feed_record(sessions, "policy", "", "", document ? document : "overrides file");
    }
    (void)pthread_mutex_unlock(&one_at_a_time);
    return result;
}

int sessions_policy_document(struct sessions *sessions, char **ret_document, struct error *err)
{
    return store_policy_get(sessions->store, ret_document, err);
}
