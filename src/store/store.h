/* store/store.h: what must be remembered: sessions, tenants, slots, events, runs, policy. The only user of SQLite.
 *
 * One writer thread; WAL. Calls marked [durable] return after a commit with synchronous=FULL: they survive a power cut.
 * Calls marked [ordered] return after a commit with NORMAL: they survive the death of any process. Calls marked
 * [queued] return at once, cannot fail, and are committed in the order of the calls; whoever reads what they write
 * waits for what was queued before, and other readers wait for nothing. A [queued] call blocks while 10,000 are queued.
 * While the disk refuses, what is queued is kept and tried again each second; beyond 10,000 it is dropped, counted and
 * logged: a full disk stops openings and closings (NO_SPACE), not runs. Threads: any, none after store_close().
 * Blocking: on the disk only. Errors: INTERNAL (disk, corruption), NO_SPACE, CONFLICT (unique), NOT_FOUND (a row to be
 * changed or got is not there; deleting what is not there is no error). Strings given are borrowed for the call; rows
 * returned are plain data; lists are the caller's to free(), NULL if empty.
 */
#ifndef BERTH_STORE_H
#define BERTH_STORE_H

#include "cancel.h"
#include "error.h"
#include "opt.h"
#include "run_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

enum { STORE_NAME_BYTES = 65, STORE_REF_BYTES = 80, STORE_SLOT_BYTES = 96 };

/* Opens or makes <dir>/berth.db (the last component of dir is made if missing; others are kept out: 0700, files 0600),
 * takes the lock of the directory (one berthd a state directory: CONFLICT), applies migrations, refuses a newer schema
 * (CONFLICT), adds 1 to the epoch. ":memory:", for tests: a private directory under $TMPDIR that vanishes with the
 * close. Caller closes. */
int store_open(const char *dir, struct store **ret_store, struct error *err);
void store_close(struct store *store); /* commits what is queued; NULL is left alone */

const char *store_install(const struct store *store); /* uuid of this store, the label of what is ours */
uint32_t store_epoch(const struct store *store);      /* of this start, from 1 */

/* How it goes with the disk. Never blocks. */
struct store_health {
    enum error_code code; /* why it refuses what is queued; NONE: it does not */
    size_t queued;        /* [queued] writes that wait */
    int64_t writing_ms;   /* how long the transaction that is under way has taken so far; 0: none is */
};
void store_health(struct store *store, struct store_health *ret);

/* The key file's fingerprint: *ret_known "" before it was ever set. [durable] */
int store_key_fingerprint(struct store *store, char ret_known[65], struct error *err);
int store_key_fingerprint_set(struct store *store, const char *fingerprint, struct error *err);

/* -- slots: a directory's row, and whether a container was made on it -- */
struct store_slot {
    char slot[STORE_SLOT_BYTES];
    char ref[STORE_REF_BYTES]; /* container; "" none */
    char runtime[STORE_NAME_BYTES];
    int64_t uid; /* -1 until the first HELLO told */
    int64_t gid;
    int64_t files_uid; /* of the last container whose user was known, also once it is gone; -1: none yet */
    int64_t files_gid;
    uint32_t last_run; /* highest run number given out in this container's life */
};
/* Insert or replace. [ordered] */
int store_slot_put(struct store *store, const struct store_slot *slot, struct error *err);
int store_slot_delete(struct store *store, const char *slot, struct error *err); /* with its runs [durable] */
int store_slots(struct store *store, struct store_slot **ret_slots, size_t *ret_count,
                struct error *err); /* caller frees */
int store_slot_get(struct store *store, const char *slot, struct store_slot *ret, struct error *err);
/* Reserve run numbers: `up_to` is never given out again in this container's life, whatever dies. [ordered] */
int store_slot_last_run(struct store *store, const char *slot, uint32_t up_to, struct error *err);

/* -- sessions: one row an open session (closed ones live on as workspace rows) -- */
enum store_state { STORE_OPENING, STORE_RUNNING, STORE_HIBERNATED };
struct store_session {
    char id[STORE_NAME_BYTES];
    uint32_t opening;              /* counts the openings of this id, from 1 */
    char nonce[33];                /* of the token of this opening */
    char tenant[STORE_NAME_BYTES]; /* "" none */
    char runtime[STORE_NAME_BYTES];
    char slot[STORE_SLOT_BYTES];
    enum store_state state;
    int64_t created_at_unix_ms;
    int64_t last_activity_unix_ms;
    int64_t keep_until_unix_ms; /* not closed for idleness before; 0: none */
    bool fresh;                 /* its slot was made by this opening */
    int64_t order;              /* by which sessions are listed: grows with each opening */
};
/* A new opening: gives ret->opening (last one of this id + 1) and ret->order, inserts the row with state OPENING.
 * CONFLICT: the id has a row. [durable] */
int store_session_open(struct store *store, struct store_session *session, struct error *err);
/* The same with state RUNNING, and with the rows of its workspace and its slot, in one commit: an opening whose container runs
 * already. [durable] */
struct store_workspace;
int store_session_adopt(struct store *store, struct store_session *session, const struct store_workspace *workspace,
                        const struct store_slot *slot, struct error *err);
/* The end of an opening: RUNNING, and the workspace's row, in one commit. NOT_FOUND. [durable] */
int store_session_opened(struct store *store, const struct store_workspace *workspace, int64_t last_activity_unix_ms,
                         struct error *err);
/* NOT_FOUND. [durable] */
int store_session_keep(struct store *store, const char *id, int64_t keep_until_unix_ms, struct error *err);
int store_session_state(struct store *store, const char *id, enum store_state state, int64_t last_activity_unix_ms,
                        struct error *err); /* the activity only grows [durable] */
/* The session lies in another slot from now on, `to`, whose row is written; its runs go along, the row of `from_slot` goes. In one
 * commit. NOT_FOUND. [durable] */
int store_session_move(struct store *store, const char *id, const char *from_slot, const struct store_slot *to,
                       int64_t at_unix_ms, struct error *err);
/* Many at once, as the reaper's tick gathers them; ids without a row are passed over. [ordered] */
struct store_touch {
    char id[STORE_NAME_BYTES];
    int64_t last_activity_unix_ms;
};
int store_sessions_touch(struct store *store, const struct store_touch *touches, size_t count, struct error *err);
/* Closes: the row goes, its events and runs go, the nonce is remembered among the id's last 4, the workspace row's last
 * use is `at_unix_ms`. `forget`: a purge begins: the workspace's row is marked, so that whoever comes after a death finishes it;
 * also of an id that is closed already, or was never there. The rows of workspace and slot go last, by store_workspace_delete() and
 * store_slot_delete(). [durable] */
int store_session_close(struct store *store, const char *id, int64_t at_unix_ms, bool forget, struct error *err);
/* An opening that failed: as if it had never been (the opening counter stays). [durable] */
int store_session_undo(struct store *store, const char *id, struct error *err);
int store_sessions(struct store *store, struct store_session **ret, size_t *ret_count,
                   struct error *err); /* by order */

/* Nonces of the last 4 closed openings of an id, newest first: *ret_count of them. */
enum { STORE_TOMBSTONES = 4 };
struct store_tombstone {
    char nonce[33];
};
int store_tombstones(struct store *store, const char *id, struct store_tombstone ret[STORE_TOMBSTONES],
                     size_t *ret_count, struct error *err);

/* -- workspaces: one row an id that has files, open or closed -- */
struct store_workspace {
    char id[STORE_NAME_BYTES];
    char slot[STORE_SLOT_BYTES];
    char tenant[STORE_NAME_BYTES];
    char runtime[STORE_NAME_BYTES];
    int64_t created_at_unix_ms;
    int64_t last_use_unix_ms;
    bool purging; /* a purge was begun */
};
/* Insert or replace; what store_stored has beside it stays. [durable] */
int store_workspace_put(struct store *store, const struct store_workspace *workspace, struct error *err);
int store_workspace_get(struct store *store, const char *id, struct store_workspace *ret, struct error *err);
int store_workspace_delete(struct store *store, const char *id, struct error *err); /* [durable] */
int store_workspaces(struct store *store, struct store_workspace **ret, size_t *ret_count, struct error *err);

/* What is told of a workspace: its row, what was measured of it, and whether a session is open on it. */
struct store_stored {
    struct store_workspace workspace; /* last use: of an open one its last activity, as far as it is written down */
    bool is_open;
    bool is_pinned;
    int64_t size_bytes; /* -1: not measured yet */
    int64_t file_count;
    int64_t measured_at_unix_ms;
};
enum store_stored_sort { STORE_STORED_BY_ID, STORE_STORED_BY_LAST_USE, STORE_STORED_BY_SIZE };
struct store_stored_query {
    const char *tenant;   /* NULL: all */
    const char *prefix;   /* of the id; "" all */
    const char *contains; /* what stands in the id or the tenant; "" all */
    enum store_stored_sort sort;
    bool is_descending; /* of the key; among equals always by id */
    bool has_after;     /* only those behind this place */
    int64_t after_key;
    const char *after_id;
    int64_t limit;
};
int store_stored(struct store *store, const struct store_stored_query *query, struct store_stored **ret,
                 size_t *ret_count, struct error *err);
int store_stored_get(struct store *store, const char *id, struct store_stored *ret, struct error *err);
int store_stored_pin(struct store *store, const char *id, bool pinned, struct error *err); /* [durable] */
/* Of a workspace that lies in `slot` still; of another nothing is written. [ordered] */
int store_stored_measured(struct store *store, const char *id, const char *slot, int64_t size_bytes, int64_t file_count,
                          int64_t at_unix_ms, struct error *err);
/* What was measured of one tenant's workspaces, summed. */
int store_stored_tenant(struct store *store, const char *tenant, int64_t *ret_bytes, int64_t *ret_files,
                        struct error *err);

/* -- snapshots: slots that keep what a workspace was -- */
enum { STORE_SNAPSHOT_NAME_BYTES = 65 };
struct store_snapshot {
    char slot[STORE_SLOT_BYTES];
    char id[STORE_NAME_BYTES]; /* of the workspace */
    char name[STORE_SNAPSHOT_NAME_BYTES];
    int64_t created_at_unix_ms;
};
int store_snapshot_put(struct store *store, const struct store_snapshot *snapshot, struct error *err); /* [durable] */
/* Of one workspace, or of all (`id` NULL), oldest first. Caller frees. */
int store_snapshots(struct store *store, const char *id, struct store_snapshot **ret, size_t *ret_count,
                    struct error *err);
int store_snapshot_delete(struct store *store, const char *slot, struct error *err); /* [durable] */

/* -- events of a session: numbered per (id, opening) from 1 -- */
enum {
    STORE_EVENT_OP_BYTES = 16,
    STORE_EVENT_TARGET_BYTES = 832,
    STORE_EVENT_DETAIL_BYTES = 240,
    STORE_EVENTS_KEPT = 200, /* an opening */
};
struct store_event {
    uint64_t seq;
    int64_t at_unix_us;
    int64_t duration_us;
    bool ok;
    char op[STORE_EVENT_OP_BYTES];
    char target[STORE_EVENT_TARGET_BYTES]; /* valid UTF-8 */
    char detail[STORE_EVENT_DETAIL_BYTES];
};
/* `event->seq` is ignored: numbers are given at the commit, in the order of the calls. The last 200 of an opening are
 * kept. An event of an opening that is closed by then is dropped. [queued] */
void store_event_append(struct store *store, const char *id, uint32_t opening, const struct store_event *event);
/* Those with seq > after, ascending; *ret_latest: the last number given out, 0 if none or if that opening is not open.
 */
int store_events_read(struct store *store, const char *id, uint32_t opening, uint64_t after, struct store_event **ret,
                      size_t *ret_count, uint64_t *ret_latest, struct error *err);

/* -- policy: the document of PUT /policy as text; NULL if never put. Caller frees. [durable] -- */
int store_policy_get(struct store *store, char **ret_json, struct error *err);
int store_policy_put(struct store *store, const char *json, struct error *err);

/* -- the service-wide feed: life-cycle, refusals, wakes; numbered without gaps across restarts -- */
struct store_feed_event {
    uint64_t seq;
    int64_t at_unix_us;
    char op[24]; /* see session_feed.h */
    char trace[33];
    char session[STORE_NAME_BYTES];
    char tenant[STORE_NAME_BYTES];
    char detail[STORE_EVENT_DETAIL_BYTES];
};
enum { STORE_FEED_KEPT = 10000 }; /* and 7 days: whichever is less; the newest always */
void store_feed_append(struct store *store, const struct store_feed_event *event); /* seq is ignored [queued] */
struct store_feed_filter {                                                         /* NULL: any */
    const char *op;
    const char *session;
    const char *tenant;
    bool only_committed; /* does not wait for what is queued: for whoever is woken by its commit anyhow */
};
/* At most `limit` with seq > after that the filter lets through, ascending. *ret_first: the oldest number kept (latest + 1 if none),
 * *ret_latest: the last given out (0 if none): after + 1 < first tells that some are missing. */
int store_feed_read(struct store *store, uint64_t after, const struct store_feed_filter *filter, size_t limit,
                    struct store_feed_event **ret, size_t *ret_count, uint64_t *ret_first, uint64_t *ret_latest,
                    struct error *err);
/* Commits that held feed events so far, in this process: to be taken before a read, and waited past after one that found nothing.
 * Never blocks. */
uint64_t store_feed_commits(struct store *store);
/* Until there were more commits than `seen`. Blocks; errors are the cancel's. */
int store_feed_wait(struct store *store, uint64_t seen, const struct cancel *cancel, struct error *err);

/* -- the operator's receiver: up to which number of the feed it has been told -- */
/* The first time it is the latest number, and is kept. [ordered] */
int store_webhook_place(struct store *store, uint64_t *ret_place, struct error *err);
void store_webhook_place_set(struct store *store, uint64_t place); /* [queued] */
void store_webhook_forget(struct store *store);                    /* [queued] */

/* -- ceilings of tenants -- */
struct store_tenant {
    char tenant[STORE_NAME_BYTES];
    struct opt_int max_open_sessions;
    struct opt_int max_resident_sessions;
    struct opt_int max_running_commands;
    struct opt_int max_disk_bytes;
};
/* Insert or replace; one without any ceiling is forgotten. [durable] */
int store_tenant_put(struct store *store, const struct store_tenant *tenant, struct error *err);
int store_tenants(struct store *store, struct store_tenant **ret, size_t *ret_count, struct error *err);

/* -- the clock: by how much wall time is ahead of the boot's, as last written; *ret_boot "": never -- */
int store_clock_get(struct store *store, char ret_boot[40], int64_t *ret_ahead_ms, struct error *err);
/* Remember it, and move the times of sessions and workspaces by `shift_ms`: the clock jumped. [ordered] */
int store_clock_put(struct store *store, const char *boot, int64_t ahead_ms, int64_t shift_ms, struct error *err);

/* -- runs: so that a start knows which were alive when the broker died. (slot, number) names one: number is the agent's
 * -- */
enum {
    STORE_RUNS_KEPT =
        200, /* ended ones that were waited for, a slot; by number. Kept ones stay until they are forgotten */
    STORE_RUN_COMMAND_BYTES = 832,
    STORE_RUN_CAUSE_BYTES = 32,
};
struct store_run {
    char slot[STORE_SLOT_BYTES];
    uint32_t number;
    char id[STORE_NAME_BYTES]; /* of the session */
    char run_id[STORE_NAME_BYTES];
    uint32_t epoch;
    bool keep; /* outlives the broker that started it */
    int64_t started_at_unix_ms;
};
/* A kept one, with all that is shown of it. */
struct store_kept_run {
    struct store_run run;
    bool tty;
    bool has_deadline;
    char command[STORE_RUN_COMMAND_BYTES]; /* valid UTF-8 */
    int64_t ended_at_unix_ms;              /* 0: not yet */
    char cause[STORE_RUN_CAUSE_BYTES];
    struct run_exit exit;
};
void store_run_put(struct store *store, const struct store_run *run); /* started; replaces [queued] */
/* A kept one, before it is started: the next broker knows of it. What is said of its end is ignored. [ordered] */
int store_run_keep(struct store *store, const struct store_kept_run *run, struct error *err);
/* Ended (run_exit->lost: its end was not seen). The first end counts; without a row nothing happens. `cause`: "" or why.
 * [queued] */
void store_run_end(struct store *store, const char *slot, uint32_t number, int64_t ended_at_unix_ms,
                   const struct run_exit *run_exit, const char *cause);
void store_run_forget(struct store *store, const char *slot, uint32_t number); /* [queued] */
/* Those without an end, by slot and number: at start, what an earlier epoch left. Waits for what was queued before. */
int store_runs_open(struct store *store, struct store_run **ret, size_t *ret_count, struct error *err);
/* All kept ones, by slot and number. Waits for what was queued before. */
int store_runs_kept(struct store *store, struct store_kept_run **ret, size_t *ret_count, struct error *err);

#endif
