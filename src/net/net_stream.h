/* net/net_stream.h: one raw duplex byte stream, after an upgrade or over a plain descriptor.
 *
 * Non-blocking; the owner polls net_stream_fd(). Threads: one at a time. Later kinds (WebSocket over TLS) keep this shape:
 * after a successful poll always read until EAGAIN, since a kind may hold decoded bytes of its own.
 */
#ifndef BERTH_NET_STREAM_H
#define BERTH_NET_STREAM_H

#include <stddef.h>
#include <sys/types.h>

struct net_stream;

/* What a kind of stream does. `read` and `write` as read(2) and write(2) on a non-blocking descriptor: count, 0 at the end,
 * -1 with errno (EAGAIN: poll again). `close` frees everything. */
struct net_stream_ops {
    ssize_t (*read)(struct net_stream *stream, void *data, size_t size);
    ssize_t (*write)(struct net_stream *stream, const void *data, size_t size);
    void (*close)(struct net_stream *stream);
};

/* Embedded as the first member of each kind. */
struct net_stream {
    const struct net_stream_ops *ops;
    int fd; /* to poll; owned by the kind */
};

static inline int net_stream_fd(const struct net_stream *stream)
{
    return stream->fd;
}

static inline ssize_t net_stream_read(struct net_stream *stream, void *data, size_t size)
{
    return stream->ops->read(stream, data, size);
}

static inline ssize_t net_stream_write(struct net_stream *stream, const void *data, size_t size)
{
    return stream->ops->write(stream, data, size);
}

static inline void net_stream_close(struct net_stream *stream)
{
    if (stream)
        stream->ops->close(stream);
}

/* A stream over a connected socket, which it owns from now on and makes non-blocking. Never NULL. */
struct net_stream *net_stream_from_fd(int fd);

#endif
