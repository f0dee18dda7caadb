/* Files as the sandbox sees them: session_inside_*, on the provider in memory that performs the agent's applets on this host. */
#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "provider_fake.h"
#include "session.h"
#include "session_inside.h"
#include "session_run.h"
#include "store.h"
#include "tree.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct cancel never = CANCEL_NEVER;
static char home[64];
static char work[96];
static struct store *store;
static struct provider *provider;
static struct sessions *sessions;
static int stop_fd;

static struct policy *make_policy(void)
{
    struct policy *policy = policy_new();

    policy->runtimes = alloc_array(1, sizeof *policy->runtimes);
    policy->runtimes[0].alias = alloc_str("python");
    policy->runtimes[0].image = alloc_str("python");
    policy->runtimes[0].description = alloc_str("python");
    policy->runtime_count = 1;
    policy->default_runtime = alloc_str("python");
    policy->idle_timeout_s = 1800;
    policy->execute_timeout_s = 30;
    policy->max_read_bytes = 1 << 20;
    policy->limits.mem_bytes = 64 << 20;
    return policy;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    return remove(path);
}

static void setup(void)
{
    const struct session_open open = {.id = "s", .runtime = "python"};
    const char *program = getenv("BERTH_AGENT_HOST");
    struct error err = ERROR_INIT;
    auto_free char *path = realpath(program ? program : "./berth-agent-host", NULL);
    struct session_view view;
    char token[SESSION_TOKEN_BYTES];
    struct sessions_settings settings = {.service_token = "service-secret",
                                         .state_dir = home,
                                         .work_dir = "/workspace",
                                         .persist_containers = true,
                                         .sandbox_uid = -1,
                                         .cleanup_interval_s = 1,
                                         .max_workers = 8,
                                         .engine_timeout_ms = 30000,
                                         .max_running_commands = 1};

    (void)snprintf(home, sizeof home, "/dev/shm/berth-test-inside.XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    (void)snprintf(work, sizeof work, "%s/work", home);
    cr_assert(eq(int, mkdir(work, 0755), 0));
    log_set_level(LOG_LEVEL_ERROR);
    provider = provider_fake_new();
    provider_fake_applets(provider, path, work);
    settings.stop_fd = stop_fd = eventfd(0, EFD_CLOEXEC);
    cr_assert(eq(int, store_open(home, &store, &err), 0), "%s", err.text);
    cr_assert(eq(int, sessions_new(&settings, store, NULL, provider, make_policy(), &sessions, &err), 0), "%s",
              err.text);
    cr_assert(eq(int, sessions_start(sessions, &err), 0), "%s", err.text);
    cr_assert(eq(int, sessions_open(sessions, &open, &never, &view, token, &err), 0), "%s", err.text);
}

static void teardown(void)
{
    const uint64_t one = 1;

    cr_assert(eq(int, (int)write(stop_fd, &one, sizeof one), (int)sizeof one));
    sessions_stop(sessions);
    sessions_free(sessions);
    store_close(store);
    provider->ops->free(provider);
    (void)close(stop_fd);
    (void)nftw(home, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

TestSuite(inside, .init = setup, .fini = teardown, .timeout = 60);

static struct session_inside *begin(void)
{
    struct session_inside *inside = NULL;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, session_inside_begin(sessions, "s", &never, &inside, &err), 0), "%s", err.text);
    return inside;
}

static void put_file(const char *below, const void *bytes, size_t size)
{
    auto_free char *path = alloc_format("%s/%s", work, below);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size && close(fd) == 0);
}

static void make_dir(const char *below)
{
    auto_free char *path = alloc_format("%s/%s", work, below);

    cr_assert(eq(int, mkdir(path, 0755), 0));
}

Test(inside, writes_reads_stats_and_lists)
{
    enum { SIZE = 3 * 1024 * 1024 };
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_buf struct buf out = BUF_INIT(SIZE);
    auto_free char *data = alloc_array(SIZE, 1);
    struct session_inside *inside = begin();
    struct workspace_entry link, target;
    struct error err = ERROR_INIT;
    int64_t size_bytes = 0;
    auto_free char *path = alloc_format("%s/link", work);

    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    cr_assert(eq(int, session_inside_write(inside, "sub/file", data, SIZE, &err), 0), "%s", err.text);
    cr_assert(eq(int, symlink("sub/file", path), 0));
    cr_assert(eq(int, session_inside_stat(inside, path, &link, &target, &err), 0), "%s", err.text);
    cr_expect(link.is_link && target.is_regular && target.size_bytes == SIZE && target.mode == 0644);
    cr_assert(eq(int, session_inside_read(inside, "link", &out, &size_bytes, &err), 0), "%s", err.text);
    cr_assert(eq(sz, out.size, SIZE));
    cr_expect(eq(int, memcmp(out.data, data, SIZE), 0));
    cr_expect(eq(i64, size_bytes, SIZE));
    cr_assert(eq(int, session_inside_list(inside, ".", 2, &list, &err), 0), "%s", err.text);
    cr_assert(eq(sz, list.count, 2));
    cr_expect(eq(str, (char *)(uintptr_t)list.entries[0].name, "link"));
    cr_expect(eq(str, (char *)(uintptr_t)list.entries[1].name, "sub"));
    cr_expect(list.entries[1].is_dir && list.entries[0].is_link);
    session_inside_end(inside);
}

static void expect_error(int result, struct error *err, enum error_code code, int sys_errno)
{
    cr_expect(eq(int, result, -1));
    cr_expect(eq(int, err->code, code), "%s", err->text);
    cr_expect(eq(int, err->sys_errno, sys_errno), "%s", err->text);
    error_clear(err);
}

Test(inside, tells_what_is_wrong_with_a_path)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_buf struct buf out = BUF_INIT(4);
    struct session_inside *inside = begin();
    struct workspace_entry entry;
    struct error err = ERROR_INIT;
    int64_t size_bytes = 0;
    auto_free char *dangling = alloc_format("%s/dangling", work);

    put_file("five", "12345", 5);
    cr_assert(eq(int, symlink("nowhere", dangling), 0));
    expect_error(session_inside_read(inside, "missing", &out, NULL, &err), &err, ERROR_NOT_FOUND, ENOENT);
    expect_error(session_inside_read(inside, ".", &out, NULL, &err), &err, ERROR_INVALID, EISDIR);
    expect_error(session_inside_read(inside, "/dev/zero", &out, NULL, &err), &err, ERROR_INVALID, ENXIO);
    expect_error(session_inside_read(inside, "", &out, NULL, &err), &err, ERROR_INVALID, EINVAL);
    expect_error(session_inside_read(inside, "five", &out, &size_bytes, &err), &err, ERROR_TOO_LARGE, EFBIG);
    cr_expect(eq(i64, size_bytes, 5));
    expect_error(session_inside_stat(inside, "dangling", NULL, &entry, &err), &err, ERROR_NOT_FOUND, ENOENT);
    cr_expect(eq(int, session_inside_stat(inside, "dangling", &entry, NULL, &err), 0));
    expect_error(session_inside_write(inside, "five/x", "", 0, &err), &err, ERROR_INVALID, ENOTDIR);
    expect_error(session_inside_write(inside, ".", "x", 1, &err), &err, ERROR_INVALID, EISDIR);
    expect_error(session_inside_list(inside, "five", 9, &list, &err), &err, ERROR_INVALID, ENOTDIR);
    expect_error(session_inside_list(inside, ".", 1, &list, &err), &err, ERROR_TOO_LARGE, EFBIG);
    session_inside_end(inside);
}

static struct tree_hits search(struct session_inside *inside, const char *word, bool ignore_hidden)
{
    struct tree_hits hits = TREE_HITS_INIT;
    struct match_grep *expression = NULL;
    struct tree_source *source = NULL;
    struct error err = ERROR_INIT;
    struct tree_grep grep = {.path = "",
                             .shown = ".",
                             .ignore_hidden = ignore_hidden,
                             .max_bytes = 1 << 20,
                             .max_line_bytes = 1000,
                             .max_file_bytes = 1 << 20};

    cr_assert(eq(int, match_grep_new(MATCH_BASIC, word, strlen(word), &expression, &err), 0), "%s", err.text);
    grep.expression = expression;
    cr_assert(eq(int, session_inside_tree(inside, ".", grep.max_file_bytes, &source, &err), 0), "%s", err.text);
    cr_assert(eq(int, tree_grep(source, &grep, &never, &hits, &err), 0), "%s", err.text);
    tree_source_free(source);
    match_grep_free(expression);
    return hits;
}

static void make_tree(unsigned dirs, unsigned files)
{
    for (unsigned i = 0; i < dirs; i++) {
        auto_free char *dir = alloc_format("d%u", i);
        auto_free char *below = alloc_format("d%u/e", i);

        make_dir(dir);
        make_dir(below);
        for (unsigned j = 0; j < files; j++) {
            auto_free char *file = alloc_format("d%u/%sf%u.py", i, j % 2 ? "e/" : "", j);

            put_file(file, "one\nneedle\nthree\n", 17);
        }
    }
}

Test(inside, finds_files_and_lines_with_one_run)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    auto_tree_hits struct tree_hits hits = TREE_HITS_INIT;
    struct session_inside *inside = begin();
    struct tree_source *source = NULL;
    struct error err = ERROR_INIT;
    auto_free char *zeros = alloc_zero(2 << 20);
    unsigned before;

    make_tree(20, 10);
    put_file("large", zeros, 2 << 20);
    before = provider_fake_calls(provider, FAKE_RUN_START);
    cr_assert(eq(int, session_inside_tree(inside, ".", 0, &source, &err), 0));
    cr_assert(eq(int, tree_glob(source, "", ".", "**/*.py", 1000, &never, &rows, &err), 0), "%s", err.text);
    tree_source_free(source);
    cr_expect(eq(sz, rows.count, 200));
    cr_expect(eq(str, (char *)(uintptr_t)rows.rows[0].path, "d0/e/f1.py"));
    cr_expect(eq(u32, provider_fake_calls(provider, FAKE_RUN_START) - before, 1));
    hits = search(inside, "needle", true);
    cr_expect(eq(sz, hits.count, 200));
    cr_expect(hits.truncated && hits.unreadable == 0, "the large one was passed over");
    cr_expect(eq(i64, hits.hits[0].line_number, 2));
    cr_expect(eq(u32, provider_fake_calls(provider, FAKE_RUN_START) - before, 2));
    session_inside_end(inside);
}

Test(inside, passes_over_a_large_hidden_directory)
{
    auto_tree_hits struct tree_hits hits = TREE_HITS_INIT;
    auto_free char *noise = alloc_zero(1 << 20);
    struct session_inside *inside = begin();

    make_tree(3, 3);
    make_dir(".git");
    for (int i = 0; i < 16; i++) {
        auto_free char *file = alloc_format(".git/object%d", i);

        put_file(file, noise, 1 << 20);
    }
    hits = search(inside, "needle", true);
    cr_expect(eq(sz, hits.count, 9));
    tree_hits_done(&hits);
    hits = search(inside, "needle", false);
    cr_expect(eq(sz, hits.count, 9));
    session_inside_end(inside);
}

/* Whoever opens in another order is served all the same. */
Test(inside, opens_directories_in_any_order)
{
    static const char *const paths[] = {"", "d2/e", "d0", "d1", "d2/e", "d0/e", ""};
    struct session_inside *inside = begin();
    struct tree_source *source = NULL;
    struct error err = ERROR_INIT;

    make_tree(3, 2);
    cr_assert(eq(int, session_inside_tree(inside, work, 1000, &source, &err), 0));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const struct tree_source_ops *ops = source->ops;
        auto_buf struct buf out = BUF_INIT(1000);
        struct workspace_entry entry;
        int count = 0, got;

        cr_assert(eq(int, ops->open(source, paths[i], &never, &err), 0), "%s: %s", paths[i], err.text);
        while ((got = ops->next(source, true, &entry, &never, &err)) > 0) {
            count++;
            cr_expect(not(entry.is_regular && entry.size_bytes != 17));
        }
        cr_assert(eq(int, got, 0), "%s", err.text);
        cr_expect(eq(int, count, paths[i][0] == '\0' ? 3 : strlen(paths[i]) == 2 ? 2 : 1), "%s", paths[i]);
        cr_expect(eq(int, ops->next(source, true, &entry, &never, &err), 0), "the end stays the end");
        if (strcmp(paths[i], "d1") == 0) {
            cr_assert(eq(int, ops->read(source, "f0.py", &out, &never, &err), 0), "%s", err.text);
            cr_expect(eq(sz, out.size, 17));
        }
    }
    expect_error(source->ops->open(source, "missing", &never, &err), &err, ERROR_NOT_FOUND, ENOENT);
    tree_source_free(source);
    session_inside_end(inside);
}

Test(inside, heals_as_a_command_does)
{
    auto_buf struct buf out = BUF_INIT(100);
    struct session_inside *inside = begin();
    struct error err = ERROR_INIT;
    struct sandbox_listed *list;
    size_t count;

    put_file("file", "text", 4);
    cr_assert(eq(int, session_inside_read(inside, "file", &out, NULL, &err), 0), "%s", err.text);
    cr_assert(eq(int, provider->ops->list(provider, &never, &list, &count, &err), 0));
    cr_assert(eq(sz, count, 1));
    provider_fake_die(provider, list[0].ref, false);
    free(list);
    buf_clear(&out);
    cr_assert(eq(int, session_inside_read(inside, "file", &out, NULL, &err), 0), "%s", err.text);
    cr_expect(eq(sz, out.size, 4));
    session_inside_end(inside);
}

Test(inside, waits_for_a_command_slot_and_gives_it_back)
{
    const struct cancel soon = cancel_within(&never, 50);
    struct session_inside *first = begin();
    struct session_inside *second = NULL;
    struct error err = ERROR_INIT;

    expect_error(session_inside_begin(sessions, "s", &soon, &second, &err), &err, ERROR_TIMEOUT, 0);
    session_inside_end(first);
    second = begin();
    session_inside_end(second);
    session_inside_end(NULL);
    expect_error(session_inside_begin(sessions, "other", &never, &second, &err), &err, ERROR_NOT_FOUND, 0);
}

Test(inside, believes_no_applet_that_talks_nonsense)
{
    static const char *const says[] = {"", "what is that? It is long enough to be the head of a record", "BRHF"};
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    struct session_inside *inside = begin();
    struct workspace_entry entry;
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        auto_buf struct buf out = BUF_INIT(100);
        struct tree_source *source = NULL;

        provider_fake_applet_says(provider, says[i], strlen(says[i]));
        expect_error(session_inside_read(inside, "x", &out, NULL, &err), &err, ERROR_ENGINE, 0);
        expect_error(session_inside_stat(inside, "x", &entry, &entry, &err), &err, ERROR_ENGINE, 0);
        expect_error(session_inside_list(inside, "x", 10, &list, &err), &err, ERROR_ENGINE, 0);
        expect_error(session_inside_write(inside, "x", "abc", 3, &err), &err, ERROR_ENGINE, 0);
        cr_assert(eq(int, session_inside_tree(inside, "x", 10, &source, &err), 0));
        expect_error(source->ops->open(source, "", &never, &err), &err, ERROR_ENGINE, 0);
        tree_source_free(source);
    }
    provider_fake_applet_says(provider, NULL, 0);
    session_inside_end(inside);
}
