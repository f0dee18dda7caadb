#include "net_http.h"
#include "net_stream_private.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { HEADER_MAX = 64 * 1024, READ_BYTES = 16 * 1024, REASON_WAIT_MS = 1000 };

static int connect_unix(const char *path, int *ret_fd, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return error_set(err, ERROR_UNAVAILABLE, errno, "no descriptor for a connection");
    if (strlen(path) >= sizeof address.sun_path)
        return fail(err, UNAVAILABLE, "the socket's path is too long: %s", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    /* A Unix socket connects at once or not at all (EAGAIN: its queue is full, and nothing tells when it no longer is).
     */
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        char reason[64];

        return error_set(err, ERROR_UNAVAILABLE, errno, "cannot connect: %s", strerror_r(errno, reason, sizeof reason));
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

static int send_all(int fd, const char *data, size_t size, const struct cancel *cancel, struct error *err)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);

        if (sent >= 0) {
            data += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) {
            struct pollfd fds = {.fd = fd, .events = POLLOUT};

            if (cancel_poll(cancel, &fds, 1, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return error_set(err, ERROR_UNAVAILABLE, errno, "the connection failed while sending");
        }
    }
    return 0;
}

/* Append what comes next. Blocks. 1: something came, 0: the end. */
static int receive(int fd, struct buf *in, const struct cancel *cancel, struct error *err)
{
    for (;;) {
        struct pollfd fds = {.fd = fd, .events = POLLIN};
        char *space;
        ssize_t got;

        if (buf_reserve(in, READ_BYTES, &space, err) < 0)
            return -1;
        got = recv(fd, space, READ_BYTES, 0);
        if (got >= 0) {
            buf_commit(in, (size_t)got);
            return got > 0;
        }
        if (errno != EAGAIN && errno != EINTR)
            return error_set(err, ERROR_UNAVAILABLE, errno, "the connection failed while receiving");
        if (errno == EAGAIN && cancel_poll(cancel, &fds, 1, err) < 0)
            return -1;
    }
}

/* Read until a whole header is at the front of `in`; *ret_size its bytes, empty line included. Blocks. */
static int receive_header(int fd, struct buf *in, const struct cancel *cancel, size_t *ret_size, int *ret_status,
                          struct error *err)
{
    for (;;) {
        const char *end = in->size ? memmem(in->data, in->size, "\r\n\r\n", 4) : NULL;
        int more;

        if (end) {
            *ret_size = (size_t)(end - in->data) + 4;
            if (memcmp(in->data, "HTTP/1.", 7) != 0 || *ret_size < 16 || in->data[8] != ' ' ||
                strspn(in->data + 9, "0123456789") != 3)
                return fail(err, UNAVAILABLE, "the answer is not HTTP/1");
            *ret_status = (in->data[9] - '0') * 100 + (in->data[10] - '0') * 10 + (in->data[11] - '0');
            if (*ret_status >= 200 || *ret_status == 101)
                return 0;
            buf_consume(in, *ret_size); /* 100 Continue and its like */
            continue;
        }
        if (in->size > HEADER_MAX - READ_BYTES)
            return fail(err, UNAVAILABLE, "the header of the answer does not end");
        if ((more = receive(fd, in, cancel, err)) < 0)
            return -1;
        if (more == 0)
            return fail(err, UNAVAILABLE, "the connection ended within the header of the answer");
    }
}

/* The value of Content-Length in a header; -1: none. */
static long content_length(const char *header, size_t size)
{
    static const char name[] = "\r\ncontent-length:";

    for (size_t at = 0; at + sizeof name - 1 < size; at++) {
        if (strncasecmp(header + at, name, sizeof name - 1) == 0)
            return strtol(header + at + sizeof name - 1, NULL, 10);
    }
    return -1;
}

int net_http_upgrade(const struct net_http_request *request, const struct cancel *cancel, int *ret_status,
                     struct net_stream **ret_stream, struct buf *ret_body, struct error *err)
{
    auto_buf struct buf out = BUF_INIT(HEADER_MAX + request->body_size);
    auto_buf struct buf in = BUF_INIT(HEADER_MAX);
    auto_close int fd = -1;
    struct cancel soon;
    struct error ignored = ERROR_INIT;
    size_t header_size = 0;
    long left;

    *ret_stream = NULL;
    if (cancel_check(cancel, err) < 0 ||
        buf_append_format(&out, err,
                          "%s %s HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                          request->method, request->target, request->body_size) < 0 ||
        buf_append(&out, request->body, request->body_size, err) < 0 ||
        connect_unix(request->socket_path, &fd, err) < 0 || send_all(fd, out.data, out.size, cancel, err) < 0 ||
        receive_header(fd, &in, cancel, &header_size, ret_status, err) < 0)
        return -1;
    if (*ret_status == 101 || *ret_status == 200) {
        *ret_stream = net_stream_from_fd_ahead(take_fd(&fd), in.data + header_size, in.size - header_size);
        return 0;
    }
    /* A refusal and its reason: as long as it says, or to the end of the connection; not waited for longer than that is worth. */
    soon = cancel_within(cancel, REASON_WAIT_MS);
    left = content_length(in.data, header_size);
    while ((left < 0 || in.size - header_size < (size_t)left) && in.size <= HEADER_MAX - READ_BYTES) {
        if (receive(fd, &in, &soon, &ignored) <= 0)
            break;
    }
    return buf_append(ret_body, in.data + header_size, in.size - header_size, err);
}
