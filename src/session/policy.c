#include "policy.h"

#include "alloc.h"

#include <stdlib.h>
#include <string.h>

struct policy *policy_new(void)
{
    struct policy *policy = alloc_zero(sizeof *policy);

    policy->references = 1;
    return policy;
}

struct policy *policy_ref(struct policy *policy)
{
    policy->references++;
    return policy;
}

static void limits_done(struct policy_limits *limits)
{
    free(limits->mem_limit);
    free(limits->memswap_limit);
    free(limits->network_mode);
    free(limits->oci_runtime);
}

void policy_unref(struct policy *policy)
{
    if (!policy || --policy->references > 0)
        return;
    for (size_t i = 0; i < policy->runtime_count; i++) {
        struct policy_runtime *runtime = &policy->runtimes[i];

        free(runtime->alias);
        free(runtime->image);
        free(runtime->description);
        limits_done(&runtime->own);
    }
    free(policy->runtimes);
    free(policy->default_runtime);
    limits_done(&policy->limits);
    free(policy->tmpfs_size);
    free(policy);
}

static int by_alias(const void *a, const void *b)
{
    return strcmp(((const struct policy_runtime *)a)->alias, ((const struct policy_runtime *)b)->alias);
}

void policy_sort(struct policy *policy)
{
    qsort(policy->runtimes, policy->runtime_count, sizeof *policy->runtimes, by_alias);
}

const struct policy_runtime *policy_runtime(const struct policy *policy, const char *alias)
{
    for (size_t i = 0; i < policy->runtime_count; i++)
        if (strcmp(policy->runtimes[i].alias, alias) == 0)
            return &policy->runtimes[i];
    return NULL;
}

struct policy_limits policy_effective(const struct policy *policy, const struct policy_runtime *runtime)
{
    struct policy_limits limits = policy->limits;
    const struct policy_limits *own = &runtime->own;

    if (own->mem_limit) {
        limits.mem_limit = own->mem_limit;
        limits.mem_bytes = own->mem_bytes;
    }
    if (own->memswap_limit) {
        limits.memswap_limit = own->memswap_limit;
        limits.memswap_bytes = own->memswap_bytes;
    }
    if (own->cpus.is_set)
        limits.cpus = own->cpus;
    if (own->cpu_shares.is_set)
        limits.cpu_shares = own->cpu_shares;
    if (own->pids_limit.is_set)
        limits.pids_limit = own->pids_limit;
    if (own->network_mode)
        limits.network_mode = own->network_mode;
    if (own->oci_runtime)
        limits.oci_runtime = own->oci_runtime;
    return limits;
}
