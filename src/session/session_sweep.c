/* What nobody opened for longer than its time to live: workspaces, and stopped containers of closed sessions. */
#include "session_private.h"

#include "clock.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

void sweep_workspaces(struct sessions *sessions, int64_t ttl_s, const struct cancel *cancel)
{
    auto_free struct workspace_name *names = NULL;
    struct error err = ERROR_INIT;
    size_t count;

    if (!sessions->root)
        return;
    if (workspace_names(sessions->root, &names, &count, &err) < 0) {
        log_warn("sweep.names", log_e(&err));
        return;
    }
    for (size_t i = 0; i < count && cancel_check(cancel, &err) == 0; i++) {
        struct store_stored row;
        int64_t unused_ms;

        error_clear(&err);
        if (sessions_exists(sessions, names[i].id))
            continue;
        /* A directory that no row knows gets one at first sight, used now: no first sweep takes it. */
        if (stored_row(sessions, names[i].id, &row, &err) < 0) {
            log_warn("sweep.last_use", log_s("session", names[i].id), log_e(&err));
            continue;
        }
        unused_ms = clock_unix_ms() - row.workspace.last_use_unix_ms;
        if (row.is_pinned || unused_ms <= ttl_s * 1000)
            continue;
        /* One that was opened or pinned meanwhile, or that somebody reads, is not taken: the id is claimed first. */
        if (session_purge_closed(sessions, names[i].id, ttl_s > 0 ? ttl_s * 1000 : 0, cancel, &err) == 0)
            log_info("sweep.workspace", log_s("session", names[i].id), log_i("unused_s", unused_ms / 1000));
        else if (err.code != ERROR_CONFLICT)
            log_warn("sweep.workspace_left", log_s("session", names[i].id), log_e(&err));
    }
}

void sweep_containers(struct sessions *sessions, int64_t ttl_s, const struct cancel *cancel)
{
    const struct provider_ops *ops = sessions->provider->ops;
    auto_free struct sandbox_listed *list = NULL;
    struct error err = ERROR_INIT;
    size_t count;

    if (ops->list(sessions->provider, cancel, &list, &count, &err) < 0)
        return; /* the watcher says that the engine is away */
    for (size_t i = 0; i < count && cancel_check(cancel, &err) == 0; i++) {
        struct sandbox_listed now;

        error_clear(&err);
        if (list[i].phase != SANDBOX_STOPPED || !session_claim_slot(sessions, list[i].slot))
            continue;
        if (ops->inspect(sessions->provider, list[i].ref, cancel, &now, &err) == 0 && now.phase == SANDBOX_STOPPED &&
            now.finished_at_unix_ms > 0 && clock_unix_ms() - now.finished_at_unix_ms > ttl_s * 1000) {
            struct store_slot slot;

            if (ops->remove(sessions->provider, now.ref, cancel, &err) < 0) {
                log_warn("sweep.container_left", log_s("container", now.ref), log_e(&err));
            } else if (store_slot_get(sessions->store, now.slot, &slot, &err) == 0 && strcmp(slot.ref, now.ref) == 0) {
                slot.ref[0] = '\0';
                (void)store_slot_put(sessions->store, &slot, &err);
                log_info("sweep.container", log_s("container", now.ref));
            }
        }
        session_unclaim_slot(sessions);
    }
}
