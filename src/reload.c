#include "reload.h"

#include "log.h"
#include "policy_change.h"
#include "wire.h"

#include <string.h>

/* The change that makes a policy of `before` one of `now`, as far as it can be changed. */
struct difference {
    const struct settings *now;
    struct policy_change policy;
    bool changes_policy;
};

static bool set(struct difference *difference, const char *variable)
{
    const struct settings *now = difference->now;
    struct policy_change *policy = &difference->policy;

#define LIVE(field, type, to, ...)                              \
    if (strcmp(variable, "SANDBOXD_" field) == 0) {             \
        policy->to = (struct change_##type){true, __VA_ARGS__}; \
        return true;                                            \
    }
    LIVE("DEFAULT_RUNTIME", text, default_runtime, now->default_runtime)
    LIVE("MAX_SESSIONS", int, max_sessions, now->max_sessions)
    LIVE("MAX_OPEN_SESSIONS", int, max_open_sessions, now->max_open_sessions)
    LIVE("MAX_SESSIONS_PER_TENANT", int, max_sessions_per_tenant, now->max_sessions_per_tenant)
    LIVE("EVICT_IDLE_AFTER", int, evict_idle_after, now->evict_idle_after)
    LIVE("IDLE_TIMEOUT", int, idle_timeout, {true, now->idle_timeout})
    LIVE("EXECUTE_TIMEOUT", int, execute_timeout, {true, now->execute_timeout})
    LIVE("MAX_READ_BYTES", int, max_read_bytes, {true, now->max_read_bytes})
    LIVE("WORKSPACE_TTL", int, workspace_ttl, now->workspace_ttl)
    LIVE("CONTAINER_TTL", int, container_ttl, now->container_ttl)
    LIVE("TMPFS_SIZE", text, tmpfs_size, now->tmpfs_size)
    LIVE("MEM_LIMIT", text, limits.mem_limit, now->mem_limit)
    LIVE("MEMSWAP_LIMIT", text, limits.memswap_limit, now->memswap_limit)
    LIVE("CPUS", float, limits.cpus, now->cpus)
    LIVE("CPU_SHARES", int, limits.cpu_shares, now->cpu_shares)
    LIVE("PIDS_LIMIT", int, limits.pids_limit, now->pids_limit)
#undef LIVE
    return false;
}

static void add_live(const char *variable, void *context)
{
    struct difference *difference = context;

    difference->changes_policy |= set(difference, variable);
}

static void warn_of_the_rest(const char *variable, void *context)
{
    static const char *const others[] = {"SANDBOXD_LOG_LEVEL", "SANDBOXD_POLICY_OVERRIDES"};
    struct difference unused = {.now = context};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], variable) == 0)
            return;
    if (!set(&unused, variable))
        log_warn("settings.needs_restart", log_s("variable", variable));
}

void reload(struct sessions *sessions, struct wire *wire, struct settings *started, struct settings *before,
            struct settings *now)
{
    struct difference difference = {.now = now};
    struct error err = ERROR_INIT;

    settings_differences(before->token ? before : started, now, add_live, &difference);
    if (difference.changes_policy && sessions_policy_change(sessions, &difference.policy, NULL, &err) < 0) {
        log_warn("settings.reload", log_e(&err));
        return;
    }
    settings_differences(started, now, warn_of_the_rest, now);
    reload_log_level(now);
    log_info("settings.reload");
    wire_policy_file_reread(wire, now->policy_overrides);
    settings_done(before);
    *before = *now;
    *now = (struct settings){0};
}

void reload_log_level(const struct settings *settings)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], settings->log_level) == 0)
            log_set_level((enum log_level)i);
}
