#include "agent_private.h"

#include "alloc.h"
#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS_MAX = 64 };

struct agent_hub {
    uint32_t epoch;
    int epoll_fd;
    int wake_fd;
    _Atomic int ticks_wanted;
    _Atomic bool stopping;
    pthread_t thread;
    char *scratch; /* of the thread: what is being read, for all links in turn */
    pthread_mutex_t lock;
    LIST_HEAD(, agent_link) links; /* added by anybody, removed by the thread */
    pthread_mutex_t ends_lock;     /* the last of all locks */
    struct waitq ended;
    uint64_t *ends; /* cookies of watched runs that have ended: each is there once at most */
    size_t end_count;
    size_t end_room;
};

void hub_tell_end(struct agent_hub *hub, uint64_t cookie)
{
    (void)pthread_mutex_lock(&hub->ends_lock);
    if (hub->end_count == hub->end_room) {
        hub->end_room = hub->end_room ? hub->end_room * 2 : 64;
        hub->ends = alloc_grow(hub->ends, hub->end_room, sizeof *hub->ends);
    }
    hub->ends[hub->end_count++] = cookie;
    waitq_wake_all(&hub->ended);
    (void)pthread_mutex_unlock(&hub->ends_lock);
}

int agent_hub_next_end(struct agent_hub *hub, const struct cancel *cancel, uint64_t *ret_cookie, struct error *err)
{
    int result = 0;

    (void)pthread_mutex_lock(&hub->ends_lock);
    while (result == 0 && hub->end_count == 0)
        result = waitq_wait(&hub->ended, &hub->ends_lock, cancel, err);
    if (result == 0)
        *ret_cookie = hub->ends[--hub->end_count];
    (void)pthread_mutex_unlock(&hub->ends_lock);
    return result;
}

uint32_t hub_epoch(const struct agent_hub *hub)
{
    return hub->epoch;
}

void hub_wake(struct agent_hub *hub)
{
    const uint64_t one = 1;

    if (write(hub->wake_fd, &one, sizeof one) < 0)
        return; /* EAGAIN: it is awake already */
}

void hub_tick_want(struct agent_hub *hub, int change)
{
    atomic_fetch_add(&hub->ticks_wanted, change);
}

int hub_add(struct agent_hub *hub, struct agent_link *link, struct error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    int result = 0;

    (void)pthread_mutex_lock(&hub->lock);
    if (epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, net_stream_fd(link->stream), &event) < 0) {
        result = fail_errno(err, "epoll_ctl");
    } else {
        atomic_fetch_add(&link->references, 1);
        LIST_INSERT_HEAD(&hub->links, link, entry);
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return result;
}

void hub_want_write(struct agent_hub *hub, struct agent_link *link, bool wanted)
{
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = link};

    (void)epoll_ctl(hub->epoll_fd, EPOLL_CTL_MOD, net_stream_fd(link->stream), &event);
}

void hub_forget_stream(struct agent_hub *hub, struct agent_link *link)
{
    (void)epoll_ctl(hub->epoll_fd, EPOLL_CTL_DEL, net_stream_fd(link->stream), NULL);
}

/* Go over all links: drop the dead, go on with those that were left in the middle, tick when it is time. */
static void visit_links(struct agent_hub *hub, bool tick, int64_t now_ms)
{
    struct agent_link *link;
    struct agent_link *next;

    (void)pthread_mutex_lock(&hub->lock);
    for (link = LIST_FIRST(&hub->links); link; link = next) {
        next = LIST_NEXT(link, entry);
        if (link->has_more)
            link_readable(link, hub->scratch);
        if (tick)
            link_tick(link, now_ms);
        if (atomic_load(&link->state) == LINK_DEAD) {
            LIST_REMOVE(link, entry);
            link_drop(link);
        }
    }
    (void)pthread_mutex_unlock(&hub->lock);
}

static bool any_has_more(struct agent_hub *hub)
{
    bool more = false;
    struct agent_link *link;

    (void)pthread_mutex_lock(&hub->lock);
    LIST_FOREACH(link, &hub->links, entry)
    more |= link->has_more;
    (void)pthread_mutex_unlock(&hub->lock);
    return more;
}

static void *hub_main(void *context)
{
    struct agent_hub *hub = context;
    struct epoll_event events[EVENTS_MAX];
    int64_t tick_at_ms = 0; /* 0: nobody wants one */
    bool more = false;

    while (!atomic_load(&hub->stopping)) {
        bool visit = more;
        bool tick = false;
        int64_t now_ms = 0;
        int wait_ms = -1;
        int count;

        if (atomic_load(&hub->ticks_wanted) > 0) {
            now_ms = clock_mono_ms();
            if (tick_at_ms == 0)
                tick_at_ms = now_ms + HUB_TICK_MS;
            wait_ms = tick_at_ms > now_ms ? (int)(tick_at_ms - now_ms) : 0;
        } else {
            tick_at_ms = 0;
        }
        count = epoll_wait(hub->epoll_fd, events, EVENTS_MAX, more ? 0 : wait_ms);
        more = false;
        for (int i = 0; i < count; i++) {
            struct agent_link *link = events[i].data.ptr;

            if (!link) {
                uint64_t ignored;

                if (read(hub->wake_fd, &ignored, sizeof ignored) > 0)
                    visit = true;
                continue;
            }
            if (events[i].events & EPOLLOUT)
                link_writable(link);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                link_readable(link, hub->scratch);
            more |= link->has_more;
        }
        if (tick_at_ms != 0 && (now_ms = clock_mono_ms()) >= tick_at_ms) {
            tick = true;
            tick_at_ms = 0;
        }
        if (visit || tick) {
            visit_links(hub, tick, now_ms);
            more = any_has_more(hub);
        }
    }
    return NULL;
}

int agent_hub_new(const struct agent_hub_settings *settings, struct agent_hub **ret_hub, struct error *err)
{
    struct agent_hub *hub = alloc_zero(sizeof *hub);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int failed;

    hub->epoch = settings->epoch;
    LIST_INIT(&hub->links);
    (void)pthread_mutex_init(&hub->lock, NULL);
    (void)pthread_mutex_init(&hub->ends_lock, NULL);
    hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    hub->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hub->epoll_fd < 0 || hub->wake_fd < 0 || epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, hub->wake_fd, &event) < 0) {
        (void)fail_errno(err, "agent hub: epoll");
        goto refused;
    }
    hub->scratch = malloc(LINK_SCRATCH_BYTES);
    if (!hub->scratch) {
        (void)fail(err, INTERNAL, "agent hub: no memory");
        goto refused;
    }
    failed = pthread_create(&hub->thread, NULL, hub_main, hub);
    if (failed) {
        (void)error_set(err, ERROR_INTERNAL, failed, "agent hub: no thread");
        goto refused;
    }
    (void)pthread_setname_np(hub->thread, "agent-hub");
    *ret_hub = hub;
    return 0;
refused:
    if (hub->epoll_fd >= 0)
        (void)close(hub->epoll_fd);
    if (hub->wake_fd >= 0)
        (void)close(hub->wake_fd);
    free(hub->scratch);
    (void)pthread_mutex_destroy(&hub->lock);
    (void)pthread_mutex_destroy(&hub->ends_lock);
    free(hub->ends);
    free(hub);
    return -1;
}

void agent_hub_free(struct agent_hub *hub)
{
    if (!hub)
        return;
    atomic_store(&hub->stopping, true);
    hub_wake(hub);
    (void)pthread_join(hub->thread, NULL);
    while (!LIST_EMPTY(&hub->links)) {
        struct agent_link *link = LIST_FIRST(&hub->links);

        agent_link_close(link);
        LIST_REMOVE(link, entry);
        link_drop(link);
    }
    (void)close(hub->epoll_fd);
    (void)close(hub->wake_fd);
    free(hub->scratch);
    (void)pthread_mutex_destroy(&hub->lock);
    (void)pthread_mutex_destroy(&hub->ends_lock);
    free(hub->ends);
    free(hub);
}
