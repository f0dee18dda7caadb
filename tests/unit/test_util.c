#include "base64.h"
#include "buf.h"
#include "clock.h"
#include "crc32c.h"
#include "error.h"
#include "id.h"
#include "map.h"
#include "utf8.h"
#include "waitq.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

Test(error, keeps_the_code_and_adds_a_fact_in_front)
{
    struct error err = ERROR_INIT;

    cr_assert_eq(fail(&err, NOT_FOUND, "no file %d", 7), -1);
    cr_assert_eq(error_prefix(&err, "reading"), -1);
    cr_assert_eq(err.code, ERROR_NOT_FOUND);
    cr_assert_str_eq(err.text, "reading: no file 7");
    cr_assert_eq(error_http_status(err.code), 404);
}

Test(error, hides_the_text_of_private_codes)
{
    struct error err = ERROR_INIT;

    (void)fail(&err, INTERNAL, "secret path /x");
    cr_assert_str_eq(error_public_text(&err), "Internal Server Error");
}

Test(error, makes_the_code_of_errno)
{
    struct error err = ERROR_INIT;

    errno = ENOSPC;
    (void)fail_errno(&err, "write");
    cr_assert_eq(err.code, ERROR_NO_SPACE);
    cr_assert_eq(err.sys_errno, ENOSPC);
}

Test(buf, refuses_the_byte_over_its_maximum)
{
    auto_buf struct buf buf = BUF_INIT(10);
    struct error err = ERROR_INIT;

    cr_assert_eq(buf_append(&buf, "0123456789", 10, &err), 0);
    cr_assert_eq(buf_append(&buf, "x", 1, &err), -1);
    cr_assert_eq(err.code, ERROR_TOO_LARGE);
    cr_assert_str_eq(buf_str(&buf), "0123456789");
    buf_consume(&buf, 4);
    cr_assert_str_eq(buf_str(&buf), "456789");
}

Test(buf, is_an_empty_text_although_room_was_reserved_and_nothing_came)
{
    auto_buf struct buf buf = BUF_INIT(100000);
    struct error err = ERROR_INIT;
    char *space;

    cr_assert_eq(buf_reserve(&buf, 70000, &space, &err), 0);
    cr_assert_str_eq(buf_str(&buf), "");
    memset(space, 'x', 70000);
    cr_assert_eq(buf_append(&buf, "", 0, &err), 0);
    cr_assert_str_eq(buf_str(&buf), "");
}

Test(crc32c, gives_the_check_value_of_the_rfc)
{
    char text[1000];

    cr_assert_eq(crc32c(0, "123456789", 9), 0xe3069283U);
    memset(text, 0, sizeof text);
    cr_assert_eq(crc32c(0, text, 32), 0x8a9136aaU);
    cr_assert_eq(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283U);
}

Test(base64, round_trips_every_length_and_refuses_what_is_not_strict)
{
    static const char *const bad[] = {"QQ", "QQ=", "QQ=A", "Q===", "QR==", "Q Q=", "QQ==\n", "====", "QQ==QQ=="};
    unsigned char data[256];

    for (int i = 0; i < 256; i++)
        data[i] = (unsigned char)i;
    for (size_t size = 0; size < 256; size++) {
        auto_buf struct buf text = BUF_INIT(1000);
        auto_buf struct buf back = BUF_INIT(1000);
        struct error err = ERROR_INIT;

        cr_assert_eq(base64_encode(data, size, &text, &err), 0);
        cr_assert_eq(base64_decode(buf_str(&text), text.size, &back, &err), 0);
        cr_assert_eq(back.size, size);
        cr_assert(memcmp(buf_str(&back), data, size) == 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_buf struct buf back = BUF_INIT(1000);
        struct error err = ERROR_INIT;

        cr_assert_eq(base64_decode(bad[i], strlen(bad[i]), &back, &err), -1, "%s", bad[i]);
    }
}

Test(utf8, replaces_each_maximal_bad_subpart_once)
{
    auto_buf struct buf out = BUF_INIT(100);
    struct error err = ERROR_INIT;

    cr_assert_eq(utf8_append_lossy(&out, "A\xff\xe2\x82\x41\xf0\x9f\x98", 8, &err), 0);
    cr_assert_str_eq(buf_str(&out), "A\xef\xbf\xbd\xef\xbf\xbd"
                                    "A\xef\xbf\xbd");
    cr_assert(utf8_valid("\xef\xbf\xbd", 3));
    cr_assert_not(utf8_valid("\xed\xa0\x80", 3));
    cr_assert_not(utf8_valid("\xc0\x80", 2));
    cr_assert_not(utf8_valid("\xf4\x90\x80\x80", 4));
}

Test(id, takes_the_wire_patterns_to_the_letter)
{
    cr_assert(id_name_valid("a", 1));
    cr_assert(id_name_valid("a..b", 4));
    cr_assert_not(id_name_valid("", 0));
    cr_assert_not(id_name_valid("..", 2));
    cr_assert_not(id_name_valid("a\n", 2));
    cr_assert_not(id_name_valid("a/b", 3));
    cr_assert_not(id_name_valid("a\0b", 3));
    cr_assert(id_run_valid("0123456789abcdef0123456789abcdef", 32));
    cr_assert_not(id_run_valid("0123456789ABCDEF0123456789abcdef", 32));
}

Test(map, finds_ten_thousand_keys_and_forgets_the_removed)
{
    struct map map = MAP_INIT;
    char key[16];

    for (long i = 0; i < 10000; i++) {
        (void)snprintf(key, sizeof key, "k%ld", i);
        cr_assert_null(map_put(&map, key, (void *)(i + 1)));
    }
    for (long i = 0; i < 10000; i += 2) {
        (void)snprintf(key, sizeof key, "k%ld", i);
        cr_assert_eq(map_remove(&map, key), (void *)(i + 1));
    }
    cr_assert_eq(map.count, 5000);
    cr_assert_null(map_get(&map, "k0"));
    cr_assert_eq(map_get(&map, "k1"), (void *)2);
    map_done(&map);
}

Test(cancel, sees_a_client_that_hung_up_and_a_passed_deadline)
{
    int pair[2];
    struct error err = ERROR_INIT;
    struct cancel cancel = CANCEL_NEVER;

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cancel.client_fd = pair[0];
    cr_assert_eq(cancel_check(&cancel, &err), 0);
    (void)close(pair[1]);
    cr_assert_eq(cancel_check(&cancel, &err), -1);
    cr_assert_eq(err.code, ERROR_CANCELLED);
    (void)close(pair[0]);

    cancel = cancel_within(&(struct cancel)CANCEL_NEVER, 20);
    error_clear(&err);
    cr_assert_eq(cancel_poll(&cancel, NULL, 0, &err), -1);
    cr_assert_eq(err.code, ERROR_TIMEOUT);
}

static struct waitq queue = WAITQ_INIT;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static int arrived;

static void *waker(void *unused)
{
    (void)pthread_mutex_lock(&queue_lock);
    arrived = 1;
    waitq_wake_all(&queue);
    (void)pthread_mutex_unlock(&queue_lock);
    return NULL;
}

Test(waitq, wakes_a_waiter_and_leaves_no_node_after_a_timeout)
{
    struct error err = ERROR_INIT;
    struct cancel cancel = cancel_within(&(struct cancel)CANCEL_NEVER, 5000);
    pthread_t thread;

    (void)pthread_mutex_lock(&queue_lock);
    cr_assert_eq(pthread_create(&thread, NULL, waker, NULL), 0);
    while (!arrived)
        cr_assert_eq(waitq_wait(&queue, &queue_lock, &cancel, &err), 0);
    cancel = cancel_within(&cancel, 1);
    cr_assert_eq(waitq_wait(&queue, &queue_lock, &cancel, &err), -1);
    cr_assert_null(queue.first);
    (void)pthread_mutex_unlock(&queue_lock);
    (void)pthread_join(thread, NULL);
}
