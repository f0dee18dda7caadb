#include "agent_frame.h"

#include "crc32c.h"

#include <string.h>

/* Bytes before the first place where a magic, or the beginning of one, may be. */
static size_t garbage(const unsigned char *bytes, size_t size)
{
    static const uint32_t magic = AGENT_MAGIC;
    size_t at = 0;

    while (at < size) {
        const unsigned char *hit = memchr(bytes + at, *(const unsigned char *)&magic, size - at);

        if (!hit)
            return size;
        at = (size_t)(hit - bytes);
        if (memcmp(hit, &magic, size - at < sizeof magic ? size - at : sizeof magic) == 0)
            return at;
        at++;
    }
    return size;
}

static uint32_t checksum(const struct agent_header *header, const void *payload)
{
    struct agent_header blank = *header;

    blank.crc = 0;
    return crc32c(crc32c(0, &blank, sizeof blank), payload, header->length);
}

bool agent_frame_find(const unsigned char *bytes, size_t size, size_t *ret_at, struct agent_header *ret_header)
{
    size_t at = 0;

    for (;; at++) {
        at += garbage(bytes + at, size - at);
        *ret_at = at;
        if (size - at < sizeof *ret_header)
            return false;
        memcpy(ret_header, bytes + at, sizeof *ret_header);
        if (ret_header->version != AGENT_VERSION || ret_header->length > AGENT_PAYLOAD_MAX || ret_header->reserved)
            continue;
        if (size - at < sizeof *ret_header + ret_header->length)
            return false;
        if (checksum(ret_header, bytes + at + sizeof *ret_header) == ret_header->crc)
            return true;
    }
}

void agent_frame_seal(struct agent_header *header, const void *payload, size_t size)
{
    header->magic = AGENT_MAGIC;
    header->version = AGENT_VERSION;
    header->length = (uint32_t)size;
    header->reserved = 0;
    header->crc = checksum(header, payload);
}
