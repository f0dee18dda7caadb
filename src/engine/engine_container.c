#include "alloc.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CREATE_MAX = 4 * 1024 * 1024 };

int engine_container_target(struct buf *target, const char *id, const char *rest, struct error *err)
{
    if (id[0] == '\0' || strcmp(id, ".") == 0 || strcmp(id, "..") == 0)
        return fail(err, NOT_FOUND, "no container has the name \"%s\"", id);
    if (buf_append_str(target, "/containers/", err) < 0 || net_http_escape(target, id, err) < 0)
        return -1;
    return buf_append_str(target, rest, err);
}

/* A verb without a body on one container. `fine`: one more status that means success (304: was so already). Blocks. */
static int verb(struct engine *engine, enum metric_engine counted, const char *method, const char *id, const char *rest,
                const char *what, int fine, const struct cancel *cancel, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    int status;

    if (engine_container_target(&target, id, rest, err) < 0 ||
        engine_request(engine, counted, method, &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    return (status >= 200 && status < 300) || status == fine ? 0 : engine_error(what, status, &body, err);
}

int engine_create(struct engine *engine, const struct engine_create *spec, const struct cancel *cancel,
                  char ret_id[ENGINE_ID_BYTES], struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(CREATE_MAX);
    auto_buf struct buf answer = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    int status;

    if (buf_append_str(&target, "/containers/create", err) < 0 ||
        (spec->name && (buf_append_str(&target, "?name=", err) < 0 || net_http_escape(&target, spec->name, err) < 0)) ||
        engine_template_create(spec, &body, err) < 0 ||
        engine_request(engine, METRIC_ENGINE_CREATE, "POST", &target, &body, cancel, &status, &answer, err) < 0)
        return -1;
    if (status != 201) {
        (void)engine_error("cannot create the container", status, &answer, err);
        if (status == 500 && spec->name && strstr(err->text, "name is already in use"))
            err->code = ERROR_CONFLICT; /* Podman's answer where Docker's is 409 */
        return -1;
    }
    if (engine_json_parse(buf_str(&answer), answer.size, &root, err) < 0 ||
        engine_json_copy(root, "Id", ret_id, ENGINE_ID_BYTES, err) < 0)
        return -1;
    return ret_id[0] ? 0 : fail(err, ENGINE, "the engine made a container without an id");
}

int engine_start(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    return verb(engine, METRIC_ENGINE_START, "POST", id, "/start", "cannot start the container", 304, cancel, err);
}

int engine_stop(struct engine *engine, const char *id, int grace_seconds, const struct cancel *cancel,
                struct error *err)
{
    char rest[32];

    (void)snprintf(rest, sizeof rest, "/stop?t=%d", grace_seconds);
    return verb(engine, METRIC_ENGINE_STOP, "POST", id, rest, "cannot stop the container", 304, cancel, err);
}

int engine_kill(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    return verb(engine, METRIC_ENGINE_KILL, "POST", id, "/kill?signal=SIGKILL", "cannot kill the container", 0, cancel,
                err);
}

int engine_pause(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    return verb(engine, METRIC_ENGINE_PAUSE, "POST", id, "/pause", "cannot pause the container", 0, cancel, err);
}

int engine_unpause(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    return verb(engine, METRIC_ENGINE_UNPAUSE, "POST", id, "/unpause", "cannot unpause the container", 0, cancel, err);
}

enum { REMOVE_TRIES = 4, REMOVE_PAUSE_MS = 150 };

/* The engine unmounts and deletes while the kernel may still hold what it deletes ("unable to remove filesystem"): the container is
 * dead then, and the next try ends it. */
static int remove_patiently(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    for (int tries = 1;; tries++) {
        struct cancel pause = cancel_within(cancel, REMOVE_PAUSE_MS);
        struct error waited = ERROR_INIT;

        if (verb(engine, METRIC_ENGINE_REMOVE, "DELETE", id, "?force=1&v=1", "cannot remove the container", 404, cancel,
                 err) == 0)
            return 0;
        if (err->code != ERROR_ENGINE || tries == REMOVE_TRIES || cancel_check(cancel, &waited) < 0)
            return -1;
        (void)cancel_poll(&pause, NULL, 0, &waited);
        error_clear(err);
    }
}

int engine_remove(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err)
{
    struct error why = ERROR_INIT;

    if (remove_patiently(engine, id, cancel, &why) == 0)
        return 0;
    /* Somebody else is at it: gone only when that has ended. */
    if (why.code == ERROR_CONFLICT && strstr(why.text, "already in progress"))
        return verb(engine, METRIC_ENGINE_REMOVE, "POST", id, "/wait?condition=removed",
                    "cannot wait for the container's removal", 404, cancel, err);
    *err = why;
    return -1;
}

int engine_rename(struct engine *engine, const char *id, const char *name, const struct cancel *cancel,
                  struct error *err)
{
    auto_buf struct buf rest = BUF_INIT(1024);

    if (buf_append_str(&rest, "/rename?name=", err) < 0 || net_http_escape(&rest, name, err) < 0)
        return -1;
    return verb(engine, METRIC_ENGINE_RENAME, "POST", id, rest.data, "cannot rename the container", 0, cancel, err);
}

static enum engine_state state_of(const char *text)
{
    static const struct {
        const char *text;
        enum engine_state state;
    } states[] = {
        {"created", ENGINE_CREATED}, {"running", ENGINE_RUNNING}, {"paused", ENGINE_PAUSED},
        {"exited", ENGINE_EXITED},   {"dead", ENGINE_DEAD},       {"configured", ENGINE_CREATED}, /* Podman's words */
        {"stopped", ENGINE_EXITED},
    };

    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        if (strcmp(text, states[i].text) == 0)
            return states[i].state;
    }
    return ENGINE_OTHER;
}

/* "2024-05-01T10:00:00.123456789Z" (or with +02:00) in milliseconds; 0 for the year 1 (never) and what is none. */
static int64_t time_of(const char *text)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ms = 0, unit = 100, offset_s = 0;
    int hours, minutes;

    if (!rest || tm.tm_year < 70)
        return 0;
    if (*rest == '.') {
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            ms += (*rest - '0') * unit;
    }
    if ((*rest == '+' || *rest == '-') && sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2)
        offset_s = (*rest == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    else if (*rest != 'Z')
        return 0;
    return ((int64_t)timegm(&tm) - offset_s) * 1000 + ms;
}

static int read_labels(struct json_object *labels, struct engine_container *ret, struct error *err)
{
    if (!labels)
        return 0;
    return engine_json_copy(labels, ENGINE_LABEL_INSTALL, ret->label_install, sizeof ret->label_install, err) < 0 ||
                   engine_json_copy(labels, ENGINE_LABEL_SLOT, ret->label_slot, sizeof ret->label_slot, err) < 0 ||
                   engine_json_copy(labels, ENGINE_LABEL_SPEC, ret->label_spec, sizeof ret->label_spec, err) < 0
               ? -1
               : 0;
}

/* Names are for people: one that is too long is cut. */
static void read_name(const char *name, struct engine_container *ret)
{
    (void)snprintf(ret->name, sizeof ret->name, "%s", name[0] == '/' ? name + 1 : name);
}

static int read_inspect(struct json_object *root, struct engine_container *ret, struct error *err)
{
    struct json_object *state, *config, *labels;
    const char *status, *name, *finished;
    int64_t exit_code;

    if (engine_json_copy(root, "Id", ret->id, sizeof ret->id, err) < 0 ||
        engine_json_string(root, "Name", &name, err) < 0 || engine_json_object(root, "State", &state, err) < 0 ||
        engine_json_string(state, "Status", &status, err) < 0 ||
        engine_json_bool(state, "OOMKilled", &ret->oom_killed, err) < 0 ||
        engine_json_int(state, "ExitCode", &exit_code, err) < 0 ||
        engine_json_string(state, "FinishedAt", &finished, err) < 0 ||
        engine_json_object(root, "Config", &config, err) < 0 ||
        engine_json_object(config, "Labels", &labels, err) < 0 || read_labels(labels, ret, err) < 0)
        return -1;
    ret->state = state_of(status);
    ret->exit_code = (int)exit_code;
    ret->finished_at_unix_ms = time_of(finished);
    read_name(name, ret);
    return 0;
}

int engine_container_inspect(struct engine *engine, const char *id, const struct cancel *cancel,
                             struct json_object **ret, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    int status;

    if (engine_container_target(&target, id, "/json", err) < 0 ||
        engine_request(engine, METRIC_ENGINE_INSPECT, "GET", &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    if (status != 200)
        return engine_error("cannot inspect the container", status, &body, err);
    return engine_json_parse(buf_str(&body), body.size, ret, err);
}

int engine_inspect(struct engine *engine, const char *id, const struct cancel *cancel, struct engine_container *ret,
                   struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    struct engine_container found = {0};

    if (engine_container_inspect(engine, id, cancel, &root, err) < 0 || read_inspect(root, &found, err) < 0)
        return -1;
    *ret = found;
    return 0;
}

int engine_container_read_listed(struct json_object *item, struct engine_container *ret, struct error *err)
{
    struct json_object *labels, *names;
    const char *state;

    if (engine_json_copy(item, "Id", ret->id, sizeof ret->id, err) < 0 ||
        engine_json_string(item, "State", &state, err) < 0 || engine_json_array(item, "Names", &names, err) < 0 ||
        engine_json_object(item, "Labels", &labels, err) < 0 || read_labels(labels, ret, err) < 0)
        return -1;
    if (engine_json_count(names) > 0 && engine_json_item_string(names, 0))
        read_name(engine_json_item_string(names, 0), ret);
    ret->state = state_of(state);
    return 0;
}

int engine_container_list(struct engine *engine, const char *filter, const struct cancel *cancel,
                          struct json_object **ret, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    int status;

    if (buf_append_str(&target, "/containers/json?all=1&filters=", err) < 0 ||
        net_http_escape(&target, filter, err) < 0 ||
        engine_request(engine, METRIC_ENGINE_LIST, "GET", &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    if (status != 200)
        return engine_error("cannot list containers", status, &body, err);
    if (engine_json_parse(buf_str(&body), body.size, &root, err) < 0)
        return -1;
    if (!engine_json_is_array(root))
        return fail(err, ENGINE, "the engine's list of containers is no list");
    *ret = take_ptr(root);
    return 0;
}

int engine_list(struct engine *engine, const char *install, const struct cancel *cancel,
                struct engine_container **ret_list, size_t *ret_count, struct error *err)
{
    auto_buf struct buf filter = BUF_INIT(1024);
    auto_engine_json struct json_object *root = NULL;
    auto_free struct engine_container *list = NULL;
    size_t count, kept = 0;

    if (engine_json_filter_label(ENGINE_LABEL_INSTALL, install, NULL, &filter, err) < 0 ||
        engine_container_list(engine, filter.data, cancel, &root, err) < 0)
        return -1;
    count = engine_json_count(root);
    list = alloc_array(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        if (engine_container_read_listed(engine_json_item(root, i), &list[kept], err) < 0)
            return -1;
        /* The engine filtered already; what we act on by force is checked again. */
        if (strcmp(list[kept].label_install, install) == 0)
            kept++;
        else
            list[kept] = (struct engine_container){0};
    }
    *ret_list = take_ptr(list);
    *ret_count = kept;
    return 0;
}
