/* agent/inside/agent_start.c: a START taken apart: argv, the environment, cwd. */
#include "agent_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

extern char **environ;

static bool same_name(const char *left, const char *right)
{
    size_t size = strcspn(left, "=");

    return strncmp(left, right, size) == 0 && right[size] == '=';
}

static bool replaced(const char *ours, char *const *theirs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (same_name(ours, theirs[i]))
            return true;
    return false;
}

static bool is_variable(const char *text, const char *nul)
{
    return *text != '=' && memchr(text, '=', (size_t)(nul - text));
}

int agent_start_parse(const unsigned char *bytes, size_t size, struct agent_start_request *ret_request)
{
    struct agent_start *head = &ret_request->head;
    const char *at = (const char *)bytes + sizeof *head;
    const char *end = (const char *)bytes + size;
    size_t ours = 0, count, kept;
    char **block, **items;

    *ret_request = (struct agent_start_request){.bytes = bytes, .size = size};
    if (size < sizeof *head)
        return EINVAL;
    memcpy(head, bytes, sizeof *head);
    if (!head->argc || head->reserved || head->argc > AGENT_ARGS_MAX || head->envc > AGENT_ARGS_MAX - head->argc ||
        head->flags >= AGENT_START_WATCH << 1)
        return EINVAL;
    while (environ[ours])
        ours++;
    count = (size_t)head->argc + head->envc;
    block = malloc((count + ours + 3) * sizeof *block); /* room before argv; two NULLs: argv's and env's */
    if (!block)
        return ENOMEM;
    items = block + 1;
    for (size_t i = 0; i <= count; i++) {
        const char *nul = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;

        if (!nul || (i >= head->argc && i < count && !is_variable(at, nul))) {
            free(block);
            return EINVAL;
        }
        if (i < head->argc)
            items[i] = (char *)at;
        else if (i < count)
            items[i + 1] = (char *)at;
        else
            ret_request->cwd = at;
        at = nul + 1;
    }
    if (at != end) {
        free(block);
        return EINVAL;
    }
    items[head->argc] = NULL;
    ret_request->block = block;
    ret_request->argv = items;
    ret_request->env = items + head->argc + 1;
    kept = head->envc;
    for (size_t i = 0; i < ours; i++)
        if (!replaced(environ[i], ret_request->env, head->envc))
            ret_request->env[kept++] = environ[i];
    ret_request->env[kept] = NULL;
    return 0;
}

static struct winsize window(unsigned rows, unsigned cols)
{
    return (struct winsize){.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
}

int agent_terminal_open(const struct agent_start *head, int *ret_master, int *ret_slave)
{
    struct winsize size = window(head->rows, head->cols);
    char name[64];
    int error;

    *ret_slave = -1;
    *ret_master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_master < 0)
        return errno;
    if (unlockpt(*ret_master) == 0 && ptsname_r(*ret_master, name, sizeof name) == 0)
        *ret_slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_slave >= 0) {
        if (head->rows && head->cols)
            (void)ioctl(*ret_master, TIOCSWINSZ, &size);
        return 0;
    }
    error = errno ? errno : ENXIO;
    close(*ret_master);
    return error;
}

void agent_terminal_resize(struct agent_run *run, unsigned rows, unsigned cols)
{
    struct winsize size = window(rows, cols);

    if (run->terminal && run->output[0].source.fd >= 0)
        (void)ioctl(run->output[0].source.fd, TIOCSWINSZ, &size);
}
