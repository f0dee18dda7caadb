/* F1 of the field reports: a directory swapped with a link that leads outside, while everything is done to paths
 * through it. */
#define FIXTURE_IN_MEMORY 1
#include "workspace_fixture.h"

#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 2000 };

TestSuite(race, .timeout = 120);
TestSuite(race_without_openat2, .timeout = 120);

static atomic_bool stop;
static atomic_ulong swaps;

/* `d` is a directory, then a link to "outside", then a directory … */
static void *swap(void *unused)
{
    int fd = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    while (!atomic_load(&stop)) {
        if (renameat2(fd, "d", fd, "l", RENAME_EXCHANGE) == 0)
            atomic_fetch_add(&swaps, 1);
    }
    (void)close(fd);
    return unused;
}

static void *refill(void *unused)
{
    while (!atomic_load(&stop)) {
        bool made = mkdir(in("d"), 0777) == 0;

        made = symlink(outside("victim"), in("l")) == 0 || made;
        if (renameat2(AT_FDCWD, in("d"), AT_FDCWD, in("l"), RENAME_EXCHANGE) == 0 || made)
            atomic_fetch_add(&swaps, 1);
    }
    return unused;
}

/* The other thread had its turns, too: until then a test goes on, or its own timeout ends it. */
static bool has_swapped(void)
{
    return atomic_load(&swaps) > 100;
}

static void arrange_victim(void)
{
    cr_assert_eq(mkdir(outside("victim"), 0777), 0);
    cr_assert_eq(chmod(outside("victim"), 0777), 0);
    put(outside("victim/hostname"), "outside");
    put(outside("victim/keep"), "outside");
    cr_assert_eq(mkdir(in("d"), 0777), 0);
    put(in("d/hostname"), "inside");
    cr_assert_eq(symlink(outside("victim"), in("l")), 0);
}

static void assert_victim_untouched(void)
{
    cr_assert_str_eq(get(outside("victim/hostname")), "outside");
    cr_assert_str_eq(get(outside("victim/keep")), "outside");
    cr_assert_eq(count_names(outside("victim")), 2);
}

/* A round: read, list, write, mkdir, stat through `d`. Returns whether it was the inside that answered. */
static bool round_of_calls(int round)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_buf struct buf out = BUF_INIT(100);
    struct workspace_entry entry;
    bool inside = false;
    char name[64];

    error_clear(&it.err);
    if (workspace_read(it.workspace, "d/hostname", &out, &it.err) == 0) {
        cr_assert_str_eq(buf_str(&out), "inside");
        inside = true;
    }
    if (workspace_list(it.workspace, "d", 100000, &list, &it.err) == 0)
        for (size_t i = 0; i < list.count; i++)
            cr_assert_str_neq(list.entries[i].name, "keep");
    (void)snprintf(name, sizeof name, "d/x%d", round % 10);
    (void)workspace_write(it.workspace, name, "x", 1, -1, &it.err);
    (void)snprintf(name, sizeof name, "d/m%d/y", round % 10);
    (void)workspace_mkdir(it.workspace, name, &it.err);
    (void)workspace_write(it.workspace, name, "x", 1, -1, &it.err);
    cr_assert_eq(workspace_stat(it.workspace, "d/keep", &entry, &it.err), -1);
    return inside;
}

BOTH(race, never_reads_writes_or_lists_outside)
{
    pthread_t thread;
    int inside = 0, rounds = 0;

    open_as(0, 0);
    arrange_victim();
    cr_assert_eq(pthread_create(&thread, NULL, swap, NULL), 0);
    while (rounds < ROUNDS || !inside || inside == rounds || !has_swapped())
        inside += round_of_calls(rounds++);
    atomic_store(&stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    assert_victim_untouched();
}

BOTH(race, never_removes_outside)
{
    pthread_t thread;

    open_as(0, 0);
    arrange_victim();
    cr_assert_eq(pthread_create(&thread, NULL, refill, NULL), 0);
    for (int i = 0; i < ROUNDS || !has_swapped(); i++) {
        error_clear(&it.err);
        (void)workspace_write(it.workspace, "d/hostname", "inside", 6, -1, &it.err);
        (void)workspace_write(it.workspace, "d/keep", "inside", 6, -1, &it.err);
        (void)workspace_remove(it.workspace, "d/hostname", &never, &it.err);
        (void)workspace_remove(it.workspace, "d", &never, &it.err);
    }
    atomic_store(&stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    assert_victim_untouched();
}

/* Directories moved about while a deep tree is removed: what lies beside the tree stays. */
static void *move_about(void *unused)
{
    while (!atomic_load(&stop))
        if (rename(in("t/d/d/d"), in("elsewhere/d")) == 0) {
            atomic_fetch_add(&swaps, 1);
            (void)rename(in("elsewhere/d"), in("t/d/d/d"));
        }
    return unused;
}

BOTH(race, does_not_leave_the_tree_when_directories_move)
{
    pthread_t thread;

    open_as(0, 0);
    assert_works(workspace_mkdir(it.workspace, "elsewhere", &it.err));
    put(in("elsewhere/keep"), "x");
    put(in("keep"), "x");
    cr_assert_eq(pthread_create(&thread, NULL, move_about, NULL), 0);
    for (int i = 0; i < 100; i++) {
        char deep[400] = "t";

        for (int level = 0; level < 60; level++)
            memcpy(deep + 1 + 2 * level, "/d", 3);
        (void)workspace_mkdir(it.workspace, deep, &it.err);
        (void)workspace_remove(it.workspace, "t", &never, &it.err);
    }
    atomic_store(&stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(there(in("keep")));
    cr_assert(there(in("elsewhere/keep")));
}

/* A file that grows and shrinks while it is read. */
static void *resize(void *unused)
{
    static const off_t sizes[] = {0, 10, 5000, 3, 70000, 200000};

    for (unsigned i = 0; !atomic_load(&stop); i++)
        if (truncate(in("f"), sizes[i % 6]) < 0)
            abort();
    return unused;
}

BOTH(race, reads_a_changing_file_within_bounds)
{
    pthread_t thread;
    int whole = 0, rounds = 0;

    open_as(0, 0);
    put(in("f"), "x");
    cr_assert_eq(pthread_create(&thread, NULL, resize, NULL), 0);
    for (; rounds < ROUNDS || !whole || whole == rounds; rounds++) { /* the other thread has its turns, too */
        auto_buf struct buf out = BUF_INIT(100000);

        error_clear(&it.err);
        if (workspace_read(it.workspace, "f", &out, &it.err) < 0)
            cr_assert_eq(it.err.code, ERROR_TOO_LARGE, "%s", it.err.text);
        else
            whole++;
        cr_assert_leq(out.size, 100000);
    }
    atomic_store(&stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

/* Identities are the thread's own: others go on as they are. */
static void *stay_root(void *unused)
{
    static int strangers;

    while (!atomic_load(&stop)) {
        int fd = open(outside("as-root"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

        strangers += fd < 0;
        (void)close(fd);
    }
    return &strangers;
}

BOTH(race, changes_the_identity_of_one_thread_only)
{
    pthread_t thread;
    void *strangers = NULL;

    cr_assert_eq(pthread_create(&thread, NULL, stay_root, NULL), 0);
    for (int i = 0; i < ROUNDS; i++)
        assert_works(workspace_write(it.workspace, "f", "x", 1, -1, &it.err));
    atomic_store(&stop, true);
    cr_assert_eq(pthread_join(thread, &strangers), 0);
    cr_assert_eq(*(int *)strangers, 0);
}
