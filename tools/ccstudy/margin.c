/*
 * ccstudy margin: chapter 8 of Chuang's thesis: whether margins normalised by k-variance, measured
 * on training images alone, rank checkpoints as their accuracy on other images does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstudy/blocks_model.h"
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/correlation.h"
#include "tools/ccstudy/margin_model.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/chart.h"
#include "tools/cli/cli.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/eval_common.h"
#include "train/eval/probe.h"

enum { MAX_CHECKPOINTS = 256, SUBSETS = 4 };

struct options {
    struct eval_options eval; /* first: rows of ccstream-eval fill it */
    struct study_options shared;
    const char *train;
    uint64_t epochs, steps;
    double fit;
};

static const struct cli_option rows[] = {
    {"data", 'd', CLI_STRING, CLI_FIELD(struct options, eval.data), .metavar = "DIR",
     .help = "dataset with labels that checkpoints are judged by"},
    {"train", 0, CLI_STRING, CLI_FIELD(struct options, train), .metavar = "DIR",
     .help = "dataset with labels that the classifier learns from and margins are measured on"},
    {"epochs", 'e', CLI_U64, CLI_FIELD(struct options, epochs), .min = "1", .max = "100000",
     .default_text = "32", .metavar = "N",
     .help = "epochs of the classifier over --train; twice as many as long as it does not fit"},
    {"fit", 0, CLI_DOUBLE, CLI_FIELD(struct options, fit), .min = "0", .max = "100",
     .default_text = "90", .metavar = "PERCENT",
     .help = "share of --train that a classifier that fits has right; 0: --epochs, fit or not"},
    {"steps", 0, CLI_U64, CLI_FIELD(struct options, steps), .min = "1", .max = "10000000",
     .default_text = "20000", .metavar = "N",
     .help = "most steps of 512 images of a classifier that does not fit yet"},
    EVAL_TRANSFORM_ROW("crop"),
    STUDY_OPTIONS(struct options, shared),
};

/* Those of ccstream-eval, but --json and --quiet, which stand last and every experiment has. */
static const struct cli_rows tables[] = {{eval_option_rows, EVAL_OPTION_COUNT - 2},
                                         {eval_remote_rows, EVAL_REMOTE_COUNT},
                                         {NULL, 0}};

static const struct cli_program program = {
    .name = "ccstudy margin",
    .purpose = "k-variance normalised margins of checkpoints against their test accuracy",
    .usage = (const char *const[]){"CHECKPOINT CHECKPOINT... --train DIR --data DIR [options]",
                                   "[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy margin -o studies",
                              "ccstream-train --data cifar10 --out runs/a --preset cpu-demo --task "
                              "simclr --loss simclr --keep 100 && ccstudy margin "
                              "runs/a/checkpoints/*.safetensors --train cifar10 --data "
                              "cifar10-test -o studies",
                              NULL},
    .notes =
        (const char *const[]){
            "Of every checkpoint the linear probe of ccstream-eval is trained on the image tower's "
            "output, anew with twice the epochs until it has --fit percent of --train right or "
            "would exceed --steps. A training image's margin rho is its class's score less the "
            "best wrong one, g "
            "the norm of its gradient in the features. kV-margin: rho / E[Var Lip] over classes, "
            "Var the Wasserstein-1 distance between two disjoint halves of a class (by exact "
            "assignment), Lip its largest g; kV-GN-margin: rho / (g + 1e-6) / E[Var]; margin and "
            "GN-margin: rho and rho / (g + 1e-6). Medians over random images, 200 for every "
            "class or all there are, averaged over 4 such draws, with --quick 1.",
            "The thesis's claim: a larger normalised margin goes with a smaller generalisation "
            "error. Reported is Spearman's rank correlation of each margin with the accuracy on "
            "--data, over the checkpoints.",
            "Normalisation presupposes a classifier that fits: a negative median margin, as where "
            "less than half of --train is right, comes nearer to 0 the less concentrated classes "
            "are. More --steps help.",
            "Without checkpoints: towers of ccstudy blocks, trained here on its mixture of 20 "
            "Gaussians with blocks of 1, 2, 5 and 10 and for 25 to 1,600 steps, with --quick for "
            "50 and 800; classifiers of their hidden units learn from its 1,000 training points "
            "and are judged by 2,000 "
            "others.",
            "--json: train and data; rows of checkpoint, accuracy and train_accuracy in percent, "
            "epochs of the "
            "classifier, margin, gn_margin, kv_margin, kv_gn_margin, variance and lipschitz (means "
            "over classes); rank_correlation of each "
            "margin, null where it does not differ.",
            NULL},
    CLI_OPTIONS(rows),
    .shared = tables,
    .max_arguments = MAX_CHECKPOINTS,
};

static const char *const keys[MARGIN_KINDS] = {"margin", "gn_margin", "kv_margin", "kv_gn_margin"};
static const char *const names[MARGIN_KINDS] = {"margin", "GN-margin", "kV-margin", "kV-GN-margin"};

/* ---- the experiment ---- */

struct row {
    char checkpoint[PATH_MAX_BYTES]; /* the argument, or what was trained here */
    double accuracy;                 /* in percent, on --data */
    double train_accuracy;           /* on --train */
    int32_t epochs;                  /* of the classifier */
    struct margin_result margins;
};

struct study_margin {
    const char *train, *data;
    bool towers; /* without checkpoints */
    struct row *rows;
    size_t row_count;
    double rank_correlation[MARGIN_KINDS];
};

/* A labelled dataset as one checkpoint sees it. */
struct side {
    struct embeddings e;
    struct text_list classes;
    struct classify_set set;
};

static void side_fini(struct side *s) {
    embeddings_fini(&s->e);
    text_list_fini(&s->classes);
}

static enum status side_open(struct side *s,
                             struct eval *e,
                             const struct eval_options *o,
                             const char *dir,
                             struct error *err) {
    struct embed_options how = eval_transformed(e, o);
    how.progress = NULL; /* the study has its own */
    how.features = true;
    TRY(zeroshot_classes(&s->classes, dir, err));
    TRY(embed_dataset(&s->e, &e->encoder, e->dev, dir, &how, err));
    s->set = (struct classify_set){.rows = s->e.features,
                                   .labels = s->e.labels,
                                   .count = s->e.images_count,
                                   .dim = s->e.feature_dim};
    return STATUS_OK;
}

/* The shortest classifier that fits the training images, of --epochs times a power of two. Each is
 * trained anew: its learning rate falls to 0 at its end. */
static enum status fit_classifier(struct row *row,
                                  float *weight,
                                  float *bias,
                                  struct device *dev,
                                  const struct classify_set *train,
                                  int32_t class_count,
                                  const struct options *o,
                                  struct error *err) {
    struct probe_options how;
    bool done = false;
    probe_options_default(&how);
    how.epochs = (int32_t)o->epochs;
    how.seed = o->shared.seed;
    how.should_stop = cli_interrupted_callback;
    const uint64_t batch = (uint64_t)how.batch_count;
    const uint64_t steps_each = ((uint64_t)train->count + batch - 1) / batch;
    while (!done) {
        struct classify_result result = {0};
        TRY(probe_train(weight, bias, NULL, dev, train, class_count, &how, err));
        TRY(classify_by_vectors(&result, dev, train, weight, bias, class_count, err));
        row->epochs = how.epochs;
        row->train_accuracy = result.top1;
        classify_result_fini(&result);
        how.epochs *= 2;
        done = row->train_accuracy >= o->fit || (uint64_t)how.epochs * steps_each > o->steps;
    }
    return STATUS_OK;
}

/* Trains the classifier, and takes its margins and its accuracy. */
static enum status judge(struct row *row,
                         struct device *dev,
                         const struct classify_set *train,
                         const struct classify_set *test,
                         int32_t class_count,
                         const struct options *o,
                         struct error *err) {
    struct classify_result result = {0};
    float *weight = calloc((size_t)class_count, (size_t)train->dim * sizeof *weight);
    float *bias = calloc((size_t)class_count, sizeof *bias);
    enum status s;
    if (weight == NULL || bias == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for %d classes", (int)class_count);
        goto fail;
    }
    const struct margin_classifier f = {weight, bias, class_count};
    TRY_OR_FAIL(s, fit_classifier(row, weight, bias, dev, train, class_count, o, err));
    TRY_OR_FAIL(s, classify_by_vectors(&result, dev, test, weight, bias, class_count, err));
    row->accuracy = result.top1;
    s = margin_measure(&row->margins, train, &f, o->shared.quick ? 1 : SUBSETS, o->shared.seed,
                       err);
fail:
    classify_result_fini(&result);
    free(weight);
    free(bias);
    return s;
}

static enum status measure(struct row *row, const struct options *o, struct error *err) {
    struct eval e = {0};
    struct side train = {0};
    struct side test = {0};
    enum status s;
    TRY_OR_FAIL(s, eval_open_images(&e, row->checkpoint, &o->eval, err));
    TRY_OR_FAIL(s, side_open(&train, &e, &o->eval, o->train, err));
    TRY_OR_FAIL(s, side_open(&test, &e, &o->eval, o->eval.data, err));
    const int32_t class_count = eval_label_count(train.e.labels, train.e.images_count);
    if (class_count < 2) {
        s = error_set(err, STATUS_USAGE,
                      "%s has fewer than two classes; ccpack makes them of class folders and CIFAR "
                      "files",
                      o->train);
        goto fail;
    }
    eval_map_labels(test.e.labels, test.e.images_count, &test.classes, &train.classes);
    s = judge(row, e.dev, &train.set, &test.set, class_count, o, err);
fail:
    side_fini(&train);
    side_fini(&test);
    eval_close(&e);
    return s;
}

/* ---- without checkpoints ---- */

enum { TOWER_BLOCKS = 32, TOWER_NEGATIVES = 4 };
static const double tower_lr = 0.0003; /* all as in ccstudy blocks */

static const int64_t full_steps[] = {25, 50, 100, 200, 400, 800, 1600};
static const int64_t quick_steps[] = {50, 800};

static size_t tower_count(bool quick) {
    return BLOCKS_SIZES * (quick ? CLI_COUNT(quick_steps) : CLI_COUNT(full_steps));
}

/* Trains tower `index`, which has weights and draws of its own, and judges its hidden units. */
static enum status measure_tower(struct row *row,
                                 const struct blocks_data *data,
                                 size_t index,
                                 struct device *dev,
                                 const struct options *o,
                                 struct error *err) {
    const int64_t *steps = o->shared.quick ? quick_steps : full_steps;
    const struct blocks_setting setting = {.loss = {.blocks = TOWER_BLOCKS,
                                                    .size = BLOCKS_SIZE[index % BLOCKS_SIZES],
                                                    .negatives = TOWER_NEGATIVES},
                                           .steps = steps[index / BLOCKS_SIZES],
                                           .lr = tower_lr,
                                           .seed = o->shared.seed * MAX_CHECKPOINTS + index};
    struct classify_set train = blocks_set(data, &data->train);
    struct classify_set test = blocks_set(data, &data->test);
    float *x = calloc((size_t)(train.count + test.count), BLOCKS_HIDDEN * sizeof *x);
    if (x == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    (void)snprintf(row->checkpoint, sizeof row->checkpoint, "blocks of %d for %d steps",
                   (int)setting.loss.size, (int)setting.steps);
    train.dim = test.dim = BLOCKS_HIDDEN;
    train.rows = x;
    test.rows = x + train.count * BLOCKS_HIDDEN;
    enum status s = blocks_hidden(x, x + train.count * BLOCKS_HIDDEN, data, &setting, err);
    if (s == STATUS_OK) {
        s = judge(row, dev, &train, &test, data->classes, o, err);
    }
    free(x);
    return s;
}

struct drawn {
    struct blocks_data data;
    struct device *dev;
};

static enum status drawn_open(struct drawn *d, const struct options *o, struct error *err) {
    TRY(blocks_data_draw(&d->data, o->shared.seed, err));
    return device_open(&d->dev, "cpu", 1, err);
}

static void drawn_close(struct drawn *d) {
    device_close(d->dev);
    blocks_data_fini(&d->data);
}

/* ---- all ---- */

static void correlate(struct study_margin *m) {
    double values[MAX_CHECKPOINTS];
    double accuracy[MAX_CHECKPOINTS];
    double ranks[MAX_CHECKPOINTS];
    for (size_t i = 0; i < m->row_count; i++) {
        values[i] = m->rows[i].accuracy;
    }
    ranks_of(accuracy, values, m->row_count);
    for (int kind = 0; kind < MARGIN_KINDS; kind++) {
        for (size_t i = 0; i < m->row_count; i++) {
            values[i] = m->rows[i].margins.median[kind];
        }
        ranks_of(ranks, values, m->row_count);
        m->rank_correlation[kind] = correlation(ranks, accuracy, m->row_count);
    }
}

static enum status run_all(struct study_margin *m, const struct options *o, struct error *err) {
    struct study_progress progress;
    struct drawn drawn = {0};
    enum status s = m->towers ? drawn_open(&drawn, o, err) : STATUS_OK;
    study_begin(&progress, (double)m->row_count, o->shared.quiet);
    for (size_t i = 0; s == STATUS_OK && i < m->row_count; i++) {
        s = m->towers ? measure_tower(&m->rows[i], &drawn.data, i, drawn.dev, o, err)
                      : measure(&m->rows[i], o, err);
        if (s == STATUS_OK) {
            s = study_advance(&progress, 1.0, err);
        }
    }
    study_end(&progress);
    drawn_close(&drawn);
    correlate(m);
    return s;
}

/* ---- numbers ---- */

static void write_json(struct json_writer *w, const void *result) {
    const struct study_margin *m = result;
    json_string(w, "train", m->train);
    json_string(w, "data", m->data);
    json_open_array(w, "rows");
    for (size_t i = 0; i < m->row_count; i++) {
        const struct row *r = &m->rows[i];
        json_open_object(w, NULL);
        json_string(w, "checkpoint", r->checkpoint);
        json_double(w, "accuracy", r->accuracy);
        json_double(w, "train_accuracy", r->train_accuracy);
        json_i64(w, "epochs", r->epochs);
        for (int kind = 0; kind < MARGIN_KINDS; kind++) {
            json_double(w, keys[kind], r->margins.median[kind]);
        }
        json_double(w, "variance", r->margins.variance);
        json_double(w, "lipschitz", r->margins.lipschitz);
        json_close_object(w);
    }
    json_close_array(w);
    json_open_object(w, "rank_correlation");
    for (int kind = 0; kind < MARGIN_KINDS; kind++) {
        json_double(w, keys[kind], m->rank_correlation[kind]);
    }
    json_close_object(w);
}

/* Where the claim does not apply. */
static size_t count_negative(const struct study_margin *m) {
    size_t count = 0;
    for (size_t i = 0; i < m->row_count; i++) {
        count += m->rows[i].margins.median[MARGIN_PLAIN] < 0.0 ? 1 : 0;
    }
    return count;
}

static void print_table(const struct study_margin *m) {
    printf("%-40s %9s %9s %6s %12s %12s %12s %12s\n", "checkpoint", "accuracy", "train", "epochs",
           names[0], names[1], names[2], names[3]);
    for (size_t i = 0; i < m->row_count; i++) {
        const struct row *r = &m->rows[i];
        const double *v = r->margins.median;
        printf("%-40.80s %7.2f %% %7.2f %% %6d %12.5g %12.5g %12.5g %12.5g\n", r->checkpoint,
               r->accuracy, r->train_accuracy, (int)r->epochs, v[0], v[1], v[2], v[3]);
    }
    const double *c = m->rank_correlation;
    if (count_negative(m) > 0) {
        printf("the median margin is negative for %zu of %zu checkpoints: the classifier does not "
               "fit; "
               "more --steps help\n",
               count_negative(m), m->row_count);
    }
    printf("%-67s %12.3f %12.3f %12.3f %12.3f\n", "rank correlation with accuracy", c[0], c[1],
           c[2], c[3]);
}

/* ---- the page ---- */

static void draw_margin(struct html_page *p, const struct study_margin *m, int kind) {
    double x[MAX_CHECKPOINTS];
    double y[MAX_CHECKPOINTS];
    char title[160];
    char label[64];
    for (size_t i = 0; i < m->row_count; i++) {
        x[i] = m->rows[i].margins.median[kind];
        y[i] = m->rows[i].accuracy;
    }
    (void)snprintf(title, sizeof title, "%s and accuracy: rank correlation %.3f", names[kind],
                   m->rank_correlation[kind]);
    (void)snprintf(label, sizeof label, "%s, median over training data", names[kind]);
    const struct chart_series series = {.name = m->towers ? "a tower" : "a checkpoint",
                                        .x = x,
                                        .y = y,
                                        .count = m->row_count,
                                        .points = true};
    chart_lines(p, &(struct chart){.title = title,
                                   .x_label = label,
                                   .y_label = "test accuracy, %",
                                   .series = &series,
                                   .series_count = 1});
}

static void draw_table(struct html_page *p, const struct study_margin *m) {
    html_markup(p,
                "<h2>Numbers</h2><div class=\"scroll\"><table><tr><th>checkpoint<th>test accuracy"
                "<th>on training data<th>epochs");
    for (int kind = 0; kind < MARGIN_KINDS; kind++) {
        html_markup(p, "<th>%s", names[kind]);
    }
    html_markup(p, "<th>E[Var]<th>E[Lip]</tr>");
    for (size_t i = 0; i < m->row_count; i++) {
        const struct row *r = &m->rows[i];
        html_markup(p, "<tr><td>");
        html_text(p, r->checkpoint, strlen(r->checkpoint));
        html_markup(p, "<td>%.2f %%<td>%.2f %%<td>%d", r->accuracy, r->train_accuracy,
                    (int)r->epochs);
        for (int kind = 0; kind < MARGIN_KINDS; kind++) {
            html_markup(p, "<td>%.5g", r->margins.median[kind]);
        }
        html_markup(p, "<td>%.5g<td>%.5g</tr>", r->margins.variance, r->margins.lipschitz);
    }
    html_markup(p, "</table></div>");
}

/* Features here are those of the last layer, so the rows are those of the deep one. */
static void draw_thesis(struct html_page *p) {
    html_markup(p,
                "<h2>The thesis</h2><div class=\"scroll\"><table><caption>Table 8.1: conditional "
                "mutual information between margin and generalisation over the networks of the "
                "tasks of PGDL, percent; margins at the eighth layer or the last convolution"
                "</caption><tr><th><th>CIFAR-10, VGG<th>SVHN, NiN<th>CINIC, FCN with norm<th>"
                "CINIC, FCN<th>Flowers, NiN<th>Pets, NiN<th>Fashion, VGG<th>CIFAR-10, NiN</tr>"
                "<tr><td>margin<td>13.59<td>16.32<td>2.03<td>2.99<td>0.33<td>1.24<td>0.45<td>5.45"
                "</tr><tr><td>GN-margin<td>0.39<td>31.81<td>7.17<td>1.70<td>0.17<td>0.79<td>2.12"
                "<td>1.16</tr><tr><td>kV-margin<td>30.42<td>26.75<td>6.05<td>15.19<td>0.78<td>1.76"
                "<td>0.33<td>2.26</tr><tr><td>kV-GN-margin<td>40.92<td>45.61<td>6.54<td>15.80<td>"
                "1.13<td>5.92<td>0.29<td>8.07</tr></table></div>");
}

static enum status
draw_page(struct html_page *p, const void *result, const void *options, struct error *err) {
    const struct study_margin *m = result;
    (void)options;
    (void)err;
    html_markup(p, "<p>The thesis's claim (Chuang, 2023, chapter 8; NeurIPS 2021): the margin of a "
                   "classifier, divided by how concentrated the features of each class are, ranks "
                   "models by how well they generalise, from training images alone. How "
                   "concentrated a class is, its k-variance, is the Wasserstein-1 distance between "
                   "two disjoint halves of its images.</p>");
    html_markup(p, "<p>Measured here: over %zu %s, each with a linear classifier trained on ",
                m->row_count, m->towers ? "towers" : "checkpoints");
    html_text(p, m->train, strlen(m->train));
    html_markup(p, " and judged on ");
    html_text(p, m->data, strlen(m->data));
    html_markup(p,
                ", Spearman's rank correlation with the accuracy is %.3f of the kV-margin and "
                "%.3f of the kV-GN-margin; without k-variance it is %.3f of the margin and "
                "%.3f of the GN-margin. The thesis ranks networks trained to the end with "
                "labels, and takes features within them; here the features are fixed and the "
                "classifier is linear.</p>",
                m->rank_correlation[MARGIN_KV], m->rank_correlation[MARGIN_KV_GN],
                m->rank_correlation[MARGIN_PLAIN], m->rank_correlation[MARGIN_GN]);
    if (count_negative(m) > 0) {
        html_markup(p,
                    "<p>The median margin of %zu checkpoints is negative: their classifiers do "
                    "not fit the training images, and dividing by k-variance then favours "
                    "classes that are less concentrated. More --steps help.</p>",
                    count_negative(m));
    }
    html_markup(p, "<div class=\"wide\">");
    static const int order[MARGIN_KINDS] = {MARGIN_KV, MARGIN_PLAIN, MARGIN_KV_GN, MARGIN_GN};
    for (int i = 0; i < MARGIN_KINDS; i++) {
        draw_margin(p, m, order[i]);
    }
    html_markup(p, "</div>");
    draw_table(p, m);
    draw_thesis(p);
    return STATUS_OK;
}

/* Two checkpoints or more and both datasets, or nothing of a checkpoint. */
static enum status
check_together(const struct options *o, const struct cli_arguments *a, struct error *err) {
    static const char *const of_checkpoints[] = {"data",  "train",  "transform", "normalize",
                                                 "batch", "device", "threads",   "loader-threads"};
    for (size_t i = 0; a->count == 0 && i < CLI_COUNT(of_checkpoints); i++) {
        if (cli_given(&program, a, of_checkpoints[i])) {
            return error_set(err, STATUS_USAGE, "--%s has no effect without checkpoints",
                             of_checkpoints[i]);
        }
    }
    if (a->count == 1) {
        return error_set(err, STATUS_USAGE, "too few arguments: ranks need two checkpoints");
    }
    if (a->count > 0 && (o->train == NULL || o->eval.data == NULL)) {
        return error_set(err, STATUS_USAGE, "checkpoints need --train and --data");
    }
    return a->count > 0 ? path_check_dataset(o->train, err) : STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct options o = *(const struct options *)options;
    struct study_margin m = {.train = o.train, .data = o.eval.data, .row_count = a->count};
    const struct study study = {.name = "margin",
                                .title = "Margins normalised by k-variance",
                                .options = &o,
                                .shared = &o.shared,
                                .result = &m,
                                .write_json = write_json,
                                .draw_page = draw_page};
    enum status s;
    o.eval.quiet = o.shared.quiet;
    TRY(check_together(&o, a, err));
    TRY(study_check(&study, err));
    if (a->count == 0) {
        m.towers = true;
        m.train = "1,000 points of a mixture";
        m.data = "2,000 others";
        m.row_count = tower_count(o.shared.quick);
    }
    m.rows = calloc(m.row_count, sizeof *m.rows);
    if (m.rows == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < a->count; i++) {
        (void)snprintf(m.rows[i].checkpoint, sizeof m.rows[i].checkpoint, "%s", a->items[i]);
    }
    s = run_all(&m, &o, err);
    if (s == STATUS_OK && !o.shared.json && !o.shared.quiet) {
        print_table(&m);
    }
    if (s == STATUS_OK) {
        s = study_finish(&study, err);
    }
    free(m.rows);
    return s;
}

int ccstudy_margin(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
