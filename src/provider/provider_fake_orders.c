/* What a test orders and asks. */
#include "alloc.h"
#include "provider_fake_private.h"

#include <stdio.h>
#include <string.h>

void provider_fake_fail(struct provider *provider, enum provider_fake_verb verb, enum error_code code, unsigned times)
{
    struct fake_provider *self = fake_lock(provider);

    self->orders[verb].before = code;
    self->orders[verb].before_times = times;
    fake_unlock(self);
}

void provider_fake_fail_after(struct provider *provider, enum provider_fake_verb verb, enum error_code code,
                              unsigned times)
{
    struct fake_provider *self = fake_lock(provider);

    self->orders[verb].after = code;
    self->orders[verb].after_times = times;
    fake_unlock(self);
}

void provider_fake_delay(struct provider *provider, enum provider_fake_verb verb, int64_t delay_ms)
{
    struct fake_provider *self = fake_lock(provider);

    self->orders[verb].delay_ms = delay_ms;
    fake_unlock(self);
}

unsigned provider_fake_calls(struct provider *provider, enum provider_fake_verb verb)
{
    struct fake_provider *self = fake_lock(provider);
    unsigned calls = self->orders[verb].calls;

    fake_unlock(self);
    return calls;
}

unsigned provider_fake_most_at_once(struct provider *provider, enum provider_fake_verb verb)
{
    struct fake_provider *self = fake_lock(provider);
    unsigned most = self->orders[verb].most;

    fake_unlock(self);
    return most;
}

void provider_fake_only_image(struct provider *provider, const char *image, int64_t uid)
{
    struct fake_provider *self = fake_lock(provider);

    self->any_image = false;
    self->found.uid = uid;
    (void)snprintf(self->image, sizeof self->image, "%s", image ? image : "");
    fake_unlock(self);
}

void provider_fake_image_id(struct provider *provider, const char *id)
{
    struct fake_provider *self = fake_lock(provider);

    (void)snprintf(self->found.id, sizeof self->found.id, "%s", id);
    fake_unlock(self);
}

void provider_fake_die(struct provider *provider, const char *ref, bool oom)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_container *container = fake_find(self, ref);

    if (container)
        fake_end_locked(self, container, oom);
    fake_unlock(self);
}

void provider_fake_die_late(struct provider *provider, const char *ref)
{
    struct fake_provider *self = fake_lock(provider);

    fake_push_event_locked(self, SANDBOX_EVENT_DIED, ref, false);
    fake_unlock(self);
}

void provider_fake_vanish(struct provider *provider, const char *ref)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_container *container = fake_find(self, ref);

    if (container)
        fake_remove_locked(self, container);
    fake_unlock(self);
}

void provider_fake_relist(struct provider *provider)
{
    struct fake_provider *self = fake_lock(provider);

    fake_push_event_locked(self, SANDBOX_EVENT_RELIST, "", false);
    fake_unlock(self);
}

void provider_fake_cut(struct provider *provider, const char *ref)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_container *container = fake_find(self, ref);

    if (container)
        fake_cut_locked(container);
    fake_unlock(self);
}

void provider_fake_add(struct provider *provider, const char *ref, const char *slot, const char *spec_digest,
                       enum sandbox_phase phase, int64_t finished_at_unix_ms)
{
    struct fake_provider *self = fake_lock(provider);

    fake_add_locked(self, ref, slot, spec_digest, phase)->listed.finished_at_unix_ms = finished_at_unix_ms;
    fake_unlock(self);
}

void provider_fake_applets(struct provider *provider, const char *program, const char *work_dir)
{
    struct fake_provider *self = fake_lock(provider);

    free(self->applets.program);
    free(self->applets.work_dir);
    self->applets.program = alloc_str(program);
    self->applets.work_dir = alloc_str(work_dir);
    fake_unlock(self);
}

void provider_fake_applet_says(struct provider *provider, const void *bytes, size_t size)
{
    struct fake_provider *self = fake_lock(provider);

    free(self->applets.says);
    self->applets.says = bytes ? alloc_array(size + 1, 1) : NULL;
    self->applets.says_size = size;
    if (bytes)
        memcpy(self->applets.says, bytes, size);
    fake_unlock(self);
}

unsigned provider_fake_count(struct provider *provider)
{
    struct fake_provider *self = fake_lock(provider);
    unsigned count = 0;

    for (struct fake_container *container = self->containers; container; container = container->next)
        count++;
    fake_unlock(self);
    return count;
}

unsigned provider_fake_running(struct provider *provider)
{
    struct fake_provider *self = fake_lock(provider);
    unsigned count = 0;

    for (struct fake_container *container = self->containers; container; container = container->next)
        count += container->listed.phase == SANDBOX_RUNNING || container->listed.phase == SANDBOX_PAUSED;
    fake_unlock(self);
    return count;
}

bool provider_fake_find(struct provider *provider, const char *slot, struct sandbox_listed *ret)
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_container *container = self->containers;

    while (container && strcmp(container->listed.slot, slot) != 0)
        container = container->next;
    if (container)
        *ret = container->listed;
    fake_unlock(self);
    return container != NULL;
}

void provider_fake_name(struct provider *provider, const char *ref, char name[128])
{
    struct fake_provider *self = fake_lock(provider);
    struct fake_container *container = fake_find(self, ref);

    (void)snprintf(name, 128, "%s", container ? container->name : "");
    fake_unlock(self);
}
