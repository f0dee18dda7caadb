#define FIXTURE_IN_MEMORY 1
#include "workspace_fixture.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

/* `levels` directories in one another below `fd`, each with a file. */
static void make_deep(int fd, int levels)
{
    int current = dup(fd);

    for (int i = 0; i < levels; i++) {
        int next;

        cr_assert_eq(mkdirat(current, "d", 0755), 0);
        next = openat(current, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cr_assert_geq(next, 0);
        (void)close(openat(next, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        (void)close(current);
        current = next;
    }
    (void)close(current);
}

static int open_workspace_dir(void)
{
    int fd = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    cr_assert_geq(fd, 0);
    return fd;
}

static int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

BOTH(remove, takes_each_kind_and_nothing_else)
{
    put(outside("victim"), "x");
    put(in("file"), "x");
    put(in("kept"), "x");
    cr_assert_eq(symlink(outside("victim"), in("link")), 0);
    cr_assert_eq(symlink(it.dir, in("dirlink")), 0);
    cr_assert_eq(mkfifo(in("fifo"), 0666), 0);
    assert_works(workspace_remove(it.workspace, "file", &never, &it.err));
    assert_works(workspace_remove(it.workspace, "link", &never, &it.err));
    assert_fails(workspace_remove(it.workspace, "dirlink/victim", &never, &it.err), HANDOVER, ELOOP);
    assert_works(workspace_remove(it.workspace, "dirlink", &never, &it.err));
    assert_works(workspace_remove(it.workspace, "fifo", &never, &it.err));
    assert_fails(workspace_remove(it.workspace, "file", &never, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_remove(it.workspace, "none/x", &never, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_remove(it.workspace, "kept/x", &never, &it.err), INVALID, ENOTDIR);
    assert_fails(workspace_remove(it.workspace, "", &never, &it.err), INVALID, EINVAL);
    cr_assert(there(outside("victim")) && there(in("kept")));
}

BOTH(remove, takes_a_tree_without_following_its_links)
{
    cr_assert_eq(mkdir(outside("victim"), 0777), 0);
    put(outside("victim/keep"), "x");
    assert_works(workspace_mkdir(it.workspace, "t/a/b", &it.err));
    assert_works(workspace_mkdir(it.workspace, "t/c", &it.err));
    put(in("t/a/b/f"), "x");
    cr_assert_eq(symlink(outside("victim"), in("t/a/out")), 0);
    cr_assert_eq(symlink("..", in("t/a/b/up")), 0);
    cr_assert_eq(link(outside("victim/keep"), in("t/hard")), 0);
    assert_works(workspace_remove(it.workspace, "t", &never, &it.err));
    cr_assert_not(there(in("t")));
    cr_assert(there(outside("victim/keep")));
}

BOTH(remove, goes_ten_thousand_levels_deep_with_few_descriptors)
{
    int before = count_fds();
    int fd = open_workspace_dir();
    struct rlimit limit;

    make_deep(fd, 10000);
    (void)close(fd);
    open_as(0, 0);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)before + 64;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_works(workspace_remove(it.workspace, "d", &never, &it.err));
    cr_assert_not(there(in("d")));
    cr_assert_eq(count_fds(), before);
}

BOTH(remove, takes_many_files_and_wide_trees)
{
    char name[64];

    open_as(0, 0);
    for (int i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof name, "wide/d%d", i);
        assert_works(workspace_mkdir(it.workspace, name, &it.err));
        for (int j = 0; j < 40; j++) {
            (void)snprintf(name, sizeof name, "wide/d%d/f%d", i, j);
            (void)close(open(in(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        }
    }
    assert_works(workspace_remove(it.workspace, "wide", &never, &it.err));
    cr_assert_not(there(in("wide")));
}

BOTH(remove, ends_early_when_cancelled)
{
    const struct cancel stopped = {.stop_fd = eventfd(1, EFD_CLOEXEC), .client_fd = -1};
    char name[64];

    assert_works(workspace_mkdir(it.workspace, "many", &it.err));
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "many/f%d", i);
        (void)close(open(in(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    }
    assert_fails(workspace_remove(it.workspace, "many", &stopped, &it.err), UNAVAILABLE, 0);
    cr_assert(there(in("many")));
    (void)close(stopped.stop_fd);
}

BOTH(remove, changes_no_mode_for_a_live_identity)
{
    assert_works(workspace_mkdir(it.workspace, "ro", &it.err));
    assert_works(workspace_write(it.workspace, "ro/f", "x", 1, -1, &it.err));
    cr_assert_eq(chmod(in("ro"), 0555), 0);
    assert_fails(workspace_remove(it.workspace, "ro", &never, &it.err), HANDOVER, EACCES);
    cr_assert(there(in("ro/f")));
}

/* As root, and once more as a broker that is only itself: then modes have to be changed. */
static void lock_everything(void)
{
    static const char *const names[] = {"ro/x", "ro", "none/y", "none"};

    assert_works(workspace_mkdir(it.workspace, "ro/x", &it.err));
    assert_works(workspace_mkdir(it.workspace, "none/y", &it.err));
    assert_works(workspace_write(it.workspace, "ro/x/f", "x", 1, -1, &it.err));
    assert_works(workspace_write(it.workspace, "none/y/f", "x", 1, -1, &it.err));
    cr_assert_eq(symlink("/", in("ro/l")), 0);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(chmod(in(names[i]), names[i][0] == 'r' ? 0555 : 0), 0);
}

BOTH(slot_remove, takes_what_nobody_may_read)
{
    char slot[WORKSPACE_SLOT_BYTES];
    char *path = NULL;

    assert_works(workspace_slot_create(it.root, -1, -1, slot, &it.err));
    assert_works(workspace_slot_path(it.root, it.slot, &path, &it.err));
    lock_everything();
    put(in("roots"), "x");
    assert_works(workspace_slot_remove(it.root, it.slot, &never, &it.err));
    cr_assert_not(there(path));
    assert_works(workspace_slot_remove(it.root, it.slot, &never, &it.err));
    cr_assert(there("/etc/passwd"));
    free(path);
}

BOTH(slot_remove, takes_locked_directories_as_an_unprivileged_broker)
{
    char slot_dir[256];

    lock_everything();
    (void)snprintf(slot_dir, sizeof slot_dir, "%s/root/.slots/%s", it.dir, it.slot);
    cr_assert_eq(chown(slot_dir, SANDBOX_UID, SANDBOX_GID), 0);
    cr_assert_eq(chown(outside("root/.slots"), SANDBOX_UID, SANDBOX_GID), 0);
    cr_assert_eq(seteuid(SANDBOX_UID), 0);
    assert_works(workspace_slot_remove(it.root, it.slot, &never, &it.err));
    cr_assert_eq(seteuid(0), 0);
    cr_assert_not(there(slot_dir));
}

BOTH(slot_remove, says_so_when_something_stays)
{
    char slot_dir[256];

    put(in("roots"), "x");
    (void)snprintf(slot_dir, sizeof slot_dir, "%s/root/.slots/%s", it.dir, it.slot);
    cr_assert_eq(chown(it.path, 0, 0), 0);
    cr_assert_eq(seteuid(SANDBOX_UID), 0);
    cr_assert_eq(workspace_slot_remove(it.root, it.slot, &never, &it.err), -1);
    cr_assert_eq(seteuid(0), 0);
    cr_assert(there(in("roots")));
}
