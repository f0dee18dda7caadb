/* berth-agent: process 1 of a sandbox. Speaks agent_proto.h over its descriptors 0 and 1, runs what it is told to,
 * outlives every attack from inside, and ends at TERM from outside or at the end of its input. */
#include "agent_applet.h"
#include "agent_link.h"
#include "agent_run.h"
#include "agent_selftest.h"
#include "agent_super.h"
#include "agent_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH_MAX = 64, FIRST_FREE_FD = 4, ENDING_MS = 2000 };

static struct agent_source signals = {.kind = AGENT_SOURCE_SIGNAL, .fd = -1};
static int64_t ending_ms; /* when we end whatever still lives; 0: not ending */

static void begin_ending(void)
{
    if (ending_ms)
        return;
    ending_ms = agent_now_ms() + ENDING_MS;
    agent_run_stop_all();
}

/* A run that is started while we end is stopped as well: called each turn. */
static bool ended(void)
{
    agent_run_stop_all();
    return (!agent_run_any_alive() && agent_link_idle()) || agent_now_ms() >= ending_ms;
}

static void take_signals(void)
{
    struct signalfd_siginfo infos[16];
    ssize_t got = read(signals.fd, infos, sizeof infos);

    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof infos[0]; i++)
        /* A sender that we cannot see is outside. Nobody inside can forge SI_USER. */
        if (infos[i].ssi_signo == SIGTERM && infos[i].ssi_code == SI_USER && infos[i].ssi_pid == 0)
            begin_ending();
    agent_run_children();
}

/* Descriptors 0 to 3 become /dev/null, so that no run inherits the stream; the stream goes above them. */
static int move_stream(int *ret_in, int *ret_out)
{
    int null;

    *ret_in = fcntl(0, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    *ret_out = fcntl(1, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (*ret_in < 0 || *ret_out < 0 || null < 0)
        return -1;
    for (int fd = 0; fd < FIRST_FREE_FD; fd++)
        if (fd != null && dup2(null, fd) < 0)
            return -1;
    if (null < FIRST_FREE_FD && fcntl(null, F_SETFD, null < 3 ? 0 : FD_CLOEXEC) < 0)
        return -1;
    if (fcntl(3, F_SETFD, FD_CLOEXEC) < 0)
        return -1;
    if (null >= FIRST_FREE_FD)
        close(null);
    if (fcntl(*ret_in, F_SETFL, fcntl(*ret_in, F_GETFL) | O_NONBLOCK) < 0 ||
        fcntl(*ret_out, F_SETFL, fcntl(*ret_out, F_GETFL) | O_NONBLOCK) < 0)
        return -1;
    return 0;
}

/* Runs start with every signal at its default and none blocked; we block all and ask for them. */
static int take_over_signals(void)
{
    static const unsigned long plain[4]; /* the kernel's own struct sigaction: all zero is SIG_DFL without flags */
    sigset_t all;

    /* The C library keeps 32 and 33 to itself and would leave what a parent made of them. */
    for (int number = 1; number < 65; number++)
        (void)syscall(SYS_rt_sigaction, number, plain, NULL, 8);
    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
        return -1;
    signals.fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals.fd < 0 ? -1 : agent_watch(&signals, EPOLLIN);
}

static int init(void)
{
    uint32_t flags;
    int in, out;

    umask(022);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* for where we are not process 1 */
    agent_super_turns(true);
    agent_super_close_from(3);
    if (move_stream(&in, &out) < 0 || agent_watch_init() < 0 || take_over_signals() < 0 || agent_run_init() < 0)
        return -1;
    flags = agent_selftest(in, out);
    return agent_link_init(in, out, flags);
}

static void handle(struct agent_source *source)
{
    switch (source->kind) {
    case AGENT_SOURCE_STREAM_IN:
        if (!agent_link_readable())
            begin_ending();
        break;
    case AGENT_SOURCE_SIGNAL:
        take_signals();
        break;
    case AGENT_SOURCE_TIMER:
        agent_watch_timer_read();
        break;
    case AGENT_SOURCE_REPORT:
        agent_run_reports();
        break;
    case AGENT_SOURCE_OUTPUT:
        agent_run_readable(source->run, source);
        break;
    case AGENT_SOURCE_INPUT:
        agent_input_writable(source->run);
        break;
    case AGENT_SOURCE_STREAM_OUT: /* the pump writes */
        break;
    }
}

/* What follows from what was read. Answers come before anything new is waited for. */
static void turn(void)
{
    bool all;

    do {
        all = agent_link_obey();
        agent_run_timers(agent_now_ms());
        agent_run_sweep();
        if (!agent_link_send())
            begin_ending();
    } while (!all && agent_link_idle());
}

int main(int argc, char **argv)
{
    struct agent_source *ready[BATCH_MAX];

    if (argc > 2 && getpid() != 1 && strcmp(argv[1], "file") == 0)
        return agent_applet_file(argc - 2, argv + 2);
    if (init() < 0)
        return 1;
    while (!ending_ms || !ended()) {
        int count;

        if (ending_ms)
            agent_watch_wake_at(ending_ms);
        count = agent_watch_wait(ready, BATCH_MAX);
        for (int i = 0; i < count; i++)
            handle(ready[i]);
        turn();
    }
    return 0;
}
