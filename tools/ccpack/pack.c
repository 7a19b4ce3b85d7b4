/*
 * ccpack's main command: makes a dataset from sources. Its options, and its last message after a
 * failure.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/ccpack/part.h"
#include "tools/cli/output.h"

struct pack_cli {
    struct ccpack_options base; /* first: shared rows fill it */
    const char *part;
};

static const char *const ids_names[] = {"row", "key", NULL};
static const char *const on_bad_names[] = {"skip", "fail", NULL};
static const char *const dedup_names[] = {"none", "exact", NULL};

#define FIELD(name) CLI_FIELD(struct pack_cli, name)

static const struct cli_option pack_rows[] = {
    {"out", 'o', CLI_STRING, FIELD(base.pack.directory), .metavar = "DIR", .required = true,
     .help = "directory of the dataset"},
    {"overwrite", 0, CLI_FLAG, FIELD(base.pack.overwrite), .alias = "force",
     .help = "replace the dataset in DIR, and keep all other files there"},
    {"append", 0, CLI_FLAG, FIELD(base.pack.append),
     .help = "add the sources' rows to the dataset in DIR; ids and shard numbers continue, and the "
             "dataset stays as it is until all rows are packed"},
    {"allow-duplicates", 0, CLI_FLAG, FIELD(base.pack.allow_repeat), .alias = "allow-repeat",
     .help = "accept a source that is named twice or, with --append, is already in the dataset"},
    {"new-settings", 0, CLI_FLAG, FIELD(base.pack.new_settings),
     .help = "with --append: also accept limits, --dedup, --phash, --no-check and shard sizes that "
             "differ from the dataset's; options that are not given keep the dataset's values"},
    {"resume", 0, CLI_FLAG, FIELD(base.pack.resume),
     .help = "resume an interrupted run with the same options and sources; start one if DIR is "
             "empty; no-op if the dataset is complete"},
    {"from", 0, CLI_ENUM, FIELD(base.pack.kind), .choices = source_kind_names,
     .default_text = "auto", .metavar = "KIND", .help = "kind of the sources; auto: by content",
     .group = "Sources"},
    {"images", 0, CLI_STRING, FIELD(base.pack.images), .metavar = "DIR",
     .help = "base folder of relative paths in tables and JSON files [default: the file's folder]"},
    {"split", 0, CLI_STRING, FIELD(base.pack.split), .metavar = "NAME,...",
     .help = "only images of these splits of a Karpathy file [default: all]"},
    {"columns", 0, CLI_STRING, FIELD(base.pack.columns), .metavar = "NAME,...",
     .help = "column names of a table without header row; '_' for an unused one"},
    {"delimiter", 0, CLI_STRING, FIELD(base.pack.delimiter), .metavar = "CHAR",
     .help = "field separator of a table: ',', ';', '|', 'tab' or another character [default: by "
             "content]"},
    {"caption-column", 0, CLI_LIST, FIELD(base.captions), .metavar = "NAME,...",
     .help = "caption columns, by name or 1-based number; for JSON (lists, and .json in tars) "
             "field names; with several, a sample has several captions [default: the first of "
             "caption, captions, text, title, sentence, description, comment]"},
    {"image-column", 0, CLI_STRING, FIELD(base.pack.image_column), .metavar = "NAME",
     .help = "column of image paths, by name or 1-based number; for JSON the field name"},
    {"keep-columns", 0, CLI_STRING, FIELD(base.pack.keep_columns), .metavar = "NAME,...|none",
     .help = "columns of a table or fields of JSON that become a sample's metadata [default: all "
             "columns without another use]"},
    {"group-captions", 0, CLI_ENUM, FIELD(base.pack.grouping), .choices = source_grouping_names,
     .default_text = "auto", .metavar = "HOW",
     .help = "rows with the same image that become one sample with several captions. adjacent: "
             "consecutive rows; all: all rows of the table (keeps up to 1 GiB of text in memory); "
             "never: none; auto: adjacent"},
    {"caption-lines", 0, CLI_ENUM, FIELD(base.pack.lines), .choices = source_lines_names,
     .default_text = "auto", .metavar = "HOW",
     .help = "captions in a .txt with several lines. join: all lines are one caption; each: one "
             "caption per line; first: only the first line; auto: each if dataset_type.txt "
             "contains 'retrieval' or all .txt files have the same number of lines, else join"},
    {"split-names", 0, CLI_ENUM, FIELD(base.pack.split_names), .choices = source_name_split_names,
     .default_text = "first", .metavar = "DOT",
     .help = "dot of a file name at which the name of the sample ends, in tars and zips. first: as "
             "in WebDataset; last: for names such as photo.v2.jpg and photo.v2.txt"},
    {"follow-links", 0, CLI_FLAG, FIELD(base.pack.follow_links),
     .help = "also read files outside the source's folder (or --images) that are reached through "
             "links, absolute paths or '..'; without it, such rows are rejected as outside"},
    {"ids", 0, CLI_ENUM, FIELD(base.pack.ids), .choices = ids_names, .default_text = "row",
     .metavar = "KIND",
     .help = "sample ids: row number over all sources, or the number at the end of the key"},
    {"part", 0, CLI_STRING, FIELD(part), .metavar = "K/N|auto",
     .help = "pack part K of N of the rows (sources are counted first; 'ccpack merge' joins the "
             "parts). auto: K and N from Slurm or mpirun, output in DIR-part-K-of-N; auto/N: K "
             "from the launcher"},
    {"on-bad", 0, CLI_ENUM, FIELD(base.pack.on_bad), .choices = on_bad_names,
     .default_text = "skip", .metavar = "WHAT",
     .help = "list an unusable row and continue, or exit with code 65", .group = "Rows"},
    {"max-bad", 0, CLI_STRING, FIELD(base.max_bad), .default_text = "10%", .metavar = "N|P%",
     .help = "stop if more rows than this are unusable; percentages are checked after 1,000 rows "
             "and at the end; filtered rows do not count"},
    {"no-check", 0, CLI_NO, FIELD(base.pack.check),
     .help = "read only the headers of images and do not decode them; not with --resize"},
    {"dedup", 0, CLI_ENUM, FIELD(base.pack.dedup), .choices = dedup_names, .default_text = "none",
     .metavar = "HOW",
     .help = "exact: keep the first of byte-identical stored images, with the captions of all; two "
             "passes, 22 bytes of memory per sample"},
    CLI_SERVER_ROWS(struct pack_cli, base.remote),
};

static const struct cli_program pack_program = {
    .name = "ccpack",
    .purpose = "packs image-caption data into a dataset of indexed shards",
    .usage = CLI_TEXTS("[options] -o DIR SOURCE...",
                       "fetch -o DIR LIST",
                       "merge -o DIR PART...",
                       "index TAR...",
                       "plan LOCATION...",
                       "tokenizer DIR [--vocab-size N]",
                       "subset DATASET --ids FILE|--where EXPR -o DIR",
                       "attach DATASET TABLE --on KEY --as NAME",
                       "detach DATASET NAME",
                       "remove DIR --ids FILE",
                       "compact DIR",
                       "seal DIR [-o FILE]",
                       "repair DIR"),
    .examples = CLI_TEXTS("ccpack -o train 00000.tar 00001.tar",
                          "ccpack --images images --resize short:256 -o val val.tsv",
                          "zcat train.tar.gz | ccpack -o train -",
                          "ccpack --append -o train 00002.tar",
                          "ccpack --part 3/8 --resume -o part-3 *.tar",
                          "mpirun -n 8 ccpack --part auto --resume -o train *.tar",
                          "ccpack merge -o train train-part-*",
                          "ccpack tokenizer train --vocab-size 8192"),
    .notes = CLI_TEXTS(
        "SOURCE is a WebDataset tar or zip (also .gz, .zst; '-': on stdin), a TSV, CSV or "
        "Parquet file of captions and paths, Parquet with images, COCO captions, a Karpathy split "
        "file, a JSON list or lines of "
        "objects with 'image' and 'caption', a folder of images NAME.jpg with NAME.txt, an "
        "imagefolder with metadata.jsonl or metadata.csv, a folder of class folders, or a "
        "CIFAR or STL-10 binary or their folder. Tars may be remote: "
        "hf://datasets/OWNER/NAME/X.tar, "
        "https://HOST/X-{000..099}.tar, 's3://BUCKET/PREFIX*.tar'. Class folders in a tar, and "
        "class folders with captions (NAME.txt next to NAME.jpg), require --from folders.",
        "Columns of a table with a header row are found by name ('caption', 'path', ...). Without "
        "a header row, the path column is the one whose values end in an image extension or, if "
        "there is none, name existing files.",
        "DIR is created if it is missing. A DIR that is not empty is refused (exit code 73) "
        "without --overwrite, --append or --resume. A DIR to which another run is writing is "
        "always refused.",
        "Every row needs a caption, except in class folders and CIFAR files. In a tar it is "
        "NAME.txt directly before or after NAME.jpg, in a table a field, in COCO an annotation. A "
        "row without a caption is rejected as caption-missing or caption-empty.",
        "In a tar, consecutive members whose names are equal up to the first dot form a row. A "
        "second image of that name is rejected as image-extra. If a name occurs again later, it "
        "starts another row, whose key gets a suffix that makes it unique.",
        "A .json member that is invalid or larger than 4 MiB is dropped from its sample and "
        "counted in the summary.",
        "Ctrl-C, too many unusable rows or a damaged source stop the run; the rows packed until "
        "then are a valid dataset that is marked as partial. A killed run leaves complete shards "
        "and no dataset.json. The same command with --resume continues after the last complete "
        "shard, from DIR/pack.journal. The result is byte-identical to that of an uninterrupted "
        "run.",
        "Memory: at most 256 MiB plus 64 MiB per job for any input, plus the size of a JSON "
        "file that must be read whole. An image that needs more than 128 MiB to decode is "
        "rejected as image-limit.",
        "Unusable rows are listed with their reasons in DIR/rejects.jsonl when the run ends.",
        "--part auto reads the first of these that is set: SLURM_ARRAY_TASK_ID with _MIN, _MAX, "
        "_STEP and _COUNT; JOB_COMPLETION_INDEX; OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK or "
        "SLURM_PROCID, each with its size. With auto/N the ids of a Slurm array are part numbers, "
        "so an array with selected ids packs only those parts.",
        "All rules, and recipes for clusters, are in reference/SOURCES.md and reference/RUNS.md of "
        "the manual (share/doc/ccstream/manual)."),
    CLI_OPTIONS(pack_rows),
    .shared = ccpack_shape_rows,
    .arguments = {1, CLI_MAX_ARGUMENTS},
};

static const char *get_variable(void *cookie, const char *name) {
    (void)cookie;
    return getenv(name);
}

/* Finds the part and, for an automatic one, its directory in `directory`. */
static enum status find_part(struct pack_options *out,
                             char directory[PATH_MAX_BYTES],
                             const struct pack_cli *o,
                             struct error *err) {
    const struct part_environment environment = {get_variable, NULL};
    const char *variable = NULL;
    TRY(part_parse(&out->part, &variable, o->part, &environment, err));
    if (!variable) {
        return STATUS_OK;
    }
    TRY(part_directory(directory, out->directory, &out->part, err));
    out->directory = directory;
    if (!o->base.quiet) {
        cli_print(stderr, "ccpack: %s=%s: part %" PRIu32 " of %" PRIu32 ", in %s\n", variable,
                  getenv(variable), out->part.number, out->part.count, directory);
    }
    return STATUS_OK;
}

/* `directory` holds the path of an automatic part. */
static enum status to_options(struct pack_options *out,
                              char directory[PATH_MAX_BYTES],
                              const struct pack_cli *o,
                              const struct cli_arguments *a,
                              struct error *err) {
    struct cli_arguments sources;
    TRY(ccpack_expand(&sources, a, &o->base, PACK_JOURNAL_NAME, err));
    TRY(ccpack_take(out, &pack_program, &o->base, &sources, err));
    if (o->part) {
        TRY(find_part(out, directory, o, err));
    }
    return output_check_folder(out->directory, OUTPUT_DATASET, err);
}

/* With --ids key: training keeps state for every id up to the largest, even ids without a sample:
 * 16 bytes with SogCLR, 32 with NuCLR. */
static void warn_of_sparse_ids(const struct pack_summary *s) {
    enum { SPARSE = 10, FEW = 1000000, LEAST_BYTES = 16, USUAL_BYTES = 32 };
    if (s->id_space < FEW || s->id_space / SPARSE < s->ids) {
        return;
    }
    uint64_t counted =
        s->id_space < UINT64_MAX / USUAL_BYTES ? s->id_space : UINT64_MAX / USUAL_BYTES;
    cli_print(
        stderr,
        "warning: ids go up to %s, for %s sample%s. Training keeps state for every id in memory: "
        "%s with SogCLR, %s with NuCLR. --ids row numbers the rows instead\n",
        cli_format_count(s->id_space - 1), cli_format_count(s->ids), s->ids == 1 ? "" : "s",
        cli_format_bytes(counted * LEAST_BYTES), cli_format_bytes(counted * USUAL_BYTES));
}

int ccpack_pack_main(int argc, char **argv) {
    struct pack_cli o = {0};
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&pack_program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&pack_program, s, &err);
    }
    struct pack_options opt;
    struct pack_summary summary = {0};
    struct ccpack_run r;
    char directory[PATH_MAX_BYTES];
    s = o.base.pack.append ? ccpack_take_settings(&pack_program, &o.base, &a, false, &err)
                           : STATUS_OK;
    THEN(s, to_options(&opt, directory, &o, &a, &err));
    if (s == STATUS_OK) {
        ccpack_begin(&r, "samples", o.base.quiet);
        opt.cookie = &r;
        s = pack_run(&opt, &summary, &err);
        s = ccpack_end(&r, s, &summary, opt.directory, o.base.quiet, o.base.json, &err);
    }
    if (s == STATUS_OK && opt.ids == PACK_IDS_KEY && !o.base.quiet) {
        warn_of_sparse_ids(&summary);
    }
    cli_arguments_fini(&a);
    int code = cli_exit(&pack_program, s, &err);
    if (s != STATUS_OK) {
        ccpack_print_remains(&summary, s, opt.directory);
    }
    return code;
}
