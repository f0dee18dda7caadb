/* An http_reply that keeps what it was given, for tests of what writes replies. */
#ifndef BERTH_FAKE_HTTP_REPLY_H
#define BERTH_FAKE_HTTP_REPLY_H

#include "http.h"

struct http_reply {
    int status;
    struct buf body;
    bool streamed;
};

#define FAKE_REPLY_INIT                          \
    {                                            \
        200, BUF_INIT(1024 * 1024 * 1024), false \
    }

/* Read a stream to its end by pieces of `piece` bytes. */
extern size_t fake_reply_piece;

#endif
