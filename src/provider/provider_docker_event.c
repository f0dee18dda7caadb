#include "clock.h"
#include "provider_docker_private.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { OOM_EXPLAINS_MS = 10000, EXIT_KILLED = 128 + SIGKILL };

static void mark_oom(struct docker_provider *self, const char *ref)
{
    struct oom_mark *mark = &self->ooms[self->next_oom++ % OOM_MARKS];

    (void)snprintf(mark->ref, sizeof mark->ref, "%s", ref);
    mark->at_mono_ms = clock_mono_ms();
}

/* Did the kernel end something of it for want of memory right before? Asked once a death. */
static bool take_oom(struct docker_provider *self, const char *ref)
{
    bool found = false;

    for (int i = 0; i < OOM_MARKS; i++) {
        if (self->ooms[i].at_mono_ms && strcmp(self->ooms[i].ref, ref) == 0) {
            found = found || clock_mono_ms() - self->ooms[i].at_mono_ms < OOM_EXPLAINS_MS;
            self->ooms[i].at_mono_ms = 0;
        }
    }
    return found;
}

/* 1: *ret is set. 0: nothing that a session wants to know. */
static int translate(struct docker_provider *self, const struct engine_event *event, struct sandbox_event *ret)
{
    *ret = (struct sandbox_event){.kind = SANDBOX_EVENT_DIED};
    (void)snprintf(ret->ref, sizeof ret->ref, "%s", event->id);
    switch (event->kind) {
    case ENGINE_EVENT_OOM:
        mark_oom(self, event->id);
        return 0;
    case ENGINE_EVENT_DIED:
        /* The kernel takes a run first: the container's own death has that cause only if it was killed, too. */
        ret->oom = take_oom(self, event->id) && event->exit_code == EXIT_KILLED;
        return 1;
    case ENGINE_EVENT_PAUSED:
    case ENGINE_EVENT_UNPAUSED:
        docker_note_paused(self, event->id, event->kind == ENGINE_EVENT_PAUSED);
        return 0;
    case ENGINE_EVENT_DESTROYED:
        ret->kind = SANDBOX_EVENT_REMOVED;
        return 1;
    default:
        return 0;
    }
}

int docker_next_event(struct provider *provider, const struct cancel *cancel, struct sandbox_event *ret,
                      struct error *err)
{
    struct docker_provider *self = (struct docker_provider *)provider;
    struct error why = ERROR_INIT;

    for (;;) {
        struct engine_event event;

        if (!self->events) {
            if (engine_events_open(self->engine, self->install, cancel, &self->events, err) < 0)
                return -1;
            /* Listening first, then comparing: nothing falls in between. */
            *ret = (struct sandbox_event){.kind = SANDBOX_EVENT_RELIST};
            return 0;
        }
        if (engine_events_next(self->events, cancel, &event, &why) > 0) {
            if (translate(self, &event, ret))
                return 0;
            continue;
        }
        if (cancel_check(cancel, err) < 0)
            return -1;
        engine_events_free(self->events);
        self->events = NULL;
    }
}
