/* tests/unit/agent_pair.h: the hub and the real agent, over a socketpair on this host. */
#ifndef BERTH_AGENT_PAIR_H
#define BERTH_AGENT_PAIR_H

#include "agent_hub.h"
#include "agent_proto.h"
#include "alloc.h"
#include "buf.h"
#include "net_stream.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct pair {
    struct agent_hub *hub;
    struct agent_link *link;
    struct agent_hello_info hello;
    pid_t agent;
    int engine_fd; /* the broker's end once more: as the engine does, it keeps the stream when a broker goes */
    _Atomic uint32_t last;
};

static inline struct cancel pair_patient(void)
{
    return cancel_within(&(struct cancel)CANCEL_NEVER, 30000);
}

static inline int pair_attach(struct pair *pair, const uint32_t *known, size_t known_count, struct error *err)
{
    struct cancel cancel = pair_patient();

    return agent_link_open(pair->hub, net_stream_from_fd(dup(pair->engine_fd)), known, known_count, &cancel,
                           &pair->link, &pair->hello, err);
}

static inline void pair_hub(struct pair *pair, uint32_t epoch)
{
    const struct agent_hub_settings settings = {.epoch = epoch};
    struct error err = ERROR_INIT;

    cr_assert(eq(int, agent_hub_new(&settings, &pair->hub, &err), 0), "%s", err.text);
}

static inline void pair_open(struct pair *pair)
{
    const char *path = getenv("BERTH_AGENT_HOST");
    struct error err = ERROR_INIT;
    int ends[2];

    *pair = (struct pair){.agent = -1};
    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0));
    pair->engine_fd = ends[1];
    pair->agent = fork();
    if (pair->agent == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(ends[0], 0);
        (void)dup2(ends[0], 1);
        (void)execl(path ? path : "./berth-agent-host", "berth-agent", NULL);
        _exit(127);
    }
    (void)close(ends[0]);
    pair_hub(pair, 1);
    cr_assert(eq(int, pair_attach(pair, NULL, 0, &err), 0), "%s", err.text);
}

static inline void pair_done(struct pair *pair)
{
    int status;

    agent_link_unref(pair->link);
    agent_hub_free(pair->hub);
    (void)close(pair->engine_fd); /* the end of its input: it stops its runs and goes */
    cr_assert(eq(int, (int)waitpid(pair->agent, &status, 0), (int)pair->agent));
    cr_expect(eq(int, status, 0), "it went by itself");
}

static inline struct agent_run *pair_start(struct pair *pair, const struct run_spec *spec)
{
    struct cancel cancel = pair_patient();
    struct agent_run *run = NULL;
    struct error err = ERROR_INIT;
    bool sent;

    cr_assert(eq(int, agent_run_start(pair->link, ++pair->last, spec, &cancel, &sent, &run, &err), 0), "%s", err.text);
    return run;
}

/* The broker dies as kill -9 would have it: nothing is said any more, the stream stays. */
static inline void pair_die(struct pair *pair, struct agent_run *run)
{
    agent_link_close(pair->link);
    agent_run_free(run);
    agent_link_unref(pair->link);
    agent_hub_free(pair->hub);
}

#endif
