/* Watched runs: read by whoever comes, from where they want, and by nobody for a while. */
#include "agent_private.h"

#include <assert.h>

void run_tell_end_locked(struct agent_run *run)
{
    if (run->cookie)
        hub_tell_end(run->link->hub, run->cookie);
    run->cookie = 0;
}

int run_append_watch_locked(struct agent_run *run, struct error *err)
{
    bool wanted = run->wants_reader;

    run->wants_reader = false;
    return wanted ? agent_frame_append(&run->link->queue, AGENT_READER, 0, run->number, 0, &run->reader,
                                       sizeof run->reader, err)
                  : 0;
}

int run_placed_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err)
{
    struct agent_place place;

    if (!run->watched)
        return fail(err, ENGINE, "run %u placed without being watched", run->number);
    if (agent_frame_place(frame, &place, err) < 0)
        return -1;
    if (frame->header.offset != run->reader.ticket || run->placed || !(run->reader.flags & AGENT_READER_STREAMS))
        return 0; /* of an earlier reader */
    if (place.out > run->reader.out || place.err > run->reader.err)
        return fail(err, ENGINE, "run %u placed behind where it was asked for", run->number);
    run->placed = true;
    run->misplaced = (place.out < run->reader.out && run->reader.out != AGENT_SEEK_END) || place.err < run->reader.err;
    run->received[0] = run->place = place.out;
    run->received[1] = place.err;
    run->window_bytes = AGENT_RUN_CREDIT;
    run_touch_locked(run);
    return 0;
}

int run_ended_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err)
{
    struct run_exit said;

    if (!run->watched)
        return fail(err, ENGINE, "end of run %u, which is not watched", run->number);
    if (run->has_exit || run->state >= RUN_ENDED)
        return fail(err, ENGINE, "run %u ended twice", run->number);
    if (run_said_locked(run, frame, &said, err) < 0)
        return -1;
    run->exit = said;
    run->has_exit = true;
    run_uncount_locked(run);
    run_tell_end_locked(run);
    run_touch_locked(run);
    if (run->discard)
        run_discard_locked(run);
    return 0;
}

int agent_run_wait_started(struct agent_run *run, const struct cancel *cancel, struct error *err)
{
    struct agent_link *link = run->link;
    int result = 0;

    (void)pthread_mutex_lock(&link->lock);
    while (result == 0 && run->state == RUN_STARTING)
        result = waitq_wait(&run->writers, &link->lock, cancel, err);
    if (result == 0 && run->state == RUN_REFUSED)
        result = run_refused(run, err);
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

int agent_run_seek(struct agent_run *run, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                   uint64_t *ret_place, struct error *err)
{
    struct agent_link *link = run->link;
    int result = 0;

    (void)pthread_mutex_lock(&link->lock);
    assert(run->watched);
    run_clear_output_locked(run);
    run->given[0] = run->given_taken[0] = out;
    run->given[1] = run->given_taken[1] = err_offset;
    run->placed = run->misplaced = run->is_interrupted = false;
    if (agent_link_alive(link) && !run->is_cut) {
        run->state = run->state == RUN_ENDED ? RUN_RUNNING : run->state;
        run->reader = (struct agent_reader){
            .ticket = run->reader.ticket + 1, .out = out, .err = err_offset, .flags = AGENT_READER_STREAMS};
        run->wants_reader = true;
        run_pend_locked(run, true);
        link_flush_locked(link);
    } else {
        run->is_cut = true;
        run->state = RUN_ENDED;
    }
    while (result == 0 && !run->placed && run->state < RUN_ENDED && !run->is_interrupted)
        result = waitq_wait(&run->readers, &link->lock, cancel, err);
    if (result == 0 && run->placed) {
        *ret_place = run->place;
        if (out == AGENT_SEEK_END)
            run->given[0] = run->given_taken[0] = run->place;
    }
    if (result == 0 && run->misplaced)
        result = fail(err, INVALID, "after: beyond what was written so far");
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

void agent_run_leave(struct agent_run *run, uint32_t hold_ms)
{
    struct agent_link *link = run->link;

    (void)pthread_mutex_lock(&link->lock);
    run_clear_output_locked(run);
    run->placed = false;
    if (run->state < RUN_ENDED || run->has_exit) {
        run->reader = (struct agent_reader){.ticket = run->reader.ticket + 1, .hold_ms = hold_ms};
        run->wants_reader = true;
        run_pend_locked(run, true);
        link_flush_locked(link);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

void agent_run_interrupt(struct agent_run *run)
{
    (void)pthread_mutex_lock(&run->link->lock);
    run->is_interrupted = true;
    waitq_wake_all(&run->readers);
    (void)pthread_mutex_unlock(&run->link->lock);
}

bool agent_run_ended(struct agent_run *run, struct run_exit *ret_exit)
{
    bool ended;

    (void)pthread_mutex_lock(&run->link->lock);
    ended = run->has_exit || run->state == RUN_ENDED;
    *ret_exit = run->exit;
    (void)pthread_mutex_unlock(&run->link->lock);
    return ended;
}

bool agent_run_cut(const struct agent_run *run)
{
    return run->is_cut;
}

void agent_run_watch(struct agent_run *run, uint64_t cookie)
{
    (void)pthread_mutex_lock(&run->link->lock);
    run->cookie = cookie;
    if (run->has_exit || run->state >= RUN_ENDED)
        run_tell_end_locked(run);
    (void)pthread_mutex_unlock(&run->link->lock);
}

void agent_run_signal(struct agent_run *run, int number)
{
    (void)pthread_mutex_lock(&run->link->lock);
    if (run->state < RUN_ENDED && number > 0 && number < 64) {
        run->wanted_signals |= 1ull << number;
        run_pend_locked(run, true);
        link_flush_locked(run->link);
    }
    (void)pthread_mutex_unlock(&run->link->lock);
}

void agent_run_resize(struct agent_run *run, unsigned rows, unsigned cols)
{
    (void)pthread_mutex_lock(&run->link->lock);
    if (run->state < RUN_ENDED) {
        run->window_size = (uint64_t)rows << 32 | cols;
        run->wants_resize = true;
        run_pend_locked(run, true);
        link_flush_locked(run->link);
    }
    (void)pthread_mutex_unlock(&run->link->lock);
}
