/*
 * ccpack's main job: image-text sources to a dataset. Options, the line of progress, the summary.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "pack/pack.h"
#include "tools/ccpack_internal.h"

struct pack_cli {
    const char *out;
    int from;
    const char *images;
    int ids;
    const char *resize;
    uint64_t quality;
    uint64_t shard_samples;
    uint64_t shard_size;
    const char *max_bad;
    uint64_t jobs;
    bool overwrite;
    bool json;
    bool quiet;
};

/* In the order of enum source_kind. */
static const char *const from_names[] = {"auto",     "wds",  "tsv",     "csv",   "coco",
                                         "karpathy", "json", "folders", "cifar", NULL};
static const char *const ids_names[] = {"row", "key", NULL};

static const struct cli_option pack_rows[] = {
    {"out", 'o', CLI_STRING, CLI_FIELD(struct pack_cli, out), .metavar = "DIR", .required = true,
     .help = "directory of the dataset"},
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct pack_cli, overwrite),
     .help = "replace the dataset that is in DIR, and leave all other files there alone"},
    {"from", 0, CLI_ENUM, CLI_FIELD(struct pack_cli, from), .choices = from_names,
     .default_text = "auto", .metavar = "KIND", .help = "what the sources are; auto: by content",
     .group = "Sources"},
    {"images", 0, CLI_STRING, CLI_FIELD(struct pack_cli, images), .metavar = "DIR",
     .help = "folder that the paths in tsv and coco files count from; without it, the file's own"},
    {"ids", 0, CLI_ENUM, CLI_FIELD(struct pack_cli, ids), .choices = ids_names,
     .default_text = "row", .metavar = "KIND",
     .help = "what a sample's id is: its row over all sources, or the number that is its key"},
    {"max-bad", 0, CLI_STRING, CLI_FIELD(struct pack_cli, max_bad), .default_text = "10%",
     .metavar = "N|P%",
     .help = "stop when more rows than this cannot be used; a share counts from row 1000 on and at "
             "the end"},
    {"resize", 0, CLI_STRING, CLI_FIELD(struct pack_cli, resize), .default_text = "none",
     .metavar = "none|short:N",
     .help = "bring the shorter side down to N pixels (16 to 8192) and store every picture as a "
             "new JPEG",
     .group = "Pictures"},
    {"quality", 0, CLI_U64, CLI_FIELD(struct pack_cli, quality), .min = "1", .max = "100",
     .default_text = "90", .metavar = "N", .help = "of the JPEGs that --resize makes"},
    {"shard-samples", 0, CLI_U64, CLI_FIELD(struct pack_cli, shard_samples), .min = "1",
     .max = "1048576", .default_text = "10000", .metavar = "N",
     .help = "samples of a shard at most", .group = "Shards"},
    {"shard-size", 0, CLI_U64, CLI_FIELD(struct pack_cli, shard_size), .unit = CLI_UNIT_BYTES,
     .min = "64KiB", .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE",
     .help = "bytes of a shard's samples at most"},
    {"jobs", 'j', CLI_U64, CLI_FIELD(struct pack_cli, jobs), .min = "0", .max = "256",
     .default_text = "0", .metavar = "N",
     .help = "threads that check and compress; 0: one for each core; the bytes are the same",
     .group = "Run"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct pack_cli, json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct pack_cli, quiet), .help = "errors only"},
};

static const struct cli_program pack_program = {
    .name = "ccpack",
    .purpose = "packs pictures with captions into a dataset of indexed shards",
    .usage =
        (const char *const[]){"[options] -o DIR SOURCE...", "tokenizer DIR [--vocab-size N]", NULL},
    .examples = (const char *const[]){"ccpack -o train 00000.tar 00001.tar",
                                      "ccpack --images pictures --resize short:256 -o val val.tsv",
                                      "zcat train.tar.gz | ccpack -o train -",
                                      "ccpack tokenizer train --vocab-size 8192", NULL},
    .notes =
        (const char *const[]){
            "SOURCE is a WebDataset tar (plain, .gz, .zst; '-': on stdin), a TSV of caption and "
            "path in either order, or COCO captions JSON.",
            "Columns of a TSV: with a header line, by names such as 'caption' and 'path'; without, "
            "the path column is the one whose cells end like picture files, or else name files.",
            "DIR is made; one that holds anything is refused (73) without --overwrite.",
            "Every row needs a caption: in a tar NAME.txt right before or behind NAME.jpg, in a "
            "TSV "
            "its cell, in COCO an annotation. One without is rejected as caption-missing or "
            "caption-empty.",
            "In a tar, members of one name up to the first dot that follow each other are a row. A "
            "second picture of the name is rejected as image-extra; a row that comes again is a "
            "row "
            "again, its key made unique.",
            "A .json member that is no JSON, or larger than 4 MiB, is left out of its sample and "
            "counted "
            "in the summary.",
            "Ctrl-C, too many bad rows and a broken source end the run with a valid dataset of the "
            "rows "
            "before; its dataset.json says 'partial'.",
            "Rows that cannot be used are listed with reason in DIR/rejects.jsonl, which is there "
            "once "
            "the run has ended.",
            NULL},
    .options = pack_rows,
    .option_count = CLI_COUNT(pack_rows),
    .min_arguments = 1,
    .max_arguments = CLI_MAX_ARGUMENTS,
};

static uint32_t core_count(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > PACK_MAX_JOBS ? PACK_MAX_JOBS : (uint32_t)count;
}

static enum status parse_resize(int32_t *out, const char *text, struct error *err) {
    uint64_t side = 0;
    *out = 0;
    if (strcmp(text, "none") == 0) {
        return STATUS_OK;
    }
    if (strncmp(text, "short:", 6) != 0 || !cli_parse_u64(text + 6, CLI_UNIT_NONE, &side) ||
        side < PACK_MIN_RESIZE_PX || side > PACK_MAX_RESIZE_PX) {
        return error_set(err, STATUS_USAGE,
                         "--resize %.40s: 'none' or 'short:N' with N from %d to %d is wanted", text,
                         PACK_MIN_RESIZE_PX, PACK_MAX_RESIZE_PX);
    }
    *out = (int32_t)side;
    return STATUS_OK;
}

/* A total that is not known is what the sources' bytes so far promise. */
static void show_progress(void *cookie, const struct pack_progress *p) {
    char extra[64];
    uint64_t total = p->done > 0 ? (uint64_t)((double)p->samples / p->done) : 0;
    int n = 0;
    extra[0] = '\0';
    if (p->done >= 0) {
        n = snprintf(extra, sizeof(extra), "%.0f %%", 100 * p->done);
    }
    if (p->rejected > 0) {
        snprintf(extra + n, sizeof(extra) - (size_t)n, "%s%" PRIu64 " rejected", n > 0 ? "  " : "",
                 p->rejected);
    }
    cli_progress_update(cookie, p->samples, total, p->bytes, extra);
}

static enum status to_options(struct pack_options *out,
                              const struct pack_cli *o,
                              const struct cli_arguments *a,
                              struct error *err) {
    pack_options_default(out);
    out->directory = o->out;
    out->sources = a->items;
    out->source_count = a->count;
    out->kind = (enum source_kind)o->from;
    out->images = o->images;
    out->ids = (enum pack_ids)o->ids;
    out->quality = (int32_t)o->quality;
    out->jobs = o->jobs > 0 ? (uint32_t)o->jobs : core_count();
    out->shard_samples = (uint32_t)o->shard_samples;
    out->shard_size_bytes = o->shard_size;
    out->overwrite = o->overwrite;
    out->interrupted = cli_interrupted_callback;
    out->progress = show_progress;
    TRY(parse_resize(&out->resize_short_px, o->resize, err));
    return pack_parse_max_bad(&out->max_bad, o->max_bad, err);
}

static void print_rejects(const struct pack_summary *s, const char *directory) {
    char n[CLI_TEXT_BYTES];
    fprintf(stderr, "%s row%s rejected, see %s/%s:", cli_format_count(n, s->rejected),
            s->rejected == 1 ? "" : "s", directory, PACK_REJECTS_NAME);
    const char *comma = "";
    for (int i = 0; i < REASON_COUNT; i++) {
        if (s->rejected_by[i] > 0) {
            fprintf(stderr, "%s %s %s", comma, cli_format_count(n, s->rejected_by[i]),
                    source_reason_name((enum source_reason)i));
            comma = ",";
        }
    }
    fputc('\n', stderr);
}

static void print_summary(const struct pack_summary *s, const char *directory, double seconds) {
    char samples[CLI_TEXT_BYTES], texts[CLI_TEXT_BYTES], shards[CLI_TEXT_BYTES];
    char bytes[CLI_TEXT_BYTES], time[CLI_TEXT_BYTES];
    fprintf(stderr,
            "%s: %s sample%s with %s caption%s in %s shard%s, %s, fingerprint %016" PRIx64 "\n",
            directory, cli_format_count(samples, s->samples), s->samples == 1 ? "" : "s",
            cli_format_count(texts, s->texts), s->texts == 1 ? "" : "s",
            cli_format_count(shards, s->shards), s->shards == 1 ? "" : "s",
            cli_format_bytes(bytes, s->bytes), s->fingerprint);
    fprintf(stderr, "%s, %.0f samples/s, %s/s\n", cli_format_seconds(time, seconds),
            seconds > 0 ? (double)s->samples / seconds : 0.0,
            cli_format_bytes(bytes, seconds > 0 ? (uint64_t)((double)s->bytes / seconds) : 0));
    if (s->rejected > 0) {
        print_rejects(s, directory);
    }
    if (s->json_dropped > 0) {
        fprintf(stderr, "%s sample%s packed without their .json, which is none; the first: %s\n",
                cli_format_count(samples, s->json_dropped), s->json_dropped == 1 ? "" : "s",
                s->json_example);
    }
    if (s->ignored > 0) {
        fprintf(stderr,
                "%s member%s of the tars belong to no row: hidden, without extension, or "
                "no files\n",
                cli_format_count(samples, s->ignored), s->ignored == 1 ? "" : "s");
    }
}

static enum status
print_summary_json(const struct pack_summary *s, double seconds, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_u64(&w, "samples", s->samples);
    json_u64(&w, "rejected", s->rejected);
    json_u64(&w, "texts", s->texts);
    json_u64(&w, "json_dropped", s->json_dropped);
    json_u64(&w, "ignored", s->ignored);
    json_u64(&w, "shards", s->shards);
    json_u64(&w, "bytes", s->bytes);
    json_hex64(&w, "fingerprint", s->fingerprint);
    json_double(&w, "seconds", seconds);
    json_close_object(&w);
    return ccpack_print_json(&w, err);
}

/* After a failure: what is in the directory now, so that nobody has to guess. */
static void print_remains(const struct pack_summary *s, enum status status, const char *directory) {
    char n[CLI_TEXT_BYTES], m[CLI_TEXT_BYTES];
    if (s->is_dataset) {
        fprintf(stderr,
                "ccpack: %s is a valid dataset, but a partial one: %s rows are in, as %s samples; "
                "--overwrite starts again\n",
                directory, cli_format_count(n, s->rows), cli_format_count(m, s->samples));
    } else if (s->shards > 0) {
        fprintf(stderr,
                "ccpack: %s holds finished shards: %s, with %s samples, and no dataset.json: it is "
                "no dataset; --overwrite starts again\n",
                directory, cli_format_count(n, s->shards), cli_format_count(m, s->samples));
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
    struct cli_progress progress;
    s = to_options(&opt, &o, &a, &err);
    if (s == STATUS_OK) {
        cli_signals_install();
        cli_progress_init(&progress, "samples", o.quiet);
        opt.cookie = &progress;
        int64_t started_ns = clock_now_ns();
        s = pack_run(&opt, &summary, &err);
        double seconds = (double)(clock_now_ns() - started_ns) / 1e9;
        cli_progress_clear(&progress);
        if (s == STATUS_OK && !o.quiet) {
            print_summary(&summary, o.out, seconds);
        }
        if (s == STATUS_OK && o.json) {
            s = print_summary_json(&summary, seconds, &err);
        }
    }
    cli_arguments_fini(&a);
    int code = cli_exit(&pack_program, s, &err);
    if (s != STATUS_OK) {
        print_remains(&summary, s, o.out);
    }
    return code;
}
