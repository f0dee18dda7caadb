#include "agent_super.h"

#include "agent_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum {
    REPORT_FD = 3,
    KILL_PAUSE_MS = 5,
    KILL_PAUSE_MAX_MS = 250,
    HUNGRY_PAUSE_MS = 20,
    HUNGRY_TRIES = 100,
    URGENT_TURN_NS = 100000
};

#if defined(__SANITIZE_ADDRESS__)
/* The sanitizer keeps books of the stack that a vfork child would spoil. As vfork does, it returns when the child has executed or ended. */
static pid_t fork_sharing(void)
{
    int fds[2];
    pid_t pid;
    char none;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    pid = fork();
    if (pid == 0)
        return 0;
    close(fds[1]);
    while (pid > 0 && read(fds[0], &none, 1) < 0 && errno == EINTR)
        continue;
    close(fds[0]);
    return pid;
}
#else
#define fork_sharing vfork
#endif

void agent_super_close_from(int first)
{
    DIR *dir;

    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0) == 0)
        return;
    dir = opendir("/proc/self/fd");
    if (!dir) {
        for (int fd = first; fd < 4096; fd++)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = (int)strtol(entry->d_name, NULL, 10);

        if (fd >= first && fd != dirfd(dir))
            close(fd);
    }
    closedir(dir);
}

void agent_super_turns(bool urgent)
{
    /* As of linux/sched/types.h, which older headers lack. */
    struct {
        uint32_t size;
        uint32_t policy; /* 0: SCHED_OTHER */
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns;
        uint64_t deadline_ns;
        uint64_t period_ns;
    } attr = {.size = sizeof attr, .nice = getpriority(PRIO_PROCESS, 0), .runtime_ns = urgent ? URGENT_TURN_NS : 0};

    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* The kernel shall take runs before the agent when memory runs out. The file belongs to root while the process is not
 * dumpable, as it is until exec. */
static void volunteer_for_the_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0) {
        fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    if (fd < 0)
        return;
    if (write(fd, "1000", 4) < 0)
        errno = 0; /* as it was, then */
    close(fd);
}

/* execve, and the shell for a script without a first line, as execvp does. */
static void exec_file(const struct agent_super_plan *plan, const char *file)
{
    execve(file, plan->argv, plan->env);
    if (errno == ENOEXEC) {
        size_t argc = 0;
        char **argv;

        while (plan->argv[argc])
            argc++;
        argv = malloc((argc + 2) * sizeof *argv);
        if (!argv)
            return;
        memcpy(argv + 1, plan->argv, (argc + 1) * sizeof *argv);
        argv[0] = (char *)"sh";
        argv[1] = (char *)file;
        execve("/bin/sh", argv, plan->env);
        free(argv);
    }
}

static const char *search_path(char **env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

static void exec_search(const struct agent_super_plan *plan)
{
    const char *name = plan->argv[0];
    bool denied = false;
    char file[4096];

    if (strchr(name, '/') || !name[0]) {
        exec_file(plan, name);
        return;
    }
    for (const char *dir = search_path(plan->env);;) {
        size_t size = strcspn(dir, ":");

        if (snprintf(file, sizeof file, "%.*s%s%s", (int)size, dir, size ? "/" : "", name) < (int)sizeof file) {
            exec_file(plan, file);
            if (errno == EACCES)
                denied = true;
            else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
                return;
        }
        if (!dir[size])
            break;
        dir += size + 1;
    }
    errno = denied ? EACCES : ENOENT;
}

_Noreturn static void command(const struct agent_super_plan *plan)
{
    sigset_t none;

    sigemptyset(&none);
    (void)setsid();
    agent_super_turns(false);
    if (plan->tty)
        (void)ioctl(0, TIOCSCTTY, 0);
    volunteer_for_the_oom_killer();
    if (plan->files.rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, &plan->files);
    if (plan->cwd[0] && chdir(plan->cwd) < 0) {
        plan->shared->spawn_errno = errno;
        plan->shared->spawn_cwd = true;
        _exit(126);
    }
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    exec_search(plan);
    plan->shared->spawn_errno = errno;
    _exit(errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}

static void report(uint32_t run, int status, const struct rusage *usage)
{
    struct agent_super_report line = {
        .run = run,
        .status = status,
        .cpu_us = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000u +
                  (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec),
        .peak_bytes = (uint64_t)usage->ru_maxrss * 1024u,
    };

    while (write(REPORT_FD, &line, sizeof line) < 0 && errno == EINTR)
        ;
}

struct family {
    uint32_t run;
    pid_t command;
    struct agent_super_shared *shared;
};

/* Take what has ended. Does not return when nobody is left. */
static void reap(const struct family *family)
{
    struct rusage usage;
    int status;
    pid_t pid;

    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0)
        if (pid == family->command) {
            __atomic_store_n(&family->shared->group, 0, __ATOMIC_RELEASE);
            report(family->run, status, &usage);
        }
    if (pid < 0 && errno == ECHILD)
        _exit(0);
}

_Noreturn static void kill_all(const struct family *family, const sigset_t *wake)
{
    struct agent_tree_kill state = {0};
    long pause_ms = KILL_PAUSE_MS;

    for (;;) {
        enum agent_tree_state found = agent_tree_kill(&state, getpid(), NULL, 0);

        reap(family);
        if (found == AGENT_TREE_MOVING)
            continue;
        struct timespec pause = {.tv_nsec = pause_ms * 1000000};

        if (sigtimedwait(wake, NULL, &pause) == SIGCHLD)
            reap(family);
        else if (pause_ms < KILL_PAUSE_MAX_MS)
            pause_ms *= 2;
    }
}

static void obey(const struct family *family, struct agent_super_shared *shared, const sigset_t *wake)
{
    uint64_t orders = __atomic_exchange_n(&shared->orders, 0, __ATOMIC_ACQ_REL);

    if (orders & (1ull << SIGKILL))
        kill_all(family, wake);
    for (int number = 1; number < 64; number++)
        if (orders & (1ull << number))
            agent_tree_signal(getpid(), number);
}

/* Descriptors 0 to 2 become the command's, REPORT_FD the report, all others go: one run holds nothing of another's. The
 * agent's own are above them (agent_main.c sees to it), so none is overwritten before it is moved. */
static void arrange_descriptors(const struct agent_super_plan *plan)
{
    (void)dup2(plan->in, 0);
    (void)dup2(plan->out, 1);
    (void)dup2(plan->err, 2);
    (void)dup3(plan->report, REPORT_FD, O_CLOEXEC);
    agent_super_close_from(REPORT_FD + 1);
}

_Noreturn static void supervise(const struct agent_super_plan *plan)
{
    static const struct rusage nothing;
    struct family family = {.run = plan->run, .shared = plan->shared};
    sigset_t wake;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (plan->agent != 1) { /* the end of process 1 is the end of all */
        (void)prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0);
        if (getppid() != plan->agent)
            _exit(1);
    }
    arrange_descriptors(plan);
    sigemptyset(&wake);
    sigaddset(&wake, SIGCHLD);
    sigaddset(&wake, SIGUSR1);
    sigaddset(&wake, SIGHUP);
    for (int tries = 0;; tries++) {
        const struct timespec pause = {.tv_nsec = HUNGRY_PAUSE_MS * 1000000};

        family.command = fork_sharing();
        if (family.command == 0)
            command(plan);
        if (family.command > 0 || errno != EAGAIN || tries == HUNGRY_TRIES)
            break;
        report(plan->run, AGENT_SUPER_HUNGRY, &nothing);
        if (sigtimedwait(&wake, NULL, &pause) > 0) {
            errno = EAGAIN; /* stopped before it began */
            break;
        }
    }
    if (family.command < 0) {
        plan->shared->spawn_errno = errno;
        report(plan->run, 126 << 8, &nothing);
        _exit(0);
    }
    __atomic_store_n(&plan->shared->group, family.command, __ATOMIC_RELEASE); /* vfork: setsid() is behind it */
    close(0);
    close(1);
    close(2);
    if (plan->announce && !plan->shared->spawn_errno) /* vfork: it has been executed, or has ended */
        report(plan->run, AGENT_SUPER_SPAWNED, &nothing);
    for (;;) {
        switch (sigwaitinfo(&wake, NULL)) {
        case SIGHUP:
            kill_all(&family, &wake);
        case SIGUSR1:
            obey(&family, plan->shared, &wake);
            break;
        default:
            reap(&family);
        }
    }
}

pid_t agent_super_start(const struct agent_super_plan *plan)
{
    pid_t pid;

    *plan->shared = (struct agent_super_shared){0};
    pid = fork();
    if (pid == 0)
        supervise(plan);
    return pid;
}

void agent_super_order(pid_t supervisor, struct agent_super_shared *shared, int number)
{
    pid_t group = __atomic_load_n(&shared->group, __ATOMIC_ACQUIRE);

    if (number == SIGKILL && group > 1)
        (void)kill(-group, SIGSTOP);
    (void)__atomic_fetch_or(&shared->orders, 1ull << number, __ATOMIC_ACQ_REL);
    (void)kill(supervisor, SIGUSR1);
    (void)kill(supervisor, SIGCONT);
}
