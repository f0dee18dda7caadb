/* provider/provider.h: where sandboxes come from, as a session sees it: a table of functions.
 *
 * Implementations: provider_docker.c (engine + agent), provider_fake.c (tests). A reference ("ref") is the provider's own
 * name of a container; `struct sandbox` is a live conversation with one. Rules (who may have how many) are session/'s.
 * Threads: any. Everything that takes a cancel blocks. Errors: UNAVAILABLE (engine away), NOT_FOUND (container or image is
 * not there), ENGINE (refused, with our words), GONE (this sandbox's container or link ended), TIMEOUT, CANCELLED.
 */
#ifndef BERTH_PROVIDER_H
#define BERTH_PROVIDER_H

#include "cancel.h"
#include "error.h"
#include "isolation.h"
#include "run_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SANDBOX_REF_BYTES = 80, SANDBOX_SLOT_BYTES = 96, PROVIDER_NETWORK_TEXT_BYTES = 160 };

struct provider;
struct sandbox;
struct sandbox_run;

/* What a container is made of: operators' words only. Borrowed during the call. */
struct sandbox_spec {
    const char *slot;
    const char *name; /* for people; NULL, or taken already: the engine makes one up. Not in the digest */
    const char *image;
    const char *workspace_path; /* as this process sees it; NULL: none */
    const char *work_dir;
    int64_t sandbox_uid; /* -1: the image's user */
    const char *oci_runtime;
    const char *network_mode;
    int64_t memory_bytes;
    int64_t memory_swap_bytes;
    int64_t nano_cpus;
    int64_t cpu_shares;
    int64_t pids_limit;
    const char *tmpfs_size;
    const char *const *env; /* NULL-terminated */
    bool drop_all_caps;
};

enum sandbox_phase { SANDBOX_CREATED, SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_STOPPED };

struct sandbox_listed {
    char ref[SANDBOX_REF_BYTES];
    char slot[SANDBOX_SLOT_BYTES];
    char spec_digest[80]; /* provider_spec_digest() of what it was made with */
    enum sandbox_phase phase;
    int64_t finished_at_unix_ms; /* 0: not known; filled by inspect only */
    bool oom_killed;             /* inspect only */
};

/* What is behind an image's name now. */
struct sandbox_image {
    char id[80];
    int64_t uid; /* its own user: 0 for root or none, -1 for a name that is not a number */
};

/* A container of another install. */
struct sandbox_stranger {
    char ref[SANDBOX_REF_BYTES];
    char name[128];
    char install[64];
    char slot[SANDBOX_SLOT_BYTES];
    char workspace_source[512]; /* where the engine's host has its workspace; "" not known */
    enum sandbox_phase phase;
};

/* The user files are owned by, from the first HELLO, and what the agent found out about where it runs. */
struct sandbox_hello {
    uint32_t uid;
    uint32_t gid;
};

enum sandbox_event_kind { SANDBOX_EVENT_DIED, SANDBOX_EVENT_REMOVED, SANDBOX_EVENT_RELIST };
struct sandbox_event {
    enum sandbox_event_kind kind; /* RELIST: events may have been missed, compare everything */
    char ref[SANDBOX_REF_BYTES];
    bool oom;
};

struct provider_ops {
    const char *name;       /* "docker", "fake" */
    const char *agent_path; /* inside: argv[0] of its applets (provider_files.h) */
    void (*free)(struct provider *provider);

    /* 0: the engine answers now. */
    int (*check)(struct provider *provider, const struct cancel *cancel, struct error *err);
    /* Is the image there; pull it if not and `pull` (blocks as long as the registry needs). NOT_FOUND: not there. */
    int (*image)(struct provider *provider, const char *image, bool pull, const struct cancel *cancel,
                 struct sandbox_image *ret_image, struct error *err);
    /* Have the image, by whatever that takes; `say` gets its progress, a line at a time, on this thread. Blocks as long as that takes. */
    int (*prepare)(struct provider *provider, const char *image, void (*say)(void *context, const char *text),
                   void *context, const struct cancel *cancel, struct sandbox_image *ret_image, bool *ret_was_here,
                   struct error *err);
    /* Make a container, not started. */
    int (*create)(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                  char ret_ref[SANDBOX_REF_BYTES], struct error *err);
    /* Start it if it does not run, thaw it if it is paused, attach and greet. `known_runs`: what to keep of an earlier life.
     * ret: one reference, sandbox_unref(). At most one live sandbox a ref: an earlier one is closed. Errors: NOT_FOUND (no such
     * container), GONE (it started and does not answer: it was killed), ENGINE (it cannot be started or must not be used). */
    int (*open)(struct provider *provider, const char *ref, const uint32_t *known_runs, size_t known_count,
                const struct cancel *cancel, struct sandbox **ret_sandbox, struct sandbox_hello *ret_hello,
                struct error *err);
    int (*stop)(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err);
    int (*kill)(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err);
    int (*pause)(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err);
    /* End a pause; not paused: 0. The link and what runs in it live through both. */
    int (*thaw)(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err);
    /* By force; gone already: 0. */
    int (*remove)(struct provider *provider, const char *ref, const struct cancel *cancel, struct error *err);
    int (*rename)(struct provider *provider, const char *ref, const char *name, const struct cancel *cancel,
                  struct error *err);
    int (*inspect)(struct provider *provider, const char *ref, const struct cancel *cancel, struct sandbox_listed *ret,
                   struct error *err);
    /* All of ours, by label. Caller frees *ret_list. An error is never an empty list. */
    int (*list)(struct provider *provider, const struct cancel *cancel, struct sandbox_listed **ret_list,
                size_t *ret_count, struct error *err);
    /* Containers that carry another install's label. Caller frees *ret_list. */
    int (*strangers)(struct provider *provider, const struct cancel *cancel, struct sandbox_stranger **ret_list,
                     size_t *ret_count, struct error *err);
    /* 0: *ret is the next thing that happened to a container of ours. Blocks; reconnects by itself and then, as at the first
     * call, says RELIST. -1: cancelled, or the engine cannot be reached: call again after a pause. One thread. */
    int (*next_event)(struct provider *provider, const struct cancel *cancel, struct sandbox_event *ret,
                      struct error *err);
    /* What is in force for a spec, by ceilings and by what the engine supports. Returns the count. */
    int (*isolation)(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                     struct isolation_control controls[ISOLATION_CONTROLS_MAX], struct error *err);

    /* What sandboxes on this network reach, in words. NOT_FOUND: there is none of that name; INVALID: they must not be on it. */
    int (*network)(struct provider *provider, const char *name, const struct cancel *cancel,
                   char ret_text[PROVIDER_NETWORK_TEXT_BYTES], struct error *err);

    /* On a live sandbox */
    void (*sandbox_free)(struct sandbox *sandbox);  /* last reference gone: closes the link; the container stays */
    void (*sandbox_close)(struct sandbox *sandbox); /* ends the link now; runs are lost. Never blocks */
    bool (*sandbox_alive)(const struct sandbox *sandbox);
    int (*run_start)(struct sandbox *sandbox, uint32_t number, const struct run_spec *spec, const struct cancel *cancel,
                     bool *ret_sent, struct sandbox_run **ret_run, struct error *err);
    int (*run_next)(struct sandbox_run *run, const struct cancel *cancel, struct run_chunk *ret_chunk,
                    struct error *err);
    int (*run_stdin_write)(struct sandbox_run *run, const void *data, size_t size, const struct cancel *cancel,
                           struct error *err);
    void (*run_stdin_eof)(struct sandbox_run *run);
    /* Watched runs, see agent/agent_hub.h. */
    int (*run_resume)(struct sandbox *sandbox, uint32_t number, struct sandbox_run **ret_run, struct error *err);
    int (*run_wait_started)(struct sandbox_run *run, const struct cancel *cancel, struct error *err);
    int (*run_seek)(struct sandbox_run *run, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                    uint64_t *ret_place, struct error *err); /* UINT64_MAX: the end */
    void (*run_leave)(struct sandbox_run *run, uint32_t hold_ms);
    void (*run_interrupt)(struct sandbox_run *run);
    bool (*run_ended)(struct sandbox_run *run, struct run_exit *ret_exit);
    bool (*run_cut)(const struct sandbox_run *run);
    void (*run_watch)(struct sandbox_run *run, uint64_t cookie);
    int (*next_end)(struct provider *provider, const struct cancel *cancel, uint64_t *ret_cookie, struct error *err);
    void (*run_signal)(struct sandbox_run *run, int number);
    void (*run_resize)(struct sandbox_run *run, unsigned rows, unsigned cols);
    const struct run_exit *(*run_exit)(const struct sandbox_run *run);
    void (*run_stop)(struct sandbox_run *run);
    void (*run_free)(struct sandbox_run *run);
    /* Ask all at once and hear all, until the cancel: `sandboxes` of `count`, NULL ones are passed over. answered[i] tells. */
    void (*usage)(struct provider *provider, struct sandbox *const *sandboxes, size_t count,
                  const struct cancel *cancel, struct sandbox_usage *ret_usages, bool *ret_answered);
};

/* First members of every implementation's own structs. */
struct provider {
    const struct provider_ops *ops;
};

struct sandbox {
    struct provider *provider;
    _Atomic unsigned references;
    char ref[SANDBOX_REF_BYTES];
};

struct sandbox_run {
    struct sandbox *sandbox; /* one reference */
};

struct sandbox *sandbox_ref(struct sandbox *sandbox);
void sandbox_unref(struct sandbox *sandbox); /* NULL is fine */

/* Semantics of the run functions: as agent/agent_hub.h says of agent_run_*. */

/* A hex digest of everything in the spec but the slot: two containers with the same one are interchangeable. */
void provider_spec_digest(const struct sandbox_spec *spec, char ret_digest[65]);

/* An image that is to be built, in the operator's words. Strings: lists of packages separated by blanks, `setup` and `env` by newlines. */
struct provider_recipe {
    const char *alias;
    const char *base_image;
    const char *apt;
    const char *pip;
    const char *npm;
    const char *setup;          /* commands, in order, before the packages */
    const char *env;            /* NAME=value */
    const char *dockerfile_dir; /* NULL: none; else all of the above but the alias is left out */
};

struct provider_docker_settings {
    const char *socket_path;
    const char *install;        /* uuid of this store: the label of what is ours */
    const char *state_dir;      /* where the agent is written, content-addressed: <state_dir>/agent-<hash> */
    const char *workspace_root; /* NULL: none */
    uint32_t epoch;
    const char *build_network; /* of commands while an image is built; NULL: the engine's default */
    int64_t build_timeout_ms;
    int stop_fd;
};

/* Writes the agent file, starts the hub thread. Does not need the engine to be there. Caller frees by ops->free. */
int provider_docker_new(const struct provider_docker_settings *settings, struct provider **ret_provider,
                        struct error *err);

/* Are we in a container of this engine? Then paths are translated from now on; proved, where the engine can be asked for a path. What
 * needs it does it by itself as well: this is for a start, to stop with the reason. INVALID: our folders lie where sandboxes cannot be
 * given them. UNAVAILABLE, TIMEOUT: the engine is away, and it will be found out later. */
int provider_docker_find_place(struct provider *provider, const struct cancel *cancel, struct error *err);

/* From now on image() and prepare() build the image of this name instead of pulling it. *ret_image: the name, with a tag that says what
 * goes into it; caller frees. Reads the recipe's folder. Before the provider is used. Errors: INVALID, TOO_LARGE, as errno. */
int provider_docker_add_recipe(struct provider *provider, const struct provider_recipe *recipe, char **ret_image,
                               struct error *err);

/* For unit tests of session/: containers and runs in memory, with faults to order. See provider_fake.h. */

#endif
