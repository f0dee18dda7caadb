/* cli/cli.h: `berth`, the operator's command, over the broker's API and nothing else.
 *
 * One table (verbs.def) says which verbs there are; the parser, the help, the completions and the manual page are made of it.
 * Callers: the program's main, the generator of pages. Threads: one.
 */
#ifndef BERTH_CLI_H
#define BERTH_CLI_H

#include "buf.h"

/* CODE(name, number, what it means): how `berth` ends. */
#define CLI_CODES(CODE)                                                                       \
    CODE(OK, 0, "done")                                                                       \
    CODE(FAILED, 1, "failed: the message says at what")                                       \
    CODE(USAGE, 2, "no such verb, option or argument; nothing was asked of the broker")       \
    CODE(UNREACHABLE, 3, "no broker answers at the address, or the engine behind it is away") \
    CODE(REFUSED, 4, "refused: the token is not taken")                                       \
    CODE(NOT_FOUND, 5, "there is no such session, workspace, file or runtime (any more)")     \
    CODE(LIMIT, 6, "a ceiling is reached, or the disk is full: later, or with less")          \
    CODE(CONFLICT, 7, "something is in the way: it exists, or it is in use")                  \
    CODE(OF_RUN, 125, "run and shell: all of the above; any other code is the command's own")

enum cli_code {
#define CODE(name, number, text) CLI_##name = number,
    CLI_CODES(CODE)
#undef CODE
};

/* The whole program. Returns its exit status. */
int cli_main(int argc, char **argv);

/* A generated page: "man" (berth(1)), "bash", "zsh". NOT_FOUND: no other. */
int cli_page(const char *name, struct buf *out, struct error *err);

#endif
