#include "http_fixture.h"

/* -- routes, parameters, queries -- */

Test(http, answers_and_keeps_the_connection)
{
    struct client *client = connected();
    char first_id[64];

    client_say(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect_str_eq(answer.body, "ok");
    cr_expect_str_eq(answer_header(&answer, "Content-Type"), "text/plain");
    (void)snprintf(first_id, sizeof first_id, "%s", answer_header(&answer, "x-request-id"));
    cr_expect(strlen(first_id) == 16 && strspn(first_id, "0123456789abcdef") == 16);
    client_say(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect_str_neq(answer_header(&answer, "x-request-id"), first_id);
    client_free(client);
}

Test(http, answers_pipelined_requests_in_order)
{
    struct client *client = connected();

    client_say(client, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
                       "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
                       "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
                       "GET /hit HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect(client_answer(client, &answer) == 200 && strncmp(answer.body, "2 ", 2) == 0);
    cr_expect(client_answer(client, &answer) == 404);
    cr_expect(client_answer(client, &answer) == 204);
    cr_expect(client_ended(client));
    client_free(client);
}

Test(http, tells_unknown_paths_wrong_methods_and_extra_slashes)
{
    cr_expect(ask("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
    cr_expect_str_eq(answer.body, "Not Found");
    cr_expect(ask("PUT /hit HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc") == 405);
    cr_expect_str_eq(answer.body, "Method Not Allowed");
    cr_expect_str_eq(answer_header(&answer, "Allow"), "GET, POST");
    cr_expect(ask("OPTIONS /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 405);
    cr_expect(ask("BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 405);
    cr_expect(ask("GET /healthz/?a=%20&b HTTP/1.1\r\nHost: x\r\n\r\n") == 307);
    cr_expect_str_eq(answer_header(&answer, "Location"), "/healthz?a=%20&b");
    cr_expect(ask("GET //evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
    cr_expect(ask("GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
}

Test(http, refuses_head_without_a_body)
{
    struct client *client = connected();
    char text[64] = "";

    client_say(client, "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    while (client_more(client, CLIENT_WAIT_MS))
        continue;
    (void)sscanf(client->data, "%63[^\r]", text);
    cr_expect_str_eq(text, "HTTP/1.1 405 Method Not Allowed");
    cr_expect_not_null(strstr(client->data, "Allow: GET\r\n"));
    cr_expect(strcmp(strstr(client->data, "\r\n\r\n"), "\r\n\r\n") == 0);
    client_free(client);
}

Test(http, decodes_parameters)
{
    cr_expect(ask("GET /p/a%20+b/x/%C3%A9 HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "4:a +b,\xC3\xA9");
    cr_expect(ask("GET /p/a%00b/x/c HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect(answer.size == 7 && memcmp(answer.body, "3:a\0b,c", 7) == 0);
    cr_expect(ask("GET /p/a%2Fb/x/c HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
    cr_expect(ask("GET /p/%/x/%zz HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "1:%,%zz");
}

Test(http, decodes_queries)
{
    cr_expect(ask("GET /query?k=a+b%2Bc%2f HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "6:a b+c/");
    cr_expect(ask("GET /query?k=1&K=2&x&&k=3& HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "1:3");
    cr_expect(ask("GET /query?%6B=%FFa HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "4:\xEF\xBF\xBD"
                                  "a");
    cr_expect(ask("GET /query?k HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "0:");
    cr_expect(ask("GET /query?k=a=b?c HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect_str_eq(answer.body, "5:a=b?c");
    cr_expect(ask("GET /query?k=a%00b HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect(answer.size == 5 && memcmp(answer.body, "3:a\0b", 5) == 0);
    cr_expect(ask("GET /query?other=1 HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
    cr_expect(ask("GET /query HTTP/1.1\r\nHost: x\r\n\r\n") == 404);
}

/* -- replies -- */

Test(http, sends_files_from_an_offset_and_no_second_header_line)
{
    cr_expect(ask("GET /file HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    cr_expect(answer.size == 5 && memcmp(answer.body, "23456", 5) == 0);
    cr_expect_null(answer_header(&answer, "Set-Cookie"));
    cr_expect_str_eq(answer_header(&answer, "X-Lines"), "aSet-Cookie: b");
}

Test(http, drops_what_a_failed_handler_had_filled_in)
{
    cr_expect(ask("GET /fail HTTP/1.1\r\nHost: x\r\n\r\n") == 503);
    cr_expect_str_eq(answer.body, "try again");
    cr_expect_str_eq(answer_header(&answer, "Retry-After"), "1");
    cr_expect_null(answer_header(&answer, "X-Dropped"));
}

Test(http, sends_no_body_with_204_and_304)
{
    struct client *client = connected();

    client_say(client, "GET /hit HTTP/1.1\r\nHost: x\r\n\r\nGET /unmodified HTTP/1.1\r\nHost: x\r\n\r\n"
                       "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 204);
    cr_expect_null(answer_header(&answer, "Content-Length"));
    cr_expect(client_answer(client, &answer) == 304);
    cr_expect(client_answer(client, &answer) == 200);
    client_free(client);
}

static bool stream_is_freed(void)
{
    return atomic_load(&streams_freed) == 1;
}

Test(http, streams_each_piece_when_it_is_made)
{
    struct client *client = connected();

    client_say(client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    while (!strstr(client->data, "\r\n\r\n"))
        cr_assert(client_more(client, 150), "the head waits for the first piece");
    for (int i = 1; i <= 3; i++) {
        char piece[16];

        (void)snprintf(piece, sizeof piece, "piece %d", i);
        signal_fd(go_fd);
        while (!strstr(client->data, piece))
            cr_assert(client_more(client, 150), "a piece waits for the next");
    }
    cr_expect(client_answer(client, &answer) == 200 && answer.whole);
    cr_expect_str_eq(answer.body, "piece 1\npiece 2\npiece 3\n");
    cr_expect(client_answer(client, &answer) == 200);
    until_true(stream_is_freed);
    client_free(client);
}

Test(http, breaks_a_failed_stream_off_without_an_end)
{
    struct client *client = connected();

    for (int i = 0; i < 3; i++)
        signal_fd(go_fd);
    client_say(client, "GET /stream?break HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(client, &answer) == 200);
    cr_expect(answer.size == 24 && !answer.whole);
    client_free(client);
}

Test(http, tells_a_stream_that_its_client_hung_up)
{
    struct client *client = connected();

    client_say(client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(client_more(client, CLIENT_WAIT_MS));
    client_free(client);
    until_true(stream_is_freed);
    cr_expect(atomic_load(&wait_ended) == ERROR_CANCELLED);
}

/* -- waiting, stopping -- */

static bool is_waiting(void)
{
    return atomic_load(&waiting);
}

static bool wait_has_ended(void)
{
    return atomic_load(&wait_ended);
}

Test(http, tells_a_handler_that_its_client_hung_up)
{
    struct client *client = connected();

    client_say(client, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    until_true(is_waiting);
    client_free(client);
    until_true(wait_has_ended);
    cr_expect(atomic_load(&wait_ended) == ERROR_CANCELLED);
}

static bool no_connections(void)
{
    return http_server_connections(server) == 0;
}

Test(http_own, stops_while_a_handler_waits_and_sends_its_answer)
{
    struct client *client;
    struct client *idle;
    int64_t began_ms;

    start(64, 30);
    client = connected();
    idle = connected();
    client_say(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(idle, &answer) == 200);
    client_say(client, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    until_true(is_waiting);
    began_ms = clock_mono_ms();
    signal_fd(stop_fd);
    stop(5000);
    cr_expect(clock_mono_ms() - began_ms < 2000);
    cr_expect(client_answer(client, &answer) == 503);
    cr_expect(client_ended(client));
    cr_expect(client_ended(idle));
    client_free(client);
    client_free(idle);
}

Test(http_own, takes_what_does_not_end_in_time_along)
{
    struct client *client;

    start(64, 30); /* and stop_fd is not told: only the closed connection ends the handler */
    client = connected();
    client_say(client, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    until_true(is_waiting);
    stop(50);
    cr_expect(atomic_load(&wait_ended) == ERROR_CANCELLED);
    cr_expect(client_ended(client));
    client_free(client);
}

Test(http_own, is_not_asked_again_after_an_answer_that_the_stop_threw_away)
{
    struct client *client;

    start(64, 30);
    atomic_store(&hold_errors, 1);
    client = connected();
    client_say(client, "GET /hit HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n");
    until_true(is_waiting);
    stop(50);
    cr_expect(atomic_load(&hits) == 0);
    cr_expect(client_ended(client));
    client_free(client);
}

static size_t count_of(const char *dir)
{
    size_t count = 0;
    DIR *entries = opendir(dir);

    cr_assert_not_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static size_t threads_before;

static bool is_without_threads(void)
{
    return count_of("/proc/self/task") == threads_before;
}

Test(http_own, leaves_no_thread_and_no_descriptor_behind)
{
    size_t fds = count_of("/proc/self/fd");
    struct client *clients[20];

    threads_before = count_of("/proc/self/task");
    start(64, 30);
    for (int i = 0; i < 20; i++) {
        clients[i] = connected();
        client_say(clients[i],
                   i % 2 ? "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" : "GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
        cr_expect(client_answer(clients[i], &answer) == 200);
    }
    client_say(clients[0], "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(client_more(clients[0], CLIENT_WAIT_MS));
    cr_expect(count_of("/proc/self/task") > threads_before + 20);
    signal_fd(stop_fd);
    stop(1000);
    cr_expect(atomic_load(&streams_freed) == 1);
    for (int i = 0; i < 20; i++)
        client_free(clients[i]);
    close(stop_fd);
    close(go_fd);
    until_true(is_without_threads); /* the kernel lists one for a moment after it was joined */
    cr_expect(count_of("/proc/self/fd") == fds);
}

Test(http, forgets_closed_connections)
{
    for (int i = 0; i < 20; i++)
        cr_expect(ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
    until_true(no_connections);
}

/* -- many and slow clients -- */

Test(http_own, answers_503_above_the_limit_of_connections)
{
    struct client *clients[4];
    struct client *over;

    start(4, 30);
    for (int i = 0; i < 4; i++) {
        clients[i] = connected();
        client_say(clients[i], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        cr_assert(client_answer(clients[i], &answer) == 200);
    }
    over = connected();
    client_say(over, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(over, &answer) == 503);
    cr_expect_str_eq(answer_header(&answer, "Retry-After"), "1");
    cr_expect(client_ended(over));
    client_free(over);
    client_say(clients[0], "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(clients[0], &answer) == 200);
    for (int i = 0; i < 4; i++)
        client_free(clients[i]);
    until_true(no_connections);
    cr_expect(ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == 200);
}

Test(http_own, is_not_held_up_by_slow_clients)
{
    struct client *slow[200];
    struct client *quick;
    int64_t worst_us = 0;
    int late = 0;

    start(256, 30);
    for (int i = 0; i < 200; i++) {
        slow[i] = connected();
        client_say(slow[i], i % 2 ? "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" : "GET /heal");
    }
    quick = connected();
    for (int round = 0; round < 200; round++) {
        int64_t began_us = clock_mono_us();

        client_say(slow[round], "a");
        client_say(quick, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
        cr_assert(client_answer(quick, &answer) == 200);
        began_us = clock_mono_us() - began_us;
        late += began_us > 200000;
        if (began_us > worst_us)
            worst_us = began_us;
    }
    /* A busy machine may hold up one or the other, but none for as long as a slow client may take. */
    cr_expect(late < 10, "%d of 200", late);
    cr_expect(worst_us < 5000000, "%ld us", (long)worst_us);
    for (int i = 0; i < 200; i++)
        client_free(slow[i]);
    client_free(quick);
}

/* Sends a byte now and then until the server has enough of it; returns how long that took. */
static int64_t trickle(const char *head)
{
    struct client *client = connected();
    int64_t began_ms = clock_mono_ms();

    client_say(client, head);
    for (;;) {
        struct pollfd fd = {.fd = client->fd, .events = POLLIN};

        cr_assert(clock_mono_ms() - began_ms < 10000, "held for ever");
        if (poll(&fd, 1, 100) == 1 || !client_send(client, "a", 1))
            break;
    }
    client_free(client);
    return clock_mono_ms() - began_ms;
}

Test(http_own, ends_silent_and_trickling_connections)
{
    struct client *silent;
    int64_t began_ms;

    start(64, 1);
    silent = connected();
    began_ms = clock_mono_ms();
    client_say(silent, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_expect(client_answer(silent, &answer) == 200);
    cr_expect(client_ended(silent));
    cr_expect(clock_mono_ms() - began_ms >= 1000 && clock_mono_ms() - began_ms < 4000);
    client_free(silent);
    cr_expect(trickle("GET /heal") < 4000);
    cr_expect(trickle("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") < 4000);
    cr_expect(trickle("POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") < 4000);
}

static bool is_freed(void)
{
    return atomic_load(&streams_freed) > 0;
}

Test(http_own, cuts_off_whoever_takes_a_stream_drop_by_drop)
{
    struct client *client;
    int64_t began_ms = clock_mono_ms();
    int small = 4096;
    char drop[1024];
    ssize_t got;

    start(64, 1);
    client = connected();
    cr_assert(setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    client_say(client, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    do { /* never silent: the library's own timeout does not see it */
        struct pollfd fd = {.fd = client->fd, .events = POLLIN};

        (void)poll(NULL, 0, 50);
        cr_assert(clock_mono_ms() - began_ms < 20000, "held for ever");
        cr_assert(poll(&fd, 1, CLIENT_WAIT_MS) == 1);
        got = recv(client->fd, drop, sizeof drop, 0);
    } while (got > 0 && !is_freed());
    until_true(is_freed);
    client_free(client);
}

Test(http_own, does_not_take_its_own_waiting_for_the_clients_silence)
{
    struct client *client;

    start(64, 1); /* the library's own timeout is then 6 s */
    client = connected();
    client_say(client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(client_more(client, CLIENT_WAIT_MS));
    for (int i = 0; i < 3; i++) {
        struct pollfd fd = {.fd = client->fd, .events = POLLIN};

        if (i == 0)
            cr_assert(poll(&fd, 1, 6500) == 0, "a quiet stream is not idle");
        signal_fd(go_fd);
    }
    cr_expect(client_answer(client, &answer) == 200 && answer.whole);
    cr_expect_str_eq(answer.body, "piece 1\npiece 2\npiece 3\n");
    client_free(client);
}
