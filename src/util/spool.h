/* util/spool.h: bytes kept in memory while they are few and in an unlinked file when they are many.
 *
 * For what a sandbox can size and a client reads once: 256 runs at 10 MiB are disk, not memory. Threads: one owner.
 * Errors: NO_SPACE, INTERNAL.
 */
#ifndef BERTH_SPOOL_H
#define BERTH_SPOOL_H

#include "buf.h"

#include <stdint.h>

enum { SPOOL_MEMORY_BYTES = 256 * 1024 };

struct spool {
    struct buf memory;
    int fd; /* -1 until the memory was not enough; then everything lies in it */
    uint64_t size;
};

#define SPOOL_INIT                          \
    {                                       \
        BUF_INIT(SPOOL_MEMORY_BYTES), -1, 0 \
    }

/* `dir`: where the unlinked file is made. */
int spool_append(struct spool *spool, const char *dir, const void *data, size_t size, struct error *err);
/* Bytes at `offset`: the count, 0 at the end. Blocks on the disk. */
int64_t spool_read(const struct spool *spool, uint64_t offset, void *data, size_t size, struct error *err);
/* Keep the first `size` bytes. */
void spool_cut(struct spool *spool, uint64_t size);
void spool_done(struct spool *spool);

#define auto_spool auto_cleanup(spool_done)

#endif
