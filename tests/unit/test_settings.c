#include "settings_private.h"
#include "size.h"

#include "alloc.h"
#include "cleanup.h"
#include "fd.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TOKEN "SANDBOXD_TOKEN=secret-of-the-service"

/* Settings of a token and the given NAME=value strings. */
#define LOADED(...) loaded(NULL, (const char *const[]){TOKEN, __VA_ARGS__ __VA_OPT__(, ) NULL})
/* They must not load, and the one line must begin with `start` and hold `part`. */
#define REFUSED(start, part, ...) refused(NULL, start, part, (const char *const[]){TOKEN, __VA_ARGS__, NULL})

static struct settings loaded(const char *file, const char *const *environment)
{
    struct settings settings;
    struct error err = ERROR_INIT;

    cr_assert_eq(settings_load(environment, file, &settings, &err), 0, "%s", err.text);
    return settings;
}

static void refused(const char *file, const char *start, const char *part, const char *const *environment)
{
    struct settings settings;
    struct error err = ERROR_INIT;

    memset(&settings, 0xff, sizeof settings);
    cr_assert_eq(settings_load(environment, file, &settings, &err), -1, "taken: %s", environment[1]);
    cr_assert_eq(strncmp(err.text, start, strlen(start)), 0, "\"%s\" does not begin with \"%s\"", err.text, start);
    cr_assert_not_null(strstr(err.text, part), "\"%s\" does not hold \"%s\"", err.text, part);
    cr_assert_null(strpbrk(err.text, "\r\n\x1b"), "%s", err.text);
    cr_assert_null(strstr(err.text, "secret-of"), "%s", err.text);
    cr_assert_null(settings.token);
    settings_done(&settings);
}

/* Standard error while settings load. Caller frees. */
static char *warnings(const char *file, const char *const *environment)
{
    auto_buf struct buf out = BUF_INIT(1024 * 1024);
    auto_close int log = memfd_create("log", MFD_CLOEXEC);
    auto_close int saved = dup(STDERR_FILENO);
    auto_cleanup(settings_done) struct settings settings = {0};
    struct error err = ERROR_INIT;

    cr_assert(dup2(log, STDERR_FILENO) >= 0);
    settings = loaded(file, environment);
    cr_assert(dup2(saved, STDERR_FILENO) >= 0);
    cr_assert_eq(lseek(log, 0, SEEK_SET), 0);
    cr_assert_eq(fd_read_all(log, &out, &err), 0);
    return buf_take(&out, NULL);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* A file for --config; its path is /proc/self/fd/<fd>. */
static int file_of(const char *text, size_t size, char path[64])
{
    int fd = memfd_create("config", MFD_CLOEXEC);
    struct error err = ERROR_INIT;

    cr_assert(fd >= 0);
    cr_assert_eq(fd_write_all(fd, text, size, &err), 0);
    cr_assert_eq(fchmod(fd, 0640), 0);
    (void)snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* -- the table -- */

Test(settings, have_the_defaults_of_the_reference)
{
    auto_cleanup(settings_done) struct settings s = LOADED("DOCKER_HOST=unix:///x.sock");

    cr_assert_str_eq(s.token, "secret-of-the-service");
    cr_assert_str_eq(s.host, "127.0.0.1");
    cr_assert_eq(s.port, 8080);
    cr_assert_eq(s.runtime_count, 2);
    cr_assert_str_eq(s.runtime_list[0].alias, "python");
    cr_assert_str_eq(s.runtime_list[0].image, "python:3.12-slim");
    cr_assert_str_eq(s.runtime_list[1].alias, "node");
    cr_assert_str_eq(s.runtime_list[1].image, "node:20-slim");
    cr_assert_str_eq(s.default_runtime, "python");
    cr_assert(s.max_sessions.is_set && s.max_sessions.value == 20);
    cr_assert_not(s.max_open_sessions.is_set || s.max_sessions_per_tenant.is_set || s.evict_idle_after.is_set);
    cr_assert_str_eq(s.mem_limit, "1g");
    cr_assert_null(s.memswap_limit);
    cr_assert(s.cpus.is_set && s.cpus.value == 2.0);
    cr_assert_not(s.cpu_shares.is_set || s.workspace_ttl.is_set || s.container_ttl.is_set || s.sandbox_uid.is_set);
    cr_assert(s.pids_limit.is_set && s.pids_limit.value == 512);
    cr_assert_str_eq(s.tmpfs_size, "64m");
    cr_assert_str_eq(s.network_mode, "none");
    cr_assert_null(s.oci_runtime);
    cr_assert_str_eq(s.work_dir, "/workspace");
    cr_assert_null(s.workspace_root);
    cr_assert(!s.persist_containers && s.prewarm && s.native_files && !s.ui_enabled);
    cr_assert_eq(s.idle_timeout, 1800);
    cr_assert_eq(s.cleanup_interval, 300);
    cr_assert_eq(s.max_read_bytes, 8388608);
    cr_assert_eq(s.execute_timeout, 300);
    cr_assert_eq(s.max_workers, 32);
    cr_assert_eq(s.max_running_commands, 256);
    cr_assert_null(s.policy_overrides);
    cr_assert_str_eq(s.state_dir, "/var/lib/berth");
    cr_assert_eq(s.max_body_bytes, 33554432);
    cr_assert_str_eq(s.on_stop, "stop");
    cr_assert_str_eq(s.log_level, "info");
    cr_assert_str_eq(s.log_format, "logfmt");
    cr_assert(!s.probe_port.is_set);
    cr_assert_str_eq(s.engine_socket, "/x.sock");
}

Test(settings, take_an_empty_optional_value_as_none)
{
    auto_cleanup(settings_done) struct settings s =
        LOADED("SANDBOXD_MAX_SESSIONS=", "SANDBOXD_MEM_LIMIT=", "SANDBOXD_CPUS=", "SANDBOXD_PIDS_LIMIT=",
               "SANDBOXD_TMPFS_SIZE=", "SANDBOXD_DEFAULT_RUNTIME=", "SANDBOXD_WORKSPACE_ROOT=", "DOCKER_HOST=");

    cr_assert_not(s.max_sessions.is_set || s.cpus.is_set || s.pids_limit.is_set);
    cr_assert_null(s.mem_limit);
    cr_assert_null(s.tmpfs_size);
    cr_assert_null(s.workspace_root);
    cr_assert_str_eq(s.default_runtime, "python");
}

Test(settings, trim_numbers_and_take_a_sign)
{
    auto_cleanup(settings_done) struct settings s = LOADED("SANDBOXD_PORT= 9000 ", "SANDBOXD_MAX_SESSIONS=+5",
                                                           "SANDBOXD_CPUS=\t1.5\n", "SANDBOXD_PERSIST_CONTAINERS= ON ");

    cr_assert_eq(s.port, 9000);
    cr_assert_eq(s.max_sessions.value, 5);
    cr_assert_eq(s.cpus.value, 1.5);
    cr_assert(s.persist_containers);
}

Test(settings, refuse_what_must_be_there_and_is_not)
{
    refused(NULL, "SANDBOXD_TOKEN: ", "required", (const char *const[]){"SANDBOXD_PORT=1", NULL});
    refused(NULL, "SANDBOXD_TOKEN: ", "empty", (const char *const[]){"SANDBOXD_TOKEN=", NULL});
    REFUSED("SANDBOXD_HOST: ", "empty", "SANDBOXD_HOST=");
    REFUSED("SANDBOXD_WORK_DIR: ", "empty", "SANDBOXD_WORK_DIR=");
    REFUSED("SANDBOXD_RUNTIMES: ", "empty", "SANDBOXD_RUNTIMES=");
    REFUSED("SANDBOXD_PORT: ", "whole number", "SANDBOXD_PORT=");
    REFUSED("SANDBOXD_PREWARM: ", "not one of", "SANDBOXD_PREWARM=");
    REFUSED("SANDBOXD_ON_STOP: ", "empty", "SANDBOXD_ON_STOP=");
}

Test(settings, refuse_a_token_that_no_header_can_carry_and_never_show_it)
{
    static const char *const bad[] = {"secret-of\n", " secret-of", "secret-of ", "secret-of\x7fx", "\tsecret-of"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        auto_free char *variable = alloc_format("SANDBOXD_TOKEN=%s", bad[i]);

        refused(NULL, "SANDBOXD_TOKEN: ", "no header can carry", (const char *const[]){variable, NULL});
    }
}

Test(settings, refuse_text_where_numbers_are)
{
    REFUSED("SANDBOXD_PORT: ", "\"http\" is not a whole number", "SANDBOXD_PORT=http");
    REFUSED("SANDBOXD_PORT: ", "whole number", "SANDBOXD_PORT=80 80");
    REFUSED("SANDBOXD_PORT: ", "whole number", "SANDBOXD_PORT=80.0");
    REFUSED("SANDBOXD_PORT: ", "whole number", "SANDBOXD_PORT=0x50");
    REFUSED("SANDBOXD_MAX_SESSIONS: ", "of 64 bits", "SANDBOXD_MAX_SESSIONS=9223372036854775808");
    REFUSED("SANDBOXD_CPUS: ", "not a number", "SANDBOXD_CPUS=many");
    REFUSED("SANDBOXD_CPUS: ", "not a number", "SANDBOXD_CPUS=inf");
    REFUSED("SANDBOXD_CPUS: ", "not a number", "SANDBOXD_CPUS=nan");
    REFUSED("SANDBOXD_CPUS: ", "not a number", "SANDBOXD_CPUS=1e999");
    REFUSED("SANDBOXD_CPUS: ", "not a number", "SANDBOXD_CPUS=0x1p3");
    REFUSED("SANDBOXD_UI_ENABLED: ", "\"maybe\" is not one of", "SANDBOXD_UI_ENABLED=maybe");
}

Test(settings, make_one_line_of_an_error_whatever_the_value_holds)
{
    REFUSED("SANDBOXD_PORT: ", "\"1?SANDBOXD_X=2\"", "SANDBOXD_PORT=1\nSANDBOXD_X=2");
    REFUSED("SANDBOXD_PORT: ", "...\"",
            "SANDBOXD_PORT=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

Test(settings, know_every_word_for_yes_and_no)
{
    static const char *const yes[] = {"1", "true", "TRUE", "yes", "Yes", "on", "oN", " 1 "};
    static const char *const no[] = {"0", "false", "False", "no", "NO", "off", "Off", "\t0"};
    static const char *const neither[] = {"", " ", "2", "t", "y", "truee", "1 1", "tru", "enabled"};
    struct error err = ERROR_INIT;
    bool value;

    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        value = false;
        cr_assert_eq(settings_parse_bool(yes[i], &value, &err), 0, "%s", yes[i]);
        cr_assert(value, "%s", yes[i]);
        value = true;
        cr_assert_eq(settings_parse_bool(no[i], &value, &err), 0, "%s", no[i]);
        cr_assert_not(value, "%s", no[i]);
    }
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++)
        cr_assert_eq(settings_parse_bool(neither[i], &value, &err), -1, "%s", neither[i]);
}

Test(settings, read_sizes_as_dockers_tools_do)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {NULL, 0},
        {"", 0},
        {"0", 0},
        {"1", 1},
        {"1b", 1},
        {"64k", 65536},
        {"64K", 65536},
        {"64kb", 65536},
        {"64KiB", 65536},
        {"512m", 512 << 20},
        {"1g", 1 << 30},
        {"1.5g", 3 << 29},
        {"2gb", 2LL << 30},
        {" 1g ", 1 << 30},
        {"1 g", 1 << 30},
        {"1t", 1LL << 40},
        {"0.5k", 512},
        {"1p", 1LL << 50},
        {"9223372036854775807", INT64_MAX},
        {"1073741824", 1 << 30},
    };
    static const char *const bad[] = {"-1",       "-1g",     "g",    "1x",   "1gg",
                                      "1g1",      "1.g",     ".5g",  "1,5g", "1e3",
                                      "0x10",     "1 0",     "lots", "1ib",  "9223372036854775808",
                                      "9000000p", "8192.5p", "inf",  " "};
    struct error err = ERROR_INIT;
    int64_t bytes;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_assert_eq(size_parse(good[i].text, &bytes, &err), 0, "%s", good[i].text);
        cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(size_parse(bad[i], &bytes, &err), -1, "%s", bad[i]);
}

Test(settings, keep_ranges)
{
    static const char *const positive[] = {"CLEANUP_INTERVAL", "EXECUTE_TIMEOUT", "MAX_READ_BYTES",
                                           "MAX_BODY_BYTES",   "MAX_WORKERS",     "MAX_RUNNING_COMMANDS",
                                           "PIDS_LIMIT",       "MAX_CONNECTIONS"};
    static const char *const not_negative[] = {"MAX_SESSIONS", "MAX_OPEN_SESSIONS", "MAX_SESSIONS_PER_TENANT",
                                               "SANDBOX_UID", "PORT"};

    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++) {
        auto_free char *start = alloc_format("SANDBOXD_%s: ", positive[i]);
        auto_free char *zero = alloc_format("SANDBOXD_%s=0", positive[i]);
        auto_free char *minus = alloc_format("SANDBOXD_%s=-1", positive[i]);

        REFUSED(start, "between", zero);
        REFUSED(start, "between", minus);
    }
    for (size_t i = 0; i < sizeof not_negative / sizeof *not_negative; i++) {
        auto_free char *start = alloc_format("SANDBOXD_%s: ", not_negative[i]);
        auto_free char *minus = alloc_format("SANDBOXD_%s=-1", not_negative[i]);

        REFUSED(start, "between", minus);
    }
    REFUSED("SANDBOXD_PORT: ", "between 0 and 65535", "SANDBOXD_PORT=65536");
    REFUSED("SANDBOXD_CPU_SHARES: ", "between", "SANDBOXD_CPU_SHARES=0");
    REFUSED("SANDBOXD_EXECUTE_TIMEOUT: ", "between", "SANDBOXD_EXECUTE_TIMEOUT=9223372036854775807");
    REFUSED("SANDBOXD_CPUS: ", "between", "SANDBOXD_CPUS=0");
    REFUSED("SANDBOXD_CPUS: ", "between", "SANDBOXD_CPUS=-2");
}

Test(settings, take_negative_lifetimes_as_the_reference_does)
{
    auto_cleanup(settings_done) struct settings s = LOADED("SANDBOXD_IDLE_TIMEOUT=-1", "SANDBOXD_WORKSPACE_TTL=-1",
                                                           "SANDBOXD_CONTAINER_TTL=0", "SANDBOXD_MAX_SESSIONS=0");

    cr_assert_eq(s.idle_timeout, -1);
    cr_assert(s.workspace_ttl.is_set && s.workspace_ttl.value == -1);
    cr_assert(s.container_ttl.is_set && s.container_ttl.value == 0);
    cr_assert(s.max_sessions.is_set && s.max_sessions.value == 0);
}

/* -- what must fit together -- */

Test(settings, refuse_contradictions)
{
    REFUSED("SANDBOXD_DEFAULT_RUNTIME: ", "\"ruby\" is not in SANDBOXD_RUNTIMES", "SANDBOXD_DEFAULT_RUNTIME=ruby");
    REFUSED("SANDBOXD_MAX_OPEN_SESSIONS: ", "less than", "SANDBOXD_MAX_OPEN_SESSIONS=19");
    REFUSED("SANDBOXD_EVICT_IDLE_AFTER: ", "SANDBOXD_WORKSPACE_ROOT", "SANDBOXD_EVICT_IDLE_AFTER=60");
    REFUSED("SANDBOXD_MEMSWAP_LIMIT: ", "at least", "SANDBOXD_MEMSWAP_LIMIT=512m");
    REFUSED("SANDBOXD_MEMSWAP_LIMIT: ", "needs a mem_limit", "SANDBOXD_MEMSWAP_LIMIT=2g", "SANDBOXD_MEM_LIMIT=");
    REFUSED("SANDBOXD_MEMSWAP_LIMIT: ", "not a size", "SANDBOXD_MEMSWAP_LIMIT=-1");
    REFUSED("SANDBOXD_MEM_LIMIT: ", "not a size", "SANDBOXD_MEM_LIMIT=lots");
    REFUSED("SANDBOXD_MEM_LIMIT: ", "too few", "SANDBOXD_MEM_LIMIT=1");
    REFUSED("SANDBOXD_MEM_LIMIT: ", "too few", "SANDBOXD_MEM_LIMIT=0");
    REFUSED("SANDBOXD_TMPFS_SIZE: ", "not a size", "SANDBOXD_TMPFS_SIZE=50%");
    REFUSED("SANDBOXD_TMPFS_SIZE: ", "more than nothing", "SANDBOXD_TMPFS_SIZE=0");
    REFUSED("SANDBOXD_ON_STOP: ", "\"leave\" is not one of stop, keep", "SANDBOXD_ON_STOP=leave");
    REFUSED("SANDBOXD_LOG_LEVEL: ", "debug, info, warn, error", "SANDBOXD_LOG_LEVEL=INFO");
    REFUSED("SANDBOXD_OCI_RUNTIME: ", "not a name", "SANDBOXD_OCI_RUNTIME=run sc");
    REFUSED("SANDBOXD_HOST: ", "not an address", "SANDBOXD_HOST=a b");
}

Test(settings, take_what_fits_exactly)
{
    auto_cleanup(settings_done) struct settings s =
        LOADED("SANDBOXD_MAX_OPEN_SESSIONS=20", "SANDBOXD_EVICT_IDLE_AFTER=0", "SANDBOXD_WORKSPACE_ROOT=/srv/w/",
               "SANDBOXD_MEMSWAP_LIMIT=1024m", "SANDBOXD_DEFAULT_RUNTIME=node", "SANDBOXD_ON_STOP=keep");
    auto_cleanup(settings_done) struct settings unlimited =
        LOADED("SANDBOXD_MAX_OPEN_SESSIONS=1", "SANDBOXD_MAX_SESSIONS=");

    cr_assert_str_eq(s.default_runtime, "node");
    cr_assert_str_eq(s.workspace_root, "/srv/w");
    cr_assert_str_eq(s.state_dir, "/srv/w/.berth");
    cr_assert_eq(unlimited.max_open_sessions.value, 1);
}

Test(settings, refuse_networks_that_are_none_of_their_own)
{
    REFUSED("SANDBOXD_NETWORK_MODE: ", "never on the network of the host", "SANDBOXD_NETWORK_MODE=host");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "never on the network of the host", "SANDBOXD_NETWORK_MODE=container:abc");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "never on the network of the host", "SANDBOXD_NETWORK_MODE=ns:/proc/1/ns/net");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "is not the name of a network", "SANDBOXD_NETWORK_MODE=-x");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "is not the name of a network", "SANDBOXD_NETWORK_MODE=a/../b");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "is not the name of a network", "SANDBOXD_NETWORK_MODE=default");
    REFUSED("SANDBOXD_NETWORK_MODE: ", "whatever network the engine chooses", "SANDBOXD_NETWORK_MODE=");
}

Test(settings, refuse_paths_that_are_not_plain)
{
    static const char *const bad[] = {"/",     "//",     "work",  "./work", "/a/../b",
                                      "/a/..", "/a/./b", "/a//b", "/a\nb",  ".."};
    static const char *const variables[] = {"SANDBOXD_WORK_DIR", "SANDBOXD_WORKSPACE_ROOT", "SANDBOXD_STATE_DIR"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t k = 0; k < sizeof variables / sizeof *variables; k++) {
            auto_free char *setting = alloc_format("%s=%s", variables[k], bad[i]);

            REFUSED(variables[k], ": ", setting);
        }
}

Test(settings, refuse_a_work_dir_where_the_system_lives)
{
    REFUSED("SANDBOXD_WORK_DIR: ", "/proc", "SANDBOXD_WORK_DIR=/proc");
    REFUSED("SANDBOXD_WORK_DIR: ", "/sys", "SANDBOXD_WORK_DIR=/sys/x");
    REFUSED("SANDBOXD_WORK_DIR: ", "/dev", "SANDBOXD_WORK_DIR=/dev/shm");
    REFUSED("SANDBOXD_WORK_DIR: ", "/tmp", "SANDBOXD_WORK_DIR=/tmp/");
    auto_cleanup(settings_done) struct settings near = LOADED("SANDBOXD_WORK_DIR=/process/..a/...//");

    cr_assert_str_eq(near.work_dir, "/process/..a/...");
}

Test(settings, refuse_a_state_dir_that_looks_like_a_session)
{
    static const char root[] = "SANDBOXD_WORKSPACE_ROOT=/srv/w";

    REFUSED("SANDBOXD_STATE_DIR: ", "itself", root, "SANDBOXD_STATE_DIR=/srv/w/");
    REFUSED("SANDBOXD_STATE_DIR: ", "session's directory", root, "SANDBOXD_STATE_DIR=/srv/w/state");
    REFUSED("SANDBOXD_STATE_DIR: ", "session's directory", root, "SANDBOXD_STATE_DIR=/srv/w/.slots/x");
    auto_cleanup(settings_done) struct settings below = LOADED(root, "SANDBOXD_STATE_DIR=/srv/w/.state/x");
    auto_cleanup(settings_done) struct settings beside = LOADED(root, "SANDBOXD_STATE_DIR=/srv/w2");

    cr_assert_str_eq(below.state_dir, "/srv/w/.state/x");
    cr_assert_str_eq(beside.state_dir, "/srv/w2");
}

/* -- SANDBOXD_RUNTIMES -- */

static void check_full_entry(const struct runtime_setting *runtime)
{
    cr_assert_str_eq(runtime->alias, "big");
    cr_assert_str_eq(runtime->image, "registry:5000/a/b@sha256:0a");
    cr_assert_str_eq(runtime->description, "a big one");
    cr_assert_str_eq(runtime->mem_limit, "4g");
    cr_assert_str_eq(runtime->memswap_limit, "6g");
    cr_assert(runtime->cpus.is_set && runtime->cpus.value == 1.5);
    cr_assert(runtime->cpu_shares.is_set && runtime->cpu_shares.value == 512);
    cr_assert(runtime->pids_limit.is_set && runtime->pids_limit.value == 64);
    cr_assert_str_eq(runtime->network_mode, "none");
    cr_assert_str_eq(runtime->oci_runtime, "runsc");
    cr_assert(runtime->caps_none);
}

static void check_bare_entry(const struct runtime_setting *runtime)
{
    cr_assert_str_eq(runtime->alias, "small");
    cr_assert_str_eq(runtime->image, "busybox");
    cr_assert(!runtime->description && !runtime->mem_limit && !runtime->memswap_limit && !runtime->network_mode &&
              !runtime->oci_runtime && !runtime->cpus.is_set && !runtime->cpu_shares.is_set &&
              !runtime->pids_limit.is_set && !runtime->caps_none);
}

Test(runtimes, are_read_from_a_list)
{
    auto_cleanup(settings_done) struct settings s =
        LOADED("SANDBOXD_RUNTIMES= , big = registry:5000/a/b@sha256:0a ; mem_limit=4g;memswap_limit=6g ;cpus=1.5;;"
               "cpu_shares=512;pids_limit = 64; network_mode=none;oci_runtime=runsc;caps=none;description= a big one ,,"
               "small=busybox; mem_limit= ;cpus=;caps=;");

    cr_assert_eq(s.runtime_count, 2);
    check_full_entry(&s.runtime_list[0]);
    check_bare_entry(&s.runtime_list[1]);
    cr_assert_str_eq(s.default_runtime, "big");
}

Test(runtimes, are_read_from_json)
{
    auto_cleanup(settings_done) struct settings s = LOADED(
        "SANDBOXD_RUNTIMES= {\"big\": {\"image\": \"registry:5000/a/b@sha256:0a\", \"mem_limit\": \"4g\","
        "\"memswap_limit\": \"6g\", \"cpus\": 1.5, \"cpu_shares\": \"512\", \"pids_limit\": 64, \"network\": \"none\","
        "\"oci_runtime\": \"runsc\", \"caps\": \"none\", \"description\": \"a big one\"},"
        "\"small\": {\"image\": \"busybox\", \"cpus\": null, \"mem_limit\": null, \"runtime\": null}}");
    auto_cleanup(settings_done) struct settings bare = LOADED("SANDBOXD_RUNTIMES={\"small\": \"busybox\"}");

    cr_assert_eq(s.runtime_count, 2);
    check_full_entry(&s.runtime_list[0]);
    check_bare_entry(&s.runtime_list[1]);
    check_bare_entry(&bare.runtime_list[0]);
}

#define RUNTIMES_REFUSED(part, text) REFUSED("SANDBOXD_RUNTIMES: ", part, "SANDBOXD_RUNTIMES=" text)

Test(runtimes, say_what_an_image_is_built_of)
{
    auto_cleanup(settings_done) struct settings s = LOADED(
        "SANDBOXD_RUNTIMES=a=debian:12;apt=git  ripgrep;pip=pandas;description=mine,b=@coding;mem_limit=1g,c=@bun,"
        "d=;dockerfile=/srv/d");
    auto_cleanup(settings_done) struct settings j = LOADED(
        "SANDBOXD_RUNTIMES={\"a\": {\"image\": \"debian:12\", \"apt\": [\"git\", \"ripgrep\"], \"setup\": \"true\"},"
        "\"b\": \"@python-web\", \"c\": {\"runtime\": \"node-react\", \"cpus\": 2},"
        "\"d\": {\"runtime\": {\"name\": \"x\", \"base_image\": \"y:1\", \"packages\": [\"p\", \"q\"], "
        "\"package_manager\": \"npm\","
        "\"setup_commands\": [\"one\", \"two\"], \"env_vars\": {\"A\": \"1\", \"B\": \"\"}, \"cache_image\": true}}}");

    cr_assert_eq(s.runtime_count, 4);
    cr_assert(!s.runtime_list[0].image && s.runtime_list[0].build.is_wanted);
    cr_assert_str_eq(s.runtime_list[0].build.base_image, "debian:12");
    cr_assert_str_eq(s.runtime_list[0].build.apt, "git  ripgrep");
    cr_assert_str_eq(s.runtime_list[0].build.pip, "pandas");
    cr_assert_str_eq(s.runtime_list[1].build.base_image, "python:3.12-slim");
    cr_assert(strstr(s.runtime_list[1].build.apt, "ripgrep") && s.runtime_list[1].description);
    cr_assert(!s.runtime_list[2].build.is_wanted);
    cr_assert_str_eq(s.runtime_list[2].image, "oven/bun:1-slim");
    cr_assert(s.runtime_list[3].build.is_wanted && !s.runtime_list[3].build.base_image);
    cr_assert_str_eq(s.runtime_list[3].build.dockerfile, "/srv/d");

    cr_assert_str_eq(j.runtime_list[0].build.apt, "git ripgrep");
    cr_assert_str_eq(j.runtime_list[0].build.setup, "true");
    cr_assert_str_eq(j.runtime_list[1].build.pip, "fastapi uvicorn sqlalchemy httpx");
    cr_assert_str_eq(j.runtime_list[2].build.npm, "typescript vite react react-dom @types/react");
    cr_assert_str_eq(j.runtime_list[3].build.base_image, "y:1");
    cr_assert_str_eq(j.runtime_list[3].build.npm, "p q");
    cr_assert_str_eq(j.runtime_list[3].build.setup, "one\ntwo");
    cr_assert_str_eq(j.runtime_list[3].build.env, "A=1\nB=");
}

Test(runtimes, refuse_what_cannot_be_built)
{
    RUNTIMES_REFUSED("\"@nothing\" is no runtime", "a=@nothing");
    RUNTIMES_REFUSED("names no image to build on", "a=;apt=git");
    RUNTIMES_REFUSED("dockerfile says all there is", "a=x;dockerfile=/srv/d");
    RUNTIMES_REFUSED("not the absolute path", "a=;dockerfile=srv");
    RUNTIMES_REFUSED("names its image twice", "{\"a\": {\"image\": \"x\", \"runtime\": \"coding\"}}");
    RUNTIMES_REFUSED("both image and base_image", "{\"a\": {\"image\": \"x\", \"base_image\": \"y\"}}");
    RUNTIMES_REFUSED("it is apt, pip or npm",
                     "{\"a\": {\"base_image\": \"x\", \"packages\": [\"a\"], \"package_manager\": \"cargo\"}}");
    RUNTIMES_REFUSED("a command is one line", "{\"a\": {\"image\": \"x\", \"setup_commands\": [\"a\\nb\"]}}");
    RUNTIMES_REFUSED("has the wrong type", "{\"a\": {\"image\": \"x\", \"apt\": [1]}}");
    RUNTIMES_REFUSED("has the wrong type", "{\"a\": {\"image\": \"x\", \"env_vars\": [\"A\"]}}");
    RUNTIMES_REFUSED("is not a field", "a=x;run_as_uid=5");
}

Test(runtimes, refuse_networks_that_are_none_of_their_own)
{
    RUNTIMES_REFUSED("a: network: \"host\"", "a=x;network=host");
    RUNTIMES_REFUSED("a: network_mode: \"container:", "a=x;network_mode=container:b");
    RUNTIMES_REFUSED("never on the network of the host", "{\"a\": {\"image\": \"x\", \"network_mode\": \"host\"}}");
    RUNTIMES_REFUSED("is not the name", "{\"a\": {\"image\": \"x\", \"network\": \"my net\"}}");
}

Test(runtimes, refuse_a_list_that_is_wrong)
{
    RUNTIMES_REFUSED("names no runtime", " ");
    RUNTIMES_REFUSED("names no runtime", ", ,");
    RUNTIMES_REFUSED("\"python\" has no '='", "python");
    RUNTIMES_REFUSED("an alias is empty", "=python");
    RUNTIMES_REFUSED("an alias is empty", " =python");
    RUNTIMES_REFUSED("a: names no image", "a=");
    RUNTIMES_REFUSED("a: names no image", "a= ;cpus=1");
    RUNTIMES_REFUSED("a: is there twice", "a=x,b=y,a=z");
    RUNTIMES_REFUSED("a: \"cpus\" has no '='", "a=x;cpus");
    RUNTIMES_REFUSED("a: volumes: is not a field", "a=x;volumes=/etc");
    RUNTIMES_REFUSED("a: : is not a field", "a=x;=1");
    RUNTIMES_REFUSED("a: names its image twice", "a=x;image=y");
    RUNTIMES_REFUSED("a: cpus: \"two\" is not a number", "a=x;cpus=two");
    RUNTIMES_REFUSED("a: pids_limit: \"1.5\" is not a whole number", "a=x;pids_limit=1.5");
    RUNTIMES_REFUSED("a: mem_limit: \"lots\" is not a size", "a=x;mem_limit=lots");
    RUNTIMES_REFUSED("a: caps: \"all\"", "a=x;caps=all");
    RUNTIMES_REFUSED("not the name of an image", "a=x y");
    RUNTIMES_REFUSED("holds a slash", "a/b=x");
    RUNTIMES_REFUSED("control character", "a\x01=x");
    RUNTIMES_REFUSED("a: description: holds a control character", "a=x;description=a\x1b[1m");
    RUNTIMES_REFUSED("longer than 64", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggggg=x");
}

Test(runtimes, refuse_json_that_is_wrong)
{
    RUNTIMES_REFUSED("near byte", "{\"a\": }");
    RUNTIMES_REFUSED("near byte", "{\"a\": \"x\"} x");
    RUNTIMES_REFUSED("near byte", "{'a': 'x'}");
    RUNTIMES_REFUSED("names no runtime", "{}");
    RUNTIMES_REFUSED("has no '='", "[\"a\"]");
    RUNTIMES_REFUSED("a: is neither an image nor an object", "{\"a\": 1}");
    RUNTIMES_REFUSED("a: is neither an image nor an object", "{\"a\": [\"x\"]}");
    RUNTIMES_REFUSED("a: is neither an image nor an object", "{\"a\": null}");
    RUNTIMES_REFUSED("a: its image is empty", "{\"a\": \"\"}");
    RUNTIMES_REFUSED("a: its image is empty", "{\"a\": {\"image\": \"\"}}");
    RUNTIMES_REFUSED("a: names no image", "{\"a\": {}}");
    RUNTIMES_REFUSED("a: names no image", "{\"a\": {\"image\": null}}");
    RUNTIMES_REFUSED("an alias is empty", "{\"\": \"x\"}");
    RUNTIMES_REFUSED("a: privileged: has the wrong type", "{\"a\": {\"image\": \"x\", \"privileged\": true}}");
    RUNTIMES_REFUSED("a: volumes: is not a field", "{\"a\": {\"image\": \"x\", \"volumes\": \"/etc\"}}");
    RUNTIMES_REFUSED("a: volumes: is not a field", "{\"a\": {\"image\": \"x\", \"volumes\": null}}");
    RUNTIMES_REFUSED("a: image: has the wrong type", "{\"a\": {\"image\": 7}}");
    RUNTIMES_REFUSED("a: image: has the wrong type", "{\"a\": {\"image\": \"x\\u0000y\"}}");
    RUNTIMES_REFUSED("a: is neither", "{\"a\": \"x\\u0000y\"}");
    RUNTIMES_REFUSED("a: mem_limit: has the wrong type", "{\"a\": {\"image\": \"x\", \"mem_limit\": 1}}");
    RUNTIMES_REFUSED("a: cpus: has the wrong type", "{\"a\": {\"image\": \"x\", \"cpus\": true}}");
    RUNTIMES_REFUSED("a: cpus: has the wrong type", "{\"a\": {\"image\": \"x\", \"cpus\": \"\"}}");
    RUNTIMES_REFUSED("a: pids_limit: \"5.5\" is not a whole number",
                     "{\"a\": {\"image\": \"x\", \"pids_limit\": 5.5}}");
}

Test(runtimes, are_checked_with_the_services_ceilings)
{
    RUNTIMES_REFUSED("a: memswap_limit counts memory and swap", "a=x;memswap_limit=512m");
    RUNTIMES_REFUSED("a: memswap_limit counts memory and swap", "a=x;mem_limit=2g;memswap_limit=1g");
    RUNTIMES_REFUSED("a: 1024 bytes of memory are too few", "a=x;mem_limit=1k");
    RUNTIMES_REFUSED("a: 0 processors", "a=x;cpus=0");
    RUNTIMES_REFUSED("a: pids_limit", "a=x;pids_limit=0");
    RUNTIMES_REFUSED("a: cpu_shares", "a=x;cpu_shares=-1");
    RUNTIMES_REFUSED("is not a name", "a=x;oci_runtime=a b");
    REFUSED("SANDBOXD_RUNTIMES: ", "a: memswap_limit", "SANDBOXD_RUNTIMES=a=x;mem_limit=4g",
            "SANDBOXD_MEMSWAP_LIMIT=2g");
}

/* -- where they come from -- */

Test(sources, let_the_environment_win_over_the_file)
{
    static const char text[] = "# a comment\n"
                               "\n"
                               "SANDBOXD_TOKEN=from#file=$HOME\r\n"
                               "  # another\n"
                               "SANDBOXD_HOST='::1'\n"
                               "  SANDBOXD_PORT = 2 \n"
                               "SANDBOXD_WORK_DIR=\"/w 'x' #\"\n"
                               "DOCKER_HOST=unix:///file.sock\n"
                               "SANDBOXD_MEM_LIMIT=";
    char path[64];
    auto_close int file = file_of(text, sizeof text - 1, path);
    auto_cleanup(settings_done) struct settings only_file = loaded(path, (const char *const[]){NULL});
    auto_cleanup(settings_done) struct settings both = loaded(
        path, (const char *const[]){"SANDBOXD_PORT=3", "SANDBOXD_HOSTS=x", "DOCKER_HOST=unix:///env.sock", NULL});

    cr_assert(file >= 0);
    cr_assert_str_eq(only_file.token, "from#file=$HOME");
    cr_assert_str_eq(only_file.host, "::1");
    cr_assert_eq(only_file.port, 2);
    cr_assert_null(only_file.mem_limit);
    cr_assert_str_eq(only_file.work_dir, "/w 'x' #");
    cr_assert_str_eq(only_file.engine_socket, "/file.sock");
    cr_assert_eq(both.port, 3);
    cr_assert_str_eq(both.token, "from#file=$HOME");
    cr_assert_str_eq(both.engine_socket, "/env.sock");
}

static void file_refused(const char *text, size_t size, const char *part)
{
    char path[64];
    auto_close int file = file_of(text, size, path);

    cr_assert(file >= 0);
    refused(path, "/proc/self/fd/", part, (const char *const[]){TOKEN, NULL});
}
#define FILE_REFUSED(part, text) file_refused("" text, sizeof text - 1, part)

Test(sources, refuse_a_file_by_its_line_without_showing_it)
{
    FILE_REFUSED(":2: no '='", "# x\nsecret-of\n");
    FILE_REFUSED(":1: what is before '=' is not a name", "=secret-of\n");
    FILE_REFUSED(":1: what is before '='", "export SANDBOXD_TOKEN=secret-of\n");
    FILE_REFUSED(":3: SANDBOXD_TOKEN: the value begins with a quote", "\n\nSANDBOXD_TOKEN=\"secret-of\n");
    FILE_REFUSED(":1: SANDBOXD_HOST: the value begins", "SANDBOXD_HOST='a'b'");
    FILE_REFUSED(":1: SANDBOXD_HOST: the value begins", "SANDBOXD_HOST='");
    FILE_REFUSED("a NUL", "SANDBOXD_TOKEN=secret-of\0x\n");
    FILE_REFUSED(":2: SANDBOXD_URL: there is no such setting", "\nSANDBOXD_URL=a\n");
    FILE_REFUSED(":1: PORT: there is no such", "PORT=1");
    FILE_REFUSED(":3: SANDBOXD_PORT: is set on line 1 already", "SANDBOXD_PORT=1\n\nSANDBOXD_PORT=1\n");
    refused("/nonexistent/berth.env", "/nonexistent/berth.env: ", "No such file", (const char *const[]){TOKEN, NULL});
    refused("/tmp", "/tmp: ", "directory", (const char *const[]){TOKEN, NULL});
}

Test(sources, name_the_line_of_a_value_that_is_wrong)
{
    FILE_REFUSED(":2: SANDBOXD_PORT: ", "\nSANDBOXD_PORT=x\n");
    FILE_REFUSED(":1: SANDBOXD_PORT: 70000 is not between", "SANDBOXD_PORT=70000\n");
    FILE_REFUSED(":2: SANDBOXD_RUNTIMES: ", "\nSANDBOXD_RUNTIMES=python\n");
    FILE_REFUSED(":1: DOCKER_HOST: ", "DOCKER_HOST=tcp://x\n");
}

Test(sources, name_no_line_for_what_the_environment_says)
{
    static const char text[] = "SANDBOXD_PORT=1\n";
    char path[64];
    auto_close int file = file_of(text, sizeof text - 1, path);

    cr_assert(file >= 0);
    refused(path, "SANDBOXD_PORT: ", "70000", (const char *const[]){TOKEN, "SANDBOXD_PORT=70000", NULL});
}

Test(sources, refuse_a_file_that_is_open_to_everybody)
{
    static const char text[] = "SANDBOXD_HOST=::1\nSANDBOXD_TOKEN=secret-of\n";
    char path[64];
    auto_close int file = file_of(text, sizeof text - 1, path);

    cr_assert_eq(fchmod(file, 0644), 0);
    refused(path, "/proc/self/fd/", ":2: everybody may read the file, and it holds SANDBOXD_TOKEN",
            (const char *const[]){"X=", NULL});
    cr_assert_eq(fchmod(file, 0602), 0);
    refused(path, "/proc/self/fd/", "everybody may write it", (const char *const[]){"X=", NULL});
    cr_assert_eq(ftruncate(file, 18), 0);
    cr_assert_eq(fchmod(file, 0644), 0);
    auto_cleanup(settings_done) struct settings settings = loaded(path, (const char *const[]){TOKEN, NULL});
    cr_assert_str_eq(settings.host, "::1");
}

Test(sources, refuse_a_file_over_a_megabyte)
{
    auto_free char *text = alloc_zero(SETTINGS_SOURCE_MAX + 2);

    memset(text, '#', SETTINGS_SOURCE_MAX + 1);
    file_refused(text, SETTINGS_SOURCE_MAX + 1, "more than");
}

Test(sources, warn_of_each_unknown_variable)
{
    auto_free char *lines =
        warnings(NULL, (const char *const[]){TOKEN, "SANDBOXD_URL=http://x", "PATH=/bin", "SANDBOXD_PORT_=1", NULL});

    cr_assert_eq(count_of(lines, "\n"), 2, "%s", lines);
    cr_assert_eq(count_of(lines, "level=warn event=settings.unknown variable=SANDBOXD_URL\n"), 1, "%s", lines);
    cr_assert_eq(count_of(lines, "variable=SANDBOXD_PORT_\n"), 1, "%s", lines);
}

static void add_name(const char *variable, void *context)
{
    struct error err = ERROR_INIT;

    cr_assert_eq(buf_append_format(context, &err, "%s ", variable), 0);
}

Test(settings, tell_what_is_different)
{
    auto_cleanup(settings_done) struct settings one =
        LOADED("DOCKER_HOST=unix:///x.sock", "SANDBOXD_CPUS=1.5", "SANDBOXD_MAX_SESSIONS=", "SANDBOXD_PORT=1");
    auto_cleanup(settings_done) struct settings other =
        LOADED("DOCKER_HOST=unix:///y.sock", "SANDBOXD_CPUS=1.50", "SANDBOXD_PORT=2", "SANDBOXD_NATIVE_FILES=no",
               "SANDBOXD_MEM_LIMIT=");
    auto_buf struct buf names = BUF_INIT(1024);

    settings_differences(&one, &one, add_name, &names);
    cr_assert_str_eq(buf_str(&names), "");
    settings_differences(&one, &other, add_name, &names);
    cr_assert_str_eq(buf_str(&names), "SANDBOXD_PORT SANDBOXD_MAX_SESSIONS SANDBOXD_MEM_LIMIT SANDBOXD_NATIVE_FILES "
                                      "DOCKER_HOST ");
}

Test(sources, say_nothing_of_what_is_served)
{
    auto_free char *lines = warnings(NULL, (const char *const[]){TOKEN, "SANDBOXD_UI_ENABLED=1",
                                                                 "SANDBOXD_POLICY_OVERRIDES=/etc/policy.json", NULL});

    cr_assert_str_eq(lines, "");
}

/* -- the engine's socket -- */

Test(engine_socket, is_reached_over_a_unix_socket_only)
{
    REFUSED("DOCKER_HOST: ", "\"tcp://127.0.0.1:2375\": the engine is reached over a Unix socket only",
            "DOCKER_HOST=tcp://127.0.0.1:2375");
    REFUSED("DOCKER_HOST: ", "Unix socket only", "DOCKER_HOST=ssh://a@b");
    REFUSED("DOCKER_HOST: ", "Unix socket only", "DOCKER_HOST=/var/run/docker.sock");
    REFUSED("DOCKER_HOST: ", "absolute", "DOCKER_HOST=unix://docker.sock");
    REFUSED("DOCKER_HOST: ", "absolute", "DOCKER_HOST=unix://");
    REFUSED(
        "DOCKER_HOST: ", "longer",
        "DOCKER_HOST=unix:///aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaa.sock");
}

static void listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", path);
    (void)close(fd); /* its name stays */
}

Test(engine_socket, is_the_first_usual_path_that_is_a_socket)
{
    char dir[] = "/tmp/berth-test-socket-XXXXXX";
    struct error err = ERROR_INIT;

    cr_assert_not_null(mkdtemp(dir));
    auto_free char *plain = alloc_format("%s/plain", dir);
    auto_free char *absent = alloc_format("%s/absent", dir);
    auto_free char *second = alloc_format("%s/second.sock", dir);
    auto_free char *third = alloc_format("%s/third.sock", dir);
    auto_close int file = open(plain, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const char *const usual[] = {absent, plain, second, third};
    auto_free char *found = NULL;
    auto_free char *none = NULL;
    auto_free char *told = NULL;

    cr_assert(file >= 0);
    listen_at(second);
    listen_at(third);
    cr_assert_eq(settings_engine_socket(NULL, usual, 4, &found, &err), 0);
    cr_assert_str_eq(found, second);
    cr_assert_eq(settings_engine_socket("", usual, 2, &none, &err), 0);
    cr_assert_str_eq(none, absent);
    cr_assert_eq(settings_engine_socket("unix:///else.sock", usual, 4, &told, &err), 0);
    cr_assert_str_eq(told, "/else.sock");
    (void)unlink(plain);
    (void)unlink(second);
    (void)unlink(third);
    cr_assert_eq(rmdir(dir), 0);
}

/* -- help -- */

Test(help, names_every_variable_with_its_default)
{
    auto_free char *help = settings_help();
    static const char *const variables[] = {
#define NAME(field, env, text, help) env,
#define SETTING_STR NAME
#define SETTING_OPT_STR NAME
#define SETTING_INT NAME
#define SETTING_OPT_INT NAME
#define SETTING_OPT_FLOAT NAME
#define SETTING_BOOL NAME
#include "settings.def"
    };

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        cr_assert_not_null(strstr(help, variables[i]), "%s", variables[i]);
    cr_assert_not_null(strstr(help, "SANDBOXD_PORT [8080]\n"));
    cr_assert_not_null(strstr(help, "SANDBOXD_MEM_LIMIT [1g]\n"));
    cr_assert_not_null(strstr(help, "DOCKER_HOST"));
}

Test(settings, take_a_pool_of_runtimes_that_are_there)
{
    auto_cleanup(settings_done) struct settings s =
        LOADED("DOCKER_HOST=unix:///x.sock", "SANDBOXD_POOL= node = 2,python=4");

    cr_assert_eq(s.runtime_list[0].pool, 4);
    cr_assert_eq(s.runtime_list[1].pool, 2);
    REFUSED("SANDBOXD_POOL: ", "ruby", "SANDBOXD_POOL=ruby=1");
    REFUSED("SANDBOXD_POOL: ", "alias=count", "SANDBOXD_POOL=python");
    REFUSED("SANDBOXD_POOL: ", "not from 0", "SANDBOXD_POOL=python=-1");
    REFUSED("SANDBOXD_POOL: ", "whole number", "SANDBOXD_POOL=python=x");
}
