#include "store_fixture.h"

/* -- the writer -- */

static bool writer_sleeps(void)
{
    bool asleep;

    (void)pthread_mutex_lock(&store->writer.queue_lock);
    asleep = store->writer.asleep;
    (void)pthread_mutex_unlock(&store->writer.queue_lock);
    return asleep;
}

/* It has taken the whole queue, and waits for the database that a raw connection holds. */
static bool queue_is_taken(void)
{
    bool taken;

    (void)pthread_mutex_lock(&store->writer.queue_lock);
    taken = !store->writer.queue.first && !store->writer.asleep;
    (void)pthread_mutex_unlock(&store->writer.queue_lock);
    return taken;
}

static size_t wanted_calls;

static bool calls_are_queued(void)
{
    size_t calls;

    (void)pthread_mutex_lock(&store->writer.queue_lock);
    calls = store->writer.calls;
    (void)pthread_mutex_unlock(&store->writer.queue_lock);
    return calls == wanted_calls;
}

static int commit_levels[16];
static int commits;

static int note_commit(void *context)
{
    if (commits < 16)
        commit_levels[commits++] = ((struct store_db *)context)->synchronous;
    return 0;
}

static void *set_running(void *id)
{
    struct error own = ERROR_INIT;

    return store_session_state(store, id, STORE_RUNNING, 1, &own) == 0 ? NULL : (void *)1;
}

static void *open_again(void *id)
{
    struct store_session session = session_of(id);
    struct error own = ERROR_INIT;

    return store_session_open(store, &session, &own) < 0 && own.code == ERROR_CONFLICT ? NULL : (void *)1;
}

Test(store, shares_a_commit_in_order_and_lets_a_refused_one_sink_alone)
{
    uint32_t opening = open_session("s");
    pthread_t threads[3];
    void *result;
    sqlite3 *raw = raw_open();
    struct store_session *all;
    size_t count;

    cr_assert(wait_until(writer_sleeps, 5000));
    (void)sqlite3_commit_hook(store->write_db.handle, note_commit, &store->write_db);
    raw_exec(raw, "BEGIN IMMEDIATE");
    append("s", opening, 1); /* holds the writer at the raw connection's lock */
    cr_assert(wait_until(queue_is_taken, 5000));
    append("s", opening, 2);
    append("s", opening, 3);
    wanted_calls = 1;
    cr_assert_eq(pthread_create(&threads[0], NULL, set_running, "s"), 0);
    cr_assert(wait_until(calls_are_queued, 5000));
    append("s", opening, 4);
    wanted_calls = 3;
    cr_assert_eq(pthread_create(&threads[1], NULL, open_again, "s"), 0);
    cr_assert_eq(pthread_create(&threads[2], NULL, set_running, "s"), 0);
    cr_assert(wait_until(calls_are_queued, 5000));
    append("s", opening, 5);
    raw_exec(raw, "COMMIT");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(pthread_join(threads[i], &result), 0);
        cr_assert_null(result);
    }
    cr_assert_eq(latest_of("s", opening), 5);
    cr_assert_eq(commits, 3, "%d", commits);
    cr_assert_eq(commit_levels[0], 1);
    cr_assert_eq(commit_levels[1], 1, "what stands before an fsync does not wait for it");
    cr_assert_eq(commit_levels[2], 2, "three calls and two events share one");
    OK(store_sessions(store, &all, &count, &err));
    cr_assert_eq(count, 1);
    cr_assert_eq(all[0].state, STORE_RUNNING);
    free(all);
    (void)sqlite3_close(raw);
}

Test(store, reads_do_not_wait_for_writes)
{
    struct store_session *all;
    sqlite3 *raw = raw_open();
    struct store_workspace workspace;
    size_t count;
    uint32_t opening = open_session("s");

    cr_assert(wait_until(writer_sleeps, 5000));
    raw_exec(raw, "BEGIN IMMEDIATE");
    append("s", opening, 1);
    cr_assert(wait_until(queue_is_taken, 5000));
    OK(store_sessions(store, &all, &count, &err));
    cr_assert_eq(count, 1);
    free(all);
    FAILS(store_workspace_get(store, "w", &workspace, &err), NOT_FOUND);
    raw_exec(raw, "COMMIT");
    cr_assert_eq(latest_of("s", opening), 1);
    (void)sqlite3_close(raw);
}

static atomic_int appended;
enum { TOO_MANY = STORE_QUEUE_MAX + 50 };

static void *append_too_many(void *arg)
{
    for (int i = 1; i <= TOO_MANY; i++) {
        append("s", *(uint32_t *)arg, i);
        atomic_fetch_add(&appended, 1);
    }
    return NULL;
}

static bool queue_is_full(void)
{
    return atomic_load(&appended) >= STORE_QUEUE_MAX;
}

static bool queue_is_beyond(void)
{
    return atomic_load(&appended) > STORE_QUEUE_MAX;
}

Test(store, holds_back_who_queues_more_than_the_bound_and_loses_nothing)
{
    uint32_t opening = open_session("s");
    sqlite3 *raw = raw_open();
    pthread_t thread;

    raw_exec(raw, "BEGIN IMMEDIATE");
    cr_assert_eq(pthread_create(&thread, NULL, append_too_many, &opening), 0);
    cr_assert(wait_until(queue_is_full, 4000));
    cr_assert(!wait_until(queue_is_beyond, 100));
    raw_exec(raw, "COMMIT");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(latest_of("s", opening), TOO_MANY);
    (void)sqlite3_close(raw);
}

Test(store, commits_what_is_queued_when_it_closes)
{
    uint32_t opening = open_session("s");

    for (int i = 1; i <= 5000; i++)
        append("s", opening, i);
    reopen();
    cr_assert_eq(latest_of("s", opening), 5000);
}

/* -- the disk refuses -- */

static void limit_files(rlim_t bytes)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct rlimit limit;

    cr_assert_eq(sigaction(SIGXFSZ, &ignore, NULL), 0);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void lift_file_limit(void)
{
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(store, refuses_what_is_too_large_for_the_disk_and_takes_what_is_small)
{
    static char large[256 * 1024];
    uint32_t opening = open_session("s");
    char *json = NULL;

    memset(large, 'x', sizeof large - 1);
    limit_files(200 * 1024);
    for (int i = 1; i <= 50; i++) {
        append("s", opening, i);
        FAILS(store_policy_put(store, large, &err), NO_SPACE);
        append("s", opening, i);
        cr_assert_eq(latest_of("s", opening), 2 * (uint64_t)i);
    }
    OK(store_session_state(store, "s", STORE_RUNNING, 1, &err));
    lift_file_limit();
    OK(store_policy_put(store, large, &err));
    OK(store_policy_get(store, &json, &err));
    cr_assert_str_eq(json, large);
    free(json);
}

static void live_through_a_full_disk(void (*make_room)(void))
{
    static char large[256 * 1024];
    struct store_event *events = NULL;
    struct store_session session = session_of("new");
    struct store_session *all;
    size_t count;
    uint64_t latest;
    char text[64];
    char *json = NULL;

    memset(large, 'x', sizeof large - 1);
    FAILS(store_policy_put(store, large, &err), NO_SPACE);
    /* Small ones may still find room in what the log has; in the end there is none. */
    latest = 0;
    do {
        append("s", 1, (int64_t)++latest);
        error_clear(&err);
    } while (store_events_read(store, "s", 1, UINT64_MAX, &events, &count, &latest, &err) == 0 && latest < 20000);
    cr_assert_eq(err.code, ERROR_NO_SPACE, "%d: %s", err.code, err.text);
    error_clear(&err);
    FAILS(store_session_open(store, &session, &err), NO_SPACE);
    for (int i = 0; i < STORE_QUEUE_MAX + 500; i++) /* blocks nobody: beyond the bound they are dropped */
        append("s", 1, 0);
    OK(store_sessions(store, &all, &count, &err));
    cr_assert_eq(count, 1, "what was acknowledged can still be read");
    free(all);

    make_room();
    OK(store_session_open(store, &session, &err));
    OK(store_events_read(store, "s", 1, 0, &events, &count, &latest, &err));
    cr_assert_geq(latest, STORE_QUEUE_MAX);
    cr_assert_eq(count, STORE_EVENTS_KEPT);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(events[i].seq, latest - count + 1 + i);
    free(events);
    OK(store_policy_put(store, large, &err));
    reopen();
    OK(store_policy_get(store, &json, &err));
    cr_assert_str_eq(json, large);
    free(json);
    raw_text("PRAGMA integrity_check", text);
    cr_assert_str_eq(text, "ok");
}

static void free_tmpfs(void)
{
    char path[96];

    (void)snprintf(path, sizeof path, "%s/filler", dir);
    cr_assert_eq(unlink(path), 0);
}

Test(store_file, says_no_space_on_a_full_disk_and_recovers)
{
    static char block[4096];
    char path[96];
    int fd;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700") < 0)
        cr_skip_test("needs the right to mount");
    open_it();
    (void)open_session("s");
    (void)snprintf(path, sizeof path, "%s/filler", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    cr_assert_eq(errno, ENOSPC);
    (void)close(fd);
    live_through_a_full_disk(free_tmpfs);
    store_close(store);
    store = NULL;
    cr_assert_eq(umount2(dir, MNT_DETACH), 0);
}

Test(store, tries_again_by_itself)
{
    uint32_t opening = open_session("s");
    struct store_event *events = NULL;
    size_t count;
    uint64_t latest = 0;
    int64_t deadline_ms;

    limit_files(4096);
    append("s", opening, 1);
    FAILS(store_events_read(store, "s", opening, 0, &events, &count, &latest, &err), NO_SPACE);
    lift_file_limit();
    deadline_ms = clock_mono_ms() + 10000;
    while (store_events_read(store, "s", opening, 0, &events, &count, &latest, &err) < 0) {
        cr_assert_lt(clock_mono_ms(), deadline_ms);
        (void)poll(NULL, 0, 10);
    }
    cr_assert_eq(count, 1);
    cr_assert_eq(latest, 1);
    free(events);
}

/* -- death -- */

struct acknowledged {
    uint64_t event;
    uint64_t fed;
    uint64_t opened;
};

/* Writes until it is killed; each acknowledgement goes down the pipe after it was given. */
static void work_until_killed(int pipe_fd, int life)
{
    struct acknowledged told = {0, 0, 0};
    struct error own = ERROR_INIT;

    for (;;) {
        struct store_session session = {.nonce = "n"};
        struct store_feed_event *fed = NULL;
        struct store_event *events = NULL;
        uint64_t first;
        size_t count;

        for (int i = 0; i < 7; i++) {
            append("s", 1, i);
            feed("s", clock_unix_us());
        }
        if (store_events_read(store, "s", 1, UINT64_MAX, &events, &count, &told.event, &own) < 0 ||
            store_feed_read(store, UINT64_MAX, &(struct store_feed_filter){NULL}, 1, &fed, &count, &first, &told.fed,
                            &own) < 0)
            _exit(3);
        (void)snprintf(session.id, sizeof session.id, "life-%d-%d", life, (int)told.opened + 1);
        if (store_session_open(store, &session, &own) < 0)
            _exit(4);
        told.opened++;
        if (write(pipe_fd, &told, sizeof told) != sizeof told)
            _exit(5);
    }
}

Test(store_file, survives_kill_9_with_everything_it_acknowledged)
{
    uint64_t opened_in_all = 0;
    uint64_t events_before = 0;

    open_it();
    (void)open_session("s");
    store_close(store);
    store = NULL;
    for (int life = 1; life <= 20; life++) {
        struct acknowledged told = {0, 0, 0};
        struct acknowledged next;
        struct store_session *all;
        uint64_t first;
        uint64_t latest;
        size_t count;
        int pipes[2];
        char text[64];
        pid_t child;
        int status;

        cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
        child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            struct error own = ERROR_INIT;

            (void)close(pipes[0]);
            if (store_open(dir, &store, &own) < 0)
                _exit(2);
            work_until_killed(pipes[1], life);
        }
        (void)close(pipes[1]);
        for (int i = 0; i < 1 + life % 5; i++) {
            cr_assert_eq(read(pipes[0], &next, sizeof next), (ssize_t)sizeof next);
            told = next;
        }
        (void)poll(NULL, 0, life % 3); /* another place in its work each time */
        cr_assert_eq(kill(child, SIGKILL), 0);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status), "it ended by itself: %d", WEXITSTATUS(status));
        while (read(pipes[0], &next, sizeof next) == (ssize_t)sizeof next)
            told = next;
        (void)close(pipes[0]);

        raw_text("PRAGMA integrity_check", text);
        cr_assert_str_eq(text, "ok");
        open_it();
        latest = latest_of("s", 1);
        cr_assert_geq(latest, told.event);
        cr_assert_gt(latest, events_before);
        events_before = latest;
        count = read_feed(0, SIZE_MAX, &first, &latest);
        cr_assert_geq(latest, told.fed);
        cr_assert_eq(count, latest, "none is missing");
        OK(store_sessions(store, &all, &count, &err));
        cr_assert_geq(count, 1 + opened_in_all + told.opened);
        cr_assert_leq(count, 1 + opened_in_all + told.opened + 1, "at most the one in flight");
        opened_in_all = count - 1;
        free(all);
        store_close(store);
        store = NULL;
    }
    open_it();
    cr_assert_eq(store_epoch(store), 1 + 20 + 20 + 1);
}
