/* Threads of a program pause at random where they meet each other or the kernel: loaded into berthd (LD_PRELOAD) under the HTTP
 * tests, it shows in one run what would fail once in thousands.
 *
 * One call in JITTER_OFTEN (30) is followed or led by a pause of up to 1.5 ms, one in forty of those by up to 80 ms. The pauses of
 * a thread follow from JITTER_SEED and its address; without one, from the clock.
 *
 *     cc -O2 -shared -fPIC -o /tmp/jitter.so tests/jitter/jitter.c
 *     BERTH_TEST_PRELOAD=/tmp/jitter.so BERTH_TEST_SLOWNESS=12 BERTHD=… DOCKER_HOST=… pytest -c tests/pytest.ini …
 *
 * All of it: contrib/check --full. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_US = 1500, LONG_US = 80000, ONE_LONG_IN = 40 };

static __thread uint64_t state; /* xorshift64 */
static uint64_t seed;
static unsigned often = 30;

__attribute__((constructor)) static void begin(void)
{
    const char *given_seed = getenv("JITTER_SEED");
    const char *given_often = getenv("JITTER_OFTEN");
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    seed = given_seed ? strtoull(given_seed, NULL, 10) : (uint64_t)now.tv_nsec * 2654435761U + (uint64_t)getpid();
    if (given_often && strtoul(given_often, NULL, 10) > 0)
        often = (unsigned)strtoul(given_often, NULL, 10);
}

static uint64_t draw(void)
{
    if (!state)
        state = (seed ^ (uint64_t)pthread_self() * 0x9e3779b97f4a7c15U) | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 11;
}

static void jitter(void)
{
    int saved = errno;
    uint64_t drawn = draw();

    if (drawn % often == 0) {
        uint64_t us = draw() % ONE_LONG_IN == 0 ? drawn / often % LONG_US : drawn / often % SHORT_US;
        struct timespec pause = {.tv_nsec = (long)us * 1000};

        (void)nanosleep(&pause, NULL);
    }
    errno = saved;
}

#define AROUND(type, name, parameters, arguments)               \
    type name parameters                                        \
    {                                                           \
        static type(*real) parameters;                          \
        type result;                                            \
                                                                \
        if (!real)                                              \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        jitter();                                               \
        result = real arguments;                                \
        jitter();                                               \
        return result;                                          \
    }

AROUND(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
AROUND(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
AROUND(int, linkat, (int from_fd, const char *from, int to_fd, const char *to, int flags),
       (from_fd, from, to_fd, to, flags))
AROUND(int, renameat, (int from_fd, const char *from, int to_fd, const char *to), (from_fd, from, to_fd, to))
AROUND(int, renameat2, (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
       (from_fd, from, to_fd, to, flags))
AROUND(int, unlinkat, (int fd, const char *name, int flags), (fd, name, flags))
AROUND(int, mkdirat, (int fd, const char *name, mode_t mode), (fd, name, mode))
AROUND(int, fstat, (int fd, struct stat *status), (fd, status))
AROUND(int, fdatasync, (int fd), (fd))
AROUND(int, fsync, (int fd), (fd))
AROUND(int, connect, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))
AROUND(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags), (fd, address, size, flags))
AROUND(int, shutdown, (int fd, int how), (fd, how))
AROUND(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
AROUND(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
AROUND(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
AROUND(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
AROUND(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
AROUND(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
AROUND(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
AROUND(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms), (fds, count, timeout_ms))
AROUND(int, epoll_wait, (int fd, struct epoll_event *events, int count, int timeout_ms),
       (fd, events, count, timeout_ms))
