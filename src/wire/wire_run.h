/* wire/wire_run.h: fields and answers that the routes of commands share. */
#ifndef BERTH_WIRE_RUN_H
#define BERTH_WIRE_RUN_H

#include "session_run.h"
#include "session_runs.h"
#include "wire_private.h"

/* What is wrong is told in call->invalid; the caller frees what is returned (pointers in it are borrowed from the body). */
const char **wire_run_argv(struct wire_call *call, size_t *ret_argc, bool *ret_has_nul);
const char **wire_run_env(struct wire_call *call, size_t *ret_count);
/* Of Berth's own routes: names that a shell could not set are INVALID. */
int wire_run_check_env(struct wire_call *call, struct error *err);
/* At most the service's ceiling, which is also what null means. */
int64_t wire_run_timeout_ms(struct wire_call *call);
/* {stdout, stderr, exit_code, timed_out, output_limited, output_limit} */
int wire_run_reply(struct http_reply *reply, const char *program, struct session_run_result *result, struct error *err);

enum {
    WIRE_RUN_OUTPUT_MAX_BYTES = 10 * 1024 * 1024, /* both streams together */
    WIRE_RUN_CUT_BYTES = 65536,                   /* what is kept of each when it was stopped */
    WIRE_RUN_ARGUMENT_MAX_BYTES = 120 * 1024,     /* the kernel's limit on one is 128 KiB */
};

/* A run as it is shown, the members of an object that is open. */
void wire_put_run(struct wire_writer *writer, const struct run_view *view);
/* The {run_id} of the path: NULL, and told, if it is none. */
const char *wire_run_of(struct wire_call *call);

/* -- what POST …/runs asks for; also the first message of a terminal -- */
struct wire_wanted {
    struct run_spec spec;
    const char **argv;
    const char **env;
    const char *shell[4];
    struct wire_text stdin_text;
    const char *run_id;
    char command[WIRE_TARGET_BYTES];
};
enum { WIRE_SIZE_MAX_CELLS = 10000 }; /* of a terminal, each way */
void wire_wanted_done(struct wire_wanted *wanted);
#define auto_wire_wanted auto_cleanup(wire_wanted_done)
/* What is wrong is told in call->invalid. Pointers are borrowed from the body. */
void wire_wanted_read(struct wire_call *call, struct wire_wanted *wanted);
void wire_wanted_read_rest(struct wire_call *call, struct wire_wanted *wanted); /* all but the command */
/* The number of the field "signal". 0: told. */
int wire_run_signal(struct wire_call *call);

/* -- wire_stream.c: output on its way to a client -- */
enum wire_stream_format { WIRE_STREAM_LINES, WIRE_STREAM_EVENTS, WIRE_STREAM_BYTES };
/* Takes the reader, whose places it goes on from. `stream` counts for BYTES only. */
void wire_reply_stream(struct http_reply *reply, struct wire_call *call, const char *run_id, struct run_reader *reader,
                       const uint64_t from[2], enum wire_stream_format format, enum run_stream stream);

#endif
