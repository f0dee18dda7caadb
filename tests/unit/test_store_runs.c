/* What the store remembers of runs. */
#include "store_fixture.h"

TestSuite(store_runs, .init = setup, .fini = remove_dir, .timeout = 40);

Test(store_runs, tells_which_runs_have_no_end)
{
    struct store_run run = {.slot = "slot", .id = "s", .run_id = "0123456789abcdef0123456789abcdef", .keep = true};
    struct run_exit run_exit = {.exit_code = 7, .wall_ms = 5, .stdout_bytes = 3};
    struct run_exit lost = {.lost = true, .exit_code = -1};
    struct store_run *runs;
    char text[64];
    size_t count;

    run.epoch = store_epoch(store);
    for (run.number = 1; run.number <= 3; run.number++) {
        run.started_at_unix_ms = run.number * 10;
        store_run_put(store, &run);
    }
    store_run_end(store, "slot", 2, 99, &run_exit, "");
    store_run_end(store, "slot", 2, 100, &lost, "");
    store_run_end(store, "slot", 44, 100, &lost, "");
    reopen();
    OK(store_runs_open(store, &runs, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_eq(runs[0].number, 1);
    cr_assert_eq(runs[1].number, 3);
    cr_assert_eq(runs[1].started_at_unix_ms, 30);
    cr_assert_eq(runs[1].epoch, 1);
    cr_assert(runs[1].keep);
    cr_assert_str_eq(runs[1].run_id, "0123456789abcdef0123456789abcdef");
    cr_assert_str_eq(runs[1].id, "s");
    cr_assert_str_eq(runs[1].slot, "slot");
    free(runs);
    raw_text("SELECT ended_at_unix_ms || ' ' || exit_code || ' ' || lost || ' ' || wall_ms || ' ' || stdout_bytes"
             " FROM run WHERE number = 2",
             text);
    cr_assert_str_eq(text, "99 7 0 5 3", "the first end counts");
    run.keep = false;
    for (run.number = 4; run.number <= 1000; run.number++) {
        store_run_put(store, &run);
        store_run_end(store, "slot", run.number, 100, &run_exit, "");
    }
    OK(store_runs_open(store, &runs, &count, &err));
    cr_assert_eq(count, 2, "what has no end is not trimmed");
    free(runs);
    raw_text("SELECT count(*) || ' ' || max(number) FROM run", text);
    cr_assert_str_eq(text, "203 1000", "nor what is kept");
    OK(store_slot_delete(store, "slot", &err));
    OK(store_runs_open(store, &runs, &count, &err));
    cr_assert_eq(count, 0);
}

Test(store_runs, keeps_what_is_shown_of_a_watched_run_until_it_is_forgotten)
{
    struct store_kept_run kept = {.tty = true, .has_deadline = true, .command = "echo \xc3\xa9"};
    struct run_exit run_exit = {.exit_code = -1,
                                .signal = 9,
                                .timed_out = true,
                                .output_limited = true,
                                .cpu_ms = 4,
                                .peak_bytes = 5,
                                .stdout_bytes = 6,
                                .stderr_bytes = 7};
    struct store_kept_run *rows;
    size_t count;

    kept.run =
        (struct store_run){.slot = "slot", .number = 7, .id = "s", .run_id = "My.run-1", .started_at_unix_ms = 11};
    OK(store_run_keep(store, &kept, &err));
    kept.run.number = 8;
    OK(store_run_keep(store, &kept, &err));
    store_run_end(store, "slot", 8, 99, &run_exit, "stopped");
    reopen();
    OK(store_runs_kept(store, &rows, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_eq(rows[0].ended_at_unix_ms, 0);
    cr_assert(rows[0].tty && rows[0].has_deadline && rows[0].run.keep);
    cr_assert_str_eq(rows[0].run.run_id, "My.run-1");
    cr_assert_str_eq(rows[0].command, "echo \xc3\xa9");
    cr_assert_eq(rows[1].ended_at_unix_ms, 99);
    cr_assert_str_eq(rows[1].cause, "stopped");
    cr_assert(rows[1].exit.timed_out && rows[1].exit.output_limited && !rows[1].exit.lost);
    cr_assert_eq(rows[1].exit.signal, 9);
    cr_assert_eq(rows[1].exit.exit_code, -1);
    cr_assert_eq(rows[1].exit.stderr_bytes, 7);
    free(rows);
    store_run_forget(store, "slot", 8);
    OK(store_runs_kept(store, &rows, &count, &err));
    cr_assert_eq(count, 1);
    free(rows);
}
