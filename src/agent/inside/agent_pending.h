/* agent/inside/agent_pending.h: STARTs that wait for a process: the sandbox is at its limit of processes just now. */
#ifndef BERTH_AGENT_PENDING_H
#define BERTH_AGENT_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keep a copy of a whole START and try it again for a while. False when no more can wait. */
bool agent_pending_add(uint32_t run, const unsigned char *bytes, size_t size);

bool agent_pending_has(uint32_t run);

/* Try those whose time has come. True when one is decided: *ret_errno is 0, or why it cannot be. Call until false. */
bool agent_pending_next(uint32_t *ret_run, int *ret_errno);

/* Give one up. False when it does not wait. */
bool agent_pending_drop(uint32_t run);

void agent_pending_clear(void);

#endif
