/* agent/inside/agent_crew.h: the supervisors that rest between two runs, and who supervises the next.
 *
 * A few rest. Each holds one process of the sandbox's limit; they are let go when there is none for a command.
 */
#ifndef BERTH_AGENT_CREW_H
#define BERTH_AGENT_CREW_H

#include "agent_super.h"

#include <stdbool.h>
#include <stddef.h>

enum { AGENT_CREW_RESTING_MAX = 4 };

/* A supervisor, and our end of its channel. */
struct agent_crew_member {
    pid_t pid;   /* 0: none */
    int channel; /* -1: it ends with its run */
};

#define AGENT_CREW_NOBODY ((struct agent_crew_member){.channel = -1})

/* Find one for this run. 0, or an errno. Sets plan->channel. */
int agent_crew_start(struct agent_super_plan *plan, struct agent_crew_member *ret_member);

/* Its run has no process left: it rests, or is let go when enough do. */
void agent_crew_rest(struct agent_crew_member member);

/* It rests, and shall not: it ends by itself. */
void agent_crew_let_go(struct agent_crew_member member);

/* Is it one that rests, or was let go and has not ended? */
bool agent_crew_has(pid_t pid);

/* A child that has ended: was it one that rested, or was let go? Then it left nobody behind. */
bool agent_crew_ended(pid_t pid);

/* Let all go that rest. False when none did. */
bool agent_crew_dismiss(void);

/* The pids of those that rest, AGENT_CREW_RESTING_MAX at most. How many. */
size_t agent_crew_resting(pid_t *ret_pids);

#endif
