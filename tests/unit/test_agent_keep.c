/* What the agent keeps of output: bytes that are wanted against a share, bytes for who comes back while there is memory. */
#include "agent_keep.h"
#include "agent_proto.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 64 * 1024, KEEPS = 4 };

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)((offset * 2654435761u) >> 13);
}

static struct agent_keep keep_new(void)
{
    return (struct agent_keep){.share_bytes = AGENT_RUN_KEEP_BYTES, .behind_bytes = AGENT_BEHIND_BYTES};
}

static void add(struct agent_keep *keep, size_t size, bool may_drop)
{
    static unsigned char bytes[PIECE_BYTES];

    while (size) {
        size_t part = size < sizeof bytes ? size : sizeof bytes;

        for (size_t i = 0; i < part; i++)
            bytes[i] = byte_at(keep->total + i);
        agent_keep_add(keep, bytes, part, may_drop);
        size -= part;
    }
}

/* All that can be sent, checked; returns how many bytes and counts gaps. */
static uint64_t take_all(struct agent_keep *keep, unsigned *gaps)
{
    static unsigned char bytes[PIECE_BYTES];
    uint64_t sum = 0, offset;

    for (;;) {
        uint64_t expected = keep->sent;
        size_t size = agent_keep_take(keep, bytes, sizeof bytes, &offset);

        if (size == 0)
            return sum;
        *gaps += offset != expected;
        for (size_t i = 0; i < size; i++)
            cr_assert(eq(u8, bytes[i], byte_at(offset + i)), "byte %llu", (unsigned long long)(offset + i));
        sum += size;
    }
}

/* As a reader that keeps up. */
static void stream(struct agent_keep *keep, size_t size)
{
    unsigned gaps = 0;

    while (size) {
        size_t part = size < PIECE_BYTES ? size : PIECE_BYTES;

        add(keep, part, false);
        cr_assert(eq(u64, take_all(keep, &gaps), part));
        agent_keep_ack(keep, keep->total);
        size -= part;
    }
    cr_assert(eq(u32, gaps, 0));
}

Test(agent_keep, gives_back_what_was_acknowledged)
{
    struct agent_keep keep = keep_new();
    unsigned gaps = 0;

    stream(&keep, 20u << 20);
    cr_expect(le(sz, keep.held_bytes, (size_t)AGENT_BEHIND_BYTES + AGENT_KEEP_LEAST));
    cr_expect(eq(sz, agent_keep_wanted_bytes(), 0));
    cr_expect(eq(sz, agent_keep_room(&keep), AGENT_RUN_KEEP_BYTES), "what is behind counts against no share");
    agent_keep_seek(&keep, keep.total - AGENT_BEHIND_BYTES);
    cr_expect(eq(u64, take_all(&keep, &gaps), AGENT_BEHIND_BYTES));
    cr_expect(eq(u32, gaps, 0));
    cr_expect_not(keep.dropped);
    agent_keep_clear(&keep);
    cr_expect(eq(sz, agent_keep_held_bytes(), 0));
}

Test(agent_keep, what_is_behind_gives_way_to_what_is_wanted)
{
    struct agent_keep old = keep_new(), runs[KEEPS];
    unsigned gaps = 0;

    stream(&old, AGENT_BEHIND_BYTES);
    for (int i = 0; i < KEEPS; i++) { /* nobody reads these */
        runs[i] = keep_new();
        add(&runs[i], AGENT_RUN_KEEP_BYTES, true);
        cr_expect_not(runs[i].dropped);
        cr_expect(le(sz, agent_keep_held_bytes(), AGENT_TOTAL_KEEP_BYTES));
    }
    cr_expect(eq(sz, old.held_bytes, AGENT_TOTAL_KEEP_BYTES - KEEPS * AGENT_RUN_KEEP_BYTES), "no more than is needed");
    agent_keep_seek(&old, old.total - old.held_bytes);
    cr_expect(eq(u64, take_all(&old, &gaps), old.held_bytes), "the newest of it is there");
    cr_expect(eq(u32, gaps, 0));
    for (int i = 0; i < KEEPS; i++) {
        cr_expect(eq(u64, take_all(&runs[i], &gaps), AGENT_RUN_KEEP_BYTES));
        agent_keep_clear(&runs[i]);
    }
    agent_keep_clear(&old);
}

Test(agent_keep, who_has_most_behind_gives_first_and_who_is_read_last)
{
    struct agent_keep small = keep_new(), large = keep_new(), read = keep_new(), flood = keep_new();

    stream(&small, 1u << 20);
    stream(&large, 2u << 20);
    stream(&read, 4u << 20);
    agent_keep_seek(&read, 0); /* somebody came back */
    stream(&flood, 1u << 20);
    add(&flood, 1u << 20, false);
    cr_expect(eq(sz, read.held_bytes, 4u << 20));
    cr_expect(eq(sz, small.held_bytes, 1u << 20));
    cr_expect(eq(sz, large.held_bytes, 1u << 20));
    cr_expect(eq(sz, agent_keep_held_bytes(), AGENT_TOTAL_KEEP_BYTES));
    agent_keep_clear(&small);
    agent_keep_clear(&large);
    agent_keep_clear(&read);
    agent_keep_clear(&flood);
}

Test(agent_keep, a_byte_at_a_time_takes_no_chunk_each)
{
    struct agent_keep keep = keep_new();
    unsigned gaps = 0;

    for (int i = 0; i < 100000; i++) {
        add(&keep, 1, false);
        cr_assert(eq(u64, take_all(&keep, &gaps), 1));
        agent_keep_ack(&keep, keep.total);
    }
    cr_expect(le(sz, keep.held_bytes, 100000u + AGENT_KEEP_LEAST));
    agent_keep_seek(&keep, 0);
    cr_expect(eq(u64, take_all(&keep, &gaps), 100000));
    cr_expect(eq(u32, gaps, 0));
    agent_keep_clear(&keep);
}

Test(agent_keep, drops_the_middle_of_what_is_wanted_behind_what_is_not)
{
    struct agent_keep keep = keep_new();
    unsigned gaps = 0;

    stream(&keep, 3u << 20);
    add(&keep, 8u << 20, true); /* its reader is gone */
    cr_expect(keep.dropped);
    agent_keep_seek(&keep, 0);
    cr_expect(eq(u64, take_all(&keep, &gaps), 4u << 20), "all that was read, and a share");
    cr_expect(eq(u32, gaps, 1));
    cr_expect(eq(u64, keep.sent, 11u << 20));
    agent_keep_clear(&keep);
    cr_expect(eq(sz, agent_keep_held_bytes(), 0));
}

static unsigned next(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Any order of anything: bytes are what they were, sums are right, nobody takes more than all may have. */
Test(agent_keep, holds_its_sums_whatever_happens)
{
    struct agent_keep keeps[KEEPS];

    for (unsigned seed = 1; seed <= 8; seed++) {
        uint32_t state = seed;

        for (int i = 0; i < KEEPS; i++) {
            keeps[i] = keep_new();
            keeps[i].behind_bytes = next(&state) % 2 ? AGENT_BEHIND_BYTES : 0;
        }
        for (int step = 0; step < 800; step++) {
            struct agent_keep *keep = &keeps[next(&state) % KEEPS];
            size_t held = 0, spare = 0;
            unsigned gaps = 0;

            switch (next(&state) % 8) {
            case 0:
                agent_keep_ack(keep,
                               keep->acked + (keep->total + 1000 - keep->acked) * (unsigned)(next(&state) % 5) / 4);
                break;
            case 1:
                agent_keep_seek(keep, keep->total * (unsigned)(next(&state) % 5) / 4);
                break;
            case 2:
                (void)take_all(keep, &gaps);
                break;
            case 3:
                agent_keep_rewind(keep);
                break;
            case 4:
                if (next(&state) % 40 == 0)
                    agent_keep_clear(keep);
                break;
            default:
                add(keep, (size_t)(next(&state) % (next(&state) % 3 ? 3000 : 200000)),
                    next(&state) % 4 != 0 || agent_keep_room(keep) < 200000);
            }
            for (int i = 0; i < KEEPS; i++) {
                held += keeps[i].held_bytes;
                spare += keeps[i].spare_bytes;
                cr_assert(le(sz, keeps[i].spare_bytes, keeps[i].held_bytes), "seed %u step %d", seed, step);
                cr_assert(
                    le(sz, keeps[i].held_bytes - keeps[i].spare_bytes, AGENT_RUN_KEEP_BYTES + 2 * AGENT_KEEP_LEAST));
            }
            cr_assert(eq(sz, held, agent_keep_held_bytes()), "seed %u step %d", seed, step);
            cr_assert(eq(sz, held - spare, agent_keep_wanted_bytes()), "seed %u step %d", seed, step);
            cr_assert(le(sz, held, AGENT_TOTAL_KEEP_BYTES + KEEPS * AGENT_KEEP_LEAST), "seed %u step %d", seed, step);
        }
        for (int i = 0; i < KEEPS; i++)
            agent_keep_clear(&keeps[i]);
        cr_assert(eq(sz, agent_keep_held_bytes(), 0));
        cr_assert(eq(sz, agent_keep_wanted_bytes(), 0));
    }
}
