/* agent/inside/agent_stream.h: the agent's end of the duplex stream: whole frames in, whole frames out, never blocking.
 *
 * Owns two descriptors and two buffers of fixed size. Knows no runs and no credit.
 */
#ifndef BERTH_AGENT_STREAM_H
#define BERTH_AGENT_STREAM_H

#include "agent_proto.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    AGENT_FRAME_MAX = AGENT_HEADER_BYTES + AGENT_PAYLOAD_MAX,
    AGENT_STREAM_IN_BYTES = 3 * AGENT_FRAME_MAX,
    AGENT_STREAM_OUT_BYTES = 2 * AGENT_FRAME_MAX,
};

struct agent_stream {
    int in;
    int out;
    size_t in_at;
    size_t in_size;
    size_t out_at;
    size_t out_size;
    unsigned char in_bytes[AGENT_STREAM_IN_BYTES];
    unsigned char out_bytes[AGENT_STREAM_OUT_BYTES];
};

/* Read once. 1: something came or nothing is there now; 0: the end; -1: the stream is broken. */
int agent_stream_read(struct agent_stream *stream);

/* Take the next whole frame. *ret_payload stays valid until the next call of agent_stream_read(). */
bool agent_stream_next(struct agent_stream *stream, struct agent_header *ret_header, const unsigned char **ret_payload);

/* Whether a frame with this payload fits behind what is not written yet. */
bool agent_stream_fits(const struct agent_stream *stream, size_t payload_size);

/* Where the next frame's payload may be put, for agent_stream_commit(). At least one frame must fit. */
unsigned char *agent_stream_payload(struct agent_stream *stream);

/* Append a frame whose payload (size bytes) was put at agent_stream_payload(). */
void agent_stream_commit(struct agent_stream *stream, uint8_t type, uint32_t run, uint64_t offset, size_t size);

/* Both in one, from memory of the caller's. */
void agent_stream_put(struct agent_stream *stream, uint8_t type, uint32_t run, uint64_t offset, const void *payload,
                      size_t size);

/* Write what is waiting. 1: all of it; 0: the stream takes no more now; -1: it is broken. */
int agent_stream_flush(struct agent_stream *stream);

/* A new link begins: what the old one has not taken is dropped, and zeros end the frame it may be in the middle of. */
void agent_stream_restart(struct agent_stream *stream);

#endif
