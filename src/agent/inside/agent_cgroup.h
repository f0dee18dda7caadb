/* agent/inside/agent_cgroup.h: what the sandbox's own cgroup says of it; version 1 and 2, as mounted in the container.
 */
#ifndef BERTH_AGENT_CGROUP_H
#define BERTH_AGENT_CGROUP_H

#include "agent_proto.h"

#include <stdint.h>

/* Memory in use (without the page cache that can go at once), CPU time, processes, kills for lack of memory. Unknown:
 * -1. */
void agent_cgroup_usage(struct agent_usage *ret_usage);

/* Processes and threads; -1: unknown. */
int64_t agent_cgroup_processes(void);

/* How often the kernel killed here for lack of memory; -1 if it does not say. */
int64_t agent_cgroup_oom_kills(void);

#endif
