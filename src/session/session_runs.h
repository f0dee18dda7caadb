/* session/session_runs.h: commands that are started, watched, fed and found again: the runs of a session.
 *
 * Owns: the records of runs (those alive in memory, all in the store: 200 ended ones a session, 24 hours). The output's only home is
 * the agent's memory. Commands that are waited for (session_run.h) are started, named and counted by the same code. Knows neither
 * HTTP nor the engine. Threads: any; a reader or a stdin belongs to one thread. What takes a cancel blocks.
 *
 * A run is named by its run_id (1-64 characters as a session id) within its session, for good: a name that was used before on `/runs`
 * gives the run that has it (idempotent).
 */
#ifndef BERTH_SESSION_RUNS_H
#define BERTH_SESSION_RUNS_H

#include "cancel.h"
#include "error.h"
#include "run_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;

enum run_state { RUN_STATE_STARTING, RUN_STATE_RUNNING, RUN_STATE_ENDED };

struct run_view {
    char run_id[65];
    uint32_t number;
    enum run_state state;
    int64_t started_at_unix_us;
    int64_t ended_at_unix_us; /* 0: not yet */
    bool tty;
    struct run_exit exit; /* once ended */
    char cause
        [32]; /* of an end that was not the command's own: "stopped", "session closed", "sandbox died" …; "" otherwise */
    char command[832]; /* shell-quoted, valid UTF-8, cut */
};

/* Start one, or find the one of that name (*ret_new false). `run_id` NULL: one is made up. spec: keep, watch and has_reader are set
 * here. Errors: NOT_FOUND,
 * GONE, INVALID (cwd that cannot be entered: named; env), LIMIT (running commands of the session or in all: 429, never queued),
 * UNAVAILABLE, ENGINE, as cancel. */
int session_runs_start(struct sessions *sessions, const char *id, const char *run_id, const struct run_spec *spec,
                       const char *command, const struct cancel *cancel, struct run_view *ret_view, bool *ret_new,
                       struct error *err);

/* Newest first; `only_running`. Caller frees *ret. */
int session_runs_list(struct sessions *sessions, const char *id, bool only_running, struct run_view **ret,
                      size_t *ret_count, struct error *err);
/* With `cancel`: until it has ended or the cancel; NULL: as it is now. */
int session_runs_get(struct sessions *sessions, const char *id, const char *run_id, const struct cancel *cancel,
                     struct run_view *ret, struct error *err);

/* A reader of the output from `out_from`, `err_from` bytes on; one a run at a time: a newer one ends the older. A place that is not kept any more
 * begins at the oldest that is: the first chunk's `dropped` tells. INVALID: beyond what was written. Caller frees. */
struct run_reader;
int session_runs_read(struct sessions *sessions, const char *id, const char *run_id, uint64_t out_from,
                      uint64_t err_from, const struct cancel *cancel, struct run_reader **ret_reader,
                      struct error *err);
/* 1: *ret_chunk until the next call; 0: ended, the exit is in session_runs_get(); -1: cancelled, or CONFLICT (a newer reader). */
int run_reader_next(struct run_reader *reader, const struct cancel *cancel, struct run_chunk *ret_chunk,
                    struct error *err);
void run_reader_free(struct run_reader *reader);

/* Bytes to its standard input, with back-pressure. One writer at a time, others wait. GONE: it has ended. UNAVAILABLE: its link broke; how
 * much of it was written cannot be known. INVALID: it was
 * started without one, or that was ended. What a run that ends meanwhile does not take vanishes. */
int session_runs_stdin(struct sessions *sessions, const char *id, const char *run_id, const void *data, size_t size,
                       bool eof, const struct cancel *cancel, struct error *err);
/* To every process of the run. INVALID: no such signal. An ended run: 0. */
int session_runs_signal(struct sessions *sessions, const char *id, const char *run_id, int signal_number,
                        struct error *err);
int session_runs_stop(struct sessions *sessions, const char *id, const char *run_id, struct error *err);
int session_runs_resize(struct sessions *sessions, const char *id, const char *run_id, unsigned rows, unsigned cols,
                        struct error *err);

#endif
