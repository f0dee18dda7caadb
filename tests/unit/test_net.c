#include "cancel.h"
#include "net_http.h"
#include "unix_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static const struct cancel never = CANCEL_NEVER;
static struct cancel soon; /* long enough for anything that works */
static struct unix_server *server;

static void setup(void)
{
    soon = cancel_within(&never, 10000);
}

static void teardown(void)
{
    if (server)
        unix_server_stop(server);
}

TestSuite(net, .init = setup, .fini = teardown);

static struct net_http_request say(const struct unix_script *script, const char *method)
{
    server = unix_server_start(script, 1);
    return (struct net_http_request){.socket_path = unix_server_path(server), .method = method, .target = "/a?b=c"};
}

/* What a GET of this answer gives; the error's code is 0 on success. */
static enum error_code fetch(const struct unix_script *script, const struct cancel *cancel, int *status,
                             struct buf *body)
{
    struct net_http_request request = say(script, "GET");
    struct error err = ERROR_INIT;

    return net_http_fetch(&request, cancel, status, body, &err) < 0 ? err.code : ERROR_NONE;
}

Test(net, reads_an_answer_of_known_length_and_leaves_the_connection)
{
    struct unix_script script = {.bytes = "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello", .after = UNIX_HOLD};
    auto_buf struct buf body = BUF_INIT(100);
    int status;

    cr_assert(eq(int, (int)fetch(&script, &soon, &status, &body), ERROR_NONE));
    cr_assert(eq(int, status, 201));
    cr_assert(eq(str, body.data, "hello"));
    cr_assert(eq(int, strncmp(unix_server_request(server, 0), "GET /a?b=c HTTP/1.1\r\n", 21), 0));
}

Test(net, sends_a_body_as_it_is)
{
    static const char text[] = "{\"a\":\"\\u0000\"}";
    struct unix_script script = {.bytes = ANSWER("204 No Content", "")};
    struct net_http_request request = say(&script, "POST");
    auto_buf struct buf body = BUF_INIT(100);
    struct error err = ERROR_INIT;
    int status;

    request.body = text;
    request.body_size = strlen(text);
    cr_assert(eq(int, net_http_fetch(&request, &soon, &status, &body, &err), 0));
    cr_assert(eq(str, strstr(unix_server_request(server, 0), "\r\n\r\n") + 4, (char *)text));
    cr_assert(strcasestr(unix_server_request(server, 0), "Expect:") == NULL);
}

Test(net, reads_a_chunked_answer)
{
    struct unix_script script = {
        .bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        .after = UNIX_HOLD};
    auto_buf struct buf body = BUF_INIT(100);
    int status;

    cr_assert(eq(int, (int)fetch(&script, &soon, &status, &body), ERROR_NONE));
    cr_assert(eq(str, body.data, "abcde"));
}

static const char *const broken[] = {
    "",
    "HTTP/1.1 200",
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcde\r\n0\r\n\r\n",
    "SSH-2.0-OpenSSH_9.2\r\n\r\n",
};

Test(net, a_broken_answer_is_unavailable_never_a_short_one)
{
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct unix_script script = {.bytes = broken[i]};
        auto_buf struct buf body = BUF_INIT(100);
        int status;

        cr_assert(eq(int, (int)fetch(&script, &soon, &status, &body), ERROR_UNAVAILABLE), "%s", broken[i]);
        unix_server_stop(server);
        server = NULL;
    }
}

Test(net, nobody_listening_is_unavailable)
{
    struct net_http_request request = {.socket_path = "/tmp/berth-unit-nobody", .method = "GET", .target = "/"};
    auto_buf struct buf body = BUF_INIT(100);
    struct net_stream *stream;
    struct error err = ERROR_INIT;
    int status;

    cr_assert(eq(int, net_http_fetch(&request, &soon, &status, &body, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
    error_clear(&err);
    cr_assert(eq(int, net_http_upgrade(&request, &soon, &status, &stream, &body, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
}

Test(net, a_body_over_the_cap_is_too_large)
{
    struct unix_script script = {.bytes = ANSWER("200 OK", "12345678901")};
    auto_buf struct buf body = BUF_INIT(10);
    int status;

    cr_assert(eq(int, (int)fetch(&script, &soon, &status, &body), ERROR_TOO_LARGE));
}

Test(net, silence_ends_at_the_deadline)
{
    struct unix_script script = {.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", .after = UNIX_HOLD};
    struct cancel short_wait = cancel_within(&never, 50);
    auto_buf struct buf body = BUF_INIT(100);
    int status;

    cr_assert(eq(int, (int)fetch(&script, &short_wait, &status, &body), ERROR_TIMEOUT));
}

struct hangup {
    struct unix_server *server;
    int fd;
};

/* Once the server has the request, whoever waits for the answer goes away. */
static void *hang_up(void *context)
{
    struct hangup *hangup = context;

    unix_server_wait(hangup->server, 1);
    shutdown(hangup->fd, SHUT_RDWR);
    return NULL;
}

Test(net, a_client_that_hangs_up_ends_the_wait)
{
    struct unix_script script = {.bytes = "HTTP/1.1 200 OK\r\n", .after = UNIX_HOLD};
    struct net_http_request request = say(&script, "GET");
    auto_buf struct buf body = BUF_INIT(100);
    struct error err = ERROR_INIT;
    struct cancel cancel = soon;
    struct hangup hangup;
    pthread_t thread;
    int pair[2], status;

    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0));
    cancel.client_fd = pair[0];
    hangup = (struct hangup){server, pair[1]};
    pthread_create(&thread, NULL, hang_up, &hangup);
    cr_assert(eq(int, net_http_fetch(&request, &cancel, &status, &body, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_CANCELLED));
    pthread_join(thread, NULL);
}

static void *stop(void *context)
{
    struct hangup *hangup = context;

    unix_server_wait(hangup->server, 1);
    eventfd_write(hangup->fd, 1);
    return NULL;
}

Test(net, a_stopping_broker_ends_the_wait)
{
    struct unix_script script = {.bytes = "HTTP/1.1 101 Up", .after = UNIX_HOLD};
    struct net_http_request request = say(&script, "POST");
    auto_buf struct buf body = BUF_INIT(100);
    struct error err = ERROR_INIT;
    struct cancel cancel = soon;
    struct net_stream *stream;
    struct hangup hangup;
    pthread_t thread;
    int status;

    cancel.stop_fd = eventfd(0, 0);
    hangup = (struct hangup){server, cancel.stop_fd};
    pthread_create(&thread, NULL, stop, &hangup);
    cr_assert(eq(int, net_http_upgrade(&request, &cancel, &status, &stream, &body, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
    pthread_join(thread, NULL);
}

Test(net, a_large_answer_comes_in_pieces_whatever_the_reader_does)
{
    enum { SIZE = 1 << 20 };
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n";
    char *bytes = malloc(sizeof head + SIZE);
    struct unix_script script = {.bytes = bytes, .size = sizeof head - 1 + SIZE, .after = UNIX_HOLD};
    struct net_http_request request;
    struct net_http *http;
    struct error err = ERROR_INIT;
    const char *data;
    size_t size, at = 0;
    int status, more;

    memcpy(bytes, head, sizeof head - 1);
    for (size_t i = 0; i < SIZE; i++)
        bytes[sizeof head - 1 + i] = (char)(i * 31 + i / 251);
    request = say(&script, "GET");
    cr_assert(eq(int, net_http_open(&request, &soon, &http, &status, &err), 0));
    while ((more = net_http_read(http, &soon, &data, &size, &err)) > 0) {
        cr_assert(le(sz, size, 64 * 1024));
        cr_assert(eq(int, memcmp(bytes + sizeof head - 1 + at, data, size), 0));
        at += size;
    }
    cr_assert(eq(int, more, 0));
    cr_assert(eq(sz, at, SIZE));
    net_http_close(http);
    unix_server_stop(server);
    server = NULL;
    free(bytes);
}

Test(net, a_reader_that_waited_too_long_may_go_on)
{
    struct unix_script script = {
        .bytes = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", .rest = "second", .after = UNIX_HOLD};
    struct net_http_request request = say(&script, "GET");
    struct cancel short_wait = cancel_within(&never, 20);
    struct net_http *http;
    struct error err = ERROR_INIT;
    const char *data;
    size_t size;
    int status;

    cr_assert(eq(int, net_http_open(&request, &soon, &http, &status, &err), 0));
    cr_assert(eq(int, net_http_read(http, &short_wait, &data, &size, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_TIMEOUT));
    unix_server_go(server);
    cr_assert(eq(int, net_http_read(http, &soon, &data, &size, &err), 1));
    cr_assert(eq(int, strncmp(data, "second", size), 0));
    net_http_close(http);
}

/* Read exactly `size` bytes. */
static void stream_take(struct net_stream *stream, char *data, size_t size)
{
    while (size > 0) {
        struct pollfd fds = {.fd = net_stream_fd(stream), .events = POLLIN};
        struct error err = ERROR_INIT;
        ssize_t got = net_stream_read(stream, data, size);

        if (got > 0) {
            data += got;
            size -= (size_t)got;
        } else {
            cr_assert(lt(int, (int)got, 0));
            cr_assert(eq(int, errno, EAGAIN));
            cr_assert(eq(int, cancel_poll(&soon, &fds, 1, &err), 1));
        }
    }
}

static const char *const upgrades[] = {
    "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly",
    "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nearly",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 UPGRADED\r\n\r\nearly",
};

Test(net, an_upgrade_hands_over_what_came_with_the_header)
{
    for (size_t i = 0; i < sizeof upgrades / sizeof upgrades[0]; i++) {
        struct unix_script script = {.bytes = upgrades[i], .after = UNIX_ECHO};
        struct net_http_request request = say(&script, "POST");
        auto_buf struct buf body = BUF_INIT(1000);
        struct error err = ERROR_INIT;
        struct net_stream *stream;
        char data[10] = "";
        int status;

        cr_assert(eq(int, net_http_upgrade(&request, &soon, &status, &stream, &body, &err), 0));
        cr_assert(stream != NULL);
        cr_assert(eq(int, (int)net_stream_write(stream, "later", 5), 5));
        stream_take(stream, data, 2);
        stream_take(stream, data + 2, 8);
        cr_assert(eq(int, memcmp(data, "earlylater", 10), 0));
        net_stream_close(stream);
        unix_server_stop(server);
        server = NULL;
    }
}

Test(net, a_header_that_comes_in_halves_is_one_header)
{
    struct unix_script script = {
        .bytes = "HTTP/1.1 101 UPGR", .rest = "ADED\r\nUpgrade: tcp\r\n\r\nx", .after = UNIX_HOLD};
    struct net_http_request request = say(&script, "POST");
    auto_buf struct buf body = BUF_INIT(1000);
    struct error err = ERROR_INIT;
    struct net_stream *stream;
    char data[1];
    int status;

    unix_server_go(server);
    cr_assert(eq(int, net_http_upgrade(&request, &soon, &status, &stream, &body, &err), 0));
    stream_take(stream, data, 1);
    cr_assert(eq(int, data[0], 'x'));
    net_stream_close(stream);
}

static const char *const refusals[] = {
    "HTTP/1.1 409 Conflict\r\nContent-Length: 6\r\n\r\npaused",
    "HTTP/1.1 409 Conflict\r\nContent-Type: text/plain\r\n\r\npaused",
};

Test(net, a_refused_upgrade_tells_why)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct unix_script script = {.bytes = refusals[i]};
        struct net_http_request request = say(&script, "POST");
        auto_buf struct buf body = BUF_INIT(1000);
        struct error err = ERROR_INIT;
        struct net_stream *stream;
        int status;

        cr_assert(eq(int, net_http_upgrade(&request, &soon, &status, &stream, &body, &err), 0));
        cr_assert(stream == NULL);
        cr_assert(eq(int, status, 409));
        cr_assert(eq(str, body.data, "paused"));
        unix_server_stop(server);
        server = NULL;
    }
}

static const char *const no_upgrades[] = {"", "HTTP/1.1 101 UPGRADED\r\nUpg", "nonsense\r\n\r\n",
                                          "HTTP/1.1 2\r\n\r\n1234567"};

Test(net, half_a_header_is_no_upgrade)
{
    for (size_t i = 0; i < sizeof no_upgrades / sizeof no_upgrades[0]; i++) {
        struct unix_script script = {.bytes = no_upgrades[i]};
        struct net_http_request request = say(&script, "POST");
        auto_buf struct buf body = BUF_INIT(1000);
        struct error err = ERROR_INIT;
        struct net_stream *stream;
        int status;

        cr_assert(eq(int, net_http_upgrade(&request, &soon, &status, &stream, &body, &err), -1));
        cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
        unix_server_stop(server);
        server = NULL;
    }
}

Test(net, escapes_everything_that_could_mean_something)
{
    auto_buf struct buf out = BUF_INIT(100);
    struct error err = ERROR_INIT;

    cr_assert(eq(int, net_http_escape(&out, "a-Z_9.~/?&=%\xc3\xa4 ", &err), 0));
    cr_assert(eq(str, out.data, "a-Z_9.~%2F%3F%26%3D%25%C3%A4%20"));
}
