#include "fake_http_reply.h"

#include <stdlib.h>

size_t fake_reply_piece = 65536;

void http_reply_status(struct http_reply *reply, int status)
{
    reply->status = status;
}

void http_reply_buf(struct http_reply *reply, const char *content_type, struct buf *body)
{
    reply->body = *body;
    *body = (struct buf)BUF_INIT(body->max);
}

void http_reply_stream(struct http_reply *reply, const char *content_type, const struct http_stream *stream)
{
    struct error err = ERROR_INIT;
    struct cancel never = CANCEL_NEVER;
    char *space;
    int64_t got;

    reply->streamed = true;
    do {
        if (buf_reserve(&reply->body, fake_reply_piece, &space, &err) < 0)
            abort();
        got = stream->next(stream->context, &never, space, fake_reply_piece);
        if (got > 0)
            buf_commit(&reply->body, (size_t)got);
    } while (got > 0);
    if (got < 0)
        buf_clear(&reply->body);
    stream->free(stream->context);
}
