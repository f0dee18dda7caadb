#include "workspace_fixture.h"

#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static const char *read_text(const char *path)
{
    static char text[4096];
    struct buf out = BUF_INIT(sizeof text - 1);

    error_clear(&it.err);
    if (workspace_read(it.workspace, path, &out, &it.err) < 0)
        return error_code_name(it.err.code);
    (void)snprintf(text, sizeof text, "%s", buf_str(&out));
    buf_done(&out);
    return text;
}

static int read_into(const char *path, size_t max_bytes)
{
    auto_buf struct buf out = BUF_INIT(max_bytes);

    return workspace_read(it.workspace, path, &out, &it.err);
}

static int write_text(const char *path, const char *text)
{
    return workspace_write(it.workspace, path, text, strlen(text), -1, &it.err);
}

static mode_t mode_of(const char *path)
{
    struct stat status;

    cr_assert_eq(lstat(path, &status), 0, "%s", path);
    return status.st_mode & 07777;
}

static uid_t owner_of(const char *path)
{
    struct stat status;

    cr_assert_eq(lstat(path, &status), 0, "%s", path);
    return status.st_uid;
}

static void make_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    (void)close(fd);
}

/* Names joined by "|", in their order. */
static const char *names_in(const char *path)
{
    static char text[8192];
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;

    assert_works(workspace_list(it.workspace, path, 1000, &list, &it.err));
    text[0] = '\0';
    for (size_t i = 0; i < list.count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "|" : "", list.entries[i].name);
    return text;
}

/* -- reading -- */

BOTH(read, gives_every_byte)
{
    char data[256 * 3];
    auto_buf struct buf out = BUF_INIT(4096);

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)i;
    assert_works(workspace_write(it.workspace, "d/bytes", data, sizeof data, -1, &it.err));
    assert_works(workspace_read(it.workspace, "d/bytes", &out, &it.err));
    cr_assert_eq(out.size, sizeof data);
    cr_assert_arr_eq(out.data, data, sizeof data);
    assert_works(workspace_write(it.workspace, "empty", "", 0, -1, &it.err));
    cr_assert_str_eq(read_text("empty"), "");
}

BOTH(read, keeps_to_the_maximum_to_the_byte)
{
    put(in("ten"), "0123456789");
    assert_works(read_into("ten", 10));
    assert_fails(read_into("ten", 9), TOO_LARGE, 0);
    assert_fails(read_into("ten", 0), TOO_LARGE, 0);
    put(in("none"), "");
    assert_works(read_into("none", 0));
    cr_assert_eq(truncate(in("ten"), (off_t)8 << 30), 0);
    assert_fails(read_into("ten", 1 << 20), TOO_LARGE, 0);
}

BOTH(read, names_what_is_in_the_way)
{
    put(in("file"), "x");
    cr_assert_eq(mkdir(in("dir"), 0755), 0);
    cr_assert_eq(symlink("file", in("link")), 0);
    cr_assert_eq(symlink("dir", in("dirlink")), 0);
    cr_assert_eq(symlink("nowhere", in("dangling")), 0);
    cr_assert_eq(symlink("loop", in("loop")), 0);
    assert_fails(read_into("none", 9), NOT_FOUND, ENOENT);
    assert_fails(read_into("none/x", 9), NOT_FOUND, ENOENT);
    assert_fails(read_into("file/x", 9), INVALID, ENOTDIR);
    assert_fails(read_into("dir", 9), INVALID, EISDIR);
    assert_fails(read_into("", 9), INVALID, EISDIR);
    assert_fails(read_into("link", 9), HANDOVER, ELOOP);
    assert_fails(read_into("dirlink/x", 9), HANDOVER, ELOOP);
    assert_fails(read_into("dangling", 9), HANDOVER, ELOOP);
    assert_fails(read_into("loop/x", 9), HANDOVER, ELOOP);
}

BOTH(read, never_waits_for_special_files)
{
    cr_assert_eq(mkfifo(in("fifo"), 0666), 0);
    make_socket(in("socket"));
    cr_assert_eq(mknod(in("device"), S_IFCHR | 0666, makedev(1, 5)), 0);
    cr_assert_eq(chown(in("device"), SANDBOX_UID, SANDBOX_GID), 0);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"fifo", "socket", "device"};
        struct workspace_entry entry;

        assert_fails(read_into(names[i], 9), HANDOVER, ENXIO);
        assert_fails(workspace_stat(it.workspace, names[i], &entry, &it.err), HANDOVER, ENXIO);
        assert_fails(write_text(names[i], "x"), HANDOVER, ENXIO);
    }
    cr_assert_str_eq(names_in(""), "device|fifo|socket");
}

BOTH(read, hands_over_names_that_are_too_long)
{
    char name[300];

    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_works(write_text(name, "longest"));
    cr_assert_str_eq(read_text(name), "longest");
    name[255] = 'n';
    name[256] = '\0';
    assert_fails(read_into(name, 9), HANDOVER, ENAMETOOLONG);
    assert_fails(write_text(name, "x"), HANDOVER, ENAMETOOLONG);
    open_as(-1, -1);
    assert_fails(read_into(name, 9), NOT_FOUND, ENAMETOOLONG);
}

BOTH(read, reaches_below_the_longest_path_of_the_kernel)
{
    static char path[20 * 256];
    struct workspace_entry entry;
    size_t used = 0;

    for (int i = 0; i < 19; i++) {
        memset(path + used, 'a' + i, 250);
        used += 250;
        path[used++] = '/';
    }
    memcpy(path + used, "file", 5);
    assert_works(write_text(path, "deep"));
    cr_assert_str_eq(read_text(path), "deep");
    assert_works(workspace_stat(it.workspace, path, &entry, &it.err));
    cr_assert_eq(entry.size_bytes, 4);
    assert_works(workspace_realpath(it.workspace, path, &it.err));
    path[used] = '\0';
    path[used - 1] = '\0';
    cr_assert_str_eq(names_in(path), "file");
}

BOTH(stat, tells_kind_size_and_time)
{
    struct workspace_entry entry;
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1700000000, .tv_nsec = 123456789}};

    put(in("file"), "12345");
    cr_assert_eq(chmod(in("file"), 04751), 0);
    cr_assert_eq(utimensat(AT_FDCWD, in("file"), times, 0), 0);
    assert_works(workspace_stat(it.workspace, "file", &entry, &it.err));
    cr_assert(entry.is_regular && !entry.is_dir && !entry.is_link);
    cr_assert_eq(entry.size_bytes, 5);
    cr_assert_eq(entry.mtime_unix_us, 1700000000123457);
    cr_assert_eq(entry.mode, 0751);
    assert_works(workspace_stat(it.workspace, "", &entry, &it.err));
    cr_assert(entry.is_dir);
    cr_assert_eq(symlink("file", in("link")), 0);
    assert_fails(workspace_stat(it.workspace, "link", &entry, &it.err), HANDOVER, ELOOP);
    assert_fails(workspace_stat(it.workspace, "none", &entry, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_stat(it.workspace, "file/x", &entry, &it.err), INVALID, ENOTDIR);
}

BOTH(realpath, takes_a_missing_tail_and_hands_over_any_link)
{
    put(in("file"), "x");
    cr_assert_eq(mkdir(in("dir"), 0755), 0);
    cr_assert_eq(symlink("dir", in("link")), 0);
    assert_works(workspace_realpath(it.workspace, "", &it.err));
    assert_works(workspace_realpath(it.workspace, "dir", &it.err));
    assert_works(workspace_realpath(it.workspace, "dir/none/more", &it.err));
    assert_works(workspace_realpath(it.workspace, "file/below", &it.err));
    assert_fails(workspace_realpath(it.workspace, "link", &it.err), HANDOVER, ELOOP);
    assert_fails(workspace_realpath(it.workspace, "link/none", &it.err), HANDOVER, ELOOP);
}

BOTH(open_file, gives_a_descriptor_of_a_regular_file_only)
{
    struct workspace_entry entry;
    char text[8] = "";
    int fd = -1;

    put(in("file"), "abc");
    assert_works(workspace_open_file(it.workspace, "file", &fd, &entry, &it.err));
    cr_assert_eq(read(fd, text, sizeof text), 3);
    cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    cr_assert_eq(entry.size_bytes, 3);
    (void)close(fd);
    assert_fails(workspace_open_file(it.workspace, "", &fd, NULL, &it.err), INVALID, EISDIR);
}

/* -- listing -- */

BOTH(list, gives_odd_names_exactly_and_in_order)
{
    static const char *const names[] = {"-n",       "#",       " c ", "%41", "a\nb", "\xc3\xa9",
                                        "bad\377n", ".hidden", "B",   "9",   "10"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_works(write_text(names[i], names[i]));
    put(in(".berth-0123456789abcdef"), "half");
    put(in(".berth-0123456789abcdeX"), "not ours");
    cr_assert_str_eq(names_in(""), " c |#|%41|-n|.berth-0123456789abcdeX|.hidden|10|9|B|a\nb|bad\377n|\xc3\xa9");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert_str_eq(read_text(names[i]), names[i]);
}

BOTH(list, shows_links_and_unreadable_directories_as_themselves)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;

    put(in("a"), "a");
    cr_assert_eq(symlink("nowhere", in("dang")), 0);
    cr_assert_eq(symlink("loop", in("loop")), 0);
    cr_assert_eq(mkdir(in("locked"), 0), 0);
    assert_works(workspace_list(it.workspace, "", 10, &list, &it.err));
    cr_assert_eq(list.count, 4);
    cr_assert(list.entries[0].is_regular && list.entries[1].is_link && list.entries[2].is_dir &&
              list.entries[3].is_link);
    workspace_list_done(&list);
    assert_fails(workspace_list(it.workspace, "locked", 10, &list, &it.err), HANDOVER, EACCES);
}

BOTH(list, tells_missing_from_empty_and_from_a_file)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;

    cr_assert_str_eq(names_in(""), "");
    put(in("file"), "x");
    cr_assert_eq(symlink(".", in("self")), 0);
    assert_fails(workspace_list(it.workspace, "none", 10, &list, &it.err), NOT_FOUND, ENOENT);
    assert_fails(workspace_list(it.workspace, "file", 10, &list, &it.err), INVALID, ENOTDIR);
    assert_fails(workspace_list(it.workspace, "self", 10, &list, &it.err), HANDOVER, ELOOP);
    assert_fails(workspace_list(it.workspace, "", 1, &list, &it.err), TOO_LARGE, 0);
    assert_works(workspace_list(it.workspace, "", 2, &list, &it.err));
}

BOTH(list, holds_thousands_of_names)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    char name[32];

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "n%04d", i);
        (void)close(open(in(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    }
    assert_works(workspace_list(it.workspace, "", 5000, &list, &it.err));
    cr_assert_eq(list.count, 5000);
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "n%04d", i);
        cr_assert_str_eq(list.entries[i].name, name);
    }
}

/* -- writing -- */

BOTH(write, makes_parents_and_keeps_modes)
{
    assert_works(write_text("a/b/c", "one"));
    cr_assert_str_eq(get(in("a/b/c")), "one");
    cr_assert_eq(mode_of(in("a")), 0755);
    cr_assert_eq(mode_of(in("a/b/c")), 0644);
    cr_assert_eq(chmod(in("a/b/c"), 06777), 0);
    assert_works(write_text("a/b/c", "two"));
    cr_assert_str_eq(get(in("a/b/c")), "two");
    cr_assert_eq(mode_of(in("a/b/c")), 0777);
    cr_assert_str_eq(names_in("a/b"), "c");
}

BOTH(write, names_what_is_in_the_way_and_leaves_it)
{
    put(in("file"), "old");
    put(outside("secret"), "secret");
    cr_assert_eq(mkdir(in("dir"), 0755), 0);
    cr_assert_eq(symlink(outside("secret"), in("link")), 0);
    cr_assert_eq(symlink(it.dir, in("dirlink")), 0);
    assert_fails(write_text("", "x"), INVALID, EISDIR);
    assert_fails(write_text("dir", "x"), INVALID, EISDIR);
    assert_fails(write_text("file/x", "x"), INVALID, ENOTDIR);
    assert_fails(write_text("file/x/y", "x"), INVALID, ENOTDIR);
    assert_fails(write_text("link", "x"), HANDOVER, ELOOP);
    assert_fails(write_text("dirlink/new", "x"), HANDOVER, ELOOP);
    assert_fails(write_text("dirlink/new/deeper", "x"), HANDOVER, ELOOP);
    assert_fails(write_text(".berth-0123456789abcdef", "x"), INVALID, EINVAL);
    cr_assert_str_eq(get(outside("secret")), "secret");
    cr_assert_str_eq(get(in("file")), "old");
    cr_assert_not(there(outside("new")));
    cr_assert_str_eq(names_in(""), "dir|dirlink|file|link");
}

BOTH(write, takes_a_spooled_body_from_where_it_stands)
{
    int fd = open(outside("body"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    cr_assert_eq(write(fd, "skip the body", 13), 13);
    cr_assert_eq(lseek(fd, 5, SEEK_SET), 5);
    assert_works(workspace_write(it.workspace, "x", NULL, 0, fd, &it.err));
    cr_assert_str_eq(get(in("x")), "the body");
    (void)close(fd);
}

BOTH(write, leaves_the_old_file_when_the_disk_is_full)
{
    char *big = calloc(1, 1 << 20);
    const struct rlimit limit = {.rlim_cur = 64 * 1024, .rlim_max = RLIM_INFINITY};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};

    assert_works(write_text("file", "old"));
    cr_assert_eq(sigaction(SIGXFSZ, &ignore, NULL), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(workspace_write(it.workspace, "file", big, 1 << 20, -1, &it.err), -1);
    cr_assert_eq(it.err.sys_errno, EFBIG);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    cr_assert_str_eq(get(in("file")), "old");
    cr_assert_eq(count_names(it.path), 1);
    free(big);
}

BOTH(mkdir, is_idempotent_and_names_files)
{
    put(in("file"), "x");
    cr_assert_eq(symlink(it.dir, in("link")), 0);
    assert_works(workspace_mkdir(it.workspace, "", &it.err));
    assert_works(workspace_mkdir(it.workspace, "a/b/c", &it.err));
    assert_works(workspace_mkdir(it.workspace, "a/b/c", &it.err));
    cr_assert_eq(mode_of(in("a/b/c")), 0755);
    cr_assert_eq(owner_of(in("a/b/c")), SANDBOX_UID);
    assert_fails(workspace_mkdir(it.workspace, "file", &it.err), INVALID, EEXIST);
    assert_fails(workspace_mkdir(it.workspace, "file/x", &it.err), INVALID, ENOTDIR);
    assert_fails(workspace_mkdir(it.workspace, "file/x/y", &it.err), INVALID, ENOTDIR);
    assert_fails(workspace_mkdir(it.workspace, "link", &it.err), HANDOVER, ELOOP);
    assert_fails(workspace_mkdir(it.workspace, "link/new", &it.err), HANDOVER, ELOOP);
    cr_assert_not(there(outside("new")));
}

/* -- identities -- */

BOTH(identity, owns_what_it_makes_and_is_judged_by_the_kernel)
{
    assert_works(write_text("a/mine", "x"));
    cr_assert_eq(owner_of(in("a/mine")), SANDBOX_UID);
    cr_assert_eq(owner_of(in("a")), SANDBOX_UID);
    put(in("roots"), "secret");
    cr_assert_eq(chmod(in("roots"), 0600), 0);
    assert_fails(read_into("roots", 100), HANDOVER, EACCES);
    cr_assert_eq(mkdir(in("rootdir"), 0755), 0);
    assert_fails(write_text("rootdir/x", "x"), HANDOVER, EACCES);
    assert_fails(workspace_mkdir(it.workspace, "rootdir/y/z", &it.err), HANDOVER, EACCES);
    put(in("rootdir/kept"), "x");
    assert_fails(workspace_remove(it.workspace, "rootdir/kept", &never, &it.err), HANDOVER, EACCES);
    assert_fails(workspace_remove(it.workspace, "rootdir", &never, &it.err), HANDOVER, EACCES);
    cr_assert(there(in("rootdir/kept")));
    open_as(-1, -1);
    cr_assert_str_eq(read_text("roots"), "secret");
}

BOTH(identity, replaces_through_the_target_directory_when_the_top_is_not_its_own)
{
    cr_assert_eq(chown(it.path, 0, 0), 0);
    cr_assert_eq(mkdir(in("sub"), 0755), 0);
    cr_assert_eq(chown(in("sub"), SANDBOX_UID, SANDBOX_GID), 0);
    assert_works(write_text("sub/x", "one"));
    assert_works(write_text("sub/x", "two"));
    cr_assert_str_eq(get(in("sub/x")), "two");
    cr_assert_str_eq(names_in("sub"), "x");
}

BOTH(identity, is_left_again_whatever_happened)
{
    (void)write_text("a", "x");
    (void)read_text("none");
    (void)write_text("a/b", "x");
    put(outside("as-root"), "x");
    cr_assert_eq(owner_of(outside("as-root")), 0);
    cr_assert(workspace_can_change_identity());
    put(outside("as-root-still"), "x");
    cr_assert_eq(owner_of(outside("as-root-still")), 0);
}

BOTH(identity, that_cannot_be_taken_on_hands_everything_over)
{
    put(in("file"), "x");
    cr_assert_eq(seteuid(SANDBOX_UID), 0);
    cr_assert_not(workspace_can_change_identity());
    open_as(SANDBOX_UID + 1, SANDBOX_GID);
    assert_fails(read_into("file", 100), HANDOVER, EPERM);
    assert_fails(write_text("new", "x"), HANDOVER, EPERM);
    open_as(SANDBOX_UID, 0);
    cr_assert_str_eq(read_text("file"), "x");
    assert_works(write_text("new", "x"));
    cr_assert_eq(seteuid(0), 0);
    cr_assert_eq(owner_of(in("new")), SANDBOX_UID);
}

BOTH(identity, does_not_keep_the_groups_of_the_broker)
{
    const gid_t groups[] = {777};

    cr_assert_eq(setgroups(1, groups), 0);
    assert_works(workspace_drop_groups(&it.err));
    put(in("group"), "secret");
    cr_assert_eq(chown(in("group"), 0, 777), 0);
    cr_assert_eq(chmod(in("group"), 0640), 0);
    assert_fails(read_into("group", 100), HANDOVER, EACCES);
}

/* -- paths -- */

/* Borrowed for a few calls. */
static const char *keep(char *below)
{
    static char kept[4][256];
    static unsigned turn;
    char *text = kept[turn++ % 4];

    (void)snprintf(text, sizeof *kept, "%s", below);
    free(below);
    return text;
}

static const char *live(const char *path)
{
    char *below = NULL;

    error_clear(&it.err);
    if (workspace_path_live("/workspace", path, strlen(path), &below, &it.err) < 0)
        return error_code_name(it.err.code);
    return keep(below);
}

static const char *archived(const char *path)
{
    char *below = NULL;

    error_clear(&it.err);
    if (workspace_path_archive("/workspace/", path, strlen(path), &below, &it.err) < 0)
        return error_code_name(it.err.code);
    return keep(below);
}

Test(path, live_is_absolute_below_the_work_dir)
{
    char *below = NULL;

    cr_assert_str_eq(live("/workspace"), "");
    cr_assert_str_eq(live("/workspace/"), "");
    cr_assert_str_eq(live("/workspace//a///b/"), "a/b");
    cr_assert_str_eq(live("/workspace/..."), "...");
    cr_assert_str_eq(live(""), "INVALID");
    cr_assert_eq(it.err.sys_errno, EINVAL);
    cr_assert_str_eq(live("a"), "INVALID");
    cr_assert_str_eq(live("//workspace/a"), "HANDOVER");
    cr_assert_str_eq(live("/workspaces/a"), "HANDOVER");
    cr_assert_str_eq(live("/work"), "HANDOVER");
    cr_assert_str_eq(live("/"), "HANDOVER");
    cr_assert_str_eq(live("/workspace/./a"), "HANDOVER");
    cr_assert_str_eq(live("/workspace/a/.."), "HANDOVER");
    cr_assert_str_eq(live("/etc/passwd"), "HANDOVER");
    assert_fails(workspace_path_live("/workspace", "/workspace/a\0b", 14, &below, &it.err), INVALID, EINVAL);
    assert_works(workspace_path_live("/", "/a/b", 4, &below, &it.err));
    cr_assert_str_eq(keep(below), "a/b");
}

Test(path, archive_is_below_the_root_whatever_it_says)
{
    char *below = NULL;

    cr_assert_str_eq(archived(""), "");
    cr_assert_str_eq(archived("."), "");
    cr_assert_str_eq(archived("/"), "");
    cr_assert_str_eq(archived("/workspace"), "");
    cr_assert_str_eq(archived("/workspace/a"), "a");
    cr_assert_str_eq(archived("workspace/a"), "workspace/a");
    cr_assert_str_eq(archived("/etc/passwd"), "etc/passwd");
    cr_assert_str_eq(archived("./a/./b//"), "a/b");
    cr_assert_str_eq(archived("a/../b"), "INVALID");
    cr_assert_str_eq(archived(".."), "INVALID");
    cr_assert_str_eq(archived("a..b/..c"), "a..b/..c");
    assert_fails(workspace_path_archive("/workspace", "a\0b", 3, &below, &it.err), INVALID, EINVAL);
}
