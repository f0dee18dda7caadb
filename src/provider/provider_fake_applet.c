/* The agent's applets in the provider in memory: the real program on this host, or what a test makes up. */
#include "fd.h"
#include "provider_fake_private.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void become_applet(const struct fake_applets *applets, char *const *argv, int in, int out)
{
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || chdir(applets->work_dir) < 0)
        _exit(126);
    (void)execv(applets->program, argv);
    _exit(127);
}

static int input_of(const struct buf *input, struct error *err)
{
    int in = memfd_create("in", MFD_CLOEXEC);

    if (in >= 0 && input->size > 0 && fd_write_all(in, input->data, input->size, err) < 0)
        abort();
    if (in >= 0)
        (void)lseek(in, 0, SEEK_SET);
    return in;
}

void fake_applet_perform(const struct fake_applets *applets, char *const *argv, const struct buf *input,
                         struct buf *output, struct run_exit *ret_exit)
{
    struct error err = ERROR_INIT;
    auto_close int out = memfd_create("out", MFD_CLOEXEC);
    auto_close int in = input_of(input, &err);
    int status = 0;
    pid_t pid;

    if (applets->says) {
        if (buf_append(output, applets->says, applets->says_size, &err) < 0)
            abort();
        ret_exit->exit_code = 0;
        return;
    }
    pid = fork();
    if (pid == 0)
        become_applet(applets, argv, in, out);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || lseek(out, 0, SEEK_SET) < 0 || fd_read_all(out, output, &err) < 0)
        abort();
    ret_exit->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ret_exit->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
