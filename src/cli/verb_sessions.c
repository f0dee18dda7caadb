/* Sessions: list, open, close, purge, hibernate, wake. */
#include "cli_private.h"

#include "alloc.h"
#include "id.h"

#include <string.h>

enum { OPEN_MS = 960000, SLOW_MS = 180000 };

int cli_check_session(const char *id, struct error *err)
{
    if (!id_name_valid(id, strlen(id)))
        return fail(err, INVALID,
                    "\"%.60s\" cannot be the id of a session: letters, digits, dot, dash and underscore, 64 at most",
                    id);
    return 0;
}

int cli_sessions(struct cli *cli, bool usage, struct json_object **ret, struct error *err)
{
    auto_json struct json_object *all = json_object_new_array();
    auto_free char *after = NULL;
    bool more = true;

    if (usage)
        return cli_call(cli, "GET", "/sessions?usage=true", NULL, ret, err);
    while (more) {
        auto_json struct json_object *page = NULL;
        auto_free char *target =
            after ? cli_target("/sessions?limit=1000&after=%s", after) : alloc_str("/sessions?limit=1000");
        struct json_object *sessions;

        if (cli_call(cli, "GET", target, NULL, &page, err) < 0) {
            if (!after || err->code != ERROR_NOT_FOUND)
                return -1;
            error_clear(err); /* the last one of the page before was closed meanwhile: from the beginning */
            (void)json_object_put(all);
            all = json_object_new_array();
            free(take_ptr(after));
            continue;
        }
        sessions = cli_member(page, "sessions");
        for (size_t i = 0; i < cli_length(sessions); i++)
            (void)json_object_array_add(all, json_object_get(json_object_array_get_idx(sessions, i)));
        free(after);
        after = alloc_str(cli_str(page, "next_after"));
        more = after != NULL;
    }
    *ret = json_object_new_object();
    (void)json_object_object_add(*ret, "sessions", take_ptr(all));
    return 0;
}

static bool is_wanted(const struct cli *cli, struct json_object *session)
{
    const char *tenant = cli_value(cli, "tenant");
    const char *state = cli_value(cli, "state");
    const char *prefix = cli_value(cli, "prefix");
    const char *id = cli_str(session, "session_id");

    return id && (!tenant || strcmp(tenant, cli_str(session, "tenant") ? cli_str(session, "tenant") : "") == 0) &&
           (!state || strcmp(state, cli_str(session, "state") ? cli_str(session, "state") : "") == 0) &&
           (!prefix || strncmp(id, prefix, strlen(prefix)) == 0);
}

static void add_row(struct cli_table *table, struct json_object *session, bool usage)
{
    struct json_object *used = cli_member(session, "usage");
    char created[24];
    char last[24];
    char memory[24];

    cli_since(cli_real(session, "created_at"), created);
    cli_since(cli_real(session, "last_activity"), last);
    cli_table_add(table, cli_str(session, "session_id"));
    cli_table_add(table, cli_str(session, "state"));
    cli_table_add(table, cli_str(session, "runtime"));
    cli_table_add(table, cli_str(session, "tenant"));
    cli_table_add(table, created);
    cli_table_add(table, last);
    if (!usage)
        return;
    cli_size(cli_int(used, "memory_bytes", -1), memory);
    cli_table_add(table, memory);
    if (cli_member(used, "cpu_percent"))
        cli_table_addf(table, "%.1f", cli_real(used, "cpu_percent"));
    else
        cli_table_add(table, NULL);
    if (used)
        cli_table_addf(table, "%lld", (long long)cli_int(used, "pids", 0));
    else
        cli_table_add(table, NULL);
}

int verb_sessions(struct cli *cli, struct error *err)
{
    static const char *const heads[] = {"SESSION", "STATE",  "RUNTIME", "TENANT",   "OPENED",
                                        "USED",    "MEMORY", "CPU%",    "PROCESSES"};
    bool usage = cli_has(cli, "usage");
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = usage ? 9 : 6};
    auto_json struct json_object *answer = NULL;
    struct json_object *sessions;
    const char *state = cli_value(cli, "state");

    if (state && strcmp(state, "running") != 0 && strcmp(state, "hibernated") != 0)
        return fail(err, INVALID, "--state is running or hibernated");
    if (cli_sessions(cli, usage, &answer, err) < 0)
        return -1;
    sessions = cli_member(answer, "sessions");
    for (size_t i = 0; i < cli_length(sessions); i++) {
        struct json_object *session = json_object_array_get_idx(sessions, i);

        if (!is_wanted(cli, session))
            continue;
        if (cli_has(cli, "json")) {
            cli_put_json(cli, session);
        } else if (cli_has(cli, "quiet")) {
            cli_put(cli, stdout, cli_str(session, "session_id"));
            (void)fputc('\n', stdout);
        } else {
            add_row(&table, session, usage);
        }
    }
    if (!cli_has(cli, "json") && !cli_has(cli, "quiet"))
        cli_table_print(&table);
    return CLI_OK;
}

int cli_open(struct cli *cli, const char *id, bool reuse, const char *runtime, const char *tenant,
             struct json_object **ret, struct error *err)
{
    auto_json struct json_object *body = json_object_new_object();

    if (id && cli_check_session(id, err) < 0)
        return -1;
    if (id) {
        (void)json_object_object_add(body, "session_id", json_object_new_string(id));
        (void)json_object_object_add(body, "reuse", json_object_new_boolean(reuse));
    }
    if (runtime)
        (void)json_object_object_add(body, "runtime", json_object_new_string(runtime));
    if (tenant)
        (void)json_object_object_add(body, "tenant", json_object_new_string(tenant));
    return cli_call_within(cli, OPEN_MS, "POST", "/sessions", body, ret, err);
}

int verb_open(struct cli *cli, struct error *err)
{
    auto_json struct json_object *answer = NULL;
    const char *id;

    if (cli_open(cli, cli->argument_count ? cli->arguments[0] : NULL, !cli_has(cli, "new"), cli_value(cli, "runtime"),
                 cli_value(cli, "tenant"), &answer, err) < 0)
        return -1;
    if (cli_has(cli, "json")) {
        cli_put_json(cli, answer);
        return CLI_OK;
    }
    id = cli_str(cli_member(answer, "session"), "session_id");
    cli_put(cli, stdout, id ? id : "");
    (void)fputc('\n', stdout);
    return CLI_OK;
}

/* One request for each argument; what fails is said, the others are done all the same. */
static int for_each(struct cli *cli, const char *method, const char *format, bool prints, struct error *err)
{
    int status = CLI_OK;

    for (unsigned i = 0; i < cli->argument_count; i++)
        if (cli_check_session(cli->arguments[i], err) < 0)
            return -1;
    for (unsigned i = 0; i < cli->argument_count; i++) {
        auto_free char *id = cli_target("%s", cli->arguments[i]);
        auto_buf struct buf target = BUF_INIT(4096);
        auto_json struct json_object *answer = NULL;
        const char *place = strchr(format, '@');
        struct error why = ERROR_INIT;

        (void)buf_append(&target, format, (size_t)(place - format), err);
        (void)buf_append_format(&target, err, "%s%s", id, place + 1);
        if (cli_call_within(cli, SLOW_MS, method, buf_str(&target), NULL, &answer, &why) < 0) {
            (void)error_prefix(&why, "%s", cli->arguments[i]);
            if (cli->argument_count == 1 || why.code == ERROR_UNAVAILABLE || why.code == ERROR_UNAUTHENTICATED) {
                *err = why; /* the others would fare no better */
                return -1;
            }
            (void)fputs("berth: ", stderr);
            cli_put(cli, stderr, why.text);
            (void)fputc('\n', stderr);
            status = CLI_FAILED;
        } else if (prints && cli_has(cli, "json")) {
            cli_put_json(cli, answer);
        } else if (prints) {
            (void)printf("%s: %s\n", cli->arguments[i], cli_str(answer, "state") ? cli_str(answer, "state") : "-");
        }
    }
    return status;
}

int verb_close(struct cli *cli, struct error *err)
{
    return for_each(cli, "DELETE", "/sessions/@", false, err);
}

int verb_purge(struct cli *cli, struct error *err)
{
    if (!cli_has(cli, "yes"))
        return fail(err, INVALID, "purge removes the files of %u session%s for good: say it with --yes",
                    cli->argument_count, cli->argument_count == 1 ? "" : "s");
    return for_each(cli, "DELETE", "/sessions/@?purge=true", false, err);
}

int verb_hibernate(struct cli *cli, struct error *err)
{
    return for_each(cli, "POST", "/sessions/@/hibernate", true, err);
}

int verb_wake(struct cli *cli, struct error *err)
{
    return for_each(cli, "POST", "/sessions/@/wake", true, err);
}

int cli_delete_workspaces(struct cli *cli, struct error *err)
{
    return for_each(cli, "DELETE", "/workspaces/@", false, err);
}
