/* Files and directories into and out of a session. */
#include "cli_private.h"
#include "cli_tar.h"

#include "alloc.h"
#include "fd.h"
#include "id.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One side of a copy. */
struct place {
    const char *path; /* as given, behind "SESSION:" */
    char *session;    /* NULL: here */
    bool is_dash;
};

static void place_done(struct place *place)
{
    free(place->session);
}

/* "me:a/b" is in a session; "./me:a" and "a/b:c" are here. */
static struct place place_of(const char *text)
{
    size_t size = strcspn(text, ":/");
    bool is_remote = text[size] == ':' && id_name_valid(text, size);

    return (struct place){.path = is_remote ? text + size + 1 : text,
                          .session = is_remote ? alloc_str_n(text, size) : NULL,
                          .is_dash = strcmp(text, "-") == 0};
}

/* The last part of a path: "a/b/" is "b", "/" and "" are `fallback`. Caller frees. */
static char *base_of(const char *path, const char *fallback)
{
    size_t size = strlen(path);
    size_t begin;

    while (size && path[size - 1] == '/')
        size--;
    for (begin = size; begin && path[begin - 1] != '/'; begin--)
        ;
    if (size == begin || strncmp(path + begin, ".", size - begin) == 0 ||
        strncmp(path + begin, "..", size - begin) == 0)
        return alloc_str(fallback);
    return alloc_str_n(path + begin, size - begin);
}

static bool ends_in_slash(const char *path)
{
    size_t size = strlen(path);

    return size == 0 || path[size - 1] == '/';
}

/* `path` without slashes at its end, or with `name` behind it where it had one. Caller frees. */
static char *inside(const char *path, const char *name)
{
    size_t size = strlen(path);

    while (size > 1 && path[size - 1] == '/')
        size--;
    return alloc_format("%.*s%s%s", (int)size, path, size && path[size - 1] != '/' ? "/" : "", name);
}

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* -- out of a session -- */

/* GET below an open session, or else the stored workspace. */
static int get(struct cli *cli, const struct place *from, const char *what, struct cli_transfer **ret, int *ret_status,
               struct error *err)
{
    static const char *const roots[] = {"sessions", "workspaces"};

    for (size_t i = 0; i < 2; i++) {
        auto_free char *query = cli_target("%s?path=%s", what, *from->path ? from->path : ".");
        auto_free char *target = alloc_format("/%s/%s/%s", roots[i], from->session, query);
        const struct cli_request request = {.method = "GET", .target = target};
        auto_transfer struct cli_transfer *transfer = NULL;

        if (cli_transfer_start(cli, &request, &transfer, err) < 0 || cli_transfer_status(transfer, ret_status, err) < 0)
            return -1;
        if (i == 1 || (*ret_status != 404 && *ret_status != 410)) {
            *ret = take_ptr(transfer);
            return 0;
        }
    }
    return 0;
}

static int next_of(void *transfer, const char **ret_data, size_t *ret_size, struct error *err)
{
    return cli_transfer_read(transfer, true, ret_data, ret_size, err);
}

static int copy_to(struct cli_transfer *transfer, int fd, struct error *err)
{
    const char *data;
    size_t size;
    int more;

    while ((more = cli_transfer_read(transfer, true, &data, &size, err)) > 0)
        if (fd_write_all(fd, data, size, err) < 0)
            return -1;
    return more;
}

/* What has to go if we are ended in the middle; read by a handler. */
static char *volatile half_file;

static void on_end(int number)
{
    if (half_file)
        (void)unlink(half_file);
    (void)raise(number); /* SA_RESETHAND */
}

static void watch_ends(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    const struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        (void)sigaction(ends[i], &action, NULL);
}

static int drain(struct cli_transfer *transfer, struct error *err)
{
    const char *data;
    size_t size;
    int more;

    while ((more = cli_transfer_read(transfer, true, &data, &size, err)) > 0)
        ;
    return more;
}

/* A file appears whole or not at all: under a name of its own first, beside the target. */
static int receive_file(struct cli_transfer *transfer, const char *path, struct error *err)
{
    auto_free char *temporary = alloc_format("%s.berth-%ld", path, (long)getpid());
    auto_close int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    int result;

    if (fd < 0)
        return error_set(err, ERROR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    half_file = temporary;
    watch_ends();
    result = copy_to(transfer, fd, err);
    if (result == 0 && cli_transfer_mode(transfer) >= 0 && fchmod(fd, (mode_t)cli_transfer_mode(transfer)) < 0)
        result = error_set(err, ERROR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    if (result == 0 && rename(temporary, path) < 0)
        result = error_set(err, ERROR_INTERNAL, errno, "%s: %s", path, strerror(errno));
    if (result < 0)
        (void)unlink(temporary);
    half_file = NULL;
    return result;
}

/* "skipped=2; changed=0; names=…": what the broker left out. */
static unsigned skipped_there(const struct cli *cli, const struct cli_transfer *transfer)
{
    const char *text = cli_transfer_trailer(transfer);
    const char *skipped = strstr(text, "skipped=");
    const char *changed = strstr(text, "changed=");
    unsigned count = skipped ? (unsigned)strtoul(skipped + 8, NULL, 10) : 0;

    count += changed ? (unsigned)strtoul(changed + 8, NULL, 10) : 0;
    if (count && !cli_has(cli, "quiet")) {
        (void)fprintf(stderr, "berth: left out or changed meanwhile:");
        cli_put(cli, stderr, text);
        (void)fputc('\n', stderr);
    }
    return count;
}

static int receive_directory(struct cli *cli, struct cli_transfer *transfer, const struct place *to, const char *name,
                             struct error *err)
{
    auto_free char *path =
        is_directory(to->path) || ends_in_slash(to->path) ? inside(to->path, name) : alloc_str(to->path);
    unsigned skipped = 0;

    if (!to->is_dash && cli_unpack(path, next_of, transfer, cli_has(cli, "quiet"), &skipped, err) < 0)
        return -1;
    /* An archive ends before its transfer does: what was left out is told behind it. */
    if ((to->is_dash ? copy_to(transfer, STDOUT_FILENO, err) : drain(transfer, err)) < 0)
        return -1;
    return skipped_there(cli, transfer) + skipped ? CLI_FAILED : CLI_OK;
}

static int copy_out(struct cli *cli, const struct place *from, const struct place *to, struct error *err)
{
    auto_free char *name = base_of(from->path, from->session);
    auto_free char *path =
        is_directory(to->path) || ends_in_slash(to->path) ? inside(to->path, name) : alloc_str(to->path);
    auto_transfer struct cli_transfer *transfer = NULL;
    struct error why = ERROR_INIT;
    int status;

    if (get(cli, from, "content", &transfer, &status, err) < 0)
        return -1;
    if (status == 200)
        return (to->is_dash ? copy_to(transfer, STDOUT_FILENO, err) : receive_file(transfer, path, err)) < 0 ? -1
                                                                                                             : CLI_OK;
    (void)cli_transfer_refused(transfer, status, &why);
    cli_transfer_free(take_ptr(transfer));
    if (status == 400) { /* no file; a directory, then? */
        if (get(cli, from, "archive", &transfer, &status, err) < 0)
            return -1;
        if (status == 200)
            return receive_directory(cli, transfer, to, name, err);
    }
    *err = why;
    return error_prefix(err, "%s:%s", from->session, from->path);
}

/* -- into a session -- */

static int64_t next_of_file(void *context, char *out, size_t max, struct error *err)
{
    ssize_t size = read(*(int *)context, out, max);

    return size < 0 ? error_set(err, ERROR_INTERNAL, errno, "reading: %s", strerror(errno)) : size;
}

/* PUT, and what the broker says of it. */
static int put(struct cli *cli, const struct place *to, const char *what, const char *path, struct cli_request *request,
               struct json_object **ret, struct error *err)
{
    auto_free char *query = cli_target("%s?path=%s", what, *path ? path : ".");
    auto_free char *target = alloc_format("/sessions/%s/%s", to->session, query);
    auto_transfer struct cli_transfer *transfer = NULL;
    auto_buf struct buf answer = BUF_INIT(64 * 1024 * 1024);
    const char *data;
    size_t size;
    int status;
    int more;

    request->method = "PUT";
    request->target = target;
    request->type = "application/octet-stream";
    if (cli_transfer_start(cli, request, &transfer, err) < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return -1;
    if (status < 200 || status > 299) {
        (void)cli_transfer_refused(transfer, status, err);
        return error_prefix(err, "%s:%s", to->session, path);
    }
    while ((more = cli_transfer_read(transfer, true, &data, &size, err)) > 0)
        if (buf_append(&answer, data, size, err) < 0)
            return -1;
    return more < 0 ? -1 : json_parse(buf_str(&answer), answer.size, ret, NULL, err);
}

static int send_file(struct cli *cli, int fd, const struct place *to, const char *path, bool is_archive,
                     struct error *err)
{
    struct cli_request request = {.next = next_of_file, .next_context = &fd};
    auto_json struct json_object *answer = NULL;
    struct json_object *refused;

    if (put(cli, to, is_archive ? "archive" : "content", path, &request, &answer, err) < 0)
        return -1;
    refused = cli_member(answer, "refused");
    for (size_t i = 0; i < cli_length(refused) && !cli_has(cli, "quiet"); i++) {
        struct json_object *row = json_object_array_get_idx(refused, i);

        (void)fputs("berth: left out: ", stderr);
        cli_put(cli, stderr, cli_str(row, "path") ? cli_str(row, "path") : "-");
        (void)fputs(": ", stderr);
        cli_put(cli, stderr, cli_str(row, "reason") ? cli_str(row, "reason") : "-");
        (void)fputc('\n', stderr);
    }
    return cli_int(answer, "refused_count", 0) ? CLI_FAILED : CLI_OK;
}

/* What it was here, it is there. */
static int send_mode(struct cli *cli, int fd, const struct place *to, const char *path, struct error *err)
{
    struct stat status;
    auto_free char *query = cli_target("chmod?path=%s", path);
    auto_free char *target = NULL;

    if (fstat(fd, &status) < 0)
        return fail_errno(err, "fstat");
    if (!S_ISREG(status.st_mode))
        return 0; /* <(…): its mode is a pipe's */
    target = alloc_format("/sessions/%s/%s&mode=%03o", to->session, query, (unsigned)status.st_mode & 0777);
    return cli_call(cli, "POST", target, NULL, NULL, err) < 0 ? error_prefix(err, "%s:%s", to->session, path) : 0;
}

static int send_directory(struct cli *cli, const char *dir, const struct place *to, const char *path, struct error *err)
{
    struct cli_pack *pack;
    struct cli_request request = {.next = cli_pack_next};
    auto_json struct json_object *answer = NULL;
    int result;

    if (cli_pack_open(dir, &pack, err) < 0)
        return -1;
    request.next_context = pack;
    result = put(cli, to, "archive", path, &request, &answer, err);
    if (result == 0)
        result = cli_pack_skipped(pack) || cli_int(answer, "refused_count", 0) ? CLI_FAILED : CLI_OK;
    cli_pack_free(pack);
    return result;
}

static int copy_in(struct cli *cli, const struct place *from, const struct place *to, struct error *err)
{
    auto_free char *name = base_of(from->path, "copy");
    bool unpacks = cli_has(cli, "tar");
    auto_free char *path = !ends_in_slash(to->path) || from->is_dash ? alloc_str(to->path)
                           : *to->path                               ? inside(to->path, name)
                                                                     : alloc_str(name);
    auto_close int fd = -1;

    if (from->is_dash && !unpacks && ends_in_slash(to->path))
        return fail(err, INVALID, "standard input has no name: say where it goes, %s:PATH", to->session);
    if (from->is_dash)
        return send_file(cli, STDIN_FILENO, to, path, unpacks, err);
    if (is_directory(from->path))
        return send_directory(cli, from->path, to, path, err);
    fd = open(from->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERROR_INTERNAL, errno, "%s: %s", from->path, strerror(errno));
    if (unpacks)
        return send_file(cli, fd, to, to->path, true, err);
    return send_file(cli, fd, to, path, false, err) < 0 ? -1 : send_mode(cli, fd, to, path, err);
}

int verb_cp(struct cli *cli, struct error *err)
{
    auto_cleanup(place_done) struct place from = place_of(cli->arguments[0]);
    auto_cleanup(place_done) struct place to = place_of(cli->arguments[1]);

    if (!from.session == !to.session)
        return fail(err, INVALID, "%s of the two has to be SESSION:PATH", from.session ? "only one" : "one");
    return from.session ? copy_out(cli, &from, &to, err) : copy_in(cli, &from, &to, err);
}
