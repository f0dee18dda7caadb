/* What happened to sessions: the feed. */
#include "cli_private.h"

#include "alloc.h"

#include <string.h>
#include <time.h>

enum { PAGE_MOST = 1000, PAUSE_MS = 1000 };

static char *target_of(const struct cli *cli, bool follow, const char *after)
{
    auto_buf struct buf target = BUF_INIT(64 * 1024);
    const char *const names[] = {"op", "session", "tenant"};
    struct error err = ERROR_INIT;

    (void)buf_append_format(&target, &err, "/events?follow=%s", follow ? "true" : "false");
    for (size_t i = 0; i < 3; i++) {
        auto_free char *value = cli_value(cli, names[i]) ? cli_target("%s", cli_value(cli, names[i])) : NULL;

        if (value)
            (void)buf_append_format(&target, &err, "&%s=%s", names[i], value);
    }
    if (after) {
        auto_free char *value = cli_target("%s", after);

        (void)buf_append_format(&target, &err, "&after=%s", value);
    }
    return buf_take(&target, NULL);
}

static void put_time(double unix_seconds)
{
    time_t seconds = (time_t)unix_seconds;
    struct tm parts;
    char text[40] = "-";

    if (unix_seconds > 0 && localtime_r(&seconds, &parts))
        (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    (void)printf("%s", text);
}

static void put_event(const struct cli *cli, struct json_object *event)
{
    const char *session = cli_str(event, "session");
    const char *detail = cli_str(event, "detail");
    const char *tenant = cli_str(event, "tenant");

    if (cli_has(cli, "json")) {
        cli_put_json(cli, event);
        return;
    }
    put_time(cli_real(event, "at"));
    (void)fputs("  ", stdout);
    cli_put(cli, stdout, cli_str(event, "op") ? cli_str(event, "op") : "-");
    (void)fputs("  ", stdout);
    cli_put(cli, stdout, session ? session : "-");
    if (tenant) {
        (void)fputs("  tenant ", stdout);
        cli_put(cli, stdout, tenant);
    }
    if (detail && *detail) {
        (void)fputs("  ", stdout);
        cli_put(cli, stdout, detail);
    }
    (void)fputc('\n', stdout);
}

/* -- what there is -- */

static int last(struct cli *cli, struct error *err)
{
    auto_free char *first = target_of(cli, false, cli_value(cli, "after"));
    auto_json struct json_object *page = NULL;
    struct json_object *events;
    int64_t count;
    size_t total;

    if (cli_number(cli, "last", 1, PAGE_MOST, 20, &count, err) < 0 || cli_call(cli, "GET", first, NULL, &page, err) < 0)
        return -1;
    if (!cli_value(cli, "after")) {
        /* Nothing is after now: it says where now is. With a filter any number of them may have to be read for the last `count`. */
        bool filtered = cli_has(cli, "op") || cli_has(cli, "session") || cli_has(cli, "tenant");
        int64_t latest = cli_int(page, "latest_seq", 0);
        auto_free char *after = alloc_format("%lld", (long long)(filtered || latest < count ? 0 : latest - count));
        auto_json struct json_object *all = json_object_new_array();

        for (bool more = true; more;) {
            auto_free char *target = target_of(cli, false, after);

            (void)json_object_put(take_ptr(page));
            if (cli_call(cli, "GET", target, NULL, &page, err) < 0)
                return -1;
            events = cli_member(page, "events");
            total = cli_length(events);
            for (size_t i = 0; i < total; i++)
                (void)json_object_array_add(all, json_object_get(json_object_array_get_idx(events, i)));
            more = total >= PAGE_MOST;
            if (more) {
                free(after);
                after =
                    alloc_format("%lld", (long long)cli_int(json_object_array_get_idx(events, total - 1), "seq", 0));
            }
        }
        (void)json_object_object_add(page, "events", take_ptr(all));
    }
    events = cli_member(page, "events");
    total = cli_length(events);
    for (size_t i = total > (size_t)count ? total - (size_t)count : 0; i < total; i++)
        put_event(cli, json_object_array_get_idx(events, i));
    return CLI_OK;
}

/* -- what comes -- */

static int take_event(void *context, const struct cli_stream *stream, struct error *err)
{
    const struct cli *cli = context;
    auto_json struct json_object *event = NULL;

    if (json_parse(buf_str(&stream->data), stream->data.size, &event, NULL, err) < 0)
        return -1;
    if (strcmp(stream->event, "message") == 0) {
        put_event(cli, event);
    } else {
        (void)fflush(stdout);
        (void)fprintf(stderr, "berth: some events were missed (");
        cli_put(cli, stderr, cli_str(event, "reason") ? cli_str(event, "reason") : stream->event);
        (void)fputs("); those that are kept follow\n", stderr);
    }
    return fflush(stdout) == 0 ? 0 : fail_errno(err, "standard output");
}

/* One connection, to its end. -1: do not come back. */
static int follow_once(struct cli *cli, struct cli_stream *stream, bool *ret_answered, struct error *err)
{
    const char *after = stream->id[0] ? stream->id : cli_value(cli, "after");
    auto_free char *target = target_of(cli, true, after);
    const struct cli_request request = {.method = "GET", .target = target, .accept = "text/event-stream"};
    auto_transfer struct cli_transfer *transfer = NULL;
    int status;

    if (cli_transfer_start(cli, &request, &transfer, err) < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return err->code == ERROR_UNAVAILABLE || err->code == ERROR_TIMEOUT ? 0 : -1;
    if (status != 200) {
        (void)cli_transfer_refused(transfer, status, err);
        return status == 503 ? 0 : -1;
    }
    *ret_answered = true;
    return cli_stream_each(stream, transfer, true, take_event, cli, err) < 0 ? -1 : 0;
}

static int follow(struct cli *cli, struct error *err)
{
    auto_cleanup(cli_stream_done) struct cli_stream stream = CLI_STREAM_INIT;
    bool answered = false;

    if (!cli_value(cli, "after")) {
        /* Where now is: what happens before the first event came must not be lost with a connection. */
        auto_json struct json_object *page = NULL;

        if (cli_call(cli, "GET", "/events?follow=false", NULL, &page, err) < 0)
            return -1;
        (void)snprintf(stream.id, sizeof stream.id, "%lld", (long long)cli_int(page, "latest_seq", 0));
    }
    for (;;) {
        struct error lost = ERROR_INIT;

        if (follow_once(cli, &stream, &answered, &lost) < 0 || !answered) {
            *err = lost;
            return -1;
        }
        cli_stream_reset(&stream);
        (void)poll(NULL, 0, PAUSE_MS); /* not to press a broker that is on its way up */
    }
}

int verb_events(struct cli *cli, struct error *err)
{
    return cli_has(cli, "follow") ? follow(cli, err) : last(cli, err);
}
