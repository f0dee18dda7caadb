/* agent/inside/agent_watch.h: what the agent waits for, and the clock it keeps deadlines by. */
#ifndef BERTH_AGENT_WATCH_H
#define BERTH_AGENT_WATCH_H

#include <stdint.h>

struct agent_run;

enum agent_source_kind {
    AGENT_SOURCE_STREAM_IN,
    AGENT_SOURCE_STREAM_OUT,
    AGENT_SOURCE_SIGNAL,
    AGENT_SOURCE_TIMER,
    AGENT_SOURCE_REPORT,
    AGENT_SOURCE_OUTPUT,
    AGENT_SOURCE_INPUT
};

/* One descriptor; lies in what owns it. Watched for `events`, 0 when it is not in the epoll set at all (a hang-up would
 * be reported for ever otherwise). */
struct agent_source {
    enum agent_source_kind kind;
    int fd; /* -1: none */
    uint32_t events;
    struct agent_run *run;
};

/* Watch for these events from now on; 0 ends it. 0, or -1 with errno. */
int agent_watch(struct agent_source *source, uint32_t events);

/* End watching and close. The order matters: a supervisor may still hold a copy of the descriptor. */
void agent_watch_close(struct agent_source *source);

/* Wait for up to `max` ready sources. */
int agent_watch_wait(struct agent_source **sources, int max);

/* Time since boot, sleep included. */
int64_t agent_now_ms(void);

/* Make and watch the descriptors of epoll and of the timer. Once, at start. 0, or -1 with errno. */
int agent_watch_init(void);

/* Be woken at a time, or earlier if one was asked for before. */
void agent_watch_wake_at(int64_t at_ms);

/* The timer went off. */
void agent_watch_timer_read(void);

#endif
