/* agent/inside/agent_tree.h: the processes below one, found in /proc. Allocates nothing and forks nothing: it works at
 * every limit. One thread. There is no cgroup.kill in a sandbox (its cgroup files are read-only), so the walk is what
 * there is. */
#ifndef BERTH_AGENT_TREE_H
#define BERTH_AGENT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Send a signal to every process below root, once. Stopped ones are continued after TERM, so that they can obey. */
void agent_tree_signal(pid_t root, int number);

enum agent_tree_state {
    AGENT_TREE_EMPTY,  /* nothing lives below root */
    AGENT_TREE_MOVING, /* more were found and stopped: call again at once */
    AGENT_TREE_KILLED, /* all that were found are killed: call again when they had time to die */
};

struct agent_tree_kill {
    unsigned rounds;
};

/* One round of killing everything below root, except `apart` and what is below them. All are stopped first, until a
 * round finds none that is new: a storm of forks cannot outrun that, for a process with a pending signal completes no
 * fork. */
enum agent_tree_state agent_tree_kill(struct agent_tree_kill *state, pid_t root, const pid_t *apart,
                                      size_t apart_count);

/* Kill everything below root, except `apart` and what is below them, at once: every process of the sandbox is stopped by
 * one call, so that nothing goes on while the list is read, and the others go on a moment later (who had been stopped
 * before stays so; a shell that just then looks after a job may find it stopped). For storms: among hundreds that want
 * the processor a round of agent_tree_kill() takes seconds, and so does any walk by pid. Only as process 1: elsewhere
 * it does nothing and returns false. */
bool agent_tree_kill_still(pid_t root, const pid_t *apart, size_t apart_count);

/* Which of these has the most processes below it. */
size_t agent_tree_largest(const pid_t *roots, size_t count);

#endif
