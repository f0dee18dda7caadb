/* Standard input of a run, as the broker's side hands it over: windows, ends, and who is cancelled. */
#include "agent_fake.h"

#include "alloc.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <string.h>

struct writer {
    struct agent_run *run;
    const char *data;
    size_t size;
    struct cancel cancel;
    int result;
    struct error err;
};

static void *write_input(void *data)
{
    struct writer *writer = data;

    writer->result = agent_run_stdin_write(writer->run, writer->data, writer->size, &writer->cancel, &writer->err);
    if (writer->result == 0)
        agent_run_stdin_eof(writer->run);
    return NULL;
}

static struct agent_run *start_with_input(struct linked *linked, uint32_t number)
{
    static const char *const argv[] = {"cat"};
    const struct run_spec spec = {.argv = argv, .argc = 1, .has_reader = true, .stdin_open = true};
    struct cancel cancel = fake_patient();
    struct agent_run *run = NULL;
    struct error err = ERROR_INIT;
    struct agent_start start;
    bool sent;

    cr_assert(eq(int, agent_run_start(linked->link, number, &spec, &cancel, &sent, &run, &err), 0), "%s", err.text);
    memcpy(&start, fake_expect(&linked->fake, AGENT_START).payload, sizeof start);
    cr_expect(ne(u32, start.flags & AGENT_START_STDIN, 0));
    return run;
}

/* The next bytes of input, which are those of `data` at *at. */
static void expect_input(struct fake *fake, const char *data, size_t size, size_t *at)
{
    const size_t until = *at + size;

    while (*at < until) {
        struct agent_frame frame = fake_expect(fake, AGENT_STDIN);

        cr_assert(eq(u64, frame.header.offset, *at));
        cr_assert(le(sz, *at + frame.header.length, until), "beyond the credit");
        cr_assert(eq(int, memcmp(frame.payload, data + *at, frame.header.length), 0));
        *at += frame.header.length;
    }
}

static char *random_bytes(size_t size)
{
    char *bytes = alloc_array(size, 1);
    uint64_t state = 88172645463325252u;

    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (char)state;
    }
    return bytes;
}

Test(agent_stdin, keeps_to_the_agents_window_and_waits_for_its_start)
{
    enum { SIZE = AGENT_STDIN_WINDOW + 100000 };
    auto_free char *data = random_bytes(SIZE);
    struct agent_frame frame;
    struct writer writer = {.data = data, .size = SIZE, .cancel = fake_patient(), .err = ERROR_INIT};
    struct linked linked;
    pthread_t thread;
    size_t at = 0;

    linked_open(&linked, 0);
    writer.run = start_with_input(&linked, 1);
    cr_assert(eq(int, pthread_create(&thread, NULL, write_input, &writer), 0));
    cr_expect(not(fake_next(&linked.fake, 100, &frame)), "nothing before STARTED");
    fake_send(&linked.fake, AGENT_STARTED, 1, 0, NULL, 0);
    expect_input(&linked.fake, data, AGENT_STDIN_WINDOW, &at);
    cr_expect(not(fake_next(&linked.fake, 100, &frame)), "nothing beyond the window");
    fake_send(&linked.fake, AGENT_STDIN_CREDIT, 1, 40000, NULL, 0);
    expect_input(&linked.fake, data, 40000, &at);
    cr_expect(not(fake_next(&linked.fake, 100, &frame)));
    fake_send(&linked.fake, AGENT_STDIN_CREDIT, 1, 80000, NULL, 0);
    expect_input(&linked.fake, data, 60000, &at);
    cr_expect(eq(u64, fake_expect(&linked.fake, AGENT_STDIN_EOF).header.offset, SIZE));
    (void)pthread_join(thread, NULL);
    cr_expect(eq(int, writer.result, 0), "%s", writer.err.text);
    agent_run_free(writer.run);
    linked_done(&linked);
}

Test(agent_stdin, says_the_end_of_nothing_once_the_run_has_started)
{
    struct agent_frame frame;
    struct linked linked;
    struct agent_run *run;

    linked_open(&linked, 0);
    run = start_with_input(&linked, 1);
    agent_run_stdin_eof(run);
    agent_run_stdin_eof(run);
    cr_expect(not(fake_next(&linked.fake, 100, &frame)), "nothing before STARTED");
    fake_send(&linked.fake, AGENT_STARTED, 1, 0, NULL, 0);
    cr_expect(eq(u64, fake_expect(&linked.fake, AGENT_STDIN_EOF).header.offset, 0));
    agent_run_free(run);
    cr_expect(eq(u8, fake_expect(&linked.fake, AGENT_STOP).header.type, AGENT_STOP), "and not twice");
    linked_done(&linked);
}

Test(agent_stdin, a_writer_can_be_cancelled_and_the_run_goes_on)
{
    const struct cancel never = CANCEL_NEVER;
    auto_free char *data = random_bytes(2 * AGENT_STDIN_WINDOW);
    struct cancel cancel = fake_patient();
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    struct linked linked;
    struct agent_run *run;
    struct cancel soon;

    linked_open(&linked, 0);
    run = start_with_input(&linked, 1);
    fake_send(&linked.fake, AGENT_STARTED, 1, 0, NULL, 0);
    soon = cancel_within(&never, 100);
    cr_expect(eq(int, agent_run_stdin_write(run, data, 2 * AGENT_STDIN_WINDOW, &soon, &err), -1));
    cr_expect(eq(int, err.code, ERROR_TIMEOUT));
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "ok", 2);
    fake_exit(&linked.fake, 1, 0, 2, 0);
    cr_expect(eq(int, agent_run_next(run, &cancel, &chunk, &err), 1));
    cr_expect(eq(int, agent_run_next(run, &cancel, &chunk, &err), 0));
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_stdin, of_a_run_that_has_ended_vanishes_and_of_a_dead_link_fails)
{
    auto_free char *data = random_bytes(2 * AGENT_STDIN_WINDOW);
    struct linked linked;
    pthread_t thread;

    linked_open(&linked, 0);
    for (uint32_t i = 1; i <= 2; i++) {
        struct writer writer = {.run = start_with_input(&linked, i),
                                .data = data,
                                .size = 2 * AGENT_STDIN_WINDOW,
                                .cancel = fake_patient(),
                                .err = ERROR_INIT};
        size_t at = 0;

        cr_assert(eq(int, pthread_create(&thread, NULL, write_input, &writer), 0));
        fake_send(&linked.fake, AGENT_STARTED, i, 0, NULL, 0);
        expect_input(&linked.fake, data, AGENT_STDIN_WINDOW, &at);
        if (i == 1)
            fake_exit(&linked.fake, i, 1, 0, 0);
        else
            agent_link_close(linked.link);
        (void)pthread_join(thread, NULL);
        cr_expect(eq(int, writer.result, i == 1 ? 0 : -1));
        cr_expect(eq(int, writer.err.code, i == 1 ? ERROR_NONE : ERROR_GONE));
        agent_run_free(writer.run);
    }
    linked_done(&linked);
}

Test(agent_stdin, more_credit_than_was_used_ends_the_link)
{
    struct cancel cancel = fake_patient();
    struct error err = ERROR_INIT;
    struct linked linked;
    struct agent_run *run;

    linked_open(&linked, 0);
    run = start_with_input(&linked, 1);
    fake_send(&linked.fake, AGENT_STARTED, 1, 0, NULL, 0);
    cr_assert(eq(int, agent_run_stdin_write(run, "123", 3, &cancel, &err), 0));
    fake_send(&linked.fake, AGENT_STDIN_CREDIT, 1, 4, NULL, 0);
    cr_expect(eq(int, agent_link_wait_dead(linked.link, &cancel, &err), 0));
    agent_run_free(run);
    linked_done(&linked);
}
