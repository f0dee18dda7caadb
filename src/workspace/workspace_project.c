#include "workspace_project.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443 /* of every architecture */
#endif

/* Numbers of ours, so that an operator's own projects, which count from 1, are left alone. */
enum { FIRST_NUMBER = 0x40000000, LAST_NUMBER = 0x7fffffff, NUMBER_TRIES = 16, BLOCK_BYTES = 1024 };

static int quota(int fd, unsigned command, uint32_t number, void *data)
{
    return (int)syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), number, data);
}

static bool is_ours(uint32_t number)
{
    return number >= FIRST_NUMBER && number <= LAST_NUMBER;
}

static bool set_limits(int fd, uint32_t number, int64_t bytes, int64_t files)
{
    struct if_dqblk limits = {.dqb_bhardlimit = (uint64_t)(bytes + BLOCK_BYTES - 1) / BLOCK_BYTES,
                              .dqb_ihardlimit = (uint64_t)files,
                              .dqb_valid = QIF_LIMITS};

    return quota(fd, Q_SETQUOTA, number, &limits) == 0;
}

static bool is_free(int fd, uint32_t number)
{
    struct if_dqblk kept = {.dqb_valid = 0};

    if (quota(fd, Q_GETQUOTA, number, &kept) < 0)
        return errno == ENOENT;
    return !kept.dqb_curspace && !kept.dqb_curinodes && !kept.dqb_bhardlimit && !kept.dqb_ihardlimit;
}

uint32_t workspace_project_of(int fd)
{
    struct fsxattr attributes;

    if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0 || !(attributes.fsx_xflags & FS_XFLAG_PROJINHERIT))
        return 0;
    return is_ours(attributes.fsx_projid) ? attributes.fsx_projid : 0;
}

bool workspace_project_begin(int fd)
{
    struct fsxattr attributes;

    for (unsigned tries = 0; tries < NUMBER_TRIES; tries++) {
        uint32_t number;

        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return false;
        number = FIRST_NUMBER | (number & (LAST_NUMBER - FIRST_NUMBER));
        if (!is_free(fd, number))
            continue;
        if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0)
            return false;
        attributes.fsx_projid = number;
        attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
        return ioctl(fd, FS_IOC_FSSETXATTR, &attributes) == 0;
    }
    return false;
}

bool workspace_project_limit(int fd, int64_t bytes, int64_t files)
{
    uint32_t number = workspace_project_of(fd);

    return number && set_limits(fd, number, bytes, files);
}

void workspace_project_end(int fd, uint32_t number)
{
    (void)set_limits(fd, number, 0, 0);
}

void workspace_project_sweep(int fd)
{
    struct if_nextdqblk kept;

    for (uint32_t number = FIRST_NUMBER; is_ours(number); number = kept.dqb_id + 1) {
        memset(&kept, 0, sizeof kept);
        if (quota(fd, Q_GETNEXTQUOTA, number, &kept) < 0 || !is_ours(kept.dqb_id))
            return;
        if (!kept.dqb_curinodes && !kept.dqb_curspace && (kept.dqb_bhardlimit || kept.dqb_ihardlimit))
            workspace_project_end(fd, kept.dqb_id);
    }
}

/* -- the probe -- */

static const char *try_a_directory(int fd)
{
    const int64_t bytes = 1 << 20;
    struct if_dqblk kept = {.dqb_valid = 0};
    const char *why = NULL;

    if (!workspace_project_begin(fd))
        return "a directory cannot be given a project";
    if (!workspace_project_limit(fd, bytes, 10))
        return "a project's limit cannot be set";
    if (quota(fd, Q_GETQUOTA, workspace_project_of(fd), &kept) < 0 ||
        kept.dqb_bhardlimit != (uint64_t)bytes / BLOCK_BYTES || kept.dqb_ihardlimit != 10)
        why = "a project's limit is not kept";
    workspace_project_end(fd, workspace_project_of(fd));
    return why;
}

bool workspace_project_probe(int dir_fd, const char **ret_why)
{
    struct fs_quota_statv state = {.qs_version = FS_QSTATV_VERSION1};
    char name[32];
    int fd;

    if (quota(dir_fd, Q_XGETQSTATV, 0, &state) < 0) {
        *ret_why = errno == ENOSYS && syscall(SYS_quotactl_fd, -1, 0, 0, NULL) < 0 && errno == ENOSYS
                       ? "the kernel has no quotactl_fd (Linux 5.14)"
                       : "the file system has no project quotas";
        return false;
    }
    if (!(state.qs_flags & FS_QUOTA_PDQ_ENFD)) {
        *ret_why = "project quotas are not in force (mount option prjquota)";
        return false;
    }
    (void)snprintf(name, sizeof name, ".probe-%ld", (long)getpid());
    if ((mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST) ||
        (fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
        *ret_why = "no directory can be made to try it";
        return false;
    }
    *ret_why = try_a_directory(fd);
    (void)close(fd);
    (void)unlinkat(dir_fd, name, AT_REMOVEDIR);
    return !*ret_why;
}
