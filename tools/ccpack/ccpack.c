/*
 * ccpack: makes datasets of image-text sources, joins them, and adds tokenizers.
 */
#include "tools/ccpack/ccpack_internal.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"fetch", "downloads the images of a list of URLs and packs them", ccpack_fetch_main},
        {"merge", "joins parts into one dataset", ccpack_merge_main},
        {"index", "makes a dataset of tars in place, without copying them", ccpack_index_main},
        {"plan", "estimates what packing tars at a server gives", ccpack_plan_main},
        {"tokenizer", "adds a tokenizer to a dataset, learnt or imported", ccpack_tokenizer_main},
        {"subset", "some samples as a dataset of their own", ccpack_subset_main},
        {"attach", "joins the columns of a table to the samples", ccpack_attach_main},
        {"detach", "deletes a column", ccpack_detach_main},
        {"remove", "takes samples out of a dataset", ccpack_remove_main},
        {"repair", "rebuild manifest, sidecars and token cache from the shards",
         ccpack_repair_main},
        {"compact", "takes the bytes of removed samples out of the shards", ccpack_compact_main},
        {"seal", "the SHA-256 of every file of a dataset, to be published", ccpack_seal_main},
    };
    static const struct cli_suite suite = {
        .name = "ccpack",
        .purpose = "packs images with captions into a dataset of indexed shards",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .otherwise = ccpack_pack_main,
    };
    return cli_suite_main(&suite, argc, argv);
}
