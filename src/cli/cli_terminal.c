#include "cli_terminal.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static volatile sig_atomic_t is_raw;

/* Safe in handlers: tcsetattr() is. */
void cli_terminal_restore(void)
{
    if (is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    is_raw = 0;
}

static void on_fault(int number)
{
    cli_terminal_restore();
    (void)raise(number); /* SA_RESETHAND: what it does by itself */
}

static void watch_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP, SIGQUIT, SIGXCPU, SIGALRM};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = (int)SA_RESETHAND};

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigaction(faults[i], &action, NULL);
    (void)atexit(cli_terminal_restore);
}

int cli_terminal_raw(struct error *err)
{
    static bool is_watched;
    struct termios raw;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
        return fail(err, INVALID, "standard input and output have to be a terminal for this: berth run does without");
    if (!is_watched)
        watch_faults();
    is_watched = true;
    raw = before;
    cfmakeraw(&raw);
    is_raw = 1;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
        return fail_errno(err, "the terminal");
    return 0;
}

void cli_terminal_reset_screen(void)
{
    static const char text[] =
        "\033[?1049l\033[?25h\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?1l\033>\033[0m";

    if (isatty(STDOUT_FILENO) && write(STDOUT_FILENO, text, sizeof text - 1) < 0)
        return;
}

void cli_terminal_size(unsigned *ret_rows, unsigned *ret_cols)
{
    struct winsize size = {0};
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;

    *ret_rows = is_known ? size.ws_row : 24;
    *ret_cols = is_known ? size.ws_col : 80;
}
