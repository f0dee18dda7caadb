/* agent/agent_hub.h: the broker's side of all conversations with agents.
 *
 * Owns: one thread (epoll) that reads and writes every link's stream, never blocks, and sorts frames into bounded
 * per-run buffers; links; runs. Knows neither HTTP nor the engine nor containers: a link is made of a struct
 * net_stream. Callers: provider/. Threads: any, unless said otherwise. What an agent says is hostile: see
 * agent_proto.h.
 */
#ifndef BERTH_AGENT_HUB_H
#define BERTH_AGENT_HUB_H

#include "cancel.h"
#include "error.h"
#include "net_stream.h"
#include "run_types.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_hub;
struct agent_link;
struct agent_run;

struct agent_hub_settings {
    uint32_t epoch; /* of this broker's life: told in every HELLO */
};

/* Starts the thread. Caller frees with agent_hub_free(), after all links are closed. */
int agent_hub_new(const struct agent_hub_settings *settings, struct agent_hub **ret_hub, struct error *err);
void agent_hub_free(struct agent_hub *hub);

/* What the agent said of itself at the first HELLO_ACK of this link. */
struct agent_hello_info {
    uint32_t version;
    uint32_t uid;
    uint32_t gid;
    bool subreaper;
    bool stream_safe;
};

/* Resync over a fresh stream and return the link. Blocks until HELLO_ACK or cancel (give it a deadline).
 * `stream` is owned by the link from the call on, also when it fails. Of the runs the agent still knows, those in
 * `known_runs` (may be NULL) are kept for agent_run_resume(); all others are stopped and acknowledged away.
 * ret_link: one reference, drop with agent_link_unref(); with the last one the link is closed. Errors: ENGINE (stream
 * ended, nonsense, another protocol version), as cancel. */
int agent_link_open(struct agent_hub *hub, struct net_stream *stream, const uint32_t *known_runs, size_t known_count,
                    const struct cancel *cancel, struct agent_link **ret_link, struct agent_hello_info *ret_hello,
                    struct error *err);

struct agent_link *agent_link_ref(struct agent_link *link);
void agent_link_unref(struct agent_link *link);

/* Ends the stream: every run of it that had not ended is lost. Idempotent, never blocks. Keeps references valid. */
void agent_link_close(struct agent_link *link);

/* Still open. Goes to false by itself when the stream ends (container gone, engine gone) or the agent talks nonsense.
 */
bool agent_link_alive(const struct agent_link *link);

/* Blocks until the link is no longer alive or cancel: how the provider learns of a death at once. 0 when dead. */
int agent_link_wait_dead(struct agent_link *link, const struct cancel *cancel, struct error *err);

/* Start a run. Returns as soon as START was handed to the stream as a whole: blocks only while the stream takes
 * nothing. What the agent answers is seen by agent_run_next(). `number` is never 0 and never reused in a container's
 * life. *ret_sent: START was or will be handed over, so that starting it elsewhere may run it twice; always set, true
 * on success. ret_run: caller owns, agent_run_free(); it keeps the link open. Errors: GONE (link dead), INVALID (argv
 * or env too large: E2BIG), LIMIT (AGENT_RUNS_MAX runs on this link), as cancel (a START that was begun is followed by
 * STOP). */
int agent_run_start(struct agent_link *link, uint32_t number, const struct run_spec *spec, const struct cancel *cancel,
                    bool *ret_sent, struct agent_run **ret_run, struct error *err);

/* Take over a run that was in `known_runs` at agent_link_open(). Its output goes on where it was acknowledged; a watched one's
 * where agent_run_seek() says (`has_reader` does not matter). Never blocks. ret_run: as agent_run_start(). Errors: GONE, NOT_FOUND (the agent does not know it, or somebody has it). */
int agent_run_resume(struct agent_link *link, uint32_t number, bool has_reader, struct agent_run **ret_run,
                     struct error *err);

/* The next piece of output. Blocks. 1: *ret_chunk is set and stays valid until the next call on this run; asking for
 * the next acknowledges it. 0: the run has ended and all output was given: agent_run_exit() is set; its totals tell
 * what was dropped after the last chunk. A dead link is no error: 0 with exit.lost, after what had come. One thread at
 * a time. -1: as cancel (run goes on; call again or stop it); LIMIT or INVALID (the agent refused the START: nothing
 * ran, and it will not; only agent_run_free() is left to do). */
int agent_run_next(struct agent_run *run, const struct cancel *cancel, struct run_chunk *ret_chunk, struct error *err);

/* -- watched runs (run_spec.watch, always with keep): read by whoever comes -- */

/* Blocks until the command was executed or could not be: then agent_run_ended() tells at once. Errors: as agent_run_next(). */
int agent_run_wait_started(struct agent_run *run, const struct cancel *cancel, struct error *err);

/* What agent_run_next() gives from now on: output from these offsets; AGENT_SEEK_END: what comes from now on. Call before the
 * first, from the reader's thread. What is not kept any more is told by `dropped`. Blocks for a round trip. ret_place: where that is,
 * in the first stream; not set if the link is dead. Errors: INVALID (beyond what was written), GONE (the agent forgot it), as cancel. A
 * dead link is no error: agent_run_next() tells. */
#define AGENT_SEEK_END UINT64_MAX
int agent_run_seek(struct agent_run *run, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                   uint64_t *ret_place, struct error *err);

/* The reader leaves. For hold_ms the run is slowed as if it had one; then the middle of what is too much is dropped. Never blocks;
 * the reader's thread. */
void agent_run_leave(struct agent_run *run, uint32_t hold_ms);

/* The present agent_run_next(), or the next one if there is none, fails with CONFLICT: somebody else reads from now on. Any
 * thread, never blocks. */
void agent_run_interrupt(struct agent_run *run);

/* It has ended, whoever read of its output: true, and how. A link that died before: lost. Any thread, never blocks. */
bool agent_run_ended(struct agent_run *run, struct run_exit *ret_exit);

/* agent_run_next() gave 0 because the link died, not because all was read. */
bool agent_run_cut(const struct agent_run *run);

/* When it ends, or its link dies, `cookie` comes out of agent_hub_next_end(), once. At once if it has. Never blocks. */
void agent_run_watch(struct agent_run *run, uint64_t cookie);
int agent_hub_next_end(struct agent_hub *hub, const struct cancel *cancel, uint64_t *ret_cookie, struct error *err);

/* To every process of it; 1 to 63. To the size of its terminal, if it has one. Never block; any thread, any run. */
void agent_run_signal(struct agent_run *run, int number);
void agent_run_resize(struct agent_run *run, unsigned rows, unsigned cols);

/* Write to the standard input of a run that was started with stdin_open (INVALID otherwise, and after its end). Blocks until all of it was handed to the stream, as
 * the run takes it: read its output meanwhile (another thread may) if it writes while it reads. A run that has ended, or
 * closed its input, lets the rest vanish: 0, and agent_run_next() tells. One thread at a time. Errors: GONE (link dead), as
 * cancel (some of it was written; what follows cannot be known: stop the run). */
int agent_run_stdin_write(struct agent_run *run, const void *data, size_t size, const struct cancel *cancel,
                          struct error *err);

/* The end of its input, after what was written. Never blocks, idempotent. */
void agent_run_stdin_eof(struct agent_run *run);

/* Valid once agent_run_next() returned 0. Borrowed. */
const struct run_exit *agent_run_exit(const struct agent_run *run);

/* Ask the agent to end it: TERM, KILL after a second, EXIT within two. Never blocks, any thread, idempotent. */
void agent_run_stop(struct agent_run *run);

/* Forget the run: one that has not ended is stopped, its output discarded and acknowledged. Never blocks. */
void agent_run_free(struct agent_run *run);

/* Blocks for one round trip. Errors: GONE, as cancel. */
int agent_link_usage(struct agent_link *link, const struct cancel *cancel, struct sandbox_usage *ret_usage,
                     struct error *err);

/* The same of `count` links at once: all are asked before the first answer is waited for, so that one that is slow costs the
 * others nothing. NULL ones are passed over. ret_answered[i]: ret_usages[i] is set. Blocks until the last answer, or cancel. */
void agent_links_usage(struct agent_link *const *links, size_t count, const struct cancel *cancel,
                       struct sandbox_usage *ret_usages, bool *ret_answered);

/* Runs started and not ended on this link. */
unsigned agent_link_running(const struct agent_link *link);

#endif
