/* util/crc32c.h: CRC-32C (Castagnoli, RFC 3720 appendix B.4). Also built into the agent, so it stands alone. */
#ifndef BERTH_CRC32C_H
#define BERTH_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `size` bytes following those whose checksum is `crc` (0 at the start). Uses SSE4.2 where it is there. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

#endif
