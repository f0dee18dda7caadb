/* session/session_figures.h: how it goes: what is counted under the registry's lock, and what was last heard of engine, store and disk.
 *
 * Nothing here asks the engine or walks anything: all sessions are counted as they change, and a thread asks the engine and the
 * file systems every few seconds, so that neither can hang who looks. Threads: any; never blocks.
 */
#ifndef BERTH_SESSION_FIGURES_H
#define BERTH_SESSION_FIGURES_H

#include "opt.h"

#include <stdbool.h>
#include <stdint.h>

struct sessions;

enum {
    FIGURES_TENANTS_MAX = 100, /* told one by one; all others together */
    FIGURES_POOLS_MAX = 64,
    FIGURES_DISKS_MAX = 2,
    FIGURES_WORDS_BYTES = 160,
};

struct figures_tenant {
    char tenant[65]; /* "": of nobody */
    unsigned open;
    unsigned resident;
    unsigned running_commands;
    int64_t disk_bytes; /* -1: not measured yet */
};

struct figures_pool {
    char runtime[65];
    unsigned ready;
    unsigned wanted;
};

struct figures_disk {
    const char *of; /* "state" or "workspaces"; static */
    bool is_known;
    int64_t size_bytes;
    int64_t free_bytes; /* to us */
    int64_t free_inodes;
};

/* One part of readiness: in words for anybody, so without paths and texts of others. */
struct figures_check {
    bool ok;
    char words[FIGURES_WORDS_BYTES];
};

struct session_readiness {
    bool ready; /* all three */
    struct figures_check engine;
    struct figures_check store;
    struct figures_check disk;
};
void sessions_readiness(struct sessions *sessions, struct session_readiness *ret);

struct session_figures {
    unsigned open; /* opening + running + frozen + hibernated */
    unsigned opening;
    unsigned running; /* without the frozen ones */
    unsigned frozen;
    unsigned hibernated;
    unsigned resident;
    unsigned running_commands;
    unsigned max_running_commands;
    struct opt_int max_sessions;
    struct opt_int max_open_sessions;
    unsigned tenant_total; /* that are known, also without sessions */
    unsigned tenant_count;
    struct figures_tenant tenants[FIGURES_TENANTS_MAX + 1]; /* first: nobody's sessions */
    struct figures_tenant others; /* of those that are not among `tenants`; disk_bytes is -1 */
    unsigned pool_count;
    struct figures_pool pools[FIGURES_POOLS_MAX];
    unsigned disk_count;
    struct figures_disk disks[FIGURES_DISKS_MAX];
    uint64_t store_queued;
    struct session_readiness readiness;
};
/* As much work for ten sessions as for ten thousand. */
void sessions_figures(struct sessions *sessions, struct session_figures *ret);

#endif
