/* engine/engine_demux.h: the engine's multiplexing of attached streams taken apart (moby "attach": 8 bytes of header
 * {stream, 0, 0, 0, length in big endian}, then the payload). A pure function over bytes: frames may be split anywhere.
 * Never blocks. Threads: one owner. */
#ifndef BERTH_ENGINE_DEMUX_H
#define BERTH_ENGINE_DEMUX_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

enum engine_demux_stream { ENGINE_DEMUX_STDIN, ENGINE_DEMUX_STDOUT, ENGINE_DEMUX_STDERR };

struct engine_demux {
    unsigned char header[8];
    size_t header_size;
    uint32_t left; /* payload bytes of the current frame that are still to come */
};

#define ENGINE_DEMUX_INIT \
    {                     \
        {0}, 0, 0         \
    }

/* A piece of one stream, borrowed from the input. */
struct engine_demux_piece {
    enum engine_demux_stream stream;
    const char *data;
    size_t size; /* never 0 */
};

/* Take bytes from the front of `data`: *ret_used of them. 1: *ret_piece is set. 0: all were taken and there is no
 * (more) piece. -1 (ENGINE): not the format. */
int engine_demux_next(struct engine_demux *demux, const char *data, size_t size, size_t *ret_used,
                      struct engine_demux_piece *ret_piece, struct error *err);

#endif
