/* provider/provider_fake.h: a provider in memory, for unit tests of session/: containers, a few commands, faults to order.
 *
 * Behaves as provider_docker does: the same phases, the same errors, the same events. Never in berthd. Threads: any.
 *
 * Commands it knows (argv; `sh -c "…"` is split at blanks): echo WORDS, err WORDS (standard error), exit N, write N (that many
 * bytes), hang (until stopped, its deadline, or death), cat (its standard input, at its end). Anything else cannot be spawned (ENOENT). PATH and env do not matter;
 * cwd "/missing" cannot be entered.
 */
#ifndef BERTH_PROVIDER_FAKE_H
#define BERTH_PROVIDER_FAKE_H

#include "provider.h"

enum provider_fake_verb {
    FAKE_CHECK,
    FAKE_IMAGE,
    FAKE_CREATE,
    FAKE_OPEN,
    FAKE_STOP,
    FAKE_KILL,
    FAKE_PAUSE,
    FAKE_THAW,
    FAKE_REMOVE,
    FAKE_RENAME,
    FAKE_INSPECT,
    FAKE_LIST,
    FAKE_RUN_START,
    FAKE_USAGE,
    FAKE_VERBS
};

/* Caller frees by ops->free, after all sandboxes and runs are. Knows every image until told otherwise. */
struct provider *provider_fake_new(void);

/* The next `times` calls of that verb fail so, and do nothing. */
void provider_fake_fail(struct provider *provider, enum provider_fake_verb verb, enum error_code code, unsigned times);
/* The next `times` calls of that verb do their work and fail all the same (an answer that was lost). */
void provider_fake_fail_after(struct provider *provider, enum provider_fake_verb verb, enum error_code code,
                              unsigned times);
/* Every call of that verb waits so long first, as its cancel allows. 0: none. */
void provider_fake_delay(struct provider *provider, enum provider_fake_verb verb, int64_t delay_ms);
/* Calls of that verb so far, failed ones included; and the most that were in it at once. */
unsigned provider_fake_calls(struct provider *provider, enum provider_fake_verb verb);
unsigned provider_fake_most_at_once(struct provider *provider, enum provider_fake_verb verb);

/* Only this image is there from now on, with that user; NULL: none. */
void provider_fake_only_image(struct provider *provider, const char *image, int64_t uid);

/* Another image is behind every name from now on. */
void provider_fake_image_id(struct provider *provider, const char *id);

/* What happens outside: process 1 dies (as the kernel's doing or not), somebody removes the container, events are missed. */
void provider_fake_die(struct provider *provider, const char *ref, bool oom);
/* The word of a death of before comes now; the container goes on. */
void provider_fake_die_late(struct provider *provider, const char *ref);
void provider_fake_vanish(struct provider *provider, const char *ref);
void provider_fake_relist(struct provider *provider);
/* Only the link ends; the container goes on. */
void provider_fake_cut(struct provider *provider, const char *ref);

/* A container that is there before anything is opened. */
void provider_fake_add(struct provider *provider, const char *ref, const char *slot, const char *spec_digest,
                       enum sandbox_phase phase, int64_t finished_at_unix_ms);

/* Runs of the agent's applets (argv[0] is ops->agent_path) are runs of this program, there; an input is gathered first. */
void provider_fake_applets(struct provider *provider, const char *program, const char *work_dir);
/* They say these bytes instead, from now on; NULL: no more. */
void provider_fake_applet_says(struct provider *provider, const void *bytes, size_t size);

unsigned provider_fake_count(struct provider *provider);   /* containers that exist */
unsigned provider_fake_running(struct provider *provider); /* of those, running or paused */
bool provider_fake_find(struct provider *provider, const char *slot, struct sandbox_listed *ret); /* false: none */
/* The name a container was given last, "" for none; copied into `name` of 128. */
void provider_fake_name(struct provider *provider, const char *ref, char name[128]);

#endif
