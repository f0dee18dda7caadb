/* GET /sessions/{session_id}/terminal: somebody sits at a run that has a terminal, over a WebSocket.
 *
 * Two threads: the connection's own takes frames (keys, which the run may be slow to take, and orders), another gives the run's
 * output, which the client may be slow to take. Neither holds up anything but the other side of its own way. Whoever finds the end
 * says goodbye and lets the other go. The protocol is docs/wire.md's. */
#include "alloc.h"
#include "clock.h"
#include "http_websocket.h"
#include "id.h"
#include "log.h"
#include "session_terminal.h"
#include "wire_run.h"
#include "wire_screen.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_MAX_BYTES = 256 * 1024,
    FIRST_MS = 10000,
    PING_MS = 15000,
    SILENCE_MS = 45000,
    GOODBYE_MS = 2000,
    SEND_BUFFER_BYTES = 64 * 1024,
    PIECE_BYTES = 32 * 1024, /* of output in one frame: pongs and goodbyes come in between */
    TOLD_BYTES = 16 * 1024,
    REPLAY_BYTES = 256 * 1024,
    REPLAY_MAX_BYTES = 1024 * 1024,
    LINE_MAX_BYTES = 4096,
    NUDGE_MS = 500,    /* a program on a busy machine must get to see it */
    NUDGE_MIN_MS = 50, /* two sizes within a moment are one to it, and then none has changed */
    DEFAULT_ROWS = 24,
    DEFAULT_COLS = 80,
    CLOSE_ENDED = 1000,
    CLOSE_STOPPING = 1001,
    CLOSE_INTERNAL = 1011,
    CLOSE_STATUS = 4000, /* and the status that a route would have answered */
    CLOSE_SILENT = 4408,
};

struct sitting {
    struct wire *wire;
    struct http_request *request;
    char id[SESSION_ID_BYTES];

    struct log_work work; /* of the connection's thread, for the other */
    struct http_websocket *socket;
    const struct cancel *cancel;
    struct terminal *terminal;
    struct run_view view;  /* when it was entered */
    bool is_entered;       /* it was there already */
    uint64_t from;         /* output begins there */
    uint64_t end;          /* and is new from there on */
    uint64_t replay_bytes; /* shown of what is not new, at most */
    pthread_mutex_t size_lock;
    unsigned rows; /* 0: as they are */
    unsigned cols;
    bool is_nudged; /* the program sees another number of rows for the moment */
    int64_t nudged_mono_ms;
};

/* -- telling -- */

/* Who cannot be told is gone: CANCELLED. */
static int put(struct sitting *sitting, enum http_websocket_kind kind, const char *data, size_t size, struct error *err)
{
    if (http_websocket_send(sitting->socket, kind, data, size, sitting->cancel, err) == 0)
        return 0;
    if (err->code == ERROR_GONE)
        err->code = ERROR_CANCELLED;
    return -1;
}

static int tell(struct sitting *sitting, const struct wire_writer *writer, struct error *err)
{
    if (wire_writer_end(writer, err) < 0)
        return -1;
    return put(sitting, HTTP_WEBSOCKET_TEXT, writer->out->data, writer->out->size, err);
}

static bool is_stopping(const struct sitting *sitting)
{
    const struct cancel stop = {.stop_fd = sitting->cancel->stop_fd, .client_fd = -1};
    struct error ignored = ERROR_INIT;

    return cancel_check(&stop, &ignored) < 0;
}

/* What went wrong, as a route would have answered it, and the end. `items`: of a 422, or NULL. */
static void refuse(struct sitting *sitting, const struct error *err, const char *items)
{
    auto_buf struct buf text = BUF_INIT(WIRE_INVALID_MAX_BYTES + 4096);
    const struct cancel soon = cancel_within(sitting->cancel, GOODBYE_MS);
    struct wire_writer writer = WIRE_WRITER(&text);
    int status = items ? 422 : error_http_status(err->code);
    struct error ignored = ERROR_INIT;

    if (!items && is_stopping(sitting)) {
        http_websocket_close(sitting->socket, CLOSE_STOPPING, "the broker stops");
        return;
    }
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", "error");
    wire_put_int(&writer, "status", status);
    if (items) {
        wire_put_open(&writer, "detail", '[');
        wire_put_raw(&writer, items);
        wire_put_close(&writer, ']');
    } else {
        wire_put_str(&writer, "detail", error_public_text(err));
    }
    wire_put_close(&writer, '}');
    if (wire_writer_end(&writer, &ignored) == 0)
        (void)http_websocket_send(sitting->socket, HTTP_WEBSOCKET_TEXT, text.data, text.size, &soon, &ignored);
    if (status >= 500)
        log_warn("terminal.failed", log_s("session", sitting->id), log_e(err));
    http_websocket_close(sitting->socket, status == 500 ? CLOSE_INTERNAL : (unsigned)(CLOSE_STATUS + status),
                         items ? "not a message of this protocol" : error_public_text(err));
}

static int tell_started(struct sitting *sitting, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(TOLD_BYTES);
    struct wire_writer writer = WIRE_WRITER(&text);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", "started");
    wire_put_str(&writer, "run_id", sitting->view.run_id);
    wire_put_bool(&writer, "entered", sitting->is_entered);
    wire_put_size(&writer, "rows", sitting->rows ? (int64_t)sitting->rows : -1);
    wire_put_size(&writer, "cols", sitting->rows ? (int64_t)sitting->cols : -1);
    wire_put_close(&writer, '}');
    return tell(sitting, &writer, err);
}

static int tell_replay(struct sitting *sitting, uint64_t bytes, bool whole, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(TOLD_BYTES);
    struct wire_writer writer = WIRE_WRITER(&text);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", "replay");
    wire_put_int(&writer, "bytes", (int64_t)bytes);
    wire_put_bool(&writer, "whole", whole);
    wire_put_close(&writer, '}');
    return tell(sitting, &writer, err);
}

static int tell_dropped(struct sitting *sitting, uint64_t bytes, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(TOLD_BYTES);
    struct wire_writer writer = WIRE_WRITER(&text);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", "dropped");
    wire_put_int(&writer, "bytes", (int64_t)bytes);
    wire_put_close(&writer, '}');
    return tell(sitting, &writer, err);
}

static int tell_live(struct sitting *sitting, struct error *err)
{
    static const char live[] = "{\"type\":\"live\"}";

    return put(sitting, HTTP_WEBSOCKET_TEXT, live, sizeof live - 1, err);
}

/* The run is over, and all of its output is out. */
static int tell_end(struct sitting *sitting, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(TOLD_BYTES);
    struct wire_writer writer = WIRE_WRITER(&text);
    struct run_view view;

    terminal_view(sitting->terminal, &view);
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", view.exit.lost ? "lost" : "exit");
    wire_put_run(&writer, &view);
    wire_put_close(&writer, '}');
    if (tell(sitting, &writer, err) < 0)
        return -1;
    if (view.exit.lost)
        http_websocket_close(sitting->socket, CLOSE_STATUS + 410, view.cause);
    else
        http_websocket_close(sitting->socket, CLOSE_ENDED, "the run has ended");
    return 0;
}

static int give(struct sitting *sitting, const char *data, size_t size, struct error *err)
{
    while (size > 0) {
        size_t part = size < PIECE_BYTES ? size : PIECE_BYTES;

        if (put(sitting, HTTP_WEBSOCKET_BINARY, data, part, err) < 0)
            return -1;
        data += part;
        size -= part;
    }
    return 0;
}

/* -- the size: two threads set it -- */

static void set_size(struct sitting *sitting, unsigned rows, unsigned cols, struct error *err)
{
    (void)pthread_mutex_lock(&sitting->size_lock);
    sitting->rows = rows;
    sitting->cols = cols;
    sitting->is_nudged = false;
    (void)terminal_resize(sitting->terminal, rows, cols, err);
    (void)pthread_mutex_unlock(&sitting->size_lock);
}

/* The kernel tells a program of its window only when it changed. One that fills the screen draws it anew when it did: one row less,
 * and, when it has answered or has had its time, what it is. */
static void nudge(struct sitting *sitting)
{
    struct error ignored = ERROR_INIT;

    (void)pthread_mutex_lock(&sitting->size_lock);
    sitting->is_nudged = sitting->rows > 0;
    sitting->nudged_mono_ms = clock_mono_ms();
    if (sitting->is_nudged)
        (void)terminal_resize(sitting->terminal, sitting->rows > 1 ? sitting->rows - 1 : sitting->rows + 1,
                              sitting->cols, &ignored);
    (void)pthread_mutex_unlock(&sitting->size_lock);
}

/* Also before a key is passed on: what it starts sees the window as it is. */
static void nudge_over(struct sitting *sitting)
{
    struct error ignored = ERROR_INIT;

    (void)pthread_mutex_lock(&sitting->size_lock);
    if (sitting->is_nudged)
        (void)terminal_resize(sitting->terminal, sitting->rows, sitting->cols, &ignored);
    sitting->is_nudged = false;
    (void)pthread_mutex_unlock(&sitting->size_lock);
}

/* -- output -- */

/* Bytes that are not shown, so that a cut does not begin in the middle of something: up to the next line, if one is near. */
static size_t rest_of_line(const char *data, size_t size)
{
    const char *end = memchr(data, '\n', size < LINE_MAX_BYTES ? size : LINE_MAX_BYTES);

    return end ? (size_t)(end - data) + 1 : 0;
}

struct replay {
    uint64_t show_from; /* what is before is looked at for the modes it sets */
    struct wire_screen screen;
    bool is_cut; /* not shown from the first byte on */
    bool is_shown;
};

/* What of `size` bytes from `offset` on is to be shown: announces it before the first. */
static int show(struct sitting *sitting, struct replay *replay, uint64_t offset, const char *data, size_t size,
                struct error *err)
{
    uint64_t hidden = offset < replay->show_from ? replay->show_from - offset : 0;
    char modes[WIRE_SCREEN_MODES_BYTES];
    size_t skipped = hidden < size ? (size_t)hidden : size;

    if (replay->is_shown)
        return give(sitting, data, size, err);
    replay->is_cut = replay->is_cut || offset > 0;
    if (replay->is_cut && skipped < size)
        skipped += rest_of_line(data + skipped, size - skipped);
    wire_screen_scan(&replay->screen, data, skipped);
    if (skipped == size && offset + size < sitting->end)
        return 0;
    replay->is_shown = true;
    if (tell_replay(sitting, sitting->end - offset - skipped, !replay->is_cut, err) < 0)
        return -1;
    if (replay->is_cut && give(sitting, modes, wire_screen_modes(&replay->screen, modes), err) < 0)
        return -1;
    return give(sitting, data + skipped, size - skipped, err);
}

/* What was written before. 1: *chunk is what is new of its last piece; 0: the run is over; -1. */
static int replay_before(struct sitting *sitting, struct run_chunk *chunk, struct error *err)
{
    struct replay replay = {.show_from =
                                sitting->end > sitting->replay_bytes ? sitting->end - sitting->replay_bytes : 0,
                            .screen = WIRE_SCREEN_INIT,
                            .is_cut = sitting->from > 0};
    uint64_t at = sitting->from;
    int got = 1;

    *chunk = (struct run_chunk){.size = 0};
    while (at < sitting->end && (got = terminal_next(sitting->terminal, sitting->cancel, chunk, err)) > 0) {
        size_t old = chunk->offset >= sitting->end                ? 0
                     : chunk->size < sitting->end - chunk->offset ? chunk->size
                                                                  : (size_t)(sitting->end - chunk->offset);

        at = chunk->offset + chunk->size;
        replay.is_cut = replay.is_cut || (chunk->dropped && !replay.is_shown);
        if ((chunk->dropped && replay.is_shown && tell_dropped(sitting, chunk->dropped, err) < 0) ||
            (old && show(sitting, &replay, chunk->offset, chunk->data, old, err) < 0))
            return -1;
        chunk->data += old;
        chunk->size -= old;
        chunk->dropped = 0;
    }
    if (got < 0 || (!replay.is_shown && tell_replay(sitting, 0, !replay.is_cut, err) < 0))
        return -1;
    return tell_live(sitting, err) < 0 ? -1 : got;
}

static int give_chunk(struct sitting *sitting, const struct run_chunk *chunk, struct error *err)
{
    if (chunk->dropped && tell_dropped(sitting, chunk->dropped, err) < 0)
        return -1;
    return give(sitting, chunk->data, chunk->size, err);
}

/* Give `chunk` and what comes behind it until the program must have seen the nudge. What comes at once may have been under way
 * before: it is no answer yet. 0: it is over. */
static int await_answer(struct sitting *sitting, struct run_chunk *chunk, struct error *err)
{
    bool has_answered = chunk->size > 0;
    int got = 1;

    for (;;) {
        int64_t left_ms = sitting->nudged_mono_ms + (has_answered ? NUDGE_MIN_MS : NUDGE_MS) - clock_mono_ms();
        struct cancel bounded = cancel_within(sitting->cancel, left_ms);

        if (chunk->size && give_chunk(sitting, chunk, err) < 0)
            return -1;
        if (left_ms <= 0)
            return 1;
        got = terminal_next(sitting->terminal, &bounded, chunk, err);
        if (got < 0 && err->code == ERROR_TIMEOUT) {
            error_clear(err);
            return 1;
        }
        if (got <= 0)
            return got;
        has_answered = true;
    }
}

/* 0: it is over. */
static int enter(struct sitting *sitting, struct error *err)
{
    struct run_chunk chunk;
    int got = replay_before(sitting, &chunk, err);

    if (got > 0)
        got = await_answer(sitting, &chunk, err);
    nudge_over(sitting);
    return got;
}

/* The thread that gives the run's output. */
static void *give_output(void *context)
{
    struct sitting *sitting = context;
    const struct cancel client = {.stop_fd = -1, .client_fd = sitting->cancel->client_fd};
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    struct cancel goodbye;
    int got = 1;

    log_begin(sitting->work.request, sitting->work.trace);
    log_set_session(sitting->work.session, sitting->work.tenant);
    if (sitting->is_entered)
        got = enter(sitting, &err);
    while (got > 0 && (got = terminal_next(sitting->terminal, sitting->cancel, &chunk, &err)) > 0)
        if (give_chunk(sitting, &chunk, &err) < 0)
            got = -1;
    if (got == 0)
        got = tell_end(sitting, &err);
    if (got < 0 && err.code != ERROR_CANCELLED)
        refuse(sitting, &err, NULL);
    /* The other thread may be in the middle of input that nobody takes: it is let go once the client has heard. */
    goodbye = cancel_within(&client, GOODBYE_MS);
    error_clear(&err);
    (void)cancel_poll(&goodbye, NULL, 0, &err);
    http_websocket_cut(sitting->socket);
    return NULL;
}

/* -- input -- */

/* A text frame as a call of a route: its fields in call->body. Caller frees *ret_object. */
static int parse(struct sitting *sitting, const struct http_websocket_message *message, struct wire_call *call,
                 struct json_object **ret_object, const char **ret_type, struct error *err)
{
    struct wire_text type = {"", 0};

    *call = (struct wire_call){.wire = sitting->wire,
                               .sessions = sitting->wire->sessions,
                               .request = sitting->request,
                               .cancel = sitting->cancel,
                               .id = sitting->id,
                               .invalid = WIRE_INVALID_INIT};
    *ret_object = NULL;
    *ret_type = "";
    if (message->kind != HTTP_WEBSOCKET_TEXT)
        return fail(err, UNPROCESSABLE, "The first frame is a message");
    if (json_parse_lax(message->data, message->size, ret_object, NULL, err) < 0)
        return -1;
    if (!json_object_is_type(*ret_object, json_type_object))
        return fail(err, UNPROCESSABLE, "A message is an object");
    call->body = (struct wire_reader){.object = *ret_object, .invalid = &call->invalid};
    if (wire_read_text(&call->body, "type", WIRE_REQUIRED, &type))
        *ret_type = type.data;
    return 0;
}

static void unknown_type(struct wire_call *call)
{
    wire_invalid_add(&call->invalid, WIRE_AT("body", "type"), "literal_error", "No such type of message here");
}

/* Of the image: bash, else sh. */
static void read_default_shell(struct wire_call *call, struct wire_wanted *wanted)
{
    static const char *const shell[] = {"sh", "-c", "command -v bash >/dev/null && exec bash; exec sh", NULL};
    struct json_object *ignored;

    if (json_member(call->body.object, "argv", &ignored) || json_member(call->body.object, "command", &ignored)) {
        wire_wanted_read(call, wanted);
        return;
    }
    wire_wanted_read_rest(call, wanted);
    wanted->spec.argv = shell;
    wanted->spec.argc = 3;
    (void)snprintf(wanted->command, sizeof wanted->command, "shell");
}

/* A program on a terminal must know of which kind. */
static const char **with_term(const struct run_spec *spec)
{
    const char **env = alloc_array(spec->env_count + 1, sizeof *env);

    for (size_t i = 0; i < spec->env_count; i++)
        env[i + 1] = spec->env[i];
    env[0] = "TERM=xterm-256color"; /* what follows goes before it */
    return env;
}

static int start(struct sitting *sitting, struct wire_call *call, struct error *err)
{
    auto_wire_wanted struct wire_wanted wanted = {.argv = NULL};
    auto_free const char **env = NULL;
    bool is_new;

    read_default_shell(call, &wanted);
    if (wire_invalid_any(&call->invalid))
        return 0;
    if (wire_run_check_env(call, err) < 0)
        return -1;
    env = with_term(&wanted.spec);
    wanted.spec.env = env;
    wanted.spec.env_count++;
    wanted.spec.tty = wanted.spec.stdin_open = true;
    wanted.spec.rows = sitting->rows = sitting->rows ? sitting->rows : DEFAULT_ROWS;
    wanted.spec.cols = sitting->cols = sitting->cols ? sitting->cols : DEFAULT_COLS;
    if (session_runs_start(call->sessions, call->id, wanted.run_id, &wanted.spec, wanted.command, call->cancel,
                           &sitting->view, &is_new, err) < 0)
        return -1;
    sitting->is_entered = !is_new;
    return 0;
}

static int read_entered(struct sitting *sitting, struct wire_call *call, struct error *err)
{
    struct wire_text run_id = {"", 0};

    sitting->is_entered = true;
    if (wire_read_text(&call->body, "run_id", WIRE_REQUIRED, &run_id) && !id_name_valid(run_id.data, run_id.size))
        wire_invalid_pattern(&call->invalid, WIRE_AT("body", "run_id"), WIRE_NAME_PATTERN);
    if (wire_invalid_any(&call->invalid))
        return 0;
    return session_runs_get(call->sessions, call->id, run_id.data, NULL, &sitting->view, err);
}

static void read_size(struct wire_call *call, enum wire_need need, unsigned *ret_rows, unsigned *ret_cols)
{
    int64_t rows = 0, cols = 0;

    (void)wire_read_int_within(&call->body, "rows", need, 1, WIRE_SIZE_MAX_CELLS, &rows);
    (void)wire_read_int_within(&call->body, "cols", need, 1, WIRE_SIZE_MAX_CELLS, &cols);
    if (rows && cols) {
        *ret_rows = (unsigned)rows;
        *ret_cols = (unsigned)cols;
    }
}

/* What the first message wants. 1: done; 0: what is wrong is in call->invalid. */
static int begin_by(struct sitting *sitting, struct wire_call *call, const char *type, struct error *err)
{
    int64_t replay_bytes = REPLAY_BYTES;

    read_size(call, WIRE_NULLABLE, &sitting->rows, &sitting->cols);
    (void)wire_read_int_within(&call->body, "replay_bytes", WIRE_OPTIONAL, 0, REPLAY_MAX_BYTES, &replay_bytes);
    sitting->replay_bytes = (uint64_t)replay_bytes;
    if (strcmp(type, "start") != 0 && strcmp(type, "enter") != 0)
        unknown_type(call);
    if (wire_invalid_any(&call->invalid))
        return 0;
    if ((*type == 's' ? start(sitting, call, err) : read_entered(sitting, call, err)) < 0)
        return -1;
    if (wire_invalid_any(&call->invalid))
        return 0;
    return session_terminal_enter(call->sessions, call->id, sitting->view.run_id, REPLAY_MAX_BYTES, call->cancel,
                                  &sitting->terminal, &sitting->from, &sitting->end, err) < 0
               ? -1
               : 1;
}

/* False: it was refused, or nobody is there. */
static bool begin(struct sitting *sitting)
{
    const struct cancel first = cancel_within(sitting->cancel, FIRST_MS);
    struct http_websocket_message message;
    auto_json struct json_object *object = NULL;
    struct error err = ERROR_INIT;
    struct wire_call call;
    const char *type;
    int got = http_websocket_receive(sitting->socket, &first, &message, &err);

    if (got < 0 && err.code == ERROR_TIMEOUT)
        http_websocket_close(sitting->socket, CLOSE_SILENT, "no first message");
    else if (got < 0)
        refuse(sitting, &err, NULL);
    if (got <= 0)
        return false;
    got = parse(sitting, &message, &call, &object, &type, &err);
    if (got == 0)
        got = begin_by(sitting, &call, type, &err);
    if (got > 0)
        got = tell_started(sitting, &err) < 0 ? -1 : 1;
    if (got <= 0 && err.code != ERROR_CANCELLED)
        refuse(sitting, &err, got == 0 ? buf_str(&call.invalid.items) : NULL);
    wire_invalid_done(&call.invalid);
    return got > 0;
}

static int order(struct sitting *sitting, struct wire_call *call, const char *type, struct error *err)
{
    unsigned rows = 0, cols = 0;
    int number = 0;

    if (strcmp(type, "resize") == 0)
        read_size(call, WIRE_REQUIRED, &rows, &cols);
    else if (strcmp(type, "signal") == 0)
        number = wire_run_signal(call);
    else if (strcmp(type, "stop") != 0)
        unknown_type(call);
    if (wire_invalid_any(&call->invalid))
        return 0;
    if (rows)
        set_size(sitting, rows, cols, err);
    else if (number)
        (void)terminal_signal(sitting->terminal, number, err);
    else
        (void)terminal_stop(sitting->terminal, err);
    return err->code == ERROR_NONE ? 1 : -1;
}

/* False: it was refused, and no more is taken. */
static bool take(struct sitting *sitting, const struct http_websocket_message *message)
{
    auto_json struct json_object *object = NULL;
    struct error err = ERROR_INIT;
    struct wire_call call = {.invalid = WIRE_INVALID_INIT};
    const char *type;
    int got;

    if (message->kind == HTTP_WEBSOCKET_BINARY) {
        nudge_over(sitting);
        got = terminal_input(sitting->terminal, message->data, message->size, sitting->cancel, &err) < 0 ? -1 : 1;
    } else {
        got = parse(sitting, message, &call, &object, &type, &err);
        if (got == 0)
            got = order(sitting, &call, type, &err);
    }
    if (got < 0 && (err.code == ERROR_GONE || err.code == ERROR_CONFLICT))
        got = 1; /* it has ended, or somebody else sits there: the other thread tells */
    if (got <= 0 && err.code != ERROR_CANCELLED)
        refuse(sitting, &err, got == 0 ? buf_str(&call.invalid.items) : NULL);
    wire_invalid_done(&call.invalid);
    return got > 0;
}

/* Until the client has said goodbye, or has had its time to. */
static void hear_out(struct sitting *sitting)
{
    const struct cancel never = CANCEL_NEVER;
    struct http_websocket_message message;
    struct error ignored = ERROR_INIT;

    http_websocket_close(sitting->socket, CLOSE_INTERNAL, ""); /* if nobody has */
    while (http_websocket_receive(sitting->socket, &never, &message, &ignored) > 0)
        continue;
}

static void take_input(struct sitting *sitting)
{
    struct http_websocket_message message;
    struct error err = ERROR_INIT;
    int got;

    while ((got = http_websocket_receive(sitting->socket, sitting->cancel, &message, &err)) > 0)
        if (!take(sitting, &message))
            break;
    if (got < 0 && err.code == ERROR_TIMEOUT)
        http_websocket_close(sitting->socket, CLOSE_SILENT, "no answer to pings");
    else if (got < 0)
        refuse(sitting, &err, NULL);
    if (got != 0)
        hear_out(sitting);
}

static void sit(void *context, struct http_websocket *socket, const struct cancel *cancel)
{
    struct sitting *sitting = context;
    pthread_t thread;

    sitting->socket = socket;
    sitting->cancel = cancel;
    sitting->work = *log_work();
    if (!begin(sitting)) {
        hear_out(sitting);
        return;
    }
    if (sitting->is_entered)
        nudge(sitting);
    if (pthread_create(&thread, NULL, give_output, sitting) != 0) {
        http_websocket_close(socket, CLOSE_INTERNAL, "no thread");
        hear_out(sitting);
        return;
    }
    take_input(sitting);
    http_websocket_cut(socket);
    (void)pthread_join(thread, NULL);
}

static void sitting_free(void *context)
{
    struct sitting *sitting = context;

    terminal_free(sitting->terminal);
    (void)pthread_mutex_destroy(&sitting->size_lock);
    free(sitting);
}

int route_terminal(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct http_websocket_settings settings = {.protocol = WIRE_TERMINAL_PROTOCOL,
                                               .message_max_bytes = MESSAGE_MAX_BYTES,
                                               .ping_ms = PING_MS,
                                               .silence_ms = SILENCE_MS,
                                               .send_buffer_bytes = SEND_BUFFER_BYTES,
                                               .speak = sit,
                                               .free = sitting_free};
    struct sitting *sitting = alloc_zero(sizeof *sitting);

    sitting->wire = call->wire;
    sitting->request = call->request;
    (void)snprintf(sitting->id, sizeof sitting->id, "%s", call->id);
    (void)pthread_mutex_init(&sitting->size_lock, NULL);
    settings.context = sitting;
    return http_reply_websocket(call->request, reply, &settings, err);
}
