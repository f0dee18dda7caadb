/* agent/inside/agent_assembly.h: a START that comes in several frames, put together. A few at a time, each bounded. */
#ifndef BERTH_AGENT_ASSEMBLY_H
#define BERTH_AGENT_ASSEMBLY_H

#include "agent_proto.h"

#include <stddef.h>

/* Add a frame of a START. 0: more is to come; 1: *ret_bytes is the whole, valid until the next call; -1: *ret_errno
 * says why it cannot be, and the rest of it will be refused too. */
int agent_assembly_add(const struct agent_header *header, const unsigned char *payload, const unsigned char **ret_bytes,
                       size_t *ret_size, int *ret_errno);

/* A new link: nothing that was begun will be finished. */
void agent_assembly_clear(void);

#endif
