/* tests/unit/agent_fake.h: an agent made of a script, at the other end of a socketpair. Plain asserts: also for
 * drivers. */
#ifndef BERTH_AGENT_FAKE_H
#define BERTH_AGENT_FAKE_H

#include "agent_frame.h"
#include "agent_hub.h"

struct fake {
    int fd;
    struct buf in;
    size_t used;    /* of it, by the frame given out last */
    uint64_t nonce; /* of the last HELLO */
};

/* Both ends. `write_max` bounds what one write of the broker takes (0: no bound). */
struct net_stream *fake_pair(struct fake *fake, size_t write_max);
void fake_done(struct fake *fake);
void fake_raw(struct fake *fake, const void *data, size_t size);
void fake_send(struct fake *fake, uint8_t type, uint32_t run, uint64_t offset, const void *payload, size_t size);
void fake_exit(struct fake *fake, uint32_t run, int exit_code, uint64_t out_bytes, uint64_t err_bytes);
void fake_greet(struct fake *fake, uint64_t nonce, const struct agent_run_state *runs, uint32_t count);
/* The next frame, zeros skipped; valid until the next call. Waits up to `wait_ms`; false when none came or the end did.
 */
bool fake_next(struct fake *fake, int wait_ms, struct agent_frame *ret);
/* The next frame of this type; others are passed over. It must come within five seconds. */
struct agent_frame fake_expect(struct fake *fake, uint8_t type);

/* A link over a fake that has greeted. */
struct linked {
    struct fake fake;
    struct agent_hub *hub;
    struct agent_link *link;
    struct agent_hello_info hello;
};
void linked_open(struct linked *linked, size_t write_max);
void linked_done(struct linked *linked);
struct agent_run *linked_start(struct linked *linked, uint32_t number); /* START is read by the fake */

struct cancel fake_patient(void); /* a deadline only broken code meets */

#endif
