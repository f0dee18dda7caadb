#include "spool.h"

#include "fd.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int to_file(struct spool *spool, const char *dir, struct error *err)
{
    spool->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (spool->fd < 0)
        return fail_errno(err, "making a spool file in %s", dir);
    if (fd_write_all(spool->fd, buf_str(&spool->memory), spool->memory.size, err) < 0)
        return -1;
    buf_done(&spool->memory);
    return 0;
}

int spool_append(struct spool *spool, const char *dir, const void *data, size_t size, struct error *err)
{
    if (spool->fd < 0 && size > spool->memory.max - spool->memory.size && to_file(spool, dir, err) < 0)
        return -1;
    if (spool->fd >= 0 ? fd_write_all(spool->fd, data, size, err) < 0 : buf_append(&spool->memory, data, size, err) < 0)
        return -1;
    spool->size += size;
    return 0;
}

int64_t spool_read(const struct spool *spool, uint64_t offset, void *data, size_t size, struct error *err)
{
    if (offset >= spool->size)
        return 0;
    if (size > spool->size - offset)
        size = (size_t)(spool->size - offset);
    if (spool->fd >= 0)
        return fd_pread_full(spool->fd, data, size, (off_t)offset, err);
    memcpy(data, spool->memory.data + offset, size);
    return (int64_t)size;
}

void spool_cut(struct spool *spool, uint64_t size)
{
    if (size < spool->size)
        spool->size = size;
}

void spool_done(struct spool *spool)
{
    buf_done(&spool->memory);
    cleanup_fd(&spool->fd);
    spool->fd = -1;
    spool->size = 0;
}
