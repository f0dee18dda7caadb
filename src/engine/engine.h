/* engine/engine.h: the Docker Engine API over a Unix socket, as a closed list of verbs taking typed structs.
 *
 * The only holder of the engine's socket. Every body is made from a template of ours; nothing a client sent is passed
 * through. Never `archive`, `stats`, `exec`. Facts: Docker Engine API v1.41 (docs.docker.com/reference/api/engine), Podman's
 * compatible API. Threads: any (one private connection a call). All calls block as their cancel allows.
 *
 * Errors: UNAVAILABLE (cannot be reached), NOT_FOUND (no such container, no such image), CONFLICT (409: name taken,
 * already paused …), ENGINE (anything else; the engine's reason is in the text, cut and made one line), TIMEOUT, CANCELLED.
 */
#ifndef BERTH_ENGINE_H
#define BERTH_ENGINE_H

#include "buf.h"
#include "cancel.h"
#include "error.h"
#include "net_stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

struct engine_settings {
    const char *socket_path; /* "/var/run/docker.sock" */
};

struct engine_version {
    char api[16];    /* negotiated: the lower of ours and the engine's, "1.41" at least */
    char engine[64]; /* "20.10.24" */
    char name[32];   /* "docker" or "podman" */
    bool is_podman;
    bool is_rootless;
    char root_dir[256]; /* where it keeps volumes and containers; "": it does not tell */
};

/* Never connects. Caller frees. */
int engine_new(const struct engine_settings *settings, struct engine **ret_engine, struct error *err);
void engine_free(struct engine *engine);

int engine_ping(struct engine *engine, const struct cancel *cancel, struct error *err);

/* Negotiates and remembers; other verbs do it by themselves at their first call, and again after the engine was away.
 * ENGINE when it is too old (< 1.41). Engines older than the known runtime escapes are reported in the log once. */
int engine_version(struct engine *engine, const struct cancel *cancel, struct engine_version *ret, struct error *err);

/* What the engine can hold a container to, and by which programs (GET /info). */
struct engine_oci_runtime {
    char name[64];
    char path[256];       /* "runc", "/usr/bin/runsc"; may be empty */
    bool ignores_cgroups; /* started with --ignore-cgroups: no limit holds there */
};
struct engine_info {
    bool memory_limit;
    bool swap_limit;
    bool cpu_quota;
    bool cpu_shares;
    bool pids_limit;
    bool seccomp;
    char default_runtime[64];
    struct engine_oci_runtime *runtimes;
    size_t runtime_count;
};
#define ENGINE_INFO_INIT \
    {                    \
        0                \
    }
/* ret: from ENGINE_INFO_INIT; caller calls engine_info_done(). */
int engine_info(struct engine *engine, const struct cancel *cancel, struct engine_info *ret, struct error *err);
void engine_info_done(struct engine_info *info);

struct engine_image {
    char id[80];
    char user[64]; /* Config.User, "" = root */
};
int engine_image_inspect(struct engine *engine, const char *image, const struct cancel *cancel,
                         struct engine_image *ret, struct error *err);
/* Progress goes to the log, and to `say` (may be NULL) as one line without control bytes. Blocks as long as the registry needs. */
int engine_image_pull(struct engine *engine, const char *image, void (*say)(void *context, const char *text),
                      void *context, const struct cancel *cancel, struct error *err);

struct engine_build {
    const char *image; /* name:tag it gets */
    const char *label_runtime;
    const void *tar; /* the context; lives during the call */
    size_t tar_bytes;
    const char *network;                          /* of the commands in it; NULL: the engine's default */
    void (*say)(void *context, const char *text); /* progress: one line without control bytes, on this thread */
    void *context;
};
/* By the engine's own ("classic") builder. Progress goes to the log as well, a line each two seconds at most. Blocks as long as the build
 * needs. ENGINE: it failed; the text has the engine's reason, for the operator. */
int engine_image_build(struct engine *engine, const struct engine_build *build, const struct cancel *cancel,
                       struct error *err);

/* Everything a sandbox's container is made of. 0 or NULL: absent, unless said. */
struct engine_create {
    const char *name; /* NULL: the engine makes one up */
    const char *image;
    const char *hostname;
    const char *work_dir;
    const char *agent_path; /* host path of the agent, bind-mounted read-only at ENGINE_AGENT_MOUNT, the entrypoint */
    const char *workspace_path; /* host path mounted read-write at work_dir; NULL: none */
    const char *engine_root;    /* engine_version.root_dir: what is mounted from within it needs another propagation */
    const char *user;           /* "uid:gid"; NULL: the image's */
    bool root_caps;             /* CHOWN DAC_OVERRIDE FOWNER FSETID SETUID SETGID KILL on top of none */
    const char *oci_runtime;
    const char *network_mode; /* "none" */
    int64_t memory_bytes;
    int64_t memory_swap_bytes; /* as the engine counts it: memory + swap */
    int64_t nano_cpus;
    int64_t cpu_shares;
    int64_t pids_limit;
    const char *tmpfs_size; /* "64m": /tmp is a tmpfs of that size; NULL: none */
    const char *const *env; /* NULL-terminated "NAME=value" */
    const char *label_install;
    const char *label_slot;
    const char *label_spec;   /* digest of what the container was made with */
    const char *seccomp_path; /* NULL: the profile goes inline, as Docker wants it; Podman wants a file of it */
};

/* Our seccomp profile as JSON, for engines that take a file. `out` needs 64 KiB. Errors: TOO_LARGE. */
int engine_seccomp_render(struct buf *out, struct error *err);

#define ENGINE_AGENT_MOUNT "/.berth-agent"
#define ENGINE_LABEL_INSTALL "berth.install"
#define ENGINE_LABEL_SLOT "berth.slot"
#define ENGINE_LABEL_RUNTIME "berth.runtime" /* of a built image: the alias */
#define ENGINE_LABEL_SPEC "berth.spec"

enum { ENGINE_ID_BYTES = 80 };

int engine_create(struct engine *engine, const struct engine_create *spec, const struct cancel *cancel,
                  char ret_id[ENGINE_ID_BYTES], struct error *err);
/* Running already, stopped already: 0. */
int engine_start(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err);
int engine_stop(struct engine *engine, const char *id, int grace_seconds, const struct cancel *cancel,
                struct error *err);
int engine_kill(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err);
int engine_pause(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err);
int engine_unpause(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err);
/* By force, with its anonymous volumes; returns when it is gone, also where somebody else is removing it. Gone
 * already: 0. */
int engine_remove(struct engine *engine, const char *id, const struct cancel *cancel, struct error *err);
int engine_rename(struct engine *engine, const char *id, const char *name, const struct cancel *cancel,
                  struct error *err);

enum engine_state { ENGINE_CREATED, ENGINE_RUNNING, ENGINE_PAUSED, ENGINE_EXITED, ENGINE_DEAD, ENGINE_OTHER };

struct engine_container {
    char id[ENGINE_ID_BYTES];
    char name[128]; /* without the slash; empty in lists of engines that tell none */
    enum engine_state state;
    bool oom_killed;             /* inspect only */
    int exit_code;               /* inspect only */
    int64_t finished_at_unix_ms; /* inspect only; 0: never, or not readable */
    char label_install[64];
    char label_slot[96];
    char label_spec[80];
};

int engine_inspect(struct engine *engine, const char *id, const struct cancel *cancel, struct engine_container *ret,
                   struct error *err);

/* What is mounted in a container: the engine's host has what it sees at `destination` at `source`. */
struct engine_mount {
    char *type;        /* "bind", "volume", "tmpfs" */
    char *source;      /* "": nowhere on the host, or the engine does not tell */
    char *destination; /* absolute */
};
struct engine_mounts {
    char id[ENGINE_ID_BYTES]; /* of the container */
    struct engine_mount *list;
    size_t count;
};
#define ENGINE_MOUNTS_INIT \
    {                      \
        .id = ""           \
    }
/* Of any container, ours or not. ret: from ENGINE_MOUNTS_INIT; caller calls engine_mounts_done(). */
int engine_inspect_mounts(struct engine *engine, const char *id, const struct cancel *cancel, struct engine_mounts *ret,
                          struct error *err);
void engine_mounts_done(struct engine_mounts *mounts);

/* Is there something at `path`, as the engine sees its host? Asked by a container of an image that cannot exist: the engine looks
 * at mounts first (Docker: 400 against 404), and nothing is ever made. Podman does not look, and others may refuse to say: UNTOLD. */
enum engine_sight { ENGINE_SEEN, ENGINE_NOT_SEEN, ENGINE_UNTOLD };
int engine_sees(struct engine *engine, const char *path, const struct cancel *cancel, enum engine_sight *ret,
                struct error *err);

struct engine_network {
    char name[128];
    char driver[32];   /* "bridge", "host", "null", "macvlan" … */
    char subnets[128]; /* "172.18.0.0/16"; "" none known */
    bool internal;     /* no way out */
    bool apart;        /* containers on it do not reach each other (a bridge with enable_icc=false) */
};
/* By its whole name. NOT_FOUND: the engine has none of that name. */
int engine_network_inspect(struct engine *engine, const char *name, const struct cancel *cancel,
                           struct engine_network *ret, struct error *err);
int engine_is_on_network(struct engine *engine, const char *id, const char *network, const struct cancel *cancel,
                         bool *ret, struct error *err);

/* All containers, any state, whose label berth.install is `install`. "Could not list" is an error, never an empty list.
 * Caller frees *ret_list. */
int engine_list(struct engine *engine, const char *install, const struct cancel *cancel,
                struct engine_container **ret_list, size_t *ret_count, struct error *err);

/* Containers of other installs: all that carry label berth.install with another value. Caller frees *ret_list. */
struct engine_stranger {
    struct engine_container container;
    char workspace_source[512]; /* on the engine's host; "" none, or longer */
};
int engine_strangers(struct engine *engine, const char *install, const struct cancel *cancel,
                     struct engine_stranger **ret_list, size_t *ret_count, struct error *err);

/* Hijacked attach: stdin, stdout, stderr, stream. Bytes read from it are the agent's standard output with the engine's 8-byte
 * multiplexing removed (moby "attach" wire format); what comes on standard error goes to the log, at most 16 KiB.
 * Paused containers: CONFLICT. */
int engine_attach(struct engine *engine, const char *id, const struct cancel *cancel, struct net_stream **ret_stream,
                  struct error *err);

/* The engine's event stream, containers of `install` only. An iterator: blocks in next. */
struct engine_events;
enum engine_event_kind {
    ENGINE_EVENT_DIED,
    ENGINE_EVENT_OOM,
    ENGINE_EVENT_DESTROYED,
    ENGINE_EVENT_PAUSED,
    ENGINE_EVENT_UNPAUSED,
    ENGINE_EVENT_OTHER
};
struct engine_event {
    enum engine_event_kind kind;
    char id[ENGINE_ID_BYTES];
    char label_slot[96];
    int exit_code; /* ENGINE_EVENT_DIED: of process 1; -1: not told */
};
int engine_events_open(struct engine *engine, const char *install, const struct cancel *cancel,
                       struct engine_events **ret_events, struct error *err);
/* 1: *ret is set. -1: the stream ended (UNAVAILABLE: reconnect and re-list) or cancel. */
int engine_events_next(struct engine_events *events, const struct cancel *cancel, struct engine_event *ret,
                       struct error *err);
void engine_events_free(struct engine_events *events);

#endif
