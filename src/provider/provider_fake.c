#include "provider_fake_private.h"

#include "alloc.h"
#include "buf.h"
#include "clock.h"
#include "id.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct fake_provider *fake(struct provider *provider)
{
    return (struct fake_provider *)provider;
}

struct fake_provider *fake_lock(struct provider *provider)
{
    struct fake_provider *self = fake(provider);

    pthread_mutex_lock(&self->lock);
    return self;
}

void fake_unlock(struct fake_provider *self)
{
    waitq_wake_all(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

struct fake_container *fake_find(struct fake_provider *self, const char *ref)
{
    for (struct fake_container *container = self->containers; container; container = container->next) {
        if (strcmp(container->listed.ref, ref) == 0)
            return container;
    }
    return NULL;
}

void fake_push_event_locked(struct fake_provider *self, enum sandbox_event_kind kind, const char *ref, bool oom)
{
    struct fake_event **last = &self->events;
    struct fake_event *event = alloc_zero(sizeof *event);

    event->event.kind = kind;
    event->event.oom = oom;
    (void)snprintf(event->event.ref, sizeof event->event.ref, "%s", ref);
    while (*last)
        last = &(*last)->next;
    *last = event;
}

int fake_enter(struct provider *provider, enum provider_fake_verb verb, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_order *order = &self->orders[verb];

    order->calls++;
    if (++order->now > order->most)
        order->most = order->now;
    if (order->delay_ms > 0) {
        struct cancel until = cancel_within(cancel, order->delay_ms);
        struct error why = ERROR_INIT;

        while (waitq_wait(&self->changed, &self->lock, &until, &why) == 0)
            ;
        if (why.code != ERROR_TIMEOUT || cancel_remaining_ms(cancel) == 0) {
            *err = why;
            goto failed;
        }
    }
    if (order->before_times > 0) {
        order->before_times--;
        (void)error_set(err, order->before, 0, "ordered to fail");
        goto failed;
    }
    return 0;
failed:
    order->now--;
    fake_unlock(self);
    return -1;
}

int fake_leave(struct fake_provider *self, enum provider_fake_verb verb, int result, struct error *err)
{
    struct fake_order *order = &self->orders[verb];

    order->now--;
    if (result == 0 && order->after_times > 0) {
        order->after_times--;
        result = error_set(err, order->after, 0, "ordered to lose the answer");
    }
    fake_unlock(self);
    return result;
}

static int missing(const char *ref, struct error *err)
{
    return fail(err, NOT_FOUND, "no such container: %s", ref);
}

/* The link of a container ends; runs see it when they look. */
void fake_cut_locked(struct fake_container *container)
{
    if (container->live)
        container->live->alive = false;
    container->live = NULL;
}

void fake_end_locked(struct fake_provider *self, struct fake_container *container, bool oom)
{
    bool was_running = container->listed.phase == SANDBOX_RUNNING || container->listed.phase == SANDBOX_PAUSED;

    fake_cut_locked(container);
    fake_forget_left_locked(container);
    container->life++;
    if (!was_running)
        return;
    container->listed.phase = SANDBOX_STOPPED;
    container->listed.finished_at_unix_ms = clock_unix_ms();
    container->listed.oom_killed = oom;
    fake_push_event_locked(self, SANDBOX_EVENT_DIED, container->listed.ref, oom);
}

void fake_remove_locked(struct fake_provider *self, struct fake_container *container)
{
    struct fake_container **link = &self->containers;

    fake_end_locked(self, container, false);
    fake_push_event_locked(self, SANDBOX_EVENT_REMOVED, container->listed.ref, false);
    while (*link != container)
        link = &(*link)->next;
    *link = container->next;
    free(container);
}

struct fake_container *fake_add_locked(struct fake_provider *self, const char *ref, const char *slot,
                                       const char *digest, enum sandbox_phase phase)
{
    struct fake_container *container = alloc_zero(sizeof *container);

    (void)snprintf(container->listed.ref, sizeof container->listed.ref, "%s", ref);
    (void)snprintf(container->listed.slot, sizeof container->listed.slot, "%s", slot);
    (void)snprintf(container->listed.spec_digest, sizeof container->listed.spec_digest, "%s", digest);
    container->listed.phase = phase;
    container->next = self->containers;
    self->containers = container;
    return container;
}

/* -- the table -- */

static void fake_free(struct provider *provider)
{
    struct fake_provider *self = fake(provider);

    while (self->containers) {
        struct fake_container *container = self->containers;

        self->containers = container->next;
        fake_forget_left_locked(container);
        free(container);
    }
    while (self->events) {
        struct fake_event *event = self->events;

        self->events = event->next;
        free(event);
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self->applets.program);
    free(self->applets.work_dir);
    free(self->applets.says);
    free(self);
}

static int fake_check(struct provider *provider, const struct cancel *cancel, struct error *err)
{
    if (fake_enter(provider, FAKE_CHECK, cancel, err) < 0)
        return -1;
    return fake_leave(fake(provider), FAKE_CHECK, 0, err);
}

static int fake_image(struct provider *provider, const char *image, bool pull, const struct cancel *cancel,
                      struct sandbox_image *ret_image, struct error *err)
{
    struct fake_provider *self = fake(provider);
    int result = 0;

    if (fake_enter(provider, FAKE_IMAGE, cancel, err) < 0)
        return -1;
    if (self->any_image || strcmp(self->image, image) == 0)
        *ret_image = self->found;
    else
        result = fail(err, NOT_FOUND, "no such image: %s", image);
    return fake_leave(self, FAKE_IMAGE, result, err);
}

static int fake_prepare(struct provider *provider, const char *image, void (*say)(void *context, const char *text),
                        void *context, const struct cancel *cancel, struct sandbox_image *ret_image, bool *ret_was_here,
                        struct error *err)
{
    say(context, "looking for it");
    *ret_was_here = true; /* what is not there cannot be had here */
    return fake_image(provider, image, false, cancel, ret_image, err);
}

/* Nobody else has containers in this memory. */
static int fake_strangers(struct provider *provider, const struct cancel *cancel, struct sandbox_stranger **ret_list,
                          size_t *ret_count, struct error *err)
{
    if (fake_enter(provider, FAKE_LIST, cancel, err) < 0)
        return -1;
    *ret_list = alloc_zero(sizeof **ret_list);
    *ret_count = 0;
    return fake_leave(fake(provider), FAKE_LIST, 0, err);
}

static int fake_create(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                       char ret_ref[SANDBOX_REF_BYTES], struct error *err)
{
    struct fake_provider *self = fake(provider);
    char ref[65], digest[65];
    int result = 0;

    if (fake_enter(provider, FAKE_CREATE, cancel, err) < 0)
        return -1;
    id_random_hex(ref, 64);
    provider_spec_digest(spec, digest);
    if (self->any_image || strcmp(self->image, spec->image) == 0) {
        struct fake_container *container = fake_add_locked(self, ref, spec->slot, digest, SANDBOX_CREATED);

        (void)snprintf(container->name, sizeof container->name, "%s", spec->name ? spec->name : "");
        (void)snprintf(ret_ref, SANDBOX_REF_BYTES, "%s", ref);
    } else {
        result = fail(err, NOT_FOUND, "no such image: %s", spec->image);
    }
    return fake_leave(self, FAKE_CREATE, result, err);
}

static int fake_open(struct provider *provider, const char *ref, const uint32_t *known_runs, size_t known_count,
                     const struct cancel *cancel, struct sandbox **ret_sandbox, struct sandbox_hello *ret_hello,
                     struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;
    struct fake_sandbox *sandbox;

    if (fake_enter(provider, FAKE_OPEN, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (!container)
        return fake_leave(self, FAKE_OPEN, missing(ref, err), err);
    fake_cut_locked(container);
    container->listed.phase = SANDBOX_RUNNING;
    if (self->orders[FAKE_OPEN].after_times > 0)
        return fake_leave(self, FAKE_OPEN, 0, err);
    fake_keep_known_locked(container, known_runs, known_count);
    sandbox = alloc_zero(sizeof *sandbox);
    sandbox->base.provider = provider;
    sandbox->base.references = 1;
    (void)snprintf(sandbox->base.ref, sizeof sandbox->base.ref, "%s", ref);
    sandbox->alive = true;
    container->live = sandbox;
    *ret_sandbox = &sandbox->base;
    *ret_hello = (struct sandbox_hello){geteuid(), getegid()};
    return fake_leave(self, FAKE_OPEN, 0, err);
}

static int fake_stop(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_STOP, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container)
        fake_end_locked(self, container, false);
    return fake_leave(self, FAKE_STOP, container ? 0 : missing(ref, err), err);
}

static int fake_kill(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_KILL, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container)
        fake_end_locked(self, container, false);
    return fake_leave(self, FAKE_KILL, container ? 0 : missing(ref, err), err);
}

static int fake_pause(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;
    int result = 0;

    if (fake_enter(provider, FAKE_PAUSE, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (!container)
        result = missing(ref, err);
    else if (container->listed.phase != SANDBOX_RUNNING)
        result = fail(err, CONFLICT, "not running: %s", ref);
    else
        container->listed.phase = SANDBOX_PAUSED;
    return fake_leave(self, FAKE_PAUSE, result, err);
}

static int fake_thaw(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_THAW, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container && container->listed.phase == SANDBOX_PAUSED)
        container->listed.phase = SANDBOX_RUNNING;
    return fake_leave(self, FAKE_THAW, container ? 0 : missing(ref, err), err);
}

static int fake_remove(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_REMOVE, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container)
        fake_remove_locked(self, container);
    return fake_leave(self, FAKE_REMOVE, 0, err);
}

static int fake_rename(struct provider *provider, const char *ref, const char *name, const struct cancel *cancel,
                       struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_RENAME, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container)
        (void)snprintf(container->name, sizeof container->name, "%s", name);
    return fake_leave(self, FAKE_RENAME, container ? 0 : missing(ref, err), err);
}

static int fake_inspect(struct provider *provider, const char *ref, const struct cancel *cancel,
                        struct sandbox_listed *ret, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct fake_container *container;

    if (fake_enter(provider, FAKE_INSPECT, cancel, err) < 0)
        return -1;
    container = fake_find(self, ref);
    if (container)
        *ret = container->listed;
    return fake_leave(self, FAKE_INSPECT, container ? 0 : missing(ref, err), err);
}

static int fake_list(struct provider *provider, const struct cancel *cancel, struct sandbox_listed **ret_list,
                     size_t *ret_count, struct error *err)
{
    struct fake_provider *self = fake(provider);
    struct sandbox_listed *list;
    size_t count = 0;

    if (fake_enter(provider, FAKE_LIST, cancel, err) < 0)
        return -1;
    if (self->orders[FAKE_LIST].after_times > 0)
        return fake_leave(self, FAKE_LIST, 0, err);
    for (struct fake_container *container = self->containers; container; container = container->next)
        count++;
    list = alloc_array(count + 1, sizeof *list);
    count = 0;
    for (struct fake_container *container = self->containers; container; container = container->next) {
        list[count] = container->listed;
        list[count].finished_at_unix_ms = 0; /* inspect only */
        list[count++].oom_killed = false;
    }
    *ret_list = list;
    *ret_count = count;
    return fake_leave(self, FAKE_LIST, 0, err);
}

static int fake_next_event(struct provider *provider, const struct cancel *cancel, struct sandbox_event *ret,
                           struct error *err)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_event *event;

    while (!self->events) {
        if (waitq_wait(&self->changed, &self->lock, cancel, err) < 0) {
            pthread_mutex_unlock(&self->lock);
            return -1;
        }
    }
    event = self->events;
    self->events = event->next;
    pthread_mutex_unlock(&self->lock);
    *ret = event->event;
    free(event);
    return 0;
}

static int fake_isolation(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                          struct isolation_control controls[ISOLATION_CONTROLS_MAX], struct error *err)
{
    controls[0] = (struct isolation_control){"runtime", ISOLATION_NOT_ENFORCED, "nothing runs here"};
    controls[1] = (struct isolation_control){"memory", spec->memory_bytes ? ISOLATION_ENFORCED : ISOLATION_NOT_ENFORCED,
                                             "in memory"};
    return 2;
}

static int fake_network(struct provider *provider, const char *name, const struct cancel *cancel,
                        char ret_text[PROVIDER_NETWORK_TEXT_BYTES], struct error *err)
{
    (void)snprintf(ret_text, PROVIDER_NETWORK_TEXT_BYTES, "%s: nothing", name);
    return 0;
}

/* -- live sandboxes -- */

static void fake_sandbox_close(struct sandbox *sandbox)
{
    struct fake_provider *self = fake_lock(sandbox->provider);
    struct fake_container *container = fake_find(self, sandbox->ref);

    ((struct fake_sandbox *)sandbox)->alive = false;
    if (container && container->live == (struct fake_sandbox *)sandbox)
        container->live = NULL;
    fake_unlock(self);
}

static void fake_sandbox_free(struct sandbox *sandbox)
{
    fake_sandbox_close(sandbox);
    free(sandbox);
}

static bool fake_sandbox_alive(const struct sandbox *sandbox)
{
    struct fake_provider *self = fake(sandbox->provider);
    bool alive;

    pthread_mutex_lock(&self->lock);
    alive = ((const struct fake_sandbox *)sandbox)->alive;
    pthread_mutex_unlock(&self->lock);
    return alive;
}

static void fake_usage(struct provider *provider, struct sandbox *const *sandboxes, size_t count,
                       const struct cancel *cancel, struct sandbox_usage *ret_usages, bool *ret_answered)
{
    struct error err = ERROR_INIT;
    bool works = fake_enter(provider, FAKE_USAGE, cancel, &err) == 0;

    for (size_t i = 0; i < count; i++) {
        const struct fake_sandbox *live = (const struct fake_sandbox *)sandboxes[i];

        ret_answered[i] = works && live && live->alive;
        if (ret_answered[i])
            ret_usages[i] =
                (struct sandbox_usage){.memory_bytes = 1 << 20, .cpu_ns = 1000000, .pids = 1 + live->running};
    }
    if (works)
        (void)fake_leave(fake(provider), FAKE_USAGE, 0, &err);
}

static const struct provider_ops fake_ops = {
    .name = "fake",
    .agent_path = "/.berth-agent",
    .free = fake_free,
    .check = fake_check,
    .image = fake_image,
    .prepare = fake_prepare,
    .create = fake_create,
    .open = fake_open,
    .stop = fake_stop,
    .kill = fake_kill,
    .pause = fake_pause,
    .thaw = fake_thaw,
    .remove = fake_remove,
    .rename = fake_rename,
    .inspect = fake_inspect,
    .list = fake_list,
    .strangers = fake_strangers,
    .next_event = fake_next_event,
    .isolation = fake_isolation,
    .network = fake_network,
    .sandbox_free = fake_sandbox_free,
    .sandbox_close = fake_sandbox_close,
    .sandbox_alive = fake_sandbox_alive,
    .run_start = fake_run_start,
    .run_next = fake_run_next,
    .run_stdin_write = fake_run_stdin_write,
    .run_stdin_eof = fake_run_stdin_eof,
    .run_resume = fake_run_resume,
    .run_wait_started = fake_run_wait_started,
    .run_seek = fake_run_seek,
    .run_leave = fake_run_leave,
    .run_interrupt = fake_run_interrupt,
    .run_ended = fake_run_ended,
    .run_cut = fake_run_cut,
    .run_watch = fake_run_watch,
    .next_end = fake_next_end,
    .run_signal = fake_run_signal,
    .run_resize = fake_run_resize,
    .run_exit = fake_run_exit,
    .run_stop = fake_run_stop,
    .run_free = fake_run_free,
    .usage = fake_usage,
};

struct provider *provider_fake_new(void)
{
    struct fake_provider *self = alloc_zero(sizeof *self);

    self->base.ops = &fake_ops;
    (void)pthread_mutex_init(&self->lock, NULL);
    self->any_image = true;
    (void)snprintf(self->found.id, sizeof self->found.id, "sha256:fake");
    fake_push_event_locked(self, SANDBOX_EVENT_RELIST, "", false);
    return &self->base;
}
