#include "agent_keep.h"

#include "agent_proto.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_LEAST = 1024, CHUNK_MOST = AGENT_KEEP_LEAST };

struct agent_keep_chunk {
    struct agent_keep_chunk *next;
    struct agent_keep_chunk *previous;
    uint64_t offset;
    size_t size;
    size_t capacity;
    bool is_spare;
    unsigned char bytes[];
};

static size_t all_held_bytes;
static size_t all_spare_bytes;
static struct agent_keep *with_spare;

size_t agent_keep_held_bytes(void)
{
    return all_held_bytes;
}

size_t agent_keep_wanted_bytes(void)
{
    return all_held_bytes - all_spare_bytes;
}

static uint64_t chunk_end(const struct agent_keep_chunk *chunk)
{
    return chunk->offset + chunk->size;
}

static void spare_set(struct agent_keep *keep, struct agent_keep_chunk *chunk)
{
    chunk->is_spare = true;
    if (!keep->spare_bytes) {
        keep->previous_spare = NULL;
        keep->next_spare = with_spare;
        if (with_spare)
            with_spare->previous_spare = keep;
        with_spare = keep;
    }
    keep->spare_bytes += chunk->capacity;
    all_spare_bytes += chunk->capacity;
}

static void spare_clear(struct agent_keep *keep, struct agent_keep_chunk *chunk)
{
    chunk->is_spare = false;
    keep->spare_bytes -= chunk->capacity;
    all_spare_bytes -= chunk->capacity;
    if (keep->spare_bytes)
        return;
    if (keep->next_spare)
        keep->next_spare->previous_spare = keep->previous_spare;
    if (keep->previous_spare)
        keep->previous_spare->next_spare = keep->next_spare;
    else
        with_spare = keep->next_spare;
}

static void chunk_remove(struct agent_keep *keep, struct agent_keep_chunk *chunk)
{
    if (chunk->is_spare)
        spare_clear(keep, chunk);
    if (keep->wanted == chunk)
        keep->wanted = chunk->next;
    if (chunk->next)
        chunk->next->previous = chunk->previous;
    else
        keep->last = chunk->previous;
    if (chunk->previous)
        chunk->previous->next = chunk->next;
    else
        keep->first = chunk->next;
    keep->held_bytes -= chunk->capacity;
    all_held_bytes -= chunk->capacity;
    free(chunk);
}

/* Somebody reads what is kept behind, or was cut while doing so. */
static bool spare_is_read(const struct agent_keep *keep)
{
    return keep->sent < keep->acked;
}

/* Free the oldest spare chunk of the keep that has most; of one whose spare is read only if there is no other. */
static bool reclaim(void)
{
    struct agent_keep *most = NULL;

    for (struct agent_keep *keep = with_spare; keep; keep = keep->next_spare)
        if (!most ||
            (spare_is_read(keep) == spare_is_read(most) ? keep->spare_bytes > most->spare_bytes : spare_is_read(most)))
            most = keep;
    if (most)
        chunk_remove(most, most->first);
    return most != NULL;
}

/* Drop one chunk: the first behind the half that is kept from the beginning; if all lie in that half, the newest. */
static void drop_middle(struct agent_keep *keep)
{
    uint64_t head_end = keep->wanted->offset + keep->share_bytes / 2;
    struct agent_keep_chunk *chunk = keep->wanted;

    while (chunk->next && chunk->offset < head_end)
        chunk = chunk->next;
    keep->dropped = true;
    chunk_remove(keep, chunk);
}

size_t agent_keep_room(const struct agent_keep *keep)
{
    size_t held = keep->held_bytes - keep->spare_bytes;
    size_t all_held = agent_keep_wanted_bytes();
    size_t own = keep->share_bytes > held ? keep->share_bytes - held : 0;
    size_t all = AGENT_TOTAL_KEEP_BYTES > all_held ? AGENT_TOTAL_KEEP_BYTES - all_held : 0;
    size_t least = AGENT_KEEP_LEAST > held ? AGENT_KEEP_LEAST - held : 0;
    size_t room = own < all ? own : all;

    return room > least ? room : least;
}

static struct agent_keep_chunk *chunk_add(struct agent_keep *keep, bool may_drop)
{
    struct agent_keep_chunk *chunk;
    size_t capacity = keep->held_bytes < CHUNK_LEAST ? CHUNK_LEAST : keep->held_bytes;

    if (capacity > CHUNK_MOST)
        capacity = CHUNK_MOST;
    while (may_drop && keep->wanted && agent_keep_room(keep) < capacity)
        drop_middle(keep);
    while (all_held_bytes + capacity > AGENT_TOTAL_KEEP_BYTES && reclaim())
        ;
    chunk = malloc(sizeof *chunk + capacity);
    if (!chunk)
        return NULL;
    *chunk = (struct agent_keep_chunk){.offset = keep->total, .capacity = capacity, .previous = keep->last};
    if (keep->last)
        keep->last->next = chunk;
    else
        keep->first = chunk;
    keep->last = chunk;
    if (!keep->wanted)
        keep->wanted = chunk;
    keep->held_bytes += capacity;
    all_held_bytes += capacity;
    return chunk;
}

/* The last chunk is spare and has room: it takes what comes. */
static void want_again(struct agent_keep *keep, struct agent_keep_chunk *last)
{
    spare_clear(keep, last);
    keep->wanted = last;
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
        else if (chunk->is_spare)
            want_again(keep, chunk);
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
    struct agent_keep_chunk *chunk = spare_is_read(keep) ? keep->first : keep->wanted;
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
    for (; keep->wanted && chunk_end(keep->wanted) <= offset; keep->wanted = keep->wanted->next)
        spare_set(keep, keep->wanted);
    while (keep->first && chunk_end(keep->first) + keep->behind_bytes <= offset)
        chunk_remove(keep, keep->first);
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
        chunk_remove(keep, keep->first);
}
