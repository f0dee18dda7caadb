/* agent/inside/agent_spawn.c: a run begins: its pipes or terminal, its supervisor. */
#include "agent_cgroup.h"
#include "agent_run_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The descriptors that a run gets. */
struct ends {
    int in, out, err;
};

static void close_ends(struct ends *ends)
{
    if (ends->err >= 0 && ends->err != ends->out)
        close(ends->err);
    if (ends->in > 0 && ends->in != ends->out)
        close(ends->in);
    if (ends->out >= 0)
        close(ends->out);
}

static int open_pipe(struct agent_run *run, int index, int *ret_write)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return errno;
    run->output[index].source.fd = fds[0];
    *ret_write = fds[1];
    /* A run can take bytes out of its own pipe, so that even a readable one may block. */
    return fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? errno : 0;
}

static int open_terminal(struct agent_run *run, const struct agent_start *head, struct ends *ends)
{
    int master, slave, copy;
    int error = agent_terminal_open(head, &master, &slave);

    if (error)
        return error;
    run->terminal = true;
    run->output[0].source.fd = master;
    *ends = (struct ends){slave, slave, slave};
    if (fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return errno;
    if (!(head->flags & AGENT_START_STDIN))
        return 0;
    copy = fcntl(master, F_DUPFD_CLOEXEC, 0);
    return copy < 0 || agent_input_open(run, copy) < 0 ? errno : 0;
}

static int open_ends(struct agent_run *run, const struct agent_start *head, struct ends *ends)
{
    int error, fds[2];

    if (head->flags & AGENT_START_TTY)
        return open_terminal(run, head, ends);
    error = open_pipe(run, 0, &ends->out);
    if (error)
        return error;
    if (head->flags & AGENT_START_MERGE)
        ends->err = ends->out;
    else if ((error = open_pipe(run, 1, &ends->err)))
        return error;
    if (!(head->flags & AGENT_START_STDIN))
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return errno;
    ends->in = fds[0];
    return agent_input_open(run, fds[1]) < 0 ? errno : 0;
}

int agent_run_start(uint32_t number, const struct agent_start_request *request)
{
    struct ends ends = {0, -1, -1};
    struct agent_run *run;
    int error;

    if (agent_table.known >= AGENT_RUNS_MAX)
        return EBUSY;
    if (agent_table.count >= AGENT_RUNS_ALIVE_MAX)
        return EAGAIN;
    run = agent_run_new(number, &request->head);
    if (!run)
        return ENOMEM;
    error = open_ends(run, &request->head, &ends);
    if (!error) {
        struct agent_super_plan plan = {.request = request,
                                        .in = ends.in,
                                        .out = ends.out,
                                        .err = ends.err,
                                        .tty = run->terminal,
                                        .announce = agent_run_watched(run),
                                        .report = agent_table.report_write,
                                        .agent = getpid(),
                                        .files = agent_table.files,
                                        .shared = &agent_table.shared[run->slot]};

        run->oom_kills_before = agent_cgroup_oom_kills();
        error = agent_crew_start(&plan, &run->super);
    }
    close_ends(&ends);
    for (int i = 0; !error && i < 2; i++)
        if (run->output[i].source.fd >= 0 && agent_watch(&run->output[i].source, EPOLLIN) < 0) {
            error = errno;
            (void)kill(run->super.pid, SIGKILL); /* what it started is an orphan then */
            if (run->super.channel >= 0)
                close(run->super.channel);
        }
    if (error) {
        agent_run_free(run);
        return error;
    }
    agent_table.runs[agent_table.count++] = run;
    return 0;
}
