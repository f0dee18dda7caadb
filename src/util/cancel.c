#include "cancel.h"

#include "clock.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

enum { MAX_FDS = 16 };

struct cancel cancel_within(const struct cancel *base, int64_t timeout_ms)
{
    struct cancel cancel = *base;
    int64_t deadline_ms = clock_mono_ms() + (timeout_ms > 0 ? timeout_ms : 0);

    if (cancel.deadline_ms == 0 || deadline_ms < cancel.deadline_ms)
        cancel.deadline_ms = deadline_ms;
    return cancel;
}

struct cancel cancel_detached(const struct cancel *base)
{
    struct cancel cancel = *base;

    cancel.client_fd = -1;
    return cancel;
}

int64_t cancel_remaining_ms(const struct cancel *cancel)
{
    int64_t left_ms;

    if (cancel->deadline_ms == 0)
        return -1;
    left_ms = cancel->deadline_ms - clock_mono_ms();
    return left_ms > 0 ? left_ms : 0;
}

static int why(const struct cancel *cancel, const struct pollfd *stop, const struct pollfd *client, struct error *err)
{
    if (stop->revents)
        return fail(err, UNAVAILABLE, "the broker is stopping");
    if (client->revents)
        return fail(err, CANCELLED, "the client hung up");
    if (cancel->deadline_ms && cancel_remaining_ms(cancel) == 0)
        return fail(err, TIMEOUT, "deadline exceeded");
    return 0;
}

int cancel_poll(const struct cancel *cancel, struct pollfd *fds, unsigned count, struct error *err)
{
    struct pollfd all[MAX_FDS + 2];

    assert(count <= MAX_FDS);
    if (count)
        memcpy(all, fds, count * sizeof *fds);
    all[count] = (struct pollfd){.fd = cancel->stop_fd, .events = POLLIN};
    all[count + 1] = (struct pollfd){.fd = cancel->client_fd, .events = POLLRDHUP};
    for (;;) {
        int64_t left_ms = cancel_remaining_ms(cancel);
        int ready = poll(all, count + 2, left_ms < 0 ? -1 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);

        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return fail_errno(err, "poll");
        if (why(cancel, &all[count], &all[count + 1], err) < 0)
            return -1;
        if (ready > 0) {
            memcpy(fds, all, count * sizeof *fds);
            return ready;
        }
    }
}

int cancel_check(const struct cancel *cancel, struct error *err)
{
    struct pollfd own[2] = {{.fd = cancel->stop_fd, .events = POLLIN}, {.fd = cancel->client_fd, .events = POLLRDHUP}};

    if (poll(own, 2, 0) < 0)
        own[0].revents = own[1].revents = 0;
    return why(cancel, &own[0], &own[1], err);
}
