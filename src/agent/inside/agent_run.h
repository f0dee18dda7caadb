/* agent/inside/agent_run.h: the table of runs and the life of one: started, read, stopped, ended, forgotten.
 *
 * Owns: runs, their pipes and what is kept of their output. Knows nothing of frames: agent_link.c asks it and is asked
 * nothing.
 */
#ifndef BERTH_AGENT_RUN_H
#define BERTH_AGENT_RUN_H

#include "agent_crew.h"
#include "agent_keep.h"
#include "agent_proto.h"
#include "agent_super.h"
#include "agent_watch.h"

#include <stdbool.h>

enum {
    AGENT_RUNS_ALIVE_MAX = 4096, /* with those that are forgotten and whose background processes live on */
    AGENT_INPUT_BYTES = 2 * AGENT_STDIN_WINDOW,
};

/* How far stopping has come. Each stage ends at stop_next_ms. */
enum agent_stop_stage {
    AGENT_STOP_NONE,
    AGENT_STOP_TERM,
    AGENT_STOP_KILL,
    AGENT_STOP_STILL,
    AGENT_STOP_ORPHANS,
    AGENT_STOP_GIVEN_UP
};

struct agent_output {
    struct agent_source source;
    struct agent_keep keep;
    uint64_t left; /* while the end is taken: bytes that were in the pipe at the end of the command */
};

struct agent_input {
    struct agent_source source;
    unsigned char *bytes; /* a ring of AGENT_INPUT_BYTES, while something waits in it */
    size_t at;
    size_t size;
    uint64_t received;
    uint64_t owed; /* credit to give back */
    bool end;
};

struct agent_run {
    uint32_t number;
    uint32_t epoch;
    uint32_t flags;        /* enum agent_start_flags */
    unsigned slot;         /* of the shared memory */
    bool known;            /* to the broker; otherwise only its background processes are left */
    bool reader;           /* slows it */
    bool streams;          /* watched: its output is sent */
    int64_t hold_until_ms; /* watched: without a reader, slowed until then; 0: not */
    bool spawned;          /* the command was executed */
    bool started_sent;     /* watched */
    int64_t started_at_ms; /* plain: when it becomes due, unless the run has ended by then; 0: not */
    bool started_due;      /* plain */
    bool ended_sent;       /* watched */
    bool exited;           /* the command has ended, exit.exit_code and signal are set */
    bool taking;           /* the rest of its output is being taken */
    bool finished;
    bool exit_sent;
    bool exit_acked;
    bool terminal;
    struct agent_crew_member super; /* nobody: gone, and with it all processes of the run */
    enum agent_stop_stage stop;
    int64_t stop_next_ms;
    int64_t started_ms;
    int64_t deadline_ms; /* 0: none */
    int64_t oom_kills_before;
    uint64_t credit;
    unsigned turn; /* which of its streams sends next */
    struct agent_exit exit;
    struct agent_output output[2];
    struct agent_input input;
};

struct agent_start_request {
    const unsigned char *bytes; /* as it came */
    size_t size;
    struct agent_start head;
    void *block;     /* of argv and env; free it */
    char **argv;     /* and room for one before it */
    char **env;      /* ours with START's layered over */
    const char *cwd; /* "": stay */
};

/* Once, at start. 0, or -1 with errno. */
int agent_run_init(void);

/* Check a whole START and take it apart. 0, or an errno. Pointers go into bytes and into the block. */
int agent_start_parse(const unsigned char *bytes, size_t size, struct agent_start_request *ret_request);

/* Start a run that is not known yet. 0, or an errno. */
int agent_run_start(uint32_t number, const struct agent_start_request *request);

/* The known run of that number, or NULL. */
struct agent_run *agent_run_find(uint32_t number);

/* The i-th run of the table, known or not, or NULL at the end. Stable until agent_run_sweep(). */
struct agent_run *agent_run_at(size_t i);
size_t agent_run_known(void);

/* A flag of enum agent_exit_flags tells why. */
void agent_run_stop(struct agent_run *run, uint32_t why);
void agent_run_stop_all(void);
bool agent_run_any_alive(void);
void agent_run_signal(struct agent_run *run, int number);

/* There is no process left to start a run with. If what an ended run left behind has more of them than any other, it goes. */
void agent_run_clear_leftovers(void);

void agent_run_ack(struct agent_run *run, const struct agent_ack *ack);
void agent_run_set_reader(struct agent_run *run, bool reader);
static inline bool agent_run_watched(const struct agent_run *run)
{
    return run->flags & AGENT_START_WATCH;
}
/* Watched: read from a place on, or by nobody for a while. */
void agent_run_attend(struct agent_run *run, const struct agent_reader *reader);
/* A new link begins. */
void agent_run_relink(struct agent_run *run);

/* EXIT may be sent: it is known and all output was sent. */
bool agent_run_exit_due(const struct agent_run *run);

/* Events. */
void agent_run_readable(struct agent_run *run, struct agent_source *source);
void agent_run_reports(void);
void agent_run_children(void); /* SIGCHLD */
void agent_run_timers(int64_t now_ms);

/* At the end of each turn of the loop: free what is over, read again where there is room again, arm the timer. */
void agent_run_sweep(void);

/* agent_input.c: standard input of a run that was started with one. */
int agent_input_open(struct agent_run *run, int fd);
void agent_input_write(struct agent_run *run, uint64_t offset, const unsigned char *bytes, size_t size);
void agent_input_end(struct agent_run *run);
void agent_input_writable(struct agent_run *run);
void agent_input_close(struct agent_run *run);
static inline bool agent_input_open_now(const struct agent_run *run)
{
    return run->input.source.fd >= 0 && !run->input.end;
}

/* agent_start.c */
int agent_terminal_open(const struct agent_start *head, int *ret_master, int *ret_slave);
void agent_terminal_resize(struct agent_run *run, unsigned rows, unsigned cols);

#endif
