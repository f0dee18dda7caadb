/* util/process.h: what the kernel says of this process. Never blocks on a disk: procfs only. Threads: any. */
#ifndef BERTH_PROCESS_H
#define BERTH_PROCESS_H

#include <stdint.h>

struct process_figures { /* -1: not known */
    int64_t cpu_us;
    int64_t resident_bytes;
    int64_t virtual_bytes;
    int64_t fds;
    int64_t max_fds;
};
void process_look(struct process_figures *ret);

#endif
