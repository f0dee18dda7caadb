#include "crc32c.h"

#include <string.h>

static uint32_t portable(uint32_t crc, const unsigned char *bytes, size_t size)
{
    /* Four bits at a time: the table is small enough to be read as a whole. */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

    while (size--) {
        crc ^= *bytes++;
        crc = table[crc & 15] ^ (crc >> 4);
        crc = table[crc & 15] ^ (crc >> 4);
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t hardware(uint32_t crc, const unsigned char *bytes, size_t size)
{
    uint64_t wide = crc;

    while (size >= 8) {
        uint64_t word;

        memcpy(&word, bytes, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
        bytes += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = __builtin_ia32_crc32qi(crc, *bytes++);
    return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t size)
{
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~hardware(crc, data, size);
#endif
    return ~portable(crc, data, size);
}
