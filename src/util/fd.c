#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024 };

int fd_write_all(int fd, const void *data, size_t size, struct error *err)
{
    const char *at = data;

    while (size) {
        ssize_t wrote = write(fd, at, size);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return fail_errno(err, "write");
        at += wrote;
        size -= (size_t)wrote;
    }
    return 0;
}

int fd_read_all(int fd, struct buf *out, struct error *err)
{
    for (;;) {
        size_t room = out->max - out->size;
        char extra;
        char *space = &extra; /* at the maximum one byte more tells the end of file from too much */
        ssize_t got;

        if (room > READ_BYTES)
            room = READ_BYTES;
        if (room && buf_reserve(out, room, &space, err) < 0)
            return -1;
        got = read(fd, space, room ? room : 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "read");
        if (got == 0)
            return 0;
        if (room == 0)
            return fail(err, TOO_LARGE, "more than %zu bytes", out->max);
        buf_commit(out, (size_t)got);
    }
}

ssize_t fd_pread_full(int fd, void *data, size_t size, off_t offset, struct error *err)
{
    size_t done = 0;

    while (done < size) {
        ssize_t got = pread(fd, (char *)data + done, size - done, offset + (off_t)done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, "pread");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int fd_set_nonblocking(int fd, struct error *err)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return fail_errno(err, "fcntl");
    return 0;
}
