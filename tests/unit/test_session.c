/* The rules of sessions. */
#include "session_fixture.h"

TestSuite(session, .init = setup, .fini = teardown, .timeout = 30);

static int open_session(const char *id, const char *tenant, bool reuse, char token[SESSION_TOKEN_BYTES],
                        struct error *err)
{
    struct session_open request = {.id = id, .tenant = tenant, .reuse = reuse};
    struct session_view view;

    *err = (struct error)ERROR_INIT;
    return sessions_open(sessions, &request, &never, &view, token, err);
}

static void must_open(const char *id, char token[SESSION_TOKEN_BYTES])
{
    struct error err = ERROR_INIT;

    cr_assert_eq(open_session(id, NULL, false, token, &err), 0, "%s", err.text);
}

static int run(const char *id, const char *command, struct session_run_result *result, struct error *err)
{
    const char *argv[] = {"sh", "-c", command};
    struct session_run_request request = {
        .spec = {.argv = argv, .argc = 3, .timeout_ms = 5000},
        .output_max_bytes = 1000,
        .stop_over_output = true,
        .event_op = "run",
        .event_late = "timed out",
        .event_target = command,
    };

    *err = (struct error)ERROR_INIT;
    return session_run_wait(sessions, id, &request, &never, result, err);
}

static void must_run(const char *id, const char *command, const char *expected)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    struct error err = ERROR_INIT;

    cr_assert_eq(run(id, command, &result, &err), 0, "%s", err.text);
    cr_assert(eq(int, result.exit_code, 0));
    cr_assert_str_eq(buf_str(&result.out.memory), expected);
}

static struct session_view inspect(const char *id)
{
    struct session_view view = {.id = ""};
    struct error err = ERROR_INIT;

    cr_assert_eq(sessions_inspect(sessions, id, false, &never, &view, &err), 0, "%s", err.text);
    return view;
}

static const char *slot_of(const char *id)
{
    static char slot[WORKSPACE_SLOT_BYTES];
    struct error err = ERROR_INIT;

    cr_assert_eq(workspace_find(root, id, slot, &err), 0, "%s", err.text);
    return slot;
}

static struct sandbox_listed container_of(const char *id)
{
    struct sandbox_listed listed = {.ref = ""};

    cr_assert(provider_fake_find(provider, slot_of(id), &listed));
    return listed;
}

Test(session, opens_once_and_attaching_gives_the_same_token)
{
    char token[SESSION_TOKEN_BYTES];
    char again[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    begin();
    must_open("a", token);
    cr_assert_eq(open_session("a", NULL, false, again, &err), -1);
    cr_assert(eq(int, err.code, ERROR_CONFLICT));
    cr_assert_eq(open_session("a", NULL, true, again, &err), 0);
    cr_assert_str_eq(token, again);
    must_run("a", "echo hi", "hi\n");
    cr_assert(eq(uint, provider_fake_count(provider), 1));
    end();
}

Test(session, knows_its_callers)
{
    char token[SESSION_TOKEN_BYTES];
    char other[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    begin();
    must_open("a", token);
    must_open("b", other);
    cr_assert(eq(int, sessions_caller(sessions, "a", "service-secret"), SESSION_CALLER_SERVICE));
    cr_assert(eq(int, sessions_caller(sessions, "a", "service-secre"), SESSION_CALLER_NONE));
    cr_assert(eq(int, sessions_caller(sessions, "a", ""), SESSION_CALLER_NONE));
    cr_assert(eq(int, sessions_caller(sessions, "a", NULL), SESSION_CALLER_NONE));
    cr_assert(eq(int, sessions_caller(sessions, "a", token), SESSION_CALLER_SESSION));
    cr_assert(eq(int, sessions_caller(sessions, "a", other), SESSION_CALLER_NONE));
    cr_assert(eq(int, sessions_caller(sessions, NULL, token), SESSION_CALLER_NONE));
    for (int i = 0; i < STORE_TOMBSTONES; i++) {
        char later[SESSION_TOKEN_BYTES];

        cr_assert_eq(sessions_close(sessions, "a", false, &never, &err), 0, "%s", err.text);
        cr_assert(eq(int, sessions_caller(sessions, "a", token), SESSION_CALLER_CLOSED), "after %d closings", i + 1);
        must_open("a", later);
        cr_assert_str_neq(later, token);
    }
    cr_assert_eq(sessions_close(sessions, "a", false, &never, &err), 0);
    cr_assert(eq(int, sessions_caller(sessions, "a", token), SESSION_CALLER_NONE)); /* only the last four */
    end();
}

Test(session, refuses_by_the_wires_order)
{
    char token[SESSION_TOKEN_BYTES];
    struct session_view view;
    struct error err = ERROR_INIT;
    struct session_open unknown = {.id = "a", .runtime = "ruby"};
    struct session_open attach = {.id = "nobody", .attach = true};
    struct session_open nameless = {.attach = true};
    struct session_open mismatch = {.id = "a", .runtime = "node", .reuse = true};

    begin();
    cr_assert_eq(sessions_open(sessions, &unknown, &never, &view, token, &err), -1);
    cr_assert(eq(int, err.code, ERROR_INVALID));
    cr_assert_not_null(strstr(err.text, "node, python"));
    cr_assert_eq(sessions_open(sessions, &nameless, &never, &view, token, &err), -1);
    cr_assert(eq(int, err.code, ERROR_INVALID));
    cr_assert_eq(sessions_open(sessions, &attach, &never, &view, token, &err), -1);
    cr_assert(eq(int, err.code, ERROR_NOT_FOUND));
    must_open("a", token);
    cr_assert_eq(sessions_open(sessions, &mismatch, &never, &view, token, &err), -1);
    cr_assert(eq(int, err.code, ERROR_CONFLICT));
    end();
}

struct opener {
    pthread_t thread;
    int number;
    enum error_code code;
};

static void *open_one(void *context)
{
    struct opener *opener = context;
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    char id[16];

    (void)snprintf(id, sizeof id, "s%d", opener->number);
    (void)open_session(id, opener->number % 2 ? "t" : NULL, false, token, &err);
    opener->code = err.code;
    return NULL;
}

static int open_many(int count)
{
    struct opener *openers = alloc_array((size_t)count, sizeof *openers);
    int opened = 0;

    for (int i = 0; i < count; i++) {
        openers[i].number = i;
        cr_assert_eq(pthread_create(&openers[i].thread, NULL, open_one, &openers[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        (void)pthread_join(openers[i].thread, NULL);
        cr_assert(openers[i].code == ERROR_NONE || openers[i].code == ERROR_LIMIT);
        opened += openers[i].code == ERROR_NONE;
    }
    free(openers);
    return opened;
}

Test(session, holds_its_ceiling_exactly_under_a_rush)
{
    struct sessions_health health;

    wish.max_sessions = 7;
    begin();
    provider_fake_delay(provider, FAKE_CREATE, 5);
    cr_assert(eq(int, open_many(60), 7));
    sessions_health(sessions, &health);
    cr_assert(eq(uint, health.resident, 7));
    cr_assert(eq(uint, health.open, 7));
    cr_assert(eq(uint, provider_fake_running(provider), 7));
    end();
}

Test(session, holds_the_ceiling_of_a_tenant_exactly_and_counts_nobody_else)
{
    wish.per_tenant = 3;
    begin();
    provider_fake_delay(provider, FAKE_CREATE, 5);
    cr_assert(eq(int, open_many(40), 3 + 20));
    end();
}

Test(session, starts_no_more_at_once_than_allowed)
{
    begin();
    provider_fake_delay(provider, FAKE_CREATE, 20);
    cr_assert(eq(int, open_many(30), 30));
    cr_assert(le(uint, provider_fake_most_at_once(provider, FAKE_CREATE), 8));
    end();
}

Test(session, leaves_nothing_of_an_opening_that_failed)
{
    static const enum provider_fake_verb verbs[] = {FAKE_CREATE, FAKE_OPEN};
    struct session_open attach = {.id = "a", .attach = true};
    struct sessions_health health;
    char token[SESSION_TOKEN_BYTES];
    struct session_view view;
    struct error err = ERROR_INIT;

    wish.max_sessions = 1;
    begin();
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        provider_fake_fail(provider, verbs[i], ERROR_ENGINE, 1);
        cr_assert_eq(open_session("a", NULL, false, token, &err), -1);
        cr_assert(eq(int, err.code, ERROR_ENGINE));
        cr_assert(eq(uint, provider_fake_count(provider), 0));
        cr_assert_eq(sessions_open(sessions, &attach, &never, &view, token, &err), -1);
        cr_assert(eq(int, err.code, ERROR_NOT_FOUND)); /* no empty workspace that could be taken for a kept one */
    }
    sessions_health(sessions, &health);
    cr_assert(eq(uint, health.open, 0));
    must_open("a", token);
    end();
}

Test(session, finishes_an_opening_whose_answer_of_the_engine_was_lost)
{
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    begin();
    provider_fake_fail_after(provider, FAKE_CREATE, ERROR_TIMEOUT, 1);
    cr_assert_eq(open_session("a", NULL, false, token, &err), -1);
    /* The container that was made all the same is nobody's: the next comparison takes it away. */
    provider_fake_relist(provider);
    until(provider_fake_count(provider) == 0);
    must_open("a", token);
    cr_assert(eq(uint, provider_fake_count(provider), 1));
    end();
}

Test(session, heals_a_container_that_died_and_runs_the_command_once)
{
    char token[SESSION_TOKEN_BYTES];

    begin();
    must_open("a", token);
    provider_fake_die(provider, container_of("a").ref, false);
    must_run("a", "echo hi", "hi\n");
    cr_assert(inspect("a").alive);
    provider_fake_vanish(provider, container_of("a").ref);
    must_run("a", "echo ho", "ho\n");
    provider_fake_cut(provider, container_of("a").ref);
    must_run("a", "echo he", "he\n");
    cr_assert(eq(uint, provider_fake_count(provider), 1));
    end();
}

Test(session, believes_no_late_word_of_an_earlier_death)
{
    char token[SESSION_TOKEN_BYTES];
    unsigned opened, listed;

    begin();
    must_open("a", token);
    must_run("a", "echo hi", "hi\n");
    opened = provider_fake_calls(provider, FAKE_OPEN);
    listed = provider_fake_calls(provider, FAKE_LIST);
    provider_fake_die_late(provider, container_of("a").ref);
    until(provider_fake_calls(provider, FAKE_LIST) > listed);
    must_run("a", "echo ho", "ho\n");
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_OPEN), opened), "its link was ended");
    end();
}

Test(session, says_gone_when_the_files_went_with_the_container)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    struct session_open open = {.id = "a"};
    char token[SESSION_TOKEN_BYTES];
    struct session_view view;
    struct sandbox_listed listed = {.ref = ""};
    struct error err = ERROR_INIT;
    struct store_workspace row;

    wish.no_root = true;
    begin();
    cr_assert_eq(sessions_open(sessions, &open, &never, &view, token, &err), 0, "%s", err.text);
    cr_assert_eq(store_workspace_get(store, "a", &row, &err), 0);
    cr_assert(provider_fake_find(provider, row.slot, &listed));
    provider_fake_die(provider, listed.ref, false);
    cr_assert_eq(run("a", "echo hi", &result, &err), -1);
    cr_assert(eq(int, err.code, ERROR_GONE));
    end();
}

static void *run_hang(void *context)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    const char *argv[] = {"hang"};
    struct session_run_request request = {
        .spec = {.argv = argv, .argc = 1, .timeout_ms = 20000},
        .run_id = "0123456789abcdef0123456789abcdef",
        .output_max_bytes = 1000,
        .event_op = "run",
        .event_late = "timed out",
        .event_target = "hang",
    };
    struct error err = ERROR_INIT;

    if (session_run_wait(sessions, "a", &request, &never, &result, &err) < 0)
        return (void *)(long)err.code;
    return result.exit.stopped ? (void *)-1L : (void *)-2L;
}

Test(session, stops_a_run_by_its_name_also_one_that_waits_for_its_turn)
{
    static const char name[] = "0123456789abcdef0123456789abcdef";
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    pthread_t thread;
    void *outcome;

    begin();
    must_open("a", token);
    cr_assert_eq(session_run_stop(sessions, "a", name, &err), 0); /* unknown: fine */
    cr_assert_eq(pthread_create(&thread, NULL, run_hang, NULL), 0);
    until(provider_fake_calls(provider, FAKE_RUN_START) == 1);
    cr_assert(eq(long, (long)run_hang(NULL), (long)ERROR_CONFLICT)); /* the name is running */
    cr_assert_eq(session_run_stop(sessions, "a", name, &err), 0);
    (void)pthread_join(thread, &outcome);
    cr_assert(eq(long, (long)outcome, -1));
    end();
}

Test(session, counts_waiting_for_a_command_slot_against_the_deadline)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    const char *argv[] = {"echo", "x"};
    struct session_run_request request = {.spec = {.argv = argv, .argc = 2, .timeout_ms = 100},
                                          .output_max_bytes = 10,
                                          .event_op = "run",
                                          .event_late = "timed out",
                                          .event_target = "x"};
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    pthread_t thread;

    wish.max_commands = 1;
    begin();
    must_open("a", token);
    cr_assert_eq(pthread_create(&thread, NULL, run_hang, NULL), 0);
    until(provider_fake_calls(provider, FAKE_RUN_START) == 1);
    cr_assert_eq(session_run_wait(sessions, "a", &request, &never, &result, &err), 0);
    cr_assert(result.timed_out);
    cr_assert(eq(int, result.exit_code, -1));
    cr_assert_eq(session_run_stop(sessions, "a", "0123456789abcdef0123456789abcdef", &err), 0);
    (void)pthread_join(thread, NULL);
    end();
}

Test(session, limits_output_and_says_so)
{
    auto_run_result struct session_run_result exact = SESSION_RUN_RESULT_INIT;
    auto_run_result struct session_run_result over = SESSION_RUN_RESULT_INIT;
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    begin();
    must_open("a", token);
    cr_assert_eq(run("a", "write 1000", &exact, &err), 0);
    cr_assert_not(exact.output_limited);
    cr_assert_eq(run("a", "write 1001", &over, &err), 0);
    cr_assert(over.output_limited);
    cr_assert(eq(int, over.exit_code, -1));
    cr_assert(eq(u64, over.out.size, 1000));
    end();
}

Test(session, hears_its_exit_codes)
{
    static const struct {
        const char *command;
        int code;
    } cases[] = {{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255}, {"nosuch", 127}};
    char token[SESSION_TOKEN_BYTES];

    begin();
    must_open("a", token);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
        struct error err = ERROR_INIT;

        cr_assert_eq(run("a", cases[i].command, &result, &err), 0, "%s", err.text);
        cr_assert(eq(int, result.exit_code, cases[i].code), "%s", cases[i].command);
    }
    end();
}

Test(session, survives_the_death_of_the_broker_with_its_tokens_and_containers)
{
    char token[SESSION_TOKEN_BYTES];
    char again[SESSION_TOKEN_BYTES];
    struct session_event *events;
    struct error err = ERROR_INIT;
    uint64_t latest;
    size_t count;

    wish.keep_on_stop = true;
    wish.persist = true;
    begin();
    must_open("a", token);
    must_run("a", "echo 1", "1\n");
    end();
    cr_assert(eq(uint, provider_fake_running(provider), 1));
    begin();
    until(inspect("a").alive); /* adopted without anybody asking */
    cr_assert(eq(int, sessions_caller(sessions, "a", token), SESSION_CALLER_SESSION));
    must_run("a", "echo 2", "2\n");
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_CREATE), 1));
    cr_assert_eq(sessions_events(sessions, "a", 0, &events, &count, &latest, &err), 0);
    cr_assert(eq(sz, count, 2));
    cr_assert(eq(u64, latest, 2)); /* without a gap */
    free(events);
    cr_assert_eq(open_session("a", NULL, true, again, &err), 0);
    cr_assert_str_eq(again, token);
    end();
}

Test(session, sleeps_when_the_broker_stops_and_wakes_at_the_next_use)
{
    char token[SESSION_TOKEN_BYTES];

    wish.persist = true;
    begin();
    must_open("a", token);
    end();
    cr_assert(eq(uint, provider_fake_running(provider), 0));
    begin();
    cr_assert(inspect("a").hibernated);
    must_run("a", "echo up", "up\n");
    cr_assert_not(inspect("a").hibernated);
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_CREATE), 1)); /* the same container */
    end();
}

Test(session, removes_only_what_is_its_own_and_unwanted)
{
    char token[SESSION_TOKEN_BYTES];

    wish.persist = true;
    wish.keep_on_stop = true;
    begin();
    must_open("a", token);
    end();
    provider_fake_add(provider, "stray", "0123456789abcdef", "", SANDBOX_RUNNING, 0);
    begin();
    until(provider_fake_count(provider) == 1);
    until(inspect("a").alive); /* adopted without anybody asking, perhaps after the stray is gone */
    end();
}

Test(session, closes_with_and_without_its_container)
{
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    wish.persist = true;
    begin();
    must_open("a", token);
    cr_assert_eq(sessions_close(sessions, "a", false, &never, &err), 0);
    cr_assert(eq(uint, provider_fake_count(provider), 1));
    cr_assert(eq(uint, provider_fake_running(provider), 0));
    must_open("a", token);
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_CREATE), 1)); /* found again, with what was installed in it */
    end();
}

Test(session, purges_to_the_last_trace_also_a_closed_one_without_starting_anything)
{
    struct session_open attach = {.id = "a", .attach = true};
    char token[SESSION_TOKEN_BYTES];
    struct session_view view;
    struct error err = ERROR_INIT;
    char slots[128];
    unsigned opens;

    wish.persist = true;
    begin();
    must_open("a", token);
    cr_assert_eq(sessions_close(sessions, "a", false, &never, &err), 0);
    opens = provider_fake_calls(provider, FAKE_OPEN);
    cr_assert_eq(sessions_close(sessions, "a", true, &never, &err), 0, "%s", err.text);
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_OPEN), opens));
    cr_assert(eq(uint, provider_fake_count(provider), 0));
    cr_assert_eq(sessions_close(sessions, "a", true, &never, &err), -1);
    cr_assert(eq(int, err.code, ERROR_NOT_FOUND));
    cr_assert_eq(sessions_open(sessions, &attach, &never, &view, token, &err), -1);
    (void)snprintf(slots, sizeof slots, "%s/root/.slots", home);
    cr_assert_eq(rmdir(slots), 0); /* nothing is left in it */
    end();
}

Test(session, does_not_say_purged_while_the_engine_is_away)
{
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;

    begin();
    must_open("a", token);
    provider_fake_fail(provider, FAKE_REMOVE, ERROR_UNAVAILABLE, 1);
    cr_assert_eq(sessions_close(sessions, "a", true, &never, &err), -1);
    cr_assert(eq(int, err.code, ERROR_UNAVAILABLE));
    must_run("a", "echo still", "still\n");
    cr_assert_eq(sessions_close(sessions, "a", true, &never, &err), 0);
    end();
}

Test(session, puts_the_longest_idle_one_to_sleep_for_another_and_wakes_it_in_turn)
{
    char token[SESSION_TOKEN_BYTES];

    wish.max_sessions = 2;
    wish.evict_idle_after = 0;
    begin();
    must_open("a", token);
    must_open("b", token);
    must_run("a", "echo x", "x\n");
    must_open("c", token);
    cr_assert(inspect("b").hibernated);
    cr_assert_not(inspect("a").hibernated);
    must_run("b", "echo y", "y\n");
    cr_assert(inspect("a").hibernated);
    cr_assert(eq(uint, provider_fake_running(provider), 2));
    end();
}

Test(session, refuses_to_wake_without_a_place)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    pthread_t thread;

    wish.max_sessions = 1;
    wish.evict_idle_after = 0;
    begin();
    must_open("b", token);
    must_open("a", token);
    cr_assert(inspect("b").hibernated);
    cr_assert_eq(pthread_create(&thread, NULL, run_hang, NULL), 0); /* "a" is busy now */
    until(provider_fake_calls(provider, FAKE_RUN_START) == 1);
    cr_assert_eq(run("b", "echo x", &result, &err), -1);
    cr_assert(eq(int, err.code, ERROR_LIMIT));
    cr_assert_not_null(strstr(err.text, "Cannot wake session b"));
    cr_assert_eq(session_run_stop(sessions, "a", "0123456789abcdef0123456789abcdef", &err), 0);
    (void)pthread_join(thread, NULL);
    end();
}

static void *run_echo(void *context)
{
    auto_run_result struct session_run_result result = SESSION_RUN_RESULT_INIT;
    struct error err = ERROR_INIT;

    return (void *)(long)(run("a", "echo x", &result, &err) == 0 && result.exit_code == 0);
}

Test(session, wakes_once_for_twenty_that_come_at_once)
{
    char token[SESSION_TOKEN_BYTES];
    pthread_t threads[20];
    unsigned opens;

    wish.persist = true;
    begin();
    must_open("a", token);
    end();
    begin();
    opens = provider_fake_calls(provider, FAKE_OPEN);
    provider_fake_delay(provider, FAKE_OPEN, 50);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_echo, NULL), 0);
    for (int i = 0; i < 20; i++) {
        void *good;

        (void)pthread_join(threads[i], &good);
        cr_assert_not_null(good);
    }
    cr_assert(eq(uint, provider_fake_calls(provider, FAKE_OPEN), opens + 1));
    end();
}

Test(session, is_closed_when_idle_but_never_while_a_command_runs)
{
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    pthread_t thread;
    int64_t until_ms;

    wish.idle_timeout_s = 1;
    begin();
    must_open("a", token);
    cr_assert_eq(pthread_create(&thread, NULL, run_hang, NULL), 0);
    until_ms = clock_mono_ms() + 2500;
    until(clock_mono_ms() > until_ms);
    cr_assert(sessions_exists(sessions, "a"));
    cr_assert_eq(session_run_stop(sessions, "a", "0123456789abcdef0123456789abcdef", &err), 0);
    (void)pthread_join(thread, NULL);
    until(!sessions_exists(sessions, "a"));
    cr_assert(eq(uint, provider_fake_count(provider), 0));
    cr_assert_eq(access(home, F_OK), 0);
    cr_assert_not_null(slot_of("a")); /* the files stay */
    end();
}

Test(session, refuses_a_key_that_is_not_the_stores)
{
    struct error err = ERROR_INIT;
    struct sessions *unused;
    struct sessions_settings settings = {.service_token = "x", .state_dir = home, .work_dir = "/w", .sandbox_uid = -1};
    char key[96];

    begin();
    end();
    (void)snprintf(key, sizeof key, "%s/key", home);
    cr_assert_eq(unlink(key), 0);
    cr_assert_eq(store_open(home, &store, &err), 0);
    cr_assert_eq(sessions_new(&settings, store, NULL, provider, make_policy(), &unused, &err), -1);
    cr_assert(eq(int, err.code, ERROR_CONFLICT));
    cr_assert_not_null(strstr(err.text, "--new-key"));
    settings.new_key = true;
    error_clear(&err);
    cr_assert_eq(sessions_new(&settings, store, NULL, provider, make_policy(), &unused, &err), 0, "%s", err.text);
    sessions_free(unused);
    store_close(store);
}

Test(session, adopts_a_container_that_was_started_ahead_and_starts_another)
{
    char token[SESSION_TOKEN_BYTES];
    unsigned creates;

    wish.pool = 2;
    begin();
    until(provider_fake_running(provider) == 2);
    creates = provider_fake_calls(provider, FAKE_CREATE);
    provider_fake_delay(provider, FAKE_CREATE, 10000); /* whoever needs a new one waits longer than the test */
    must_open("a", token);
    must_run("a", "echo hi", "hi\n");
    cr_assert_not_null(slot_of("a"));
    until(provider_fake_calls(provider, FAKE_RENAME) == 1);
    until(provider_fake_calls(provider, FAKE_CREATE) == creates + 1); /* refilled in the background */
    provider_fake_delay(provider, FAKE_CREATE, 0);
    end();
    cr_assert(eq(uint, provider_fake_running(provider), 0));
}

Test(session, survives_a_broker_that_died_with_an_adopted_container)
{
    char token[SESSION_TOKEN_BYTES];

    wish.pool = 1;
    wish.persist = wish.keep_on_stop = true;
    begin();
    until(provider_fake_running(provider) == 1);
    must_open("a", token);
    end();
    wish.pool = 0;
    begin();
    until(inspect("a").alive);
    must_run("a", "echo hi", "hi\n");
    until(provider_fake_count(provider) == 1);
    end();
}

Test(session, an_existing_workspace_takes_nothing_from_the_pool)
{
    char token[SESSION_TOKEN_BYTES];
    struct error err = ERROR_INIT;
    char slot[WORKSPACE_SLOT_BYTES];

    wish.pool = 1;
    begin();
    must_open("a", token);
    (void)snprintf(slot, sizeof slot, "%s", slot_of("a"));
    cr_assert_eq(sessions_close(sessions, "a", false, &never, &err), 0);
    until(provider_fake_running(provider) == 1);
    must_open("a", token);
    cr_assert_str_eq(slot_of("a"), slot);
    end();
}

Test(session, drains_the_pool_when_limits_change_and_when_members_die)
{
    struct policy_change change = {.limits = {.mem_limit = {true, "128m"}}};
    struct error err = ERROR_INIT;
    unsigned removes;

    wish.pool = 2;
    begin();
    until(provider_fake_running(provider) == 2);
    removes = provider_fake_calls(provider, FAKE_REMOVE);
    cr_assert_eq(sessions_policy_change(sessions, &change, NULL, &err), 0, "%s", err.text);
    until(provider_fake_calls(provider, FAKE_REMOVE) >= removes + 2 && provider_fake_running(provider) == 2);
    end();
}

Test(session, refuses_a_policy_change_as_a_whole)
{
    struct policy_change change = {.max_sessions = {true, {true, 3}}, .limits = {.mem_limit = {true, "lots"}}};
    struct policy_change combination = {.max_sessions = {true, {true, 9}}, .max_open_sessions = {true, {true, 3}}};
    struct error err = ERROR_INIT;
    struct policy *policy;

    wish.max_sessions = 5;
    begin();
    cr_assert_eq(sessions_policy_change(sessions, &change, "{}", &err), -1);
    cr_assert_not_null(strstr(err.text, "mem_limit"));
    cr_assert_eq(sessions_policy_change(sessions, &combination, "{}", &err), -1);
    policy = sessions_policy(sessions);
    cr_assert(eq(i64, policy->max_sessions.value, 5));
    policy_unref(policy);
    end();
}
