#include "clock.h"
#include "provider_fake.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct provider *provider;
static const struct cancel never = CANCEL_NEVER;

static void setup(void)
{
    provider = provider_fake_new();
}

static void teardown(void)
{
    provider->ops->free(provider);
}

TestSuite(provider_fake, .init = setup, .fini = teardown);

static struct sandbox *open_one(const char *slot, char ref[SANDBOX_REF_BYTES])
{
    struct error err = ERROR_INIT;
    struct sandbox_spec spec = {.slot = slot, .image = "i", .work_dir = "/workspace", .sandbox_uid = -1};
    struct sandbox *sandbox = NULL;
    struct sandbox_hello hello;

    cr_assert(eq(int, provider->ops->create(provider, &spec, &never, ref, &err), 0));
    cr_assert(eq(int, provider->ops->open(provider, ref, NULL, 0, &never, &sandbox, &hello, &err), 0));
    return sandbox;
}

static struct run_exit run(struct sandbox *sandbox, const char *command, int64_t timeout_ms, char *out, size_t size)
{
    struct error err = ERROR_INIT;
    const char *argv[] = {"sh", "-c", command};
    struct run_spec spec = {.argv = argv, .argc = 3, .timeout_ms = timeout_ms, .has_reader = true};
    struct sandbox_run *started = NULL;
    struct run_chunk chunk;
    struct run_exit exit;
    size_t used = 0;
    bool sent;

    cr_assert(eq(int, provider->ops->run_start(sandbox, 1, &spec, &never, &sent, &started, &err), 0));
    while (provider->ops->run_next(started, &never, &chunk, &err) > 0) {
        cr_assert(le(sz, used + chunk.size, size));
        memcpy(out + used, chunk.data, chunk.size);
        used += chunk.size;
    }
    exit = *provider->ops->run_exit(started);
    provider->ops->run_free(started);
    cr_assert(eq(u64, exit.stdout_bytes + exit.stderr_bytes, used));
    return exit;
}

Test(provider_fake, runs_what_it_knows)
{
    char ref[SANDBOX_REF_BYTES], out[256] = "";
    struct sandbox *sandbox = open_one("s", ref);

    cr_assert(eq(int, run(sandbox, "echo hello you", 0, out, sizeof out).exit_code, 0));
    cr_assert(eq(int, strncmp(out, "hello you\n", 10), 0));
    cr_assert(eq(int, run(sandbox, "exit 7", 0, out, sizeof out).exit_code, 7));
    cr_assert(eq(int, run(sandbox, "nonsense", 0, out, sizeof out).spawn_errno, ENOENT));
    cr_assert(run(sandbox, "hang", 20, out, sizeof out).timed_out);
    sandbox_unref(sandbox);
}

Test(provider_fake, a_death_loses_the_run_and_is_an_event)
{
    struct error err = ERROR_INIT;
    char ref[SANDBOX_REF_BYTES];
    struct sandbox *sandbox = open_one("s", ref);
    const char *argv[] = {"hang"};
    struct run_spec spec = {.argv = argv, .argc = 1};
    struct sandbox_run *started = NULL;
    struct sandbox_event event;
    struct sandbox_usage usage;
    struct run_chunk chunk;
    bool sent, answered = true;

    cr_assert(eq(int, provider->ops->run_start(sandbox, 1, &spec, &never, &sent, &started, &err), 0));
    provider_fake_die(provider, ref, true);
    cr_assert(eq(int, provider->ops->run_next(started, &never, &chunk, &err), 0));
    cr_assert(provider->ops->run_exit(started)->lost);
    cr_assert(not(provider->ops->sandbox_alive(sandbox)));
    provider->ops->usage(provider, &sandbox, 1, &never, &usage, &answered);
    cr_assert(not(answered));
    cr_assert(eq(int, provider->ops->next_event(provider, &never, &event, &err), 0));
    cr_assert(eq(int, (int)event.kind, SANDBOX_EVENT_RELIST));
    cr_assert(eq(int, provider->ops->next_event(provider, &never, &event, &err), 0));
    cr_assert(eq(int, (int)event.kind, SANDBOX_EVENT_DIED));
    cr_assert(event.oom);
    cr_assert(eq(str, event.ref, ref));
    provider->ops->run_free(started);
    sandbox_unref(sandbox);
}

Test(provider_fake, fails_and_delays_as_ordered)
{
    struct error err = ERROR_INIT;
    struct sandbox_spec spec = {.slot = "s", .image = "i"};
    struct cancel soon;
    char ref[SANDBOX_REF_BYTES];

    provider_fake_fail(provider, FAKE_CREATE, ERROR_ENGINE, 1);
    cr_assert(eq(int, provider->ops->create(provider, &spec, &never, ref, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
    cr_assert(eq(uint, provider_fake_count(provider), 0));
    provider_fake_fail_after(provider, FAKE_CREATE, ERROR_TIMEOUT, 1);
    cr_assert(eq(int, provider->ops->create(provider, &spec, &never, ref, &err), -1));
    cr_assert(eq(uint, provider_fake_count(provider), 1));
    provider_fake_delay(provider, FAKE_CREATE, 60000);
    soon = cancel_within(&never, 10);
    cr_assert(eq(int, provider->ops->create(provider, &spec, &soon, ref, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_TIMEOUT));
    provider_fake_delay(provider, FAKE_CREATE, 10);
    cr_assert(eq(int, provider->ops->create(provider, &spec, &never, ref, &err), 0));
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_CREATE), 4));
}

Test(provider_fake, a_digest_leaves_out_the_slot_and_nothing_else)
{
    struct sandbox_spec spec = {.slot = "a", .image = "i", .work_dir = "/w", .workspace_path = "/slots/a"};
    char first[65], second[65];

    provider_spec_digest(&spec, first);
    spec.slot = "b";
    spec.workspace_path = "/slots/b";
    provider_spec_digest(&spec, second);
    cr_assert(eq(str, first, second));
    spec.tmpfs_size = "";
    provider_spec_digest(&spec, second);
    cr_assert(ne(str, first, second));
    spec.tmpfs_size = NULL;
    spec.drop_all_caps = true;
    provider_spec_digest(&spec, second);
    cr_assert(ne(str, first, second));
}
