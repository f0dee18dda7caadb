/* session/policy.h: what the operator allows: runtimes, ceilings, limits. An immutable snapshot with references.
 *
 * Strings are owned by the policy. Threads: any.
 */
#ifndef BERTH_POLICY_H
#define BERTH_POLICY_H

#include "error.h"
#include "opt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy_limits {
    char *mem_limit; /* as the operator wrote it; NULL: none */
    int64_t mem_bytes;
    char *memswap_limit;
    int64_t memswap_bytes;
    struct opt_float cpus;
    struct opt_int cpu_shares;
    struct opt_int pids_limit;
    char *network_mode;
    char *oci_runtime;
};

struct policy_runtime {
    char *alias;
    char *image;
    char *description;        /* never NULL: falls back to the image */
    struct policy_limits own; /* unset: the service's */
    bool caps_none;
    bool builds;   /* its image is built, not pulled */
    unsigned pool; /* containers started ahead */
};

struct policy {
    _Atomic unsigned references;
    struct policy_runtime *runtimes; /* sorted by alias */
    size_t runtime_count;
    char *default_runtime;
    struct opt_int max_sessions;
    struct opt_int max_open_sessions;
    struct opt_int max_sessions_per_tenant;
    struct opt_int evict_idle_after;
    struct policy_limits limits; /* of the service */
    char *tmpfs_size;
    int64_t idle_timeout_s;
    int64_t execute_timeout_s;
    int64_t max_read_bytes;
    struct opt_int workspace_ttl;
    struct opt_int container_ttl;
    bool prewarm;
};

struct policy *policy_new(void); /* empty, one reference; the caller fills it in before anybody else sees it */
struct policy *policy_ref(struct policy *policy);
void policy_unref(struct policy *policy);
void policy_sort(struct policy *policy); /* runtimes by alias; to be called once they are filled in */

const struct policy_runtime *policy_runtime(const struct policy *policy, const char *alias); /* NULL: not allowed */

/* The limits in force for a runtime: its own where set, else the service's. Strings borrowed from the policy. */
struct policy_limits policy_effective(const struct policy *policy, const struct policy_runtime *runtime);

#endif
