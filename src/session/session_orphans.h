/* session/session_orphans.h: containers of another install on our engine: left by a broker whose database is gone, or another broker's.
 *
 * A start removes what is ours and not needed; these it cannot judge. Where the workspace lies below our own root nobody else can
 * have a use for them. Threads: any; both block on the engine.
 */
#ifndef BERTH_SESSION_ORPHANS_H
#define BERTH_SESSION_ORPHANS_H

#include "cancel.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>

struct sessions;

struct session_orphan {
    char ref[80];
    char name[128];
    char install[64];
    char slot[96];
    const char *state; /* "created", "running", "paused", "stopped"; static */
    bool below_root;
};

/* Caller frees *ret_list. */
int sessions_orphans(struct sessions *sessions, const struct cancel *cancel, struct session_orphan **ret_list,
                     size_t *ret_count, struct error *err);
/* Remove one of them, by its whole reference. NOT_FOUND: it is none (any more), whatever else it may be. */
int sessions_orphan_remove(struct sessions *sessions, const char *ref, const struct cancel *cancel, struct error *err);

#endif
