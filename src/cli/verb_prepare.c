/* Images of runtimes, ahead of their use: GET /runtimes, POST /runtimes/{alias}/prepare. */
#include "cli_private.h"

#include "alloc.h"

#include <string.h>

static int list(struct cli *cli, struct json_object *answer)
{
    static const char *const heads[] = {"RUNTIME", "IMAGE", "STATE", "ID"};
    auto_cleanup(cli_table_done) struct cli_table table = {.heads = heads, .columns = 4};
    struct json_object *runtimes = cli_member(answer, "runtimes");

    if (cli_has(cli, "json")) {
        cli_put_json(cli, answer);
        return CLI_OK;
    }
    for (size_t i = 0; i < cli_length(runtimes); i++) {
        struct json_object *runtime = json_object_array_get_idx(runtimes, i);
        const char *id = cli_str(runtime, "image_id");

        cli_table_add(&table, cli_str(runtime, "alias"));
        cli_table_add(&table, cli_str(runtime, "image"));
        cli_table_add(&table, id ? "here" : cli_str(runtime, "detail") ? cli_str(runtime, "detail") : "not here");
        cli_table_addf(&table, "%.19s", id ? id : "-");
    }
    cli_table_print(&table);
    return CLI_OK;
}

struct preparing {
    const struct cli *cli;
    const char *alias;
};

/* One line of progress, or the last. 1: it is prepared. */
static int take_record(void *context, const struct cli_stream *stream, struct error *err)
{
    const struct preparing *preparing = context;
    const struct cli *cli = preparing->cli;
    const char *alias = preparing->alias;
    auto_json struct json_object *record = NULL;

    if (json_parse(buf_str(&stream->data), stream->data.size, &record, NULL, err) < 0)
        return -1;
    if (cli_has(cli, "json")) {
        (void)json_object_object_add(record, "event", json_object_new_string(stream->event));
        cli_put_json(cli, record);
    } else if (strcmp(stream->event, "progress") == 0) {
        (void)printf("%s: ", alias);
        cli_put(cli, stdout, cli_str(record, "text") ? cli_str(record, "text") : "...");
        (void)fputc('\n', stdout);
    } else if (strcmp(stream->event, "ready") == 0) {
        (void)printf("%s: ready (", alias);
        cli_put(cli, stdout, cli_str(record, "image") ? cli_str(record, "image") : "-");
        (void)fputs(cli_bool(record, "was_here") ? ", was here)\n" : ")\n", stdout);
    }
    (void)fflush(stdout);
    if (strcmp(stream->event, "failed") == 0)
        return error_set(err, ERROR_ENGINE, 0, "%s: %.200s", alias,
                         cli_str(record, "detail") ? cli_str(record, "detail") : "failed");
    return strcmp(stream->event, "ready") == 0;
}

static int prepare(struct cli *cli, const char *alias, struct error *err)
{
    auto_free char *target = cli_target("/runtimes/%s/prepare", alias);
    const struct cli_request request = {.method = "POST", .target = target, .accept = "text/event-stream"};
    auto_cleanup(cli_stream_done) struct cli_stream stream = CLI_STREAM_INIT;
    auto_transfer struct cli_transfer *transfer = NULL;
    struct preparing preparing = {cli, alias};
    int status;

    if (cli_transfer_start(cli, &request, &transfer, err) < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return -1;
    if (status != 200) {
        (void)cli_transfer_refused(transfer, status, err);
        return error_prefix(err, "%s", alias);
    }
    switch (cli_stream_each(&stream, transfer, true, take_record, &preparing, err)) {
    case CLI_STREAM_ENOUGH:
        return 0;
    case CLI_STREAM_ENDED:
        return fail(err, UNAVAILABLE, "%s: the broker ended before it was done; it goes on there", alias);
    default:
        return -1;
    }
}

int verb_prepare(struct cli *cli, struct error *err)
{
    auto_json struct json_object *answer = NULL;
    struct json_object *runtimes;

    if (cli_has(cli, "all") && cli->argument_count)
        return fail(err, INVALID, "prepare: --all, or the names of runtimes, not both");
    for (unsigned i = 0; i < cli->argument_count; i++)
        if (prepare(cli, cli->arguments[i], err) < 0)
            return -1;
    if (cli->argument_count)
        return CLI_OK;
    if (cli_call(cli, "GET", "/runtimes", NULL, &answer, err) < 0)
        return -1;
    if (!cli_has(cli, "all"))
        return list(cli, answer);
    runtimes = cli_member(answer, "runtimes");
    for (size_t i = 0; i < cli_length(runtimes); i++)
        if (prepare(cli, cli_str(json_object_array_get_idx(runtimes, i), "alias"), err) < 0)
            return -1;
    return CLI_OK;
}
