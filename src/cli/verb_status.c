/* What the broker is doing, from one answer that costs it nothing: GET /stats. */
#include "cli_private.h"

#include "alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WATCH_MS = 2000, WATCH_MOST_S = 3600, TENANTS_SHOWN = 10, LINE_BYTES = 256 };

static void put_pair(const struct cli *cli, const char *name, const char *text)
{
    (void)printf("%-10s ", name);
    cli_put(cli, stdout, text);
    (void)fputc('\n', stdout);
}

/* "7 of 20", "7" where nothing bounds it. */
static void of_limit(struct json_object *object, const char *count, const char *limit, char out[static LINE_BYTES])
{
    if (cli_member(object, limit))
        (void)snprintf(out, LINE_BYTES, "%lld of %lld", (long long)cli_int(object, count, 0),
                       (long long)cli_int(object, limit, 0));
    else
        (void)snprintf(out, LINE_BYTES, "%lld", (long long)cli_int(object, count, 0));
}

static void put_broker(const struct cli *cli, struct json_object *stats)
{
    const char *status = cli_str(stats, "status");
    const char *version = cli_str(stats, "version");
    char since[24];
    char line[LINE_BYTES];

    cli_since(cli_real(stats, "started_at"), since);
    (void)snprintf(line, sizeof line, "%.100s, berthd %.40s, up %s: %.40s", cli->url, version ? version : "?", since,
                   status ? status : "?");
    put_pair(cli, "broker", line);
}

static void put_checks(const struct cli *cli, struct json_object *stats)
{
    struct json_object *checks = cli_member(stats, "checks");

    if (!checks)
        return;
    json_object_object_foreach(checks, name, check)
    {
        if (!cli_bool(check, "ok")) {
            char line[LINE_BYTES];

            (void)snprintf(line, sizeof line, "%.40s: %.180s", name,
                           cli_str(check, "detail") ? cli_str(check, "detail") : "not well");
            put_pair(cli, "NOT WELL", line);
        }
    }
}

static void put_sessions(const struct cli *cli, struct json_object *stats)
{
    struct json_object *sessions = cli_member(stats, "sessions");
    char open[LINE_BYTES];
    char resident[LINE_BYTES];
    char line[3 * LINE_BYTES];

    of_limit(sessions, "open", "open_limit", open);
    of_limit(sessions, "resident", "resident_limit", resident);
    (void)snprintf(line, sizeof line, "%s open: %lld running, %lld frozen, %lld asleep, %lld opening; %s hold memory",
                   open, (long long)cli_int(sessions, "running", 0), (long long)cli_int(sessions, "frozen", 0),
                   (long long)cli_int(sessions, "hibernated", 0), (long long)cli_int(sessions, "opening", 0), resident);
    put_pair(cli, "sessions", line);
}

static void put_runs(const struct cli *cli, struct json_object *stats)
{
    struct json_object *runs = cli_member(stats, "runs");
    struct json_object *ended = cli_member(runs, "ended");
    int64_t total = 0;
    char line[LINE_BYTES];

    if (ended) {
        json_object_object_foreach(ended, outcome, count)
        {
            (void)outcome;
            total += json_object_get_int64(count);
        }
    }
    (void)snprintf(line, sizeof line, "%lld running, %lld ended since the start",
                   (long long)cli_int(runs, "running", 0), (long long)total);
    put_pair(cli, "commands", line);
}

static void put_pool(const struct cli *cli, struct json_object *stats)
{
    struct json_object *pools = cli_member(stats, "pool");

    for (size_t i = 0; i < cli_length(pools); i++) {
        struct json_object *pool = json_object_array_get_idx(pools, i);
        char line[LINE_BYTES];

        (void)snprintf(line, sizeof line, "%.64s: %lld of %lld ready",
                       cli_str(pool, "runtime") ? cli_str(pool, "runtime") : "-", (long long)cli_int(pool, "ready", 0),
                       (long long)cli_int(pool, "wanted", 0));
        put_pair(cli, i ? "" : "pool", line);
    }
}

static void put_disks(const struct cli *cli, struct json_object *stats)
{
    struct json_object *disks = cli_member(stats, "disks");

    for (size_t i = 0; i < cli_length(disks); i++) {
        struct json_object *disk = json_object_array_get_idx(disks, i);
        char free_text[24];
        char size_text[24];
        char line[LINE_BYTES];

        cli_size(cli_int(disk, "free_bytes", -1), free_text);
        cli_size(cli_int(disk, "size_bytes", -1), size_text);
        (void)snprintf(line, sizeof line, "%.40s: %s free of %s", cli_str(disk, "of") ? cli_str(disk, "of") : "-",
                       free_text, size_text);
        put_pair(cli, i ? "" : "disk", line);
    }
}

static void put_tenants(struct json_object *stats)
{
    static const char *const heads[] = {"TENANT", "OPEN", "IN MEMORY", "COMMANDS", "DISK"};
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = 5};
    struct json_object *tenants = cli_member(stats, "tenants");
    struct json_object *shown = cli_member(tenants, "shown");
    size_t count = cli_length(shown);

    for (size_t i = 0; i < count && i < TENANTS_SHOWN; i++) {
        struct json_object *tenant = json_object_array_get_idx(shown, i);
        const char *name = cli_str(tenant, "tenant");
        char disk[24];

        cli_size(cli_int(tenant, "disk_bytes", -1), disk);
        cli_table_add(&table, name && *name ? name : "(nobody)");
        cli_table_addf(&table, "%lld", (long long)cli_int(tenant, "open", 0));
        cli_table_addf(&table, "%lld", (long long)cli_int(tenant, "resident", 0));
        cli_table_addf(&table, "%lld", (long long)cli_int(tenant, "running_commands", 0));
        cli_table_add(&table, disk);
    }
    if (table.count == 0)
        return;
    (void)fputc('\n', stdout);
    cli_table_print(&table);
    if (cli_int(tenants, "total", 0) > (int64_t)TENANTS_SHOWN)
        (void)printf("of %lld tenants; berth status --json has more\n", (long long)cli_int(tenants, "total", 0));
}

static void put_stats(const struct cli *cli, struct json_object *stats)
{
    if (cli_has(cli, "json")) {
        cli_put_json(cli, stats);
        return;
    }
    put_broker(cli, stats);
    put_checks(cli, stats);
    put_sessions(cli, stats);
    put_runs(cli, stats);
    put_pool(cli, stats);
    put_disks(cli, stats);
    put_tenants(stats);
}

static int once(struct cli *cli, bool clears, struct error *err)
{
    auto_json struct json_object *stats = NULL;

    if (cli_call(cli, "GET", "/stats", NULL, &stats, err) < 0)
        return -1;
    if (clears)
        (void)fputs("\033[H\033[2J", stdout);
    put_stats(cli, stats);
    if (fflush(stdout) != 0)
        return fail_errno(err, "standard output");
    return cli_str(stats, "status") && strcmp(cli_str(stats, "status"), "ready") == 0 ? CLI_OK : CLI_UNREACHABLE;
}

int verb_status(struct cli *cli, struct error *err)
{
    const char *text = cli_value(cli, "watch");
    int64_t seconds = WATCH_MS / 1000;
    bool clears = cli->is_terminal && !cli_has(cli, "json");

    if (!cli_has(cli, "watch"))
        return once(cli, false, err);
    if (text && cli_number(cli, "watch", 1, WATCH_MOST_S, seconds, &seconds, err) < 0)
        return -1;
    for (;;) {
        struct error why = ERROR_INIT;

        if (once(cli, clears, &why) < 0) {
            if (why.code != ERROR_UNAVAILABLE && why.code != ERROR_TIMEOUT) {
                *err = why;
                return -1;
            }
            (void)fputs("berth: ", stderr); /* it may come back */
            cli_put(cli, stderr, why.text);
            (void)fputc('\n', stderr);
        }
        (void)poll(NULL, 0, (int)seconds * 1000);
    }
}
