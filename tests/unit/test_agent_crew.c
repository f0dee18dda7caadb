/* berth-agent's supervisors, which go from run to run: that a run finds nothing of an earlier one, whatever that did. */
#include "agent_peer.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(crew, .timeout = 60);

enum { RESTING_MAX = 4 };

static const struct peer_start READER = {.flags = AGENT_START_READER, .epoch = 1};

static struct agent_exit run_as(struct peer *peer, uint32_t run, const struct peer_start *how, const char *script,
                                char *ret_text, size_t text_size)
{
    struct peer_result result;

    peer_start_sh(peer, run, how, script);
    peer_collect(peer, run, &result);
    snprintf(ret_text, text_size, "%s", result.out.bytes);
    peer_result_done(&result);
    return result.exit;
}

static struct agent_exit run_sh(struct peer *peer, uint32_t run, const char *script, char *ret_text, size_t text_size)
{
    return run_as(peer, run, &READER, script, ret_text, text_size);
}

/* The supervisor of a run that begins and ends now. */
static pid_t supervisor(struct peer *peer, uint32_t run)
{
    char text[64];

    run_sh(peer, run, "echo $PPID", text, sizeof text);
    return (pid_t)strtol(text, NULL, 10);
}

static int children_of(pid_t parent)
{
    char path[64], text[4096];
    int fd, count = 0;
    ssize_t size;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(ge(int, fd, 0));
    size = read(fd, text, sizeof text);
    close(fd);
    for (ssize_t i = 0; i < size; i++)
        count += text[i] == ' ';
    return count;
}

static bool children_become(pid_t parent, int count)
{
    for (long until = peer_now_ms() + PEER_WAIT_MS; peer_now_ms() < until; poll(NULL, 0, 5))
        if (children_of(parent) == count)
            return true;
    return false;
}

/* Or dead, where nobody takes its end. */
static bool gone(pid_t pid)
{
    char path[64], text[64];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (long until = peer_now_ms() + PEER_WAIT_MS; peer_now_ms() < until; poll(NULL, 0, 5)) {
        FILE *stat = fopen(path, "re");
        bool dead = !stat || !fgets(text, sizeof text, stat) || strstr(text, ") Z ");

        if (stat)
            fclose(stat);
        if (dead)
            return true;
    }
    return false;
}

Test(crew, one_supervisor_serves_run_after_run)
{
    struct peer *peer = peer_linked();
    pid_t first = supervisor(peer, 1);

    for (uint32_t run = 2; run < 50; run++)
        cr_assert(eq(int, supervisor(peer, run), first));
    cr_assert(eq(int, children_of(peer->pid), 1));
    peer_stop_cleanly(peer);
    cr_assert(gone(first), "it outlived the agent");
}

/* What a process has that its children inherit: a run may change all of it, and the next one must not see that. */
Test(crew, a_run_changes_nothing_for_the_next)
{
    static const char ask[] = "pwd; umask; ulimit -n; ulimit -c; cat /proc/self/oom_score_adj; nice; ls /proc/self/fd "
                              "| wc -l; env | sort | grep -v ^_=; "
                              "grep -E '^(SigBlk|SigIgn|SigCgt|Seccomp|NoNewPrivs)' /proc/self/status; "
                              "read -r pid name state parent group session rest </proc/$$/stat; [ $group = $$ ] && [ "
                              "$session = $$ ] && echo leads";
    struct peer_start other = READER;
    struct peer *peer = peer_linked();
    char before[8192], after[8192], text[256];
    pid_t first = supervisor(peer, 1);
    static const char *const env[] = {"ONLY=once", NULL};

    run_sh(peer, 2, ask, before, sizeof before);
    other.cwd = "/proc";
    other.env = env;
    run_as(peer, 3, &other,
           "umask 077; ulimit -n 64; ulimit -c 0; trap '' TERM HUP; cd /; exec 9</etc/passwd; echo 500 > "
           "/proc/self/oom_score_adj; "
           "echo 300 > /proc/$PPID/oom_score_adj 2>/dev/null; nice -n 5 true; echo $ONLY",
           text, sizeof text);
    cr_assert(eq(str, text, (char *)"once\n"));
    run_sh(peer, 4, ask, after, sizeof after);
    cr_assert(eq(str, after, before));
    cr_assert(eq(int, supervisor(peer, 5), first), "all of it under one supervisor");
    peer_stop_cleanly(peer);
}

Test(crew, a_run_that_left_somebody_keeps_its_supervisor)
{
    struct peer *peer = peer_linked();
    char text[64];
    pid_t first = supervisor(peer, 1), second;
    int left;

    cr_assert(eq(int, run_sh(peer, 2, "sleep 600 >/dev/null 2>&1 & echo $!", text, sizeof text).exit_code, 0));
    left = (int)strtol(text, NULL, 10);
    second = supervisor(peer, 3);
    cr_assert(ne(int, second, first), "its own is busy");
    cr_assert(eq(int, kill(left, 0), 0), "and another's stop does not reach what it left");
    cr_assert(eq(int, kill(left, SIGKILL), 0));
    cr_assert(children_become(peer->pid, 2));
    peer_stop_cleanly(peer);
}

/* The supervisors of so many runs that wait for a file to vanish. */
static void begin_at_gate(struct peer *peer, const char *gate, uint32_t first, int count, pid_t *ret_supers)
{
    char script[128], path[64], text[4096];
    const char *at = text;
    char *end;
    FILE *children;

    snprintf(script, sizeof script, "while [ -e %s ]; do sleep 0.02; done", gate);
    for (int i = 0; i < count; i++)
        peer_start_sh(peer, first + (uint32_t)i, &READER, script);
    cr_assert(children_become(peer->pid, count));
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)peer->pid, (int)peer->pid);
    children = fopen(path, "re");
    cr_assert(children != NULL);
    cr_assert(fgets(text, sizeof text, children) != NULL);
    fclose(children);
    for (int i = 0; i < count; i++, at = end) {
        ret_supers[i] = (pid_t)strtol(at, &end, 10);
        cr_assert(children_become(ret_supers[i], 1));
    }
}

static void make_gate(char *gate)
{
    int fd = mkstemp(gate);

    cr_assert(ge(int, fd, 0));
    close(fd);
}

Test(crew, a_few_rest_and_the_others_go)
{
    char gate[] = "/tmp/berth-crew.XXXXXX";
    struct peer *peer = peer_linked();
    struct peer_result result;
    pid_t supers[20];

    make_gate(gate);
    begin_at_gate(peer, gate, 1, 20, supers);
    unlink(gate);
    for (int ended = 0; ended < 20; ended += peer->header.type == AGENT_EXIT)
        cr_assert(peer_next(peer, PEER_WAIT_MS));
    for (uint32_t run = 1; run <= 20; run++)
        peer_ack(peer, run, 0, 0, true);
    cr_assert(children_become(peer->pid, RESTING_MAX), "%d stayed", children_of(peer->pid));
    for (uint32_t run = 21; run <= 40; run++) {
        peer_start_sh(peer, run, &READER, "exit 3");
        peer_collect(peer, run, &result);
        cr_assert(eq(int, result.exit.exit_code, 3));
        peer_result_done(&result);
    }
    cr_assert(children_become(peer->pid, RESTING_MAX));
    peer_stop_cleanly(peer);
}

/* A sandbox may send its supervisors any signal: they are of its own user. */
Test(crew, one_that_is_killed_or_stopped_at_rest_costs_nothing)
{
    static const int signals[] = {SIGKILL, SIGSTOP, SIGTERM, SIGHUP,  SIGUSR1,
                                  SIGCHLD, SIGINT,  SIGSEGV, SIGCONT, SIGKILL};
    struct peer *peer = peer_linked();
    uint32_t run = 1;
    char text[64];

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        pid_t resting = supervisor(peer, run++);

        cr_assert(eq(int, kill(resting, signals[i]), 0));
        if (signals[i] == SIGKILL)
            cr_assert(children_become(peer->pid, 0));
        cr_assert(eq(int, run_sh(peer, run++, "echo fine; exit 9", text, sizeof text).exit_code, 9), "after signal %d",
                  signals[i]);
        cr_assert(eq(str, text, (char *)"fine\n"));
    }
    peer_stop_cleanly(peer);
}

Test(crew, one_that_is_stopped_with_its_whole_run_serves_the_next)
{
    struct peer_start how = READER;
    struct peer *peer = peer_linked();
    char text[64];

    supervisor(peer, 1);
    how.timeout_ms = 200;
    cr_assert(
        run_as(peer, 2, &how, "kill -STOP $PPID; trap '' TERM; while :; do sleep 1; done", text, sizeof text).flags &
        AGENT_EXIT_TIMED_OUT);
    cr_assert(eq(int, run_sh(peer, 3, "exit 4", text, sizeof text).exit_code, 4));
    cr_assert(children_become(peer->pid, 1));
    peer_stop_cleanly(peer);
}

/* It has said that its run has nobody left, and sleeps. */
static bool comes_to_rest(pid_t super)
{
    char path[64], text[256];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)super);
    for (long until = peer_now_ms() + PEER_WAIT_MS; peer_now_ms() < until; poll(NULL, 0, 5)) {
        bool alone = children_of(super) == 0;
        FILE *stat = fopen(path, "re");

        cr_assert(stat != NULL);
        cr_assert(fgets(text, sizeof text, stat) != NULL);
        fclose(stat);
        if (alone && strstr(text, ") S "))
            return true;
    }
    return false;
}

/* Else whoever stops them in time has them for ever, each a process of the sandbox's limit, and no run to be stopped with. */
Test(crew, those_that_go_are_nobodys_to_stop)
{
    enum { COUNT = RESTING_MAX + 8 };
    char gate[] = "/tmp/berth-crew.XXXXXX";
    struct peer *peer = peer_linked();
    pid_t supers[COUNT];

    make_gate(gate);
    begin_at_gate(peer, gate, 1, COUNT, supers);
    cr_assert(eq(int, kill(peer->pid, SIGSTOP), 0));
    unlink(gate);
    for (int i = 0; i < COUNT; i++)
        cr_assert(comes_to_rest(supers[i]));
    for (int i = 0; i < COUNT; i++)
        cr_assert(eq(int, kill(supers[i], SIGSTOP), 0));
    cr_assert(eq(int, kill(peer->pid, SIGCONT), 0));
    cr_assert(children_become(peer->pid, RESTING_MAX), "%d stayed", children_of(peer->pid));
    peer_stop_cleanly(peer);
}

/* kill -9 -1 means all of them, and one that is dying would take the next run with it. */
Test(crew, when_one_is_killed_those_at_rest_are_trusted_no_more)
{
    char gate[] = "/tmp/berth-crew.XXXXXX";
    struct peer *peer = peer_linked();
    struct peer_result result;
    pid_t supers[RESTING_MAX], next;

    make_gate(gate);
    begin_at_gate(peer, gate, 1, RESTING_MAX, supers);
    unlink(gate);
    for (int i = 0; i < RESTING_MAX; i++)
        cr_assert(comes_to_rest(supers[i]));
    peer_start_sh(peer, 10, &READER, "kill -9 $PPID; sleep 60");
    peer_collect(peer, 10, &result);
    cr_assert(ne(u32, result.exit.flags & AGENT_EXIT_LOST, 0));
    peer_result_done(&result);
    next = supervisor(peer, 11);
    for (int i = 0; i < RESTING_MAX; i++)
        cr_assert(ne(int, next, supers[i]));
    cr_assert(children_become(peer->pid, 1));
    peer_stop_cleanly(peer);
}

/* What the agent holds when it is forked stays with who is forked. */
Test(crew, one_that_holds_the_input_of_others_does_not_stay)
{
    static const unsigned char bytes[AGENT_PAYLOAD_MAX];
    struct peer_start how = READER;
    struct peer *peer = peer_linked();
    pid_t heavy;

    how.flags |= AGENT_START_STDIN;
    for (uint32_t run = 1; run <= 3; run++) {
        peer_start_sh(peer, run, &how, "sleep 600");
        peer_expect(peer, AGENT_STARTED, run);
        for (uint64_t at = 0; at < AGENT_STDIN_WINDOW; at += sizeof bytes) /* a pipe takes the half of it */
            peer_send(peer, AGENT_STDIN, run, at, bytes, sizeof bytes);
    }
    heavy = supervisor(peer, 4);
    cr_assert(gone(heavy));
    for (uint32_t run = 1; run <= 3; run++)
        peer_send(peer, AGENT_STOP, run, 0, NULL, 0);
    for (int ended = 0; ended < 3; ended += peer->header.type == AGENT_EXIT)
        cr_assert(peer_next(peer, PEER_WAIT_MS));
    cr_assert(eq(int, supervisor(peer, 5), supervisor(peer, 6)));
    peer_stop_cleanly(peer);
}

Test(crew, what_does_not_fit_through_its_channel_has_one_of_its_own)
{
    struct peer *peer = peer_linked();
    pid_t first = supervisor(peer, 1);
    static char word[AGENT_PAYLOAD_MAX];
    uint32_t run = 2;

    for (size_t size = 1024; size < sizeof word - 1024; size += 3000) {
        const char *argv[] = {"sh", "-c", "echo ${#1} $PPID", "sh", word, NULL};
        struct peer_result result;
        size_t length;
        int super;

        memset(word, 'x', size);
        word[size] = 0;
        peer_start_run(peer, run, &READER, argv);
        peer_collect(peer, run++, &result);
        cr_assert(eq(int, sscanf(result.out.bytes, "%zu %d", &length, &super), 2));
        cr_assert(eq(sz, length, size));
        cr_assert(eq(int, super == first, size < 32 * 1024 - 100), "%zu bytes", size);
        peer_result_done(&result);
    }
    cr_assert(children_become(peer->pid, 1));
    cr_assert(eq(int, supervisor(peer, run), first));
    peer_stop_cleanly(peer);
}

Test(crew, a_command_that_cannot_be_executed_leaves_it_as_it_was)
{
    static const char *const missing[] = {"/nowhere/at/all", NULL};
    struct peer_start astray = READER;
    struct peer *peer = peer_linked();
    pid_t first = supervisor(peer, 1);
    struct peer_result result;

    for (uint32_t run = 2; run < 20; run++) {
        peer_start_run(peer, run, &READER, missing);
        peer_collect(peer, run, &result);
        cr_assert(eq(int, result.exit.exit_code, 127));
        peer_result_done(&result);
    }
    astray.cwd = "/nowhere";
    peer_start_sh(peer, 20, &astray, "exit 0");
    peer_collect(peer, 20, &result);
    cr_assert(eq(int, result.exit.exit_code, 126));
    peer_result_done(&result);
    cr_assert(eq(int, supervisor(peer, 21), first));
    peer_stop_cleanly(peer);
}

/* A script without a first line is the shell's, as execvp does; the name it was called by is not lost for the next. */
Test(crew, a_file_without_an_interpreter_is_run_by_the_shell)
{
    char path[] = "/tmp/berth-crew.XXXXXX";
    const char *argv[] = {path, "one", "two", NULL};
    struct peer *peer = peer_linked();
    int fd = mkstemp(path);
    struct peer_result result;

    cr_assert(ge(int, fd, 0));
    dprintf(fd, "echo \"$0 $*\"\n");
    cr_assert(eq(int, fchmod(fd, 0755), 0));
    close(fd);
    for (uint32_t run = 1; run < 10; run++) {
        char expected[64];

        peer_start_run(peer, run, &READER, argv);
        peer_collect(peer, run, &result);
        snprintf(expected, sizeof expected, "%s one two\n", path);
        cr_assert(eq(str, result.out.bytes, expected));
        peer_result_done(&result);
    }
    unlink(path);
    peer_stop_cleanly(peer);
}
