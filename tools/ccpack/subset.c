/*
 * ccpack subset: a new dataset with some samples of another, selected by id or condition.
 */
#include "pack/subset/subset.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/sort.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/ccpack/columns.h"
#include "tools/ccpack/where.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"
#include "tools/cli/remote_choice.h"
#include "tools/inspect/samples.h"

struct subset_cli {
    struct pack_subset_options subset; /* as filled by options */
    const char *ids;
    const char *where;
    const char *state;
    const char *top;
    const char *by;
    bool dry_run;
    bool json;
    bool quiet;
    struct remote_choice remote;
};

#define FIELD(name) CLI_FIELD(struct subset_cli, name)

static const struct cli_option subset_rows[] = {
    {"out", 'o', CLI_STRING, FIELD(subset.directory), .metavar = "DIR",
     .help = "directory of the new dataset; not needed with --dry-run"},
    {"ids", 0, CLI_STRING, FIELD(ids), .metavar = "FILE",
     .help =
         "file of ids to select, one per line; empty lines and those that begin with # are skipped",
     .group = "Which samples"},
    {"where", 'w', CLI_STRING, FIELD(where), .metavar = "EXPR",
     .help = "select samples that match EXPR (below); with --ids, among those"},
    {"state", 0, CLI_STRING, FIELD(state), .metavar = "RUN",
     .help = "run or checkpoint whose per-sample state EXPR uses"},
    {"top", 0, CLI_STRING, FIELD(top), .metavar = "N|P%",
     .help = "keep only the N samples with the highest value of --by among those that the other "
             "options select, or P percent of those that have a value"},
    {"by", 0, CLI_STRING, FIELD(by), .metavar = "NAME",
     .help =
         "number by which --top ranks samples, named as in EXPR: col.NAME, meta.NAME, text.zeta"},
    {"dry-run", 0, CLI_FLAG, FIELD(dry_run), .help = "only report what would be selected"},
    {"shard-samples", 0, CLI_U64, FIELD(subset.shard_samples), .min = "1", .max = "1048576",
     .default_text = "10000", .metavar = "N", .help = "maximum number of samples per shard",
     .group = "Output"},
    {"shard-size", 0, CLI_U64, FIELD(subset.shard_size_bytes), .unit = CLI_UNIT_BYTES,
     .min = "64KiB", .max = "1TiB", .default_text = "1GiB", .metavar = "SIZE",
     .help = "maximum size of a shard's images"},
    {"overwrite", 0, CLI_FLAG, FIELD(subset.overwrite), .alias = "force",
     .help = "replace the dataset in DIR, and keep all other files there"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "summary as JSON on stdout"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "errors only"},
    CLI_REMOTE_ROWS(struct subset_cli, remote),
};

static const struct cli_program subset_program = {
    .name = "ccpack subset",
    .purpose = "copies selected samples to a new dataset and keeps their ids",
    .usage = CLI_TEXTS("DATASET --ids FILE|--where EXPR|--top N|P% --by NAME -o DIR [options]"),
    .examples =
        CLI_TEXTS("ccpack subset cc3m --where 'shorter >= 256 and aspect < 2' -o cc3m-large",
                  "ccpack subset cc3m --where 'meta.similarity > 0.3 and caption_chars < 200' -o "
                  "cc3m-near",
                  "ccpack subset cc3m --where 'hash(image) % 100 >= 95' -o cc3m-val",
                  "ccpack subset cc3m --top 30% --by col.clip_score -o cc3m-best",
                  "ccpack subset cc3m --where 'text.zeta < 95%' --state runs/a -o cc3m-rare",
                  "ccpack subset s3://BUCKET/cc3m --ids chosen.txt --cache cache -o cc3m-chosen"),
    .notes = CLI_TEXTS(
        "EXPR combines comparisons NAME OP VALUE with and, or, not and parentheses. OP is < <= > "
        ">= = != or ~. VALUE is a number, N% (the Nth percentile over DATASET) or a string, in "
        "quotes unless it is one word.",
        "NAME: " WHERE_FACTS
        ". With --state also the run's per-sample state ('ccdump state RUN' lists the columns: "
        "image.zeta, text.log_u, visits). col.NAME is a number that 'ccpack attach' or "
        "'ccstream-eval score "
        "--attach' joined to the samples.",
        "~: a caption contains the text, ignoring the case of a-z; class and key match a "
        "pattern with * ? []. key is also compared with the original key in the metadata field "
        "'key', which requires reading each sample that earlier conditions have not decided.",
        "meta.NAME is a field of a sample's metadata (meta.a.b: field b of a): compared as a "
        "number if VALUE is an unquoted number, else as a string. hash(X) % N is the XXH64 of X's "
        "text modulo N. It does not change when samples are added or removed, so 'hash(id) % 100 < "
        "95' and 'hash(id) % 100 >= 95' are training and validation sets that stay disjoint; "
        "hash(image) puts byte-identical images into the same set.",
        "A comparison is false if the sample lacks the value: an unknown size, no label, zeta of "
        "an unvisited sample, the score of a sample without a caption. --top skips such samples "
        "and reports their number; ties are broken by the lower id.",
        "The new dataset keeps the tokenizer, classes, sources, id space and history of DATASET, "
        "so 'ccstream-train --resume' and '--state' work with runs on DATASET. Ids of samples that "
        "were not selected are never reused. Images are copied byte for byte.",
        "DATASET may be remote; DIR must be local. Images are read one by one; with --cache, "
        "neighbouring images share a request. Columns are read as a whole; a remote dataset has "
        "those listed in columns/names.txt.",
        "dataset.json is written last. After an interruption or a kill the same command "
        "resumes; it is a no-op if the dataset is complete."),
    CLI_OPTIONS(subset_rows),
    .arguments = {1, 1},
};

/* ---- choosing -------------------------------------------------------------------------------- */

struct choice {
    const struct subset_cli *o;
    struct input *in;
    struct columns *columns;
    struct where *where;     /* NULL: every sample matches */
    struct where *order;     /* --by; NULL without --top */
    struct byte_buffer list; /* ids of --ids, ascending */
    struct byte_buffer ids;  /* selected ids, ascending */
    struct byte_buffer top;  /* of --top: struct top_item */
    uint64_t image_bytes;    /* of them */
    uint64_t without;        /* of --top: samples without a value */
    double lowest;           /* of --top: value of the last one chosen */
};

struct top_item {
    double value;
    uint64_t id, image_bytes;
};

/* Every id of the list must be in the dataset. */
static enum status check_list(const struct choice *c, const char *directory, struct error *err) {
    const uint64_t *ids = (const uint64_t *)(const void *)c->list.data;
    for (size_t i = 0; i < c->list.size_bytes / sizeof(*ids); i++) {
        struct sample_facts f;
        enum status s = input_find(c->in, &f, ids[i], err);
        FAIL_IF(s == STATUS_NOTFOUND, err, s, "%s: %s has no sample with id %" PRIu64, c->o->ids,
                directory, ids[i]);
        TRY(s);
    }
    return input_from(c->in, 0, err);
}

static enum status open_where(struct choice *c, struct error *err) {
    const struct subset_cli *o = c->o;
    if (o->state || o->by || strstr(o->where, "col.")) {
        TRY(columns_open(&c->columns, o->state, c->in->path, c->in->manifest, err));
    }
    enum status s = o->where ? where_parse(&c->where, o->where, c->columns, err) : STATUS_OK;
    const char *option = s == STATUS_OK ? "--by" : "--where";
    THEN(s, o->by ? where_parse_name(&c->order, o->by, c->columns, err) : STATUS_OK);
    if (s == STATUS_USAGE && err) {
        struct error why = *err;
        return error_set(err, s, "%s: %s", option, why.text);
    }
    return s;
}

/* Calls `take` for every sample. */
static enum status
each_sample(struct choice *c,
            struct cli_progress *progress,
            enum status (*take)(struct choice *, const struct sample_facts *, struct error *),
            struct error *err) {
    struct sample_facts f;
    enum status s = input_from(c->in, 0, err);
    while (s == STATUS_OK && (s = input_next(c->in, &f, err)) == STATUS_OK) {
        s = cli_interrupted()
                ? error_set(err, STATUS_INTERRUPTED, "interrupted; nothing was written")
                : take(c, &f, err);
        cli_progress_update(progress, f.position + 1, c->in->sample_count, 0, NULL);
    }
    cli_progress_clear(progress);
    return s == STATUS_END ? STATUS_OK : s;
}

static enum status take_rank(struct choice *c, const struct sample_facts *f, struct error *err) {
    return where_rank(c->where, c->in, f, err);
}

static enum status take_fitting(struct choice *c, const struct sample_facts *f, struct error *err) {
    const size_t listed = c->list.size_bytes / sizeof(uint64_t);
    bool good = !c->o->ids || bsearch(&f->id, c->list.data, listed, sizeof(uint64_t), compare_u64);
    if (good && c->where) {
        TRY(where_fits(&good, c->where, c->in, f, err));
    }
    if (good && c->order) {
        struct top_item item = {.id = f->id, .image_bytes = f->image_bytes};
        TRY(where_value(&item.value, c->order, c->in, f, err));
        c->without += isnan(item.value);
        return isnan(item.value) ? STATUS_OK
                                 : byte_buffer_append(&c->top, &item, sizeof(item), err);
    }
    if (good) {
        c->image_bytes += f->image_bytes;
        TRY(byte_buffer_append(&c->ids, &f->id, sizeof(f->id), err));
    }
    return STATUS_OK;
}

/* How many of `count` samples "N" or "P%" means; false: neither. */
static bool parse_top(uint64_t *out, const char *text, uint64_t count) {
    char *end = NULL;
    const double percent = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        if (!(percent > 0 && percent <= 100)) {
            return false;
        }
        *out = (uint64_t)floor((double)count * percent / 100 + 0.5);
        *out = *out > 0 ? *out : 1;
        return true;
    }
    return cli_parse_u64(text, CLI_UNIT_NONE, out) && *out > 0;
}

static int highest_first(const void *a, const void *b) {
    const struct top_item *x = a;
    const struct top_item *y = b;
    return x->value != y->value ? (x->value < y->value) - (x->value > y->value)
                                : (x->id > y->id) - (x->id < y->id);
}

static enum status take_top(struct choice *c, struct error *err) {
    struct top_item *items = (struct top_item *)(void *)c->top.data;
    const size_t count = c->top.size_bytes / sizeof(*items);
    uint64_t taken = 0;
    (void)parse_top(&taken, c->o->top, count);
    taken = taken < count ? taken : count;
    if (count > 0) {
        qsort(items, count, sizeof(*items), highest_first);
        c->lowest = items[taken - 1].value;
    }
    for (size_t i = 0; i < taken; i++) {
        c->image_bytes += items[i].image_bytes;
        TRY(byte_buffer_append(&c->ids, &items[i].id, sizeof(items[i].id), err));
    }
    qsort(c->ids.data, taken, sizeof(uint64_t), compare_u64);
    return STATUS_OK;
}

static void print_top(const struct choice *c) {
    if (c->order && !c->o->quiet && !c->o->dry_run) {
        cli_print(stderr, "%s of %s with a value of %s, the lowest %g; %s without one\n",
                  cli_format_count(c->ids.size_bytes / sizeof(uint64_t)),
                  cli_format_counted(c->top.size_bytes / sizeof(struct top_item), "sample"),
                  c->o->by, c->lowest, cli_format_count(c->without));
    }
}

static void put_top(struct json_writer *w, const struct choice *c) {
    if (c->order) {
        json_u64(w, "with_value", c->top.size_bytes / sizeof(struct top_item));
        json_u64(w, "without_value", c->without);
        json_double(w, "lowest", c->lowest);
    }
}

static enum status
choose(struct choice *c, struct cli_progress *progress, const char *directory, struct error *err) {
    const struct subset_cli *o = c->o;
    TRY(input_open(&c->in, directory, err));
    if (o->ids) {
        TRY(id_list_numbers(&c->list, o->ids, err));
        qsort(c->list.data, c->list.size_bytes / sizeof(uint64_t), sizeof(uint64_t), compare_u64);
        TRY(check_list(c, directory, err));
    }
    if (o->where || o->by) {
        TRY(open_where(c, err));
    }
    if (c->where && where_has_ranks(c->where)) {
        TRY(each_sample(c, progress, take_rank, err));
        where_rank_end(c->where);
    }
    TRY(each_sample(c, progress, take_fitting, err));
    TRY(c->order ? take_top(c, err) : STATUS_OK);
    return c->ids.size_bytes > 0 ? STATUS_OK
                                 : error_set(err, STATUS_NOTFOUND, "%s: no sample fits", directory);
}

static void choice_fini(struct choice *c) {
    where_destroy(c->where);
    where_destroy(c->order);
    columns_close(c->columns);
    input_close(c->in);
    byte_buffer_fini(&c->list);
    byte_buffer_fini(&c->ids);
    byte_buffer_fini(&c->top);
}

/* ---- copying --------------------------------------------------------------------------------- */

static void show_samples(void *cookie, const struct pack_subset_progress *p) {
    struct ccpack_run *r = cookie;
    cli_progress_update(&r->progress, p->samples, p->total_samples, p->bytes, NULL);
}

static enum status report_choice(const struct choice *c, struct error *err) {
    const uint64_t samples = c->ids.size_bytes / sizeof(uint64_t);
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "samples", samples);
    json_u64(&w, "of", c->in->sample_count);
    json_u64(&w, "image_bytes", c->image_bytes);
    put_top(&w, c);
    return end_result(&w, c->o->json, err);
}

static enum status
copy(const struct choice *c, struct ccpack_run *r, const char *directory, struct error *err) {
    const struct subset_cli *o = c->o;
    struct pack_subset_options opt;
    struct pack_summary summary = {0};
    pack_subset_options_default(&opt);
    cli_copy(&subset_program, o, offsetof(struct subset_cli, subset), &opt, sizeof(opt));
    opt.source = directory;
    opt.ids = (const uint64_t *)(const void *)c->ids.data;
    opt.id_count = c->ids.size_bytes / sizeof(uint64_t);
    opt.interrupted = cli_interrupted_callback;
    opt.progress = show_samples;
    opt.cookie = r;
    enum status s = pack_subset(&opt, &summary, err);
    s = ccpack_end(r, s, &summary, o->subset.directory, o->quiet, o->json && !c->order, err);
    if (s == STATUS_OK && o->json && c->order) {
        struct json_writer w;
        cli_begin_json(&w);
        ccpack_put_summary(&w, &summary, (double)(clock_now_ns() - r->started_ns) / 1e9);
        put_top(&w, c);
        s = cli_end_json(&w, err);
    }
    if (summary.has_journal) {
        const size_t end = strlen(err->text);
        snprintf(err->text + end, sizeof(err->text) - end,
                 "; %.100s is not a dataset yet, the same command resumes", o->subset.directory);
    }
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct subset_cli *o = options;
    const char *directory = a->items[0];
    struct ccpack_run r;
    uint64_t unused = 0;
    FAIL_IF(!o->ids && !o->where && !o->top, err, STATUS_USAGE,
            "--ids, --where or --top must say which samples");
    FAIL_IF(!o->top != !o->by, err, STATUS_USAGE, "--top and --by need each other");
    FAIL_IF(o->top && !parse_top(&unused, o->top, 1), err, STATUS_USAGE,
            "--top: '%.40s' is neither a number of samples nor a percentage up to 100%%", o->top);
    FAIL_IF(o->state && !o->where && !o->by, err, STATUS_USAGE, "--state is for --where and --by");
    FAIL_IF(!o->subset.directory && !o->dry_run, err, STATUS_USAGE,
            "-o DIR must name the new dataset");
    TRY(remote_choice_use(&o->remote, err));
    TRY(path_check_dataset(directory, err));
    if (o->subset.directory) {
        TRY(output_check_folder(o->subset.directory, OUTPUT_DATASET, err));
    }
    ccpack_begin(&r, "samples", o->quiet);
    struct choice c = {.o = o};
    byte_buffer_init(&c.list, 0);
    byte_buffer_init(&c.ids, 0);
    byte_buffer_init(&c.top, 0);
    enum status s = choose(&c, &r.progress, directory, err);
    if (s == STATUS_OK) {
        print_top(&c);
    }
    THEN(s, o->dry_run ? report_choice(&c, err) : copy(&c, &r, directory, err));
    choice_fini(&c);
    return s;
}

CLI_MAIN(ccpack_subset_main, subset_program, struct subset_cli, run)
