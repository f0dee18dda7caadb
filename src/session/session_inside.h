/* session/session_inside.h: files as the sandbox itself sees them: what the host cannot answer.
 *
 * For paths outside the work dir, through links, and where no workspace root is set. Each call is a run of the agent's file applet
 * ("/.berth-agent file …") in the container, as the container's user: it wakes or heals as a command does, counts as in flight,
 * and has the command slot that session_inside_begin() waited for. The container is the boundary: any absolute path, "..", links
 * on the way; a relative path is below the work dir. What the applet says is judged as hostile (provider_files.h).
 *
 * Threads: one owner a struct session_inside. Blocking: all calls but _end(). No event is recorded: that is the
 * caller's. Errors, besides those of workspace.h with the same sys_errno (NOT_FOUND/ENOENT, INVALID with EISDIR,
 * ENOTDIR, EINVAL, EEXIST, ENXIO for a special file, ELOOP, ENAMETOOLONG; FORBIDDEN/EACCES; NO_SPACE; TOO_LARGE): GONE, LIMIT
 * (waking needs a place), TIMEOUT (the policy's execute_timeout), ENGINE (the applet talks nonsense), as cancel.
 */
#ifndef BERTH_SESSION_INSIDE_H
#define BERTH_SESSION_INSIDE_H

#include "buf.h"
#include "cancel.h"
#include "error.h"
#include "workspace.h"

struct session_inside;
struct sessions;
struct tree_source;

/* Waits for a command slot and takes the deadline for everything until session_inside_end(). Starts nothing yet. `cancel` is
 * copied. NOT_FOUND: no such session. */
int session_inside_begin(struct sessions *sessions, const char *id, const struct cancel *cancel,
                         struct session_inside **ret_inside, struct error *err);
/* Gives the slot back. NULL is left alone. */
void session_inside_end(struct session_inside *inside);

/* What lies at the path: `ret_link` the entry itself (may be NULL), `ret_target` what it leads to (may be NULL; NOT_FOUND if
 * that is nothing and it was asked for). */
int session_inside_stat(struct session_inside *inside, const char *path, struct workspace_entry *ret_link,
                        struct workspace_entry *ret_target, struct error *err);

/* The whole regular file, links followed, appended to `out`. *ret_size_bytes (may be NULL): what it has; also set when it is
 * TOO_LARGE for out->max. */
int session_inside_read(struct session_inside *inside, const char *path, struct buf *out, int64_t *ret_size_bytes,
                        struct error *err);

/* Replace or make the file, never half: a temporary file beside it and a rename. Parents are made. A link there is replaced and
 * its target left alone; a file keeps its mode & 0777, a new one has 0644. A directory there, "",
 * a trailing slash: INVALID/EISDIR; something that is no file: INVALID/ENXIO; a file on the way: INVALID/ENOTDIR. */
int session_inside_write(struct session_inside *inside, const char *path, const void *data, size_t size,
                         struct error *err);

/* One directory (a link to one is followed), sorted by name. TOO_LARGE over `max_entries`. */
int session_inside_list(struct session_inside *inside, const char *path, size_t max_entries, struct workspace_list *ret,
                        struct error *err);

/* For tree_glob() and tree_grep() (tree.h) below `top`, a directory. One run walks all of it, streaming, and gives contents of
 * regular files up to `max_file_bytes` with it (0: names only). procfs, sysfs and the like are passed over unless `top` lies in
 * one. ret_source: free with tree_source_free() before session_inside_end(). */
int session_inside_tree(struct session_inside *inside, const char *top, size_t max_file_bytes,
                        struct tree_source **ret_source, struct error *err);

#endif
