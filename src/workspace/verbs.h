/* workspace/verbs.h: moving, copying and modes, in a workspace on the host. Errors as workspace.h; what is in the way is CONFLICT/EEXIST.
 * Threads: any. Blocking: on the disk. */
#ifndef BERTH_VERBS_H
#define BERTH_VERBS_H

#include "cancel.h"
#include "workspace.h"

/* Rename whatever `from` is, a link as itself. The directory of `to` must be there. With `replaces` a file or a link in the way is
 * replaced (by no directory), never a directory. */
int workspace_move(struct workspace *workspace, const char *from, const char *to, bool replaces, struct error *err);

struct workspace_copied {
    uint64_t entries;
    uint64_t bytes;
    uint64_t skipped; /* special files, and what could not be read */
};
/* A copy that appears whole: files with mode and time, links as themselves, directories with all that is in them; of hard links each
 * name becomes a file. Blocks without copying where the file system can. INVALID into itself. */
int workspace_copy(struct workspace *workspace, const char *from, const char *to, bool replaces,
                   const struct cancel *cancel, struct workspace_copied *ret, struct error *err);

/* Permission bits (& 0777) of a file or directory. */
int workspace_chmod(struct workspace *workspace, const char *path, unsigned mode, struct error *err);

#endif
