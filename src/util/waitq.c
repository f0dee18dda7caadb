#include "waitq.h"

#include "cleanup.h"

#include <stdint.h>
#include <sys/eventfd.h>

struct waitq_node {
    struct waitq_node *next;
    struct waitq_node **link;
    int event_fd;
};

int waitq_wait(struct waitq *queue, pthread_mutex_t *held, const struct cancel *cancel, struct error *err)
{
    auto_close int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct waitq_node node = {.next = queue->first, .link = &queue->first, .event_fd = event_fd};
    struct pollfd woken = {.fd = event_fd, .events = POLLIN};
    int result;

    if (event_fd < 0)
        return fail_errno(err, "eventfd");
    if (node.next)
        node.next->link = &node.next;
    queue->first = &node;

    (void)pthread_mutex_unlock(held);
    result = cancel_poll(cancel, &woken, 1, err);
    (void)pthread_mutex_lock(held);

    *node.link = node.next;
    if (node.next)
        node.next->link = node.link;
    return result < 0 ? -1 : 0;
}

void waitq_wake_all(struct waitq *queue)
{
    const uint64_t one = 1;

    for (struct waitq_node *node = queue->first; node; node = node->next)
        if (write(node->event_fd, &one, sizeof one) < 0)
            continue; /* EAGAIN: already signalled */
}
