/* agent/agent_frame.h: frames to bytes and bytes to frames, the broker's way round.
 *
 * Pure functions over memory: never block, own nothing, any thread. Everything parsed here is hostile: what these
 * functions accept has lengths, flags and values inside the bounds of agent_proto.h; what it means for the state of a
 * link or a run is checked by agent_link.c and agent_run.c.
 */
#ifndef BERTH_AGENT_FRAME_H
#define BERTH_AGENT_FRAME_H

#include "agent_proto.h"
#include "buf.h"
#include "error.h"
#include "run_types.h"

#include <stddef.h>
#include <stdint.h>

/* One frame as it lies in memory: `payload` is borrowed from what was parsed. */
struct agent_frame {
    struct agent_header header;
    const char *payload; /* header.length bytes, not aligned */
};

/* What the agent said at HELLO_ACK. Runs are read one by one with agent_frame_run_state(). */
struct agent_greeting {
    uint32_t uid;
    uint32_t gid;
    uint32_t flags; /* enum agent_hello_flags */
    uint32_t run_count;
};

/* The frame at the start of `data`. 1: *ret_frame is whole and its checksum is right, *ret_used its bytes. 0: more
 * bytes are needed. -1 ENGINE: no frame of ours (magic, version, length, reserved, checksum); *ret_used is not set. */
int agent_frame_parse(const char *data, size_t size, struct agent_frame *ret_frame, size_t *ret_used,
                      struct error *err);

/* Find the HELLO_ACK of `nonce` in bytes that may begin anywhere and hold anything. 1: *ret_frame; *ret_used counts the
 * bytes up to its end. 0: not there yet; *ret_used bytes are of no use any more. -1 ENGINE: one that carries our nonce
 * is broken, or of a version we do not speak. A payload that looks like a frame cannot mislead it: nothing old knows
 * the nonce. */
int agent_frame_hunt(const char *data, size_t size, uint64_t nonce, struct agent_frame *ret_frame, size_t *ret_used,
                     struct error *err);

/* The payloads the agent sends, in our words: a run that failed to start or is lost has no exit code and no signal. ENGINE when they are not what they should be. */
int agent_frame_greeting(const struct agent_frame *frame, struct agent_greeting *ret, struct error *err);
void agent_frame_run_state(const struct agent_frame *frame, uint32_t index, struct agent_run_state *ret);
int agent_frame_exit(const struct agent_frame *frame, struct run_exit *ret, struct error *err);
int agent_frame_place(const struct agent_frame *frame, struct agent_place *ret, struct error *err);
int agent_frame_usage(const struct agent_frame *frame, struct sandbox_usage *ret, struct error *err);

/* Append one frame. TOO_LARGE as struct buf. `size` is AGENT_PAYLOAD_MAX at most. */
int agent_frame_append(struct buf *out, uint8_t type, uint16_t flags, uint32_t run, uint64_t offset,
                       const void *payload, size_t size, struct error *err);

int agent_frame_append_hello(struct buf *out, uint64_t nonce, uint32_t epoch, struct error *err);
int agent_frame_append_ack(struct buf *out, uint32_t run, uint64_t out_offset, uint64_t err_offset, bool exit_too,
                           struct error *err);

/* Append a whole START, as many frames as it takes. INVALID (E2BIG) when argv and env are too many or too large. */
int agent_frame_append_start(struct buf *out, uint32_t run, uint32_t epoch, const struct run_spec *spec,
                             struct error *err);

#endif
