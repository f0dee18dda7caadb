/* A slot copied to another: what is kept, what is left out, all or nothing; measuring, retiring, swapping names. */
#define FIXTURE_IN_MEMORY 1
#include "workspace_fixture.h"

#include <sys/eventfd.h>
#include <time.h>

static const struct workspace_group no_group = {0, -1};
static char copied[WORKSPACE_SLOT_BYTES];
static char *copied_path;
static struct workspace *copied_workspace;

static void copy(void)
{
    enum workspace_fork_kind kind;

    assert_works(workspace_slot_copy(it.root, it.slot, &no_group, &never, copied, &kind, &it.err));
    assert_works(workspace_slot_path(it.root, copied, &copied_path, &it.err));
}

static const char *in_copy(const char *below)
{
    static char path[4096];

    (void)snprintf(path, sizeof path, "%s/%s", copied_path, below);
    return path;
}

static void drop_copy(void)
{
    assert_works(workspace_slot_remove(it.root, copied, &never, &it.err));
    free(copied_path);
}

static int count_slots(void)
{
    return count_names(outside("root/.slots"));
}

BOTH(copy, keeps_owners_modes_times_and_links)
{
    const struct timespec times[2] = {{1000000000, 5}, {1000000001, 123456789}};
    struct stat status;
    char target[64] = "";

    cr_assert_eq(mkdir(in("d"), 0755), 0);
    put(in("d/f"), "text");
    cr_assert_eq(chown(in("d/f"), 11, 22), 0);
    cr_assert_eq(chmod(in("d/f"), 06751), 0);
    cr_assert_eq(utimensat(AT_FDCWD, in("d/f"), times, 0), 0);
    cr_assert_eq(symlink("/nowhere/at/all", in("l")), 0);
    cr_assert_eq(mkfifo(in("p"), 0640), 0);
    cr_assert_eq(utimensat(AT_FDCWD, in("d"), times, 0), 0);
    cr_assert_eq(chmod(in("d"), 01000), 0);
    copy();
    cr_assert_str_eq(get(in_copy("d/f")), "text");
    cr_assert_eq(stat(in_copy("d/f"), &status), 0);
    cr_assert(status.st_uid == 11 && status.st_gid == 22 && (status.st_mode & 07777) == 06751);
    cr_assert(status.st_mtim.tv_sec == 1000000001 && status.st_mtim.tv_nsec == 123456789);
    cr_assert_eq(stat(in_copy("d"), &status), 0);
    cr_assert((status.st_mode & 07777) == 01000 && status.st_mtim.tv_sec == 1000000001);
    cr_assert_gt(readlink(in_copy("l"), target, sizeof target - 1), 0);
    cr_assert_str_eq(target, "/nowhere/at/all");
    cr_assert_eq(lstat(in_copy("p"), &status), 0);
    cr_assert(S_ISFIFO(status.st_mode) && (status.st_mode & 0777) == 0640);
    cr_assert_eq(stat(copied_path, &status), 0);
    cr_assert_eq(status.st_uid, SANDBOX_UID);
    drop_copy();
}

BOTH(copy, keeps_what_is_one_file_one_and_apart_from_its_origin)
{
    struct stat first;
    struct stat second;

    cr_assert_eq(mkdir(in("a"), 0755), 0);
    cr_assert_eq(mkdir(in("b"), 0755), 0);
    put(in("a/f"), "one");
    cr_assert_eq(link(in("a/f"), in("b/g")), 0);
    copy();
    cr_assert_eq(stat(in_copy("a/f"), &first), 0);
    cr_assert_eq(stat(in_copy("b/g"), &second), 0);
    cr_assert(first.st_ino == second.st_ino && first.st_nlink == 2);
    put(in_copy("a/f"), "other");
    cr_assert_str_eq(get(in("a/f")), "one");
    drop_copy();
}

BOTH(copy, keeps_holes)
{
    struct stat status;
    int fd = open(in("sparse"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    cr_assert_eq(pwrite(fd, "start", 5, 0), 5);
    cr_assert_eq(pwrite(fd, "end", 3, 64 << 20), 3);
    cr_assert_eq(ftruncate(fd, 128 << 20), 0);
    cr_assert_eq(close(fd), 0);
    copy();
    cr_assert_eq(stat(in_copy("sparse"), &status), 0);
    cr_assert_eq(status.st_size, 128 << 20);
    cr_assert_lt(status.st_blocks, 4096, "it takes %lld blocks", (long long)status.st_blocks);
    drop_copy();
}

/* `levels` directories in one another, each with a file and another directory beside it. */
static void make_chain(int levels)
{
    int current = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < levels; i++) {
        int next;

        cr_assert_eq(mkdirat(current, "d", 0755), 0);
        cr_assert_eq(mkdirat(current, i % 2 ? "a" : "z", 0755), 0);
        next = openat(current, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cr_assert_geq(next, 0);
        (void)close(openat(next, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        (void)close(current);
        current = next;
    }
    (void)close(current);
}

static double seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Not component by component, where each way from the top is as many calls. */
Test(copy, of_ten_thousand_levels_takes_moments_and_so_does_measuring_it)
{
    enum { LEVELS = 10000 };
    struct workspace_size size;
    double began;

    arrange(false);
    make_chain(LEVELS);
    open_as(-1, -1);
    began = seconds_now();
    assert_works(workspace_measure(it.workspace, 0, &never, &size, &it.err));
    cr_assert_eq(size.files, 3 * LEVELS);
    copy();
    cr_assert_lt(seconds_now() - began, 10, "%.1f s of the processor", seconds_now() - began);
    assert_works(workspace_open(it.root, copied, &(struct workspace_identity){-1, -1}, &copied_workspace, &it.err));
    assert_works(workspace_measure(copied_workspace, 0, &never, &size, &it.err));
    cr_assert_eq(size.files, 3 * LEVELS);
    workspace_unref(copied_workspace);
    drop_copy();
    clear_away();
}

BOTH(copy, leaves_out_leftovers_and_devices)
{
    put(in(".berth-0123456789abcdef"), "half");
    cr_assert_eq(mknod(in("null"), S_IFCHR | 0666, 0x103), 0);
    put(in("f"), "x");
    copy();
    cr_assert_eq(count_names(copied_path), 1);
    drop_copy();
}

BOTH(copy, goes_as_deep_as_its_origin)
{
    enum { LEVELS = 1500 };
    int at = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct workspace_size size;
    const struct workspace_identity as_operator = {-1, -1};
    struct workspace *workspace;

    for (int i = 0; i < LEVELS; i++) {
        int below;

        cr_assert_eq(mkdirat(at, "deep", 0755), 0);
        below = openat(at, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = below;
    }
    (void)close(at);
    copy();
    assert_works(workspace_open(it.root, copied, &as_operator, &workspace, &it.err));
    assert_works(workspace_measure(workspace, 0, &never, &size, &it.err));
    cr_assert_eq(size.files, LEVELS);
    workspace_unref(workspace);
    drop_copy();
}

BOTH(copy, leaves_nothing_when_it_is_cancelled)
{
    int before = count_slots();
    struct cancel stopped = {.stop_fd = eventfd(1, EFD_CLOEXEC), .client_fd = -1};
    enum workspace_fork_kind kind;
    char name[16];

    for (int i = 0; i < 600; i++) {
        (void)snprintf(name, sizeof name, "f%d", i);
        put(in(name), "x");
    }
    assert_fails(workspace_slot_copy(it.root, it.slot, &no_group, &stopped, copied, &kind, &it.err), UNAVAILABLE, 0);
    cr_assert_eq(count_slots(), before);
    cr_assert_eq(workspace_slot_copy(it.root, "0123456789abcdef", &no_group, &never, copied, &kind, &it.err), -1);
    cr_assert_eq(count_slots(), before);
}

BOTH(measure, counts_a_file_with_two_names_once)
{
    struct workspace_size size;
    char block[65536];
    FILE *file = fopen(in("f"), "we");

    memset(block, 'x', sizeof block);
    cr_assert_eq(fwrite(block, sizeof block, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(link(in("f"), in("g")), 0);
    assert_works(workspace_measure(it.workspace, 0, &never, &size, &it.err));
    cr_assert_eq(size.files, 2);
    cr_assert(size.bytes >= 65536 && size.bytes < 2 * 65536, "%lld", (long long)size.bytes);
}

BOTH(retire, takes_only_what_nobody_holds_and_then_nobody_gets)
{
    const struct workspace_identity as_operator = {-1, -1};
    struct workspace *second = NULL;

    assert_fails(workspace_slot_retire(it.root, it.slot, &it.err), CONFLICT, 0);
    assert_works(workspace_open(it.root, it.slot, &as_operator, &second, &it.err));
    workspace_unref(second);
    assert_fails(workspace_slot_retire(it.root, it.slot, &it.err), CONFLICT, 0);
    workspace_unref(it.workspace);
    it.workspace = NULL;
    assert_works(workspace_slot_retire(it.root, it.slot, &it.err));
    assert_fails(workspace_slot_retire(it.root, it.slot, &it.err), CONFLICT, 0);
    assert_fails(workspace_open(it.root, it.slot, &as_operator, &second, &it.err), NOT_FOUND, ENOENT);
    workspace_slot_unretire(it.root, it.slot);
    workspace_slot_unretire(it.root, it.slot); /* of one that is not, nothing */
    open_as(SANDBOX_UID, SANDBOX_GID);
}

BOTH(retire, knows_each_of_several)
{
    const struct workspace_identity as_operator = {-1, -1};
    struct workspace *workspace = NULL;
    char slots[3][WORKSPACE_SLOT_BYTES];

    for (int i = 0; i < 3; i++) {
        assert_works(workspace_slot_create(it.root, SANDBOX_UID, SANDBOX_GID, slots[i], &it.err));
        assert_works(workspace_slot_retire(it.root, slots[i], &it.err));
    }
    workspace_slot_unretire(it.root, slots[1]);
    for (int i = 0; i < 3; i++)
        if (i == 1) {
            assert_works(workspace_open(it.root, slots[i], &as_operator, &workspace, &it.err));
            cr_assert_str_eq(workspace_slot(workspace), slots[i]);
            workspace_unref(workspace);
        } else {
            assert_fails(workspace_open(it.root, slots[i], &as_operator, &workspace, &it.err), NOT_FOUND, ENOENT);
        }
    for (int i = 0; i < 3; i++) {
        workspace_slot_unretire(it.root, slots[i]);
        assert_works(workspace_slot_remove(it.root, slots[i], &never, &it.err));
    }
    /* One that is not there is not held either afterwards. */
    assert_fails(workspace_open(it.root, slots[0], &as_operator, &workspace, &it.err), NOT_FOUND, ENOENT);
    assert_works(workspace_slot_retire(it.root, slots[0], &it.err));
    workspace_slot_unretire(it.root, slots[0]);
}

BOTH(swap, leads_a_name_elsewhere_and_tells_where_it_led)
{
    char other[WORKSPACE_SLOT_BYTES];
    char found[WORKSPACE_SLOT_BYTES];
    char old[WORKSPACE_SLOT_BYTES];

    assert_works(workspace_slot_create(it.root, -1, -1, other, &it.err));
    assert_works(workspace_link(it.root, "name", it.slot, &it.err));
    assert_works(workspace_swap(it.root, "name", other, old, &it.err));
    cr_assert_str_eq(old, it.slot);
    assert_works(workspace_find(it.root, "name", found, &it.err));
    cr_assert_str_eq(found, other);
    assert_fails(workspace_swap(it.root, "nobody", other, old, &it.err), NOT_FOUND, ENOENT);
    /* As the reference lays it: the directory becomes a slot. */
    cr_assert_eq(mkdir(outside("root/old"), 0755), 0);
    cr_assert_eq(mkdir(outside("root/old/workspace"), 0755), 0);
    put(outside("root/old/workspace/f"), "kept");
    assert_works(workspace_swap(it.root, "old", other, old, &it.err));
    assert_works(workspace_slot_path(it.root, old, &copied_path, &it.err));
    cr_assert_str_eq(get(in_copy("f")), "kept");
    free(copied_path);
    assert_works(workspace_slot_remove(it.root, old, &never, &it.err));
    assert_works(workspace_slot_remove(it.root, other, &never, &it.err));
    cr_assert_eq(count_names(outside("root")), 3, "the two names and .slots");
    assert_works(workspace_unlink(it.root, "name", &it.err));
    assert_works(workspace_unlink(it.root, "old", &it.err));
}

Test(quota, where_nothing_keeps_limits_it_says_why)
{
    const char *why = NULL;

    arrange(false);
    cr_assert_eq(workspace_quota_enforce(it.root, &why), WORKSPACE_QUOTA_NONE);
    cr_assert(why && why[0]);
    cr_assert_eq(count_names(outside("root/.slots")), 1, "nothing is left of the try");
    cr_assert_not(workspace_slot_limit(it.root, it.slot, 1 << 20, 10));
    clear_away();
}
