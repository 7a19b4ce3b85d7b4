/*
 * ccpack's main job: image-text sources to a dataset. Options, the line of progress, the summary.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/pack.h"
#include "tools/ccpack/ccpack_internal.h"

struct pack_cli {
    const char *out;
    bool overwrite;
    bool append;
    bool resume;
    int from;
    const char *images;
    const char *split;
    const char *columns;
    const char *caption_column;
    const char *image_column;
    int ids;
    const char *part;
    int on_bad;
    const char *max_bad;
    bool no_check;
    uint64_t min_side;
    double max_aspect;
    uint64_t max_pixels;
    uint64_t max_caption_bytes;
    int dedup;
    const char *resize;
    uint64_t quality;
    int container;
    uint64_t zstd_level;
    uint64_t shard_samples;
    uint64_t shard_size;
    uint64_t jobs;
    bool json;
    bool quiet;
};

static const char *const ids_names[] = {"row", "key", NULL};
static const char *const on_bad_names[] = {"skip", "fail", NULL};
static const char *const dedup_names[] = {"none", "exact", NULL};
static const char *const container_names[] = {"tar.zst", "tar", NULL};

#define FIELD(name) CLI_FIELD(struct pack_cli, name)

static const struct cli_option pack_rows[] = {
    {"out", 'o', CLI_STRING, FIELD(out), .metavar = "DIR", .required = true,
     .help = "directory of the dataset"},
    {"overwrite", 0, CLI_FLAG, FIELD(overwrite),
     .help = "replace the dataset that is in DIR, and leave all other files there alone"},
    {"append", 0, CLI_FLAG, FIELD(append),
     .help = "add the sources' rows to the dataset that is in DIR; ids and shards are numbered on, "
             "and it stays as it is until all are in"},
    {"resume", 0, CLI_FLAG, FIELD(resume),
     .help = "go on where a run with these options and sources ended, however it did; in an empty "
             "DIR begin, on a finished dataset do nothing"},
    {"from", 0, CLI_ENUM, FIELD(from), .choices = source_kind_names, .default_text = "auto",
     .metavar = "KIND", .help = "what the sources are; auto: by content", .group = "Sources"},
    {"images", 0, CLI_STRING, FIELD(images), .metavar = "DIR",
     .help = "folder that the paths in tables and JSON files count from; without it, the file's "
             "own"},
    {"split", 0, CLI_STRING, FIELD(split), .metavar = "NAME,...",
     .help = "only pictures of these splits of a Karpathy file; without it, of all"},
    {"columns", 0, CLI_STRING, FIELD(columns), .metavar = "NAME,...",
     .help = "names of the columns of a table without header line; '_' for one that is not wanted"},
    {"caption-column", 0, CLI_STRING, FIELD(caption_column), .metavar = "NAME",
     .help =
         "column with the captions, by name or number from 1; in JSON lists and in the .json of "
         "tars the member"},
    {"image-column", 0, CLI_STRING, FIELD(image_column), .metavar = "NAME",
     .help = "the same for the picture's path"},
    {"ids", 0, CLI_ENUM, FIELD(ids), .choices = ids_names, .default_text = "row", .metavar = "KIND",
     .help = "what a sample's id is: its row over all sources, or the number that is its key"},
    {"part", 0, CLI_STRING, FIELD(part), .metavar = "K/N",
     .help = "only part K of N of all rows, which are counted first; 'ccpack merge' "
             "puts the parts together"},
    {"on-bad", 0, CLI_ENUM, FIELD(on_bad), .choices = on_bad_names, .default_text = "skip",
     .metavar = "WHAT", .help = "list a row that cannot be used and go on, or end with 65",
     .group = "Rows"},
    {"max-bad", 0, CLI_STRING, FIELD(max_bad), .default_text = "10%", .metavar = "N|P%",
     .help = "stop when more rows than this cannot be used; a share counts from row 1000 on and at "
             "the end; rows that the options below leave out do not count"},
    {"no-check", 0, CLI_FLAG, FIELD(no_check),
     .help = "read only the headers of pictures and do not decode them; not with --resize"},
    {"min-side", 0, CLI_U64, FIELD(min_side), .min = "0", .max = "65535", .default_text = "0",
     .metavar = "N", .help = "leave pictures out whose shorter side has fewer pixels"},
    {"max-aspect", 0, CLI_DOUBLE, FIELD(max_aspect), .min = "0", .max = "65535",
     .default_text = "0", .metavar = "X",
     .help = "leave pictures out whose longer side is more than X times the shorter; 0: none"},
    {"max-pixels", 0, CLI_U64, FIELD(max_pixels), .min = "1", .max = "134217728",
     .default_text = "134217728", .metavar = "N",
     .help = "leave pictures out that have more pixels"},
    {"max-caption-bytes", 0, CLI_U64, FIELD(max_caption_bytes), .unit = CLI_UNIT_BYTES, .min = "1",
     .max = "256KiB", .default_text = "256KiB", .metavar = "SIZE",
     .help = "leave rows out of which a caption is longer"},
    {"dedup", 0, CLI_ENUM, FIELD(dedup), .choices = dedup_names, .default_text = "none",
     .metavar = "HOW",
     .help = "exact: of pictures that would be stored as the same bytes the first one stays; takes "
             "22 bytes of memory a sample"},
    {"resize", 0, CLI_STRING, FIELD(resize), .default_text = "none", .metavar = "HOW",
     .help =
         "short:N or long:N brings that side down to N pixels, exact:WxH squashes to W by H (16 "
         "to 8192), and no side is ever made larger; all pictures become new JPEGs",
     .group = "Pictures"},
    {"quality", 0, CLI_U64, FIELD(quality), .min = "1", .max = "100", .default_text = "90",
     .metavar = "N", .help = "of the JPEGs that --resize makes"},
    {"container", 0, CLI_ENUM, FIELD(container), .choices = container_names,
     .default_text = "tar.zst", .metavar = "KIND",
     .help = "shards as zstd frames, or as plain tars for tools that cannot read zstd",
     .group = "Shards"},
    {"zstd-level", 0, CLI_U64, FIELD(zstd_level), .min = "1", .max = "19", .default_text = "3",
     .metavar = "N", .help = "of captions and JSON; pictures are stored as they are"},
    {"shard-samples", 0, CLI_U64, FIELD(shard_samples), .min = "1", .max = "1048576",
     .default_text = "10000", .metavar = "N", .help = "samples of a shard at most"},
    {"shard-size", 0, CLI_U64, FIELD(shard_size), .unit = CLI_UNIT_BYTES, .min = "64KiB",
     .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE",
     .help = "bytes of a shard's samples at most"},
    {"jobs", 'j', CLI_U64, FIELD(jobs), .min = "0", .max = "256", .default_text = "0",
     .metavar = "N",
     .help = "threads that check and compress; 0: one for each core; the bytes are the same",
     .group = "Run"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "errors only"},
};

static const struct cli_program pack_program = {
    .name = "ccpack",
    .purpose = "packs pictures with captions into a dataset of indexed shards",
    .usage = (const char *const[]){"[options] -o DIR SOURCE...", "merge -o DIR PART...",
                                   "index TAR...", "tokenizer DIR [--vocab-size N]", NULL},
    .examples = (const char *const[]){"ccpack -o train 00000.tar 00001.tar",
                                      "ccpack --images pictures --resize short:256 -o val val.tsv",
                                      "zcat train.tar.gz | ccpack -o train -",
                                      "ccpack --append -o train 00002.tar",
                                      "ccpack --part 3/8 --resume -o part-3 *.tar",
                                      "ccpack merge -o train part-*",
                                      "ccpack tokenizer train --vocab-size 8192", NULL},
    .notes =
        (const char *const[]){
            "SOURCE is a WebDataset tar or zip (also .gz, .zst; '-': on stdin), a TSV or CSV of "
            "captions and paths, COCO captions, a Karpathy split file, a JSON list or lines of "
            "objects with 'image' and 'caption', a folder of class folders, or a CIFAR binary or "
            "their folder. A tar of class folders wants --from folders.",
            "Columns of a table: with a header line, by names such as 'caption' and 'path'; "
            "without, the path column is the one whose cells end like picture files, or else name "
            "files.",
            "DIR is made; one that holds anything is refused (73) without --overwrite, --append or "
            "--resume, and one in which another run is at work in any case.",
            "Every row needs a caption, but for class folders and CIFAR: in a tar NAME.txt right "
            "before or behind NAME.jpg, in a table its cell, in COCO an annotation. One without is "
            "rejected as caption-missing or caption-empty.",
            "In a tar, members of one name up to the first dot that follow each other are a row. A "
            "second picture of the name is rejected as image-extra; a row that comes again is a "
            "row again, its key made unique.",
            "A .json member that is no JSON, or larger than 4 MiB, is left out of its sample and "
            "counted in the summary.",
            "Ctrl-C, too many bad rows and a broken source end the run with a valid dataset of the "
            "rows before, and its dataset.json says 'partial'; after a kill there are whole shards "
            "and no dataset.json. The same command with --resume goes on from the last whole shard "
            "and ends in the bytes that one undisturbed run gives. DIR/pack.journal is what it "
            "goes "
            "on from.",
            "Memory: 256 MiB and 64 MiB for each job, whatever pictures and captions come; "
            "and what a JSON file takes that is read whole. A picture that takes more than 128 MiB "
            "to decode is rejected as image-limit.",
            "Rows that cannot be used are listed with reason in DIR/rejects.jsonl, which is there "
            "once the run has ended.",
            NULL},
    CLI_OPTIONS(pack_rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

static void to_source_options(struct pack_options *out, const struct pack_cli *o) {
    out->kind = (enum source_kind)o->from;
    out->images = o->images;
    out->split = o->split;
    out->columns = o->columns;
    out->caption_column = o->caption_column;
    out->image_column = o->image_column;
}

static enum status to_options(struct pack_options *out,
                              const struct pack_cli *o,
                              const struct cli_arguments *a,
                              struct error *err) {
    pack_options_default(out);
    to_source_options(out, o);
    out->directory = o->out;
    out->sources = a->items;
    out->source_count = a->count;
    out->ids = (enum pack_ids)o->ids;
    out->check = !o->no_check;
    out->filter.min_side_px = (uint32_t)o->min_side;
    out->filter.max_aspect = o->max_aspect;
    out->filter.max_pixels = o->max_pixels;
    out->filter.max_caption_bytes = (uint32_t)o->max_caption_bytes;
    out->dedup = (enum pack_dedup)o->dedup;
    out->quality = (int32_t)o->quality;
    out->container = o->container == 1 ? SHARD_CONTAINER_TAR : SHARD_CONTAINER_TAR_ZSTD;
    out->level = (int)o->zstd_level;
    out->jobs = ccpack_jobs(o->jobs);
    out->shard_samples = (uint32_t)o->shard_samples;
    out->shard_size_bytes = o->shard_size;
    out->overwrite = o->overwrite;
    out->append = o->append;
    out->resume = o->resume;
    out->on_bad = (enum pack_on_bad)o->on_bad;
    out->interrupted = cli_interrupted_callback;
    out->progress = ccpack_show_progress;
    if (o->part) {
        TRY(pack_parse_part(&out->part, o->part, err));
    }
    TRY(pack_parse_resize(&out->resize, o->resize, err));
    return pack_parse_max_bad(&out->max_bad, o->max_bad, err);
}

/* After a failure: what is in the directory now, and how to go on. */
static void print_remains(const struct pack_summary *s, enum status status, const char *directory) {
    char n[CLI_TEXT_BYTES], m[CLI_TEXT_BYTES];
    const char *resume = s->keeps_dataset ? "--append --resume" : "--resume";
    if (s->keeps_dataset) {
        if (!s->has_journal && status != STATUS_INTERRUPTED && s->rows == 0) {
            return; /* it was refused */
        }
        fprintf(stderr, "ccpack: the dataset in %s is as it was; %s %s\n", directory,
                s->has_journal ? "the same command with --resume goes on from the last of"
                               : "nothing of the new rows is kept",
                s->has_journal ? "the new shards" : "");
    } else if (s->is_dataset) {
        fprintf(stderr,
                "ccpack: %s is a valid dataset, but a partial one: %s rows are in, as %s samples; "
                "the same command with %s goes on, --overwrite starts again\n",
                directory, cli_format_count(n, s->rows), cli_format_count(m, s->samples), resume);
    } else if (s->has_journal) {
        fprintf(stderr,
                "ccpack: %s holds finished shards: %s, with %s samples, and no dataset.json: it is "
                "no dataset; the same command with %s goes on, --overwrite starts again\n",
                directory, cli_format_count(n, s->shards), cli_format_count(m, s->samples), resume);
    } else if (status == STATUS_INTERRUPTED) {
        fprintf(stderr, "ccpack: no sample was in yet; %s holds no dataset\n", directory);
    }
}

int ccpack_pack_main(int argc, char **argv) {
    struct pack_cli o;
    struct cli_arguments a;
    struct error err = {0};
    enum status s = cli_parse(&pack_program, &o, &a, argc, argv, &err);
    if (s != STATUS_OK) {
        return cli_exit(&pack_program, s, &err);
    }
    struct pack_options opt;
    struct pack_summary summary = {0};
    struct ccpack_run r;
    s = to_options(&opt, &o, &a, &err);
    if (s == STATUS_OK) {
        ccpack_begin(&r, "samples", o.quiet);
        opt.cookie = &r;
        s = pack_run(&opt, &summary, &err);
        s = ccpack_end(&r, s, &summary, o.out, o.quiet, o.json, &err);
    }
    cli_arguments_fini(&a);
    int code = cli_exit(&pack_program, s, &err);
    if (s != STATUS_OK) {
        print_remains(&summary, s, o.out);
    }
    return code;
}
