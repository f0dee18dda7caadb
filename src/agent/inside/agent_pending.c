#include "agent_pending.h"

#include "agent_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PENDING_MAX = 8, PENDING_MS = 2000, RETRY_MS = 20 };

struct pending {
    uint32_t run; /* 0: free */
    unsigned char *bytes;
    size_t size;
    int64_t next_ms;
    int64_t give_up_ms;
};

static struct pending all[PENDING_MAX];
static size_t waiting_bytes; /* AGENT_START_MAX in all */

static struct pending *find(uint32_t run)
{
    for (size_t i = 0; i < PENDING_MAX; i++)
        if (all[i].run == run)
            return &all[i];
    return NULL;
}

static void clear(struct pending *pending)
{
    free(pending->bytes);
    waiting_bytes -= pending->size;
    *pending = (struct pending){0};
}

bool agent_pending_has(uint32_t run)
{
    return run && find(run);
}

bool agent_pending_add(uint32_t run, const unsigned char *bytes, size_t size)
{
    struct pending *pending = find(0);
    unsigned char *copy;

    if (!pending || size > AGENT_START_MAX - waiting_bytes)
        return false;
    copy = malloc(size);
    if (!copy)
        return false;
    memcpy(copy, bytes, size);
    waiting_bytes += size;
    *pending = (struct pending){
        .run = run, .bytes = copy, .size = size, .next_ms = agent_now_ms(), .give_up_ms = agent_now_ms() + PENDING_MS};
    return true;
}

static int try_start(const struct pending *pending)
{
    struct agent_start_request request;
    int error = agent_start_parse(pending->bytes, pending->size, &request);

    if (error)
        return error;
    error = agent_run_start(pending->run, &request);
    free(request.block);
    return error;
}

bool agent_pending_next(uint32_t *ret_run, int *ret_errno)
{
    for (size_t i = 0; i < PENDING_MAX; i++) {
        struct pending *pending = &all[i];
        int64_t now_ms;

        if (!pending->run)
            continue;
        now_ms = agent_now_ms();
        if (now_ms >= pending->next_ms) {
            int error = try_start(pending);

            if (error != EAGAIN || now_ms >= pending->give_up_ms) {
                *ret_run = pending->run;
                *ret_errno = error;
                clear(pending);
                return true;
            }
            agent_run_clear_leftovers();
            pending->next_ms = now_ms + RETRY_MS;
        }
        agent_watch_wake_at(pending->next_ms);
    }
    return false;
}

bool agent_pending_drop(uint32_t run)
{
    if (!agent_pending_has(run))
        return false;
    clear(find(run));
    return true;
}

void agent_pending_clear(void)
{
    for (size_t i = 0; i < PENDING_MAX; i++)
        clear(&all[i]);
}
