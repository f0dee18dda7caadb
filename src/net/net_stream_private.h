/* net/net_stream_private.h: within net/ only. */
#ifndef BERTH_NET_STREAM_PRIVATE_H
#define BERTH_NET_STREAM_PRIVATE_H

#include "net_stream.h"

/* As net_stream_from_fd(), with `size` bytes (copied) that were received already and are read first. */
struct net_stream *net_stream_from_fd_ahead(int fd, const void *data, size_t size);

#endif
