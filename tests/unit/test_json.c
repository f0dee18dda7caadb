#include "json.h"

#include "alloc.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define BAD "\xef\xbf\xbd"

static struct json_object *parsed(const char *text, size_t size)
{
    struct json_object *object = NULL;
    struct error err = ERROR_INIT;

    cr_assert_eq(json_parse(text, size, &object, NULL, &err), 0, "%.60s: %s", text, err.text);
    return object;
}

static void refused(const char *text, size_t size, enum error_code code)
{
    struct json_object *object = NULL;
    struct error err = ERROR_INIT;
    size_t offset = 12345;

    cr_assert_eq(json_parse(text, size, &object, &offset, &err), -1, "taken: %.60s", text);
    cr_assert_null(object);
    cr_assert_eq(err.code, code, "%.60s: %s", text, error_code_name(err.code));
    cr_assert(offset <= size, "%.60s: %zu", text, offset);
}

static void string_is(const char *text, const char *expected, size_t size)
{
    auto_json struct json_object *object = parsed(text, strlen(text));

    cr_assert(json_object_is_type(object, json_type_string), "%s", text);
    cr_assert_eq((size_t)json_object_get_string_len(object), size, "%s", text);
    cr_assert(memcmp(json_object_get_string(object), expected, size) == 0, "%s", text);
}

Test(json, takes_lone_scalars)
{
    auto_json struct json_object *five = parsed("5", 1);
    auto_json struct json_object *yes = parsed(" true\n", 6);
    auto_json struct json_object *half = parsed("0.5e0", 5);
    auto_json struct json_object *minus = parsed("-1", 2);

    cr_assert_eq(json_object_get_int64(five), 5);
    cr_assert(json_object_get_boolean(yes));
    cr_assert_eq(json_object_get_double(half), 0.5);
    cr_assert_eq(json_object_get_int64(minus), -1);
    cr_assert_null(parsed("null", 4));
}

Test(json, reads_members_and_lets_the_last_duplicate_win)
{
    static const char text[] = "{\"a\":1, \"b\":null, \"a\":2, \"\":[ ] , \"c\":{ }}";
    auto_json struct json_object *object = parsed(text, sizeof text - 1);
    struct json_object *member;

    cr_assert(json_member(object, "a", &member));
    cr_assert_eq(json_object_get_int64(member), 2);
    cr_assert(json_member(object, "b", &member));
    cr_assert_null(member);
    cr_assert_not(json_member(object, "d", &member));
}

Test(json, refuses_what_is_not_json)
{
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "TRUE",
        "tru",
        "truee",
        "nulll",
        "undefined",
        "'a'",
        "{'a':1}",
        "{a:1}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[",
        "{",
        "]",
        "[}",
        "{]",
        "[1",
        "{\"a\":1",
        "{\"a\":1]",
        "\"abc",
        "\"",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\",
        "\"\\u",
        "\"a\tb\"",
        "\"a\nb\"",
        "\"\x01\"",
        "5 5",
        "{} {}",
        "[]]",
        "null,",
        "1 //c",
        "/*c*/1",
        "1 /**/",
        "# c\n1",
        "NaN",
        "nan",
        "-NaN",
        "Infinity",
        "-Infinity",
        "inf",
        "+1",
        ".5",
        "1.",
        "1.e5",
        "-",
        "-.5",
        "01",
        "-01",
        "00",
        "0x10",
        "1e",
        "1e+",
        "1_000",
        "--1",
        "1.2.3",
        "1f",
        "\f1",
        "\v1",
        "\xef\xbb\xbf"
        "1",
        "\xc2\xa0"
        "1",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], strlen(bad[i]), ERROR_UNPROCESSABLE);
    refused("1\0", 2, ERROR_UNPROCESSABLE);
    refused("\0", 1, ERROR_UNPROCESSABLE);
    refused("\"a\0b\"", 5, ERROR_UNPROCESSABLE);
    refused("12", 0, ERROR_UNPROCESSABLE);
}

Test(json, reads_no_byte_behind_the_given_size)
{
    auto_json struct json_object *short_number = parsed("1234", 2);
    auto_json struct json_object *short_power = parsed("1e2345", 3);

    cr_assert_eq(json_object_get_int64(short_number), 12);
    cr_assert_eq(json_object_get_double(short_power), 100.0);
    refused("true", 3, ERROR_UNPROCESSABLE);
    refused("\"\\u0041\"", 6, ERROR_UNPROCESSABLE);
}

Test(json, refuses_bytes_that_are_not_utf8_as_invalid)
{
    static const char *const bad[] = {"\"\xff\"",     "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                                      "\"\xe2\x82\"", "{\"\x80\":1}"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], strlen(bad[i]), ERROR_INVALID);
}

Test(json, tells_where_it_went_wrong)
{
    struct json_object *object = NULL;
    struct error err = ERROR_INIT;
    size_t offset;

    cr_assert_eq(json_parse("{\"a\": nope}", 11, &object, &offset, &err), -1);
    cr_assert_eq(offset, 6);
    cr_assert_str_eq(err.text, "JSON decode error: an unknown word");
    cr_assert_eq(json_parse("\"ab\xff\"", 5, &object, &offset, &err), -1);
    cr_assert_eq(offset, 3);
}

Test(json, decodes_every_escape_to_valid_utf8)
{
    string_is("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    string_is("\"\\u0041\\u00e9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac", 6);
    string_is("\"\\ud83d\\uDE00\"", "\xf0\x9f\x98\x80", 4);
    string_is("\"\\uffff\"", "\xef\xbf\xbf", 3);
    string_is("\"\xf0\x9f\x98\x80\"", "\xf0\x9f\x98\x80", 4);
    string_is("\"\x7f\"", "\x7f", 1);
}

Test(json, keeps_a_nul_in_a_string_with_its_length)
{
    string_is("\"a\\u0000b\"", "a\0b", 3);
    string_is("\"\\u0000\"", "\0", 1);
}

Test(json, refuses_a_nul_in_a_name_instead_of_cutting_it)
{
    static const char *const bad[] = {"{\"a\\u0000b\":1}", "{\"\\u0000\":1}", "[{\"x\":{\"PATH\\u0000\":\"y\"}}]"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], strlen(bad[i]), ERROR_UNPROCESSABLE);
}

Test(json, refuses_half_a_surrogate_pair_instead_of_changing_it)
{
    static const char *const bad[] = {"\"\\ud800\"",        "\"\\ud800x\"",       "\"\\udc00\"",
                                      "\"\\ud800\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\\ud800\"",
                                      "{\"\\ud800\":1}",    "\"\\ud800\\n\"",     "\"\\ud800\\u12\""};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], strlen(bad[i]), ERROR_UNPROCESSABLE);
}

Test(json, lax_takes_infinity_and_mends_half_a_surrogate_pair)
{
    static const char *const taken[][2] = {{"\"\\ud800\"", BAD},
                                           {"\"\\ud800x\"", BAD "x"},
                                           {"\"\\udc00\"", BAD},
                                           {"\"\\ud800\\ud800\"", BAD BAD},
                                           {"\"\\ud800\\u0041\"", BAD "A"},
                                           {"\"\\udc00\\ud800\"", BAD BAD},
                                           {"\"\\ud83d\\udc0d\"", "\xf0\x9f\x90\x8d"}};
    static const char *const refused_still[] = {"NaN",   "Infinit",        "-", "1e400", "\"\\ud800\\u12\"",
                                                "{} {}", "{\"\\u0000\":1}"};
    struct json_object *object = NULL;
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        cr_assert_eq(json_parse_lax(taken[i][0], strlen(taken[i][0]), &object, NULL, &err), 0, "%s", taken[i][0]);
        cr_expect_str_eq(json_object_get_string(object), taken[i][1], "%s", taken[i][0]);
        json_object_put(object);
    }
    for (size_t i = 0; i < sizeof refused_still / sizeof *refused_still; i++)
        cr_expect_eq(json_parse_lax(refused_still[i], strlen(refused_still[i]), &object, NULL, &err), -1, "%s",
                     refused_still[i]);
    cr_assert_eq(json_parse_lax("[Infinity,-Infinity]", 20, &object, NULL, &err), 0);
    cr_expect(json_object_get_double(json_object_array_get_idx(object, 0)) > 1e308);
    cr_expect(json_object_get_double(json_object_array_get_idx(object, 1)) < -1e308);
    json_object_put(object);
}

static char *nested(size_t depth, const char *open, const char *close)
{
    char *text = alloc_zero(depth * (strlen(open) + strlen(close)) + 2);
    char *at = text;

    for (size_t i = 0; i < depth; i++)
        at = stpcpy(at, open);
    at = stpcpy(at, "1");
    for (size_t i = 0; i < depth; i++)
        at = stpcpy(at, close);
    return text;
}

Test(json, takes_thirty_two_levels_and_no_more)
{
    auto_free char *arrays = nested(32, "[", "]");
    auto_free char *objects = nested(32, "{\"a\":", "}");
    auto_free char *deep_arrays = nested(33, "[", "]");
    auto_free char *deep_objects = nested(33, "{\"a\":", "}");
    auto_json struct json_object *array = parsed(arrays, strlen(arrays));
    auto_json struct json_object *object = parsed(objects, strlen(objects));

    cr_assert(json_object_is_type(array, json_type_array));
    cr_assert(json_object_is_type(object, json_type_object));
    refused(deep_arrays, strlen(deep_arrays), ERROR_UNPROCESSABLE);
    refused(deep_objects, strlen(deep_objects), ERROR_UNPROCESSABLE);
}

/* What this thread has worked, however long others had the processor. */
static int64_t cpu_us(void)
{
    struct timespec spent;

    cr_assert_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent), 0);
    return (int64_t)spent.tv_sec * 1000000 + spent.tv_nsec / 1000;
}

Test(json, refuses_two_hundred_thousand_brackets_at_once)
{
    enum { COUNT = 200000 };
    auto_free char *text = alloc_zero(COUNT + 1);
    int64_t start_us;

    memset(text, '[', COUNT);
    start_us = cpu_us();
    refused(text, COUNT, ERROR_UNPROCESSABLE);
    cr_assert_lt(cpu_us() - start_us, 100000);
}

Test(json, keeps_two_megabytes_of_text_intact)
{
    enum { COUNT = 2 * 1024 * 1024 };
    auto_free char *text = alloc_zero(COUNT + 3);
    auto_json struct json_object *object = NULL;

    text[0] = text[COUNT + 1] = '"';
    for (size_t i = 0; i < COUNT; i++)
        text[i + 1] = (char)('a' + i % 26);
    object = parsed(text, COUNT + 2);
    cr_assert_eq(json_object_get_string_len(object), COUNT);
    cr_assert(memcmp(json_object_get_string(object), text + 1, COUNT) == 0);
}

Test(json, saturates_whole_numbers_and_refuses_what_no_double_holds)
{
    static const struct {
        const char *text;
        int64_t value;
    } whole[] = {
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", INT64_MAX},
        {"18446744073709551616", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"-9223372036854775809", INT64_MIN},
        {"-0", 0},
        {"123456789012345678901234567890123456789012345678901234567890", INT64_MAX},
    };
    static const char *const bad[] = {"1e400", "-1e400", "[1e999999999]", "1.5e309", "{\"a\":2E+308}"};
    auto_free char *digits = alloc_zero(1003);
    auto_json struct json_object *many = NULL;
    auto_json struct json_object *tiny = parsed("1e-400", 6);

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        auto_json struct json_object *object = parsed(whole[i].text, strlen(whole[i].text));

        cr_assert(json_object_is_type(object, json_type_int), "%s", whole[i].text);
        cr_assert_eq(json_object_get_int64(object), whole[i].value, "%s", whole[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i], strlen(bad[i]), ERROR_UNPROCESSABLE);
    memset(digits, '9', 1000);
    many = parsed(digits, 1000);
    cr_assert_eq(json_object_get_int64(many), INT64_MAX);
    cr_assert(isfinite(json_object_get_double(many)));
    memcpy(digits + 1000, ".5", 2); /* a double of it would be infinite */
    refused(digits, 1002, ERROR_UNPROCESSABLE);
    cr_assert_eq(json_object_get_double(tiny), 0.0);
}
