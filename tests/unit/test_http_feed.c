/* Bodies that a handler reads while they arrive, and trailers behind an answer. */
#include "alloc.h"
#include "crc32c.h"
#include "http.h"
#include "http_client.h"

#include <stdatomic.h>
#include <sys/eventfd.h>

enum { LARGE = 8 * 1024 * 1024, PIECE = 32 * 1024 };

static struct http_server *server;
static int stop_fd;
static atomic_int ended_with; /* the error code a handler got */
static atomic_int handlers;   /* that are running */

/* "<size> <crc>" of all of it. */
static int on_sum(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    auto_free char *piece = malloc(PIECE);
    uint64_t size = 0;
    uint32_t crc = 0;
    char text[64];
    int64_t got;

    atomic_fetch_add(&handlers, 1);
    while ((got = http_request_read(request, http_request_cancel(request), piece, PIECE, err)) > 0) {
        crc = crc32c(crc, piece, (size_t)got);
        size += (uint64_t)got;
    }
    atomic_store(&ended_with, got < 0 ? (int)err->code : 0);
    atomic_fetch_sub(&handlers, 1);
    if (got < 0)
        return -1;
    (void)snprintf(text, sizeof text, "%llu %08x", (unsigned long long)size, crc);
    http_reply_text(reply, 200, "text/plain", text);
    return 0;
}

/* Refuses before the first byte. */
static int on_never(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    return fail(err, NOT_FOUND, "never");
}

/* Has seen enough after the first bytes. */
static int on_enough(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    char piece[16];

    if (http_request_read(request, http_request_cancel(request), piece, sizeof piece, err) < 0)
        return -1;
    http_reply_text(reply, 409, "text/plain", "enough");
    http_reply_header(reply, "X-Why", "because");
    return 0;
}

static int64_t once(void *context, const struct cancel *cancel, char *out, size_t max)
{
    int *sent = context;

    return (*sent)++ ? 0 : snprintf(out, max, "body");
}
static void last_word(void *context, char out[HTTP_TRAILER_BYTES])
{
    (void)snprintf(out, HTTP_TRAILER_BYTES, "two words");
}
static int on_trailer(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    struct http_stream stream = {
        .next = once, .free = free, .context = alloc_zero(sizeof(int)), .trailer_name = "X-Last", .trailer = last_word};

    http_reply_stream(reply, "text/plain", &stream);
    return 0;
}

/* The bytes of k as they were sent, in hex. */
static int on_bytes(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    size_t size = 0;
    const char *bytes = http_request_query_bytes(request, "k", &size);
    char text[128] = "";

    for (size_t i = 0; i < size && i < 60; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    http_reply_text(reply, 200, "text/plain", text);
    return 0;
}

static const struct http_route routes[] = {
    {HTTP_PUT, "/sum", on_sum, HTTP_BODY_STREAM, 0},       {HTTP_PUT, "/never", on_never, HTTP_BODY_STREAM, 0},
    {HTTP_PUT, "/enough", on_enough, HTTP_BODY_STREAM, 0}, {HTTP_GET, "/trailer", on_trailer, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/bytes", on_bytes, HTTP_BODY_NONE, 0},
};

static int gate(struct http_request *request, void *context, struct error *err)
{
    const char *limit = http_request_header(request, "x-limit");

    if (limit)
        http_request_limit_body(request, strtoul(limit, NULL, 10));
    return 0;
}

static void on_error(struct http_request *request, struct http_reply *reply, const struct error *err, void *context)
{
    http_reply_text(reply, error_http_status(err->code), "text/plain", error_public_text(err));
}

static const struct http_table table = {routes, sizeof routes / sizeof *routes, NULL, gate, on_error, NULL};

static void set_up(void)
{
    struct error err = ERROR_INIT;
    struct http_settings settings = {"127.0.0.1", 0, 16, 8192, 65536, 4096, "/tmp", 30, 0};

    stop_fd = settings.stop_fd = eventfd(0, EFD_CLOEXEC);
    cr_assert(http_server_start(&settings, &table, &server, &err) == 0, "%s", err.text);
}

static void tear_down(void)
{
    http_server_stop(server, 1000);
    server = NULL;
}

static struct answer answer;

static char *large(void)
{
    char *data = malloc(LARGE);

    for (size_t i = 0; i < LARGE; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    return data;
}

static void until(atomic_int *value, int wanted)
{
    int64_t until_ms = clock_mono_ms() + 10000;

    while (atomic_load(value) != wanted) {
        cr_assert(clock_mono_ms() < until_ms);
        (void)poll(NULL, 0, 1);
    }
}

TestSuite(http_feed, .init = set_up, .fini = tear_down, .timeout = 60);

Test(http_feed, gives_a_body_larger_than_any_limit_of_memory_to_the_handler)
{
    auto_free char *data = large();
    struct client *client = client_new(http_server_port(server));
    char head[128];
    char expected[64];

    (void)snprintf(head, sizeof head, "PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", LARGE);
    client_say(client, head);
    cr_assert(client_send(client, data, LARGE));
    cr_expect(client_answer(client, &answer) == 200);
    (void)snprintf(expected, sizeof expected, "%d %08x", LARGE, crc32c(0, data, LARGE));
    cr_expect_str_eq(answer.body, expected);
    /* The connection goes on. */
    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect_str_eq(answer.body, "0 00000000");
    client_say(client,
               "PUT /sum HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    (void)snprintf(expected, sizeof expected, "5 %08x", crc32c(0, "abcde", 5));
    cr_expect_str_eq(answer.body, expected);
    client_free(client);
}

Test(http_feed, refuses_before_the_body_where_the_handler_does_not_ask_for_it)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "PUT /never HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 404);
    cr_expect_str_eq(answer.body, "never");
    cr_expect_str_eq(answer_header(&answer, "Connection"), "close");
    client_free(client);
    client = client_new(http_server_port(server));
    client_say(client,
               "PUT /sum HTTP/1.1\r\nHost: x\r\nx-limit: 10\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 413);
    client_free(client);
}

Test(http_feed, answers_in_the_middle_of_a_body_and_closes)
{
    auto_free char *data = large();
    struct client *client = client_new(http_server_port(server));

    client_say(client, "PUT /enough HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
    (void)client_send(client, data, 600000);
    cr_expect(client_answer(client, &answer) == 409);
    cr_expect_str_eq(answer.body, "enough");
    cr_expect_str_eq(answer_header(&answer, "X-Why"), "because");
    cr_expect_str_eq(answer_header(&answer, "Connection"), "close");
    client_free(client);
    client = client_new(http_server_port(server));
    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nx-limit: 10\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "8\r\n12345678\r\n8\r\n12345678\r\n");
    cr_expect(client_answer(client, &answer) == 413);
    cr_expect(atomic_load(&ended_with) == ERROR_TOO_LARGE);
    client_free(client);
}

Test(http_feed, tells_the_handler_of_a_client_that_goes_away)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    until(&handlers, 1);
    client_free(client);
    until(&ended_with, ERROR_CANCELLED);
    until(&handlers, 0);
}

Test(http_feed, does_not_take_a_chunked_body_that_was_cut_off_for_a_whole_one)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    until(&handlers, 1);
    client_free(client);
    until(&ended_with, ERROR_CANCELLED);
    until(&handlers, 0);
}

Test(http_feed, takes_a_body_of_who_closes_his_side_after_it)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    cr_assert(shutdown(client->fd, SHUT_WR) == 0);
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect_eq(strncmp(answer.body, "3 ", 2), 0);
    client_free(client);
}

Test(http_feed, wakes_the_handler_at_the_stop)
{
    struct client *client = client_new(http_server_port(server));
    uint64_t one = 1;

    client_say(client, "PUT /sum HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    until(&handlers, 1);
    cr_assert(write(stop_fd, &one, sizeof one) == sizeof one);
    cr_expect(client_answer(client, &answer) == 503);
    client_free(client);
}

Test(http_feed, says_a_trailer_behind_a_stream)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "GET /trailer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    while (client_more(client, CLIENT_WAIT_MS))
        continue;
    cr_expect_not_null(strstr(client->data, "Trailer: X-Last\r\n"));
    cr_expect_not_null(strstr(client->data, "\r\n0\r\nX-Last: two words\r\n\r\n"), "%s", client->data);
    client_free(client);
}

Test(http_feed, keeps_bytes_of_a_query)
{
    struct client *client = client_new(http_server_port(server));

    client_say(client, "GET /bytes?k=a%FF%0a+%00b HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect_str_eq(answer.body, "61ff0a200062");
    client_free(client);
}
