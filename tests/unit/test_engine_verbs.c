#include "engine.h"
#include "unix_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>

static const struct cancel never = CANCEL_NEVER;
static struct cancel soon;
static struct unix_server *server;
static struct engine *engine;

#define ITS_VERSION                                                                                                  \
    ANSWER("200 OK",                                                                                                 \
           "{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\",\"Version\":\"20.10.24\",\"Components\":[{\"Name\":" \
           "\"Engine\",\"Version\":\"20.10.24\"}]}")
#define ITS_INFO ANSWER("200 OK", "{\"SecurityOptions\":[\"name=seccomp,profile=default\"]}")

/* An engine that answers so, after the two questions of the negotiation. */
static void say(struct unix_script *scripts, size_t count)
{
    struct engine_settings settings;
    struct error err = ERROR_INIT;

    soon = cancel_within(&never, 10000);
    server = unix_server_start(scripts, count);
    settings.socket_path = unix_server_path(server);
    cr_assert(eq(int, engine_new(&settings, &engine, &err), 0));
}

static void teardown(void)
{
    engine_free(engine);
    if (server)
        unix_server_stop(server);
}

TestSuite(engine, .fini = teardown);

#define SAY(...)                                                                               \
    struct unix_script scripts[] = {{.bytes = ITS_VERSION}, {.bytes = ITS_INFO}, __VA_ARGS__}; \
    say(scripts, sizeof scripts / sizeof scripts[0])

static const struct {
    const char *version;
    enum error_code code;
    const char *api;
    bool is_podman;
} versions[] = {
    {"{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\",\"Version\":\"20.10.24\"}", ERROR_NONE, "1.41", false},
    {"{\"ApiVersion\":\"1.52\",\"MinAPIVersion\":\"1.44\",\"Version\":\"29.0\"}", ERROR_NONE, "1.47", false},
    {"{\"ApiVersion\":\"1.41\",\"Version\":\"4.3.1\",\"Components\":[{\"Name\":\"Podman "
     "Engine\",\"Version\":\"4.3.1\"}]}",
     ERROR_NONE, "1.41", true},
    {"{\"ApiVersion\":\"1.9\",\"MinAPIVersion\":\"1.9\",\"Version\":\"old\"}", ERROR_ENGINE, "", false},
    {"{\"ApiVersion\":\"1.60\",\"MinAPIVersion\":\"1.55\",\"Version\":\"40\"}", ERROR_ENGINE, "", false},
    {"{\"Version\":\"?\"}", ERROR_ENGINE, "", false},
    {"[]", ERROR_ENGINE, "", false},
    {"<html>", ERROR_ENGINE, "", false},
};

Test(engine, negotiates_what_both_speak)
{
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        char bytes[1000];
        struct unix_script scripts[] = {{.bytes = bytes}, {.bytes = ITS_INFO}};
        struct engine_version version;
        struct error err = ERROR_INIT;

        (void)snprintf(bytes, sizeof bytes, ANSWER("200 OK", "%s"), versions[i].version);
        say(scripts, 2);
        (void)engine_version(engine, &soon, &version, &err);
        cr_assert(eq(int, (int)err.code, (int)versions[i].code), "%s", versions[i].version);
        if (err.code == ERROR_NONE) {
            cr_assert(eq(str, version.api, (char *)versions[i].api));
            cr_assert(eq(int, version.is_podman, versions[i].is_podman));
        }
        teardown();
        engine = NULL;
        server = NULL;
    }
}

Test(engine, asks_for_the_version_once)
{
    SAY({.bytes = ANSWER("204 No Content", "")}, {.bytes = ANSWER("304 Not Modified", "")});
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_start(engine, "abc", &soon, &err), 0));
    cr_assert(eq(int, engine_stop(engine, "abc", 2, &soon, &err), 0));
    unix_server_wait(server, 4);
    cr_assert(eq(int, strncmp(unix_server_request(server, 0), "GET /version ", 13), 0));
    cr_assert(eq(int, strncmp(unix_server_request(server, 2), "POST /v1.41/containers/abc/start ", 33), 0));
    cr_assert(eq(int, strncmp(unix_server_request(server, 3), "POST /v1.41/containers/abc/stop?t=2 ", 36), 0));
}

Test(engine, an_id_is_never_a_path)
{
    SAY({.bytes = ANSWER("404 Not Found", "{\"message\":\"no\"}")});
    struct engine_container container;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_inspect(engine, "../images/x?y", &soon, &container, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_NOT_FOUND));
    unix_server_wait(server, 3);
    cr_assert(
        eq(int, strncmp(unix_server_request(server, 2), "GET /v1.41/containers/..%2Fimages%2Fx%3Fy/json ", 47), 0));
    cr_assert(eq(int, engine_kill(engine, "", &soon, &err), -1));
    cr_assert(eq(int, engine_remove(engine, "..", &soon, &err), -1));
}

Test(engine, inspects)
{
    SAY({.bytes = ANSWER("200 OK", "{\"Id\":\"abc\",\"Name\":\"/"
                                   "berth-x\",\"State\":{\"Status\":\"exited\",\"OOMKilled\":true,\"ExitCode\":137,"
                                   "\"FinishedAt\":\"2024-05-01T10:00:00.25Z\"},\"Config\":{\"Labels\":{\"berth."
                                   "install\":\"i\",\"berth.slot\":"
                                   "\"s\",\"other\":\"x\"}}}")},
        {.bytes =
             ANSWER("200 OK",
                    "{\"Id\":\"abc\",\"Name\":\"/x\",\"State\":{\"Status\":\"created\",\"FinishedAt\":\"0001-01-01T00:"
                    "00:00Z\"},\"Config\":{\"Labels\":null}}")});
    struct engine_container container;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_inspect(engine, "abc", &soon, &container, &err), 0));
    cr_assert(eq(str, container.name, "berth-x"));
    cr_assert(eq(int, (int)container.state, ENGINE_EXITED));
    cr_assert(container.oom_killed);
    cr_assert(eq(int, container.exit_code, 137));
    cr_assert(eq(i64, container.finished_at_unix_ms, 1714557600250));
    cr_assert(eq(str, container.label_slot, "s"));
    cr_assert(eq(int, engine_inspect(engine, "abc", &soon, &container, &err), 0));
    cr_assert(eq(i64, container.finished_at_unix_ms, 0));
    cr_assert(eq(str, container.label_install, ""));
}

Test(engine, lists_what_carries_the_label_and_nothing_else)
{
    SAY({.bytes = ANSWER("200 OK",
                         "[{\"Id\":\"a\",\"State\":\"running\",\"Names\":[\"/"
                         "n\"],\"Labels\":{\"berth.install\":\"i\",\"berth.slot\":\"s\"}},"
                         "{\"Id\":\"b\",\"State\":\"running\",\"Names\":[],\"Labels\":{\"berth.install\":\"other\"}},"
                         "{\"Id\":\"c\",\"State\":\"paused\",\"Labels\":{\"berth.install\":\"i\"}}]\n")});
    struct engine_container *list;
    struct error err = ERROR_INIT;
    size_t count;

    cr_assert(eq(int, engine_list(engine, "i", &soon, &list, &count, &err), 0));
    cr_assert(eq(sz, count, 2));
    cr_assert(eq(str, list[0].id, "a"));
    cr_assert(eq(str, list[0].name, "n"));
    cr_assert(eq(str, list[1].id, "c"));
    cr_assert(eq(int, (int)list[1].state, ENGINE_PAUSED));
    cr_assert(strstr(unix_server_request(server, 2), "filters=%7B%22label%22%3A%5B%22berth.install%3Di%22%5D%7D") !=
              NULL);
    free(list);
}

Test(engine, tells_strangers_from_ours_and_where_they_have_their_workspace)
{
    SAY({.bytes =
             ANSWER("200 OK", "[{\"Id\":\"a\",\"State\":\"running\",\"Labels\":{\"berth.install\":\"i\"}},"
                              "{\"Id\":\"b\",\"State\":\"exited\",\"Labels\":{\"berth.install\":\"other\"},\"Mounts\":["
                              "{\"Source\":\"/s/agent\",\"Destination\":\"/.berth-agent\"},"
                              "{\"Source\":\"/r/.slots/x/workspace\",\"Destination\":\"/workspace\"}]},"
                              "{\"Id\":\"c\",\"State\":\"running\",\"Labels\":{}}]\n")});
    struct engine_stranger *list;
    struct error err = ERROR_INIT;
    size_t count;

    cr_assert(eq(int, engine_strangers(engine, "i", &soon, &list, &count, &err), 0));
    cr_assert(eq(sz, count, 1));
    cr_assert(eq(str, list[0].container.id, "b"));
    cr_assert(eq(str, list[0].workspace_source, "/r/.slots/x/workspace"));
    cr_assert(strstr(unix_server_request(server, 2), "filters=%7B%22label%22%3A%5B%22berth.install%22%5D%7D") != NULL);
    free(list);
}

static const struct {
    const char *bytes;
    enum error_code code;
} no_lists[] = {
    {ANSWER("500 Internal Server Error", "{\"message\":\"broken\"}"), ERROR_ENGINE},
    {ANSWER("200 OK", "{}"), ERROR_ENGINE},
    {ANSWER("200 OK", "null"), ERROR_ENGINE},
    {ANSWER("200 OK", ""), ERROR_ENGINE},
    {ANSWER("200 OK", "[{\"Id\":\"a\",\"Labels\":\"x\"}]"), ERROR_ENGINE},
    {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]", ERROR_UNAVAILABLE},
    {"", ERROR_UNAVAILABLE},
};

Test(engine, could_not_list_is_never_an_empty_list)
{
    for (size_t i = 0; i < sizeof no_lists / sizeof no_lists[0]; i++) {
        SAY({.bytes = no_lists[i].bytes});
        struct engine_container *list;
        struct error err = ERROR_INIT;
        size_t count;

        cr_assert(eq(int, engine_list(engine, "i", &soon, &list, &count, &err), -1), "%s", no_lists[i].bytes);
        cr_assert(eq(int, (int)err.code, (int)no_lists[i].code), "%s", err.text);
        teardown();
        engine = NULL;
        server = NULL;
    }
}

Test(engine, removing_what_is_gone_or_going_ends_when_it_is_gone)
{
    SAY({.bytes = ANSWER("404 Not Found", "{\"message\":\"No such container\"}")},
        {.bytes = ANSWER("409 Conflict", "{\"message\":\"removal of container abc is already in progress\"}")},
        {.bytes = ANSWER("200 OK", "{\"StatusCode\":0}")},
        {.bytes = ANSWER("409 Conflict", "{\"message\":\"another reason\"}")});
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_remove(engine, "abc", &soon, &err), 0));
    cr_assert(eq(int, engine_remove(engine, "abc", &soon, &err), 0));
    cr_assert(
        eq(int, strncmp(unix_server_request(server, 4), "POST /v1.41/containers/abc/wait?condition=removed ", 50), 0));
    cr_assert(eq(int, engine_remove(engine, "abc", &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_CONFLICT));
}

Test(engine, a_pull_that_fails_on_the_way_has_failed)
{
    SAY({.bytes = ANSWER("200 OK", "{\"status\":\"Pulling\",\"id\":\"x\"}\r\n{\"error\":\"disk full\"}\r\n")},
        {.bytes = ANSWER("200 OK", "{\"status\":\"Pulling\"}\r\n{\"stat")},
        {.bytes = ANSWER("200 OK", "{\"status\":\"Pulling\"}\r\n{\"status\":\"Done\"}\r\n")});
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_image_pull(engine, "host:5000/a/b:1.0", NULL, NULL, &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
    cr_assert(strstr(err.text, "disk full") != NULL);
    cr_assert(strstr(unix_server_request(server, 2), "fromImage=host%3A5000%2Fa%2Fb&tag=1.0 ") != NULL);
    error_clear(&err);
    cr_assert(eq(int, engine_image_pull(engine, "host:5000/a", NULL, NULL, &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
    cr_assert(strstr(unix_server_request(server, 3), "fromImage=host%3A5000%2Fa&tag=latest ") != NULL);
    /* The failed connection made it negotiate again: the next answer is not a version. */
}

Test(engine, events_come_one_by_one_and_their_end_is_an_error)
{
    SAY({.bytes =
             ANSWER("200 OK",
                    "{\"Action\":\"die\",\"Actor\":{\"ID\":\"a\"}}\n\n{\"Action\":\"oom\",\"Actor\":{\"ID\":\"b\"}}\n"
                    "{\"Action\":\"exec_create: sh\",\"Actor\":{\"ID\":\"c\"}}\n")});
    struct engine_events *events;
    struct engine_event event;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_events_open(engine, "i", &soon, &events, &err), 0));
    cr_assert(eq(int, engine_events_next(events, &soon, &event, &err), 1));
    cr_assert(eq(int, (int)event.kind, ENGINE_EVENT_DIED));
    cr_assert(eq(int, engine_events_next(events, &soon, &event, &err), 1));
    cr_assert(eq(int, (int)event.kind, ENGINE_EVENT_OOM));
    cr_assert(eq(str, event.id, "b"));
    cr_assert(eq(int, engine_events_next(events, &soon, &event, &err), 1));
    cr_assert(eq(int, (int)event.kind, ENGINE_EVENT_OTHER));
    cr_assert(eq(int, engine_events_next(events, &soon, &event, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
    engine_events_free(events);
}

static ssize_t take(struct net_stream *stream, char *data, size_t size)
{
    for (;;) {
        struct pollfd fds = {.fd = net_stream_fd(stream), .events = POLLIN};
        struct error err = ERROR_INIT;
        ssize_t got = net_stream_read(stream, data, size);

        if (got >= 0 || errno != EAGAIN)
            return got;
        cr_assert(eq(int, cancel_poll(&soon, &fds, 1, &err), 1));
    }
}

Test(engine, an_attached_stream_is_standard_output_alone)
{
    static const char bytes[] =
        "HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\4oops\1\0\0\0\0\0\0\0"
        "\1\0\0\0\0\0\0\5defgh";
    SAY({.bytes = bytes, .size = sizeof bytes - 1});
    struct net_stream *stream;
    struct error err = ERROR_INIT;
    char data[16] = "";
    size_t size = 0;

    cr_assert(eq(int, engine_attach(engine, "abc", &soon, &stream, &err), 0));
    for (ssize_t got; (got = take(stream, data + size, size < 4 ? 2 : sizeof data - size)) > 0;)
        size += (size_t)got;
    cr_assert(eq(sz, size, 8));
    cr_assert(eq(str, data, "abcdefgh"));
    cr_assert(eq(int, (int)take(stream, data, sizeof data), 0));
    net_stream_close(stream);
}

Test(engine, an_attached_stream_of_another_format_is_broken)
{
    SAY({.bytes = "HTTP/1.1 200 OK\r\n\r\nplain text", .after = UNIX_HOLD});
    struct net_stream *stream;
    struct error err = ERROR_INIT;
    char data[16];

    cr_assert(eq(int, engine_attach(engine, "abc", &soon, &stream, &err), 0));
    cr_assert(eq(int, (int)take(stream, data, sizeof data), -1));
    cr_assert(eq(int, errno, EPROTO));
    net_stream_close(stream);
}

Test(engine, a_paused_container_is_a_conflict)
{
    SAY({.bytes = "HTTP/1.1 409 Conflict\r\n\r\ncontainer abc is paused\r\n"});
    struct net_stream *stream;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_attach(engine, "abc", &soon, &stream, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_CONFLICT));
    cr_assert(eq(str, err.text, "cannot attach to the container: container abc is paused"));
}

Test(engine, one_that_came_back_is_asked_again_who_it_is)
{
    struct unix_script scripts[] = {{.bytes = ITS_VERSION}, {.bytes = ITS_INFO},
                                    {.bytes = ""},          {.bytes = ITS_VERSION},
                                    {.bytes = ITS_INFO},    {.bytes = ANSWER("204 No Content", "")}};
    struct error err = ERROR_INIT;

    say(scripts, 6);
    cr_assert(eq(int, engine_start(engine, "abc", &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_UNAVAILABLE));
    cr_assert(eq(int, engine_start(engine, "abc", &soon, &err), 0));
    cr_assert(eq(int, strncmp(unix_server_request(server, 3), "GET /version ", 13), 0));
}

Test(engine, tells_what_is_mounted_in_any_container)
{
    SAY({.bytes =
             ANSWER("200 OK", "{\"Id\":\"abc\",\"Mounts\":[{\"Type\":\"volume\",\"Name\":\"w\",\"Source\":\"/v/w\","
                              "\"Destination\":\"/workspaces\",\"RW\":true},{\"Type\":\"tmpfs\",\"Source\":\"\","
                              "\"Destination\":\"/t\"}]}")},
        {.bytes = ANSWER("200 OK", "{\"Id\":\"abc\",\"Mounts\":[1]}")}, {.bytes = ANSWER("404 Not Found", "{}")});
    struct engine_mounts mounts = ENGINE_MOUNTS_INIT;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_inspect_mounts(engine, "abc", &soon, &mounts, &err), 0));
    cr_assert(eq(sz, mounts.count, 2));
    cr_assert(eq(str, mounts.list[0].source, "/v/w"));
    cr_assert(eq(str, mounts.list[0].destination, "/workspaces"));
    cr_assert(eq(str, mounts.list[1].type, "tmpfs"));
    engine_mounts_done(&mounts);
    cr_assert(eq(int, engine_inspect_mounts(engine, "abc", &soon, &mounts, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
    cr_assert(eq(sz, mounts.count, 0));
    error_clear(&err);
    cr_assert(eq(int, engine_inspect_mounts(engine, "abc", &soon, &mounts, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_NOT_FOUND));
}

Test(engine, asks_for_a_path_of_its_host_without_making_anything)
{
    SAY({.bytes = ANSWER("404 Not Found", "{\"message\":\"No such image: berth.invalid/probe:none\"}")},
        {.bytes =
             ANSWER("400 Bad Request", "{\"message\":\"invalid mount config for type \\\"bind\\\": bind source path "
                                       "does not exist: /a\"}")},
        {.bytes = ANSWER("400 Bad Request", "{\"message\":\"something else\"}")});
    enum engine_sight sight;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_sees(engine, "/a", &soon, &sight, &err), 0));
    cr_assert(eq(int, (int)sight, ENGINE_SEEN));
    cr_assert(eq(int, engine_sees(engine, "/a", &soon, &sight, &err), 0));
    cr_assert(eq(int, (int)sight, ENGINE_NOT_SEEN));
    cr_assert(eq(int, engine_sees(engine, "/a", &soon, &sight, &err), 0));
    cr_assert(eq(int, (int)sight, ENGINE_UNTOLD));
    unix_server_wait(server, 5);
    cr_assert(strstr(unix_server_request(server, 2), "\"Source\":\"/a\"") ||
              strstr(unix_server_request(server, 2), "\"Source\":\"\\/a\""));
}

static unsigned said_count;
static char said_last[200];

static void note_said(void *context, const char *text)
{
    said_count++;
    (void)snprintf(said_last, sizeof said_last, "%s", text);
}

Test(engine, builds_and_says_how_far_it_is)
{
    SAY({.bytes = ANSWER("200 OK", "{\"stream\":\"Step 1/2 : FROM x\\n\"}\r\n{\"stream\":\"\\n\"}\r\n"
                                   "{\"aux\":{\"ID\":\"sha256:1\"}}\r\n{\"stream\":\"Successfully built 1\\n\"}\r\n")},
        {.bytes = ANSWER("200 OK", "{\"stream\":\"cc: not found\\n\"}\r\n{\"errorDetail\":{\"code\":7},\"error\":\"it "
                                   "returned 7\"}\r\n")},
        {.bytes = ANSWER("500 Internal Server Error", "{\"message\":\"dockerfile parse error\"}")});
    const struct engine_build build = {.image = "berth-runtime/a:1",
                                       .label_runtime = "a",
                                       .tar = "a tar",
                                       .tar_bytes = 5,
                                       .network = "host",
                                       .say = note_said};
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_image_build(engine, &build, &soon, &err), 0), "%s", err.text);
    cr_assert(eq(u32, said_count, 2));
    cr_assert(eq(str, said_last, "Successfully built 1"));
    cr_assert(eq(int, engine_image_build(engine, &build, &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
    cr_assert(strstr(err.text, "it returned 7") && strstr(err.text, "cc: not found"));
    error_clear(&err);
    cr_assert(eq(int, engine_image_build(engine, &build, &soon, &err), -1));
    cr_assert(strstr(err.text, "dockerfile parse error") != NULL);
    unix_server_wait(server, 5);
    cr_assert(strstr(unix_server_request(server, 2),
                     "POST /v1.41/build?rm=1&forcerm=1&t=berth-runtime%2Fa%3A1&labels=") != NULL);
    cr_assert(strstr(unix_server_request(server, 2), "&networkmode=host HTTP/1.1") != NULL);
    cr_assert(strstr(unix_server_request(server, 2), "Content-Type: application/x-tar") != NULL);
    cr_assert(strstr(unix_server_request(server, 2), "\r\n\r\na tar") != NULL);
}
