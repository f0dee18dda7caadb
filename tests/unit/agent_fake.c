#include "agent_fake.h"

#include "alloc.h"
#include "clock.h"
#include "net_stream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#undef NDEBUG
#include <assert.h>

struct cancel fake_patient(void)
{
    return cancel_within(&(struct cancel)CANCEL_NEVER, 20000);
}

struct fake_stream {
    struct net_stream base;
    size_t write_max;
};

static ssize_t stream_read(struct net_stream *stream, void *data, size_t size)
{
    return recv(stream->fd, data, size, MSG_DONTWAIT);
}

static ssize_t stream_write(struct net_stream *stream, const void *data, size_t size)
{
    const size_t max = ((struct fake_stream *)stream)->write_max;

    return send(stream->fd, data, max && size > max ? max : size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void stream_close(struct net_stream *stream)
{
    (void)close(stream->fd);
    free(stream);
}

struct net_stream *fake_pair(struct fake *fake, size_t write_max)
{
    static const struct net_stream_ops ops = {stream_read, stream_write, stream_close};
    struct fake_stream *stream = alloc_zero(sizeof *stream);
    int ends[2];

    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    *fake = (struct fake){.fd = ends[0], .in = BUF_INIT(16 * 1024 * 1024)};
    stream->base = (struct net_stream){&ops, ends[1]};
    stream->write_max = write_max;
    return &stream->base;
}

void fake_done(struct fake *fake)
{
    if (fake->fd >= 0)
        (void)close(fake->fd);
    fake->fd = -1;
    buf_done(&fake->in);
}

void fake_raw(struct fake *fake, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t count = send(fake->fd, at, size, MSG_NOSIGNAL);

        if (count < 0)
            return; /* the broker closed: what the test is about to see */
        at += count;
        size -= (size_t)count;
    }
}

void fake_send(struct fake *fake, uint8_t type, uint32_t run, uint64_t offset, const void *payload, size_t size)
{
    auto_buf struct buf frame = BUF_INIT(AGENT_HEADER_BYTES + AGENT_PAYLOAD_MAX);
    struct error err = ERROR_INIT;

    assert(agent_frame_append(&frame, type, 0, run, offset, payload, size, &err) == 0);
    fake_raw(fake, frame.data, frame.size);
}

void fake_exit(struct fake *fake, uint32_t run, int exit_code, uint64_t out_bytes, uint64_t err_bytes)
{
    const struct agent_exit said = {.exit_code = exit_code, .out_bytes = out_bytes, .err_bytes = err_bytes};

    fake_send(fake, AGENT_EXIT, run, 0, &said, sizeof said);
}

void fake_greet(struct fake *fake, uint64_t nonce, const struct agent_run_state *runs, uint32_t count)
{
    auto_buf struct buf payload = BUF_INIT(AGENT_PAYLOAD_MAX);
    const struct agent_hello_ack ack = {.nonce = nonce,
                                        .version = AGENT_VERSION,
                                        .uid = 1000,
                                        .gid = 1001,
                                        .flags = AGENT_HELLO_SUBREAPER | AGENT_HELLO_STREAM_SAFE,
                                        .run_count = count};
    struct error err = ERROR_INIT;

    assert(buf_append(&payload, &ack, sizeof ack, &err) == 0);
    assert(buf_append(&payload, runs, count * sizeof *runs, &err) == 0);
    fake_send(fake, AGENT_HELLO_ACK, 0, 0, payload.data, payload.size);
}

bool fake_next(struct fake *fake, int wait_ms, struct agent_frame *ret)
{
    const int64_t until_ms = clock_mono_ms() + wait_ms;

    buf_consume(&fake->in, fake->used);
    fake->used = 0;
    for (;;) {
        struct pollfd readable = {.fd = fake->fd, .events = POLLIN};
        struct error err = ERROR_INIT;
        size_t zeros = 0;
        int64_t left_ms;
        ssize_t count;
        char *space;

        while (zeros < fake->in.size && fake->in.data[zeros] == 0)
            zeros++;
        buf_consume(&fake->in, zeros);
        if (fake->in.size) {
            int parsed = agent_frame_parse(fake->in.data, fake->in.size, ret, &fake->used, &err);

            assert(parsed >= 0);
            if (parsed)
                return true;
        }
        left_ms = until_ms - clock_mono_ms();
        if (poll(&readable, 1, left_ms > 0 ? (int)left_ms : 0) == 0)
            return false;
        assert(buf_reserve(&fake->in, 65536, &space, &err) == 0);
        count = recv(fake->fd, space, 65536, 0);
        if (count <= 0)
            return false;
        buf_commit(&fake->in, (size_t)count);
    }
}

struct agent_frame fake_expect(struct fake *fake, uint8_t type)
{
    struct agent_frame frame;

    do {
        assert(fake_next(fake, 5000, &frame));
        if (frame.header.type == AGENT_HELLO)
            memcpy(&fake->nonce, frame.payload, sizeof fake->nonce);
    } while (frame.header.type != type);
    return frame;
}

static void *greet(void *context)
{
    struct fake *fake = context;

    (void)fake_expect(fake, AGENT_HELLO);
    fake_greet(fake, fake->nonce, NULL, 0);
    return NULL;
}

void linked_open(struct linked *linked, size_t write_max)
{
    const struct agent_hub_settings settings = {.epoch = 7};
    struct cancel patient = fake_patient();
    struct error err = ERROR_INIT;
    struct net_stream *stream = fake_pair(&linked->fake, write_max);
    pthread_t thread;

    assert(agent_hub_new(&settings, &linked->hub, &err) == 0);
    assert(pthread_create(&thread, NULL, greet, &linked->fake) == 0);
    assert(agent_link_open(linked->hub, stream, NULL, 0, &patient, &linked->link, &linked->hello, &err) == 0);
    assert(pthread_join(thread, NULL) == 0);
}

void linked_done(struct linked *linked)
{
    agent_link_unref(linked->link);
    agent_hub_free(linked->hub);
    fake_done(&linked->fake);
}

struct agent_run *linked_start(struct linked *linked, uint32_t number)
{
    const char *const argv[] = {"true"};
    const struct run_spec spec = {.argv = argv, .argc = 1, .has_reader = true};
    struct cancel patient = fake_patient();
    struct error err = ERROR_INIT;
    struct agent_run *run = NULL;
    bool sent = false;

    assert(agent_run_start(linked->link, number, &spec, &patient, &sent, &run, &err) == 0 && sent);
    assert(fake_expect(&linked->fake, AGENT_START).header.run == number);
    return run;
}
