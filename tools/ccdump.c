/*
 * ccdump: looks into datasets. Every answer goes to stdout, as text for people or as JSON.
 */
#include "tools/ccdump_internal.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"info", "what a dataset holds", ccdump_info},
        {"show", "one sample: captions, metadata, image facts", ccdump_show},
        {"verify", "read and check everything", ccdump_verify},
        {"cat", "a sample's bytes, or the whole dataset as a plain tar", ccdump_cat},
    };
    static const char *const examples[] = {
        "ccdump info cc3m",
        "ccdump show cc3m --id 12 --json",
        "ccdump cat cc3m --id 12 --image >12.jpg",
        "ccdump cat cc3m | tar -t",
        NULL,
    };
    static const struct cli_suite suite = {
        .name = "ccdump",
        .purpose = "look into datasets",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .examples = examples,
    };
    return cli_suite_main(&suite, argc, argv);
}
