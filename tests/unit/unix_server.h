/* tests/unit/unix_server.h: a scripted HTTP server on a Unix socket: says exactly these bytes, whole or half, and nothing else.
 * One connection at a time, one script a connection, in order; then connections are closed without a word. */
#ifndef BERTH_UNIX_SERVER_H
#define BERTH_UNIX_SERVER_H

#include <stddef.h>

enum unix_after {
    UNIX_CLOSE, /* close when the bytes are out */
    UNIX_HOLD,  /* keep it open until the client closes */
    UNIX_ECHO,  /* send back what comes, until the client closes */
};

struct unix_script {
    const char *bytes;
    size_t size;      /* 0: strlen(bytes) */
    const char *rest; /* sent after unix_server_go(); NULL: none */
    enum unix_after after;
};

struct unix_server;

struct unix_server *unix_server_start(const struct unix_script *scripts, size_t count);
const char *unix_server_path(const struct unix_server *server);
/* Blocks until that many requests came in whole (10 s, then aborts). */
void unix_server_wait(struct unix_server *server, unsigned count);
void unix_server_go(struct unix_server *server);
/* The n-th request's bytes, from 0, after unix_server_wait(). */
const char *unix_server_request(struct unix_server *server, unsigned index);
void unix_server_stop(struct unix_server *server);

/* An answer that ends with its connection. */
#define ANSWER(status, body) "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body

#endif
