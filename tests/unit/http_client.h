/* tests/unit/http_client.h: a raw HTTP client for tests of the server: it sends what no library would send. */
#ifndef BERTH_TEST_HTTP_CLIENT_H
#define BERTH_TEST_HTTP_CLIENT_H

#include "clock.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENT_BYTES = 1024 * 1024, CLIENT_WAIT_MS = 10000 };

struct client {
    int fd;
    size_t have; /* bytes received and not yet read as an answer */
    char data[CLIENT_BYTES];
};

struct answer {
    int status; /* 0: the connection ended without one */
    char head[8192];
    char body[CLIENT_BYTES];
    size_t size;
    bool whole; /* the body came to its end */
};

static inline struct client *client_new(uint16_t port)
{
    struct client *client = calloc(1, sizeof *client);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;

    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(connect(client->fd, (struct sockaddr *)&address, sizeof address) == 0);
    cr_assert(setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    return client;
}

static inline void client_free(struct client *client)
{
    close(client->fd);
    free(client);
}

/* False: the server does not take it any more. */
static inline bool client_send(struct client *client, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t sent = send(client->fd, at, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static inline void client_say(struct client *client, const char *text)
{
    cr_assert(client_send(client, text, strlen(text)));
}

/* Waits for more bytes. False at the end of the connection. */
static inline bool client_more(struct client *client, int wait_ms)
{
    struct pollfd fd = {.fd = client->fd, .events = POLLIN};
    ssize_t got;

    cr_assert(poll(&fd, 1, wait_ms) == 1, "no answer within %d ms", wait_ms);
    cr_assert(client->have < sizeof client->data - 1);
    got = recv(client->fd, client->data + client->have, sizeof client->data - 1 - client->have, 0);
    if (got <= 0)
        return false;
    client->have += (size_t)got;
    client->data[client->have] = '\0';
    return true;
}

static inline void client_drop(struct client *client, size_t size)
{
    memmove(client->data, client->data + size, client->have - size + 1);
    client->have -= size;
}

static inline const char *answer_header(const struct answer *answer, const char *name)
{
    static char value[512];
    size_t size = strlen(name);

    for (const char *line = strstr(answer->head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, size) == 0 && line[size] == ':') {
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(line + size + 2, "\r"), line + size + 2);
            return value;
        }
    }
    return NULL;
}

static inline bool client_bytes(struct client *client, size_t size)
{
    while (client->have < size)
        if (!client_more(client, CLIENT_WAIT_MS))
            return false;
    return true;
}

static inline void client_chunks(struct client *client, struct answer *answer)
{
    for (;;) {
        char *line;
        size_t size;
        size_t head;

        while (!(line = strstr(client->data, "\r\n")))
            if (!client_more(client, CLIENT_WAIT_MS))
                return;
        size = strtoul(client->data, NULL, 16);
        head = (size_t)(line + 2 - client->data);
        if (!client_bytes(client, head + size + 2))
            return;
        cr_assert(answer->size + size < sizeof answer->body);
        memcpy(answer->body + answer->size, client->data + head, size);
        answer->size += size;
        client_drop(client, head + size + 2);
        if (size == 0) {
            answer->whole = true;
            return;
        }
    }
}

/* The next final answer; "100 Continue" too, as an answer of its own. Returns its status, 0 at the end. */
static inline int client_answer(struct client *client, struct answer *answer)
{
    const char *length;
    char *end;

    memset(answer, 0, sizeof *answer);
    while (!(end = strstr(client->data, "\r\n\r\n")))
        if (!client_more(client, CLIENT_WAIT_MS))
            return 0;
    cr_assert((size_t)(end - client->data) + 2 < sizeof answer->head);
    memcpy(answer->head, client->data, (size_t)(end - client->data) + 2);
    cr_assert(sscanf(answer->head, "HTTP/1.1 %d ", &answer->status) == 1, "%s", answer->head);
    client_drop(client, (size_t)(end + 4 - client->data));
    length = answer_header(answer, "Content-Length");
    if (length) {
        size_t size = strtoul(length, NULL, 10);

        cr_assert(size < sizeof answer->body);
        answer->whole = client_bytes(client, size);
        answer->size = answer->whole ? size : client->have;
        memcpy(answer->body, client->data, answer->size);
        client_drop(client, answer->size);
    } else if (answer_header(answer, "Transfer-Encoding")) {
        client_chunks(client, answer);
    }
    return answer->status;
}

/* True once the server ended the connection and sent nothing more. */
static inline bool client_ended(struct client *client)
{
    return client->have == 0 && !client_more(client, CLIENT_WAIT_MS);
}

#endif
