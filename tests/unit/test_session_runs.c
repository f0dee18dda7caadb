/* The rules of watched runs, on a provider in memory, with a real store. */
#include "session_fixture.h"
#include "session_runs.h"

#include <signal.h>

static void setup_runs(void)
{
    setup();
    wish.keep_on_stop = true;
    wish.max_commands = 4;
    wish.max_runs = 3;
}

TestSuite(session_runs, .init = setup_runs, .fini = teardown, .timeout = 30);

static void must_open(const char *id)
{
    struct session_open request = {.id = id};
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    struct session_view view;

    cr_assert_eq(sessions_open(sessions, &request, &never, &view, token, &err), 0, "%s", err.text);
}

static int try_start(const char *id, const char *run_id, const char *command, const char *cwd, struct run_view *view,
                     bool *is_new, struct error *err)
{
    const char *const argv[] = {"sh", "-c", command};
    const struct run_spec spec = {.argv = argv, .argc = 3, .cwd = cwd, .stdin_open = strcmp(command, "cat") == 0};

    *err = (struct error)ERROR_INIT;
    return session_runs_start(sessions, id, run_id, &spec, command, &never, view, is_new, err);
}

static void must_start(const char *id, const char *run_id, const char *command)
{
    struct error err;
    struct run_view view;
    bool is_new;

    cr_assert_eq(try_start(id, run_id, command, NULL, &view, &is_new, &err), 0, "%s", err.text);
    cr_assert(is_new);
    cr_assert_str_eq(view.run_id, run_id);
}

static struct run_view look(const char *id, const char *run_id, const struct cancel *cancel)
{
    struct error err = ERROR_INIT;
    struct run_view view;

    cr_assert_eq(session_runs_get(sessions, id, run_id, cancel, &view, &err), 0, "%s", err.text);
    return view;
}

static void must_read(const char *id, const char *run_id, uint64_t from, const char *expected)
{
    auto_buf struct buf out = BUF_INIT(1000);
    struct error err = ERROR_INIT;
    struct run_reader *reader;
    struct run_chunk chunk;
    int got;

    cr_assert_eq(session_runs_read(sessions, id, run_id, from, 0, &never, &reader, &err), 0, "%s", err.text);
    while ((got = run_reader_next(reader, &never, &chunk, &err)) > 0)
        cr_assert_eq(buf_append(&out, chunk.data, chunk.size, &err), 0);
    cr_assert_eq(got, 0, "%s", err.text);
    cr_assert_str_eq(buf_str(&out), expected);
    run_reader_free(reader);
}

static unsigned count_runs(const char *id, bool only_running)
{
    struct error err = ERROR_INIT;
    struct run_view *views;
    size_t count;

    cr_assert_eq(session_runs_list(sessions, id, only_running, &views, &count, &err), 0, "%s", err.text);
    free(views);
    return (unsigned)count;
}

Test(session_runs, are_started_named_read_and_told)
{
    struct run_view view;
    struct error err;
    bool is_new;

    begin();
    must_open("s");
    must_start("s", "one", "echo hello world");
    cr_assert_eq(look("s", "one", &never).exit.exit_code, 0);
    must_read("s", "one", 0, "hello world\n");
    must_read("s", "one", 6, "world\n");
    cr_assert_eq(try_start("s", "one", "exit 3", NULL, &view, &is_new, &err), 0);
    cr_assert(view.state == RUN_STATE_ENDED && !is_new, "the name has its run");
    cr_assert_lt(try_start("s", "two", "hang", "/missing", &view, &is_new, &err), 0);
    cr_assert_eq(err.code, ERROR_INVALID);
    cr_assert_not_null(strstr(err.text, "/missing"));
    cr_assert_lt(session_runs_get(sessions, "s", "two", NULL, &view, &err), 0, "it never was");
    cr_assert_eq(err.code, ERROR_NOT_FOUND);
    cr_assert_eq(count_runs("s", false), 1);
    end();
}

Test(session_runs, have_limits_that_nobody_waits_for)
{
    struct run_view view;
    struct error err;
    bool is_new;

    begin();
    must_open("s");
    must_open("t");
    must_start("s", "a", "hang");
    must_start("s", "b", "hang");
    must_start("s", "c", "hang");
    cr_assert_lt(try_start("s", "d", "hang", NULL, &view, &is_new, &err), 0);
    cr_assert_eq(err.code, ERROR_LIMIT);
    must_start("t", "a", "hang");
    cr_assert_lt(try_start("t", "b", "hang", NULL, &view, &is_new, &err), 0);
    cr_assert_eq(err.code, ERROR_LIMIT);
    cr_assert_eq(session_run_stop(sessions, "s", "a", &err), 0);
    view = look("s", "a", &never);
    cr_assert(view.exit.stopped);
    cr_assert_str_eq(view.cause, "stopped");
    must_start("t", "b", "hang");
    cr_assert_eq(count_runs("s", true), 2);
    end();
}

/* Whatever is told to a run, at whichever moment of a freeze: the sandbox is awake to hear it. */
Test(session_runs, are_told_although_their_sandbox_is_being_frozen)
{
    enum { TOLD_SIGNAL, TOLD_RESIZE, TOLD_INPUT, TOLD_STOP, TOLD_ALL };
    const struct run_spec terminal = {.argv = (const char *const[]){"cat"}, .argc = 1, .tty = true, .stdin_open = true};
    struct error err = ERROR_INIT;
    struct run_view view;
    bool is_new;

    wish.freeze_after_s = 1;
    begin();
    must_open("s");
    cr_assert_eq(session_runs_start(sessions, "s", "a", &terminal, "cat", &never, &view, &is_new, &err), 0);
    provider_fake_delay(provider, FAKE_PAUSE, 300);
    for (int told = 0; told < TOLD_ALL; told++) {
        unsigned freezes = provider_fake_calls(provider, FAKE_PAUSE);
        int result = -1;

        until(provider_fake_calls(provider, FAKE_PAUSE) > freezes); /* and is in it */
        if (told == TOLD_SIGNAL)
            result = session_runs_signal(sessions, "s", "a", SIGWINCH, &err);
        if (told == TOLD_RESIZE)
            result = session_runs_resize(sessions, "s", "a", 24, 80, &err);
        if (told == TOLD_INPUT)
            result = session_runs_stdin(sessions, "s", "a", "x", 1, false, &never, &err);
        if (told == TOLD_STOP)
            result = session_runs_stop(sessions, "s", "a", &err);
        cr_assert_eq(result, 0, "%d: %s", told, err.text);
        cr_assert_eq(provider_fake_calls(provider, FAKE_THAW), (unsigned)told + 1, "told %d", told);
    }
    cr_assert(look("s", "a", &never).exit.stopped);
    end();
}

Test(session_runs, go_on_over_links_and_brokers)
{
    struct error err = ERROR_INIT;
    struct run_view view;

    begin();
    must_open("s");
    must_start("s", "open", "cat");
    must_start("s", "over", "echo kept");
    (void)look("s", "over", &never);
    end();
    begin();
    cr_assert_eq(look("s", "open", NULL).state, RUN_STATE_RUNNING);
    cr_assert_eq(look("s", "over", NULL).exit.exit_code, 0);
    must_read("s", "over", 0, "kept\n"); /* waits until the container is attached to again */
    cr_assert_eq(session_runs_stdin(sessions, "s", "open", "input", 5, true, &never, &err), 0, "%s", err.text);
    view = look("s", "open", &never);
    cr_assert(view.exit.stdout_bytes == 5 && !view.exit.lost);
    must_read("s", "open", 0, "input");
    end();
}

Test(session_runs, are_lost_with_a_cause_when_their_sandbox_is)
{
    struct sandbox_listed *listed;
    struct error err = ERROR_INIT;
    struct run_view view;
    size_t count;

    begin();
    must_open("s");
    must_start("s", "a", "hang");
    cr_assert_eq(provider->ops->list(provider, &never, &listed, &count, &err), 0);
    cr_assert_eq(count, 1);
    provider_fake_die(provider, listed[0].ref, true);
    free(listed);
    view = look("s", "a", &never);
    cr_assert(view.exit.lost);
    cr_assert(strncmp(view.cause, "sandbox ", 8) == 0, "%s",
              view.cause); /* the event or the comparison, whichever is first */
    must_read("s", "a", 0, "");
    must_start("s", "b", "echo healed");
    must_read("s", "b", 0, "healed\n");
    end();
}

Test(session_runs, a_link_that_is_cut_is_mended_and_loses_none)
{
    struct sandbox_listed *listed;
    struct error err = ERROR_INIT;
    struct run_reader *reader;
    struct run_chunk chunk;
    size_t count;

    begin();
    must_open("s");
    must_start("s", "a", "cat");
    /* One that reads holds on to the link that dies. */
    cr_assert_eq(session_runs_read(sessions, "s", "a", 0, 0, &never, &reader, &err), 0, "%s", err.text);
    cr_assert_eq(provider->ops->list(provider, &never, &listed, &count, &err), 0);
    provider_fake_cut(provider, listed[0].ref);
    free(listed);
    while (session_runs_stdin(sessions, "s", "a", "x", 1, true, &never, &err) < 0) {
        cr_assert_eq(err.code, ERROR_UNAVAILABLE, "%s", err.text); /* until the link is known to be dead */
        error_clear(&err);
    }
    cr_assert(not(look("s", "a", &never).exit.lost));
    cr_assert_eq(run_reader_next(reader, &never, &chunk, &err), 1, "%s", err.text);
    cr_assert(chunk.size == 1 && chunk.data[0] == 'x');
    cr_assert_eq(run_reader_next(reader, &never, &chunk, &err), 0, "%s", err.text);
    run_reader_free(reader);
    end();
}

Test(session_runs, keep_their_session_and_its_idle_time_begins_with_their_end)
{
    struct error err = ERROR_INIT;
    int64_t began_ms;

    wish.idle_timeout_s = 1;
    begin();
    must_open("s");
    must_start("s", "a", "hang");
    began_ms = clock_mono_ms();
    while (clock_mono_ms() - began_ms < 2500) {
        struct cancel soon = cancel_within(&never, 100);

        cr_assert_eq(look("s", "a", &soon).state, RUN_STATE_RUNNING);
    }
    cr_assert(sessions_exists(sessions, "s"));
    cr_assert_eq(session_runs_stop(sessions, "s", "a", &err), 0);
    began_ms = clock_mono_ms();
    while (sessions_exists(sessions, "s")) {
        struct cancel soon = cancel_within(&never, 50);

        cr_assert_lt(clock_mono_ms() - began_ms, 10000);
        (void)cancel_poll(&soon, NULL, 0, &err);
        error_clear(&err);
    }
    end();
}
