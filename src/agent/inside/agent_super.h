/* agent/inside/agent_super.h: the supervisor of a run: a small process between the agent and the run.
 *
 * It starts the run's command, is the subreaper of whatever that leaves behind, reports the command's end through a
 * pipe, and stays with the run as long as that has a process. Orders come as bits of shared memory and SIGUSR1: a bit is
 * a signal's number; SIGKILL's ends everything, by rounds, until nothing is left. Then it has nothing of the run any
 * more, and takes the next one through its channel; at the end of that it ends. (A fork costs more than all else that
 * the agent does for a run: each page that either of the two writes to afterwards is a fault and a copy.)
 */
#ifndef BERTH_AGENT_SUPER_H
#define BERTH_AGENT_SUPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Shared between the agent, the supervisor and the command until it is executed. */
struct agent_super_shared {
    uint64_t orders; /* atomic */
    int32_t group;   /* atomic; the command's, while it is not reaped and no other can have its number; else 0 */
    int32_t spawn_errno;
    bool spawn_cwd;
};

/* Statuses beside those of wait. */
enum {
    AGENT_SUPER_HUNGRY = -1,  /* there is no process for the command; it tries again for a while */
    AGENT_SUPER_SPAWNED = -2, /* the command was executed; only said where announce is set */
    AGENT_SUPER_RESTS = -3,   /* no process of the run is left; it waits at its channel */
};

/* What a supervisor writes when the command has ended; shorter than PIPE_BUF, so that reports never mix. */
struct agent_super_report {
    int32_t super;  /* its pid */
    int32_t status; /* as of wait */
    uint64_t cpu_us;
    uint64_t peak_bytes;
};

struct agent_super_plan {
    const struct agent_start_request *request;
    int in; /* becomes the command's 0, 1, 2; the terminal for all three, if tty */
    int out;
    int err;
    bool tty;
    bool announce;
    int report;
    int channel; /* the supervisor's end; -1: it ends with its run */
    pid_t agent;
    struct rlimit files; /* the command's limit of descriptors; the agent raised its own */
    struct agent_super_shared *shared;
};

enum { AGENT_SUPER_START_MAX = 32 * 1024 };

/* Fork a supervisor for this run. Returns its pid, or -1 with errno. */
pid_t agent_super_fork(const struct agent_super_plan *plan);

/* Give this run to a supervisor that rests, through the agent's end of its channel; its START has AGENT_SUPER_START_MAX
 * bytes at most. plan->report and plan->channel are what they were. Does not block. 0, or -1 with errno: it has not got it. */
int agent_super_pass(int channel, const struct agent_super_plan *plan);

/* Order a signal for every process of the run; SIGKILL until none is left: the command's group is
 * stopped at once then, so that a storm of forks does not keep the supervisor from its processor. Continues a stopped supervisor. */
void agent_super_order(pid_t supervisor, struct agent_super_shared *shared, int number);

/* How long a turn on the processor the calling process and its children ask for: a short one, which comes soon (the
 * share is the same; a kernel from 6.12 on gives an earlier turn to whoever asks for less), or the usual one. The agent
 * and its supervisors have little to do, and at once, also where hundreds of a run want the processor. */
void agent_super_turns(bool urgent);

/* Make every descriptor from `first` on vanish. */
void agent_super_close_from(int first);

#endif
