#include "net_stream.h"

#include "alloc.h"
#include "fd.h"
#include "net_stream_private.h"

#include <string.h>
#include <sys/socket.h>

struct socket_stream {
    struct net_stream base;
    char *ahead; /* received before the stream was made */
    size_t ahead_size;
    size_t ahead_given;
};

static ssize_t socket_read(struct net_stream *stream, void *data, size_t size)
{
    struct socket_stream *self = (struct socket_stream *)stream;
    size_t left = self->ahead_size - self->ahead_given;

    if (left == 0)
        return recv(stream->fd, data, size, 0);
    if (size > left)
        size = left;
    memcpy(data, self->ahead + self->ahead_given, size);
    self->ahead_given += size;
    return (ssize_t)size;
}

static ssize_t socket_write(struct net_stream *stream, const void *data, size_t size)
{
    return send(stream->fd, data, size, MSG_NOSIGNAL);
}

static void socket_close(struct net_stream *stream)
{
    struct socket_stream *self = (struct socket_stream *)stream;

    (void)close(stream->fd);
    free(self->ahead);
    free(self);
}

static const struct net_stream_ops socket_ops = {socket_read, socket_write, socket_close};

struct net_stream *net_stream_from_fd_ahead(int fd, const void *data, size_t size)
{
    struct socket_stream *self = alloc_zero(sizeof *self);
    struct error ignored = ERROR_INIT; /* only a bad descriptor fails, and then the first read says so */

    self->base = (struct net_stream){&socket_ops, fd};
    (void)fd_set_nonblocking(fd, &ignored);
    if (size > 0) {
        self->ahead = alloc_array(size, 1);
        memcpy(self->ahead, data, size);
        self->ahead_size = size;
    }
    return &self->base;
}

struct net_stream *net_stream_from_fd(int fd)
{
    return net_stream_from_fd_ahead(fd, NULL, 0);
}
