/* agent/agent_files.h: what the agent's file applets say. Shared by both sides; includes nothing of either.
 *
 * An applet is the agent's binary started as an ordinary run, in the container, as the container's user:
 *
 *     <agent> file stat PATH                  ENTRY of the path itself, then ENTRY of what it leads to or SKIPPED; END
 *     <agent> file read PATH MAX              ENTRY, DATA…, END. A regular file; over MAX bytes: ENTRY, then FAILED EFBIG
 *     <agent> file list PATH MAX              DIR "", ENTRY…, END. Over MAX entries: FAILED EFBIG
 *     <agent> file write PATH SIZE MODE       takes SIZE bytes and the end from standard input; ENTRY of the new file, END
 *     <agent> file walk PATH BELOW            from the directory BELOW ("": PATH itself) on: DIR, ENTRY… of it and of each
 *                                             directory below it; END
 *     <agent> file feed PATH BELOW MAX        as walk; behind the ENTRY of each regular file DATA… and DONE or SKIPPED
 *
 * Paths are absolute anywhere in the container or below the cwd; links on the way are followed, links met by a walk are not.
 * Names are bytes: anything but '/' and NUL. Numbers are decimal, MODE octal. The last record is END, or FAILED with the reason;
 * what ends otherwise was cut off. MODE is for a new file; one that is there keeps its own & 0777. Nothing opens what is no
 * regular file or directory, so that nothing waits for a FIFO. A walk goes deep first, in the order last met, first visited; it
 * does not enter procfs, sysfs and their like unless PATH lies in one (they are empty DIRs), and a directory that cannot be
 * opened is a DIR with an error.
 */
#ifndef BERTH_AGENT_FILES_H
#define BERTH_AGENT_FILES_H

#include <stdint.h>

#define AGENT_FILE_MAGIC 0x46485242u /* "BRHF" */

enum {
    AGENT_FILE_BYTES_MAX = 64 * 1024, /* behind one record */
    AGENT_FILE_NAME_MAX = 4096,
};

enum agent_file_kind {
    AGENT_FILE_ENTRY = 1,   /* bytes: the name; "" where the path was asked for. Everything but `error` */
    AGENT_FILE_DIR = 2,     /* a directory begins; bytes: its path below PATH, "": itself. error: it cannot be opened */
    AGENT_FILE_DATA = 3,    /* content of the ENTRY before */
    AGENT_FILE_DONE = 4,    /* that was all of it */
    AGENT_FILE_SKIPPED = 5, /* error: why the rest of what came before (content, entries, the target) is not there */
    AGENT_FILE_FAILED = 6,  /* error */
    AGENT_FILE_END = 7,
};

enum agent_file_type { AGENT_FILE_REGULAR = 1, AGENT_FILE_DIRECTORY = 2, AGENT_FILE_LINK = 3, AGENT_FILE_OTHER = 4 };

/* Little endian, followed by `length` bytes. What a kind does not use is 0 and checked. */
struct agent_file_record {
    uint32_t magic;
    uint8_t kind;
    uint8_t type; /* enum agent_file_type */
    uint16_t reserved;
    uint32_t mode; /* & 07777 */
    int32_t error; /* an errno */
    uint64_t size_bytes;
    int64_t mtime_unix_us;
    uint64_t inode;
    uint32_t length;
} __attribute__((packed));

#endif
