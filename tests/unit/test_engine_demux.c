#include "buf.h"
#include "engine_demux.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

enum { FRAMES = 60, ROUNDS = 300, MAX = 1 << 20 };

static uint64_t seed = 1;

/* The same splits in each run: xorshift. */
static uint32_t number(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % below;
}

static void frame(struct buf *out, int stream, const char *data, uint32_t size)
{
    struct error err = ERROR_INIT;
    const char header[8] = {(char)stream,      0, 0, 0, (char)(size >> 24), (char)(size >> 16), (char)(size >> 8),
                            (char)(size & 255)};

    cr_assert(eq(int, buf_append(out, header, sizeof header, &err), 0));
    cr_assert(eq(int, buf_append(out, data, size, &err), 0));
}

/* Feed `in` in pieces of at most `most` bytes; what comes out is appended to each stream's buffer. */
static int feed(struct engine_demux *demux, const struct buf *in, uint32_t most, struct buf out[3], struct error *err)
{
    for (size_t at = 0; at < in->size;) {
        size_t end = at + 1 + number(most);

        if (end > in->size)
            end = in->size;
        while (at < end) {
            struct engine_demux_piece piece;
            size_t used = 0;
            int found = engine_demux_next(demux, in->data + at, end - at, &used, &piece, err);

            if (found < 0)
                return -1;
            cr_assert(le(sz, used, end - at));
            cr_assert(found || used == end - at);
            if (found) {
                cr_assert(gt(sz, piece.size, 0));
                cr_assert(eq(int, buf_append(&out[piece.stream], piece.data, piece.size, err), 0));
            }
            at += used;
        }
    }
    return 0;
}

Test(demux, any_split_gives_the_same_streams)
{
    for (int round = 0; round < ROUNDS; round++) {
        auto_buf struct buf in = BUF_INIT(MAX);
        struct buf want[3] = {BUF_INIT(MAX), BUF_INIT(MAX), BUF_INIT(MAX)};
        struct buf got[3] = {BUF_INIT(MAX), BUF_INIT(MAX), BUF_INIT(MAX)};
        struct engine_demux demux = ENGINE_DEMUX_INIT;
        struct error err = ERROR_INIT;

        for (int i = 0; i < FRAMES; i++) {
            char data[300];
            uint32_t size = number(3) ? number(sizeof data) : 0;
            uint32_t stream = number(3);

            for (uint32_t k = 0; k < size; k++)
                data[k] = (char)number(256);
            frame(&in, (int)stream, data, size);
            cr_assert(eq(int, buf_append(&want[stream], data, size, &err), 0));
        }
        cr_assert(eq(int, feed(&demux, &in, round % 3 == 0 ? 1 : 1 + number(700), got, &err), 0));
        for (int i = 0; i < 3; i++) {
            cr_assert(eq(sz, got[i].size, want[i].size));
            cr_assert(want[i].size == 0 || memcmp(got[i].data, want[i].data, want[i].size) == 0);
            buf_done(&want[i]);
            buf_done(&got[i]);
        }
    }
}

Test(demux, anything_else_is_refused)
{
    static const char bad[][8] = {{3, 0, 0, 0, 0, 0, 0, 1},
                                  {1, 1, 0, 0, 0, 0, 0, 1},
                                  {1, 0, 0, 1, 0, 0, 0, 1},
                                  {'H', 'T', 'T', 'P', '/', '1', '.', '1'}};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf out[3] = {BUF_INIT(MAX), BUF_INIT(MAX), BUF_INIT(MAX)};
        auto_buf struct buf in = BUF_INIT(MAX);
        struct engine_demux demux = ENGINE_DEMUX_INIT;
        struct error err = ERROR_INIT;

        frame(&in, 1, "ok", 2);
        cr_assert(eq(int, buf_append(&in, bad[i], sizeof bad[i], &err), 0));
        cr_assert(eq(int, feed(&demux, &in, 5, out, &err), -1));
        cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
        cr_assert(eq(sz, out[1].size, 2));
        buf_done(&out[1]);
    }
}
