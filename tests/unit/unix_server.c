#include "unix_server.h"

#include "alloc.h"
#include "buf.h"
#include "cancel.h"
#include "waitq.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUESTS_MAX = 32, REQUEST_MAX = 1 << 20, WAIT_MS = 10000 };

struct unix_server {
    const struct unix_script *scripts;
    size_t count;
    char directory[32];
    char path[64];
    int listener;
    int stop_fd;
    int go_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    struct waitq came;
    char *requests[REQUESTS_MAX];
    unsigned request_count;
};

static bool readable(struct unix_server *server, int fd)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = server->stop_fd, .events = POLLIN}};

    return poll(fds, 2, -1) > 0 && fds[1].revents == 0;
}

static size_t body_size(const char *request)
{
    const char *header = strcasestr(request, "\r\nContent-Length:");

    return header ? strtoul(header + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

static bool read_request(struct unix_server *server, int fd)
{
    auto_buf struct buf request = BUF_INIT(REQUEST_MAX);
    struct error err = ERROR_INIT;

    for (;;) {
        const char *end = strstr(buf_str(&request), "\r\n\r\n");
        char *space;
        ssize_t got;

        if (end && request.size >= (size_t)(end - request.data) + 4 + body_size(request.data))
            break;
        if (!readable(server, fd) || buf_reserve(&request, 4096, &space, &err) < 0 ||
            (got = read(fd, space, 4096)) <= 0)
            return false;
        buf_commit(&request, (size_t)got);
    }
    pthread_mutex_lock(&server->lock);
    if (server->request_count < REQUESTS_MAX)
        server->requests[server->request_count++] = buf_take(&request, NULL);
    waitq_wake_all(&server->came);
    pthread_mutex_unlock(&server->lock);
    return true;
}

static void serve(struct unix_server *server, int fd, const struct unix_script *script)
{
    size_t size = script->size ? script->size : strlen(script->bytes);
    char data[4096];
    ssize_t got;

    if (!read_request(server, fd))
        return;
    if (send(fd, script->bytes, size, MSG_NOSIGNAL) < 0)
        return;
    if (script->rest) {
        if (!readable(server, server->go_fd))
            return;
        (void)send(fd, script->rest, strlen(script->rest), MSG_NOSIGNAL);
    }
    while (script->after != UNIX_CLOSE && readable(server, fd) && (got = read(fd, data, sizeof data)) > 0) {
        if (script->after == UNIX_ECHO)
            (void)send(fd, data, (size_t)got, MSG_NOSIGNAL);
    }
}

static void *run(void *context)
{
    struct unix_server *server = context;

    for (size_t i = 0; readable(server, server->listener); i++) {
        int fd = accept(server->listener, NULL, NULL);

        if (fd >= 0 && i < server->count)
            serve(server, fd, &server->scripts[i]);
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

struct unix_server *unix_server_start(const struct unix_script *scripts, size_t count)
{
    struct unix_server *server = alloc_zero(sizeof *server);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    server->scripts = scripts;
    server->count = count;
    (void)snprintf(server->directory, sizeof server->directory, "/tmp/berth-unit-XXXXXX");
    if (!mkdtemp(server->directory))
        abort();
    (void)snprintf(server->path, sizeof server->path, "%s/socket", server->directory);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", server->path);
    server->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    server->go_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&server->lock, NULL);
    if (bind(server->listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(server->listener, 16) < 0 ||
        pthread_create(&server->thread, NULL, run, server) != 0)
        abort();
    return server;
}

const char *unix_server_path(const struct unix_server *server)
{
    return server->path;
}

void unix_server_wait(struct unix_server *server, unsigned count)
{
    const struct cancel never = CANCEL_NEVER;
    struct cancel bounded = cancel_within(&never, WAIT_MS);
    struct error err = ERROR_INIT;

    pthread_mutex_lock(&server->lock);
    while (server->request_count < count) {
        if (waitq_wait(&server->came, &server->lock, &bounded, &err) < 0)
            abort();
    }
    pthread_mutex_unlock(&server->lock);
}

void unix_server_go(struct unix_server *server)
{
    eventfd_write(server->go_fd, 1);
}

const char *unix_server_request(struct unix_server *server, unsigned index)
{
    return server->requests[index];
}

void unix_server_stop(struct unix_server *server)
{
    eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    close(server->listener);
    close(server->stop_fd);
    close(server->go_fd);
    unlink(server->path);
    rmdir(server->directory);
    for (unsigned i = 0; i < server->request_count; i++)
        free(server->requests[i]);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
