/* provider/provider_files.h: what a file applet of the agent says, judged (agent/agent_files.h has the verbs and the format).
 *
 * A pure function over bytes: put in what a run wrote to its standard output, take out whole records. The sandbox is hostile:
 * lengths are bounded, names are single components, paths never leave their top, nothing comes after the end, kinds have only
 * the fields they may have. What is not checked: whether any of it is true, and the order of kinds. Threads: one owner.
 */
#ifndef BERTH_PROVIDER_FILES_H
#define BERTH_PROVIDER_FILES_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>

enum file_record_kind {
    FILE_RECORD_ENTRY = 1,
    FILE_RECORD_DIR,
    FILE_RECORD_DATA,
    FILE_RECORD_DONE,
    FILE_RECORD_SKIPPED,
    FILE_RECORD_FAILED,
    FILE_RECORD_END,
};

enum file_record_type { FILE_TYPE_REGULAR = 1, FILE_TYPE_DIRECTORY, FILE_TYPE_LINK, FILE_TYPE_OTHER };

struct file_record {
    enum file_record_kind kind;
    enum file_record_type type; /* of ENTRY */
    uint32_t mode;              /* permission bits */
    int sys_errno;              /* DIR (0: it is open), SKIPPED, FAILED */
    int64_t size_bytes;
    int64_t mtime_unix_us;
    uint64_t inode;
    const char *bytes; /* name, path or content; borrowed until the next call; with a NUL behind it but for DATA */
    size_t size;
};

struct file_reader {
    struct buf bytes;
    size_t at;
    char held;    /* the byte that a NUL stands for meanwhile */
    char *nul_at; /* where; NULL: nowhere */
    bool over;
};

void file_reader_init(struct file_reader *reader);
void file_reader_done(struct file_reader *reader);

/* ENGINE: it holds a record's worth and more that nobody took; take records before giving the next piece. */
int file_reader_put(struct file_reader *reader, const void *data, size_t size, struct error *err);

/* 1: *ret is the next record; 0: more bytes are needed; -1 ENGINE: nonsense, and no use in going on. */
int file_reader_next(struct file_reader *reader, struct file_record *ret, struct error *err);

/* END or FAILED was taken. */
bool file_reader_over(const struct file_reader *reader);

/* What an errno from inside means (workspace.h's codes). Always -1. */
int file_record_fail(int sys_errno, struct error *err);

#endif
