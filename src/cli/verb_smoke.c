/* smoke and bench: sessions of our own, used and measured from here, and removed. */
#include "cli_private.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_DIGITS = 12, FILE_BYTES = 4096, SESSIONS_MOST = 10, COUNT_MOST = 100000 };

static const char note[] = "written by berth smoke\n";

struct trial {
    struct cli *cli;
    char session[32];
    bool is_open;
    struct json_object *steps; /* of smoke --json */
    const char *body;          /* what is written, and has to be read */
    size_t body_size;
};

static struct trial trial_of(struct cli *cli)
{
    struct trial trial = {.cli = cli, .body = note, .body_size = sizeof note - 1};
    char digits[NAME_DIGITS + 1];

    id_random_hex(digits, NAME_DIGITS);
    (void)snprintf(trial.session, sizeof trial.session, "smoke-%s", digits);
    return trial;
}

static int purge(struct trial *trial, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s?purge=true", trial->session);

    trial->is_open = false;
    return cli_call_within(trial->cli, 180000, "DELETE", target, NULL, NULL, err);
}

static void trial_done(struct trial *trial)
{
    struct error ignored = ERROR_INIT;

    if (trial->is_open && purge(trial, &ignored) < 0)
        (void)fprintf(stderr, "berth: %s is left over: berth purge --yes %s\n", trial->session, trial->session);
    if (trial->steps)
        (void)json_object_put(trial->steps);
}

/* -- steps -- */

static int step_open(struct trial *trial, struct error *err)
{
    auto_json struct json_object *answer = NULL;
    int result = cli_open(trial->cli, trial->session, false, cli_value(trial->cli, "runtime"), NULL, &answer, err);

    /* Also where the answer was lost. */
    trial->is_open = result == 0 || err->code == ERROR_UNAVAILABLE || err->code == ERROR_TIMEOUT;
    return result;
}

static int step_run(struct trial *trial, struct error *err)
{
    auto_json struct json_object *body = json_object_new_object();
    auto_json struct json_object *answer = NULL;
    auto_free char *target = cli_target("/sessions/%s/run", trial->session);
    struct json_object *argv = json_object_new_array();
    char run_id[ID_RUN_BYTES + 1];

    id_random_hex(run_id, ID_RUN_BYTES);
    (void)json_object_array_add(argv, json_object_new_string("/bin/sh"));
    (void)json_object_array_add(argv, json_object_new_string("-c"));
    (void)json_object_array_add(argv, json_object_new_string("echo $((6 * 7))"));
    (void)json_object_object_add(body, "argv", argv);
    (void)json_object_object_add(body, "run_id", json_object_new_string(run_id));
    if (cli_call(trial->cli, "POST", target, body, &answer, err) < 0)
        return -1;
    if (cli_int(answer, "exit_code", -1) != 0 || !cli_str(answer, "stdout") ||
        strcmp(cli_str(answer, "stdout"), "42\n") != 0)
        return fail(err, INTERNAL, "the command did not answer 42");
    return 0;
}

static int exchange(struct trial *trial, const struct cli_request *request, struct buf *answer, struct error *err)
{
    auto_transfer struct cli_transfer *transfer = NULL;
    const char *data;
    size_t size;
    int status;
    int more;

    if (cli_transfer_start(trial->cli, request, &transfer, err) < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return -1;
    if (status < 200 || status > 299)
        return cli_transfer_refused(transfer, status, err);
    while ((more = cli_transfer_read(transfer, true, &data, &size, err)) > 0)
        if (buf_append(answer, data, size, err) < 0)
            return -1;
    return more;
}

static int step_write(struct trial *trial, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/content?path=smoke/note.txt", trial->session);
    const struct cli_request request = {.method = "PUT",
                                        .target = target,
                                        .body = trial->body,
                                        .body_size = trial->body_size,
                                        .type = "application/octet-stream",
                                        .timeout_ms = 60000};
    auto_buf struct buf answer = BUF_INIT(64 * 1024);

    return exchange(trial, &request, &answer, err);
}

static int read_back(struct trial *trial, const char *where, struct error *err)
{
    auto_free char *path = cli_target("/%s/content?path=smoke/note.txt", trial->session);
    auto_free char *target = alloc_format("/%s%s", where, path);
    const struct cli_request request = {.method = "GET", .target = target, .timeout_ms = 60000};
    auto_buf struct buf answer = BUF_INIT(1024 * 1024);

    if (exchange(trial, &request, &answer, err) < 0)
        return -1;
    if (answer.size != trial->body_size || memcmp(answer.data, trial->body, answer.size) != 0)
        return fail(err, INTERNAL, "the file is not what was written");
    return 0;
}

static int step_read(struct trial *trial, struct error *err)
{
    return read_back(trial, "sessions", err);
}

static int step_list(struct trial *trial, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/find?path=smoke", trial->session);
    auto_json struct json_object *answer = NULL;

    if (cli_call(trial->cli, "GET", target, NULL, &answer, err) < 0)
        return -1;
    return cli_length(cli_member(answer, "entries")) == 1 ? 0 : fail(err, INTERNAL, "the file is not in the listing");
}

static int step_hibernate(struct trial *trial, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s/hibernate", trial->session);

    return cli_call(trial->cli, "POST", target, NULL, NULL, err);
}

static int step_wake(struct trial *trial, struct error *err)
{
    return step_run(trial, err);
}

static int step_close(struct trial *trial, struct error *err)
{
    auto_free char *target = cli_target("/sessions/%s", trial->session);

    return cli_call(trial->cli, "DELETE", target, NULL, NULL, err);
}

static int step_archive(struct trial *trial, struct error *err)
{
    return read_back(trial, "workspaces", err);
}

/* -- smoke -- */

static void put_step(struct trial *trial, const char *text, int64_t took_us, const struct error *why)
{
    struct json_object *row = json_object_new_object();

    (void)json_object_object_add(row, "step", json_object_new_string(text));
    (void)json_object_object_add(row, "ok", json_object_new_boolean(!why));
    (void)json_object_object_add(row, "ms", json_object_new_double((double)took_us / 1000));
    if (why)
        (void)json_object_object_add(row, "error", json_object_new_string(why->text));
    (void)json_object_array_add(trial->steps, row);
    if (cli_has(trial->cli, "json"))
        return;
    (void)printf("%-46s %10.1f ms  %s\n", text, (double)took_us / 1000, why ? "FAILED" : "ok");
    (void)fflush(stdout);
}

int verb_smoke(struct cli *cli, struct error *err)
{
    static const struct {
        const char *text;
        int (*run)(struct trial *trial, struct error *err);
    } steps[] = {
        {"open a session", step_open},
        {"run a command", step_run},
        {"write a file", step_write},
        {"read it", step_read},
        {"list the directory", step_list},
        {"put it to sleep", step_hibernate},
        {"wake it by a command", step_wake},
        {"close it", step_close},
        {"read the file from the archive", step_archive},
        {"remove all of it", purge},
    };
    auto_cleanup(trial_done) struct trial trial = trial_of(cli);
    auto_json struct json_object *report = json_object_new_object();
    struct error why = ERROR_INIT;
    int result = 0;

    trial.steps = json_object_new_array();
    for (size_t i = 0; i < sizeof steps / sizeof *steps && result == 0; i++) {
        int64_t before_us = clock_mono_us();

        result = steps[i].run(&trial, &why);
        put_step(&trial, steps[i].text, clock_mono_us() - before_us, result < 0 ? &why : NULL);
    }
    if (cli_has(cli, "json")) {
        (void)json_object_object_add(report, "ok", json_object_new_boolean(result == 0));
        (void)json_object_object_add(report, "steps", json_object_get(trial.steps));
        cli_put_json(cli, report);
    }
    if (result < 0)
        *err = why;
    return result < 0 ? -1 : CLI_OK;
}

/* -- bench -- */

struct series {
    const char *text;
    int64_t *took_us;
    size_t count;
};

static int compare(const void *one, const void *other)
{
    int64_t left = *(const int64_t *)one;
    int64_t right = *(const int64_t *)other;

    return (left > right) - (left < right);
}

static int measure(struct trial *trial, int (*run)(struct trial *trial, struct error *err), struct series *series,
                   size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        int64_t before_us = clock_mono_us();

        if (run(trial, err) < 0)
            return error_prefix(err, "%s", series->text);
        series->took_us[series->count++] = clock_mono_us() - before_us;
    }
    return 0;
}

/* The value that `part` of them are at most. */
static double at_part(const struct series *series, double part)
{
    size_t index = (size_t)((double)(series->count - 1) * part + 0.5);

    return (double)series->took_us[index] / 1000;
}

static void put_series(const struct cli *cli, struct series *all, size_t count)
{
    static const char *const heads[] = {"MILLISECONDS", "COUNT", "LEAST", "MEDIAN", "95%", "MOST"};
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = 6};
    auto_json struct json_object *report = json_object_new_object();

    for (size_t i = 0; i < count; i++) {
        const double parts[] = {0, 0.5, 0.95, 1};
        const char *const names[] = {"least_ms", "median_ms", "p95_ms", "most_ms"};
        struct json_object *row = json_object_new_object();

        if (all[i].count == 0) {
            (void)json_object_put(row);
            continue;
        }
        qsort(all[i].took_us, all[i].count, sizeof *all[i].took_us, compare);
        cli_table_add(&table, all[i].text);
        cli_table_addf(&table, "%zu", all[i].count);
        (void)json_object_object_add(row, "count", json_object_new_int64((int64_t)all[i].count));
        for (size_t k = 0; k < 4; k++) {
            cli_table_addf(&table, "%.2f", at_part(&all[i], parts[k]));
            (void)json_object_object_add(row, names[k], json_object_new_double(at_part(&all[i], parts[k])));
        }
        (void)json_object_object_add(report, all[i].text, row);
    }
    if (cli_has(cli, "json"))
        cli_put_json(cli, report);
    else
        cli_table_print(&table);
}

enum { S_OPEN, S_FIRST, S_RUN, S_WRITE, S_READ, S_CLOSE, S_ARCHIVE, S_PURGE, S_COUNT };

static int bench_session(struct cli *cli, struct series *all, size_t count, const char *body, struct error *err)
{
    auto_cleanup(trial_done) struct trial trial = trial_of(cli);

    trial.body = body;
    trial.body_size = FILE_BYTES;
    if (measure(&trial, step_open, &all[S_OPEN], 1, err) < 0 || measure(&trial, step_run, &all[S_FIRST], 1, err) < 0 ||
        measure(&trial, step_run, &all[S_RUN], count, err) < 0 ||
        measure(&trial, step_write, &all[S_WRITE], count, err) < 0 ||
        measure(&trial, step_read, &all[S_READ], count, err) < 0 ||
        measure(&trial, step_close, &all[S_CLOSE], 1, err) < 0 ||
        measure(&trial, step_archive, &all[S_ARCHIVE], count, err) < 0 ||
        measure(&trial, purge, &all[S_PURGE], 1, err) < 0)
        return -1;
    return 0;
}

int verb_bench(struct cli *cli, struct error *err)
{
    struct series all[S_COUNT] = {[S_OPEN] = {.text = "open a session"},
                                  [S_FIRST] = {.text = "first command in it"},
                                  [S_RUN] = {.text = "a command"},
                                  [S_WRITE] = {.text = "write 4 KiB"},
                                  [S_READ] = {.text = "read 4 KiB"},
                                  [S_CLOSE] = {.text = "close a session"},
                                  [S_ARCHIVE] = {.text = "read 4 KiB of a closed one"},
                                  [S_PURGE] = {.text = "remove its files"}};
    char body[FILE_BYTES];
    int64_t count;
    int64_t sessions;
    int result = 0;

    if (cli_number(cli, "count", 1, COUNT_MOST, 100, &count, err) < 0)
        return -1;
    sessions = count < SESSIONS_MOST ? count : SESSIONS_MOST;
    memset(body, 'b', sizeof body);
    for (size_t i = 0; i < S_COUNT; i++)
        all[i].took_us = alloc_array((size_t)(count + sessions), sizeof *all[i].took_us);
    for (int64_t i = 0; i < sessions && result == 0; i++)
        result = bench_session(cli, all, (size_t)((count + sessions - 1 - i) / sessions), body, err);
    if (result == 0)
        put_series(cli, all, S_COUNT);
    for (size_t i = 0; i < S_COUNT; i++)
        free(all[i].took_us);
    return result < 0 ? -1 : CLI_OK;
}
