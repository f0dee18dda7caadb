#include "http_private.h"

#include "alloc.h"
#include "cleanup.h"
#include "clock.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { STREAM_BLOCK_BYTES = 65536, LONG_WAIT_MS = 1000 };

/* Drops the body, whatever it is. */
static void drop_body(struct http_reply *reply)
{
    free(reply->data);
    reply->data = NULL;
    cleanup_fd(&reply->fd);
    reply->fd = -1;
    if (reply->kind == HTTP_REPLY_STREAM && reply->stream.free)
        reply->stream.free(reply->stream.context);
    if (reply->kind == HTTP_REPLY_UPGRADE && reply->upgrade.free)
        reply->upgrade.free(reply->upgrade.context);
    reply->kind = HTTP_REPLY_EMPTY;
}

void http_reply_reset(struct http_reply *reply)
{
    drop_body(reply);
    for (unsigned i = 0; i < reply->header_count; i++) {
        free(reply->headers[i].name);
        free(reply->headers[i].value);
    }
    *reply = (struct http_reply)HTTP_REPLY_INIT;
}

void http_reply_status(struct http_reply *reply, int status)
{
    reply->status = status;
}

void http_reply_header(struct http_reply *reply, const char *name, const char *value)
{
    char *copy = alloc_str(value);
    char *out = copy;

    assert(reply->header_count < HTTP_REPLY_HEADERS_MAX);
    for (const char *in = value; *in; in++)
        if (*in != '\r' && *in != '\n')
            *out++ = *in;
    *out = '\0';
    reply->headers[reply->header_count].name = alloc_str(name);
    reply->headers[reply->header_count++].value = copy;
}

void http_reply_buf(struct http_reply *reply, const char *content_type, struct buf *body)
{
    drop_body(reply);
    reply->kind = HTTP_REPLY_MEMORY;
    reply->content_type = content_type;
    reply->data = buf_take(body, &reply->size);
}

void http_reply_text(struct http_reply *reply, int status, const char *content_type, const char *text)
{
    drop_body(reply);
    reply->kind = HTTP_REPLY_MEMORY;
    reply->status = status;
    reply->content_type = content_type;
    reply->size = strlen(text);
    reply->data = alloc_str_n(text, reply->size);
}

void http_reply_fd(struct http_reply *reply, const char *content_type, int fd, uint64_t offset, uint64_t size)
{
    drop_body(reply);
    reply->kind = HTTP_REPLY_FILE;
    reply->content_type = content_type;
    reply->fd = fd;
    reply->offset = offset;
    reply->fd_size = size;
}

void http_reply_empty(struct http_reply *reply, int status)
{
    drop_body(reply);
    reply->status = status;
}

void http_reply_stream(struct http_reply *reply, const char *content_type, const struct http_stream *stream)
{
    drop_body(reply);
    reply->kind = HTTP_REPLY_STREAM;
    reply->content_type = content_type;
    reply->stream = *stream;
}

void http_reply_upgrade(struct http_reply *reply, const struct http_upgrade *upgrade)
{
    drop_body(reply);
    reply->status = 101;
    reply->kind = HTTP_REPLY_UPGRADE;
    reply->upgrade = *upgrade;
}

/* -- streams -- */
struct streaming {
    struct http_stream stream;
    struct cancel cancel;
    struct MHD_Connection *connection;
    const struct http_server *server;
    struct http_conn *conn;        /* outlives us */
    struct MHD_Response *response; /* borrowed: it owns us */
    bool pushed;
};

/* The body is whole: what is to be said behind it. */
static void add_trailer(const struct streaming *streaming)
{
    char text[HTTP_TRAILER_BYTES] = "";

    if (!streaming->stream.trailer_name)
        return;
    streaming->stream.trailer(streaming->stream.context, text);
    if (text[0])
        (void)MHD_add_response_footer(streaming->response, streaming->stream.trailer_name, text);
}

static ssize_t stream_read(void *context, uint64_t position, char *out, size_t max)
{
    struct streaming *streaming = context;
    int64_t began_ms = clock_mono_ms();
    int64_t got;

    http_conn_phase(streaming->conn, HTTP_PHASE_WORK);
    if (!streaming->pushed) { /* the head was sent as "more is coming": out with it, the first bytes may take hours */
        int one = 1;

        (void)setsockopt(streaming->cancel.client_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (streaming->stream.send_buffer_bytes)
            (void)setsockopt(streaming->cancel.client_fd, SOL_SOCKET, SO_SNDBUF, &streaming->stream.send_buffer_bytes,
                             sizeof streaming->stream.send_buffer_bytes);
        streaming->pushed = true;
    }
    got = streaming->stream.next(streaming->stream.context, &streaming->cancel, out, max);
    if (clock_mono_ms() - began_ms >= LONG_WAIT_MS) /* time that we took must not count as the client's silence */
        http_conn_refresh(streaming->server, streaming->connection);
    http_conn_phase(streaming->conn, HTTP_PHASE_SEND);
    if (got == 0) {
        add_trailer(streaming);
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (got < 0 || (uint64_t)got > max)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    return (ssize_t)got;
}

static void stream_free(void *context)
{
    struct streaming *streaming = context;

    if (streaming->stream.free)
        streaming->stream.free(streaming->stream.context);
    free(streaming);
}

static struct MHD_Response *make_stream(struct http_reply *reply, struct http_request *request,
                                        struct MHD_Connection *connection)
{
    struct streaming *streaming = alloc_zero(sizeof *streaming);
    struct MHD_Response *response;

    streaming->stream = reply->stream;
    streaming->cancel = request->cancel;
    streaming->connection = connection;
    streaming->server = request->server;
    streaming->conn = request->conn;
    response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, stream_read, streaming, stream_free);
    if (!response)
        stream_free(streaming);
    else if ((streaming->response = response) && streaming->stream.trailer_name)
        (void)MHD_add_response_header(response, "Trailer", streaming->stream.trailer_name);
    reply->kind = HTTP_REPLY_EMPTY;
    return response;
}

/* Whatever the reply held is the response's or gone. */
static struct MHD_Response *make_response(struct http_reply *reply, struct http_request *request,
                                          struct MHD_Connection *connection)
{
    struct MHD_Response *response = NULL;

    switch (reply->kind) {
    case HTTP_REPLY_EMPTY:
        return MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    case HTTP_REPLY_MEMORY:
        response = MHD_create_response_from_buffer(reply->size, reply->data, MHD_RESPMEM_MUST_FREE);
        if (response)
            reply->data = NULL;
        return response;
    case HTTP_REPLY_FILE:
        response = MHD_create_response_from_fd_at_offset64(reply->fd_size, reply->fd, reply->offset);
        if (response)
            reply->fd = -1;
        return response;
    case HTTP_REPLY_STREAM:
        return make_stream(reply, request, connection);
    case HTTP_REPLY_UPGRADE:
        reply->kind = HTTP_REPLY_EMPTY;
        return http_upgrade_response(&reply->upgrade, request);
    }
    return NULL;
}

enum MHD_Result http_reply_queue(struct http_reply *reply, struct http_request *request,
                                 struct MHD_Connection *connection, bool last)
{
    enum MHD_Result result = MHD_NO;
    bool typed = reply->kind != HTTP_REPLY_EMPTY && reply->kind != HTTP_REPLY_UPGRADE && reply->content_type;
    bool retry = reply->status == 503;
    struct MHD_Response *response = make_response(reply, request, connection);

    request->answered = true;
    if (response) {
        bool all = MHD_add_response_header(response, "x-request-id", request->id) == MHD_YES;

        if (typed)
            all &= MHD_add_response_header(response, "Content-Type", reply->content_type) == MHD_YES;
        for (unsigned i = 0; i < reply->header_count; i++) {
            all &= MHD_add_response_header(response, reply->headers[i].name, reply->headers[i].value) == MHD_YES;
            retry = retry && strcasecmp(reply->headers[i].name, "Retry-After") != 0;
        }
        if (retry)
            all &= MHD_add_response_header(response, "Retry-After", "1") == MHD_YES;
        /* libmicrohttpd also takes chunks that end in a bare line feed, where a proxy in front may read another end: what
         * follows a chunked body is never taken for a request. */
        if ((last || request->chunked) && !request->upgrading)
            all &= MHD_add_response_header(response, "Connection", "close") == MHD_YES;
        request->status = reply->status;
        if (all)
            result = MHD_queue_response(connection, (unsigned)reply->status, response);
        MHD_destroy_response(response);
    }
    http_reply_reset(reply);
    return result;
}

void http_reply_send(struct http_reply *reply, struct http_request *request)
{
    auto_buf struct buf out = BUF_INIT(reply->size + 64 * 1024);
    struct error err = ERROR_INIT;

    request->status = reply->status;
    if (reply->kind == HTTP_REPLY_EMPTY || reply->kind == HTTP_REPLY_MEMORY) {
        (void)buf_append_format(
            &out, &err, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\nx-request-id: %s\r\n",
            reply->status, MHD_get_reason_phrase_for((unsigned)reply->status), reply->size, request->id);
        if (reply->kind == HTTP_REPLY_MEMORY && reply->content_type)
            (void)buf_append_format(&out, &err, "Content-Type: %s\r\n", reply->content_type);
        for (unsigned i = 0; i < reply->header_count; i++)
            (void)buf_append_format(&out, &err, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
        if (reply->status == 503)
            (void)buf_append_str(&out, "Retry-After: 1\r\n", &err);
        (void)buf_append_str(&out, "\r\n", &err);
        if (reply->kind == HTTP_REPLY_MEMORY)
            (void)buf_append(&out, reply->data, reply->size, &err);
        /* Nothing was sent before on this connection that could be in the way: it fits into the socket's buffer. */
        if (err.code == ERROR_NONE)
            (void)send(request->conn->fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    http_reply_reset(reply);
}
