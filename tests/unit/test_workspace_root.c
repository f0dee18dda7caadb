#include "workspace_fixture.h"

#include <sys/sysmacros.h>
#include <time.h>
#include <utime.h>

static char found[WORKSPACE_SLOT_BYTES];

static bool slots_are_young(void)
{
    struct stat status;

    cr_assert_eq(stat(outside("root/.slots"), &status), 0);
    return status.st_mtim.tv_sec > time(NULL) + 9L * 365 * 24 * 3600;
}

BOTH(root, lets_others_neither_list_nor_forget)
{
    struct stat status;

    cr_assert_eq(stat(outside("root"), &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0711);
    cr_assert_eq(stat(outside("root/.slots"), &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0711);
    cr_assert(slots_are_young());
}

BOTH(root, refuses_a_relative_path_and_takes_slots_that_are_no_link)
{
    struct workspace_root *root = NULL;

    assert_fails(workspace_root_open("relative", &root, &it.err), INVALID, EINVAL);
    cr_assert_eq(mkdir(outside("other"), 0711), 0);
    cr_assert_eq(symlink("/tmp", outside("other/.slots")), 0);
    cr_assert_eq(workspace_root_open(outside("other"), &root, &it.err), -1);
    cr_assert_null(root);
}

BOTH(slot, belongs_to_the_sandbox_and_lies_where_it_says)
{
    char path[256];
    struct stat status;

    (void)snprintf(path, sizeof path, "%s/root/.slots/%s/workspace", it.dir, it.slot);
    cr_assert_str_eq(it.path, path);
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0755);
    cr_assert_eq(status.st_uid, SANDBOX_UID);
    cr_assert_eq(status.st_gid, SANDBOX_GID);
    assert_works(workspace_slot_chown(it.root, it.slot, 0, 0, &it.err));
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_uid, 0);
    cr_assert(slots_are_young());
}

BOTH(slot, is_no_path)
{
    static const char *const bad[] = {"",
                                      "..",
                                      "dir:",
                                      "dir:..",
                                      "dir:a/b",
                                      "dir:.slots",
                                      "0123456789abcdeF",
                                      "0123456789abcdef/",
                                      "0123456789abcde",
                                      "../root"};
    char *path = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(workspace_slot_path(it.root, bad[i], &path, &it.err), INVALID, EINVAL);
        assert_fails(workspace_slot_remove(it.root, bad[i], &never, &it.err), INVALID, EINVAL);
    }
    assert_fails(workspace_slot_path(it.root, "0123456789abcdef", &path, &it.err), NOT_FOUND, ENOENT);
}

BOTH(slot, that_became_a_link_is_not_found)
{
    char *path = NULL;

    cr_assert_eq(mkdir(outside("victim"), 0755), 0);
    cr_assert_eq(rmdir(it.path), 0);
    cr_assert_eq(symlink(outside("victim"), it.path), 0);
    assert_fails(workspace_slot_path(it.root, it.slot, &path, &it.err), NOT_FOUND, ELOOP);
    assert_fails(workspace_slot_chown(it.root, it.slot, 1, 1, &it.err), NOT_FOUND, ELOOP);
}

BOTH(slots, are_told_without_what_is_none)
{
    char(*slots)[WORKSPACE_SLOT_BYTES] = NULL;
    char second[WORKSPACE_SLOT_BYTES];
    size_t count = 0;

    assert_works(workspace_slot_create(it.root, -1, -1, second, &it.err));
    cr_assert_eq(mkdir(outside("root/.slots/other"), 0755), 0);
    assert_works(workspace_slots(it.root, &slots, &count, &it.err));
    cr_assert_eq(count, 2);
    cr_assert(strcmp(slots[0], second) == 0 || strcmp(slots[1], second) == 0);
    cr_assert(strcmp(slots[0], it.slot) == 0 || strcmp(slots[1], it.slot) == 0);
    free(slots);
}

BOTH(name, leads_to_its_slot_until_it_is_taken_away)
{
    char other[WORKSPACE_SLOT_BYTES];
    char target[64] = "";

    assert_fails(workspace_find(it.root, "alice", found, &it.err), NOT_FOUND, ENOENT);
    assert_works(workspace_link(it.root, "alice", it.slot, &it.err));
    cr_assert_eq(readlink(outside("root/alice"), target, sizeof target - 1), 7 + 16);
    cr_assert_eq(strncmp(target, ".slots/", 7), 0);
    assert_works(workspace_find(it.root, "alice", found, &it.err));
    cr_assert_str_eq(found, it.slot);
    assert_works(workspace_slot_create(it.root, -1, -1, other, &it.err));
    assert_fails(workspace_link(it.root, "alice", other, &it.err), CONFLICT, EEXIST);
    assert_works(workspace_unlink(it.root, "alice", &it.err));
    assert_works(workspace_unlink(it.root, "alice", &it.err));
    assert_fails(workspace_find(it.root, "alice", found, &it.err), NOT_FOUND, ENOENT);
    assert_works(workspace_link(it.root, "alice", other, &it.err));
}

BOTH(name, of_a_slot_that_is_gone_is_free_again)
{
    char gone[WORKSPACE_SLOT_BYTES];

    assert_works(workspace_slot_create(it.root, -1, -1, gone, &it.err));
    assert_works(workspace_link(it.root, "bob", gone, &it.err));
    assert_works(workspace_slot_remove(it.root, gone, &never, &it.err));
    assert_fails(workspace_find(it.root, "bob", found, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_link(it.root, "bob", gone, &it.err), NOT_FOUND, ENOENT);
    assert_works(workspace_link(it.root, "bob", it.slot, &it.err));
    cr_assert_eq(mkdir(outside("root/empty"), 0755), 0);
    assert_works(workspace_link(it.root, "empty", it.slot, &it.err));
}

BOTH(name, that_leads_elsewhere_is_nobodys)
{
    static const char *const targets[] = {
        "/etc", "..", ".slots", ".slots/../..", ".slots/0123456789abcdef/", "/tmp/.slots/x", ".slots/0123456789abcdef"};

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        cr_assert_eq(symlink(targets[i], outside("root/evil")), 0);
        assert_fails(workspace_find(it.root, "evil", found, &it.err), NOT_FOUND, ENOENT);
        cr_assert_eq(unlink(outside("root/evil")), 0);
    }
    cr_assert_eq(symlink("/etc", outside("root/evil")), 0);
    assert_fails(workspace_link(it.root, "evil", it.slot, &it.err), CONFLICT, EEXIST);
}

BOTH(name, of_the_reference_is_its_directory)
{
    const struct workspace_identity as_operator = {-1, -1};
    struct workspace *workspace = NULL;
    char *path = NULL;
    auto_buf struct buf out = BUF_INIT(100);

    cr_assert_eq(mkdir(outside("root/old"), 0755), 0);
    assert_fails(workspace_find(it.root, "old", found, &it.err), NOT_FOUND, ENOENT);
    cr_assert_eq(mkdir(outside("root/old/workspace"), 0755), 0);
    put(outside("root/old/workspace/f"), "kept");
    assert_works(workspace_find(it.root, "old", found, &it.err));
    cr_assert_str_eq(found, "dir:old");
    assert_works(workspace_slot_path(it.root, found, &path, &it.err));
    cr_assert_str_eq(path, outside("root/old/workspace"));
    assert_works(workspace_open(it.root, found, &as_operator, &workspace, &it.err));
    assert_works(workspace_read(workspace, "f", &out, &it.err));
    cr_assert_str_eq(buf_str(&out), "kept");
    workspace_unref(workspace);
    assert_fails(workspace_link(it.root, "old", it.slot, &it.err), CONFLICT, EEXIST);
    assert_works(workspace_unlink(it.root, "old", &it.err));
    cr_assert(there(outside("root/old/workspace/f")));
    assert_works(workspace_slot_remove(it.root, found, &never, &it.err));
    cr_assert_not(there(outside("root/old")));
    assert_works(workspace_slot_remove(it.root, found, &never, &it.err));
    free(path);
}

BOTH(name, of_a_link_is_never_removed_as_a_directory)
{
    cr_assert_eq(mkdir(outside("victim"), 0755), 0);
    put(outside("victim/keep"), "x");
    cr_assert_eq(symlink(outside("victim"), outside("root/evil")), 0);
    assert_fails(workspace_slot_remove(it.root, "dir:evil", &never, &it.err), INVALID, ENOTDIR);
    cr_assert(there(outside("victim/keep")));
}

BOTH(names, are_what_find_would_find)
{
    struct workspace_name *names = NULL;
    struct utimbuf when = {1700000000, 1700000000};
    size_t count = 0;

    assert_works(workspace_link(it.root, "alice", it.slot, &it.err));
    cr_assert_eq(mkdir(outside("root/old"), 0755), 0);
    cr_assert_eq(mkdir(outside("root/old/workspace"), 0755), 0);
    cr_assert_eq(utime(outside("root/old"), &when), 0);
    cr_assert_eq(symlink("/etc", outside("root/evil")), 0);
    cr_assert_eq(mkdir(outside("root/.berth"), 0700), 0);
    put(outside("root/plain"), "file");
    assert_works(workspace_names(it.root, &names, &count, &it.err));
    cr_assert_eq(count, 2);
    for (size_t i = 0; i < count; i++) {
        bool is_old = strcmp(names[i].id, "old") == 0;

        cr_assert_str_eq(names[i].id, is_old ? "old" : "alice");
        cr_assert_str_eq(names[i].slot, is_old ? "dir:old" : it.slot);
        cr_assert_eq(names[i].mtime_unix_ms == 1700000000000, is_old);
    }
    free(names);
}

BOTH(open, sweeps_old_leftovers_of_live_workspaces_only)
{
    const char *left = in(".berth-0123456789abcdef");
    const char *clock_file = outside("clock");

    put(left, "half");
    put(in(".berth-0123456789abcdeX"), "theirs");
    put(in("file"), "theirs");
    cr_assert_eq(mkdir(in(".berth-00000000000000ff"), 0755), 0);
    open_as(SANDBOX_UID, SANDBOX_GID);
    cr_assert(there(left), "a write may be under way");
    put(clock_file, "61001\n");
    cr_assert_eq(setenv("BERTH_TEST_CLOCK", clock_file, 1), 0);
    open_as(-1, -1);
    cr_assert(there(left), "archives are only read");
    open_as(SANDBOX_UID, SANDBOX_GID);
    cr_assert_not(there(left));
    cr_assert_not(there(in(".berth-00000000000000ff")), "an archive that broke off with the broker");
    cr_assert_eq(count_names(it.path), 2);
}

BOTH(open, does_not_find_what_is_no_workspace)
{
    const struct workspace_identity as_operator = {-1, -1};
    struct workspace *workspace = NULL;

    assert_fails(workspace_open(it.root, "0123456789abcdef", &as_operator, &workspace, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_open(it.root, "dir:nobody", &as_operator, &workspace, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_open(it.root, "x", &as_operator, &workspace, &it.err), INVALID, EINVAL);
}
