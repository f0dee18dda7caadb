#include "alloc.h"
#include "store_private.h"

#include <string.h>

/* -- started -- */

struct put_item {
    struct store_item item;
    struct store_run run;
};

static int insert(struct store_db *db, const struct store_run *run, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "INSERT OR REPLACE INTO run (slot, number, id, run_id, epoch, keep, started_at_unix_ms)"
                       " VALUES (?, ?, ?, ?, ?, ?, ?)");

    store_bind_text(stmt, 1, run->slot);
    store_bind_int(stmt, 2, run->number);
    store_bind_text(stmt, 3, run->id);
    store_bind_text(stmt, 4, run->run_id);
    store_bind_int(stmt, 5, run->epoch);
    store_bind_int(stmt, 6, run->keep);
    store_bind_int(stmt, 7, run->started_at_unix_ms);
    return store_step(db, stmt, err);
}

/* Numbers grow, so the oldest are a range at the front of the slot's rows. */
static int trim(struct store_db *db, const struct store_run *run, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM run WHERE slot = ? AND number <= ? AND keep = 0"
                                                  " AND ended_at_unix_ms IS NOT NULL");

    store_bind_text(stmt, 1, run->slot);
    store_bind_int(stmt, 2, (int64_t)run->number - STORE_RUNS_KEPT);
    return store_step(db, stmt, err);
}

static int write_put(struct store_db *db, void *args, struct error *err)
{
    const struct put_item *queued = args;

    if (insert(db, &queued->run, err) < 0)
        return -1;
    return trim(db, &queued->run, err);
}

void store_run_put(struct store *store, const struct store_run *run)
{
    struct put_item *queued = alloc_zero(sizeof *queued);

    queued->item.write = write_put;
    queued->item.args = queued;
    queued->run = *run;
    store_queue(store, &queued->item);
}

static int write_keep(struct store_db *db, void *args, struct error *err)
{
    const struct store_kept_run *kept = args;
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(db, "UPDATE run SET command = ?, tty = ?, has_deadline = ? WHERE slot = ? AND number = ?");

    if (insert(db, &kept->run, err) < 0)
        return -1;
    store_bind_text(stmt, 1, kept->command);
    store_bind_int(stmt, 2, kept->tty);
    store_bind_int(stmt, 3, kept->has_deadline);
    store_bind_text(stmt, 4, kept->run.slot);
    store_bind_int(stmt, 5, kept->run.number);
    return store_step(db, stmt, err);
}

int store_run_keep(struct store *store, const struct store_kept_run *run, struct error *err)
{
    struct store_kept_run kept = *run;

    kept.run.keep = true;
    return store_write(store, STORE_ORDERED, write_keep, &kept, err);
}

/* -- ended -- */

struct end_item {
    struct store_item item;
    char slot[STORE_SLOT_BYTES];
    uint32_t number;
    int64_t ended_at_unix_ms;
    struct run_exit exit;
    char cause[STORE_RUN_CAUSE_BYTES];
};

static int write_end(struct store_db *db, void *args, struct error *err)
{
    const struct end_item *end = args;
    const struct run_exit *run_exit = &end->exit;
    auto_stmt sqlite3_stmt *stmt = store_stmt(
        db, "UPDATE run SET ended_at_unix_ms = ?, lost = ?, timed_out = ?, stopped = ?, oom = ?,"
            " spawn_failed = ?, spawn_errno = ?, exit_code = ?, signal = ?, wall_ms = ?, cpu_ms = ?,"
            " peak_bytes = ?, stdout_bytes = ?, stderr_bytes = ?, spawn_cwd = ?, cause = ?, output_limited = ?"
            " WHERE slot = ? AND number = ? AND ended_at_unix_ms IS NULL");

    store_bind_int(stmt, 1, end->ended_at_unix_ms);
    store_bind_int(stmt, 2, run_exit->lost);
    store_bind_int(stmt, 3, run_exit->timed_out);
    store_bind_int(stmt, 4, run_exit->stopped);
    store_bind_int(stmt, 5, run_exit->oom);
    store_bind_int(stmt, 6, run_exit->spawn_failed);
    store_bind_int(stmt, 7, run_exit->spawn_errno);
    store_bind_int(stmt, 8, run_exit->exit_code);
    store_bind_int(stmt, 9, run_exit->signal);
    store_bind_int(stmt, 10, run_exit->wall_ms);
    store_bind_int(stmt, 11, run_exit->cpu_ms);
    store_bind_int(stmt, 12, run_exit->peak_bytes);
    store_bind_int(stmt, 13, (int64_t)run_exit->stdout_bytes);
    store_bind_int(stmt, 14, (int64_t)run_exit->stderr_bytes);
    store_bind_int(stmt, 15, run_exit->spawn_cwd);
    store_bind_text(stmt, 16, end->cause);
    store_bind_int(stmt, 17, run_exit->output_limited);
    store_bind_text(stmt, 18, end->slot);
    store_bind_int(stmt, 19, end->number);
    return store_step(db, stmt, err);
}

void store_run_end(struct store *store, const char *slot, uint32_t number, int64_t ended_at_unix_ms,
                   const struct run_exit *run_exit, const char *cause)
{
    struct end_item *queued = alloc_zero(sizeof *queued);

    queued->item.write = write_end;
    queued->item.args = queued;
    memcpy(queued->slot, slot, strnlen(slot, sizeof queued->slot - 1));
    queued->number = number;
    queued->ended_at_unix_ms = ended_at_unix_ms;
    queued->exit = *run_exit;
    memcpy(queued->cause, cause, strnlen(cause, sizeof queued->cause - 1));
    store_queue(store, &queued->item);
}

/* -- forgotten -- */

static int write_forget(struct store_db *db, void *args, struct error *err)
{
    const struct end_item *end = args;
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, "DELETE FROM run WHERE slot = ? AND number = ?");

    store_bind_text(stmt, 1, end->slot);
    store_bind_int(stmt, 2, end->number);
    return store_step(db, stmt, err);
}

void store_run_forget(struct store *store, const char *slot, uint32_t number)
{
    struct end_item *queued = alloc_zero(sizeof *queued);

    queued->item.write = write_forget;
    queued->item.args = queued;
    memcpy(queued->slot, slot, strnlen(slot, sizeof queued->slot - 1));
    queued->number = number;
    store_queue(store, &queued->item);
}

/* -- reading -- */

static void read_run(sqlite3_stmt *stmt, struct store_run *run)
{
    store_column_text(stmt, 0, run->slot, sizeof run->slot);
    run->number = (uint32_t)sqlite3_column_int64(stmt, 1);
    store_column_text(stmt, 2, run->id, sizeof run->id);
    store_column_text(stmt, 3, run->run_id, sizeof run->run_id);
    run->epoch = (uint32_t)sqlite3_column_int64(stmt, 4);
    run->keep = sqlite3_column_int(stmt, 5) != 0;
    run->started_at_unix_ms = sqlite3_column_int64(stmt, 6);
}

static void read_kept(sqlite3_stmt *stmt, struct store_kept_run *kept)
{
    read_run(stmt, &kept->run);
    kept->tty = sqlite3_column_int(stmt, 7) != 0;
    kept->has_deadline = sqlite3_column_int(stmt, 8) != 0;
    store_column_text(stmt, 9, kept->command, sizeof kept->command);
    kept->ended_at_unix_ms = sqlite3_column_int64(stmt, 10); /* NULL is 0 */
    store_column_text(stmt, 11, kept->cause, sizeof kept->cause);
    kept->exit = (struct run_exit){
        .lost = sqlite3_column_int(stmt, 12) != 0,
        .timed_out = sqlite3_column_int(stmt, 13) != 0,
        .stopped = sqlite3_column_int(stmt, 14) != 0,
        .oom = sqlite3_column_int(stmt, 15) != 0,
        .spawn_failed = sqlite3_column_int(stmt, 16) != 0,
        .spawn_cwd = sqlite3_column_int(stmt, 17) != 0,
        .spawn_errno = sqlite3_column_int(stmt, 18),
        .exit_code = sqlite3_column_int(stmt, 19),
        .signal = sqlite3_column_int(stmt, 20),
        .wall_ms = sqlite3_column_int64(stmt, 21),
        .cpu_ms = sqlite3_column_int64(stmt, 22),
        .peak_bytes = sqlite3_column_int64(stmt, 23),
        .stdout_bytes = (uint64_t)sqlite3_column_int64(stmt, 24),
        .stderr_bytes = (uint64_t)sqlite3_column_int64(stmt, 25),
        .output_limited = sqlite3_column_int(stmt, 26) != 0,
    };
}

int store_runs_kept(struct store *store, struct store_kept_run **ret, size_t *ret_count, struct error *err)
{
    auto_free struct store_kept_run *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    int row;

    if (store_wait_queued(store, err) < 0)
        return -1;

    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT slot, number, id, run_id, epoch, keep, started_at_unix_ms, tty, has_deadline,"
                               " command, ended_at_unix_ms, cause, lost, timed_out, stopped, oom, spawn_failed,"
                               " spawn_cwd, spawn_errno, exit_code, signal, wall_ms, cpu_ms, peak_bytes, stdout_bytes,"
                               " stderr_bytes, output_limited FROM run WHERE keep = 1 ORDER BY slot, number");

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        read_kept(stmt, &rows[count++]);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}

int store_runs_open(struct store *store, struct store_run **ret, size_t *ret_count, struct error *err)
{
    auto_free struct store_run *rows = NULL;
    size_t count = 0;
    size_t room = 0;
    int row;

    if (store_wait_queued(store, err) < 0)
        return -1;

    auto_reading struct store_reading reading = store_read(store);
    auto_stmt sqlite3_stmt *stmt =
        store_stmt(reading.db, "SELECT slot, number, id, run_id, epoch, keep, started_at_unix_ms FROM run"
                               " WHERE ended_at_unix_ms IS NULL ORDER BY slot, number");

    while ((row = store_step(reading.db, stmt, err)) > 0) {
        rows = store_rows_room(rows, count, &room, sizeof *rows);
        read_run(stmt, &rows[count++]);
    }
    if (row < 0)
        return -1;
    *ret = take_ptr(rows);
    *ret_count = count;
    return 0;
}
