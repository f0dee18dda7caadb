/* util/cancel.h: what may end a wait: the client hung up, the broker stops, the deadline passed.
 *
 * Whatever can block takes a `const struct cancel *`; a signature tells whether it can. No wait without it.
 * A struct cancel is plain data: copy it to tighten its deadline. Threads: any, read only.
 */
#ifndef BERTH_CANCEL_H
#define BERTH_CANCEL_H

#include "error.h"

#include <poll.h>
#include <stdint.h>

struct cancel {
    int stop_fd;         /* readable once the broker stops; -1: none */
    int client_fd;       /* POLLRDHUP once the client hung up, half-close counts as one; -1: none */
    int64_t deadline_ms; /* clock_mono_ms(); 0: none */
};

#define CANCEL_NEVER \
    {                \
        -1, -1, 0    \
    }

/* The same with the nearer of the two deadlines. `timeout_ms` from now; a negative one is 0. */
struct cancel cancel_within(const struct cancel *base, int64_t timeout_ms);

/* The same without the client: for work that is finished although its caller went away. */
struct cancel cancel_detached(const struct cancel *base);

/* -1 if cancelled already: CANCELLED (client), UNAVAILABLE (stop), TIMEOUT (deadline). Never blocks. */
int cancel_check(const struct cancel *cancel, struct error *err);

/* poll() on `fds` until one is ready or the wait is cancelled. Blocks.
 * Returns the count of ready fds (> 0) or -1 with an error as cancel_check(). `count` is 16 at most. */
int cancel_poll(const struct cancel *cancel, struct pollfd *fds, unsigned count, struct error *err);

/* Milliseconds until the deadline: -1 none, 0 passed. */
int64_t cancel_remaining_ms(const struct cancel *cancel);

#endif
