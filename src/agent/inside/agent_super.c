#include "agent_super.h"

#include "agent_run.h"
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum {
    REPORT_FD = 3,
    CHANNEL_FD,
    OOM_FD,
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

/* The kernel shall take runs before the agent when memory runs out, and before their supervisors: those turn themselves
 * in for the moment in which the command is made, which inherits it. The file belongs to root while the process is not
 * dumpable. */
static char oom_of_ours[16];

static void open_oom_score(void)
{
    ssize_t size = -1;
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

    if (fd < 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0) {
        fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    if (fd >= 0)
        size = read(fd, oom_of_ours, sizeof oom_of_ours - 1);
    oom_of_ours[size < 0 ? 0 : size] = 0;
    if (fd == OOM_FD)
        return;
    (void)dup3(fd, OOM_FD, O_CLOEXEC);
    close(fd);
}

static void set_oom_score(const char *score)
{
    if (oom_of_ours[0] && pwrite(OOM_FD, score, strlen(score), 0) < 0)
        errno = 0; /* as it was, then */
}

/* execve, and the shell for a script without a first line, as execvp does. */
static void exec_file(const struct agent_start_request *request, const char *file)
{
    execve(file, request->argv, request->env);
    if (errno == ENOEXEC) {
        char **argv = request->argv - 1; /* there is room for one */

        argv[0] = (char *)"sh";
        argv[1] = (char *)file;
        execve("/bin/sh", argv, request->env);
    }
}

static const char *search_path(char **env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

static void exec_search(const struct agent_start_request *request)
{
    const char *name = request->argv[0];
    bool denied = false;
    char file[4096];

    if (strchr(name, '/') || !name[0]) {
        exec_file(request, name);
        return;
    }
    for (const char *dir = search_path(request->env);;) {
        size_t size = strcspn(dir, ":");

        if (snprintf(file, sizeof file, "%.*s%s%s", (int)size, dir, size ? "/" : "", name) < (int)sizeof file) {
            exec_file(request, file);
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
    if (plan->files.rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, &plan->files);
    if (plan->request->cwd[0] && chdir(plan->request->cwd) < 0) {
        plan->shared->spawn_errno = errno;
        plan->shared->spawn_cwd = true;
        _exit(126);
    }
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    exec_search(plan->request);
    plan->shared->spawn_errno = errno;
    _exit(errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}

static void report(const struct agent_super_report *lines, size_t count)
{
    while (write(REPORT_FD, lines, count * sizeof *lines) < 0 && errno == EINTR)
        ;
}

static void report_word(int32_t word)
{
    report(&(struct agent_super_report){.super = getpid(), .status = word}, 1);
}

struct family {
    pid_t command; /* 0: has ended; another of the run may have its number now */
    struct agent_super_shared *shared;
    bool rests; /* after it */
};

/* Take what has ended. False when nobody is left, which is reported together with an end that was taken. */
static bool reap(struct family *family)
{
    struct agent_super_report lines[2];
    size_t count = 0;
    struct rusage usage;
    int status;
    pid_t pid;

    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0)
        if (pid == family->command) {
            family->command = 0;
            __atomic_store_n(&family->shared->group, 0, __ATOMIC_RELEASE);
            lines[count++] = (struct agent_super_report){
                .super = getpid(),
                .status = status,
                .cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                          (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
                .peak_bytes = (uint64_t)usage.ru_maxrss * 1024u,
            };
        }
    if (pid < 0 && family->rests)
        lines[count++] = (struct agent_super_report){.super = getpid(), .status = AGENT_SUPER_RESTS};
    if (count)
        report(lines, count);
    return pid == 0;
}

static void kill_all(struct family *family, const sigset_t *wake)
{
    struct agent_tree_kill state = {0};
    long pause_ms = KILL_PAUSE_MS;

    for (;;) {
        enum agent_tree_state found = agent_tree_kill(&state, getpid(), NULL, 0);

        if (!reap(family))
            return;
        if (found == AGENT_TREE_MOVING)
            continue;
        struct timespec pause = {.tv_nsec = pause_ms * 1000000};

        if (sigtimedwait(wake, NULL, &pause) == SIGCHLD) {
            if (!reap(family))
                return;
        } else if (pause_ms < KILL_PAUSE_MAX_MS) {
            pause_ms *= 2;
        }
    }
}

/* False when nobody is left. */
static bool obey(struct family *family, const sigset_t *wake)
{
    uint64_t orders = __atomic_exchange_n(&family->shared->orders, 0, __ATOMIC_ACQ_REL);

    if (orders & (1ull << SIGKILL)) {
        kill_all(family, wake);
        return false;
    }
    for (int number = 1; number < 64; number++)
        if (orders & (1ull << number))
            agent_tree_signal(getpid(), number);
    return true;
}

static pid_t start_command(const struct agent_super_plan *plan)
{
    pid_t pid;
    int error;

    set_oom_score("1000");
    pid = fork_sharing();
    if (pid == 0)
        command(plan);
    error = errno;
    set_oom_score(oom_of_ours);
    errno = error;
    return pid;
}

/* While there is no process for the command, it is tried again for a while. -1 with errno. */
static pid_t spawn(const struct agent_super_plan *plan)
{
    const struct timespec pause = {.tv_nsec = HUNGRY_PAUSE_MS * 1000000};

    for (int tries = 0;; tries++) {
        pid_t pid = start_command(plan);

        if (pid > 0 || errno != EAGAIN || tries == HUNGRY_TRIES)
            return pid;
        report_word(AGENT_SUPER_HUNGRY);
        (void)nanosleep(&pause, NULL); /* which no blocked signal cuts short, however many somebody sends */
        if (getppid() != plan->agent || __atomic_load_n(&plan->shared->orders, __ATOMIC_ACQUIRE)) {
            errno = EAGAIN; /* stopped before it began */
            return -1;
        }
    }
}

/* One run, whose descriptors lie at 0 to 2. Returns when none of its processes is left. */
static void oversee(const struct agent_super_plan *plan, const sigset_t *wake)
{
    struct family family = {.shared = plan->shared, .rests = plan->channel >= 0};
    bool anybody = true;

    family.command = spawn(plan);
    if (family.command < 0)
        plan->shared->spawn_errno = errno;
    else
        __atomic_store_n(&plan->shared->group, family.command, __ATOMIC_RELEASE); /* vfork: setsid() is behind it */
    close(0);
    close(1);
    close(2);
    if (family.command < 0) {
        report_word(126 << 8);
        if (family.rests)
            report_word(AGENT_SUPER_RESTS);
        return;
    }
    if (plan->announce && !plan->shared->spawn_errno) /* vfork: it has been executed, or has ended */
        report_word(AGENT_SUPER_SPAWNED);
    while (anybody) {
        switch (sigwaitinfo(wake, NULL)) {
        case SIGHUP: /* also one that somebody sent while this rested */
            if (getppid() == plan->agent)
                break;
            kill_all(&family, wake);
            anybody = false;
            break;
        case SIGUSR1:
            anybody = obey(&family, wake);
            break;
        default:
            anybody = reap(&family);
        }
    }
}

/* A plan as it goes through a channel, START behind it. Its pointers but `shared` are of no use there. */
struct passed {
    struct agent_super_plan plan;
    unsigned char start[AGENT_SUPER_START_MAX];
};
enum { PASSED_FDS = 3 };
union passed_fds {
    struct cmsghdr header; /* aligns it */
    char bytes[CMSG_SPACE(PASSED_FDS * sizeof(int))];
};

int agent_super_pass(int channel, const struct agent_super_plan *plan)
{
    union passed_fds control = {0};
    struct iovec parts[] = {{.iov_base = (void *)plan, .iov_len = sizeof *plan},
                            {.iov_base = (void *)plan->request->bytes, .iov_len = plan->request->size}};
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(PASSED_FDS * sizeof(int));
    memcpy(CMSG_DATA(header), (int[PASSED_FDS]){plan->in, plan->out, plan->err}, PASSED_FDS * sizeof(int));
    *plan->shared = (struct agent_super_shared){0};
    return sendmsg(channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* Wait for the next run. Its descriptors come to lie at 0 to 2, which are free. False when there is none any more. */
static bool receive(struct passed *passed, struct agent_start_request *ret_request)
{
    union passed_fds control;
    struct iovec part = {.iov_base = passed, .iov_len = sizeof *passed};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t size;

    do
        size = recvmsg(CHANNEL_FD, &message, 0);
    while (size < 0 && errno == EINTR);
    return size > (ssize_t)sizeof passed->plan && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
           agent_start_parse(passed->start, (size_t)size - sizeof passed->plan, ret_request) == 0;
}

/* Descriptors 0 to 2 become the first command's; all others than ours go: one run holds nothing of another's. The
 * agent's own are above 3 (agent_main.c sees to it), so none is overwritten before it is moved. */
static void arrange_descriptors(const struct agent_super_plan *plan)
{
    (void)dup2(plan->in, 0);
    (void)dup2(plan->out, 1);
    (void)dup2(plan->err, 2);
    (void)dup3(plan->report, REPORT_FD, O_CLOEXEC);
    if (plan->channel >= 0)
        (void)dup3(plan->channel, CHANNEL_FD, O_CLOEXEC);
    agent_super_close_from(plan->channel >= 0 ? OOM_FD : CHANNEL_FD);
    open_oom_score();
}

_Noreturn static void supervise(const struct agent_super_plan *first)
{
    static struct passed passed;
    struct agent_start_request request;
    sigset_t wake;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (first->agent != 1) { /* the end of process 1 is the end of all */
        (void)prctl(PR_SET_PDEATHSIG, SIGHUP, 0, 0, 0);
        if (getppid() != first->agent)
            _exit(1);
    }
    arrange_descriptors(first);
    sigemptyset(&wake);
    sigaddset(&wake, SIGCHLD);
    sigaddset(&wake, SIGUSR1);
    sigaddset(&wake, SIGHUP);
    oversee(first, &wake);
    while (first->channel >= 0 && receive(&passed, &request)) {
        passed.plan.request = &request;
        passed.plan.channel = CHANNEL_FD;
        oversee(&passed.plan, &wake);
        free(request.block);
    }
    _exit(0);
}

pid_t agent_super_fork(const struct agent_super_plan *plan)
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
