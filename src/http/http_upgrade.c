/* A connection that stops speaking HTTP.
 *
 * libmicrohttpd calls back on the connection's thread once the 101 is sent, and would serve nothing else on it meanwhile: the
 * speaker blocks in there for as long as it likes. The library's timeout is off by then. */
#include "http_private.h"

#include "alloc.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

struct upgrading {
    struct http_upgrade upgrade;
    struct http_request *request;
};

ssize_t http_duplex_read(struct http_duplex *duplex, void *out, size_t max)
{
    if (duplex->early_size) {
        size_t size = duplex->early_size < max ? duplex->early_size : max;

        memcpy(out, duplex->early, size);
        duplex->early += size;
        duplex->early_size -= size;
        return (ssize_t)size;
    }
    return recv(duplex->fd, out, max, MSG_DONTWAIT);
}

ssize_t http_duplex_write(struct http_duplex *duplex, const void *data, size_t size, bool more)
{
    return send(duplex->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}

int http_duplex_fd(const struct http_duplex *duplex)
{
    return duplex->fd;
}

void http_duplex_shutdown(struct http_duplex *duplex)
{
    (void)shutdown(duplex->fd, SHUT_RDWR);
}

static void upgraded(void *context, struct MHD_Connection *connection, void *request_context, const char *extra,
                     size_t extra_size, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct upgrading *upgrading = context;
    struct http_request *request = upgrading->request;
    struct http_duplex duplex = {.fd = fd, .early = extra, .early_size = extra_size};
    struct http_upgrade *upgrade = &upgrading->upgrade;
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (upgrade->send_buffer_bytes)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &upgrade->send_buffer_bytes, sizeof upgrade->send_buffer_bytes);
    upgrade->speak(upgrade->context, &duplex, &request->cancel);
    http_conn_linger(request->server, fd); /* so that the last words arrive */
    (void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
}

/* The response is not needed any more: what was to speak has spoken, or never will. */
void http_upgrade_free(struct http_request *request)
{
    struct upgrading *upgrading = request->upgrading;

    if (!upgrading)
        return;
    if (upgrading->upgrade.free)
        upgrading->upgrade.free(upgrading->upgrade.context);
    request->upgrading = NULL;
    free(upgrading);
}

struct MHD_Response *http_upgrade_response(const struct http_upgrade *upgrade, struct http_request *request)
{
    struct upgrading *upgrading = alloc_zero(sizeof *upgrading);
    struct MHD_Response *response = MHD_create_response_for_upgrade(upgraded, upgrading);

    upgrading->upgrade = *upgrade;
    upgrading->request = request;
    request->upgrading = upgrading;
    if (!response || MHD_add_response_header(response, "Upgrade", upgrade->protocol) != MHD_YES) {
        if (response)
            MHD_destroy_response(response);
        http_upgrade_free(request);
        return NULL;
    }
    return response;
}
