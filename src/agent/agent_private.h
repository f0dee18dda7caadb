/* agent/agent_private.h: what agent_hub.c, agent_link.c and agent_run.c share.
 *
 * Locks, in this order: hub->lock (the list of links), link->lock (everything of a link and its runs). The hub's thread
 * reads and decodes; every thread writes: frames are appended to the link's queue and handed to the stream at once,
 * under link->lock, and only what the stream did not take waits for the hub's thread. `_locked` functions expect
 * link->lock.
 *
 * Credit, acknowledgements and STOP are never queued as frames but kept as state of their run, which is put on
 * link->pending and becomes frames when the queue is short: a stream that takes nothing costs no memory.
 *
 * Counting. link->users: references of callers and of the runs they hold; at none the link is closed. link->references:
 * one for all users together, one of the hub while it may look at the link.
 */
#ifndef BERTH_AGENT_PRIVATE_H
#define BERTH_AGENT_PRIVATE_H

#include "agent_frame.h"
#include "agent_hub.h"
#include "waitq.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

enum {
    HUB_TICK_MS = 250,
    LINK_HELLO_MS = 1000,
    LINK_READ_BYTES = 256 * 1024,
    LINK_SCRATCH_BYTES = AGENT_HEADER_BYTES + AGENT_PAYLOAD_MAX + LINK_READ_BYTES,
    LINK_QUEUE_SOFT_BYTES = 64 * 1024, /* above this nothing is added to the queue; below it a whole START may be */
    LINK_QUEUE_MAX_BYTES = AGENT_START_MAX + 4 * LINK_QUEUE_SOFT_BYTES,
    LINK_CREDIT_BACK_BYTES = AGENT_LINK_CREDIT / 4, /* given back in pieces of this */
    LINK_LAZY_ACKS = 32,                            /* acknowledged exits that may wait for the next frame or tick */
    LINK_BUCKETS = 64,
    RUN_CREDIT_BACK_BYTES = AGENT_RUN_CREDIT / 4,
    RUN_ACK_IDLE_BYTES = 4 * 1024, /* a reader that waits keeps less than this of the agent's memory */
};

enum link_state { LINK_GREETING, LINK_OPEN, LINK_DEAD };

struct usage_wait {
    LIST_ENTRY(usage_wait) entry;
    struct waitq answered;
    uint64_t ticket;
    bool done;
    struct sandbox_usage usage;
};

LIST_HEAD(agent_run_list, agent_run);
STAILQ_HEAD(agent_run_queue, agent_run);

struct agent_link {
    struct agent_hub *hub;
    _Atomic unsigned users;
    _Atomic unsigned references;
    _Atomic unsigned running;     /* runs that have not ended */
    _Atomic int state;            /* enum link_state; changed under lock */
    LIST_ENTRY(agent_link) entry; /* hub->lock */

    /* of the hub's thread alone */
    struct buf partial; /* the beginning of a frame whose end has not come */
    bool has_more;      /* stopped reading before EAGAIN, for the other links' sake */

    pthread_mutex_t lock;      /* everything below */
    struct net_stream *stream; /* NULL once dead */
    struct error death;
    struct buf queue; /* bytes the stream has not taken */
    size_t queue_sent;
    uint64_t written_bytes; /* ever taken by the stream */
    bool wants_write;       /* EPOLLOUT is asked for */
    bool is_urgent;         /* something pending is not to wait for the next frame or tick */
    struct waitq life;      /* greeted or dead */
    struct waitq room;      /* the queue went out */

    uint64_t nonce;
    int64_t hello_at_ms;
    struct agent_hello_info hello;
    uint32_t *known; /* during agent_link_open() */
    size_t known_count;

    uint32_t window_bytes;      /* what the agent may still send on the link */
    uint32_t credit_owed_bytes; /* read and not given back */
    uint32_t highest_run;
    unsigned run_count;
    unsigned pending_count;
    struct agent_run_list runs[LINK_BUCKETS];
    struct agent_run_queue pending; /* runs with something to tell the agent */
    struct agent_run_list touched;  /* runs whose reader is woken at the end of the batch */
    LIST_HEAD(, usage_wait) usages;
    uint64_t last_ticket;
};

enum run_state { RUN_STARTING, RUN_RUNNING, RUN_ENDED, RUN_REFUSED };

struct agent_run {
    struct agent_link *link; /* a user's reference while held */
    uint32_t number;

    /* link->lock */
    LIST_ENTRY(agent_run) entry;
    LIST_ENTRY(agent_run) touched_entry;
    STAILQ_ENTRY(agent_run) pending_entry;
    enum run_state state;
    bool held;    /* somebody has it and frees it; otherwise it is on its way out, or waits for agent_run_resume() */
    bool discard; /* nobody will read: output is acknowledged as it comes */
    bool is_touched;
    bool is_pending;
    bool wants_reader; /* frames to be sent */
    bool wants_stop;
    bool wants_exit_ack;
    bool stop_sent;
    bool stdin_open;      /* may be written to */
    bool wants_stdin_eof; /* when it has started */
    bool has_exit;        /* the agent keeps an EXIT that is to be acknowledged; `exit` is set */
    bool is_counted;      /* in link->running */
    bool is_cut;          /* the link died before EXIT came */
    bool watched;
    bool placed; /* watched: what comes is what the reader asked for; otherwise it is of an earlier reader */
    bool is_interrupted;
    bool wants_resize;
    uint64_t wanted_signals;    /* bits */
    uint64_t window_size;       /* rows << 32 | cols */
    struct agent_reader reader; /* last asked for */
    bool misplaced;             /* it was beyond the end */
    uint64_t place;             /* where it was placed in the first stream */
    uint64_t cookie;            /* 0: nobody wants to know of its end */
    uint32_t window_bytes;
    uint32_t credit_owed_bytes;
    uint32_t stdin_window_bytes;
    uint64_t stdin_sent;
    uint64_t received[2]; /* per stream: the offset that comes next */
    uint64_t acked[2];    /* told to the agent */
    uint64_t taken[2];    /* of no use any more */
    struct buf fill;      /* records, see agent_run.c */
    size_t fill_last;     /* offset of the last record in it */
    struct waitq readers;
    struct waitq writers; /* for STARTED, credit, or the end */
    struct run_exit exit;
    int refused_errno;

    /* of the reader alone */
    struct buf drain; /* records being given out */
    size_t drain_at;
    uint64_t given[2];       /* offset that comes next in `drain` */
    uint64_t given_taken[2]; /* as taken[], not yet told to the link */
    uint32_t given_owed_bytes;
    uint32_t chunk_bytes; /* of the chunk that is out */
    enum run_stream chunk_stream;
};

/* agent_hub.c */
void hub_tell_end(struct agent_hub *hub, uint64_t cookie); /* any lock may be held */
int hub_add(struct agent_hub *hub, struct agent_link *link, struct error *err);
uint32_t hub_epoch(const struct agent_hub *hub);
void hub_want_write(struct agent_hub *hub, struct agent_link *link, bool wanted); /* stream is open */
void hub_forget_stream(struct agent_hub *hub, struct agent_link *link);           /* before the stream is closed */
void hub_wake(struct agent_hub *hub);                                             /* look at the links again */
void hub_tick_want(struct agent_hub *hub, int change);                            /* tick while the sum is above 0 */

/* agent_link.c */
struct agent_link *link_new(struct agent_hub *hub, struct net_stream *stream, const uint32_t *known,
                            size_t known_count);
void link_drop(struct agent_link *link); /* one of link->references */
/* Hub's thread: the stream is readable; read and take what came. `scratch` has LINK_SCRATCH_BYTES. */
void link_readable(struct agent_link *link, char *scratch);
/* Hub's thread: take `size` bytes, of which link->partial.size are those of link->partial. */
void link_input(struct agent_link *link, const char *data, size_t size);
void link_writable(struct agent_link *link);
void link_tick(struct agent_link *link, int64_t now_ms);
/* Hand the pending frames and the queue to the stream; what it does not take waits for EPOLLOUT. The link may be dead
 * after. */
void link_flush_locked(struct agent_link *link);
/* End the link; `why` is said to those who wait and, when the link was open and `is_fault`, in the log. */
void link_die_locked(struct agent_link *link, const struct error *why, bool is_fault);
/* Wait until a frame may be queued. GONE when the link died, as cancel. */
int link_wait_room_locked(struct agent_link *link, const struct cancel *cancel, struct error *err);
/* Queue whole frames, and wait until the stream took them. -1: GONE, as cancel. *ret_sent: they reached the stream, or
 * will. Call link_wait_room_locked() before. */
int link_send_locked(struct agent_link *link, const struct buf *frames, const struct cancel *cancel, bool *ret_sent,
                     struct error *err);
int link_gone_locked(const struct agent_link *link, struct error *err); /* always -1, GONE */

/* agent_run.c */
struct agent_run *run_find_locked(struct agent_link *link, uint32_t number);
/* A run the agent told of at HELLO_ACK. ENGINE: nonsense. */
int run_greeted_locked(struct agent_link *link, const struct agent_run_state *state, bool is_known, struct error *err);
/* A frame of a run. -1 ENGINE: nonsense. */
int run_frame_locked(struct agent_link *link, const struct agent_frame *frame, struct error *err);
/* Append the frames the run owes. May free it. */
int run_append_pending_locked(struct agent_run *run, struct error *err);
/* What the run's state asks to be told the agent: soon, or with the next flush. */
void run_pend_locked(struct agent_run *run, bool is_urgent);
void run_wake_touched_locked(struct agent_link *link);
void run_lose_all_locked(struct agent_link *link);

/* agent_run_watch.c: watched runs */
int run_append_watch_locked(struct agent_run *run, struct error *err);
int run_placed_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err);
int run_ended_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err);
void run_tell_end_locked(struct agent_run *run);
/* agent_run.c, for it */
int run_said_locked(struct agent_run *run, const struct agent_frame *frame, struct run_exit *ret, struct error *err);
void run_uncount_locked(struct agent_run *run);
void run_touch_locked(struct agent_run *run);
void run_discard_locked(struct agent_run *run);
void run_clear_output_locked(struct agent_run *run);
int run_refused(const struct agent_run *run, struct error *err);

/* agent_run_stdin.c */
int run_stdin_credit_locked(struct agent_run *run, uint64_t bytes, struct error *err);
int run_append_stdin_eof_locked(struct agent_run *run, struct error *err);

#endif
