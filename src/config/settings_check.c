#include "settings_private.h"

#include "size.h"

#include <stdio.h>
#include <string.h>

enum { MEMORY_LEAST_BYTES = 6 * 1024 * 1024 }; /* under it the engine refuses to create a container */

/* -- ranges -- */

struct range {
    const char *variable;
    size_t offset;
    bool is_optional;
    int64_t least;
    int64_t most;
};

#define RANGE(field, variable, least, most)                            \
    {                                                                  \
        variable, offsetof(struct settings, field), false, least, most \
    }
#define OPT_RANGE(field, variable, least, most)                       \
    {                                                                 \
        variable, offsetof(struct settings, field), true, least, most \
    }

/* What the reference takes with either sign is taken here too (a lifetime under 0 is one that has passed), but within what
 * still fits when it is counted in milliseconds. */
static const struct range ranges[] = {
    RANGE(port, "SANDBOXD_PORT", 0, 65535),
    OPT_RANGE(max_sessions, "SANDBOXD_MAX_SESSIONS", 0, INT32_MAX),
    OPT_RANGE(max_open_sessions, "SANDBOXD_MAX_OPEN_SESSIONS", 0, INT32_MAX),
    OPT_RANGE(max_sessions_per_tenant, "SANDBOXD_MAX_SESSIONS_PER_TENANT", 0, INT32_MAX),
    OPT_RANGE(evict_idle_after, "SANDBOXD_EVICT_IDLE_AFTER", INT32_MIN, INT32_MAX),
    OPT_RANGE(cpu_shares, "SANDBOXD_CPU_SHARES", 2, 262144),
    OPT_RANGE(pids_limit, "SANDBOXD_PIDS_LIMIT", 1, INT32_MAX),
    RANGE(idle_timeout, "SANDBOXD_IDLE_TIMEOUT", INT32_MIN, INT32_MAX),
    RANGE(cleanup_interval, "SANDBOXD_CLEANUP_INTERVAL", 1, INT32_MAX),
    OPT_RANGE(workspace_ttl, "SANDBOXD_WORKSPACE_TTL", INT32_MIN, INT32_MAX),
    OPT_RANGE(container_ttl, "SANDBOXD_CONTAINER_TTL", INT32_MIN, INT32_MAX),
    OPT_RANGE(workspace_quota_bytes, "SANDBOXD_WORKSPACE_QUOTA_BYTES", 1, INT64_MAX / 2),
    OPT_RANGE(workspace_quota_inodes, "SANDBOXD_WORKSPACE_QUOTA_INODES", 1, INT64_MAX / 2),
    OPT_RANGE(sandbox_uid, "SANDBOXD_SANDBOX_UID", 0, UINT32_MAX - 1),
    RANGE(max_read_bytes, "SANDBOXD_MAX_READ_BYTES", 1, INT32_MAX),
    RANGE(execute_timeout, "SANDBOXD_EXECUTE_TIMEOUT", 1, INT32_MAX),
    RANGE(max_workers, "SANDBOXD_MAX_WORKERS", 1, 4096),
    RANGE(max_running_commands, "SANDBOXD_MAX_RUNNING_COMMANDS", 1, INT32_MAX),
    RANGE(max_runs_per_session, "SANDBOXD_MAX_RUNS_PER_SESSION", 1, 256),
    RANGE(max_body_bytes, "SANDBOXD_MAX_BODY_BYTES", 1, INT32_MAX), /* json-c counts in int */
    RANGE(max_upload_bytes, "SANDBOXD_MAX_UPLOAD_BYTES", 1, INT64_MAX / 256),
    RANGE(max_upload_entries, "SANDBOXD_MAX_UPLOAD_ENTRIES", 1, INT32_MAX),
    RANGE(build_timeout, "SANDBOXD_BUILD_TIMEOUT", 1, 86400),
    RANGE(freeze_after, "SANDBOXD_FREEZE_AFTER", 0, INT32_MAX),
    RANGE(engine_timeout, "SANDBOXD_ENGINE_TIMEOUT", 1, 86400),
    OPT_RANGE(probe_port, "SANDBOXD_PROBE_PORT", 0, 65535),
    RANGE(max_connections, "SANDBOXD_MAX_CONNECTIONS", 1, 65536),
};

static int check_ranges(const struct settings *settings, struct error *err)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const char *field = (const char *)settings + ranges[i].offset;
        struct opt_int value = {true, 0};

        if (ranges[i].is_optional)
            memcpy(&value, field, sizeof value);
        else
            memcpy(&value.value, field, sizeof value.value);
        if (value.is_set && (value.value < ranges[i].least || value.value > ranges[i].most))
            return fail(err, INVALID, "%s: %lld is not between %lld and %lld%s", ranges[i].variable,
                        (long long)value.value, (long long)ranges[i].least, (long long)ranges[i].most,
                        ranges[i].is_optional ? " (empty: none)" : "");
    }
    return 0;
}

/* -- ceilings of a sandbox, the service's and an alias' own -- */

static int check_cpus(const struct opt_float *cpus, struct error *err)
{
    /* The engine counts in billionths. */
    if (cpus->is_set && (cpus->value < 0.01 || cpus->value > 100000))
        return fail(err, INVALID, "%g processors are not between 0.01 and 100000", cpus->value);
    return 0;
}

static int check_memory(const char *memory, const char *memswap, struct error *err)
{
    int64_t memory_bytes;
    int64_t memswap_bytes;

    if (size_parse(memory, &memory_bytes, err) < 0 || size_parse(memswap, &memswap_bytes, err) < 0)
        return -1;
    if (memory && memory_bytes < MEMORY_LEAST_BYTES)
        return fail(err, INVALID, "%lld bytes of memory are too few for a container (6m at least)",
                    (long long)memory_bytes);
    if (memswap && !memory)
        return fail(err, INVALID, "memswap_limit needs a mem_limit: it counts memory and swap together");
    if (memswap && memswap_bytes < memory_bytes)
        return fail(err, INVALID, "memswap_limit counts memory and swap together and must be mem_limit at least");
    return 0;
}

int settings_check_network(const char *name, struct error *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    char shown[SETTINGS_SHOWN_BYTES];

    if (strcmp(name, "host") == 0 || strncmp(name, "container:", 10) == 0 || strncmp(name, "ns:", 3) == 0)
        return fail(err, INVALID, "\"%s\": sandboxes are never on the network of the host or of another container",
                    settings_shown(name, shown));
    /* "default" is the engine's word for a network that it chooses. */
    if (!name[0] || strspn(name, "_.-") > 0 || strspn(name, letters) != strlen(name) || strlen(name) > 127 ||
        strcmp(name, "default") == 0)
        return fail(err, INVALID, "\"%s\" is not the name of a network", settings_shown(name, shown));
    return 0;
}

static int check_network(const char *network_mode, struct error *err)
{
    if (!network_mode)
        return fail(err, INVALID, "empty is whatever network the engine chooses: name it, or none");
    return settings_check_network(network_mode, err);
}

static int check_size(const char *text, struct error *err)
{
    int64_t bytes;

    if (size_parse(text, &bytes, err) < 0)
        return -1;
    return text && bytes == 0 ? fail(err, INVALID, "must be more than nothing (empty: none)") : 0;
}

static int check_name(const char *text, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    if (text && (!settings_is_printable(text) || strpbrk(text, " \"\\")))
        return fail(err, INVALID, "\"%s\" is not a name", settings_shown(text, shown));
    return 0;
}

static int check_runtime(const struct settings *settings, const struct runtime_setting *runtime, struct error *err)
{
    const char *memory = runtime->mem_limit ? runtime->mem_limit : settings->mem_limit;
    const char *memswap = runtime->memswap_limit ? runtime->memswap_limit : settings->memswap_limit;

    if (check_memory(memory, memswap, err) < 0 || check_cpus(&runtime->cpus, err) < 0 ||
        check_name(runtime->oci_runtime, err) < 0)
        return -1;
    if (runtime->cpu_shares.is_set && (runtime->cpu_shares.value < 2 || runtime->cpu_shares.value > 262144))
        return fail(err, INVALID, "cpu_shares is not between 2 and 262144");
    if (runtime->pids_limit.is_set && (runtime->pids_limit.value < 1 || runtime->pids_limit.value > INT32_MAX))
        return fail(err, INVALID, "pids_limit is not between 1 and %d", INT32_MAX);
    if (runtime->network_mode && check_network(runtime->network_mode, err) < 0)
        return error_prefix(err, "network_mode");
    return 0;
}

static int check_sandbox(const struct settings *settings, struct error *err)
{
    if (check_memory(settings->mem_limit, NULL, err) < 0)
        return error_prefix(err, "SANDBOXD_MEM_LIMIT");
    if (check_size(settings->memswap_limit, err) < 0 ||
        check_memory(settings->mem_limit, settings->memswap_limit, err) < 0)
        return error_prefix(err, "SANDBOXD_MEMSWAP_LIMIT");
    if (check_cpus(&settings->cpus, err) < 0)
        return error_prefix(err, "SANDBOXD_CPUS");
    if (check_size(settings->tmpfs_size, err) < 0)
        return error_prefix(err, "SANDBOXD_TMPFS_SIZE");
    if (check_network(settings->network_mode, err) < 0)
        return error_prefix(err, "SANDBOXD_NETWORK_MODE");
    if (check_name(settings->oci_runtime, err) < 0)
        return error_prefix(err, "SANDBOXD_OCI_RUNTIME");
    if (check_name(settings->build_network, err) < 0)
        return error_prefix(err, "SANDBOXD_BUILD_NETWORK");
    for (size_t i = 0; i < settings->runtime_count; i++)
        if (check_runtime(settings, &settings->runtime_list[i], err) < 0)
            return error_prefix(err, "SANDBOXD_RUNTIMES: %s", settings->runtime_list[i].alias);
    return 0;
}

/* -- paths -- */

/* Absolute, not the root, no ".", ".." and nothing empty between slashes. */
static int check_path(const char *path, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];
    const char *at = path;

    if (*path != '/' || !settings_is_printable(path))
        return fail(err, INVALID, "\"%s\" is not an absolute path", settings_shown(path, shown));
    if (path[strspn(path, "/")] == '\0')
        return fail(err, INVALID, "must not be the root directory");
    while (*at) {
        size_t size = strcspn(++at, "/");

        if (size == 0 && at[0])
            return fail(err, INVALID, "\"%s\" has an empty component", settings_shown(path, shown));
        if ((size == 1 && at[0] == '.') || (size == 2 && at[0] == '.' && at[1] == '.'))
            return fail(err, INVALID, "\"%s\" has a \".\" or \"..\" in it", settings_shown(path, shown));
        at += size;
    }
    return 0;
}

static bool is_below(const char *path, const char *parent)
{
    size_t size = strlen(parent);

    return strncmp(path, parent, size) == 0 && (path[size] == '\0' || path[size] == '/');
}

static int check_work_dir(const char *path, struct error *err)
{
    static const char *const taken[] = {"/proc", "/sys", "/dev", "/.berth-agent"};

    if (check_path(path, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (is_below(path, taken[i]))
            return fail(err, INVALID, "%s is not for files of a sandbox", taken[i]);
    if (strcmp(path, "/tmp") == 0)
        return fail(err, INVALID, "/tmp is a place of its own in a sandbox");
    return 0;
}

static int check_state_dir(const char *state_dir, const char *workspace_root, struct error *err)
{
    const char *below;

    if (check_path(state_dir, err) < 0)
        return -1;
    if (!workspace_root || !is_below(state_dir, workspace_root))
        return 0;
    below = state_dir + strlen(workspace_root);
    if (*below == '\0')
        return fail(err, INVALID, "must not be SANDBOXD_WORKSPACE_ROOT itself");
    if (below[1] != '.' || is_below(below, "/.slots"))
        return fail(err, INVALID, "would be taken for a session's directory (begin its name with a dot, as .berth)");
    return 0;
}

static int check_paths(const struct settings *settings, struct error *err)
{
    if (check_work_dir(settings->work_dir, err) < 0)
        return error_prefix(err, "SANDBOXD_WORK_DIR");
    if (settings->workspace_root && check_path(settings->workspace_root, err) < 0)
        return error_prefix(err, "SANDBOXD_WORKSPACE_ROOT");
    if (check_state_dir(settings->state_dir, settings->workspace_root, err) < 0)
        return error_prefix(err, "SANDBOXD_STATE_DIR");
    return 0;
}

/* -- words, and what must fit together -- */

/* A token that no header can carry would lock everybody out. Its value is never in the text. */
static int check_token(const char *token, struct error *err)
{
    size_t size = strlen(token);

    for (size_t i = 0; i < size; i++)
        if ((unsigned char)token[i] < ' ' || token[i] == 0x7f)
            return fail(err, INVALID, "SANDBOXD_TOKEN: has a control character in it: no header can carry that");
    if (token[0] == ' ' || token[size - 1] == ' ')
        return fail(err, INVALID, "SANDBOXD_TOKEN: begins or ends with a blank: no header can carry that");
    return 0;
}

static int check_word(const char *variable, const char *word, const char *const *words, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];
    char list[64] = "";

    for (; *words; words++) {
        size_t used = strlen(list);

        if (strcmp(word, *words) == 0)
            return 0;
        (void)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", *words);
    }
    return fail(err, INVALID, "%s: \"%s\" is not one of %s", variable, settings_shown(word, shown), list);
}

static int check_words(const struct settings *settings, struct error *err)
{
    static const char *const on_stop[] = {"stop", "keep", NULL};
    static const char *const log_level[] = {"debug", "info", "warn", "error", NULL};
    static const char *const log_format[] = {"logfmt", "json", NULL};

    if (check_word("SANDBOXD_ON_STOP", settings->on_stop, on_stop, err) < 0 ||
        check_word("SANDBOXD_LOG_LEVEL", settings->log_level, log_level, err) < 0 ||
        check_word("SANDBOXD_LOG_FORMAT", settings->log_format, log_format, err) < 0)
        return -1;
    if (!settings_is_printable(settings->host) || strchr(settings->host, ' '))
        return fail(err, INVALID, "SANDBOXD_HOST: is not an address");
    return 0;
}

static int check_default_runtime(const struct settings *settings, struct error *err)
{
    char shown[SETTINGS_SHOWN_BYTES];

    for (size_t i = 0; i < settings->runtime_count; i++)
        if (strcmp(settings->runtime_list[i].alias, settings->default_runtime) == 0)
            return 0;
    return fail(err, INVALID, "SANDBOXD_DEFAULT_RUNTIME: \"%s\" is not in SANDBOXD_RUNTIMES",
                settings_shown(settings->default_runtime, shown));
}

static int check_sessions(const struct settings *settings, struct error *err)
{
    if (settings->max_open_sessions.is_set && settings->max_sessions.is_set &&
        settings->max_open_sessions.value < settings->max_sessions.value)
        return fail(err, INVALID, "SANDBOXD_MAX_OPEN_SESSIONS: %lld is less than SANDBOXD_MAX_SESSIONS (%lld)",
                    (long long)settings->max_open_sessions.value, (long long)settings->max_sessions.value);
    if (settings->evict_idle_after.is_set && !settings->workspace_root)
        return fail(err, INVALID,
                    "SANDBOXD_EVICT_IDLE_AFTER: needs SANDBOXD_WORKSPACE_ROOT: without it a session that "
                    "is put to sleep loses its files");
    return 0;
}

int settings_check(const struct settings *settings, struct error *err)
{
    if (check_token(settings->token, err) < 0 || check_ranges(settings, err) < 0 || check_words(settings, err) < 0 ||
        check_paths(settings, err) < 0 || check_sandbox(settings, err) < 0 ||
        check_default_runtime(settings, err) < 0 || check_sessions(settings, err) < 0)
        return -1;
    return 0;
}
