/* workspace/workspace_jail.h: the only way from a path below a workspace to a descriptor.
 *
 * One openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS) where the kernel has it, else component by
 * component with O_NOFOLLOW. Either way nothing outside is reached, whatever is swapped meanwhile. Threads: any.
 */
#ifndef BERTH_WORKSPACE_JAIL_H
#define BERTH_WORKSPACE_JAIL_H

#include <stdbool.h>

/* Open `path` ("" is `root_fd` itself) with `flags`, O_CLOEXEC and O_NOCTTY added. Any length: what is over PATH_MAX
 * goes in pieces. Makes nothing (no O_CREAT). -1 with errno: ELOOP for a link anywhere, its last component included;
 * with O_PATH | O_NOFOLLOW a link at the end is opened as itself, as open(2) has it. */
int workspace_jail_open(int root_fd, const char *path, int flags);

/* The directory that holds the last component, as an O_PATH descriptor; *ret_name points into `path`. `path` is not "".
 */
int workspace_jail_open_parent(int root_fd, const char *path, const char **ret_name);

/* Was workspace_jail_force_walk() called? Then unnamed files (O_TMPFILE) are not used either: all fallbacks are tried
 * at once. */
bool workspace_jail_is_forced(void);

/* A directory named `name` in `parent_fd` for reading, never a link or (where openat2 is there) a mount. -1 with errno.
 */
int workspace_jail_open_dir_at(int parent_fd, const char *name);

#endif
