#include "settings_private.h"

#include "alloc.h"
#include "buf.h"
#include "fd.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_STR, KIND_OPT_STR, KIND_INT, KIND_OPT_INT, KIND_OPT_FLOAT, KIND_BOOL };

struct setting {
    const char *variable;
    const char *fallback; /* NULL: none */
    const char *help;
    enum kind kind;
    size_t offset;
};

static const struct setting table[] = {
#define SETTING(kind, field, env, text, help) {env, text, help, kind, offsetof(struct settings, field)},
#define SETTING_STR(field, env, text, help) SETTING(KIND_STR, field, env, text, help)
#define SETTING_OPT_STR(field, env, text, help) SETTING(KIND_OPT_STR, field, env, text, help)
#define SETTING_INT(field, env, text, help) SETTING(KIND_INT, field, env, text, help)
#define SETTING_OPT_INT(field, env, text, help) SETTING(KIND_OPT_INT, field, env, text, help)
#define SETTING_OPT_FLOAT(field, env, text, help) SETTING(KIND_OPT_FLOAT, field, env, text, help)
#define SETTING_BOOL(field, env, text, help) SETTING(KIND_BOOL, field, env, text, help)
#include "settings.def"
};

enum { COUNT = sizeof table / sizeof *table };

static void *field_of(struct settings *settings, const struct setting *setting)
{
    return (char *)settings + setting->offset;
}

/* `text` NULL: neither set nor a default. */
static int set_one(struct settings *settings, const struct setting *setting, const char *text, struct error *err)
{
    void *field = field_of(settings, setting);
    bool is_empty = !text || !*text;
    struct opt_int *whole = field;
    struct opt_float *real = field;

    switch (setting->kind) {
    case KIND_STR:
        if (is_empty)
            return fail(err, INVALID, text ? "must not be empty" : "is required");
        *(char **)field = alloc_str(text);
        return 0;
    case KIND_OPT_STR:
        *(char **)field = is_empty ? NULL : alloc_str(text);
        return 0;
    case KIND_INT:
        return settings_parse_int(text ? text : "", field, err);
    case KIND_OPT_INT:
        whole->is_set = !is_empty;
        return is_empty ? 0 : settings_parse_int(text, &whole->value, err);
    case KIND_OPT_FLOAT:
        real->is_set = !is_empty;
        return is_empty ? 0 : settings_parse_float(text, &real->value, err);
    case KIND_BOOL:
        return settings_parse_bool(text ? text : "", field, err);
    }
    return fail(err, INTERNAL, "unknown kind of setting");
}

bool settings_known(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(table[i].variable, name) == 0)
            return true;
    return strcmp(name, "DOCKER_HOST") == 0;
}

/* A file with such a line is refused; the environment may hold what is somebody else's. */
static void warn_of_unknown(const char *const *environment)
{
    for (; *environment; environment++) {
        auto_free char *name = alloc_str_n(*environment, strcspn(*environment, "="));

        if (strncmp(name, "SANDBOXD_", 9) == 0 && !settings_known(name))
            log_warn("settings.unknown", log_s("variable", name));
    }
}

static void strip_slashes(char *path)
{
    size_t size = path ? strlen(path) : 0;

    while (size > 1 && path[size - 1] == '/')
        path[--size] = '\0';
}

/* What the table cannot say: defaults that follow from other settings. */
static void complete(struct settings *settings)
{
    strip_slashes(settings->work_dir);
    strip_slashes(settings->workspace_root);
    if (!settings->default_runtime)
        settings->default_runtime = alloc_str(settings->runtime_list[0].alias);
    if (!settings->state_dir)
        settings->state_dir = settings->workspace_root ? alloc_format("%s/.berth", settings->workspace_root)
                                                       : alloc_str("/var/lib/berth");
    strip_slashes(settings->state_dir);
}

static int find_engine(const struct settings_source *source, struct settings *settings, struct error *err)
{
    const char *runtime_dir = settings_source_get(source, "XDG_RUNTIME_DIR");
    bool has_own = runtime_dir && *runtime_dir == '/';
    auto_free char *podman = alloc_format("%s/podman/podman.sock", has_own ? runtime_dir : "");
    auto_free char *docker = alloc_format("%s/docker.sock", has_own ? runtime_dir : "");
    const char *const usual[] = {"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", podman, docker};

    return settings_engine_socket(settings_source_get(source, "DOCKER_HOST"), usual, has_own ? 5 : 3,
                                  &settings->engine_socket, err);
}

/* A secret that lies in a file of its own, as orchestrators hand them over: its first line. */
static int read_secret(struct settings *settings, struct error *err)
{
    auto_close int fd = -1;
    auto_buf struct buf text = BUF_INIT(4096);

    if (!settings->webhook_secret_file)
        return 0;
    if (settings->webhook_secret)
        return fail(err, INVALID, "SANDBOXD_WEBHOOK_SECRET and SANDBOXD_WEBHOOK_SECRET_FILE: one of them");
    fd = open(settings->webhook_secret_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(err, "SANDBOXD_WEBHOOK_SECRET_FILE");
    if (fd_read_all(fd, &text, err) < 0)
        return error_prefix(err, "SANDBOXD_WEBHOOK_SECRET_FILE");
    settings->webhook_secret = alloc_str_n(buf_str(&text), strcspn(buf_str(&text), "\r\n"));
    return 0;
}

static int load(const struct settings_source *source, struct settings *settings, struct error *err)
{
    for (size_t i = 0; i < COUNT; i++) {
        const char *text = settings_source_get(source, table[i].variable);

        if (set_one(settings, &table[i], text ? text : table[i].fallback, err) < 0)
            return error_prefix(err, "%s", table[i].variable);
    }
    if (settings_parse_runtimes(settings->runtimes, &settings->runtime_list, &settings->runtime_count, err) < 0)
        return error_prefix(err, "SANDBOXD_RUNTIMES");
    complete(settings);
    if (settings_parse_pool(settings, err) < 0 || read_secret(settings, err) < 0)
        return -1;
    if (find_engine(source, settings, err) < 0 || settings_check(settings, err) < 0)
        return -1;
    return 0;
}

int settings_load(const char *const *environment, const char *file, struct settings *ret, struct error *err)
{
    auto_cleanup(settings_source_done) struct settings_source source = {0};
    auto_cleanup(settings_done) struct settings settings = {0};

    *ret = (struct settings){0};
    if (settings_source_open(environment, file, &source, err) < 0)
        return -1;
    if (load(&source, &settings, err) < 0)
        return settings_source_place(&source, err);
    warn_of_unknown(environment);
    *ret = settings;
    settings = (struct settings){0};
    return 0;
}

void settings_done(struct settings *settings)
{
    for (size_t i = 0; i < COUNT; i++)
        if (table[i].kind == KIND_STR || table[i].kind == KIND_OPT_STR)
            free(*(char **)field_of(settings, &table[i]));
    settings_runtimes_done(settings->runtime_list, settings->runtime_count);
    free(settings->engine_socket);
    *settings = (struct settings){0};
}

static bool same_text(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static bool same(const struct setting *setting, const void *one, const void *other)
{
    const struct opt_int *whole = one, *other_whole = other;
    const struct opt_float *real = one, *other_real = other;

    switch (setting->kind) {
    case KIND_STR:
    case KIND_OPT_STR:
        return same_text(*(char *const *)one, *(char *const *)other);
    case KIND_INT:
        return *(const int64_t *)one == *(const int64_t *)other;
    case KIND_OPT_INT:
        return whole->is_set == other_whole->is_set && (!whole->is_set || whole->value == other_whole->value);
    case KIND_OPT_FLOAT:
        return real->is_set == other_real->is_set &&
               (!real->is_set || !(real->value < other_real->value || real->value > other_real->value));
    case KIND_BOOL:
        return *(const bool *)one == *(const bool *)other;
    }
    return true;
}

void settings_differences(struct settings *before, struct settings *after,
                          void (*visit)(const char *variable, void *context), void *context)
{
    for (size_t i = 0; i < COUNT; i++)
        if (!same(&table[i], field_of(before, &table[i]), field_of(after, &table[i])))
            visit(table[i].variable, context);
    if (!same_text(before->engine_socket, after->engine_socket))
        visit("DOCKER_HOST", context);
}

const char *settings_usual_file(void)
{
    return access(SETTINGS_FILE, F_OK) == 0 || errno != ENOENT ? SETTINGS_FILE : NULL;
}

char *settings_help(void)
{
    static const char head[] =
        "usage: berthd [--config FILE] [--check-config] [--new-key] [--probe]\n"
        "       berthd --help | --version\n"
        "\n"
        "The sandbox broker. It is set by environment variables, and by a file of NAME=value lines\n"
        "(--config, otherwise " SETTINGS_FILE " if it is there), over which the environment\n"
        "wins. --check-config reads both and ends. SIGHUP: both are read again; see berthd.conf(5).\n"
        "--probe asks the one that runs with these settings whether it is alive: exit status 0 or 1.\n"
        "An empty value of an optional setting is none.\n"
        "\n";
    static const char tail[] =
        "\n"
        "  DOCKER_HOST\n"
        "      socket of the engine, unix:///path (default: the first that is there of /var/run/docker.sock,\n"
        "      /run/docker.sock, /run/podman/podman.sock and, in $XDG_RUNTIME_DIR, podman/podman.sock, docker.sock)\n";
    auto_buf struct buf text = BUF_INIT(64 * 1024);
    struct error err = ERROR_INIT;

    (void)buf_append_str(&text, head, &err);
    for (size_t i = 0; i < COUNT; i++)
        (void)buf_append_format(&text, &err, "  %s%s%s%s\n      %s\n", table[i].variable, table[i].fallback ? " [" : "",
                                table[i].fallback ? table[i].fallback : "", table[i].fallback ? "]" : "",
                                table[i].help);
    (void)buf_append_str(&text, tail, &err);
    return buf_take(&text, NULL);
}
