#include "store_fixture.h"

/* -- the file -- */

static mode_t mode_of(const char *name)
{
    char path[96];
    struct stat status;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    cr_assert_eq(stat(path, &status), 0, "%s", path);
    return status.st_mode & 0777;
}

Test(store_file, keeps_others_out_whatever_the_umask)
{
    (void)umask(0);
    cr_assert_eq(chmod(dir, 0755), 0);
    open_it();
    (void)open_session("a");
    cr_assert_eq(mode_of("."), 0700);
    cr_assert_eq(mode_of("berth.db"), 0600);
    cr_assert_eq(mode_of("berth.db-wal"), 0600);
    cr_assert_eq(mode_of("berth.db-shm"), 0600);
    cr_assert_eq(mode_of("lock"), 0600);
}

Test(store_file, makes_a_missing_directory_and_names_it_when_it_cannot)
{
    char below[96];
    struct store *other;

    (void)snprintf(below, sizeof below, "%s/state", dir);
    cr_assert_eq(store_open(below, &other, &err), 0, "%s", err.text);
    cr_assert_eq(mode_of("state"), 0700);
    store_close(other);
    for (int i = 0; i < 2; i++) {
        char path[112];

        (void)snprintf(path, sizeof path, "%s/state/%s", dir, i ? "berth.db" : "lock");
        cr_assert_eq(unlink(path), 0);
    }
    cr_assert_eq(rmdir(below), 0, "nothing else is left after a close");
    FAILS(store_open("/nonexistent/state", &other, &err), NOT_FOUND);
}

Test(store_file, counts_its_starts_and_keeps_its_name)
{
    char install[37];

    open_it();
    cr_assert_eq(store_epoch(store), 1);
    (void)snprintf(install, sizeof install, "%s", store_install(store));
    cr_assert_eq(strlen(install), 36);
    cr_assert_eq(install[14], '4');
    reopen();
    cr_assert_eq(store_epoch(store), 2);
    cr_assert_str_eq(store_install(store), install);
}

Test(store_file, belongs_to_one_process)
{
    struct store *other;
    pid_t child;
    int status;

    open_it();
    FAILS(store_open(dir, &other, &err), CONFLICT);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        char pid[24];
        struct error theirs = ERROR_INIT;

        (void)snprintf(pid, sizeof pid, "process %d", (int)getppid());
        if (store_open(dir, &other, &theirs) == 0)
            _exit(1);
        _exit(theirs.code == ERROR_CONFLICT && strstr(theirs.text, pid) ? 0 : 2);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    (void)open_session("still-works");
}

Test(store_file, refuses_a_newer_schema_and_leaves_it_alone)
{
    sqlite3 *raw = raw_open();
    char text[64];

    raw_exec(raw, "CREATE TABLE future (x); PRAGMA user_version = 99");
    (void)sqlite3_close(raw);
    FAILS(store_open(dir, &store, &err), CONFLICT);
    raw_text("PRAGMA user_version", text);
    cr_assert_str_eq(text, "99");
    raw_text("PRAGMA journal_mode", text);
    cr_assert_str_eq(text, "delete");
    raw_text("SELECT group_concat(name) FROM sqlite_schema", text);
    cr_assert_str_eq(text, "future");
}

Test(store_file, refuses_what_is_not_a_database)
{
    char path[96];
    int fd;

    (void)snprintf(path, sizeof path, "%s/berth.db", dir);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(write(fd, "not a database\n", 15), 15);
    (void)close(fd);
    FAILS(store_open(dir, &store, &err), INTERNAL);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    cr_assert_eq(store_open(dir, &store, &err), -1);
}

Test(store_file, in_memory_leaves_nothing_behind)
{
    char path[96];

    cr_assert_eq(setenv("TMPDIR", dir, 1), 0);
    cr_assert_eq(store_open(":memory:", &store, &err), 0, "%s", err.text);
    (void)snprintf(path, sizeof path, "%s", store->owned_dir);
    cr_assert_eq(strncmp(path, dir, strlen(dir)), 0);
    (void)open_session("a");
    store_close(store);
    store = NULL;
    cr_assert_eq(access(path, F_OK), -1);
}

Test(store, remembers_the_key)
{
    char known[65] = "x";

    OK(store_key_fingerprint(store, known, &err));
    cr_assert_str_eq(known, "");
    OK(store_key_fingerprint_set(store, "abc", &err));
    reopen();
    OK(store_key_fingerprint(store, known, &err));
    cr_assert_str_eq(known, "abc");
}

Test(store, remembers_the_policy_of_any_size)
{
    size_t size = 1000 * 1000;
    char *large = malloc(size + 1);
    char *json = large;

    OK(store_policy_get(store, &json, &err));
    cr_assert_null(json);
    OK(store_policy_put(store, "{\"a\":1}", &err));
    memset(large, 'x', size);
    large[size] = '\0';
    OK(store_policy_put(store, large, &err));
    reopen();
    OK(store_policy_get(store, &json, &err));
    cr_assert_str_eq(json, large);
    free(json);
    free(large);
}

/* -- slots, workspaces, sessions -- */

Test(store, remembers_slots)
{
    struct store_slot first = {.slot = "b",
                               .ref = "c0ffee",
                               .runtime = "python",
                               .uid = -1,
                               .gid = -1,
                               .files_uid = 77,
                               .files_gid = 78,
                               .last_run = 7};
    struct store_slot second = {.slot = "a", .uid = 1000, .gid = 4294967295, .last_run = UINT32_MAX};
    struct store_slot got;
    struct store_slot *slots;
    size_t count;

    OK(store_slots(store, &slots, &count, &err));
    cr_assert_eq(count, 0);
    FAILS(store_slot_get(store, "b", &got, &err), NOT_FOUND);
    FAILS(store_slot_last_run(store, "b", 8, &err), NOT_FOUND);
    OK(store_slot_put(store, &first, &err));
    OK(store_slot_put(store, &second, &err));
    OK(store_slot_last_run(store, "b", 90, &err));
    OK(store_slot_last_run(store, "b", 80, &err));
    reopen();
    OK(store_slot_get(store, "b", &got, &err));
    cr_assert_str_eq(got.ref, "c0ffee");
    cr_assert_str_eq(got.runtime, "python");
    cr_assert_eq(got.uid, -1);
    cr_assert(got.files_uid == 77 && got.files_gid == 78);
    cr_assert_eq(got.last_run, 90, "never given back");
    first.last_run = 0;
    OK(store_slot_put(store, &first, &err));
    OK(store_slots(store, &slots, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(slots[0].slot, "a");
    cr_assert_eq(slots[0].gid, 4294967295);
    cr_assert_eq(slots[0].last_run, UINT32_MAX);
    cr_assert_eq(slots[1].last_run, 0, "a new container's life");
    free(slots);
    OK(store_slot_delete(store, "a", &err));
    OK(store_slot_delete(store, "a", &err));
    OK(store_slots(store, &slots, &count, &err));
    cr_assert_eq(count, 1);
    free(slots);
}

Test(store, remembers_workspaces)
{
    struct store_workspace workspace = {"w", "slot-1", "acme", "python", 1, 2, false};
    struct store_workspace got;
    struct store_workspace *all;
    size_t count;

    FAILS(store_workspace_get(store, "w", &got, &err), NOT_FOUND);
    OK(store_workspace_put(store, &workspace, &err));
    workspace.last_use_unix_ms = 3;
    OK(store_workspace_put(store, &workspace, &err));
    reopen();
    OK(store_workspace_get(store, "w", &got, &err));
    cr_assert_str_eq(got.slot, "slot-1");
    cr_assert_str_eq(got.tenant, "acme");
    cr_assert_str_eq(got.runtime, "python");
    cr_assert_eq(got.created_at_unix_ms, 1);
    cr_assert_eq(got.last_use_unix_ms, 3);
    OK(store_workspaces(store, &all, &count, &err));
    cr_assert_eq(count, 1);
    cr_assert_str_eq(all[0].id, "w");
    free(all);
    OK(store_workspace_delete(store, "w", &err));
    OK(store_workspaces(store, &all, &count, &err));
    cr_assert_eq(count, 0);
}

Test(store, lists_sessions_in_the_order_of_their_openings)
{
    struct store_session session = session_of("z");
    struct store_session *all;
    struct store_touch touches[] = {{"z", 50}, {"gone", 60}, {"a", 5}};
    size_t count;

    session.created_at_unix_ms = 10;
    session.last_activity_unix_ms = 11;
    session.state = STORE_RUNNING;
    OK(store_session_open(store, &session, &err));
    cr_assert_eq(session.opening, 1);
    cr_assert_eq(session.state, STORE_OPENING);
    (void)open_session("a");
    FAILS(store_session_open(store, &session, &err), CONFLICT);
    cr_assert_eq(session.opening, 1, "untouched by what failed");
    OK(store_session_state(store, "z", STORE_HIBERNATED, 40, &err));
    FAILS(store_session_state(store, "gone", STORE_RUNNING, 40, &err), NOT_FOUND);
    OK(store_sessions_touch(store, touches, 3, &err));
    OK(store_sessions_touch(store, touches, 0, &err));
    OK(store_session_state(store, "a", STORE_RUNNING, 4, &err));
    reopen();
    OK(store_sessions(store, &all, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(all[0].id, "z");
    cr_assert_eq(all[0].order, session.order);
    cr_assert_eq(all[0].state, STORE_HIBERNATED);
    cr_assert_eq(all[0].created_at_unix_ms, 10);
    cr_assert_eq(all[0].last_activity_unix_ms, 50);
    cr_assert_str_eq(all[0].nonce, "n");
    cr_assert_str_eq(all[0].tenant, "acme");
    cr_assert_str_eq(all[0].runtime, "python");
    cr_assert_str_eq(all[0].slot, "slot");
    cr_assert_str_eq(all[1].id, "a");
    cr_assert_gt(all[1].order, all[0].order);
    cr_assert_eq(all[1].last_activity_unix_ms, 5, "activity only grows");
    free(all);
}

Test(store, a_refused_opening_counts_for_nothing)
{
    struct store_session session = session_of("s");

    cr_assert_eq(open_session("s"), 1);
    FAILS(store_session_open(store, &session, &err), CONFLICT);
    OK(store_session_close(store, "s", 1, false, &err));
    cr_assert_eq(open_session("s"), 2);
}

Test(store, undoes_an_opening_but_not_its_number)
{
    struct store_tombstone dead[STORE_TOMBSTONES];
    size_t count;

    append("s", open_session("s"), 1);
    OK(store_session_undo(store, "s", &err));
    FAILS(store_session_undo(store, "s", &err), NOT_FOUND);
    OK(store_tombstones(store, "s", dead, &count, &err));
    cr_assert_eq(count, 0);
    cr_assert_eq(open_session("s"), 2);
    cr_assert_eq(latest_of("s", 2), 0);
}

Test(store, remembers_the_last_four_nonces)
{
    struct store_tombstone dead[STORE_TOMBSTONES];
    size_t count;

    for (int i = 1; i <= 6; i++) {
        struct store_session session = session_of("s");

        (void)snprintf(session.nonce, sizeof session.nonce, "nonce-%d", i);
        OK(store_session_open(store, &session, &err));
        if (i == 5) /* an undone one takes a number but leaves no nonce */
            OK(store_session_undo(store, "s", &err));
        else
            OK(store_session_close(store, "s", i, i == 6, &err));
    }
    reopen();
    OK(store_tombstones(store, "s", dead, &count, &err));
    cr_assert_eq(count, 4);
    cr_assert_str_eq(dead[0].nonce, "nonce-6", "a purge leaves them");
    cr_assert_str_eq(dead[1].nonce, "nonce-4");
    cr_assert_str_eq(dead[3].nonce, "nonce-2");
    OK(store_tombstones(store, "never", dead, &count, &err));
    cr_assert_eq(count, 0);
}

Test(store, a_close_leaves_the_workspace_and_a_purge_does_not)
{
    struct store_workspace workspace = {"s", "slot", "", "python", 1, 100, false};
    struct store_workspace got;
    struct store_run run = {.slot = "slot", .number = 1, .id = "s"};
    struct store_run *runs;
    char text[64];
    size_t count;

    OK(store_workspace_put(store, &workspace, &err));
    append("s", open_session("s"), 1);
    store_run_put(store, &run);
    OK(store_session_close(store, "s", 200, false, &err));
    OK(store_workspace_get(store, "s", &got, &err));
    cr_assert_eq(got.last_use_unix_ms, 200);
    OK(store_runs_open(store, &runs, &count, &err));
    cr_assert_eq(count, 0);
    raw_text("SELECT count(*) FROM event", text);
    cr_assert_str_eq(text, "0");
    FAILS(store_session_close(store, "s", 300, false, &err), NOT_FOUND);
    OK(store_session_close(store, "s", 300, true, &err));
    OK(store_workspace_get(store, "s", &got, &err));
    cr_assert(got.purging, "whoever comes after a death finishes it");
    OK(store_workspace_delete(store, "s", &err));
    FAILS(store_workspace_get(store, "s", &got, &err), NOT_FOUND);
    cr_assert_eq(open_session("s"), 2, "its counter stays");
}

/* -- tenants, the clock, renewed expiries -- */

Test(store, remembers_ceilings_of_tenants_and_forgets_those_without)
{
    struct store_tenant acme = {.tenant = "acme", .max_open_sessions = {true, 3}, .max_disk_bytes = {true, 0}};
    struct store_tenant *all;
    size_t count;

    OK(store_tenant_put(store, &acme, &err));
    reopen();
    OK(store_tenants(store, &all, &count, &err));
    cr_assert_eq(count, 1);
    cr_assert_str_eq(all[0].tenant, "acme");
    cr_assert(all[0].max_open_sessions.is_set && all[0].max_open_sessions.value == 3);
    cr_assert(all[0].max_disk_bytes.is_set && all[0].max_disk_bytes.value == 0);
    cr_assert(!all[0].max_resident_sessions.is_set && !all[0].max_running_commands.is_set);
    free(all);
    acme.max_open_sessions.is_set = acme.max_disk_bytes.is_set = false;
    OK(store_tenant_put(store, &acme, &err));
    OK(store_tenants(store, &all, &count, &err));
    cr_assert_eq(count, 0);
}

Test(store, moves_times_along_with_a_clock_that_jumped)
{
    struct store_workspace workspace = {.id = "w", .last_use_unix_ms = 5000};
    struct store_session *sessions;
    struct store_workspace got;
    char boot[40];
    int64_t ahead_ms;
    size_t count;

    OK(store_clock_get(store, boot, &ahead_ms, &err));
    cr_assert_str_empty(boot);
    (void)open_session("kept");
    (void)open_session("not");
    OK(store_session_keep(store, "kept", 9000, &err));
    FAILS(store_session_keep(store, "nobody", 9000, &err), NOT_FOUND);
    OK(store_workspace_put(store, &workspace, &err));
    OK(store_session_state(store, "kept", STORE_RUNNING, 7000, &err));
    OK(store_clock_put(store, "boot", 100, -2000, &err));
    reopen();
    OK(store_clock_get(store, boot, &ahead_ms, &err));
    cr_assert_str_eq(boot, "boot");
    cr_assert_eq(ahead_ms, 100);
    OK(store_sessions(store, &sessions, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_eq(sessions[0].keep_until_unix_ms, 7000);
    cr_assert_eq(sessions[0].last_activity_unix_ms, 5000);
    cr_assert_eq(sessions[1].keep_until_unix_ms, 0, "none stays none");
    free(sessions);
    OK(store_workspace_get(store, "w", &got, &err));
    cr_assert_eq(got.last_use_unix_ms, 3000);
}

Test(store, ends_an_opening_and_adopts_one_in_a_commit_each)
{
    struct store_workspace workspace = {.id = "s", .slot = "slot"};
    struct store_slot slot = {.slot = "slot", .ref = "ref"};
    struct store_session adopted = {.id = "a", .nonce = "n", .slot = "slot", .runtime = "python", .fresh = true};
    struct store_session *sessions;
    struct store_slot got;
    size_t count;

    FAILS(store_session_opened(store, &workspace, 1, &err), NOT_FOUND);
    FAILS(store_workspace_get(store, "s", &workspace, &err), NOT_FOUND);
    (void)open_session("s");
    OK(store_session_opened(store, &workspace, 1, &err));
    OK(store_workspace_get(store, "s", &workspace, &err));
    (void)snprintf(workspace.id, sizeof workspace.id, "a");
    OK(store_session_adopt(store, &adopted, &workspace, &slot, &err));
    FAILS(store_session_adopt(store, &adopted, &workspace, &slot, &err), CONFLICT);
    OK(store_slot_get(store, "slot", &got, &err));
    cr_assert_str_eq(got.ref, "ref");
    OK(store_sessions(store, &sessions, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert(sessions[0].state == STORE_RUNNING && sessions[1].state == STORE_RUNNING);
    cr_assert(!sessions[0].fresh && sessions[1].fresh);
    free(sessions);
}

Test(store, wakes_who_waits_for_the_feed_after_the_commit)
{
    const struct cancel soon = cancel_within(&(struct cancel)CANCEL_NEVER, 50);
    const struct cancel late = cancel_within(&(struct cancel)CANCEL_NEVER, 5000);
    struct store_feed_filter acme = {.tenant = "acme"};
    struct store_feed_event event = {.op = "opened", .tenant = "acme", .at_unix_us = INT64_MAX};
    struct store_feed_event *events;
    uint64_t seen = store_feed_commits(store);
    uint64_t first;
    uint64_t latest;
    size_t count;

    append("nobody", 1, 1); /* an event of another kind wakes nobody */
    FAILS(store_feed_wait(store, seen, &soon, &err), TIMEOUT);
    store_feed_append(store, &event);
    (void)snprintf(event.tenant, sizeof event.tenant, "other");
    store_feed_append(store, &event);
    OK(store_feed_wait(store, seen, &late, &err));
    OK(store_feed_read(store, 0, &acme, 10, &events, &count, &first, &latest, &err));
    cr_assert_eq(count, 1);
    cr_assert_eq(latest, 2);
    cr_assert_str_eq(events[0].tenant, "acme");
    free(events);
}

/* -- events, feed, runs -- */

Test(store, numbers_events_from_one_in_each_opening)
{
    size_t count;
    uint64_t latest;
    struct store_event *events;
    uint32_t opening = open_session("s");

    cr_assert_eq(latest_of("s", opening), 0);
    for (int i = 1; i <= 5; i++)
        append("s", opening, i);
    events = read_events("s", opening, 3, &count, &latest);
    cr_assert_eq(count, 2);
    cr_assert_eq(latest, 5);
    cr_assert_eq(events[0].seq, 4);
    cr_assert_eq(events[0].at_unix_us, 4);
    free(events);
    OK(store_session_close(store, "s", 1, false, &err));
    append("s", opening, 6);
    cr_assert_eq(open_session("s"), 2);
    append("s", opening, 7);
    cr_assert_eq(latest_of("s", opening), 0, "that opening is over");
    cr_assert_eq(latest_of("s", 2), 0);
    append("s", 2, 8);
    cr_assert_eq(latest_of("s", 2), 1);
}

Test(store, keeps_every_field_of_an_event_to_its_last_byte)
{
    struct store_event event = {.at_unix_us = -1, .duration_us = INT64_MAX, .ok = false};
    uint32_t opening = open_session("s");
    struct store_event *events;
    size_t count;
    uint64_t latest;

    memset(event.op, 'o', sizeof event.op - 1);
    for (size_t i = 0; i + 3 < sizeof event.target; i += 3)
        memcpy(event.target + i, "\xe2\x82\xac", 3);
    memset(event.detail, 'd', sizeof event.detail - 1);
    store_event_append(store, "s", opening, &event);
    events = read_events("s", opening, 0, &count, &latest);
    cr_assert_eq(count, 1);
    cr_assert_eq(events[0].at_unix_us, -1);
    cr_assert_eq(events[0].duration_us, INT64_MAX);
    cr_assert(!events[0].ok);
    cr_assert_str_eq(events[0].op, event.op);
    cr_assert_str_eq(events[0].target, event.target);
    cr_assert_str_eq(events[0].detail, event.detail);
    free(events);
}

Test(store, keeps_the_last_200_events_and_their_numbers_over_a_restart)
{
    struct store_event *events;
    char text[64];
    size_t count;
    uint64_t latest;
    uint32_t other = open_session("other");
    uint32_t opening = open_session("s");

    append("other", other, 1);
    for (int i = 1; i <= 777; i++)
        append("s", opening, i);
    reopen();
    for (int i = 778; i <= 1000; i++)
        append("s", opening, i);
    events = read_events("s", opening, 0, &count, &latest);
    cr_assert_eq(count, 200);
    cr_assert_eq(latest, 1000);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(events[i].at_unix_us, (int64_t)events[i].seq, "in the order of the calls");
    free(events);
    free(read_events("s", opening, 1000, &count, &latest));
    cr_assert_eq(count, 0);
    free(read_events("s", opening, UINT64_MAX, &count, &latest));
    cr_assert_eq(count, 0);
    cr_assert_eq(latest_of("other", other), 1);
    raw_text("SELECT count(*) FROM event", text);
    cr_assert_str_eq(text, "201");
}

Test(store, numbers_the_feed_without_a_gap_and_bounds_it)
{
    uint64_t first;
    uint64_t latest;

    cr_assert_eq(read_feed(0, 100, &first, &latest), 0);
    cr_assert_eq(first, 1);
    cr_assert_eq(latest, 0);
    for (int i = 0; i < 6000; i++)
        feed("s", clock_unix_us());
    reopen();
    for (int i = 0; i < 6000; i++)
        feed("s", clock_unix_us());
    cr_assert_eq(read_feed(0, SIZE_MAX, &first, &latest), STORE_FEED_KEPT);
    cr_assert_eq(first, 2001);
    cr_assert_eq(latest, 12000);
    cr_assert_eq(read_feed(11990, 3, &first, &latest), 3);
    cr_assert_eq(read_feed(11990, 100, &first, &latest), 10);
    cr_assert_eq(read_feed(UINT64_MAX, 100, &first, &latest), 0);
}

Test(store, lets_go_of_the_feed_after_seven_days)
{
    struct store_feed_event *events;
    size_t count;
    uint64_t first;
    uint64_t latest;

    for (int i = 0; i < 3; i++)
        feed("old", clock_unix_us() - INT64_C(8) * 24 * 3600 * 1000000);
    feed("new", clock_unix_us());
    feed("new", clock_unix_us());
    OK(store_feed_read(store, 0, &(struct store_feed_filter){NULL}, 10, &events, &count, &first, &latest, &err));
    cr_assert_eq(count, 2);
    cr_assert_eq(first, 4);
    cr_assert_eq(latest, 5);
    cr_assert_str_eq(events[0].session, "new");
    cr_assert_str_eq(events[0].op, "opened");
    cr_assert_str_eq(events[0].tenant, "acme");
    cr_assert_str_eq(events[0].detail, "d");
    free(events);
}
