#include "session_orphans.h"

#include "alloc.h"
#include "log.h"
#include "session_private.h"

#include <string.h>

static const char *const phases[] = {[SANDBOX_CREATED] = "created",
                                     [SANDBOX_RUNNING] = "running",
                                     [SANDBOX_PAUSED] = "paused",
                                     [SANDBOX_STOPPED] = "stopped"};

/* Is it <root>/…, by name? The engine's host must call the root as we do, otherwise nothing is. */
static bool is_below(const char *root, const char *path)
{
    size_t size = root ? strlen(root) : 0;

    return size && strncmp(path, root, size) == 0 && path[size] == '/';
}

int sessions_orphans(struct sessions *sessions, const struct cancel *cancel, struct session_orphan **ret_list,
                     size_t *ret_count, struct error *err)
{
    const char *root = sessions->root ? workspace_root_path(sessions->root) : NULL;
    const struct cancel bounded = cancel_within(cancel, sessions->settings.engine_timeout_ms);
    auto_free struct sandbox_stranger *strangers = NULL;
    size_t count;

    if (sessions->provider->ops->strangers(sessions->provider, &bounded, &strangers, &count, err) < 0)
        return -1;
    *ret_list = alloc_array(count + 1, sizeof **ret_list);
    *ret_count = count;
    for (size_t i = 0; i < count; i++) {
        struct session_orphan *orphan = &(*ret_list)[i];

        (void)snprintf(orphan->ref, sizeof orphan->ref, "%s", strangers[i].ref);
        (void)snprintf(orphan->name, sizeof orphan->name, "%s", strangers[i].name);
        (void)snprintf(orphan->install, sizeof orphan->install, "%s", strangers[i].install);
        (void)snprintf(orphan->slot, sizeof orphan->slot, "%s", strangers[i].slot);
        orphan->state = phases[strangers[i].phase];
        orphan->below_root = is_below(root, strangers[i].workspace_source);
    }
    return 0;
}

int sessions_orphan_remove(struct sessions *sessions, const char *ref, const struct cancel *cancel, struct error *err)
{
    auto_free struct session_orphan *list = NULL;
    size_t count;

    if (sessions_orphans(sessions, cancel, &list, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].ref, ref) != 0)
            continue;
        log_info("orphan.removed", log_s("container", ref), log_s("install", list[i].install),
                 log_s("slot", list[i].slot));
        return sessions->provider->ops->remove(sessions->provider, ref, cancel, err);
    }
    return fail(err, NOT_FOUND, "No such orphan");
}
