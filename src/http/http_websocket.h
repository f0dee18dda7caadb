/* http/http_websocket.h: WebSockets (RFC 6455, version 13), the server's side. The only user of libwslay, which knows the framing.
 *
 * Owns: the handshake, messages both ways, pings, the closing handshake. Refuses by itself, with a close: frames that are not masked, reserved bits and
 * opcodes, broken or long control frames, fragments out of order (1002), text and close reasons that are no UTF-8 (1007), messages above
 * the limit (1009). No extensions: nothing is compressed. Memory: a message each way, and 16 pongs; who sends more pings than it reads
 * pongs is not read. Threads: one receives (the connection's own: it also pings and answers pings), one may send, any may close.
 */
#ifndef BERTH_HTTP_WEBSOCKET_H
#define BERTH_HTTP_WEBSOCKET_H

#include "http.h"

enum { HTTP_WEBSOCKET_REASON_BYTES = 124 };

struct http_websocket;

struct http_websocket_settings {
    const char *protocol;     /* the subprotocol that is spoken; static */
    size_t message_max_bytes; /* of one that comes */
    int ping_ms;              /* how often */
    int silence_ms;           /* nothing came, and nothing was taken, for so long: TIMEOUT from receiving */
    int send_buffer_bytes;    /* as in struct http_stream */
    /* On the connection's thread; when it returns, the connection is closed. */
    void (*speak)(void *context, struct http_websocket *socket, const struct cancel *cancel);
    void (*free)(void *context); /* once in every case, also where the handshake fails */
    void *context;
};

/* Is `name` among the subprotocols that the client offers? */
bool http_websocket_offers(const struct http_request *request, const char *name);
/* The rest behind `prefix` of the first subprotocol offered that begins so; its size in *ret_size. NULL: none. Borrowed. */
const char *http_websocket_offer(const struct http_request *request, const char *prefix, size_t *ret_size);

/* In a handler: checks the handshake and makes 101 the answer. Takes settings->context, also on failure. Errors: UPGRADE_REQUIRED (no upgrade, or another
 * version), INVALID (a broken handshake; the subprotocol is not offered). */
int http_reply_websocket(struct http_request *request, struct http_reply *reply,
                         const struct http_websocket_settings *settings, struct error *err);

enum http_websocket_kind { HTTP_WEBSOCKET_TEXT, HTTP_WEBSOCKET_BINARY };
struct http_websocket_message {
    enum http_websocket_kind kind;
    const char *data; /* borrowed until the next call; NUL-terminated behind size; text is valid UTF-8 */
    size_t size;
};
/* 1: a message. 0: it is over: closed by the other side, by ours, for a fault of the client's, or cut off. -1: as cancel, whose client does not
 * count, or TIMEOUT (silence): close it and go on receiving until 0. Blocks. */
int http_websocket_receive(struct http_websocket *socket, const struct cancel *cancel,
                           struct http_websocket_message *ret, struct error *err);
/* Blocks until the socket took all of it. -1: as cancel, GONE (it is over). */
int http_websocket_send(struct http_websocket *socket, enum http_websocket_kind kind, const void *data, size_t size,
                        const struct cancel *cancel, struct error *err);
/* Says goodbye; what is sent later is GONE, receiving ends with the client's own goodbye, or after two seconds. The first counts. `reason` is cut, in
 * whole characters. Never blocks. */
void http_websocket_close(struct http_websocket *socket, unsigned code, const char *reason);
/* Ends it without a word: whoever waits on it is let go. Never blocks. */
void http_websocket_cut(struct http_websocket *socket);

#endif
