/* util/fd.h: whole reads and writes on descriptors. Block as the descriptor does; EINTR is retried. Threads: any. */
#ifndef BERTH_FD_H
#define BERTH_FD_H

#include "buf.h"

#include <sys/types.h>

int fd_write_all(int fd, const void *data, size_t size, struct error *err);
/* Read to the end of file; TOO_LARGE over the buffer's maximum. */
int fd_read_all(int fd, struct buf *out, struct error *err);
/* Exactly `size` bytes at `offset`, fewer only at the end of file: returns the count or -1. */
ssize_t fd_pread_full(int fd, void *data, size_t size, off_t offset, struct error *err);
int fd_set_nonblocking(int fd, struct error *err);

#endif
