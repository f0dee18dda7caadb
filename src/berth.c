/* berth: the operator's command. All of it is in src/cli/. */
#include "cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
