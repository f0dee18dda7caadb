/* The product's structs as the contract writes them, keys in its order. */
#include "wire_private.h"

#include <string.h>

int wire_reply_json(struct http_reply *reply, const struct wire_writer *writer, struct error *err)
{
    if (wire_writer_end(writer, err) < 0) {
        buf_done(writer->out);
        return -1;
    }
    http_reply_buf(reply, WIRE_JSON_TYPE, writer->out);
    return 0;
}

static void put_usage(struct wire_writer *writer, const struct session_view *view)
{
    if (!view->has_usage) {
        wire_put_null(writer, "usage");
        return;
    }
    wire_put_open(writer, "usage", '{');
    wire_put_size(writer, "memory_bytes", view->usage.memory_bytes);
    wire_put_size(writer, "memory_limit_bytes", view->memory_limit_bytes);
    wire_put_opt_float(writer, "cpu_percent", (struct opt_float){view->cpu_percent >= 0, view->cpu_percent});
    wire_put_size(writer, "pids", view->usage.pids);
    wire_put_close(writer, '}');
}

static void open_session(struct wire_writer *writer, const char *key, const struct session_view *view)
{
    wire_put_open(writer, key, '{');
    wire_put_str(writer, "session_id", view->id);
    wire_put_str(writer, "runtime", view->runtime);
    wire_put_str(writer, "tenant", view->tenant[0] ? view->tenant : NULL);
    wire_put_bool(writer, "alive", view->alive);
    wire_put_str(writer, "state", view->hibernated ? "hibernated" : "running");
    wire_put_seconds(writer, "created_at", view->created_at_unix_us);
    wire_put_seconds(writer, "last_activity", view->last_activity_unix_us);
    wire_put_seconds(writer, "idle_seconds", view->idle_us);
    put_usage(writer, view);
}

void wire_put_session(struct wire_writer *writer, const char *key, const struct session_view *view)
{
    open_session(writer, key, view);
    wire_put_close(writer, '}');
}

void wire_put_session_detail(struct wire_writer *writer, const char *key, const struct session_view *view)
{
    open_session(writer, key, view);
    wire_put_bool(writer, "frozen", view->frozen);
    wire_put_bool(writer, "over_quota", view->over_quota);
    wire_put_int(writer, "running_commands", view->running_commands);
    wire_put_str(writer, "running", view->running[0] ? view->running : NULL);
    if (view->expires_at_unix_us)
        wire_put_seconds(writer, "expires_at", view->expires_at_unix_us);
    else
        wire_put_null(writer, "expires_at");
    wire_put_close(writer, '}');
}

void wire_put_health(struct wire_writer *writer, const char *key, struct sessions *sessions)
{
    struct policy *policy = sessions_policy(sessions);
    struct sessions_health health;

    sessions_health(sessions, &health);
    wire_put_open(writer, key, '{');
    wire_put_str(writer, "status", "ok");
    wire_put_int(writer, "sessions", health.resident);
    wire_put_opt_int(writer, "limit", policy->max_sessions);
    wire_put_int(writer, "open_sessions", health.open);
    wire_put_opt_int(writer, "open_limit", policy->max_open_sessions);
    wire_put_open(writer, "runtimes", '[');
    for (size_t i = 0; i < policy->runtime_count; i++)
        wire_put_str(writer, NULL, policy->runtimes[i].alias);
    wire_put_close(writer, ']');
    wire_put_close(writer, '}');
    policy_unref(policy);
}

static void put_limits(struct wire_writer *writer, const struct policy_limits *limits)
{
    wire_put_str(writer, "mem_limit", limits->mem_limit);
    wire_put_str(writer, "memswap_limit", limits->memswap_limit);
    wire_put_opt_float(writer, "cpus", limits->cpus);
    wire_put_opt_int(writer, "cpu_shares", limits->cpu_shares);
    wire_put_opt_int(writer, "pids_limit", limits->pids_limit);
    wire_put_str(writer, "network_mode", limits->network_mode);
    wire_put_str(writer, "oci_runtime", limits->oci_runtime);
}

static void put_runtime(struct wire_writer *writer, const struct policy *policy, const struct policy_runtime *runtime)
{
    struct policy_limits limits = policy_effective(policy, runtime);

    wire_put_open(writer, NULL, '{');
    wire_put_str(writer, "alias", runtime->alias);
    wire_put_str(writer, "image", runtime->image);
    wire_put_str(writer, "description", runtime->description);
    wire_put_bool(writer, "builds", runtime->builds);
    put_limits(writer, &limits);
    wire_put_close(writer, '}');
}

void wire_put_policy(struct wire_writer *writer, struct sessions *sessions)
{
    const struct sessions_settings *settings = sessions_settings(sessions);
    struct policy *policy = sessions_policy(sessions);

    wire_put_open(writer, NULL, '{');
    wire_put_open(writer, "runtimes", '[');
    for (size_t i = 0; i < policy->runtime_count; i++)
        put_runtime(writer, policy, &policy->runtimes[i]);
    wire_put_close(writer, ']');
    wire_put_str(writer, "default_runtime", policy->default_runtime);
    wire_put_opt_int(writer, "max_sessions", policy->max_sessions);
    wire_put_opt_int(writer, "max_open_sessions", policy->max_open_sessions);
    wire_put_opt_int(writer, "max_sessions_per_tenant", policy->max_sessions_per_tenant);
    wire_put_opt_int(writer, "evict_idle_after", policy->evict_idle_after);
    put_limits(writer, &policy->limits);
    wire_put_str(writer, "work_dir", settings->work_dir);
    wire_put_int(writer, "idle_timeout", policy->idle_timeout_s);
    wire_put_int(writer, "execute_timeout", policy->execute_timeout_s);
    wire_put_int(writer, "max_read_bytes", policy->max_read_bytes);
    wire_put_bool(writer, "persist_containers", settings->persist_containers);
    wire_put_size(writer, "sandbox_uid", settings->sandbox_uid);
    wire_put_opt_int(writer, "workspace_ttl", policy->workspace_ttl);
    wire_put_opt_int(writer, "container_ttl", policy->container_ttl);
    wire_put_str(writer, "tmpfs_size", policy->tmpfs_size);
    wire_put_bool(writer, "prewarm", policy->prewarm);
    wire_put_bool(writer, "buildkit", false);
    wire_put_bool(writer, "native_files", sessions_native_files(sessions));
    wire_put_bool(writer, "native_writes", sessions_native_writes(sessions));
    wire_put_bool(writer, "native_realpath", sessions_native_files(sessions));
    wire_put_close(writer, '}');
    policy_unref(policy);
}

void wire_put_event(struct wire_writer *writer, const struct session_event *event)
{
    wire_put_open(writer, NULL, '{');
    wire_put_int(writer, "seq", (int64_t)event->seq);
    wire_put_seconds(writer, "at", event->at_unix_us);
    wire_put_str(writer, "op", event->op);
    wire_put_str(writer, "target", event->target);
    wire_put_bool(writer, "ok", event->ok);
    wire_put_str(writer, "detail", event->detail);
    wire_put_milliseconds(writer, "duration_ms", event->duration_us);
    wire_put_close(writer, '}');
}

void wire_put_file(struct wire_writer *writer, struct wire_text name, struct wire_text path, bool is_dir,
                   int64_t size_bytes, const int64_t *mtime_unix_us)
{
    /* Listings have many of these: the keys are written as they are. */
    wire_put_open(writer, NULL, '{');
    wire_put_raw(writer, "\"name\":");
    wire_put_text(writer, NULL, name.data, name.size);
    wire_put_raw(writer, ",\"path\":");
    wire_put_text(writer, NULL, path.data, path.size);
    wire_put_raw(writer, is_dir ? ",\"is_dir\":true,\"size\":" : ",\"is_dir\":false,\"size\":");
    wire_put_size(writer, NULL, size_bytes);
    wire_put_raw(writer, ",\"modified_at\":");
    if (mtime_unix_us && !is_dir)
        wire_put_time(writer, NULL, *mtime_unix_us);
    else
        wire_put_null(writer, NULL);
    wire_put_raw(writer, "}");
}
