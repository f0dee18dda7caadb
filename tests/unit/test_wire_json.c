/* JSON written and read as the wire does it. */
#include "fake_http_reply.h"
#include "json.h"
#include "utf8.h"
#include "wire_json.h"
#include "wire_private.h"
#include "wire_read.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAD "\xef\xbf\xbd"

/* -- escaping -- */

static char *escaped(const char *text, size_t size)
{
    struct buf out = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;

    cr_assert_eq(wire_append_escaped(&out, text, size, &err), 0);
    return buf_take(&out, NULL);
}

static void expect_escaped(const char *text, size_t size, const char *expected)
{
    char *got = escaped(text, size);

    cr_expect_str_eq(got, expected);
    free(got);
}

Test(wire_json, escapes_what_json_must_and_leaves_the_rest)
{
    expect_escaped("a\"b\\c/\x7f", 7, "a\\\"b\\\\c/\x7f");
    expect_escaped("\b\f\n\r\t\0\x1f", 7, "\\b\\f\\n\\r\\t\\u0000\\u001f");
    expect_escaped("na\xc3\xafve \xe6\x97\xa5 \xf0\x9f\x90\x8d", 15, "na\xc3\xafve \xe6\x97\xa5 \xf0\x9f\x90\x8d");
    expect_escaped("", 0, "");
}

Test(wire_json, replaces_each_bad_part_as_python_does)
{
    expect_escaped("\xff\xfe"
                   "abc\xc3",
                   6, BAD BAD "abc" BAD);
    expect_escaped("\xe2\x82", 2, BAD);
    expect_escaped("\xe2\x82x", 3, BAD "x");
    expect_escaped("\xed\xa0\x80", 3, BAD BAD BAD); /* a surrogate */
    expect_escaped("\xc0\x80", 2, BAD BAD);
    expect_escaped(BAD, 3, BAD);
}

/* The same bytes by pieces of every size, into rooms of every size, must come out the same. */
Test(wire_json, pieces_do_not_change_what_comes_out)
{
    static const char text[] =
        "a\xff\xe2\x82\xac\xf0\x9f\x90\x8d\0\"\\\xc3\xf0\x9f\x90\xe2\x82z" BAD "\xed\xa0\x80\n\xf0\x9f";
    size_t size = sizeof text - 1;
    char *whole = escaped(text, size);

    for (size_t piece = 4; piece <= size; piece++) {
        for (size_t room = WIRE_ESCAPED_MAX; room < 20; room++) {
            char out[512];
            size_t written = 0;
            size_t at = 0;
            size_t held = 0; /* end of the piece that is known */

            while (at < size) {
                size_t taken;

                held = at + piece < size ? at + piece : size;
                written += wire_escape(text + at, held - at, held == size, out + written, room, &taken);
                cr_assert(taken > 0, "stands still at %zu of pieces of %zu", at, piece);
                at += taken;
            }
            out[written] = '\0';
            cr_assert_str_eq(out, whole, "pieces of %zu, room for %zu", piece, room);
        }
    }
    free(whole);
}

/* -- values -- */

static char *written(void (*put)(struct wire_writer *writer))
{
    struct buf out = BUF_INIT(4096);
    struct wire_writer writer = WIRE_WRITER(&out);
    struct error err = ERROR_INIT;

    put(&writer);
    cr_assert_eq(wire_writer_end(&writer, &err), 0);
    return buf_take(&out, NULL);
}

static void put_everything(struct wire_writer *writer)
{
    wire_put_open(writer, NULL, '{');
    wire_put_open(writer, "list", '[');
    wire_put_int(writer, NULL, -7);
    wire_put_str(writer, NULL, "[{,:");
    wire_put_str(writer, NULL, NULL);
    wire_put_close(writer, ']');
    wire_put_open(writer, "empty", '[');
    wire_put_close(writer, ']');
    wire_put_bool(writer, "yes", true);
    wire_put_size(writer, "none", -1);
    wire_put_text(writer, "k\"", "a\0b", 3);
    wire_put_close(writer, '}');
}

Test(wire_json, writes_compact_json_with_commas_where_they_belong)
{
    char *got = written(put_everything);

    cr_expect_str_eq(got,
                     "{\"list\":[-7,\"[{,:\",null],\"empty\":[],\"yes\":true,\"none\":null,\"k\\\"\":\"a\\u0000b\"}");
    free(got);
}

static void put_numbers(struct wire_writer *writer)
{
    wire_put_open(writer, NULL, '[');
    wire_put_float(writer, NULL, 2);
    wire_put_float(writer, NULL, 1.5);
    wire_put_float(writer, NULL, 0.1);
    wire_put_float(writer, NULL, 1.0 / 3);
    wire_put_float(writer, NULL, 1e22);
    wire_put_seconds(writer, NULL, 1700000000000345);
    wire_put_seconds(writer, NULL, 0);
    wire_put_milliseconds(writer, NULL, 1049);
    wire_put_milliseconds(writer, NULL, 1050);
    wire_put_close(writer, ']');
}

Test(wire_json, numbers_keep_their_type_and_value)
{
    char *got = written(put_numbers);

    cr_expect_str_eq(got, "[2.0,1.5,0.1,0.3333333333333333,1e+22,1700000000.000345,0.000000,1.0,1.1]");
    free(got);
}

static void put_times(struct wire_writer *writer)
{
    wire_put_open(writer, NULL, '[');
    wire_put_time(writer, NULL, 0);
    wire_put_time(writer, NULL, 1700000000000345);
    wire_put_time(writer, NULL, -1);
    wire_put_time(writer, NULL, INT64_MAX);
    wire_put_close(writer, ']');
}

Test(wire_json, times_are_iso_with_microseconds_when_there_are_any)
{
    char *got = written(put_times);

    cr_expect_str_eq(got, "[\"1970-01-01T00:00:00+00:00\",\"2023-11-14T22:13:20.000345+00:00\","
                          "\"1969-12-31T23:59:59.999999+00:00\",null]");
    free(got);
}

Test(wire_json, an_answer_over_its_maximum_fails_once_at_the_end)
{
    auto_buf struct buf out = BUF_INIT(16);
    struct wire_writer writer = WIRE_WRITER(&out);
    struct error err = ERROR_INIT;

    wire_put_open(&writer, NULL, '[');
    for (int i = 0; i < 100; i++)
        wire_put_str(&writer, NULL, "word");
    wire_put_close(&writer, ']');
    cr_expect_eq(wire_writer_end(&writer, &err), -1);
    cr_expect_eq(err.code, ERROR_TOO_LARGE);
}

/* -- fields -- */

struct read {
    struct json_object *object;
    struct wire_invalid invalid;
    struct wire_reader reader;
};

static void read_begin(struct read *read, const char *text)
{
    struct error err = ERROR_INIT;

    *read = (struct read){.invalid = WIRE_INVALID_INIT};
    cr_assert_eq(json_parse_lax(text, strlen(text), &read->object, NULL, &err), 0, "%s: %s", text, err.text);
    read->reader = (struct wire_reader){.object = read->object, .invalid = &read->invalid};
}

static void read_end(struct read *read)
{
    json_object_put(read->object);
    wire_invalid_done(&read->invalid);
}

/* The value of {"f": <text>} as an integer, or the type of its refusal. */
static void expect_int(const char *text, int64_t expected, const char *refusal)
{
    struct read read;
    char json[256];
    char wanted[128];
    int64_t value = -99;

    (void)snprintf(json, sizeof json, "{\"f\":%s}", text);
    read_begin(&read, json);
    if (wire_read_int(&read.reader, "f", WIRE_OPTIONAL, 0, &value)) {
        cr_expect_eq(value, expected, "%s is %lld", text, (long long)value);
        cr_expect_null(refusal, "%s was taken", text);
    } else {
        (void)snprintf(wanted, sizeof wanted, "{\"type\":\"%s\",\"loc\":[\"body\",\"f\"],", refusal ? refusal : "");
        cr_expect_not_null(refusal, "%s was refused: %s", text, buf_str(&read.invalid.items));
        cr_expect(strncmp(buf_str(&read.invalid.items), wanted, strlen(wanted)) == 0, "%s: %s", text,
                  buf_str(&read.invalid.items));
        cr_expect_eq(value, -99);
    }
    read_end(&read);
}

Test(wire_read, integers_are_taken_laxly)
{
    static const char *const fives[] = {"5",       "5.0",      "\"5\"",  "\" 5 \"", "\"+5\"",
                                        "\"5.0\"", "\"5.00\"", "\"05\"", "5e0"};

    for (size_t i = 0; i < sizeof fives / sizeof fives[0]; i++)
        expect_int(fives[i], 5, NULL);
    expect_int("true", 1, NULL);
    expect_int("false", 0, NULL);
    expect_int("\"1_000\"", 1000, NULL);
    expect_int("99999999999999999999", INT64_MAX, NULL);
    expect_int("\"99999999999999999999\"", INT64_MAX, NULL);
    expect_int("1e30", INT64_MAX, NULL);
}

Test(wire_read, what_is_no_integer_is_refused_by_its_type)
{
    static const char *const junk[] = {"\"\"",   "\"soon\"", "\"5.5\"", "\"5.\"",  "\"1__0\"",
                                       "\"_1\"", "\"1_\"",   "\"+\"",   "\"0x5\"", "\"5\\u0000\""};

    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++)
        expect_int(junk[i], 0, "int_parsing");
    expect_int("1.5", 0, "int_from_float");
    expect_int("Infinity", 0, "finite_number");
    expect_int("null", 0, "int_type");
    expect_int("[]", 0, "int_type");
    expect_int("{}", 0, "int_type");
    expect_int("-1", 0, "greater_than_equal");
    expect_int("\"-99999999999999999999\"", 0, "greater_than_equal");
}

static void expect_bool(const char *text, int expected)
{
    struct read read;
    char json[128];
    bool value = false;
    bool taken;

    (void)snprintf(json, sizeof json, "{\"f\":%s}", text);
    read_begin(&read, json);
    taken = wire_read_bool(&read.reader, "f", WIRE_OPTIONAL, &value);
    cr_expect_eq(taken ? value : -1, expected, "%s", text);
    cr_expect_eq(wire_invalid_any(&read.invalid), expected < 0, "%s", text);
    read_end(&read);
}

Test(wire_read, booleans_are_taken_laxly)
{
    static const char *const yes[] = {"true", "1", "1.0", "\"1\"", "\"t\"", "\"TRUE\"", "\"Yes\"", "\"y\"", "\"on\""};
    static const char *const no[] = {"false", "0", "0.0", "\"0\"", "\"f\"", "\"False\"", "\"no\"", "\"N\"", "\"OFF\""};
    static const char *const neither[] = {"2",    "-1",        "0.5",       "null",    "[]",
                                          "\"\"", "\" true\"", "\"maybe\"", "\"tru\"", "\"1.0\""};

    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        expect_bool(yes[i], 1);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        expect_bool(no[i], 0);
    for (size_t i = 0; i < sizeof neither / sizeof neither[0]; i++)
        expect_bool(neither[i], -1);
}

/* Negative: refused. */
static void expect_seconds(const char *text, double expected)
{
    struct read read;
    char json[512];
    double value = 0;
    bool taken;

    (void)snprintf(json, sizeof json, "{\"f\":%s}", text);
    read_begin(&read, json);
    taken = wire_read_seconds(&read.reader, "f", WIRE_NULLABLE, &value);
    value = taken ? value : -1;
    cr_expect(value == expected, "%s is %g", text, value);
    cr_expect_eq(wire_invalid_any(&read.invalid), expected < 0, "%s", text);
    read_end(&read);
}

Test(wire_read, seconds_are_above_zero_and_may_be_without_end)
{
    expect_seconds("2.5", 2.5);
    expect_seconds("3", 3);
    expect_seconds("\" 2.5 \"", 2.5);
    expect_seconds("true", 1);
    expect_seconds("1e12", 1e12);
    expect_seconds("0", -1);
    expect_seconds("-1", -1);
    expect_seconds("\"nan\"", -1);
    expect_seconds("Infinity", INFINITY);
    expect_seconds("\"inf\"", INFINITY);
    expect_seconds("-Infinity", -1);
    expect_seconds("\"0x10\"", -1);
    expect_seconds("\"soon\"", -1);
    expect_seconds("[]", -1);
}

Test(wire_read, a_number_that_is_no_deadline_is_finite)
{
    struct read read;
    double value;

    read_begin(&read, "{\"a\":1.5,\"b\":Infinity,\"c\":\"inf\"}");
    cr_expect(wire_read_positive(&read.reader, "a", WIRE_OPTIONAL, &value));
    cr_expect_not(wire_invalid_any(&read.invalid));
    cr_expect_not(wire_read_positive(&read.reader, "b", WIRE_OPTIONAL, &value));
    cr_expect_not(wire_read_positive(&read.reader, "c", WIRE_OPTIONAL, &value));
    cr_expect(wire_invalid_any(&read.invalid));
    read_end(&read);
}

Test(wire_read, null_and_absence_are_told_apart)
{
    struct read read;
    struct wire_text text = {NULL, 0};
    bool flag = true;

    read_begin(&read, "{\"n\":null}");
    cr_expect_not(wire_read_text(&read.reader, "n", WIRE_NULLABLE, &text));
    cr_expect_not(wire_read_text(&read.reader, "x", WIRE_NULLABLE, &text));
    cr_expect_not(wire_read_bool(&read.reader, "x", WIRE_OPTIONAL, &flag));
    cr_expect_not(wire_invalid_any(&read.invalid));
    cr_expect_not(wire_read_text(&read.reader, "n", WIRE_REQUIRED, &text));
    cr_expect_not(wire_read_text(&read.reader, "x", WIRE_REQUIRED, &text));
    cr_expect_not(wire_read_bool(&read.reader, "n", WIRE_OPTIONAL, &flag));
    cr_expect_str_eq(buf_str(&read.invalid.items),
                     "{\"type\":\"string_type\",\"loc\":[\"body\",\"n\"],\"msg\":\"Input should be a valid string\"},"
                     "{\"type\":\"missing\",\"loc\":[\"body\",\"x\"],\"msg\":\"Field required\"},"
                     "{\"type\":\"bool_type\",\"loc\":[\"body\",\"n\"],\"msg\":\"Input should be a valid boolean\"}");
    read_end(&read);
}

Test(wire_read, strings_take_only_strings_and_keep_a_nul)
{
    struct read read;
    struct wire_text text = {NULL, 0};

    read_begin(&read, "{\"a\":5,\"b\":\"x\\u0000y\",\"c\":\"1\",\"c\":\"2\"}");
    cr_expect_not(wire_read_text(&read.reader, "a", WIRE_REQUIRED, &text));
    cr_assert(wire_read_text(&read.reader, "b", WIRE_REQUIRED, &text));
    cr_expect_eq(text.size, 3);
    cr_expect(wire_has_nul(text));
    cr_assert(wire_read_text(&read.reader, "c", WIRE_REQUIRED, &text));
    cr_expect_str_eq(text.data, "2", "the last of a repeated key counts");
    read_end(&read);
}

Test(wire_read, query_values_are_read_as_the_body_is)
{
    auto_wire_invalid struct wire_invalid invalid = WIRE_INVALID_INIT;
    int64_t number = -9;
    bool flag = false;

    wire_query_bool(&invalid, "usage", NULL, 0, &flag);
    cr_expect_not(flag);
    wire_query_bool(&invalid, "usage", "Yes", 3, &flag);
    cr_expect(flag);
    wire_query_int(&invalid, "after", "99999999999999999999", 20, 0, &number);
    cr_expect_eq(number, INT64_MAX);
    cr_expect_not(wire_invalid_any(&invalid));
    wire_query_int(&invalid, "after", "abc", 3, 0, &number);
    wire_query_int(&invalid, "after", "-1", 2, 0, &number);
    wire_query_bool(&invalid, "purge", "", 0, &flag);
    cr_expect_str_eq(
        buf_str(&invalid.items),
        "{\"type\":\"int_parsing\",\"loc\":[\"query\",\"after\"],\"msg\":\"Input should be a valid integer, "
        "unable to parse string as an integer\"},"
        "{\"type\":\"greater_than_equal\",\"loc\":[\"query\",\"after\"],\"msg\":\"Input should be greater "
        "than or equal to 0\"},"
        "{\"type\":\"bool_parsing\",\"loc\":[\"query\",\"purge\"],\"msg\":\"Input should be a valid boolean, "
        "unable to interpret input\"}");
}

Test(wire_read, the_list_of_what_is_wrong_is_bounded_and_stays_json)
{
    auto_wire_invalid struct wire_invalid invalid = WIRE_INVALID_INIT;
    struct json_object *list = NULL;
    auto_buf struct buf text = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;

    for (int i = 0; i < 100000; i++)
        wire_invalid_add(&invalid, (struct wire_at){"body", "argv", NULL, NULL, i}, "string_type",
                         "Input should be a valid string");
    cr_expect_leq(invalid.items.size, WIRE_INVALID_MAX_BYTES);
    cr_assert_eq(buf_append_format(&text, &err, "[%s]", invalid.items.data), 0);
    cr_assert_eq(json_parse(text.data, text.size, &list, NULL, &err), 0);
    cr_expect_gt(json_object_array_length(list), 500);
    json_object_put(list);
}

Test(wire_read, a_key_too_long_to_repeat_is_refused_without_it)
{
    auto_wire_invalid struct wire_invalid invalid = WIRE_INVALID_INIT;
    auto_free char *key = calloc(1, 100001);

    memset(key, 'k', 100000);
    wire_invalid_add(&invalid, (struct wire_at){"body", "env", key, NULL, -1}, "string_type", "m");
    cr_expect_str_eq(buf_str(&invalid.items), "{\"type\":\"string_type\",\"loc\":[\"body\",\"env\"],\"msg\":\"m\"}");
}

/* -- events -- */

Test(wire_quote, argv_is_quoted_as_a_shell_reads_it)
{
    const char *const argv[] = {"sh", "-c", "echo hi", "", "it's", "a/b=c@d:e,f+%", "\xc3\xa9", "$X"};
    char out[WIRE_TARGET_BYTES];

    wire_quote_argv(argv, sizeof argv / sizeof argv[0], out);
    cr_expect_str_eq(out, "sh -c 'echo hi' '' 'it'\"'\"'s' a/b=c@d:e,f+% '\xc3\xa9' '$X'");
}

Test(wire_quote, a_long_argv_is_cut_in_whole_characters_behind_what_an_event_keeps)
{
    auto_free char *text = calloc(1, 40001);
    const char *argv[] = {"true", text};
    char out[WIRE_TARGET_BYTES];

    for (int i = 0; i < 10000; i++)
        memcpy(text + 4 * i, "\xf0\x9f\x90\x8d", 4);
    wire_quote_argv(argv, 2, out);
    cr_expect(utf8_valid(out, strlen(out)));
    cr_expect_gt(utf8_count(out, strlen(out)), 200);
    cr_expect_gt(wire_quote_text(text, 40000, out), 800);
    cr_expect(utf8_valid(out, strlen(out)));
}

Test(wire_quote, a_nul_in_a_target_shows)
{
    char out[WIRE_TARGET_BYTES];

    cr_expect_eq(wire_quote_text("a\0b\0", 4, out), 8);
    cr_expect_str_eq(out, "a" BAD "b" BAD);
}

/* -- output -- */

static void fill(struct spool *spool, const char *text, size_t size, size_t times)
{
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < times; i++)
        cr_assert_eq(spool_append(spool, "/tmp", text, size, &err), 0);
}

static char *answered(struct spool *first, struct spool *second, bool expect_stream)
{
    struct wire_output outputs[] = {{"{\"a\":\"", first}, {"\",\"b\":\"", second}};
    struct http_reply reply = FAKE_REPLY_INIT;
    struct error err = ERROR_INIT;

    cr_assert_eq(wire_reply_output(&reply, outputs, 2, "\",\"c\":1}", &err), 0);
    cr_expect_eq(reply.streamed, expect_stream);
    spool_done(first);
    spool_done(second);
    return buf_take(&reply.body, NULL);
}

Test(wire_output, small_output_is_one_piece)
{
    struct spool out = SPOOL_INIT;
    struct spool error = SPOOL_INIT;
    char *got;

    fill(&out, "x\n\xff", 3, 2);
    got = answered(&out, &error, false);
    cr_expect_str_eq(got, "{\"a\":\"x\\n" BAD "x\\n" BAD "\",\"b\":\"\",\"c\":1}");
    free(got);
}

/* An odd length, so that characters lie across every border there is; one spool in memory, one in a file. */
Test(wire_output, large_output_is_streamed_without_a_scratch_at_the_borders)
{
    static const char unit[] = "\xe2\x82\xac\xf0\x9f\x90\x8d\xff\x01z"; /* 10 bytes */
    static const char unit_out[] = "\xe2\x82\xac\xf0\x9f\x90\x8d" BAD "\\u0001z";
    const size_t times[] = {40000, 20000};
    const size_t rooms[] = {7, 100, 4096, 65536};

    for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++) {
        struct spool out = SPOOL_INIT;
        struct spool error = SPOOL_INIT;
        const char *at;
        char *got;

        fake_reply_piece = rooms[r];
        fill(&out, "\xc3", 1, 1);
        fill(&out, unit, 10, times[0]);
        fill(&error, unit, 10, times[1]);
        fill(&error, "\xe2\x82", 2, 1);
        cr_assert_geq(out.fd, 0);
        cr_assert_lt(error.fd, 0);
        got = answered(&out, &error, true);
        at = got;
        cr_assert_eq(strncmp(at, "{\"a\":\"" BAD, 9), 0);
        at += 9;
        for (size_t i = 0; i < times[0]; i++, at += sizeof unit_out - 1)
            cr_assert_eq(strncmp(at, unit_out, sizeof unit_out - 1), 0, "first output, unit %zu, room %zu", i,
                         rooms[r]);
        cr_assert_eq(strncmp(at, "\",\"b\":\"", 7), 0);
        at += 7;
        for (size_t i = 0; i < times[1]; i++, at += sizeof unit_out - 1)
            cr_assert_eq(strncmp(at, unit_out, sizeof unit_out - 1), 0, "second output, unit %zu", i);
        cr_expect_str_eq(at, BAD "\",\"c\":1}");
        free(got);
    }
}

Test(wire_output, a_stopped_ones_cut_is_kept)
{
    struct spool out = SPOOL_INIT;
    struct spool error = SPOOL_INIT;
    char *got;

    fill(&out, "0123456789", 10, 50000);
    spool_cut(&out, 5);
    got = answered(&out, &error, true); /* it lies in a file */
    cr_expect_str_eq(got, "{\"a\":\"01234\",\"b\":\"\",\"c\":1}");
    free(got);
}

Test(wire_output, a_command_that_never_ran_says_why)
{
    struct run_exit exit = {.spawn_failed = true, .spawn_errno = ENOENT};
    auto_spool struct spool spool = SPOOL_INIT;
    struct error err = ERROR_INIT;

    cr_assert_eq(wire_explain_spawn(&exit, "nosuch", &spool, &err), 0);
    cr_expect_str_eq(buf_str(&spool.memory), "sh: 1: nosuch: not found\n");
    cr_expect_eq(spool.size, spool.memory.size);
}
