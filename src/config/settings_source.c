#include "settings_private.h"

#include "alloc.h"
#include "buf.h"
#include "fd.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

static bool is_name(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bool letter = (text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z') || text[i] == '_';

        if (!letter && (i == 0 || text[i] < '0' || text[i] > '9'))
            return false;
    }
    return size > 0;
}

static size_t trimmed(const char **text, size_t size)
{
    while (size && (**text == ' ' || **text == '\t')) {
        (*text)++;
        size--;
    }
    while (size && strchr(" \t\r", (*text)[size - 1]))
        size--;
    return size;
}

/* Quotes around the whole of a value are taken off: 'a' and "a" are a. Nothing else is special in there. */
static int take_quotes_off(const char **value, size_t *size, struct error *err)
{
    char quote = *size ? **value : '\0';

    if (quote != '"' && quote != '\'')
        return 0;
    if (*size < 2 || (*value)[*size - 1] != quote || memchr(*value + 1, quote, *size - 2))
        return fail(err, INVALID, "the value begins with a quote, but does not end with the only other one");
    (*value)++;
    *size -= 2;
    return 0;
}

static int add_pair(struct settings_source *source, const char *name, const char *value, size_t size, unsigned line,
                    struct error *err)
{
    if (!settings_known(name))
        return fail(err, INVALID, "there is no such setting (berthd --help lists them)");
    for (size_t i = 0; i < source->pair_count; i++)
        if (strcmp(source->pairs[i].name, name) == 0)
            return fail(err, INVALID, "is set on line %u already", source->pairs[i].line);
    if (memchr(value, '\0', size))
        return fail(err, INVALID, "a NUL in its value");
    if (take_quotes_off(&value, &size, err) < 0)
        return -1;
    source->pairs = alloc_grow(source->pairs, source->pair_count + 1, sizeof *source->pairs);
    source->pairs[source->pair_count++] =
        (struct settings_pair){.name = alloc_str(name), .value = alloc_str_n(value, size), .line = line};
    return 0;
}

static int add_line(struct settings_source *source, const char *line, size_t size, unsigned number, struct error *err)
{
    auto_free char *name = NULL;
    char shown[SETTINGS_SHOWN_BYTES];
    const char *equals;
    const char *value;
    size_t name_size;
    size_t value_size;

    size = trimmed(&line, size);
    if (size == 0 || *line == '#')
        return 0;
    equals = memchr(line, '=', size);
    if (!equals)
        return fail(err, INVALID, "no '=' in the line");
    name_size = trimmed(&line, (size_t)(equals - line));
    value = equals + 1;
    value_size = trimmed(&value, size - (size_t)(value - line));
    if (!is_name(line, name_size))
        return fail(err, INVALID, "what is before '=' is not a name");
    name = alloc_str_n(line, name_size);
    if (add_pair(source, name, value, value_size, number, err) < 0)
        return error_prefix(err, "%s", settings_shown(name, shown));
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text);

    return size >= strlen(end) && strcmp(text + size - strlen(end), end) == 0;
}

/* What everybody can write is nobody's configuration; what everybody can read holds no secret. */
static int check_mode(const struct settings_source *source, const struct stat *status, struct error *err)
{
    if (!S_ISREG(status->st_mode))
        return 0;
    if (status->st_mode & S_IWOTH)
        return fail(err, INVALID, "%s: everybody may write it: chmod o-w", source->file);
    for (size_t i = 0; i < source->pair_count && (status->st_mode & S_IROTH); i++)
        if (*source->pairs[i].value &&
            (ends_with(source->pairs[i].name, "_TOKEN") || ends_with(source->pairs[i].name, "_SECRET")))
            return fail(err, INVALID, "%s:%u: everybody may read the file, and it holds %s: chmod 640 or 600",
                        source->file, source->pairs[i].line, source->pairs[i].name);
    return 0;
}

static int read_file(struct settings_source *source, struct error *err)
{
    auto_close int fd = open(source->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    auto_buf struct buf text = BUF_INIT(SETTINGS_SOURCE_MAX);
    const char *line;
    const char *end;
    unsigned number = 1;
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return fail_errno(err, "%s", source->file);
    if (fd_read_all(fd, &text, err) < 0)
        return error_prefix(err, "%s", source->file);
    line = buf_str(&text);
    end = line + text.size;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));

        if (!stop)
            stop = end;
        if (add_line(source, line, (size_t)(stop - line), number, err) < 0)
            return error_prefix(err, "%s:%u", source->file, number);
        line = stop + 1;
        number++;
    }
    return check_mode(source, &status, err);
}

int settings_source_open(const char *const *environment, const char *file, struct settings_source *ret,
                         struct error *err)
{
    *ret = (struct settings_source){.environment = environment, .file = file};
    if (file && read_file(ret, err) < 0) {
        settings_source_done(ret);
        return -1;
    }
    return 0;
}

void settings_source_done(struct settings_source *source)
{
    for (size_t i = 0; i < source->pair_count; i++) {
        free(source->pairs[i].name);
        free(source->pairs[i].value);
    }
    free(source->pairs);
    *source = (struct settings_source){0};
}

static const char *of_environment(const struct settings_source *source, const char *name)
{
    size_t size = strlen(name);

    for (const char *const *entry = source->environment; entry && *entry; entry++)
        if (strncmp(*entry, name, size) == 0 && (*entry)[size] == '=')
            return *entry + size + 1;
    return NULL;
}

static const struct settings_pair *of_file(const struct settings_source *source, const char *name)
{
    for (size_t i = 0; i < source->pair_count; i++)
        if (strcmp(source->pairs[i].name, name) == 0)
            return &source->pairs[i];
    return NULL;
}

const char *settings_source_get(const struct settings_source *source, const char *name)
{
    const char *value = of_environment(source, name);
    const struct settings_pair *pair = value ? NULL : of_file(source, name);

    return pair ? pair->value : value;
}

int settings_source_place(const struct settings_source *source, struct error *err)
{
    auto_free char *name = alloc_str_n(err->text, strcspn(err->text, ":"));
    const struct settings_pair *pair = of_environment(source, name) ? NULL : of_file(source, name);

    return pair ? error_prefix(err, "%s:%u", source->file, pair->line) : -1;
}

static bool is_socket(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

int settings_engine_socket(const char *docker_host, const char *const *usual, size_t usual_count, char **ret,
                           struct error *err)
{
    static const char scheme[] = "unix://";
    char shown[SETTINGS_SHOWN_BYTES];
    const char *path = NULL;

    if (docker_host && *docker_host) {
        if (strncmp(docker_host, scheme, sizeof scheme - 1) != 0)
            return fail(err, INVALID,
                        "DOCKER_HOST: \"%s\": the engine is reached over a Unix socket only (unix:///path)",
                        settings_shown(docker_host, shown));
        path = docker_host + sizeof scheme - 1;
        if (*path != '/')
            return fail(err, INVALID, "DOCKER_HOST: \"%s\": the path of the socket must be absolute (unix:///path)",
                        settings_shown(docker_host, shown));
    }
    for (size_t i = 0; i < usual_count && !path; i++)
        if (is_socket(usual[i]))
            path = usual[i];
    if (!path)
        path = usual[0];
    if (strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return fail(err, INVALID, "DOCKER_HOST: the path of the socket is longer than a socket's can be");
    *ret = alloc_str(path);
    return 0;
}
