/* workspace/workspace_private.h: what the files of this room share and nobody else sees. */
#ifndef BERTH_WORKSPACE_PRIVATE_H
#define BERTH_WORKSPACE_PRIVATE_H

#include "cleanup.h"
#include "workspace.h"

#include <pthread.h>
#include <stdatomic.h>

struct retired_slot {
    struct retired_slot *next;
    char slot[WORKSPACE_SLOT_BYTES];
};

struct workspace_root {
    int fd;       /* the root itself */
    int slots_fd; /* .slots */
    char *path;
    pthread_mutex_t open_lock;
    struct workspace *open;       /* [open_lock] those that somebody holds */
    struct retired_slot *retired; /* [open_lock] nobody opens these any more */
    atomic_bool groups_left;      /* quota groups of slots that are gone may be there */
    atomic_bool has_projects;     /* slots are made as projects */
};

struct workspace {
    struct workspace_root *root; /* outlives it */
    struct workspace *next;      /* [root->open_lock] */
    struct workspace **link;
    char slot[WORKSPACE_SLOT_BYTES];
    atomic_uint refs;
    struct workspace_room *room; /* NULL: nobody counts */
    int fd;                      /* O_PATH of the workspace directory */
    struct workspace_identity identity;
    bool changes_uid; /* identity is not what the process is anyway */
    bool changes_gid;
};

/* `.berth-<16 hex>`: a write that has not got its name yet. Swept when a live workspace is opened, never listed. */
enum { LEFTOVER_BYTES = 24, LEFTOVER_AGE_MS = 60 * 1000 };
bool workspace_is_leftover(const char *name);
void workspace_leftover_name(char out[LEFTOVER_BYTES]);

/* The directory that is mounted, as an O_PATH descriptor; -1. NOT_FOUND: none there. */
int workspace_root_open_slot(const struct workspace_root *root, const char *slot, struct error *err);

/* Take from the room before so much is written. -1 with EDQUOT: there is not enough. NULL: there is always. */
int workspace_room_take(struct workspace_room *room, int64_t bytes);
/* So much of what was taken has its name now, or is gone: a measuring that begins sees all there is of it. */
void workspace_room_settle(struct workspace_room *room, int64_t bytes);

/* Set the error that errno means for a path in this workspace (see workspace.h) and return -1. */
int workspace_fail(const struct workspace *workspace, struct error *err, const char *what);

/* -- acting as the workspace's identity; the calling thread only. Left at the end of the scope -- */
struct identity_guard {
    bool uid_changed;
    bool gid_changed;
    uid_t uid; /* to go back to */
    gid_t gid;
};
#define IDENTITY_GUARD_INIT \
    {                       \
        false, false, 0, 0  \
    }
int workspace_identity_enter(const struct workspace *workspace, struct identity_guard *guard, struct error *err);
void workspace_identity_leave(struct identity_guard *guard);
#define auto_identity auto_cleanup(workspace_identity_leave)

/* workspace_mkdir(), for who has entered already. */
int workspace_mkdir_entered(struct workspace *workspace, const char *path, struct error *err);

/* -- names of a directory, as the kernel gives them, in no order. "." and ".." are left out -- */
enum { DIR_READER_BYTES = 32 * 1024 };
struct dir_reader {
    int fd; /* borrowed, O_RDONLY | O_DIRECTORY */
    size_t at;
    size_t end;
    size_t size; /* of buffer */
    char *buffer;
};
struct dir_name {
    const char *name;   /* borrowed until the next call */
    unsigned char type; /* DT_*; DT_UNKNOWN where the file system does not tell */
};
/* 1 a name, 0 the end, -1 with errno. */
int dir_reader_next(struct dir_reader *reader, struct dir_name *ret);

/* Fill `ret` (but the name). */
struct stat;
void workspace_entry_of_stat(const struct stat *status, struct workspace_entry *ret);

/* workspace_read() of a path below `below_fd`, as whoever the thread is now. */
int workspace_read_below(const struct workspace *workspace, int below_fd, const char *path, struct buf *out,
                         struct error *err);

/* The same of an entry that the listing of `dir_fd` has just called a regular file; `name` is one component. */
int workspace_read_listed(const struct workspace *workspace, int dir_fd, const char *name, struct buf *out,
                          struct error *err);

/* Remove `name` in `parent_fd`, whatever it is. `forced`: modes that stand in the way are changed. 0, or -1 with errno;
 * ECANCELED when `cancel` ended it (then *err is set). ENOENT when it was not there. */
int workspace_remove_at(int parent_fd, const char *name, bool forced, const struct cancel *cancel, struct error *err);

#endif
