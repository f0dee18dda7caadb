/* Runs of the provider in memory: what their commands do, and how they are read and fed. */
#include "provider_fake_private.h"

#include "alloc.h"
#include "buf.h"
#include "clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { OUTPUT_MAX = 64 * 1024 * 1024, CHUNK_BYTES = 64 * 1024 };

static void write_words(struct buf *out, char **words, size_t count)
{
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < count; i++) {
        if (buf_append_format(out, &err, "%s%s", i ? " " : "", words[i]) < 0)
            abort();
    }
    if (buf_append_str(out, "\n", &err) < 0)
        abort();
}

/* What the command does is known at once; only `hang` takes its time. */
static void play(struct fake_run *run, const struct run_spec *spec, char **words, size_t count)
{
    struct error err = ERROR_INIT;
    const char *name = count ? words[0] : "";

    run->exit.exit_code = 0;
    if (spec->cwd && strcmp(spec->cwd, "/missing") == 0) {
        run->exit = (struct run_exit){.spawn_failed = true, .spawn_cwd = true, .spawn_errno = ENOENT, .exit_code = -1};
    } else if (strcmp(name, "echo") == 0) {
        write_words(&run->out, words + 1, count - 1);
    } else if (strcmp(name, "err") == 0) {
        write_words(spec->merge ? &run->out : &run->err, words + 1, count - 1);
    } else if (strcmp(name, "exit") == 0 && count == 2) {
        run->exit.exit_code = (int)(strtol(words[1], NULL, 10) & 255);
    } else if (strcmp(name, "write") == 0 && count == 2) {
        size_t size = strtoul(words[1], NULL, 10);
        char *space;

        if (buf_reserve(&run->out, size, &space, &err) < 0)
            abort();
        memset(space, 'x', size);
        buf_commit(&run->out, size);
    } else if (strcmp(name, "hang") == 0) {
        run->hangs = true;
    } else if (strcmp(name, "cat") == 0) {
        run->reads = run->hangs = spec->stdin_open;
    } else {
        run->exit = (struct run_exit){.spawn_failed = true, .spawn_errno = ENOENT, .exit_code = -1};
    }
}

/* An applet knows what it has to say when its input is there. */
static void finish_input(const struct fake_provider *self, struct fake_run *run)
{
    run->reads = run->hangs = false;
    if (run->applet) {
        fake_applet_perform(&self->applets, run->applet, &run->in, &run->out, &run->exit);
    } else {
        buf_done(&run->out);
        run->out = run->in;
        run->in = (struct buf)BUF_INIT(OUTPUT_MAX);
    }
    run->exit.stdout_bytes = run->out.size;
}

static bool play_applet(const struct fake_provider *self, struct fake_run *run, const struct run_spec *spec)
{
    if (!self->applets.program || strcmp(spec->argv[0], self->base.ops->agent_path) != 0)
        return false;
    run->applet = alloc_array(spec->argc + 1, sizeof *run->applet);
    for (size_t i = 0; i < spec->argc; i++)
        run->applet[i] = alloc_str(spec->argv[i]);
    run->applet[spec->argc] = NULL;
    run->reads = run->hangs = true;
    if (!spec->stdin_open)
        finish_input(self, run);
    return true;
}

static void play_spec(struct fake_run *run, const struct run_spec *spec)
{
    bool shell = spec->argc == 3 && strcmp(spec->argv[0], "sh") == 0 && strcmp(spec->argv[1], "-c") == 0;
    auto_free char *script = shell ? alloc_str(spec->argv[2]) : NULL;
    auto_free char **words = alloc_array(spec->argc + (shell ? strlen(script) : 0) + 1, sizeof *words);
    char *rest = NULL;
    size_t count = 0;

    if (shell) {
        for (char *word = strtok_r(script, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            words[count++] = word;
    } else {
        for (; count < spec->argc; count++)
            words[count] = (char *)(uintptr_t)spec->argv[count];
    }
    play(run, spec, words, count);
}

int fake_run_start(struct sandbox *sandbox, uint32_t number, const struct run_spec *spec, const struct cancel *cancel,
                   bool *ret_sent, struct sandbox_run **ret_run, struct error *err)
{
    struct fake_provider *self = (struct fake_provider *)sandbox->provider;
    struct fake_sandbox *live = (struct fake_sandbox *)sandbox;
    struct fake_run *run;

    *ret_sent = false;
    if (fake_enter(sandbox->provider, FAKE_RUN_START, cancel, err) < 0)
        return -1;
    if (!live->alive)
        return fake_leave(self, FAKE_RUN_START, fail(err, GONE, "the sandbox has ended"), err);
    *ret_sent = true;
    if (self->orders[FAKE_RUN_START].after_times > 0)
        return fake_leave(self, FAKE_RUN_START, 0, err);
    run = alloc_zero(sizeof *run);
    run->base.sandbox = sandbox_ref(sandbox);
    run->out = (struct buf)BUF_INIT(OUTPUT_MAX);
    run->err = (struct buf)BUF_INIT(OUTPUT_MAX);
    run->in = (struct buf)BUF_INIT(OUTPUT_MAX);
    run->started_ms = clock_mono_ms();
    run->deadline_ms = spec->timeout_ms ? run->started_ms + spec->timeout_ms : 0;
    if (!play_applet(self, run, spec))
        play_spec(run, spec);
    run->exit.stdout_bytes = run->out.size;
    run->exit.stderr_bytes = run->err.size;
    live->running++;
    if (spec->watch)
        fake_watch_locked(self, run, number);
    *ret_run = &run->base;
    return fake_leave(self, FAKE_RUN_START, 0, err);
}

void fake_end_run_locked(struct fake_run *run)
{
    if (!run->ended)
        ((struct fake_sandbox *)run->base.sandbox)->running--;
    run->ended = true;
    run->exit.wall_ms = clock_mono_ms() - run->started_ms;
}

/* A hanging command ends: by whom it was ended is set by the caller. */
static void end_hanging_locked(struct fake_run *run)
{
    run->hangs = false;
    run->exit.exit_code = -1;
    run->exit.signal = SIGTERM;
}

void fake_settle_run_locked(struct fake_run *run)
{
    if (run->hangs && run->stopped) {
        run->exit.stopped = true;
        end_hanging_locked(run);
    } else if (run->hangs && run->deadline_ms && clock_mono_ms() >= run->deadline_ms) {
        run->exit.timed_out = true;
        end_hanging_locked(run);
    }
}

static int next_chunk_locked(struct fake_run *run, struct run_chunk *ret_chunk)
{
    bool out = run->out_given < run->out.size;
    struct buf *from = out ? &run->out : &run->err;
    size_t *given = out ? &run->out_given : &run->err_given;

    if (*given == from->size)
        return 0;
    *ret_chunk = (struct run_chunk){.stream = out ? RUN_STDOUT : RUN_STDERR,
                                    .data = from->data + *given,
                                    .size = from->size - *given,
                                    .offset = *given};
    if (ret_chunk->size > CHUNK_BYTES)
        ret_chunk->size = CHUNK_BYTES;
    *given += ret_chunk->size;
    return 1;
}

int fake_run_next(struct sandbox_run *base, const struct cancel *cancel, struct run_chunk *ret_chunk, struct error *err)
{
    struct fake_run *run = (struct fake_run *)base;
    struct fake_provider *self = fake_lock(base->sandbox->provider);
    struct cancel until = *cancel;
    int result;

    if (run->deadline_ms && (!until.deadline_ms || run->deadline_ms < until.deadline_ms))
        until.deadline_ms = run->deadline_ms;
    result = next_chunk_locked(run, ret_chunk);
    while (result == 0 && !run->ended) {
        struct error why = ERROR_INIT;

        if (run->watched && (run->interrupted || !((struct fake_sandbox *)base->sandbox)->alive)) {
            if (run->interrupted)
                result = fail(err, CONFLICT, "somebody else reads it");
            run->interrupted = false;
            break;
        }
        if (run->hangs && !((struct fake_sandbox *)base->sandbox)->alive) {
            run->exit = (struct run_exit){.lost = true, .exit_code = -1};
            run->hangs = false;
        }
        fake_settle_run_locked(run);
        if (!run->hangs) {
            fake_end_run_locked(run);
        } else if (waitq_wait(&self->changed, &self->lock, &until, &why) < 0 &&
                   (why.code != ERROR_TIMEOUT || cancel_remaining_ms(cancel) == 0)) {
            *err = why;
            result = -1;
        }
    }
    pthread_mutex_unlock(&self->lock);
    return result;
}

int fake_run_stdin_write(struct sandbox_run *base, const void *data, size_t size, const struct cancel *cancel,
                         struct error *err)
{
    struct fake_run *run = (struct fake_run *)base;
    struct fake_provider *self = fake_lock(base->sandbox->provider);
    int result = cancel_check(cancel, err);

    if (result == 0 && !((struct fake_sandbox *)base->sandbox)->alive)
        result = fail(err, GONE, "the sandbox has ended");
    if (result == 0 && run->reads)
        result = buf_append(&run->in, data, size, err);
    pthread_mutex_unlock(&self->lock);
    return result;
}

void fake_run_stdin_eof(struct sandbox_run *base)
{
    struct fake_run *run = (struct fake_run *)base;
    struct fake_provider *self = fake_lock(base->sandbox->provider);

    if (run->reads)
        finish_input(self, run);
    fake_unlock(self);
}

const struct run_exit *fake_run_exit(const struct sandbox_run *run)
{
    return &((const struct fake_run *)run)->exit;
}

void fake_run_stop(struct sandbox_run *run)
{
    struct fake_provider *self = fake_lock(run->sandbox->provider);

    ((struct fake_run *)run)->stopped = true;
    fake_unlock(self);
}

void fake_run_free(struct sandbox_run *base)
{
    struct fake_run *run = (struct fake_run *)base;
    struct fake_provider *self = fake_lock(base->sandbox->provider);

    if (run->watched && fake_leave_locked(self, run)) {
        struct sandbox *sandbox = base->sandbox;

        base->sandbox = NULL;
        fake_unlock(self);
        sandbox_unref(sandbox);
        return;
    }
    fake_end_run_locked(run);
    fake_unlock(self);
    sandbox_unref(base->sandbox);
    fake_run_destroy(run);
}

void fake_run_destroy(struct fake_run *run)
{
    buf_done(&run->out);
    buf_done(&run->err);
    buf_done(&run->in);
    for (char **argument = run->applet; argument && *argument; argument++)
        free(*argument);
    free(run->applet);
    free(run);
}
