/*
 * ccstudy chains: whether EMC2's chains sample the negatives of the global loss: the mean gradient
 * over many small batches against the exact one, with samples outside the batch encoded again
 * (Algorithm 1) and skipped, and that of the negative cache.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/chains_model.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli.h"

enum {
    LENGTHS = 5,
    VIEWS = 2,
    RUNS = CHAINS_METHOD_COUNT * VIEWS * CHAINS_SIDE_COUNT,
    SERIES = CHAINS_METHOD_COUNT * CHAINS_SIDE_COUNT
};

struct options {
    struct study_options shared;
    uint64_t samples, batch, steps;
    double tau;
};

static const struct cli_option rows[] = {
    STUDY_OPTIONS(struct options, shared),
    {"samples", 'n', CLI_U64, CLI_FIELD(struct options, samples), .min = "4", .max = "1024",
     .default_text = "64", .metavar = "N", .help = "samples, a multiple of --batch"},
    {"batch", 'b', CLI_U64, CLI_FIELD(struct options, batch), .min = "2", .max = "1024",
     .default_text = "8", .metavar = "N", .help = "of a step"},
    {"tau", 0, CLI_DOUBLE, CLI_FIELD(struct options, tau), .min = "0.01", .max = "10",
     .default_text = "0.07", .metavar = "T", .help = "temperature"},
    {"steps", 0, CLI_U64, CLI_FIELD(struct options, steps), .min = "100", .max = "10000000",
     .default_text = "20000", .metavar = "N", .help = "of the longest run; others are shorter"},
};

static const struct cli_program program = {
    .name = "ccstudy chains",
    .purpose = "the negatives that EMC2's Markov chains sample, against the global softmax",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy chains -o studies", "ccstudy chains --quick --json", NULL},
    .notes =
        (const char *const[]){
            "Features stay fixed, so the gradient of the global loss is known exactly. Batches of "
            "--batch go through the loss emc2 for --steps steps, and the mean of their gradients "
            "is compared with it: the mass of the negatives (exact: 1 for each side), the distance "
            "relative to the exact gradient, and chi-square of the chains' states against the "
            "softmax (9 degrees of freedom: 27.9 is exceeded once in 1,000). The paper's claim: "
            "the chains are unbiased however small the batch. Beside them the negative cache: one "
            "negative for each anchor, drawn from the softmax over features of all samples, which "
            "here are never out of date.",
            "--json: rows of views (1: pairs, 2: two views), side (image, text; of two views "
            "first, "
            "second: the anchors), n, batch, tau, steps, mass, error, chi_square: --emc2-carry "
            "encode, Algorithm 1. skip: the same rows for --emc2-carry skip; negcache: for loss "
            "negcache. trace: rows of all three, with method, over the steps. --quick: 2,000 "
            "steps.",
            NULL},
    CLI_OPTIONS(rows),
};

static const char *const side_names[VIEWS][CHAINS_SIDE_COUNT] = {{"image", "text"},
                                                                 {"first", "second"}};
static const char *const method_names[CHAINS_METHOD_COUNT] =
    {[CHAINS_ENCODE] = "encode", [CHAINS_SKIP] = "skip", [CHAINS_CACHE] = "negcache"};

/* ---- the experiment ---- */

struct study_chains {
    struct options o;
    double steps[LENGTHS];
    struct chains_result results[CHAINS_METHOD_COUNT][VIEWS][CHAINS_SIDE_COUNT][LENGTHS];
};

static enum status advance(void *cookie, double steps, struct error *err) {
    return study_advance(cookie, steps, err);
}

static enum status run_side(struct study_chains *s,
                            int method,
                            int views,
                            int side,
                            struct study_progress *progress,
                            struct error *err) {
    for (int k = 0; k < LENGTHS; k++) {
        const struct chains_setting setting = {.views = views == 1,
                                               .method = (enum chains_method)method,
                                               .n = (uint32_t)s->o.samples,
                                               .batch = (uint32_t)s->o.batch,
                                               .tau = s->o.tau,
                                               .steps = (uint64_t)s->steps[k],
                                               .seed = s->o.shared.seed};
        TRY(chains_run(&s->results[method][views][side][k], &setting, (enum chains_side)side,
                       advance, progress, err));
    }
    return STATUS_OK;
}

/* Each run is twice as long as the one before. */
static enum status run_all(struct study_chains *s, struct error *err) {
    struct study_progress progress;
    double work = 0.0;
    for (int k = 0; k < LENGTHS; k++) {
        s->steps[k] = (double)(s->o.steps >> (LENGTHS - 1 - k));
        work += RUNS * s->steps[k];
    }
    study_begin(&progress, work, s->o.shared.quiet);
    enum status status = STATUS_OK;
    for (int i = 0; i < RUNS && status == STATUS_OK; i++) {
        status = run_side(s, i / 4, i / 2 % 2, i % 2, &progress, err);
    }
    study_end(&progress);
    return status;
}

/* ---- numbers ---- */

static void write_row(struct json_writer *w,
                      const struct study_chains *s,
                      int method,
                      int views,
                      int side,
                      int k,
                      bool names_method) {
    const struct chains_result *r = &s->results[method][views][side][k];
    json_open_object(w, NULL);
    if (names_method) {
        json_string(w, "method", method_names[method]);
    }
    json_u64(w, "views", (uint64_t)views + 1);
    json_string(w, "side", side_names[views][side]);
    json_u64(w, "n", s->o.samples);
    json_u64(w, "batch", s->o.batch);
    json_double(w, "tau", s->o.tau);
    json_u64(w, "steps", (uint64_t)s->steps[k]);
    json_double(w, "mass", r->mass);
    json_double(w, "error", r->error);
    json_double(w, "chi_square", r->chi_square);
    json_close_object(w);
}

static void
write_rows(struct json_writer *w, const struct study_chains *s, const char *key, int method) {
    json_open_array(w, key);
    for (int i = 0; i < VIEWS * CHAINS_SIDE_COUNT; i++) {
        write_row(w, s, method, i / 2, i % 2, LENGTHS - 1, false);
    }
    json_close_array(w);
}

static void write_json(struct json_writer *w, const void *result) {
    const struct study_chains *s = result;
    write_rows(w, s, "rows", CHAINS_ENCODE);
    write_rows(w, s, "skip", CHAINS_SKIP);
    write_rows(w, s, "negcache", CHAINS_CACHE);
    json_open_array(w, "trace");
    for (int i = 0; i < RUNS; i++) {
        for (int k = 0; k < LENGTHS; k++) {
            write_row(w, s, i / 4, i / 2 % 2, i % 2, k, true);
        }
    }
    json_close_array(w);
}

static void print_table(const struct study_chains *s) {
    printf("%-8s %5s %-7s %8s %10s %10s %12s\n", "method", "views", "side", "steps", "mass",
           "error", "chi-square");
    for (int i = 0; i < RUNS; i++) {
        const struct chains_result *r = &s->results[i / 4][i / 2 % 2][i % 2][LENGTHS - 1];
        printf("%-8s %5d %-7s %8.0f %10.4f %10.4f %12.1f\n", method_names[i / 4], i / 2 % 2 + 1,
               side_names[i / 2 % 2][i % 2], s->steps[LENGTHS - 1], r->mass, r->error,
               r->chi_square);
    }
}

/* ---- the page ---- */

static void draw_errors(struct html_page *p, const struct study_chains *s, int views) {
    static const char *const names[VIEWS][SERIES] = {
        {"encode, images as anchors", "encode, texts", "skip, images", "skip, texts",
         "negcache, images", "negcache, texts"},
        {"encode, first views as anchors", "encode, second views", "skip, first views",
         "skip, second views", "negcache, first views", "negcache, second views"}};
    double error[SERIES][LENGTHS];
    struct chart_series series[SERIES];
    for (int i = 0; i < SERIES; i++) {
        for (int k = 0; k < LENGTHS; k++) {
            error[i][k] = s->results[i / 2][views][i % 2][k].error;
        }
        series[i] = (struct chart_series){
            .name = names[views][i], .x = s->steps, .y = error[i], .count = LENGTHS};
    }
    char title[160];
    (void)snprintf(title, sizeof title,
                   "%s: distance of the mean gradient from that of the global loss, relative to it",
                   views == 1 ? "Two views" : "Pairs");
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "steps",
                                   .y_label = "relative error",
                                   .log_x = true,
                                   .log_y = true,
                                   .series = series,
                                   .series_count = SERIES});
}

static void draw_numbers(struct html_page *p, const struct study_chains *s) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><caption>After %.0f steps"
                "</caption><tr><th>method<th>views<th>anchors<th>mass of negatives<th>error"
                "<th>chi-square</tr>",
                s->steps[LENGTHS - 1]);
    for (int i = 0; i < RUNS; i++) {
        const struct chains_result *r = &s->results[i / 4][i / 2 % 2][i % 2][LENGTHS - 1];
        html_markup(p, "<tr><td>%s<td>%d<td>%s<td>%.4f<td>%.4f<td>%.1f</tr>", method_names[i / 4],
                    i / 2 % 2 + 1, side_names[i / 2 % 2][i % 2], r->mass, r->error, r->chi_square);
    }
    html_markup(p, "</table></div>");
}

static enum status
draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct study_chains *s = result;
    const struct chains_result *encode = s->results[CHAINS_ENCODE][0][CHAINS_FIRST];
    const struct chains_result *skip = s->results[CHAINS_SKIP][0][CHAINS_FIRST];
    const struct chains_result *cache = s->results[CHAINS_CACHE][0][CHAINS_FIRST];
    (void)options;
    (void)err;
    html_markup(
        p,
        "<p>The paper's claim (Yau et al., ICML 2024): a Markov chain for every sample draws "
        "its negatives from the softmax over all of the dataset, so that the gradient is "
        "that of the global loss even in small batches.</p>"
        "<p>Measured here: %d samples, batches of %d, tau = %g. With chains that encode a "
        "sample outside the batch again (Algorithm 1) the negatives of an image weigh %.3f "
        "and the mean gradient is %.3f of the exact one off, which falls with the steps. "
        "With chains that skip it they weigh %.3f, and %.3f remains. The negative cache draws each "
        "negative anew, which leaves %.3f: here its features are never out of date, and it keeps "
        "one for every sample.</p>",
        (int)s->o.samples, (int)s->o.batch, s->o.tau, encode[LENGTHS - 1].mass,
        encode[LENGTHS - 1].error, skip[LENGTHS - 1].mass, skip[LENGTHS - 1].error,
        cache[LENGTHS - 1].error);
    html_markup(p, "<div class=\"wide\">");
    draw_errors(p, s, 0);
    draw_errors(p, s, 1);
    html_markup(p, "</div>");
    draw_numbers(p, s);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct study_chains s = {.o = *(const struct options *)options};
    const struct study study = {.name = "chains",
                                .title = "EMC2's chains: negatives from the whole dataset",
                                .options = &s.o,
                                .shared = &s.o.shared,
                                .result = &s,
                                .write_json = write_json,
                                .draw_page = draw_page};
    if (s.o.shared.quick && !cli_given(&program, a, "steps")) {
        s.o.steps = 2000;
    }
    TRY(study_check(&study, err));
    TRY(run_all(&s, err));
    if (!s.o.shared.json && !s.o.shared.quiet) {
        print_table(&s);
    }
    return study_finish(&study, err);
}

int ccstudy_chains(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
