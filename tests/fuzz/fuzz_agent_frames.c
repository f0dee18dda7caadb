/* What a dead broker may leave in the agent's stream: any bytes, and sound frames among them. Whatever it is, the zeros of a
 * resync and a HELLO behind it must bring the parser to that HELLO, and to nothing after it. */
#include "agent_frame.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static size_t put_frame(uint8_t *to, uint8_t type, const uint8_t *payload, size_t size)
{
    struct agent_header header = {.type = type};

    agent_frame_seal(&header, payload, size);
    memcpy(to, &header, sizeof header);
    if (size)
        memcpy(to + sizeof header, payload, size);
    return sizeof header + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[4 * AGENT_RESYNC_ZEROS];
    struct agent_header header = {0};
    size_t end = 0, at = 0, skip;

    if (size > AGENT_PAYLOAD_MAX)
        return 0;
    if (size && data[0] & 1) /* the input as a sound frame's payload, torn in the middle or bent */
        end = put_frame(bytes, AGENT_START, data, size);
    if (end && data[0] & 2)
        end -= data[size - 1] % end;
    if (end && data[0] & 4)
        bytes[data[size / 2] % end] ^= data[0];
    if (size)
        memcpy(bytes + end, data, size);
    memset(bytes + end + size, 0, AGENT_RESYNC_ZEROS);
    end = end + size + AGENT_RESYNC_ZEROS;
    end += put_frame(bytes + end, AGENT_HELLO, data, size % 64);
    while (agent_frame_find(bytes + at, end - at, &skip, &header)) {
        if (skip + sizeof header + header.length > end - at)
            abort();
        at += skip + sizeof header + header.length;
    }
    if (at != end || header.type != AGENT_HELLO || header.length != size % 64)
        abort();
    return 0;
}
