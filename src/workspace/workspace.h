/* workspace/workspace.h: files on the host: where workspaces lie, and everything done to a path inside one.
 *
 * Layout (design, section 6):
 *     <root>/<session id>              a directory as it lies (the reference's: <id>/workspace), or a link to
 * .slots/<slot> <root>/.slots/<slot>/workspace   the mount of /workspace; a slot's name never moves <root>/.berth/ the
 * state directory Knows nothing of sessions, containers, HTTP. Paths below a workspace come from sandboxes and clients:
 * hostile. Every walk is openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS) from the workspace's
 * descriptor, or component by component with O_NOFOLLOW where the kernel lacks it (workspace_jail_force_walk()).
 * Threads: any; a struct workspace may be shared. Blocking: on the disk.
 *
 * Errors carry code and sys_errno: NOT_FOUND/ENOENT; INVALID with EISDIR, ENOTDIR, EEXIST, EINVAL (NUL, relative …);
 * HANDOVER where the host cannot or must not answer (a link: ELOOP, a special file: ENXIO, EACCES, EPERM,
 * ENAMETOOLONG); NO_SPACE; TOO_LARGE; INTERNAL. As the operator (archives) EACCES is FORBIDDEN and ENAMETOOLONG is
 * NOT_FOUND: there is nobody to hand over to, and nothing of such a name. The process's umask is 022 or less (main sets
 * it): modes are as said here.
 */
#ifndef BERTH_WORKSPACE_H
#define BERTH_WORKSPACE_H

#include "buf.h"
#include "cancel.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct workspace_root;
struct workspace;

enum { WORKSPACE_SLOT_BYTES = 96, WORKSPACE_SLOT_HEX = 16 };

/* Opens <path> (absolute), makes it and .slots (0711) if missing; warns in the log where others can list or run what
 * lies there; gives .slots an mtime ten years ahead, and again whenever a slot came or went. Caller closes. */
int workspace_root_open(const char *path, struct workspace_root **ret_root, struct error *err);
void workspace_root_close(struct workspace_root *root);
const char *workspace_root_path(const struct workspace_root *root); /* as it was given; borrowed */

/* -- slots. A slot is 16 hex digits (.slots/<slot>/workspace) or "dir:<session id>" (<id>/workspace as the reference
 * laid it) -- */

/* A new empty slot, its workspace owned by uid:gid (or -1: left to us), mode 0755. */
int workspace_slot_create(struct workspace_root *root, int64_t uid, int64_t gid, char ret_slot[WORKSPACE_SLOT_BYTES],
                          struct error *err);
/* Host path of what is mounted: <root>/.slots/<slot>/workspace. Checks that it is a directory, not a link: NOT_FOUND.
 * Caller frees. */
int workspace_slot_path(struct workspace_root *root, const char *slot, char **ret_path, struct error *err);
/* Change the owner of the workspace directory itself (sandbox_uid), not of what is in it. */
int workspace_slot_chown(struct workspace_root *root, const char *slot, int64_t uid, int64_t gid, struct error *err);
/* Everything gone for certain: iterative, any depth, without following links, also what nobody may read. Idempotent.
 * Blocks as long as it takes; `cancel` ends it early (what is gone is gone). */
int workspace_slot_remove(struct workspace_root *root, const char *slot, const struct cancel *cancel,
                          struct error *err);
/* How full the root's file system is. Blocks on it. */
struct statvfs;
int workspace_root_space(const struct workspace_root *root, struct statvfs *ret, struct error *err);
/* What the file system keeps limits of: nothing (*ret_why, a static text, says what is missing), projects (ext4 and XFS: bytes and files
 * of a slot that is made from now on), or groups (btrfs: bytes of slots, and of several together). Has it count from now on. As root. */
enum workspace_quota { WORKSPACE_QUOTA_NONE, WORKSPACE_QUOTA_PROJECTS, WORKSPACE_QUOTA_GROUPS };
enum workspace_quota workspace_quota_enforce(struct workspace_root *root, const char **ret_why);
/* True: whoever writes more than that into the slot gets EDQUOT (0: any; files are not kept by groups). False: the file system does not
 * keep it for this slot. */
bool workspace_slot_limit(struct workspace_root *root, const char *slot, int64_t bytes, int64_t files);
/* Slots that are limited as a whole, where groups are kept: what they hold together, blocks that they share once. */
struct workspace_group {
    uint64_t number; /* 1 to 2^48 - 1; 0: none */
    int64_t bytes;   /* < 0: no limit */
};
/* The slot is in this group, and in no other, from now on. False: as workspace_slot_limit(). */
bool workspace_slot_join(struct workspace_root *root, const char *slot, const struct workspace_group *group);
/* The limit alone. False: it cannot be set. */
bool workspace_group_limit(struct workspace_root *root, const struct workspace_group *group);
/* Remove from the file system what it counted for slots that are gone, and see that its numbers are right: now and then. */
void workspace_quota_sweep(struct workspace_root *root);
/* A new slot, in `group`, that holds what another holds: owners, modes, times, links and hard links too; FIFOs and sockets, no devices. By a
 * snapshot or shared blocks where the file system can. All or nothing: on any failure no slot is left. What changes meanwhile is
 * as it was at some moment of the copying (a snapshot: all of one moment). NOT_FOUND; NO_SPACE; as cancel_check(). */
enum workspace_fork_kind { WORKSPACE_FORK_SNAPSHOT, WORKSPACE_FORK_REFLINK, WORKSPACE_FORK_COPY };
int workspace_slot_copy(struct workspace_root *root, const char *from_slot, const struct workspace_group *group,
                        const struct cancel *cancel, char ret_slot[WORKSPACE_SLOT_BYTES],
                        enum workspace_fork_kind *ret_how, struct error *err);
/* All slots under .slots (never a "dir:", which workspace_names() tells), named or not; caller frees *ret. For
 * reconciling at start. */
int workspace_slots(struct workspace_root *root, char (**ret)[WORKSPACE_SLOT_BYTES], size_t *ret_count,
                    struct error *err);

/* -- names: session id -> slot. `id` has been checked by id_name_valid() -- */

/* NOT_FOUND: nothing by that name. A link must be relative, of our pattern, and lead to an existing slot; a directory
 * must hold a directory "workspace". */
int workspace_find(struct workspace_root *root, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES], struct error *err);
/* Name a slot. CONFLICT: the name is taken (an empty directory and a link of ours to a slot that is gone give way).
 * Durable (fsync of the root). */
int workspace_link(struct workspace_root *root, const char *id, const char *slot, struct error *err);
/* The same without the fsync: for whoever has written down durably that this name is owed, and gives it again after a power cut. */
int workspace_link_unsynced(struct workspace_root *root, const char *id, const char *slot, struct error *err);
/* Take the name away; gone already: 0. A "dir:" slot has no link: its directory goes with workspace_slot_remove(). */
int workspace_unlink(struct workspace_root *root, const char *id, struct error *err);
/* A name that is there leads to another slot from one moment to the next, never to none. *ret_old: the slot it led to, nobody's
 * now (what was a "dir:" has become one with a name of its own). Durable. */
int workspace_swap(struct workspace_root *root, const char *id, const char *slot, char ret_old[WORKSPACE_SLOT_BYTES],
                   struct error *err);
struct workspace_name {
    char id[65];
    char slot[WORKSPACE_SLOT_BYTES];
    int64_t mtime_unix_ms; /* of the directory or of the link itself */
};
/* Everything workspace_find() would find; caller frees *ret. */
int workspace_names(struct workspace_root *root, struct workspace_name **ret, size_t *ret_count, struct error *err);

/* -- one workspace -- */

/* As whom files are touched: a live session's (setfsuid/setfsgid of the calling thread for each call; the kernel
 * judges), or the operator's (-1: the broker's own rights) for archives. A broker that is not root can only be itself.
 */
struct workspace_identity {
    int64_t uid;
    int64_t gid;
};

/* NOT_FOUND: no such directory. With a live identity it sweeps leftovers `.berth-<16 hex>` of broken writes that are older
 * than a minute (reads one directory: keep what you opened); as the operator it touches nothing. An identity that we cannot
 * take on (a broker that is not root) opens all the same: every call on it is HANDOVER/EPERM then. Caller unrefs. */
int workspace_open(struct workspace_root *root, const char *slot, const struct workspace_identity *identity,
                   struct workspace **ret_workspace, struct error *err);
struct workspace *workspace_ref(struct workspace *workspace);
void workspace_unref(struct workspace *workspace);             /* before the root is closed */
const char *workspace_slot(const struct workspace *workspace); /* borrowed */
/* Before a slot is removed that somebody may read: from now on nobody can open it (NOT_FOUND). CONFLICT: somebody has it open, or
 * has retired it. workspace_slot_unretire() when it is gone, or stays after all; of one that is not retired it does nothing. Never
 * block. */
int workspace_slot_retire(struct workspace_root *root, const char *slot, struct error *err);
void workspace_slot_unretire(struct workspace_root *root, const char *slot);

/* What a listing or stat says. `name` may hold any byte but '/' and NUL. */
struct workspace_entry {
    const char *name; /* owned by the list; NULL in stat */
    bool is_dir;
    bool is_link;
    bool is_regular; /* none of the three: a FIFO, socket or device */
    int64_t size_bytes;
    int64_t mtime_unix_us;
    uint32_t mode; /* permission bits */
    uint64_t inode;
};
struct workspace_list {
    struct workspace_entry *entries;
    size_t count;
    char *names; /* what the entries' names point into */
};
#define WORKSPACE_LIST_INIT \
    {                       \
        NULL, 0, NULL       \
    }
void workspace_list_done(struct workspace_list *list);
#define auto_workspace_list auto_cleanup(workspace_list_done)

/* `path`: components below the workspace, "" for itself, no leading slash, no "." or "..", no NUL: made by
 * workspace_path_live() or workspace_path_archive(). Links anywhere, and special files, are HANDOVER. */
int workspace_stat(struct workspace *workspace, const char *path, struct workspace_entry *ret, struct error *err);
/* Sorted by name (bytes), hidden included, links and special files as themselves. TOO_LARGE over `max_entries`. One
 * vanished meanwhile is left out. */
int workspace_list(struct workspace *workspace, const char *path, size_t max_entries, struct workspace_list *ret,
                   struct error *err);
/* The whole file appended to `out`, which holds out->max bytes at most, counted while reading: TOO_LARGE. Regular files
 * only: a directory is INVALID/EISDIR, others HANDOVER. */
int workspace_read(struct workspace *workspace, const char *path, struct buf *out, struct error *err);
/* Open for reading, checked to be a regular file (as workspace_read()). Caller closes *ret_fd. `ret` may be NULL. */
int workspace_open_file(struct workspace *workspace, const char *path, int *ret_fd, struct workspace_entry *ret,
                        struct error *err);
/* Atomic: an unnamed file that gets its name when it is whole; parents are made (0777 & ~022); an existing file's mode
 * is kept & 0777, a new one is 0666 & ~022. From memory (`data`), or from `fd` (>= 0, a file) from where it stands to
 * its end. Never half: on any failure the old file stays. A directory there, or "": INVALID/EISDIR. How much is the
 * caller's to bound. */
int workspace_write(struct workspace *workspace, const char *path, const void *data, size_t size, int fd,
                    struct error *err);
/* The same of bytes that come one after the other: `next` gives > 0 bytes, 0 at the end, -1 to leave the old file as it is. It may
 * block, and is called as the workspace's identity. *ret_created: there was none. */
struct workspace_bytes {
    int64_t (*next)(void *context, char *out, size_t max, struct error *err);
    void *context;
};
int workspace_write_bytes(struct workspace *workspace, const char *path, const struct workspace_bytes *bytes,
                          bool *ret_created, struct error *err);
/* mkdir -p. A file there: INVALID/EEXIST; one on the way: INVALID/ENOTDIR. */
int workspace_mkdir(struct workspace *workspace, const char *path, struct error *err);
/* A file, a link itself, a FIFO, or a whole tree without following links, of any depth. "" is INVALID/EINVAL. What the
 * identity may not remove is HANDOVER (part of the tree may be gone then). */
int workspace_remove(struct workspace *workspace, const char *path, const struct cancel *cancel, struct error *err);
/* How many bytes may still be written to a directory through us: one for all that are opened of it, by any thread, as long as
 * somebody holds a reference. Beyond it a write is NO_SPACE/EDQUOT, and the old file stays. */
struct workspace_room;
struct workspace_room *workspace_room_new(void); /* for any number */
struct workspace_room *workspace_room_ref(struct workspace_room *room);
void workspace_room_unref(struct workspace_room *room); /* NULL: nothing */
static inline void cleanup_workspace_room(struct workspace_room **room)
{
    workspace_room_unref(*room);
}
#define auto_workspace_room auto_cleanup(cleanup_workspace_room)
/* Bytes that were written and lie where a measuring that begins now sees them. Removing gives nothing back. */
int64_t workspace_room_seen(const struct workspace_room *room);
/* A measuring, begun when workspace_room_seen() was `seen`, left so many bytes; what is under way or was written since is taken
 * from them. INT64_MAX: any number; 0 or less: none. */
void workspace_room_set(struct workspace_room *room, int64_t bytes, int64_t seen);
/* The same of a measuring of before the room was made; nothing once it was set. */
void workspace_room_begin(struct workspace_room *room, int64_t bytes);
/* What is written through it takes from there; once, before anybody writes. It holds a reference. */
void workspace_use_room(struct workspace *workspace, struct workspace_room *room);
/* How much lies in a workspace: bytes on the disk, a file with several names once if all of them are here; entries of any kind.
 * Iterative, any depth. `pause_ms` every few hundred entries, so that nobody notices. What vanishes or cannot be read meanwhile
 * is passed over. As cancel_check(). */
struct workspace_size {
    int64_t bytes;
    int64_t files;
};
int workspace_measure(struct workspace *workspace, unsigned pause_ms, const struct cancel *cancel,
                      struct workspace_size *ret, struct error *err);
/* 0 if no component that exists is a link; a missing tail is fine. HANDOVER otherwise. */
int workspace_realpath(struct workspace *workspace, const char *path, struct error *err);

/* -- paths, lexical, before any I/O (wires/sandboxd-current.md 4.7 and 4.8) -- */

/* Live: relative or empty INVALID/EINVAL; NUL INVALID/EINVAL; not under work_dir, a "." or ".." component, a leading
 * "//" HANDOVER; repeated and trailing slashes collapse. *ret_path: caller frees. */
int workspace_path_live(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err);
/* Archive: relative, or absolute with work_dir stripped, any other absolute one taken below the root; "", ".", "/" are
 * the root; ".." anywhere or NUL INVALID. */
int workspace_path_archive(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err);

/* Berth's own routes: relative, or absolute below work_dir; "" and "." are the root. INVALID: any other absolute one, "..", NUL. */
int workspace_path_place(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err);

/* The suite runs once with openat2 and once without. */
void workspace_jail_force_walk(bool force);

/* Is everything in force here that setfsuid needs (root)? Said in /isolation and at start. */
bool workspace_can_change_identity(void);

/* Once, at start, before any thread: the broker keeps no supplementary groups, which would otherwise count for every
 * identity. FORBIDDEN: not root, and there are some (they are our own user's then, and harmless). */
int workspace_drop_groups(struct error *err);

#endif
