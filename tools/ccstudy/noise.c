/*
 * ccstudy noise: whether RINCE is more robust than CLIP to pairs that do not belong together:
 * recall over the share of wrong pairs, or accuracy over the share of wrong labels that made the
 * pairs, each loss tuned for itself at each share.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstudy/batch_options.h"
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/noise_page.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/cli.h"

struct options {
    struct study_options shared;
    struct batch_options heads;
    uint64_t batch;
    int noise;
};

enum { NOISE_PAIR, NOISE_LABEL };
static const char *const noises[] = {[NOISE_PAIR] = "pair", [NOISE_LABEL] = "label", NULL};

static const struct cli_option rows[] = {
    {"noise", 0, CLI_ENUM, CLI_FIELD(struct options, noise), .choices = noises,
     .default_text = "pair", .metavar = "KIND",
     .help = "what is wrong in a share of the training data: pair, the texts of an image; label, "
             "of points, two of one label being a pair: drawn ones, or with --features those of "
             "PREFIX.labels.npy in the place of texts and owners"},
    BATCH_OPTIONS(struct options, heads),
    {"batch", 'b', CLI_U64, CLI_FIELD(struct options, batch), .min = "8", .max = "128",
     .default_text = "128", .metavar = "N", .help = "pairs per step"},
    STUDY_OPTIONS(struct options, shared),
};

static const struct cli_program program = {
    .name = "ccstudy noise",
    .purpose = "recall or accuracy over the share of wrong pairs or labels: RINCE against CLIP",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy noise --quick -o studies",
                              "ccstudy noise --noise label -o studies",
                              "ccstream-eval embed runs/a --data flickr --texts --features -o "
                              "flickr && ccstudy noise --features flickr -o studies",
                              NULL},
    .notes =
        (const char *const[]){
            "Features stay fixed; a head for images and one for texts are trained on them with "
            "clip, and with rince at q 0.01, 0.1, 0.5 and 1. A share of the training images, 0 to "
            "0.8, has the texts of another image, as with ccstream-train --pair-noise. The claim: "
            "clip loses accuracy to such noise, and rince the less the larger q is.",
            "--noise label, as in the thesis (section 5.3.1): a pair is two points of one label, "
            "another one in every epoch, through one head. A share of the training points, by "
            "(seed, point), has the label of another class, all of them as often; the thesis "
            "exchanges similar classes, half as often. The number is the accuracy, on test points, "
            "of a linear classifier of the embeddings that learned right labels. Drawn: a mixture "
            "of 20 classes in 6 of 64 dimensions, 150 points of each. Files: noise-label.json and "
            ".html.",
            "For each loss and share, the temperature (0.05 to 0.8) and rince's lambda (0.01, 0.1, "
            "0.4) are those whose mean of R@1, R@5 and R@10 on the validation pairs is highest, "
            "with one seed; --repeats other seeds of that setting, each with noise of its own, "
            "give the mean and standard error on the test pairs.",
            "--json: settings; rows of loss, q (rince), noise, seeds, recall (the mean of R@1, R@5 "
            "and R@10), r1, r5, r10, over_clip (the difference from clip's recall at the same "
            "noise with the same seed) and lost (recall without noise less recall, with the same "
            "seed), each with its standard error as NAME_se; the tuned tau and lambda (rince), and "
            "validation, the recall that chose them. label: accuracy in the place of recall and "
            "r1 to r10. untrained: the same of heads as they are drawn, a mean over as many seeds; "
            "noise counts where training gains over that. --quick: 640 drawn pairs, shares 0, 0.4 "
            "and "
            "0.8, a small grid, 2 seeds.",
            NULL},
    CLI_OPTIONS(rows),
};

/* ---- the grid ---- */

struct list {
    double values[6];
    int count;
};

struct grid {
    struct list noises, taus, lambdas;
};

static const struct grid full_grid = {.noises = {{0.0, 0.2, 0.4, 0.6, 0.8}, 5},
                                      .taus = {{0.05, 0.1, 0.2, 0.4, 0.8}, 5},
                                      .lambdas = {{0.01, 0.1, 0.4}, 3}};

static const struct grid quick_grid = {.noises = {{0.0, 0.4, 0.8}, 3},
                                       .taus = {{0.1, 0.4}, 2},
                                       .lambdas = {{0.01}, 1}};

struct study_noise {
    struct options o;
    const struct grid *grid;
    struct noise_result result;
    struct batch_features features;
    struct device *dev;
    struct study_progress progress;
};

static enum status advance(void *cookie, double pairs, struct error *err) {
    struct study_noise *s = cookie;
    return study_advance(&s->progress, pairs, err);
}

/* Trains with `row`'s loss at its noise. Seed 0 tunes. */
static enum status train(struct batch_outcome *out,
                         struct study_noise *s,
                         const struct noise_row *row,
                         double tau,
                         double lambda,
                         uint64_t seed,
                         struct error *err) {
    const struct batch_training how = {.epochs = s->o.heads.epochs,
                                       .hidden = (int64_t)s->o.heads.hidden,
                                       .dim = (int64_t)s->o.heads.dim,
                                       .seed = s->o.shared.seed * 1000 + seed};
    struct batch_setting setting = {
        .batch = (uint32_t)s->o.batch,
        .rate = row->untrained ? 0.0 : batch_options_rate(&s->o.heads, (double)s->o.batch),
        .noise = row->noise};
    loss_options_default(&setting.loss);
    setting.loss.name = row->q > 0.0 ? "rince" : "clip";
    setting.loss.tau = tau;
    setting.loss.temperature = LOSS_TEMPERATURE_CONSTANT;
    if (row->q > 0.0) {
        setting.loss.q = row->q;
        setting.loss.lambda = lambda;
    }
    return batch_train(out, &setting, &s->features, &how, s->dev, advance, s, err);
}

static int lambda_count(const struct grid *g, const struct noise_row *row) {
    return row->q > 0.0 ? g->lambdas.count : 1;
}

static enum status tune(struct study_noise *s, struct noise_row *row, struct error *err) {
    const struct grid *g = s->grid;
    row->validation = -1.0;
    for (int t = 0; t < g->taus.count; t++) {
        for (int l = 0; l < lambda_count(g, row); l++) {
            struct batch_outcome out;
            TRY(train(&out, s, row, g->taus.values[t], g->lambdas.values[l], 0, err));
            if (out.validation_score > row->validation) {
                row->validation = out.validation_score;
                row->tau = g->taus.values[t];
                row->lambda = g->lambdas.values[l];
            }
        }
    }
    return STATUS_OK;
}

static enum status run_row(struct study_noise *s, struct noise_row *row, struct error *err) {
    if (!row->untrained) {
        TRY(tune(s, row, err));
    }
    for (size_t i = 0; i < s->result.seeds; i++) {
        struct batch_outcome out;
        TRY(train(&out, s, row, row->tau, row->lambda, i + 1, err));
        row->scores[i] = out.test_score;
        row->test[i] = out.test;
    }
    return STATUS_OK;
}

static double count_runs(const struct study_noise *s) {
    double runs = (double)s->result.seeds; /* untrained */
    for (size_t i = 0; i < s->result.row_count; i++) {
        runs += s->grid->taus.count * lambda_count(s->grid, &s->result.rows[i]) +
                (double)s->result.seeds;
    }
    return runs;
}

static void lay_out(struct study_noise *s) {
    static const double qs[] = {0.0, 0.01, 0.1, 0.5, 1.0}; /* 0: clip */
    struct noise_result *r = &s->result;
    r->labelled = s->o.noise == NOISE_LABEL;
    r->seeds = (size_t)s->o.heads.repeats;
    r->noise_count = (size_t)s->grid->noises.count;
    r->untrained = (struct noise_row){.untrained = true, .tau = s->grid->taus.values[0]};
    for (size_t k = 0; k < CLI_COUNT(qs); k++) {
        for (size_t n = 0; n < r->noise_count; n++) {
            r->rows[r->row_count++] =
                (struct noise_row){.q = qs[k], .noise = s->grid->noises.values[n]};
        }
    }
}

static void describe(struct study_noise *s) {
    const struct options *o = &s->o;
    const struct batch_features *f = &s->features;
    char widths[64];
    (void)snprintf(widths, sizeof widths,
                   f->labels != NULL ? "a head of %" PRId64 : "heads of %" PRId64 "+%" PRId64,
                   f->image_width, f->text_width);
    (void)snprintf(s->result.settings, sizeof s->result.settings,
                   "%s, %" PRId64 " %s for training and %" PRId64
                   " each for validation and test, batch %" PRIu64 ", %" PRIu64
                   " epochs, %s to %" PRIu64 " with %" PRIu64
                   " hidden units, learning rate %g, seed %" PRIu64,
                   o->heads.features != NULL ? "given features"
                   : o->noise == NOISE_LABEL ? "drawn points"
                                             : "drawn pairs",
                   f->train_count, o->noise == NOISE_LABEL ? "points" : "pairs", f->held_out_count,
                   o->batch, o->heads.epochs, widths, o->heads.dim, o->heads.hidden,
                   batch_options_rate(&o->heads, (double)o->batch), o->shared.seed);
}

static enum status open_features(struct study_noise *s, struct error *err) {
    const struct options *o = &s->o;
    if (o->noise == NOISE_PAIR) {
        return batch_features_open(&s->features, o->heads.features, (int64_t)o->heads.pairs,
                                   (int64_t)o->heads.held_out, o->shared.seed, err);
    }
    TRY(o->heads.features != NULL
            ? batch_features_read_labelled(&s->features, o->heads.features, err)
            : batch_features_draw_labelled(&s->features, o->shared.seed, err));
    return batch_features_divide(&s->features, (int64_t)o->heads.held_out, o->shared.seed, err);
}

static enum status train_all(struct study_noise *s, struct error *err) {
    const struct options *o = &s->o;
    TRY(open_features(s, err));
    describe(s);
    TRY(device_open(&s->dev, "cpu", 1, err));
    const uint64_t steps = o->heads.epochs * ((uint64_t)s->features.train_count / o->batch);
    study_begin(&s->progress, count_runs(s) * (double)(steps * o->batch), o->shared.quiet);
    enum status status = run_row(s, &s->result.untrained, err);
    for (size_t i = 0; i < s->result.row_count && status == STATUS_OK; i++) {
        status = run_row(s, &s->result.rows[i], err);
    }
    study_end(&s->progress);
    return status;
}

/* ---- life ---- */

static enum status run_study(struct study_noise *s, struct error *err) {
    const struct study study = {.name = s->o.noise == NOISE_LABEL ? "noise-label" : "noise",
                                .title = s->o.noise == NOISE_LABEL
                                             ? "Accuracy over the share of wrong labels"
                                             : "Recall over the share of wrong pairs",
                                .options = &s->o,
                                .shared = &s->o.shared,
                                .result = &s->result,
                                .write_json = noise_write_json,
                                .draw_page = noise_draw_page};
    TRY(study_check(&study, err));
    TRY(train_all(s, err));
    if (!s->o.shared.json && !s->o.shared.quiet) {
        noise_print_table(&s->result);
    }
    return study_finish(&study, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct study_noise *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    s->o = *(const struct options *)options;
    s->grid = s->o.shared.quick ? &quick_grid : &full_grid;
    enum status status =
        s->o.noise == NOISE_LABEL && cli_given(&program, a, "pairs")
            ? error_set(err, STATUS_USAGE, "--pairs has no effect with --noise label")
            : batch_options_settle(&s->o.heads, s->o.shared.quick, &program, a, err);
    if (status == STATUS_OK) {
        lay_out(s);
        status = run_study(s, err);
    }
    device_close(s->dev);
    batch_features_fini(&s->features);
    free(s);
    return status;
}

int ccstudy_noise(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
