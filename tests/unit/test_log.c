#include "log.h"

#include "buf.h"
#include "fd.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

/* Everything `write_lines` puts on standard error. Caller frees. */
static char *logged(void (*write_lines)(void))
{
    auto_buf struct buf out = BUF_INIT(1024 * 1024);
    auto_close int file = memfd_create("log", MFD_CLOEXEC);
    auto_close int saved = dup(STDERR_FILENO);
    struct error err = ERROR_INIT;

    cr_assert(file >= 0 && saved >= 0);
    cr_assert(dup2(file, STDERR_FILENO) >= 0);
    write_lines();
    cr_assert(dup2(saved, STDERR_FILENO) >= 0);
    cr_assert_eq(lseek(file, 0, SEEK_SET), 0);
    cr_assert_eq(fd_read_all(file, &out, &err), 0);
    return buf_take(&out, NULL);
}

static size_t count_lines(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void plain(void)
{
    log_info("session.opened", log_s("session", "s-1"), log_i("ms", 12), log_s("none", NULL), log_s("empty", ""));
}

Test(log, writes_one_logfmt_line)
{
    auto_free char *text = logged(plain);

    cr_assert_eq(count_lines(text), 1);
    cr_assert_eq(strncmp(text, "time=2", 6), 0);
    cr_assert_not_null(strstr(text, "Z level=info event=session.opened session=s-1 ms=12 none=- empty=\"\"\n"), "%s",
                       text);
}

static void forged(void)
{
    log_warn("x", log_s("path", "a\nlevel=error event=\"forged\"\r\x1b[31m\x7f\\"));
}

Test(log, never_makes_a_second_line_of_a_value)
{
    auto_free char *text = logged(forged);

    cr_assert_eq(count_lines(text), 1, "%s", text);
    cr_assert_not_null(strstr(text, "path=\"a\\x0alevel=error event=\\\"forged\\\"\\x0d\\x1b[31m\\x7f\\\\\"\n"), "%s",
                       text);
}

static void long_values(void)
{
    static char value[20000];

    memset(value, '\n', sizeof value - 1);
    log_info("x", log_s("a", value), log_s("b", value), log_s("c", value));
}

Test(log, cuts_long_values_and_stays_one_line)
{
    auto_free char *text = logged(long_values);

    cr_assert_eq(count_lines(text), 1);
    cr_assert_eq(text[strlen(text) - 1], '\n');
    cr_assert_leq(strlen(text), 8192);
}

static void with_request(void)
{
    log_begin("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-and-more", "");
    log_info("x");
    log_begin("", "");
    log_info("y");
}

Test(log, names_the_request_of_the_thread)
{
    auto_free char *text = logged(with_request);

    cr_assert_not_null(
        strstr(text, "event=x request=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"), "%s", text);
    cr_assert_not_null(strstr(text, "event=y\n"), "%s", text);
}

static void below_level(void)
{
    log_debug("not.seen");
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("not.seen");
    log_error("seen");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("seen.too");
}

Test(log, keeps_quiet_below_the_level)
{
    auto_free char *text = logged(below_level);

    cr_assert_eq(count_lines(text), 2, "%s", text);
    cr_assert_null(strstr(text, "not.seen"));
}

static void failure(void)
{
    struct error err = ERROR_INIT;

    (void)fail(&err, ENGINE, "no such image: \"x\"");
    log_error("open.failed", log_e(&err));
}

Test(log, quotes_the_text_of_an_error)
{
    auto_free char *text = logged(failure);

    cr_assert_not_null(strstr(text, "error=\"no such image: \\\"x\\\"\""), "%s", text);
}

static void as_json(void)
{
    struct error err = ERROR_INIT;

    log_set_format(LOG_JSON);
    log_begin("request-1", "0af7651916cd43dd8448eb211c80319c");
    log_set_session("s-1", "acme");
    log_warn("x", log_s("path", "a\n\"b\\\x1b\xff\xc3\xa9"), log_i("ms", -3));
    log_info("y", log_s("session", "other"), log_e(&err));
    log_begin("", "");
    log_info("z", log_s("empty", ""));
    log_set_format(LOG_LOGFMT);
}

Test(log, writes_json_with_whom_the_thread_works_for)
{
    auto_free char *text = logged(as_json);
    static const char first[] = "Z\",\"level\":\"warn\",\"event\":\"x\",\"request\":\"request-1\",\"trace\":"
                                "\"0af7651916cd43dd8448eb211c80319c\","
                                "\"session\":\"s-1\",\"tenant\":\"acme\",\"path\":"
                                "\"a\\u000a\\\"b\\\\\\u001b\xef\xbf\xbd\xc3\xa9\",\"ms\":-3}\n";

    cr_assert_eq(count_lines(text), 3);
    cr_assert_eq(strncmp(text, "{\"time\":\"2", 10), 0);
    cr_assert_not_null(strstr(text, first), "%s", text);
    cr_assert_not_null(strstr(text, "319c\",\"session\":\"other\",\"error\":"), "%s", text);
    cr_assert_not_null(strstr(text, "\"event\":\"z\",\"empty\":\"\"}\n"), "%s", text);
}

static void much(void)
{
    static char big[5000];

    memset(big, '"', sizeof big - 1);
    log_set_format(LOG_JSON);
    log_info("much", log_s("a", big), log_s("b", big), log_s("c", big), log_s("d", big), log_s("e", big),
             log_s("f", big));
    log_set_format(LOG_LOGFMT);
}

Test(log, a_line_that_is_too_long_is_still_a_whole_object)
{
    auto_free char *text = logged(much);
    size_t size = strlen(text);

    cr_assert_eq(count_lines(text), 1);
    cr_assert_leq(size, 8192);
    cr_assert_str_eq(text + size - 3, "\"}\n");
}
