/* session/session_feed.h: what happened to sessions, service-wide: numbered without gaps across restarts.
 *
 * Kept: the last 10,000, and none but the newest for longer than 7 days. An event is seen after its commit. A reader holds a place, no
 * queue: one that is slow costs nothing but its own lag. Ops: opened, closed, purged, reaped, hibernated, frozen, thawed, woken, healed,
 * died, refused, policy, tenant. Threads: any.
 */
#ifndef BERTH_SESSION_FEED_H
#define BERTH_SESSION_FEED_H

#include "cancel.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;

struct feed_event {
    uint64_t seq;
    int64_t at_unix_us;
    char op[24];
    char session[65]; /* "" none */
    char tenant[65];  /* "" none */
    char detail[240];
};
struct feed_filter { /* NULL: any */
    const char *op;
    const char *session;
    const char *tenant;
    bool is_following; /* waits by sessions_feed_wait(): what is being written is seen then */
};
struct feed_page {
    struct feed_event *events; /* ascending; caller frees */
    size_t count;
    uint64_t first;   /* the oldest number that is kept; latest + 1 if none is */
    uint64_t latest;  /* the last given out */
    uint64_t commits; /* for sessions_feed_wait() */
};

/* Which store the numbers are of. Borrowed. */
const char *sessions_install(const struct sessions *sessions);
/* At most `limit` behind `after` that the filter lets through. Unless following, waits for what is being written. */
int sessions_feed_read(struct sessions *sessions, uint64_t after, const struct feed_filter *filter, size_t limit,
                       struct feed_page *ret, struct error *err);
/* Until something was committed after the page was read. Blocks; errors are the cancel's. */
int sessions_feed_wait(struct sessions *sessions, const struct feed_page *page, const struct cancel *cancel,
                       struct error *err);

/* Each reader holds a connection: a bound of their own keeps some for the rest. LIMIT. */
enum { FEED_READERS_MAX = 128 };
int sessions_feed_enter(struct sessions *sessions, struct error *err);
void sessions_feed_leave(struct sessions *sessions);

#endif
