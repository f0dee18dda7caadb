/* A command in a session: its output apart and as it comes, input in, signals through, its status out. */
#include "cli_private.h"

#include "alloc.h"
#include "base64.h"
#include "clock.h"
#include "fd.h"
#include "id.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    INPUT_BYTES = 64 * 1024,
    OUTPUT_MAX_BYTES = 16 * 1024 * 1024,
    COME_BACK_MS = 60000, /* so long without a connection, and the run is given up */
    PAUSE_MS = 500,
    AGAIN_MS = 300,
    STATUS_DEADLINE = 124,
    STATUS_NOT_RUN = 126, /* as shells have it: found, but not run */
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128,
};

struct run {
    struct cli *cli;
    const char *session;
    char id[ID_RUN_BYTES + 1];
    int signals;
    int signal; /* the first that came */
    int64_t signal_ms;
    bool leaves; /* the second */
    bool takes_input;
    struct cli_transfer *output;
    struct cli_stream stream;
    struct cli_transfer *input;
    struct cli_transfer *stop;
    struct json_object *end; /* the view it ended with */
    int64_t lost_since_ms;   /* 0: connected */
    int64_t again_at_ms;
};

static void done(struct run *run)
{
    cli_transfer_free(run->output);
    cli_transfer_free(run->input);
    cli_transfer_free(run->stop);
    cli_stream_done(&run->stream);
    if (run->end)
        (void)json_object_put(run->end);
    if (run->signals >= 0)
        (void)close(run->signals);
}

int cli_run_status(struct json_object *view)
{
    const char *cause = cli_str(view, "cause");

    if (cli_bool(view, "oom"))
        (void)fprintf(stderr, "berth: the sandbox ran out of memory\n");
    if (cli_bool(view, "lost")) {
        (void)fprintf(stderr, "berth: the command was lost (%.60s)\n", cause ? cause : "its end was not seen");
        return CLI_OF_RUN;
    }
    if (cli_bool(view, "timed_out")) {
        (void)fprintf(stderr, "berth: stopped at its deadline\n");
        return STATUS_DEADLINE;
    }
    if (cli_int(view, "signal", 0) > 0)
        return STATUS_SIGNAL + (int)cli_int(view, "signal", 0);
    if (cli_int(view, "exit_code", 0) >= STATUS_NOT_RUN && cli_int(view, "exit_code", 0) <= STATUS_NOT_FOUND &&
        cli_int(view, "stdout_bytes", 0) + cli_int(view, "stderr_bytes", 0) == 0)
        (void)fprintf(stderr, "berth: exit status %d and no output: is there such a program in the sandbox?\n",
                      (int)cli_int(view, "exit_code", 0));
    return (int)cli_int(view, "exit_code", CLI_OF_RUN);
}

/* -- signals -- */

static int stop(struct run *run, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/runs/%s/stop", run->session, run->id);
    const struct cli_request request = {.method = "POST", .target = target, .timeout_ms = COME_BACK_MS};

    cli_transfer_free(take_ptr(run->stop));
    return cli_transfer_start(run->cli, &request, &run->stop, err);
}

static int take_signal(struct run *run, struct error *err)
{
    struct signalfd_siginfo info;

    if (read(run->signals, &info, sizeof info) != sizeof info)
        return 0;
    if (run->signal) {
        /* One that comes with the first is the same: timeout(1) signals its child, and then its group. */
        run->leaves |= clock_mono_ms() - run->signal_ms > AGAIN_MS;
        return 0;
    }
    run->signal = (int)info.ssi_signo;
    run->signal_ms = clock_mono_ms();
    return stop(run, err);
}

/* -- starting -- */

int cli_add_environment(const struct cli *cli, struct json_object *body, struct error *err)
{
    struct json_object *env = json_object_new_object();

    for (unsigned i = 0; i < cli->given_count; i++) {
        const char *value = cli->given[i].value;
        const char *equals = value ? strchr(value, '=') : NULL;
        auto_free char *name = equals ? alloc_str_n(value, (size_t)(equals - value)) : NULL;

        if (strcmp(cli->given[i].option->name, "env") != 0)
            continue;
        if (!name || !*name) {
            (void)json_object_put(env);
            return fail(err, INVALID, "--env takes NAME=VALUE");
        }
        (void)json_object_object_add(env, name, json_object_new_string(equals + 1));
    }
    if (json_object_object_length(env))
        (void)json_object_object_add(body, "env", env);
    else
        (void)json_object_put(env);
    if (cli_value(cli, "cwd"))
        (void)json_object_object_add(body, "cwd", json_object_new_string(cli_value(cli, "cwd")));
    return 0;
}

void cli_add_argv(const struct cli *cli, struct json_object *body)
{
    struct json_object *argv = json_object_new_array();

    for (unsigned i = 1; i < cli->argument_count; i++)
        (void)json_object_array_add(argv, json_object_new_string(cli->arguments[i]));
    (void)json_object_object_add(body, "argv", argv);
}

/* With --open: the session is there afterwards. */
int cli_open_if_asked(struct cli *cli, struct error *err)
{
    auto_json struct json_object *answer = NULL;

    if (cli_check_session(cli->arguments[0], err) < 0)
        return -1;
    return cli_has(cli, "open") ? cli_open(cli, cli->arguments[0], true, NULL, NULL, &answer, err) : 0;
}

int cli_explain_session(const struct cli *cli, const char *session, struct error *err)
{
    if (err->code == ERROR_NOT_FOUND || err->code == ERROR_GONE)
        return error_set(err, err->code, 0, "there is no open session \"%s\": berth open %s, or berth %s --open %s",
                         session, session, cli->verb->name, session);
    return -1;
}

static int start(struct run *run, struct error *err)
{
    auto_json struct json_object *body = json_object_new_object();
    auto_json struct json_object *view = NULL;
    auto_free char *target = cli_target("/sessions/%s/runs", run->session);
    auto_transfer struct cli_transfer *transfer = NULL;
    struct cli_request request = {.method = "POST", .target = target, .timeout_ms = COME_BACK_MS * 3};
    const char *data;
    size_t size;
    int64_t timeout;
    int status = 0;
    int more;

    if (cli_number(run->cli, "timeout", 1, INT32_MAX, 0, &timeout, err) < 0 ||
        cli_add_environment(run->cli, body, err) < 0)
        return -1;
    cli_add_argv(run->cli, body);
    (void)json_object_object_add(body, "run_id", json_object_new_string(run->id));
    (void)json_object_object_add(body, "stdin_open", json_object_new_boolean(run->takes_input));
    if (timeout)
        (void)json_object_object_add(body, "timeout_seconds", json_object_new_int64(timeout));
    request.body = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN);
    request.body_size = strlen(request.body);
    if (cli_transfer_start(run->cli, &request, &transfer, err) < 0)
        return -1;
    /* It may have to be woken first: signals are heard meanwhile. */
    while ((more = cli_transfer_read(transfer, false, &data, &size, err)) == 2 && !run->leaves) {
        struct pollfd fd = {run->signals, POLLIN, 0};

        if (cli_http_poll(run->cli, &fd, 1, 1000, err) < 0 || (fd.revents && take_signal(run, err) < 0))
            return -1;
    }
    if (run->leaves)
        return 0;
    if (more < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return -1;
    if (status >= 300) {
        (void)cli_refused(run->cli, status, more == 1 ? data : "", err); /* short, and whole: it is small */
        return cli_explain_session(run->cli, run->session, err);
    }
    return run->signal ? stop(run, err) : 0; /* what was asked before it was there went to nobody */
}

/* -- output -- */

static int put_output(struct json_object *record, int fd, struct error *err)
{
    auto_buf struct buf bytes = BUF_INIT(OUTPUT_MAX_BYTES);
    struct json_object *text = cli_member(record, "text");
    const char *base64 = cli_str(record, "base64");

    if (text)
        return fd_write_all(fd, json_object_get_string(text), (size_t)json_object_get_string_len(text), err);
    if (!base64)
        return 0;
    if (base64_decode(base64, strlen(base64), &bytes, err) < 0)
        return -1;
    return fd_write_all(fd, buf_str(&bytes), bytes.size, err);
}

/* 1: it was the last. */
static int take_record(void *context, const struct cli_stream *stream, struct error *err)
{
    struct run *run = context;
    auto_json struct json_object *record = NULL;
    const char *event = stream->event;

    if (json_parse(buf_str(&stream->data), stream->data.size, &record, NULL, err) < 0)
        return -1;
    if (strcmp(event, "stdout") == 0)
        return put_output(record, STDOUT_FILENO, err);
    if (strcmp(event, "stderr") == 0)
        return put_output(record, STDERR_FILENO, err);
    if (strcmp(event, "exit") == 0)
        run->end = json_object_get(record);
    else if (strcmp(event, "replaced") == 0)
        return fail(err, CONFLICT, "somebody else reads the output of run %s now; it goes on", run->id);
    else if (strcmp(event, "dropped") == 0)
        (void)fprintf(stderr, "berth: %lld bytes of output are missing here: they were written while nobody read\n",
                      (long long)cli_int(record, "bytes", 0));
    return run->end != NULL;
}

static int connect_output(struct run *run, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/runs/%s/output", run->session, run->id);
    const struct cli_request request = {.method = "GET",
                                        .target = target,
                                        .accept = "text/event-stream",
                                        .last_event_id = run->stream.id[0] ? run->stream.id : NULL};

    cli_stream_reset(&run->stream);
    return cli_transfer_start(run->cli, &request, &run->output, err);
}

/* The connection broke, or could not be made: another one later, for a while. */
static int lose_output(struct run *run, struct error *err)
{
    cli_transfer_free(take_ptr(run->output));
    if (!run->lost_since_ms)
        run->lost_since_ms = clock_mono_ms();
    run->again_at_ms = clock_mono_ms() + PAUSE_MS;
    if (clock_mono_ms() - run->lost_since_ms > COME_BACK_MS)
        return error_prefix(err, "the connection to run %s is lost; it may go on", run->id);
    error_clear(err);
    return 0;
}

static int read_output(struct run *run, struct error *err)
{
    int status;

    if (!run->output)
        return clock_mono_ms() < run->again_at_ms ? 0 : connect_output(run, err);
    status = cli_transfer_known_status(run->output);
    if (status && status != 200) {
        /* A broker on its way up or down is asked again. */
        (void)error_set(err, status == 404 || status == 410 ? ERROR_GONE : ERROR_INTERNAL, 0,
                        "the output of run %s cannot be read (%d)", run->id, status);
        return status >= 500 ? lose_output(run, err) : -1;
    }
    if (status)
        run->lost_since_ms = 0;
    switch (cli_stream_each(&run->stream, run->output, false, take_record, run, err)) {
    case CLI_STREAM_ENOUGH:
    case CLI_STREAM_WAITS:
        return 0;
    case CLI_STREAM_ENDED:
    case CLI_STREAM_BROKEN:
        return lose_output(run, err);
    default:
        return -1;
    }
}

/* -- input: a piece, and the next one when it was taken -- */

static int send_input(struct run *run, struct error *err)
{
    char piece[INPUT_BYTES];
    ssize_t size = read(STDIN_FILENO, piece, sizeof piece);
    auto_free char *target = cli_target(size > 0 ? "/sessions/%s/runs/%s/stdin" : "/sessions/%s/runs/%s/stdin?eof=true",
                                        run->session, run->id);
    const struct cli_request request = {.method = "POST",
                                        .target = target,
                                        .body = piece,
                                        .body_size = size > 0 ? (size_t)size : 0,
                                        .type = "application/octet-stream"};

    if (size < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (size <= 0)
        run->takes_input = false;
    return cli_transfer_start(run->cli, &request, &run->input, err);
}

static int end_input(struct run *run, struct error *err)
{
    const char *data;
    size_t size;
    int more;
    int status;

    while ((more = cli_transfer_read(run->input, false, &data, &size, err)) == 1)
        ;
    if (more == 2)
        return 0;
    if (more < 0 && err->code != ERROR_UNAVAILABLE && err->code != ERROR_TIMEOUT)
        return -1;
    if (more < 0 || cli_transfer_status(run->input, &status, err) < 0 || status >= 500) {
        /* Whether the piece arrived is not known: sending it again could double it. */
        run->takes_input = false;
        error_clear(err);
        (void)fprintf(stderr, "berth: the connection broke while input was sent: the command gets no more of it\n");
    } else if (status >= 300) {
        run->takes_input = false; /* it has ended, or wants none: as a broken pipe */
    }
    cli_transfer_free(take_ptr(run->input));
    return 0;
}

static int block_signals(struct error *err)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigset_t set;
    int fd;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)sigaction(SIGPIPE, &ignored, NULL); /* a reader that left is told to the command */
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? fail_errno(err, "signalfd") : fd;
}

/* -- the whole -- */

static int go_on(struct run *run, struct error *err)
{
    while (!run->end && !run->leaves) {
        struct pollfd fds[2] = {{run->signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        bool reads = run->takes_input && !run->input;

        if (cli_http_poll(run->cli, fds, reads ? 2 : 1, 1000, err) < 0)
            return -1;
        if ((fds[0].revents && take_signal(run, err) < 0) || read_output(run, err) < 0 ||
            (run->input && end_input(run, err) < 0))
            return -1;
        if (reads && fds[1].revents && !run->end && send_input(run, err) < 0)
            return -1;
    }
    return 0;
}

/* As a command of ours would end at a pipe that nobody reads: this one has to be told. */
static int nobody_reads(struct run *run)
{
    auto_free char *target = cli_target("/sessions/%s/runs/%s/stop", run->session, run->id);
    struct error ignored = ERROR_INIT;

    (void)cli_call(run->cli, "POST", target, NULL, NULL, &ignored);
    return STATUS_SIGNAL + SIGPIPE;
}

int verb_run(struct cli *cli, struct error *err)
{
    auto_cleanup(done) struct run run = {
        .cli = cli, .session = cli->arguments[0], .signals = -1, .stream = CLI_STREAM_INIT};

    id_random_hex(run.id, ID_RUN_BYTES);
    run.takes_input = !cli_has(cli, "no-stdin") && !cli_has(cli, "detach");
    if (cli_open_if_asked(cli, err) < 0)
        return -1;
    run.signals = block_signals(err);
    if (run.signals < 0 || start(&run, err) < 0)
        return -1;
    if (cli_has(cli, "detach")) {
        (void)puts(run.id);
        return CLI_OK;
    }
    if (go_on(&run, err) < 0)
        return err->sys_errno == EPIPE ? nobody_reads(&run) : -1;
    if (run.end && !run.signal)
        return cli_run_status(run.end);
    if (!run.end)
        (void)fprintf(stderr, "berth: left before run %s had ended\n", run.id);
    else if (!cli_bool(run.end, "stopped"))
        return cli_run_status(run.end); /* it had ended by itself */
    return STATUS_SIGNAL + run.signal;
}
