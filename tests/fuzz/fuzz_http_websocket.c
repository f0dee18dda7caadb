/* What a client may send over a WebSocket: frames of every kind, in pieces, masked as they must be and not. Whatever comes, it ends when the
 * client does, no message is above the limit, and text is UTF-8. Every input byte but a few becomes a frame that is nearly right: random bytes alone
 * would not come past the first. */
#include "fuzz.h"
#include "http_private.h"
#include "http_websocket.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_MAX = 3000 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void speak(void *context, struct http_websocket *socket, const struct cancel *cancel)
{
    struct http_websocket_message message;
    struct error err = ERROR_INIT;

    while (http_websocket_receive(socket, cancel, &message, &err) > 0) {
        require(message.size <= MESSAGE_MAX && message.data[message.size] == '\0');
        require(message.kind == HTTP_WEBSOCKET_BINARY || utf8_valid(message.data, message.size));
        (void)http_websocket_send(socket, message.kind, message.data, message.size < 8 ? message.size : 8, cancel,
                                  &err);
    }
    require(err.code == ERROR_NONE || err.code == ERROR_GONE);
}

/* A frame out of three bytes of input and as many as it carries. Returns what was used of the input. */
static size_t frame_of(const uint8_t *data, size_t size, unsigned char *out, size_t *ret_size)
{
    static const unsigned char firsts[] = {0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x88, 0x89,
                                           0x8a, 0x09, 0xc1, 0x83, 0x8b, 0x80, 0x80, 0x82};
    size_t carried = size > 3 ? (data[1] % 5 ? data[1] % 126 : (size_t)data[1] * 20) : 0;
    bool is_masked = size > 2 ? data[2] % 16 != 0 : true;
    size_t used = 0;

    carried = carried < size - 3 || size <= 3 ? carried : size - 3;
    out[used++] = firsts[data[0] % 16];
    if (carried < 126) {
        out[used++] = (unsigned char)((is_masked ? 0x80 : 0) | carried);
    } else {
        out[used++] = (unsigned char)((is_masked ? 0x80 : 0) | 126);
        out[used++] = (unsigned char)(carried >> 8);
        out[used++] = (unsigned char)carried;
    }
    if (is_masked) {
        memset(out + used, 0, 4); /* a mask of zeros: the input is the text */
        used += 4;
    }
    if (carried)
        memcpy(out + used, data + 3, carried);
    *ret_size = used + carried;
    return size < 3 ? size : 3 + carried;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct http_websocket_settings settings = {
        .protocol = "fuzz", .message_max_bytes = MESSAGE_MAX, .ping_ms = 60000, .silence_ms = 60000, .speak = speak};
    struct http_duplex duplex;
    struct cancel cancel = CANCEL_NEVER;
    unsigned char *frames = malloc(size * 16 + 16);
    size_t used = 0, at = 0, early;
    int fds[2];

    require(frames && socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    while (at < size) {
        size_t made;

        at += frame_of(data + at, size - at, frames + used, &made);
        used += made;
    }
    early = used / 3;    /* what came with the head */
    if (size % 7 == 0) { /* as it is */
        memcpy(frames, data, size);
        used = size;
        early = 0;
    }
    require(send(fds[1], frames + early, used - early, MSG_DONTWAIT) == (ssize_t)(used - early));
    require(shutdown(fds[1], SHUT_WR) == 0);
    duplex = (struct http_duplex){.fd = fds[0], .early = (const char *)frames, .early_size = early};
    http_websocket_speak(&settings, &duplex, &cancel);
    close(fds[0]);
    close(fds[1]);
    free(frames);
    return 0;
}
