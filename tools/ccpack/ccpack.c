/*
 * ccpack: makes datasets from image-text sources, joins them, and adds tokenizers.
 */
#include "tools/ccpack/ccpack_internal.h"

int main(int argc, char **argv) {
    static const struct cli_command commands[] = {
        {"fetch", "downloads the images of a list of URLs and packs them", ccpack_fetch_main},
        {"merge", "joins the parts of a dataset", ccpack_merge_main},
        {"index", "makes a dataset from tars in place, without copying them", ccpack_index_main},
        {"plan", "estimates the result of packing remote tars", ccpack_plan_main},
        {"tokenizer", "trains or imports a tokenizer", ccpack_tokenizer_main},
        {"subset", "copies selected samples to a new dataset", ccpack_subset_main},
        {"attach", "joins the columns of a table to the samples", ccpack_attach_main},
        {"detach", "deletes a column", ccpack_detach_main},
        {"remove", "removes samples from a dataset", ccpack_remove_main},
        {"repair", "rebuilds manifest, sidecars and token cache from the shards",
         ccpack_repair_main},
        {"compact", "reclaims the space of removed samples", ccpack_compact_main},
        {"seal", "prints the SHA-256 of every file of a dataset", ccpack_seal_main},
    };
    static const struct cli_suite suite = {
        .name = "ccpack",
        .purpose = "packs image-caption data into a dataset of indexed shards",
        .commands = commands,
        .command_count = CLI_COUNT(commands),
        .otherwise = ccpack_pack_main,
    };
    return cli_suite_main(&suite, argc, argv);
}
