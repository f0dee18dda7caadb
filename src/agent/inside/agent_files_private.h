/* agent/inside/agent_files_private.h: what the verbs of the file applet share.
 *
 * The process is a run like any other, never process 1: it may block on a disk, has one buffer for its output, and ends with
 * its verb. Functions return 0 or an errno.
 */
#ifndef BERTH_AGENT_FILES_PRIVATE_H
#define BERTH_AGENT_FILES_PRIVATE_H

#include "agent_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Records into the buffer; it goes out when it is full and at the end of the verb. Nothing fails: who does not read us ends us. */
void files_put(enum agent_file_kind kind, int error, const char *bytes, size_t size);
void files_put_entry(const struct stat *status, const char *name);
void files_flush(void);

/* The rest of `fd` as DATA. EFBIG when it is more than `max`, some of which is out then. */
int files_put_content(int fd, uint64_t max);

/* Where a path of any length lies: *ret_name is `path` from where *ret_dir (AT_FDCWD, or a descriptor to close) stands. */
int files_locate(const char *path, int *ret_dir, const char **ret_name);

/* Open for reading what is a regular file: EISDIR, ENXIO. `flags`: O_NOFOLLOW or 0. Never waits for the other end of a FIFO. */
int files_open_regular(int dir, const char *name, int flags, int *ret_fd, struct stat *ret_status);

/* `.berth-<16 hex digits>`: a write that has not got its name yet. Never shown. */
enum { FILES_LEFTOVER_BYTES = 24 };
bool files_is_leftover(const char *name);

/* Names of an open directory in its order, without "." and "..". NULL: the end, or *ret_error. One at a time. */
const char *files_next_name(int dir, bool first, int *ret_error);

/* agent_files_walk.c, agent_files_write.c */
int files_walk(const char *path, const char *below, bool with_content, uint64_t max);
int files_write(const char *path, uint64_t size, unsigned mode);

#endif
