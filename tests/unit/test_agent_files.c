/* The agent's file applet, as it is on this host, read by the broker's reader. */
#include "alloc.h"
#include "provider_files.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[64];
static char program[4096];

struct said {
    struct file_record *records; /* bytes are copies */
    size_t count;
    int status;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    return remove(path);
}

static void setup(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN}; /* some applets do not read all they are given */
    const char *named = getenv("BERTH_AGENT_HOST");

    (void)sigaction(SIGPIPE, &ignore, NULL);
    cr_assert_not_null(realpath(named ? named : "./berth-agent-host", program));
    (void)snprintf(home, sizeof home, "/dev/shm/berth-test-files.XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    cr_assert(eq(int, chdir(home), 0));
}

static void teardown(void)
{
    if (chdir("/") == 0)
        (void)nftw(home, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

TestSuite(files, .init = setup, .fini = teardown, .timeout = 60);

static pid_t begin(int *ret_in, int *ret_out, const char *const *argv)
{
    int in[2], out[2];
    pid_t pid;

    cr_assert(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        const struct sigaction plain = {.sa_handler = SIG_DFL};

        (void)sigaction(SIGPIPE, &plain, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        (void)execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    *ret_in = in[1];
    *ret_out = out[0];
    return pid;
}

static void take_records(struct file_reader *reader, struct said *said)
{
    struct error err = ERROR_INIT;
    struct file_record record;
    int got;

    while ((got = file_reader_next(reader, &record, &err)) > 0) {
        char *copy = alloc_array(record.size + 1, 1);

        memcpy(copy, record.bytes, record.size);
        copy[record.size] = '\0';
        record.bytes = copy;
        said->records = alloc_grow(said->records, said->count + 1, sizeof *said->records);
        said->records[said->count++] = record;
    }
    cr_assert(eq(int, got, 0), "%s", err.text);
}

static struct said finish(pid_t pid, int out)
{
    struct error err = ERROR_INIT;
    struct file_reader reader;
    struct said said = {0};
    char piece[30000]; /* records come in pieces */
    ssize_t got;

    file_reader_init(&reader);
    while ((got = read(out, piece, sizeof piece)) > 0) {
        cr_assert(eq(int, file_reader_put(&reader, piece, (size_t)got, &err), 0));
        take_records(&reader, &said);
    }
    cr_assert(eq(int, waitpid(pid, &said.status, 0), pid));
    cr_assert(file_reader_over(&reader) || WIFSIGNALED(said.status) || WEXITSTATUS(said.status) == 1);
    file_reader_done(&reader);
    (void)close(out);
    return said;
}

static void said_done(struct said *said)
{
    for (size_t i = 0; i < said->count; i++)
        free((char *)(uintptr_t)said->records[i].bytes);
    free(said->records);
    *said = (struct said){0};
}
#define auto_said auto_cleanup(said_done)

static struct said applet_with(const void *input, size_t size, const char *verb, const char *a, const char *b,
                               const char *c)
{
    const char *const argv[] = {"berth-agent", "file", verb, a, b, c, NULL};
    int in, out;
    pid_t pid = begin(&in, &out, argv);

    while (size > 0) {
        ssize_t put = write(in, input, size);

        if (put <= 0)
            break;
        input = (const char *)input + put;
        size -= (size_t)put;
    }
    (void)close(in);
    return finish(pid, out);
}

static struct said applet(const char *verb, const char *a, const char *b)
{
    return applet_with("", 0, verb, a, b, NULL);
}

/* What the last record says: 0 for END, the errno of FAILED. */
static int outcome(const struct said *said)
{
    const struct file_record *last = &said->records[said->count - 1];

    cr_assert(said->count > 0);
    cr_assert(last->kind == FILE_RECORD_END || last->kind == FILE_RECORD_FAILED);
    cr_assert(eq(int, WEXITSTATUS(said->status), last->kind == FILE_RECORD_END ? 0 : 1));
    return last->sys_errno;
}

static int outcome_of(struct said said)
{
    int result = outcome(&said);

    said_done(&said);
    return result;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static void expect_file(const char *path, const char *text, unsigned mode)
{
    char got[1000] = "";
    struct stat status;
    int fd = open(path, O_RDONLY | O_NOFOLLOW);

    cr_assert(fd >= 0 && fstat(fd, &status) == 0, "%s", path);
    cr_assert(read(fd, got, sizeof got - 1) >= 0);
    (void)close(fd);
    cr_expect(eq(str, got, (char *)(uintptr_t)text));
    cr_expect(eq(u32, status.st_mode & 07777, mode));
}

/* Leftovers are hidden from the applet's own listing, so count them otherwise. */
static int entries_of(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, NULL);

    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return count - 2;
}

static const struct file_record *find(const struct said *said, const char *name)
{
    for (size_t i = 0; i < said->count; i++)
        if (said->records[i].kind == FILE_RECORD_ENTRY && strcmp(said->records[i].bytes, name) == 0)
            return &said->records[i];
    return NULL;
}

Test(files, stat_tells_the_link_and_what_it_leads_to)
{
    put_file("file", "hello");
    cr_assert(chmod("file", 0750) == 0 && symlink("file", "link") == 0 && symlink("nowhere", "dangling") == 0);
    cr_assert(symlink("loop", "loop") == 0 && mkfifo("fifo", 0600) == 0);
    {
        auto_said struct said said = applet("stat", "link", NULL);

        cr_assert(eq(int, outcome(&said), 0));
        cr_assert(eq(sz, said.count, 3));
        cr_expect(said.records[0].type == FILE_TYPE_LINK);
        cr_expect(said.records[1].type == FILE_TYPE_REGULAR && said.records[1].size_bytes == 5);
        cr_expect(eq(u32, said.records[1].mode, 0750));
    }
    {
        auto_said struct said said = applet("stat", "dangling", NULL);

        cr_assert(eq(int, outcome(&said), 0));
        cr_expect(said.records[1].kind == FILE_RECORD_SKIPPED && said.records[1].sys_errno == ENOENT);
    }
    {
        auto_said struct said said = applet("stat", "loop", NULL);

        cr_expect(said.records[1].kind == FILE_RECORD_SKIPPED && said.records[1].sys_errno == ELOOP);
    }
    {
        auto_said struct said said = applet("stat", "fifo", NULL);

        cr_expect(said.records[1].type == FILE_TYPE_OTHER);
    }
    cr_expect(eq(int, outcome_of(applet("stat", "missing", NULL)), ENOENT));
    cr_expect(eq(int, outcome_of(applet("stat", "file/below", NULL)), ENOTDIR));
    cr_expect(eq(int, outcome_of(applet("stat", "", NULL)), ENOENT));
}

Test(files, read_gives_regular_files_up_to_their_limit_and_never_waits)
{
    put_file("five", "12345");
    put_file("empty", "");
    cr_assert(mkfifo("fifo", 0600) == 0 && symlink("fifo", "to-fifo") == 0 && symlink("five", "link") == 0);
    {
        auto_said struct said said = applet("read", "link", "5");

        cr_assert(eq(int, outcome(&said), 0));
        cr_assert(eq(sz, said.count, 3));
        cr_expect(said.records[1].kind == FILE_RECORD_DATA);
        cr_expect(eq(str, (char *)(uintptr_t)said.records[1].bytes, "12345"));
    }
    {
        auto_said struct said said = applet("read", "five", "4");

        cr_expect(eq(int, outcome(&said), EFBIG));
        cr_expect(eq(i64, said.records[0].size_bytes, 5));
        cr_expect(eq(sz, said.count, 2));
    }
    {
        auto_said struct said said = applet("read", "/proc/self/status", "100000"); /* says that it has no bytes */

        cr_assert(eq(int, outcome(&said), 0));
        cr_expect(said.count > 2 && said.records[1].size > 100);
    }
    cr_expect(eq(int, outcome_of(applet("read", "/proc/self/status", "10")), EFBIG));
    cr_expect(eq(int, outcome_of(applet("read", "empty", "0")), 0));
    cr_expect(eq(int, outcome_of(applet("read", "fifo", "5")), ENXIO));
    cr_expect(eq(int, outcome_of(applet("read", "to-fifo", "5")), ENXIO));
    cr_expect(eq(int, outcome_of(applet("read", "/dev/zero", "5")), ENXIO));
    cr_expect(eq(int, outcome_of(applet("read", ".", "5")), EISDIR));
    cr_expect(eq(int, outcome_of(applet("read", "missing", "5")), ENOENT));
    cr_expect(eq(int, outcome_of(applet("read", "five", "x")), EINVAL));
}

Test(files, read_refuses_a_huge_sparse_file_at_once)
{
    auto_said struct said said = {0};
    int fd = open("huge", O_WRONLY | O_CREAT, 0600);

    cr_assert(fd >= 0 && ftruncate(fd, (off_t)1 << 42) == 0);
    (void)close(fd);
    said = applet("read", "huge", "8388608");
    cr_expect(eq(int, outcome(&said), EFBIG));
    cr_expect(eq(i64, said.records[0].size_bytes, (int64_t)1 << 42));
    said_done(&said);
    said = applet_with("", 0, "feed", ".", "", "8388608");
    cr_expect(eq(int, outcome(&said), 0));
    cr_expect(said.records[2].kind == FILE_RECORD_SKIPPED && said.records[2].sys_errno == EFBIG);
}

Test(files, list_gives_any_name_and_itself_to_a_limit)
{
    auto_said struct said said = {0};
    const struct file_record *entry;

    put_file("plain", "123");
    put_file("\xff\xfe bad \n\x01", "");
    put_file(".hidden", "");
    put_file(".berth-0123456789abcdef", "");
    cr_assert(mkdir("dir", 0700) == 0 && symlink("dir", "to-dir") == 0 && mkfifo("fifo", 0600) == 0);
    said = applet("list", ".", "6");
    cr_assert(eq(int, outcome(&said), 0));
    cr_assert(eq(sz, said.count, 1 + 6 + 1));
    cr_expect(find(&said, "\xff\xfe bad \n\x01") && find(&said, ".hidden"));
    cr_expect(find(&said, "to-dir")->type == FILE_TYPE_LINK && find(&said, "dir")->type == FILE_TYPE_DIRECTORY);
    cr_expect(find(&said, "fifo")->type == FILE_TYPE_OTHER);
    entry = find(&said, "plain");
    cr_expect(entry && entry->size_bytes == 3 && entry->mtime_unix_us > 1000000000000000);
    cr_expect(eq(int, outcome_of(applet("list", ".", "5")), EFBIG));
    cr_expect(eq(int, outcome_of(applet("list", "to-dir", "5")), 0));
    cr_expect(eq(int, outcome_of(applet("list", "plain", "5")), ENOTDIR));
    cr_expect(eq(int, outcome_of(applet("list", "fifo", "5")), ENOTDIR));
}

static int put(const char *path, const char *text)
{
    auto_free char *size = alloc_format("%zu", strlen(text));

    return outcome_of(applet_with(text, strlen(text), "write", path, size, "644"));
}

Test(files, write_makes_parents_and_keeps_modes)
{
    cr_expect(eq(int, put("a/b/c", "new"), 0));
    expect_file("a/b/c", "new", 0644);
    cr_assert(chmod("a/b/c", 04755) == 0);
    cr_expect(eq(int, put("./a//b/c", "again"), 0));
    expect_file("a/b/c", "again", 0755);
    cr_expect(eq(int, put("a/../top", ""), 0));
    expect_file("top", "", 0644);
    cr_expect(eq(int, entries_of("a/b"), 1));
    cr_expect(eq(int, put("top/below", "x"), ENOTDIR));
    expect_file("top", "", 0644);
}

Test(files, write_replaces_links_and_nothing_that_is_no_file)
{
    put_file("target", "old");
    cr_assert(mkdir("dir", 0755) == 0 && symlink("dir", "to-dir") == 0 && symlink("target", "link") == 0);
    cr_assert(mkfifo("fifo", 0600) == 0 && symlink("nowhere", "dangling") == 0);
    put_file("dir/kept", "kept");
    cr_expect(eq(int, put("link", "new"), 0));
    expect_file("link", "new", 0644);
    expect_file("target", "old", 0644);
    cr_expect(eq(int, put("dangling", "new"), 0));
    expect_file("dangling", "new", 0644);
    cr_expect(eq(int, put("to-dir/file", "through"), 0));
    expect_file("dir/file", "through", 0644);
    cr_expect(eq(int, put("to-dir", "new"), 0));
    expect_file("to-dir", "new", 0644);
    expect_file("dir/kept", "kept", 0644);
    for (const char *const *path = (const char *const[]){"dir", "dir/", ".", "..", "/", "new/", "dir/..", NULL}; *path;
         path++)
        cr_expect(eq(int, put(*path, "x"), EISDIR), "%s", *path);
    cr_expect(eq(int, put("fifo", "x"), ENXIO));
    cr_expect(eq(int, put("/dev/null", "x"), ENXIO));
    cr_expect(eq(int, put("", "x"), EISDIR));
    expect_file("dir/kept", "kept", 0644);
}

Test(files, write_is_never_half)
{
    const char *const argv[] = {"berth-agent", "file", "write", "file", "10", "644", NULL};
    auto_said struct said said = {0};
    int in, out;
    pid_t pid;

    put_file("file", "old");
    cr_expect(eq(int, outcome_of(applet_with("short", 5, "write", "file", "10", "644")), EPIPE));
    cr_expect(eq(int, outcome_of(applet_with("much too long", 13, "write", "file", "10", "644")), EINVAL));
    pid = begin(&in, &out, argv);
    cr_assert(eq(int, (int)write(in, "12345", 5), 5));
    cr_assert(eq(int, kill(pid, SIGTERM), 0));
    said = finish(pid, out);
    (void)close(in);
    cr_expect(eq(sz, said.count, 0));
    expect_file("file", "old", 0644);
    cr_expect(eq(int, entries_of("."), 1), "nothing is left over");
}

Test(files, walk_goes_5000_deep_and_follows_no_link)
{
    enum { DEEP = 5000 };
    auto_said struct said said = {0};
    auto_free char *path = alloc_array((size_t)DEEP * 2 + 16, 1);
    size_t dirs = 0;
    int at = open(".", O_RDONLY | O_DIRECTORY);

    for (int i = 0; i < DEEP; i++) {
        int next;

        cr_assert(mkdirat(at, "d", 0755) == 0 && symlinkat("..", at, "up") == 0);
        next = openat(at, "d", O_RDONLY | O_DIRECTORY);
        (void)close(at);
        at = next;
        memcpy(path + (size_t)i * 2, "d/", 3);
    }
    (void)close(openat(at, "leaf", O_WRONLY | O_CREAT, 0644));
    (void)close(at);
    said = applet("walk", ".", "");
    cr_assert(eq(int, outcome(&said), 0));
    for (size_t i = 0; i < said.count; i++)
        dirs += said.records[i].kind == FILE_RECORD_DIR;
    cr_expect(eq(sz, dirs, DEEP + 1));
    cr_expect(find(&said, "leaf") != NULL);
    said_done(&said);
    memcpy(path + (size_t)DEEP * 2, "leaf", 5);
    said = applet("stat", path, NULL); /* over PATH_MAX */
    cr_expect(eq(int, outcome(&said), 0));
    cr_expect(eq(int, outcome_of(applet("read", path, "10")), 0));
    cr_expect(eq(int, put(path, "deep"), 0));
    said_done(&said);
    said = applet("read", path, "10");
    cr_expect(eq(str, (char *)(uintptr_t)said.records[1].bytes, "deep"));
    while (chdir("d") == 0)
        ;
    (void)unlink("leaf");
    for (int i = 0; i < DEEP; i++) /* nftw() would need the whole path */
        cr_assert(chdir("..") == 0 && rmdir("d") == 0 && unlink("up") == 0);
}

/* Directories in the order of a stack: what tree_glob() and tree_grep() of workspace/ open. */
Test(files, feed_gives_contents_and_goes_deep_first)
{
    auto_said struct said said = {0};
    char order[200] = "", last[8] = "";

    cr_assert(mkdir("a", 0755) == 0 && mkdir("a/x", 0755) == 0 && mkdir("a/y", 0755) == 0 && mkdir("b", 0755) == 0);
    cr_assert(mkfifo("a/fifo", 0600) == 0 && symlink("/etc/passwd", "a/link") == 0);
    put_file("a/x/file", "content");
    put_file("b/large", "0123456789");
    said = applet_with("", 0, "feed", ".", "", "9");
    cr_assert(eq(int, outcome(&said), 0));
    for (size_t i = 0; i < said.count; i++) {
        const struct file_record *record = &said.records[i];

        if (record->kind == FILE_RECORD_DIR)
            (void)snprintf(order + strlen(order), sizeof order - strlen(order), "%s:", record->bytes);
        if (record->kind == FILE_RECORD_ENTRY && strcmp(record->bytes, "file") == 0) {
            cr_expect(said.records[i + 1].kind == FILE_RECORD_DATA && said.records[i + 2].kind == FILE_RECORD_DONE);
            cr_expect(eq(str, (char *)(uintptr_t)said.records[i + 1].bytes, "content"));
        }
        if (record->kind == FILE_RECORD_ENTRY && strcmp(record->bytes, "large") == 0)
            cr_expect(said.records[i + 1].kind == FILE_RECORD_SKIPPED && said.records[i + 1].sys_errno == EFBIG);
        if (record->kind == FILE_RECORD_ENTRY && (strcmp(record->bytes, "a") == 0 || strcmp(record->bytes, "b") == 0))
            (void)snprintf(last, sizeof last, "%s", record->bytes);
    }
    cr_expect(strncmp(order, last[0] == 'a' ? ":a:" : ":b:a:", last[0] == 'a' ? 3 : 5) == 0, "%s", order);
    cr_expect(strstr(order, ":a/x:") && strstr(order, ":a/y:") && strstr(order, ":b:"), "%s", order);
}

Test(files, walk_passes_over_what_the_kernel_makes_up)
{
    auto_said struct said said = applet("walk", "/proc/self/ns", "");

    cr_expect(find(&said, "mnt") != NULL, "unless it was asked for");
    said_done(&said);
    cr_assert(mkdir("made-up", 0755) == 0 && mkdir("other", 0755) == 0);
    put_file("other/file", "");
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "made-up", "proc", MS_RDONLY, NULL) < 0)
        cr_skip_test("this takes root");
    said = applet("walk", ".", "made-up/sys");
    cr_expect(eq(sz, said.count, 2), "also where a walk begins again: its DIR and the end");
    said_done(&said);
    said = applet("walk", ".", "");
    cr_assert(eq(int, umount2("made-up", MNT_DETACH), 0));
    cr_expect(eq(int, outcome(&said), 0));
    cr_expect(eq(sz, said.count, 7), "three directories, three entries, and the end");
    cr_expect(find(&said, "made-up") && find(&said, "file"));
}

Test(files, nonsense_is_refused)
{
    cr_expect(eq(int, outcome_of(applet("frobnicate", "x", NULL)), EINVAL));
    cr_expect(eq(int, outcome_of(applet("walk", "x", NULL)), EINVAL));
    cr_expect(eq(int, outcome_of(applet("walk", "", "")), ENOENT));
    cr_expect(eq(int, outcome_of(applet("read", "x", NULL)), EINVAL));
    cr_expect(eq(int, outcome_of(applet_with("", 0, "write", "x", "0", "7777")), EINVAL));
}
