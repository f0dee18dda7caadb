#include "agent_crew.h"

#include "agent_keep.h"
#include "agent_run.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* What is forked while more than this is kept goes on holding it: that one does not stay. */
enum { LEAN_BYTES = 256 * 1024 };

static struct agent_crew_member resting[AGENT_CREW_RESTING_MAX]; /* who came last goes first */
static size_t resting_count;
static pid_t leaving[AGENT_RUNS_ALIVE_MAX];
static size_t leaving_count;

void agent_crew_let_go(struct agent_crew_member member)
{
    if (member.channel >= 0)
        close(member.channel);
    if (leaving_count < AGENT_RUNS_ALIVE_MAX)
        leaving[leaving_count++] = member.pid;
}

static size_t held_bytes(void)
{
    size_t bytes = agent_keep_held_bytes();

    for (size_t i = 0; agent_run_at(i); i++)
        if (agent_run_at(i)->input.bytes)
            bytes += AGENT_INPUT_BYTES;
    return bytes;
}

static int fork_one(struct agent_super_plan *plan, struct agent_crew_member *ret_member)
{
    int ends[2] = {-1, -1};
    int error = 0;

    if (held_bytes() <= LEAN_BYTES && plan->request->size <= AGENT_SUPER_START_MAX)
        (void)socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    plan->channel = ends[1];
    *ret_member = (struct agent_crew_member){.pid = agent_super_fork(plan), .channel = ends[0]};
    if (ret_member->pid < 0) {
        error = errno;
        if (ends[0] >= 0)
            close(ends[0]);
        *ret_member = AGENT_CREW_NOBODY;
    }
    if (ends[1] >= 0)
        close(ends[1]);
    return error;
}

int agent_crew_start(struct agent_super_plan *plan, struct agent_crew_member *ret_member)
{
    while (resting_count && plan->request->size <= AGENT_SUPER_START_MAX) {
        struct agent_crew_member member = resting[--resting_count];

        if (agent_super_pass(member.channel, plan) == 0) {
            *ret_member = member;
            return 0;
        }
        agent_crew_let_go(member);
    }
    return fork_one(plan, ret_member);
}

void agent_crew_rest(struct agent_crew_member member)
{
    if (resting_count < AGENT_CREW_RESTING_MAX)
        resting[resting_count++] = member;
    else
        agent_crew_let_go(member);
}

bool agent_crew_has(pid_t pid)
{
    for (size_t i = 0; i < resting_count; i++)
        if (resting[i].pid == pid)
            return true;
    for (size_t i = 0; i < leaving_count; i++)
        if (leaving[i] == pid)
            return true;
    return false;
}

bool agent_crew_ended(pid_t pid)
{
    for (size_t i = 0; i < resting_count; i++)
        if (resting[i].pid == pid) {
            close(resting[i].channel);
            resting[i] = resting[--resting_count];
            return true;
        }
    for (size_t i = 0; i < leaving_count; i++)
        if (leaving[i] == pid) {
            leaving[i] = leaving[--leaving_count];
            return true;
        }
    return false;
}

bool agent_crew_dismiss(void)
{
    bool any = resting_count > 0;

    while (resting_count)
        agent_crew_let_go(resting[--resting_count]);
    return any;
}

size_t agent_crew_resting(pid_t *ret_pids)
{
    for (size_t i = 0; i < resting_count; i++)
        ret_pids[i] = resting[i].pid;
    return resting_count;
}
