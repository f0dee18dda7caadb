#include "clock.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"
#include "log.h"

#include <string.h>

enum { PROGRESS_EVERY_MS = 2000 };

struct building {
    const struct engine_build *build;
    int64_t next_log_ms;
    char last[160]; /* what it said last: the reason, where it fails without one */
};

static int build_target(const struct engine_build *build, struct buf *target, struct error *err)
{
    auto_buf struct buf labels = BUF_INIT(1024);
    auto_engine_json struct json_object *root = engine_json_new_object();

    engine_json_put_string(root, ENGINE_LABEL_RUNTIME, build->label_runtime);
    if (engine_json_write(root, &labels, err) < 0 || buf_append_str(target, "/build?rm=1&forcerm=1&t=", err) < 0 ||
        net_http_escape(target, build->image, err) < 0 || buf_append_str(target, "&labels=", err) < 0 ||
        net_http_escape(target, labels.data, err) < 0)
        return -1;
    if (!build->network)
        return 0;
    return buf_append_str(target, "&networkmode=", err) < 0 ? -1 : net_http_escape(target, build->network, err);
}

/* {"stream": …}, {"status": …} of a pulled base, {"error": …} or {"aux": …}. */
static int build_line(struct building *building, const char *line, size_t size, struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    const char *stream, *status, *error;
    char clean[160];

    if (strspn(line, " \t\r") >= size)
        return 0;
    if (engine_json_parse(line, size, &root, err) < 0 || engine_json_string(root, "error", &error, err) < 0 ||
        engine_json_string(root, "stream", &stream, err) < 0 || engine_json_string(root, "status", &status, err) < 0)
        return -1;
    if (error[0]) {
        engine_error_clean(clean, error, strlen(error));
        return fail(err, ENGINE, "%s%s%.70s", clean, building->last[0] ? "; before that: " : "", building->last);
    }
    if (!stream[0])
        stream = status;
    engine_error_clean(clean, stream, strlen(stream));
    if (clean[0] == '\0')
        return 0;
    memcpy(building->last, clean, sizeof clean);
    building->build->say(building->build->context, clean);
    if (clock_mono_ms() >= building->next_log_ms) {
        building->next_log_ms = clock_mono_ms() + PROGRESS_EVERY_MS;
        log_info("image.building", log_s("image", building->build->image), log_s("said", clean));
    }
    return 0;
}

int engine_image_build(struct engine *engine, const struct engine_build *build, const struct cancel *cancel,
                       struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_cleanup(cleanup_engine_lines) struct engine_lines *lines = NULL;
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    struct building building = {.build = build};
    const char *line;
    size_t size;
    int status, more;

    if (build_target(build, &target, err) < 0 ||
        engine_lines_send(engine, METRIC_ENGINE_BUILD, "POST", &target, "application/x-tar", build->tar,
                          build->tar_bytes, cancel, &lines, &status, &body, err) < 0)
        return -1;
    if (!lines)
        return engine_error("cannot build the image", status, &body, err);
    while ((more = engine_lines_next(lines, cancel, &line, &size, err)) > 0) {
        if (build_line(&building, line, size, err) < 0)
            return -1;
    }
    return more;
}
