#include "agent_selftest.h"

#include "agent_proto.h"
#include "agent_super.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { ORPHAN_CODE = 42 };

static int exit_code_of(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As a supervisor: a child that leaves a child behind, which must then be ours to wait for. */
_Noreturn static void adopt_an_orphan(void)
{
    pid_t parent;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    parent = fork();
    if (parent == 0) {
        pid_t orphan = fork();

        _exit(orphan == 0 ? ORPHAN_CODE : orphan < 0);
    }
    if (parent < 0 || exit_code_of(parent) == 1)
        _exit(1);
    /* Waited for in either order: the orphan may have ended first, but only a subreaper gets it. */
    _exit(exit_code_of(-1) == ORPHAN_CODE ? 0 : 1);
}

static bool reachable(pid_t agent, const char *what, int flags)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)agent, what);
    return open(path, flags | O_CLOEXEC | O_NONBLOCK) >= 0;
}

static bool reachable_fd(pid_t agent, int fd)
{
    char name[32];
    char target[8];
    char path[64];
    int pidfd;

    snprintf(name, sizeof name, "fd/%d", fd);
    snprintf(path, sizeof path, "/proc/%d/%s", (int)agent, name);
    pidfd = (int)syscall(SYS_pidfd_open, agent, 0);
    return reachable(agent, name, O_RDONLY) || reachable(agent, name, O_WRONLY) ||
           readlink(path, target, sizeof target) >= 0 || (pidfd >= 0 && syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0);
}

/* As a run's process: dumpable, in a session of its own, with no descriptor of the agent's left. */
_Noreturn static void reach_for_the_agent(int stream_in, int stream_out)
{
    pid_t agent = getppid();

    (void)setsid();
    agent_super_close_from(0);
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    _exit(reachable(agent, "mem", O_RDWR) || reachable(agent, "environ", O_RDONLY) || reachable_fd(agent, stream_in) ||
          reachable_fd(agent, stream_out));
}

uint32_t agent_selftest(int stream_in, int stream_out)
{
    uint32_t flags = 0;
    pid_t pid = fork();

    if (pid == 0)
        adopt_an_orphan();
    if (pid > 0 && exit_code_of(pid) == 0)
        flags |= AGENT_HELLO_SUBREAPER;
    pid = fork();
    if (pid == 0)
        reach_for_the_agent(stream_in, stream_out);
    if (pid > 0 && exit_code_of(pid) == 0)
        flags |= AGENT_HELLO_STREAM_SAFE;
    return flags;
}
