/* workspace/workspace_project.h: limits that ext4 and XFS keep by project: a directory is given a number of its own, what is made in it
 * inherits the number, and the kernel counts bytes and files of each number. The number lies in the directory itself; nothing else
 * has to be remembered. By ioctl and quotactl_fd(2) (Linux 5.14), no tool is started. Knows nothing else of this room. Needs root.
 * Sandboxes must not change numbers: seccomp.def sees to that. Threads: any. Blocks on the disk. */
#ifndef BERTH_WORKSPACE_PROJECT_H
#define BERTH_WORKSPACE_PROJECT_H

#include <stdbool.h>
#include <stdint.h>

/* Does the file system of this directory keep limits of projects? Tries it, with a directory that goes again. False: *ret_why, a static
 * text, says what is missing. */
bool workspace_project_probe(int dir_fd, const char **ret_why);
/* A new, empty directory (open for reading) gets a number. */
bool workspace_project_begin(int fd);
uint32_t workspace_project_of(int fd); /* 0: none of ours */
/* Whoever makes more than that in it gets EDQUOT (ENOSPC on XFS); 0: any. False: it has no number, or the limit cannot be set. */
bool workspace_project_limit(int fd, int64_t bytes, int64_t files);
/* The directory is gone: so is what was kept of its number. `fd`: anything on that file system. */
void workspace_project_end(int fd, uint32_t number);
/* The same of all numbers that nothing has any more. */
void workspace_project_sweep(int fd);

#endif
