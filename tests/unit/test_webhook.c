/* What is sent to the operator's receiver, byte by byte. Delivering itself: tests/http/test_webhooks.py. */
#include "webhook_private.h"

#include <criterion/criterion.h>
#include <string.h>

/* The example of the Standard Webhooks libraries. */
Test(webhook, signs_as_standard_webhooks_do)
{
    struct webhook_key keys[WEBHOOK_SECRETS_MAX];
    auto_buf struct buf body = BUF_INIT(1024);
    auto_buf struct buf out = BUF_INIT(1024);
    struct error err = ERROR_INIT;
    size_t count;

    cr_assert_eq(webhook_keys_parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", keys, &count, &err), 0);
    cr_assert_eq(count, 1);
    cr_assert_eq(buf_append_str(&body, "{\"test\": 2432232314}", &err), 0);
    cr_assert_eq(webhook_sign(keys, count, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, &body, &out, &err), 0);
    cr_assert_str_eq(buf_str(&out), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

Test(webhook, signs_with_both_secrets_while_one_replaces_the_other)
{
    struct webhook_key keys[WEBHOOK_SECRETS_MAX];
    auto_buf struct buf body = BUF_INIT(16);
    auto_buf struct buf out = BUF_INIT(1024);
    struct error err = ERROR_INIT;
    size_t count;

    cr_assert_eq(webhook_keys_parse(" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw  0123456789abcdef ", keys, &count, &err),
                 0);
    cr_assert_eq(count, 2);
    cr_assert_eq(keys[1].size, 16);
    cr_assert(strcmp(keys[0].id, keys[1].id) != 0);
    cr_assert_eq(webhook_sign(keys, count, "a", 1, &body, &out, &err), 0);
    cr_assert_eq(out.size, 2 * 47 + 1);
    cr_assert_eq(out.data[47], ' ');
}

Test(webhook, refuses_secrets_and_addresses_without_repeating_them)
{
    static const char *const secrets[] = {"",
                                          "  ",
                                          "short",
                                          "whsec_short",
                                          "whsec_not*base64*not*base64*",
                                          "0123456789abcdef 0123456789abcdeg 0123456789abcdeh"};
    static const char *const urls[] = {"",
                                       "ftp://host/",
                                       "http://",
                                       "https:///path",
                                       "http://me:secret@host/",
                                       "http://ho st/",
                                       "file:///etc/passwd",
                                       "HTTP://host",
                                       "http://h\n"};
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        error_clear(&err);
        cr_assert_eq(webhook_secret_check(secrets[i], &err), -1, "%s", secrets[i]);
        cr_assert(strlen(secrets[i]) < 5 || !strstr(err.text, secrets[i]));
    }
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        error_clear(&err);
        cr_assert_eq(webhook_url_check(urls[i], &err), -1, "%s", urls[i]);
        cr_assert_null(strstr(err.text, "secret@"));
    }
    cr_assert_eq(webhook_url_check("https://host:8443/path?query=1", &err), 0);
}

Test(webhook, writes_an_event_as_json_whatever_is_in_it)
{
    struct store_feed_event event = {
        .seq = 7, .at_unix_us = 1700000000000042, .op = "refused", .session = "s-1", .tenant = ""};
    auto_buf struct buf out = BUF_INIT(4096);
    struct error err = ERROR_INIT;

    (void)snprintf(event.detail, sizeof event.detail, "a\"b\\c\n\xff\xc3\xa9");
    cr_assert_eq(webhook_body(&event, &out, &err), 0);
    cr_assert_str_eq(buf_str(&out),
                     "{\"type\":\"berth.refused\",\"timestamp\":\"2023-11-14T22:13:20.000042Z\",\"data\":{\"seq\":7,"
                     "\"op\":\"refused\",\"session\":\"s-1\",\"tenant\":\"\",\"detail\":"
                     "\"a\\\"b\\\\c\\u000a\xef\xbf\xbd\xc3\xa9\"}}");
}
