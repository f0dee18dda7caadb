/* A link opens on the right answer, passes over what is late, asks for usage. */
#include "agent_hub_fixture.h"

/* Opening */

struct opening {
    struct fake fake;
    const struct agent_run_state *runs;
    uint32_t run_count;
    void (*before)(struct opening *opening); /* between HELLO and its answer */
    unsigned hellos;                         /* this many are not answered */
    bool silent;
    bool byte_by_byte;
};

static void *opening_main(void *context)
{
    struct opening *opening = context;

    for (unsigned i = 0; i <= opening->hellos; i++) {
        uint64_t before = opening->fake.nonce;

        (void)fake_expect(&opening->fake, AGENT_HELLO);
        cr_assert(i == 0 || opening->fake.nonce == before, "a repeated HELLO has the same nonce");
    }
    if (opening->before)
        opening->before(opening);
    if (!opening->silent)
        fake_greet(&opening->fake, opening->fake.nonce, opening->runs, opening->run_count);
    return NULL;
}

static int opening_run(struct opening *opening, struct agent_hub **ret_hub, const uint32_t *known, size_t known_count,
                       struct agent_link **ret_link, struct agent_hello_info *ret_hello, struct error *err)
{
    const struct agent_hub_settings settings = {.epoch = 7};
    struct cancel patient = fake_patient();
    struct net_stream *stream = fake_pair(&opening->fake, 0);
    pthread_t thread;
    int result;

    cr_assert(eq(int, agent_hub_new(&settings, ret_hub, err), 0));
    cr_assert(eq(int, pthread_create(&thread, NULL, opening_main, opening), 0));
    result = agent_link_open(*ret_hub, stream, known, known_count, &patient, ret_link, ret_hello, err);
    cr_assert(eq(int, pthread_join(thread, NULL), 0));
    return result;
}

static void old_life(struct opening *opening)
{
    const uint64_t other = opening->fake.nonce + 1;
    struct agent_header promise = {
        .magic = AGENT_MAGIC, .version = AGENT_VERSION, .type = AGENT_HELLO_ACK, .length = AGENT_PAYLOAD_MAX};
    auto_free char *noise = pattern(100000);

    fake_raw(&opening->fake, noise, 100000);              /* the end of a frame that began before us */
    fake_raw(&opening->fake, "BRTHBRTBR", 9);             /* what looks like one */
    fake_raw(&opening->fake, &promise, sizeof promise);   /* one whose payload does not come */
    fake_greet(&opening->fake, other, NULL, 0);           /* an answer to somebody before us */
    fake_send(&opening->fake, AGENT_OUT, 3, 0, "old", 3); /* output of an earlier link */
    fake_raw(&opening->fake, noise, 1000);
}

Test(agent_link, finds_the_answer_behind_anything_an_earlier_life_left)
{
    struct opening opening = {.before = old_life};
    struct agent_hub *hub;
    struct agent_link *link = NULL;
    struct agent_hello_info hello;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, opening_run(&opening, &hub, NULL, 0, &link, &hello, &err), 0), "%s", err.text);
    cr_expect(agent_link_alive(link));
    cr_expect(eq(u32, hello.uid, 1000));
    cr_expect(eq(u32, hello.gid, 1001));
    cr_expect(hello.subreaper && hello.stream_safe);
    agent_link_unref(link);
    agent_hub_free(hub);
    fake_done(&opening.fake);
}

Test(agent_link, says_hello_again_until_it_is_answered)
{
    struct opening opening = {.hellos = 1};
    struct agent_hub *hub;
    struct agent_link *link = NULL;
    struct agent_hello_info hello;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, opening_run(&opening, &hub, NULL, 0, &link, &hello, &err), 0), "%s", err.text);
    agent_link_unref(link);
    agent_hub_free(hub);
    fake_done(&opening.fake);
}

static void hang_up(struct opening *opening)
{
    (void)shutdown(opening->fake.fd, SHUT_RDWR);
}

static void wrong_version(struct opening *opening)
{
    const struct agent_hello_ack ack = {.nonce = opening->fake.nonce, .version = 99};

    fake_send(&opening->fake, AGENT_HELLO_ACK, 0, 0, &ack, sizeof ack);
}

static void too_many_runs(struct opening *opening)
{
    const struct agent_hello_ack ack = {
        .nonce = opening->fake.nonce, .version = AGENT_VERSION, .run_count = UINT32_MAX};

    fake_send(&opening->fake, AGENT_HELLO_ACK, 0, 0, &ack, sizeof ack);
}

static void run_twice(struct opening *opening)
{
    const struct agent_run_state runs[] = {{.run = 5}, {.run = 5}};

    fake_greet(&opening->fake, opening->fake.nonce, runs, 2);
}

static void broken_checksum(struct opening *opening)
{
    auto_buf struct buf frame = BUF_INIT(1024);
    const struct agent_hello_ack ack = {.nonce = opening->fake.nonce, .version = AGENT_VERSION};
    struct error err = ERROR_INIT;

    (void)agent_frame_append(&frame, AGENT_HELLO_ACK, 0, 0, 0, &ack, sizeof ack, &err);
    frame.data[frame.size - 1] ^= 1;
    fake_raw(&opening->fake, frame.data, frame.size);
}

Test(agent_link, does_not_open_on_a_wrong_answer)
{
    void (*const wrong[])(struct opening *) = {hang_up, wrong_version, too_many_runs, run_twice, broken_checksum};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct opening opening = {.before = wrong[i], .silent = true};
        struct agent_hub *hub;
        struct agent_link *link = NULL;
        struct agent_hello_info hello;
        struct error err = ERROR_INIT;

        cr_expect(lt(int, opening_run(&opening, &hub, NULL, 0, &link, &hello, &err), 0), "case %zu", i);
        cr_expect(eq(int, err.code, ERROR_ENGINE), "case %zu: %s", i, err.text);
        agent_hub_free(hub);
        fake_done(&opening.fake);
    }
}

Test(agent_link, gives_up_opening_at_the_deadline)
{
    const struct agent_hub_settings settings = {.epoch = 7};
    struct cancel soon = cancel_within(&(struct cancel)CANCEL_NEVER, 50);
    struct fake fake;
    struct net_stream *stream = fake_pair(&fake, 0);
    struct agent_hub *hub;
    struct agent_link *link;
    struct agent_hello_info hello;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, agent_hub_new(&settings, &hub, &err), 0));
    cr_expect(lt(int, agent_link_open(hub, stream, NULL, 0, &soon, &link, &hello, &err), 0));
    cr_expect(eq(int, err.code, ERROR_TIMEOUT));
    agent_hub_free(hub);
    fake_done(&fake);
}

Test(agent_link, keeps_the_runs_it_knows_and_ends_the_others)
{
    const struct agent_run_state runs[] = {{.run = 3, .out_acked = 10}, {.run = 4}};
    const uint32_t known[] = {3, 9};
    struct opening opening = {.runs = runs, .run_count = 2};
    struct agent_hub *hub;
    struct agent_link *link = NULL;
    struct agent_hello_info hello;
    struct agent_run *run = NULL;
    struct agent_run *none = NULL;
    struct run_chunk chunk;
    struct agent_ack ack;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, opening_run(&opening, &hub, known, 2, &link, &hello, &err), 0), "%s", err.text);
    cr_expect(eq(uint, agent_link_running(link), 2));

    /* 4 is stopped, what it says is acknowledged and not kept */
    cr_expect(eq(u32, fake_expect(&opening.fake, AGENT_STOP).header.run, 4));
    fake_send(&opening.fake, AGENT_OUT, 4, 0, "late", 4);
    fake_exit(&opening.fake, 4, 0, 4, 0);
    do {
        struct agent_frame frame = fake_expect(&opening.fake, AGENT_ACK);

        cr_assert(eq(u32, frame.header.run, 4));
        memcpy(&ack, frame.payload, sizeof ack);
    } while (!ack.exit);
    cr_expect(eq(u64, ack.out, 4));

    /* 3 goes on where it was acknowledged */
    fake_send(&opening.fake, AGENT_OUT, 3, 10, "more", 4);
    cr_assert(eq(int, agent_run_resume(link, 3, true, &run, &err), 0), "%s", err.text);
    cr_expect(eq(u32, fake_expect(&opening.fake, AGENT_READER).header.run, 3));
    cr_expect(lt(int, agent_run_resume(link, 3, true, &none, &err), 0), "it is taken");
    error_clear(&err);
    cr_expect(lt(int, agent_run_resume(link, 9, true, &none, &err), 0));
    cr_expect(eq(int, err.code, ERROR_NOT_FOUND));
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(u64, chunk.offset, 10));
    cr_expect(eq(u64, chunk.dropped, 0));
    fake_exit(&opening.fake, 3, 7, 14, 0);
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(eq(int, agent_run_exit(run)->exit_code, 7));
    agent_run_free(run);
    agent_link_unref(link);
    agent_hub_free(hub);
    fake_done(&opening.fake);
}

/* Hostile agents: each says something that must end the link. Run 1 is started, run 2 has exited after 3 bytes. */

Test(agent_link, passes_over_late_words_of_a_run_that_is_over)
{
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    fake_exit(&linked.fake, 1, 0, 0, 0);
    cr_assert(eq(int, next(run, &chunk), 0));
    agent_run_free(run);
    (void)fake_expect(&linked.fake, AGENT_ACK);
    fake_send(&linked.fake, AGENT_GONE, 1, 0, NULL, 0);
    fake_greet(&linked.fake, linked.fake.nonce, NULL, 0); /* the answer to a repeated HELLO */
    run = linked_start(&linked, 2);
    fake_exit(&linked.fake, 2, 5, 0, 0);
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(eq(int, agent_run_exit(run)->exit_code, 5));
    agent_run_free(run);
    linked_done(&linked);
}

/* Usage */

static void *answer_usage(void *context)
{
    struct fake *fake = context;
    struct agent_frame frame = fake_expect(fake, AGENT_USAGE);
    const struct agent_usage usage = {.memory_bytes = 1, .cpu_ns = 2, .pids = 3, .oom_kills = -1};

    fake_send(fake, AGENT_USAGE_REPLY, 0, frame.header.offset, &usage, sizeof usage);
    return NULL;
}

Test(agent_link, asks_many_for_usage_and_waits_for_no_answer_in_vain)
{
    struct linked answers;
    struct linked silent;
    struct linked dead;
    struct cancel bounded = cancel_within(&(struct cancel)CANCEL_NEVER, 300);
    struct sandbox_usage usages[4] = {{0}};
    bool answered[4] = {true, true, true, true};
    pthread_t thread;

    linked_open(&answers, 0);
    linked_open(&silent, 0);
    linked_open(&dead, 0);
    agent_link_close(dead.link);
    cr_assert(eq(int, pthread_create(&thread, NULL, answer_usage, &answers.fake), 0));
    agent_links_usage((struct agent_link *const[]){silent.link, NULL, dead.link, answers.link}, 4, &bounded, usages,
                      answered);
    (void)pthread_join(thread, NULL);
    cr_expect(not(answered[0]));
    cr_expect(not(answered[1]));
    cr_expect(not(answered[2]));
    cr_assert(answered[3], "asked before the silent one was waited for");
    cr_expect(eq(i64, usages[3].pids, 3));
    linked_done(&answers);
    linked_done(&silent);
    linked_done(&dead);
}

Test(agent_link, asks_for_usage)
{
    struct linked linked;
    struct cancel patient = fake_patient();
    struct cancel now = cancel_within(&(struct cancel)CANCEL_NEVER, 0);
    struct sandbox_usage usage = {0};
    const struct agent_usage late = {0};
    struct error err = ERROR_INIT;
    pthread_t thread;

    linked_open(&linked, 0);
    cr_assert(eq(int, pthread_create(&thread, NULL, answer_usage, &linked.fake), 0));
    cr_assert(eq(int, agent_link_usage(linked.link, &patient, &usage, &err), 0), "%s", err.text);
    (void)pthread_join(thread, NULL);
    cr_expect(eq(i64, usage.memory_bytes, 1));
    cr_expect(eq(i64, usage.oom_kills, -1));
    cr_expect(lt(int, agent_link_usage(linked.link, &now, &usage, &err), 0));
    cr_expect(eq(int, err.code, ERROR_TIMEOUT));
    error_clear(&err);
    fake_send(&linked.fake, AGENT_USAGE_REPLY, 0, fake_expect(&linked.fake, AGENT_USAGE).header.offset, &late,
              sizeof late);
    cr_assert(eq(int, pthread_create(&thread, NULL, answer_usage, &linked.fake), 0));
    cr_expect(eq(int, agent_link_usage(linked.link, &patient, &usage, &err), 0), "a late answer does no harm");
    (void)pthread_join(thread, NULL);
    agent_link_close(linked.link);
    cr_expect(lt(int, agent_link_usage(linked.link, &patient, &usage, &err), 0));
    cr_expect(eq(int, err.code, ERROR_GONE));
    linked_done(&linked);
}
