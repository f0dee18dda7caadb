/* workspace/workspace_btrfs.h: what btrfs can do for a slot: its `workspace` is a subvolume there, so that a copy is a snapshot,
 * removal is one call, and a quota group counts it. By ioctl, no tool is started. False wherever it cannot be done: the caller has
 * a slower way. Threads: any. Blocks on the disk. */
#ifndef BERTH_WORKSPACE_BTRFS_H
#define BERTH_WORKSPACE_BTRFS_H

#include <stdbool.h>
#include <stdint.h>

bool workspace_btrfs_is_subvolume(int fd);
/* An empty subvolume `name` in the directory (open for reading). */
bool workspace_btrfs_create(int dir_fd, const char *name);
/* The empty subvolume or directory `name` becomes a snapshot of `from_fd` (open for reading), if that is a subvolume that holds no
 * other one, which a snapshot would leave out, and is a member of `group` (0: of whatever), as the snapshot is then. Whatever goes
 * wrong, an empty `name` is there again. */
bool workspace_btrfs_snapshot(int dir_fd, const char *name, int from_fd, uint64_t group);
/* Gone from sight at once, its blocks some time later. */
bool workspace_btrfs_destroy(int dir_fd, const char *name);
/* Have the file system of `fd` count what each subvolume refers to. True: it does, and limits are kept. Needs root. */
bool workspace_btrfs_count(int fd);
/* What the subvolume refers to is `bytes` at most from now on (< 0: no limit): more is EDQUOT, whoever writes. */
bool workspace_btrfs_limit(int fd, int64_t bytes);

/* Groups of subvolumes: what their members refer to is counted once and limited as a whole. Numbers are 1 to 2^48 - 1; they are quota
 * groups of a level that nobody else uses (0xbe = 190: "190/<number>" in `btrfs qgroup show`), made at their first member. */

/* It is a member of this one from now on, and of no other of them; what the group may refer to is set as well (< 0: no limit). */
bool workspace_btrfs_join(int fd, uint64_t group, int64_t group_bytes);
uint64_t workspace_btrfs_group_of(int fd); /* 0: none */
/* True also if there is no such group yet. */
bool workspace_btrfs_limit_group(int fd, uint64_t group, int64_t bytes);
/* Remove quota groups of subvolumes that are gone, and of ours those without members. False: some are on their way still. */
bool workspace_btrfs_sweep_groups(int fd);
/* In the background, if the kernel says that its numbers are wrong. */
void workspace_btrfs_count_anew(int fd);

#endif
