/* Messages over an upgraded connection.
 *
 * One libwslay context serves both ways and is no thread's own: every call into it is under `lock`, and none of them blocks, as the
 * callbacks do not. Who has to wait lets go of the lock and polls the socket. */
#include "http_websocket.h"

#include "alloc.h"
#include "cleanup.h"
#include "clock.h"
#include "http_private.h"
#include "utf8.h"
#include "websocket_key.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <wslay/wslay.h>

enum {
    PONGS_MAX = 16, /* waiting to be sent; then nothing is read */
    GOODBYE_MS = 2000,
    CLOSE_PROTOCOL_ERROR = 1002,
    CLOSE_TOO_LARGE = 1009,
};

/* What came and was not yet asked for: libwslay may have read a few small ones at once. */
struct message {
    struct message *next;
    enum http_websocket_kind kind;
    size_t size;
    char data[];
};

struct http_websocket {
    struct http_duplex *duplex;
    const struct http_websocket_settings *settings;
    int wake_fd; /* readable: look at the state again */
    pthread_mutex_t lock;

    /* under the lock */
    wslay_event_context_ptr wslay;
    struct buf gathering; /* of the message that is coming */
    bool in_data;         /* the frame that is coming is part of a message */
    struct message *first;
    struct message **last;
    bool is_broken; /* the connection is at its end */
    bool ping_out;
    bool sending;       /* bytes that go out are a message's */
    int64_t heard_ms;   /* something came */
    int64_t moved_ms;   /* something of a message was taken */
    int64_t ping_at_ms; /* the next one is due */
    int64_t over_by_ms; /* we have said goodbye: 0 not yet */

    struct message *taken; /* of the receiver */
};

/* -- callbacks of libwslay, all under the lock -- */

static ssize_t take_bytes(wslay_event_context_ptr wslay, uint8_t *out, size_t max, int flags, void *context)
{
    struct http_websocket *socket = context;
    ssize_t got;

    if (socket->first) { /* one message after the other */
        wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    do
        got = http_duplex_read(socket->duplex, out, max);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        socket->heard_ms = clock_mono_ms();
        return got;
    }
    socket->is_broken = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    wslay_event_set_error(wslay, socket->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t give_bytes(wslay_event_context_ptr wslay, const uint8_t *data, size_t size, int flags, void *context)
{
    struct http_websocket *socket = context;
    ssize_t sent;

    do
        sent = http_duplex_write(socket->duplex, data, size, flags & WSLAY_MSG_MORE);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        if (socket->sending)
            socket->moved_ms = clock_mono_ms();
        return sent;
    }
    socket->is_broken = errno != EAGAIN && errno != EWOULDBLOCK;
    wslay_event_set_error(wslay, socket->is_broken ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static void goodbye_locked(struct http_websocket *socket, unsigned code, const char *reason)
{
    if (socket->over_by_ms)
        return;
    socket->over_by_ms = clock_mono_ms() + GOODBYE_MS;
    (void)wslay_event_queue_close(socket->wslay, (uint16_t)code, (const uint8_t *)reason, strlen(reason));
}

static void begin_frame(wslay_event_context_ptr wslay, const struct wslay_event_on_frame_recv_start_arg *frame,
                        void *context)
{
    struct http_websocket *socket = context;

    socket->in_data = !wslay_is_ctrl_frame(frame->opcode);
}

static void take_piece(wslay_event_context_ptr wslay, const struct wslay_event_on_frame_recv_chunk_arg *piece,
                       void *context)
{
    struct http_websocket *socket = context;
    struct error err = ERROR_INIT;

    if (socket->in_data && buf_append(&socket->gathering, piece->data, piece->data_length, &err) < 0) {
        goodbye_locked(socket, CLOSE_TOO_LARGE, "message too large");
        wslay_event_shutdown_read(wslay);
    }
}

static void take_message(wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *came, void *context)
{
    struct http_websocket *socket = context;
    struct message *message;

    if (came->opcode == WSLAY_PONG)
        socket->ping_out = false;
    if (wslay_is_ctrl_frame(came->opcode))
        return;
    message = alloc_zero(sizeof *message + socket->gathering.size + 1);
    message->kind = came->opcode == WSLAY_TEXT_FRAME ? HTTP_WEBSOCKET_TEXT : HTTP_WEBSOCKET_BINARY;
    message->size = socket->gathering.size;
    memcpy(message->data, buf_str(&socket->gathering), message->size);
    if (socket->gathering.capacity > 16384)
        buf_done(&socket->gathering); /* as large again is rare */
    buf_clear(&socket->gathering);
    if (socket->over_by_ms) { /* nobody wants it any more */
        free(message);
        return;
    }
    *socket->last = message;
    socket->last = &message->next;
}

/* -- the state, under the lock -- */

static void flush_locked(struct http_websocket *socket)
{
    if (!socket->is_broken && wslay_event_want_write(socket->wslay) && wslay_event_send(socket->wslay) != 0)
        socket->is_broken = true;
}

static bool may_read_locked(const struct http_websocket *socket)
{
    return wslay_event_want_read(socket->wslay) && wslay_event_get_queued_msg_count(socket->wslay) < PONGS_MAX;
}

/* Nothing will come any more, and nothing is left to be said. */
static bool is_over_locked(const struct http_websocket *socket)
{
    return socket->is_broken || (!wslay_event_want_read(socket->wslay) && !wslay_event_want_write(socket->wslay)) ||
           (socket->over_by_ms && clock_mono_ms() >= socket->over_by_ms);
}

/* Of a frame whose head cannot be, libwslay says goodbye without saying why. Nothing was being sent: it can be said in its place. */
static void say_why_locked(struct http_websocket *socket)
{
    static const unsigned char frame[] = {0x88, 2, CLOSE_PROTOCOL_ERROR >> 8, CLOSE_PROTOCOL_ERROR & 0xff};

    (void)http_duplex_write(socket->duplex, frame, sizeof frame, false);
    wslay_event_shutdown_write(socket->wslay);
}

static void read_locked(struct http_websocket *socket)
{
    bool was_quiet = !wslay_event_want_write(socket->wslay);

    if (!socket->is_broken && may_read_locked(socket) && wslay_event_recv(socket->wslay) != 0 && !socket->is_broken &&
        was_quiet)
        say_why_locked(socket);
    if (!wslay_event_want_read(socket->wslay) && !socket->over_by_ms) /* the client's goodbye, or its fault */
        socket->over_by_ms = clock_mono_ms() + GOODBYE_MS;
}

/* -- waiting -- */

static int64_t earlier(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

static int64_t later(int64_t a_ms, int64_t b_ms)
{
    return a_ms > b_ms ? a_ms : b_ms;
}

/* When there is something to do, though nothing happens. Pings when they are due. */
static int64_t next_duty_locked(struct http_websocket *socket, int64_t silent_ms)
{
    int64_t now_ms = clock_mono_ms();

    if (socket->over_by_ms)
        return socket->over_by_ms;
    if (now_ms >= socket->ping_at_ms) {
        const struct wslay_event_msg ping = {.opcode = WSLAY_PING};

        socket->ping_at_ms = now_ms + socket->settings->ping_ms;
        if (!socket->ping_out && wslay_event_queue_msg(socket->wslay, &ping) == 0)
            socket->ping_out = true;
        flush_locked(socket);
    }
    return earlier(socket->ping_at_ms, silent_ms);
}

/* 0: look again. */
static int wait_for(struct http_websocket *socket, short events, int64_t until_ms, const struct cancel *cancel,
                    struct error *err)
{
    struct cancel bounded = *cancel;
    struct pollfd fds[2] = {{.fd = http_duplex_fd(socket->duplex), .events = events},
                            {.fd = socket->wake_fd, .events = POLLIN}};
    uint64_t count;
    bool is_ours = until_ms && (!cancel->deadline_ms || until_ms < cancel->deadline_ms);

    if (is_ours)
        bounded.deadline_ms = until_ms;
    if (cancel_poll(&bounded, fds, 2, err) < 0) {
        if (!is_ours || err->code != ERROR_TIMEOUT)
            return -1;
        error_clear(err);
    }
    if (fds[1].revents && read(socket->wake_fd, &count, sizeof count) < 0)
        return 0; /* somebody else was quicker */
    return 0;
}

int http_websocket_receive(struct http_websocket *socket, const struct cancel *cancel,
                           struct http_websocket_message *ret, struct error *err)
{
    const struct cancel waiting = cancel_detached(cancel); /* its last words are read, then its end */
    int64_t began_ms = clock_mono_ms();
    int result = 0;

    free(take_ptr(socket->taken));
    (void)pthread_mutex_lock(&socket->lock);
    while (result == 0) {
        int64_t silent_ms, until_ms;
        short events;

        read_locked(socket);
        flush_locked(socket);
        if (socket->first) {
            socket->taken = socket->first;
            socket->first = socket->taken->next;
            if (!socket->first)
                socket->last = &socket->first;
            *ret = (struct http_websocket_message){socket->taken->kind, socket->taken->data, socket->taken->size};
            result = 1;
            break;
        }
        if (is_over_locked(socket))
            break;
        silent_ms = later(began_ms, later(socket->heard_ms, socket->moved_ms)) + socket->settings->silence_ms;
        if (!socket->over_by_ms && clock_mono_ms() >= silent_ms) {
            result = fail(err, TIMEOUT, "no answer to pings");
            break;
        }
        until_ms = next_duty_locked(socket, silent_ms);
        events =
            (short)((may_read_locked(socket) ? POLLIN : 0) | (wslay_event_want_write(socket->wslay) ? POLLOUT : 0));
        (void)pthread_mutex_unlock(&socket->lock);
        result = wait_for(socket, events, until_ms, &waiting, err);
        (void)pthread_mutex_lock(&socket->lock);
    }
    (void)pthread_mutex_unlock(&socket->lock);
    return result;
}

/* Until all that was queued is with the socket. */
static int drain_locked(struct http_websocket *socket, const struct cancel *cancel, struct error *err)
{
    int result = 0;

    for (;;) {
        struct pollfd writable = {.fd = http_duplex_fd(socket->duplex), .events = POLLOUT};

        socket->sending = true;
        flush_locked(socket);
        socket->sending = false;
        if (socket->is_broken || (socket->over_by_ms && clock_mono_ms() >= socket->over_by_ms))
            return fail(err, GONE, "the connection is over");
        if (!wslay_event_want_write(socket->wslay))
            return 0;
        (void)pthread_mutex_unlock(&socket->lock);
        result = cancel_poll(cancel, &writable, 1, err) < 0 ? -1 : 0;
        (void)pthread_mutex_lock(&socket->lock);
        if (result < 0)
            return -1;
    }
}

int http_websocket_send(struct http_websocket *socket, enum http_websocket_kind kind, const void *data, size_t size,
                        const struct cancel *cancel, struct error *err)
{
    const struct wslay_event_msg message = {
        .opcode = kind == HTTP_WEBSOCKET_TEXT ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = data, .msg_length = size};
    int result;

    (void)pthread_mutex_lock(&socket->lock);
    result = drain_locked(socket, cancel, err);
    if (result == 0 && wslay_event_queue_msg(socket->wslay, &message) != 0)
        result = fail(err, GONE, "the connection is over");
    if (result == 0)
        result = drain_locked(socket, cancel, err);
    (void)pthread_mutex_unlock(&socket->lock);
    return result;
}

static void wake(struct http_websocket *socket)
{
    const uint64_t one = 1;

    if (write(socket->wake_fd, &one, sizeof one) < 0)
        return; /* it is awake */
}

void http_websocket_close(struct http_websocket *socket, unsigned code, const char *reason)
{
    char cut[HTTP_WEBSOCKET_REASON_BYTES];

    (void)snprintf(cut, sizeof cut, "%s", reason);
    cut[utf8_valid_prefix(cut, strlen(cut))] = '\0';
    (void)pthread_mutex_lock(&socket->lock);
    goodbye_locked(socket, code, cut);
    flush_locked(socket);
    (void)pthread_mutex_unlock(&socket->lock);
    wake(socket);
}

void http_websocket_cut(struct http_websocket *socket)
{
    (void)pthread_mutex_lock(&socket->lock);
    socket->is_broken = true;
    http_duplex_shutdown(socket->duplex);
    (void)pthread_mutex_unlock(&socket->lock);
    wake(socket);
}

/* -- the connection -- */

static int websocket_open(struct http_websocket *socket, struct http_duplex *duplex,
                          const struct http_websocket_settings *settings)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = take_bytes,
                                                           .send_callback = give_bytes,
                                                           .on_frame_recv_start_callback = begin_frame,
                                                           .on_frame_recv_chunk_callback = take_piece,
                                                           .on_msg_recv_callback = take_message};
    int64_t now_ms = clock_mono_ms();

    *socket = (struct http_websocket){.duplex = duplex,
                                      .settings = settings,
                                      .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                      .gathering = BUF_INIT(settings->message_max_bytes),
                                      .heard_ms = now_ms,
                                      .moved_ms = now_ms,
                                      .ping_at_ms = now_ms + settings->ping_ms};
    socket->last = &socket->first;
    if (socket->wake_fd < 0)
        return -1;
    if (wslay_event_context_server_init(&socket->wslay, &callbacks, socket) != 0) {
        cleanup_fd(&socket->wake_fd);
        return -1;
    }
    wslay_event_config_set_no_buffering(socket->wslay, 1);
    wslay_event_config_set_max_recv_msg_length(socket->wslay, settings->message_max_bytes);
    (void)pthread_mutex_init(&socket->lock, NULL);
    return 0;
}

static void websocket_done(struct http_websocket *socket)
{
    while (socket->first) {
        struct message *message = socket->first;

        socket->first = message->next;
        free(message);
    }
    free(socket->taken);
    buf_done(&socket->gathering);
    wslay_event_context_free(socket->wslay);
    cleanup_fd(&socket->wake_fd);
    (void)pthread_mutex_destroy(&socket->lock);
}

void http_websocket_speak(const struct http_websocket_settings *settings, struct http_duplex *duplex,
                          const struct cancel *cancel)
{
    struct http_websocket socket;

    if (websocket_open(&socket, duplex, settings) < 0)
        return;
    settings->speak(settings->context, &socket, cancel);
    websocket_done(&socket);
}

static void speak(void *context, struct http_duplex *duplex, const struct cancel *cancel)
{
    http_websocket_speak(context, duplex, cancel);
}

static void settings_free(void *context)
{
    struct http_websocket_settings *settings = context;

    if (settings->free)
        settings->free(settings->context);
    free(settings);
}

/* -- the handshake -- */

/* The next item of a comma-separated list. NULL: no more. */
static const char *next_item(const char **at, size_t *ret_size)
{
    const char *item = *at + strspn(*at, " \t,");
    size_t size = strcspn(item, ",");

    *at = item + size;
    while (size && (item[size - 1] == ' ' || item[size - 1] == '\t'))
        size--;
    *ret_size = size;
    return size ? item : NULL;
}

static bool has_item(const char *list, const char *name)
{
    const char *item;
    size_t size;

    while (list && (item = next_item(&list, &size)))
        if (size == strlen(name) && strncasecmp(item, name, size) == 0)
            return true;
    return false;
}

static const char *offers(const struct http_request *request)
{
    return http_request_header_count(request, "Sec-WebSocket-Protocol") == 1
               ? http_request_header(request, "Sec-WebSocket-Protocol")
               : NULL;
}

const char *http_websocket_offer(const struct http_request *request, const char *prefix, size_t *ret_size)
{
    const char *list = offers(request);
    const char *item;
    size_t size;

    while (list && (item = next_item(&list, &size))) {
        if (size < strlen(prefix) || strncmp(item, prefix, strlen(prefix)) != 0)
            continue;
        *ret_size = size - strlen(prefix);
        return item + strlen(prefix);
    }
    return NULL;
}

bool http_websocket_offers(const struct http_request *request, const char *name)
{
    const char *list = offers(request);
    const char *item;
    size_t size;

    while (list && (item = next_item(&list, &size)))
        if (size == strlen(name) && strncmp(item, name, size) == 0)
            return true;
    return false;
}

static int check(const struct http_request *request, const char *protocol, char accept[WEBSOCKET_ACCEPT_BYTES],
                 struct error *err)
{
    const char *version = http_request_header(request, "Sec-WebSocket-Version");
    const char *key = http_request_header(request, "Sec-WebSocket-Key");

    if (!has_item(http_request_header(request, "Upgrade"), "websocket") ||
        !has_item(http_request_header(request, "Connection"), "upgrade"))
        return fail(err, UPGRADE_REQUIRED, "This is a WebSocket");
    if (!version || strcmp(version, "13") != 0)
        return fail(err, UPGRADE_REQUIRED, "Only version 13 of the WebSocket protocol is spoken");
    if (http_request_has_body(request))
        return fail(err, INVALID, "A WebSocket's handshake has no body");
    if (!key || http_request_header_count(request, "Sec-WebSocket-Key") != 1 || !websocket_accept(key, accept))
        return fail(err, INVALID, "Sec-WebSocket-Key is not 16 bytes in base64");
    if (!http_websocket_offers(request, protocol))
        return fail(err, INVALID, "The subprotocol %s is not offered", protocol);
    return 0;
}

int http_reply_websocket(struct http_request *request, struct http_reply *reply,
                         const struct http_websocket_settings *settings, struct error *err)
{
    struct http_upgrade upgrade = {.protocol = "websocket",
                                   .speak = speak,
                                   .free = settings_free,
                                   .send_buffer_bytes = settings->send_buffer_bytes};
    char accept[WEBSOCKET_ACCEPT_BYTES];

    upgrade.context = alloc_zero(sizeof *settings);
    memcpy(upgrade.context, settings, sizeof *settings);
    if (check(request, settings->protocol, accept, err) < 0) {
        settings_free(upgrade.context);
        return -1;
    }
    http_reply_header(reply, "Sec-WebSocket-Accept", accept);
    http_reply_header(reply, "Sec-WebSocket-Protocol", settings->protocol);
    http_reply_upgrade(reply, &upgrade);
    return 0;
}
