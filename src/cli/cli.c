#include "cli_private.h"

#include "alloc.h"
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX_BYTES = 4096 };

static const char fallback_url[] = "http://127.0.0.1:8080";

/* -- address and token -- */

static const char *of_environment(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* A header's value: anything else would end its line. */
static int check_token(const char *token, const char *where, struct error *err)
{
    if (!*token)
        return fail(err, INVALID, "%s is empty", where);
    for (; *token; token++)
        if (*token < '!' || *token > '~')
            return fail(err, INVALID, "%s holds something that is no token: blanks, line ends or other letters", where);
    return 0;
}

static int read_token(const char *path, char **ret, struct error *err)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    auto_buf struct buf text = BUF_INIT(TOKEN_MAX_BYTES);

    if (fd < 0)
        return fail(err, INVALID, "the token's file %s: %s", path, strerror(errno));
    if (fd_read_all(fd, &text, err) < 0)
        return error_prefix(err, "the token's file %s", path);
    while (text.size && strchr(" \t\r\n", text.data[text.size - 1]))
        text.data[--text.size] = '\0';
    if (text.size != strlen(buf_str(&text)))
        return fail(err, INVALID, "the token's file %s holds a NUL", path);
    if (check_token(buf_str(&text), path, err) < 0)
        return -1;
    *ret = buf_take(&text, NULL);
    return 0;
}

int cli_settle(struct cli *cli, struct error *err)
{
    const char *url = cli_value(cli, "url");
    const char *file = cli_value(cli, "token-file");
    const char *token = file ? NULL : of_environment("BERTH_TOKEN");
    size_t size;

    if (!url)
        url = of_environment("BERTH_URL");
    if (!url)
        url = of_environment("SANDBOXD_URL");
    if (!url)
        url = fallback_url;
    size = strlen(url);
    while (size && url[size - 1] == '/')
        size--;
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return fail(err, INVALID, "\"%.80s\" is no address of a broker: it is like %s", url, fallback_url);
    cli->url = alloc_str_n(url, size);
    if (!file && !token)
        file = of_environment("BERTH_TOKEN_FILE");
    if (file)
        return read_token(file, &cli->token, err);
    if (!token)
        token = of_environment("SANDBOXD_TOKEN");
    cli->token = alloc_str(token);
    return token ? check_token(token, "the token in the environment", err) : 0;
}

/* -- the end -- */

int cli_status_of(const struct cli *cli, const struct error *err)
{
    const char *verb = cli->verb ? cli->verb->name : "";

    if (strcmp(verb, "run") == 0 || strcmp(verb, "shell") == 0)
        return CLI_OF_RUN;
    switch (err->code) {
    case ERROR_UNAVAILABLE:
        return CLI_UNREACHABLE;
    case ERROR_UNAUTHENTICATED:
    case ERROR_FORBIDDEN:
        return CLI_REFUSED;
    case ERROR_NOT_FOUND:
    case ERROR_GONE:
        return CLI_NOT_FOUND;
    case ERROR_LIMIT:
    case ERROR_NO_SPACE:
        return CLI_LIMIT;
    case ERROR_CONFLICT:
        return CLI_CONFLICT;
    default:
        return err->code == ERROR_INVALID && err->sys_errno == 0 ? CLI_USAGE : CLI_FAILED;
    }
}

static int tell(const struct cli *cli, const struct error *err)
{
    (void)fflush(stdout);
    (void)fputs("berth: ", stderr);
    cli_put(cli, stderr, err->text);
    (void)fputc('\n', stderr);
    return cli_status_of(cli, err);
}

static void done(struct cli *cli)
{
    cli_http_free(cli->http);
    free(cli->given);
    free(cli->arguments);
    free(cli->url);
    free(cli->token);
}

int cli_main(int argc, char **argv)
{
    auto_cleanup(done) struct cli cli = {.is_terminal = isatty(STDOUT_FILENO) == 1};
    struct error err = ERROR_INIT;
    int status;

    (void)setlocale(LC_CTYPE, "");
    if (cli_parse(argc, argv, &cli, &err) < 0)
        return tell(&cli, &err);
    if (cli_has(&cli, "version")) {
        (void)puts("berth " PACKAGE_VERSION);
        return CLI_OK;
    }
    if (cli_has(&cli, "help") || !cli.verb) {
        bool is_asked = cli_has(&cli, "help");

        cli_help(cli.verb, is_asked ? stdout : stderr);
        return is_asked ? CLI_OK : CLI_USAGE;
    }
    if (cli_settle(&cli, &err) < 0)
        return tell(&cli, &err);
    status = cli.verb->run(&cli, &err);
    if (status < 0)
        status = tell(&cli, &err);
    /* A full disk behind standard output must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "berth: standard output: %s\n", strerror(errno));
        status = status ? status : CLI_FAILED;
    }
    return status;
}
