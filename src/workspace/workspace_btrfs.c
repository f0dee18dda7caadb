#include "workspace_btrfs.h"

#include "alloc.h"
#include "cleanup.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
    TOP_INODE = 256,       /* of every subvolume */
    OUR_LEVEL = 0xbe,      /* of quota groups that are not a subvolume's own */
    FOUND_BYTES = 1 << 16, /* what one search brings */
    ASSIGN_TRIES = 3,
};

static bool is_btrfs(int fd)
{
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type == BTRFS_SUPER_MAGIC;
}

bool workspace_btrfs_is_subvolume(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && status.st_ino == TOP_INODE && S_ISDIR(status.st_mode) && is_btrfs(fd);
}

bool workspace_btrfs_create(int dir_fd, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = 0};

    if (!is_btrfs(dir_fd))
        return false;
    (void)snprintf(args.name, sizeof args.name, "%s", name);
    return ioctl(dir_fd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) == 0;
}

bool workspace_btrfs_destroy(int dir_fd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {.fd = 0};

    if (!is_btrfs(dir_fd))
        return false;
    (void)snprintf(args.name, sizeof args.name, "%s", name);
    return ioctl(dir_fd, BTRFS_IOC_SNAP_DESTROY, &args) == 0;
}

/* True also if it cannot be told. */
static bool holds_others(int fd)
{
    auto_free struct btrfs_ioctl_get_subvol_rootref_args *args = calloc(1, sizeof *args);

    return !args || ioctl(fd, BTRFS_IOC_GET_SUBVOL_ROOTREF, args) < 0 || args->num_items > 0;
}

/* -- looking into the file system's trees -- */

struct search {
    int fd;
    struct btrfs_ioctl_search_key key; /* what is still to be found */
    struct btrfs_ioctl_search_args_v2 *args;
    size_t at;
    uint32_t left;
    bool failed;
};

static void search_done(struct search *search)
{
    free(search->args);
}

static struct search search_begin(int fd, uint64_t tree, uint64_t first, uint64_t last, uint32_t type)
{
    return (struct search){.fd = fd,
                           .key = {.tree_id = tree,
                                   .min_objectid = first,
                                   .max_objectid = last,
                                   .max_offset = UINT64_MAX,
                                   .max_transid = UINT64_MAX,
                                   .min_type = type,
                                   .max_type = type},
                           .args = alloc_zero(sizeof(struct btrfs_ioctl_search_args_v2) + FOUND_BYTES)};
}

/* The place behind this key: they count as (objectid, type, offset). */
static bool go_behind(struct btrfs_ioctl_search_key *key, const struct btrfs_ioctl_search_header *header)
{
    key->min_objectid = header->objectid;
    key->min_type = header->type;
    key->min_offset = header->offset + 1;
    if (key->min_offset == 0 && ++key->min_type > 0xff) {
        key->min_type = 0;
        key->min_objectid++;
    }
    return key->min_objectid != 0 && key->min_objectid <= key->max_objectid;
}

/* The next item of the type that was asked for; *ret_item is its content. False: none, or it cannot be told (search->failed). */
static bool search_next(struct search *search, struct btrfs_ioctl_search_header *ret, const void **ret_item)
{
    uint32_t type = search->key.max_type;

    for (;;) {
        if (search->left == 0) {
            search->args->key = search->key;
            search->args->key.nr_items = UINT32_MAX;
            search->args->buf_size = FOUND_BYTES;
            if (ioctl(search->fd, BTRFS_IOC_TREE_SEARCH_V2, search->args) < 0) {
                search->failed = true;
                return false;
            }
            search->left = search->args->key.nr_items;
            search->at = 0;
            if (search->left == 0)
                return false;
        }
        memcpy(ret, search->args->buf + search->at, sizeof *ret);
        *ret_item = search->args->buf + search->at + sizeof *ret;
        search->at += sizeof *ret + ret->len;
        search->left--;
        if (!go_behind(&search->key, ret) && ret->type != type)
            return false;
        if (ret->type == type)
            return true;
    }
}

/* -- quota groups -- */

static bool is_ours(uint64_t qgroup)
{
    return qgroup >> BTRFS_QGROUP_LEVEL_SHIFT == OUR_LEVEL;
}

static uint64_t qgroup_of(uint64_t group)
{
    return (uint64_t)OUR_LEVEL << BTRFS_QGROUP_LEVEL_SHIFT | group;
}

/* The number of a subvolume, which is its own quota group's as well; 0: it cannot be told. */
static uint64_t number_of(int fd)
{
    struct btrfs_ioctl_ino_lookup_args args = {.objectid = TOP_INODE};

    return workspace_btrfs_is_subvolume(fd) && ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) == 0 ? args.treeid : 0;
}

static bool assign(int fd, uint64_t member, uint64_t qgroup, bool to_be)
{
    struct btrfs_ioctl_qgroup_assign_args args = {.assign = to_be, .src = member, .dst = qgroup};

    return ioctl(fd, BTRFS_IOC_QGROUP_ASSIGN, &args) >=
           0; /* 1: numbers have to be counted anew, which the sweep sees */
}

static bool change(int fd, uint64_t qgroup, bool create)
{
    struct btrfs_ioctl_qgroup_create_args args = {.create = create, .qgroupid = qgroup};

    return ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args) == 0 || (create && errno == EEXIST);
}

static bool limit(int fd, uint64_t qgroup, int64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {
        .qgroupid = qgroup,
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes < 0 ? UINT64_MAX : (uint64_t)bytes}};

    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) == 0;
}

uint64_t workspace_btrfs_group_of(int fd)
{
    uint64_t number = number_of(fd);
    auto_cleanup(search_done) struct search search =
        search_begin(fd, BTRFS_QUOTA_TREE_OBJECTID, number, number, BTRFS_QGROUP_RELATION_KEY);
    struct btrfs_ioctl_search_header header;
    const void *item;

    while (number && search_next(&search, &header, &item))
        if (is_ours(header.offset))
            return header.offset & ~(UINT64_MAX << BTRFS_QGROUP_LEVEL_SHIFT);
    return 0;
}

bool workspace_btrfs_join(int fd, uint64_t group, int64_t group_bytes)
{
    uint64_t before = workspace_btrfs_group_of(fd);
    uint64_t number = number_of(fd);
    uint64_t qgroup = qgroup_of(group);
    bool is_member = before == group;

    if (!number)
        return false;
    if (before && !is_member)
        (void)assign(fd, number, qgroup_of(before), false);
    /* A sweep may find it empty in between. */
    for (unsigned tries = 0; !is_member && tries < ASSIGN_TRIES; tries++)
        is_member = change(fd, qgroup, true) && assign(fd, number, qgroup, true);
    return is_member && limit(fd, qgroup, group_bytes);
}

bool workspace_btrfs_limit_group(int fd, uint64_t group, int64_t bytes)
{
    return is_btrfs(fd) && (limit(fd, qgroup_of(group), bytes) || errno == ENOENT);
}

enum life { LIVES, IS_GOING, IS_GONE };

/* Being destroyed it is there still, without a reference, until its blocks have gone. */
static enum life life_of_subvolume(int fd, uint64_t number)
{
    auto_cleanup(search_done) struct search search =
        search_begin(fd, BTRFS_ROOT_TREE_OBJECTID, number, number, BTRFS_ROOT_ITEM_KEY);
    struct btrfs_ioctl_search_header header;
    struct btrfs_root_item root;
    const void *item;

    if (!search_next(&search, &header, &item))
        return search.failed ? LIVES : IS_GONE;
    memset(&root, 0, sizeof root);
    memcpy(&root, item, header.len < sizeof root ? header.len : sizeof root);
    return root.refs == 0 ? IS_GOING : LIVES;
}

static bool has_members(int fd, uint64_t qgroup)
{
    auto_cleanup(search_done) struct search search =
        search_begin(fd, BTRFS_QUOTA_TREE_OBJECTID, qgroup, qgroup, BTRFS_QGROUP_RELATION_KEY);
    struct btrfs_ioctl_search_header header;
    const void *item;

    return search_next(&search, &header, &item) || search.failed;
}

static enum life life_of(int fd, uint64_t qgroup)
{
    if (is_ours(qgroup))
        return has_members(fd, qgroup) ? LIVES : IS_GONE;
    if (qgroup < TOP_INODE || qgroup >> BTRFS_QGROUP_LEVEL_SHIFT != 0)
        return LIVES;
    return life_of_subvolume(fd, qgroup);
}

void workspace_btrfs_count_anew(int fd)
{
    auto_cleanup(search_done) struct search search =
        search_begin(fd, BTRFS_QUOTA_TREE_OBJECTID, 0, 0, BTRFS_QGROUP_STATUS_KEY);
    struct btrfs_ioctl_quota_rescan_args rescan = {.flags = 0};
    struct btrfs_qgroup_status_item status;
    struct btrfs_ioctl_search_header header;
    const void *item;

    if (!search_next(&search, &header, &item) || header.len < sizeof status)
        return;
    memcpy(&status, item, sizeof status);
    if (le64toh(status.flags) & BTRFS_QGROUP_STATUS_FLAG_INCONSISTENT)
        (void)ioctl(fd, BTRFS_IOC_QUOTA_RESCAN, &rescan); /* one that is under way: looked at again */
}

bool workspace_btrfs_sweep_groups(int fd)
{
    /* By number: subvolumes' own before those that they are members of. */
    auto_cleanup(search_done) struct search search =
        search_begin(fd, BTRFS_QUOTA_TREE_OBJECTID, 0, 0, BTRFS_QGROUP_INFO_KEY);
    struct btrfs_ioctl_search_header header;
    const void *item;
    bool is_done = true;

    while (search_next(&search, &header, &item)) {
        enum life life = life_of(fd, header.offset);

        if (life == IS_GOING || (life == IS_GONE && !change(fd, header.offset, false)))
            is_done = false;
    }
    return is_done;
}

/* -- copies -- */

bool workspace_btrfs_snapshot(int dir_fd, const char *name, int from_fd, uint64_t group)
{
    auto_free struct btrfs_qgroup_inherit *inherit = alloc_zero(sizeof *inherit + sizeof inherit->qgroups[0]);
    struct btrfs_ioctl_vol_args_v2 args = {.fd = from_fd};

    if (!workspace_btrfs_is_subvolume(from_fd) || holds_others(from_fd))
        return false;
    if (group) {
        /* Shared blocks are counted at once within one group; into another one, the whole disk would have to be counted anew. */
        if (workspace_btrfs_group_of(from_fd) != group)
            return false;
        inherit->num_qgroups = 1;
        inherit->qgroups[0] = qgroup_of(group);
        args.flags = BTRFS_SUBVOL_QGROUP_INHERIT;
        args.size = sizeof *inherit + sizeof inherit->qgroups[0];
        args.qgroup_inherit = inherit;
    }
    (void)snprintf(args.name, sizeof args.name, "%s", name);
    if (!workspace_btrfs_destroy(dir_fd, name) && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0)
        return false;
    if (ioctl(dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) == 0)
        return true;
    if (!workspace_btrfs_create(dir_fd, name))
        (void)mkdirat(dir_fd, name, 0755);
    return false;
}

bool workspace_btrfs_count(int fd)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE};

    return is_btrfs(fd) && (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0 || errno == EEXIST);
}

bool workspace_btrfs_limit(int fd, int64_t bytes)
{
    return workspace_btrfs_is_subvolume(fd) && limit(fd, 0, bytes); /* 0: the subvolume's own */
}
