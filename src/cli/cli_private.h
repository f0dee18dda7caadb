/* cli/cli_private.h: what the verbs share. Within cli/ only. Threads: one.
 *
 * A verb is `int verb_x(struct cli *cli, struct error *err)`: the exit status, or -1 with an error, whose code becomes the status.
 * What comes from the broker may have been made in a sandbox: it is hostile, and is printed with cli_put() and its like.
 */
#ifndef BERTH_CLI_PRIVATE_H
#define BERTH_CLI_PRIVATE_H

#include "buf.h"
#include "cli.h"
#include "error.h"
#include "json.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cli;
struct cli_http;

/* -- the table (cli_args.c) -- */

struct cli_option {
    const char *name;  /* without the dashes */
    char letter;       /* '\0': none */
    const char *value; /* what its value is, in capitals; NULL: it has none */
    const char *help;
};

struct cli_verb {
    const char *name;
    const char *arguments; /* "SESSION [-- CMD…]" */
    unsigned least;        /* arguments */
    unsigned most;
    unsigned verbatim_after; /* so many arguments; what follows them is no option any more. 0: never */
    const char *summary;
    const char *text;                 /* paragraphs */
    const char *examples;             /* "command\n" and "# what it does\n" lines */
    const struct cli_option *options; /* up to one without a name */
    int (*run)(struct cli *cli, struct error *err);
};

extern const struct cli_verb cli_verbs[]; /* up to one without a name */
extern const struct cli_option cli_common_options[];

#define VERB(id, ...) int verb_##id(struct cli *cli, struct error *err);
#define OPTION(...)
#define VERB_END(id)
#include "verbs.def"
#undef VERB
#undef OPTION
#undef VERB_END

/* -- one call -- */

struct cli_given {
    const struct cli_option *option;
    const char *value; /* NULL: it has none */
};

struct cli {
    const struct cli_verb *verb; /* NULL: none was named */
    struct cli_given *given;
    unsigned given_count;
    char **arguments;
    unsigned argument_count;
    char *url; /* without a slash at its end */
    char *token;
    bool is_terminal; /* standard output is one */
    struct cli_http *http;
};

enum { CLI_MORE = 999 }; /* any number of arguments */

/* Reads the words behind the program's name. INVALID: what is wrong and where help is. Borrows `argv`. */
int cli_parse(int argc, char **argv, struct cli *ret, struct error *err);
bool cli_has(const struct cli *cli, const char *option);
const char *cli_value(const struct cli *cli, const char *option); /* the last one; NULL: not given */
/* A whole number from `least` to `most`, `fallback` where the option is not given. */
int cli_number(const struct cli *cli, const char *option, int64_t least, int64_t most, int64_t fallback, int64_t *ret,
               struct error *err);
const struct cli_verb *cli_verb_of(const char *name); /* NULL: none */
int cli_status_of(const struct cli *cli, const struct error *err);

/* Address and token, from options, the environment, a file. */
int cli_settle(struct cli *cli, struct error *err);

/* -- help (cli_help.c) -- */
void cli_help(const struct cli_verb *verb, FILE *out); /* NULL: the whole */

/* -- printing (cli_print.c) -- */

/* `text` with whatever a terminal could take for a command, or an eye for something else, as \x1b and \u202e; also line ends. As it is where
 * `is_terminal` is not set. */
int cli_escape(struct buf *out, const char *text, size_t size, bool is_terminal, struct error *err);
void cli_put(const struct cli *cli, FILE *out, const char *text);
/* JSON on one line; on a terminal escaped as well, in JSON's way. */
void cli_put_json(const struct cli *cli, struct json_object *object);

void cli_size(int64_t bytes, char out[static 24]);        /* "1.2 GiB"; negative: "-" */
void cli_since(double unix_seconds, char out[static 24]); /* "3m", "2d"; zero: "-" */

/* Rows of cells, printed in columns as wide as their widest, escaped in any case. Numbers (a cell that begins with a digit) are put to the right. */
struct cli_table {
    const char *const *heads;
    unsigned columns;
    char **cells;
    size_t count;
};
void cli_table_add(struct cli_table *table, const char *text); /* the next cell; NULL: "-" */
void cli_table_addf(struct cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_print(const struct cli_table *table);
void cli_table_done(struct cli_table *table);

/* -- JSON members; what is missing or of another type is NULL, 0, false -- */
const char *cli_str(struct json_object *object, const char *key);
int64_t cli_int(struct json_object *object, const char *key, int64_t fallback);
double cli_real(struct json_object *object, const char *key);
bool cli_bool(struct json_object *object, const char *key);
struct json_object *cli_member(struct json_object *object, const char *key); /* borrowed; NULL: null or not there */
size_t cli_length(struct json_object *array);

/* -- requests (cli_http.c) -- */

struct cli_request {
    const char *method;
    const char *target; /* path and query, escaped */
    const char *body;   /* NULL: none */
    size_t body_size;
    const char *type;   /* of the body; NULL: JSON */
    const char *accept; /* NULL: any */
    const char *last_event_id;
    /* A body that is made while it is sent: bytes, 0 at its end, -1 with an error. */
    int64_t (*next)(void *context, char *out, size_t max, struct error *err);
    void *next_context;
    int64_t timeout_ms; /* of the whole; 0: none, but then it must not be silent for 60 s */
};

/* One request on its way, and its answer as it comes. Errors: UNAVAILABLE (nobody answers there, or it broke off), TIMEOUT, and what `next` said. */
struct cli_transfer;
int cli_transfer_start(struct cli *cli, const struct cli_request *request, struct cli_transfer **ret,
                       struct error *err);
void cli_transfer_free(struct cli_transfer *transfer); /* wherever it is; NULL is fine */
/* Waits for the head of the answer. */
int cli_transfer_status(struct cli_transfer *transfer, int *ret_status, struct error *err);
int cli_transfer_known_status(
    const struct cli_transfer *transfer); /* the same without waiting: 0 where it has not come */
/* 1: *ret_data is borrowed until the next call; 0: the end; 2: nothing has come (only if not `waits`). */
int cli_transfer_read(struct cli_transfer *transfer, bool waits, const char **ret_data, size_t *ret_size,
                      struct error *err);
int cli_transfer_mode(const struct cli_transfer *transfer);            /* X-Berth-Mode, 0 to 0777; -1 none */
const char *cli_transfer_trailer(const struct cli_transfer *transfer); /* X-Berth-Archive; "" none */
/* Lets all transfers go on until one of them has something, one of `fds` is ready, or the time has passed. */
int cli_http_poll(struct cli *cli, struct pollfd *fds, unsigned count, int timeout_ms, struct error *err);
void cli_http_free(struct cli_http *http);

/* What an answer that is no success says, with what to do; as an error whose code is its status'. Always -1. */
int cli_refused(const struct cli *cli, int status, const char *body, struct error *err);
/* The rest of an answer that is no success becomes the error. Always -1. */
int cli_transfer_refused(struct cli_transfer *transfer, int status, struct error *err);

/* The whole exchange of JSON. `body` may be NULL. *ret (may be NULL; NULL for 204): caller puts it. An answer that is no success is an error. */
int cli_call(struct cli *cli, const char *method, const char *target, struct json_object *body,
             struct json_object **ret, struct error *err);
/* The same, with the time it may take. */
int cli_call_within(struct cli *cli, int64_t timeout_ms, const char *method, const char *target,
                    struct json_object *body, struct json_object **ret, struct error *err);
/* A target: %s are escaped as parts of a path or values of a query. Caller frees. */
char *cli_target(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* -- sessions (verb_sessions.c) -- */

int cli_check_session(const char *id, struct error *err); /* INVALID */
/* {"sessions": […]}: all. */
int cli_sessions(struct cli *cli, bool usage, struct json_object **ret, struct error *err);
/* {"session", "token"}. `id` NULL: one is made up. */
int cli_open(struct cli *cli, const char *id, bool reuse, const char *runtime, const char *tenant,
             struct json_object **ret, struct error *err);
int cli_delete_workspaces(struct cli *cli, struct error *err); /* those that are its arguments */

/* -- server-sent events (cli_stream.c) -- */

/* Bytes become events. What is not finished waits for more. */
struct cli_stream {
    struct buf line;
    struct buf data;
    char event[32]; /* "message" where none is named */
    char id[64];    /* the last one that was said */
    bool is_told;   /* the one in there was given out */
};
#define CLI_STREAM_INIT                                                        \
    {                                                                          \
        .line = BUF_INIT(16 * 1024 * 1024), .data = BUF_INIT(16 * 1024 * 1024) \
    }
/* Takes from the front of *data. 1: an event is whole, in `event`, `id` and `data`; call again with what is left. 0: all is taken. */
int cli_stream_next(struct cli_stream *stream, const char **data, size_t *size, struct error *err);
enum cli_stream_state {
    CLI_STREAM_ENDED,  /* the answer was whole */
    CLI_STREAM_ENOUGH, /* `take` wants no more */
    CLI_STREAM_WAITS,  /* nothing more has come (only if not `waits`) */
    CLI_STREAM_BROKEN, /* the connection broke off, or never was: `err` says why */
};
/* Hands the events of an answer of status 200 to `take` as they come. It returns 0 to go on, 1 for enough, -1 with an error, which is then returned. */
int cli_stream_each(struct cli_stream *stream, struct cli_transfer *transfer, bool waits,
                    int (*take)(void *context, const struct cli_stream *stream, struct error *err), void *context,
                    struct error *err);
void cli_stream_reset(struct cli_stream *stream); /* another connection: what was not finished is gone; the id stays */
void cli_stream_done(struct cli_stream *stream);

/* -- runs (verb_run.c) -- */

/* The exit status that a run's view (of "exit", or of the API) asks for; says on standard error what is out of the ordinary. */
int cli_run_status(struct json_object *view);
/* --env and --cwd, and the words behind the session, into the body of a start. */
int cli_add_environment(const struct cli *cli, struct json_object *body, struct error *err);
void cli_add_argv(const struct cli *cli, struct json_object *body);
int cli_open_if_asked(struct cli *cli, struct error *err);
/* Of a session that is not there: says how to open it. Always -1. */
int cli_explain_session(const struct cli *cli, const char *session, struct error *err);

DEFINE_CLEANUP(transfer, struct cli_transfer *, cli_transfer_free)
#define auto_transfer auto_cleanup(cleanup_transfer)

#endif
