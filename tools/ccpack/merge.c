/*
 * ccpack merge: joins the parts of a run into one dataset.
 */
#include "pack/merge/merge.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/path_kind.h"

struct merge_cli {
    const char *out;
    bool overwrite;
    bool json;
    bool quiet;
};

static const struct cli_option merge_rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct merge_cli, out), .metavar = "DIR", .required = true,
     .help = "directory of the joined dataset"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, overwrite),
     .help = "replace the dataset in DIR, and keep all other files there"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct merge_cli, quiet), .help = "errors only"},
};

static const struct cli_program merge_program = {
    .name = "ccpack merge",
    .purpose = "joins the parts that ccpack --part made into one dataset",
    .usage = (const char *const[]){"[options] -o DIR PART...", NULL},
    .examples = (const char *const[]){"ccpack merge -o train part-*", NULL},
    .notes =
        (const char *const[]){
            "PART is a directory that ccpack --part K/N made. Name all N parts, in any order; they "
            "must be made with the same options from the same sources. The dataset has the ids, "
            "labels and fingerprint of a single run over everything.",
            "If DIR is on the file system of the parts, shards get a second name and are not "
            "copied; otherwise they are copied and their hashes checked. The parts do not change "
            "and may be removed afterwards.",
            "dataset.json is written last. After an interruption or a kill the same command "
            "resumes.",
            NULL},
    CLI_OPTIONS(merge_rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

static void show_progress(void *cookie, const struct pack_merge_progress *p) {
    struct ccpack_run *r = cookie;
    cli_progress_update(&r->progress, p->shards, p->total_shards, p->bytes, NULL);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct merge_cli *o = options;
    struct pack_merge_options opt;
    struct pack_summary summary = {0};
    struct ccpack_run r;
    ccpack_begin(&r, "shards", o->quiet);
    pack_merge_options_default(&opt);
    opt.directory = o->out;
    opt.parts = a->items;
    opt.part_count = a->count;
    opt.overwrite = o->overwrite;
    opt.interrupted = cli_interrupted_callback;
    opt.progress = show_progress;
    opt.cookie = &r;
    for (size_t i = 0; i < a->count; i++) {
        TRY(path_check_dataset(a->items[i], err));
    }
    TRY(path_check_out_folder(o->out, err));
    enum status s = pack_merge(&opt, &summary, err);
    s = ccpack_end(&r, s, &summary, o->out, o->quiet, o->json, err);
    return s != STATUS_INTERRUPTED
               ? s
               : error_set(err, s, "interrupted: %s is not a dataset yet; run it again to resume",
                           o->out);
}

int ccpack_merge_main(int argc, char **argv) {
    struct merge_cli o;
    return cli_main(&merge_program, &o, run, argc, argv);
}
