#include "http_fixture.h"

/* -- what RFC 9112 refuses -- */

static void expect_refusal(int status, const char *head)
{
    struct client *client = connected();

    client_say(client, head);
    client_say(client, "GET /hit HTTP/1.1\r\nHost: x\r\n\r\n"); /* what would be smuggled */
    cr_expect(client_answer(client, &answer) == status, "%d for %s", answer.status, head);
    cr_expect_str_eq(answer_header(&answer, "Connection"), "close", "%s", head);
    while (client_more(client, CLIENT_WAIT_MS))
        cr_assert(client->have < 1000, "%s", client->data);
    cr_expect(atomic_load(&hits) == 0, "%s", head);
    client_free(client);
}

Test(http, refuses_what_proxies_read_differently)
{
#define POST "POST /hit HTTP/1.1\r\nHost: x\r\n"
    expect_refusal(400, POST "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: gzip\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: identity\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding: \x0b"
                             "chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding:\r\n\r\n");
    expect_refusal(400, POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "Content-Length : 4\r\n\r\nabcd");
    expect_refusal(400, POST "Content Length: 4\r\n\r\nabcd");
    expect_refusal(400, POST "X\x01Y: 4\r\n\r\n");
    expect_refusal(400, POST ": 4\r\n\r\n");
    expect_refusal(400, POST "Content-Length: -1\r\n\r\n");
    expect_refusal(400, POST "Content-Length: +4\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length: 4, 4\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length: 0x4\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length: four\r\n\r\nabcd");
    expect_refusal(400, POST "Content-Length:\r\n\r\n");
    expect_refusal(413, POST "Content-Length: 99999999999999999999999\r\n\r\n");
    expect_refusal(400, POST "Host: y\r\n\r\n");
    expect_refusal(400, "POST /hit HTTP/1.1\r\n\r\n");
    expect_refusal(400, "POST /hit HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refusal(417, POST "Expect: 200-ok\r\nContent-Length: 4\r\n\r\nabcd");
}

Test(http, refuses_folds_bare_line_feeds_and_controls)
{
    expect_refusal(400, POST "X-A: b\r\n c\r\n\r\n");
    expect_refusal(400, POST "Content-Length: 4\r\n 0\r\n\r\nabcd");
    expect_refusal(400, POST "X-A: b\r\nTransfer-Encoding:\r\n chunked\r\nX-C: d\r\n\r\n0\r\n\r\n");
    expect_refusal(400, POST "X-A: b\nX-B: c\r\n\r\n");
    expect_refusal(400, "GET /hit HTTP/1.1\nHost: x\r\n\r\n");
    expect_refusal(400, POST "X-A: b\r\n\n");
    expect_refusal(400, POST "X-A: b\rc\r\n\r\n");
    expect_refusal(400, "GET /hit?a\x01 HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_refusal(400, "GET /hit ?a HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_refusal(400, "GET  /hit HTTP/1.1\r\nHost: x\r\n\r\n");
#undef POST
}

Test(http, refuses_a_nul_in_the_head)
{
    static const char head[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n";
    static const char path[] = "GET /healthz\0/x HTTP/1.1\r\nHost: x\r\n\r\n";
    struct client *client = connected();

    cr_assert(client_send(client, head, sizeof head - 1));
    cr_expect(client_answer(client, &answer) == 400);
    client_free(client);
    client = connected();
    cr_assert(client_send(client, path, sizeof path - 1));
    cr_expect(client_answer(client, &answer) == 400);
    client_free(client);
}

Test(http, takes_odd_but_honest_heads)
{
    char text[7000] =
        "GET /healthz HTTP/1.1\r\nhOST:x\r\nCookie: a=b; c=d\r\nX-Empty:\r\nX-Blank:   \r\nX-Tab:\t a\tb \r\n"
        "X-Latin: \xE9\r\nX-Again: 1\r\nX-Again: 2\r\n";

    for (int i = 0; i < 100; i++) {
        size_t used = strlen(text);

        (void)snprintf(text + used, sizeof text - used, "X-Header-%d: a value that takes some room, %d\r\n", i, i);
    }
    (void)strncat(text, "\r\n", sizeof text - strlen(text) - 1);
    cr_expect(ask(text) == 200);
    cr_expect(ask("\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect(ask("GET /healthz HTTP/1.0\r\n\r\n") == 200);
    cr_expect(
        ask("POST /hit HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n2;x=y\r\nab\r\n0\r\nX: y\r\n\r\n") ==
        204);
}

/* The answer may come from the library (HTML) or from us; that it comes and costs little is what counts. */
Test(http, bounds_heads)
{
    struct client *client = connected();
    int64_t began_ms = clock_mono_ms();
    bool taken = true;

    client_say(client, "GET /hit HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 5000 && taken; i++) {
        char line[64];

        taken = client_send(client, line, (size_t)snprintf(line, sizeof line, "X-Flood-%d: %d\r\n", i, i));
    }
    if (taken)
        (void)client_send(client, "\r\n", 2);
    cr_expect(client_answer(client, &answer) == 431);
    cr_expect(clock_mono_ms() - began_ms < 2000);
    client_free(client);

    client = connected();
    taken = client_send(client, "GET /", 5);
    for (int i = 0; i < 1000 && taken; i++)
        taken = client_send(client, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 64);
    cr_expect(client_answer(client, &answer) == 414);
    client_free(client);
    cr_expect(atomic_load(&hits) == 0);

    client = connected();
    client_say(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 200; i++)
        client_say(client, "A: b\r\n");
    client_say(client, "\r\n");
    cr_expect(client_answer(client, &answer) == 431);
    client_free(client);
}

/* -- bodies -- */

static char *pattern(size_t size)
{
    char *data = malloc(size);

    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 31 + i / 251);
    return data;
}

static void expect_body(const char *path, size_t size, const char *where, bool chunked)
{
    struct client *client = connected();
    char *data = pattern(size + 1);
    char text[256];

    (void)snprintf(text, sizeof text,
                   chunked ? "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                           : "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                   path, size);
    client_say(client, text);
    for (size_t at = 0; chunked && at < size; at += 7777) {
        size_t part = size - at < 7777 ? size - at : 7777;

        (void)snprintf(text, sizeof text, "%zx\r\n", part);
        client_say(client, text);
        cr_assert(client_send(client, data + at, part));
        client_say(client, "\r\n");
    }
    if (chunked)
        client_say(client, "0\r\n\r\n");
    else
        cr_assert(client_send(client, data, size));
    cr_expect(client_answer(client, &answer) == 200, "%s %zu", path, size);
    (void)snprintf(text, sizeof text, "%zu %08x %s", size, crc32c(0, data, size), where);
    cr_expect_str_eq(answer.body, text);
    client_say(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    /* What follows a chunked body is never a request. */
    cr_expect(client_answer(client, &answer) == (chunked ? 0 : 200));
    free(data);
    client_free(client);
}

Test(http, gathers_bodies_in_memory_and_large_raw_ones_in_a_file)
{
    for (int chunked = 0; chunked <= 1; chunked++) {
        expect_body("/json", 0, "memory", chunked);
        expect_body("/json", 1, "memory", chunked);
        expect_body("/json", BODY_BYTES, "memory", chunked);
        expect_body("/raw", 0, "memory", chunked);
        expect_body("/raw", MEMORY_BYTES, "memory", chunked);
        expect_body("/raw", MEMORY_BYTES + 1, "file", chunked);
        expect_body("/raw", BODY_BYTES, "file", chunked);
    }
}

Test(http, answers_a_body_sent_behind_its_head_without_delay)
{
    struct client *client = connected();
    int quick = 0;

    for (int i = 0; i < 50; i++) {
        int64_t began_us = clock_mono_us();

        client_say(client, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
        client_say(client, "ab");
        client_say(client, "cd");
        cr_expect(client_answer(client, &answer) == 200);
        quick += clock_mono_us() - began_us < 20000;
    }
    /* The kernel's delay of 40 ms would strike each of them, a busy machine only some. */
    cr_expect(quick > 25, "%d of 50", quick);
    client_free(client);
}

Test(http, says_continue_only_when_the_body_is_wanted)
{
    struct client *client = connected();

    client_say(client, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 100);
    client_say(client, "{}");
    cr_expect(client_answer(client, &answer) == 200);
    client_free(client);
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Deny: 1\r\nExpect: 100-continue\r\n\r\n") ==
              401);
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n") == 413);
    cr_expect(ask("POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n") == 404);
    cr_expect(ask("POST /raw HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Limit: 1\r\nExpect: 100-continue\r\n\r\n") ==
              409);
    cr_expect_str_eq(answer.body, "0 00000000 too large");
}

/* Sends up to `size` bytes, looking for an answer after each piece as a careful client does; returns what was sent. */
static size_t upload(const char *head, size_t size, int *ret_status)
{
    static const char piece[16384];
    const int send_bytes = 65536; /* what is counted has left, and does not lie in our own kernel */
    struct client *client = connected();
    size_t sent = 0;

    (void)setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    client_say(client, head);
    while (sent < size) {
        struct pollfd fd = {.fd = client->fd, .events = POLLIN};

        if (poll(&fd, 1, 0) == 1 || !client_send(client, piece, sizeof piece))
            break;
        sent += sizeof piece;
    }
    *ret_status = client_answer(client, &answer);
    client_free(client);
    return sent;
}

Test(http, refuses_large_uploads_at_once_and_readably)
{
    static const struct {
        int status;
        const char *head;
    } cases[] = {
        {401, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\nX-Deny: 1\r\n\r\n"},
        {401, "POST /raw HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\nX-Deny: 1\r\n\r\n"},
        {404, "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n"},
        {405, "PUT /json HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n"},
        {413, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n"},
        {413, "POST /hit HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\n\r\n"},
        {409, "POST /raw HTTP/1.1\r\nHost: x\r\nContent-Length: 209715200\r\nX-Limit: 1000\r\n\r\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t began_ms = clock_mono_ms();
        int status;
        size_t sent = upload(cases[i].head, 209715200, &status);

        cr_expect(status == cases[i].status, "%d for %s", status, cases[i].head);
        cr_expect_str_eq(answer_header(&answer, "Connection"), "close");
        cr_expect(sent < 2000000, "%zu bytes sent for %s", sent, cases[i].head);
        cr_expect(clock_mono_ms() - began_ms < 1000);
    }
    cr_expect(atomic_load(&hits) == 1, "only the raw route with a limit of its own is called");
}

Test(http, keeps_the_connection_after_a_short_refused_body)
{
    struct client *client = connected();

    client_say(client, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-Deny: 1\r\n\r\nhello"
                       "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
                       "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 401);
    cr_expect(client_answer(client, &answer) == 404);
    cr_expect(client_answer(client, &answer) == 200);
    client_free(client);
}

static int chunked_upload(const char *path, size_t size)
{
    static const char piece[32768];
    struct client *client = connected();
    char head[128];
    int status;

    (void)snprintf(head, sizeof head,
                   "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX-Limit: 50000\r\n\r\n", path);
    client_say(client, head);
    for (size_t sent = 0; sent < size; sent += sizeof piece)
        if (!client_send(client, "8000\r\n", 6) || !client_send(client, piece, sizeof piece) ||
            !client_send(client, "\r\n", 2))
            break;
    (void)client_send(client, "0\r\n\r\n", 5);
    status = client_answer(client, &answer);
    client_free(client);
    return status;
}

Test(http, swallows_a_long_chunked_body_to_twice_the_limit)
{
    cr_expect(chunked_upload("/json", BODY_BYTES) == 200);
    cr_expect(chunked_upload("/json", BODY_BYTES + 32768) == 413);
    cr_expect(chunked_upload("/json", BODY_BYTES * 2) == 413);
    cr_expect(chunked_upload("/hit", BODY_BYTES * 2) == 413);
    cr_expect(chunked_upload("/json", BODY_BYTES * 2 + 32768) == 0);
    cr_expect(chunked_upload("/raw", 65536) == 409);
    cr_expect_str_eq(answer.body, "0 00000000 too large");
    cr_expect(chunked_upload("/raw", BODY_BYTES * 2) == 409);
    cr_expect(chunked_upload("/raw", BODY_BYTES * 2 + 32768) == 0);
}

Test(http, tells_a_raw_route_that_its_limit_was_passed)
{
    struct client *client = connected();

    client_say(client, "POST /raw HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Limit: 2\r\n\r\nabc"
                       "POST /raw HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Limit: 2\r\n\r\nab");
    cr_expect(client_answer(client, &answer) == 409);
    cr_expect(client_answer(client, &answer) == 200);
    client_free(client);
}

Test(http, refuses_malformed_chunks)
{
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n") == 400);
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n0\r\n\r\n") == 400);
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n") == 400);
    cr_expect(ask("POST /json HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "fffffffffffffffff\r\nab\r\n0\r\n\r\n") == 413);
    cr_expect(atomic_load(&hits) == 0);
}
