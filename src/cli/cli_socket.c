#include "cli_socket.h"

#include "alloc.h"
#include "base64.h"
#include "clock.h"
#include "id.h"
#include "websocket_key.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <wslay/wslay.h>

enum {
    HANDSHAKE_MS = 180000, /* the session may have to be woken */
    CONNECT_MS = 10000,
    HEAD_MAX_BYTES = 64 * 1024,
    MESSAGE_MAX_BYTES = 4 * 1024 * 1024,
    AT_ONCE_BYTES = 256 * 1024, /* received before keys and signals are looked at again */
    WAITING_MAX_BYTES = 256 * 1024,
    REASON_BYTES = 128,
};

struct cli_socket {
    CURL *easy;
    wslay_event_context_ptr frames;
    struct buf ahead; /* came behind the head of the answer */
    size_t budget;
    bool has_ended;
    int (*take)(void *context, const struct cli_socket_message *message, struct error *err);
    void *context;
    struct error why; /* what `take` said */
    unsigned close_code;
    char close_reason[REASON_BYTES];
};

/* -- bytes -- */

/* As recv(2): count, 0 at the end, -1 with EAGAIN. */
static ssize_t receive(struct cli_socket *socket, void *out, size_t max)
{
    size_t size = socket->ahead.size < max ? socket->ahead.size : max;
    CURLcode result;

    if (size) {
        memcpy(out, socket->ahead.data, size);
        buf_consume(&socket->ahead, size);
        return (ssize_t)size;
    }
    result = curl_easy_recv(socket->easy, out, max, &size);
    if (result == CURLE_AGAIN) {
        errno = EAGAIN;
        return -1;
    }
    return result == CURLE_OK ? (ssize_t)size : 0;
}

static ssize_t on_receive(wslay_event_context_ptr frames, uint8_t *out, size_t max, int flags, void *context)
{
    struct cli_socket *socket = context;
    ssize_t size = socket->budget ? receive(socket, out, max < socket->budget ? max : socket->budget) : -1;

    (void)flags;
    if (size > 0) {
        socket->budget -= (size_t)size;
        return size;
    }
    socket->has_ended |= size == 0;
    wslay_event_set_error(frames, size == 0 ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static ssize_t on_send(wslay_event_context_ptr frames, const uint8_t *data, size_t size, int flags, void *context)
{
    struct cli_socket *socket = context;
    size_t sent = 0;
    CURLcode result = curl_easy_send(socket->easy, data, size, &sent);

    (void)flags;
    if (result == CURLE_OK && sent)
        return (ssize_t)sent;
    socket->has_ended |= result != CURLE_AGAIN && result != CURLE_OK;
    wslay_event_set_error(frames, socket->has_ended ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
    return -1;
}

static int on_mask(wslay_event_context_ptr frames, uint8_t *out, size_t size, void *context)
{
    (void)frames;
    (void)context;
    id_random_bytes(out, size);
    return 0;
}

static void on_message(wslay_event_context_ptr frames, const struct wslay_event_on_msg_recv_arg *message, void *context)
{
    struct cli_socket *socket = context;
    const struct cli_socket_message taken = {message->opcode == WSLAY_TEXT_FRAME, (const char *)message->msg,
                                             message->msg_length};

    (void)frames;
    if (message->opcode == WSLAY_CONNECTION_CLOSE) {
        socket->close_code = message->status_code;
        if (message->msg_length > 2)
            (void)snprintf(socket->close_reason, sizeof socket->close_reason, "%.*s", (int)message->msg_length - 2,
                           (const char *)message->msg + 2);
    } else if (!wslay_is_ctrl_frame(message->opcode) && socket->why.code == ERROR_NONE &&
               socket->take(socket->context, &taken, &socket->why) < 0) {
        socket->budget = 0; /* enough */
    }
}

/* -- the handshake -- */

static int wait_for(const struct cli_socket *socket, short events, int64_t deadline_ms, struct error *err)
{
    struct pollfd fd = {cli_socket_fd(socket), events, 0};
    int64_t left_ms = deadline_ms - clock_mono_ms();

    if (left_ms <= 0)
        return fail(err, TIMEOUT, "the broker does not answer");
    if (poll(&fd, 1, left_ms > 1000 ? 1000 : (int)left_ms) < 0 && errno != EINTR)
        return fail_errno(err, "poll");
    return 0;
}

static int send_head(struct cli_socket *socket, const struct buf *head, int64_t deadline_ms, struct error *err)
{
    for (size_t at = 0; at < head->size;) {
        size_t sent = 0;
        CURLcode result = curl_easy_send(socket->easy, head->data + at, head->size - at, &sent);

        if (result != CURLE_OK && result != CURLE_AGAIN)
            return fail(err, UNAVAILABLE, "the connection broke off: %s", curl_easy_strerror(result));
        at += sent;
        if (at < head->size && wait_for(socket, POLLOUT, deadline_ms, err) < 0)
            return -1;
    }
    return 0;
}

/* Until the empty line; *ret_end is behind it. */
static int receive_head(struct cli_socket *socket, struct buf *head, size_t *ret_end, int64_t deadline_ms,
                        struct error *err)
{
    char piece[4096];
    const char *end;

    while (!(end = strstr(buf_str(head), "\r\n\r\n"))) {
        ssize_t size = receive(socket, piece, sizeof piece);

        if (size == 0)
            return fail(err, UNAVAILABLE, "the broker closed the connection");
        if (size < 0 && wait_for(socket, POLLIN, deadline_ms, err) < 0)
            return -1;
        if (size > 0 && buf_append(head, piece, (size_t)size, err) < 0)
            return -1;
    }
    *ret_end = (size_t)(end + 4 - buf_str(head));
    return 0;
}

/* A refusal has a length, or ends with the connection. */
static int refused(struct cli *cli, struct cli_socket *socket, struct buf *head, size_t end, int status,
                   int64_t deadline_ms, struct error *err)
{
    const char *length = strcasestr(buf_str(head), "\r\nContent-Length:");
    size_t wanted = length && (size_t)(length - buf_str(head)) < end ? (size_t)strtoul(length + 17, NULL, 10) : 0;
    struct error ignored = ERROR_INIT;
    char piece[4096];

    while (head->size - end < wanted) {
        ssize_t size = receive(socket, piece, sizeof piece);

        if (size == 0 || (size < 0 && wait_for(socket, POLLIN, deadline_ms, &ignored) < 0) ||
            (size > 0 && buf_append(head, piece, (size_t)size, &ignored) < 0))
            break;
    }
    return cli_refused(cli, status, buf_str(head) + end, err);
}

static int append_request(const struct cli *cli, const char *target, const char *protocol, const struct buf *key,
                          struct buf *out, struct error *err)
{
    const char *host = strstr(cli->url, "://") + 3;
    const char *path = strchr(host, '/'); /* a proxy may serve the broker below one */

    return buf_append_format(
        out, err,
        "GET %s%s HTTP/1.1\r\nHost: %.*s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n%s%s%s\r\n",
        path ? path : "", target, path ? (int)(path - host) : (int)strlen(host), host, buf_str(key), protocol,
        cli->token ? "X-Sandbox-Token: " : "", cli->token ? cli->token : "", cli->token ? "\r\n" : "");
}

static int make_key(struct buf *key, struct error *err)
{
    unsigned char random[16];

    id_random_bytes(random, sizeof random);
    return base64_encode(random, sizeof random, key, err);
}

/* Is there a line `name: value` in the head, and no other of that name? Blanks around the value do not count. */
static bool has_line(const struct buf *head, size_t end, const char *name, const char *value)
{
    size_t name_size = strlen(name);
    size_t value_size = strlen(value);
    unsigned count = 0;
    bool is_value = false;

    for (const char *line = buf_str(head), *next; (next = strstr(line, "\r\n")) && next < head->data + end;
         line = next + 2) {
        if (strncasecmp(line, name, name_size) != 0 || line[name_size] != ':')
            continue;
        line += name_size + 1;
        line += strspn(line, " \t");
        is_value =
            strncmp(line, value, value_size) == 0 && line + value_size + strspn(line + value_size, " \t") == next;
        count++;
    }
    return count == 1 && is_value;
}

static int shake_hands(struct cli *cli, struct cli_socket *socket, const char *target, const char *protocol,
                       struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + HANDSHAKE_MS;
    auto_buf struct buf request = BUF_INIT(HEAD_MAX_BYTES);
    auto_buf struct buf head = BUF_INIT(HEAD_MAX_BYTES);
    auto_buf struct buf key = BUF_INIT(64);
    char accept[WEBSOCKET_ACCEPT_BYTES];
    size_t end = 0;
    int status = 0;

    if (make_key(&key, err) < 0 || append_request(cli, target, protocol, &key, &request, err) < 0 ||
        send_head(socket, &request, deadline_ms, err) < 0 || receive_head(socket, &head, &end, deadline_ms, err) < 0)
        return -1;
    if (sscanf(buf_str(&head), "HTTP/1.1 %3d", &status) != 1)
        return fail(err, UNAVAILABLE, "%s does not speak HTTP/1.1", cli->url);
    if (status != 101)
        return refused(cli, socket, &head, end, status, deadline_ms, err);
    /* RFC 6455, 4.1: an answer that was kept by something in between, or is of something that speaks no WebSocket, has not read the key. */
    if (!websocket_accept(buf_str(&key), accept) || !has_line(&head, end, "Sec-WebSocket-Accept", accept))
        return fail(err, UNAVAILABLE, "what answers at %s has not understood the handshake of a WebSocket", cli->url);
    if (!has_line(&head, end, "Sec-WebSocket-Protocol", protocol))
        return fail(err, UNAVAILABLE, "%s speaks another protocol for terminals than this berth (%s)", cli->url,
                    protocol);
    return buf_append(&socket->ahead, head.data + end, head.size - end, err);
}

static int connect_to(struct cli *cli, struct cli_socket *socket, struct error *err)
{
    char text[CURL_ERROR_SIZE] = "";
    CURLcode result;

    (void)curl_easy_setopt(socket->easy, CURLOPT_URL, cli->url);
    (void)curl_easy_setopt(socket->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(socket->easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(socket->easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(socket->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(socket->easy, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_easy_setopt(socket->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(socket->easy, CURLOPT_ERRORBUFFER, text);
    result = curl_easy_perform(socket->easy);
    (void)curl_easy_setopt(socket->easy, CURLOPT_ERRORBUFFER, NULL);
    if (result != CURLE_OK)
        return fail(err, UNAVAILABLE,
                    "no broker answers at %s (%.80s). Does berthd run? Its address goes into BERTH_URL", cli->url,
                    text[0] ? text : curl_easy_strerror(result));
    return 0;
}

int cli_socket_open(struct cli *cli, const char *target, const char *protocol,
                    int (*take)(void *context, const struct cli_socket_message *message, struct error *err),
                    void *context, struct cli_socket **ret, struct error *err)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_receive,
                                                           .send_callback = on_send,
                                                           .genmask_callback = on_mask,
                                                           .on_msg_recv_callback = on_message};
    struct cli_socket *socket = alloc_zero(sizeof *socket);

    socket->ahead = (struct buf)BUF_INIT(HEAD_MAX_BYTES);
    socket->take = take;
    socket->context = context;
    socket->easy = curl_easy_init();
    if (!socket->easy || wslay_event_context_client_init(&socket->frames, &callbacks, socket) != 0) {
        cli_socket_close(socket);
        return fail(err, INTERNAL, "no memory for a connection");
    }
    wslay_event_config_set_max_recv_msg_length(socket->frames, MESSAGE_MAX_BYTES);
    if (connect_to(cli, socket, err) < 0 || shake_hands(cli, socket, target, protocol, err) < 0) {
        cli_socket_close(socket);
        return -1;
    }
    *ret = socket;
    return 0;
}

void cli_socket_close(struct cli_socket *socket)
{
    if (!socket)
        return;
    if (socket->frames)
        wslay_event_context_free(socket->frames);
    if (socket->easy)
        curl_easy_cleanup(socket->easy);
    buf_done(&socket->ahead);
    free(socket);
}

/* -- going on -- */

int cli_socket_fd(const struct cli_socket *socket)
{
    curl_socket_t fd = CURL_SOCKET_BAD;

    (void)curl_easy_getinfo(socket->easy, CURLINFO_ACTIVESOCKET, &fd);
    return fd;
}

bool cli_socket_wants_write(const struct cli_socket *socket)
{
    return wslay_event_want_write(socket->frames);
}

bool cli_socket_is_full(const struct cli_socket *socket)
{
    return wslay_event_get_queued_msg_length(socket->frames) > WAITING_MAX_BYTES;
}

void cli_socket_send(struct cli_socket *socket, bool is_text, const void *data, size_t size)
{
    const struct wslay_event_msg message = {is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, data, size};

    (void)wslay_event_queue_msg(socket->frames, &message); /* after a close nothing is queued: its end is seen next */
}

int cli_socket_go_on(struct cli_socket *socket, struct error *err)
{
    int received;
    int sent;

    socket->budget = AT_ONCE_BYTES;
    received = wslay_event_recv(socket->frames);
    sent = wslay_event_send(socket->frames);
    if (socket->why.code != ERROR_NONE) {
        *err = socket->why;
        return -1;
    }
    if (socket->close_code || wslay_event_get_close_received(socket->frames))
        return fail(err, UNAVAILABLE, "the terminal was closed (%u%s%s)", socket->close_code,
                    socket->close_reason[0] ? ": " : "", socket->close_reason);
    if (received != 0 || sent != 0 || socket->has_ended)
        return fail(err, UNAVAILABLE, "the connection broke off");
    return socket->budget == 0;
}

unsigned cli_socket_close_code(const struct cli_socket *socket)
{
    return socket->close_code;
}
