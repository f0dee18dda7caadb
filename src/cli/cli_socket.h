/* cli/cli_socket.h: the client's end of a WebSocket (RFC 6455), for terminals.
 *
 * libcurl makes the connection (also over TLS), wslay the frames. Threads: one. Sec-WebSocket-Accept is not checked: no cache is between the
 * operator's command and its broker; the chosen subprotocol is.
 */
#ifndef BERTH_CLI_SOCKET_H
#define BERTH_CLI_SOCKET_H

#include "cli_private.h"

struct cli_socket;

struct cli_socket_message {
    bool is_text;
    const char *data; /* borrowed during the call */
    size_t size;
};

/* Connects and shakes hands. What the broker answers instead is the error (cli_refused()). `take` gets what comes, within cli_socket_go_on();
 * -1 from it ends that with its error. Caller frees with cli_socket_close(). */
int cli_socket_open(struct cli *cli, const char *target, const char *protocol,
                    int (*take)(void *context, const struct cli_socket_message *message, struct error *err),
                    void *context, struct cli_socket **ret, struct error *err);
void cli_socket_close(struct cli_socket *socket); /* NULL is fine */

int cli_socket_fd(const struct cli_socket *socket);
bool cli_socket_wants_write(const struct cli_socket *socket);
/* More than a window's worth waits to be sent: do not add to it. */
bool cli_socket_is_full(const struct cli_socket *socket);
/* Copied, and sent as the connection takes it. */
void cli_socket_send(struct cli_socket *socket, bool is_text, const void *data, size_t size);

/* Receives and sends what can be now. Never blocks. 1: there is more at once; 0: wait for the descriptor; -1: `take` said so, or UNAVAILABLE:
 * the connection ended. A close of the other side is that too, with the code in cli_socket_close_code(). */
int cli_socket_go_on(struct cli_socket *socket, struct error *err);
unsigned cli_socket_close_code(const struct cli_socket *socket); /* 0: none came */

#endif
