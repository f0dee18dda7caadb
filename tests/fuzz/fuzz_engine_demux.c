/* The engine's multiplexed stream: any bytes, split anywhere, give the same pieces as unsplit, or the same refusal. */
#include "engine_demux.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Feed it all, at most `step` bytes at a time; returns a digest of what came out, streams apart. */
static uint64_t feed(const char *data, size_t size, size_t step, int *ret_failed)
{
    struct engine_demux demux = ENGINE_DEMUX_INIT;
    struct error err = ERROR_INIT;
    uint64_t digest[3] = {0};
    size_t at = 0;

    *ret_failed = 0;
    while (at < size && !*ret_failed) {
        struct engine_demux_piece piece;
        size_t used = 0, most = size - at < step ? size - at : step;
        int found = engine_demux_next(&demux, data + at, most, &used, &piece, &err);

        *ret_failed = found < 0;
        if (found > 0 && (piece.size == 0 || piece.size > most || piece.data < data + at))
            abort();
        if (found >= 0 && (used > most || (found == 0 && used != most)))
            abort();
        for (size_t i = 0; found > 0 && i < piece.size; i++)
            digest[piece.stream] = digest[piece.stream] * 1099511628211u + (unsigned char)piece.data[i] + 1;
        at += used;
    }
    return digest[0] ^ digest[1] * 3 ^ digest[2] * 7;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int failed, failed_split;
    uint64_t whole = feed((const char *)data, size, size, &failed);

    for (size_t step = 1; step < 12; step += 2) {
        if (feed((const char *)data, size, step, &failed_split) != whole || failed_split != failed)
            abort();
    }
    return 0;
}
