/* cli/cli_terminal.h: the operator's own terminal, raw while somebody else's program is on it.
 *
 * Whatever ends the program ends that: its normal end (atexit), signals that can be handled, faults. One terminal a process. Threads: one.
 */
#ifndef BERTH_CLI_TERMINAL_H
#define BERTH_CLI_TERMINAL_H

#include "error.h"

/* INVALID: standard input or output is no terminal. */
int cli_terminal_raw(struct error *err);
/* As it was. Nothing was changed, or done already: nothing. */
void cli_terminal_restore(void);
/* Undoes what a program that was left may have set: another screen, mouse, colours, a hidden cursor. */
void cli_terminal_reset_screen(void);
void cli_terminal_size(unsigned *ret_rows, unsigned *ret_cols); /* 24 and 80 where it is not known */

#endif
