/*
 * ccpack: image-text sources to a dataset, and what is made of datasets afterwards.
 */
#include "tools/ccpack/ccpack_internal.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"merge", "puts parts together into one dataset", ccpack_merge_main},
        {"index", "makes a dataset of tars where they lie, without copying them",
         ccpack_index_main},
        {"tokenizer", "gives a dataset its tokenizer, learnt or brought along",
         ccpack_tokenizer_main},
    };
    static const struct cli_suite suite = {
        .name = "ccpack",
        .purpose = "packs pictures with captions into a dataset of indexed shards",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .otherwise = ccpack_pack_main,
    };
    return cli_suite_main(&suite, argc, argv);
}
