/* What a broker whose database is gone left on the engine: GET and POST /orphans. */
#include "cli_private.h"

#include "alloc.h"

#include <string.h>

enum { REMOVE_MS = 600000, SHORT_ID = 12 };

static bool is_named(const struct cli *cli, const char *id)
{
    for (unsigned i = 0; i < cli->argument_count; i++)
        if (strlen(cli->arguments[i]) >= SHORT_ID && strncmp(id, cli->arguments[i], strlen(cli->arguments[i])) == 0)
            return true;
    return false;
}

static void add_row(struct cli_table *table, struct json_object *container, bool chosen)
{
    const char *id = cli_str(container, "id");

    cli_table_addf(table, "%.12s", id ? id : "-");
    cli_table_add(table, cli_str(container, "state"));
    cli_table_addf(table, "%.8s", cli_str(container, "install") ? cli_str(container, "install") : "-");
    cli_table_add(table, cli_str(container, "name"));
    cli_table_add(table, cli_bool(container, "below_root") ? "below this broker's root" : "maybe another broker's");
    cli_table_add(table, chosen ? "remove" : "leave");
}

static int remove_all(struct cli *cli, struct json_object *ids, struct error *err)
{
    auto_json struct json_object *body = json_object_new_object();
    auto_json struct json_object *answer = NULL;
    struct json_object *failed;

    (void)json_object_object_add(body, "containers", json_object_get(ids));
    if (cli_call_within(cli, REMOVE_MS, "POST", "/orphans/remove", body, &answer, err) < 0)
        return -1;
    if (cli_has(cli, "json"))
        cli_put_json(cli, answer);
    else
        (void)printf("removed: %zu\n", cli_length(cli_member(answer, "removed")));
    failed = cli_member(answer, "failed");
    for (size_t i = 0; i < cli_length(failed); i++) {
        struct json_object *row = json_object_array_get_idx(failed, i);

        (void)fprintf(stderr, "berth: %.12s: ", cli_str(row, "id") ? cli_str(row, "id") : "-");
        cli_put(cli, stderr, cli_str(row, "detail") ? cli_str(row, "detail") : "it is still there");
        (void)fputc('\n', stderr);
    }
    return cli_length(failed) ? CLI_FAILED : CLI_OK;
}

int verb_clean(struct cli *cli, struct error *err)
{
    static const char *const heads[] = {"CONTAINER", "STATE", "INSTALL", "NAME", "WHOSE", ""};
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = 6};
    auto_json struct json_object *answer = NULL;
    auto_json struct json_object *ids = json_object_new_array();
    struct json_object *containers;
    bool does = cli_has(cli, "yes");

    for (unsigned i = 0; i < cli->argument_count; i++)
        if (strlen(cli->arguments[i]) < SHORT_ID)
            return fail(err, INVALID, "\"%.40s\" is too short for a container: %d digits at least", cli->arguments[i],
                        SHORT_ID);
    if (cli_call(cli, "GET", "/orphans", NULL, &answer, err) < 0)
        return -1;
    containers = cli_member(answer, "containers");
    for (size_t i = 0; i < cli_length(containers); i++) {
        struct json_object *container = json_object_array_get_idx(containers, i);
        const char *id = cli_str(container, "id");
        bool chosen = id && (cli->argument_count ? is_named(cli, id) : cli_bool(container, "below_root"));

        add_row(&table, container, chosen);
        if (chosen)
            (void)json_object_array_add(ids, json_object_new_string(id));
    }
    if (cli->argument_count && json_object_array_length(ids) < cli->argument_count)
        return fail(err, NOT_FOUND, "not all of them are among what berth clean lists");
    if (cli_has(cli, "json") && !does)
        cli_put_json(cli, answer);
    else if (!cli_has(cli, "json") && table.count)
        cli_table_print(&table);
    if (does && json_object_array_length(ids))
        return remove_all(cli, ids, err);
    if (!cli_has(cli, "json"))
        (void)puts(json_object_array_length(ids) ? "nothing was removed: to do it, berth clean --yes"
                                                 : "there is nothing to remove");
    return CLI_OK;
}
