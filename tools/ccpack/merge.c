/*
 * ccpack merge: joins the parts of a run into one dataset, or lists their faults.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pack/merge/merge.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/cli/output.h"
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
    {"overwrite", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, overwrite), .alias = "force",
     .help = "replace the dataset in DIR, and keep all other files there"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct merge_cli, json),
     .help =
         "summary as JSON on stdout; if a merge is impossible, the part numbers that prevent it"},
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct merge_cli, quiet), .help = "errors only"},
};

static const struct cli_program merge_program = {
    .name = "ccpack merge",
    .purpose = "joins the parts that ccpack --part made into one dataset",
    .usage = CLI_TEXTS("[options] -o DIR PART..."),
    .examples = CLI_TEXTS("ccpack merge -o train train-part-*"),
    .notes = CLI_TEXTS(
        "PART is a directory that ccpack --part K/N made. Pass all N parts, in any order; they "
        "must be made with the same options from the same sources. The dataset has the ids, "
        "labels and fingerprint of a single run over everything.",
        "If parts are missing, unfinished, repeated or from another run, nothing is merged, and "
        "all such parts are listed on stderr, with --json also on stdout.",
        "If DIR is on the file system of the parts, shards are hard-linked instead of copied; "
        "otherwise they are copied and their hashes checked. The parts are not modified and may be "
        "removed afterwards.",
        "dataset.json is written last. After an interruption or a kill the same command "
        "resumes; it is a no-op after a complete merge."),
    CLI_OPTIONS(merge_rows),
    .arguments = {1, CLI_MAX_ARGUMENTS},
};

/* The numbers of the parts with each fault, and the expected count. */
struct merge_run {
    struct ccpack_run run;
    struct byte_buffer ranges[PACK_MERGE_FOREIGN + 1]; /* of pairs: first, last */
    uint32_t count;
    enum status status;
};

static void show_progress(void *cookie, const struct pack_merge_progress *p) {
    struct merge_run *r = cookie;
    cli_progress_update(&r->run.progress, p->shards, p->total_shards, p->bytes, NULL);
}

static void take_problem(void *cookie, const struct pack_merge_problem *p) {
    static const char *const names[] = {"not a part", "missing", "unfinished", "repeated",
                                        "of another run"};
    struct merge_run *r = cookie;
    struct error why = {0};
    const uint32_t range[2] = {p->first, p->last};
    const char *text = p->text;
    if (p->fault == PACK_MERGE_NO_PART && access(p->directory, F_OK) == 0 &&
        path_check_dataset(p->directory, &why) != STATUS_OK) {
        text = why.text; /* it checks what else the directory may be */
    }
    r->count = p->count;
    if (p->fault != PACK_MERGE_MISSING) {
        const char *part = p->fault == PACK_MERGE_UNFINISHED || p->fault == PACK_MERGE_FOREIGN
                               ? cli_format("part %" PRIu32 "/%" PRIu32 ": ", p->first, p->count)
                               : "";
        cli_print(stderr, "%s: %s%s\n", names[p->fault], part, text);
    }
    if (r->status == STATUS_OK) {
        r->status = byte_buffer_append(&r->ranges[p->fault], range, sizeof(range), NULL);
    }
}

/* "3,7-9", in the format of --array. */
static void print_ranges(const struct byte_buffer *ranges, const char **comma) {
    const uint32_t *range = (const uint32_t *)(const void *)ranges->data;
    for (size_t i = 0; i < ranges->size_bytes / sizeof(*range); i += 2) {
        cli_print(stderr, "%s%" PRIu32, *comma, range[i]);
        if (range[i + 1] > range[i]) {
            cli_print(stderr, "-%" PRIu32, range[i + 1]);
        }
        *comma = ",";
    }
}

/* Prints which parts must be packed, and how. */
static void print_remedy(const struct merge_run *r) {
    const struct byte_buffer *missing = &r->ranges[PACK_MERGE_MISSING];
    const struct byte_buffer *unfinished = &r->ranges[PACK_MERGE_UNFINISHED];
    const char *comma = "";
    if (missing->size_bytes > 0) {
        fputs(missing->size_bytes > 2 * sizeof(uint32_t) ? "missing: parts " : "missing: part ",
              stderr);
        print_ranges(missing, &comma);
        cli_print(stderr, " of %" PRIu32 "\n", r->count);
    }
    if (missing->size_bytes + unfinished->size_bytes > 0) {
        cli_print(stderr,
                  "'ccpack --part K/%" PRIu32
                  " --resume -o DIR ...', with the options and sources of "
                  "the others, packs part K; as a Slurm array: --part auto/%" PRIu32 ", --array=",
                  r->count, r->count);
        comma = "";
        print_ranges(missing, &comma);
        print_ranges(unfinished, &comma);
        fputc('\n', stderr);
    }
}

static enum status print_problems_json(const struct merge_run *r, struct error *err) {
    static const char *const names[] = {NULL, "missing", "unfinished", "repeated", "foreign"};
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "parts", r->count);
    for (int i = PACK_MERGE_MISSING; i <= PACK_MERGE_FOREIGN; i++) {
        const uint32_t *range = (const uint32_t *)(const void *)r->ranges[i].data;
        json_open_array(&w, names[i]);
        for (size_t k = 0; k < r->ranges[i].size_bytes / sizeof(*range); k += 2) {
            for (uint32_t number = range[k]; number <= range[k + 1]; number++) {
                json_u64(&w, NULL, number);
            }
        }
        json_close_array(&w);
    }
    return cli_end_json(&w, err);
}

static enum status merge(struct merge_run *r,
                         const struct merge_cli *o,
                         const struct cli_arguments *a,
                         struct error *err) {
    struct pack_merge_options opt;
    struct pack_summary summary = {0};
    pack_merge_options_default(&opt);
    opt.directory = o->out;
    opt.parts = a->items;
    opt.part_count = a->count;
    opt.overwrite = o->overwrite;
    opt.interrupted = cli_interrupted_callback;
    opt.progress = show_progress;
    opt.problem = take_problem;
    opt.cookie = r;
    TRY(output_check_folder(o->out, OUTPUT_DATASET, err));
    enum status s = pack_merge(&opt, &summary, err);
    s = ccpack_end(&r->run, s, &summary, o->out, o->quiet, o->json, err);
    if (s == STATUS_MISMATCH && r->count > 0 && r->status == STATUS_OK) {
        print_remedy(r);
        return o->json && print_problems_json(r, err) != STATUS_OK ? STATUS_IO : s;
    }
    if (summary.has_journal) {
        const size_t end = strlen(err->text);
        snprintf(err->text + end, sizeof(err->text) - end,
                 "; %.100s is not a dataset yet, the same command resumes", o->out);
    }
    return s;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct merge_cli *o = options;
    struct merge_run r = {.status = STATUS_OK};
    ccpack_begin(&r.run, "shards", o->quiet);
    for (int i = 0; i <= PACK_MERGE_FOREIGN; i++) {
        byte_buffer_init(&r.ranges[i], 0);
    }
    enum status s = merge(&r, o, a, err);
    for (int i = 0; i <= PACK_MERGE_FOREIGN; i++) {
        byte_buffer_fini(&r.ranges[i]);
    }
    return s;
}

CLI_MAIN(ccpack_merge_main, merge_program, struct merge_cli, run)
