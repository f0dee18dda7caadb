#include "agent_frame.h"

#include "crc32c.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are copied as they lie in memory");
_Static_assert(sizeof(struct agent_header) == AGENT_HEADER_BYTES, "the header of the wire");
_Static_assert(sizeof(struct agent_hello_ack) + AGENT_RUNS_MAX * sizeof(struct agent_run_state) <= AGENT_PAYLOAD_MAX,
               "HELLO_ACK is one frame");

static uint32_t checksum(struct agent_header header, const void *payload)
{
    header.crc = 0;
    return crc32c(crc32c(0, &header, sizeof header), payload, header.length);
}

int agent_frame_parse(const char *data, size_t size, struct agent_frame *ret_frame, size_t *ret_used, struct error *err)
{
    struct agent_header header;

    if (size < sizeof header)
        return 0;
    memcpy(&header, data, sizeof header);
    if (header.magic != AGENT_MAGIC)
        return fail(err, ENGINE, "no frame: magic %08x", header.magic);
    if (header.version != AGENT_VERSION)
        return fail(err, ENGINE, "frame of protocol version %u", header.version);
    if (header.length > AGENT_PAYLOAD_MAX)
        return fail(err, ENGINE, "frame of %u bytes", header.length);
    if (header.reserved != 0)
        return fail(err, ENGINE, "reserved header bits set");
    if (size - sizeof header < header.length)
        return 0;
    if (header.crc != checksum(header, data + sizeof header))
        return fail(err, ENGINE, "frame of type %u with a wrong checksum", header.type);
    *ret_frame = (struct agent_frame){.header = header, .payload = data + sizeof header};
    *ret_used = sizeof header + header.length;
    return 1;
}

int agent_frame_hunt(const char *data, size_t size, uint64_t nonce, struct agent_frame *ret_frame, size_t *ret_used,
                     struct error *err)
{
    const uint32_t magic = AGENT_MAGIC;
    size_t at = 0;

    *ret_used = 0;
    while (size - at >= sizeof magic) {
        const char *found = memmem(data + at, size - at, &magic, sizeof magic);
        struct agent_header header;
        uint64_t said;
        size_t used = 0;
        int parsed;

        if (!found) {
            at = size - (sizeof magic - 1);
            break;
        }
        at = (size_t)(found - data);
        if (size - at < sizeof header + sizeof said)
            break;
        memcpy(&header, found, sizeof header);
        memcpy(&said, found + sizeof header, sizeof said);
        if (header.type != AGENT_HELLO_ACK || header.length < sizeof said || said != nonce) {
            at++;
            continue;
        }
        parsed = agent_frame_parse(found, size - at, ret_frame, &used, err);
        *ret_used = at + used;
        return parsed;
    }
    *ret_used = at;
    return 0;
}

/* A payload of exactly `size` bytes, copied out because it is not aligned. */
static int fixed(const struct agent_frame *frame, void *ret, size_t size, struct error *err)
{
    if (frame->header.length != size || frame->header.flags != 0)
        return fail(err, ENGINE, "frame of type %u with %u bytes", frame->header.type, frame->header.length);
    memcpy(ret, frame->payload, size);
    return 0;
}

int agent_frame_greeting(const struct agent_frame *frame, struct agent_greeting *ret, struct error *err)
{
    struct agent_hello_ack ack;

    if (frame->header.length < sizeof ack || frame->header.flags != 0)
        return fail(err, ENGINE, "greeting of %u bytes", frame->header.length);
    memcpy(&ack, frame->payload, sizeof ack);
    if (ack.version != AGENT_VERSION)
        return fail(err, ENGINE, "the agent speaks version %u", ack.version);
    if (ack.run_count > AGENT_RUNS_MAX ||
        frame->header.length != sizeof ack + ack.run_count * sizeof(struct agent_run_state))
        return fail(err, ENGINE, "greeting with %u runs in %u bytes", ack.run_count, frame->header.length);
    *ret = (struct agent_greeting){.uid = ack.uid, .gid = ack.gid, .flags = ack.flags, .run_count = ack.run_count};
    return 0;
}

void agent_frame_run_state(const struct agent_frame *frame, uint32_t index, struct agent_run_state *ret)
{
    memcpy(ret, frame->payload + sizeof(struct agent_hello_ack) + index * sizeof *ret, sizeof *ret);
}

int agent_frame_exit(const struct agent_frame *frame, struct run_exit *ret, struct error *err)
{
    struct agent_exit said;
    bool ran;

    if (fixed(frame, &said, sizeof said, err) < 0)
        return -1;
    if (said.exit_code < -1 || said.exit_code > 255 || said.signal < 0 || said.signal > 64 ||
        said.wall_ms > INT64_MAX || said.cpu_ms > INT64_MAX || said.peak_bytes > INT64_MAX || said.spawn_errno < 0)
        return fail(err, ENGINE, "exit out of range");
    ran = !(said.flags & (AGENT_EXIT_SPAWN_FAILED | AGENT_EXIT_LOST));
    if (ran && (said.exit_code >= 0) == (said.signal > 0))
        return fail(err, ENGINE, "exit that contradicts itself");
    *ret = (struct run_exit){
        .lost = said.flags & AGENT_EXIT_LOST,
        .timed_out = said.flags & AGENT_EXIT_TIMED_OUT,
        .stopped = said.flags & AGENT_EXIT_STOPPED,
        .oom = said.flags & AGENT_EXIT_OOM,
        .output_limited = said.flags & AGENT_EXIT_DROPPED,
        .spawn_failed = said.flags & AGENT_EXIT_SPAWN_FAILED,
        .spawn_cwd = said.flags & AGENT_EXIT_SPAWN_CWD,
        .spawn_errno = said.spawn_errno,
        .exit_code = ran ? said.exit_code : -1, /* how the agent's own child ended is of no interest */
        .signal = ran ? said.signal : 0,
        .wall_ms = (int64_t)said.wall_ms,
        .cpu_ms = (int64_t)said.cpu_ms,
        .peak_bytes = (int64_t)said.peak_bytes,
        .stdout_bytes = said.out_bytes,
        .stderr_bytes = said.err_bytes,
    };
    return 0;
}

int agent_frame_usage(const struct agent_frame *frame, struct sandbox_usage *ret, struct error *err)
{
    struct agent_usage said;

    if (fixed(frame, &said, sizeof said, err) < 0)
        return -1;
    if (said.memory_bytes < -1 || said.cpu_ns < -1 || said.pids < -1 || said.oom_kills < -1)
        return fail(err, ENGINE, "usage out of range");
    *ret = (struct sandbox_usage){
        .memory_bytes = said.memory_bytes,
        .cpu_ns = said.cpu_ns,
        .pids = said.pids,
        .oom_kills = said.oom_kills,
    };
    return 0;
}

int agent_frame_append(struct buf *out, uint8_t type, uint16_t flags, uint32_t run, uint64_t offset,
                       const void *payload, size_t size, struct error *err)
{
    struct agent_header header = {.magic = AGENT_MAGIC,
                                  .version = AGENT_VERSION,
                                  .type = type,
                                  .flags = flags,
                                  .run = run,
                                  .length = (uint32_t)size,
                                  .offset = offset};
    char *space;

    assert(size <= AGENT_PAYLOAD_MAX);
    header.crc = checksum(header, payload);
    if (buf_reserve(out, sizeof header + size, &space, err) < 0)
        return -1;
    memcpy(space, &header, sizeof header);
    if (size)
        memcpy(space + sizeof header, payload, size);
    buf_commit(out, sizeof header + size);
    return 0;
}

int agent_frame_append_hello(struct buf *out, uint64_t nonce, uint32_t epoch, struct error *err)
{
    const struct agent_hello hello = {.nonce = nonce, .epoch = epoch};

    return agent_frame_append(out, AGENT_HELLO, 0, 0, 0, &hello, sizeof hello, err);
}

int agent_frame_append_ack(struct buf *out, uint32_t run, uint64_t out_offset, uint64_t err_offset, bool exit_too,
                           struct error *err)
{
    const struct agent_ack ack = {.out = out_offset, .err = err_offset, .exit = exit_too};

    return agent_frame_append(out, AGENT_ACK, 0, run, 0, &ack, sizeof ack, err);
}

int agent_frame_place(const struct agent_frame *frame, struct agent_place *ret, struct error *err)
{
    return fixed(frame, ret, sizeof *ret, err);
}

static int append_strings(struct buf *out, const char *const *strings, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (buf_append(out, strings[i], strlen(strings[i]) + 1, err) < 0)
            return -1;
    return 0;
}

int agent_frame_append_start(struct buf *out, uint32_t run, uint32_t epoch, const struct run_spec *spec,
                             struct error *err)
{
    /* The limit is on all frames together: leave room for their headers. */
    const size_t frames_max = AGENT_START_MAX / AGENT_PAYLOAD_MAX;
    auto_buf struct buf whole = BUF_INIT(AGENT_START_MAX - frames_max * AGENT_HEADER_BYTES);
    const struct agent_start start = {
        .epoch = epoch,
        .flags = (spec->stdin_open ? AGENT_START_STDIN : 0) | (spec->merge ? AGENT_START_MERGE : 0) |
                 (spec->has_reader ? AGENT_START_READER : 0) | (spec->keep ? AGENT_START_KEEP : 0) |
                 (spec->watch ? AGENT_START_WATCH : 0) | (spec->tty ? AGENT_START_TTY : 0),
        .timeout_ms = spec->timeout_ms > 0 ? (uint64_t)spec->timeout_ms : 0,
        .argc = (uint32_t)spec->argc,
        .envc = (uint32_t)spec->env_count,
        .rows = (uint16_t)spec->rows,
        .cols = (uint16_t)spec->cols,
    };
    const char *cwd = spec->cwd ? spec->cwd : "";
    struct error full = ERROR_INIT;
    size_t at = 0;

    assert(spec->argc > 0);
    if (spec->argc > AGENT_ARGS_MAX || spec->env_count > AGENT_ARGS_MAX - spec->argc)
        return error_set(err, ERROR_INVALID, E2BIG, "more than %d arguments and variables", AGENT_ARGS_MAX);
    if (buf_append(&whole, &start, sizeof start, &full) < 0 ||
        append_strings(&whole, spec->argv, spec->argc, &full) < 0 ||
        append_strings(&whole, spec->env, spec->env_count, &full) < 0 || append_strings(&whole, &cwd, 1, &full) < 0)
        return error_set(err, ERROR_INVALID, E2BIG, "arguments and variables are larger than %zu bytes", whole.max);
    do {
        size_t size = whole.size - at < AGENT_PAYLOAD_MAX ? whole.size - at : AGENT_PAYLOAD_MAX;
        bool more = at + size < whole.size;

        if (agent_frame_append(out, AGENT_START, more ? AGENT_FLAG_MORE : 0, run, at, whole.data + at, size, err) < 0)
            return -1;
        at += size;
    } while (at < whole.size);
    return 0;
}
