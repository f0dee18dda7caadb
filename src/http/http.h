/* http/http.h: an HTTP/1.1 server that knows nothing of the product.
 *
 * Owns: the listener, connections, bodies, limits. The only user of libmicrohttpd. The program hands it a table of routes.
 * A handler reads top to bottom and may block: each connection has a thread of its own (design, section 2).
 *
 * What it refuses by itself, before any route (RFC 9112), with 400 and close: two Content-Length, Content-Length together
 * with Transfer-Encoding, any transfer coding but "chunked", a header name that is no token, none or two Host headers, folded
 * lines, bare line feeds, control characters. 417 for an unknown Expect, 431 over `max_header_bytes` or 128 headers, 503 while
 * stopping and above `max_connections` (64 more get that answer; those beyond are closed without a byte). Then 404, 405 (with
 * Allow, HEAD and OPTIONS included), 307 for a path with one slash too many at its end.
 *
 * A refused body: up to 64 KiB are read and the connection goes on; a longer one, a chunked one and one that waits for
 * "100 Continue" is answered at once and the connection closed, after up to 1 MiB and 0.5 s of reading so that the client sees
 * the status. A chunked body beyond twice the limit is cut off without an answer.
 *
 * The connection ends with the answer to a chunked request: two readers could differ about where such a body ends.
 *
 * Who is silent for `idle_timeout_seconds`, needs longer for a head, or sends a body slower than 1 kB/s, is cut off. Answers
 * that libmicrohttpd makes alone (400 for a Content-Length that is no number or a broken chunk, 413, 414, 431) are HTML.
 *
 * Every answer carries `x-request-id`, which is also the "request" of the log lines written meanwhile: the client's own where it
 * sends one of 8 to 64 letters, digits, '.', '_', '-'. The trace id of a well-formed `traceparent` is their "trace". Every 503 has a
 * Retry-After.
 */
#ifndef BERTH_HTTP_H
#define BERTH_HTTP_H

#include "buf.h"
#include "cancel.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct http_request;
struct http_reply;

enum { HTTP_TRAILER_BYTES = 1024 };

enum http_method { HTTP_GET, HTTP_POST, HTTP_PUT, HTTP_DELETE };

enum http_body_kind {
    HTTP_BODY_NONE,   /* a body is read and thrown away (within limits) */
    HTTP_BODY_JSON,   /* gathered in memory up to max_body_bytes */
    HTTP_BODY_RAW,    /* gathered up to the gate's limit: small ones in memory, others in an unlinked file */
    HTTP_BODY_STREAM, /* read by the handler while it arrives, http_request_read(); of any size up to the gate's limit */
};

/* A handler fills the reply and returns 0, or returns -1 with an error, which the server's on_error turns into a reply.
 * `context` is that of the server. Runs on the connection's thread. */
typedef int (*http_handler)(struct http_request *request, struct http_reply *reply, void *context, struct error *err);

struct http_route {
    enum http_method method;
    const char *path; /* "/sessions/{session_id}/run": a {} takes one non-empty segment, percent-decoded, slash-free */
    http_handler handler;
    enum http_body_kind body;
    int access; /* the product's own word for who may call; http/ passes it on only */
};

struct http_table {
    const struct http_route *routes;
    size_t count;
    void *context;

    /* Called once the headers are there and a route is found, before any of the body is read. 0: go on. -1 with an error:
     * refused. May be NULL. */
    int (*gate)(struct http_request *request, void *context, struct error *err);
    /* Turns an error into a reply. Never fails. Also called for http's own refusals, whose status (405, 417, 431 …) and
     * headers http/ sets afterwards: it makes the body. */
    void (*on_error)(struct http_request *request, struct http_reply *reply, const struct error *err, void *context);
    /* A request has ended: `status` of its answer (0: it got none), `us` since its request line. Called for all; must not block. May be
     * NULL. */
    void (*on_end)(const struct http_request *request, int status, int64_t us, void *context);
};

struct http_settings {
    const char *host;
    uint16_t port; /* 0: any; http_server_port() tells */
    unsigned max_connections;
    size_t max_header_bytes; /* of one request's head; a connection takes 16 KiB more than this */
    /* Refused by length at once with 413; a chunked body is swallowed to twice that, then 413, beyond it closed. */
    uint64_t max_body_bytes;
    size_t body_memory_bytes; /* raw bodies above it go to an unlinked file in body_dir */
    const char *body_dir;
    int idle_timeout_seconds; /* > 0 */
    int stop_fd;              /* readable once the program stops */
};

struct http_server;
/* Listens and serves from the call on. `table` and `settings`' strings must outlive the server. */
int http_server_start(const struct http_settings *settings, const struct http_table *table,
                      struct http_server **ret_server, struct error *err);
uint16_t http_server_port(const struct http_server *server);
unsigned http_server_connections(const struct http_server *server);
/* Takes no new connections, waits for handlers (who see stop_fd, which the program has made readable before) and for their
 * answers to be sent, then closes what is left and waits for its threads. Blocks; longer than `grace_ms` only for a handler
 * that does not look at its cancel. Frees the server; NULL is left alone. */
void http_server_stop(struct http_server *server, int64_t grace_ms);

/* -- request: everything borrowed, valid until the handler returns -- */
enum http_method http_request_method(const struct http_request *request);
const struct http_route *http_request_route(const struct http_request *request); /* NULL in on_error: none was found */
const char *http_request_id(const struct http_request *request);                 /* for the log */
/* The path as sent, undecoded, without the query (and without the authority of an absolute "http://host/path"). */
const char *http_request_path(const struct http_request *request);
/* Decoded value of the n-th {} of the route; never NULL, never empty, without a slash; bytes that need not be UTF-8. A decoded
 * NUL stays in (the size tells; ret_size may be NULL), a malformed escape stays as it was sent. "" where no
 * route was found. */
const char *http_request_param(const struct http_request *request, unsigned n, size_t *ret_size);
/* Last value of a query key, form-decoded (+ is a space), invalid UTF-8 replaced by U+FFFD; NULL: not there. */
const char *http_request_query(const struct http_request *request, const char *key, size_t *ret_size);
/* The same, bytes as they were sent. */
const char *http_request_query_bytes(const struct http_request *request, const char *key, size_t *ret_size);
/* NULL: not there. The first, when it is repeated; `http_request_header_count` tells how often. */
const char *http_request_header(const struct http_request *request, const char *name);
unsigned http_request_header_count(const struct http_request *request, const char *name);
bool http_request_has_body(const struct http_request *request);
/* Content-Length; -1 chunked or none. */
int64_t http_request_content_length(const struct http_request *request);
/* The client's hang-up and the program's stop; no deadline. Never NULL. */
const struct cancel *http_request_cancel(const struct http_request *request);

/* For the gate of a raw route: largest body that is taken (max_body_bytes at most, and until said). Over it the handler is
 * called with .too_large set: after the body was thrown away, or, if it would be longer than max_body_bytes or waits for
 * "100 Continue", at once, and the connection is closed after the answer. */
void http_request_limit_body(struct http_request *request, uint64_t max_bytes);
/* For the gate: keep a word for the handler (who the caller is). */
void http_request_set_note(struct http_request *request, int note);
int http_request_note(const struct http_request *request);

struct http_body {
    const char *data; /* NULL when it lies in fd */
    int fd;           /* -1 when it lies in memory; positioned at 0; closed when the handler has returned */
    uint64_t size;
    bool too_large;
};
const struct http_body *http_request_body(const struct http_request *request);

/* Of a stream route: the next bytes of the body. > 0, 0 at its end, -1: CANCELLED (it will not come whole), TOO_LARGE (the gate's
 * limit), or as cancel_check() of the deadline and the stop. Blocks. Nothing of the body is read (nor "100 Continue" said) before
 * the first call: a handler that returns without one refuses early. One that returns before the end has its answer (an empty one or
 * one from memory, no other) sent at once; the connection is closed then. The handler runs on a thread of its own. */
int64_t http_request_read(struct http_request *request, const struct cancel *cancel, char *out, size_t max,
                          struct error *err);

/* -- reply: what a handler fills in; anything handed over is the reply's from then on, also on failure. The last body said
 * counts. Nothing here blocks or fails. -- */
void http_reply_status(struct http_reply *reply, int status); /* 200 until said */
void http_reply_header(struct http_reply *reply, const char *name,
                       const char *value); /* copied; CR and LF are dropped */
/* The whole body; `content_type` static. Takes the buffer's memory. */
void http_reply_buf(struct http_reply *reply, const char *content_type, struct buf *body);
void http_reply_text(struct http_reply *reply, int status, const char *content_type, const char *text); /* copied */
/* `size` bytes of a file from `offset`, by sendfile. Takes the descriptor. */
void http_reply_fd(struct http_reply *reply, const char *content_type, int fd, uint64_t offset, uint64_t size);
void http_reply_empty(struct http_reply *reply, int status); /* 204 and the like */

/* A body that is made while it is sent, chunked. `next` is called on the connection's thread and may block on the request's
 * cancel for as long as it likes (the head was sent before): > 0 bytes written to `out`, 0 the end, -1 broken off (the connection is closed without an end mark).
 * `free` is called once in every case. A client that does not take a piece within idle_timeout, or only drop by drop, is cut off. */
struct http_stream {
    int64_t (*next)(void *context, const struct cancel *cancel, char *out, size_t max);
    void (*free)(void *context);
    void *context;
    /* Bytes that may be on their way in this host's kernel: what a client that is cut off may have missed. 0: as the kernel likes. */
    int send_buffer_bytes;
    /* A header behind the body, where the transfer is chunked; announced by "Trailer". `trailer_name` static, NULL: none. `trailer`
     * is called after `next` has said 0; an empty `out`: not sent. */
    const char *trailer_name;
    void (*trailer)(void *context, char out[HTTP_TRAILER_BYTES]);
};
void http_reply_stream(struct http_reply *reply, const char *content_type, const struct http_stream *stream);

/* -- a connection that goes on in another protocol: 101 -- */

/* Both ways of it. One thread reads, one writes; they may be two. */
struct http_duplex;
/* As recv() and send(), without ever blocking: -1 with EAGAIN. 0 from read: the client has ended its side. `more`: more is about to follow. */
ssize_t http_duplex_read(struct http_duplex *duplex, void *out, size_t max);
ssize_t http_duplex_write(struct http_duplex *duplex, const void *data, size_t size, bool more);
/* To wait on: cancel_poll(). What came with the head is read first, so read before the first wait. */
int http_duplex_fd(const struct http_duplex *duplex);
/* Ends both ways: who waits or will wait on it sees a hang-up. Any thread. */
void http_duplex_shutdown(struct http_duplex *duplex);

struct http_upgrade {
    const char *protocol; /* of the Upgrade header; static */
    /* On the connection's thread, once the 101 was sent; the connection ends when it returns. `request`'s cancel; the request itself
     * stays valid meanwhile. At a stop it must come to its end by itself, within the grace. */
    void (*speak)(void *context, struct http_duplex *duplex, const struct cancel *cancel);
    void (*free)(void *context); /* once in every case */
    void *context;
    int send_buffer_bytes; /* as in struct http_stream */
};
/* The status is 101. Only where the client asked for that protocol (RFC 9110, 7.8), of a request without a body. */
void http_reply_upgrade(struct http_reply *reply, const struct http_upgrade *upgrade);

/* Ask a server on this machine, as its container's health check does. Blocks. 0: GET `path` is answered 200. `host` may be the address
 * that it listens on. Errors: UNAVAILABLE (another status, nobody there), INVALID (no such host), TIMEOUT. */
int http_probe(const char *host, uint16_t port, const char *path, const struct cancel *cancel, struct error *err);

#endif
