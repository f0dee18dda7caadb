#include "cli_private.h"

#include "cleanup.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void cli_done(struct cli *cli)
{
    free(cli->given);
    free(cli->arguments);
    free(cli->url);
    free(cli->token);
}
#define auto_cli auto_cleanup(cli_done)

#define WORDS(...) ((char *[]){"berth", __VA_ARGS__, NULL})

static struct cli parsed(char **words)
{
    struct cli cli = {.verb = NULL};
    struct error err = ERROR_INIT;

    cr_assert_eq(cli_parse(0, words, &cli, &err), 0, "%s", err.text);
    return cli;
}

static void refused(char **words, const char *part)
{
    auto_cli struct cli cli = {.verb = NULL};
    struct error err = ERROR_INIT;

    cr_assert_eq(cli_parse(0, words, &cli, &err), -1, "%s was taken", words[1]);
    cr_assert_not_null(strstr(err.text, part), "%s", err.text);
    cr_assert_eq(cli_status_of(&cli, &err), cli.verb && strcmp(cli.verb->name, "run") == 0 ? 125 : 2);
}

/* -- words -- */

Test(cli_parse, takes_options_in_every_usual_shape)
{
    auto_cli struct cli cli =
        parsed(WORDS("--url", "http://a", "sessions", "-t", "acme", "--state=running", "-qj", "-pab"));

    cr_assert_str_eq(cli.verb->name, "sessions");
    cr_assert_str_eq(cli_value(&cli, "url"), "http://a");
    cr_assert_str_eq(cli_value(&cli, "tenant"), "acme");
    cr_assert_str_eq(cli_value(&cli, "state"), "running");
    cr_assert_str_eq(cli_value(&cli, "prefix"), "ab");
    cr_assert(cli_has(&cli, "quiet") && cli_has(&cli, "json") && !cli_has(&cli, "usage"));
    cr_assert_null(cli_value(&cli, "usage"));
}

Test(cli_parse, leaves_a_command_alone)
{
    auto_cli struct cli plain = parsed(WORDS("run", "--timeout", "5", "me", "ls", "-l", "--", "--json"));
    auto_cli struct cli dashed = parsed(WORDS("run", "me", "-e", "A=b", "--", "--version", "--"));

    cr_assert_eq(plain.argument_count, 5);
    cr_assert_str_eq(plain.arguments[2], "-l");
    cr_assert_str_eq(plain.arguments[3], "--");
    cr_assert_str_eq(plain.arguments[4], "--json");
    cr_assert_str_eq(cli_value(&plain, "timeout"), "5");
    cr_assert_eq(dashed.argument_count, 3);
    cr_assert_str_eq(dashed.arguments[1], "--version");
    cr_assert_str_eq(dashed.arguments[2], "--");
    cr_assert(!cli_has(&dashed, "version"));
    cr_assert_str_eq(cli_value(&dashed, "env"), "A=b");
}

Test(cli_parse, takes_a_value_that_may_be_left_out_behind_an_equals_sign_only)
{
    auto_cli struct cli bare = parsed(WORDS("status", "--watch", "--json"));
    auto_cli struct cli given = parsed(WORDS("status", "--watch=7"));

    cr_assert(cli_has(&bare, "watch") && !cli_value(&bare, "watch") && cli_has(&bare, "json"));
    cr_assert_str_eq(cli_value(&given, "watch"), "7");
}

Test(cli_parse, says_what_is_wrong)
{
    refused(WORDS("stauts"), "there is no verb \"stauts\"");
    refused(WORDS("status", "--nope"), "--nope of status");
    refused(WORDS("--nope", "status"), "--nope before the verb");
    refused(WORDS("status", "-z"), "-z of status");
    refused(WORDS("status", "--json=1"), "takes no value");
    refused(WORDS("sessions", "--tenant"), "needs a value: TENANT");
    refused(WORDS("sessions", "-t"), "needs a value: TENANT");
    refused(WORDS("status", "me"), "takes no \"me\"");
    refused(WORDS("cp", "a"), "needs more: berth cp FROM TO");
    refused(WORDS("close"), "needs more: berth close SESSION...");
    refused(WORDS("run", "me"), "needs more");
}

Test(cli_number, is_whole_and_within)
{
    auto_cli struct cli cli = parsed(WORDS("bench", "--count", "12"));
    auto_cli struct cli bad = parsed(WORDS("bench", "--count", "12x"));
    struct error err = ERROR_INIT;
    int64_t count;

    cr_assert_eq(cli_number(&cli, "count", 1, 12, 5, &count, &err), 0);
    cr_assert_eq(count, 12);
    cr_assert_eq(cli_number(&cli, "runtime", 1, 12, 5, &count, &err), 0);
    cr_assert_eq(count, 5);
    cr_assert_eq(cli_number(&cli, "count", 1, 11, 5, &count, &err), -1);
    cr_assert_eq(cli_number(&bad, "count", 1, 100, 5, &count, &err), -1);
}

/* -- what a terminal must not see -- */

static void escapes(const char *text, size_t size, const char *expected)
{
    auto_buf struct buf out = BUF_INIT(1024);
    struct error err = ERROR_INIT;

    cr_assert_eq(cli_escape(&out, text, size, true, &err), 0);
    cr_assert_str_eq(buf_str(&out), expected);
    buf_clear(&out);
    cr_assert_eq(cli_escape(&out, text, size, false, &err), 0);
    cr_assert(out.size == size && memcmp(buf_str(&out), text, size) == 0);
}
#define ESCAPES(text, expected) escapes("" text, sizeof text - 1, expected)

Test(cli_escape, lets_nothing_through_that_is_a_command_or_a_disguise)
{
    ESCAPES("plain \xc3\xa4 \xe6\xbc\xa2", "plain \xc3\xa4 \xe6\xbc\xa2");
    ESCAPES("\033]0;owned\a", "\\x1b]0;owned\\x07");
    ESCAPES("a\nb\r\tc\0d", "a\\x0ab\\x0d\\x09c\\x00d");
    ESCAPES("\x7f\xc2\x9b"
            "31m",
            "\\x7f\\x9b31m");
    ESCAPES("a\xff\xc3", "a\\xff\\xc3");
    ESCAPES("txt.\xe2\x80\xaegpj", "txt.\\u202egpj");
    ESCAPES("\xe2\x80\x8b\xef\xbb\xbf\xf3\xa0\x81\x81", "\\u200b\\ufeff\\U000e0041");
}

Test(cli_size, is_short)
{
    char text[24];

    cli_size(-1, text);
    cr_assert_str_eq(text, "-");
    cli_size(1023, text);
    cr_assert_str_eq(text, "1023 B");
    cli_size(1536, text);
    cr_assert_str_eq(text, "1.5 KiB");
    cli_size(INT64_C(250) << 20, text);
    cr_assert_str_eq(text, "250 MiB");
    cli_size(INT64_MAX, text);
    cr_assert_str_eq(text, "8192 PiB");
}

/* -- events -- */

static void told(struct cli_stream *stream, const char *text, size_t size, const char *expected)
{
    auto_buf struct buf out = BUF_INIT(4096);
    struct error err = ERROR_INIT;
    int whole;

    while ((whole = cli_stream_next(stream, &text, &size, &err)) > 0)
        cr_assert_eq(buf_append_format(&out, &err, "[%s|%s|%s]", stream->event, stream->id, buf_str(&stream->data)), 0);
    cr_assert_eq(whole, 0, "%s", err.text);
    cr_assert_str_eq(buf_str(&out), expected);
}

Test(cli_stream, is_the_same_in_one_piece_and_byte_by_byte)
{
    static const char text[] = "retry: 2000\n\n: ping\n\nid: 1-0\nevent: stdout\ndata: {\"a\":1}\n\ndata:x\r\ndata: "
                               "y\r\n\r\nid: 2\n\nevent: a\ndata: z\n\n";
    auto_cleanup(cli_stream_done) struct cli_stream whole = CLI_STREAM_INIT;
    auto_cleanup(cli_stream_done) struct cli_stream pieces = CLI_STREAM_INIT;
    auto_buf struct buf out = BUF_INIT(4096);
    struct error err = ERROR_INIT;

    told(&whole, text, sizeof text - 1, "[stdout|1-0|{\"a\":1}][message|1-0|x\ny][a|2|z]");
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        const char *at = text + i;
        size_t size = 1;

        while (cli_stream_next(&pieces, &at, &size, &err) > 0)
            cr_assert_eq(buf_append_format(&out, &err, "[%s|%s|%s]", pieces.event, pieces.id, buf_str(&pieces.data)),
                         0);
    }
    cr_assert_str_eq(buf_str(&out), "[stdout|1-0|{\"a\":1}][message|1-0|x\ny][a|2|z]");
}

Test(cli_stream, forgets_half_an_event_with_its_connection)
{
    auto_cleanup(cli_stream_done) struct cli_stream stream = CLI_STREAM_INIT;

    told(&stream, "id: 7\ndata: half", 16, "");
    cli_stream_reset(&stream);
    told(&stream, "data: whole\n\n", 13, "[message|7|whole]");
}

/* -- targets and statuses -- */

Test(cli_target, escapes_what_is_put_in)
{
    auto_free char *target = cli_target("/sessions/%s/content?path=%s", "a.b", "x y/\xff&?#%");

    cr_assert_str_eq(target, "/sessions/a.b/content?path=x%20y%2F%FF%26%3F%23%25");
}

Test(cli_refused, says_the_detail_and_keeps_the_code)
{
    const struct cli cli = {.url = "http://b", .token = "t"};
    const struct cli bare = {.url = "http://b"};
    struct error err = ERROR_INIT;

    cr_assert_eq(cli_refused(&cli, 409, "{\"detail\": \"Session exists: a\"}", &err), -1);
    cr_assert_str_eq(err.text, "Session exists: a");
    cr_assert_eq(cli_status_of(&cli, &err), CLI_CONFLICT);
    (void)cli_refused(&cli, 422, "{\"detail\":[{\"loc\":[\"body\",\"limit\"],\"msg\":\"too small\"}]}", &err);
    cr_assert_str_eq(err.text, "limit: too small");
    cr_assert_eq(cli_status_of(&cli, &err), CLI_FAILED);
    (void)cli_refused(&bare, 401, "", &err);
    cr_assert_not_null(strstr(err.text, "BERTH_TOKEN_FILE"));
    cr_assert_eq(cli_status_of(&cli, &err), CLI_REFUSED);
    (void)cli_refused(&cli, 404, "{\"detail\": \"Not Found\"}", &err);
    cr_assert_not_null(strstr(err.text, "no such route"));
    cr_assert_eq(cli_status_of(&cli, &err), CLI_NOT_FOUND);
    (void)cli_refused(&cli, 500, "<html>", &err);
    cr_assert_str_eq(err.text, "http://b answered 500");
}

static void exits(const char *view, int status)
{
    auto_json struct json_object *object = json_tokener_parse(view);

    cr_assert_not_null(object);
    cr_assert_eq(cli_run_status(object), status, "%s", view);
}

Test(cli_run_status, is_the_commands_own)
{
    exits("{\"exit_code\": 0}", 0);
    exits("{\"exit_code\": 77, \"signal\": null}", 77);
    exits("{\"exit_code\": null, \"signal\": 9}", 137);
    exits("{\"exit_code\": null, \"signal\": 15, \"timed_out\": true}", 124);
    exits("{\"lost\": true, \"exit_code\": null}", 125);
}

/* -- pages -- */

Test(cli_page, names_every_verb_and_option)
{
    static const char *const names[] = {"man", "bash", "zsh"};

    for (size_t i = 0; i < 3; i++) {
        auto_buf struct buf page = BUF_INIT(1024 * 1024);
        struct error err = ERROR_INIT;

        cr_assert_eq(cli_page(names[i], &page, &err), 0);
        for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
            cr_assert_not_null(strstr(buf_str(&page), verb->name), "%s %s", names[i], verb->name);
            for (const struct cli_option *option = verb->options; option->name && i > 0; option++)
                cr_assert_not_null(strstr(buf_str(&page), option->name), "%s %s", names[i], option->name);
        }
    }
}
