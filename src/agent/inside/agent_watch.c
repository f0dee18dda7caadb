#include "agent_watch.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BATCH_MAX = 64 };

static int epoll_fd = -1;
static struct agent_source timer = {.kind = AGENT_SOURCE_TIMER, .fd = -1};
static int64_t armed_ms; /* 0: not */
static clockid_t clock_id = CLOCK_BOOTTIME;

int64_t agent_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(clock_id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int agent_watch_init(void)
{
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return -1;
    timer.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer.fd < 0) {
        clock_id = CLOCK_MONOTONIC;
        timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    }
    return timer.fd < 0 ? -1 : agent_watch(&timer, EPOLLIN);
}

int agent_watch(struct agent_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int verb = !events ? EPOLL_CTL_DEL : source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (source->events == events)
        return 0;
    if (epoll_ctl(epoll_fd, verb, source->fd, &event) < 0)
        return -1;
    source->events = events;
    return 0;
}

void agent_watch_close(struct agent_source *source)
{
    if (source->fd < 0)
        return;
    (void)agent_watch(source, 0);
    close(source->fd);
    source->fd = -1;
}

int agent_watch_wait(struct agent_source **sources, int max)
{
    struct epoll_event ready[BATCH_MAX];
    int count = epoll_wait(epoll_fd, ready, max < BATCH_MAX ? max : BATCH_MAX, -1);

    for (int i = 0; i < count; i++)
        sources[i] = ready[i].data.ptr;
    return count;
}

void agent_watch_wake_at(int64_t at_ms)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000}};

    if (at_ms <= 0 || (armed_ms && armed_ms <= at_ms))
        return;
    if (timerfd_settime(timer.fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
        armed_ms = at_ms;
}

void agent_watch_timer_read(void)
{
    uint64_t times;

    if (read(timer.fd, &times, sizeof times) > 0)
        armed_ms = 0;
}
