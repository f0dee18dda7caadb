/* An agent that was taken over, or is broken: the link ends, and nothing else. */
#include "agent_hub_fixture.h"

static void over_run_credit(struct fake *fake)
{
    auto_free char *bytes = pattern(AGENT_PAYLOAD_MAX);

    for (uint64_t i = 0; i <= AGENT_RUN_CREDIT / AGENT_PAYLOAD_MAX; i++)
        fake_send(fake, AGENT_OUT, 1, i * AGENT_PAYLOAD_MAX, bytes, AGENT_PAYLOAD_MAX);
}

static void many_gaps(struct fake *fake)
{
    auto_buf struct buf frames = BUF_INIT(16 * 1024 * 1024);
    struct error err = ERROR_INIT;

    for (uint64_t i = 0; i < AGENT_RUN_CREDIT; i++)
        (void)agent_frame_append(&frames, AGENT_OUT, 0, 1, i * 2 + 1, "x", 1, &err);
    fake_raw(fake, frames.data, frames.size);
}

static void overlap(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 1, 0, "abc", 3);
    fake_send(fake, AGENT_OUT, 1, 2, "cde", 3);
}

static void offset_overflow(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 1, UINT64_MAX - 1, "abc", 3);
}

static void empty_output(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 1, 0, NULL, 0);
}

static void output_after_exit(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 2, 3, "abc", 3);
}

static void second_exit(struct fake *fake)
{
    fake_exit(fake, 2, 0, 3, 0);
}

static void exit_with_less(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 1, 0, "abc", 3);
    fake_exit(fake, 1, 0, 2, 0);
}

static void exit_out_of_range(struct fake *fake)
{
    fake_exit(fake, 1, 256, 0, 0);
}

static void exit_of_two_kinds(struct fake *fake)
{
    const struct agent_exit said = {.exit_code = 1, .signal = 9};

    fake_send(fake, AGENT_EXIT, 1, 0, &said, sizeof said);
}

static void exit_of_no_kind(struct fake *fake)
{
    fake_exit(fake, 1, -1, 0, 0);
}

static void exit_too_short(struct fake *fake)
{
    fake_send(fake, AGENT_EXIT, 1, 0, "abc", 3);
}

static void run_nobody_started(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 77, 0, "abc", 3);
}

static void run_zero(struct fake *fake)
{
    fake_send(fake, AGENT_OUT, 0, 0, "abc", 3);
}

static void refused_after_start(struct fake *fake)
{
    fake_send(fake, AGENT_STARTED, 1, 0, NULL, 0);
    fake_send(fake, AGENT_REFUSED, 1, EAGAIN, NULL, 0);
}

static void our_own_verb(struct fake *fake)
{
    fake_send(fake, AGENT_START, 1, 0, "abc", 3);
}

static void unknown_verb(struct fake *fake)
{
    fake_send(fake, 200, 1, 0, NULL, 0);
}

static void usage_unasked(struct fake *fake)
{
    const struct agent_usage usage = {0};

    fake_send(fake, AGENT_USAGE_REPLY, 0, 5, &usage, sizeof usage);
}

static void other_nonce(struct fake *fake)
{
    fake_greet(fake, fake->nonce + 1, NULL, 0);
}

static void raw_header(struct fake *fake, struct agent_header header)
{
    fake_raw(fake, &header, sizeof header);
}

static void too_long(struct fake *fake)
{
    raw_header(fake, (struct agent_header){.magic = AGENT_MAGIC,
                                           .version = AGENT_VERSION,
                                           .type = AGENT_OUT,
                                           .run = 1,
                                           .length = AGENT_PAYLOAD_MAX + 1});
}

static void reserved_set(struct fake *fake)
{
    raw_header(fake,
               (struct agent_header){
                   .magic = AGENT_MAGIC, .version = AGENT_VERSION, .type = AGENT_STARTED, .run = 1, .reserved = 1});
}

static void next_version(struct fake *fake)
{
    raw_header(fake, (struct agent_header){.magic = AGENT_MAGIC, .version = AGENT_VERSION + 1, .type = AGENT_OUT});
}

static void wrong_checksum(struct fake *fake)
{
    raw_header(fake,
               (struct agent_header){
                   .magic = AGENT_MAGIC, .version = AGENT_VERSION, .type = AGENT_STARTED, .run = 1, .crc = 12345});
}

static void zeros(struct fake *fake)
{
    static const char nothing[AGENT_HEADER_BYTES];

    fake_raw(fake, nothing, sizeof nothing);
}

static void end_of_stream(struct fake *fake)
{
    (void)shutdown(fake->fd, SHUT_WR);
}

Test(agent_link, ends_when_the_agent_talks_nonsense)
{
#define CASE(function)      \
    {                       \
        function, #function \
    }
    const struct {
        void (*say)(struct fake *);
        const char *name;
    } cases[] = {CASE(over_run_credit),
                 CASE(many_gaps),
                 CASE(overlap),
                 CASE(offset_overflow),
                 CASE(empty_output),
                 CASE(second_exit),
                 CASE(output_after_exit),
                 CASE(exit_with_less),
                 CASE(exit_out_of_range),
                 CASE(exit_too_short),
                 CASE(exit_of_two_kinds),
                 CASE(exit_of_no_kind),
                 CASE(run_nobody_started),
                 CASE(run_zero),
                 CASE(our_own_verb),
                 CASE(unknown_verb),
                 CASE(usage_unasked),
                 CASE(other_nonce),
                 CASE(too_long),
                 CASE(reserved_set),
                 CASE(next_version),
                 CASE(wrong_checksum),
                 CASE(zeros),
                 CASE(end_of_stream),
                 CASE(refused_after_start)};
#undef CASE

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct linked linked;
        struct agent_run *run;
        struct agent_run *ended;
        struct run_chunk chunk;
        int said;

        linked_open(&linked, 0);
        run = linked_start(&linked, 1);
        ended = linked_start(&linked, 2);
        fake_send(&linked.fake, AGENT_OUT, 2, 0, "abc", 3);
        fake_exit(&linked.fake, 2, 0, 3, 0);
        cr_assert(eq(int, next(ended, &chunk), 1));
        cr_assert(eq(int, next(ended, &chunk), 0));
        cases[i].say(&linked.fake);
        wait_dead(linked.link);
        while ((said = next(run, &chunk)) == 1)
            ;
        cr_expect(eq(int, said, 0), "%s", cases[i].name);
        cr_expect(agent_run_exit(run)->lost, "%s", cases[i].name);
        cr_expect(not(agent_run_exit(ended)->lost), "%s", cases[i].name);
        agent_run_free(run);
        agent_run_free(ended);
        linked_done(&linked);
    }
}
