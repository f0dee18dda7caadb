/* workspace/watch.h: what changes below a directory of a workspace, as the host sees it (inotify). Memory is bounded, so is the number of
 * watched directories; what could not be told is told as lost. Threads: one owner. */
#ifndef BERTH_WATCH_H
#define BERTH_WATCH_H

#include "cancel.h"
#include "workspace.h"

enum { WATCH_DIRECTORIES_MAX = 8192, WATCH_PENDING_MAX = 4096 };

enum watch_kind {
    WATCH_CREATED,
    WATCH_MODIFIED,
    WATCH_ATTRIBUTES,
    WATCH_DELETED,
    WATCH_MOVED_FROM, /* `cookie` joins it with WATCH_MOVED_TO; either may come alone */
    WATCH_MOVED_TO,
    WATCH_LOST, /* look anew: something was not told, from here on as well if a directory could not be watched */
    WATCH_GONE, /* the directory itself; nothing comes behind it */
};

struct watch_event {
    enum watch_kind kind;
    bool is_dir;
    uint32_t cookie;
    const char *path; /* below the workspace; borrowed until the next call */
};

struct watch;
/* The directory `path` and all below it. What lies in a directory that comes later,
 * or is moved, is told as created, perhaps twice. Errors as
 * workspace_list(); LIMIT: the host has no more of it. Caller frees. */
int watch_new(struct workspace *workspace, const char *path, struct watch **ret, struct error *err);
/* The next change: 0, or -1 as cancel_check(). Blocks. */
int watch_next(struct watch *watch, const struct cancel *cancel, struct watch_event *ret, struct error *err);
void watch_free(struct watch *watch);

#endif
