#include "clock.h"
#include "engine.h"
#include "engine_json.h"
#include "engine_private.h"
#include "log.h"

#include <string.h>

enum { PROGRESS_EVERY_MS = 5000, SAY_EVERY_MS = 500 };

/* The name as a path: the engine's routes take its slashes as they are. */
static int append_image(struct buf *target, const char *image, struct error *err)
{
    auto_buf struct buf part = BUF_INIT(1024);

    for (;;) {
        size_t size = strcspn(image, "/");

        buf_clear(&part);
        if (buf_append(&part, image, size, err) < 0 || net_http_escape(target, part.data, err) < 0)
            return -1;
        if (image[size] == '\0')
            return 0;
        if (buf_append_str(target, "/", err) < 0)
            return -1;
        image += size + 1;
    }
}

int engine_image_inspect(struct engine *engine, const char *image, const struct cancel *cancel,
                         struct engine_image *ret, struct error *err)
{
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    auto_engine_json struct json_object *root = NULL;
    struct json_object *config;
    struct engine_image found = {0};
    int status;

    if (buf_append_str(&target, "/images/", err) < 0 || append_image(&target, image, err) < 0 ||
        buf_append_str(&target, "/json", err) < 0 ||
        engine_request(engine, METRIC_ENGINE_IMAGE, "GET", &target, NULL, cancel, &status, &body, err) < 0)
        return -1;
    if (status != 200)
        return engine_error("cannot inspect the image", status, &body, err);
    if (engine_json_parse(buf_str(&body), body.size, &root, err) < 0 ||
        engine_json_copy(root, "Id", found.id, sizeof found.id, err) < 0 ||
        engine_json_object(root, "Config", &config, err) < 0 ||
        (config && engine_json_copy(config, "User", found.user, sizeof found.user, err) < 0))
        return -1;
    *ret = found;
    return 0;
}

/* "repository" and "tag" of a reference: the tag is behind the last colon that no slash follows; a digest stays whole.
 */
static size_t repository_size(const char *image)
{
    const char *colon = strrchr(image, ':');

    return strchr(image, '@') || !colon || strchr(colon, '/') ? strlen(image) : (size_t)(colon - image);
}

static int pull_target(const char *image, struct buf *target, struct error *err)
{
    size_t size = repository_size(image);
    auto_buf struct buf repository = BUF_INIT(1024);

    if (buf_append(&repository, image, size, err) < 0 || buf_append_str(target, "/images/create?fromImage=", err) < 0 ||
        net_http_escape(target, repository.data, err) < 0)
        return -1;
    if (strchr(image, '@')) /* the digest is in fromImage; without a tag the engine would pull all of them */
        return 0;
    return buf_append_str(target, "&tag=", err) < 0 ||
                   net_http_escape(target, image[size] ? image + size + 1 : "latest", err) < 0
               ? -1
               : 0;
}

struct pull {
    const char *image;
    void (*say)(void *context, const char *text);
    void *context;
    int64_t next_say_ms;
    int64_t next_log_ms;
};

/* One line of progress: {"status": …} or {"error": …}. */
static int pull_line(struct pull *pull, const char *line, size_t size, struct error *err)
{
    auto_engine_json struct json_object *root = NULL;
    const char *status, *error, *id;
    char clean[160];

    if (size == 0 || (size == 1 && line[0] == '\r'))
        return 0;
    if (engine_json_parse(line, size, &root, err) < 0 || engine_json_string(root, "error", &error, err) < 0 ||
        engine_json_string(root, "status", &status, err) < 0 || engine_json_string(root, "id", &id, err) < 0)
        return -1;
    if (error[0]) {
        engine_error_clean(clean, error, strlen(error));
        return fail(err, ENGINE, "cannot pull %.60s: %s", pull->image, clean);
    }
    engine_error_clean(clean, status, strlen(status));
    if (pull->say && clock_mono_ms() >= pull->next_say_ms) {
        pull->next_say_ms = clock_mono_ms() + SAY_EVERY_MS;
        pull->say(pull->context, clean);
    }
    if (clock_mono_ms() >= pull->next_log_ms) {
        pull->next_log_ms = clock_mono_ms() + PROGRESS_EVERY_MS;
        log_info("image.pulling", log_s("image", pull->image), log_s("status", clean), log_s("layer", id));
    }
    return 0;
}

int engine_image_pull(struct engine *engine, const char *image, void (*say)(void *context, const char *text),
                      void *context, const struct cancel *cancel, struct error *err)
{
    struct pull pull = {.image = image, .say = say, .context = context};
    auto_buf struct buf target = BUF_INIT(ENGINE_TARGET_MAX);
    auto_cleanup(cleanup_engine_lines) struct engine_lines *lines = NULL;
    auto_buf struct buf body = BUF_INIT(ENGINE_BODY_MAX);
    const char *line;
    size_t size;
    int status, more;

    if (pull_target(image, &target, err) < 0 ||
        engine_lines_open(engine, METRIC_ENGINE_PULL, "POST", &target, cancel, &lines, &status, &body, err) < 0)
        return -1;
    if (!lines)
        return engine_error("cannot pull the image", status, &body, err);
    while ((more = engine_lines_next(lines, cancel, &line, &size, err)) > 0) {
        if (pull_line(&pull, line, size, err) < 0)
            return -1;
    }
    return more;
}
