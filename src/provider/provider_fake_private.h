/* provider/provider_fake_private.h: what the files of the provider in memory share. */
#ifndef BERTH_PROVIDER_FAKE_PRIVATE_H
#define BERTH_PROVIDER_FAKE_PRIVATE_H

#include "buf.h"
#include "provider_fake.h"
#include "waitq.h"

#include <pthread.h>

struct fake_sandbox;

struct fake_run {
    struct sandbox_run base;
    struct buf out;
    struct buf err;
    struct buf in; /* what was written to its standard input */
    char **applet; /* its argv, NULL-terminated; NULL: it is none */
    bool reads;    /* hangs until the end of its input, and gives out what came (cat), or is an applet then */
    size_t out_given;
    size_t err_given;
    bool hangs;
    bool stopped;
    bool ended;
    int64_t deadline_ms; /* clock_mono_ms(); 0: none */
    int64_t started_ms;
    struct run_exit exit;
    struct fake_run *next; /* watched: in the provider's list, or in its container's when nobody holds it */
    uint32_t number;
    bool watched;
    bool interrupted;
    unsigned life; /* of its container */
    char ref[SANDBOX_REF_BYTES];
    uint64_t cookie; /* 0: nobody wants to know */
};

struct fake_container {
    struct fake_container *next;
    struct sandbox_listed listed;
    char name[128];
    struct fake_sandbox *live; /* the open one; borrowed */
    struct fake_run *left;     /* watched runs whose link ended */
    unsigned life;             /* grows when it ends */
};

struct fake_event {
    struct fake_event *next;
    struct sandbox_event event;
};

struct fake_order {
    enum error_code before;
    unsigned before_times;
    enum error_code after;
    unsigned after_times;
    int64_t delay_ms;
    unsigned calls;
    unsigned now;
    unsigned most;
};

/* How the agent's applets are performed; see provider_fake_applets() and provider_fake_applet_says(). */
struct fake_applets {
    char *program; /* NULL: there are none */
    char *work_dir;
    char *says; /* instead of what the program would say; NULL: nothing of the kind */
    size_t says_size;
};

struct fake_provider {
    struct provider base;
    pthread_mutex_t lock; /* guards everything here, containers, sandboxes and runs */
    struct waitq changed;
    struct fake_container *containers;
    struct fake_event *events;
    struct fake_order orders[FAKE_VERBS];
    bool any_image;
    char image[256];
    struct sandbox_image found;
    struct fake_applets applets;
    struct fake_run *watched;
};

struct fake_sandbox {
    struct sandbox base;
    bool alive;
    unsigned running;
};

/* Takes the lock; fake_unlock() wakes whoever waits for a change. */
struct fake_provider *fake_lock(struct provider *provider);
void fake_unlock(struct fake_provider *self);

/* NULL: none. The lock is held. */
struct fake_container *fake_find(struct fake_provider *self, const char *ref);
void fake_push_event_locked(struct fake_provider *self, enum sandbox_event_kind kind, const char *ref, bool oom);
void fake_cut_locked(struct fake_container *container);
void fake_end_locked(struct fake_provider *self, struct fake_container *container, bool oom);
void fake_remove_locked(struct fake_provider *self, struct fake_container *container);
struct fake_container *fake_add_locked(struct fake_provider *self, const char *ref, const char *slot,
                                       const char *digest, enum sandbox_phase phase);

/* Count the call, wait as ordered, fail as ordered. On success the caller holds the lock and calls fake_leave(). */
int fake_enter(struct provider *provider, enum provider_fake_verb verb, const struct cancel *cancel, struct error *err);
int fake_leave(struct fake_provider *self, enum provider_fake_verb verb, int result, struct error *err);

/* -- provider_fake_run.c -- */
int fake_run_start(struct sandbox *sandbox, uint32_t number, const struct run_spec *spec, const struct cancel *cancel,
                   bool *ret_sent, struct sandbox_run **ret_run, struct error *err);
int fake_run_next(struct sandbox_run *run, const struct cancel *cancel, struct run_chunk *ret_chunk, struct error *err);
int fake_run_stdin_write(struct sandbox_run *run, const void *data, size_t size, const struct cancel *cancel,
                         struct error *err);
void fake_run_stdin_eof(struct sandbox_run *run);
const struct run_exit *fake_run_exit(const struct sandbox_run *run);
void fake_run_stop(struct sandbox_run *run);
void fake_run_free(struct sandbox_run *run);
void fake_end_run_locked(struct fake_run *run);
void fake_settle_run_locked(struct fake_run *run); /* does it hang no longer? */
void fake_run_destroy(struct fake_run *run);

/* -- provider_fake_watch.c -- */
void fake_watch_locked(struct fake_provider *self, struct fake_run *run, uint32_t number);
/* Whoever held it goes: true if it goes on in its container. */
bool fake_leave_locked(struct fake_provider *self, struct fake_run *run);
void fake_forget_left_locked(struct fake_container *container);
void fake_keep_known_locked(struct fake_container *container, const uint32_t *known, size_t count);
int fake_run_resume(struct sandbox *sandbox, uint32_t number, struct sandbox_run **ret_run, struct error *err);
int fake_run_wait_started(struct sandbox_run *run, const struct cancel *cancel, struct error *err);
int fake_run_seek(struct sandbox_run *run, uint64_t out, uint64_t err_offset, const struct cancel *cancel,
                  uint64_t *ret_place, struct error *err);
void fake_run_leave(struct sandbox_run *run, uint32_t hold_ms);
void fake_run_interrupt(struct sandbox_run *run);
bool fake_run_ended(struct sandbox_run *run, struct run_exit *ret_exit);
bool fake_run_cut(const struct sandbox_run *run);
void fake_run_watch(struct sandbox_run *run, uint64_t cookie);
int fake_next_end(struct provider *provider, const struct cancel *cancel, uint64_t *ret_cookie, struct error *err);
void fake_run_signal(struct sandbox_run *run, int number);
void fake_run_resize(struct sandbox_run *run, unsigned rows, unsigned cols);

/* Perform one. Waits for the program: it ends with its input. */
void fake_applet_perform(const struct fake_applets *applets, char *const *argv, const struct buf *input,
                         struct buf *output, struct run_exit *ret_exit);

#endif
