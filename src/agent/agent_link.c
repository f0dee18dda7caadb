#include "agent_private.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { READS_IN_A_ROW = 4, PARTIAL_KEPT_BYTES = 4096 };

struct agent_link *link_new(struct agent_hub *hub, struct net_stream *stream, const uint32_t *known, size_t known_count)
{
    struct agent_link *link = alloc_zero(sizeof *link);

    link->hub = hub;
    atomic_init(&link->users, 1);
    atomic_init(&link->references, 1);
    atomic_init(&link->state, LINK_GREETING);
    link->partial = (struct buf)BUF_INIT(AGENT_HEADER_BYTES + AGENT_PAYLOAD_MAX);
    link->queue = (struct buf)BUF_INIT(LINK_QUEUE_MAX_BYTES);
    (void)pthread_mutex_init(&link->lock, NULL);
    link->stream = stream;
    id_random_bytes(&link->nonce, sizeof link->nonce);
    link->window_bytes = AGENT_LINK_CREDIT;
    if (known_count) {
        link->known = alloc_array(known_count, sizeof *known);
        memcpy(link->known, known, known_count * sizeof *known);
        link->known_count = known_count;
    }
    for (size_t i = 0; i < LINK_BUCKETS; i++)
        LIST_INIT(&link->runs[i]);
    STAILQ_INIT(&link->pending);
    LIST_INIT(&link->touched);
    LIST_INIT(&link->usages);
    link->has_more = true; /* the stream may hold bytes that no poll tells of */
    hub_tick_want(hub, 1); /* HELLO is repeated */
    return link;
}

void link_drop(struct agent_link *link)
{
    if (atomic_fetch_sub(&link->references, 1) != 1)
        return;
    assert(!link->stream && link->run_count == 0);
    buf_done(&link->partial);
    buf_done(&link->queue);
    free(link->known);
    (void)pthread_mutex_destroy(&link->lock);
    free(link);
}

struct agent_link *agent_link_ref(struct agent_link *link)
{
    atomic_fetch_add(&link->users, 1);
    return link;
}

void agent_link_unref(struct agent_link *link)
{
    if (!link || atomic_fetch_sub(&link->users, 1) != 1)
        return;
    agent_link_close(link);
    link_drop(link);
}

bool agent_link_alive(const struct agent_link *link)
{
    return atomic_load(&link->state) == LINK_OPEN;
}

unsigned agent_link_running(const struct agent_link *link)
{
    return atomic_load(&link->running);
}

static bool is_dead(const struct agent_link *link)
{
    return atomic_load(&link->state) == LINK_DEAD;
}

int link_gone_locked(const struct agent_link *link, struct error *err)
{
    return fail(err, GONE, "the sandbox's agent is gone: %s", link->death.text);
}

void link_die_locked(struct agent_link *link, const struct error *why, bool is_fault)
{
    struct usage_wait *usage;

    if (is_dead(link))
        return;
    if (is_fault && agent_link_alive(link))
        log_warn("agent.link.fault", log_e(why));
    if (!agent_link_alive(link))
        hub_tick_want(link->hub, -1);
    link->death = *why;
    atomic_store(&link->state, LINK_DEAD);
    hub_forget_stream(link->hub, link);
    net_stream_close(take_ptr(link->stream));
    buf_done(&link->queue);
    link->queue_sent = 0;
    run_lose_all_locked(link);
    LIST_FOREACH(usage, &link->usages, entry)
    waitq_wake_all(&usage->answered);
    waitq_wake_all(&link->life);
    waitq_wake_all(&link->room);
    hub_wake(link->hub);
}

void agent_link_close(struct agent_link *link)
{
    struct error why = ERROR_INIT;

    (void)fail(&why, GONE, "the link was closed");
    (void)pthread_mutex_lock(&link->lock);
    link_die_locked(link, &why, false);
    (void)pthread_mutex_unlock(&link->lock);
}

static size_t queue_left(const struct agent_link *link)
{
    return link->queue.size - link->queue_sent;
}

/* Turn what is owed to the agent into frames, as long as the queue is short. */
static int append_pending_locked(struct agent_link *link, struct error *err)
{
    while (queue_left(link) < LINK_QUEUE_SOFT_BYTES) {
        struct agent_run *run = STAILQ_FIRST(&link->pending);

        if (link->credit_owed_bytes >= LINK_CREDIT_BACK_BYTES) {
            if (agent_frame_append(&link->queue, AGENT_CREDIT, 0, 0, link->credit_owed_bytes, NULL, 0, err) < 0)
                return -1;
            link->window_bytes += link->credit_owed_bytes;
            link->credit_owed_bytes = 0;
        } else if (run) {
            STAILQ_REMOVE_HEAD(&link->pending, pending_entry);
            run->is_pending = false;
            link->pending_count--;
            if (run_append_pending_locked(run, err) < 0)
                return -1;
        } else {
            break;
        }
    }
    return 0;
}

/* Hand the queue to the stream. 0: all of it, 1: it takes no more for now, -1: it is broken. */
static int write_queue_locked(struct agent_link *link, struct error *err)
{
    while (queue_left(link) > 0) {
        ssize_t count = net_stream_write(link->stream, link->queue.data + link->queue_sent, queue_left(link));

        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)))
            break;
        if (count < 0)
            return error_set(err, ERROR_GONE, errno, "writing to the agent failed: %s", strerror(errno));
        link->queue_sent += (size_t)count;
        link->written_bytes += (uint64_t)count;
    }
    if (queue_left(link) == 0) {
        link->queue_sent = 0;
        buf_clear(&link->queue);
        if (link->queue.capacity > LINK_QUEUE_SOFT_BYTES)
            buf_done(&link->queue);
        return 0;
    }
    /* Move what is left to the front, but not for every few bytes that went out. */
    if (link->queue_sent >= LINK_QUEUE_SOFT_BYTES && link->queue_sent >= queue_left(link)) {
        buf_consume(&link->queue, link->queue_sent);
        link->queue_sent = 0;
    }
    return 1;
}

void link_flush_locked(struct agent_link *link)
{
    const uint64_t written_bytes = link->written_bytes;
    struct error why = ERROR_INIT;
    int blocked = 0;

    if (is_dead(link))
        return;
    link->is_urgent = false;
    do {
        if (append_pending_locked(link, &why) < 0 || (blocked = write_queue_locked(link, &why)) < 0) {
            link_die_locked(link, &why, false);
            return;
        }
    } while (!blocked && !STAILQ_EMPTY(&link->pending));
    if (blocked != link->wants_write) {
        link->wants_write = blocked;
        hub_want_write(link->hub, link, blocked);
    }
    if (link->written_bytes != written_bytes)
        waitq_wake_all(&link->room);
}

int link_wait_room_locked(struct agent_link *link, const struct cancel *cancel, struct error *err)
{
    while (agent_link_alive(link) && queue_left(link) >= LINK_QUEUE_SOFT_BYTES)
        if (waitq_wait(&link->room, &link->lock, cancel, err) < 0)
            return -1;
    return agent_link_alive(link) ? 0 : link_gone_locked(link, err);
}

int link_send_locked(struct agent_link *link, const struct buf *frames, const struct cancel *cancel, bool *ret_sent,
                     struct error *err)
{
    struct error why = ERROR_INIT;
    uint64_t end_bytes;

    /* What is owed goes first: the agent has room for a run once it knows that others are over. */
    if (append_pending_locked(link, &why) < 0 || buf_append(&link->queue, frames->data, frames->size, &why) < 0)
        link_die_locked(link, &why, false);
    *ret_sent = false;
    if (is_dead(link))
        return link_gone_locked(link, err);
    end_bytes = link->written_bytes + queue_left(link);
    link_flush_locked(link);
    while (!is_dead(link) && link->written_bytes < end_bytes)
        if (waitq_wait(&link->room, &link->lock, cancel, err) < 0) {
            *ret_sent = true; /* it will be, sooner or later */
            return -1;
        }
    *ret_sent = link->written_bytes >= end_bytes;
    return is_dead(link) ? link_gone_locked(link, err) : 0;
}

void link_writable(struct agent_link *link)
{
    (void)pthread_mutex_lock(&link->lock);
    link_flush_locked(link);
    (void)pthread_mutex_unlock(&link->lock);
}

static int append_hello_locked(struct agent_link *link, int64_t now_ms, struct error *err)
{
    link->hello_at_ms = now_ms + LINK_HELLO_MS;
    return agent_frame_append_hello(&link->queue, link->nonce, hub_epoch(link->hub), err);
}

void link_tick(struct agent_link *link, int64_t now_ms)
{
    struct error why = ERROR_INIT;

    (void)pthread_mutex_lock(&link->lock);
    if (atomic_load(&link->state) == LINK_GREETING && now_ms >= link->hello_at_ms &&
        queue_left(link) < LINK_QUEUE_SOFT_BYTES && append_hello_locked(link, now_ms, &why) < 0)
        link_die_locked(link, &why, false);
    link_flush_locked(link);
    (void)pthread_mutex_unlock(&link->lock);
}

static bool is_known(const struct agent_link *link, uint32_t number)
{
    for (size_t i = 0; i < link->known_count; i++)
        if (link->known[i] == number)
            return true;
    return false;
}

static int greeted_locked(struct agent_link *link, const struct agent_frame *frame, struct error *err)
{
    struct agent_greeting greeting;

    if (agent_frame_greeting(frame, &greeting, err) < 0)
        return -1;
    for (uint32_t i = 0; i < greeting.run_count; i++) {
        struct agent_run_state state;

        agent_frame_run_state(frame, i, &state);
        if (run_greeted_locked(link, &state, is_known(link, state.run), err) < 0)
            return -1;
    }
    free(take_ptr(link->known));
    link->known_count = 0;
    link->hello = (struct agent_hello_info){.version = AGENT_VERSION,
                                            .uid = greeting.uid,
                                            .gid = greeting.gid,
                                            .subreaper = greeting.flags & AGENT_HELLO_SUBREAPER,
                                            .stream_safe = greeting.flags & AGENT_HELLO_STREAM_SAFE};
    atomic_store(&link->state, LINK_OPEN);
    hub_tick_want(link->hub, -1);
    waitq_wake_all(&link->life);
    return 0;
}

static int usage_frame_locked(struct agent_link *link, const struct agent_frame *frame, struct error *err)
{
    const uint64_t ticket = frame->header.offset;
    struct sandbox_usage said;
    struct usage_wait *wait;

    if (frame->header.run != 0 || ticket == 0 || ticket > link->last_ticket)
        return fail(err, ENGINE, "usage that nobody asked for");
    if (agent_frame_usage(frame, &said, err) < 0)
        return -1;
    LIST_FOREACH(wait, &link->usages, entry)
    if (wait->ticket == ticket) {
        wait->usage = said;
        wait->done = true;
        waitq_wake_all(&wait->answered);
    }
    return 0; /* who asked may have gone away */
}

static int frame_locked(struct agent_link *link, const struct agent_frame *frame, struct error *err)
{
    uint64_t nonce;

    switch (frame->header.type) {
    case AGENT_HELLO_ACK: /* to a repeated HELLO */
        if (frame->header.length < sizeof nonce)
            return fail(err, ENGINE, "greeting of %u bytes", frame->header.length);
        memcpy(&nonce, frame->payload, sizeof nonce);
        return nonce == link->nonce ? 0 : fail(err, ENGINE, "the agent greets somebody else");
    case AGENT_USAGE_REPLY:
        return usage_frame_locked(link, frame, err);
    case AGENT_OUT:
    case AGENT_ERR:
        if (frame->header.length > link->window_bytes)
            return fail(err, ENGINE, "output beyond the link's credit");
        link->window_bytes -= frame->header.length;
        link->credit_owed_bytes += frame->header.length;
        if (link->credit_owed_bytes >= LINK_CREDIT_BACK_BYTES)
            link->is_urgent = true;
        return run_frame_locked(link, frame, err);
    case AGENT_STARTED:
    case AGENT_EXIT:
    case AGENT_STDIN_CREDIT:
    case AGENT_GONE:
    case AGENT_REFUSED:
    case AGENT_PLACED:
    case AGENT_ENDED:
        return run_frame_locked(link, frame, err);
    default:
        return fail(err, ENGINE, "frame of type %u", frame->header.type);
    }
}

static void keep_partial(struct agent_link *link, const char *data, size_t size)
{
    struct error why = ERROR_INIT;

    buf_clear(&link->partial);
    if (size == 0 && link->partial.capacity > PARTIAL_KEPT_BYTES)
        buf_done(&link->partial);
    if (size == 0 || buf_append(&link->partial, data, size, &why) == 0)
        return;
    (void)pthread_mutex_lock(&link->lock);
    link_die_locked(link, &why, false);
    (void)pthread_mutex_unlock(&link->lock);
}

void link_input(struct agent_link *link, const char *data, size_t size)
{
    struct error why = ERROR_INIT;
    struct agent_frame frame;
    size_t at = 0;
    int parsed = 1;

    while (parsed > 0 && !is_dead(link)) {
        bool greeting = !agent_link_alive(link);
        size_t used = 0;

        /* Only this thread opens a link, and only opening and dying change its state. The checksum needs no lock. */
        parsed = greeting ? agent_frame_hunt(data + at, size - at, link->nonce, &frame, &used, &why)
                          : agent_frame_parse(data + at, size - at, &frame, &used, &why);
        if (parsed == 0) {
            at += used;
            break;
        }
        (void)pthread_mutex_lock(&link->lock);
        if (parsed > 0 && !is_dead(link))
            parsed = (greeting ? greeted_locked : frame_locked)(link, &frame, &why) < 0 ? -1 : 1;
        if (parsed < 0)
            link_die_locked(link, &why, true);
        (void)pthread_mutex_unlock(&link->lock);
        at += used;
    }
    if (is_dead(link))
        at = size;
    keep_partial(link, data + at, size - at);
    (void)pthread_mutex_lock(&link->lock);
    run_wake_touched_locked(link);
    if (link->is_urgent)
        link_flush_locked(link);
    (void)pthread_mutex_unlock(&link->lock);
}

void link_readable(struct agent_link *link, char *scratch)
{
    link->has_more = false;
    for (unsigned reads = 0; reads < READS_IN_A_ROW; reads++) {
        const size_t kept = link->partial.size;
        struct error why = ERROR_INIT;
        ssize_t count = -1;

        if (kept)
            memcpy(scratch, link->partial.data, kept);
        (void)pthread_mutex_lock(&link->lock);
        if (link->stream) {
            count = net_stream_read(link->stream, scratch + kept, LINK_READ_BYTES);
            if (count == 0) {
                (void)fail(&why, ENGINE, "the stream ended");
                link_die_locked(link, &why, false);
            } else if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
                (void)error_set(&why, ERROR_ENGINE, errno, "reading from the agent failed: %s", strerror(errno));
                link_die_locked(link, &why, false);
            }
        }
        (void)pthread_mutex_unlock(&link->lock);
        if (count <= 0)
            return; /* EINTR: still readable */
        link_input(link, scratch, kept + (size_t)count);
    }
    link->has_more = true;
}

/* The first bytes of a link, and the wait for its answer. */
static int greet(struct agent_link *link, const struct cancel *cancel, struct agent_hello_info *ret_hello,
                 struct error *err)
{
    int result = 0;
    char *zeros;

    (void)pthread_mutex_lock(&link->lock);
    if (!is_dead(link)) {
        result = buf_reserve(&link->queue, AGENT_RESYNC_ZEROS, &zeros, err);
        if (result == 0) {
            memset(zeros, 0, AGENT_RESYNC_ZEROS);
            buf_commit(&link->queue, AGENT_RESYNC_ZEROS);
            result = append_hello_locked(link, clock_mono_ms(), err);
        }
        link_flush_locked(link);
    }
    while (result == 0 && atomic_load(&link->state) == LINK_GREETING)
        result = waitq_wait(&link->life, &link->lock, cancel, err);
    if (result == 0 && is_dead(link))
        result = fail(err, ENGINE, "no conversation with the agent: %s", link->death.text);
    if (result == 0)
        *ret_hello = link->hello;
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

int agent_link_open(struct agent_hub *hub, struct net_stream *stream, const uint32_t *known_runs, size_t known_count,
                    const struct cancel *cancel, struct agent_link **ret_link, struct agent_hello_info *ret_hello,
                    struct error *err)
{
    struct agent_link *link = link_new(hub, stream, known_runs, known_count);

    if (hub_add(hub, link, err) < 0) {
        agent_link_unref(link);
        return -1;
    }
    hub_wake(hub); /* it sleeps without a limit while nobody wants ticks */
    if (greet(link, cancel, ret_hello, err) < 0) {
        agent_link_unref(link);
        return -1;
    }
    *ret_link = link;
    return 0;
}

int agent_link_wait_dead(struct agent_link *link, const struct cancel *cancel, struct error *err)
{
    int result = 0;

    (void)pthread_mutex_lock(&link->lock);
    while (result == 0 && !is_dead(link))
        result = waitq_wait(&link->life, &link->lock, cancel, err);
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

/* Send the question. `wait` is the caller's until usage_finish(); on failure it is not entered. */
static int usage_ask(struct agent_link *link, struct usage_wait *wait, const struct cancel *cancel, struct error *err)
{
    auto_buf struct buf frame = BUF_INIT(AGENT_HEADER_BYTES);
    bool sent;
    int result;

    (void)pthread_mutex_lock(&link->lock);
    result = link_wait_room_locked(link, cancel, err);
    if (result == 0) {
        wait->ticket = ++link->last_ticket;
        LIST_INSERT_HEAD(&link->usages, wait, entry);
        result = agent_frame_append(&frame, AGENT_USAGE, 0, 0, wait->ticket, NULL, 0, err);
        if (result == 0)
            result = link_send_locked(link, &frame, cancel, &sent, err);
        if (result < 0)
            LIST_REMOVE(wait, entry);
    }
    (void)pthread_mutex_unlock(&link->lock);
    return result;
}

/* Wait for the answer; `wait` is free again in any case. */
static int usage_finish(struct agent_link *link, struct usage_wait *wait, const struct cancel *cancel,
                        struct sandbox_usage *ret_usage, struct error *err)
{
    int result = 0;

    (void)pthread_mutex_lock(&link->lock);
    while (result == 0 && !wait->done && !is_dead(link))
        result = waitq_wait(&wait->answered, &link->lock, cancel, err);
    if (result == 0 && !wait->done)
        result = link_gone_locked(link, err);
    LIST_REMOVE(wait, entry);
    (void)pthread_mutex_unlock(&link->lock);
    if (result == 0)
        *ret_usage = wait->usage;
    return result;
}

int agent_link_usage(struct agent_link *link, const struct cancel *cancel, struct sandbox_usage *ret_usage,
                     struct error *err)
{
    struct usage_wait wait = {.answered = WAITQ_INIT};

    if (usage_ask(link, &wait, cancel, err) < 0)
        return -1;
    return usage_finish(link, &wait, cancel, ret_usage, err);
}

void agent_links_usage(struct agent_link *const *links, size_t count, const struct cancel *cancel,
                       struct sandbox_usage *ret_usages, bool *ret_answered)
{
    auto_free struct usage_wait *waits = alloc_array(count + 1, sizeof *waits);
    struct cancel at_once = cancel_within(cancel, 0);
    struct error ignored = ERROR_INIT;

    /* A link whose queue is full does not answer soon either: nobody waits for room. */
    for (size_t i = 0; i < count; i++)
        ret_answered[i] = links[i] && usage_ask(links[i], &waits[i], &at_once, &ignored) == 0;
    for (size_t i = 0; i < count; i++)
        ret_answered[i] = ret_answered[i] && usage_finish(links[i], &waits[i], cancel, &ret_usages[i], &ignored) == 0;
}
