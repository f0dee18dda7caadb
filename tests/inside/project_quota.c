/* Process 1 of a virtual machine whose kernel has project quotas: src/workspace/workspace_project.c against real ext4 and XFS.
 *
 * Says "ok …" or "not ok …" a line on the console, "end" last, and switches the machine off. Disks: vda ext4 and vdb XFS, both to be mounted
 * with prjquota; vdc ext4 without. Modules lie in /modules, to be loaded in the order of /modules/order. */
#include "workspace_project.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1024 * 1024, SOMEBODY = 1234 };

static const char *where;

static void tell(int right, const char *what)
{
    printf("%s %s: %s (errno %s)\n", right ? "ok" : "not ok", where, what, right ? "-" : strerror(errno));
    fflush(stdout);
}

static void load_modules(void)
{
    FILE *order = fopen("/modules/order", "r");
    char name[256];

    while (order && fgets(name, sizeof name, order)) {
        int fd;

        name[strcspn(name, "\n")] = '\0';
        fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
            printf("# %s: %s\n", name, strerror(errno));
        close(fd);
    }
}

/* As somebody without rights, in a process of its own: what `work` returns. */
static int as_somebody(int (*work)(const char *directory), const char *directory)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (setgid(SOMEBODY) < 0 || setuid(SOMEBODY) < 0)
            _exit(255);
        _exit(work(directory));
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* XFS says that the disk is full where a project is. */
static int is_limit(int number)
{
    return number == EDQUOT || number == ENOSPC;
}

/* Megabytes until the limit; 200: that was another error. */
static int write_much(const char *directory)
{
    static char piece[MIB];
    char path[128];
    long written = 0;
    ssize_t got = 0;
    int fd;

    snprintf(path, sizeof path, "%s/big", directory);
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return 200;
    memset(piece, 'x', sizeof piece);
    while (written < 40 * MIB && (got = write(fd, piece, sizeof piece)) > 0 && fsync(fd) == 0)
        written += got;
    if (written < 40 * MIB && !is_limit(errno))
        written = 200L * MIB;
    close(fd);
    return (int)(written / MIB);
}

static int make_many(const char *directory)
{
    char path[128];
    int made = 0;

    for (; made < 100; made++) {
        int fd;

        snprintf(path, sizeof path, "%s/f%d", directory, made);
        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (fd < 0)
            return is_limit(errno) ? made : 200;
        close(fd);
    }
    return made;
}

static int make_slot(const char *path)
{
    int fd;

    if (mkdir(path, 0755) < 0 || chown(path, SOMEBODY, SOMEBODY) < 0)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && workspace_project_begin(fd) ? fd : -1;
}

static void clear_slot(const char *path)
{
    char command[128];

    for (int i = 0; i < 100; i++) {
        snprintf(command, sizeof command, "%s/f%d", path, i);
        (void)unlink(command);
    }
    snprintf(command, sizeof command, "%s/big", path);
    (void)unlink(command);
}

static void try_unnamed(int fd)
{
    static char piece[4 * MIB];
    int unnamed = openat(fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", unnamed);
    tell(unnamed >= 0 && write(unnamed, piece, sizeof piece) == (ssize_t)sizeof piece &&
             linkat(AT_FDCWD, path, fd, "named", AT_SYMLINK_FOLLOW) == 0,
         "an unnamed file gets its name in the same project");
    close(unnamed);
    (void)unlinkat(fd, "named", 0);
    close(open("/mnt/outside", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    tell(renameat(AT_FDCWD, "/mnt/outside", fd, "moved") < 0 && errno == EXDEV,
         "what is counted elsewhere is not moved in");
    (void)unlink("/mnt/outside");
}

static void try_file_system(const char *device, const char *type)
{
    const char *why = "";
    uint32_t number;
    int top;
    int one;
    int two;

    where = type;
    tell(mount(device, "/mnt", type, 0, "prjquota") == 0, "mounted");
    top = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int in_force = workspace_project_probe(top, &why);
    tell(in_force, why ? why : "the probe finds it in force");
    one = make_slot("/mnt/one");
    two = make_slot("/mnt/two");
    tell(one >= 0 && two >= 0 && workspace_project_of(one) && workspace_project_of(one) != workspace_project_of(two),
         "numbers of their own");
    tell(workspace_project_limit(one, 8 * MIB, 20) && workspace_project_limit(two, 0, 0), "limits are set");
    int written = as_somebody(write_much, "/mnt/one");
    printf("# %s: %d MiB of 8\n", type, written);
    tell(written >= 6 && written <= 8, "bytes end at the limit");
    clear_slot("/mnt/one");
    int made = as_somebody(make_many, "/mnt/one");
    printf("# %s: %d files of 20\n", type, made);
    tell(made >= 17 && made <= 20, "files end at the limit");
    tell(as_somebody(write_much, "/mnt/two") == 40 && as_somebody(make_many, "/mnt/two") == 100,
         "another slot has its own");
    clear_slot("/mnt/one");
    tell(workspace_project_limit(one, 20 * MIB, 0), "a limit is changed");
    written = as_somebody(write_much, "/mnt/one");
    tell(written >= 17 && written <= 20, "and the new one holds");
    clear_slot("/mnt/one"); /* XFS has no room for nodes of files in a project that is full */
    tell(as_somebody(make_many, "/mnt/one") == 100, "files without a limit");
    clear_slot("/mnt/one");
    tell(mkdirat(one, "d", 0777) == 0 && mkdirat(one, "d/e", 0777) == 0 && fchmodat(one, "d/e", 0777, 0) == 0,
         "directories in it");
    written = as_somebody(write_much, "/mnt/one/d/e");
    tell(written >= 17 && written <= 20, "what is made below counts");
    (void)unlink("/mnt/one/d/e/big");
    try_unnamed(one);
    /* The end: nothing is kept of it, however it ends. */
    number = workspace_project_of(one);
    tell(unlinkat(one, "d/e", AT_REMOVEDIR) == 0 && unlinkat(one, "d", AT_REMOVEDIR) == 0 && rmdir("/mnt/one") == 0,
         "removed");
    close(one);
    workspace_project_sweep(top);
    one = make_slot("/mnt/one");
    tell(one >= 0 && workspace_project_of(one) != number, "a new one has another number");
    close(one);
    close(two);
    close(top);
    tell(umount("/mnt") == 0, "unmounted");
}

static void try_without(const char *device)
{
    const char *why = NULL;
    int top;

    where = "ext4 without prjquota";
    tell(mount(device, "/mnt", "ext4", 0, NULL) == 0, "mounted");
    top = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tell(!workspace_project_probe(top, &why) && why, "the probe refuses it");
    printf("# %s\n", why ? why : "");
    close(top);
    tell(umount("/mnt") == 0, "unmounted");
    where = "tmpfs";
    tell(mount("tmpfs", "/mnt", "tmpfs", 0, NULL) == 0, "mounted");
    top = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tell(!workspace_project_probe(top, &why) && why, "the probe refuses it");
    printf("# %s\n", why ? why : "");
}

int main(void)
{
    (void)mkdir("/dev", 0755);
    (void)mkdir("/proc", 0755);
    (void)mkdir("/mnt", 0755);
    (void)mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    (void)mount("proc", "/proc", "proc", 0, NULL);
    if (!freopen("/dev/ttyS0", "w", stdout))
        return 1;
    load_modules();
    for (int i = 0; i < 100 && access("/dev/vdc", F_OK) < 0; i++)
        usleep(100000);
    try_file_system("/dev/vda", "ext4");
    try_file_system("/dev/vdb", "xfs");
    try_without("/dev/vdc");
    printf("end\n");
    fflush(stdout);
    sync();
    (void)reboot(RB_POWER_OFF);
    return 0;
}
