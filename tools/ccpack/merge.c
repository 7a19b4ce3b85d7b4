/*
 * ccpack merge: the parts of a run to one dataset.
 */
#include <stdio.h>

#include "formats/base/clock.h"
#include "pack/merge/merge.h"
#include "tools/ccpack/ccpack_internal.h"

struct merge_cli {
    const char *out;
    bool overwrite;
    bool json;
    bool quiet;
};

static const struct cli_option merge_rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct merge_cli, out), .metavar = "DIR", .required = true,
     .help = "directory of the whole dataset"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, overwrite),
     .help = "replace the dataset that is in DIR, and leave all other files there alone"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct merge_cli, quiet), .help = "errors only"},
};

static const struct cli_program merge_program = {
    .name = "ccpack merge",
    .purpose = "puts the parts that ccpack --part made together into one dataset",
    .usage = (const char *const[]){"[options] -o DIR PART...", NULL},
    .examples = (const char *const[]){"ccpack merge -o train part-*", NULL},
    .notes =
        (const char *const[]){
            "PART is a directory that ccpack --part K/N made; all N are wanted, in any order, made "
            "with the same options of the same sources. The dataset has the ids, labels and "
            "fingerprint of one run over everything.",
            "Shards get a second name for the same file where DIR is on the parts' file system, so "
            "that nothing is copied; elsewhere they are copied and their hashes checked. The parts "
            "stay as they are, and may be removed afterwards.",
            "dataset.json is written last. After a stop or a kill the same command goes on.", NULL},
    .options = merge_rows,
    .option_count = CLI_COUNT(merge_rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

static void show_progress(void *cookie, const struct pack_merge_progress *p) {
    cli_progress_update(cookie, p->shards, p->total_shards, p->bytes, NULL);
}

int ccpack_merge_main(int argc, char **argv) {
    struct merge_cli o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&merge_program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&merge_program, s, &err);
    }
    struct pack_merge_options opt;
    struct pack_summary summary = {0};
    struct cli_progress progress;
    cli_signals_install();
    cli_progress_init(&progress, "shards", o.quiet);
    pack_merge_options_default(&opt);
    opt.directory = o.out;
    opt.parts = a.items;
    opt.part_count = a.count;
    opt.overwrite = o.overwrite;
    opt.interrupted = cli_interrupted_callback;
    opt.progress = show_progress;
    opt.cookie = &progress;
    int64_t started_ns = clock_now_ns();
    s = pack_merge(&opt, &summary, &err);
    double seconds = (double)(clock_now_ns() - started_ns) / 1e9;
    cli_progress_clear(&progress);
    if (s == STATUS_OK && !o.quiet) {
        ccpack_print_summary(&summary, o.out, seconds);
    }
    if (s == STATUS_OK && o.json) {
        s = ccpack_print_summary_json(&summary, seconds, &err);
    }
    cli_arguments_fini(&a);
    int code = cli_exit(&merge_program, s, &err);
    if (s == STATUS_INTERRUPTED) {
        fprintf(stderr, "ccpack merge: %s is no dataset yet; the same command goes on\n", o.out);
    }
    return code;
}
