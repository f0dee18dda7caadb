/* util/run_types.h: the vocabulary of a run: what to start, what comes out, how it ended.
 *
 * Plain data that agent, provider, session and wire pass on to each other unchanged.
 */
#ifndef BERTH_RUN_TYPES_H
#define BERTH_RUN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed by whoever takes it for the duration of the call. Strings hold no NUL. */
struct run_spec {
    const char *const *argv; /* argc items, at least one; looked up in PATH */
    size_t argc;
    const char *const *env; /* env_count items "NAME=value", layered over the container's */
    size_t env_count;
    const char *cwd;    /* NULL: the work dir */
    int64_t timeout_ms; /* 0: none. Kept by the agent, on its own clock */
    bool stdin_open;    /* has a standard input that is written to; otherwise it is at its end from the start */
    bool merge;         /* one pipe for both streams, in arrival order: all of it is RUN_STDOUT then */
    bool has_reader;    /* slowed by its reader; without one, the middle of what is too much is dropped and counted */
    bool keep;          /* outlives this broker's epoch; otherwise stopped by the next broker's first HELLO */
    bool watch;         /* read by whoever comes, from where they want; by nobody at first */
    bool tty;           /* has a terminal of rows and cols (0: as it comes); one stream, as with merge */
    unsigned rows;
    unsigned cols;
};

enum run_stream { RUN_STDOUT, RUN_STDERR };

/* Borrowed until the next call on the same run. */
struct run_chunk {
    enum run_stream stream;
    const char *data;
    size_t size;
    uint64_t offset;  /* of the first byte in its stream */
    uint64_t dropped; /* bytes of the stream that are missing right before it */
};

/* Evidence, never a guess. Exactly one of exited, killed by a signal, failed to start, lost. */
struct run_exit {
    bool lost;           /* its end was not seen: sandbox or link went away */
    bool timed_out;      /* the agent's deadline ended it */
    bool stopped;        /* a STOP ended it */
    bool oom;            /* killed, and the container's out-of-memory counter rose meanwhile */
    bool spawn_failed;   /* never ran: see spawn_errno and spawn_cwd */
    bool output_limited; /* some of its output was dropped before it ended */
    bool spawn_cwd;      /* it was the cwd that could not be entered */
    int spawn_errno;
    int exit_code; /* 0..255; -1 unless it exited by itself */
    int signal;    /* 0 unless a signal ended it */
    int64_t wall_ms;
    int64_t cpu_ms;
    int64_t peak_bytes; /* largest resident set of the direct child's tree that was waited for */
    uint64_t stdout_bytes;
    uint64_t stderr_bytes; /* written in all, dropped ones included */
};

/* Of the container, read by the agent in its own cgroup. -1: not known there. */
struct sandbox_usage {
    int64_t memory_bytes;
    int64_t cpu_ns; /* since the container started */
    int64_t pids;
    int64_t oom_kills;
};

#endif
