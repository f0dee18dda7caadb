/* WebSockets: the handshake's proof, messages, and what broken clients get. */
#include "http_private.h"
#include "http_websocket.h"

#include "cleanup.h"
#include "clock.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TEXT = 1,
    BINARY = 2,
    CLOSE = 8,
    PING = 9,
    PONG = 10,
    FIN = 0x80,
    MASKED = 0x80,
    MESSAGE_MAX = 100000,
    WAIT_MS = 20000
};

struct talk {
    struct http_duplex duplex;
    struct http_websocket_settings settings;
    struct cancel cancel;
    pthread_t thread;
    int client;
    struct http_websocket *socket;
    unsigned messages;
    enum error_code ended_with;
};

/* Sends back what comes; "bye" ends it. */
static void echo(void *context, struct http_websocket *socket, const struct cancel *cancel)
{
    struct talk *talk = context;
    struct http_websocket_message message;
    struct error err = ERROR_INIT;
    int got;

    __atomic_store_n(&talk->socket, socket, __ATOMIC_RELEASE);
    while ((got = http_websocket_receive(socket, cancel, &message, &err)) > 0) {
        talk->messages++;
        cr_assert(message.data[message.size] == '\0');
        if (strcmp(message.data, "bye") == 0)
            http_websocket_close(socket, 4321, "enough");
        else
            (void)http_websocket_send(socket, message.kind, message.data, message.size, cancel, &err);
    }
    talk->ended_with = got < 0 ? err.code : ERROR_NONE;
    if (got < 0) {
        const struct cancel never = CANCEL_NEVER;

        http_websocket_close(socket, 4408, "");
        while (http_websocket_receive(socket, &never, &message, &err) > 0)
            continue;
    }
}

static void *speak(void *context)
{
    struct talk *talk = context;

    http_websocket_speak(&talk->settings, &talk->duplex, &talk->cancel);
    close(talk->duplex.fd);
    return NULL;
}

static void begin(struct talk *talk, int ping_ms, int silence_ms)
{
    int fds[2];

    cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    *talk = (struct talk){.duplex = {.fd = fds[0]},
                          .settings = {.protocol = "test",
                                       .message_max_bytes = MESSAGE_MAX,
                                       .ping_ms = ping_ms,
                                       .silence_ms = silence_ms,
                                       .speak = echo,
                                       .context = talk},
                          .cancel = {.stop_fd = -1, .client_fd = fds[0]},
                          .client = fds[1]};
    cr_assert(pthread_create(&talk->thread, NULL, speak, talk) == 0);
}

static void finish(struct talk *talk)
{
    (void)shutdown(talk->client, SHUT_RDWR);
    (void)pthread_join(talk->thread, NULL);
    close(talk->client);
}

static void put(struct talk *talk, const void *data, size_t size)
{
    cr_assert(eq(i64, send(talk->client, data, size, MSG_NOSIGNAL), (ssize_t)size), "%s", strerror(errno));
}

static size_t head_of(unsigned char *out, unsigned first, unsigned mask_bit, size_t size)
{
    size_t used = 0;

    out[used++] = (unsigned char)first;
    if (size < 126) {
        out[used++] = (unsigned char)(mask_bit | size);
    } else if (size < 65536) {
        out[used++] = (unsigned char)(mask_bit | 126);
        out[used++] = (unsigned char)(size >> 8);
        out[used++] = (unsigned char)size;
    } else {
        out[used++] = (unsigned char)(mask_bit | 127);
        for (int i = 7; i >= 0; i--)
            out[used++] = (unsigned char)((uint64_t)size >> (8 * i));
    }
    return used;
}

/* At most 14 bytes more than `size`. Returns how many. */
static size_t frame_of(unsigned char *out, unsigned first, const void *data, size_t size)
{
    static const unsigned char mask[4] = {0x11, 0xee, 0x5a, 0x00};
    size_t used = head_of(out, first, MASKED, size);

    memcpy(out + used, mask, 4);
    used += 4;
    for (size_t i = 0; i < size; i++)
        out[used + i] = ((const unsigned char *)data)[i] ^ mask[i % 4];
    return used + size;
}

static void put_frame(struct talk *talk, unsigned first, const void *data, size_t size)
{
    unsigned char *frame = malloc(size + 14);

    put(talk, frame, frame_of(frame, first, data, size));
    free(frame);
}

static void get(struct talk *talk, void *out, size_t size)
{
    char *at = out;

    while (size) {
        struct pollfd fd = {.fd = talk->client, .events = POLLIN};
        ssize_t got;

        cr_assert(poll(&fd, 1, WAIT_MS) == 1, "nothing came");
        got = read(talk->client, at, size);
        cr_assert(got > 0, "the connection ended");
        at += got;
        size -= (size_t)got;
    }
}

/* The next frame: its first byte; never masked. */
static unsigned get_frame(struct talk *talk, char *out, size_t *ret_size)
{
    unsigned char head[10];
    size_t size;

    get(talk, head, 2);
    size = head[1];
    cr_assert(size <= 127, "a server does not mask");
    if (size == 126) {
        get(talk, head + 2, 2);
        size = (size_t)head[2] << 8 | head[3];
    } else if (size == 127) {
        get(talk, head + 2, 8);
        size = 0;
        for (int i = 2; i < 10; i++)
            size = size << 8 | head[i];
    }
    cr_assert(size <= MESSAGE_MAX);
    get(talk, out, size);
    out[size] = '\0';
    *ret_size = size;
    return head[0];
}

static void expect_frame(struct talk *talk, unsigned first, const void *data, size_t size)
{
    static char came[MESSAGE_MAX + 1];
    size_t came_size;

    cr_assert(eq(int, get_frame(talk, came, &came_size), first));
    cr_assert(eq(sz, came_size, size));
    cr_assert(memcmp(came, data, size) == 0);
}

static void expect_close(struct talk *talk, unsigned code, const char *what)
{
    static char came[MESSAGE_MAX + 1];
    size_t size;

    cr_assert(eq(int, get_frame(talk, came, &size), FIN | CLOSE), "%s", what);
    cr_assert(size >= 2, "%s", what);
    cr_assert(eq(int, (int)((unsigned char)came[0] << 8 | (unsigned char)came[1]), (int)code), "%s", what);
}

Test(websocket, gives_messages_back_whole_however_they_came)
{
    static char large[MESSAGE_MAX];
    struct talk talk;

    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 7);
    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, FIN | TEXT, "hi \xc3\xa4", 5);
    expect_frame(&talk, FIN | TEXT, "hi \xc3\xa4", 5);
    put_frame(&talk, FIN | BINARY, "", 0);
    expect_frame(&talk, FIN | BINARY, "", 0);
    put_frame(&talk, FIN | BINARY, large, 300);
    expect_frame(&talk, FIN | BINARY, large, 300);
    put_frame(&talk, FIN | BINARY, large, sizeof large);
    expect_frame(&talk, FIN | BINARY, large, sizeof large);
    /* A character over two fragments, a ping between them. */
    put_frame(&talk, TEXT, "a\xe2\x82", 3);
    put_frame(&talk, FIN | PING, "now?", 4);
    put_frame(&talk, 0, "", 0);
    put_frame(&talk, FIN, "\xac!", 2);
    expect_frame(&talk, FIN | PONG, "now?", 4);
    expect_frame(&talk, FIN | TEXT, "a\xe2\x82\xac!", 5);
    put_frame(&talk, FIN | PONG, "unasked", 7);
    put_frame(&talk, FIN | TEXT, "bye", 3);
    expect_close(&talk, 4321, "asked for");
    finish(&talk);
    cr_assert(eq(int, talk.ended_with, ERROR_NONE));
}

Test(websocket, gives_each_of_many_that_came_at_once)
{
    struct talk talk;
    unsigned char frames[500 * 16];
    size_t used = 0;
    char text[16];

    begin(&talk, WAIT_MS, WAIT_MS);
    for (int i = 0; i < 500; i++)
        used += frame_of(frames + used, FIN | TEXT, text, (size_t)snprintf(text, sizeof text, "%d", i));
    put(&talk, frames, used); /* at once: who echoes waits for us to read when a few hundred answers are on their way */
    for (int i = 0; i < 500; i++)
        expect_frame(&talk, FIN | TEXT, text, (size_t)snprintf(text, sizeof text, "%d", i));
    finish(&talk);
    cr_assert(eq(int, (int)talk.messages, 500));
}

Test(websocket, answers_a_goodbye)
{
    struct talk talk;

    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, FIN | CLOSE, "\x03\xe8that is all", 13);
    expect_close(&talk, 1000, "answered");
    finish(&talk);
    cr_assert(eq(int, talk.ended_with, ERROR_NONE));
}

Test(websocket, closes_on_what_no_client_may_send)
{
    static char large[MESSAGE_MAX + 1];
    static const struct {
        const char *what;
        unsigned code;
        unsigned first;
        const char *data;
        size_t size;
    } frames[] = {
        {"a reserved bit", 1002, FIN | 0x40 | TEXT, "x", 1},
        {"another", 1002, FIN | 0x20 | TEXT, "x", 1},
        {"the last", 1002, FIN | 0x10 | BINARY, "x", 1},
        {"a reserved opcode", 1002, FIN | 3, "x", 1},
        {"a reserved control opcode", 1002, FIN | 11, "x", 1},
        {"a control frame in pieces", 1002, PING, "x", 1},
        {"a goodbye in pieces", 1002, CLOSE, "\x03\xe8", 2},
        {"a long ping", 1002, FIN | PING, large, 126},
        {"a fragment of nothing", 1002, FIN, "x", 1},
        {"a code that is none", 1002, FIN | CLOSE, "\x03\xed", 2}, /* 1005 */
        {"text that is none", 1007, FIN | TEXT, "a\xff", 2},
        {"half a character", 1007, FIN | TEXT, "a\xe2\x82", 3},
        {"a surrogate", 1007, FIN | TEXT, "\xed\xa0\x80", 3},
        {"a reason that is none", 1007, FIN | CLOSE, "\x03\xe8\xff", 3},
        {"too much", 1009, FIN | BINARY, large, sizeof large},
    };
    struct talk talk;

    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        begin(&talk, WAIT_MS, WAIT_MS);
        put_frame(&talk, frames[i].first, frames[i].data, frames[i].size);
        expect_close(&talk, frames[i].code, frames[i].what);
        finish(&talk);
        cr_assert(eq(int, (int)talk.messages, 0), "%s", frames[i].what);
    }
    begin(&talk, WAIT_MS, WAIT_MS);
    put(&talk, "\x81\x02hi", 4);
    expect_close(&talk, 1002, "not masked");
    finish(&talk);
    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, TEXT, "a", 1);
    put_frame(&talk, FIN | TEXT, "b", 1);
    expect_close(&talk, 1002, "a message within another");
    finish(&talk);
    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, BINARY, large, MESSAGE_MAX - 1);
    put_frame(&talk, FIN, "ab", 2);
    expect_close(&talk, 1009, "too much in pieces");
    finish(&talk);
    begin(&talk, WAIT_MS, WAIT_MS);
    put(&talk, "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0x", 15);
    expect_close(&talk, 1009, "as much as can be announced");
    finish(&talk);
    begin(&talk, WAIT_MS, WAIT_MS);
    put(&talk, "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0x", 15);
    expect_close(&talk, 1002, "more than can be");
    finish(&talk);
}

Test(websocket, pings_and_gives_up_on_who_does_not_answer)
{
    static char came[MESSAGE_MAX + 1];
    int64_t began_ms = clock_mono_ms();
    struct talk talk;
    size_t size;

    begin(&talk, 50, 500);
    for (int i = 0; i < 12; i++) { /* longer than it may be silent: answered each time */
        cr_assert(eq(int, get_frame(&talk, came, &size), FIN | PING));
        put_frame(&talk, FIN | PONG, came, size);
    }
    cr_assert(ge(i64, clock_mono_ms() - began_ms, 500));
    cr_assert(eq(int, get_frame(&talk, came, &size), FIN | PING));
    expect_close(&talk, 4408, "silent");
    finish(&talk);
    cr_assert(eq(int, talk.ended_with, ERROR_TIMEOUT));
}

/* Who asks and does not listen is not read any more, so that nothing piles up. */
Test(websocket, does_not_gather_answers_to_pings)
{
    static const char ping[] = {(char)(FIN | PING), (char)MASKED, 0, 0, 0, 0};
    char block[6 * 1000];
    size_t taken = 0;
    struct talk talk;

    for (size_t i = 0; i < sizeof block; i++)
        block[i] = ping[i % 6];
    begin(&talk, WAIT_MS, WAIT_MS);
    for (;;) {
        struct pollfd fd = {.fd = talk.client, .events = POLLOUT};
        ssize_t sent;

        if (poll(&fd, 1, 1000) != 1)
            break; /* it is full, on both ways */
        sent = send(talk.client, block, sizeof block - taken % 6, MSG_DONTWAIT | MSG_NOSIGNAL);
        cr_assert(sent > 0);
        taken += (size_t)sent;
        cr_assert(lt(sz, taken, 64 * 1024 * 1024), "it reads without end");
    }
    finish(&talk);
}

Test(websocket, lets_go_of_who_waits_when_it_is_cut)
{
    struct talk talk;

    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, FIN | TEXT, "x", 1);
    expect_frame(&talk, FIN | TEXT, "x", 1);
    http_websocket_cut(__atomic_load_n(&talk.socket, __ATOMIC_ACQUIRE));
    (void)pthread_join(talk.thread, NULL);
    cr_assert(eq(int, talk.ended_with, ERROR_NONE));
    close(talk.client);
}

/* A sender whose client takes nothing sees its cancel, and the receiver beside it takes on. */
Test(websocket, a_client_that_reads_nothing_holds_up_only_what_it_is_sent)
{
    static char large[MESSAGE_MAX];
    struct talk talk;
    struct error err = ERROR_INIT;
    struct cancel cancel = CANCEL_NEVER;
    int sent = 0;

    begin(&talk, WAIT_MS, WAIT_MS);
    put_frame(&talk, FIN | TEXT, "up", 2);
    expect_frame(&talk, FIN | TEXT, "up", 2);
    cancel = cancel_within(&cancel, 300);
    for (int i = 0; sent == 0 && i < 1000; i++)
        sent = http_websocket_send(talk.socket, HTTP_WEBSOCKET_BINARY, large, sizeof large, &cancel, &err);
    cr_assert(eq(int, sent, -1));
    cr_assert(eq(int, err.code, ERROR_TIMEOUT), "%s", err.text);
    put_frame(&talk, FIN | CLOSE, "\x03\xe8", 2);
    finish(&talk);
}
