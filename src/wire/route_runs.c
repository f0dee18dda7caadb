/* Commands that are started, watched, fed and found again: Berth's own routes. */
#include "alloc.h"
#include "id.h"
#include "wire_run.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    STDIN_GIVEN_MAX_BYTES = 128 * 1024, /* what fits into the sandbox at once; more is sent to …/stdin */
    STDIN_PIECE_BYTES = 64 * 1024,
    WAIT_MAX_S = 3600,
    TIMEOUT_MAX_S = 1000000000,
};

/* -- views -- */

static void put_code(struct wire_writer *writer, const struct run_view *view)
{
    const struct run_exit *exit = &view->exit;

    wire_put_size(writer, "exit_code",
                  view->state != RUN_STATE_ENDED || exit->lost ? -1
                  : exit->spawn_failed                         ? session_run_exit_code(exit)
                                                               : exit->exit_code);
    wire_put_size(writer, "signal", exit->signal ? exit->signal : -1);
}

void wire_put_run(struct wire_writer *writer, const struct run_view *view)
{
    static const char *const states[] = {
        [RUN_STATE_STARTING] = "starting", [RUN_STATE_RUNNING] = "running", [RUN_STATE_ENDED] = "ended"};
    const struct run_exit *exit = &view->exit;
    bool ended = view->state == RUN_STATE_ENDED;

    wire_put_str(writer, "run_id", view->run_id[0] ? view->run_id : NULL);
    wire_put_str(writer, "state", states[view->state]);
    wire_put_str(writer, "command", view->command);
    wire_put_bool(writer, "tty", view->tty);
    wire_put_seconds(writer, "started_at", view->started_at_unix_us);
    if (ended)
        wire_put_seconds(writer, "ended_at", view->ended_at_unix_us);
    else
        wire_put_null(writer, "ended_at");
    put_code(writer, view);
    wire_put_bool(writer, "timed_out", exit->timed_out);
    wire_put_bool(writer, "stopped", exit->stopped);
    wire_put_bool(writer, "output_limited", exit->output_limited);
    wire_put_bool(writer, "oom", exit->oom);
    wire_put_bool(writer, "lost", exit->lost);
    wire_put_str(writer, "cause", view->cause[0] ? view->cause : NULL);
    wire_put_size(writer, "cpu_ms", ended && !exit->lost ? exit->cpu_ms : -1);
    wire_put_size(writer, "peak_bytes", ended && !exit->lost ? exit->peak_bytes : -1);
    wire_put_size(writer, "stdout_bytes", ended && !exit->lost ? (int64_t)exit->stdout_bytes : -1);
    wire_put_size(writer, "stderr_bytes", ended && !exit->lost ? (int64_t)exit->stderr_bytes : -1);
}

static int reply_view(struct http_reply *reply, int status, const struct run_view *view, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_run(&writer, view);
    wire_put_close(&writer, '}');
    http_reply_status(reply, status);
    return wire_reply_json(reply, &writer, err);
}

const char *wire_run_of(struct wire_call *call)
{
    size_t size;
    const char *run_id = http_request_param(call->request, 1, &size);

    if (id_name_valid(run_id, size))
        return run_id;
    wire_invalid_pattern(&call->invalid, WIRE_AT("path", "run_id"), WIRE_NAME_PATTERN);
    return NULL;
}

/* -- POST /sessions/{session_id}/runs -- */

void wire_wanted_done(struct wire_wanted *wanted)
{
    free(wanted->argv);
    free(wanted->env);
}

/* argv, or one string for a shell; never both. */
static void read_command(struct wire_call *call, struct wire_wanted *wanted)
{
    struct json_object *ignored;
    struct wire_text text = {NULL, 0};
    bool has_nul = false;

    if (!json_member(call->body.object, "command", &ignored)) {
        wanted->argv = wire_run_argv(call, &wanted->spec.argc, &has_nul);
        wanted->spec.argv = wanted->argv;
        if (wanted->argv && !wire_invalid_any(&call->invalid))
            wire_quote_argv(wanted->argv, wanted->spec.argc, wanted->command);
        return;
    }
    if (json_member(call->body.object, "argv", &ignored))
        wire_invalid_add(&call->invalid, WIRE_AT("body", "command"), "value_error", "argv or command, not both");
    if (!wire_read_text(&call->body, "command", WIRE_REQUIRED, &text))
        return;
    if (wire_has_nul(text))
        wire_invalid_add(&call->invalid, WIRE_AT("body", "command"), "value_error", "A NUL is in the string");
    else if (text.size > WIRE_RUN_ARGUMENT_MAX_BYTES)
        wire_invalid_add(&call->invalid, WIRE_AT("body", "command"), "string_too_long",
                         "A command of more than 120 KiB: write it into a file, or to the input of a shell");
    wanted->shell[0] = "sh";
    wanted->shell[1] = "-c";
    wanted->shell[2] = text.data;
    wanted->spec.argv = wanted->shell;
    wanted->spec.argc = 3;
    (void)wire_quote_text(text.data, text.size, wanted->command);
}

static void read_tty(struct wire_call *call, struct run_spec *spec)
{
    struct json_object *object = wire_read_object(&call->body, "tty", WIRE_NULLABLE);
    struct wire_reader reader = {.object = object, .invalid = &call->invalid};
    int64_t rows = 24, cols = 80;

    if (!object)
        return;
    (void)wire_read_int_within(&reader, "rows", WIRE_OPTIONAL, 1, WIRE_SIZE_MAX_CELLS, &rows);
    (void)wire_read_int_within(&reader, "cols", WIRE_OPTIONAL, 1, WIRE_SIZE_MAX_CELLS, &cols);
    spec->tty = spec->stdin_open = true;
    spec->rows = (unsigned)rows;
    spec->cols = (unsigned)cols;
}

/* A run has no deadline unless it is given one. */
static int64_t read_timeout_ms(struct wire_call *call)
{
    double seconds;

    if (!wire_read_positive(&call->body, "timeout_seconds", WIRE_NULLABLE, &seconds))
        return 0;
    if (seconds > TIMEOUT_MAX_S) {
        wire_invalid_add(&call->invalid, WIRE_AT("body", "timeout_seconds"), "less_than_equal",
                         "Longer than anything runs: leave it out for no deadline");
        return 0;
    }
    return (int64_t)ceil(seconds * 1000);
}

static void read_run_id(struct wire_call *call, struct wire_wanted *wanted)
{
    struct wire_text text;

    if (!wire_read_text(&call->body, "run_id", WIRE_NULLABLE, &text))
        return;
    if (!id_name_valid(text.data, text.size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("body", "run_id"), WIRE_NAME_PATTERN);
    wanted->run_id = text.data;
}

void wire_wanted_read(struct wire_call *call, struct wire_wanted *wanted)
{
    read_command(call, wanted);
    wire_wanted_read_rest(call, wanted);
}

void wire_wanted_read_rest(struct wire_call *call, struct wire_wanted *wanted)
{
    struct wire_text cwd = {NULL, 0};

    wanted->env = wire_run_env(call, &wanted->spec.env_count);
    wanted->spec.env = wanted->env;
    if (wire_read_text(&call->body, "cwd", WIRE_NULLABLE, &cwd) && (wire_has_nul(cwd) || cwd.size == 0))
        wire_invalid_add(&call->invalid, WIRE_AT("body", "cwd"), "value_error", "No path");
    wanted->spec.cwd = cwd.data;
    (void)wire_read_bool(&call->body, "stdin_open", WIRE_OPTIONAL, &wanted->spec.stdin_open);
    if (wire_read_text(&call->body, "stdin", WIRE_NULLABLE, &wanted->stdin_text) &&
        wanted->stdin_text.size > STDIN_GIVEN_MAX_BYTES)
        wire_invalid_add(&call->invalid, WIRE_AT("body", "stdin"), "string_too_long",
                         "More than 128 KiB: set stdin_open and send them to .../stdin");
    read_tty(call, &wanted->spec);
    wanted->spec.timeout_ms = read_timeout_ms(call);
    read_run_id(call, wanted);
}

/* Given input is all there is, unless more was announced. It fits into the run's window: nobody waits. */
static int give_input(struct wire_call *call, const struct wire_wanted *wanted, const struct run_view *view,
                      struct error *err)
{
    if (!wanted->stdin_text.data)
        return 0;
    if (session_runs_stdin(call->sessions, call->id, view->run_id, wanted->stdin_text.data, wanted->stdin_text.size,
                           !wanted->spec.stdin_open, call->cancel, err) == 0)
        return 0;
    if (err->code != ERROR_GONE)
        return -1;
    error_clear(err); /* it ended without reading it */
    return 0;
}

int route_runs_start(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_wire_wanted struct wire_wanted wanted = {.argv = NULL};
    struct run_spec spec;
    struct run_view view;
    bool is_new;

    wire_wanted_read(call, &wanted);
    if (wire_refused(call, reply))
        return 0;
    if (wire_run_check_env(call, err) < 0)
        return -1;
    spec = wanted.spec;
    spec.stdin_open = spec.stdin_open || wanted.stdin_text.data;
    if (session_runs_start(call->sessions, call->id, wanted.run_id, &spec, wanted.command, call->cancel, &view, &is_new,
                           err) < 0)
        return -1;
    if (is_new && give_input(call, &wanted, &view, err) < 0)
        return -1;
    return reply_view(reply, is_new ? 201 : 200, &view, err);
}

/* -- GET /sessions/{session_id}/runs, …/runs/{run_id} -- */

int route_runs_list(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    auto_free struct run_view *views = NULL;
    const char *state = http_request_query(call->request, "state", NULL);
    size_t count;

    if (state && strcmp(state, "running") != 0 && strcmp(state, "all") != 0)
        wire_invalid_add(&call->invalid, WIRE_AT("query", "state"), "literal_error",
                         "Input should be 'running' or 'all'");
    if (wire_refused(call, reply))
        return 0;
    if (session_runs_list(call->sessions, call->id, state && strcmp(state, "running") == 0, &views, &count, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "runs", '[');
    for (size_t i = 0; i < count; i++) {
        wire_put_open(&writer, NULL, '{');
        wire_put_run(&writer, &views[i]);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

int route_runs_get(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const char *run_id = wire_run_of(call);
    struct cancel waiting;
    struct run_view view;
    int64_t wait_s = 0;
    size_t size = 0;
    const char *wait = http_request_query(call->request, "wait", &size);

    wire_query_int(&call->invalid, "wait", wait, size, 0, &wait_s);
    if (wire_refused(call, reply))
        return 0;
    waiting = cancel_within(call->cancel, (wait_s < WAIT_MAX_S ? wait_s : WAIT_MAX_S) * 1000);
    if (session_runs_get(call->sessions, call->id, run_id, wait_s ? &waiting : NULL, &view, err) < 0)
        return -1;
    return reply_view(reply, 200, &view, err);
}

/* -- GET …/runs/{run_id}/output -- */

static bool read_number(const char **at, uint64_t *ret)
{
    const char *digits = *at;
    uint64_t value = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value))
            return false;
    *ret = value;
    return *at > digits && value <= INT64_MAX;
}

/* "OUT-ERR", or one number for the stream that is asked for. */
static void read_place(struct wire_call *call, enum run_stream stream, uint64_t from[2])
{
    const char *last = http_request_header(call->request, "Last-Event-ID");
    const char *text = last && *last ? last : http_request_query(call->request, "after", NULL);
    const char *at = text;
    uint64_t first, second;

    if (!text)
        return;
    if (read_number(&at, &first) && *at == '\0') {
        from[stream] = first;
        return;
    }
    if (*at == '-' && at++ && read_number(&at, &second) && *at == '\0') {
        from[0] = first;
        from[1] = second;
        return;
    }
    wire_invalid_add(&call->invalid,
                     WIRE_AT(last && *last ? "header" : "query", last && *last ? "Last-Event-ID" : "after"),
                     "value_error", "Not the id of a record");
}

static enum wire_stream_format read_format(const struct http_request *request)
{
    const char *accept = http_request_header(request, "Accept");

    if (accept && strstr(accept, "text/event-stream"))
        return WIRE_STREAM_EVENTS;
    return accept && strstr(accept, "application/octet-stream") ? WIRE_STREAM_BYTES : WIRE_STREAM_LINES;
}

int route_runs_output(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const char *run_id = wire_run_of(call);
    const char *name = http_request_query(call->request, "stream", NULL);
    enum run_stream stream = name && strcmp(name, "stderr") == 0 ? RUN_STDERR : RUN_STDOUT;
    struct run_reader *reader;
    uint64_t from[2] = {0, 0};

    if (name && strcmp(name, "stdout") != 0 && strcmp(name, "stderr") != 0)
        wire_invalid_add(&call->invalid, WIRE_AT("query", "stream"), "literal_error",
                         "Input should be 'stdout' or 'stderr'");
    read_place(call, stream, from);
    if (wire_refused(call, reply))
        return 0;
    if (session_runs_read(call->sessions, call->id, run_id, from[0], from[1], call->cancel, &reader, err) < 0)
        return -1;
    wire_reply_stream(reply, call, run_id, reader, from, read_format(call->request), stream);
    return 0;
}

/* -- POST …/runs/{run_id}/stdin, /signal, /resize -- */

int route_runs_stdin(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_free char *piece = alloc_zero(STDIN_PIECE_BYTES);
    const char *run_id = wire_run_of(call);
    bool eof = false;
    size_t size = 0;
    const char *text = http_request_query(call->request, "eof", &size);
    int64_t got = 0;

    wire_query_bool(&call->invalid, "eof", text, size, &eof);
    if (wire_refused(call, reply))
        return 0;
    /* Before anything is read: is there such an input? */
    if (session_runs_stdin(call->sessions, call->id, run_id, "", 0, false, call->cancel, err) < 0)
        return -1;
    while (http_request_has_body(call->request) &&
           (got = http_request_read(call->request, call->cancel, piece, STDIN_PIECE_BYTES, err)) > 0) {
        if (session_runs_stdin(call->sessions, call->id, run_id, piece, (size_t)got, false, call->cancel, err) < 0)
            return -1;
    }
    if (got < 0)
        return -1;
    if (eof && session_runs_stdin(call->sessions, call->id, run_id, "", 0, true, call->cancel, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* "TERM", "SIGTERM" or 15. 0: none of these. */
static int signal_of(const char *text)
{
    static const struct {
        const char *name;
        int number;
    } extra[] = {{"IOT", SIGABRT}, {"CLD", SIGCHLD}, {"POLL", SIGIO}};

    if (strncmp(text, "SIG", 3) == 0)
        text += 3;
    for (int number = 1; number < 32; number++) {
        const char *name = sigabbrev_np(number);

        if (name && strcmp(name, text) == 0)
            return number;
    }
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++)
        if (strcmp(extra[i].name, text) == 0)
            return extra[i].number;
    return 0;
}

int wire_run_signal(struct wire_call *call)
{
    struct json_object *value = NULL;
    struct wire_text text;
    int64_t number = 0;

    if (json_member(call->body.object, "signal", &value) && json_object_is_type(value, json_type_string)) {
        if (wire_read_text(&call->body, "signal", WIRE_REQUIRED, &text))
            number = signal_of(text.data);
        if (number == 0)
            wire_invalid_add(&call->invalid, WIRE_AT("body", "signal"), "value_error", "No signal of that name");
    } else {
        (void)wire_read_int_within(&call->body, "signal", WIRE_REQUIRED, 1, 63, &number);
    }
    return (int)number;
}

int route_runs_signal(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const char *run_id = wire_run_of(call);
    int number = wire_run_signal(call);

    if (wire_refused(call, reply))
        return 0;
    if (session_runs_signal(call->sessions, call->id, run_id, number, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

int route_runs_resize(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const char *run_id = wire_run_of(call);
    int64_t rows = 0, cols = 0;

    (void)wire_read_int_within(&call->body, "rows", WIRE_REQUIRED, 1, WIRE_SIZE_MAX_CELLS, &rows);
    (void)wire_read_int_within(&call->body, "cols", WIRE_REQUIRED, 1, WIRE_SIZE_MAX_CELLS, &cols);
    if (wire_refused(call, reply))
        return 0;
    if (session_runs_resize(call->sessions, call->id, run_id, (unsigned)rows, (unsigned)cols, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* -- POST /sessions/{session_id}/python -- */

int route_python(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    struct session_run_request request = {.output_max_bytes = WIRE_RUN_OUTPUT_MAX_BYTES,
                                          .stop_over_output = true,
                                          .cut_bytes = WIRE_RUN_CUT_BYTES,
                                          .event_op = "run",
                                          .event_late = "timed out"};
    const char *argv[] = {"python3", "-c", NULL};
    auto_free const char **env = NULL;
    struct wire_text code = {"", 0};
    char target[WIRE_TARGET_BYTES];

    if (wire_read_text(&call->body, "code", WIRE_REQUIRED, &code) && wire_has_nul(code))
        wire_invalid_add(&call->invalid, WIRE_AT("body", "code"), "value_error", "A NUL is in the string");
    env = wire_run_env(call, &request.spec.env_count);
    request.spec.timeout_ms = wire_run_timeout_ms(call);
    if (wire_refused(call, reply))
        return 0;
    if (wire_run_check_env(call, err) < 0)
        return -1;
    argv[2] = code.data;
    if (code.size > WIRE_RUN_ARGUMENT_MAX_BYTES) { /* more than the kernel takes as an argument */
        argv[1] = "-";
        request.stdin_data = code.data;
        request.stdin_size = code.size;
    }
    request.spec.argv = argv;
    request.spec.argc = request.stdin_size ? 2 : 3;
    request.spec.env = env;
    (void)wire_quote_argv(argv, request.spec.argc, target);
    request.event_target = target;
    if (session_run_wait(call->sessions, call->id, &request, call->cancel, &result, err) < 0)
        return -1;
    return wire_run_reply(reply, argv[0], &result, err);
}
