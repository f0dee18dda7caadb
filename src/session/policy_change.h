/* session/policy_change.h: what may be changed of a policy while the service runs, all or nothing.
 *
 * Absent is left alone, null is none. What is running keeps what it was started with. Threads: any.
 */
#ifndef BERTH_POLICY_CHANGE_H
#define BERTH_POLICY_CHANGE_H

#include "policy.h"

struct sessions;

struct change_int {
    bool is_given;
    struct opt_int to;
};
struct change_float {
    bool is_given;
    struct opt_float to;
};
struct change_text {
    bool is_given;
    const char *to; /* NULL: none */
};

struct change_limits {
    struct change_text mem_limit;
    struct change_text memswap_limit;
    struct change_float cpus;
    struct change_int cpu_shares;
    struct change_int pids_limit;
};

struct change_runtime {
    const char *alias;
    struct change_limits limits;
};

struct policy_change {
    struct change_text default_runtime;
    struct change_int max_sessions;
    struct change_int max_open_sessions;
    struct change_int max_sessions_per_tenant;
    struct change_int evict_idle_after;
    struct change_int idle_timeout;
    struct change_int execute_timeout;
    struct change_int max_read_bytes;
    struct change_int workspace_ttl;
    struct change_int container_ttl;
    struct change_text tmpfs_size;
    struct change_limits limits;
    struct change_runtime *runtimes;
    size_t runtime_count;
};

/* A copy of `policy` with the change in it. INVALID names what is wrong: an unknown alias, a size that is none, a combination that
 * the start would refuse (`has_root`: eviction is possible). *ret: one reference. */
int policy_changed(const struct policy *policy, const struct policy_change *change, bool has_root, struct policy **ret,
                   struct error *err);

/* Put it in force. `document` is what is remembered, NULL to leave that alone (the overrides file). Blocks on the disk. */
int sessions_policy_change(struct sessions *sessions, const struct policy_change *change, const char *document,
                           struct error *err);
/* The remembered document, NULL if there is none. Caller frees. */
int sessions_policy_document(struct sessions *sessions, char **ret_document, struct error *err);

#endif
