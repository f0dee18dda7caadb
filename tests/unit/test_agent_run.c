/* Runs over a link: their start, output, credit, end and loss. */
#include "agent_hub_fixture.h"

/* Runs */

Test(agent_run, sends_exactly_what_was_asked_for)
{
    const char *const argv[] = {"sh", "-c", "echo $A"};
    const char *const env[] = {"A=1", "B="};
    const struct run_spec spec = {.argv = argv,
                                  .argc = 3,
                                  .env = env,
                                  .env_count = 2,
                                  .cwd = "/tmp",
                                  .timeout_ms = 1500,
                                  .merge = true,
                                  .keep = true};
    static const char strings[] = "sh\0-c\0echo $A\0A=1\0B=\0/tmp";
    struct linked linked;
    struct cancel patient = fake_patient();
    struct agent_run *run = NULL;
    struct agent_frame frame;
    struct agent_start start;
    struct error err = ERROR_INIT;
    bool sent = false;

    linked_open(&linked, 0);
    cr_assert(eq(int, agent_run_start(linked.link, 42, &spec, &patient, &sent, &run, &err), 0));
    cr_expect(sent);
    frame = fake_expect(&linked.fake, AGENT_START);
    cr_expect(eq(u32, frame.header.run, 42));
    cr_expect(eq(int, frame.header.flags, 0));
    memcpy(&start, frame.payload, sizeof start);
    cr_expect(eq(u32, start.epoch, 7));
    cr_expect(eq(u32, start.flags, AGENT_START_MERGE | AGENT_START_KEEP));
    cr_expect(eq(u64, start.timeout_ms, 1500));
    cr_expect(eq(u32, start.argc, 3));
    cr_expect(eq(u32, start.envc, 2));
    cr_assert(eq(sz, frame.header.length, sizeof start + sizeof strings));
    cr_expect(eq(int, memcmp(frame.payload + sizeof start, strings, sizeof strings), 0));
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_run, splits_a_large_start_and_refuses_one_too_large)
{
    const size_t large_bytes = 1000000;
    auto_free char *large = alloc_zero(5000001);
    const char *argv[] = {"echo", large};
    struct run_spec spec = {.argv = argv, .argc = 2};
    struct linked linked;
    struct cancel patient = fake_patient();
    struct agent_run *run = NULL;
    struct agent_frame frame;
    struct error err = ERROR_INIT;
    uint64_t at = 0;
    bool sent = false;

    linked_open(&linked, 0);
    memset(large, 'x', 5000000);
    cr_expect(lt(int, agent_run_start(linked.link, 1, &spec, &patient, &sent, &run, &err), 0));
    cr_expect(eq(int, err.code, ERROR_INVALID));
    cr_expect(eq(int, err.sys_errno, E2BIG));
    cr_expect(not(sent));
    error_clear(&err);
    spec.argc = AGENT_ARGS_MAX + 1;
    cr_expect(lt(int, agent_run_start(linked.link, 1, &spec, &patient, &sent, &run, &err), 0));
    cr_expect(eq(int, err.sys_errno, E2BIG));
    error_clear(&err);

    spec.argc = 2;
    large[large_bytes] = '\0';
    /* The socket holds less than this: the fake reads only what is there, the hub's thread writes on. */
    spec.timeout_ms = 0;
    {
        struct cancel now = cancel_within(&(struct cancel)CANCEL_NEVER, 0);

        cr_expect(lt(int, agent_run_start(linked.link, 1, &spec, &now, &sent, &run, &err), 0));
        cr_expect(eq(int, err.code, ERROR_TIMEOUT));
        cr_expect(sent, "it will reach the agent");
    }
    do {
        frame = fake_expect(&linked.fake, AGENT_START);
        cr_assert(eq(u64, frame.header.offset, at));
        at += frame.header.length;
    } while (frame.header.flags & AGENT_FLAG_MORE);
    cr_expect(eq(u64, at, sizeof(struct agent_start) + 5 + large_bytes + 1 + 1));
    cr_expect(eq(u32, fake_expect(&linked.fake, AGENT_STOP).header.run, 1));
    linked_done(&linked);
}

static void *hang_up_in_the_middle(void *context)
{
    struct fake *fake = context;
    struct pollfd some = {.fd = fake->fd, .events = POLLIN};

    (void)poll(&some, 1, 5000);
    (void)shutdown(fake->fd, SHUT_RDWR);
    return NULL;
}

Test(agent_run, knows_that_half_a_start_started_nothing)
{
    auto_free char *large = alloc_zero(3000001);
    const char *const argv[] = {"echo", large};
    const struct run_spec spec = {.argv = argv, .argc = 2};
    struct linked linked;
    struct cancel patient = fake_patient();
    struct agent_run *run = NULL;
    struct error err = ERROR_INIT;
    pthread_t thread;
    bool sent = true;

    memset(large, 'x', 3000000);
    linked_open(&linked, 0);
    cr_assert(eq(int, pthread_create(&thread, NULL, hang_up_in_the_middle, &linked.fake), 0));
    cr_expect(lt(int, agent_run_start(linked.link, 1, &spec, &patient, &sent, &run, &err), 0));
    cr_expect(eq(int, err.code, ERROR_GONE), "%s", err.text);
    cr_expect(not(sent));
    (void)pthread_join(thread, NULL);
    cr_expect(lt(int, agent_run_start(linked.link, 2, &true_spec, &patient, &sent, &run, &err), 0));
    cr_expect(not(sent));
    linked_done(&linked);
}

Test(agent_run, gives_output_in_order_and_then_the_exit)
{
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    const struct agent_exit said = {.exit_code = -1,
                                    .signal = 9,
                                    .flags = AGENT_EXIT_TIMED_OUT | AGENT_EXIT_OOM,
                                    .wall_ms = 5,
                                    .cpu_ms = 6,
                                    .peak_bytes = 7,
                                    .out_bytes = 110,
                                    .err_bytes = 3};

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    cr_expect(eq(uint, agent_link_running(linked.link), 1));
    fake_send(&linked.fake, AGENT_STARTED, 1, 0, NULL, 0);
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "one", 3);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(int, chunk.stream, RUN_STDOUT));
    cr_expect(eq(int, memcmp(chunk.data, "one", chunk.size), 0));
    fake_send(&linked.fake, AGENT_ERR, 1, 0, "two", 3);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(int, chunk.stream, RUN_STDERR));
    cr_expect(eq(sz, chunk.size, 3));
    fake_send(&linked.fake, AGENT_OUT, 1, 100, "three", 5); /* 97 bytes were dropped */
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(u64, chunk.dropped, 97));
    cr_expect(eq(u64, chunk.offset, 100));
    cr_expect(eq(int, memcmp(chunk.data, "three", chunk.size), 0));
    fake_send(&linked.fake, AGENT_EXIT, 1, 0, &said, sizeof said);
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_assert(eq(int, next(run, &chunk), 0), "and again");
    cr_expect(eq(int, agent_run_exit(run)->signal, 9));
    cr_expect(agent_run_exit(run)->timed_out && agent_run_exit(run)->oom && !agent_run_exit(run)->lost);
    cr_expect(eq(i64, agent_run_exit(run)->peak_bytes, 7));
    cr_expect(eq(u64, agent_run_exit(run)->stdout_bytes, 110));
    cr_expect(eq(uint, agent_link_running(linked.link), 0));
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_run, reads_frames_that_come_byte_by_byte)
{
    auto_buf struct buf bytes = BUF_INIT(4096);
    const struct agent_exit said = {.exit_code = 3, .out_bytes = 5};
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    struct error err = ERROR_INIT;

    linked_open(&linked, 7); /* and is written to seven bytes at a time */
    run = linked_start(&linked, 1);
    (void)agent_frame_append(&bytes, AGENT_STARTED, 0, 1, 0, NULL, 0, &err);
    (void)agent_frame_append(&bytes, AGENT_OUT, 0, 1, 0, "hello", 5, &err);
    (void)agent_frame_append(&bytes, AGENT_EXIT, 0, 1, 0, &said, sizeof said, &err);
    for (size_t i = 0; i < bytes.size; i++)
        fake_raw(&linked.fake, bytes.data + i, 1);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(int, memcmp(chunk.data, "hello", 5), 0));
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(eq(int, agent_run_exit(run)->exit_code, 3));
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_run, acknowledges_a_finished_run_soon_after_it_was_freed)
{
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    struct agent_frame frame;
    struct agent_ack ack;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "x", 1);
    fake_exit(&linked.fake, 1, 0, 9, 0);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(not(fake_next(&linked.fake, 0, &frame)), "nothing is acknowledged before that");
    agent_run_free(run);
    frame = fake_expect(&linked.fake, AGENT_ACK);
    memcpy(&ack, frame.payload, sizeof ack);
    cr_expect(eq(u64, ack.out, 9));
    cr_expect(eq(u32, ack.exit, 1));
    linked_done(&linked);
}

Test(agent_run, sends_the_last_word_of_one_run_with_the_start_of_the_next)
{
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    struct agent_frame frame;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    fake_exit(&linked.fake, 1, 0, 0, 0);
    cr_assert(eq(int, next(run, &chunk), 0));
    agent_run_free(run);
    {
        struct cancel patient = fake_patient();
        struct error err = ERROR_INIT;
        bool sent;

        cr_assert(eq(int, agent_run_start(linked.link, 2, &true_spec, &patient, &sent, &run, &err), 0));
    }
    cr_assert(fake_next(&linked.fake, 5000, &frame));
    cr_expect(eq(int, frame.header.type, AGENT_ACK));
    cr_assert(fake_next(&linked.fake, 5000, &frame));
    cr_expect(eq(int, frame.header.type, AGENT_START));
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_run, stops_once_and_discards_what_comes_after_it_was_freed)
{
    struct linked linked;
    struct agent_run *run;
    struct agent_frame frame;
    auto_free char *bytes = pattern(65536);
    uint64_t window_bytes = AGENT_RUN_CREDIT;
    uint64_t sent_bytes = 0;
    bool exited = false;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    agent_run_stop(run);
    agent_run_stop(run);
    cr_assert(fake_next(&linked.fake, 5000, &frame));
    cr_expect(eq(int, frame.header.type, AGENT_STOP));
    fake_send(&linked.fake, AGENT_OUT, 1, 0, bytes, 40000);
    sent_bytes = 40000;
    window_bytes -= 40000;
    agent_run_free(run);
    cr_expect(eq(uint, agent_link_running(linked.link), 1));

    /* It talks on for a megabyte: nobody reads, and yet it gets credit. */
    while (!exited) {
        while (sent_bytes < 1000000 && window_bytes >= 65536) {
            fake_send(&linked.fake, AGENT_OUT, 1, sent_bytes, bytes, 65536);
            sent_bytes += 65536;
            window_bytes -= 65536;
        }
        if (sent_bytes >= 1000000) {
            fake_exit(&linked.fake, 1, 0, sent_bytes, 0);
            exited = true;
        } else {
            cr_assert(fake_next(&linked.fake, 5000, &frame));
            cr_assert(ne(int, frame.header.type, AGENT_STOP), "one is enough");
            if (frame.header.type == AGENT_CREDIT && frame.header.run == 1)
                window_bytes += frame.header.offset;
            cr_assert(le(u64, window_bytes, AGENT_RUN_CREDIT));
        }
    }
    for (;;) {
        struct agent_ack ack;

        frame = fake_expect(&linked.fake, AGENT_ACK);
        memcpy(&ack, frame.payload, sizeof ack);
        if (ack.exit) {
            cr_expect(eq(u64, ack.out, sent_bytes));
            break;
        }
    }
    linked_done(&linked);
}

Test(agent_run, is_lost_after_what_had_come_when_the_stream_ends)
{
    struct linked linked;
    struct agent_run *run;
    struct agent_run *ended;
    struct run_chunk chunk;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    ended = linked_start(&linked, 2);
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "last words", 10);
    fake_exit(&linked.fake, 2, 0, 0, 0);
    fake_done(&linked.fake);
    wait_dead(linked.link);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(sz, chunk.size, 10));
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(agent_run_exit(run)->lost);
    cr_expect(eq(int, agent_run_exit(run)->exit_code, -1));
    cr_assert(eq(int, next(ended, &chunk), 0));
    cr_expect(not(agent_run_exit(ended)->lost));
    cr_expect(eq(uint, agent_link_running(linked.link), 0));
    agent_run_stop(run);
    agent_run_free(run);
    agent_run_free(ended);
    linked_done(&linked);
}

Test(agent_run, outlives_the_last_reference_to_its_link_but_not_the_close)
{
    struct linked linked;
    struct agent_run *run;
    struct agent_link *link;
    struct run_chunk chunk;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    link = agent_link_ref(linked.link);
    agent_link_unref(link);
    agent_link_unref(linked.link);
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "x", 1);
    cr_assert(eq(int, next(run, &chunk), 1), "the run holds the link");
    agent_link_close(linked.link);
    cr_assert(eq(int, next(run, &chunk), 0));
    cr_expect(agent_run_exit(run)->lost);
    agent_run_free(run);
    agent_hub_free(linked.hub);
    fake_done(&linked.fake);
}

Test(agent_run, goes_on_when_a_wait_for_it_is_cancelled)
{
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    int client[2];
    struct cancel soon = cancel_within(&(struct cancel)CANCEL_NEVER, 20);
    struct cancel hung_up = CANCEL_NEVER;
    struct cancel stopping = CANCEL_NEVER;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    cr_expect(eq(int, next_error(run, &soon), ERROR_TIMEOUT));
    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_STREAM, 0, client), 0));
    hung_up.client_fd = client[0];
    (void)close(client[1]);
    cr_expect(eq(int, next_error(run, &hung_up), ERROR_CANCELLED));
    stopping.stop_fd = eventfd(1, EFD_CLOEXEC);
    cr_expect(eq(int, next_error(run, &stopping), ERROR_UNAVAILABLE));
    fake_send(&linked.fake, AGENT_OUT, 1, 0, "still here", 10);
    cr_assert(eq(int, next(run, &chunk), 1));
    cr_expect(eq(sz, chunk.size, 10));
    (void)close(client[0]);
    (void)close(stopping.stop_fd);
    agent_run_free(run);
    linked_done(&linked);
}

Test(agent_run, tells_a_refusal_at_the_first_read)
{
    struct linked linked;
    struct cancel patient = fake_patient();
    struct agent_run *run;

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    fake_send(&linked.fake, AGENT_REFUSED, 1, EAGAIN, NULL, 0);
    cr_expect(eq(int, next_error(run, &patient), ERROR_LIMIT));
    cr_expect(eq(int, next_error(run, &patient), ERROR_LIMIT));
    cr_expect(eq(uint, agent_link_running(linked.link), 0));
    agent_run_free(run);
    run = linked_start(&linked, 2);
    fake_send(&linked.fake, AGENT_REFUSED, 2, E2BIG, NULL, 0);
    cr_expect(eq(int, next_error(run, &patient), ERROR_INVALID));
    agent_run_free(run);
    run = linked_start(&linked, 3);
    fake_send(&linked.fake, AGENT_GONE, 3, 0, NULL, 0);
    {
        struct run_chunk chunk;

        cr_assert(eq(int, next(run, &chunk), 0));
        cr_expect(agent_run_exit(run)->lost);
    }
    agent_run_free(run);
    cr_expect(agent_link_alive(linked.link));
    linked_done(&linked);
}

Test(agent_run, is_limited_in_number_to_what_the_agent_can_know)
{
    struct linked linked;
    struct agent_run *runs[AGENT_RUNS_MAX];
    struct agent_run *more = NULL;
    struct cancel patient = fake_patient();
    struct run_chunk chunk;
    struct error err = ERROR_INIT;
    bool sent = true;

    linked_open(&linked, 0);
    for (uint32_t i = 0; i < AGENT_RUNS_MAX; i++)
        runs[i] = linked_start(&linked, i + 1);
    cr_expect(lt(int, agent_run_start(linked.link, 1000, &true_spec, &patient, &sent, &more, &err), 0));
    cr_expect(eq(int, err.code, ERROR_LIMIT));
    cr_expect(not(sent));
    fake_exit(&linked.fake, 5, 0, 0, 0);
    cr_assert(eq(int, next(runs[4], &chunk), 0));
    agent_run_free(runs[4]);
    runs[4] = linked_start(&linked, 1000);
    for (uint32_t i = 0; i < AGENT_RUNS_MAX; i++)
        agent_run_free(runs[i]);
    linked_done(&linked);
}

/* Credit */

/* The agent's view: sends `run` as far as its credit goes, and hears what it is given. */
struct sender {
    uint32_t run;
    uint64_t offset;
    uint64_t window_bytes;
};

static void hear(struct fake *fake, int wait_ms, struct sender *senders, size_t count, uint64_t *link_window_bytes)
{
    struct agent_frame frame;

    while (fake_next(fake, wait_ms, &frame)) {
        wait_ms = 0;
        if (frame.header.type != AGENT_CREDIT)
            continue;
        if (frame.header.run == 0)
            *link_window_bytes += frame.header.offset;
        for (size_t i = 0; i < count; i++)
            if (senders[i].run == frame.header.run)
                senders[i].window_bytes += frame.header.offset;
    }
}

static void send_some(struct fake *fake, struct sender *sender, uint64_t *link_window_bytes, const char *bytes,
                      uint32_t size)
{
    fake_send(fake, AGENT_OUT, sender->run, sender->offset, bytes + sender->offset, size);
    sender->offset += size;
    sender->window_bytes -= size;
    *link_window_bytes -= size;
}

Test(agent_run, is_slowed_by_its_reader_and_slows_no_other)
{
    enum { TOTAL = 4 * 1024 * 1024, PIECE = 32 * 1024 };
    auto_free char *bytes = pattern(TOTAL);
    struct linked linked;
    struct agent_run *unread;
    struct agent_run *read;
    struct sender senders[2] = {{1, 0, AGENT_RUN_CREDIT}, {2, 0, AGENT_RUN_CREDIT}};
    uint64_t link_window_bytes = AGENT_LINK_CREDIT;
    uint64_t got_bytes = 0;
    struct run_chunk chunk;

    linked_open(&linked, 0);
    unread = linked_start(&linked, 1);
    read = linked_start(&linked, 2);
    while (senders[0].window_bytes >= PIECE)
        send_some(&linked.fake, &senders[0], &link_window_bytes, bytes, PIECE);
    while (got_bytes < TOTAL) {
        while (senders[1].offset < TOTAL && senders[1].window_bytes >= PIECE && link_window_bytes >= PIECE)
            send_some(&linked.fake, &senders[1], &link_window_bytes, bytes, PIECE);
        if (next_now(read, &chunk)) {
            cr_assert(eq(u64, chunk.offset, got_bytes));
            cr_assert(eq(int, memcmp(chunk.data, bytes + got_bytes, chunk.size), 0));
            got_bytes += chunk.size;
            hear(&linked.fake, 0, senders, 2, &link_window_bytes);
        } else {
            hear(&linked.fake, 1, senders, 2, &link_window_bytes);
        }
        cr_assert(le(u64, senders[1].window_bytes, AGENT_RUN_CREDIT));
        cr_assert(le(u64, link_window_bytes, AGENT_LINK_CREDIT));
        cr_assert(eq(u64, senders[0].window_bytes, 0), "no credit for what nobody read");
    }
    /* The one that waited is all there, and gets credit once it is read. */
    got_bytes = 0;
    while (got_bytes < AGENT_RUN_CREDIT) {
        cr_assert(eq(int, next(unread, &chunk), 1));
        got_bytes += chunk.size;
    }
    cr_expect(not(next_now(unread, &chunk)));
    hear(&linked.fake, 5000, senders, 2, &link_window_bytes);
    cr_expect(eq(u64, senders[0].window_bytes, AGENT_RUN_CREDIT));
    agent_run_free(unread);
    agent_run_free(read);
    linked_done(&linked);
}

Test(agent_run, takes_one_byte_frames_of_both_streams_up_to_the_whole_credit)
{
    auto_buf struct buf frames = BUF_INIT(16 * 1024 * 1024);
    struct linked linked;
    struct agent_run *run;
    struct run_chunk chunk;
    struct error err = ERROR_INIT;
    uint64_t got[2] = {0, 0};

    linked_open(&linked, 0);
    run = linked_start(&linked, 1);
    for (uint32_t i = 0; i < AGENT_RUN_CREDIT; i++)
        cr_assert(eq(int, agent_frame_append(&frames, i % 2 ? AGENT_ERR : AGENT_OUT, 0, 1, i / 2, "x", 1, &err), 0));
    fake_raw(&linked.fake, frames.data, frames.size);
    fake_exit(&linked.fake, 1, 0, AGENT_RUN_CREDIT / 2, AGENT_RUN_CREDIT / 2);
    while (next(run, &chunk) == 1) {
        cr_assert(eq(u64, chunk.offset, got[chunk.stream]));
        got[chunk.stream] += chunk.size;
    }
    cr_expect(eq(u64, got[0], AGENT_RUN_CREDIT / 2));
    cr_expect(eq(u64, got[1], AGENT_RUN_CREDIT / 2));
    cr_expect(eq(int, agent_run_exit(run)->exit_code, 0));
    agent_run_free(run);
    linked_done(&linked);
}
