/* berth-agent as a process on the host: what must be true of it, whoever attacks and however little is read. */
#include "agent_peer.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(agent, .timeout = 60);

static const struct peer_start READER = {.flags = AGENT_START_READER, .epoch = 1};
static const struct peer_start NO_READER = {.epoch = 1};

static struct agent_exit exit_of(struct peer *peer, uint32_t run, const struct peer_start *how, const char *script)
{
    struct peer_result result;

    peer_start_sh(peer, run, how, script);
    peer_collect(peer, run, &result);
    peer_result_done(&result);
    return result.exit;
}

static void echo_works(struct peer *peer, uint32_t run)
{
    struct peer_result result;

    peer_start_sh(peer, run, &READER, "echo hi");
    peer_collect(peer, run, &result);
    cr_assert_str_eq(result.out.bytes, "hi\n");
    cr_assert_eq(result.exit.exit_code, 0);
    peer_result_done(&result);
}

/* A process's command line. In the middle of an exec it reads as empty, as that of a zombie or of a kernel's thread always
 * does; but these have no file that they run. The old line or the new one is waited for, so that no process is overlooked. */
static ssize_t command_line(const char *pid, char *line, size_t size)
{
    char path[300], file[8];
    ssize_t got = 0;

    for (long until = peer_now_ms() + 1000; got == 0 && peer_now_ms() < until;) {
        int fd;

        snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
        fd = open(path, O_RDONLY);
        if (fd < 0)
            return -1;
        got = read(fd, line, size);
        close(fd);
        snprintf(path, sizeof path, "/proc/%s/exe", pid);
        if (got == 0 && readlink(path, file, sizeof file) < 0)
            return 0;
    }
    return got;
}

/* Processes whose command line holds a text: how a test finds what it left behind. */
static int count_processes(const char *text)
{
    DIR *proc = opendir("/proc");
    int count = 0;

    cr_assert(proc);
    for (struct dirent *entry; (entry = readdir(proc));) {
        char line[512];
        ssize_t size = -1;

        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            size = command_line(entry->d_name, line, sizeof line);
        count += size > 0 && memmem(line, (size_t)size, text, strlen(text)) != NULL;
    }
    closedir(proc);
    return count;
}

static bool become(const char *text, int count, long wait_ms)
{
    for (long until = peer_now_ms() + wait_ms; peer_now_ms() < until; poll(NULL, 0, 10))
        if (count_processes(text) == count)
            return true;
    return false;
}

/* A number of seconds that only this test sleeps, to find its processes by. */
static const char *mark(char *text, size_t size, int which)
{
    snprintf(text, size, "9%d%06d", which, (int)getpid());
    return text;
}

Test(agent, says_what_it_is_at_hello)
{
    struct peer *peer = peer_linked();

    cr_assert_eq(peer->hello.version, AGENT_VERSION);
    cr_assert_eq(peer->hello.uid, geteuid());
    cr_assert_eq(peer->hello.run_count, 0);
    cr_assert(peer->hello.flags & AGENT_HELLO_SUBREAPER);
    peer_stop_cleanly(peer);
}

Test(agent, finds_hello_behind_half_a_frame_of_a_dead_broker)
{
    struct peer *peer = peer_start();
    struct agent_header half = {.type = AGENT_START, .run = 9};
    static unsigned char payload[AGENT_PAYLOAD_MAX];

    agent_frame_seal(&half, payload, sizeof payload);
    peer_send_raw(peer, &half, sizeof half);
    peer_send_raw(peer, payload, 1000);
    peer_hello(peer, 7, 1);
    cr_assert_eq(peer->hello.run_count, 0);
    echo_works(peer, 1);
    peer_stop_cleanly(peer);
}

Test(agent, obeys_nothing_before_hello)
{
    struct peer *peer = peer_start();

    peer_start_sh(peer, 1, &READER, "echo hi");
    peer_hello(peer, 7, 1);
    cr_assert_eq(peer->hello.run_count, 0);
    peer_stop_cleanly(peer);
}

Test(agent, tells_exit_codes_three_hundred_times)
{
    struct peer *peer = peer_linked();

    for (uint32_t run = 1; run <= 300; run++) {
        struct agent_exit ended = exit_of(peer, run, &READER, "exit 7");

        cr_assert_eq(ended.exit_code, 7);
        cr_assert_eq(ended.signal, 0);
        cr_assert_eq(ended.flags, 0);
    }
    peer_stop_cleanly(peer);
}

Test(agent, keeps_streams_apart_or_merges_them_in_order)
{
    static const char script[] = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
    struct peer_start merged = {.flags = AGENT_START_READER | AGENT_START_MERGE, .epoch = 1};
    struct peer *peer = peer_linked();
    struct peer_result result;

    peer_start_sh(peer, 1, &READER, script);
    peer_collect(peer, 1, &result);
    cr_assert_str_eq(result.out.bytes, "o1\no2\no3\n");
    cr_assert_str_eq(result.err.bytes, "e1\ne2\ne3\n");
    peer_result_done(&result);
    peer_start_sh(peer, 2, &merged, script);
    peer_collect(peer, 2, &result);
    cr_assert_str_eq(result.out.bytes, "o1\ne1\no2\ne2\no3\ne3\n");
    cr_assert_eq(result.err.size, 0);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

static struct agent_exit spawn(struct peer *peer, uint32_t run, const char *command, const char *cwd)
{
    struct peer_start how = {.flags = AGENT_START_READER, .epoch = 1, .cwd = cwd};
    const char *const argv[] = {command, NULL};
    struct peer_result result;

    peer_start_run(peer, run, &how, argv);
    peer_collect(peer, run, &result);
    peer_result_done(&result);
    return result.exit;
}

Test(agent, tells_why_a_command_could_not_be_started)
{
    struct peer *peer = peer_linked();
    struct agent_exit ended = spawn(peer, 1, "berth-no-such-command", NULL);

    cr_assert_eq(ended.flags, AGENT_EXIT_SPAWN_FAILED);
    cr_assert_eq(ended.spawn_errno, ENOENT);
    cr_assert_eq(ended.exit_code, 127);
    ended = spawn(peer, 2, "/etc/passwd", NULL);
    cr_assert_eq(ended.flags, AGENT_EXIT_SPAWN_FAILED);
    cr_assert_eq(ended.spawn_errno, EACCES);
    cr_assert_eq(ended.exit_code, 126);
    ended = spawn(peer, 3, "true", "/berth/no/such/place");
    cr_assert_eq(ended.flags, AGENT_EXIT_SPAWN_FAILED | AGENT_EXIT_SPAWN_CWD);
    cr_assert_eq(ended.spawn_errno, ENOENT);
    ended = spawn(peer, 4, "", NULL);
    cr_assert_eq(ended.spawn_errno, ENOENT);
    echo_works(peer, 5);
    peer_stop_cleanly(peer);
}

Test(agent, runs_a_script_without_a_first_line_from_a_path_of_the_run)
{
    char dir[] = "/tmp/berth-inside-XXXXXX", file[64], path[80], value[] = "A=b  c=\n'\"$HOME`id`";
    const char *const env[] = {path, value, NULL};
    const char *const argv[] = {"berth-script", "x y", NULL};
    struct peer_start how = {.flags = AGENT_START_READER, .epoch = 1, .env = env, .cwd = "/"};
    struct peer *peer = peer_linked();
    struct peer_result result;
    FILE *script;

    cr_assert(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/berth-script", dir);
    snprintf(path, sizeof path, "PATH=%s:/usr/bin:/bin", dir);
    script = fopen(file, "w");
    cr_assert(script);
    fputs("printf '%s|' \"$1\" \"$A\"; pwd; umask\n", script);
    fclose(script);
    chmod(file, 0755);
    peer_start_run(peer, 1, &how, argv);
    peer_collect(peer, 1, &result);
    cr_assert_str_eq(result.out.bytes, "x y|b  c=\n'\"$HOME`id`|/\n0022\n");
    peer_result_done(&result);
    unlink(file);
    rmdir(dir);
    peer_stop_cleanly(peer);
}

Test(agent, gives_a_run_nothing_but_what_is_its_own)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct peer_result result;
    struct peer *peer;

    sigaction(SIGINT, &ignore, NULL); /* what a careless parent leaves behind must not reach a run */
    peer = peer_linked();
    peer_start_sh(peer, 1, &READER,
                  "cd /proc/self/fd; for f in *; do printf '%s ' $f; done; readlink 0;"
                  "grep -E '^Sig(Blk|Ign)' /proc/self/status; cat; cat /proc/$$/oom_score_adj");
    peer_collect(peer, 1, &result);
    cr_assert(strstr(result.out.bytes, "0 1 2 "), "%s", result.out.bytes);
    cr_assert_null(strstr(result.out.bytes, "4 "), "%s", result.out.bytes);
    cr_assert(strstr(result.out.bytes, "/dev/null\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n1000\n"), "%s",
              result.out.bytes);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, sends_no_more_than_its_credit_and_goes_on_with_more)
{
    struct peer *peer = peer_linked();
    struct peer_start how = READER;
    uint64_t got = 0;

    how.timeout_ms = 60000;
    peer_start_sh(peer, 1, &how, "head -c 3000000 /dev/zero");
    while (got < AGENT_RUN_CREDIT) {
        peer_expect(peer, AGENT_OUT, 1);
        cr_assert_eq(peer->header.offset, got);
        got += peer->header.length;
    }
    cr_assert_eq(got, AGENT_RUN_CREDIT);
    while (peer_next(peer, 100))
        cr_assert_eq(peer->header.type, AGENT_STARTED, "more than its credit");
    echo_works(peer, 2); /* another run does not stand behind it: the link has credit left */
    while (got < 3000000) {
        peer_send(peer, AGENT_CREDIT, 0, 64 * 1024, NULL, 0);
        peer_send(peer, AGENT_CREDIT, 1, 64 * 1024, NULL, 0);
        peer_ack(peer, 1, got, 0, false);
        peer_expect(peer, AGENT_OUT, 1);
        cr_assert_eq(peer->header.offset, got, "a run with a reader lost bytes");
        got += peer->header.length;
    }
    peer_expect(peer, AGENT_EXIT, 1);
    cr_assert_eq(got, 3000000);
    peer_stop_cleanly(peer);
}

Test(agent, sends_again_on_a_new_link_what_was_not_acknowledged)
{
    struct peer_start kept = {.flags = AGENT_START_READER | AGENT_START_KEEP, .epoch = 1};
    struct peer *peer = peer_linked();
    struct peer_result result;

    peer_start_sh(peer, 1, &kept, "printf 0123456789");
    peer_expect(peer, AGENT_EXIT, 1);
    peer_ack(peer, 1, 4, 0, false);
    peer_hello(peer, 2, 2);
    cr_assert_eq(peer->hello.run_count, 1);
    cr_assert_eq(peer->states[0].run, 1);
    cr_assert_eq(peer->states[0].flags, AGENT_RUN_FINISHED | AGENT_RUN_KEPT);
    cr_assert_eq(peer->states[0].out_acked, 4);
    peer_collect(peer, 1, &result); /* the first link's frames are behind the HELLO_ACK */
    cr_assert_str_eq(result.out.bytes, "456789");
    cr_assert_eq(result.exit.out_bytes, 10);
    peer_result_done(&result);
    peer_hello(peer, 3, 2);
    cr_assert_eq(peer->hello.run_count, 0, "forgotten once all is acknowledged");
    peer_hello(peer, 3, 2); /* the same nonce again: answered, nothing restarts */
    peer_stop_cleanly(peer);
}

Test(agent, stops_runs_of_another_epoch_unless_they_are_kept)
{
    struct peer_start kept = {.flags = AGENT_START_KEEP, .epoch = 1};
    struct peer *peer = peer_linked();
    struct agent_exit ended;
    struct peer_result result;

    /* Itself, not its shell: that would tell of its end by a number where its pid is the greater one and TERM comes to it last. */
    peer_start_sh(peer, 1, &NO_READER, "exec sleep 600");
    peer_start_sh(peer, 2, &kept, "while [ ! -e /proc/self/nothing ] && sleep 0.1; do :; done");
    peer_expect(peer, AGENT_STARTED, 2);
    peer_hello(peer, 2, 2);
    cr_assert_eq(peer->hello.run_count, 2);
    peer_collect(peer, 1, &result);
    ended = result.exit;
    peer_result_done(&result);
    cr_assert_eq(ended.flags, AGENT_EXIT_STOPPED);
    cr_assert_eq(ended.signal, SIGTERM);
    cr_assert_not(peer_next(peer, 200), "the kept run ended");
    peer_send(peer, AGENT_STOP, 2, 0, NULL, 0);
    peer_expect(peer, AGENT_EXIT, 2);
    peer_stop_cleanly(peer);
}

Test(agent, drops_the_middle_when_nobody_reads)
{
    enum { BYTES = 5000000, HALF = AGENT_RUN_KEEP_BYTES / 4 }; /* two streams share a run's share */
    struct peer *peer = peer_linked();
    struct peer_result result;

    peer_start_sh(peer, 1, &NO_READER,
                  "i=0; while [ $i -lt 50000 ]; do printf '%099d\\n' $i; i=$((i + 1)); done; echo FATAL >&2; exit 3");
    peer_collect(peer, 1, &result);
    cr_assert_eq(result.exit.exit_code, 3);
    cr_assert_eq(result.exit.out_bytes, BYTES);
    cr_assert_eq(result.out.end, BYTES);
    cr_assert_eq(result.out.size + result.out.dropped, BYTES);
    cr_assert_str_eq(result.err.bytes, "FATAL\n");
    cr_assert_str_eq(result.out.bytes + result.out.size - 6, "49999\n");
    cr_assert_eq(strncmp(result.out.bytes + 95, "0000\n", 5), 0);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, keeps_the_beginning_and_the_end_within_the_share)
{
    struct peer_start merged = {.flags = AGENT_START_MERGE, .epoch = 1};
    struct peer *peer = peer_linked();
    struct peer_result result;
    uint64_t got = 0, nonce = 1000;

    peer_start_sh(peer, 1, &merged, "head -c 4000000 /dev/zero | tr '\\0' x; echo; echo END");
    /* Nothing is given back until it has ended, so that the agent has to keep what it may not send. */
    while (got < AGENT_RUN_CREDIT) {
        peer_expect(peer, AGENT_OUT, 1);
        got += peer->header.length;
    }
    for (bool running = true; running;) {
        peer_hello(peer, ++nonce, 1);
        running = !(peer->states[0].flags & AGENT_RUN_FINISHED);
    }
    peer_collect(peer, 1, &result);
    cr_assert_eq(result.exit.out_bytes, 4000005);
    cr_assert_gt(result.out.dropped, 2000000);
    cr_assert_leq(result.out.size, AGENT_RUN_KEEP_BYTES);
    cr_assert_geq(result.out.size, AGENT_RUN_KEEP_BYTES - 64 * 1024);
    cr_assert_str_eq(result.out.bytes + result.out.size - 5, "\nEND\n");
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

/* The run is killed in time, with all that it started. */
static void dies_in_time(struct peer *peer, uint32_t run, const char *script)
{
    struct peer_start how = {.flags = AGENT_START_READER, .epoch = 1, .timeout_ms = 300};
    long before = peer_now_ms();
    struct agent_exit ended = exit_of(peer, run, &how, script);
    long took = peer_now_ms() - before;

    cr_assert_eq(ended.flags & ~AGENT_EXIT_OOM, AGENT_EXIT_TIMED_OUT, "%s", script);
    cr_assert_geq(took, 300, "%s", script);
    cr_assert_leq(took, 300 + 2000 + 15000, "%s took %ld ms", script,
                  took); /* 2 s of grace; the rest is the machine's */
}

Test(agent, ends_every_kind_of_run_at_its_deadline)
{
    static const char *const scripts[] = {
        "sleep %1$s",
        "trap '' TERM; while :; do sleep %1$s; done",
        "setsid sh -c \"trap '' TERM; sleep %1$s; sleep %1$s\" & wait",
        "(setsid sh -c '(sleep %1$s &) ; sleep %1$s' &) ; sleep %1$s",
        "sleep %1$s & kill -STOP $! $$",
        "trap '' TERM HUP INT; (trap '' TERM; sleep %1$s) & exec sleep %1$s",
    };
    struct peer *peer = peer_linked();

    for (uint32_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        char seconds[32], script[256];

        mark(seconds, sizeof seconds, (int)i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(script, sizeof script, scripts[i], seconds);
#pragma GCC diagnostic pop
        dies_in_time(peer, i + 1, script);
        cr_assert_eq(count_processes(seconds), 0, "left by: %s", script);
    }
    peer_stop_cleanly(peer);
}

Test(agent, keeps_a_deadline_that_nobody_reads_for)
{
    struct peer_start how = {.flags = AGENT_START_READER, .epoch = 1, .timeout_ms = 500};
    char seconds[32], script[128];
    struct peer *peer = peer_linked();

    snprintf(script, sizeof script, "sleep %s & yes", mark(seconds, sizeof seconds, 7));
    peer_start_sh(peer, 1, &how, script); /* and not a byte is read, no credit given */
    for (long until = peer_now_ms() + 5000; count_processes(seconds) == 0 && peer_now_ms() < until;)
        poll(NULL, 0, 5);
    cr_assert(become(seconds, 0, 10000));
    peer_stop_cleanly(peer);
}

Test(agent, lets_background_children_hold_pipes_and_live_on)
{
    char seconds[32], script[256];
    struct peer *peer = peer_linked();
    struct peer_result result;
    long before = peer_now_ms();

    snprintf(script, sizeof script, "sleep %s & (sleep 0.3; echo late; echo late >&2) & echo now",
             mark(seconds, sizeof seconds, 8));
    peer_start_sh(peer, 1, &READER, script);
    peer_collect(peer, 1, &result);
    cr_assert_str_eq(result.out.bytes, "now\n");
    cr_assert_lt(peer_now_ms() - before, 10000);
    peer_result_done(&result);
    /* What says `late` has the text in its command line as well, and ends when it has said it. */
    cr_assert(become(seconds, 1, 5000));
    cr_assert_not(peer_next(peer, 100), "output after EXIT");
    cr_assert_eq(count_processes(seconds), 1);
    peer_hello(peer, 5, 1);
    cr_assert_eq(peer->hello.run_count, 0);
    peer_stop_cleanly(peer);
    cr_assert_eq(count_processes(seconds), 0, "the agent's end is the end of all");
}

Test(agent, leaves_the_background_of_an_ended_run_alone_whatever_a_next_broker_clears_away)
{
    char seconds[32], script[128];
    struct peer *peer = peer_linked();

    snprintf(script, sizeof script, "sleep %s >/dev/null 2>&1 &", mark(seconds, sizeof seconds, 77));
    peer_start_sh(peer, 1, &READER, script);
    peer_expect(peer, AGENT_EXIT, 1); /* and the broker dies before it acknowledges that */
    peer_hello(peer, 99, 2);
    cr_assert_eq(peer->hello.run_count, 1);
    peer_send(peer, AGENT_STOP, 1, 0, NULL, 0); /* what a broker does with runs that it does not know */
    peer_ack(peer, 1, UINT64_MAX, UINT64_MAX, true);
    echo_works(peer, 2);
    cr_assert_not(become(seconds, 0, 1500));
    peer_stop_cleanly(peer);
}

Test(agent, ends_a_storm_of_forks)
{
    /* Bounded by itself: every process forks two more until a depth of seven, and none obeys TERM. */
    char seconds[32], script[512];
    struct peer *peer = peer_linked();

    snprintf(script, sizeof script,
             "trap '' TERM; f() { if [ $1 -gt 0 ]; then f $(($1 - 1)) & f $(($1 - 1)) & fi; sleep %s & wait; }; f 7",
             mark(seconds, sizeof seconds, 9));
    dies_in_time(peer, 1, script);
    cr_assert_eq(count_processes(seconds), 0);
    echo_works(peer, 2);
    peer_stop_cleanly(peer);
}

static uint64_t turn_ns(pid_t pid)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        uint32_t nice, priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {0};

    cr_assert_eq(syscall(SYS_sched_getattr, pid, &attr, (unsigned)sizeof attr, 0), 0);
    return attr.runtime_ns;
}

Test(agent, gets_its_turns_early_and_its_runs_the_usual_ones)
{
    uint64_t usual = turn_ns(0);
    struct peer *peer = peer_linked();
    struct peer_result result;

    peer_start_sh(peer, 1, &READER, "echo $$; exec sleep 600");
    peer_expect(peer, AGENT_OUT, 1);
    peer->payload[peer->header.length] = 0;
    cr_assert_eq(turn_ns((pid_t)strtol((const char *)peer->payload, NULL, 10)), usual);
    if (usual) /* a kernel that has such turns */
        cr_assert_lt(turn_ns(peer->pid), usual);
    peer_send(peer, AGENT_STOP, 1, 0, NULL, 0);
    peer_collect(peer, 1, &result);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, says_lost_when_a_run_kills_its_supervisor_and_kills_what_is_left)
{
    char seconds[32], script[256];
    struct peer *peer = peer_linked();
    struct agent_exit ended;

    snprintf(script, sizeof script, "setsid sh -c 'sleep %s & sleep %s' & sleep 0.1; kill -9 $PPID; sleep %s",
             mark(seconds, sizeof seconds, 10), seconds, seconds);
    ended = exit_of(peer, 1, &READER, script);
    cr_assert_eq(ended.flags, AGENT_EXIT_LOST);
    cr_assert_eq(ended.exit_code, -1);
    cr_assert(become(seconds, 0, 10000));
    echo_works(peer, 2);
    peer_stop_cleanly(peer);
}

Test(agent, does_not_let_a_run_freeze_its_supervisor)
{
    struct peer *peer = peer_linked();
    struct agent_exit ended = exit_of(peer, 1, &READER, "kill -STOP $PPID; exit 5");

    cr_assert_eq(ended.exit_code, 5);
    peer_stop_cleanly(peer);
}

Test(agent, is_moved_by_no_signal_of_a_process_that_it_can_see)
{
    struct peer *peer = peer_linked();

    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            cr_assert_eq(kill(peer->pid, number), 0);
    echo_works(peer, 1);
    peer_stop_cleanly(peer);
}

Test(agent, stops_when_told_and_passes_signals_on)
{
    struct peer *peer = peer_linked();
    struct agent_exit ended;
    struct peer_result result;

    peer_start_sh(peer, 1, &READER, "trap 'echo got; exit 9' USR1; echo up; while :; do sleep 0.02; done");
    peer_expect(peer, AGENT_OUT, 1);
    peer_send(peer, AGENT_SIGNAL, 1, SIGUSR1, NULL, 0);
    peer_expect(peer, AGENT_EXIT, 1);
    memcpy(&ended, peer->payload, sizeof ended);
    cr_assert_eq(ended.exit_code, 9);
    peer_start_sh(peer, 2, &READER, "exec sleep 600");
    peer_send(peer, AGENT_STOP, 2, 0, NULL, 0);
    peer_collect(peer, 2, &result);
    cr_assert_eq(result.exit.flags, AGENT_EXIT_STOPPED);
    cr_assert_eq(result.exit.signal, SIGTERM);
    peer_result_done(&result);
    peer_send(peer, AGENT_STOP, 77, 0, NULL, 0);
    peer_expect(peer, AGENT_GONE, 77);
    peer_stop_cleanly(peer);
}

Test(agent, takes_input_by_windows_and_ends_it)
{
    enum { BYTES = 1000000, PART = 32 * 1024 };
    struct peer_start how = {.flags = AGENT_START_READER | AGENT_START_STDIN, .epoch = 1};
    static unsigned char part[PART];
    struct peer *peer = peer_linked();
    uint64_t sent = 0, window = AGENT_RUN_CREDIT;
    struct peer_result result;

    peer_start_sh(peer, 1, &how, "sleep 0.2; wc -c");
    while (sent < BYTES) {
        size_t size = BYTES - sent < PART ? BYTES - sent : PART;

        while (window < size) {
            peer_expect(peer, AGENT_STDIN_CREDIT, 1);
            window += peer->header.offset;
        }
        peer_send(peer, AGENT_STDIN, 1, sent, part, size);
        peer_send(peer, AGENT_STDIN, 1, sent, part, size); /* again: taken once */
        sent += size;
        window -= size;
    }
    peer_send(peer, AGENT_STDIN_EOF, 1, sent, NULL, 0);
    peer_collect(peer, 1, &result);
    cr_assert_str_eq(result.out.bytes, "1000000\n");
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, gives_a_terminal_and_loses_none_of_its_output)
{
    struct peer_start how = {.flags = AGENT_START_READER | AGENT_START_TTY | AGENT_START_STDIN, .epoch = 1};
    struct peer *peer = peer_linked();
    struct peer_result result;

    for (uint32_t run = 1; run <= 50; run++) {
        peer_start_sh(peer, run, &how, "echo hi");
        peer_collect(peer, run, &result);
        cr_assert_str_eq(result.out.bytes, "hi\r\n");
        peer_result_done(&result);
    }
    peer_start_sh(peer, 100, &how, "echo ready; read x; stty size; echo got $x");
    peer_expect(peer, AGENT_OUT, 100);
    peer_send(peer, AGENT_RESIZE, 100, (uint64_t)50 << 32 | 132, NULL, 0);
    peer_send(peer, AGENT_STDIN, 100, 0, "abc\n", 4);
    peer_collect(peer, 100, &result);
    cr_assert(strstr(result.out.bytes, "50 132\r\ngot abc\r\n"), "%s", result.out.bytes);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, tells_usage)
{
    struct peer *peer = peer_linked();

    peer_send(peer, AGENT_USAGE, 0, 4711, NULL, 0);
    peer_expect(peer, AGENT_USAGE_REPLY, 0);
    cr_assert_eq(peer->header.offset, 4711);
    cr_assert_eq(peer->header.length, sizeof(struct agent_usage));
    peer_stop_cleanly(peer);
}

Test(agent, refuses_what_is_no_start)
{
    struct peer *peer = peer_linked();
    struct agent_start start = {.argc = 2, .epoch = 1};
    unsigned char payload[sizeof start + 4];

    memcpy(payload, &start, sizeof start);
    memcpy(payload + sizeof start, "sh\0x", 4); /* too few strings, the last without its end */
    for (size_t size = 0; size <= sizeof payload; size++) {
        peer_send(peer, AGENT_START, 1, 0, payload, size);
        peer_expect(peer, AGENT_REFUSED, 1);
        cr_assert_eq(peer->header.offset, EINVAL);
    }
    echo_works(peer, 1);
    peer_stop_cleanly(peer);
}

Test(agent, takes_a_start_in_many_frames)
{
    struct peer *peer = peer_linked();
    struct agent_start start = {.argc = 2, .epoch = 1, .flags = AGENT_START_READER};
    unsigned char payload[sizeof start + 9];
    struct peer_result result;

    memcpy(payload, &start, sizeof start);
    memcpy(payload + sizeof start, "echo\0you\0", 9);
    for (size_t i = 0; i < sizeof payload; i++) {
        struct agent_header header = {
            .type = AGENT_START, .run = 5, .offset = i, .flags = i + 1 < sizeof payload ? AGENT_FLAG_MORE : 0};

        agent_frame_seal(&header, payload + i, 1);
        peer_send_raw(peer, &header, sizeof header);
        peer_send_raw(peer, payload + i, 1);
    }
    /* cwd is missing so far: it is one frame more that was promised by nobody */
    peer_expect(peer, AGENT_REFUSED, 5);
    start.argc = 1;
    memcpy(payload, &start, sizeof start);
    memcpy(payload + sizeof start, "true\0\0", 6);
    for (size_t i = 0; i < sizeof start + 6; i++) {
        struct agent_header header = {
            .type = AGENT_START, .run = 6, .offset = i, .flags = i + 1 < sizeof start + 6 ? AGENT_FLAG_MORE : 0};

        agent_frame_seal(&header, payload + i, 1);
        peer_send_raw(peer, &header, sizeof header);
        peer_send_raw(peer, payload + i, 1);
    }
    peer_collect(peer, 6, &result);
    cr_assert_eq(result.exit.exit_code, 0);
    cr_assert_eq(result.exit.flags, 0);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}

Test(agent, knows_so_many_runs_and_no_more)
{
    struct peer *peer = peer_linked();
    unsigned started = 0, refused = 0;
    bool said[601] = {false};
    struct agent_exit ended;

    for (uint32_t run = 1; run <= 600; run++)
        peer_start_sh(peer, run, &NO_READER, "exit 1");
    while (started + refused < 600) {
        cr_assert(peer_next(peer, PEER_WAIT_MS));
        refused += peer->header.type == AGENT_REFUSED;
        if (peer->header.type == AGENT_STARTED || peer->header.type == AGENT_EXIT) {
            started += !said[peer->header.run];
            said[peer->header.run] = true;
        }
    }
    cr_assert_eq(started, AGENT_RUNS_MAX);
    for (uint32_t run = 1; run <= 600; run++) /* those that were refused are not known, and that is silent */
        peer_ack(peer, run, 0, 0, false);
    peer_hello(peer, 9, 1);
    cr_assert_eq(peer->hello.run_count, AGENT_RUNS_MAX);
    for (unsigned exits = 0; exits < AGENT_RUNS_MAX; exits++) {
        do
            cr_assert(peer_next(peer, PEER_WAIT_MS));
        while (peer->header.type != AGENT_EXIT);
        memcpy(&ended, peer->payload, sizeof ended);
        cr_assert_eq(ended.exit_code, 1);
        peer_ack(peer, peer->header.run, 0, 0, true);
    }
    echo_works(peer, 1000);
    peer_hello(peer, 10, 1);
    cr_assert_eq(peer->hello.run_count, 0);
    peer_stop_cleanly(peer);
}

Test(agent, survives_noise_and_bent_frames)
{
    struct peer *peer = peer_linked();
    uint64_t state = 88172645463325252u;
    unsigned char bytes[4096];

    for (int round = 0; round < 400; round++) {
        struct agent_header header;
        size_t size;

        for (size_t i = 0; i < sizeof bytes; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[i] = (unsigned char)(state >> 24);
        }
        size = bytes[0] % 64;
        /* Frames that are sound as such, of any type and with any content: but no START that could run something. */
        header = (struct agent_header){.type = bytes[1] % 80,
                                       .run = bytes[2] % 4,
                                       .flags = bytes[3] % 4,
                                       .offset = bytes[4] % 2 ? bytes[5] : state};
        if (header.type == AGENT_HELLO)
            header.type = AGENT_ACK;
        agent_frame_seal(&header, bytes + sizeof header, size);
        memcpy(bytes, &header, sizeof header);
        peer_send_raw(peer, bytes, sizeof header + size);
        if (round % 3 == 0)
            peer_send_raw(peer, bytes, (size_t)(state % sizeof bytes));
        while (peer_next(peer, 0))
            ;
    }
    peer_hello(peer, 99, 1);
    echo_works(peer, 4000);
    peer_stop_cleanly(peer);
}

Test(agent, gives_one_stuck_reader_no_power_over_others)
{
    struct peer *peer = peer_linked();
    struct peer_result result;

    /* Ten whose readers never take a byte fill all memory for output; link credit is given back as always. */
    for (uint32_t run = 1; run <= 10; run++)
        peer_start_sh(peer, run, &READER, "yes");
    for (int frames = 0; frames < 40 && peer_next(peer, 300); frames++)
        if (peer->header.type == AGENT_OUT)
            peer_send(peer, AGENT_CREDIT, 0, peer->header.length, NULL, 0);
    peer_start_sh(peer, 20, &READER, "seq 1 200000");
    peer_collect(peer, 20, &result);
    cr_assert_eq(result.out.size, 1288895);
    cr_assert_eq(result.out.dropped, 0);
    peer_result_done(&result);
    peer_stop_cleanly(peer);
}
