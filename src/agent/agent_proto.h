/* agent/agent_proto.h: the frames between the broker and the agent. Shared by both sides; includes nothing of either.
 *
 * One duplex byte stream, everything little endian. Each frame is a header of 32 bytes and at most 64 KiB of payload.
 * What either side receives is hostile: lengths bounded, states checked, a bad frame ends the link (broker) or is skipped
 * by hunting for the next magic (agent, which must survive half a frame left over from a broker that died).
 *
 * Resync. Exactly one broker at a time. After attaching, the broker writes AGENT_RESYNC_ZEROS zero bytes (they end any half
 * frame that is still in the pipe: the agent takes them as the rest of that frame or skips them), then HELLO, and repeats
 * HELLO each second with the same nonce. It ignores everything until a HELLO_ACK with its nonce. The agent answers each
 * HELLO, and a HELLO whose nonce differs from the last one starts a new link: all credit is what it was at the beginning
 * (AGENT_RUN_CREDIT a run, AGENT_LINK_CREDIT the link), half-written output frames of the old link are ended first by
 * AGENT_RESYNC_ZEROS zeros, every unacknowledged byte and EXIT is sent again from its acknowledged offset, runs of another
 * epoch without AGENT_START_KEEP are stopped, and no run has a reader until READER says so.
 *
 * Flow and keeping are two counters. CREDIT lets the agent send that many more bytes of OUT and ERR payload: of one run
 * (run != 0) and of the link (run == 0); both are needed. The broker gives link credit back for every byte read off the
 * stream, and run credit as the run's reader takes them. ACK frees the agent's copy up to the offsets it names.
 * HELLO_ACK, EXIT, USAGE_REPLY, STARTED and GONE need no credit and go before OUT and ERR; runs with output take turns.
 * START, SIGNAL, STOP, CREDIT, ACK and HELLO need none either. Standard input has its own: AGENT_STDIN_WINDOW bytes at first,
 * then what STDIN_CREDIT adds as the run takes them; STDIN and STDIN_EOF come after STARTED only.
 *
 * Keeping. The agent keeps unacknowledged output: AGENT_RUN_KEEP_BYTES a run (half of it a stream, where there are two),
 * AGENT_TOTAL_KEEP_BYTES in all. A run that has a reader is slowed (its pipes are not read) when its share is full, or the
 * total; it loses nothing. One without is not slowed: the middle is dropped and counted, the first half of the share and the
 * newest bytes stay. When the total is full the oldest finished run that nobody reads gives up its output, and each stream
 * may still hold 16 KiB, so that one that nobody reads cannot stop another. An ACK may name offsets that have yet to come:
 * what is before them is discarded as it comes. A finished run is forgotten once its EXIT and all its output are
 * acknowledged; at most AGENT_RUNS_MAX are known.
 *
 * Runs that are watched (AGENT_START_WATCH) are read by whoever comes, from where they want, again after a cut, and by nobody
 * for a while. Nothing of their output is sent until READER asks for it; STARTED comes when the command was executed (or could
 * not be), ENDED as soon as it has ended, whoever reads. READER with a place is answered by PLACED, in order: what came before
 * it is of the old place, what comes behind it of the new one, and the run's credit is what it was at the beginning. Bytes that
 * are acknowledged stay for readers that were cut, AGENT_BEHIND_BYTES of each stream, until something that is wanted needs the
 * memory or EXIT is acknowledged; each stream has the whole share of a run. Without a reader such a run is slowed for as long
 * as the last READER said, AGENT_HOLD_START_MS after its start, and AGENT_HOLD_LINK_MS into a new link if the last one had a
 * reader: time for it to come back.
 *
 * Ends. EXIT comes after the run's last OUT and ERR, so a run whose reader takes nothing has no EXIT either: its processes are
 * gone in time all the same. A START is answered by STARTED or REFUSED within two seconds; it waits that long for a process
 * when the sandbox is at its limit of them. A run that is not watched and has ended a moment after its start is answered by EXIT alone.
 */
#ifndef BERTH_AGENT_PROTO_H
#define BERTH_AGENT_PROTO_H

#include <stdint.h>

#define AGENT_MAGIC 0x48545242u /* "BRTH" */
#define AGENT_VERSION 1

enum {
    AGENT_HEADER_BYTES = 32,
    AGENT_PAYLOAD_MAX = 64 * 1024,
    AGENT_RESYNC_ZEROS = AGENT_PAYLOAD_MAX + AGENT_HEADER_BYTES,
    AGENT_RUN_CREDIT = 256 * 1024, /* at 128 KiB a stream waits for the engine's round trip, of almost a millisecond */
    AGENT_LINK_CREDIT = 512 * 1024,
    AGENT_STDIN_WINDOW = 128 * 1024,
    AGENT_RUN_KEEP_BYTES = 1024 * 1024,
    AGENT_BEHIND_BYTES =
        6656 * 1024, /* of a watched run's stream: more than a client's kernel takes unread (tcp_rmem: 6 MiB) */
    AGENT_TOTAL_KEEP_BYTES = 8 * 1024 * 1024,
    AGENT_START_MAX = 4 * 1024 * 1024, /* a whole START, all its frames */
    AGENT_RUNS_MAX = 512,              /* known at once, finished ones included */
    AGENT_ARGS_MAX = 65536,            /* argv and env items of one START */
    AGENT_HOLD_START_MS = 2000,
    AGENT_HOLD_LINK_MS = 15000,
};

/* crc is CRC-32C over the header with crc = 0, then the payload. reserved fields are 0 and checked. */
struct agent_header {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t flags;
    uint32_t run; /* 0: the link */
    uint32_t length;
    uint64_t offset;
    uint32_t crc;
    uint32_t reserved;
} __attribute__((packed));

enum agent_type {
    /* broker to agent */
    AGENT_HELLO = 1,     /* struct agent_hello */
    AGENT_START = 2,     /* struct agent_start + strings, in frames of any size in order: offset = bytes before;
                            AGENT_FLAG_MORE on all but the last. A START of a known run number is answered by STARTED alone */
    AGENT_STDIN = 3,     /* bytes for a run that was started with AGENT_START_STDIN; offset = bytes before */
    AGENT_STDIN_EOF = 4, /* offset = bytes in all */
    AGENT_SIGNAL = 5,    /* offset = signal number, to every process of the run */
    AGENT_RESIZE = 6,    /* offset = rows << 32 | cols */
    AGENT_STOP = 7,      /* TERM to every process of the run, KILL to all after 1 s, EXIT within 2 s */
    AGENT_CREDIT = 8,    /* offset = bytes */
    AGENT_ACK = 9,       /* struct agent_ack */
    AGENT_READER = 10, /* offset = 1: the run has a reader now, 0: it has none. Of a watched run: struct agent_reader */
    AGENT_USAGE = 11,  /* offset = ticket, given back in the reply */
    /* agent to broker */
    AGENT_HELLO_ACK = 65, /* struct agent_hello_ack + run_count * struct agent_run_state, always one frame */
    AGENT_STARTED = 66,   /* START is accepted (a failed exec is told by EXIT); see Ends */
    AGENT_OUT = 67,  /* bytes of standard output (or the merged pipe, or the terminal); offset = place in the stream */
    AGENT_ERR = 68,  /* bytes of standard error. A gap between two offsets is what was dropped */
    AGENT_EXIT = 69, /* struct agent_exit; after the last OUT and ERR of the run */
    AGENT_STDIN_CREDIT = 70, /* offset = bytes that may be sent more */
    AGENT_USAGE_REPLY = 71,  /* struct agent_usage; offset = ticket */
    AGENT_GONE = 72,         /* what was asked of a run that is not known */
    AGENT_REFUSED = 73,      /* a START that cannot be: offset = errno; the run is not known */
    AGENT_PLACED = 74,       /* struct agent_place; offset = ticket of the READER that it answers */
    AGENT_ENDED = 75, /* struct agent_exit of a watched run, as soon as it has ended, whatever of its output was sent */
};

enum { AGENT_FLAG_MORE = 1 };

struct agent_hello {
    uint64_t nonce;
    uint32_t epoch; /* grows with every start of a broker */
    uint32_t reserved;
} __attribute__((packed));

enum agent_hello_flags {
    AGENT_HELLO_SUBREAPER = 1,   /* child subreapers work here: runs can be killed whole */
    AGENT_HELLO_STREAM_SAFE = 2, /* a run cannot reach the agent's stream (tried at start) */
};

struct agent_hello_ack {
    uint64_t nonce;
    uint32_t version;
    uint32_t uid; /* the agent's own: what files the sandbox makes are owned by */
    uint32_t gid;
    uint32_t flags; /* enum agent_hello_flags */
    uint32_t run_count;
    uint32_t reserved;
} __attribute__((packed));

enum agent_run_flags {
    AGENT_RUN_FINISHED = 1,
    AGENT_RUN_KEPT = 2,
    AGENT_RUN_WATCHED = 4,
    AGENT_RUN_STDIN = 8, /* has a standard input that is still open */
};

struct agent_run_state {
    uint32_t run;
    uint32_t epoch;
    uint32_t flags;      /* enum agent_run_flags */
    uint32_t in_waiting; /* bytes of its standard input that it has not taken: the window is so much smaller */
    uint64_t out_acked;  /* sending goes on from here */
    uint64_t err_acked;
    uint64_t in_received; /* STDIN goes on from here */
} __attribute__((packed));

enum agent_start_flags {
    AGENT_START_MERGE = 1,  /* one pipe for both streams */
    AGENT_START_TTY = 2,    /* rows and cols; implies one stream */
    AGENT_START_STDIN = 4,  /* a pipe; otherwise /dev/null */
    AGENT_START_READER = 8, /* has a reader from the start */
    AGENT_START_KEEP = 16,  /* outlives the epoch */
    AGENT_START_WATCH = 32, /* see above */
};

/* Followed by argc + envc + 1 strings, each with its NUL: argv, env ("NAME=value", layered over the agent's own
 * environment), cwd ("" = the agent's own). No padding. */
struct agent_start {
    uint32_t epoch;
    uint32_t flags;      /* enum agent_start_flags */
    uint64_t timeout_ms; /* from its arrival; 0: none */
    uint32_t argc;
    uint32_t envc;
    uint16_t rows;
    uint16_t cols;
    uint32_t reserved;
} __attribute__((packed));

struct agent_ack {
    uint64_t out; /* bytes of each stream that are not needed again; never goes back */
    uint64_t err;
    uint32_t exit; /* 1: EXIT too */
    uint32_t reserved;
} __attribute__((packed));

enum { AGENT_READER_STREAMS = 1 };

struct agent_reader {
    uint64_t ticket; /* STREAMS: comes back in PLACED */
    uint64_t out;    /* STREAMS: output is sent from these offsets on */
    uint64_t err;
    uint32_t hold_ms; /* otherwise: the run is slowed for so long as if it had one */
    uint32_t flags;   /* AGENT_READER_STREAMS or none */
} __attribute__((packed));

struct agent_place {
    uint64_t out; /* as asked for, or the end so far where that is before */
    uint64_t err;
} __attribute__((packed));

enum agent_exit_flags {
    AGENT_EXIT_TIMED_OUT = 1,
    AGENT_EXIT_STOPPED = 2,
    AGENT_EXIT_OOM = 4,
    AGENT_EXIT_SPAWN_FAILED = 8, /* spawn_errno; with AGENT_EXIT_SPAWN_CWD it was the cwd */
    AGENT_EXIT_SPAWN_CWD = 16,
    AGENT_EXIT_DROPPED = 64, /* output of it was dropped while it ran */
    AGENT_EXIT_LOST = 32,    /* the agent itself could not learn how it ended (supervisor killed) */
};

struct agent_exit {
    int32_t exit_code; /* -1 unless it exited by itself */
    int32_t signal;    /* 0 unless a signal ended it */
    uint32_t flags;    /* enum agent_exit_flags */
    int32_t spawn_errno;
    uint64_t wall_ms;
    uint64_t cpu_ms;
    uint64_t peak_bytes;
    uint64_t out_bytes; /* of each stream in all, dropped ones included */
    uint64_t err_bytes;
} __attribute__((packed));

struct agent_usage {
    int64_t memory_bytes; /* -1: not known, each */
    int64_t cpu_ns;
    int64_t pids;
    int64_t oom_kills;
} __attribute__((packed));

#endif
