/* session/session_runs_private.h: records of watched runs, shared by session_runs*.c only.
 *
 * Everything marked [lock] is under sessions->lock. A record is held by its session's list and by whoever works with it; the
 * run at the provider ("handle") by its record and by whoever reads or writes: it is let go by the last. A record without a handle
 * is one whose link died (it is attached again, or lost), or whose output is gone.
 */
#ifndef BERTH_SESSION_RUNS_PRIVATE_H
#define BERTH_SESSION_RUNS_PRIVATE_H

#include "session_private.h"
#include "session_runs.h"

struct run_handle {
    unsigned references; /* [lock] */
    struct sandbox_run *run;
    uint64_t serial;
};

struct kept_run {
    struct kept_run *next; /* [lock] session->kept */
    struct kept_run *next_live;
    struct session *session; /* borrowed: it drops its records before it goes */
    unsigned references;     /* [lock] */
    uint64_t serial;
    char slot[STORE_SLOT_BYTES]; /* [lock] */
    char run_id[STORE_NAME_BYTES];
    char *command;
    bool tty;
    bool has_deadline;
    int64_t deadline_mono_ms; /* 0: none, or of an earlier broker */
    int64_t started_at_unix_us;
    int64_t started_mono_us;

    /* [lock] */
    enum run_state state;
    uint32_t number; /* 0: not yet */
    int64_t ended_at_unix_us;
    struct run_exit exit;
    char cause[STORE_RUN_CAUSE_BYTES];
    struct run_handle *handle;
    bool is_gone;    /* its output is: the container that had it */
    bool is_dropped; /* not in a list any more */
    bool is_flying;  /* keeps its session from being idle */
    bool stop_asked;
    uint64_t reader; /* number of the newest */
    bool in_next;    /* somebody is inside the provider's run_next or run_seek */
    bool in_write;   /* likewise for the standard input */
};

struct run_reader {
    struct session *session; /* one reference */
    struct kept_run *kept;   /* one reference */
    uint64_t number;         /* == kept->reader, while nobody newer came */
    struct run_handle *pin;  /* one reference; NULL: to be taken, and placed */
    uint64_t dead;           /* serial of the one whose link died */
    uint64_t at[2];
    bool wants_tail; /* not placed yet: at[0] will be so many bytes before the end */
    uint64_t tail_bytes;
    uint64_t end; /* when it was placed there */
    bool is_complete;
    struct buf held; /* the chunk that is out */
};

/* -- all with the lock held -- */
struct kept_run *kept_find_locked(struct session *session, const char *run_id);
void kept_unref_locked(struct kept_run *kept);
struct run_handle *handle_ref_locked(struct run_handle *handle);
void handle_unref_locked(struct sessions *sessions, struct run_handle *handle); /* NULL is fine */
void kept_set_handle_locked(struct kept_run *kept, struct sandbox_run *run);    /* takes the run; NULL: none */
void kept_insert_locked(struct session *session, struct kept_run *kept); /* takes the reference; alive: counts it */
void kept_remove_locked(struct kept_run *kept);
void kept_view_locked(const struct kept_run *kept, struct run_view *ret);

/* A frozen session is thawed for it, and the lock released meanwhile. */
void kept_signal_locked(struct kept_run *kept, int signal_number);
void kept_stop_locked(struct kept_run *kept);
void kept_resize_locked(struct kept_run *kept, unsigned rows, unsigned cols);

/* It has ended. The lock is not held. */
void kept_end(struct kept_run *kept, const struct run_exit *exit, const char *cause);
/* Take it from the present link, if it is there. False: it is not. The lock is not held. */
bool kept_attach(struct kept_run *kept, struct sandbox *sandbox);

/* A record by name, a reference: with session's reference in *ret_session. NOT_FOUND. Lock not held. */
/* Does it keep its session awake? One with a terminal and without a deadline does not: bytes that go through it do. */
bool kept_is_use(const struct kept_run *kept);
/* Where a reader begins: there, or tail_bytes before the end. Takes the references, also on failure. */
int kept_read(struct session *session, struct kept_run *kept, const struct run_reader *place,
              const struct cancel *cancel, struct run_reader **ret_reader, struct error *err);
int kept_stdin(struct kept_run *kept, const void *data, size_t size, bool eof, const struct cancel *cancel,
               struct error *err);
int kept_get(struct sessions *sessions, const char *id, const char *run_id, struct session **ret_session,
             struct kept_run **ret_kept, struct error *err);
void kept_put(struct sessions *sessions, struct kept_run *kept);

#endif
