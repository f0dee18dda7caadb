#include "agent_private.h"

#include "alloc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Output is kept as records in one buffer: a word with size, stream and "gap" bits, the gap's length if the bit is set,
 * the bytes. Frames that continue the last record make it longer. The hub appends to `fill`; the reader exchanges it
 * against its empty `drain` and reads that without a lock. One byte a frame and streams in turn cost five bytes each.
 */
enum {
    RECORD_STDERR = 1u << 31,
    RECORD_GAP = 1u << 30,
    RECORD_SIZE = RECORD_GAP - 1,
    RECORD_GAPS_BYTES = 64 * 1024, /* for gaps: an honest agent makes one or two */
    FILL_MAX_BYTES = AGENT_RUN_CREDIT * (1 + sizeof(uint32_t)) + RECORD_GAPS_BYTES,
    IDLE_KEPT_BYTES = 16 * 1024,
};

static struct agent_run *run_new(struct agent_link *link, uint32_t number)
{
    struct agent_run *run = alloc_zero(sizeof *run);

    run->link = link;
    run->number = number;
    run->window_bytes = AGENT_RUN_CREDIT;
    run->fill = (struct buf)BUF_INIT(FILL_MAX_BYTES);
    run->drain = (struct buf)BUF_INIT(FILL_MAX_BYTES);
    return run;
}

static struct agent_run_list *bucket(struct agent_link *link, uint32_t number)
{
    return &link->runs[number % LINK_BUCKETS];
}

static void insert_locked(struct agent_run *run)
{
    struct agent_link *link = run->link;

    LIST_INSERT_HEAD(bucket(link, run->number), run, entry);
    link->run_count++;
    if (run->number > link->highest_run)
        link->highest_run = run->number;
    atomic_fetch_add(&link->running, 1);
    run->is_counted = true;
}

void run_uncount_locked(struct agent_run *run)
{
    if (run->is_counted)
        atomic_fetch_sub(&run->link->running, 1);
    run->is_counted = false;
}

struct agent_run *run_find_locked(struct agent_link *link, uint32_t number)
{
    struct agent_run *run;

    LIST_FOREACH(run, bucket(link, number), entry)
    if (run->number == number)
        return run;
    return NULL;
}

/* The end of a run as the hub sees it; `state` is RUN_ENDED or RUN_REFUSED. */
static void end_locked(struct agent_run *run, enum run_state state)
{
    run_uncount_locked(run);
    run->state = state;
}

static void lose_locked(struct agent_run *run)
{
    if (!run->has_exit)
        run->exit = (struct run_exit){
            .lost = true, .exit_code = -1, .stdout_bytes = run->received[0], .stderr_bytes = run->received[1]};
    run->is_cut = true;
    end_locked(run, RUN_ENDED);
    run_tell_end_locked(run);
}

static void forget_exit_locked(struct agent_run *run)
{
    if (run->has_exit && !run->watched)
        hub_tick_want(run->link->hub, -1);
    run->has_exit = run->has_exit && run->watched;
}

static void remove_locked(struct agent_run *run)
{
    struct agent_link *link = run->link;

    end_locked(run, RUN_ENDED);
    forget_exit_locked(run);
    LIST_REMOVE(run, entry);
    link->run_count--;
    if (run->is_touched)
        LIST_REMOVE(run, touched_entry);
    if (run->is_pending) {
        STAILQ_REMOVE(&link->pending, run, agent_run, pending_entry);
        link->pending_count--;
    }
    buf_done(&run->fill);
    buf_done(&run->drain);
    free(run);
}

void run_touch_locked(struct agent_run *run)
{
    if (run->is_touched)
        return;
    run->is_touched = true;
    LIST_INSERT_HEAD(&run->link->touched, run, touched_entry);
}

void run_wake_touched_locked(struct agent_link *link)
{
    struct agent_run *run;

    while ((run = LIST_FIRST(&link->touched))) {
        LIST_REMOVE(run, touched_entry);
        run->is_touched = false;
        waitq_wake_all(&run->readers);
        waitq_wake_all(&run->writers);
    }
}

void run_lose_all_locked(struct agent_link *link)
{
    for (size_t i = 0; i < LINK_BUCKETS; i++) {
        struct agent_run *run;
        struct agent_run *next;

        for (run = LIST_FIRST(&link->runs[i]); run; run = next) {
            next = LIST_NEXT(run, entry);
            if (run->state < RUN_ENDED)
                lose_locked(run);
            forget_exit_locked(run);
            waitq_wake_all(&run->readers);
            waitq_wake_all(&run->writers);
            if (!run->held)
                remove_locked(run);
        }
    }
}

void run_pend_locked(struct agent_run *run, bool is_urgent)
{
    struct agent_link *link = run->link;

    if (!run->is_pending) {
        run->is_pending = true;
        STAILQ_INSERT_TAIL(&link->pending, run, pending_entry);
        link->pending_count++;
    }
    if (is_urgent || link->pending_count >= LINK_LAZY_ACKS)
        link->is_urgent = true;
}

static uint64_t unacked(const struct agent_run *run)
{
    return run->taken[0] - run->acked[0] + run->taken[1] - run->acked[1];
}

static int append_orders_locked(struct agent_run *run, struct error *err)
{
    struct buf *queue = &run->link->queue;
    uint64_t signals = run->state < RUN_ENDED ? run->wanted_signals : 0;

    for (unsigned number = 1; number < 64; number++)
        if ((signals >> number & 1) &&
            agent_frame_append(queue, AGENT_SIGNAL, 0, run->number, number, NULL, 0, err) < 0)
            return -1;
    run->wanted_signals = 0;
    if (run->wants_resize && run->state < RUN_ENDED &&
        agent_frame_append(queue, AGENT_RESIZE, 0, run->number, run->window_size, NULL, 0, err) < 0)
        return -1;
    run->wants_resize = false;
    return 0;
}

int run_append_pending_locked(struct agent_run *run, struct error *err)
{
    struct buf *queue = &run->link->queue;

    if (run->watched && run_append_watch_locked(run, err) < 0)
        return -1;
    if (run->wants_reader && !run->watched &&
        agent_frame_append(queue, AGENT_READER, 0, run->number, 1, NULL, 0, err) < 0)
        return -1;
    run->wants_reader = false;
    if (run_append_stdin_eof_locked(run, err) < 0 || append_orders_locked(run, err) < 0)
        return -1;
    if (run->wants_stop && run->state < RUN_ENDED) {
        if (agent_frame_append(queue, AGENT_STOP, 0, run->number, 0, NULL, 0, err) < 0)
            return -1;
        run->stop_sent = true;
    }
    run->wants_stop = false;
    if (run->credit_owed_bytes >= RUN_CREDIT_BACK_BYTES && run->state < RUN_ENDED) {
        if (agent_frame_append(queue, AGENT_CREDIT, 0, run->number, run->credit_owed_bytes, NULL, 0, err) < 0)
            return -1;
        run->window_bytes += run->credit_owed_bytes;
        run->credit_owed_bytes = 0;
    }
    if (unacked(run) > 0 || run->wants_exit_ack) {
        if (agent_frame_append_ack(queue, run->number, run->taken[0], run->taken[1], run->wants_exit_ack, err) < 0)
            return -1;
        memcpy(run->acked, run->taken, sizeof run->acked);
        if (run->wants_exit_ack)
            remove_locked(run); /* wanted only when nobody holds it */
    }
    return 0;
}

/* Everything that came and will come is of no use: acknowledge it. The run goes when its EXIT is acknowledged. */
void run_discard_locked(struct agent_run *run)
{
    run->discard = true;
    buf_done(&run->fill);
    memcpy(run->taken, run->received, sizeof run->taken);
    run->credit_owed_bytes = AGENT_RUN_CREDIT - run->window_bytes;
    if (run->state < RUN_ENDED && !run->has_exit) {
        run->wants_stop = !run->stop_sent;
        run_pend_locked(run, true);
    } else if (run->has_exit && agent_link_alive(run->link)) {
        run->taken[0] = run->exit.stdout_bytes;
        run->taken[1] = run->exit.stderr_bytes;
        run->wants_exit_ack = true;
        run_pend_locked(run, run->watched); /* no tick comes for the others' sake */
    } else {
        remove_locked(run);
    }
}

int run_greeted_locked(struct agent_link *link, const struct agent_run_state *state, bool is_known, struct error *err)
{
    struct agent_run *run;

    if (state->run == 0 || state->out_acked > INT64_MAX || state->err_acked > INT64_MAX ||
        run_find_locked(link, state->run))
        return fail(err, ENGINE, "greeting with run %u out of order", state->run);
    run = run_new(link, state->run);
    run->state = RUN_RUNNING;
    run->watched = state->flags & AGENT_RUN_WATCHED;
    run->stdin_open = state->flags & AGENT_RUN_STDIN;
    run->stdin_sent = state->in_received;
    run->stdin_window_bytes = state->in_waiting < AGENT_STDIN_WINDOW ? AGENT_STDIN_WINDOW - state->in_waiting : 0;
    for (int stream = 0; stream < 2; stream++) {
        uint64_t acked = stream ? state->err_acked : state->out_acked;

        run->received[stream] = run->acked[stream] = run->taken[stream] = acked;
        run->given[stream] = run->given_taken[stream] = acked;
    }
    insert_locked(run);
    if (!is_known)
        run_discard_locked(run);
    return 0;
}

static int append_record(struct agent_run *run, enum run_stream stream, uint64_t gap, const char *data, uint32_t size,
                         struct error *err)
{
    struct buf *fill = &run->fill;
    const uint32_t stream_bit = stream == RUN_STDERR ? RECORD_STDERR : 0;
    uint32_t word;
    char *space;

    if (fill->size > 0 && gap == 0) {
        memcpy(&word, fill->data + run->fill_last, sizeof word);
        if ((word & RECORD_STDERR) == stream_bit) {
            if (buf_append(fill, data, size, err) < 0)
                return -1;
            word += size;
            memcpy(fill->data + run->fill_last, &word, sizeof word);
            return 0;
        }
    }
    /* All of the record or nothing: what had come is read even when the link ends here. */
    if (buf_reserve(fill, sizeof word + sizeof gap + size, &space, err) < 0)
        return -1;
    run->fill_last = fill->size;
    word = size | stream_bit | (gap ? RECORD_GAP : 0);
    memcpy(space, &word, sizeof word);
    space += sizeof word;
    if (gap) {
        memcpy(space, &gap, sizeof gap);
        space += sizeof gap;
    }
    memcpy(space, data, size);
    buf_commit(fill, sizeof word + (gap ? sizeof gap : 0) + size);
    return 0;
}

static int output_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err)
{
    const enum run_stream stream = frame->header.type == AGENT_ERR ? RUN_STDERR : RUN_STDOUT;
    const uint64_t offset = frame->header.offset;
    const uint32_t size = frame->header.length;

    if (run->watched && !run->placed)
        return 0; /* of an earlier reader */
    if (run->state >= RUN_ENDED)
        return fail(err, ENGINE, "output of run %u after its end", run->number);
    if (size == 0 || frame->header.flags != 0)
        return fail(err, ENGINE, "output frame of %u bytes", size);
    if (size > run->window_bytes)
        return fail(err, ENGINE, "output of run %u beyond its credit", run->number);
    if (offset < run->received[stream] || offset > (uint64_t)INT64_MAX - size)
        return fail(err, ENGINE, "output of run %u out of order", run->number);
    run->state = RUN_RUNNING;
    run->window_bytes -= size;
    if (run->discard) {
        run->received[stream] = run->taken[stream] = offset + size;
        run->credit_owed_bytes += size;
        if (run->credit_owed_bytes >= RUN_CREDIT_BACK_BYTES)
            run_pend_locked(run, true);
        return 0;
    }
    if (append_record(run, stream, offset - run->received[stream], frame->payload, size, err) < 0)
        return error_prefix(err, "output of run %u", run->number);
    run->received[stream] = offset + size;
    run_touch_locked(run);
    return 0;
}

int run_said_locked(struct agent_run *run, const struct agent_frame *frame, struct run_exit *ret, struct error *err)
{
    if (agent_frame_exit(frame, ret, err) < 0)
        return -1;
    if (ret->stdout_bytes < run->received[0] || ret->stderr_bytes < run->received[1] || ret->stdout_bytes > INT64_MAX ||
        ret->stderr_bytes > INT64_MAX)
        return fail(err, ENGINE, "run %u ended with less output than came", run->number);
    return 0;
}

static int exit_locked(struct agent_run *run, const struct agent_frame *frame, struct error *err)
{
    struct run_exit said;

    if (run->watched && !run->placed)
        return 0; /* of an earlier reader */
    if (run->state >= RUN_ENDED)
        return fail(err, ENGINE, "run %u ended twice", run->number);
    if (run_said_locked(run, frame, &said, err) < 0)
        return -1;
    end_locked(run, RUN_ENDED);
    if (run->watched) { /* the end of this reading: how the run ended was told by ENDED */
        run_touch_locked(run);
        return run->has_exit ? 0 : fail(err, ENGINE, "run %u ended without a word", run->number);
    }
    run->exit = said;
    run->has_exit = true;
    hub_tick_want(run->link->hub, 1);
    run_touch_locked(run);
    if (run->discard)
        run_discard_locked(run);
    return 0;
}

int run_frame_locked(struct agent_link *link, const struct agent_frame *frame, struct error *err)
{
    const uint32_t number = frame->header.run;
    struct agent_run *run = run_find_locked(link, number);

    if (number == 0 || number > link->highest_run)
        return fail(err, ENGINE, "frame of run %u, which nobody started", number);
    if (!run)
        return 0; /* its end crossed what was said about it */
    switch (frame->header.type) {
    case AGENT_OUT:
    case AGENT_ERR:
        return output_locked(run, frame, err);
    case AGENT_EXIT:
        return exit_locked(run, frame, err);
    case AGENT_PLACED:
        return run_placed_locked(run, frame, err);
    case AGENT_ENDED:
        return run_ended_locked(run, frame, err);
    case AGENT_STARTED:
        if (run->state == RUN_STARTING)
            run->state = RUN_RUNNING;
        if (run->wants_stdin_eof)
            run_pend_locked(run, true);
        waitq_wake_all(&run->writers);
        return 0;
    case AGENT_REFUSED:
        if (run->state != RUN_STARTING)
            return fail(err, ENGINE, "run %u refused after it began", number);
        run->refused_errno = frame->header.offset <= 4095 ? (int)frame->header.offset : EINVAL;
        end_locked(run, RUN_REFUSED);
        run_tell_end_locked(run);
        break;
    case AGENT_GONE:
        if (run->state >= RUN_ENDED)
            return 0;
        lose_locked(run);
        break;
    case AGENT_STDIN_CREDIT:
        return run_stdin_credit_locked(run, frame->header.offset, err);
    default:
        return 0;
    }
    run_touch_locked(run);
    if (run->discard)
        remove_locked(run);
    return 0;
}

int agent_run_start(struct agent_link *link, uint32_t number, const struct run_spec *spec, const struct cancel *cancel,
                    bool *ret_sent, struct agent_run **ret_run, struct error *err)
{
    auto_buf struct buf frames = BUF_INIT(AGENT_START_MAX);
    struct agent_run *run = NULL;
    int result;

    *ret_sent = false;
    assert(number != 0);
    if (agent_frame_append_start(&frames, number, hub_epoch(link->hub), spec, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&link->lock);
    result = link_wait_room_locked(link, cancel, err);
    if (result == 0 && link->run_count >= AGENT_RUNS_MAX) {
        link_flush_locked(link); /* some may only wait for their last word */
        if (!agent_link_alive(link))
            result = link_gone_locked(link, err);
        else if (link->run_count >= AGENT_RUNS_MAX)
            result = fail(err, LIMIT, "%u runs in this sandbox", link->run_count);
    }
    if (result == 0 && run_find_locked(link, number))
        result = fail(err, INTERNAL, "run %u is there already", number);
    if (result == 0) {
        run = run_new(link, number);
        run->held = true;
        run->stdin_open = spec->stdin_open;
        run->watched = spec->watch;
        run->stdin_window_bytes = AGENT_STDIN_WINDOW;
        insert_locked(run);
        result = link_send_locked(link, &frames, cancel, ret_sent, err);
        if (result == 0) {
            (void)agent_link_ref(link);
        } else {
            run->held = false;
            run_discard_locked(run); /* with a STOP if the link is alive */
            run = NULL;
            link_flush_locked(link);
        }
    }
    (void)pthread_mutex_unlock(&link->lock);
    if (result == 0)
        *ret_run = run;
    return result;
}

int agent_run_resume(struct agent_link *link, uint32_t number, bool has_reader, struct agent_run **ret_run,
                     struct error *err)
{
    struct agent_run *run;
    int result = 0;

    (void)pthread_mutex_lock(&link->lock);
    run = run_find_locked(link, number);
    if (!agent_link_alive(link)) {
        result = link_gone_locked(link, err);
    } else if (!run || run->held || run->discard) {
        result = fail(err, NOT_FOUND, "the agent does not know run %u", number);
    } else {
        run->held = true;
        (void)agent_link_ref(link);
        if (has_reader && !run->watched) {
            run->wants_reader = true;
            run_pend_locked(run, true);
            link_flush_locked(link);
        }
        *ret_run = run;
    }
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

/* The chunk that is out is of no use any more. */
static void take_chunk(struct agent_run *run)
{
    run->given_taken[run->chunk_stream] = run->given[run->chunk_stream];
    run->given_owed_bytes += run->chunk_bytes;
    run->chunk_bytes = 0;
}

static bool next_record(struct agent_run *run, struct run_chunk *ret_chunk)
{
    const char *at = run->drain.data + run->drain_at;
    enum run_stream stream;
    uint64_t gap = 0;
    uint32_t word;

    if (run->drain_at == run->drain.size)
        return false;
    memcpy(&word, at, sizeof word);
    at += sizeof word;
    if (word & RECORD_GAP) {
        memcpy(&gap, at, sizeof gap);
        at += sizeof gap;
    }
    stream = word & RECORD_STDERR ? RUN_STDERR : RUN_STDOUT;
    run->chunk_bytes = word & RECORD_SIZE;
    run->chunk_stream = stream;
    run->drain_at = (size_t)(at - run->drain.data) + run->chunk_bytes;
    *ret_chunk = (struct run_chunk){
        .stream = stream, .data = at, .size = run->chunk_bytes, .offset = run->given[stream] + gap, .dropped = gap};
    run->given[stream] += gap + run->chunk_bytes;
    return true;
}

/* Tell the link what the reader took; `is_idle` when the reader is about to wait. */
static void settle_locked(struct agent_run *run, bool is_idle)
{
    run->credit_owed_bytes += run->given_owed_bytes;
    run->given_owed_bytes = 0;
    for (int stream = 0; stream < 2; stream++)
        if (run->given_taken[stream] > run->taken[stream]) /* a watched run is read again from earlier places */
            run->taken[stream] = run->given_taken[stream];
    if (!agent_link_alive(run->link))
        return;
    if (run->credit_owed_bytes >= RUN_CREDIT_BACK_BYTES ||
        unacked(run) >= (is_idle ? RUN_ACK_IDLE_BYTES : RUN_CREDIT_BACK_BYTES)) {
        run_pend_locked(run, true);
        link_flush_locked(run->link);
    }
}

void run_clear_output_locked(struct agent_run *run)
{
    buf_done(&run->fill);
    buf_done(&run->drain);
    run->fill_last = run->drain_at = 0;
    run->credit_owed_bytes = run->given_owed_bytes = run->chunk_bytes = 0;
}

static void exchange_locked(struct agent_run *run)
{
    struct buf drained = run->drain;

    run->drain = run->fill;
    run->drain_at = 0;
    run->fill = drained;
    run->fill_last = 0;
    buf_clear(&run->fill);
}

static void shrink_locked(struct agent_run *run)
{
    if (run->drain.capacity > IDLE_KEPT_BYTES) {
        buf_done(&run->drain);
        run->drain_at = 0;
    }
    if (run->fill.capacity > IDLE_KEPT_BYTES)
        buf_done(&run->fill);
}

int run_refused(const struct agent_run *run, struct error *err)
{
    if (run->refused_errno == E2BIG || run->refused_errno == EINVAL)
        return error_set(err, ERROR_INVALID, run->refused_errno, "the agent refused to start it: %s",
                         strerror(run->refused_errno));
    return error_set(err, ERROR_LIMIT, run->refused_errno, "the sandbox has no room for another run");
}

int agent_run_next(struct agent_run *run, const struct cancel *cancel, struct run_chunk *ret_chunk, struct error *err)
{
    struct agent_link *link = run->link;
    bool waited = false;
    int result = 1;

    take_chunk(run);
    if (run->given_owed_bytes < RUN_CREDIT_BACK_BYTES && next_record(run, ret_chunk))
        return 1;
    (void)pthread_mutex_lock(&link->lock);
    settle_locked(run, false);
    while (result == 1 && run->drain_at == run->drain.size) {
        if (run->is_interrupted) {
            run->is_interrupted = false;
            result = fail(err, CONFLICT, "somebody else reads run %u", run->number);
        } else if (run->fill.size > 0) {
            exchange_locked(run);
        } else if (run->state == RUN_REFUSED) {
            result = run_refused(run, err);
        } else if (run->state == RUN_ENDED) {
            result = 0;
        } else {
            settle_locked(run, true);
            if (run->fill.size > 0 || run->state >= RUN_ENDED)
                continue; /* the link died of it */
            shrink_locked(run);
            waited = true;
            if (waitq_wait(&run->readers, &link->lock, cancel, err) < 0)
                result = -1;
        }
    }
    (void)pthread_mutex_unlock(&link->lock);
    /* A run that never pauses must not keep a reader who is no longer wanted. */
    if (result == 1 && !waited && cancel_check(cancel, err) < 0)
        result = -1;
    if (result == 1)
        (void)next_record(run, ret_chunk);
    return result;
}

const struct run_exit *agent_run_exit(const struct agent_run *run)
{
    return &run->exit;
}

void agent_run_stop(struct agent_run *run)
{
    struct agent_link *link = run->link;

    (void)pthread_mutex_lock(&link->lock);
    if (run->state < RUN_ENDED && !run->stop_sent && !run->wants_stop) {
        run->wants_stop = true;
        run_pend_locked(run, true);
        link_flush_locked(link);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

void agent_run_free(struct agent_run *run)
{
    struct agent_link *link;

    if (!run)
        return;
    link = run->link;
    (void)pthread_mutex_lock(&link->lock);
    run->held = false;
    run_discard_locked(run);
    if (link->is_urgent)
        link_flush_locked(link);
    (void)pthread_mutex_unlock(&link->lock);
    agent_link_unref(link);
}
