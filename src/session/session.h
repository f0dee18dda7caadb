/* session/session.h: the product's rules, as wire/ sees them.
 *
 * Owns: which sessions there are, who may have how many, when they sleep, wake, heal, close; tokens; events; recovery. Knows
 * neither HTTP nor JSON nor the engine. Callers: wire/, main. Threads: any; calls that take a cancel block.
 *
 * Errors are the wire's statuses in their own words (util/errors.def): texts of public codes may be shown to a client as they are.
 */
#ifndef BERTH_SESSION_H
#define BERTH_SESSION_H

#include "cancel.h"
#include "error.h"
#include "isolation.h"
#include "policy.h"
#include "run_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct provider;
struct session;
struct sessions;
struct store;
struct workspace;
struct workspace_root;

enum { SESSION_ID_BYTES = 65, SESSION_TOKEN_BYTES = 44 };

struct sessions_settings {
    const char *service_token;
    const char *state_dir; /* the key lies here */
    const char *work_dir;
    bool new_key; /* take a key whose fingerprint is not the stored one */
    bool persist_containers;
    bool native_files;
    bool keep_on_stop;   /* SIGTERM leaves containers running */
    int64_t sandbox_uid; /* -1: the image's */
    int64_t cleanup_interval_s;
    int64_t max_upload_bytes;
    int64_t quota_bytes; /* of one workspace; 0: any */
    int64_t quota_files;
    int64_t max_upload_entries;
    int64_t freeze_after_s;    /* 0: never */
    int64_t engine_timeout_ms; /* how long the engine may take to make or to start a sandbox, pulls apart */
    unsigned max_workers;      /* sandboxes started at once */
    unsigned max_running_commands;
    unsigned max_runs_per_session; /* of those that are watched, at once */
    int stop_fd;
};

/* `root` may be NULL (no workspace root). Everything is borrowed and must outlive it; `policy` is taken. Reads the key, loads the
 * sessions, does not talk to the engine. */
int sessions_new(const struct sessions_settings *settings, struct store *store, struct workspace_root *root,
                 struct provider *provider, struct policy *policy, struct sessions **ret_sessions, struct error *err);

/* Starts the threads: recovery (reconcile with the engine, again whenever it was away), the reaper, the watcher. */
int sessions_start(struct sessions *sessions, struct error *err);

/* After stop_fd is readable and http is down: ends the threads, stops or leaves containers as `keep_on_stop` says. Blocks a
 * bounded time (20 s). */
void sessions_stop(struct sessions *sessions);
void sessions_free(struct sessions *sessions);

/* The policy in force: one reference, drop with policy_unref(). */
struct policy *sessions_policy(struct sessions *sessions);
const struct sessions_settings *sessions_settings(const struct sessions *sessions);
bool sessions_keep_workspaces(const struct sessions *sessions); /* workspace_root is set */
/* What the wire's native_files and native_writes say. */
bool sessions_native_files(const struct sessions *sessions);
bool sessions_native_writes(const struct sessions *sessions);

struct sessions_health {
    unsigned resident;
    unsigned open;
};
void sessions_health(struct sessions *sessions, struct sessions_health *ret);

/* -- who is calling -- */

enum session_caller {
    SESSION_CALLER_NONE,    /* 401 */
    SESSION_CALLER_SERVICE, /* the service token */
    SESSION_CALLER_SESSION, /* this session's own token */
    SESSION_CALLER_CLOSED,  /* a token of one of the last 4 closed openings: 410 on runs and files, 401 elsewhere */
};
/* `id` NULL: only the service token counts. `token` NULL: none given. Constant time in the token's bytes. */
enum session_caller sessions_caller(struct sessions *sessions, const char *id, const char *token);
bool sessions_exists(struct sessions *sessions, const char *id);
/* The same, and whose it is: "" nobody's, or not there. */
bool sessions_tenant(struct sessions *sessions, const char *id, char ret_tenant[SESSION_ID_BYTES]);

/* -- life -- */

enum { SESSION_RUNNING_BYTES = 200 };
struct session_view {
    char id[SESSION_ID_BYTES];
    char runtime[SESSION_ID_BYTES];
    char tenant[SESSION_ID_BYTES]; /* "" none */
    bool alive;
    bool hibernated;
    int64_t created_at_unix_us;
    int64_t last_activity_unix_us;
    int64_t idle_us;
    bool has_usage;
    struct sandbox_usage usage;
    int64_t memory_limit_bytes; /* -1: none */
    double cpu_percent;         /* < 0: no earlier sample */
    bool frozen;
    bool over_quota;
    unsigned running_commands;           /* of every kind */
    char running[SESSION_RUNNING_BYTES]; /* the newest of them, cut in whole characters; "" none */
    int64_t expires_at_unix_us;          /* when it is closed if nothing happens; 0: not while something runs */
};

struct session_open {
    const char *id;      /* NULL: one is made */
    const char *runtime; /* NULL or "": the default */
    const char *tenant;  /* NULL: none */
    bool reuse;
    bool attach;
    const char *fork_of;  /* of sessions_fork(), which see; NULL */
    const char **ret_how; /* with it */
};

/* POST /sessions: see wires/sandboxd-current.md 4.3 for the order of decisions. The start finishes although the caller went away. */
int sessions_open(struct sessions *sessions, const struct session_open *request, const struct cancel *cancel,
                  struct session_view *ret_view, char ret_token[SESSION_TOKEN_BYTES], struct error *err);
/* In opening order. Caller frees *ret_views. With `usage` every running sandbox is asked at once; one that does not answer
 * within a second has none. */
int sessions_list(struct sessions *sessions, bool usage, const struct cancel *cancel, struct session_view **ret_views,
                  size_t *ret_count, struct error *err);
/* `limit` of them behind the one named `after` ("": from the first), without usage. *ret_more: there are others behind. NOT_FOUND: no
 * such session. Takes as long as the page, however many there are. */
int sessions_page(struct sessions *sessions, const char *after, size_t limit, struct session_view **ret_views,
                  size_t *ret_count, bool *ret_more, struct error *err);
int sessions_inspect(struct sessions *sessions, const char *id, bool usage, const struct cancel *cancel,
                     struct session_view *ret_view, struct error *err);
/* Close; with `purge` nothing is left on the disk when it returns 0, also of a session that is closed already. */
int sessions_close(struct sessions *sessions, const char *id, bool purge, const struct cancel *cancel,
                   struct error *err);

/* Put it to sleep now; asleep already: 0. CONFLICT while something runs in it, or when nothing of it would be left. */
int sessions_hibernate(struct sessions *sessions, const char *id, const struct cancel *cancel,
                       struct session_view *ret_view, struct error *err);
/* Have a live sandbox: wakes, heals, thaws. As a command: it counts against every ceiling. */
int sessions_wake(struct sessions *sessions, const char *id, const struct cancel *cancel, struct session_view *ret_view,
                  struct error *err);
/* It counts as used now, and is not closed for idleness for so long; 0 takes that back. Once this returned 0 it holds whatever dies.
 * *ret_expires_unix_us: when it is closed if nothing happens. NOT_FOUND: it was closed first. */
enum { SESSION_KEEP_MOST_S = 30 * 24 * 3600 };
int sessions_keepalive(struct sessions *sessions, const char *id, int64_t seconds, const struct cancel *cancel,
                       int64_t *ret_expires_unix_us, struct error *err);

/* One recorded operation; numbered per opening of a session from 1. */
struct session_event {
    uint64_t seq;
    int64_t at_unix_us;
    int64_t duration_us;
    bool ok;
    char op[16];
    char target[832]; /* valid UTF-8, cut to 200 characters and an ellipsis */
    char detail[240];
};

/* Those after a number, ascending. *ret_latest: the last number given out. Waits for those that are being written. Caller frees
 * *ret_events. */
int sessions_events(struct sessions *sessions, const char *id, uint64_t after, struct session_event **ret_events,
                    size_t *ret_count, uint64_t *ret_latest, struct error *err);

/* -- files -- */

/* A file operation on a session, served from the host: counts as activity while it lasts, never wakes. HANDOVER if the host may
 * not (native files off, no root; `write`: the container's user is not ours). */
struct session_files {
    struct session *session;
    struct workspace *workspace; /* until session_files_end() */
};
#define SESSION_FILES_INIT \
    {                      \
        NULL, NULL         \
    }
int session_files_begin(struct sessions *sessions, const char *id, bool write, struct session_files *ret,
                        struct error *err);
/* The same for Berth's own routes, which do not care for native_files: with `write` the workspace is entered as the sandbox's user
 * (CONFLICT while that is not known). CONFLICT without a root. */
int session_place_begin(struct sessions *sessions, const char *id, bool write, struct session_files *ret,
                        struct error *err);
/* A snapshot has taken the workspace's place since: what was written went with what was there before. */
bool session_files_replaced(const struct session_files *files);
/* Ends it and records the event: ok if `failure` is NULL, else what it says. */
void session_files_end(struct sessions *sessions, struct session_files *files, const char *op, const char *target,
                       size_t target_size, const struct error *failure, int64_t started_mono_us);

/* A stored workspace, open or closed, as the operator sees it; no engine is asked. CONFLICT without a root, NOT_FOUND. Drop with
 * workspace_unref(). */
int sessions_archive(struct sessions *sessions, const char *id, struct workspace **ret_workspace, struct error *err);

/* -- stored workspaces, open or closed, as the store tells of them: no disk is walked. All: CONFLICT without a root -- */
struct session_stored {
    char id[SESSION_ID_BYTES];
    char tenant[SESSION_ID_BYTES];  /* "" none, or not known */
    char runtime[SESSION_ID_BYTES]; /* "" not known: nobody opened it since it was found */
    int64_t created_at_unix_ms;
    int64_t last_use_unix_ms;
    int64_t size_bytes; /* on the disk, when it was measured; -1: not yet */
    int64_t file_count;
    int64_t measured_at_unix_ms;
    int64_t expires_at_unix_ms; /* when the TTL takes it; -1: it does not */
    bool is_open;
    bool is_pinned;
    bool is_over_quota; /* when it was measured: its session runs nothing until files are removed */
};
enum session_stored_sort { SESSION_STORED_BY_ID, SESSION_STORED_BY_LAST_USE, SESSION_STORED_BY_SIZE };
struct session_stored_query {
    const char *tenant;   /* NULL: all */
    const char *prefix;   /* of the id; NULL: all */
    const char *contains; /* what stands in the id or the tenant; NULL: all */
    enum session_stored_sort sort;
    bool is_descending;   /* by the key; among equals by id */
    const char *after_id; /* NULL: from the start; else only those behind (after_key, after_id) */
    int64_t after_key;
    int64_t limit; /* 1000 at most */
};
/* Caller frees *ret. *ret_more: there are some behind. */
int sessions_stored(struct sessions *sessions, const struct session_stored_query *query, struct session_stored **ret,
                    size_t *ret_count, bool *ret_more, struct error *err);
int sessions_stored_get(struct sessions *sessions, const char *id, struct session_stored *ret, struct error *err);
/* A pinned one outlives its TTL. Waits for an opening or a removal of the id that is under way. */
int sessions_stored_pin(struct sessions *sessions, const char *id, bool pinned, const struct cancel *cancel,
                        struct session_stored *ret, struct error *err);
/* Nothing is left of it when this returns 0. CONFLICT: a session is open on it. */
int sessions_stored_remove(struct sessions *sessions, const char *id, const struct cancel *cancel, struct error *err);

/* -- copies: of a workspace that is open, asleep, or closed. All: CONFLICT without a root, NOT_FOUND -- */

/* A new session (request->id, NULL: made) on a copy; tenant and runtime are those of the origin where the request has none. CONFLICT: the
 * id has a session or files. Never half: what cannot be copied whole leaves nothing. *ret_how, here and
 * below: "snapshot", "reflink" or "copy". Errors as sessions_open(). */
int sessions_fork(struct sessions *sessions, const char *from_id, const struct session_open *request,
                  const struct cancel *cancel, struct session_view *ret_view, char ret_token[SESSION_TOKEN_BYTES],
                  const char **ret_how, struct error *err);

struct session_snapshot {
    char snapshot_id[17];
    char name[SESSION_ID_BYTES]; /* "" none */
    int64_t created_at_unix_ms;
};
/* LIMIT: 100 of one workspace. They go when it is purged. `name` may be NULL. */
int sessions_snapshot(struct sessions *sessions, const char *id, const char *name, const struct cancel *cancel,
                      struct session_snapshot *ret, const char **ret_how, struct error *err);
/* Oldest first; caller frees. */
int sessions_snapshots(struct sessions *sessions, const char *id, struct session_snapshot **ret, size_t *ret_count,
                       struct error *err);
int sessions_snapshot_delete(struct sessions *sessions, const char *id, const char *snapshot_id,
                             const struct cancel *cancel, struct error *err);
/* The workspace is what the snapshot is, which stays. Its container goes; in an open session what runs ends, and it is at work again in
 * a new one, or asleep, as it was. Until it is done the workspace is what it was. CONFLICT: opened or closed this moment. */
int sessions_snapshot_restore(struct sessions *sessions, const char *id, const char *snapshot_id,
                              const struct cancel *cancel, const char **ret_how, struct error *err);

/* -- isolation -- */
struct session_isolation {
    char runtime[SESSION_ID_BYTES];
    struct isolation_control controls[ISOLATION_CONTROLS_MAX];
    int count;
};
/* One a runtime alias; caller frees *ret. */
int sessions_isolation(struct sessions *sessions, const struct cancel *cancel, struct session_isolation **ret,
                       size_t *ret_count, struct error *err);

#endif
