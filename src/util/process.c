#include "process.h"

#include "cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 6.2 the size of the directory is the count of its entries; before, they are counted. */
static int64_t count_fds(void)
{
    struct stat at;
    int64_t count = -3; /* ".", ".." and the directory's own */
    DIR *dir;

    if (stat("/proc/self/fd", &at) == 0 && at.st_size > 0)
        return at.st_size;
    dir = opendir("/proc/self/fd");
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

static void look_at_memory(struct process_figures *ret)
{
    auto_close int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    long long total, resident;

    if (size <= 0)
        return;
    text[size] = '\0';
    if (sscanf(text, "%19lld %19lld", &total, &resident) != 2)
        return;
    ret->virtual_bytes = total * sysconf(_SC_PAGESIZE);
    ret->resident_bytes = resident * sysconf(_SC_PAGESIZE);
}

void process_look(struct process_figures *ret)
{
    struct timespec cpu;
    struct rlimit limit;

    *ret = (struct process_figures){-1, -1, -1, -1, -1};
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
        ret->cpu_us = (int64_t)cpu.tv_sec * 1000000 + cpu.tv_nsec / 1000;
    look_at_memory(ret);
    ret->fds = count_fds();
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        ret->max_fds = (int64_t)limit.rlim_cur;
}
