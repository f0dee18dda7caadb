/* What an agent may say, in any order: the input is a script of frames with right checksums, or of raw bytes. */
#include "agent_private.h"
#include "fuzz.h"
#include "log.h"

#include <errno.h>
#include <string.h>

static ssize_t stream_read(struct net_stream *stream, void *data, size_t size)
{
    errno = EAGAIN;
    return -1;
}

static ssize_t stream_write(struct net_stream *stream, const void *data, size_t size)
{
    return (ssize_t)size;
}

static void stream_close(struct net_stream *stream)
{
    stream->fd = -1;
}

/* Eight bytes of script make a frame: mostly what an honest agent could say next (`at`: its offsets), now and then not. */
static void say(struct buf *out, uint64_t at[6][2], const uint8_t *step)
{
    static const uint8_t verbs[] = {AGENT_OUT,         AGENT_OUT,          AGENT_ERR,    AGENT_OUT,     AGENT_EXIT,
                                    AGENT_ERR,         AGENT_STARTED,      AGENT_GONE,   AGENT_REFUSED, AGENT_HELLO_ACK,
                                    AGENT_USAGE_REPLY, AGENT_STDIN_CREDIT, AGENT_PLACED, AGENT_ENDED};
    static const uint32_t sizes[] = {1, 7, 4096, 30000, 65536, 300, 2, 1};
    static const char payload[AGENT_PAYLOAD_MAX];
    const bool odd = step[6] > 245;
    const uint8_t verb = verbs[step[0] % (odd ? sizeof verbs : 6)];
    const uint32_t run = odd ? step[1] % 6 : 1 + step[1] % 4;
    struct agent_exit ended = {.exit_code = step[3] % 8 - odd, .out_bytes = at[run][0], .err_bytes = at[run][1]};
    uint64_t *offset = &at[run][verb == AGENT_ERR];
    uint32_t size = sizes[step[2] % 8];
    struct error err = ERROR_INIT;

    if (step[4] > 230)
        *offset += step[5] == 255 ? UINT64_MAX - 4 : step[5];
    if (odd && step[4] < 30) {
        (void)buf_append(out, step, 8, &err);
    } else if (verb == AGENT_EXIT || verb == AGENT_ENDED) {
        ended.flags = step[4] % 64;
        (void)agent_frame_append(out, verb, 0, run, 0, &ended, sizeof ended, &err);
    } else if (verb == AGENT_PLACED) {
        const struct agent_place place = {at[run][0] / 2, step[5] % 2};

        (void)agent_frame_append(out, verb, 0, run, step[2] % 4, &place, sizeof place, &err);
    } else {
        (void)agent_frame_append(out, verb, odd && step[5] < 9, run, *offset, payload, size, &err);
        *offset += size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct net_stream_ops ops = {stream_read, stream_write, stream_close};
    static const char *const argv[] = {"true"};
    static const struct run_spec specs[] = {{.argv = argv, .argc = 1, .stdin_open = true},
                                            {.argv = argv, .argc = 1, .stdin_open = true, .keep = true, .watch = true}};
    static const struct cancel now = {-1, -1, 1};
    static const uint32_t known = 1;
    static struct agent_hub *hub;
    const struct agent_hub_settings settings = {.epoch = 1};
    struct net_stream stream = {&ops, -1};
    struct agent_hello_ack hello = {.version = AGENT_VERSION, .run_count = 1};
    const struct agent_run_state state = {.run = 1};
    struct agent_link *link;
    struct agent_run *runs[4] = {NULL};
    uint64_t offsets[6][2] = {{0}};
    bool may_write[4] = {true, true, true, false}; /* the last is taken over */
    auto_buf struct buf bytes = BUF_INIT(4 * 1024 * 1024);
    struct error err = ERROR_INIT;

    log_set_level(LOG_LEVEL_ERROR);
    if (!hub && agent_hub_new(&settings, &hub, &err) < 0)
        return 0;
    link = link_new(hub, &stream, &known, 1);
    if (size % 8) { /* otherwise the script comes where HELLO_ACK should be */
        char greeting[sizeof hello + sizeof state];

        hello.nonce = link->nonce;
        memcpy(greeting, &hello, sizeof hello);
        memcpy(greeting + sizeof hello, &state, sizeof state);
        (void)agent_frame_append(&bytes, AGENT_HELLO_ACK, 0, 0, 0, greeting, sizeof greeting, &err);
        link_input(link, bytes.data, bytes.size);
        buf_clear(&bytes);
        for (uint32_t i = 2; i < 5; i++) { /* number 1 was greeted */
            bool sent;

            (void)agent_run_start(link, i, &specs[i & 1], &now, &sent, &runs[i - 2], &err);
        }
        if (data[0] & 1)
            (void)agent_run_resume(link, known, data[0] & 2, &runs[3], &err);
    }
    for (size_t at = 0; at + 8 <= size; at += 8) {
        struct agent_run *run = runs[data[at + 7] % 4];
        size_t cut;
        uint64_t place;
        struct run_chunk chunk;

        /* Each step comes in two pieces, as a stream would give it. */
        (void)buf_append(&bytes, link->partial.data, link->partial.size, &err);
        say(&bytes, offsets, data + at);
        cut = bytes.size > link->partial.size ? bytes.size - (bytes.size - link->partial.size) / 2 : bytes.size;
        if (bytes.size)
            link_input(link, bytes.data, cut);
        buf_consume(&bytes, cut - link->partial.size);
        if (bytes.size)
            link_input(link, bytes.data, bytes.size);
        buf_clear(&bytes);
        if (run && data[at + 7] & 16)
            (void)agent_run_next(run, &now, &chunk, &err);
        if (run && data[at + 7] & 8 && may_write[data[at + 7] % 4])
            (void)agent_run_stdin_write(run, data, size, &now, &err);
        if (run && (data[at + 7] & 72) == 72) {
            agent_run_stdin_eof(run);
            may_write[data[at + 7] % 4] = false;
        }
        if (run && run->watched && (data[at + 7] & 48) == 32)
            (void)agent_run_seek(run, offsets[run->number % 6][0] / 2, 0, &now, &place, &err);
        if (run && (data[at + 7] & 224) == 224)
            agent_run_free(take_ptr(runs[data[at + 7] % 4]));
    }
    for (size_t i = 0; i < 4; i++)
        agent_run_free(runs[i]);
    agent_link_unref(link);
    return 0;
}
