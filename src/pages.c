/* berth-pages NAME: prints one manual page or completion, made of the tables; runs while building only. */
#include "cli.h"
#include "settings.h"

#include <stdio.h>
#include <string.h>

static int make(const char *name, struct buf *out, struct error *err)
{
    if (strcmp(name, "berth.1") == 0)
        return cli_page("man", out, err);
    if (strcmp(name, "berth") == 0)
        return cli_page("bash", out, err);
    if (strcmp(name, "_berth") == 0)
        return cli_page("zsh", out, err);
    return settings_page(name, out, err);
}

int main(int argc, char **argv)
{
    auto_buf struct buf out = BUF_INIT(4 * 1024 * 1024);
    struct error err = ERROR_INIT;

    if (argc != 2 || make(argv[1], &out, &err) < 0) {
        (void)fprintf(stderr, "berth-pages: %s\n", argc == 2 ? err.text : "which page?");
        return 1;
    }
    return fwrite(buf_str(&out), 1, out.size, stdout) == out.size && fflush(stdout) == 0 ? 0 : 1;
}
