/*
 * ccpack index: makes a dataset of tars in place.
 */
#include "pack/index/index_tar.h"
#include "tools/ccpack/ccpack_internal.h"

static const char *const ids_names[] = {"row", "key", NULL};

#define FIELD(name) CLI_FIELD(struct ccpack_options, name)

static const struct cli_option index_rows[] = {
    {"overwrite", 0, CLI_FLAG, FIELD(pack.overwrite), .alias = "force",
     .help = "replace an earlier index of tars; never replaces a packed dataset"},
    {"caption-column", 0, CLI_LIST, FIELD(captions), .metavar = "NAME,...",
     .help = "fields of the .json to use as captions instead of the .txt; may be repeated"},
    {"caption-lines", 0, CLI_ENUM, FIELD(pack.lines), .choices = source_lines_names,
     .default_text = "auto", .metavar = "HOW",
     .help =
         "lines of a .txt with several: join: one caption; each: a caption each; first: only the "
         "first; auto: each if dataset_type.txt says retrieval or all texts have as many lines, "
         "else join"},
    {"split-names", 0, CLI_ENUM, FIELD(pack.split_names), .choices = source_name_split_names,
     .default_text = "first", .metavar = "DOT",
     .help = "the dot that ends the common name of a sample's files: the first, as in WebDataset, "
             "or the last, for names such as photo.v2.jpg with photo.v2.txt"},
    {"ids", 0, CLI_ENUM, FIELD(pack.ids), .choices = ids_names, .default_text = "row",
     .metavar = "KIND",
     .help = "sample ids: row number over all tars, or the number at the end of the key"},
    {"max-bad", 0, CLI_STRING, FIELD(max_bad), .default_text = "10%", .metavar = "N|P%",
     .help = "stop if more rows than this are unusable, checked after each tar; percentages are "
             "checked after 1,000 rows and at the end"},
    {"no-check", 0, CLI_NO, FIELD(pack.check),
     .help = "read only the headers of images and do not decode them"},
    {"jobs", 'j', CLI_U64, FIELD(pack.jobs), .min = "0", .max = "256", .default_text = "0",
     .metavar = "N",
     .help = "tars read concurrently; 0: one per core; output does not depend on it"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "errors only"},
};

static const struct cli_program index_program = {
    .name = "ccpack index",
    .purpose = "makes a dataset from WebDataset tars in place, without copying them",
    .usage = CLI_TEXTS("[options] TAR..."),
    .examples = CLI_TEXTS("ccpack index cc12m/*.tar", "ccdump info cc12m"),
    .notes = CLI_TEXTS(
        "Writes an index NAME.cci for each TAR, and dataset.json and rejects.jsonl into their "
        "folder, which is then a dataset for every program. The tars are read once and never "
        "changed. A tar that changes afterwards is refused until it is indexed again.",
        "TARs must be uncompressed and in one folder. A compressed one cannot be read in "
        "place: pack it with ccpack -o DIR FILE.",
        "Rows, ids, captions, rejected rows and the fingerprint are those of packing the same "
        "tars in the same order. A row with sparse files or links is rejected as row-bad.",
        "Files get their names when all of them are written: Ctrl-C leaves the folder as it "
        "was.",
        "Memory: as ccpack, plus the indexes of 4 tars per job."),
    CLI_OPTIONS(index_rows),
    .arguments = {1, CLI_MAX_ARGUMENTS},
};

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct ccpack_options *o = options;
    char folder[PATH_MAX_BYTES];
    struct pack_options opt;
    struct pack_summary summary;
    struct ccpack_run r;
    TRY(ccpack_take(&opt, &index_program, o, a, err));
    TRY(index_tar_folder(folder, PATH_MAX_BYTES, a->items, a->count, err));
    opt.directory = folder;
    ccpack_begin(&r, "samples", o->quiet);
    opt.cookie = &r;
    enum status s = index_tar_run(&opt, &summary, err);
    return ccpack_end(&r, s, &summary, folder, o->quiet, o->json, err);
}

CLI_MAIN(ccpack_index_main, index_program, struct ccpack_options, run)
