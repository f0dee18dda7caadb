/* agent/inside/agent_frame.h: frames in a buffer of bytes. Pure functions; what they read is hostile. */
#ifndef BERTH_AGENT_FRAME_H
#define BERTH_AGENT_FRAME_H

#include "agent_proto.h"

#include <stdbool.h>
#include <stddef.h>

/* Look for the first whole frame. True: one begins at bytes + *ret_at, its payload follows the header. False: no whole
 * frame yet, and the first *ret_at bytes belong to none. A frame whose checksum is wrong is skipped by hunting for the
 * next magic. */
bool agent_frame_find(const unsigned char *bytes, size_t size, size_t *ret_at, struct agent_header *ret_header);

/* Fill in magic, version, length and checksum of a header whose payload is given. */
void agent_frame_seal(struct agent_header *header, const void *payload, size_t size);

#endif
