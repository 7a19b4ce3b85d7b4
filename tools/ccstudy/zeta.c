/*
 * ccstudy zeta: whether Algorithm 1 of NUCLR learns what its eq. (8) defines, and what the three
 * forms of xi change.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/study.h"
#include "tools/ccstudy/zeta_model.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli.h"

enum { BATCHES = 4, GRADIENTS = 2, TRACE = 40, SHOWN_BATCH = 20 };

static const size_t batches[BATCHES] = {10, SHOWN_BATCH, 50, 100};

static const char *const kind_names[ZETA_KINDS] = {"drawn", "fitted"};
static const char *const gradient_names[GRADIENTS] = {"paper", "unbiased"};
static const char *const form_names[ZETA_FORMS] = {"signed", "norm", "all"};
static const char *const side_names[ZETA_SIDES] = {"image", "text"};

struct options {
    struct study_options shared;
    uint64_t epochs;
};

static const struct cli_option rows[] = {
    STUDY_OPTIONS(struct options, shared),
    {"epochs", 'e', CLI_U64, CLI_FIELD(struct options, epochs), .min = "1", .max = "100000",
     .default_text = "400", .metavar = "N", .help = "of every run: zeta's rate falls to 0 in them"},
};

static const struct cli_program program = {
    .name = "ccstudy zeta",
    .purpose = "popularity learned by NUCLR's Algorithm 1 against the minimiser of its eq. (8)",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy zeta -o studies", "ccstudy zeta --quick --json", NULL},
    .notes =
        (const char *const[]){
            "Similarities of 200 pairs are fixed; the loss nuclr of ccstream-train learns zeta in "
            "batches of 10, 20, 50 and 100, with --zeta-gradient paper and unbiased, and is "
            "compared with the exact minimiser. drawn: the toy problem's pairs; fitted: "
            "embeddings whose own pair is the most similar, as after training. Each run keeps xi "
            "in the three forms of --xi.",
            "--json: problems; rows of problem, gradient, batch, by side (image, text) the "
            "correlation with the minimiser, the root mean square distance from it, mean and "
            "largest zeta, xi by form, and by form how far the gradient of the last epoch is from "
            "that of --xi signed, relative to it; trace: the same over the epochs at batch 20; "
            "samples: the minimiser and what was learned at batch 20. --quick: batches 20 and "
            "100, 100 epochs.",
            NULL},
    CLI_OPTIONS(rows),
};

/* ---- the experiment ---- */

struct run {
    enum zeta_kind kind;
    enum loss_zeta_gradient gradient;
    size_t batch;
    struct zeta_point points[TRACE];
    size_t point_count;
    double learned[ZETA_SIDES][ZETA_PAIRS];
};

struct study_zeta {
    uint64_t epochs;
    struct zeta_problem problems[ZETA_KINDS];
    struct run *runs;
    size_t run_count;
};

static const struct zeta_point *last_point(const struct run *r) {
    return &r->points[r->point_count - 1];
}

/* NULL: not made. */
static const struct run *
find_run(const struct study_zeta *z, int kind, int gradient, size_t batch) {
    for (size_t i = 0; i < z->run_count; i++) {
        const struct run *r = &z->runs[i];
        if ((int)r->kind == kind && (int)r->gradient == gradient && r->batch == batch) {
            return r;
        }
    }
    return NULL;
}

static enum status run_epochs(struct run *r,
                              struct zeta_learner *l,
                              uint64_t epochs,
                              struct study_progress *progress,
                              struct error *err) {
    const uint64_t points = epochs < TRACE ? epochs : TRACE;
    for (uint64_t epoch = 0; epoch < epochs; epoch++) {
        TRY(zeta_learner_epoch(l, err));
        if (epoch + 1 == epochs * (r->point_count + 1) / points) {
            zeta_learner_measure(l, &r->points[r->point_count++]);
        }
        TRY(study_advance(progress, (double)r->batch, err));
    }
    for (int side = 0; side < ZETA_SIDES; side++) {
        memcpy(r->learned[side], zeta_learner_zeta(l, side), sizeof r->learned[side]);
    }
    return STATUS_OK;
}

static enum status run_one(struct study_zeta *z,
                           struct run *r,
                           uint64_t seed,
                           struct study_progress *progress,
                           struct error *err) {
    const struct zeta_options o = {
        .gradient = r->gradient, .batch = r->batch, .epochs = z->epochs, .seed = seed};
    struct zeta_learner *l = NULL;
    TRY(zeta_learner_create(&l, &z->problems[r->kind], &o, err));
    const enum status s = run_epochs(r, l, z->epochs, progress, err);
    zeta_learner_destroy(l);
    return s;
}

static void plan_runs(struct study_zeta *z, bool quick) {
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        for (int gradient = 0; gradient < GRADIENTS; gradient++) {
            for (int b = 0; b < BATCHES; b++) {
                if (!quick || b % 2 == 1) {
                    z->runs[z->run_count++] =
                        (struct run){.kind = (enum zeta_kind)kind,
                                     .gradient = (enum loss_zeta_gradient)gradient,
                                     .batch = batches[b]};
                }
            }
        }
    }
}

static enum status run_all(struct study_zeta *z, const struct options *o, struct error *err) {
    struct study_progress progress;
    double work = 0.0;
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        TRY(zeta_problem_init(&z->problems[kind], (enum zeta_kind)kind, ZETA_PAIRS, o->shared.seed,
                              err));
    }
    z->runs = calloc((size_t)ZETA_KINDS * GRADIENTS * BATCHES, sizeof *z->runs);
    if (z->runs == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    plan_runs(z, o->shared.quick);
    for (size_t i = 0; i < z->run_count; i++) {
        work += (double)z->runs[i].batch * (double)z->epochs;
    }
    study_begin(&progress, work, o->shared.quiet);
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < z->run_count; i++) {
        s = run_one(z, &z->runs[i], o->shared.seed, &progress, err);
    }
    study_end(&progress);
    return s;
}

/* ---- numbers ---- */

static void write_point(struct json_writer *w, const struct run *r, const struct zeta_point *p) {
    char key[48];
    json_open_object(w, NULL);
    json_string(w, "problem", kind_names[r->kind]);
    json_string(w, "gradient", gradient_names[r->gradient]);
    json_u64(w, "batch", r->batch);
    json_u64(w, "epoch", p->epoch);
    for (int side = 0; side < ZETA_SIDES; side++) {
        const char *name = side_names[side];
        (void)snprintf(key, sizeof key, "correlation_%s", name);
        json_double(w, key, p->correlation[side]);
        (void)snprintf(key, sizeof key, "distance_%s", name);
        json_double(w, key, p->distance[side]);
        (void)snprintf(key, sizeof key, "mean_%s", name);
        json_double(w, key, p->mean[side]);
        (void)snprintf(key, sizeof key, "largest_%s", name);
        json_double(w, key, p->largest[side]);
        for (int form = 0; form < ZETA_FORMS; form++) {
            (void)snprintf(key, sizeof key, "xi_%s_%s", form_names[form], name);
            json_double(w, key, p->xi[form][side]);
        }
    }
    for (int form = 0; form < ZETA_FORMS; form++) {
        (void)snprintf(key, sizeof key, "change_%s", form_names[form]);
        json_double(w, key, p->change[form]);
    }
    json_close_object(w);
}

static void
write_list(struct json_writer *w, const char *what, const char *side, const double *values) {
    char key[48];
    (void)snprintf(key, sizeof key, "%s_%s", what, side);
    json_open_array(w, key);
    for (int j = 0; j < ZETA_PAIRS; j++) {
        json_double(w, NULL, values[j]);
    }
    json_close_array(w);
}

static void write_samples(struct json_writer *w, const struct study_zeta *z, int kind) {
    json_open_object(w, NULL);
    json_string(w, "problem", kind_names[kind]);
    for (int side = 0; side < ZETA_SIDES; side++) {
        write_list(w, "minimiser", side_names[side], z->problems[kind].minimiser[side]);
        for (int gradient = 0; gradient < GRADIENTS; gradient++) {
            const struct run *r = find_run(z, kind, gradient, SHOWN_BATCH);
            write_list(w, gradient_names[gradient], side_names[side], r->learned[side]);
        }
    }
    json_close_object(w);
}

static void write_json(struct json_writer *w, const void *result) {
    const struct study_zeta *z = result;
    json_u64(w, "n", ZETA_PAIRS);
    json_u64(w, "epochs", z->epochs);
    json_open_array(w, "problems");
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        json_open_object(w, NULL);
        json_string(w, "problem", kind_names[kind]);
        json_double(w, "tau", z->problems[kind].tau);
        json_double(w, "own_share", z->problems[kind].own_share);
        json_close_object(w);
    }
    json_close_array(w);
    json_open_array(w, "rows");
    for (size_t i = 0; i < z->run_count; i++) {
        write_point(w, &z->runs[i], last_point(&z->runs[i]));
    }
    json_close_array(w);
    json_open_array(w, "trace");
    for (size_t i = 0; i < z->run_count; i++) {
        const struct run *r = &z->runs[i];
        for (size_t k = 0; r->batch == SHOWN_BATCH && k < r->point_count; k++) {
            write_point(w, r, &r->points[k]);
        }
    }
    json_close_array(w);
    json_open_array(w, "samples");
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        write_samples(w, z, kind);
    }
    json_close_array(w);
}

static void print_table(const struct study_zeta *z) {
    printf("%-8s %-9s %6s %12s %12s %10s %10s %10s %10s\n", "problem", "gradient", "batch",
           "corr. images", "corr. texts", "mean zeta", "xi signed", "xi norm", "xi all");
    for (size_t i = 0; i < z->run_count; i++) {
        const struct run *r = &z->runs[i];
        const struct zeta_point *p = last_point(r);
        printf("%-8s %-9s %6zu %12.4f %12.4f %10.4f %10.4f %10.4f %10.4f\n", kind_names[r->kind],
               gradient_names[r->gradient], r->batch, p->correlation[0], p->correlation[1],
               p->mean[1], p->xi[LOSS_XI_SIGNED][1], p->xi[LOSS_XI_NORM][1], p->xi[LOSS_XI_ALL][1]);
    }
}

/* ---- the page ---- */

enum { TEXT = 1 }; /* the side that figures show */

static void draw_samples(struct html_page *p, const struct study_zeta *z, int kind) {
    const double *exact = z->problems[kind].minimiser[TEXT];
    double ends[2] = {HUGE_VAL, -HUGE_VAL};
    for (int j = 0; j < ZETA_PAIRS; j++) {
        ends[0] = fmin(ends[0], exact[j]);
        ends[1] = fmax(ends[1], exact[j]);
    }
    const struct chart_series series[] = {
        {.name = "as published (--zeta-gradient paper)",
         .x = exact,
         .points = true,
         .y = find_run(z, kind, LOSS_ZETA_PAPER, SHOWN_BATCH)->learned[TEXT],
         .count = ZETA_PAIRS},
        {.name = "--zeta-gradient unbiased",
         .x = exact,
         .points = true,
         .y = find_run(z, kind, LOSS_ZETA_UNBIASED, SHOWN_BATCH)->learned[TEXT],
         .count = ZETA_PAIRS},
        {.name = "equal", .x = ends, .y = ends, .count = 2, .plain = true},
    };
    chart_lines(p, &(struct chart){.title = "Every text's zeta after the last epoch, batches of "
                                            "20; means subtracted",
                                   .x_label = "zeta that minimises eq. (8)",
                                   .y_label = "zeta learned",
                                   .series = series,
                                   .series_count = 3});
}

static void draw_batches(struct html_page *p, const struct study_zeta *z, int kind) {
    static const char *const names[] = {"as published, texts", "as published, images",
                                        "unbiased, texts", "unbiased, images"};
    double size[BATCHES];
    double value[4][BATCHES];
    struct chart_series series[4];
    size_t count = 0;
    for (int b = 0; b < BATCHES; b++) {
        if (find_run(z, kind, 0, batches[b]) == NULL) {
            continue;
        }
        for (int k = 0; k < 4; k++) {
            const struct run *r = find_run(z, kind, k / 2, batches[b]);
            value[k][count] = last_point(r)->correlation[1 - k % 2];
        }
        size[count++] = (double)batches[b];
    }
    for (int k = 0; k < 4; k++) {
        series[k] =
            (struct chart_series){.name = names[k], .x = size, .y = value[k], .count = count};
    }
    chart_lines(p, &(struct chart){.title = "Correlation of learned zeta with the minimiser",
                                   .x_label = "B, pairs in a batch, of 200",
                                   .y_label = "correlation",
                                   .log_x = true,
                                   .series = series,
                                   .series_count = 4});
}

static void draw_xi(struct html_page *p, const struct run *r, const char *what) {
    static const char *const names[] = {"signed: the largest zeta so far (published code)",
                                        "norm: the largest |zeta| so far (ICLR, line 7)",
                                        "all: the largest zeta now (workshop, step 10)"};
    double epoch[TRACE];
    double xi[ZETA_FORMS][TRACE];
    double change[ZETA_FORMS][TRACE];
    struct chart_series values[ZETA_FORMS];
    struct chart_series changes[ZETA_FORMS];
    for (int form = 0; form < ZETA_FORMS; form++) {
        for (size_t k = 0; k < r->point_count; k++) {
            epoch[k] = (double)r->points[k].epoch;
            xi[form][k] = r->points[k].xi[form][TEXT];
            change[form][k] = r->points[k].change[form];
        }
        values[form] = (struct chart_series){
            .name = names[form], .x = epoch, .y = xi[form], .count = r->point_count};
        changes[form] = values[form];
        changes[form].y = change[form];
    }
    char title[160];
    (void)snprintf(title, sizeof title, "xi of texts; %s", what);
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "epoch",
                                   .y_label = "xi",
                                   .series = values,
                                   .series_count = ZETA_FORMS});
    (void)snprintf(title, sizeof title,
                   "How far the gradient of the similarities is from that of signed, relative to "
                   "it; %s",
                   what);
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = "epoch",
                                   .y_label = "relative difference",
                                   .series = changes,
                                   .series_count = ZETA_FORMS});
}

static void draw_table(struct html_page *p, const struct study_zeta *z) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><caption>After %llu "
                "epochs</caption><tr><th>problem<th>gradient<th>batch<th>correlation, "
                "images<th>texts<th>distance, images<th>texts<th>mean zeta of texts<th>xi "
                "signed<th>norm<th>all</tr>",
                (unsigned long long)z->epochs);
    for (size_t i = 0; i < z->run_count; i++) {
        const struct run *r = &z->runs[i];
        const struct zeta_point *e = last_point(r);
        html_markup(p,
                    "<tr><td>%s<td>%s<td>%zu<td>%.4f<td>%.4f<td>%.4f<td>%.4f<td>%.4f<td>%.4f"
                    "<td>%.4f<td>%.4f</tr>",
                    kind_names[r->kind], gradient_names[r->gradient], r->batch, e->correlation[0],
                    e->correlation[1], e->distance[0], e->distance[1], e->mean[TEXT],
                    e->xi[LOSS_XI_SIGNED][TEXT], e->xi[LOSS_XI_NORM][TEXT],
                    e->xi[LOSS_XI_ALL][TEXT]);
    }
    html_markup(p, "</table></div>");
}

static double shown(const struct study_zeta *z, int kind, int gradient) {
    return last_point(find_run(z, kind, gradient, SHOWN_BATCH))->correlation[TEXT];
}

static enum status
draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct study_zeta *z = result;
    (void)options;
    (void)err;
    html_markup(p, "<p>The paper's claim (Wang et al., ICLR 2025, sections 3.3 and 3.4): the "
                   "popularity of every sample is the minimiser of the convex problem (8), and "
                   "Algorithm 1 approaches it by steps along a stochastic gradient, a batch at a "
                   "time.</p>");
    html_markup(p,
                "<p>Measured here, with similarities fixed, at batches of %d of %d: where "
                "pairs are as similar as chance makes them, the published gradient ends at a "
                "correlation of %.4f with the minimiser, the unbiased one at %.4f. Where every "
                "sample is most similar to its own pair, as after training, they end at %.4f "
                "and %.4f.</p>",
                SHOWN_BATCH, ZETA_PAIRS, shown(z, ZETA_DRAWN, 0), shown(z, ZETA_DRAWN, 1),
                shown(z, ZETA_FITTED, 0), shown(z, ZETA_FITTED, 1));
    html_markup(
        p,
        "<p>The reason: given that a sample is in the batch, its own anchor is there "
        "too, so the published gradient, a mean over the batch times n, counts the own "
        "pair n/B times. Then its expectation is zero nowhere unless the own shares "
        "P<sub>ii</sub> of all samples add up to 1: all zeta drift upwards together, "
        "and those of samples that fit their pair best rise most. The unbiased "
        "gradient counts the own pair once and the others (n-1)/(B-1) times. Here zeta is led to "
        "where it comes to rest; the published run on CC3M moves it by 0.25 at most.</p>");
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        html_markup(p,
                    "<h2>%s</h2><p>%s, tau = %g; the own shares add up to %.2f.</p><div "
                    "class=\"wide\">",
                    kind == ZETA_DRAWN ? "Pairs as drawn" : "Pairs as after training",
                    kind == ZETA_DRAWN ? "Pairs of the toy problem: texts follow the density that "
                                         "the similarities describe"
                                       : "Cosines in topics of unequal size, where a pair shares "
                                         "more than its topic",
                    z->problems[kind].tau, z->problems[kind].own_share);
        draw_samples(p, z, kind);
        draw_batches(p, z, kind);
        html_markup(p, "</div>");
    }
    html_markup(p, "<h2>The three forms of xi</h2><p>xi weakens the own pair in the denominator "
                   "of the model's gradient. ICLR's line 7 writes a norm, the workshop version "
                   "the largest zeta, the published code the largest with its sign; zeta begins "
                   "at -0.05, where norm begins at 0.05 and the others at 0. Where all zeta drift "
                   "upwards, the three forms are the same.</p><div class=\"wide\">");
    draw_xi(p, find_run(z, ZETA_DRAWN, LOSS_ZETA_PAPER, SHOWN_BATCH),
            "pairs as drawn, gradient as published, batches of 20");
    draw_xi(p, find_run(z, ZETA_FITTED, LOSS_ZETA_UNBIASED, SHOWN_BATCH),
            "pairs as after training, gradient unbiased, batches of 20");
    html_markup(p, "</div>");
    draw_table(p, z);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    const bool named = cli_given(&program, a, "epochs");
    struct study_zeta z = {.epochs = o->shared.quick && !named ? 100 : o->epochs};
    const struct study study = {.name = "zeta",
                                .title = "NUCLR's popularity: learned and exact",
                                .options = o,
                                .shared = &o->shared,
                                .result = &z,
                                .write_json = write_json,
                                .draw_page = draw_page};
    enum status s;
    TRY_OR_FAIL(s, study_check(&study, err));
    TRY_OR_FAIL(s, run_all(&z, o, err));
    if (!o->shared.json && !o->shared.quiet) {
        print_table(&z);
    }
    s = study_finish(&study, err);
fail:
    for (int kind = 0; kind < ZETA_KINDS; kind++) {
        zeta_problem_fini(&z.problems[kind]);
    }
    free(z.runs);
    return s;
}

int ccstudy_zeta(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
