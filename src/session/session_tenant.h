/* session/session_tenant.h: whoever sessions belong to: what they hold, and what they may.
 *
 * Ceilings are reserved before the work, under the registry's lock: exact however many ask at once, also at an attach and a wake. They
 * are kept in the store. One that is lowered below what is held refuses the next, and takes nothing away. Threads: any.
 */
#ifndef BERTH_SESSION_TENANT_H
#define BERTH_SESSION_TENANT_H

#include "error.h"
#include "opt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;

struct tenant_limits {
    struct opt_int max_open_sessions; /* unset: the policy's max_sessions_per_tenant */
    struct opt_int max_resident_sessions;
    struct opt_int max_running_commands; /* /run waits for its turn, /runs is refused */
    struct opt_int
        max_disk_bytes; /* of all its workspaces: openings and wakes are refused above it, by the last measurement */
};

struct tenant_view {
    char tenant[65];
    unsigned open;
    unsigned resident;
    unsigned running_commands;
    int64_t disk_bytes; /* of all its workspaces, as last measured: each cleanup_interval; -1: not yet */
    struct tenant_limits limits;
};

/* Those that hold something or have ceilings, by name. Caller frees *ret. Never blocks. */
void sessions_tenants(struct sessions *sessions, struct tenant_view **ret, size_t *ret_count);

struct tenant_change_int {
    bool is_given;
    struct opt_int to;
};
struct tenant_change { /* what is not given is left alone */
    struct tenant_change_int max_open_sessions;
    struct tenant_change_int max_resident_sessions;
    struct tenant_change_int max_running_commands;
    struct tenant_change_int max_disk_bytes;
};
/* In force, and kept, once it returns 0 (the disk's: by what was measured last). Blocks on the disk. */
int sessions_tenant_change(struct sessions *sessions, const char *tenant, const struct tenant_change *change,
                           struct tenant_view *ret_view, struct error *err);

#endif
