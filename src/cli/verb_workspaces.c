/* Stored workspaces: list, pin, unpin, delete. */
#include "cli_private.h"

#include "alloc.h"

#include <string.h>

enum { PAGE_MOST = 1000 };

static char *list_target(const struct cli *cli, const char *cursor, int64_t limit)
{
    auto_buf struct buf target = BUF_INIT(64 * 1024);
    struct error err = ERROR_INIT;
    const char *const names[] = {"tenant", "prefix", "sort"};

    (void)buf_append_format(&target, &err, "/workspaces?limit=%lld", (long long)limit);
    for (size_t i = 0; i < 3; i++) {
        auto_free char *value = cli_value(cli, names[i]) ? cli_target("%s", cli_value(cli, names[i])) : NULL;

        if (value)
            (void)buf_append_format(&target, &err, "&%s=%s", names[i], value);
    }
    if (cursor) {
        auto_free char *value = cli_target("%s", cursor);

        (void)buf_append_format(&target, &err, "&cursor=%s", value);
    }
    return buf_take(&target, NULL);
}

static void add_row(struct cli_table *table, struct json_object *workspace)
{
    char size[24];
    char used[24];

    cli_size(cli_int(workspace, "size_bytes", -1), size);
    cli_since(cli_real(workspace, "last_use"), used);
    cli_table_add(table, cli_str(workspace, "id"));
    cli_table_add(table, cli_str(workspace, "tenant"));
    cli_table_add(table, cli_str(workspace, "runtime"));
    cli_table_add(table, cli_bool(workspace, "open") ? "open" : "closed");
    cli_table_add(table, size);
    if (cli_member(workspace, "file_count"))
        cli_table_addf(table, "%lld", (long long)cli_int(workspace, "file_count", 0));
    else
        cli_table_add(table, NULL);
    cli_table_add(table, used);
    cli_table_addf(table, "%s%s%s", cli_bool(workspace, "pinned") ? "pinned" : "",
                   cli_bool(workspace, "pinned") && cli_bool(workspace, "over_quota") ? ", " : "",
                   cli_bool(workspace, "over_quota") ? "over quota" : "");
}

static void put_page(const struct cli *cli, struct json_object *page, struct cli_table *table)
{
    struct json_object *list = cli_member(page, "workspaces");

    for (size_t i = 0; i < cli_length(list); i++) {
        struct json_object *workspace = json_object_array_get_idx(list, i);

        if (cli_has(cli, "json")) {
            cli_put_json(cli, workspace);
        } else if (cli_has(cli, "quiet")) {
            cli_put(cli, stdout, cli_str(workspace, "id") ? cli_str(workspace, "id") : "");
            (void)fputc('\n', stdout);
        } else {
            add_row(table, workspace);
        }
    }
}

static int list(struct cli *cli, struct error *err)
{
    static const char *const heads[] = {"WORKSPACE", "TENANT", "RUNTIME", "STATE", "SIZE", "FILES", "USED", ""};
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = 8};
    auto_free char *cursor = NULL;
    int64_t left;

    if (cli_number(cli, "limit", 1, INT32_MAX, INT32_MAX, &left, err) < 0)
        return -1;
    do {
        auto_free char *target = list_target(cli, cursor, left < PAGE_MOST ? left : PAGE_MOST);
        auto_json struct json_object *page = NULL;

        if (cli_call(cli, "GET", target, NULL, &page, err) < 0)
            return -1;
        put_page(cli, page, &table);
        left -= (int64_t)cli_length(cli_member(page, "workspaces"));
        free(cursor);
        cursor = alloc_str(cli_str(page, "next"));
    } while (cursor && left > 0);
    if (!cli_has(cli, "json") && !cli_has(cli, "quiet"))
        cli_table_print(&table);
    return CLI_OK;
}

static int pin(struct cli *cli, bool pinned, struct error *err)
{
    auto_json struct json_object *body = json_object_new_object();

    (void)json_object_object_add(body, "pinned", json_object_new_boolean(pinned));
    for (unsigned i = 0; i < cli->argument_count; i++) {
        auto_free char *target = cli_target("/workspaces/%s", cli->arguments[i]);
        auto_json struct json_object *answer = NULL;

        if (cli_check_session(cli->arguments[i], err) < 0)
            return -1;
        if (cli_call(cli, "PUT", target, body, &answer, err) < 0)
            return error_prefix(err, "%s", cli->arguments[i]);
        if (cli_has(cli, "json"))
            cli_put_json(cli, answer);
    }
    return CLI_OK;
}

int verb_workspaces(struct cli *cli, struct error *err)
{
    const char *action = cli->argument_count ? cli->arguments[0] : "list";
    bool is_list = strcmp(action, "list") == 0;

    if (!is_list && strcmp(action, "pin") != 0 && strcmp(action, "unpin") != 0 && strcmp(action, "delete") != 0)
        return fail(err, INVALID, "workspaces: \"%.40s\" is none of list, pin, unpin, delete", action);
    if (is_list && cli->argument_count > 1)
        return fail(err, INVALID, "workspaces list takes options only; --prefix, for one");
    if (is_list)
        return list(cli, err);
    if (cli->argument_count < 2)
        return fail(err, INVALID, "workspaces %s needs the id of a workspace", action);
    if (strcmp(action, "delete") == 0 && !cli_has(cli, "yes"))
        return fail(err, INVALID, "workspaces delete removes files for good: say it with --yes");
    memmove(cli->arguments, cli->arguments + 1, cli->argument_count * sizeof *cli->arguments);
    cli->argument_count--;
    return strcmp(action, "delete") == 0 ? cli_delete_workspaces(cli, err) : pin(cli, strcmp(action, "pin") == 0, err);
}
