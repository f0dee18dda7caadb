/* session/session_run.h: commands in a session's sandbox that are waited for.
 *
 * Wakes or heals what is needed, waits for a command slot until the deadline, runs, gathers the output within bounds, records the
 * event. The sandbox is kept from sleeping until the end. Blocks; a client that hangs up stops its command.
 */
#ifndef BERTH_SESSION_RUN_H
#define BERTH_SESSION_RUN_H

#include "cancel.h"
#include "error.h"
#include "run_types.h"
#include "spool.h"

#include <stdbool.h>
#include <stdint.h>

struct sessions;

/* What a dialect wants of a run. */
struct session_run_request {
    struct run_spec spec;
    const char *run_id;        /* 32 hex digits; NULL: cannot be stopped by name */
    uint64_t output_max_bytes; /* of both streams together */
    bool stop_over_output;     /* over it: stop the command (current); false: go on and discard (classic) */
    uint64_t cut_bytes;        /* a stopped one's streams are cut to this; 0: not cut */
    const char
        *stdin_data; /* stdin_size bytes, written before anything is read: for programs that read first; 0: none */
    size_t stdin_size;
    const char *event_op;     /* "run", "exec" */
    const char *event_late;   /* what the event of one that the deadline ended says: "timed out", "exit 124" */
    const char *event_target; /* valid UTF-8, of any length */
};

struct session_run_result {
    struct spool out;
    struct spool err;
    struct run_exit exit;
    bool timed_out;      /* by the deadline, also while waiting for a slot */
    bool output_limited; /* more came than output_max_bytes */
    int exit_code;       /* as a shell has it: 128 + n for a signal, 127 not found, 126 not runnable; -1: none */
};
#define SESSION_RUN_RESULT_INIT                       \
    {                                                 \
        SPOOL_INIT, SPOOL_INIT, {0}, false, false, -1 \
    }
void session_run_result_done(struct session_run_result *result);
#define auto_run_result auto_cleanup(session_run_result_done)

/* As a shell has it: 127 or 126 for what could not be run, 128 + n for a signal. */
int session_run_exit_code(const struct run_exit *exit);

/* Errors: NOT_FOUND, GONE (container gone before or during, or it cannot be had again), LIMIT (waking needs a slot),
 * CONFLICT (run_id is running), UNAVAILABLE (engine away), ENGINE, as cancel. A deadline is no error: timed_out. */
int session_run_wait(struct sessions *sessions, const char *id, const struct session_run_request *request,
                     const struct cancel *cancel, struct session_run_result *ret_result, struct error *err);

/* Record a run that was refused before anything was looked at: it counts among the session's events. NOT_FOUND. */
int session_run_refused(struct sessions *sessions, const char *id, const char *event_op, const char *event_target,
                        struct error *err);

/* Stop by name; unknown, finished, hibernated: 0 too. Never blocks on a command slot. NOT_FOUND: no such session. */
int session_run_stop(struct sessions *sessions, const char *id, const char *run_id, struct error *err);

#endif
