/* agent/inside/agent_stop.c: a run is stopped by stages, a supervisor has ended, orphans of a dead one are killed. */
#include "agent_cgroup.h"
#include "agent_run_private.h"
#include "agent_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STOP_TERM_MS = 1000,   /* before KILL */
    STOP_KILL_MS = 100,    /* before the supervisor is taken for too slow, where many processes want its processor */
    STOP_STILL_MS = 650,   /* before the supervisor is taken for dead or hostile */
    STOP_ORPHANS_MS = 150, /* before EXIT goes out whatever is left */
    STORM_PROCESSES = 64,
    ORPHANS_PAUSE_MS = 5,
    ORPHANS_PAUSE_MAX_MS = 1000,
};

/* Processes that process 1 was given directly: their supervisor is dead. */
static struct {
    bool active;
    bool whole_run; /* just now: all of it, and not one that was left */
    struct agent_tree_kill state;
    int64_t next_ms;
    int64_t pause_ms;
} orphans;

static void orphans_begin(void)
{
    orphans.active = true;
    orphans.next_ms = agent_now_ms();
    orphans.pause_ms = ORPHANS_PAUSE_MS;
}

/* Worth to hold everybody for a moment? Where nobody tells the number, what is slow is taken for one. */
static bool is_storm(void)
{
    int64_t processes = agent_cgroup_processes();

    return processes < 0 || processes > STORM_PROCESSES;
}

/* A storm is held still; where all of a run is left of it, it is not even looked at before. */
static enum agent_tree_state kill_orphans(const pid_t *supervisors, size_t count)
{
    enum agent_tree_state found = AGENT_TREE_MOVING;

    if (!orphans.whole_run || !is_storm())
        found = agent_tree_kill(&orphans.state, getpid(), supervisors, count);
    while (found == AGENT_TREE_MOVING) {
        if (is_storm() && agent_tree_kill_still(getpid(), supervisors, count)) {
            orphans.state = (struct agent_tree_kill){0};
            return AGENT_TREE_KILLED;
        }
        found = agent_tree_kill(&orphans.state, getpid(), supervisors, count);
    }
    return found;
}

int64_t agent_orphans_kill(void)
{
    int64_t now_ms;
    static pid_t supervisors[AGENT_RUNS_ALIVE_MAX + AGENT_CREW_RESTING_MAX];
    enum agent_tree_state found;
    size_t count;

    if (!orphans.active)
        return 0;
    now_ms = agent_now_ms();
    if (now_ms < orphans.next_ms)
        return orphans.next_ms;
    count = agent_crew_resting(supervisors);
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i]->super.pid)
            supervisors[count++] = agent_table.runs[i]->super.pid;
    found = kill_orphans(supervisors, count);
    orphans.whole_run = false;
    orphans.active = found != AGENT_TREE_EMPTY;
    orphans.next_ms = now_ms + orphans.pause_ms;
    if (orphans.pause_ms < ORPHANS_PAUSE_MAX_MS)
        orphans.pause_ms *= 2;
    return orphans.active ? orphans.next_ms : 0;
}

void agent_run_children(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        struct agent_run *run;

        if (WIFSTOPPED(status)) {
            if (agent_run_of(pid) || agent_crew_has(pid))
                (void)kill(pid, SIGCONT); /* a supervisor is nobody's to stop */
            continue;
        }
        agent_run_reports(); /* it wrote before it ended */
        if (agent_crew_ended(pid))
            continue;
        run = agent_run_of(pid);
        if (!run || !WIFEXITED(status))
            orphans_begin();
        if (!run)
            continue;
        if (!WIFEXITED(status)) {
            orphans.whole_run = true;
            (void)agent_crew_dismiss(); /* kill -9 -1 means all: one that is dying takes a run, and the run is lost */
        }
        if (run->super.channel >= 0)
            close(run->super.channel);
        agent_run_alone(run);
    }
}

void agent_run_stop(struct agent_run *run, uint32_t why)
{
    if (!run->super.pid || run->stop)
        return;
    if (!run->exited)
        run->exit.flags |= why;
    run->deadline_ms = 0;
    run->stop = AGENT_STOP_TERM;
    run->stop_next_ms = agent_now_ms() + STOP_TERM_MS;
    agent_super_order(run->super.pid, &agent_table.shared[run->slot], SIGTERM);
}

void agent_run_stop_all(void)
{
    for (size_t i = 0; i < agent_table.count; i++)
        agent_run_stop(agent_table.runs[i], AGENT_EXIT_STOPPED);
}

bool agent_run_any_alive(void)
{
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i]->super.pid)
            return true;
    return false;
}

void agent_run_signal(struct agent_run *run, int number)
{
    if (run->super.pid && number > 0 && number < 64)
        agent_super_order(run->super.pid, &agent_table.shared[run->slot], number);
}

static void stop_further(struct agent_run *run, int64_t now_ms)
{
    switch (run->stop) {
    case AGENT_STOP_TERM:
        run->stop = AGENT_STOP_KILL;
        run->stop_next_ms = now_ms + STOP_KILL_MS;
        agent_super_order(run->super.pid, &agent_table.shared[run->slot], SIGKILL);
        break;
    case AGENT_STOP_KILL:
        run->stop = AGENT_STOP_STILL;
        run->stop_next_ms = now_ms + STOP_STILL_MS;
        if (is_storm())
            (void)agent_tree_kill_still(run->super.pid, NULL, 0);
        break;
    case AGENT_STOP_STILL:
        run->stop = AGENT_STOP_ORPHANS;
        run->stop_next_ms = now_ms + STOP_ORPHANS_MS;
        (void)kill(run->super.pid, SIGKILL);
        break;
    default:
        run->stop = AGENT_STOP_GIVEN_UP;
        run->stop_next_ms = 0;
        agent_run_settle(run);
    }
}

void agent_run_clear_leftovers(void)
{
    static struct agent_run *candidates[AGENT_RUNS_ALIVE_MAX];
    static pid_t supervisors[AGENT_RUNS_ALIVE_MAX];
    struct agent_run *run;
    size_t count = 0;

    if (agent_crew_dismiss())
        return;
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i]->super.pid) {
            candidates[count] = agent_table.runs[i];
            supervisors[count++] = agent_table.runs[i]->super.pid;
        }
    if (!count)
        return;
    run = candidates[agent_tree_largest(supervisors, count)];
    if (!run->finished || run->stop >= AGENT_STOP_KILL)
        return;
    run->stop = AGENT_STOP_TERM;
    stop_further(run, agent_now_ms());
}

void agent_run_timers(int64_t now_ms)
{
    for (size_t i = 0; i < agent_table.count; i++) {
        if (agent_table.runs[i]->started_at_ms && now_ms >= agent_table.runs[i]->started_at_ms) {
            agent_table.runs[i]->started_at_ms = 0;
            agent_table.runs[i]->started_due = true;
        }
        if (agent_table.runs[i]->deadline_ms && now_ms >= agent_table.runs[i]->deadline_ms &&
            !agent_table.runs[i]->taking)
            agent_run_stop(agent_table.runs[i], AGENT_EXIT_TIMED_OUT);
        if (agent_table.runs[i]->hold_until_ms && now_ms >= agent_table.runs[i]->hold_until_ms)
            agent_run_set_reader(agent_table.runs[i], false);
        if (agent_table.runs[i]->stop_next_ms && now_ms >= agent_table.runs[i]->stop_next_ms)
            stop_further(agent_table.runs[i], now_ms);
    }
}
