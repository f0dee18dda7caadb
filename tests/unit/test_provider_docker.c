/* The docker provider over an engine that is a script: what it asks, in which order, and what it makes of the answers. */
#include "alloc.h"
#include "provider.h"
#include "provider_docker_private.h"
#include "unix_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct cancel never = CANCEL_NEVER;
static struct cancel soon;
static struct unix_server *server;
static struct provider *provider;
static char state_dir[] = "/tmp/berth-unit-XXXXXX";

#define ITS_VERSION ANSWER("200 OK", "{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\",\"Version\":\"20.10.24\"}")
#define ITS_INFO ANSWER("200 OK", "{}")
#define CONTAINER(state, install)                                     \
    ANSWER("200 OK", "{\"Id\":\"abc\",\"State\":{\"Status\":\"" state \
                     "\"},\"Config\":{\"Labels\":{\"berth.install\":\"" install "\",\"berth.slot\":\"s\"}}}")
#define FINE ANSWER("204 No Content", "")

static void say(struct unix_script *scripts, size_t count)
{
    struct provider_docker_settings settings = {.install = "mine", .epoch = 1};
    struct error err = ERROR_INIT;

    soon = cancel_within(&never, 10000);
    cr_assert(mkdtemp(state_dir) != NULL);
    server = unix_server_start(scripts, count);
    settings.socket_path = unix_server_path(server);
    settings.state_dir = state_dir;
    cr_assert(eq(int, provider_docker_new(&settings, &provider, &err), 0), "%s", err.text);
}

#define SAY(...)                                                                               \
    struct unix_script scripts[] = {{.bytes = ITS_VERSION}, {.bytes = ITS_INFO}, __VA_ARGS__}; \
    say(scripts, sizeof scripts / sizeof scripts[0])

static void teardown(void)
{
    auto_free char *command = NULL;

    if (provider) {
        command = alloc_str(((struct docker_provider *)provider)->agent_path);
        provider->ops->free(provider);
        (void)unlink(command);
        (void)rmdir(state_dir);
        unix_server_stop(server);
    }
}

TestSuite(provider_docker, .fini = teardown);

static bool asked(unsigned index, const char *line)
{
    return strncmp(unix_server_request(server, index), line, strlen(line)) == 0;
}

Test(provider_docker, writes_the_agent_beside_the_state)
{
    SAY({.bytes = FINE});
    const char *path = ((struct docker_provider *)provider)->agent_path;
    struct stat status;

    cr_assert(eq(int, strncmp(path, state_dir, strlen(state_dir)), 0));
    cr_assert(eq(int, stat(path, &status), 0));
    cr_assert(eq(int, (int)(status.st_mode & 07777), 0755));
    cr_assert(gt(i64, status.st_size, 10000));
}

Test(provider_docker, a_container_of_others_is_not_touched)
{
    SAY({.bytes = CONTAINER("exited", "theirs")}, {.bytes = CONTAINER("exited", "theirs")});
    struct sandbox *sandbox;
    struct sandbox_hello hello;
    struct sandbox_listed listed;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, provider->ops->open(provider, "abc", NULL, 0, &soon, &sandbox, &hello, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_NOT_FOUND));
    cr_assert(eq(int, provider->ops->inspect(provider, "abc", &soon, &listed, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_NOT_FOUND));
    cr_assert(asked(2, "GET ") && asked(3, "GET "));
}

Test(provider_docker, one_that_ends_the_conversation_is_killed_and_gone)
{
    SAY({.bytes = CONTAINER("paused", "mine")}, {.bytes = FINE}, {.bytes = "HTTP/1.1 101 UPGRADED\r\n\r\n"},
        {.bytes = FINE});
    struct sandbox *sandbox;
    struct sandbox_hello hello;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, provider->ops->open(provider, "abc", NULL, 0, &soon, &sandbox, &hello, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_GONE), "%s", err.text);
    unix_server_wait(server, 6);
    cr_assert(asked(3, "POST /v1.41/containers/abc/unpause "));
    cr_assert(asked(4, "POST /v1.41/containers/abc/attach?stream=1&stdin=1&stdout=1&stderr=1 "));
    cr_assert(asked(5, "POST /v1.41/containers/abc/kill?signal=SIGKILL "));
}

Test(provider_docker, who_gives_up_waiting_kills_nobody)
{
    SAY({.bytes = CONTAINER("created", "mine")}, {.bytes = FINE},
        {.bytes = "HTTP/1.1 101 UPGRADED\r\n\r\n", .after = UNIX_HOLD}, {.bytes = FINE});
    struct cancel short_wait = cancel_within(&never, 200);
    struct sandbox *sandbox;
    struct sandbox_hello hello;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, provider->ops->open(provider, "abc", NULL, 0, &short_wait, &sandbox, &hello, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_TIMEOUT));
    cr_assert(eq(int, provider->ops->stop(provider, "abc", &soon, &err), 0));
    cr_assert(asked(3, "POST /v1.41/containers/abc/start "));
    cr_assert(asked(5, "POST /v1.41/containers/abc/stop?t=2 "));
}

Test(provider_docker, a_name_that_is_taken_is_done_without)
{
    SAY({.bytes = ANSWER("200 OK", "{\"Id\":\"sha256:1\",\"Config\":{\"User\":\"1000\"}}")},
        {.bytes = ANSWER("409 Conflict", "{\"message\":\"name in use\"}")},
        {.bytes = ANSWER("201 Created", "{\"Id\":\"new\"}")}, {.bytes = ANSWER("201 Created", "{\"Id\":\"newer\"}")});
    struct sandbox_spec spec = {.slot = "s",
                                .name = "berth-x",
                                .image = "i",
                                .work_dir = "/w",
                                .sandbox_uid = -1,
                                .workspace_path = "/slots/s"};
    struct error err = ERROR_INIT;
    char ref[SANDBOX_REF_BYTES];

    cr_assert(eq(int, provider->ops->create(provider, &spec, &soon, ref, &err), 0), "%s", err.text);
    cr_assert(eq(str, ref, "new"));
    cr_assert(asked(3, "POST /v1.41/containers/create?name=berth-x "));
    cr_assert(asked(4, "POST /v1.41/containers/create "));
    /* The image's user is not root: no capability; and it was asked for once. */
    cr_assert(strstr(unix_server_request(server, 4), "CapAdd") == NULL);
    spec.sandbox_uid = 0;
    cr_assert(eq(int, provider->ops->create(provider, &spec, &soon, ref, &err), 0));
    cr_assert(asked(5, "POST /v1.41/containers/create?name=berth-x "));
    cr_assert(strstr(unix_server_request(server, 5), "\"User\":\"0:0\"") != NULL);
    cr_assert(strstr(unix_server_request(server, 5), "CapAdd") != NULL);
}

Test(provider_docker, what_it_has_just_made_is_started_without_a_look)
{
    SAY({.bytes = ANSWER("200 OK", "{\"Id\":\"sha256:1\",\"Config\":{\"User\":\"\"}}")},
        {.bytes = ANSWER("201 Created", "{\"Id\":\"new\"}")}, {.bytes = FINE},
        {.bytes = "HTTP/1.1 101 UPGRADED\r\n\r\n"}, {.bytes = FINE}, {.bytes = CONTAINER("running", "theirs")});
    struct sandbox_spec spec = {
        .slot = "s", .image = "i", .work_dir = "/w", .sandbox_uid = -1, .workspace_path = "/slots/s"};
    struct sandbox *sandbox;
    struct sandbox_hello hello;
    struct error err = ERROR_INIT;
    char ref[SANDBOX_REF_BYTES];

    cr_assert(eq(int, provider->ops->create(provider, &spec, &soon, ref, &err), 0), "%s", err.text);
    cr_assert(eq(int, provider->ops->open(provider, ref, NULL, 0, &soon, &sandbox, &hello, &err), -1));
    unix_server_wait(server, 7);
    cr_assert(asked(4, "POST /v1.41/containers/new/start "));
    cr_assert(asked(5, "POST /v1.41/containers/new/attach?stream=1&stdin=1&stdout=1&stderr=1 "));
    cr_assert(asked(6, "POST /v1.41/containers/new/kill?signal=SIGKILL "));
    /* Once: what became of it since has to be looked at. */
    error_clear(&err);
    cr_assert(eq(int, provider->ops->open(provider, ref, NULL, 0, &soon, &sandbox, &hello, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_NOT_FOUND));
    cr_assert(asked(7, "GET /v1.41/containers/new/json "));
}

Test(provider_docker, killing_what_does_not_run_is_success)
{
    SAY({.bytes = ANSWER("500 Internal Server Error", "{\"message\":\"can only kill running containers\"}")},
        {.bytes = CONTAINER("exited", "mine")},
        {.bytes = ANSWER("500 Internal Server Error", "{\"message\":\"stuck\"}")},
        {.bytes = CONTAINER("running", "mine")});
    struct error err = ERROR_INIT;

    cr_assert(eq(int, provider->ops->kill(provider, "abc", &soon, &err), 0));
    cr_assert(eq(int, provider->ops->kill(provider, "abc", &soon, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
}

Test(provider_docker, events_that_ended_are_listened_to_again_and_then_compared)
{
    SAY({.bytes =
             ANSWER("200 OK",
                    "{\"Action\":\"oom\",\"Actor\":{\"ID\":\"a\"}}\n{\"Action\":\"start\",\"Actor\":{\"ID\":\"a\"}}\n"
                    "{\"Action\":\"die\",\"Actor\":{\"ID\":\"a\",\"Attributes\":{\"exitCode\":\"137\"}}}\n"
                    "{\"Action\":\"die\",\"Actor\":{\"ID\":\"a\",\"Attributes\":{\"exitCode\":\"137\"}}}\n"
                    "{\"Action\":\"destroy\",\"Actor\":{\"ID\":\"a\"}}\n")},
        {.bytes = ANSWER("500 Internal Server Error", "")}, {.bytes = ANSWER("200 OK", "")});
    static const struct {
        enum sandbox_event_kind kind;
        bool oom;
    } wanted[] = {{SANDBOX_EVENT_RELIST, false},
                  {SANDBOX_EVENT_DIED, true},
                  {SANDBOX_EVENT_DIED, false},
                  {SANDBOX_EVENT_REMOVED, false}};
    struct sandbox_event event;
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        cr_assert(eq(int, provider->ops->next_event(provider, &soon, &event, &err), 0));
        cr_assert(eq(int, (int)event.kind, (int)wanted[i].kind));
        cr_assert(eq(int, event.oom, wanted[i].oom));
    }
    cr_assert(eq(int, provider->ops->next_event(provider, &soon, &event, &err), -1)); /* not now */
    cr_assert(eq(int, provider->ops->next_event(provider, &soon, &event, &err), 0));
    cr_assert(eq(int, (int)event.kind, SANDBOX_EVENT_RELIST));
}

Test(provider_file, what_is_right_stays_and_what_is_not_is_replaced)
{
    char dir[] = "/tmp/berth-unit-XXXXXX";
    auto_free char *path = NULL;
    struct error err = ERROR_INIT;
    struct stat first, second;
    char data[8] = "";
    FILE *file;

    cr_assert(mkdtemp(dir) != NULL);
    path = provider_file_path(dir, "agent-", "content", 7);
    cr_assert(eq(str, path + strlen(dir), "/agent-ed7002b439e9ac84"));
    cr_assert(eq(int, provider_file_keep(path, "content", 7, 0755, &err), 0));
    cr_assert(eq(int, stat(path, &first), 0));
    cr_assert(eq(int, provider_file_keep(path, "content", 7, 0755, &err), 0));
    cr_assert(eq(int, stat(path, &second), 0));
    cr_assert(eq(u64, first.st_ino, second.st_ino));

    file = fopen(path, "r+");
    cr_assert(eq(sz, fwrite("X", 1, 1, file), 1));
    fclose(file);
    file = fopen(path, "r"); /* as a running container has it */
    cr_assert(eq(int, provider_file_keep(path, "content", 7, 0755, &err), 0));
    cr_assert(eq(sz, fread(data, 1, 7, file), 7));
    cr_assert(eq(str, data, "Xontent"));
    fclose(file);
    file = fopen(path, "r");
    cr_assert(eq(sz, fread(data, 1, 7, file), 7));
    cr_assert(eq(str, data, "content"));
    fclose(file);

    cr_assert(eq(int, unlink(path), 0));
    cr_assert(eq(int, mkdir(path, 0700), 0)); /* what an engine makes of a source that vanished */
    cr_assert(eq(int, provider_file_keep(path, "content", 7, 0755, &err), 0));
    cr_assert(eq(int, stat(path, &second), 0));
    cr_assert(eq(int, (int)(second.st_mode & S_IFMT), S_IFREG));
    cr_assert(eq(int, unlink(path), 0));
    cr_assert(eq(int, rmdir(dir), 0)); /* nothing else was left there */
}
