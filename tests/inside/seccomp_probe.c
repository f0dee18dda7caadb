/* tests/inside/seccomp_probe.c: runs inside a sandbox and tries what src/engine/seccomp.def refuses, also with bit 32 of the
 * deciding argument set. Prints a line for each call that did not answer as the table says; exits 0 when there is none.
 * Static, so that it runs in any image. Wrong arguments never matter: the filter is asked before the kernel looks at them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int wrong;

static void expect(const char *what, unsigned long detail, long result, int wanted)
{
    int got = result < 0 ? errno : 0;

    if (got == wanted)
        return;
    printf("%s %lx: %s, wanted %s\n", what, detail, got ? strerror(got) : "allowed", strerror(wanted));
    wrong++;
}

/* Calls that this architecture, or this C library, does not have. */
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef __x86_64__
#define SYS_iopl -1
#define SYS_ioperm -1
#define SYS_uselib -1
#define SYS_ustat -1
#define SYS_sysfs -1
#define SYS__sysctl -1
#endif

static const struct {
    const char *name;
    long number;
} refused[] = {
#define ALLOW(call, reason)
#define ALLOW_VALUE(call, argument, value, reason)
#define ALLOW_MASKED(call, argument, mask, value, reason)
#define NOT_THERE(call, reason)
#define REFUSE(call, reason) {#call, SYS_##call},
#include "seccomp.def"
    {NULL, 0},
};

static void try_refused(void)
{
    for (int i = 0; refused[i].name; i++) {
        if (refused[i].number >= 0)
            expect(refused[i].name, 0, syscall(refused[i].number, -1, -1, -1, -1, -1, -1), EPERM);
    }
    expect("clone3", 0, syscall(SYS_clone3, NULL, 0), ENOSYS);
}

static void try_ioctls(void)
{
    static const unsigned long closed[] = {0x50009401, 0x5000940e, 0x5000940f, 0x50009417, 0x50009418,
                                           0x401c5820, 0x40086602, 0x40046602}; /* and attributes of files */
    int pipes[2];

    if (pipe(pipes) < 0)
        return;
    for (unsigned i = 0; i < sizeof closed / sizeof closed[0]; i++) {
        expect("ioctl", closed[i], syscall(SYS_ioctl, pipes[0], closed[i], 0), EPERM);
        expect("ioctl", closed[i] | 1UL << 32, syscall(SYS_ioctl, pipes[0], closed[i] | 1UL << 32, 0), EPERM);
    }
    /* The neighbours get through to the kernel, which has its own reasons. */
    if (syscall(SYS_ioctl, pipes[0], 0x40049409, -1) < 0 && errno == EPERM)
        expect("FICLONE", 0x40049409, -1, EBADF);
    if (syscall(SYS_ioctl, pipes[0], 0x541B, &pipes[1]) < 0)
        expect("FIONREAD", 0x541B, -1, 0);
}

static void try_sockets(void)
{
    for (unsigned long family = 0; family < 46; family++) {
        int fine = family == 1 || family == 2 || family == 10 || family == 16;
        long fd = syscall(SYS_socket, family, SOCK_DGRAM, 0);

        if (!fine)
            expect("socket", family, fd, EPERM);
        else if (fd < 0 && errno == EPERM)
            expect("socket", family, fd, 0);
        if (fd >= 0)
            close((int)fd);
        expect("socket", family | 1UL << 32, syscall(SYS_socket, family | 1UL << 32, SOCK_DGRAM, 0), EPERM);
    }
}

static void try_clones(void)
{
    static const unsigned long flags[] = {0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000};

    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        for (unsigned long high = 0; high < 2; high++) {
            unsigned long asked = flags[i] | 17 | high << 32;
            long child = syscall(SYS_clone, asked, 0, 0, 0, 0);

            if (child == 0)
                _exit(0);
            expect("clone", asked, child, EPERM);
        }
    }
}

#ifdef __x86_64__
/* The 32-bit door: the process that knocks does not come back. */
static void try_i386(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        long result;

        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory"); /* getpid */
        _exit(result > 0 ? 0 : 1);
    }
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        expect("int 0x80", 20, 0, EPERM);
}
#else
static void try_i386(void)
{
}
#endif

int main(void)
{
    /* Outside, some of these calls would do something. */
    if (access("/.berth-agent", F_OK) < 0) {
        printf("not in a sandbox\n");
        return 2;
    }
    try_refused();
    try_ioctls();
    try_sockets();
    try_clones();
    try_i386();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
