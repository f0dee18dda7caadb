#include "http_private.h"

#include "alloc.h"
#include "cleanup.h"
#include "clock.h"
#include "id.h"
#include "log.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    BACKLOG = 1024,
    OVER_LIMIT = 64, /* connections above max_connections that still get a 503; more are closed without a word */
    POOL_EXTRA_BYTES = 16384, /* beside a head: the table of its headers, and the head of the answer */
    WATCH_MS = 500,           /* how often silent and slow clients are looked for */
    SLOWEST_BYTES_PER_MS = 1, /* a body slower than this, after a grace of idle_timeout, is broken off */
    TIMEOUT_EXTRA_SECONDS = 5,
    LINGER_MS = 500,           /* how long, and how far, a refused client may go on sending */
    LINGER_BYTES = 384 * 1024, /* the kernels of both sides hold as much again and more */
};

/* -- connections -- */

void http_conn_phase(struct http_conn *conn, enum http_phase phase)
{
    long long now_ms = clock_mono_ms();

    atomic_store_explicit(&conn->since_ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&conn->active_ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&conn->received, 0, memory_order_relaxed);
    atomic_store_explicit(&conn->phase, phase, memory_order_release);
}

/* On the daemon's thread, at the beginning and the end of each connection. */
static void notify_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                              enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = context;
    struct http_conn *conn;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        conn = alloc_zero(sizeof *conn);
        conn->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        conn->refuse = atomic_fetch_add(&server->connections, 1) >= server->settings.max_connections;
        http_conn_phase(conn, HTTP_PHASE_HEAD);
        (void)pthread_mutex_lock(&server->conns_lock);
        conn->next = server->conns;
        if (conn->next)
            conn->next->previous = conn;
        server->conns = conn;
        (void)pthread_mutex_unlock(&server->conns_lock);
        *socket_context = conn;
        return;
    }
    conn = *socket_context;
    (void)pthread_mutex_lock(&server->conns_lock);
    if (conn->next)
        conn->next->previous = conn->previous;
    if (conn->previous)
        conn->previous->next = conn->next;
    else
        server->conns = conn->next;
    (void)pthread_mutex_unlock(&server->conns_lock);
    (void)atomic_fetch_sub(&server->connections, 1);
    free(conn);
}

/* Silent, or so slow that it only wants to hold the connection? */
static bool is_overdue(const struct http_conn *conn, long long now_ms, long long idle_ms)
{
    enum http_phase phase = (enum http_phase)atomic_load_explicit(&conn->phase, memory_order_acquire);
    long long took_ms = now_ms - atomic_load_explicit(&conn->since_ms, memory_order_relaxed);
    long long silent_ms = now_ms - atomic_load_explicit(&conn->active_ms, memory_order_relaxed);
    long long received = atomic_load_explicit(&conn->received, memory_order_relaxed);

    if (phase == HTTP_PHASE_HEAD || phase == HTTP_PHASE_SEND)
        return took_ms > idle_ms;
    if (phase == HTTP_PHASE_BODY)
        return silent_ms > idle_ms || took_ms > idle_ms + received / SLOWEST_BYTES_PER_MS;
    return false;
}

/* libmicrohttpd's own timeout sees silence only, not slowness, and spins for its last second. It stays behind as the
 * bound for clients that do not read their answer. A stream has somebody behind it who waits, or who wants to be told
 * that another has his place: each piece of it must be taken in time. */
static void *watch(void *context)
{
    struct http_server *server = context;
    struct pollfd stop = {.fd = server->watcher_stop_fd, .events = POLLIN};
    long long idle_ms = server->settings.idle_timeout_seconds * 1000LL;

    while (poll(&stop, 1, WATCH_MS) <= 0) {
        long long now_ms = clock_mono_ms();

        (void)pthread_mutex_lock(&server->conns_lock);
        for (struct http_conn *conn = server->conns; conn; conn = conn->next)
            if (is_overdue(conn, now_ms, idle_ms))
                (void)shutdown(conn->fd, SHUT_RDWR); /* its thread wakes up and ends it */
        (void)pthread_mutex_unlock(&server->conns_lock);
    }
    return NULL;
}

/* Whoever closes a socket with unread bytes in it resets the connection, and the client may lose the answer. So: say
 * that we are done, and read on for a bounded while. */
void http_conn_linger(const struct http_server *server, int fd)
{
    char scrap[16384];
    int64_t until_ms = clock_mono_ms() + LINGER_MS;
    size_t seen = 0;

    (void)shutdown(fd, SHUT_WR);
    while (seen < LINGER_BYTES) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = server->settings.stop_fd, .events = POLLIN}};
        int64_t left_ms = until_ms - clock_mono_ms();
        ssize_t got;

        if (left_ms <= 0 || (poll(fds, 2, (int)left_ms) < 0 && errno != EINTR) || fds[1].revents)
            return;
        got = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return;
        seen += got > 0 ? (size_t)got : 0;
    }
}

/* -- requests -- */

static void *notify_uri(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct http_server *server = context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return http_request_new(server, info->socket_context, uri);
}

static void request_ends(struct http_server *server)
{
    if (atomic_fetch_sub(&server->active, 1) != 1 || !atomic_load(&server->stopping))
        return;
    (void)pthread_mutex_lock(&server->done_lock);
    (void)pthread_cond_broadcast(&server->done);
    (void)pthread_mutex_unlock(&server->done_lock);
}

static void notify_completed(void *context, struct MHD_Connection *connection, void **request_context,
                             enum MHD_RequestTerminationCode code)
{
    struct http_server *server = context;
    struct http_request *request = *request_context;
    struct http_conn *conn;

    if (!request)
        return;
    *request_context = NULL;
    conn = request->conn;
    http_feed_free(request->feed); /* before anything of the request goes: its handler may run, and read */
    request->feed = NULL;
    http_upgrade_free(request);
    if (request->linger && (code == MHD_REQUEST_TERMINATED_COMPLETED_OK || code == MHD_REQUEST_TERMINATED_WITH_ERROR))
        http_conn_linger(server, conn->fd);
    if (request->begun) {
        if (server->table.on_end)
            server->table.on_end(request, request->status, clock_mono_us() - request->began_us, server->table.context);
        log_debug("http.request", log_s("path", request->path), log_i("status", request->status),
                  log_i("us", clock_mono_us() - request->began_us));
        log_begin("", "");
        request_ends(server);
    }
    http_conn_phase(conn, HTTP_PHASE_HEAD);
    http_request_free(request);
}

/* Answers with an error. `status` 0: that of its code. */
static enum MHD_Result answer_error(struct http_request *request, struct MHD_Connection *connection, int status,
                                    const struct error *err, bool last)
{
    struct http_server *server = request->server;
    struct http_reply reply = HTTP_REPLY_INIT;

    if (status == 307) {
        struct buf target = BUF_INIT(server->settings.max_header_bytes + 1);
        struct error full = ERROR_INIT;

        /* The path is one of ours plus a slash: never "//host". */
        if (buf_append(&target, request->path, request->path_size - 1, &full) < 0 ||
            (request->query_size > 0 && buf_append_format(&target, &full, "?%s", request->query) < 0))
            status = 404;
        else
            http_reply_header(&reply, "Location", buf_str(&target));
        buf_done(&target);
        http_reply_empty(&reply, status);
        return http_reply_queue(&reply, request, connection, last);
    }
    http_reply_status(&reply, error_http_status(err->code));
    server->table.on_error(request, &reply, err, server->table.context);
    if (status)
        http_reply_status(&reply, status);
    if (reply.status == 426) {
        http_reply_header(&reply, "Upgrade", "websocket"); /* the only one there is */
        http_reply_header(&reply, "Sec-WebSocket-Version", "13");
    }
    if (status == 405) {
        char allow[32];

        http_methods_text(request->match.methods, allow);
        http_reply_header(&reply, "Allow", allow);
    }
    return http_reply_queue(&reply, request, connection, last);
}

/* Refuses before the body: now, or, where that is so short that the connection need not be given up, after it. */
static enum MHD_Result refuse(struct http_request *request, struct MHD_Connection *connection, int status,
                              const struct error *err)
{
    bool short_body = !request->chunked && request->content_length <= HTTP_DRAIN_BYTES;

    if (!http_request_has_body(request) || (short_body && !request->expects)) {
        if (http_request_has_body(request))
            http_conn_phase(request->conn, HTTP_PHASE_BODY);
        request->refused = true;
        request->status = status;
        request->refusal = *err;
        return MHD_YES;
    }
    return answer_error(request, connection, status, err, true);
}

static enum MHD_Result run_handler(struct http_request *request, struct MHD_Connection *connection, bool last)
{
    struct http_server *server = request->server;
    struct http_reply reply = HTTP_REPLY_INIT;
    struct error err = ERROR_INIT;

    if (request->route->handler(request, &reply, server->table.context, &err) < 0) {
        http_reply_reset(&reply);
        return answer_error(request, connection, 0, &err, last);
    }
    return http_reply_queue(&reply, request, connection, last);
}

/* The result of a stream's handler. */
static enum MHD_Result answer_stream(struct http_request *request, struct MHD_Connection *connection, bool last)
{
    struct http_reply reply = HTTP_REPLY_INIT;
    struct error err = ERROR_INIT;
    bool sent;

    if (http_feed_finish(request->feed, &reply, &sent, &err) < 0) {
        http_reply_reset(&reply);
        return answer_error(request, connection, 0, &err, last);
    }
    return sent ? MHD_NO : http_reply_queue(&reply, request, connection, last);
}

/* A body that the handler reads itself: it begins now, and says whether it wants it. */
static enum MHD_Result begin_stream(struct http_request *request, struct MHD_Connection *connection)
{
    struct error err = ERROR_INIT;

    if (request->content_length > 0 && (uint64_t)request->content_length > request->body_limit) {
        (void)fail(&err, TOO_LARGE, "Request body too large");
        return refuse(request, connection, 0, &err);
    }
    if (http_feed_start(request, &err) < 0)
        return refuse(request, connection, 0, &err);
    if (!http_feed_wants_body(request->feed, connection))
        return answer_stream(request, connection, true);
    http_conn_phase(request->conn, HTTP_PHASE_BODY);
    return MHD_YES;
}

/* A piece of it. */
static enum MHD_Result feed_stream(struct http_request *request, struct MHD_Connection *connection, const char *data,
                                   size_t size)
{
    http_body_count(request, size);
    if (request->body_seen > request->body_limit)
        http_feed_too_large(request->feed);
    else if (http_feed_put(request->feed, connection, data, size))
        return MHD_YES;
    request->linger = false; /* the handler's thread has answered, or is about to */
    return MHD_NO;
}

/* The head is there. */
static enum MHD_Result first_call(struct http_request *request, struct MHD_Connection *connection, const char *method,
                                  const char *version)
{
    struct http_server *server = request->server;
    struct http_match *match = &request->match;
    struct error err = ERROR_INIT;
    int status;

    request->begun = true;
    (void)atomic_fetch_add(&server->active, 1);
    http_conn_phase(request->conn, HTTP_PHASE_WORK);
    request->method = http_method_of(method);
    status = http_strict_check(request, connection, method, version, &err);
    http_request_adopt_ids(request);
    log_begin(request->id, request->trace);
    if (status)
        return answer_error(request, connection, status, &err, true);
    if (request->conn->refuse || atomic_load(&server->stopping)) {
        (void)fail(&err, UNAVAILABLE, "%s", request->conn->refuse ? "Too many connections" : "Shutting down");
        return answer_error(request, connection, 0, &err, true);
    }
    http_router_match(server->router, request->method, request->path, request->path_size, request->scratch, match);
    if (!match->route) {
        if (match->methods)
            (void)fail(&err, INVALID, "Method Not Allowed");
        else
            (void)fail(&err, NOT_FOUND, "Not Found");
        return refuse(request, connection, match->methods ? 405 : match->slash ? 307 : 404, &err);
    }
    request->route = match->route;
    if (server->table.gate && server->table.gate(request, server->table.context, &err) < 0)
        return refuse(request, connection, 0, &err);
    if (!http_request_has_body(request))
        return MHD_YES;
    if (request->route->body == HTTP_BODY_STREAM)
        return begin_stream(request, connection);
    if (http_body_begin(request, &err) < 0)
        return refuse(request, connection, 0, &err);
    if (request->body.too_large && (request->expects || (uint64_t)request->content_length > request->swallow_limit))
        return run_handler(request, connection, true);
    http_conn_phase(request->conn, HTTP_PHASE_BODY);
    return MHD_YES;
}

/* libmicrohttpd takes the end of the connection for the end of a chunked body, wherever it was cut. */
static bool is_cut_off(const struct http_request *request)
{
    struct pollfd fd = {.fd = request->conn->fd, .events = POLLRDHUP};

    return request->chunked && poll(&fd, 1, 0) > 0;
}

static enum MHD_Result last_call(struct http_request *request, struct MHD_Connection *connection)
{
    struct error err = ERROR_INIT;
    bool last = atomic_load(&request->server->stopping);

    request->linger = false;
    if (is_cut_off(request))
        return MHD_NO;
    http_conn_phase(request->conn, HTTP_PHASE_WORK);
    if (request->refused)
        return answer_error(request, connection, request->status, &request->refusal, last);
    if (request->feed)
        return answer_stream(request, connection, last);
    if (http_body_end(request, &err) < 0)
        return answer_error(request, connection, 0, &err, last);
    return run_handler(request, connection, last);
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *data_size, void **request_context)
{
    struct http_request *request = *request_context;

    if (request->answered) /* while it stops, libmicrohttpd throws answers away, and asks again */
        return MHD_NO;
    if (!request->begun)
        return first_call(request, connection, method, version);
    if (*data_size == 0)
        return last_call(request, connection);
    if (request->feed) {
        size_t size = *data_size;

        *data_size = 0;
        return feed_stream(request, connection, data, size);
    }
    if (http_body_take(request, data, *data_size) < 0)
        return MHD_NO;
    *data_size = 0;
    return MHD_YES;
}

/* Percent escapes are decoded after the path was cut at its slashes, see http_route.c. */
static size_t leave_escapes(void *context, struct MHD_Connection *connection, char *text)
{
    return strlen(text);
}

static void log_library(void *context, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static void log_library(void *context, const char *format, va_list args)
{
    char text[256];

    (void)vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_debug("http.library", log_s("text", text));
}

/* -- the server -- */

static bool listens(int fd, const struct addrinfo *at)
{
    int one = 1;

    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
           bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
}

static int listen_on(const char *host, uint16_t port, int *ret_fd, uint16_t *ret_port, struct error *err)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    struct sockaddr_storage own;
    socklen_t own_size = sizeof own;
    char service[8];
    int failed_errno = 0;
    int code;
    auto_close int fd = -1;

    (void)snprintf(service, sizeof service, "%u", port);
    code = getaddrinfo(host, service, &hints, &addresses);
    if (code)
        return fail(err, INVALID, "listen address %s: %s", host, gai_strerror(code));
    for (struct addrinfo *at = addresses; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && listens(fd, at))
            break;
        failed_errno = errno;
        cleanup_fd(&fd);
        fd = -1;
    }
    freeaddrinfo(addresses);
    errno = failed_errno;
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&own, &own_size) < 0)
        return fail_errno(err, "cannot listen on %s port %u", host, port);
    *ret_port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                : ((struct sockaddr_in *)&own)->sin_port);
    *ret_fd = take_fd(&fd);
    return 0;
}

static void server_free(struct http_server *server)
{
    http_router_free(server->router);
    cleanup_fd(&server->watcher_stop_fd);
    (void)pthread_mutex_destroy(&server->conns_lock);
    (void)pthread_mutex_destroy(&server->done_lock);
    (void)pthread_cond_destroy(&server->done);
    free(server);
}

static struct http_server *server_new(const struct http_settings *settings, const struct http_table *table)
{
    struct http_server *server = alloc_zero(sizeof *server);
    pthread_condattr_t monotonic;
    uint64_t first_id;

    server->settings = *settings;
    server->table = *table;
    server->router = http_router_new(table->routes, table->count);
    server->layout_known = http_strict_layout_known();
    server->watcher_stop_fd = -1;
    id_random_bytes(&first_id, sizeof first_id);
    atomic_init(&server->next_id, first_id);
    (void)pthread_mutex_init(&server->conns_lock, NULL);
    (void)pthread_mutex_init(&server->done_lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&server->done, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return server;
}

DEFINE_CLEANUP(server, struct http_server *, server_free)

void http_conn_refresh(const struct http_server *server, struct MHD_Connection *connection)
{
    /* Setting the option from 0 starts its clock. */
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, http_server_mhd_timeout(server));
}

unsigned http_server_mhd_timeout(const struct http_server *server)
{
    return (unsigned)server->settings.idle_timeout_seconds + TIMEOUT_EXTRA_SECONDS;
}

static int start_daemon(struct http_server *server, int listen_fd, struct error *err)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC |
                     MHD_USE_ERROR_LOG | MHD_ALLOW_UPGRADE;

    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, answer, server, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET,
        listen_fd, MHD_OPTION_CONNECTION_LIMIT, server->settings.max_connections + OVER_LIMIT,
        MHD_OPTION_CONNECTION_TIMEOUT, http_server_mhd_timeout(server), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        server->settings.max_header_bytes + POOL_EXTRA_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)HTTP_STACK_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, notify_connection, server, MHD_OPTION_NOTIFY_COMPLETED, notify_completed, server,
        MHD_OPTION_URI_LOG_CALLBACK, notify_uri, server, MHD_OPTION_UNESCAPE_CALLBACK, leave_escapes, NULL,
        MHD_OPTION_END);
    return server->daemon ? 0 : fail(err, INTERNAL, "the HTTP server does not start");
}

int http_server_start(const struct http_settings *settings, const struct http_table *table,
                      struct http_server **ret_server, struct error *err)
{
    auto_cleanup(cleanup_server) struct http_server *server = server_new(settings, table);
    auto_close int listen_fd = -1;

    assert(settings->idle_timeout_seconds > 0 && settings->max_connections > 0);
    if (listen_on(settings->host, settings->port, &listen_fd, &server->port, err) < 0)
        return -1;
    server->watcher_stop_fd = eventfd(0, EFD_CLOEXEC);
    if (server->watcher_stop_fd < 0)
        return fail_errno(err, "eventfd");
    if (start_daemon(server, listen_fd, err) < 0)
        return -1;
    (void)take_fd(&listen_fd); /* the daemon's until http_server_stop() */
    if (pthread_create(&server->watcher, NULL, watch, server) != 0) {
        MHD_stop_daemon(server->daemon);
        return fail(err, INTERNAL, "no thread for the HTTP server's watcher");
    }
    *ret_server = take_ptr(server);
    return 0;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

unsigned http_server_connections(const struct http_server *server)
{
    return atomic_load(&server->connections);
}

void http_server_stop(struct http_server *server, int64_t grace_ms)
{
    int64_t until_ms = clock_mono_ms() + (grace_ms > 0 ? grace_ms : 0);
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    uint64_t one = 1;
    int listen_fd;

    if (!server)
        return;
    atomic_store(&server->stopping, true);
    listen_fd = MHD_quiesce_daemon(server->daemon);
    (void)pthread_mutex_lock(&server->done_lock);
    while (atomic_load(&server->active) > 0 &&
           pthread_cond_timedwait(&server->done, &server->done_lock, &until) != ETIMEDOUT)
        continue;
    (void)pthread_mutex_unlock(&server->done_lock);
    if (write(server->watcher_stop_fd, &one, sizeof one) == sizeof one)
        (void)pthread_join(server->watcher, NULL);
    MHD_stop_daemon(server->daemon);
    cleanup_fd(&listen_fd);
    server_free(server);
}
