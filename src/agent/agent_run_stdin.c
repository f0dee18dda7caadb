/* Standard input of a run: bytes go as the agent's window allows, by the thread that has them. */
#include "agent_private.h"

int run_stdin_credit_locked(struct agent_run *run, uint64_t bytes, struct error *err)
{
    if (!run->stdin_open)
        return 0; /* of a run that another broker wrote to, or whose end was said */
    if (bytes > AGENT_STDIN_WINDOW - run->stdin_window_bytes)
        return fail(err, ENGINE, "more credit for the input of run %u than was used", run->number);
    run->stdin_window_bytes += (uint32_t)bytes;
    waitq_wake_all(&run->writers);
    return 0;
}

/* Not before STARTED: the agent may still be waiting for a process to start it with, and does not know the run until then. */
int run_append_stdin_eof_locked(struct agent_run *run, struct error *err)
{
    if (!run->wants_stdin_eof || run->state == RUN_STARTING)
        return 0;
    run->wants_stdin_eof = false;
    return run->state == RUN_RUNNING
               ? agent_frame_append(&run->link->queue, AGENT_STDIN_EOF, 0, run->number, run->stdin_sent, NULL, 0, err)
               : 0;
}

/* Wait until some of it may go. 1: it may; 0: the run has ended. */
static int wait_window_locked(struct agent_run *run, const struct cancel *cancel, struct error *err)
{
    struct agent_link *link = run->link;

    for (;;) {
        if (run->state >= RUN_ENDED)
            return agent_link_alive(link) ? 0 : link_gone_locked(link, err);
        if (run->state == RUN_RUNNING && run->stdin_window_bytes > 0) {
            if (link_wait_room_locked(link, cancel, err) < 0)
                return -1;
            if (run->state == RUN_RUNNING)
                return 1;
        } else if (waitq_wait(&run->writers, &link->lock, cancel, err) < 0) {
            return -1;
        }
    }
}

static int send_part_locked(struct agent_run *run, const char *data, size_t size, size_t *ret_part, struct error *err)
{
    struct error why = ERROR_INIT;
    size_t part = size < run->stdin_window_bytes ? size : run->stdin_window_bytes;

    if (part > AGENT_PAYLOAD_MAX)
        part = AGENT_PAYLOAD_MAX;
    if (agent_frame_append(&run->link->queue, AGENT_STDIN, 0, run->number, run->stdin_sent, data, part, &why) < 0)
        link_die_locked(run->link, &why, false);
    else
        link_flush_locked(run->link);
    if (!agent_link_alive(run->link))
        return link_gone_locked(run->link, err);
    run->stdin_window_bytes -= (uint32_t)part;
    run->stdin_sent += part;
    *ret_part = part;
    return 0;
}

int agent_run_stdin_write(struct agent_run *run, const void *data, size_t size, const struct cancel *cancel,
                          struct error *err)
{
    struct agent_link *link = run->link;
    const char *at = data;
    int result = 1;

    (void)pthread_mutex_lock(&link->lock);
    if (!run->stdin_open)
        result = fail(err, INVALID, "the run has no standard input that is open");
    while (result > 0 && size > 0 && (result = wait_window_locked(run, cancel, err)) > 0) {
        size_t part = 0;

        if (send_part_locked(run, at, size, &part, err) < 0) {
            result = -1;
            break;
        }
        at += part;
        size -= part;
    }
    (void)pthread_mutex_unlock(&link->lock);
    return result < 0 ? -1 : 0;
}

void agent_run_stdin_eof(struct agent_run *run)
{
    struct agent_link *link = run->link;

    (void)pthread_mutex_lock(&link->lock);
    if (run->stdin_open && run->state < RUN_ENDED) {
        run->wants_stdin_eof = true;
        run_pend_locked(run, true);
        link_flush_locked(link);
    }
    run->stdin_open = false;
    (void)pthread_mutex_unlock(&link->lock);
}
