/* workspace/pack.h: a directory as an archive, made while it is read, and an archive unpacked while it arrives.
 *
 * The only users of libarchive. Nothing is ever kept whole: an archive that is made lives in a buffer of bounded size, one that
 * arrives is written below a directory of its own (`.berth-…` at the workspace's top, swept like other leftovers) and moved to its
 * place when it has come to its end, so that one that breaks off leaves nothing and changes nothing. Threads: one owner each. */
#ifndef BERTH_PACK_H
#define BERTH_PACK_H

#include "buf.h"
#include "cancel.h"
#include "workspace.h"

enum pack_format { PACK_TAR, PACK_TAR_GZ, PACK_TAR_ZST, PACK_ZIP, PACK_UNKNOWN };
/* "tar", "tar.gz" (tgz), "tar.zst", "zip" */
enum pack_format pack_format_of(const char *name);
const char *pack_format_suffix(enum pack_format format); /* ".tar.gz" … static */
const char *pack_format_type(enum pack_format format);   /* the media type; static */

/* -- making -- */
struct pack;
/* The directory `path` of the workspace (its content, not itself). Errors as workspace_list(). Caller frees. */
int pack_new(struct workspace *workspace, const char *path, enum pack_format format, struct pack **ret,
             struct error *err);
/* The next bytes: > 0, 0 at the end, -1, also as cancel_check(). Blocks on the disk. What cannot be read, sockets, FIFOs and devices are left out and counted;
 * a file that shrinks meanwhile is filled up with zeros, and counted. */
int64_t pack_next(struct pack *pack, const struct cancel *cancel, char *out, size_t max, struct error *err);
void pack_free(struct pack *pack);
struct pack_report {
    uint64_t entries;
    uint64_t skipped;  /* left out */
    uint64_t changed;  /* shrank while they were read */
    const char *names; /* percent-encoded paths of the first of both, separated by blanks; borrowed */
};
void pack_report(const struct pack *pack, struct pack_report *ret);

/* -- unpacking -- */
struct unpack_limits {
    uint64_t bytes;
    uint64_t entries; /* directories that are only implied count as well */
};
struct unpack_refusal {
    char *path;
    const char *reason; /* static */
};
enum { UNPACK_REFUSALS_MAX = 1000, UNPACK_DEPTH_MAX = 512 };
struct unpack_result {
    uint64_t entries;
    uint64_t bytes;
    uint64_t refused; /* all; those beyond the list are counted only */
    struct unpack_refusal *refusals;
    size_t refusal_count;
};
void unpack_result_done(struct unpack_result *result);

/* Into the directory `path`, which is made if missing. PACK_UNKNOWN: told by the first bytes. An entry that leads out, is a device, or
 * collides with what lies there is refused by name, and the rest goes on. TOO_LARGE: more than `limits`, or more than 100 times what
 * arrived (beyond 64 MiB), or deeper than UNPACK_DEPTH_MAX; INVALID: no such archive, or broken; errors of `bytes`. On any error
 * nothing has changed. Set-id bits and owners are not taken over. Blocks. */
int unpack(struct workspace *workspace, const char *path, const char *work_dir, enum pack_format format,
           const struct workspace_bytes *bytes, const struct unpack_limits *limits, const struct cancel *cancel,
           struct unpack_result *ret, struct error *err);

#endif
