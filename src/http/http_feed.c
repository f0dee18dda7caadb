/* A body that its handler reads while it arrives.
 *
 * libmicrohttpd calls us with pieces; a handler reads top to bottom. So the handler runs on a thread of its own, and the
 * connection's thread feeds it through a ring of bounded size: who is slower slows the other. The handler's answer is queued by the
 * connection's thread when the body has come to its end. An answer that is ready earlier cannot be queued any more (libmicrohttpd
 * takes one at the head or at the end only): the handler's thread writes it to the socket as it is, and the connection is closed. */
#include "http_private.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "waitq.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { RING_BYTES = 256 * 1024, LONG_WAIT_MS = 1000 };

struct http_feed {
    struct http_request *request;
    pthread_t thread;
    pthread_mutex_t lock;
    struct waitq reader;   /* the handler waits for bytes */
    pthread_cond_t feeder; /* the connection waits for room, for the first question, for the handler's end */
    size_t first;          /* of what is unread in the ring */
    size_t size;
    bool asked;  /* the handler wants the body */
    bool ended;  /* all of it came */
    bool broken; /* the rest will not come */
    bool done;   /* the handler has returned: result, reply and err are there */
    bool sent;   /* in the middle of the body: its answer has gone out */
    int result;
    struct http_reply reply;
    struct error err;
    char ring[RING_BYTES];
};

static void answer_early(struct http_request *request, struct http_reply *reply, int result, const struct error *err)
{
    struct http_server *server = request->server;

    if (result < 0) {
        http_reply_reset(reply);
        http_reply_status(reply, error_http_status(err->code));
        server->table.on_error(request, reply, err, server->table.context);
    }
    http_reply_send(reply, request);
    http_conn_linger(server, request->conn->fd);
    (void)shutdown(request->conn->fd, SHUT_RDWR); /* the connection's thread may wait for more */
}

static void *work(void *context)
{
    struct http_feed *feed = context;
    struct http_request *request = feed->request;
    struct http_reply reply = HTTP_REPLY_INIT;
    struct error err = ERROR_INIT;
    int result;

    log_begin(request->id, request->trace);
    result = request->route->handler(request, &reply, request->server->table.context, &err);
    (void)pthread_mutex_lock(&feed->lock);
    feed->sent = feed->asked && !feed->ended && !feed->broken;
    if (!feed->sent) {
        feed->result = result;
        feed->reply = reply;
        feed->err = err;
    }
    feed->done = true;
    (void)pthread_cond_broadcast(&feed->feeder);
    (void)pthread_mutex_unlock(&feed->lock);
    if (feed->sent)
        answer_early(request, &reply, result, &err);
    return NULL;
}

int http_feed_start(struct http_request *request, struct error *err)
{
    struct http_feed *feed = alloc_zero(sizeof *feed);
    pthread_attr_t attributes;
    int failed;

    feed->request = request;
    feed->reply = (struct http_reply)HTTP_REPLY_INIT;
    (void)pthread_mutex_init(&feed->lock, NULL);
    (void)pthread_cond_init(&feed->feeder, NULL);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, HTTP_STACK_BYTES);
    request->feed = feed;
    failed = pthread_create(&feed->thread, &attributes, work, feed);
    (void)pthread_attr_destroy(&attributes);
    if (!failed)
        return 0;
    request->feed = NULL;
    free(feed);
    return fail(err, UNAVAILABLE, "no thread for a request's body");
}

void http_feed_free(struct http_feed *feed)
{
    if (!feed)
        return;
    (void)pthread_mutex_lock(&feed->lock);
    feed->broken = true;
    waitq_wake_all(&feed->reader);
    (void)pthread_mutex_unlock(&feed->lock);
    (void)pthread_join(feed->thread, NULL);
    http_reply_reset(&feed->reply);
    (void)pthread_mutex_destroy(&feed->lock);
    (void)pthread_cond_destroy(&feed->feeder);
    free(feed);
}

/* The time that the handler takes must not count as the client's silence. */
static void wait_for_handler(struct http_feed *feed, struct MHD_Connection *connection, bool for_room)
{
    struct http_conn *conn = feed->request->conn;
    int phase = atomic_load(&conn->phase);
    int64_t began_ms = clock_mono_ms();
    int64_t waited_ms;

    atomic_store(&conn->phase, HTTP_PHASE_WORK);
    while (!feed->done && (for_room ? feed->size == RING_BYTES : !feed->asked))
        (void)pthread_cond_wait(&feed->feeder, &feed->lock);
    waited_ms = clock_mono_ms() - began_ms;
    atomic_fetch_add(&conn->since_ms, waited_ms);
    atomic_store(&conn->active_ms, clock_mono_ms());
    atomic_store(&conn->phase, phase);
    if (waited_ms >= LONG_WAIT_MS)
        http_conn_refresh(feed->request->server, connection);
}

bool http_feed_wants_body(struct http_feed *feed, struct MHD_Connection *connection)
{
    bool wants;

    (void)pthread_mutex_lock(&feed->lock);
    wait_for_handler(feed, connection, false);
    wants = !feed->done;
    (void)pthread_mutex_unlock(&feed->lock);
    return wants;
}

static void put(struct http_feed *feed, const char *data, size_t size)
{
    size_t at = (feed->first + feed->size) % RING_BYTES;
    size_t straight = RING_BYTES - at < size ? RING_BYTES - at : size;

    memcpy(feed->ring + at, data, straight);
    memcpy(feed->ring, data + straight, size - straight);
    feed->size += size;
}

bool http_feed_put(struct http_feed *feed, struct MHD_Connection *connection, const char *data, size_t size)
{
    bool takes;

    (void)pthread_mutex_lock(&feed->lock);
    while (size > 0 && !feed->done) {
        size_t room = RING_BYTES - feed->size;
        size_t part = room < size ? room : size;

        if (part == 0) {
            wait_for_handler(feed, connection, true);
            continue;
        }
        put(feed, data, part);
        data += part;
        size -= part;
        waitq_wake_all(&feed->reader);
    }
    takes = !feed->done;
    (void)pthread_mutex_unlock(&feed->lock);
    return takes;
}

int http_feed_finish(struct http_feed *feed, struct http_reply *reply, bool *ret_sent, struct error *err)
{
    int result;

    (void)pthread_mutex_lock(&feed->lock);
    feed->ended = true;
    waitq_wake_all(&feed->reader);
    while (!feed->done)
        (void)pthread_cond_wait(&feed->feeder, &feed->lock);
    result = feed->result;
    *ret_sent = feed->sent;
    *reply = feed->reply;
    feed->reply = (struct http_reply)HTTP_REPLY_INIT;
    if (result < 0)
        *err = feed->err;
    (void)pthread_mutex_unlock(&feed->lock);
    return result;
}

/* -- the handler's side -- */

int64_t http_request_read(struct http_request *request, const struct cancel *cancel, char *out, size_t max,
                          struct error *err)
{
    struct http_feed *feed = request->feed;
    struct cancel waiting = *cancel;
    size_t straight;
    size_t got;

    if (!feed)
        return 0;           /* there is none */
    waiting.client_fd = -1; /* who has sent everything may close its side: the connection's thread tells a break */
    (void)pthread_mutex_lock(&feed->lock);
    if (!feed->asked) {
        feed->asked = true;
        (void)pthread_cond_broadcast(&feed->feeder);
    }
    while (feed->size == 0 && !feed->ended && !feed->broken && !request->body_too_large) {
        if (waitq_wait(&feed->reader, &feed->lock, &waiting, err) < 0) {
            (void)pthread_mutex_unlock(&feed->lock);
            return -1;
        }
    }
    if (feed->broken || request->body_too_large) {
        (void)pthread_mutex_unlock(&feed->lock);
        return feed->broken ? fail(err, CANCELLED, "the client went away in the middle of its body")
                            : fail(err, TOO_LARGE, "Request body too large");
    }
    got = feed->size < max ? feed->size : max;
    straight = RING_BYTES - feed->first < got ? RING_BYTES - feed->first : got;
    memcpy(out, feed->ring + feed->first, straight);
    memcpy(out + straight, feed->ring, got - straight);
    feed->first = (feed->first + got) % RING_BYTES;
    feed->size -= got;
    (void)pthread_cond_broadcast(&feed->feeder);
    (void)pthread_mutex_unlock(&feed->lock);
    return (int64_t)got;
}

void http_feed_too_large(struct http_feed *feed)
{
    (void)pthread_mutex_lock(&feed->lock);
    feed->request->body_too_large = true;
    waitq_wake_all(&feed->reader);
    while (!feed->done)
        (void)pthread_cond_wait(&feed->feeder, &feed->lock);
    (void)pthread_mutex_unlock(&feed->lock);
}
