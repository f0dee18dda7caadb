/* A server of room http with a route for every kind of handler. Every test runs in a process of its own. */
#ifndef BERTH_HTTP_FIXTURE_H
#define BERTH_HTTP_FIXTURE_H

#include "http.h"

#include "alloc.h"
#include "crc32c.h"
#include "fd.h"
#include "http_client.h"
#include "log.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { HEADER_BYTES = 8192, BODY_BYTES = 1024 * 1024, MEMORY_BYTES = 65536 };

static struct http_server *server;
static int stop_fd;
static int go_fd;
static atomic_int hits;
static atomic_int waiting;
static atomic_int wait_ended; /* the error code that ended /wait */
static atomic_int streams_freed;
static atomic_int hold_errors; /* an error is answered only once its connection was closed */

static __attribute__((unused)) int on_health(struct http_request *request, struct http_reply *reply, void *context,
                                             struct error *err)
{
    http_reply_text(reply, 200, "text/plain", "ok");
    return 0;
}

static __attribute__((unused)) int on_hit(struct http_request *request, struct http_reply *reply, void *context,
                                          struct error *err)
{
    (void)atomic_fetch_add(&hits, 1);
    http_reply_empty(reply, 204);
    return 0;
}

static __attribute__((unused)) int on_param(struct http_request *request, struct http_reply *reply, void *context,
                                            struct error *err)
{
    struct buf out = BUF_INIT(HEADER_BYTES);
    size_t size;
    const char *first = http_request_param(request, 0, &size);

    cr_assert(buf_append_format(&out, err, "%zu:", size) == 0 && buf_append(&out, first, size, err) == 0 &&
              buf_append_format(&out, err, ",%s", http_request_param(request, 1, NULL)) == 0);
    http_reply_buf(reply, "text/plain", &out);
    return 0;
}

static __attribute__((unused)) int on_query(struct http_request *request, struct http_reply *reply, void *context,
                                            struct error *err)
{
    struct buf out = BUF_INIT(HEADER_BYTES * 3);
    size_t size = 0;
    const char *value = http_request_query(request, "k", &size);

    if (!value)
        return fail(err, NOT_FOUND, "no k");
    cr_assert(buf_append_format(&out, err, "%zu:", size) == 0 && buf_append(&out, value, size, err) == 0);
    http_reply_buf(reply, "text/plain", &out);
    return 0;
}

/* "<size> <crc> <memory|file|too large>" */
static __attribute__((unused)) int on_body(struct http_request *request, struct http_reply *reply, void *context,
                                           struct error *err)
{
    const struct http_body *body = http_request_body(request);
    struct buf content = BUF_INIT(BODY_BYTES);
    char text[64];

    (void)atomic_fetch_add(&hits, 1);
    if (body->fd >= 0)
        cr_assert(fd_read_all(body->fd, &content, err) == 0);
    else if (!body->too_large)
        cr_assert(buf_append(&content, body->data, (size_t)body->size, err) == 0);
    cr_assert(content.size == body->size);
    (void)snprintf(text, sizeof text, "%zu %08x %s", content.size, crc32c(0, buf_str(&content), content.size),
                   body->too_large ? "too large"
                   : body->fd >= 0 ? "file"
                                   : "memory");
    buf_done(&content);
    http_reply_text(reply, body->too_large ? 409 : 200, "text/plain", text);
    return 0;
}

static __attribute__((unused)) int on_wait(struct http_request *request, struct http_reply *reply, void *context,
                                           struct error *err)
{
    struct error why = ERROR_INIT;

    atomic_store(&waiting, 1);
    cr_assert(cancel_poll(http_request_cancel(request), NULL, 0, &why) < 0);
    atomic_store(&wait_ended, (int)why.code);
    *err = why;
    return -1;
}

/* Waits for go_fd before each piece; the third is the last. */
struct pieces {
    int sent;
    bool breaks;
};

static __attribute__((unused)) int64_t next_piece(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct pieces *pieces = context;
    struct pollfd go = {.fd = go_fd, .events = POLLIN};
    struct error err = ERROR_INIT;
    uint64_t value;

    if (pieces->sent == 3)
        return pieces->breaks ? -1 : 0;
    if (cancel_poll(cancel, &go, 1, &err) < 0) {
        atomic_store(&wait_ended, (int)err.code);
        return -1;
    }
    cr_assert(read(go_fd, &value, sizeof value) == sizeof value);
    pieces->sent++;
    return snprintf(out, max, "piece %d\n", pieces->sent);
}

static __attribute__((unused)) void free_pieces(void *context)
{
    free(context);
    (void)atomic_fetch_add(&streams_freed, 1);
}

static int64_t next_of_a_flood(void *context, const struct cancel *cancel, char *out, size_t max)
{
    (void)context;
    (void)cancel;
    memset(out, 'x', max);
    return (int64_t)max;
}

static void flood_ends(void *context)
{
    (void)context;
    (void)atomic_fetch_add(&streams_freed, 1);
}

static __attribute__((unused)) int on_flood(struct http_request *request, struct http_reply *reply, void *context,
                                            struct error *err)
{
    struct http_stream stream = {.next = next_of_a_flood, .free = flood_ends, .send_buffer_bytes = 4096};

    (void)request;
    (void)context;
    (void)err;
    http_reply_stream(reply, "text/plain", &stream);
    return 0;
}

static __attribute__((unused)) int on_stream(struct http_request *request, struct http_reply *reply, void *context,
                                             struct error *err)
{
    struct pieces *pieces = alloc_zero(sizeof *pieces);
    struct http_stream stream = {.next = next_piece, .free = free_pieces, .context = pieces};

    pieces->breaks = http_request_query(request, "break", NULL) != NULL;
    http_reply_stream(reply, "text/plain", &stream);
    return 0;
}

/* "0123456789" from its third byte, five of them. */
static __attribute__((unused)) int on_file(struct http_request *request, struct http_reply *reply, void *context,
                                           struct error *err)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    cr_assert(fd >= 0 && fd_write_all(fd, "0123456789", 10, err) == 0);
    http_reply_fd(reply, "application/octet-stream", fd, 2, 5);
    http_reply_header(reply, "X-Lines", "a\r\nSet-Cookie: b");
    return 0;
}

static __attribute__((unused)) int on_fail(struct http_request *request, struct http_reply *reply, void *context,
                                           struct error *err)
{
    http_reply_text(reply, 200, "text/plain", "dropped");
    http_reply_header(reply, "X-Dropped", "yes");
    return fail(err, UNAVAILABLE, "try again");
}

static __attribute__((unused)) int on_unmodified(struct http_request *request, struct http_reply *reply, void *context,
                                                 struct error *err)
{
    http_reply_empty(reply, 304);
    return 0;
}

static const struct http_route routes[] = {
    {HTTP_GET, "/healthz", on_health, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/hit", on_hit, HTTP_BODY_NONE, 0},
    {HTTP_POST, "/hit", on_hit, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/p/{a}/x/{b}", on_param, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/query", on_query, HTTP_BODY_NONE, 0},
    {HTTP_POST, "/json", on_body, HTTP_BODY_JSON, 0},
    {HTTP_POST, "/raw", on_body, HTTP_BODY_RAW, 0},
    {HTTP_GET, "/wait", on_wait, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/flood", on_flood, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/stream", on_stream, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/file", on_file, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/fail", on_fail, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/unmodified", on_unmodified, HTTP_BODY_NONE, 0},
};

static __attribute__((unused)) int gate(struct http_request *request, void *context, struct error *err)
{
    const char *limit = http_request_header(request, "x-limit");

    if (http_request_header_count(request, "X-DENY"))
        return fail(err, UNAUTHENTICATED, "denied");
    if (limit)
        http_request_limit_body(request, strtoul(limit, NULL, 10));
    return 0;
}

static __attribute__((unused)) void on_error(struct http_request *request, struct http_reply *reply,
                                             const struct error *err, void *context)
{
    struct error closed = ERROR_INIT;

    cr_expect_str_eq(http_request_id(request), log_work()->request);
    if (atomic_load(&hold_errors)) {
        atomic_store(&waiting, 1);
        cr_assert(cancel_poll(http_request_cancel(request), NULL, 0, &closed) < 0);
    }
    http_reply_text(reply, error_http_status(err->code), "text/plain", error_public_text(err));
}

static const struct http_table table = {routes, sizeof routes / sizeof *routes, NULL, gate, on_error, NULL};

static __attribute__((unused)) void start(unsigned max_connections, int idle_timeout_seconds)
{
    struct error err = ERROR_INIT;
    struct http_settings settings = {
        "127.0.0.1", 0, max_connections, HEADER_BYTES, BODY_BYTES, MEMORY_BYTES, "/tmp", idle_timeout_seconds, 0};

    stop_fd = eventfd(0, EFD_CLOEXEC);
    go_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    settings.stop_fd = stop_fd;
    cr_assert(http_server_start(&settings, &table, &server, &err) == 0, "%s", err.text);
}

static __attribute__((unused)) void set_up(void)
{
    start(64, 30);
}

static __attribute__((unused)) void stop(int64_t grace_ms)
{
    http_server_stop(server, grace_ms);
    server = NULL;
}

static __attribute__((unused)) void tear_down(void)
{
    if (server)
        stop(1000);
}

static struct answer answer;

static __attribute__((unused)) struct client *connected(void)
{
    return client_new(http_server_port(server));
}

/* One request on a connection of its own. */
static __attribute__((unused)) int ask(const char *text)
{
    struct client *client = connected();
    int status;

    client_say(client, text);
    status = client_answer(client, &answer);
    client_free(client);
    return status;
}

static __attribute__((unused)) void signal_fd(int fd)
{
    uint64_t one = 1;

    cr_assert(write(fd, &one, sizeof one) == sizeof one);
}

static __attribute__((unused)) void until_true(bool (*condition)(void))
{
    int64_t until_ms = clock_mono_ms() + 10000;

    while (!condition()) {
        cr_assert(clock_mono_ms() < until_ms);
        (void)poll(NULL, 0, 1);
    }
}

/* `http` has a server ready; tests of `http_own` start theirs. */
TestSuite(http_own, .fini = tear_down, .timeout = 60);
TestSuite(http, .init = set_up, .fini = tear_down, .timeout = 60);

#endif
