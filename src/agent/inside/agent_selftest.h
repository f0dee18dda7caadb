/* agent/inside/agent_selftest.h: what a sandbox must be able to do, tried at start rather than believed. */
#ifndef BERTH_AGENT_SELFTEST_H
#define BERTH_AGENT_SELFTEST_H

#include <stdint.h>

/* Try both, with a few short-lived children, and return the flags (enum agent_hello_flags) of what holds: a subreaper
 * gets its orphans, and a process like a run's cannot reach the agent's descriptors or memory. Blocks for about a
 * millisecond. */
uint32_t agent_selftest(int stream_in, int stream_out);

#endif
