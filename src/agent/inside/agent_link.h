/* agent/inside/agent_link.h: the conversation with the broker: frames to deeds, and what runs have to say to frames.
 *
 * One link at a time; a HELLO with a new nonce begins the next. Nothing is done before the first HELLO.
 */
#ifndef BERTH_AGENT_LINK_H
#define BERTH_AGENT_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* Once, at start. flags: enum agent_hello_flags. 0, or -1 with errno. */
int agent_link_init(int in, int out, uint32_t flags);

/* The stream is readable. False at its end. */
bool agent_link_readable(void);

/* Do what the received frames ask. False when it stopped half-way because too many answers wait: send, then call again.
 */
bool agent_link_obey(void);

/* Send what may be sent now. False when the stream is broken. */
bool agent_link_send(void);

/* Nothing waits to be written. */
bool agent_link_idle(void);

#endif
