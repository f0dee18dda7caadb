#include "wire_policy.h"

#include "alloc.h"

#include <string.h>

static const char *const known_fields[] = {"default_runtime",   "max_sessions",
                                           "max_open_sessions", "max_sessions_per_tenant",
                                           "evict_idle_after",  "idle_timeout",
                                           "execute_timeout",   "max_read_bytes",
                                           "workspace_ttl",     "container_ttl",
                                           "mem_limit",         "memswap_limit",
                                           "tmpfs_size",        "cpus",
                                           "cpu_shares",        "pids_limit",
                                           "runtimes",          NULL};
static const char *const known_limits[] = {"mem_limit", "memswap_limit", "cpus", "cpu_shares", "pids_limit", NULL};

/* Is the field there and null, where null is none? */
static bool is_lifted(const struct wire_reader *reader, const char *field, enum wire_need need)
{
    struct json_object *value;

    return need == WIRE_NULLABLE && json_member(reader->object, field, &value) && !value;
}

/* Within what config/ takes at the start. */
static void read_int(const struct wire_reader *reader, const char *field, enum wire_need need, int64_t minimum,
                     struct change_int *ret)
{
    if (is_lifted(reader, field, need))
        ret->is_given = true;
    else if (wire_read_int_within(reader, field, need, minimum, INT32_MAX, &ret->to.value))
        ret->is_given = ret->to.is_set = true;
}

static void read_text(const struct wire_reader *reader, const char *field, struct change_text *ret)
{
    struct wire_text text;

    if (is_lifted(reader, field, WIRE_NULLABLE)) {
        ret->is_given = true;
    } else if (wire_read_text(reader, field, WIRE_NULLABLE, &text)) {
        if (wire_has_nul(text))
            wire_invalid_add(reader->invalid,
                             (struct wire_at){"body", reader->field ? reader->field : field, reader->key,
                                              reader->field ? field : NULL, -1},
                             "value_error", "Value error, a NUL in a text");
        ret->is_given = true;
        ret->to = text.data;
    }
}

static void read_cpus(const struct wire_reader *reader, struct change_float *ret)
{
    if (is_lifted(reader, "cpus", WIRE_NULLABLE))
        ret->is_given = true;
    else if (wire_read_positive(reader, "cpus", WIRE_NULLABLE, &ret->to.value))
        ret->is_given = ret->to.is_set = true;
}

static void read_limits(const struct wire_reader *reader, struct change_limits *ret)
{
    read_text(reader, "mem_limit", &ret->mem_limit);
    read_text(reader, "memswap_limit", &ret->memswap_limit);
    read_cpus(reader, &ret->cpus);
    read_int(reader, "cpu_shares", WIRE_NULLABLE, 1, &ret->cpu_shares);
    read_int(reader, "pids_limit", WIRE_NULLABLE, 1, &ret->pids_limit);
}

static void read_runtimes(const struct wire_reader *reader, struct policy_change *ret)
{
    struct json_object *runtimes = wire_read_object(reader, "runtimes", WIRE_NULLABLE);

    if (!runtimes)
        return;
    ret->runtimes = alloc_array((size_t)json_object_object_length(runtimes), sizeof *ret->runtimes);
    json_object_object_foreach(runtimes, alias, limits)
    {
        struct change_runtime *runtime = &ret->runtimes[ret->runtime_count++];
        struct wire_reader inside = {limits, reader->invalid, "runtimes", alias};

        runtime->alias = alias;
        if (!json_object_is_type(limits, json_type_object)) {
            wire_invalid_add(reader->invalid, (struct wire_at){"body", "runtimes", alias, NULL, -1},
                             "model_attributes_type",
                             "Input should be a valid dictionary or object to extract fields from");
            continue;
        }
        read_limits(&inside, &runtime->limits);
        wire_read_only(&inside, known_limits);
    }
}

void wire_policy_read(const struct wire_reader *reader, struct policy_change *ret)
{
    *ret = (struct policy_change){.runtimes = NULL};
    read_text(reader, "default_runtime", &ret->default_runtime);
    read_int(reader, "max_sessions", WIRE_NULLABLE, 0, &ret->max_sessions);
    read_int(reader, "max_open_sessions", WIRE_NULLABLE, 0, &ret->max_open_sessions);
    read_int(reader, "max_sessions_per_tenant", WIRE_NULLABLE, 0, &ret->max_sessions_per_tenant);
    read_int(reader, "evict_idle_after", WIRE_NULLABLE, 0, &ret->evict_idle_after);
    read_int(reader, "idle_timeout", WIRE_OPTIONAL, 0, &ret->idle_timeout);
    read_int(reader, "execute_timeout", WIRE_OPTIONAL, 1, &ret->execute_timeout);
    read_int(reader, "max_read_bytes", WIRE_OPTIONAL, 1, &ret->max_read_bytes);
    read_int(reader, "workspace_ttl", WIRE_NULLABLE, 0, &ret->workspace_ttl);
    read_int(reader, "container_ttl", WIRE_NULLABLE, 0, &ret->container_ttl);
    read_text(reader, "tmpfs_size", &ret->tmpfs_size);
    read_limits(reader, &ret->limits);
    read_runtimes(reader, ret);
    wire_read_only(reader, known_fields);
}

void wire_policy_change_done(struct policy_change *change)
{
    free(change->runtimes);
}

/* -- documents -- */

static void set(struct json_object *object, const char *name, struct json_object *value)
{
    (void)json_object_object_add(object, name, json_object_get(value));
}

static void merge_flat(struct json_object *into, struct json_object *from)
{
    json_object_object_foreach(from, name, value)
    {
        set(into, name, value);
    }
}

void wire_policy_merge(struct json_object *document, struct json_object *change)
{
    json_object_object_foreach(change, name, value)
    {
        struct json_object *runtimes;

        if (strcmp(name, "runtimes") != 0) {
            set(document, name, value);
            continue;
        }
        if (!value)
            continue; /* nothing to change */
        if (!json_member(document, "runtimes", &runtimes)) {
            runtimes = json_object_new_object();
            (void)json_object_object_add(document, "runtimes", runtimes);
        }
        json_object_object_foreach(value, alias, limits)
        {
            struct json_object *held;

            if (!json_member(runtimes, alias, &held)) {
                held = json_object_new_object();
                (void)json_object_object_add(runtimes, alias, held);
            }
            merge_flat(held, limits);
        }
    }
}

bool wire_policy_prune(struct json_object *document, const struct policy *policy)
{
    struct json_object *value;
    bool pruned = false;

    if (json_member(document, "default_runtime", &value) && value &&
        !policy_runtime(policy, json_object_get_string(value))) {
        json_object_object_del(document, "default_runtime");
        pruned = true;
    }
    if (json_member(document, "runtimes", &value) && value) {
        json_object_object_foreach(value, alias, limits) /* its next entry is known before this one goes */
        {
            (void)limits;
            if (!policy_runtime(policy, alias)) {
                json_object_object_del(value, alias);
                pruned = true;
            }
        }
    }
    return pruned;
}
