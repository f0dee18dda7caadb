/* A terminal in a session, over the WebSocket that docs/wire.md ("Terminals") describes. */
#include "cli_socket.h"
#include "cli_terminal.h"

#include "alloc.h"
#include "clock.h"
#include "fd.h"
#include "id.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define PROTOCOL "berth.terminal.v1"

enum {
    COME_BACK_MS = 30000,
    PAUSE_MS = 500,
    KEYS_BYTES = 4096,
    ESCAPE = 0x1d, /* Ctrl-] */
    STATUS_SIGNAL = 128,
    CLOSE_STOPPING = 1001,
    CLOSE_NO_PONG = 4408,
    CLOSE_UNAVAILABLE = 4503,
};

struct shell {
    struct cli *cli;
    const char *session;
    char run_id[65];
    bool enters; /* one that is there */
    bool has_started;
    bool has_escape; /* Ctrl-] came, what is meant comes next */
    bool is_left;    /* detached */
    int signal;      /* that ends us */
    int signals;     /* descriptor */
    struct cli_socket *socket;
    struct json_object *end;
    char early[KEYS_BYTES]; /* typed before there was a program to take it */
    size_t early_size;
};

static void done(struct shell *shell)
{
    cli_socket_close(shell->socket);
    if (shell->end)
        (void)json_object_put(shell->end);
    if (shell->signals >= 0)
        (void)close(shell->signals);
}

static void send_json(struct shell *shell, struct json_object *object)
{
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN);

    cli_socket_send(shell->socket, true, text, strlen(text));
}

static void send_typed(struct shell *shell, const char *type)
{
    auto_json struct json_object *object = json_object_new_object();

    (void)json_object_object_add(object, "type", json_object_new_string(type));
    send_json(shell, object);
}

static void add_size(struct json_object *object)
{
    unsigned rows;
    unsigned cols;

    cli_terminal_size(&rows, &cols);
    (void)json_object_object_add(object, "rows", json_object_new_int((int)rows));
    (void)json_object_object_add(object, "cols", json_object_new_int((int)cols));
}

static void send_size(struct shell *shell)
{
    auto_json struct json_object *object = json_object_new_object();

    (void)json_object_object_add(object, "type", json_object_new_string("resize"));
    add_size(object);
    send_json(shell, object);
}

/* What is wanted: the first frame. A start whose answer was lost enters what it started, by the id. */
static int send_first(struct shell *shell, struct error *err)
{
    auto_json struct json_object *object = json_object_new_object();
    const char *term = getenv("TERM");
    struct json_object *env;

    (void)json_object_object_add(object, "type", json_object_new_string(shell->enters ? "enter" : "start"));
    (void)json_object_object_add(object, "run_id", json_object_new_string(shell->run_id));
    add_size(object);
    if (!shell->enters) {
        if (cli_add_environment(shell->cli, object, err) < 0)
            return -1;
        env = cli_member(object, "env");
        if (term && *term && !cli_member(env, "TERM")) {
            if (!env) {
                env = json_object_new_object();
                (void)json_object_object_add(object, "env", env);
            }
            (void)json_object_object_add(env, "TERM", json_object_new_string(term));
        }
        if (shell->cli->argument_count > 1)
            cli_add_argv(shell->cli, object);
    }
    send_json(shell, object);
    return 0;
}

/* -- what comes -- */

static void send_keys(struct shell *shell, const char *keys, size_t size);

static int take(void *context, const struct cli_socket_message *message, struct error *err)
{
    struct shell *shell = context;
    auto_json struct json_object *object = NULL;
    const char *type;

    if (!message->is_text)
        return fd_write_all(STDOUT_FILENO, message->data, message->size, err);
    if (json_parse(message->data, message->size, &object, NULL, err) < 0)
        return -1;
    type = cli_str(object, "type");
    if (!type)
        return 0;
    if (strcmp(type, "started") == 0) {
        shell->has_started = shell->enters = true;
        if (cli_str(object, "run_id"))
            (void)snprintf(shell->run_id, sizeof shell->run_id, "%s", cli_str(object, "run_id"));
        send_keys(shell, shell->early, shell->early_size);
        shell->early_size = 0;
    } else if (strcmp(type, "replay") == 0) {
        cli_terminal_reset_screen();
        return fd_write_all(STDOUT_FILENO, "\033[2J\033[H", 7, err);
    } else if (strcmp(type, "error") == 0) {
        return cli_refused(shell->cli, (int)cli_int(object, "status", 500), json_object_to_json_string(object), err);
    } else if (strcmp(type, "exit") == 0 || strcmp(type, "lost") == 0) {
        shell->end = json_object_get(object);
    }
    return 0;
}

/* -- keys and signals -- */

/* Keys go through, but for Ctrl-] and the one behind it. */
static void send_keys(struct shell *shell, const char *keys, size_t size)
{
    char out[2 * KEYS_BYTES];
    size_t count = 0;

    for (size_t i = 0; i < size && !shell->is_left; i++) {
        bool escaped = shell->has_escape;

        shell->has_escape = false;
        if (escaped && keys[i] == 'd') {
            shell->is_left = true;
        } else if (escaped && keys[i] == 'q') {
            send_typed(shell, "stop");
        } else if (!escaped && keys[i] == ESCAPE && !cli_has(shell->cli, "no-escape")) {
            shell->has_escape = true;
        } else {
            if (escaped && keys[i] != ESCAPE)
                out[count++] = ESCAPE;
            out[count++] = keys[i];
        }
    }
    if (count)
        cli_socket_send(shell->socket, false, out, count);
}

/* What is typed ahead is not lost, within bounds. */
static void keep_early(struct shell *shell, const char *keys, size_t size)
{
    size_t room = sizeof shell->early - shell->early_size;

    memcpy(shell->early + shell->early_size, keys, size < room ? size : room);
    shell->early_size += size < room ? size : room;
}

static int read_keys(struct shell *shell, struct error *err)
{
    char keys[KEYS_BYTES];
    ssize_t size = read(STDIN_FILENO, keys, sizeof keys);

    if (size < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (size <= 0) {
        shell->signal = SIGHUP; /* the terminal is gone: the run goes on, to be entered again */
        return 0;
    }
    (void)err;
    if (shell->socket && shell->has_started)
        send_keys(shell, keys, (size_t)size);
    else if (memchr(keys, 3, (size_t)size))
        shell->signal = SIGINT; /* Ctrl-C while there is nothing to send it to */
    else
        keep_early(shell, keys, (size_t)size);
    return 0;
}

static void stop_self(void)
{
    struct error ignored = ERROR_INIT;

    cli_terminal_restore();
    (void)raise(SIGSTOP);
    (void)cli_terminal_raw(&ignored);
}

static void take_signals(struct shell *shell)
{
    struct signalfd_siginfo info;

    while (read(shell->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            stop_self();
        if (info.ssi_signo == SIGTSTP || info.ssi_signo == SIGWINCH || info.ssi_signo == SIGCONT) {
            if (shell->socket && shell->has_started)
                send_size(shell);
        } else {
            shell->signal = (int)info.ssi_signo;
        }
    }
}

static int block_signals(struct error *err)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT};
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigset_t set;
    int fd;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        (void)sigaddset(&set, taken[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)sigaction(SIGPIPE, &ignored, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? fail_errno(err, "signalfd") : fd;
}

static bool is_over(const struct shell *shell)
{
    return shell->end || shell->is_left || shell->signal;
}

/* Keys, signals and the connection (if there is one), for `timeout_ms`. */
static int wait_once(struct shell *shell, int timeout_ms, struct error *err)
{
    struct pollfd fds[3] = {{shell->signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};

    if (shell->socket) {
        fds[2].fd = cli_socket_fd(shell->socket);
        fds[2].events = (short)(POLLIN | (cli_socket_wants_write(shell->socket) ? POLLOUT : 0));
        fds[1].events = cli_socket_is_full(shell->socket) ? 0 : POLLIN;
    }
    if (poll(fds, 3, timeout_ms) < 0 && errno != EINTR)
        return fail_errno(err, "poll");
    if (fds[0].revents)
        take_signals(shell);
    return fds[1].revents ? read_keys(shell, err) : 0;
}

/* -- one connection after another -- */

static int connect_shell(struct shell *shell, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/terminal", shell->session);

    if (cli_socket_open(shell->cli, target, PROTOCOL, take, shell, &shell->socket, err) < 0)
        return -1;
    return send_first(shell, err);
}

static int go_on(struct shell *shell, struct error *err)
{
    int more = 0;

    while (!is_over(shell)) {
        if (wait_once(shell, more ? 0 : 1000, err) < 0)
            return -1;
        more = is_over(shell) && !shell->end ? 0 : cli_socket_go_on(shell->socket, err);
        if (more < 0)
            return shell->end ? 0 : -1;
    }
    return 0;
}

/* Is it worth to come back? A broker that restarts, or a network that was away. */
static bool may_come_back(const struct shell *shell, const struct error *err)
{
    unsigned code = shell->socket ? cli_socket_close_code(shell->socket) : 0;

    return shell->has_started && err->code == ERROR_UNAVAILABLE &&
           (code == 0 || code == CLOSE_STOPPING || code == CLOSE_NO_PONG || code == CLOSE_UNAVAILABLE);
}

static int come_back(struct shell *shell, struct error *err)
{
    int64_t until_ms = clock_mono_ms() + COME_BACK_MS;

    (void)fputs("\r\n[connection lost, coming back ...]\r\n", stderr);
    for (;;) {
        struct error why = ERROR_INIT;

        cli_socket_close(take_ptr(shell->socket));
        if (wait_once(shell, PAUSE_MS, err) < 0)
            return -1;
        if (is_over(shell))
            return 0;
        if (connect_shell(shell, &why) == 0)
            return 0;
        if (why.code != ERROR_UNAVAILABLE || clock_mono_ms() > until_ms) {
            *err = why;
            return -1;
        }
    }
}

static int serve(struct shell *shell, struct error *err)
{
    while (go_on(shell, err) < 0) {
        if (!may_come_back(shell, err))
            return -1;
        error_clear(err);
        if (come_back(shell, err) < 0)
            return -1;
    }
    return 0;
}

/* -- the whole -- */

/* The id of the terminal to enter: as given, or the newest that runs. */
static int find_terminal(struct shell *shell, const char *wanted, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/runs?state=running", shell->session);
    auto_json struct json_object *answer = NULL;
    struct json_object *runs;

    shell->enters = true;
    (void)snprintf(shell->run_id, sizeof shell->run_id, "%s", wanted);
    if (strcmp(wanted, "last") != 0)
        return 0;
    if (cli_call(shell->cli, "GET", target, NULL, &answer, err) < 0)
        return cli_explain_session(shell->cli, shell->session, err);
    runs = cli_member(answer, "runs");
    for (size_t i = 0; i < cli_length(runs); i++) {
        struct json_object *run = json_object_array_get_idx(runs, i);

        if (cli_bool(run, "tty") && cli_str(run, "run_id")) {
            (void)snprintf(shell->run_id, sizeof shell->run_id, "%s", cli_str(run, "run_id"));
            return 0;
        }
    }
    return fail(err, NOT_FOUND, "no terminal runs in \"%s\": berth shell %s begins one", shell->session,
                shell->session);
}

static int ended(struct shell *shell, struct error *err)
{
    const char *type = shell->end ? cli_str(shell->end, "type") : NULL;

    if (type && strcmp(type, "lost") == 0)
        return fail(err, GONE, "the terminal is gone (%.80s)",
                    cli_str(shell->end, "cause") ? cli_str(shell->end, "cause") : "its end was not seen");
    if (shell->end)
        return cli_run_status(shell->end);
    (void)fprintf(stderr, "[detached; to come back: berth shell --enter %s %s]\n", shell->run_id, shell->session);
    return shell->signal ? STATUS_SIGNAL + shell->signal : CLI_OK;
}

int verb_shell(struct cli *cli, struct error *err)
{
    auto_cleanup(done) struct shell shell = {.cli = cli, .session = cli->arguments[0], .signals = -1};
    int result;

    id_random_hex(shell.run_id, ID_RUN_BYTES);
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return fail(err, INVALID, "standard input and output have to be a terminal for this: berth run does without");
    if (cli_open_if_asked(cli, err) < 0 ||
        (cli_value(cli, "enter") && find_terminal(&shell, cli_value(cli, "enter"), err) < 0))
        return -1;
    if (connect_shell(&shell, err) < 0)
        return cli_explain_session(cli, shell.session, err);
    shell.signals = block_signals(err);
    if (shell.signals < 0 || cli_terminal_raw(err) < 0)
        return -1;
    result = serve(&shell, err);
    if (!shell.end)
        cli_terminal_reset_screen();
    cli_terminal_restore();
    (void)fputc('\n', stderr);
    return result < 0 ? -1 : ended(&shell, err);
}
