/* http/http_private.h: what the files of this room share. Nobody else includes it.
 *
 * How libmicrohttpd (0.9.75) calls us, all on the connection's own thread: request line read -> http_request_new();
 * head read
 * -> handler, first call; pieces of the body -> handler; request complete -> handler, last call; reply sent or broken
 * off -> completed. An answer can be given at the first call, which closes the connection afterwards, or at the last
 * one.
 */
#ifndef BERTH_HTTP_PRIVATE_H
#define BERTH_HTTP_PRIVATE_H

#include "http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    HTTP_METHODS = 4,
    HTTP_PARAMS_MAX = 4,
    HTTP_SEGMENTS_MAX = 24,
    HTTP_HEADERS_MAX = 128,
    HTTP_REPLY_HEADERS_MAX = 16,
    HTTP_DRAIN_BYTES = 65536, /* a refused body up to this size is read, so that the connection can go on */
    HTTP_ID_DIGITS = 16,      /* of one made here */
    HTTP_ID_MAX = 64,         /* of one that the client brings */
    HTTP_TRACE_DIGITS = 32,
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HTTP_STACK_BYTES = 2 * 1024 * 1024 };
#else
enum { HTTP_STACK_BYTES = 256 * 1024 };
#endif

/* -- http_route.c: never blocks, any thread -- */
struct http_text {
    const char *data; /* NUL-terminated behind size */
    size_t size;
};

struct http_match {
    const struct http_route *route; /* NULL unless found */
    unsigned methods;               /* bits of the methods that this path has; 0: unknown path */
    bool slash;                     /* the path would be known without the slash at its end */
    unsigned param_count;
    struct http_text params[HTTP_PARAMS_MAX];
};

struct http_router;
struct http_router *http_router_new(const struct http_route *routes, size_t count);
void http_router_free(struct http_router *router);
/* `method` is an enum http_method or -1 for any other. `scratch` holds size + 1 bytes and must live as long as the
 * match. */
void http_router_match(const struct http_router *router, int method, const char *path, size_t size, char *scratch,
                       struct http_match *match);
int http_method_of(const char *name); /* -1: none of ours */
/* "GET, POST" of http_match.methods into `out`. */
void http_methods_text(unsigned methods, char out[static 32]);
/* Percent-decodes `size` bytes into `out` (may be `in`); malformed escapes stay as they are. Returns the size. */
size_t http_percent_decode(char *out, const char *in, size_t size, bool plus_is_space);

/* -- http_server.c -- */
/* SEND: a piece of a stream is on its way. */
enum http_phase { HTTP_PHASE_HEAD, HTTP_PHASE_BODY, HTTP_PHASE_WORK, HTTP_PHASE_SEND };

/* One connection. Linked and unlinked by the daemon's thread, marked by its own, watched by the watcher's. */
struct http_conn {
    struct http_conn *next;
    struct http_conn *previous;
    int fd;
    bool refuse; /* came when max_connections were open */
    atomic_int phase;
    atomic_llong since_ms;  /* when the phase began */
    atomic_llong active_ms; /* when the last piece of a body came */
    atomic_llong received;  /* bytes of the body */
};

struct http_server {
    struct http_settings settings;
    struct http_table table;
    struct http_router *router;
    struct MHD_Daemon *daemon;
    uint16_t port;
    bool layout_known;
    atomic_ullong next_id;
    atomic_uint connections;
    atomic_bool stopping;
    atomic_uint active;         /* requests between their head and the end of their answer */
    pthread_mutex_t conns_lock; /* guards conns, and the fds in it against being closed */
    struct http_conn *conns;
    pthread_mutex_t done_lock; /* with done: `active` fell to 0 while stopping */
    pthread_cond_t done;
    pthread_t watcher;
    int watcher_stop_fd;
};

void http_conn_phase(struct http_conn *conn, enum http_phase phase);
/* After the last byte of an answer to a client that may still send. Blocks half a second at most. */
void http_conn_linger(const struct http_server *server, int fd);
/* Starts libmicrohttpd's clock of the client's silence anew. */
void http_conn_refresh(const struct http_server *server, struct MHD_Connection *connection);
unsigned http_server_mhd_timeout(const struct http_server *server); /* seconds */

/* -- http_request.c -- */
struct http_header {
    const char *name;
    const char *value;
    size_t name_size;
    size_t value_size;
};

struct http_query_item {
    struct http_text key;
    struct http_text value; /* mended */
    struct http_text bytes; /* as sent */
};

struct http_request {
    struct http_server *server;
    struct http_conn *conn;
    struct cancel cancel;
    char id[HTTP_ID_MAX + 1];
    char trace[HTTP_TRACE_DIGITS + 1]; /* "" none */
    bool begun;                        /* the first call was made */
    bool answered;                     /* an answer was given to libmicrohttpd, whatever became of it */
    bool refused;                      /* an error is kept for the last call; the body is thrown away */
    bool linger;                       /* the connection ends before everything the client sent was read */
    bool broken;                       /* the body was too long even to swallow */
    bool expects;                      /* Expect: 100-continue */
    bool chunked;
    int status; /* of the answer, for the log; before that of a kept refusal: 0 means by its error code */
    struct error refusal;
    int64_t content_length; /* -1: none */
    int64_t began_us;

    int method; /* enum http_method or -1 */
    const struct http_route *route;
    const char *uri_at; /* where it lies in the head, see http_strict.c */
    size_t uri_size;
    const char *path;
    size_t path_size;
    const char *query; /* "" when there is none */
    size_t query_size;
    struct http_match match;
    char *scratch; /* decoded segments */

    struct http_header *headers; /* NULL until collected */
    unsigned header_count;
    struct http_query_item *query_items; /* NULL until asked for */
    size_t query_count;
    struct buf query_text;
    int note;

    uint64_t body_limit;    /* kept at most */
    uint64_t swallow_limit; /* read at most */
    uint64_t body_seen;
    struct buf body_buf;
    struct http_body body;
    struct error body_error;
    struct http_feed *feed;      /* of a stream route with a body, once its handler runs */
    struct upgrading *upgrading; /* once its answer is a 101 */
    bool body_too_large;         /* of a stream: guarded by the feed's lock */
    char memory[];               /* uri, path and scratch */
};

struct http_request *http_request_new(struct http_server *server, struct http_conn *conn, const char *uri);
void http_request_free(struct http_request *request);
/* Once the headers are there: the client's own id and trace, where they are well-formed. */
void http_request_adopt_ids(struct http_request *request);
bool http_name_is(const struct http_header *header, const char *name, size_t size);

/* -- http_strict.c: what RFC 9112 says to refuse and libmicrohttpd lets through -- */
/* Collects the headers and judges the head. 0, or the status to answer with (the text in err); the connection must not
 * be used after it. Never blocks. */
int http_strict_check(struct http_request *request, struct MHD_Connection *connection, const char *method,
                      const char *version, struct error *err);
/* Whether this libmicrohttpd leaves the head in memory as the checks for folded lines need it. */
bool http_strict_layout_known(void);

/* -- http_body.c -- */
/* After the gate: where does the body go? -1: refused by its length, with an error. */
int http_body_begin(struct http_request *request, struct error *err);
/* Notes that a piece came. */
void http_body_count(struct http_request *request, size_t size);
/* Takes a piece. Blocks on the disk. -1: too much even to swallow. Other failures are kept until http_body_end(). */
int http_body_take(struct http_request *request, const char *data, size_t size);
int http_body_end(struct http_request *request, struct error *err);
void http_body_done(struct http_request *request);

/* -- http_feed.c: a body read while it arrives. All but http_request_read() on the connection's thread; they block on the handler. -- */
struct http_feed;
/* Runs the handler on a thread of its own. request->feed is set. */
int http_feed_start(struct http_request *request, struct error *err);
/* Waits for the handler's first question. False: it has returned without one. */
bool http_feed_wants_body(struct http_feed *feed, struct MHD_Connection *connection);
/* False: the handler has returned, the bytes are lost. */
bool http_feed_put(struct http_feed *feed, struct MHD_Connection *connection, const char *data, size_t size);
/* More than may come: the handler is told; waits for its end. */
void http_feed_too_large(struct http_feed *feed);
/* The body is whole: waits for the handler's end and gives its result out. *ret_sent: the answer has gone out already. */
int http_feed_finish(struct http_feed *feed, struct http_reply *reply, bool *ret_sent, struct error *err);
/* The rest will not come: waits for the handler's end. NULL is left alone. */
void http_feed_free(struct http_feed *feed);

/* -- http_upgrade.c -- */
struct http_duplex {
    int fd;
    const char *early; /* what came behind the head */
    size_t early_size;
};
/* NULL: failed, and freed. Otherwise http_upgrade_free() when the request ends. */
struct MHD_Response *http_upgrade_response(const struct http_upgrade *upgrade, struct http_request *request);
void http_upgrade_free(struct http_request *request);

/* -- http_websocket.c -- */
struct http_websocket_settings;
/* The whole conversation, from the first frame on. */
void http_websocket_speak(const struct http_websocket_settings *settings, struct http_duplex *duplex,
                          const struct cancel *cancel);

/* -- http_reply.c -- */
enum http_reply_kind { HTTP_REPLY_EMPTY, HTTP_REPLY_MEMORY, HTTP_REPLY_FILE, HTTP_REPLY_STREAM, HTTP_REPLY_UPGRADE };

struct http_reply {
    int status;
    enum http_reply_kind kind;
    const char *content_type;
    char *data; /* MEMORY */
    size_t size;
    int fd; /* FILE */
    uint64_t offset;
    uint64_t fd_size;
    struct http_stream stream;
    struct http_upgrade upgrade;
    unsigned header_count;
    struct {
        char *name;
        char *value;
    } headers[HTTP_REPLY_HEADERS_MAX];
};

#define HTTP_REPLY_INIT         \
    {                           \
        .status = 200, .fd = -1 \
    }
void http_reply_reset(struct http_reply *reply);
/* Hands the reply to libmicrohttpd and empties it. `last`: the connection ends with it. MHD_NO: close it without. */
enum MHD_Result http_reply_queue(struct http_reply *reply, struct http_request *request,
                                 struct MHD_Connection *connection, bool last);
/* In the middle of a body: writes an answer from memory to the socket itself, as the last of its connection. Never blocks. */
void http_reply_send(struct http_reply *reply, struct http_request *request);

#endif
