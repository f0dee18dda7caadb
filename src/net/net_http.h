/* net/net_http.h: one HTTP transfer, read as an iterator.
 *
 * Each transfer has a private libcurl handle and a connection of its own; nothing is shared between threads. Every wait
 * ends with the cancel: its stop and client descriptors are polled together with the transfer's socket. A response is
 * as hostile as its sender: bodies are read in pieces or into a capped buffer, never followed anywhere (no redirects,
 * no proxies).
 *
 * Callers: engine/, kube/, webhook/. Threads: one transfer belongs to one thread.
 * Errors: UNAVAILABLE (no connection, or it ended before the response did), TOO_LARGE, TIMEOUT, CANCELLED, and
 * UNAVAILABLE also when the broker stops. An HTTP status is no error here.
 */
#ifndef BERTH_NET_HTTP_H
#define BERTH_NET_HTTP_H

#include "buf.h"
#include "cancel.h"
#include "error.h"
#include "net_stream.h"

#include <stdbool.h>
#include <stddef.h>

struct net_http_request {
    const char *socket_path; /* Unix socket; NULL: url */
    const char *url;         /* an operator's, http or https; TLS is checked against the system's certificates */
    const char *method;      /* "GET", "POST", "DELETE" */
    const char *target;      /* path and query, escaped by the caller: see net_http_escape(); not with a url */
    const void *body;        /* lives until the transfer is closed; NULL: none */
    size_t body_size;
    const char *body_type;      /* NULL: JSON */
    const char *const *headers; /* whole lines beside Content-Type, NULL-terminated; NULL: none */
};

/* Append `text` percent-encoded, everything but RFC 3986's unreserved characters. */
int net_http_escape(struct buf *out, const char *text, struct error *err);

/* Initialises libcurl, once, whoever calls; the first transfer would do it, at a worse moment. Never blocks. */
void net_http_init(void);

/* The whole exchange. Blocks. ret_body: initialised by the caller with its maximum; what came is appended. */
int net_http_fetch(const struct net_http_request *request, const struct cancel *cancel, int *ret_status,
                   struct buf *ret_body, struct error *err);

struct net_http;

/* Send the request and return when the status line and header are there. Blocks. Caller frees with net_http_close(). */
int net_http_open(const struct net_http_request *request, const struct cancel *cancel, struct net_http **ret_http,
                  int *ret_status, struct error *err);

/* The next piece of the body, 64 KiB at most. Blocks. 1: *ret_data is borrowed until the next call. 0: the end, whole.
 * -1: as above; after CANCELLED or TIMEOUT one may call again with another cancel, nothing is lost. */
int net_http_read(struct net_http *http, const struct cancel *cancel, const char **ret_data, size_t *ret_size,
                  struct error *err);

/* Ends the transfer wherever it is. Never blocks. NULL is fine. */
void net_http_close(struct net_http *http);

/* Send the request with `Upgrade: tcp` and turn the connection into a raw stream. Blocks until the header of the
 * response is there. On 101 and 200 *ret_stream is set, caller closes; bytes that came together with the header are its
 * first bytes. On any other status *ret_stream is NULL and what the engine says is appended to ret_body. Plain socket
 * code: libcurl has no way to hand over a connection whose first bytes it has read. */
int net_http_upgrade(const struct net_http_request *request, const struct cancel *cancel, int *ret_status,
                     struct net_stream **ret_stream, struct buf *ret_body, struct error *err);

#endif
