/* session/session_private.h: what the files of this room share.
 *
 * One lock guards the registry and every session's fields marked [lock]; it is never held while anything blocks. A transition
 * (opening, waking, healing, sleeping, closing) talks to the engine outside the lock with `busy` set; whoever needs the session
 * meanwhile waits on `changed`. Lock order: sessions.lock, then whatever provider and store lock inside.
 */
#ifndef BERTH_SESSION_PRIVATE_H
#define BERTH_SESSION_PRIVATE_H

#include "map.h"
#include "provider.h"
#include "session.h"
#include "session_figures.h"
#include "session_run.h"
#include "session_tenant.h"
#include "store.h"
#include "waitq.h"
#include "workspace.h"

#include <pthread.h>

enum session_state {
    SESSION_OPENING, /* holds its id and its places under the ceilings; nobody sees it yet */
    SESSION_RUNNING, /* has a container, or is owed one (alive tells) */
    SESSION_HIBERNATED,
    SESSION_CLOSED, /* taken off the registry; only those who hold a reference see it */
};

struct kept_run;

/* A command of a session that is waited for; on the waiting thread's stack, linked while it lasts. */
struct active_run {
    struct active_run *next;
    struct active_run **link;
    char run_id[33];     /* "" : no name */
    const char *command; /* what is shown of it */
    int64_t started_at_unix_us;
    struct sandbox_run *run; /* [lock] NULL while it waits for its turn */
    bool stop_asked;         /* [lock] */
};

/* Who waits for its turn to start a sandbox; on the waiting thread's stack. */
struct start_ticket {
    struct start_ticket *next;
    bool granted;
};

/* Whoever sessions belong to; also nobody, "". [lock], but for the references. */
struct tenant {
    char name[SESSION_ID_BYTES];
    _Atomic unsigned references; /* at 0 the reaper frees it */
    struct tenant_limits limits;
    bool has_limits; /* one more reference */
    unsigned open;
    unsigned resident;
    unsigned running_commands;
    int64_t disk_bytes; /* when last measured; -1: never */
    struct start_ticket *first_start;
    struct start_ticket *last_start;
    struct tenant *next_turn; /* among those with somebody waiting */
    unsigned shown;           /* its place among sessions.shown, from 1; 0: none */
};

struct session {
    struct sessions *owner;
    _Atomic unsigned references;

    /* fixed at the opening */
    char id[SESSION_ID_BYTES];
    char tenant[SESSION_ID_BYTES]; /* set by session_set_tenant_locked() only */
    struct tenant *of_tenant;      /* one reference */
    char runtime[SESSION_ID_BYTES];
    char nonce[33];
    char token[SESSION_TOKEN_BYTES];
    uint32_t opening;
    int64_t order;
    int64_t created_at_unix_us;

    /* [lock] */
    enum session_state state;
    bool busy;                  /* a transition is under way */
    bool rooms_resident;        /* counted in resident_count */
    bool over_quota;            /* by the last measurement: runs nothing until files were removed */
    bool frozen;                /* paused by us; thawed at its next use */
    struct session *order_next; /* among those that are listed, by `order` */
    struct session *order_before;
    bool is_ordered;
    char slot[STORE_SLOT_BYTES];
    char ref[SANDBOX_REF_BYTES]; /* "" none */
    int64_t uid;                 /* of the container's user; -1 unknown */
    int64_t gid;
    int64_t
        files_uid; /* of the last container whose user was known: whose the files are, also while there is none; -1 */
    int64_t files_gid;
    struct sandbox *sandbox;     /* one reference; NULL: no link */
    int64_t attached_mono_us;    /* when it was set: a list of containers from before says nothing of it */
    struct workspace *workspace; /* one reference; NULL: no root, or to be opened again by who looks at it */
    int64_t workspace_uid;       /* as whom it was opened; -1: as the operator, while the user is not known */
    int64_t workspace_gid;
    struct workspace_room *room; /* of the slot: a restored snapshot begins another one */
    bool editing;                /* an operation that must not overlap with its like */
    unsigned in_flight;
    int64_t last_activity_mono_us;
    int64_t last_activity_unix_us;
    int64_t keep_until_mono_us; /* a renewed expiry; 0: none */
    bool activity_unsaved;
    struct active_run *runs;
    struct kept_run *kept; /* newest first; see session_runs_private.h */
    unsigned kept_alive;
    uint32_t next_run;     /* next number to give out */
    uint32_t reserved_run; /* numbers below it are promised in the store */
    bool pooled;           /* started ahead, nobody's yet: see session_pool.c */
    char pool_digest[65];
    char pool_image[80]; /* the image's id when it was begun; "": not known */
    struct session *pool_next;
    bool has_sample; /* for cpu_percent */
    int64_t sample_cpu_ns;
    int64_t sample_mono_us;
};

/* What was heard last, and when. [lock] */
struct probe {
    bool is_known; /* the first round is over */
    bool engine_answers;
    enum error_code engine_code; /* why not */
    int64_t heard_mono_ms;       /* a round ended */
    struct figures_disk disks[FIGURES_DISKS_MAX];
    unsigned disk_count;
};

struct sessions {
    struct sessions_settings settings;
    struct store *store;
    struct workspace_root *root;
    struct provider *provider;
    unsigned char key[32];
    unsigned char service_mac[32]; /* of the service token, so that a comparison tells nothing of its length */
    char spool_dir[512];

    pthread_mutex_t lock;
    struct waitq changed; /* a session's state, a place, a worker: somebody looks again */
    struct waitq command_free;
    struct policy *policy;
    struct map by_id;                          /* struct session, one reference each */
    unsigned open_count;                       /* in by_id: opening ones included */
    unsigned resident_count;                   /* RUNNING, OPENING, and waking ones */
    unsigned state_counts[SESSION_CLOSED + 1]; /* of by_id, by enum session_state */
    unsigned frozen_count;
    struct tenant *shown[FIGURES_TENANTS_MAX]; /* those that /metrics tells one by one; they hold sessions */
    unsigned shown_count;
    struct probe probe;
    unsigned running_commands;
    unsigned starting; /* sandboxes being started */
    struct waitq start_free;
    struct tenant *first_turn; /* whose turn it is to start a sandbox */
    struct tenant *last_turn;
    struct map tenants;
    struct tenant *nobody; /* of sessions without a tenant; in no map */
    struct session *order_first;
    struct session *order_last;
    unsigned feed_readers;
    int64_t started_mono_us;
    char boot[40];              /* the reaper's: which boot this is */
    int64_t clock_ahead_ms;     /* the reaper's: wall time beside the boot's, when it last looked */
    bool purges_left;           /* [lock] a purge that was begun has to be finished */
    struct kept_run *live_runs; /* of all sessions: those that have not ended */
    struct waitq runs_changed;
    uint64_t last_serial;        /* of a kept run, in this life */
    bool in_doubt;               /* [lock] the engine may have a container that nobody knows of: compare soon */
    int64_t doubt_until_mono_ms; /* [lock] likewise, again and again until then; 0: not */
    int64_t compared_mono_ms;    /* the watcher's */
    struct session *pool;        /* started ahead; a list by pool_next, one reference each */
    struct session *pool_making; /* the one that is being started */
    unsigned pool_count;
    struct map pool_images; /* [lock] image name to char *, owned: the id behind it when it was last asked for */
    struct pool_rename *pool_renames;
    struct waitq pool_changed;
    struct preparation *preparations; /* [lock] images that are being had ready; a list */
    struct waitq prepare_changed;
    char claimed_slot[STORE_SLOT_BYTES]; /* the reconciler works on it: an opening waits */

    /* of the recovery: slots on the disk that nobody names, to be removed; the watcher's from the start on */
    char (*orphan_slots)[WORKSPACE_SLOT_BYTES];
    size_t orphan_count;
    struct replaced_slot *replaced; /* [lock] by snapshots, while somebody read them */

    bool threads_started;
    pthread_t reaper_thread;
    pthread_t watcher_thread;
    pthread_t prewarm_thread;
    pthread_t pool_thread;
    pthread_t measure_thread;
    pthread_t keeper_thread;
    pthread_t probe_thread;
    _Atomic enum workspace_quota quota_kept; /* what the file system keeps limits of; it only grows */
    const char *quota_missing;               /* why it keeps none; fixed at the start; NULL: it was not asked */
    pthread_mutex_t limits_lock; /* taken before `lock`: what the file system keeps is what was read last of a tenant */
};

/* Two fields of a line of the log. */
#define LOG_SESSION(of) log_s("session", (of)->id), log_s("tenant", (of)->tenant[0] ? (of)->tenant : NULL)

struct session *session_ref(struct session *session);
void session_unref(struct session *session); /* NULL is fine */

static inline void cleanup_session(struct session **session)
{
    session_unref(*session);
}
#define auto_session auto_cleanup(cleanup_session)

static inline void cleanup_policy(struct policy **policy)
{
    policy_unref(*policy);
}
#define auto_policy auto_cleanup(cleanup_policy)

static inline void sessions_lock(struct sessions *sessions)
{
    (void)pthread_mutex_lock(&sessions->lock);
}
static inline void sessions_unlock(struct sessions *sessions)
{
    (void)pthread_mutex_unlock(&sessions->lock);
}

/* -- session_registry.c -- */

/* A reference, or NULL with NOT_FOUND ("No such session: <id>"). Opening ones are not there yet. */
struct session *registry_get(struct sessions *sessions, const char *id, struct error *err);
/* The same with the lock held; also sees opening ones. No reference is taken. */
struct session *registry_find_locked(struct sessions *sessions, const char *id);
struct session *registry_find_container_locked(struct sessions *sessions, const char *ref);
struct session *registry_find_slot_locked(struct sessions *sessions, const char *slot);
void registry_add_locked(struct sessions *sessions, struct session *session); /* takes the reference; counts it */
void registry_remove_locked(struct session *session);                         /* state CLOSED; drops the counts */
void registry_resident_locked(struct session *session, bool resident);        /* moves it in or out of resident_count */
/* What changes the state of a session that was added, or its being frozen, so that both stay counted. */
void session_state_locked(struct session *session, enum session_state state);
void session_frozen_locked(struct session *session, bool frozen);
/* All sessions in opening order, a reference each; caller frees with registry_list_free(). */
struct session **registry_list(struct sessions *sessions, size_t *ret_count);
void registry_list_free(struct session **list, size_t count);
/* In its place by `order`, which is known now: seen by listings from then on. */
void registry_order_locked(struct session *session);
/* Whose it is; before it is added. */
void session_set_tenant_locked(struct session *session, const char *tenant);
struct session *session_new(struct sessions *sessions, const char *id);
void session_view_locked(struct session *session, struct session_view *ret);
void session_touch_locked(struct session *session);

/* Wait until no transition is under way. Lock held. GONE when the session was closed meanwhile. */
int session_wait_idle_locked(struct session *session, const struct cancel *cancel, struct error *err);
/* End a transition: busy off, everybody looks again. Lock held. */
void session_settled_locked(struct session *session);

/* Not used for `idle_us`, nobody in it, and no renewed expiry holds: may it be closed? */
bool session_is_due_locked(const struct session *session, int64_t idle_us);

/* -- session_tenant.c -- */
int tenants_load(struct sessions *sessions, struct error *err);
struct tenant *tenant_get_locked(struct sessions *sessions,
                                 const char *name); /* one reference; made if there is none */
struct tenant *tenant_ref(struct tenant *tenant);
void tenant_unref(struct tenant *tenant);
void tenants_sweep(struct sessions *sessions); /* free those that nobody holds */
void tenants_done(struct sessions *sessions);
/* Is there room for one more open session of this tenant, which is not counted yet? LIMIT; nobody's sessions have no ceiling. */
int tenant_check_open_locked(const struct tenant *tenant, const struct policy *policy, struct error *err);
/* Its resident sessions are as many as it may have. */
bool tenant_is_full_locked(const struct tenant *tenant);
/* What the tenant's workspaces may hold together; unset: anything. */
struct opt_int tenant_disk_limit(struct sessions *sessions, const char *tenant);
/* Its workspaces hold as much as they may, as last measured. LIMIT. */
int tenant_check_disk_locked(const struct tenant *tenant, const char *prefix, struct error *err);
/* Wait for one of max_workers. Tenants take turns, so that one that opens many does not keep another waiting. */
int start_take(struct session *session, const struct cancel *cancel, struct error *err);
void start_give(struct sessions *sessions);
/* Workspaces were measured: sum them up. */
void tenants_measured(struct sessions *sessions, const struct cancel *cancel);

/* -- session_clock.c -- */
int clock_load(struct sessions *sessions, struct error *err); /* before the rows are read */
void clock_look(struct sessions *sessions);                   /* each tick of the reaper */

/* -- session_token.c -- */
int token_load_key(struct sessions *sessions, struct error *err);
void token_make(const struct sessions *sessions, const char *id, const char *nonce, char ret[SESSION_TOKEN_BYTES]);

/* -- session_sandbox.c: containers of a session; called with `busy` set by the caller and the lock not held -- */

/* Give the session a live sandbox: the container it has (started, thawed, or only attached), or a new one on its slot when there
 * is none, it cannot be used any more, or it was made with other limits. `may_create` false: GONE instead of a new one. Sets ref, sandbox, uid, gid under
 * the lock and writes the slot's row. */
int sandbox_ensure(struct session *session, const struct policy *policy, bool may_create, const struct cancel *cancel,
                   struct error *err);
/* Stop the container if containers are kept, else remove it. The link is closed first. */
int sandbox_put_away(struct session *session, const struct cancel *cancel, struct error *err);
/* Remove it and forget the reference. */
int sandbox_discard(struct session *session, const struct cancel *cancel, struct error *err);
/* What the slot's row is to say: its container, user, run numbers; and write it. */
void sandbox_slot_row(const struct session *session, struct store_slot *ret);
int sandbox_save_slot(struct session *session, struct error *err);
/* Can files and installed things be had again after the container died (a new or the same one)? */
bool sandbox_outlives(const struct sessions *sessions);
/* A spec of a runtime under a policy; strings borrowed from both. */
void sandbox_spec_of(const struct sessions *sessions, const struct policy *policy, const struct policy_runtime *runtime,
                     const char *slot, struct sandbox_spec *ret);
/* The next run number of the session. Lock held. */
uint32_t sandbox_next_run_locked(struct session *session);
/* Promise more numbers in the store when they run low, long before they end. Lock not held. */
void sandbox_reserve_runs(struct session *session);

/* -- session_wake.c -- */

/* Make the session ready to run something and count it in flight: waits for transitions, wakes, heals. *ret_sandbox: one
 * reference. Follow with session_leave(). */
int session_enter(struct session *session, const struct cancel *cancel, struct sandbox **ret_sandbox,
                  uint32_t *ret_number, struct error *err);
void session_leave(struct session *session);
/* Say that this sandbox is no good (its link died), so that the next enter heals. */
void session_sandbox_lost(struct session *session, struct sandbox *sandbox);
/* Take a resident place, putting the longest idle one to sleep if the policy says so. Lock held, released meanwhile.
 * The place is the session's from then on (registry_resident_locked). LIMIT. */
int session_take_place_locked(struct session *session, const struct policy *policy, const char *refusal_prefix,
                              const struct cancel *cancel, struct error *err);
/* Put a running session to sleep. Sets busy itself; the lock is held, released meanwhile. -1 if it could not (still running). */
int session_hibernate_locked(struct session *session, const struct cancel *cancel, struct error *err);

/* Stop it where it is; it goes on at its next use. As session_hibernate_locked(). */
int session_freeze_locked(struct session *session, const struct cancel *cancel, struct error *err);
int session_thaw_locked(struct session *session, const struct cancel *cancel, struct error *err);
/* For what talks to a run that does not keep its session awake: no transition is under way then, and it is not frozen; what sleeps or is
 * dead stays as it is. Lock held, released meanwhile. GONE when the session was closed. */
int session_thaw_for_use_locked(struct session *session, const struct cancel *cancel, struct error *err);

/* -- session_run.c -- */

/* The agent ends a run within 2 s of its deadline; 3 s more, then the container is killed. */
enum { SESSION_RUN_GRACE_MS = 5000 };
/* Wait for one of max_running_commands, and of the tenant's own; ends early, with the slot, when `active` is asked to stop. As cancel. */
int session_command_take(struct session *session, const struct active_run *active, const struct cancel *cancel,
                         struct error *err);
void session_command_give(struct session *session);
/* May one more command run now? */
bool session_command_room_locked(const struct session *session);
/* session_enter() and a START, healing once when it is certain that nothing ran. Afterwards: run_free, sandbox_unref,
 * session_leave(). `kept`: written down before, with its slot and number. */
int session_run_begin(struct session *session, const struct run_spec *spec, struct kept_run *kept,
                      const struct cancel *cancel, struct sandbox **ret_sandbox, struct sandbox_run **ret_run,
                      uint32_t *ret_number, struct error *err);
/* The agent did not keep its promise to end the run: only the container's end is sure now. */
void session_run_overdue(struct session *session, struct sandbox *sandbox);
/* A command ended. `failed`: it was lost with its sandbox. */
void session_run_count(const struct run_exit *exit, bool failed, bool timed_out, int64_t took_us);

/* -- session_runs*.c: called with the lock not held unless said -- */

bool runs_is_alive_locked(struct session *session, const char *run_id);
/* How many commands of any kind run in it, and the newest of them. */
void runs_view_locked(const struct session *session, struct session_view *ret);
/* Rows to records, after the sessions are loaded. */
int runs_load(struct sessions *sessions, struct error *err);
/* Write down the start of a kept run, whose number is known now. */
int runs_note_start(struct session *session, struct kept_run *kept, uint32_t number, struct error *err);
/* Numbers of what the session's container may know. Caller frees. */
uint32_t *runs_known(struct session *session, size_t *ret_count);
/* A link is there: take over what the agent knows; the rest is lost. */
void runs_attach(struct session *session, struct sandbox *sandbox);
/* The processes are gone or about to be, and the output with them: those alive are lost, for this cause. */
void runs_lose(struct session *session, const char *cause);
/* After runs_lose(): they are of the slot that the session has now. Lock held. */
void runs_move_locked(struct session *session);
/* After runs_lose(): nothing is known of them any more. */
void runs_drop(struct session *session);
/* Is the container among them, running or paused? */
bool runs_somewhere(const struct sandbox_listed *listed, size_t count, const char *ref);
/* After everything was compared: what is alive without a link, in a session whose container runs nowhere, is lost. */
void runs_lose_orphans(struct sessions *sessions, const struct sandbox_listed *listed, size_t listed_count,
                       int64_t listed_mono_us);
void *runs_keeper_run(void *sessions);

/* -- session_close.c -- */
/* `idle_for_us` >= 0: only if it has been idle for that long when it is this call's turn; CONFLICT if not. */
int session_close(struct session *session, bool purge, int64_t idle_for_us, const char *feed_op,
                  const struct cancel *cancel, struct error *err);

/* The files and the kept container of a session that is closed. NOT_FOUND: neither; CONFLICT: it is open. `ttl_ms` >= 0: the
 * sweep's, which takes nothing that is younger, pinned or being read: CONFLICT. */
int session_purge_closed(struct sessions *sessions, const char *id, int64_t ttl_ms, const struct cancel *cancel,
                         struct error *err);
/* Hold an id that no session has, as an opening does, so that nobody opens or removes it. NULL: CONFLICT. */
struct session *session_claim_id(struct sessions *sessions, const char *id, struct error *err);
void session_unclaim_id(struct session *claim);
/* Whoever holds an id works on a container that a slot's row names: seen by who looks either up. "" and "": no more. */
void session_hold_container(struct session *holder, const char *slot, const char *ref);
/* If a purge of this id was begun and not finished: finish it. `holder` holds the id and has no slot yet. */
int session_purge_rest(struct session *holder, const struct cancel *cancel, struct error *err);

/* -- session_files.c -- */

/* The slot's name of this moment: a restored snapshot is another one. Lock not held. */
void session_slot(struct session *session, char ret[STORE_SLOT_BYTES]);
/* Open the session's files as its user. Blocks on the disk. */
int session_workspace_open(struct session *session, struct error *err);
struct session_workspace {
    struct workspace *workspace; /* one reference; NULL: no root */
    bool is_its_users;           /* what is written there belongs to the session's user */
};
/* The files as the user that the container has now; opened anew if that is another than before. */
void session_workspace_get(struct session *session, struct session_workspace *ret);

/* -- session_figures.c -- */

/* A tenant came to hold a session, or to hold one less: does it have a place among those that are shown? */
void figures_show_locked(struct tenant *tenant, struct sessions *sessions);
void figures_hide_locked(struct tenant *tenant, struct sessions *sessions);
void *probe_run(void *sessions); /* the thread that asks the engine and the disk how they are */

/* -- session_pool.c -- */

unsigned pool_held_locked(const struct sessions *sessions, const char *runtime);

/* Make a container that was started ahead the session's: slot, ref, link, user. False: there is none that fits. */
bool pool_take(struct session *session, const struct policy *policy);
/* Have the session's container named after it, some time after the answer. */
void pool_name(struct session *session);
void *pool_run(void *sessions); /* the thread that fills up */
/* Discard all members, as far as `cancel` allows; what is left the next start removes. Any number of threads, after the filling one's end. */
void pool_drain(struct sessions *sessions, const struct cancel *cancel);
void pool_done(struct sessions *sessions); /* after the thread's end */
struct session *pool_find_slot_locked(struct sessions *sessions, const char *slot);

/* -- session_sweep.c: called by the reaper -- */
void sweep_workspaces(struct sessions *sessions, int64_t ttl_s, const struct cancel *cancel);
void sweep_containers(struct sessions *sessions, int64_t ttl_s, const struct cancel *cancel);

/* -- session_stored.c -- */
/* What the store has of a workspace; a directory without a row gets one, used now. NOT_FOUND: neither. */
int stored_row(struct sessions *sessions, const char *id, struct store_stored *ret, struct error *err);
/* What an id leads to now, as the operator; NOT_FOUND. The caller has looked that there is a root, and unrefs. */
int stored_open(struct sessions *sessions, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES],
                struct workspace **ret_workspace, struct error *err);
/* More than the settings allow one workspace? */
bool stored_over_quota(const struct sessions *sessions, int64_t bytes, int64_t files);
/* Have the file system keep the limits for a slot, where it can: its own, and its tenant's ("" nobody's). */
void stored_limit_slot(struct sessions *sessions, const char *slot, const char *tenant);
/* The same of what is to be made for that tenant. */
struct workspace_group stored_group(struct sessions *sessions, const char *tenant);
/* The tenant's limit is another one. */
void stored_limit_tenant(struct sessions *sessions, const char *tenant);
/* How much more may be written through the service, by what was measured last; a session's that was just opened. */
int64_t stored_room(struct sessions *sessions, const char *id);
void stored_start(struct sessions *sessions); /* once, before any thread */
void *measure_run(void *sessions);            /* the thread that measures workspaces */

/* -- session_fork.c -- */
/* A new slot, of that tenant's (NULL: the origin's), that holds what the workspace of an id holds. NOT_FOUND, also if it was removed meanwhile. */
int fork_copy(struct sessions *sessions, const char *from_id, const char *tenant, const struct cancel *cancel,
              char ret_slot[WORKSPACE_SLOT_BYTES], const char **ret_how, struct error *err);
/* NOT_FOUND: there is no such snapshot of it. */
int fork_find_snapshot(struct sessions *sessions, const char *id, const char *snapshot_id, struct error *err);
/* fork_copy() of a snapshot; it is whole if the snapshot is there still afterwards. */
int fork_copy_snapshot(struct sessions *sessions, const char *id, const char *snapshot_id, const struct cancel *cancel,
                       char ret_slot[WORKSPACE_SLOT_BYTES], const char **ret_how, struct error *err);
int fork_forget_snapshots(struct sessions *sessions, const char *id, const struct cancel *cancel, struct error *err);

/* -- session_restore.c -- */
struct replaced_slot {
    struct replaced_slot *next;
    char slot[WORKSPACE_SLOT_BYTES];
};
/* Removes what snapshots have replaced and nobody reads any more. */
void restore_sweep(struct sessions *sessions, const struct cancel *cancel);
void restore_forget(struct sessions *sessions); /* the list, not what it names; no thread is there any more */

/* -- session_event.c -- */
void event_record(struct session *session, const char *op, const char *target, size_t target_size, bool ok,
                  const char *detail, int64_t started_mono_us);
/* -- session_feed.c: ops are session_feed.h's -- */
void feed_record(struct sessions *sessions, const char *op, const char *session_id, const char *tenant,
                 const char *detail);

/* Work on a slot that no session holds: an opening on it waits meanwhile. False: a session holds it. One at a time: watcher and
 * reaper take turns. */
bool session_claim_slot(struct sessions *sessions, const char *slot);
void session_unclaim_slot(struct sessions *sessions);

/* -- session_recover.c, session_reaper.c: threads -- */
int recover_load(struct sessions *sessions, struct error *err);
/* A container may have been left, or made without our learning its name: the watcher compares within seconds. Any thread. */
void recover_doubt(struct sessions *sessions);
/* The engine took a create and has not answered: it may yet make it. Compared every few seconds for a while. Any thread. */
void recover_doubt_long(struct sessions *sessions);
/* Compare the engine's containers with the rows and mend what differs. */
int recover_reconcile(struct sessions *sessions, const struct cancel *cancel, struct error *err);
void *watcher_run(void *sessions);
void *reaper_run(void *sessions);
/* session_network.c: every network that a runtime names is there and fit, or the start ends with the reason; what is reached on it goes
 * to the log. Blocks on the engine; one that is away is no error. */
int networks_look(struct sessions *sessions, struct error *err);

void *prewarm_run(void *sessions);

#endif
