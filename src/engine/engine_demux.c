#include "engine_demux.h"

int engine_demux_next(struct engine_demux *demux, const char *data, size_t size, size_t *ret_used,
                      struct engine_demux_piece *ret_piece, struct error *err)
{
    const unsigned char *header = demux->header;
    size_t used = 0;

    while (used < size && demux->left == 0) {
        demux->header[demux->header_size++] = (unsigned char)data[used++];
        if (demux->header_size < sizeof demux->header)
            continue;
        if (header[0] > ENGINE_DEMUX_STDERR || header[1] || header[2] || header[3])
            return fail(err, ENGINE, "the engine's stream has a frame of kind %02x%02x%02x%02x", header[0], header[1],
                        header[2], header[3]);
        demux->header_size = 0;
        demux->left = (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 | header[7];
    }
    if (used == size) {
        *ret_used = used;
        return 0;
    }
    ret_piece->stream = (enum engine_demux_stream)header[0];
    ret_piece->data = data + used;
    ret_piece->size = size - used < demux->left ? size - used : demux->left;
    demux->left -= (uint32_t)ret_piece->size;
    *ret_used = used + ret_piece->size;
    return 1;
}
