/*
 * ccpack index: makes a dataset from tars in place.
 */
#include <stdio.h>

#include "net/location.h"
#include "pack/index/index_tar.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/output.h"

static const char *const ids_names[] = {"row", "key", NULL};

#define FIELD(name) CLI_FIELD(struct ccpack_options, name)

static const struct cli_option index_rows[] = {
    {"out", 'o', CLI_STRING, FIELD(pack.directory), .metavar = "DIR",
     .help = "directory of the dataset; required for remote tars, refused for local ones"},
    {"resume", 0, CLI_FLAG, FIELD(pack.resume),
     .help = "resume an interrupted run over remote tars after the last completed tar"},
    {"overwrite", 0, CLI_FLAG, FIELD(pack.overwrite), .alias = "force",
     .help = "replace an earlier index of tars; never replaces a packed dataset"},
    {"caption-column", 0, CLI_LIST, FIELD(captions), .metavar = "NAME,...",
     .help = "fields of the .json to use as captions instead of the .txt"},
    {"caption-lines", 0, CLI_ENUM, FIELD(pack.lines), .choices = source_lines_names,
     .default_text = "auto", .metavar = "HOW",
     .help = "captions in a .txt with several lines. join: all lines are one caption; each: one "
             "caption per line; first: only the first line; auto: each if dataset_type.txt "
             "contains 'retrieval' or all .txt files have the same number of lines, else join"},
    {"split-names", 0, CLI_ENUM, FIELD(pack.split_names), .choices = source_name_split_names,
     .default_text = "first", .metavar = "DOT",
     .help = "dot of a file name at which the name of the sample ends. first: as in WebDataset; "
             "last: for names such as photo.v2.jpg and photo.v2.txt"},
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
    CLI_SERVER_ROWS(struct ccpack_options, remote),
};

static const struct cli_program index_program = {
    .name = "ccpack index",
    .purpose = "makes a dataset from WebDataset tars in place, without copying them",
    .usage = CLI_TEXTS("[options] TAR...", "[options] -o DIR LOCATION..."),
    .examples = CLI_TEXTS("ccpack index cc12m/*.tar",
                          "ccdump info cc12m",
                          "ccpack index -o cc3m 'hf://datasets/OWNER/NAME/train-*.tar'"),
    .notes = CLI_TEXTS(
        "Writes an index NAME.cci for each TAR, and dataset.json and rejects.jsonl, into the tars' "
        "folder. All programs then accept the folder as a dataset. The tars are read once and "
        "never modified. A tar that changes later is refused until it is indexed again.",
        "TARs must be uncompressed and in one folder. A compressed one cannot be read in "
        "place: pack it with ccpack -o DIR FILE.",
        "Rows, ids, captions, rejected rows and the fingerprint are those of packing the same "
        "tars in the same order. A row with sparse files or links is rejected as row-bad.",
        "Files are renamed into place after all of them are written, so Ctrl-C leaves the folder "
        "unchanged.",
        "LOCATION is a remote tar or a pattern, as for ccpack -o. Each tar is downloaded once and "
        "not stored. DIR contains the indexes, and dataset.json with the location, ETag and size "
        "of each tar. Training then reads images by range requests. After Ctrl-C or a kill, "
        "--resume continues after the completed tars. DIR may be published; readers elsewhere need "
        "--allow-private if the tars are at a private address.",
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
    struct cli_arguments tars;
    const bool remote = location_is_remote(a->items[0]);
    FAIL_IF(remote && !o->pack.directory, err, STATUS_USAGE,
            "remote tars are indexed in a local folder: pass -o DIR");
    FAIL_IF(!remote && (o->pack.directory || o->pack.resume), err, STATUS_USAGE,
            "-o and --resume are for remote tars; the index of local tars is next to them");
    TRY(ccpack_expand(&tars, a, o, INDEX_JOURNAL_NAME, err));
    TRY(ccpack_take(&opt, &index_program, o, &tars, err));
    TRY(index_tar_folder(folder, PATH_MAX_BYTES, tars.items, tars.count, err));
    TRY(remote ? output_check_folder(opt.directory, OUTPUT_DATASET, err) : STATUS_OK);
    opt.directory = remote ? opt.directory : folder;
    ccpack_begin(&r, "samples", o->quiet);
    opt.cookie = &r;
    enum status s = index_tar_run(&opt, &summary, err);
    s = ccpack_end(&r, s, &summary, opt.directory, o->quiet, o->json, err);
    if (s != STATUS_OK && summary.has_journal) {
        cli_print(stderr,
                  "ccpack: %zu of %zu tars are done; the same command with --resume continues\n",
                  (size_t)summary.shards, tars.count);
    }
    return s;
}

CLI_MAIN(ccpack_index_main, index_program, struct ccpack_options, run)
