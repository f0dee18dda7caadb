/* session/session_terminal.h: a run with a terminal, as somebody sits at it: what it writes, from a bounded tail on, and its keys.
 *
 * The run is one of session_runs.h and outlives this. One sits at it at a time: a newer one ends the older. Bytes that go through are
 * use of the session; a terminal's run by itself is none. Threads: one calls terminal_next(), another may call the rest. What takes a
 * cancel blocks.
 */
#ifndef BERTH_SESSION_TERMINAL_H
#define BERTH_SESSION_TERMINAL_H

#include "session_runs.h"

struct terminal;

/* Sit down at a run that is there. Output begins tail_bytes before its present end, as far as it is kept. *ret_from, *ret_end: these places.
 * Caller frees. Errors: NOT_FOUND, INVALID (it has no terminal), GONE (session closed), as cancel. */
int session_terminal_enter(struct sessions *sessions, const char *id, const char *run_id, uint64_t tail_bytes,
                           const struct cancel *cancel, struct terminal **ret_terminal, uint64_t *ret_from,
                           uint64_t *ret_end, struct error *err);
/* As run_reader_next(). */
int terminal_next(struct terminal *terminal, const struct cancel *cancel, struct run_chunk *ret_chunk,
                  struct error *err);
/* Keys, with back-pressure. GONE: it has ended. CONFLICT: somebody newer sits there. As session_runs_stdin() otherwise. */
int terminal_input(struct terminal *terminal, const void *data, size_t size, const struct cancel *cancel,
                   struct error *err);
/* CONFLICT: somebody newer sits there. An ended run: 0. Signals: 1 to 63. */
int terminal_resize(struct terminal *terminal, unsigned rows, unsigned cols, struct error *err);
int terminal_signal(struct terminal *terminal, int signal_number, struct error *err);
int terminal_stop(struct terminal *terminal, struct error *err);
/* Also when its session is closed. Never blocks. */
void terminal_view(struct terminal *terminal, struct run_view *ret);
/* NULL is left alone. */
void terminal_free(struct terminal *terminal);

#endif
