#include "agent_stream.h"

#include "agent_frame.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int agent_stream_read(struct agent_stream *stream)
{
    ssize_t got;

    if (stream->in_at) {
        memmove(stream->in_bytes, stream->in_bytes + stream->in_at, stream->in_size - stream->in_at);
        stream->in_size -= stream->in_at;
        stream->in_at = 0;
    }
    if (stream->in_size == sizeof stream->in_bytes)
        return 1;
    got = read(stream->in, stream->in_bytes + stream->in_size, sizeof stream->in_bytes - stream->in_size);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : -1;
    stream->in_size += (size_t)got;
    return got > 0;
}

bool agent_stream_next(struct agent_stream *stream, struct agent_header *ret_header, const unsigned char **ret_payload)
{
    size_t skip;
    bool found = agent_frame_find(stream->in_bytes + stream->in_at, stream->in_size - stream->in_at, &skip, ret_header);

    stream->in_at += skip;
    if (!found)
        return false;
    *ret_payload = stream->in_bytes + stream->in_at + AGENT_HEADER_BYTES;
    stream->in_at += AGENT_HEADER_BYTES + ret_header->length;
    return true;
}

bool agent_stream_fits(const struct agent_stream *stream, size_t payload_size)
{
    return sizeof stream->out_bytes - stream->out_size >= AGENT_HEADER_BYTES + payload_size;
}

unsigned char *agent_stream_payload(struct agent_stream *stream)
{
    return stream->out_bytes + stream->out_size + AGENT_HEADER_BYTES;
}

void agent_stream_commit(struct agent_stream *stream, uint8_t type, uint32_t run, uint64_t offset, size_t size)
{
    struct agent_header header = {.type = type, .run = run, .offset = offset};

    agent_frame_seal(&header, agent_stream_payload(stream), size);
    memcpy(stream->out_bytes + stream->out_size, &header, sizeof header);
    stream->out_size += sizeof header + size;
}

void agent_stream_put(struct agent_stream *stream, uint8_t type, uint32_t run, uint64_t offset, const void *payload,
                      size_t size)
{
    if (size)
        memcpy(agent_stream_payload(stream), payload, size);
    agent_stream_commit(stream, type, run, offset, size);
}

int agent_stream_flush(struct agent_stream *stream)
{
    while (stream->out_at < stream->out_size) {
        ssize_t put = write(stream->out, stream->out_bytes + stream->out_at, stream->out_size - stream->out_at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errno == EAGAIN ? 0 : -1;
        stream->out_at += (size_t)put;
    }
    stream->out_at = stream->out_size = 0;
    return 1;
}

void agent_stream_restart(struct agent_stream *stream)
{
    bool half = stream->out_at < stream->out_size;

    stream->out_at = 0;
    stream->out_size = half ? AGENT_RESYNC_ZEROS : 0;
    memset(stream->out_bytes, 0, stream->out_size);
}
