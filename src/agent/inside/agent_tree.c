#include "agent_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESSES_MAX = 65536, ROUNDS_MAX = 64 };

enum mark { MARK_UNKNOWN, MARK_BELOW, MARK_APART };

struct process {
    pid_t pid;
    pid_t parent;
    char state;
    uint8_t mark;   /* enum mark */
    uint32_t depth; /* steps up to where the list ends; only of those that are let go on */
};

struct dirent64 {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* By pid: the kernel lists them in that order. */
static struct process processes[PROCESSES_MAX];
static size_t process_count;
static bool list_is_whole; /* no process that lives is missing in it */
static pid_t stopped[PROCESSES_MAX];
static size_t stopped_count;

static int by_pid(const void *left, const void *right)
{
    pid_t a = *(const pid_t *)left; /* pid is the first member of struct process */
    pid_t b = *(const pid_t *)right;

    return a < b ? -1 : a > b;
}

static struct process *find(pid_t pid)
{
    return bsearch(&pid, processes, process_count, sizeof processes[0], by_pid);
}

static bool read_process(int proc, const char *name, struct process *ret_process)
{
    char path[32];
    char text[512];
    const char *after;
    ssize_t size;
    int fd;

    snprintf(path, sizeof path, "%.16s/stat", name);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (size < 0 && errno != ENOENT && errno != ESRCH)
        list_is_whole = false;
    if (fd >= 0)
        close(fd);
    if (size <= 0)
        return false;
    text[size] = 0;
    after = strrchr(text, ')'); /* the name before it may hold anything */
    if (!after || after[1] != ' ' || !after[2])
        return false;
    ret_process->pid = (pid_t)strtol(name, NULL, 10);
    ret_process->state = after[2];
    ret_process->parent = (pid_t)strtol(after + 3, NULL, 10);
    ret_process->mark = MARK_UNKNOWN;
    ret_process->depth = 0;
    return true;
}

static void list_processes(void)
{
    static char buffer[32 * 1024] __attribute__((aligned(8)));
    bool sorted = true;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long size;

    process_count = 0;
    list_is_whole = proc >= 0;
    if (proc < 0)
        return;
    while ((size = syscall(SYS_getdents64, proc, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < size;) {
            const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);

            at += entry->size;
            if (entry->name[0] < '1' || entry->name[0] > '9')
                continue;
            if (process_count == PROCESSES_MAX)
                list_is_whole = false;
            if (process_count == PROCESSES_MAX || !read_process(proc, entry->name, &processes[process_count]))
                continue;
            if (process_count && processes[process_count - 1].pid >= processes[process_count].pid)
                sorted = false;
            process_count++;
        }
    }
    close(proc);
    if (!sorted)
        qsort(processes, process_count, sizeof processes[0], by_pid);
}

/* Follow the parents up to a process whose mark is known, then give all on the way the same. What ends elsewhere (at
 * the host's own, or at a parent that died while we read) is apart; the next round sees where it was taken in. */
static void mark_process(struct process *process)
{
    struct process *top = process;
    uint8_t mark;

    for (size_t steps = 0; top && top->mark == MARK_UNKNOWN && steps < process_count; steps++)
        top = find(top->parent);
    mark = top && top->mark != MARK_UNKNOWN ? top->mark : MARK_APART;
    while (process && process->mark == MARK_UNKNOWN) {
        process->mark = mark;
        process = find(process->parent);
    }
}

/* Mark what is below root, and what is not. Of a list that was just made. */
static void mark_all(pid_t root, const pid_t *apart, size_t apart_count)
{
    struct process *self;

    for (size_t i = 0; i < apart_count; i++) {
        struct process *process = find(apart[i]);

        if (process)
            process->mark = MARK_APART;
    }
    self = find(root);
    if (self)
        self->mark = MARK_BELOW;
    for (size_t i = 0; i < process_count; i++)
        mark_process(&processes[i]);
    if (self)
        self->mark = MARK_APART;
}

static void scan(pid_t root, const pid_t *apart, size_t apart_count)
{
    list_processes();
    mark_all(root, apart, apart_count);
}

static bool alive_below(const struct process *process)
{
    return process->mark == MARK_BELOW && process->state != 'Z' && process->state != 'X';
}

void agent_tree_signal(pid_t root, int number)
{
    scan(root, NULL, 0);
    for (size_t i = 0; i < process_count; i++) {
        if (!alive_below(&processes[i]))
            continue;
        (void)kill(processes[i].pid, number);
        if (number == SIGTERM && processes[i].state == 'T')
            (void)kill(processes[i].pid, SIGCONT);
    }
}

enum agent_tree_state agent_tree_kill(struct agent_tree_kill *state, pid_t root, const pid_t *apart, size_t apart_count)
{
    size_t count = 0;
    bool fresh = false;

    scan(root, apart, apart_count);
    for (size_t i = 0; i < process_count; i++) {
        if (!alive_below(&processes[i]))
            continue;
        if (!state->rounds || !bsearch(&processes[i].pid, stopped, stopped_count, sizeof stopped[0], by_pid)) {
            (void)kill(processes[i].pid, SIGSTOP);
            fresh = true;
        }
    }
    for (size_t i = 0; i < process_count; i++)
        if (alive_below(&processes[i]))
            stopped[count++] = processes[i].pid;
    stopped_count = count;
    if (!count)
        return AGENT_TREE_EMPTY;
    if (fresh && ++state->rounds < ROUNDS_MAX)
        return AGENT_TREE_MOVING;
    for (size_t i = 0; i < count; i++)
        (void)kill(stopped[i], SIGKILL);
    state->rounds = 0;
    return AGENT_TREE_KILLED;
}

/* A process that somebody had stopped before we stopped all: it cannot take the second SIGSTOP, which waits. */
static bool was_stopped_already(const struct process *process)
{
    char path[32];
    char text[4096];
    const char *waiting;
    ssize_t size;
    int fd;

    if (process->state != 'T')
        return false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)process->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size < 0 ? 0 : size] = 0;
    waiting = strstr(text, "\nShdPnd:");
    return waiting && strtoull(waiting + 8, NULL, 16) & (1ull << (SIGSTOP - 1));
}

static int deepest_first(const void *left, const void *right)
{
    uint32_t a = ((const struct process *)left)->depth;
    uint32_t b = ((const struct process *)right)->depth;

    return a < b ? 1 : a > b ? -1 : 0;
}

/* Children before their parents: a shell that looks after its jobs shall find them going. */
static void let_the_others_go_on(void)
{
    for (size_t i = 0; i < process_count; i++)
        if (!alive_below(&processes[i]))
            for (struct process *up = &processes[i]; up && processes[i].depth < process_count; up = find(up->parent))
                processes[i].depth++;
    qsort(processes, process_count, sizeof processes[0], deepest_first);
    for (size_t i = 0; i < process_count; i++)
        if (!alive_below(&processes[i]) && processes[i].pid != getpid() && !was_stopped_already(&processes[i]))
            (void)kill(processes[i].pid, SIGCONT);
    process_count = 0; /* no longer by pid */
    if (!list_is_whole)
        (void)kill(-1, SIGCONT);
}

bool agent_tree_kill_still(pid_t root, const pid_t *apart, size_t apart_count)
{
    if (getpid() != 1) /* "all" would be the host's */
        return false;
    (void)kill(-1, SIGSTOP);
    scan(root, apart, apart_count);
    for (size_t i = 0; i < process_count; i++)
        if (alive_below(&processes[i]))
            (void)kill(processes[i].pid, SIGKILL);
    let_the_others_go_on();
    return true;
}

size_t agent_tree_largest(const pid_t *roots, size_t count)
{
    size_t largest = 0, most = 0, listed;

    list_processes();
    listed = process_count;
    for (size_t i = 0; i < count; i++) {
        size_t below = 0;

        process_count = listed;
        for (size_t j = 0; j < listed; j++)
            processes[j].mark = MARK_UNKNOWN;
        mark_all(roots[i], NULL, 0);
        for (size_t j = 0; j < process_count; j++)
            below += alive_below(&processes[j]);
        if (below > most) {
            most = below;
            largest = i;
        }
    }
    return largest;
}
