/* util/isolation.h: what keeps a sandbox in: the vocabulary of `GET /isolation`, shared by provider, session and wire. */
#ifndef BERTH_ISOLATION_H
#define BERTH_ISOLATION_H

enum isolation_state { ISOLATION_ENFORCED, ISOLATION_ACCOUNTED, ISOLATION_NOT_ENFORCED };

/* One control: "runtime", "seccomp", "capabilities", "memory", "pids", "disk", "network" … `name` is static. */
struct isolation_control {
    const char *name;
    enum isolation_state state;
    char detail[160]; /* in words, for an operator */
};
enum { ISOLATION_CONTROLS_MAX = 16 };

#endif
