/* Watched runs: the hub and the real agent, over a socketpair on this host. */
#include "agent_pair.h"

#include "clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static struct agent_run *watch(struct pair *pair, const char *script, const struct run_spec *how)
{
    const char *const argv[] = {"/bin/sh", "-c", script};
    struct run_spec spec = how ? *how : (struct run_spec){0};
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct agent_run *run;

    spec.argv = argv;
    spec.argc = 3;
    spec.keep = spec.watch = true;
    run = pair_start(pair, &spec);
    cr_assert(eq(int, agent_run_wait_started(run, &cancel, &err), 0), "%s", err.text);
    return run;
}

static void seek(struct agent_run *run, uint64_t out, uint64_t errors)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    uint64_t place;

    cr_assert(eq(int, agent_run_seek(run, out, errors, &cancel, &place, &err), 0), "%s", err.text);
}

/* Read on until `size` bytes of standard output are there, or the end: 0. */
static int read_on(struct agent_run *run, struct buf *out, size_t size)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    int said = 1;

    while (out->size < size && (said = agent_run_next(run, &cancel, &chunk, &err)) == 1) {
        if (chunk.stream == RUN_STDERR)
            continue;
        cr_assert(eq(u64, chunk.dropped, 0));
        cr_assert(eq(u64, chunk.offset, out->size));
        cr_assert(eq(int, buf_append(out, chunk.data, chunk.size, &err), 0));
    }
    cr_assert(ge(int, said, 0), "%s", err.text);
    return said;
}

static struct run_exit wait_end(struct pair *pair, struct agent_run *run)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_exit exited;
    uint64_t cookie;

    agent_run_watch(run, 77);
    cr_assert(eq(int, agent_hub_next_end(pair->hub, &cancel, &cookie, &err), 0), "%s", err.text);
    cr_expect(eq(u64, cookie, 77));
    cr_assert(agent_run_ended(run, &exited));
    return exited;
}

Test(agent_watch, tells_the_end_although_nobody_reads)
{
    auto_buf struct buf out = BUF_INIT(1000);
    struct run_exit exited;
    struct agent_run *run;
    struct pair pair;

    pair_open(&pair);
    run = watch(&pair, "echo hello; exit 3", NULL);
    exited = wait_end(&pair, run);
    cr_expect(eq(int, exited.exit_code, 3));
    cr_expect(eq(u64, exited.stdout_bytes, 6));
    for (int times = 0; times < 3; times++) { /* as often as one likes */
        buf_clear(&out);
        seek(run, 0, 0);
        cr_expect(eq(int, read_on(run, &out, SIZE_MAX), 0));
        cr_expect(eq(str, (char *)buf_str(&out), "hello\n"));
        cr_expect_not(agent_run_cut(run));
        agent_run_leave(run, 0);
    }
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, says_when_it_could_not_begin_before_it_says_that_it_began)
{
    const struct run_spec nowhere = {.cwd = "/no/such/directory"};
    struct run_exit exited;
    struct agent_run *run;
    struct pair pair;

    pair_open(&pair);
    run = watch(&pair, "true", &nowhere);
    cr_assert(agent_run_ended(run, &exited));
    cr_expect(exited.spawn_failed && exited.spawn_cwd);
    cr_expect(eq(int, exited.spawn_errno, ENOENT));
    agent_run_free(run);
    run = watch(&pair, "sleep 600", NULL);
    cr_expect_not(agent_run_ended(run, &exited));
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, goes_back_to_any_byte_that_was_read_lately)
{
    auto_buf struct buf out = BUF_INIT(20000000);
    struct agent_run *run;
    struct pair pair;

    pair_open(&pair);
    run = watch(&pair, "seq 1 1000000", NULL);
    seek(run, 0, 0);
    while (read_on(run, &out, out.size + 300000) != 0) {
        out.size -= out.size < 200000 ? out.size : 200000; /* what a cut client had not received yet */
        agent_run_leave(run, 5000);
        seek(run, out.size, 0);
    }
    cr_expect(eq(sz, out.size, 6888896));
    for (size_t i = 1, at = 0; i <= 1000000; i++) {
        char line[16];
        size_t size = (size_t)snprintf(line, sizeof line, "%zu\n", i);

        cr_assert(eq(int, memcmp(out.data + at, line, size), 0), "line %zu", i);
        at += size;
    }
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, drops_the_middle_and_counts_it_when_nobody_comes)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_exit exited;
    struct run_chunk chunk;
    struct agent_run *run;
    uint64_t dropped = 0, got = 0;
    struct pair pair;
    int said;

    pair_open(&pair);
    run = watch(&pair, "head -c 4000000 /dev/zero; echo end", NULL);
    exited = wait_end(&pair, run); /* held for the first two seconds, then let go */
    cr_expect(eq(u64, exited.stdout_bytes, 4000004));
    seek(run, 0, 0);
    while ((said = agent_run_next(run, &cancel, &chunk, &err)) == 1) {
        dropped += chunk.dropped;
        got += chunk.size;
    }
    cr_expect(eq(int, said, 0), "%s", err.text);
    cr_expect(eq(u64, dropped + got, 4000004));
    cr_expect(gt(u64, got, 400000));
    cr_expect(lt(u64, got, 1200000));
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, refuses_a_place_beyond_the_end_and_ends_an_older_reader)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    struct agent_run *run;
    struct pair pair;
    uint64_t place;

    pair_open(&pair);
    run = watch(&pair, "echo x; exec sleep 600", NULL);
    cr_expect(lt(int, agent_run_seek(run, 100, 0, &cancel, &place, &err), 0));
    cr_expect(eq(int, err.code, ERROR_INVALID));
    error_clear(&err);
    seek(run, 0, 0);
    cr_assert(eq(int, agent_run_next(run, &cancel, &chunk, &err), 1));
    agent_run_interrupt(run);
    cr_expect(lt(int, agent_run_next(run, &cancel, &chunk, &err), 0));
    cr_expect(eq(int, err.code, ERROR_CONFLICT));
    agent_run_signal(run, SIGHUP);
    cr_expect(eq(int, wait_end(&pair, run).signal, SIGHUP));
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, has_a_terminal_that_changes_its_size)
{
    const struct run_spec terminal = {.tty = true, .rows = 33, .cols = 99, .stdin_open = true};
    auto_buf struct buf out = BUF_INIT(1000);
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct agent_run *run;
    struct pair pair;

    pair_open(&pair);
    run = watch(&pair, "stty -echo; trap 'stty size; exit 4' WINCH; stty size; while :; do read x; done", &terminal);
    seek(run, 0, 0);
    (void)read_on(run, &out, 7);
    cr_expect(eq(str, (char *)buf_str(&out), "33 99\r\n"));
    agent_run_resize(run, 40, 120);
    cr_assert(eq(int, agent_run_stdin_write(run, "\n", 1, &cancel, &err), 0));
    (void)read_on(run, &out, SIZE_MAX);
    cr_expect(eq(str, (char *)buf_str(&out), "33 99\r\n40 120\r\n"));
    cr_expect(eq(int, wait_end(&pair, run).exit_code, 4));
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, loses_nothing_over_the_death_of_brokers)
{
    const struct run_spec open = {.stdin_open = true};
    const size_t all = 6888896 + 6; /* then it waits for the rest of its input */
    auto_buf struct buf out = BUF_INIT(20000000);
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct agent_run *run;
    struct pair pair;
    uint32_t number;

    pair_open(&pair);
    run = watch(&pair, "read word; seq 1 1000000; echo $word; cat", &open);
    number = pair.last;
    cr_assert(eq(int, agent_run_stdin_write(run, "begin\n", 6, &cancel, &err), 0));
    seek(run, 0, 0);
    for (uint32_t epoch = 2; out.size < all; epoch++) {
        size_t further = out.size + 500000;

        (void)read_on(run, &out, further < all ? further : all);
        if (out.size >= all)
            break;
        out.size -= out.size < 100000 ? out.size : 100000;
        pair_die(&pair, run);
        pair_hub(&pair, epoch);
        cr_assert(eq(int, pair_attach(&pair, &number, 1, &err), 0), "%s", err.text);
        cr_assert(eq(int, agent_run_resume(pair.link, number, false, &run, &err), 0), "%s", err.text);
        seek(run, out.size, 0);
    }
    cr_assert(eq(int, agent_run_stdin_write(run, "late\n", 5, &cancel, &err), 0));
    agent_run_stdin_eof(run);
    (void)read_on(run, &out, SIZE_MAX);
    cr_assert(eq(sz, out.size, 6888896 + 11));
    cr_expect(eq(str, out.data + 6888896, "begin\nlate\n"));
    cr_expect(eq(int, wait_end(&pair, run).exit_code, 0));
    agent_run_free(run);
    pair_done(&pair);
}

Test(agent_watch, many_that_keep_what_was_read_do_not_stop_one_another)
{
    struct agent_run *runs[40];
    struct pair pair;

    pair_open(&pair);
    for (int i = 0; i < 40; i++) {
        runs[i] = watch(&pair, "seq 1 200000; exec sleep 600", NULL);
        seek(runs[i], 0, 0);
    }
    for (int i = 0; i < 40; i++) {
        auto_buf struct buf out = BUF_INIT(2000000);

        (void)read_on(runs[i], &out, 1288895);
        cr_expect(eq(sz, out.size, 1288895));
    }
    for (int i = 0; i < 40; i++)
        agent_run_free(runs[i]);
    pair_done(&pair);
}
