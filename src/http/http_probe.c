#include "cleanup.h"
#include "fd.h"
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Where a server that listens on every address is reached from its own machine. */
static const char *own_address(const char *host)
{
    if (strcmp(host, "0.0.0.0") == 0)
        return "127.0.0.1";
    return strcmp(host, "::") == 0 ? "::1" : host;
}

static int reach(const char *host, uint16_t port, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char service[8];
    int number, fd = -1;

    (void)snprintf(service, sizeof service, "%u", (unsigned)port);
    number = getaddrinfo(own_address(host), service, &hints, &found);
    if (number != 0)
        return fail(err, INVALID, "%.100s: %s", host, gai_strerror(number));
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) < 0 && errno != EINPROGRESS) {
            (void)fail_errno(err, "%.100s port %s", host, service);
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* What comes until the other side has ended, as far as it fits. */
static int read_answer(int fd, const struct cancel *cancel, char *answer, size_t size, struct error *err)
{
    size_t used = 0;

    while (used < size - 1) {
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        ssize_t got;

        if (cancel_poll(cancel, &wanted, 1, err) < 0)
            return -1;
        got = read(fd, answer + used, size - 1 - used);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            break;
        used += got > 0 ? (size_t)got : 0;
    }
    answer[used] = '\0';
    return 0;
}

int http_probe(const char *host, uint16_t port, const char *path, const struct cancel *cancel, struct error *err)
{
    auto_close int fd = reach(host, port, err);
    struct pollfd connected = {.fd = fd, .events = POLLOUT};
    char request[256], answer[1024];
    int status, size, reason = 0;
    socklen_t reason_size = sizeof reason;

    if (fd < 0 || cancel_poll(cancel, &connected, 1, err) < 0)
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &reason_size) == 0 && reason != 0) {
        errno = reason;
        return fail_errno(err, "%.100s port %u", host, (unsigned)port);
    }
    size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    if (fd_write_all(fd, request, (size_t)size, err) < 0 || read_answer(fd, cancel, answer, sizeof answer, err) < 0)
        return -1;
    if (sscanf(answer, "HTTP/1.1 %3d ", &status) != 1)
        return fail(err, UNAVAILABLE, "%.100s port %u does not speak HTTP", host, (unsigned)port);
    return status == 200 ? 0 : fail(err, UNAVAILABLE, "%s answers %d", path, status);
}
