/* Images that are built rather than pulled: one build an image at a time, on a thread of its own, so that it outlives who asked. */
#include "alloc.h"
#include "cleanup.h"
#include "clock.h"
#include "log.h"
#include "provider_docker_private.h"
#include "provider_recipe.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RETRY_FIRST_MS = 30 * 1000, RETRY_LAST_MS = 30 * 60 * 1000 };

struct build {
    struct build *next;
    struct docker_provider *owner;
    char *image;
    char tag[RECIPE_TAG_BYTES];
    char *alias, *base_image, *apt, *pip, *npm, *setup, *env, *dockerfile_dir;

    /* owner's lock */
    bool running;
    unsigned failures; /* in a row */
    int64_t next_mono_ms;
    uint64_t steps; /* how often `said` changed, or it ended */
    uint64_t ends;
    char said[160];
};

static struct provider_recipe recipe_of(const struct build *build)
{
    return (struct provider_recipe){build->alias, build->base_image, build->apt, build->pip,
                                    build->npm,   build->setup,      build->env, build->dockerfile_dir};
}

/* "berth-runtime/<alias>:<tag>"; an alias may hold more than a repository's name. */
static char *name_of(const char *alias, const char *tag)
{
    char *name = alloc_format("berth-runtime/%s:%s", alias, tag);
    char *part = strchr(name, '/') + 1;
    bool was_letter = false;

    for (; *part != ':'; part++) {
        bool is_letter = isalnum((unsigned char)*part);

        *part = is_letter ? (char)tolower((unsigned char)*part) : was_letter && part[1] != ':' ? '-' : 'x';
        was_letter = is_letter;
    }
    return name;
}

int provider_docker_add_recipe(struct provider *provider, const struct provider_recipe *recipe, char **ret_image,
                               struct error *err)
{
    struct docker_provider *self = (struct docker_provider *)provider;
    char tag[RECIPE_TAG_BYTES];
    auto_close int fd = -1;
    struct build *build;
    int64_t size_bytes;

    if (recipe_context(recipe, self->state_dir, &fd, &size_bytes, tag, err) < 0)
        return -1;
    build = alloc_zero(sizeof *build);
    *build = (struct build){
        .next = self->builds,
        .owner = self,
        .image = name_of(recipe->alias, tag),
        .alias = alloc_str(recipe->alias),
        .base_image = alloc_str(recipe->base_image),
        .apt = alloc_str(recipe->apt),
        .pip = alloc_str(recipe->pip),
        .npm = alloc_str(recipe->npm),
        .setup = alloc_str(recipe->setup),
        .env = alloc_str(recipe->env),
        .dockerfile_dir = alloc_str(recipe->dockerfile_dir),
    };
    memcpy(build->tag, tag, sizeof tag);
    self->builds = build;
    *ret_image = alloc_str(build->image);
    return 0;
}

static struct build *find(struct docker_provider *self, const char *image)
{
    for (struct build *at = self->builds; at; at = at->next)
        if (strcmp(at->image, image) == 0)
            return at;
    return NULL;
}

bool docker_builds(struct docker_provider *self, const char *image)
{
    return find(self, image) != NULL;
}

/* -- the thread -- */

static void note(void *context, const char *text)
{
    struct build *build = context;

    pthread_mutex_lock(&build->owner->lock);
    (void)snprintf(build->said, sizeof build->said, "%s", text);
    build->steps++;
    waitq_wake_all(&build->owner->build_changed);
    pthread_mutex_unlock(&build->owner->lock);
}

static int build_now(struct build *build, const struct cancel *cancel, struct error *err)
{
    const struct provider_recipe recipe = recipe_of(build);
    struct engine_build order = {.image = build->image,
                                 .label_runtime = build->alias,
                                 .network = build->owner->build_network,
                                 .say = note,
                                 .context = build};
    char tag[RECIPE_TAG_BYTES];
    auto_close int fd = -1;
    int64_t size_bytes;
    void *tar;
    int result;

    if (recipe_context(&recipe, build->owner->state_dir, &fd, &size_bytes, tag, err) < 0)
        return -1;
    if (strcmp(tag, build->tag) != 0)
        return fail(err, INVALID, "%.100s is not what it was at the start: start the broker again",
                    build->dockerfile_dir);
    tar = mmap(NULL, (size_t)size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (tar == MAP_FAILED)
        return fail_errno(err, "the build context");
    order.tar = tar;
    order.tar_bytes = (size_t)size_bytes;
    result = engine_image_build(build->owner->engine, &order, cancel, err);
    (void)munmap(tar, (size_t)size_bytes);
    return result;
}

/* 30 s after the first failure, then twice as long each time, up to half an hour. */
static int64_t pause_ms(unsigned failures)
{
    int64_t ms = RETRY_FIRST_MS;

    for (unsigned i = 1; i < failures && ms < RETRY_LAST_MS; i++)
        ms *= 2;
    return ms < RETRY_LAST_MS ? ms : RETRY_LAST_MS;
}

static void *work(void *context)
{
    struct build *build = context;
    struct docker_provider *self = build->owner;
    const struct cancel stop = {.stop_fd = self->stop_fd, .client_fd = -1};
    struct cancel cancel = cancel_within(&stop, self->build_timeout_ms);
    int64_t begun_ms = clock_mono_ms();
    struct error err = ERROR_INIT;
    int result;

    log_info("image.build", log_s("image", build->image));
    result = build_now(build, &cancel, &err);
    pthread_mutex_lock(&self->lock);
    build->failures = result == 0 ? 0 : build->failures + 1;
    build->next_mono_ms = clock_mono_ms() + (result == 0 ? 0 : pause_ms(build->failures));
    pthread_mutex_unlock(&self->lock);
    if (result == 0)
        log_info("image.built", log_s("image", build->image), log_i("ms", clock_mono_ms() - begun_ms));
    else
        log_warn("image.not_built", log_s("image", build->image), log_e(&err),
                 log_i("again_in_s", pause_ms(build->failures) / 1000));
    pthread_mutex_lock(&self->lock);
    build->running = false;
    build->steps++;
    build->ends++;
    waitq_wake_all(&self->build_changed);
    pthread_mutex_unlock(&self->lock); /* the provider may be gone from here on */
    return NULL;
}

/* -- who asks -- */

static int begin_locked(struct build *build, struct error *err)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int number;

    if (clock_mono_ms() < build->next_mono_ms)
        return fail(err, ENGINE, "the image of this runtime could not be built; it is tried again in %lld s",
                    (long long)(build->next_mono_ms - clock_mono_ms()) / 1000 + 1);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    build->running = true;
    build->said[0] = '\0';
    number = pthread_create(&thread, &attributes, work, build);
    (void)pthread_attr_destroy(&attributes);
    if (number == 0)
        return 0;
    build->running = false;
    errno = number;
    return fail_errno(err, "starting a thread");
}

int docker_build(struct docker_provider *self, const char *image, void (*say)(void *context, const char *text),
                 void *context, const struct cancel *cancel, struct error *err)
{
    struct build *build = find(self, image);
    uint64_t ends, steps;
    int result = 0;

    pthread_mutex_lock(&self->lock);
    ends = build->ends;
    steps = build->steps;
    if (!build->running)
        result = begin_locked(build, err);
    while (result == 0 && build->ends == ends) {
        if (say && build->steps != steps && build->said[0]) {
            char said[sizeof build->said];

            steps = build->steps;
            memcpy(said, build->said, sizeof said);
            pthread_mutex_unlock(&self->lock);
            say(context, said);
            pthread_mutex_lock(&self->lock);
            continue;
        }
        result = waitq_wait(&self->build_changed, &self->lock, cancel, err);
    }
    if (result == 0 && build->failures > 0)
        result = fail(err, ENGINE, "the image of this runtime could not be built (see the broker's log)");
    pthread_mutex_unlock(&self->lock);
    return result;
}

static bool any_running(const struct docker_provider *self)
{
    for (const struct build *at = self->builds; at; at = at->next)
        if (at->running)
            return true;
    return false;
}

void docker_builds_done(struct docker_provider *self)
{
    const struct cancel never = CANCEL_NEVER;
    struct error ignored = ERROR_INIT;
    struct build *build;

    pthread_mutex_lock(&self->lock);
    while (any_running(self) && waitq_wait(&self->build_changed, &self->lock, &never, &ignored) == 0)
        ;
    pthread_mutex_unlock(&self->lock);
    while ((build = self->builds)) {
        self->builds = build->next;
        free(build->image);
        free(build->alias);
        free(build->base_image);
        free(build->apt);
        free(build->pip);
        free(build->npm);
        free(build->setup);
        free(build->env);
        free(build->dockerfile_dir);
        free(build);
    }
}
