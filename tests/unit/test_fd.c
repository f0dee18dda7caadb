#include "fd.h"

#include "clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int file_with(const char *text, size_t size)
{
    struct error err = ERROR_INIT;
    int fd = memfd_create("file", MFD_CLOEXEC);

    cr_assert(fd >= 0);
    cr_assert_eq(fd_write_all(fd, text, size, &err), 0);
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

Test(fd, reads_a_file_of_exactly_the_maximum_and_refuses_one_byte_more)
{
    auto_close int fits = file_with("12345", 5);
    auto_close int too_long = file_with("123456", 6);
    auto_buf struct buf text = BUF_INIT(5);
    auto_buf struct buf more = BUF_INIT(5);
    struct error err = ERROR_INIT;

    cr_assert_eq(fd_read_all(fits, &text, &err), 0);
    cr_assert_str_eq(buf_str(&text), "12345");
    cr_assert_eq(fd_read_all(too_long, &more, &err), -1);
    cr_assert_eq(err.code, ERROR_TOO_LARGE);
}

Test(fd, reads_an_empty_file_as_an_empty_text)
{
    auto_close int fd = file_with("", 0);
    auto_buf struct buf text = BUF_INIT(100000);
    struct error err = ERROR_INIT;
    auto_free char *taken = NULL;

    cr_assert_eq(fd_read_all(fd, &text, &err), 0);
    taken = buf_take(&text, NULL);
    cr_assert_str_eq(taken, "");
}

Test(fd, reads_a_file_of_many_pieces_to_its_end)
{
    static char content[200000];
    auto_buf struct buf text = BUF_INIT(1000000);
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i % 251);
    auto_close int fd = file_with(content, sizeof content);
    cr_assert_eq(fd_read_all(fd, &text, &err), 0);
    cr_assert_eq(text.size, sizeof content);
    cr_assert(memcmp(buf_str(&text), content, sizeof content) == 0);
}

Test(fd, reads_short_only_at_the_end_of_file)
{
    auto_close int fd = file_with("0123456789", 10);
    struct error err = ERROR_INIT;
    char data[8] = "";

    cr_assert_eq(fd_pread_full(fd, data, 4, 3, &err), 4);
    cr_assert(memcmp(data, "3456", 4) == 0);
    cr_assert_eq(fd_pread_full(fd, data, 8, 7, &err), 3);
    cr_assert_eq(fd_pread_full(fd, data, 8, 10, &err), 0);
}

Test(fd, tells_why_it_cannot_write_or_read)
{
    auto_close int read_only = open("/dev/null", O_RDONLY | O_CLOEXEC);
    auto_close int write_only = open("/dev/null", O_WRONLY | O_CLOEXEC);
    auto_buf struct buf text = BUF_INIT(10);
    struct error err = ERROR_INIT;
    char byte;

    cr_assert_eq(fd_write_all(read_only, "x", 1, &err), -1);
    cr_assert_eq(err.sys_errno, EBADF);
    cr_assert_eq(fd_read_all(write_only, &text, &err), -1);
    cr_assert_eq(err.sys_errno, EBADF);
    cr_assert_eq(fd_pread_full(write_only, &byte, 1, 0, &err), -1);
    cr_assert_eq(fd_set_nonblocking(-1, &err), -1);
}

Test(fd, makes_a_descriptor_nonblocking_and_keeps_its_other_flags)
{
    int ends[2];
    struct error err = ERROR_INIT;
    char byte;

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(fd_set_nonblocking(ends[0], &err), 0);
    cr_assert_eq(read(ends[0], &byte, 1), -1);
    cr_assert_eq(errno, EAGAIN);
    cr_assert_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* An mtime of its own for each, so that the change is seen within one tick of the file system. */
static void write_offset(const char *path, const char *text, long mtime)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct timespec times[2] = {{.tv_sec = mtime}, {.tv_sec = mtime}};
    struct error err = ERROR_INIT;

    cr_assert_eq(fd_write_all(fd, text, strlen(text), &err), 0);
    cr_assert_eq(futimens(fd, times), 0);
}

static bool is_shifted_by(int64_t offset_ms)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return llabs(clock_unix_ms() - offset_ms - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000)) < 5000;
}

Test(clock, shifts_the_wall_clock_by_the_file_and_sees_it_change)
{
    char path[] = "/tmp/berth-test-clock-XXXXXX";
    int64_t mono_ms = clock_mono_ms();
    int fd = mkstemp(path);

    cr_assert(fd >= 0);
    (void)close(fd);
    cr_assert(is_shifted_by(0));
    cr_assert_eq(setenv("BERTH_TEST_CLOCK", path, 1), 0);
    write_offset(path, "3600000\n", 1000);
    cr_assert(is_shifted_by(3600000));
    write_offset(path, "86400000\n", 2000);
    cr_assert(is_shifted_by(86400000));
    write_offset(path, "-60000\n", 3000);
    cr_assert(is_shifted_by(-60000));
    write_offset(path, "nonsense\n", 4000); /* the last good one stays */
    cr_assert(is_shifted_by(-60000));
    cr_assert_eq(unlink(path), 0);
    cr_assert(is_shifted_by(-60000));
    cr_assert_lt(clock_mono_ms() - mono_ms, 60000); /* the monotonic clock is nobody's to shift */
}
