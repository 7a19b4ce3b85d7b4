/*
 * ccpack plan: estimates the result of packing remote tars. The beginnings of a few of them are
 * packed as by ccpack -o, into a temporary folder, and scaled up to the bytes of all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "net/http_stream.h"
#include "net/listing.h"
#include "net/location.h"
#include "tools/ccpack/ccpack_internal.h"
#include "tools/inspect/samples.h"

enum { PROBES = 4, PROBE_ROWS = 64 };

#define FIELD(name) CLI_FIELD(struct ccpack_options, name)

static const struct cli_option rows[] = {
    {"caption-column", 0, CLI_LIST, FIELD(captions), .metavar = "NAME,...",
     .help = "fields of the .json to use as captions instead of the .txt"},
    {"caption-lines", 0, CLI_ENUM, FIELD(pack.lines), .choices = source_lines_names,
     .default_text = "auto", .metavar = "HOW",
     .help = "captions in a .txt with several lines, as for ccpack -o"},
    CLI_SERVER_ROWS(struct ccpack_options, remote),
};

static const struct cli_program plan_program = {
    .name = "ccpack plan",
    .purpose = "estimates the result of packing remote tars from samples of a few of them",
    .usage = CLI_TEXTS("[options] LOCATION..."),
    .examples = CLI_TEXTS("ccpack plan 'hf://datasets/OWNER/NAME/train-*.tar'",
                          "ccpack plan --resize short:256 --json https://HOST/{000..099}.tar"),
    .notes = CLI_TEXTS(
        "LOCATION and the options are those of ccpack -o. The first 64 rows of up to 4 tars, "
        "spread evenly over all, are packed into a temporary folder (TMPDIR), which is removed "
        "afterwards. Each tar costs a download of 32 MiB; one more such download measures the "
        "connection.",
        "bytes: size of all tars, from the server's listing or, if there is none, extrapolated "
        "from the sampled tars. disk_bytes: size of the dataset. seconds: duration, at the "
        "measured rate of the connection or of the CPU with --jobs threads, whichever is lower.",
        "Unusable rows are counted and never stop the estimate."),
    CLI_OPTIONS(rows),
    .shared = ccpack_shape_rows,
    .arguments = {1, CLI_MAX_ARGUMENTS},
};

/* The totals of the probes. */
struct plan {
    uint64_t rows, samples, texts, rejected, source_bytes, shard_bytes;
    uint64_t probe_rows; /* of the current one */
    uint64_t tar_bytes;  /* of so many tars */
    size_t sized;
    double cpu_s, bytes_per_s;
    struct cli_progress progress; /* over the probed tars */
    char image[80];
    bool metadata;
};

static bool is_probed(void *plan) {
    return ((struct plan *)plan)->probe_rows >= PROBE_ROWS || cli_interrupted();
}

static void count_rows(void *plan, const struct pack_progress *p) {
    ((struct plan *)plan)->probe_rows = p->rows;
}

/* Describes the first sample of a probe. */
static enum status look(struct plan *p, const char *directory, struct error *err) {
    struct input *in = NULL;
    struct sample_facts f;
    struct sample_content content;
    TRY(input_open(&in, directory, err));
    enum status s = input_next(in, &f, err);
    THEN(s, input_read(in, &content, err));
    if (s == STATUS_OK) {
        (void)snprintf(p->image, sizeof p->image, "%s, %u x %u", image_format_name(f.format),
                       f.width_px, f.height_px);
        p->metadata = content.json.size_bytes > 0;
    }
    input_close(in);
    return s;
}

/* Packs the first rows of a tar into `directory`. */
static enum status probe(struct plan *p,
                         const struct pack_options *all,
                         const char *tar,
                         const char *directory,
                         struct error *err) {
    struct pack_options opt = *all;
    struct pack_summary sum;
    opt.directory = directory;
    opt.sources = &tar;
    opt.source_count = 1;
    opt.max_bad = (struct pack_max_bad){.percent = 100};
    opt.interrupted = is_probed;
    opt.progress = count_rows;
    opt.cookie = p;
    p->probe_rows = 0;
    const int64_t before_ns = clock_process_cpu_ns();
    const enum status s = pack_run(&opt, &sum, err);
    RETURN_IF(s != STATUS_OK && (s != STATUS_INTERRUPTED || cli_interrupted()), s);
    p->cpu_s += (double)(clock_process_cpu_ns() - before_ns) / 1e9;
    p->rows += sum.rows;
    p->samples += sum.samples;
    p->texts += sum.texts;
    p->rejected += sum.rejected;
    p->source_bytes += sum.next_bytes;
    p->shard_bytes += sum.bytes;
    return sum.samples > 0 && p->image[0] == '\0' ? look(p, directory, err) : STATUS_OK;
}

/* Probes some of the tars. */
static enum status probe_all(struct plan *p,
                             const struct pack_options *opt,
                             const struct cli_arguments *tars,
                             const char *folder,
                             struct error *err) {
    const size_t count = tars->count < PROBES ? tars->count : PROBES;
    const bool listed = p->sized > 0;
    for (size_t i = 0; i < count; i++) {
        const char *tar = tars->items[tars->count * i / count];
        uint64_t size_bytes = 0, hash;
        char directory[PATH_MAX_BYTES];
        cli_progress_update(&p->progress, i, count, 0, NULL);
        TRY(path_join(directory, sizeof directory, folder, cli_format("%zu", i), err));
        const enum status s = probe(p, opt, tar, directory, err);
        file_remove_folder(directory);
        TRY(s);
        if (!listed) {
            TRY(http_stream_identity(&size_bytes, &hash, tar, err));
            p->tar_bytes += size_bytes;
            p->sized++;
        }
    }
    return http_stream_measure(&p->bytes_per_s, tars->items[0], cli_interrupted, err);
}

static enum status print_plan(const struct plan *p,
                              const struct ccpack_options *o,
                              const struct pack_options *opt,
                              size_t tars,
                              struct error *err) {
    struct json_writer w;
    const double bytes = (double)p->tar_bytes / (double)p->sized * (double)tars;
    cli_begin_json(&w);
    json_u64(&w, "tars", tars);
    json_u64(&w, "bytes", (uint64_t)bytes);
    json_bool(&w, "bytes_estimated", p->sized < tars);
    json_u64(&w, "looked_at_rows", p->rows);
    json_u64(&w, "looked_at_rejected", p->rejected);
    if (p->samples > 0) {
        const double all = bytes / (double)p->source_bytes; /* times the probed part */
        const double samples = all * (double)p->samples;
        const double transfer_s = p->bytes_per_s > 0 ? bytes / p->bytes_per_s : 0;
        const double compute_s = all * p->cpu_s / opt->jobs;
        json_string(&w, "image", p->image);
        json_double(&w, "captions_per_sample", (double)p->texts / (double)p->samples);
        json_bool(&w, "metadata", p->metadata);
        json_u64(&w, "samples", (uint64_t)samples);
        json_u64(&w, "disk_bytes",
                 (uint64_t)(samples * (double)p->shard_bytes / (double)p->samples));
        json_u64(&w, "bytes_per_s", (uint64_t)p->bytes_per_s);
        json_u64(&w, "seconds", 1 + (uint64_t)(transfer_s > compute_s ? transfer_s : compute_s));
    }
    return end_result(&w, o->json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct ccpack_options *o = options;
    struct cli_arguments tars;
    struct pack_options opt;
    struct plan p = {.rows = 0};
    char folder[PATH_MAX_BYTES];
    TRY(ccpack_expand(&tars, a, o, "", err));
    TRY(ccpack_take(&opt, &plan_program, o, &tars, err));
    for (size_t i = 0; i < tars.count; i++) {
        FAIL_IF(!location_is_remote(tars.items[i]), err, STATUS_USAGE,
                "%.200s: a plan is for remote tars; 'ccdump ls' shows local ones", tars.items[i]);
    }
    TRY(file_temporary_folder(folder, err));
    cli_signals_install();
    listing_measure(&p.tar_bytes, &p.sized, tars.items, tars.count, location_allows_private());
    cli_progress_init(&p.progress, "tars", o->quiet);
    const enum status s = probe_all(&p, &opt, &tars, folder, err);
    cli_progress_clear(&p.progress);
    file_remove_folder(folder);
    TRY(s);
    FAIL_IF(p.samples > 0 && p.source_bytes == 0, err, STATUS_CORRUPT,
            "%.200s: is compressed, so its beginning does not show how much it holds; "
            "ccpack -o DIR packs it",
            tars.items[0]);
    return print_plan(&p, o, &opt, tars.count, err);
}

CLI_MAIN(ccpack_plan_main, plan_program, struct ccpack_options, run)
