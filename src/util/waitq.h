/* util/waitq.h: a condition variable that can be cancelled.
 *
 * The queue is guarded by a mutex of the caller's, held for every call. Each waiter polls an eventfd of its own thread
 * together with the cancel's descriptors. Spurious wake-ups happen: loop on the condition.
 */
#ifndef BERTH_WAITQ_H
#define BERTH_WAITQ_H

#include "cancel.h"

#include <pthread.h>

struct waitq_node;
struct waitq {
    struct waitq_node *first;
};

#define WAITQ_INIT \
    {              \
        NULL       \
    }

/* Release the lock, sleep until woken or cancelled, take the lock again. 0 woken, -1 as cancel_poll(). Blocks. */
int waitq_wait(struct waitq *queue, pthread_mutex_t *held, const struct cancel *cancel, struct error *err);

/* Wake everybody. The lock is held. Never blocks. */
void waitq_wake_all(struct waitq *queue);

#endif
