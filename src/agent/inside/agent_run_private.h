/* agent/inside/agent_run_private.h: the table of runs, shared by agent_run.c, agent_spawn.c and agent_stop.c only. */
#ifndef BERTH_AGENT_RUN_PRIVATE_H
#define BERTH_AGENT_RUN_PRIVATE_H

#include "agent_run.h"

struct agent_table {
    struct agent_run *runs[AGENT_RUNS_ALIVE_MAX]; /* in the order of their starts */
    size_t count;
    size_t known;
    struct agent_super_shared *shared; /* one a slot */
    bool slot_taken[AGENT_RUNS_ALIVE_MAX];
    int report_write;
    struct rlimit files; /* what a run gets; zero if the agent's own is the same */
};

extern struct agent_table agent_table;

/* A run with nothing in it yet, not in the table. NULL: no memory. */
struct agent_run *agent_run_new(uint32_t number, const struct agent_start *head);
void agent_run_free(struct agent_run *run);

/* Move the run on as far as it can: take the rest of its output, make its EXIT. */
void agent_run_settle(struct agent_run *run);

/* The run of that supervisor, or NULL. */
struct agent_run *agent_run_of(pid_t supervisor);

/* It has no supervisor any more, and no process. */
void agent_run_alone(struct agent_run *run);

/* One step of killing what process 1 was given. When the next is due, 0 if none is. */
int64_t agent_orphans_kill(void);

#endif
