/* The hub under load: threads that start, read, stop and leave runs at once, over a scripted agent. A plain program, since
 * Criterion cannot start under ThreadSanitizer. Prints what it measured; fails by assert. */
#include "agent_fake.h"

#include "alloc.h"
#include "clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#undef NDEBUG
#include <assert.h>

enum { THREADS = 8, RUNS_EACH = 150, RUNS = THREADS * RUNS_EACH, PIECE = 16 * 1024, ECHOES = 2000, MIB = 1024 * 1024 };

static char bytes[64 * MIB];

/* The agent: run N is told by argv[1] how much to say; it ends with exit code N % 256. */
struct talker {
    bool alive;
    uint64_t total, sent, window, out_acked;
};

struct agent {
    struct fake fake;
    struct talker talkers[RUNS + ECHOES + 10];
    uint64_t window;
};

static void agent_take(struct agent *agent, const struct agent_frame *frame)
{
    struct talker *talker = &agent->talkers[frame->header.run];
    const struct agent_usage usage = {1, 2, 3, 4};
    struct agent_ack ack;

    assert(frame->header.run < sizeof agent->talkers / sizeof *agent->talkers);
    switch (frame->header.type) {
    case AGENT_HELLO:
        memcpy(&agent->fake.nonce, frame->payload, sizeof agent->fake.nonce);
        fake_greet(&agent->fake, agent->fake.nonce, NULL, 0);
        break;
    case AGENT_START:
        assert(talker->total == 0 && !talker->alive);
        *talker = (struct talker){.alive = true, .window = AGENT_RUN_CREDIT};
        talker->total = strtoull(frame->payload + sizeof(struct agent_start) + sizeof "say", NULL, 10);
        fake_send(&agent->fake, AGENT_STARTED, frame->header.run, 0, NULL, 0);
        break;
    case AGENT_STOP:
        if (talker->alive)
            talker->total = talker->sent;
        break;
    case AGENT_CREDIT:
        *(frame->header.run ? &talker->window : &agent->window) += frame->header.offset;
        assert(talker->window <= AGENT_RUN_CREDIT && agent->window <= AGENT_LINK_CREDIT);
        break;
    case AGENT_ACK:
        memcpy(&ack, frame->payload, sizeof ack);
        assert(ack.out >= talker->out_acked && ack.out <= talker->sent);
        assert(!ack.exit || (!talker->alive && ack.out == talker->total));
        talker->out_acked = ack.out;
        break;
    case AGENT_USAGE:
        fake_send(&agent->fake, AGENT_USAGE_REPLY, 0, frame->header.offset, &usage, sizeof usage);
        break;
    default:
        assert(false);
    }
}

/* Something of every run that may talk. False when nobody had anything to say. */
static bool agent_talk(struct agent *agent)
{
    bool said = false;

    for (uint32_t run = 1; run < sizeof agent->talkers / sizeof *agent->talkers; run++) {
        struct talker *talker = &agent->talkers[run];
        uint64_t size = talker->total - talker->sent;

        if (!talker->alive)
            continue;
        size = size > talker->window ? talker->window : size;
        size = size > agent->window ? agent->window : size;
        size = size > PIECE ? PIECE : size;
        if (size) {
            fake_send(&agent->fake, AGENT_OUT, run, talker->sent, bytes + talker->sent, size);
            talker->sent += size;
            talker->window -= size;
            agent->window -= size;
            said = true;
        }
        if (talker->sent == talker->total) {
            talker->alive = false;
            fake_exit(&agent->fake, run, run % 256, talker->total, 0);
        }
    }
    return said;
}

static void *agent_main(void *context)
{
    struct agent *agent = context;
    struct agent_frame frame;
    bool talking = false;

    for (;;) {
        if (!fake_next(&agent->fake, talking ? 0 : 30000, &frame)) {
            if (!talking)
                return NULL;
        } else {
            do
                agent_take(agent, &frame);
            while (fake_next(&agent->fake, 0, &frame));
        }
        talking = agent_talk(agent);
    }
}

struct load {
    struct agent_link *link;
    uint32_t first;
    unsigned full, left, late;
};

static struct agent_run *start(struct agent_link *link, uint32_t number, uint64_t size)
{
    auto_free char *text = alloc_format("%llu", (unsigned long long)size);
    const char *const argv[] = {"say", text};
    const struct run_spec spec = {.argv = argv, .argc = 2, .has_reader = true};
    struct cancel patient = fake_patient();
    struct agent_run *run = NULL;
    struct error err = ERROR_INIT;
    bool sent = false;

    if (agent_run_start(link, number, &spec, &patient, &sent, &run, &err) < 0)
        (void)fprintf(stderr, "start: %s\n", err.text);
    assert(run && sent);
    return run;
}

/* Read to the end and compare; returns the count of bytes. */
static uint64_t read_all(struct agent_run *run, uint32_t number)
{
    struct cancel patient = fake_patient();
    struct error err = ERROR_INIT;
    struct run_chunk chunk;
    uint64_t got = 0;
    int said;

    while ((said = agent_run_next(run, &patient, &chunk, &err)) == 1) {
        assert(chunk.offset == got && chunk.dropped == 0);
        assert(memcmp(chunk.data, bytes + got, chunk.size) == 0);
        got += chunk.size;
    }
    if (said < 0)
        (void)fprintf(stderr, "run %u: %s\n", number, err.text);
    assert(said == 0 && !agent_run_exit(run)->lost && agent_run_exit(run)->exit_code == (int)(number % 256));
    return got;
}

static void *load_main(void *context)
{
    struct load *load = context;

    for (uint32_t i = 0; i < RUNS_EACH; i++) {
        const uint32_t number = load->first + i;
        const uint64_t size = i % 16 == 5 ? 700000 : (number * 7919u) % 40000;
        struct agent_run *run = start(load->link, number, size);
        struct cancel soon = cancel_within(&(struct cancel)CANCEL_NEVER, i % 3);
        struct run_chunk chunk;
        struct error err = ERROR_INIT;

        if (i % 8 == 1) { /* goes away after the first piece */
            (void)agent_run_next(run, &soon, &chunk, &err);
            load->left++;
        } else if (i % 8 == 2) { /* stops and reads what there is */
            struct cancel patient = fake_patient();

            agent_run_stop(run);
            while (agent_run_next(run, &patient, &chunk, &err) == 1)
                ;
            load->late++;
        } else {
            assert(read_all(run, number) == size);
            load->full++;
        }
        agent_run_free(run);
        if (i % 32 == 0) {
            struct cancel patient = fake_patient();
            struct sandbox_usage usage;

            assert(agent_link_usage(load->link, &patient, &usage, &err) == 0 && usage.oom_kills == 4);
        }
    }
    return NULL;
}

static void load_all(struct agent_link *link)
{
    struct load loads[THREADS];
    pthread_t threads[THREADS];
    const int64_t began_ms = clock_mono_ms();
    unsigned full = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        loads[i] = (struct load){.link = link, .first = 1 + i * RUNS_EACH};
        assert(pthread_create(&threads[i], NULL, load_main, &loads[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert(pthread_join(threads[i], NULL) == 0);
        full += loads[i].full;
    }
    assert(full > RUNS / 2);
    printf("%d runs of %d threads: %lld ms\n", RUNS, THREADS, (long long)(clock_mono_ms() - began_ms));
}

static int by_value(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void measure(struct agent_link *link)
{
    static int64_t took_us[ECHOES];
    const uint32_t first = RUNS + 1;
    struct agent_run *run;
    int64_t began_us;

    for (uint32_t i = 0; i < ECHOES; i++) {
        began_us = clock_mono_us();
        run = start(link, first + i, 3);
        assert(read_all(run, first + i) == 3);
        agent_run_free(run);
        took_us[i] = clock_mono_us() - began_us;
    }
    qsort(took_us, ECHOES, sizeof *took_us, by_value);
    printf("a run of 3 bytes: p50 %lld us, p99 %lld us\n", (long long)took_us[ECHOES / 2],
           (long long)took_us[ECHOES * 99 / 100]);
    began_us = clock_mono_us();
    run = start(link, first + ECHOES, sizeof bytes);
    assert(read_all(run, first + ECHOES) == sizeof bytes);
    printf("output of one run: %.0f MB/s\n", (double)sizeof bytes / (double)(clock_mono_us() - began_us));
    agent_run_free(run);
}

int main(void)
{
    static struct agent agent;
    const struct agent_hub_settings settings = {.epoch = 7};
    struct net_stream *stream = fake_pair(&agent.fake, 0);
    struct cancel patient = fake_patient();
    struct agent_hello_info hello;
    struct agent_link *link;
    struct agent_hub *hub;
    struct error err = ERROR_INIT;
    pthread_t thread;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 251);
    agent.window = AGENT_LINK_CREDIT;
    assert(agent_hub_new(&settings, &hub, &err) == 0);
    assert(pthread_create(&thread, NULL, agent_main, &agent) == 0);
    assert(agent_link_open(hub, stream, NULL, 0, &patient, &link, &hello, &err) == 0);
    load_all(link);
    measure(link);
    assert(agent_link_alive(link));
    agent_link_close(link);
    assert(pthread_join(thread, NULL) == 0);
    assert(agent_link_running(link) == 0);
    agent_link_unref(link);
    agent_hub_free(hub);
    fake_done(&agent.fake);
    return 0;
}
