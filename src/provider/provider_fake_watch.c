/* Watched runs of the provider in memory: they live in their container, whoever holds them. */
#include "provider_fake_private.h"

#include "alloc.h"
#include "clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool is_cut(const struct fake_run *run)
{
    return !((const struct fake_sandbox *)run->base.sandbox)->alive;
}

static struct fake_provider *lock_of(const struct sandbox_run *run)
{
    return fake_lock(run->sandbox->provider);
}

static void unlist(struct fake_run **link, struct fake_run *run)
{
    while (*link && *link != run)
        link = &(*link)->next;
    if (*link)
        *link = run->next;
}

void fake_watch_locked(struct fake_provider *self, struct fake_run *run, uint32_t number)
{
    const struct fake_container *container = fake_find(self, run->base.sandbox->ref);

    run->watched = true;
    run->number = number;
    run->life = container ? container->life : 0;
    (void)snprintf(run->ref, sizeof run->ref, "%s", run->base.sandbox->ref);
    run->next = self->watched;
    self->watched = run;
}

bool fake_leave_locked(struct fake_provider *self, struct fake_run *run)
{
    struct fake_container *container = fake_find(self, run->ref);

    unlist(&self->watched, run);
    if (!is_cut(run) || !container || container->life != run->life || container->listed.phase != SANDBOX_RUNNING)
        return false;
    run->cookie = 0;
    run->next = container->left;
    container->left = run;
    return true;
}

void fake_forget_left_locked(struct fake_container *container)
{
    fake_keep_known_locked(container, NULL, 0);
}

void fake_keep_known_locked(struct fake_container *container, const uint32_t *known, size_t count)
{
    struct fake_run **link = &container->left;

    while (*link) {
        struct fake_run *run = *link;
        size_t i = 0;

        while (i < count && known[i] != run->number)
            i++;
        if (i < count) {
            link = &run->next;
            continue;
        }
        *link = run->next;
        fake_run_destroy(run);
    }
}

static struct buf copy_of(const struct buf *from)
{
    struct buf copy = BUF_INIT(from->max);
    struct error ignored = ERROR_INIT;

    (void)buf_append(&copy, from->data, from->size, &ignored); /* it fitted there */
    return copy;
}

/* A run lives in its container, not in what somebody still holds of a link that died: that is read to its end, and no more. */
static struct fake_run *take_over_locked(struct fake_provider *self, const struct fake_container *container,
                                         uint32_t number)
{
    struct fake_run *held = self->watched;
    struct fake_run *run;

    while (held && !(held->number == number && held->life == container->life && is_cut(held) &&
                     strcmp(held->ref, container->listed.ref) == 0))
        held = held->next;
    if (!held)
        return NULL;
    unlist(&self->watched, held);
    run = alloc_zero(sizeof *run);
    *run = *held;
    run->out = copy_of(&held->out);
    run->err = copy_of(&held->err);
    run->in = copy_of(&held->in);
    run->cookie = 0;
    held->applet = NULL;
    held->life--; /* what is let go of is nothing of this container */
    return run;
}

int fake_run_resume(struct sandbox *sandbox, uint32_t number, struct sandbox_run **ret_run, struct error *err)
{
    struct fake_provider *self = fake_lock(sandbox->provider);
    struct fake_container *container = fake_find(self, sandbox->ref);
    struct fake_run *run = container ? container->left : NULL;
    int result = 0;

    while (run && run->number != number)
        run = run->next;
    if (!((struct fake_sandbox *)sandbox)->alive) {
        result = fail(err, GONE, "the sandbox has ended");
    } else if (run) {
        unlist(&container->left, run);
    } else if (!container || !(run = take_over_locked(self, container, number))) {
        result = fail(err, NOT_FOUND, "the agent does not know run %u", number);
    }
    if (result == 0) {
        run->base.sandbox = sandbox_ref(sandbox);
        if (!run->ended)
            ((struct fake_sandbox *)sandbox)->running++;
        run->next = self->watched;
        self->watched = run;
        *ret_run = &run->base;
    }
    fake_unlock(self);
    return result;
}

int fake_run_wait_started(struct sandbox_run *run, const struct cancel *cancel, struct error *err)
{
    return cancel_check(cancel, err);
}

int fake_run_seek(struct sandbox_run *base, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                  uint64_t *ret_place, struct error *err)
{
    struct fake_run *run = (struct fake_run *)base;
    struct fake_provider *self = lock_of(base);
    int result = 0;

    run->interrupted = false;
    if (out == UINT64_MAX)
        out = run->out.size;
    if (out > run->out.size || err_offset > run->err.size) {
        result = fail(err, INVALID, "after: beyond what was written so far");
    } else {
        *ret_place = run->out_given = out;
        run->err_given = err_offset;
    }
    fake_unlock(self);
    return result;
}

void fake_run_leave(struct sandbox_run *run, uint32_t hold_ms)
{
    /* Nothing is slowed here. */
}

void fake_run_interrupt(struct sandbox_run *run)
{
    struct fake_provider *self = lock_of(run);

    ((struct fake_run *)run)->interrupted = true;
    fake_unlock(self);
}

static bool ended_locked(struct fake_run *run, struct run_exit *ret_exit)
{
    if (!is_cut(run))
        fake_settle_run_locked(run);
    if (!run->hangs && !run->ended)
        fake_end_run_locked(run);
    *ret_exit = run->ended ? run->exit : (struct run_exit){.lost = true, .exit_code = -1};
    return run->ended || is_cut(run);
}

bool fake_run_ended(struct sandbox_run *run, struct run_exit *ret_exit)
{
    struct fake_provider *self = lock_of(run);
    bool ended = ended_locked((struct fake_run *)run, ret_exit);

    fake_unlock(self);
    return ended;
}

bool fake_run_cut(const struct sandbox_run *run)
{
    struct fake_provider *self = lock_of(run);
    bool cut = is_cut((const struct fake_run *)run);

    fake_unlock(self);
    return cut;
}

void fake_run_watch(struct sandbox_run *run, uint64_t cookie)
{
    struct fake_provider *self = lock_of(run);

    ((struct fake_run *)run)->cookie = cookie;
    fake_unlock(self);
}

static uint64_t take_ended_locked(struct fake_provider *self, int64_t *next_ms)
{
    for (struct fake_run *run = self->watched; run; run = run->next) {
        struct run_exit ignored;
        uint64_t cookie = run->cookie;

        if (cookie && ended_locked(run, &ignored)) {
            run->cookie = 0;
            return cookie;
        }
        if (cookie && run->deadline_ms && (!*next_ms || run->deadline_ms < *next_ms))
            *next_ms = run->deadline_ms;
    }
    return 0;
}

int fake_next_end(struct provider *provider, const struct cancel *cancel, uint64_t *ret_cookie, struct error *err)
{
    struct fake_provider *self = fake_lock(provider);
    int64_t next_ms = 0;
    int result = 0;

    while (result == 0 && !(*ret_cookie = take_ended_locked(self, &next_ms))) {
        struct cancel until = next_ms ? cancel_within(cancel, next_ms - clock_mono_ms()) : *cancel;
        struct error why = ERROR_INIT;

        if (waitq_wait(&self->changed, &self->lock, &until, &why) == 0 ||
            (why.code == ERROR_TIMEOUT && cancel_remaining_ms(cancel) != 0))
            continue;
        *err = why;
        result = -1;
    }
    pthread_mutex_unlock(&self->lock);
    return result;
}

void fake_run_signal(struct sandbox_run *run, int number)
{
    if (number == SIGTERM || number == SIGKILL)
        run->sandbox->provider->ops->run_stop(run);
}

void fake_run_resize(struct sandbox_run *run, unsigned rows, unsigned cols)
{
    /* There is no terminal here. */
}
