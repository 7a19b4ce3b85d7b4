/*
 * ccstudy: the experiments of the papers that ccstream implements, each with its figures.
 */
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/cli/cli.h"

static const struct cli_command commands[] = {
    {"blocks", "blocks of similar points against pairs: CURL, table 2", ccstudy_blocks},
};

static const struct cli_suite suite = {
    .name = "ccstudy",
    .purpose = "the experiments of the papers, with their figures",
    .commands = commands,
    .command_count = CLI_COUNT(commands),
    .examples =
        (const char *const[]){"ccstudy blocks -o studies", "ccstudy blocks --quick --json", NULL},
};

int main(int argc, char **argv) {
    return cli_suite_main(&suite, argc, argv);
}
