/* The hub and the real agent, over a socketpair on this host. */
#include "agent_pair.h"

#include "clock.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct agent_run *start_shell(struct pair *pair, const char *script)
{
    const char *const argv[] = {"/bin/sh", "-c", script};
    const struct run_spec spec = {.argv = argv, .argc = 3, .has_reader = true};

    return pair_start(pair, &spec);
}

/* Read a run to its end, appending to one buffer a stream; frees it. */
static struct run_exit finish(struct agent_run *run, struct buf *out, struct buf *errors)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_exit exited;
    struct run_chunk chunk;
    int said;

    while ((said = agent_run_next(run, &cancel, &chunk, &err)) == 1) {
        struct buf *stream = chunk.stream == RUN_STDERR ? errors : out;

        cr_assert(eq(u64, chunk.dropped, 0));
        if (stream) {
            cr_assert(eq(u64, chunk.offset, stream->size));
            cr_assert(eq(int, buf_append(stream, chunk.data, chunk.size, &err), 0));
        }
    }
    cr_assert(eq(int, said, 0), "%s", err.text);
    exited = *agent_run_exit(run);
    agent_run_free(run);
    return exited;
}

static int by_value(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void run_alone(void)
{
    char *argv[] = {"/bin/sh", "-c", "exit 7", NULL};
    int status = 0;
    pid_t pid;

    cr_assert(eq(int, posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0));
    (void)waitpid(pid, &status, 0);
    cr_assert(eq(int, WEXITSTATUS(status), 7));
}

Test(agent_pair, gives_300_sevens)
{
    int64_t took_us[300];
    int64_t alone_us[300];
    struct pair pair;

    pair_open(&pair);
    cr_expect(eq(u32, pair.hello.uid, geteuid()));
    for (int i = 0; i < 300; i++) {
        const int64_t began_us = clock_mono_us();
        struct run_exit exited = finish(start_shell(&pair, "exit 7"), NULL, NULL);

        took_us[i] = clock_mono_us() - began_us;
        cr_assert(eq(int, exited.exit_code, 7));
        cr_assert(not(exited.lost));
    }
    for (int i = 0; i < 300; i++) {
        const int64_t began_us = clock_mono_us();

        run_alone();
        alone_us[i] = clock_mono_us() - began_us;
    }
    qsort(took_us, 300, sizeof *took_us, by_value);
    qsort(alone_us, 300, sizeof *alone_us, by_value);
    (void)fprintf(stderr, "sh -c 'exit 7': p50 %lld us, p99 %lld us; without an agent %lld us\n",
                  (long long)took_us[150], (long long)took_us[297], (long long)alone_us[150]);
    pair_done(&pair);
}

Test(agent_pair, loses_no_byte_of_large_output)
{
    auto_buf struct buf expected = BUF_INIT(16 * 1024 * 1024);
    auto_buf struct buf got = BUF_INIT(16 * 1024 * 1024);
    struct error err = ERROR_INIT;
    struct run_exit exited;
    struct pair pair;
    int64_t began_us;

    for (int i = 1; i <= 1200000; i++)
        (void)buf_append_format(&expected, &err, "%d\n", i);
    pair_open(&pair);
    exited = finish(start_shell(&pair, "seq 1 1200000"), &got, NULL);
    cr_expect(eq(int, exited.exit_code, 0));
    cr_assert(eq(sz, got.size, expected.size));
    cr_expect(eq(int, memcmp(got.data, expected.data, got.size), 0));
    cr_expect(eq(u64, exited.stdout_bytes, expected.size));

    began_us = clock_mono_us();
    exited = finish(start_shell(&pair, "head -c 268435456 /dev/zero"), NULL, NULL);
    cr_expect(eq(u64, exited.stdout_bytes, 268435456));
    (void)fprintf(stderr, "output of one run: %.0f MB/s\n", 268435456.0 / (double)(clock_mono_us() - began_us));
    pair_done(&pair);
}

Test(agent_pair, keeps_streams_apart_or_merges_them_as_asked)
{
    const char *const argv[] = {"/bin/sh", "-c", "echo one; echo two >&2; echo $A; pwd"};
    const char *const env[] = {"A=three"};
    struct run_spec spec = {.argv = argv, .argc = 3, .env = env, .env_count = 1, .cwd = "/usr", .has_reader = true};
    auto_buf struct buf out = BUF_INIT(1000);
    auto_buf struct buf errors = BUF_INIT(1000);
    struct pair pair;

    pair_open(&pair);
    (void)finish(pair_start(&pair, &spec), &out, &errors);
    cr_expect(eq(str, (char *)buf_str(&out), "one\nthree\n/usr\n"));
    cr_expect(eq(str, (char *)buf_str(&errors), "two\n"));
    buf_clear(&out);
    spec.merge = true;
    (void)finish(pair_start(&pair, &spec), &out, NULL);
    cr_expect(eq(str, (char *)buf_str(&out), "one\ntwo\nthree\n/usr\n"));
    pair_done(&pair);
}

Test(agent_pair, tells_how_a_run_ended)
{
    const char *const missing[] = {"/no/such/program"};
    const char *const sleeping[] = {"/bin/sleep", "1000"};
    struct run_spec spec = {.argv = missing, .argc = 1};
    struct agent_run *run;
    struct run_exit exited;
    struct pair pair;

    pair_open(&pair);
    exited = finish(pair_start(&pair, &spec), NULL, NULL);
    cr_expect(exited.spawn_failed && !exited.lost);
    cr_expect(eq(int, exited.spawn_errno, ENOENT));
    cr_expect(eq(int, exited.exit_code, -1));

    exited = finish(start_shell(&pair, "kill -SEGV $$"), NULL, NULL);
    cr_expect(eq(int, exited.signal, SIGSEGV));

    spec = (struct run_spec){.argv = sleeping, .argc = 2, .timeout_ms = 50};
    exited = finish(pair_start(&pair, &spec), NULL, NULL);
    cr_expect(exited.timed_out);
    cr_expect(eq(int, exited.signal, SIGTERM));

    spec.timeout_ms = 0;
    run = pair_start(&pair, &spec);
    agent_run_stop(run);
    exited = finish(run, NULL, NULL);
    cr_expect(exited.stopped);
    cr_expect(eq(uint, agent_link_running(pair.link), 0));
    pair_done(&pair);
}

Test(agent_pair, ends_a_run_that_nobody_wants_any_more)
{
    struct cancel cancel = pair_patient();
    struct sandbox_usage usage;
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    struct agent_run *run;
    struct pair pair;

    pair_open(&pair);
    run = start_shell(&pair, "yes");
    cr_assert(eq(int, agent_run_next(run, &cancel, &chunk, &err), 1));
    agent_run_free(run);
    while (agent_link_running(pair.link) > 0) /* usage is a round trip: each gives the agent its turn */
        cr_assert(eq(int, agent_link_usage(pair.link, &cancel, &usage, &err), 0), "%s", err.text);
    pair_done(&pair);
}

static void *parallel_main(void *context)
{
    struct pair *pair = context;

    for (int i = 0; i < 25; i++) {
        auto_free char *script = alloc_format("seq %d %d; exit %d", i * 1000, i * 1000 + 9000, i);
        auto_buf struct buf expected = BUF_INIT(100000);
        auto_buf struct buf out = BUF_INIT(100000);
        struct error err = ERROR_INIT;
        struct run_exit exited = finish(start_shell(pair, script), &out, NULL);

        for (int line = i * 1000; line <= i * 1000 + 9000; line++)
            (void)buf_append_format(&expected, &err, "%d\n", line);
        cr_assert(eq(int, exited.exit_code, i));
        cr_assert(eq(sz, out.size, expected.size));
        cr_assert(eq(int, memcmp(out.data, expected.data, out.size), 0));
    }
    return NULL;
}

Test(agent_pair, runs_many_at_once)
{
    pthread_t threads[8];
    struct pair pair;

    pair_open(&pair);
    for (int i = 0; i < 8; i++)
        cr_assert(eq(int, pthread_create(&threads[i], NULL, parallel_main, &pair), 0));
    for (int i = 0; i < 8; i++)
        cr_assert(eq(int, pthread_join(threads[i], NULL), 0));
    pair_done(&pair);
}

/* A broker dies in the middle of a START and with output unread; the next one finds the kept run and loses no byte of it.
 * (It says less than the agent keeps of a run without a reader, which it is between two brokers.) */
Test(agent_pair, goes_on_with_a_kept_run_after_the_broker_died)
{
    static const char script[] = "seq 1 40000; sleep 0.3; seq 40001 40100; exit 9";
    const char *const argv[] = {"/bin/sh", "-c", script};
    const char *const stray_argv[] = {"/bin/sleep", "1000"};
    const struct run_spec spec = {.argv = argv, .argc = 3, .keep = true, .has_reader = true};
    const struct run_spec stray = {.argv = stray_argv, .argc = 2, .keep = true};
    const struct agent_header half = {
        .magic = AGENT_MAGIC, .version = AGENT_VERSION, .type = AGENT_START, .length = 60000};
    auto_buf struct buf expected = BUF_INIT(4 * 1024 * 1024);
    auto_buf struct buf got = BUF_INIT(4 * 1024 * 1024);
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_exit exited;
    struct agent_run *run;
    struct agent_run *stray_run;
    struct run_chunk chunk;
    struct pair pair;
    uint32_t number;
    uint64_t read_bytes = 0;
    int said;

    for (int i = 1; i <= 40100; i++)
        (void)buf_append_format(&expected, &err, "%d\n", i);
    pair_open(&pair);
    run = pair_start(&pair, &spec);
    number = pair.last;
    stray_run = pair_start(&pair, &stray);
    while (read_bytes < 50000) {
        cr_assert(eq(int, agent_run_next(run, &cancel, &chunk, &err), 1));
        cr_assert(eq(int, buf_append(&got, chunk.data, chunk.size, &err), 0));
        read_bytes += chunk.size;
    }
    /* What a death does: no STOP, no farewell, half a frame. The handles are let go after the link is dead. */
    agent_link_close(pair.link);
    agent_run_free(run);
    agent_run_free(stray_run);
    cr_assert(gt(int, (int)write(pair.engine_fd, &half, sizeof half), 0));
    agent_link_unref(pair.link);
    agent_hub_free(pair.hub);

    pair_hub(&pair, 2);
    cr_assert(eq(int, pair_attach(&pair, &number, 1, &err), 0), "%s", err.text);
    cr_assert(eq(int, agent_run_resume(pair.link, number, true, &run, &err), 0), "%s", err.text);
    while ((said = agent_run_next(run, &cancel, &chunk, &err)) == 1) {
        cr_assert(le(u64, chunk.offset, got.size), "nothing is missing");
        cr_assert(eq(u64, chunk.dropped, 0));
        if (chunk.offset + chunk.size > got.size) {
            size_t known = got.size - chunk.offset;

            cr_assert(eq(int, buf_append(&got, chunk.data + known, chunk.size - known, &err), 0));
        }
    }
    cr_assert(eq(int, said, 0), "%s", err.text);
    exited = *agent_run_exit(run);
    agent_run_free(run);
    cr_expect(eq(int, exited.exit_code, 9));
    cr_assert(eq(sz, got.size, expected.size));
    cr_expect(eq(int, memcmp(got.data, expected.data, got.size), 0));
    while (agent_link_running(pair.link) > 0) { /* the stray one is stopped */
        struct sandbox_usage usage;

        cr_assert(eq(int, agent_link_usage(pair.link, &cancel, &usage, &err), 0), "%s", err.text);
    }
    pair_done(&pair);
}

Test(agent_pair, sees_the_death_of_the_agent_at_once)
{
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct agent_run *run;
    struct run_exit exited;
    struct pair pair;

    pair_open(&pair);
    run = start_shell(&pair, "sleep 1000");
    (void)kill(pair.agent, SIGKILL);
    cr_assert(eq(int, agent_link_wait_dead(pair.link, &cancel, &err), 0));
    exited = finish(run, NULL, NULL);
    cr_expect(exited.lost);
    agent_link_unref(pair.link);
    agent_hub_free(pair.hub);
    (void)close(pair.engine_fd);
    (void)waitpid(pair.agent, NULL, 0);
}

/* -- standard input -- */

struct writer {
    struct agent_run *run;
    const char *data;
    size_t size;
};

static void *write_input(void *data)
{
    struct writer *writer = data;
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;

    cr_expect(eq(int, agent_run_stdin_write(writer->run, writer->data, writer->size, &cancel, &err), 0), "%s",
              err.text);
    agent_run_stdin_eof(writer->run);
    return NULL;
}

/* Input is written by another thread, as output comes meanwhile. */
static struct run_exit feed(struct pair *pair, const char *script, const char *data, size_t size, struct buf *out)
{
    const char *const argv[] = {"/bin/sh", "-c", script};
    const struct run_spec spec = {.argv = argv, .argc = 3, .has_reader = true, .stdin_open = true};
    struct writer writer = {pair_start(pair, &spec), data, size};
    struct cancel cancel = pair_patient();
    struct error err = ERROR_INIT;
    struct run_exit exited;
    struct run_chunk chunk;
    pthread_t thread;
    int said;

    cr_assert(eq(int, pthread_create(&thread, NULL, write_input, &writer), 0));
    while ((said = agent_run_next(writer.run, &cancel, &chunk, &err)) == 1)
        cr_assert(eq(int, buf_append(out, chunk.data, chunk.size, &err), 0));
    cr_assert(eq(int, said, 0), "%s", err.text);
    (void)pthread_join(thread, NULL);
    exited = *agent_run_exit(writer.run);
    agent_run_free(writer.run);
    return exited;
}

Test(agent_pair, takes_8_mib_of_input_and_loses_none)
{
    enum { SIZE = 8 * 1024 * 1024 };
    auto_buf struct buf out = BUF_INIT(SIZE);
    auto_free char *data = alloc_array(SIZE, 1);
    struct pair pair;
    int64_t began_us;

    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    pair_open(&pair);
    began_us = clock_mono_us();
    cr_expect(eq(int, feed(&pair, "exec cat", data, SIZE, &out).exit_code, 0));
    (void)fprintf(stderr, "through cat: %.0f MB/s\n", (double)SIZE / (double)(clock_mono_us() - began_us));
    cr_assert(eq(sz, out.size, SIZE));
    cr_expect(eq(int, memcmp(out.data, data, SIZE), 0));
    buf_clear(&out);
    (void)feed(&pair, "wc -c", data, SIZE, &out);
    cr_expect(eq(str, (char *)buf_str(&out), "8388608\n"));
    pair_done(&pair);
}

Test(agent_pair, gives_what_is_said_after_the_end_of_input)
{
    auto_buf struct buf out = BUF_INIT(1000);
    struct pair pair;

    pair_open(&pair);
    (void)feed(&pair, "cat >/dev/null; sleep 1; echo late", "x", 1, &out);
    cr_expect(eq(str, (char *)buf_str(&out), "late\n"));
    buf_clear(&out);
    (void)feed(&pair, "cat; echo end", "", 0, &out);
    cr_expect(eq(str, (char *)buf_str(&out), "end\n"));
    pair_done(&pair);
}

Test(agent_pair, lets_input_vanish_that_nobody_reads)
{
    enum { SIZE = 1024 * 1024 };
    auto_buf struct buf out = BUF_INIT(1000);
    auto_free char *data = alloc_zero(SIZE);
    struct pair pair;

    pair_open(&pair);
    cr_expect(eq(int, feed(&pair, "exit 3", data, SIZE, &out).exit_code, 3));
    cr_expect(eq(int, feed(&pair, "exec <&-; echo closed; exit 4", data, SIZE, &out).exit_code, 4));
    cr_expect(eq(str, (char *)buf_str(&out), "closed\n"));
    pair_done(&pair);
}
