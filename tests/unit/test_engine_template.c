#include "engine.h"
#include "engine_private.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <string.h>

static const char *const env[] = {"A=b \"c\"\n", "LANG=C.UTF-8", NULL};

static struct engine_create spec_of_everything(void)
{
    return (struct engine_create){
        .image = "python:3.12-slim",
        .hostname = "sandbox",
        .work_dir = "/workspace",
        .agent_path = "/state/agent-1",
        .workspace_path = "/w/\"; rm -rf \\",
        .user = "1000:1000",
        .root_caps = true,
        .oci_runtime = "runsc",
        .network_mode = "none",
        .memory_bytes = 1 << 30,
        .memory_swap_bytes = 2LL << 30,
        .nano_cpus = 1500000000,
        .cpu_shares = 512,
        .pids_limit = 256,
        .tmpfs_size = "64m",
        .env = env,
        .label_install = "install",
        .label_slot = "slot",
        .label_spec = "digest",
    };
}

static struct json_object *render(const struct engine_create *spec)
{
    auto_buf struct buf out = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;
    struct json_object *root;

    cr_assert(eq(int, engine_template_create(spec, &out, &err), 0));
    root = json_tokener_parse(out.data);
    cr_assert(root != NULL);
    return root;
}

/* The member at a path of names with dots and numbers, as JSON text; "absent". */
static const char *at(struct json_object *root, const char *path)
{
    char name[64];
    struct json_object *value = root;

    while (*path) {
        size_t size = strcspn(path, "/");

        memcpy(name, path, size);
        name[size] = '\0';
        path += size + (path[size] == '/');
        if (json_object_is_type(value, json_type_array))
            value = json_object_array_get_idx(value, strtoul(name, NULL, 10));
        else if (!json_object_object_get_ex(value, name, &value))
            return "absent";
    }
    return json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

static const char *const golden[][2] = {
    {"Image", "\"python:3.12-slim\""},
    {"Hostname", "\"sandbox\""},
    {"User", "\"1000:1000\""},
    {"WorkingDir", "\"/workspace\""},
    {"Entrypoint", "[\"/.berth-agent\"]"},
    {"Cmd", "[]"},
    {"Env", "[\"A=b \\\"c\\\"\\n\",\"LANG=C.UTF-8\"]"},
    {"StopSignal", "\"SIGTERM\""},
    {"Healthcheck", "{\"Test\":[\"NONE\"]}"},
    {"Tty", "false"},
    {"OpenStdin", "true"},
    {"StdinOnce", "false"},
    {"AttachStdin", "true"},
    {"AttachStdout", "true"},
    {"AttachStderr", "true"},
    {"Labels", "{\"berth.install\":\"install\",\"berth.slot\":\"slot\",\"berth.spec\":\"digest\"}"},
    {"HostConfig/Binds", "absent"},
    {"HostConfig/Mounts/0",
     "{\"Type\":\"bind\",\"Source\":\"/state/agent-1\",\"Target\":\"/.berth-agent\",\"ReadOnly\":true,"
     "\"BindOptions\":{\"Propagation\":\"rprivate\"}}"},
    {"HostConfig/Mounts/1/Source", "\"/w/\\\"; rm -rf \\\\\""},
    {"HostConfig/Mounts/1/Target", "\"/workspace\""},
    {"HostConfig/Mounts/1/ReadOnly", "false"},
    {"HostConfig/SecurityOpt/0", "\"no-new-privileges\""},
    {"HostConfig/CapDrop", "[\"ALL\"]"},
    {"HostConfig/CapAdd", "[\"CHOWN\",\"DAC_OVERRIDE\",\"FOWNER\",\"FSETID\",\"SETUID\",\"SETGID\",\"KILL\"]"},
    {"HostConfig/Privileged", "false"},
    {"HostConfig/IpcMode", "\"private\""},
    {"HostConfig/LogConfig", "{\"Type\":\"none\"}"},
    {"HostConfig/Init", "false"},
    {"HostConfig/Runtime", "\"runsc\""},
    {"HostConfig/NetworkMode", "\"none\""},
    {"HostConfig/Memory", "1073741824"},
    {"HostConfig/MemorySwap", "2147483648"},
    {"HostConfig/NanoCpus", "1500000000"},
    {"HostConfig/CpuShares", "512"},
    {"HostConfig/PidsLimit", "256"},
    {"HostConfig/Ulimits/0/Name", "\"nofile\""},
    {"HostConfig/Ulimits/1/Name", "\"nproc\""},
    {"HostConfig/Tmpfs", "{\"/tmp\":\"rw,exec,nosuid,nodev,mode=1777,size=64m\"}"},
    {"HostConfig/MaskedPaths", "absent"},
};

Test(template, is_what_the_design_says)
{
    struct engine_create spec = spec_of_everything();
    struct json_object *root = render(&spec);

    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++)
        cr_assert(eq(str, (char *)at(root, golden[i][0]), (char *)golden[i][1]), "%s", golden[i][0]);
    json_object_put(root);
}

Test(template, leaves_out_what_is_not_asked_for)
{
    struct engine_create spec = {.image = "i", .work_dir = "/w", .agent_path = "/a"};
    struct json_object *root = render(&spec);
    static const char *const absent[] = {"User",
                                         "HostConfig/Runtime",
                                         "HostConfig/CapAdd",
                                         "HostConfig/Memory",
                                         "HostConfig/MemorySwap",
                                         "HostConfig/NanoCpus",
                                         "HostConfig/CpuShares",
                                         "HostConfig/PidsLimit",
                                         "HostConfig/Tmpfs"};

    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        cr_assert(eq(str, (char *)at(root, absent[i]), "absent"), "%s", absent[i]);
    cr_assert(eq(str, (char *)at(root, "HostConfig/NetworkMode"), "\"none\""));
    cr_assert(eq(str, (char *)at(root, "HostConfig/CapDrop"), "[\"ALL\"]"));
    cr_assert(eq(str, (char *)at(root, "HostConfig/Mounts/1"), "null"));
    json_object_put(root);
}

Test(template, the_profile_is_inline_or_a_file)
{
    struct engine_create spec = spec_of_everything();
    struct json_object *root = render(&spec);

    cr_assert(eq(int, strncmp(at(root, "HostConfig/SecurityOpt/1"), "\"seccomp={\\\"defaultAction", 25), 0));
    json_object_put(root);
    spec.seccomp_path = "/state/seccomp-1";
    root = render(&spec);
    cr_assert(eq(str, (char *)at(root, "HostConfig/SecurityOpt/1"), "\"seccomp=/state/seccomp-1\""));
    json_object_put(root);
}

/* -- the profile, judged as the kernel's filter would -- */

static struct json_object *profile(void)
{
    auto_buf struct buf out = BUF_INIT(64 * 1024);
    struct error err = ERROR_INIT;
    struct json_object *root;

    cr_assert(eq(int, engine_seccomp_render(&out, &err), 0));
    root = json_tokener_parse(out.data);
    cr_assert(root != NULL);
    return root;
}

static bool names(struct json_object *rule, const char *call)
{
    struct json_object *list = json_object_object_get(rule, "names");

    for (size_t i = 0; i < json_object_array_length(list); i++) {
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), call) == 0)
            return true;
    }
    return false;
}

static bool holds(struct json_object *rule, const uint64_t *arguments)
{
    struct json_object *list = json_object_object_get(rule, "args");

    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        struct json_object *condition = json_object_array_get_idx(list, i);
        const char *op = json_object_get_string(json_object_object_get(condition, "op"));
        uint64_t value = json_object_get_uint64(json_object_object_get(condition, "value"));
        uint64_t second = json_object_get_uint64(json_object_object_get(condition, "valueTwo"));
        uint64_t argument = arguments[json_object_get_int(json_object_object_get(condition, "index"))];

        if (strcmp(op, "SCMP_CMP_EQ") == 0 ? argument != value : (argument & value) != second)
            return false;
    }
    return true;
}

/* 0: allowed, otherwise the errno. */
static int judge(struct json_object *root, const char *call, uint64_t first, uint64_t second)
{
    struct json_object *rules = json_object_object_get(root, "syscalls");
    const uint64_t arguments[6] = {first, second};

    for (size_t i = 0; i < json_object_array_length(rules); i++) {
        struct json_object *rule = json_object_array_get_idx(rules, i);

        if (names(rule, call) && holds(rule, arguments))
            return strcmp(json_object_get_string(json_object_object_get(rule, "action")), "SCMP_ACT_ALLOW") == 0
                       ? 0
                       : json_object_get_int(json_object_object_get(rule, "errnoRet"));
    }
    return json_object_get_int(json_object_object_get(root, "defaultErrnoRet"));
}

Test(seccomp, is_an_allow_list_without_comparisons_that_carve_out)
{
    struct json_object *root = profile();
    struct json_object *rules = json_object_object_get(root, "syscalls");
    const char *text = json_object_to_json_string(root);

    cr_assert(eq(str, (char *)json_object_get_string(json_object_object_get(root, "defaultAction")), "SCMP_ACT_ERRNO"));
    cr_assert(eq(int, json_object_get_int(json_object_object_get(root, "defaultErrnoRet")), EPERM));
    cr_assert(strstr(text, "SCMP_CMP_NE") == NULL);
    cr_assert(strstr(text, "SCMP_CMP_G") == NULL);
    cr_assert(strstr(text, "SCMP_CMP_L") == NULL);
    for (size_t i = 0; i < json_object_array_length(rules); i++) {
        struct json_object *rule = json_object_array_get_idx(rules, i);

        if (strcmp(json_object_get_string(json_object_object_get(rule, "action")), "SCMP_ACT_ALLOW") != 0)
            cr_assert(names(rule, "clone3"));
    }
    json_object_put(root);
}

Test(seccomp, refuses_every_call_it_says_it_refuses)
{
    struct json_object *root = profile();

    static const char *const refused[] = {
#define ALLOW(call, reason)
#define ALLOW_VALUE(call, argument, value, reason)
#define ALLOW_MASKED(call, argument, mask, value, reason)
#define NOT_THERE(call, reason)
#define REFUSE(call, reason) #call,
#include "seccomp.def"
#undef ALLOW
#undef ALLOW_VALUE
#undef ALLOW_MASKED
#undef NOT_THERE
#undef REFUSE
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        cr_assert(eq(int, judge(root, refused[i], 0, 0), EPERM), "%s", refused[i]);
    cr_assert(eq(int, judge(root, "clone3", 0, 0), ENOSYS));
    cr_assert(eq(int, judge(root, "socketcall", 0, 0), EPERM));
    cr_assert(eq(int, judge(root, "read", 0, 0), 0));
    cr_assert(eq(int, judge(root, "ptrace", 0, 0), 0));
    json_object_put(root);
}

Test(seccomp, ioctl_is_everything_but_btrfs_and_attributes_of_files)
{
    struct json_object *root = profile();

    for (uint64_t type = 0; type < 256; type++) {
        for (uint64_t high = 0; high < 2; high++) {
            uint64_t request = 0x50000001 | type << 8 | high << 32;

            bool is_refused = type == 0x94 || type == 'X' || type == 'f';

            cr_assert(eq(int, judge(root, "ioctl", 3, request), is_refused ? EPERM : 0), "%lx", (long)request);
        }
    }
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x40049409), 0));         /* FICLONE */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x4020940d), 0));         /* FICLONERANGE */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0xc0189436), 0));         /* FIDEDUPERANGE */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0xffffffffc0189436), 0)); /* with its sign extended */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x5000940e), EPERM));     /* BTRFS_IOC_SUBVOL_CREATE */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x401c5820), EPERM));     /* FS_IOC_FSSETXATTR */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x40086602), EPERM));     /* FS_IOC_SETFLAGS */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x40046602), EPERM));     /* FS_IOC32_SETFLAGS */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x801c581f), 0));         /* FS_IOC_FSGETXATTR */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x80086601), 0));         /* FS_IOC_GETFLAGS */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x15000940eULL), EPERM)); /* with bit 32 set */
    cr_assert(eq(int, judge(root, "ioctl", 3, 0x50009401), EPERM));     /* BTRFS_IOC_SNAP_CREATE */
    json_object_put(root);
}

Test(seccomp, sockets_and_clones_are_of_the_harmless_kinds)
{
    struct json_object *root = profile();
    static const uint64_t namespaces[] = {0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000};

    for (uint64_t family = 0; family < 64; family++) {
        bool fine = family == 1 || family == 2 || family == 10 || family == 16;

        cr_assert(eq(int, judge(root, "socket", family, 0), fine ? 0 : EPERM), "%d", (int)family);
        cr_assert(eq(int, judge(root, "socket", family | 1ULL << 32, 0), EPERM), "%d", (int)family);
    }
    cr_assert(eq(int, judge(root, "clone", 0x3d0f00, 0), 0));  /* pthread_create() */
    cr_assert(eq(int, judge(root, "clone", 0x1200011, 0), 0)); /* fork() */
    for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++) {
        cr_assert(eq(int, judge(root, "clone", namespaces[i] | 17, 0), EPERM));
        cr_assert(eq(int, judge(root, "clone", namespaces[i] | 17 | 1ULL << 32, 0), EPERM));
    }
    json_object_put(root);
}

/* -- errors -- */

static enum error_code mapped(int status, const char *body, char text[240])
{
    auto_buf struct buf buf = BUF_INIT(1000);
    struct error err = ERROR_INIT;

    cr_assert(eq(int, buf_append_str(&buf, body, &err), 0));
    cr_assert(eq(int, engine_error("cannot do it", status, &buf, &err), -1));
    memcpy(text, err.text, sizeof err.text);
    return err.code;
}

Test(engine_error, statuses_become_our_codes_with_the_reason_kept)
{
    char text[240];

    cr_assert(eq(int, (int)mapped(404, "{\"message\":\"No such container: x\"}", text), ERROR_NOT_FOUND));
    cr_assert(eq(str, text, "cannot do it: No such container: x"));
    cr_assert(eq(int, (int)mapped(409, "plain words\r\n", text), ERROR_CONFLICT));
    cr_assert(eq(str, text, "cannot do it: plain words"));
    cr_assert(eq(int, (int)mapped(500, "", text), ERROR_ENGINE));
    cr_assert(eq(str, text, "cannot do it: status 500"));
    cr_assert(eq(int, (int)mapped(400, "{\"message\":7}", text), ERROR_ENGINE));
    cr_assert(eq(str, text, "cannot do it: status 400"));
}

Test(engine_error, reasons_are_one_clean_line)
{
    char text[240];

    (void)mapped(500, "{\"message\":\"a\\n\\u001b[31mb\\u009fd \\ttail \xc3\xa4\\r\\n\"}", text);
    cr_assert(eq(str, text, "cannot do it: a [31mb d tail \xc3\xa4"));
    (void)mapped(500, "bad \xff\xfe bytes\n", text);
    cr_assert(eq(str, text, "cannot do it: bad \xef\xbf\xbd\xef\xbf\xbd bytes"));
}

Test(engine_error, of_a_long_reason_both_ends_stay)
{
    char out[160], text[400];

    for (size_t i = 0; i < sizeof text - 1; i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    memcpy(text, "begin", 5);
    memcpy(text + sizeof text - 6, ": end!", 6);
    engine_error_clean(out, text, sizeof text);
    cr_assert(eq(int, strncmp(out, "begin", 5), 0));
    cr_assert(eq(str, out + strlen(out) - 6, ": end!"));
    cr_assert(le(sz, strlen(out), 150));
    cr_assert(strstr(out, " ... ") != NULL);
}

/* -- events -- */

Test(engine_event, says_what_happened_to_whom)
{
    static const char died[] =
        "{\"status\":\"die\",\"id\":\"abc\",\"Type\":\"container\",\"Action\":\"die\",\"Actor\":{\"ID\":"
        "\"abc\",\"Attributes\":{\"berth.slot\":\"s1\",\"exitCode\":\"137\"}},\"time\":1}";
    struct engine_event event;
    struct error err = ERROR_INIT;

    cr_assert(eq(int, engine_event_parse(died, strlen(died), &event, &err), 0));
    cr_assert(eq(int, (int)event.kind, ENGINE_EVENT_DIED));
    cr_assert(eq(str, event.id, "abc"));
    cr_assert(eq(str, event.label_slot, "s1"));
    cr_assert(eq(int, event.exit_code, 137));
}

Test(engine_event, nonsense_is_an_error)
{
    static const char *const bad[] = {"{\"Action\":7}",         "[]",
                                      "{\"Action\":\"die\"",    "null",
                                      "{\"Action\":\"die\"} x", "{\"Action\":\"die\",\"Actor\":[]}"};
    struct engine_event event;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error err = ERROR_INIT;

        cr_assert(eq(int, engine_event_parse(bad[i], strlen(bad[i]), &event, &err), -1), "%s", bad[i]);
        cr_assert(eq(int, (int)err.code, ERROR_ENGINE));
    }
}
