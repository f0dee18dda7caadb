#include "agent_keep.h"

#include "agent_proto.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_LEAST = 1024, CHUNK_MOST = AGENT_KEEP_LEAST };

struct agent_keep_chunk {
    struct agent_keep_chunk *next;
    uint64_t offset;
    size_t size;
    size_t capacity;
    unsigned char bytes[];
};

static size_t all_held_bytes;

size_t agent_keep_held_bytes(void)
{
    return all_held_bytes;
}

static uint64_t chunk_end(const struct agent_keep_chunk *chunk)
{
    return chunk->offset + chunk->size;
}

/* Take out the chunk behind `before` (the first, if NULL). */
static void chunk_remove(struct agent_keep *keep, struct agent_keep_chunk *before)
{
    struct agent_keep_chunk *chunk = before ? before->next : keep->first;

    if (before)
        before->next = chunk->next;
    else
        keep->first = chunk->next;
    if (keep->last == chunk)
        keep->last = before;
    keep->held_bytes -= chunk->capacity;
    all_held_bytes -= chunk->capacity;
    free(chunk);
}

/* Drop one chunk: the first behind the half that is kept from the beginning; if all lie in that half, the newest. */
static void drop_middle(struct agent_keep *keep)
{
    struct agent_keep_chunk *before = NULL;
    uint64_t head_end = keep->first->offset + keep->share_bytes / 2;

    for (struct agent_keep_chunk *chunk = keep->first; chunk->next; chunk = chunk->next) {
        if (chunk->offset >= head_end)
            break;
        before = chunk;
    }
    keep->dropped = true;
    chunk_remove(keep, before);
}

size_t agent_keep_room(const struct agent_keep *keep)
{
    size_t own = keep->share_bytes > keep->held_bytes ? keep->share_bytes - keep->held_bytes : 0;
    size_t all = AGENT_TOTAL_KEEP_BYTES > all_held_bytes ? AGENT_TOTAL_KEEP_BYTES - all_held_bytes : 0;
    size_t least = AGENT_KEEP_LEAST > keep->held_bytes ? AGENT_KEEP_LEAST - keep->held_bytes : 0;
    size_t room = own < all ? own : all;

    return room > least ? room : least;
}

static struct agent_keep_chunk *chunk_add(struct agent_keep *keep, bool may_drop)
{
    struct agent_keep_chunk *chunk;
    size_t capacity = keep->held_bytes < CHUNK_LEAST ? CHUNK_LEAST : keep->held_bytes;

    if (capacity > CHUNK_MOST)
        capacity = CHUNK_MOST;
    while (may_drop && keep->first && agent_keep_room(keep) < capacity) {
        if (chunk_end(keep->first) <= keep->acked)
            chunk_remove(keep, NULL);
        else
            drop_middle(keep);
    }
    chunk = malloc(sizeof *chunk + capacity);
    if (!chunk)
        return NULL;
    *chunk = (struct agent_keep_chunk){.offset = keep->total, .capacity = capacity};
    if (keep->last)
        keep->last->next = chunk;
    else
        keep->first = chunk;
    keep->last = chunk;
    keep->held_bytes += capacity;
    all_held_bytes += capacity;
    return chunk;
}

void agent_keep_add(struct agent_keep *keep, const unsigned char *bytes, size_t size, bool may_drop)
{
    if (keep->total + size <= keep->acked) {
        keep->total += size;
        return;
    }
    while (size) {
        struct agent_keep_chunk *chunk = keep->last;
        size_t part;

        if (!chunk || chunk->size == chunk->capacity || chunk_end(chunk) != keep->total)
            chunk = chunk_add(keep, may_drop);
        if (!chunk) {
            keep->dropped = true;
            keep->total += size; /* no memory: dropped and counted, as beyond the share */
            return;
        }
        part = chunk->capacity - chunk->size < size ? chunk->capacity - chunk->size : size;
        memcpy(chunk->bytes + chunk->size, bytes, part);
        chunk->size += part;
        keep->total += part;
        bytes += part;
        size -= part;
    }
}

bool agent_keep_unsent(const struct agent_keep *keep)
{
    return keep->last && chunk_end(keep->last) > keep->sent;
}

size_t agent_keep_take(struct agent_keep *keep, unsigned char *bytes, size_t max, uint64_t *ret_offset)
{
    struct agent_keep_chunk *chunk = keep->first;
    size_t taken = 0;

    while (chunk && chunk_end(chunk) <= keep->sent)
        chunk = chunk->next;
    if (!chunk)
        return 0;
    if (keep->sent < chunk->offset)
        keep->sent = chunk->offset;
    *ret_offset = keep->sent;
    while (chunk && chunk->offset <= keep->sent && taken < max) {
        size_t from = (size_t)(keep->sent - chunk->offset);
        size_t part = chunk->size - from < max - taken ? chunk->size - from : max - taken;

        memcpy(bytes + taken, chunk->bytes + from, part);
        taken += part;
        keep->sent += part;
        chunk = chunk->next;
    }
    return taken;
}

void agent_keep_ack(struct agent_keep *keep, uint64_t offset)
{
    if (offset <= keep->acked)
        return;
    keep->acked = offset;
    if (keep->sent < offset)
        keep->sent = offset;
    while (keep->first && chunk_end(keep->first) + keep->behind_bytes <= offset)
        chunk_remove(keep, NULL);
}

void agent_keep_reclaim(struct agent_keep *keep)
{
    while (keep->first && chunk_end(keep->first) <= keep->acked &&
           all_held_bytes + AGENT_KEEP_LEAST > AGENT_TOTAL_KEEP_BYTES)
        chunk_remove(keep, NULL);
}

void agent_keep_seek(struct agent_keep *keep, uint64_t offset)
{
    keep->sent = offset < keep->total ? offset : keep->total;
}

void agent_keep_rewind(struct agent_keep *keep)
{
    keep->sent = keep->acked;
}

void agent_keep_clear(struct agent_keep *keep)
{
    while (keep->first)
        chunk_remove(keep, NULL);
}
