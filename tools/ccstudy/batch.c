/*
 * ccstudy batch: whether global losses need no large batch: recall over the batch of CLIP, SogCLR
 * and NUCLR, each tuned for itself, on frozen features with trained heads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/hash.h"
#include "tools/ccstudy/batch_cells.h"
#include "tools/ccstudy/batch_options.h"
#include "tools/ccstudy/batch_page.h"
#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/study.h"
#include "tools/cli/cli.h"

struct options {
    struct study_options shared;
    struct batch_options heads;
    const char *cells;
};

static const struct cli_option rows[] = {
    BATCH_OPTIONS(struct options, heads),
    {"cells", 0, CLI_STRING, CLI_FIELD(struct options, cells), .metavar = "FILE",
     .help = "trains nothing: table and page of runs made elsewhere, a line for each (see below)"},
    STUDY_OPTIONS(struct options, shared),
};

static const struct cli_program program = {
    .name = "ccstudy batch",
    .purpose = "recall over the batch: whether global losses need no large one",
    .usage = (const char *const[]){"[-o DIR] [options]", "--cells FILE [-o DIR]", NULL},
    .examples =
        (const char *const[]){"ccstudy batch --quick -o studies",
                              "ccstream-eval embed runs/a --data flickr --texts --features -o "
                              "flickr && ccstudy batch --features flickr -o studies",
                              NULL},
    .notes =
        (const char *const[]){
            "Features stay fixed; a head for images and one for texts are trained on them in "
            "batches of 8 to 128 with clip; sogclr; sogclr with gamma 1, whose moving averages "
            "forget all but the batch; and nuclr whose zeta is frozen, moves at 5e-6 (the rate of "
            "CC3M), or at auto. Every run sees as many pairs. The papers' claim: clip needs large "
            "batches, global losses do not.",
            "For each loss and batch, temperature and gamma (the weight of new values in the "
            "moving averages) are those of a grid whose mean of R@1, R@5 and R@10 on the "
            "validation pairs is highest, with one seed; --repeats other seeds of that setting "
            "give the mean and standard error on the test pairs.",
            "With -o every finished run is a line of DIR/batch.cells. Started again with the same "
            "options, the command skips finished runs; of other options it refuses the folder. "
            "Lines: METHOD BATCH TAU RATE GAMMA SEED, R@1 R@5 R@10 on the validation pairs, the "
            "same on the test pairs, and the global loss over the training pairs or nothing; "
            "METHOD one of clip, sogclr, sogclr-forgets, nuclr-frozen, nuclr-fixed, nuclr-auto; "
            "seed 0 tunes.",
            "--json: settings; rows of method, batch, seeds, recall (the mean of R@1, R@5 and "
            "R@10), r1, r5, r10 and over_clip (the difference from clip's recall in the same batch "
            "with the same seed), each with its standard error as NAME_se; the tuned tau, lr and "
            "gamma, and validation, the recall that chose them; fit, rows of method, batch, tau "
            "and gcl, the global loss at that temperature over the training pairs (the lowest of "
            "all gamma, one seed). --quick: 640 drawn pairs, a small "
            "grid, 2 seeds.",
            NULL},
    CLI_OPTIONS(rows),
};

/* ---- the grid ---- */

struct list {
    double values[8];
    int count;
};

struct grid {
    struct list batches, taus, gammas;
};

static const struct grid full_grid = {.batches = {{8, 16, 32, 64, 128}, 5},
                                      .taus = {{0.05, 0.1, 0.2, 0.4}, 4},
                                      .gammas = {{0.4, 0.8}, 2}};

static const struct grid quick_grid = {.batches = {{8, 32, 128}, 3},
                                       .taus = {{0.1, 0.2}, 2},
                                       .gammas = {{0.6}, 1}};

static const struct list *gammas_of(const struct grid *g, int method) {
    static const struct list none = {{0.0}, 1};
    static const struct list one = {{1.0}, 1};
    switch (method) {
    case BATCH_CLIP:
        return &none;
    case BATCH_SOGCLR_FORGETS:
        return &one;
    default:
        return &g->gammas;
    }
}

struct study_batch {
    struct options o;
    const struct grid *grid;
    struct batch_result result;
    struct batch_features features;
    struct device *dev;
    struct study_progress progress;
    char path[PATH_MAX_BYTES]; /* of the cells; empty: none */
};

static enum status advance(void *cookie, double pairs, struct error *err) {
    struct study_batch *s = cookie;
    return study_advance(&s->progress, pairs, err);
}

/* One run, unless it is done. */
static enum status
run_cell(struct study_batch *s, const struct batch_cell *setting, struct error *err) {
    const double pairs = (double)(s->o.heads.epochs * (uint64_t)s->features.train_count);
    if (batch_cells_find(&s->result.cells, setting) != NULL) {
        return advance(s, pairs, err);
    }
    struct batch_cell cell = *setting;
    const struct batch_training how = {.epochs = s->o.heads.epochs,
                                       .hidden = (int64_t)s->o.heads.hidden,
                                       .dim = (int64_t)s->o.heads.dim,
                                       .seed = s->o.shared.seed * 1000 + cell.seed};
    TRY(batch_train_cell(&cell, &s->features, &how, s->dev, advance, s, err));
    TRY(batch_cells_add(&s->result.cells, &cell, err));
    return s->path[0] != '\0' ? batch_cells_write(&s->result.cells, s->path, err) : STATUS_OK;
}

static enum status tune(struct study_batch *s, struct batch_cell cell, struct error *err) {
    const struct list *taus = &s->grid->taus;
    const struct list *gammas = gammas_of(s->grid, (int)cell.method);
    for (int t = 0; t < taus->count; t++) {
        for (int k = 0; k < gammas->count; k++) {
            cell.tau = taus->values[t];
            cell.gamma = gammas->values[k];
            TRY(run_cell(s, &cell, err));
        }
    }
    return STATUS_OK;
}

static enum status run_grid(struct study_batch *s, struct error *err) {
    for (int b = 0; b < s->grid->batches.count; b++) {
        const double batch = s->grid->batches.values[b];
        for (int m = 0; m < BATCH_METHODS; m++) {
            struct batch_cell cell = {.method = (enum batch_method)m,
                                      .batch = (uint32_t)batch,
                                      .rate = batch_options_rate(&s->o.heads, batch)};
            TRY(tune(s, cell, err));
            cell = *batch_cells_tuned(&s->result.cells, cell.method, cell.batch, 0.0);
            for (uint64_t seed = 1; seed <= s->o.heads.repeats; seed++) {
                cell.seed = (uint32_t)seed;
                TRY(run_cell(s, &cell, err));
            }
        }
    }
    return STATUS_OK;
}

static double count_runs(const struct study_batch *s) {
    const struct grid *g = s->grid;
    double runs = 0.0;
    for (int m = 0; m < BATCH_METHODS; m++) {
        runs += g->taus.count * gammas_of(g, m)->count + (double)s->o.heads.repeats;
    }
    return runs * g->batches.count;
}

/* ---- life ---- */

static uint64_t hash_features(const struct batch_features *f) {
    const size_t images = (size_t)(f->images_count * f->image_width) * sizeof *f->images;
    const size_t texts = (size_t)(f->texts_count * f->text_width) * sizeof *f->texts;
    return hash64(f->images, images) ^ (3 * hash64(f->texts, texts));
}

/* What all runs share, as the first line of their file has it. */
static void describe(struct study_batch *s) {
    const struct options *o = &s->o;
    const struct batch_features *f = &s->features;
    (void)snprintf(s->result.cells.settings, sizeof s->result.cells.settings,
                   "%s, %" PRId64 " pairs for training and %" PRId64
                   " each for validation and test, %" PRIu64 " epochs, heads of %" PRId64
                   "+%" PRId64 " to %" PRIu64 " with %" PRIu64
                   " hidden units, learning rate %g sqrt(batch / 128), seed %" PRIu64
                   "%s, features %016" PRIx64,
                   o->heads.features != NULL ? "given features" : "drawn pairs", f->train_count,
                   f->held_out_count, o->heads.epochs, f->image_width, f->text_width, o->heads.dim,
                   o->heads.hidden, o->heads.rate, o->shared.seed, o->shared.quick ? ", quick" : "",
                   hash_features(f));
}

/* Takes over the runs of a folder, if it has any. */
static enum status take_over(struct study_batch *s, struct error *err) {
    struct batch_cells old;
    bool exists = false;
    if (s->o.shared.out == NULL) {
        return STATUS_OK;
    }
    TRY(path_join(s->path, sizeof s->path, s->o.shared.out, "batch.cells", err));
    TRY(file_posix()->exists(file_posix()->context, s->path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    TRY(batch_cells_read(&old, s->path, err));
    if (strcmp(old.settings, s->result.cells.settings) != 0) {
        const enum status other =
            error_set(err, STATUS_USAGE, "%s is of other options; name another folder", s->path);
        batch_cells_fini(&old);
        return other;
    }
    s->result.cells = old;
    return STATUS_OK;
}

static enum status train_all(struct study_batch *s, struct error *err) {
    const struct options *o = &s->o;
    TRY(batch_features_open(&s->features, o->heads.features, (int64_t)o->heads.pairs,
                            (int64_t)o->heads.held_out, o->shared.seed, err));
    describe(s);
    TRY(take_over(s, err));
    TRY(device_open(&s->dev, "cpu", 1, err));
    study_begin(&s->progress,
                count_runs(s) * (double)o->heads.epochs * (double)s->features.train_count,
                o->shared.quiet);
    const enum status status = run_grid(s, err);
    study_end(&s->progress);
    return status;
}

static enum status run_study(struct study_batch *s, struct error *err) {
    const struct study study = {.name = "batch",
                                .title = "Recall over the batch",
                                .options = &s->o,
                                .shared = &s->o.shared,
                                .result = &s->result,
                                .write_json = batch_write_json,
                                .draw_page = batch_draw_page};
    TRY(study_check(&study, err));
    if (s->o.cells != NULL) {
        TRY(batch_cells_read(&s->result.cells, s->o.cells, err));
    } else {
        TRY(train_all(s, err));
    }
    TRY(batch_table_make(&s->result.table, &s->result.cells, err));
    if (!s->o.shared.json && !s->o.shared.quiet) {
        batch_print_table(&s->result);
    }
    return study_finish(&study, err);
}

/* Options that would have no effect. */
static enum status
check_together(const struct options *o, const struct cli_arguments *a, struct error *err) {
    static const char *const training[] = {"features", "pairs", "held-out", "epochs", "hidden",
                                           "dim",      "lr",    "repeats",  "seed",   "quick"};
    for (size_t i = 0; o->cells != NULL && i < CLI_COUNT(training); i++) {
        if (cli_given(&program, a, training[i])) {
            return error_set(err, STATUS_USAGE, "--cells trains nothing: --%s has no effect",
                             training[i]);
        }
    }
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct study_batch s = {.o = *(const struct options *)options, .grid = &full_grid};
    TRY(check_together(&s.o, a, err));
    TRY(batch_options_settle(&s.o.heads, s.o.shared.quick, &program, a, err));
    if (s.o.shared.quick) {
        s.grid = &quick_grid;
    }
    const enum status status = run_study(&s, err);
    device_close(s.dev);
    batch_features_fini(&s.features);
    batch_cells_fini(&s.result.cells);
    return status;
}

int ccstudy_batch(int argc, char **argv) {
    struct options o;
    return cli_main(&program, &o, run, argc, argv);
}
