/* Reading runs of an agent that a test plays, with an end to patience. */
#ifndef BERTH_AGENT_HUB_FIXTURE_H
#define BERTH_AGENT_HUB_FIXTURE_H

#include "agent_fake.h"

#include "alloc.h"
#include "clock.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static const char *const true_argv[] = {"true"};
static const struct run_spec true_spec = {.argv = true_argv, .argc = 1};

static __attribute__((unused)) char *pattern(size_t size)
{
    char *bytes = alloc_zero(size);

    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 31 + i / 251);
    return bytes;
}

/* What run_next() says, with an end to patience. */
static __attribute__((unused)) int next(struct agent_run *run, struct run_chunk *ret)
{
    struct cancel patient = fake_patient();
    struct error err = ERROR_INIT;

    return agent_run_next(run, &patient, ret, &err);
}

/* The same without waiting: true if there was a piece. It asks for the next, and so gives credit for the last. */
static __attribute__((unused)) bool next_now(struct agent_run *run, struct run_chunk *ret)
{
    struct cancel now = cancel_within(&(struct cancel)CANCEL_NEVER, 0);
    struct error err = ERROR_INIT;
    int said = agent_run_next(run, &now, ret, &err);

    cr_assert(ne(int, said, 0));
    return said == 1;
}

static __attribute__((unused)) enum error_code next_error(struct agent_run *run, const struct cancel *cancel)
{
    struct run_chunk chunk;
    struct error err = ERROR_INIT;

    cr_assert(lt(int, agent_run_next(run, cancel, &chunk, &err), 0));
    return err.code;
}

static __attribute__((unused)) void wait_dead(struct agent_link *link)
{
    struct cancel patient = fake_patient();
    struct error err = ERROR_INIT;

    cr_assert(eq(int, agent_link_wait_dead(link, &patient, &err), 0), "%s", err.text);
    cr_assert(not(agent_link_alive(link)));
}

#endif
