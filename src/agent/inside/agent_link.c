#include "agent_link.h"

#include "agent_assembly.h"
#include "agent_cgroup.h"
#include "agent_pending.h"
#include "agent_run.h"
#include "agent_stream.h"
#include "agent_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    ANSWERS_MAX = 256, /* short answers that wait; while there are so many, nothing more is read */
    INPUT_CREDIT_LEAST = AGENT_STDIN_WINDOW / 4,
    STARTED_LATE_MS = 20,
};

struct answer {
    uint8_t type;
    uint32_t run;
    uint64_t offset;
};

static struct agent_stream stream;
static struct agent_source stream_in = {.kind = AGENT_SOURCE_STREAM_IN, .fd = -1};
static struct agent_source stream_out = {.kind = AGENT_SOURCE_STREAM_OUT, .fd = -1};
static uint32_t hello_flags;
static bool over;   /* nothing more will come */
static bool broken; /* nothing more can be said */

static struct {
    bool up;
    bool hello_due;
    uint64_t nonce;
    uint32_t epoch;
    uint64_t credit;
    size_t turn;
    struct answer answers[ANSWERS_MAX];
    size_t answer_at;
    size_t answer_count;
} peer;

int agent_link_init(int in, int out, uint32_t flags)
{
    stream.in = stream_in.fd = in;
    stream.out = stream_out.fd = out;
    hello_flags = flags;
    return agent_watch(&stream_in, EPOLLIN);
}

static void answer(uint8_t type, uint32_t run, uint64_t offset)
{
    size_t at = (peer.answer_at + peer.answer_count) % ANSWERS_MAX;

    if (peer.answer_count == ANSWERS_MAX)
        return; /* cannot be: a frame makes one answer at most, and none is taken while the ring is full */
    peer.answers[at] = (struct answer){type, run, offset};
    peer.answer_count++;
}

static void add_credit(uint64_t *credit, uint64_t more)
{
    *credit = more > UINT32_MAX - *credit ? UINT32_MAX : *credit + more;
}

static void new_link(const struct agent_hello *hello)
{
    peer.up = true;
    peer.nonce = hello->nonce;
    peer.epoch = hello->epoch;
    peer.credit = AGENT_LINK_CREDIT;
    peer.answer_count = 0;
    agent_stream_restart(&stream);
    agent_assembly_clear();
    agent_pending_clear();
    for (size_t i = 0; agent_run_at(i); i++) {
        struct agent_run *run = agent_run_at(i);

        if (!run->known)
            continue;
        agent_run_relink(run);
        if (run->epoch != hello->epoch && !(run->flags & AGENT_START_KEEP) && !run->finished)
            agent_run_stop(run, AGENT_EXIT_STOPPED);
    }
}

static void take_hello(const struct agent_header *header, const unsigned char *payload)
{
    struct agent_hello hello;

    if (header->length != sizeof hello)
        return;
    memcpy(&hello, payload, sizeof hello);
    if (!peer.up || hello.nonce != peer.nonce)
        new_link(&hello);
    peer.hello_due = true;
}

/* STARTED of a watched run waits for its command. A plain one's waits for a moment, unless input waits for it: most have
 * ended by then, and EXIT says it all. */
static void answer_start(uint32_t number, int error)
{
    struct agent_run *run = error ? NULL : agent_run_find(number);

    if (!run)
        answer(AGENT_REFUSED, number, (uint64_t)error);
    else if (!agent_run_watched(run) && run->flags & AGENT_START_STDIN)
        answer(AGENT_STARTED, number, 0);
    else if (!agent_run_watched(run))
        run->started_at_ms = agent_now_ms() + STARTED_LATE_MS;
}

static void take_start(const struct agent_header *header, const unsigned char *payload)
{
    struct agent_start_request request;
    const unsigned char *bytes;
    size_t size;
    int error = 0;
    int whole = agent_assembly_add(header, payload, &bytes, &size, &error);

    if (!whole)
        return;
    if (agent_pending_has(header->run))
        return; /* answered when it is decided */
    if (agent_run_find(header->run)) {
        answer(AGENT_STARTED, header->run, 0);
        return;
    }
    if (whole > 0 && header->run == 0)
        error = EINVAL;
    if (!error)
        error = agent_start_parse(bytes, size, &request);
    if (!error) {
        error = agent_run_start(header->run, &request);
        free(request.block);
    }
    if (error == EAGAIN && whole > 0 && agent_pending_add(header->run, bytes, size))
        return;
    answer_start(header->run, error);
}

static void take_ack(struct agent_run *run, const struct agent_header *header, const unsigned char *payload)
{
    struct agent_ack ack;

    if (header->length != sizeof ack)
        return;
    memcpy(&ack, payload, sizeof ack);
    agent_run_ack(run, &ack);
}

static void take_reader(struct agent_run *run, const struct agent_header *header, const unsigned char *payload)
{
    struct agent_reader reader;

    if (!agent_run_watched(run)) {
        agent_run_set_reader(run, header->offset == 1);
        return;
    }
    if (header->length != sizeof reader)
        return;
    memcpy(&reader, payload, sizeof reader);
    agent_run_attend(run, &reader);
    if (run->streams)
        answer(AGENT_PLACED, run->number, reader.ticket);
}

/* What is asked of one run that must be known. */
static void take_for_run(const struct agent_header *header, const unsigned char *payload)
{
    struct agent_run *run = agent_run_find(header->run);

    if (header->type == AGENT_STOP && agent_pending_drop(header->run)) {
        answer(AGENT_REFUSED, header->run, ECANCELED);
        return;
    }
    if (!run) {
        if (header->type != AGENT_CREDIT && header->type != AGENT_ACK) /* those may cross the forgetting */
            answer(AGENT_GONE, header->run, 0);
        return;
    }
    switch (header->type) {
    case AGENT_STDIN:
        agent_input_write(run, header->offset, payload, header->length);
        break;
    case AGENT_STDIN_EOF:
        agent_input_end(run);
        break;
    case AGENT_SIGNAL:
        agent_run_signal(run, header->offset < 64 ? (int)header->offset : 0);
        break;
    case AGENT_RESIZE:
        agent_terminal_resize(run, (unsigned)(header->offset >> 32), (unsigned)header->offset);
        break;
    case AGENT_STOP:
        /* One that has ended stays ended: what it left in the background lives on, also when a next broker, who knows nothing of
         * it, clears away what the last one did not live to acknowledge. */
        if (!run->exited)
            agent_run_stop(run, AGENT_EXIT_STOPPED);
        break;
    case AGENT_CREDIT:
        add_credit(&run->credit, header->offset);
        break;
    case AGENT_ACK:
        take_ack(run, header, payload);
        break;
    case AGENT_READER:
        take_reader(run, header, payload);
        break;
    }
}

static void take(const struct agent_header *header, const unsigned char *payload)
{
    if (!peer.up && header->type != AGENT_HELLO)
        return; /* left over from before anybody knew of us */
    switch (header->type) {
    case AGENT_HELLO:
        take_hello(header, payload);
        break;
    case AGENT_START:
        take_start(header, payload);
        break;
    case AGENT_USAGE:
        answer(AGENT_USAGE_REPLY, 0, header->offset);
        break;
    case AGENT_CREDIT:
        if (header->run == 0) {
            add_credit(&peer.credit, header->offset);
            break;
        }
        take_for_run(header, payload);
        break;
    case AGENT_STDIN:
    case AGENT_STDIN_EOF:
    case AGENT_SIGNAL:
    case AGENT_RESIZE:
    case AGENT_STOP:
    case AGENT_ACK:
    case AGENT_READER:
        take_for_run(header, payload);
        break;
    default: /* a verb of a later version: the broker learns ours from HELLO_ACK */
        break;
    }
}

static void put_hello_ack(void)
{
    struct agent_hello_ack ack = {.nonce = peer.nonce,
                                  .version = AGENT_VERSION,
                                  .uid = geteuid(),
                                  .gid = getegid(),
                                  .flags = hello_flags,
                                  .run_count = (uint32_t)agent_run_known()};
    unsigned char *bytes = agent_stream_payload(&stream);
    size_t size = sizeof ack;

    _Static_assert(sizeof ack + AGENT_RUNS_MAX * sizeof(struct agent_run_state) <= AGENT_PAYLOAD_MAX, "one frame");
    memcpy(bytes, &ack, sizeof ack);
    for (size_t i = 0; agent_run_at(i); i++) {
        const struct agent_run *run = agent_run_at(i);
        struct agent_run_state state = {.run = run->number,
                                        .epoch = run->epoch,
                                        .flags = (run->finished ? AGENT_RUN_FINISHED : 0) |
                                                 (run->flags & AGENT_START_KEEP ? AGENT_RUN_KEPT : 0) |
                                                 (agent_run_watched(run) ? AGENT_RUN_WATCHED : 0) |
                                                 (agent_input_open_now(run) ? AGENT_RUN_STDIN : 0),
                                        .in_waiting = (uint32_t)run->input.size,
                                        .in_received = run->input.received,
                                        .out_acked = run->output[0].keep.acked,
                                        .err_acked = run->output[1].keep.acked};

        if (!run->known)
            continue;
        memcpy(bytes + size, &state, sizeof state);
        size += sizeof state;
    }
    agent_stream_commit(&stream, AGENT_HELLO_ACK, 0, 0, size);
}

static void put_answer(void)
{
    const struct answer *next = &peer.answers[peer.answer_at];
    const struct agent_run *run = next->type == AGENT_PLACED ? agent_run_find(next->run) : NULL;

    if (next->type == AGENT_USAGE_REPLY) {
        struct agent_usage usage;

        agent_cgroup_usage(&usage);
        agent_stream_put(&stream, next->type, next->run, next->offset, &usage, sizeof usage);
    } else if (next->type == AGENT_PLACED && run) {
        /* Nothing was sent since it was placed: answers go before output. */
        const struct agent_place place = {run->output[0].keep.sent, run->output[1].keep.sent};

        agent_stream_put(&stream, next->type, next->run, next->offset, &place, sizeof place);
    } else {
        agent_stream_put(&stream, next->type == AGENT_PLACED ? AGENT_GONE : next->type, next->run, next->offset, NULL,
                         0);
    }
    peer.answer_at = (peer.answer_at + 1) % ANSWERS_MAX;
    peer.answer_count--;
}

/* What is said of a watched run whether or not anybody reads it. */
static void put_watched(struct agent_run *run)
{
    if (!run->known || !agent_run_watched(run))
        return;
    if (run->finished && !run->ended_sent && agent_stream_fits(&stream, sizeof run->exit)) {
        agent_stream_put(&stream, AGENT_ENDED, run->number, 0, &run->exit, sizeof run->exit);
        run->ended_sent = true;
    }
    if (!run->started_sent && (run->spawned || run->ended_sent) && agent_stream_fits(&stream, 0)) {
        agent_stream_put(&stream, AGENT_STARTED, run->number, 0, NULL, 0);
        run->started_sent = true;
    }
}

/* EXIT and credit for input: short, before data, of all runs. */
static void put_run_answers(void)
{
    for (size_t i = 0; agent_run_at(i); i++) {
        struct agent_run *run = agent_run_at(i);

        if (!agent_stream_fits(&stream, sizeof run->exit))
            return;
        if (run->known && run->input.owed >= INPUT_CREDIT_LEAST) {
            agent_stream_put(&stream, AGENT_STDIN_CREDIT, run->number, run->input.owed, NULL, 0);
            run->input.owed = 0;
        }
        put_watched(run);
        if (run->started_due && agent_stream_fits(&stream, 0)) {
            agent_stream_put(&stream, AGENT_STARTED, run->number, 0, NULL, 0);
            run->started_due = false;
        }
        if (agent_run_exit_due(run) && agent_stream_fits(&stream, sizeof run->exit)) {
            agent_stream_put(&stream, AGENT_EXIT, run->number, 0, &run->exit, sizeof run->exit);
            run->exit_sent = true;
        }
    }
}

static bool put_output_of(struct agent_run *run)
{
    size_t max = run->credit < peer.credit ? (size_t)run->credit : (size_t)peer.credit;

    if (!run->known || !max || (agent_run_watched(run) && !run->streams))
        return false;
    if (max > AGENT_PAYLOAD_MAX)
        max = AGENT_PAYLOAD_MAX;
    for (unsigned i = 0; i < 2; i++) {
        unsigned index = (run->turn + i) % 2;
        uint64_t offset = 0;
        size_t size;

        if (!agent_keep_unsent(&run->output[index].keep))
            continue;
        size = agent_keep_take(&run->output[index].keep, agent_stream_payload(&stream), max, &offset);
        agent_stream_commit(&stream, index ? AGENT_ERR : AGENT_OUT, run->number, offset, size);
        run->credit -= size;
        peer.credit -= size;
        run->turn = index + 1;
        return true;
    }
    return false;
}

/* One frame of output of the next run that has some and may send it. */
static bool put_output(void)
{
    size_t count = 0;

    while (agent_run_at(count))
        count++;
    for (size_t i = 0; i < count && peer.credit; i++) {
        size_t index = (peer.turn + i) % count;

        if (put_output_of(agent_run_at(index))) {
            peer.turn = index + 1;
            return true;
        }
    }
    return false;
}

/* Put frames into the stream's buffer, the urgent first, until nothing is left or nothing fits. */
static void put_frames(void)
{
    do {
        if (peer.hello_due && agent_stream_fits(&stream, AGENT_PAYLOAD_MAX)) {
            put_hello_ack();
            peer.hello_due = false;
        }
        if (peer.hello_due)
            return;
        while (peer.answer_count && agent_stream_fits(&stream, sizeof(struct agent_usage)))
            put_answer();
        put_run_answers();
    } while (agent_stream_fits(&stream, AGENT_PAYLOAD_MAX) && put_output());
}

bool agent_link_readable(void)
{
    if (agent_stream_read(&stream) > 0)
        return true;
    over = true;
    return false;
}

bool agent_link_obey(void)
{
    struct agent_header header;
    const unsigned char *payload;
    uint32_t run;
    int error;

    while (peer.answer_count < ANSWERS_MAX && agent_stream_next(&stream, &header, &payload))
        take(&header, payload);
    while (peer.answer_count < ANSWERS_MAX && agent_pending_next(&run, &error))
        answer_start(run, error);
    return peer.answer_count < ANSWERS_MAX;
}

bool agent_link_send(void)
{
    int state = 1;

    while (peer.up && !broken && state == 1) {
        put_frames();
        if (agent_link_idle())
            break;
        state = agent_stream_flush(&stream);
    }
    if (state < 0)
        broken = true;
    (void)agent_watch(&stream_out, state == 0 ? EPOLLOUT : 0);
    (void)agent_watch(&stream_in, over || peer.answer_count == ANSWERS_MAX ? 0 : EPOLLIN);
    return !broken;
}

bool agent_link_idle(void)
{
    return broken || stream.out_at == stream.out_size;
}
