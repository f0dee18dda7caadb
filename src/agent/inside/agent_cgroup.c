#include "agent_cgroup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup/"

static bool read_text(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size;

    if (fd < 0)
        return false;
    size = read(fd, text, capacity - 1);
    close(fd);
    if (size <= 0)
        return false;
    text[size] = 0;
    return true;
}

static int64_t number_at(const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    return end == text || value < 0 ? -1 : value;
}

static int64_t read_number(const char *path)
{
    char text[64];

    return read_text(path, text, sizeof text) ? number_at(text) : -1;
}

/* The number behind "key " at the beginning of a line. */
static int64_t read_key(const char *path, const char *key)
{
    char text[8192];
    size_t size = strlen(key);

    if (!read_text(path, text, sizeof text))
        return -1;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, size) == 0 && line[size] == ' ')
            return number_at(line + size + 1);
    }
    return -1;
}

static bool unified(void)
{
    return access(ROOT "cgroup.controllers", F_OK) == 0;
}

static int64_t without(int64_t used, int64_t cache)
{
    return used >= 0 && cache > 0 && cache <= used ? used - cache : used;
}

int64_t agent_cgroup_oom_kills(void)
{
    static const char *path; /* found once: asked at both ends of every run */

    if (!path)
        path = unified() ? ROOT "memory.events" : ROOT "memory/memory.oom_control";
    return read_key(path, "oom_kill");
}

int64_t agent_cgroup_processes(void)
{
    return read_number(unified() ? ROOT "pids.current" : ROOT "pids/pids.current");
}

void agent_cgroup_usage(struct agent_usage *ret_usage)
{
    ret_usage->oom_kills = agent_cgroup_oom_kills();
    ret_usage->pids = agent_cgroup_processes();
    if (unified()) {
        int64_t cpu_us = read_key(ROOT "cpu.stat", "usage_usec");

        ret_usage->memory_bytes =
            without(read_number(ROOT "memory.current"), read_key(ROOT "memory.stat", "inactive_file"));
        ret_usage->cpu_ns = cpu_us < 0 ? -1 : cpu_us * 1000;
        return;
    }
    ret_usage->memory_bytes = without(read_number(ROOT "memory/memory.usage_in_bytes"),
                                      read_key(ROOT "memory/memory.stat", "total_inactive_file"));
    ret_usage->cpu_ns = read_number(ROOT "cpuacct/cpuacct.usage");
    if (ret_usage->cpu_ns < 0)
        ret_usage->cpu_ns = read_number(ROOT "cpu,cpuacct/cpuacct.usage");
}
