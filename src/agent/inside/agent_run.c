#include "agent_run.h"

#include "agent_cgroup.h"
#include "agent_run_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAKE_MAX = 128 * 1024 }; /* of what does not tell how much it holds */

struct agent_table agent_table;
static struct agent_source report = {.kind = AGENT_SOURCE_REPORT, .fd = -1};

int agent_run_init(void)
{
    struct rlimit raised;
    int fds[2];

    agent_table.shared = mmap(NULL, AGENT_RUNS_ALIVE_MAX * sizeof *agent_table.shared, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (agent_table.shared == MAP_FAILED || pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    report.fd = fds[0];
    agent_table.report_write = fds[1];
    if (getrlimit(RLIMIT_NOFILE, &raised) == 0 && raised.rlim_cur < raised.rlim_max) {
        agent_table.files = raised;
        raised.rlim_cur = raised.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &raised) < 0)
            agent_table.files.rlim_cur = 0;
    }
    if (fcntl(report.fd, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return agent_watch(&report, EPOLLIN);
}

struct agent_run *agent_run_at(size_t i)
{
    return i < agent_table.count ? agent_table.runs[i] : NULL;
}

size_t agent_run_known(void)
{
    return agent_table.known;
}

struct agent_run *agent_run_find(uint32_t number)
{
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i]->number == number && agent_table.runs[i]->known)
            return agent_table.runs[i];
    return NULL;
}

struct agent_run *agent_run_of(pid_t supervisor)
{
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i]->super.pid == supervisor)
            return agent_table.runs[i];
    return NULL;
}

static void forget(struct agent_run *run)
{
    if (!run->known)
        return;
    run->known = false;
    agent_table.known--;
    agent_input_close(run);
    for (int i = 0; i < 2; i++)
        agent_keep_clear(&run->output[i].keep);
}

void agent_run_free(struct agent_run *run)
{
    forget(run);
    agent_input_close(run);
    for (int i = 0; i < 2; i++)
        agent_watch_close(&run->output[i].source);
    agent_table.slot_taken[run->slot] = false;
    free(run);
}

/* Slowed as if it had a reader, for a while. */
static void hold(struct agent_run *run, int64_t hold_ms)
{
    run->reader = hold_ms > 0;
    run->hold_until_ms = run->reader ? agent_now_ms() + hold_ms : 0;
}

struct agent_run *agent_run_new(uint32_t number, const struct agent_start *head)
{
    struct agent_run *run = calloc(1, sizeof *run);
    bool one = head->flags & (AGENT_START_MERGE | AGENT_START_TTY);

    if (!run)
        return NULL;
    run->number = number;
    run->epoch = head->epoch;
    run->flags = head->flags;
    run->reader = head->flags & AGENT_START_READER;
    run->streams = run->reader;
    run->credit = AGENT_RUN_CREDIT;
    run->known = true;
    agent_table.known++;
    run->super = AGENT_CREW_NOBODY;
    run->input.source.fd = -1;
    for (int i = 0; i < 2; i++) {
        run->output[i].source = (struct agent_source){.kind = AGENT_SOURCE_OUTPUT, .fd = -1, .run = run};
        run->output[i].keep.share_bytes =
            one || agent_run_watched(run) ? AGENT_RUN_KEEP_BYTES : AGENT_RUN_KEEP_BYTES / 2;
        if (agent_run_watched(run))
            run->output[i].keep.behind_bytes = AGENT_BEHIND_BYTES;
    }
    while (agent_table.slot_taken[run->slot])
        run->slot++;
    agent_table.slot_taken[run->slot] = true;
    run->started_ms = agent_now_ms();
    if (head->timeout_ms)
        run->deadline_ms = head->timeout_ms < INT64_MAX / 2 ? run->started_ms + (int64_t)head->timeout_ms : INT64_MAX;
    run->exit = (struct agent_exit){.exit_code = -1};
    if (agent_run_watched(run) && !run->reader)
        hold(run, AGENT_HOLD_START_MS);
    return run;
}

static bool others_run(const struct agent_run *run)
{
    for (size_t i = 0; i < agent_table.count; i++)
        if (agent_table.runs[i] != run && !agent_table.runs[i]->exited && agent_table.runs[i]->super.pid)
            return true;
    return false;
}

/* Evidence: the kernel killed something here while this ran, and this run shows it, or no other can have been meant. */
static bool killed_for_memory(const struct agent_run *run)
{
    bool shows = run->exit.exit_code == 128 + SIGKILL || (run->exit.signal == SIGKILL && run->stop < AGENT_STOP_KILL);

    if (run->exit.exit_code == 0 || run->oom_kills_before < 0 || agent_cgroup_oom_kills() <= run->oom_kills_before)
        return false;
    return shows || !others_run(run);
}

static void finish(struct agent_run *run)
{
    run->finished = true;
    run->deadline_ms = 0;
    run->started_at_ms = 0;
    if (!run->exited) {
        run->exit.flags |= AGENT_EXIT_LOST;
        run->exit.wall_ms = (uint64_t)(agent_now_ms() - run->started_ms);
    }
    if (killed_for_memory(run))
        run->exit.flags |= AGENT_EXIT_OOM;
    if (run->output[0].keep.dropped || run->output[1].keep.dropped)
        run->exit.flags |= AGENT_EXIT_DROPPED;
    run->exit.out_bytes = run->output[0].keep.total;
    run->exit.err_bytes = run->output[1].keep.total;
    agent_input_close(run);
}

/* All of the command's output is here, what comes now is not its own; and EXIT is not made yet. */
static bool has_all(const struct agent_run *run, const struct agent_output *output)
{
    return run->taking && !run->finished && !output->left;
}

/* Read once. False when there is nothing now, or no room for it. */
static bool read_output(struct agent_run *run, struct agent_output *output)
{
    static unsigned char bytes[AGENT_PAYLOAD_MAX];
    bool wanted = run->known && !run->finished;
    /* What the pipes of a watched run hold at its end is taken at once, so that its end is known, whoever reads or does not. */
    bool last = agent_run_watched(run) && run->taking;
    size_t max = sizeof bytes;
    ssize_t got;

    if (wanted && run->reader && !last && agent_keep_room(&output->keep) < max)
        max = agent_keep_room(&output->keep);
    if (max == 0 || has_all(run, output)) {
        (void)agent_watch(&output->source, 0);
        return false;
    }
    if (run->taking && !run->finished && output->left < max)
        max = (size_t)output->left;
    got = read(output->source.fd, bytes, max);
    if (got < 0 && errno == EINTR)
        return true;
    if (got <= 0) {
        output->left = 0;
        if (got == 0 || errno != EAGAIN) /* a terminal's end is EIO */
            agent_watch_close(&output->source);
        return false;
    }
    if (wanted)
        agent_keep_add(&output->keep, bytes, (size_t)got,
                       !run->reader || (last && agent_keep_held_bytes() > 2 * AGENT_TOTAL_KEEP_BYTES));
    if (run->taking)
        output->left -= output->left < (uint64_t)got ? output->left : (uint64_t)got;
    return true;
}

/* The command has ended: from now on only what its pipes hold at this moment is its output. */
static void begin_taking(struct agent_run *run)
{
    run->taking = true;
    for (int i = 0; i < 2; i++) {
        int size = 0;

        if (run->output[i].source.fd < 0)
            continue;
        if (run->terminal || ioctl(run->output[i].source.fd, FIONREAD, &size) < 0)
            size = TAKE_MAX;
        run->output[i].left = (uint64_t)size;
    }
}

/* Move the run on as far as it can. The end of a stopped run waits for all its processes: nothing of it changes
 * anything after EXIT. */
void agent_run_settle(struct agent_run *run)
{
    bool ended = run->stop == AGENT_STOP_NONE ? run->exited : run->stop == AGENT_STOP_GIVEN_UP;

    if (run->finished || !(ended || !run->super.pid))
        return;
    if (!run->taking)
        begin_taking(run);
    for (int i = 0; i < 2; i++)
        while (run->output[i].left && read_output(run, &run->output[i]))
            ;
    if (!run->output[0].left && !run->output[1].left)
        finish(run);
}

void agent_run_readable(struct agent_run *run, struct agent_source *source)
{
    for (int i = 0; i < 2; i++)
        if (source == &run->output[i].source && source->fd >= 0)
            (void)read_output(run, &run->output[i]);
    agent_run_settle(run);
}

void agent_run_alone(struct agent_run *run)
{
    run->super = AGENT_CREW_NOBODY;
    run->stop_next_ms = 0;
    agent_run_settle(run);
}

static void take_end(struct agent_run *run, const struct agent_super_report *line)
{
    const struct agent_super_shared *told = &agent_table.shared[run->slot];

    run->exited = true;
    if (WIFEXITED(line->status))
        run->exit.exit_code = WEXITSTATUS(line->status);
    else
        run->exit.signal = WTERMSIG(line->status);
    if (told->spawn_errno) {
        run->exit.spawn_errno = told->spawn_errno;
        run->exit.flags |= AGENT_EXIT_SPAWN_FAILED | (told->spawn_cwd ? AGENT_EXIT_SPAWN_CWD : 0);
    }
    run->exit.wall_ms = (uint64_t)(agent_now_ms() - run->started_ms);
    run->exit.cpu_ms = line->cpu_us / 1000;
    run->exit.peak_bytes = line->peak_bytes;
}

static void take_report(const struct agent_super_report *line)
{
    struct agent_run *run = agent_run_of(line->super);

    if (!run)
        return;
    switch (line->status) {
    case AGENT_SUPER_HUNGRY:
        agent_run_clear_leftovers();
        return;
    case AGENT_SUPER_RESTS:
        if (run->stop < AGENT_STOP_ORPHANS)
            agent_crew_rest(run->super);
        else
            agent_crew_let_go(run->super); /* it was killed just now, and is dying */
        agent_run_alone(run);
        return;
    }
    run->spawned = run->spawned || !agent_table.shared[run->slot].spawn_errno;
    if (line->status == AGENT_SUPER_SPAWNED)
        return;
    take_end(run, line);
    agent_run_settle(run);
}

void agent_run_reports(void)
{
    struct agent_super_report lines[32];
    ssize_t got;

    do {
        got = read(report.fd, lines, sizeof lines);
        for (size_t i = 0; got > 0 && i < (size_t)got / sizeof lines[0]; i++)
            take_report(&lines[i]);
    } while (got == sizeof lines);
}

static bool all_acked(const struct agent_run *run)
{
    return run->finished && run->exit_acked && run->output[0].keep.acked >= run->output[0].keep.total &&
           run->output[1].keep.acked >= run->output[1].keep.total;
}

void agent_run_ack(struct agent_run *run, const struct agent_ack *ack)
{
    agent_keep_ack(&run->output[0].keep, ack->out);
    agent_keep_ack(&run->output[1].keep, ack->err);
    run->exit_acked |= ack->exit && run->finished;
    if (all_acked(run))
        forget(run);
}

void agent_run_set_reader(struct agent_run *run, bool reader)
{
    run->reader = reader;
    run->hold_until_ms = 0;
}

void agent_run_attend(struct agent_run *run, const struct agent_reader *reader)
{
    run->streams = reader->flags & AGENT_READER_STREAMS;
    if (!run->streams) {
        hold(run, reader->hold_ms);
        return;
    }
    agent_run_set_reader(run, true);
    agent_keep_seek(&run->output[0].keep, reader->out);
    agent_keep_seek(&run->output[1].keep, reader->err);
    run->credit = AGENT_RUN_CREDIT;
    run->exit_sent = false;
}

void agent_run_relink(struct agent_run *run)
{
    run->credit = AGENT_RUN_CREDIT;
    run->exit_sent = run->ended_sent = run->started_due = false;
    run->started_at_ms = 0;
    run->input.owed = 0;
    if (!agent_run_watched(run)) {
        agent_run_set_reader(run, false);
        agent_keep_rewind(&run->output[0].keep);
        agent_keep_rewind(&run->output[1].keep);
        return;
    }
    run->streams = false;
    if (run->reader)
        hold(run, AGENT_HOLD_LINK_MS);
}

bool agent_run_exit_due(const struct agent_run *run)
{
    return run->known && run->finished && !run->exit_sent && (run->streams || !agent_run_watched(run)) &&
           !agent_keep_unsent(&run->output[0].keep) && !agent_keep_unsent(&run->output[1].keep);
}

/* Read again where there is room again. */
static void resume(struct agent_run *run)
{
    for (int i = 0; i < 2; i++) {
        struct agent_output *output = &run->output[i];

        if (output->source.fd < 0 || output->source.events || has_all(run, output))
            continue;
        if (run->reader && !run->finished && agent_keep_room(&output->keep) < AGENT_KEEP_LEAST)
            continue;
        (void)agent_watch(&output->source, EPOLLIN);
        if (run->taking)
            agent_run_settle(run);
    }
}

/* The oldest finished run that nobody reads gives up its output when all memory for output is used. */
static void drop_oldest(void)
{
    for (size_t i = 0; i < agent_table.count && agent_keep_wanted_bytes() >= AGENT_TOTAL_KEEP_BYTES; i++)
        if (agent_table.runs[i]->known && agent_table.runs[i]->finished && !agent_table.runs[i]->reader)
            for (int j = 0; j < 2; j++)
                agent_keep_clear(&agent_table.runs[i]->output[j].keep);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

void agent_run_sweep(void)
{
    int64_t next_ms;
    size_t kept = 0;

    if (agent_keep_wanted_bytes() >= AGENT_TOTAL_KEEP_BYTES)
        drop_oldest();
    next_ms = agent_orphans_kill();
    for (size_t i = 0; i < agent_table.count; i++) {
        struct agent_run *run = agent_table.runs[i];

        resume(run);
        if (!run->known && !run->super.pid && run->output[0].source.fd < 0 && run->output[1].source.fd < 0) {
            agent_run_free(run);
            continue;
        }
        next_ms = earlier(next_ms, earlier(run->deadline_ms, run->stop_next_ms));
        next_ms = earlier(next_ms, run->hold_until_ms);
        next_ms = earlier(next_ms, run->started_at_ms);
        agent_table.runs[kept++] = run;
    }
    agent_table.count = kept;
    agent_watch_wake_at(next_ms);
}
