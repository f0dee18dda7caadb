/* session/session_classic.h: files of a session as the classic wire has them: any path of the sandbox, the host first.
 *
 * Where the path lies below the work dir and no link is on the way, the host answers, as the session's user, and wakes nothing.
 * Everything else is asked of the sandbox (session_inside.h): which wakes or heals it, and waits for a command slot. The decision is
 * made here and is not seen outside.
 *
 * One struct session_classic is one operation: it counts as activity and as in flight from _begin() to _end(). Paths are as the client
 * wrote them, without NUL and not empty; a relative one is below the work dir. Threads: one owner each. Blocking: all but _end().
 * Errors: those of workspace.h about the path (never HANDOVER); GONE, LIMIT, ENGINE, UNAVAILABLE, CANCELLED about the
 * sandbox; TIMEOUT: the policy's execute_timeout, which counts from _begin().
 */
#ifndef BERTH_SESSION_CLASSIC_H
#define BERTH_SESSION_CLASSIC_H

#include "buf.h"
#include "cancel.h"
#include "error.h"
#include "tree.h"
#include "workspace.h"

struct session_classic;
struct sessions;

/* NOT_FOUND: no such session. `alone`: no other operation that asked for this on the session runs beside it (edits read, then
 * write). `cancel` is copied. */
int session_classic_begin(struct sessions *sessions, const char *id, bool alone, const struct cancel *cancel,
                          struct session_classic **ret_classic, struct error *err);
/* Records the event, unless `op` is NULL. NULL is left alone. */
void session_classic_end(struct session_classic *classic, const char *op, const char *target, size_t target_size,
                         bool ok, const char *detail);

/* The whole regular file appended to `out`; TOO_LARGE over out->max, *ret_size_bytes is set then, too. Links are followed, but
 * without `through_link` a link at the path itself is NOT_FOUND. */
int session_classic_read(struct session_classic *classic, const char *path, bool through_link, struct buf *out,
                         int64_t *ret_size_bytes, struct error *err);
/* Is it a regular file, links followed? */
int session_classic_is_file(struct session_classic *classic, const char *path, bool *ret, struct error *err);
/* Replace or make it, never half; parents are made; a link at the path is replaced. INVALID/EISDIR for what is a directory. */
int session_classic_write(struct session_classic *classic, const char *path, const void *data, size_t size,
                          struct error *err);
/* One directory, as workspace_list(); a link to one is followed. */
int session_classic_list(struct session_classic *classic, const char *path, size_t max_entries,
                         struct workspace_list *ret, struct error *err);
/* As tree_glob(). A link at the path itself is not entered unless a slash follows it: nothing is found then. */
int session_classic_glob(struct session_classic *classic, const char *path, const char *shown, const char *pattern,
                         size_t max_entries, struct tree_rows *ret, struct error *err);
/* As tree_grep(); grep->path is set here. A link at the path itself is followed. */
int session_classic_grep(struct session_classic *classic, const char *path, struct tree_grep *grep,
                         struct tree_hits *ret, struct error *err);

#endif
