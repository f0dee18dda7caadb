/* A workspace root in a directory of its own, for the tests of room workspace. Every test runs in a process of its own.
 */
#ifndef BERTH_WORKSPACE_FIXTURE_H
#define BERTH_WORKSPACE_FIXTURE_H

#include "log.h"
#include "workspace.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Tests with tens of thousands of files would wait for a busy disk most of their time. */
#ifndef FIXTURE_IN_MEMORY
#define FIXTURE_IN_MEMORY 0
#endif

enum { SANDBOX_UID = 12345, SANDBOX_GID = 12346 };

static struct {
    char dir[64]; /* holds "root", and whatever is outside of it */
    char slot[WORKSPACE_SLOT_BYTES];
    char *path; /* of the workspace */
    struct workspace_root *root;
    struct workspace *workspace;
    struct error err;
} it;

static const struct cancel never = CANCEL_NEVER;

#define assert_fails(call, error_code, number)                                                                        \
    do {                                                                                                              \
        error_clear(&it.err);                                                                                         \
        cr_assert_eq((call), -1, "%s: taken", #call);                                                                 \
        cr_assert_eq(it.err.code, ERROR_##error_code, "%s: %s %s", #call, error_code_name(it.err.code), it.err.text); \
        cr_assert_eq(it.err.sys_errno, (number), "%s: errno %d, %s", #call, it.err.sys_errno, it.err.text);           \
    } while (0)

#define assert_works(call)                                     \
    do {                                                       \
        error_clear(&it.err);                                  \
        cr_assert_eq((call), 0, "%s: %s", #call, it.err.text); \
    } while (0)

static __attribute__((unused)) const char *in(const char *below)
{
    static char paths[8][4096];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    (void)snprintf(path, 4096, "%s/%s", it.path, below);
    return path;
}

static __attribute__((unused)) const char *outside(const char *below)
{
    static char paths[8][4096];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    (void)snprintf(path, 4096, "%s/%s", it.dir, below);
    return path;
}

static __attribute__((unused)) void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    cr_assert_not_null(file, "%s", path);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static __attribute__((unused)) const char *get(const char *path)
{
    static char text[4096];
    FILE *file = fopen(path, "re");
    size_t size;

    if (!file)
        return "(none)";
    size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    (void)fclose(file);
    return text;
}

static __attribute__((unused)) bool there(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0;
}

/* All there are in a directory of the host, hidden ones as well. */
static __attribute__((unused)) int count_names(const char *path)
{
    DIR *dir = opendir(path);
    int count = -2; /* "." and ".." */

    cr_assert_not_null(dir, "%s", path);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

static __attribute__((unused)) void open_as(int64_t uid, int64_t gid)
{
    const struct workspace_identity identity = {uid, gid};

    workspace_unref(it.workspace);
    it.workspace = NULL;
    cr_assert_eq(workspace_open(it.root, it.slot, &identity, &it.workspace, &it.err), 0, "%s", it.err.text);
}

static __attribute__((unused)) void arrange(bool force_walk)
{
    char root[96];

    cr_assert_eq(geteuid(), 0, "the tests of identities need root");
    (void)umask(022);
    log_set_level(LOG_LEVEL_ERROR);
    workspace_jail_force_walk(force_walk);
    (void)snprintf(it.dir, sizeof it.dir, "%s/workspace-test-XXXXXX",
                   FIXTURE_IN_MEMORY && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    cr_assert_not_null(mkdtemp(it.dir));
    cr_assert_eq(chmod(it.dir, 0711), 0);
    (void)snprintf(root, sizeof root, "%s/root", it.dir);
    cr_assert_eq(workspace_root_open(root, &it.root, &it.err), 0, "%s", it.err.text);
    cr_assert_eq(workspace_slot_create(it.root, SANDBOX_UID, SANDBOX_GID, it.slot, &it.err), 0, "%s", it.err.text);
    cr_assert_eq(workspace_slot_path(it.root, it.slot, &it.path, &it.err), 0, "%s", it.err.text);
    open_as(SANDBOX_UID, SANDBOX_GID);
}

static __attribute__((unused)) int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    return remove(path);
}

static __attribute__((unused)) void clear_away(void)
{
    workspace_unref(it.workspace);
    assert_works(workspace_slot_remove(it.root, it.slot, &never, &it.err));
    workspace_root_close(it.root);
    free(it.path);
    cr_expect_eq(nftw(it.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The same test twice: with openat2 and O_TMPFILE, and with what stands in for them. */
#define BOTH(suite, name)               \
    static void suite##_##name(void);   \
    Test(suite, name)                   \
    {                                   \
        arrange(false);                 \
        suite##_##name();               \
        clear_away();                   \
    }                                   \
    Test(suite##_without_openat2, name) \
    {                                   \
        arrange(true);                  \
        suite##_##name();               \
        clear_away();                   \
    }                                   \
    static void suite##_##name(void)

#endif
