/*
 * ccstudy noise: whether RINCE is more robust than CLIP to pairs that do not belong together:
 * recall over the share of noisy pairs, each loss tuned for itself at each share.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstudy/batch_model.h"
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/noise_page.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/cli.h"

struct options {
    struct study_options shared;
    const char *features;
    uint64_t pairs, held_out, epochs, hidden, dim, batch, repeats;
    double rate;
};

static const struct cli_option rows[] = {
    {"features", 'f', CLI_STRING, CLI_FIELD(struct options, features), .metavar = "PREFIX",
     .help = "PREFIX.images.npy, PREFIX.texts.npy and PREFIX.owners.npy, as ccstream-eval embed "
             "--texts writes them; PREFIX.features.npy in place of the first where it exists. "
             "Without: drawn pairs"},
    {"pairs", 'n', CLI_U64, CLI_FIELD(struct options, pairs), .min = "512", .max = "1000000",
     .default_text = "3072", .metavar = "N", .help = "drawn pairs"},
    {"held-out", 0, CLI_U64, CLI_FIELD(struct options, held_out), .min = "10", .max = "100000",
     .default_text = "500", .metavar = "N",
     .help = "pairs that validate, and as many that test, all without noise; the others train"},
    {"batch", 'b', CLI_U64, CLI_FIELD(struct options, batch), .min = "8", .max = "128",
     .default_text = "128", .metavar = "N", .help = "pairs per step"},
    {"epochs", 'e', CLI_U64, CLI_FIELD(struct options, epochs), .min = "2", .max = "10000",
     .default_text = "30", .metavar = "N", .help = "of every run"},
    {"hidden", 0, CLI_U64, CLI_FIELD(struct options, hidden), .max = "4096", .default_text = "0",
     .metavar = "N", .help = "units of a hidden layer of the heads; 0: linear heads"},
    {"dim", 0, CLI_U64, CLI_FIELD(struct options, dim), .min = "2", .max = "1024",
     .default_text = "64", .metavar = "N", .help = "of the shared space"},
    {"lr", 0, CLI_DOUBLE, CLI_FIELD(struct options, rate), .min = "1e-6", .max = "1",
     .default_text = "0.004", .metavar = "RATE", .help = "learning rate of every run"},
    {"repeats", 'r', CLI_U64, CLI_FIELD(struct options, repeats), .min = "2", .max = "32",
     .default_text = "5", .metavar = "N", .help = "seeds of each tuned setting"},
    STUDY_OPTIONS(struct options, shared),
};

static const struct cli_program program = {
    .name = "ccstudy noise",
    .purpose = "recall over the share of wrong pairs: RINCE against CLIP",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy noise --quick -o studies",
                              "ccstream-eval embed runs/a --data flickr --texts --features -o "
                              "flickr && ccstudy noise --features flickr -o studies",
                              NULL},
    .notes =
        (const char *const[]){
            "Features stay fixed; a head for images and one for texts are trained on them with "
            "clip, and with rince at q 0.01, 0.1, 0.5 and 1. A share of the training images, 0 to "
            "0.8, has the texts of another image, as with ccstream-train --pair-noise. The claim: "
            "clip loses accuracy to such noise, and rince the less the larger q is.",
            "For each loss and share, the temperature (0.05 to 0.8) and rince's lambda (0.01, 0.1, "
            "0.4) are those whose mean of R@1, R@5 and R@10 on the validation pairs is highest, "
            "with one seed; --repeats other seeds of that setting, each with noise of its own, "
            "give the mean and standard error on the test pairs.",
            "--json: settings; rows of loss, q (rince), noise, seeds, recall (the mean of R@1, R@5 "
            "and R@10), r1, r5, r10, over_clip (the difference from clip's recall at the same "
            "noise with the same seed) and lost (recall without noise less recall, with the same "
            "seed), each with its standard error as NAME_se; the tuned tau and lambda (rince), and "
            "validation, the recall that chose them. --quick: 640 drawn pairs, shares 0, 0.4 and "
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
    const struct batch_training how = {.epochs = s->o.epochs,
                                       .hidden = (int64_t)s->o.hidden,
                                       .dim = (int64_t)s->o.dim,
                                       .seed = s->o.shared.seed * 1000 + seed};
    struct batch_setting setting = {
        .batch = (uint32_t)s->o.batch, .rate = s->o.rate, .pair_noise = row->noise};
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
            const double recall = batch_recall_mean(&out.validation);
            if (recall > row->validation) {
                row->validation = recall;
                row->tau = g->taus.values[t];
                row->lambda = g->lambdas.values[l];
            }
        }
    }
    return STATUS_OK;
}

static enum status run_row(struct study_noise *s, struct noise_row *row, struct error *err) {
    TRY(tune(s, row, err));
    for (size_t i = 0; i < s->result.seeds; i++) {
        struct batch_outcome out;
        TRY(train(&out, s, row, row->tau, row->lambda, i + 1, err));
        row->test[i] = out.test;
    }
    return STATUS_OK;
}

static double count_runs(const struct study_noise *s) {
    double runs = 0.0;
    for (size_t i = 0; i < s->result.row_count; i++) {
        runs += s->grid->taus.count * lambda_count(s->grid, &s->result.rows[i]) +
                (double)s->result.seeds;
    }
    return runs;
}

static void lay_out(struct study_noise *s) {
    static const double qs[] = {0.0, 0.01, 0.1, 0.5, 1.0}; /* 0: clip */
    struct noise_result *r = &s->result;
    r->seeds = (size_t)s->o.repeats;
    r->noise_count = (size_t)s->grid->noises.count;
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
    (void)snprintf(s->result.settings, sizeof s->result.settings,
                   "%s, %" PRId64 " pairs for training and %" PRId64
                   " each for validation and test, batch %" PRIu64 ", %" PRIu64
                   " epochs, heads of %" PRId64 "+%" PRId64 " to %" PRIu64 " with %" PRIu64
                   " hidden units, learning rate %g, seed %" PRIu64,
                   o->features != NULL ? "given features" : "drawn pairs", f->train_count,
                   f->held_out_count, o->batch, o->epochs, f->image_width, f->text_width, o->dim,
                   o->hidden, o->rate, o->shared.seed);
}

static enum status train_all(struct study_noise *s, struct error *err) {
    const struct options *o = &s->o;
    TRY(batch_features_open(&s->features, o->features, (int64_t)o->pairs, (int64_t)o->held_out,
                            o->shared.seed, err));
    describe(s);
    TRY(device_open(&s->dev, "cpu", 1, err));
    const uint64_t steps = o->epochs * ((uint64_t)s->features.train_count / o->batch);
    study_begin(&s->progress, count_runs(s) * (double)(steps * o->batch), o->shared.quiet);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < s->result.row_count && status == STATUS_OK; i++) {
        status = run_row(s, &s->result.rows[i], err);
    }
    study_end(&s->progress);
    return status;
}

/* ---- life ---- */

static void shrink(struct options *o, const struct cli_arguments *a) {
    o->pairs = cli_given(&program, a, "pairs") ? o->pairs : 640;
    o->held_out = cli_given(&program, a, "held-out") ? o->held_out : 128;
    o->epochs = cli_given(&program, a, "epochs") ? o->epochs : 6;
    o->repeats = cli_given(&program, a, "repeats") ? o->repeats : 2;
}

static enum status run_study(struct study_noise *s, struct error *err) {
    const struct study study = {.name = "noise",
                                .title = "Recall over the share of wrong pairs",
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
    if (s->o.shared.quick) {
        shrink(&s->o, a);
    }
    lay_out(s);
    const enum status status =
        s->o.features != NULL && cli_given(&program, a, "pairs")
            ? error_set(err, STATUS_USAGE, "--pairs has no effect: --features has its own")
            : run_study(s, err);
    device_close(s->dev);
    batch_features_fini(&s->features);
    free(s);
    return status;
}

int ccstudy_noise(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
