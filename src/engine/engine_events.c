#include "alloc.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"

#include <string.h>

struct engine_events {
    struct engine_lines *lines;
};

int engine_events_open(struct engine *engine, const char *install, const struct cancel *cancel,
                       struct engine_events **ret_events, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf filter = BUF_INIT(1024);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    struct engine_lines *lines = NULL;
    int status;

    if (engine_json_filter_label(ENGINE_LABEL_INSTALL, install, "container", &filter, err) < 0 ||
        buf_append_str(&target, "/events?filters=", err) < 0 || net_http_escape(&target, filter.data, err) < 0 ||
        engine_lines_open(engine, METRIC_ENGINE_EVENTS, "GET", &target, cancel, &lines, &status, &body, err) < 0)
        return -1;
    if (!lines)
        return engine_error("cannot listen to the engine's events", status, &body, err);
    *ret_events = alloc_zero(sizeof **ret_events);
    (*ret_events)->lines = lines;
    return 0;
}

static enum engine_event_kind kind_of(const char *action)
{
    static const struct {
        const char *action;
        enum engine_event_kind kind;
    } kinds[] = {
        {"die", ENGINE_EVENT_DIED},          {"oom", ENGINE_EVENT_OOM},
        {"destroy", ENGINE_EVENT_DESTROYED}, {"pause", ENGINE_EVENT_PAUSED},
        {"unpause", ENGINE_EVENT_UNPAUSED},  {"died", ENGINE_EVENT_DIED}, /* Podman's */
        {"remove", ENGINE_EVENT_DESTROYED},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(action, kinds[i].action) == 0)
            return kinds[i].kind;
    }
    return ENGINE_EVENT_OTHER;
}

/* What the engine adds about the container: its labels, and at a death how process 1 ended. */
static int read_attributes(struct json_object *attributes, struct engine_event *event, struct error *err)
{
    const char *code;
    char *end;

    if (engine_json_copy(attributes, ENGINE_LABEL_SLOT, event->label_slot, sizeof event->label_slot, err) < 0 ||
        engine_json_string(attributes, "exitCode", &code, err) < 0)
        return -1;
    if (code[0] == '\0' && engine_json_string(attributes, "containerExitCode", &code, err) < 0) /* Podman's word */
        return -1;
    event->exit_code = (int)strtol(code, &end, 10);
    if (end == code || *end != '\0')
        event->exit_code = -1;
    return 0;
}

int engine_event_parse(const char *line, size_t size, struct engine_event *ret, struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    struct json_object *actor, *attributes;
    const char *action;
    struct engine_event event = {.exit_code = -1};

    if (engine_json_parse(line, size, &root, err) < 0 || engine_json_string(root, "Action", &action, err) < 0 ||
        engine_json_object(root, "Actor", &actor, err) < 0)
        return -1;
    event.kind = kind_of(action);
    if (actor) {
        if (engine_json_copy(actor, "ID", event.id, sizeof event.id, err) < 0 ||
            engine_json_object(actor, "Attributes", &attributes, err) < 0 ||
            (attributes && read_attributes(attributes, &event, err) < 0))
            return -1;
    }
    *ret = event;
    return 0;
}

int engine_events_next(struct engine_events *events, const struct cancel *cancel, struct engine_event *ret,
                       struct error *err)
{
    const char *line;
    size_t size;
    int more;

    do {
        more = engine_lines_next(events->lines, cancel, &line, &size, err);
        if (more < 0)
            return -1;
        if (more == 0)
            return fail(err, UNAVAILABLE, "the engine's event stream ended");
    } while (strspn(line, " \t\r") >= size); /* empty lines keep a connection alive */
    return engine_event_parse(line, size, ret, err) < 0 ? -1 : 1;
}

void engine_events_free(struct engine_events *events)
{
    if (!events)
        return;
    engine_lines_free(events->lines);
    free(events);
}
