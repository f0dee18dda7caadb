/* provider/provider_docker_private.h: what the files of the docker provider share. */
#ifndef BERTH_PROVIDER_DOCKER_PRIVATE_H
#define BERTH_PROVIDER_DOCKER_PRIVATE_H

#include "agent_hub.h"
#include "engine.h"
#include "map.h"
#include "provider.h"
#include "waitq.h"

#include <pthread.h>
#include <sys/types.h>

enum { OOM_MARKS = 16 };

/* An out-of-memory event that the death it explains has not followed yet. */
struct oom_mark {
    char ref[SANDBOX_REF_BYTES];
    int64_t at_mono_ms; /* 0: free */
};

/* Config.User of an image, believed for a while: the name may be given to another image. */
struct image_user {
    char user[64];
    int64_t until_mono_ms;
};

struct docker_provider {
    struct provider base;
    struct engine *engine;
    struct agent_hub *hub;
    char *install;
    char *agent_path;   /* on the disk, content-addressed */
    char *seccomp_path; /* likewise; written only for engines that want a file */
    char *state_dir;
    char *workspace_root; /* NULL: none */

    pthread_mutex_t lock;
    struct map live;        /* lock: ref to struct docker_sandbox, borrowed: at most one is alive for each */
    struct map image_users; /* lock: image to struct image_user, owned */
    struct map fresh;       /* lock: refs that were made and not opened yet: ours, and not running, without asking */
    bool place_known;       /* lock; from then on `place` does not change */
    struct engine_mounts place; /* of our own container; without an id: we are in none, paths are the host's */

    struct build *builds; /* what can be built; the list does not change once the provider is used */
    struct waitq build_changed;
    char *build_network;
    int64_t build_timeout_ms;
    int stop_fd;

    /* of the one thread in next_event */
    struct engine_events *events;
    struct oom_mark ooms[OOM_MARKS];
    unsigned next_oom;
};

/* provider_file.c: make sure that the file at `path` holds exactly that. What is there and right is left alone; otherwise it is
 * replaced as a whole, so that who has the old one open or mounted keeps it. Blocks on the disk. Errors: as errno. */
int provider_file_keep(const char *path, const void *data, size_t size, mode_t mode, struct error *err);

/* "<dir>/<prefix><16 hex digits of the content's SHA-256>". Caller frees. */
char *provider_file_path(const char *dir, const char *prefix, const void *data, size_t size);

/* provider_docker_build.c */

/* Is that the name of an image that is built here? */
bool docker_builds(struct docker_provider *self, const char *image);
/* Build it, or wait for the build that is under way; `say` (may be NULL) gets its progress on this thread. The build goes on when who
 * waits gives up, until its own deadline. After a failure the next one is refused for a while that grows. ENGINE: it could not be built;
 * why is in the log only. */
int docker_build(struct docker_provider *self, const char *image, void (*say)(void *context, const char *text),
                 void *context, const struct cancel *cancel, struct error *err);
/* Waits for builds that run, which end with the broker's stop. */
void docker_builds_done(struct docker_provider *self);

/* provider_docker_network.c */
int docker_network(struct provider *provider, const char *name, const struct cancel *cancel,
                   char ret_text[PROVIDER_NETWORK_TEXT_BYTES], struct error *err);

/* provider_docker_place.c */

/* Where the engine's host has a path of ours that exists. Finds out where we are at the first call, see provider_docker_find_place().
 * Caller frees *ret_host. */
int docker_host_path(struct docker_provider *self, const char *path, const struct cancel *cancel, char **ret_host,
                     struct error *err);

/* Ids of the containers that we may be in, by what the kernel shows of us; the likeliest first. Whole texts of /proc/self. */
enum { PLACE_CANDIDATES_MAX = 8 };
struct place_candidates {
    char ids[PLACE_CANDIDATES_MAX][65];
    size_t count;
};
void place_candidates_of(const char *mountinfo, const char *cgroup, const char *hostname,
                         struct place_candidates *ret_candidates);

/* `path` is absolute and without links. INVALID: it lies where no other container can get at it. */
int place_translate(const struct engine_mounts *mounts, const char *path, char **ret_host, struct error *err);

/* provider_docker_isolation.c */
int docker_isolation(struct provider *provider, const struct sandbox_spec *spec, const struct cancel *cancel,
                     struct isolation_control controls[ISOLATION_CONTROLS_MAX], struct error *err);

/* provider_docker_event.c */
int docker_next_event(struct provider *provider, const struct cancel *cancel, struct sandbox_event *ret,
                      struct error *err);

/* The engine says that somebody froze or thawed it: the next run thaws it first. Unknown refs are ignored. */
void docker_note_paused(struct docker_provider *self, const char *ref, bool paused);

/* Does the container of this spec run as root? Asks the engine for the image's user, unless it has just told. Blocks. */
int docker_runs_as_root(struct docker_provider *self, const struct sandbox_spec *spec, const struct cancel *cancel,
                        bool *ret_root, struct error *err);

#endif
