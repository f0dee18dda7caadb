/* tests/unit/agent_peer.h: a broker's end of the agent's stream, small enough to trust, for tests of the agent alone.
 * Blocks; ends the test when an answer does not come in time. */
#ifndef BERTH_AGENT_PEER_H
#define BERTH_AGENT_PEER_H

#include "agent_frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PEER_WAIT_MS = 15000, PEER_KEEP_MAX = 8 * 1024 * 1024 };

struct peer {
    pid_t pid;
    int fd;
    size_t size;
    unsigned char bytes[2 * (AGENT_HEADER_BYTES + AGENT_PAYLOAD_MAX)];
    struct agent_header header; /* of the last frame */
    unsigned char payload[AGENT_PAYLOAD_MAX];
    struct agent_hello_ack hello;
    struct agent_run_state states[AGENT_RUNS_MAX];
};

struct peer_stream {
    char *bytes; /* what came, gaps left out; ends with a NUL */
    size_t size;
    uint64_t end;     /* offset behind the last byte */
    uint64_t dropped; /* in gaps */
};

struct peer_result {
    struct agent_exit exit;
    struct peer_stream out;
    struct peer_stream err;
    uint64_t refused; /* errno of REFUSED; exit is not set then */
};

struct peer *peer_start(void);    /* ./berth-agent-host, no HELLO yet */
int peer_stop(struct peer *peer); /* end of input; its wait status */
struct peer *peer_linked(void);   /* started and greeted, of epoch 1 */
void peer_stop_cleanly(struct peer *peer);
void peer_send_raw(struct peer *peer, const void *bytes, size_t size);
void peer_send(struct peer *peer, uint8_t type, uint32_t run, uint64_t offset, const void *payload, size_t size);
void peer_hello(struct peer *peer, uint64_t nonce, uint32_t epoch); /* zeros, HELLO, until HELLO_ACK of that nonce */

/* The next frame within wait_ms. False when none came, or the stream ended. */
bool peer_next(struct peer *peer, int wait_ms);

/* The next frame of that type; others are skipped. */
void peer_expect(struct peer *peer, uint8_t type, uint32_t run);

struct peer_start {
    uint32_t flags;
    uint32_t epoch;
    uint64_t timeout_ms;
    const char *cwd;
    const char *const *env; /* NULL-terminated, or NULL */
};

void peer_start_run(struct peer *peer, uint32_t run, const struct peer_start *how, const char *const *argv);
void peer_start_sh(struct peer *peer, uint32_t run, const struct peer_start *how, const char *script);

/* Read a run to its EXIT, giving back credit and acknowledging. ret_result: free with peer_result_done(). */
void peer_collect(struct peer *peer, uint32_t run, struct peer_result *ret_result);
void peer_result_done(struct peer_result *result);
void peer_ack(struct peer *peer, uint32_t run, uint64_t out, uint64_t err, bool exit);

long peer_now_ms(void);

#endif
