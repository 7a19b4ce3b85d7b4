/*
 * ccstudy gradient: figure 7 of EMC2: which small-batch losses reach a stationary point of the
 * global contrastive loss, by its exact gradient over all negatives.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstudy/ccstudy_internal.h"
#include "tools/ccstudy/gradient_study.h"
#include "tools/cli/path_kind.h"

static const char *const networks[] = {"linear", "resnet18", NULL};
static const char *const norms[] = {"none", "group", NULL};
static const enum resnet_norm norm_kinds[] = {RESNET_NORM_NONE, RESNET_NORM_GROUP};
static const char *const optimizers[] = {"sgd", "adam", NULL};
static const char *const schedules[] = {"cosine", "constant", NULL};
static const enum optimizer_kind optimizer_kinds[] = {OPTIMIZER_SGDM, OPTIMIZER_ADAM};
enum { SCHEDULE_COSINE, SCHEDULE_CONSTANT };

static const struct cli_option rows[] = {
    STUDY_OPTIONS(struct gradient_options, shared),
    {"data", 'd', CLI_STRING, CLI_FIELD(struct gradient_options, data), .metavar = "DIR",
     .help = "packed dataset whose first pictures are used; without it, generated ones"},
    {"samples", 'n', CLI_U64, CLI_FIELD(struct gradient_options, samples), .min = "4",
     .max = "2000", .default_text = "500", .metavar = "N", .help = "pictures, an even number"},
    {"batch", 'b', CLI_U64, CLI_FIELD(struct gradient_options, batch), .min = "2", .max = "256",
     .default_text = "4", .metavar = "N", .help = "pictures of a step"},
    {"tau", 0, CLI_DOUBLE, CLI_FIELD(struct gradient_options, tau), .min = "0.01", .max = "10",
     .default_text = "0.2", .metavar = "T", .help = "temperature; the paper's beta is 1 / tau"},
    {"model", 'm', CLI_ENUM, CLI_FIELD(struct gradient_options, network), .choices = networks,
     .default_text = "linear", .metavar = "NAME",
     .help = "encoder; linear: of 64 principal components of the pixels"},
    {"norm", 0, CLI_ENUM, CLI_FIELD(struct gradient_options, norm), .choices = norms,
     .default_text = "none", .metavar = "KIND",
     .help = "resnet18: norms in the place of batch norm"},
    {"image-size", 0, CLI_U64, CLI_FIELD(struct gradient_options, size_px), .min = "8",
     .max = "224", .word = "auto", .word_value = "0", .default_text = "auto", .metavar = "PX",
     .help = "side of the pictures; auto: linear 8 (at most 16), resnet18 32; the paper: 96"},
    {"steps", 0, CLI_U64, CLI_FIELD(struct gradient_options, steps), .min = "40",
     .max = "100000000", .word = "auto", .word_value = "0", .default_text = "auto", .metavar = "N",
     .help = "of each run; auto: linear 300,000, resnet18 1,250 as in the paper's code"},
    {"optimizer", 0, CLI_ENUM, CLI_FIELD(struct gradient_options, optimizer), .choices = optimizers,
     .default_text = "sgd", .metavar = "NAME",
     .help = "sgd: as in the figure's caption and the published command"},
    {"schedule", 0, CLI_ENUM, CLI_FIELD(struct gradient_options, schedule), .choices = schedules,
     .default_text = "cosine", .metavar = "NAME",
     .help = "of the step size; cosine: to 0, so that the end shows bias and no noise"},
    {"lr", 0, CLI_LIST, CLI_FIELD(struct gradient_options, rates), .metavar = "X",
     .help = "a step size to try, up to 8 of them; without it, a grid for each model"},
    {"threads", 't', CLI_U64, CLI_FIELD(struct gradient_options, threads), .min = "0",
     .max = "1024", .default_text = "1", .metavar = "N",
     .help = "of the encoder; 0: all CPUs. linear is as fast with 1"},
    {"resume", 0, CLI_FLAG, CLI_FIELD(struct gradient_options, resume),
     .help = "continue what was interrupted, after its last finished run; needs --out"},
};

static const struct cli_program program = {
    .name = "ccstudy gradient",
    .purpose = "the exact gradient of the global loss in small-batch training: EMC2, figure 7",
    .usage = (const char *const[]){"[-o DIR] [options]", NULL},
    .examples =
        (const char *const[]){"ccstudy gradient -o studies", "ccstudy gradient --quick --json",
                              "ccstudy gradient --data cifar10 --model resnet18 -t 0 "
                              "-o studies",
                              NULL},
    .notes =
        (const char *const[]){
            "Two fixed augmentations (SimCLR's) of each picture. L is the global loss of eq. (1): "
            "each of the 2n views is an anchor, the other view its positive, all views of other "
            "pictures its negatives (998 of 500 pictures). L and |grad L|^2 are exact, over all "
            "of them, at 41 points of each run. simclr is InfoNCE of the batch. sogclr has gamma "
            "0.9 as in EMC2's code, and 0.1. emc2-encode is --emc2-off-batch encode: a sample "
            "outside "
            "the batch is encoded un-augmented. emc2-view encodes the very view on which the chain "
            "stands, as the published code of this figure does, emc2-fresh one of the two views, "
            "drawn in every step. emc2-skip is --emc2-off-batch skip. negcache: the negative "
            "cache, "
            "0.1 of it encoded in every step. The paper's claim: EMC2's |grad "
            "L|^2 ends two orders of magnitude lower.",
            "Every method is run with every step size, and the run that ends with the least L "
            "counts: the gradient is also 0 where all pictures have become one point. Scaled: "
            "times the squared length of the parameters over that at the start. "
            "Embeddings are normalised, so L does not depend on that length, its gradient falls as "
            "1 / length, and large steps alone make |grad L|^2 small.",
            "bias2: with the model held as it is at the end, |mean of the estimator - grad L|^2, "
            "over 40,000 steps (--quick: 2,000): where |grad L|^2 cannot go below. The rest is "
            "noise of the last "
            "steps and distance not travelled.",
            "--json: rows of method, loss, carry, gamma, lr (the best), steps, seconds (of the "
            "steps, not of measuring; the only numbers that --seed does not repeat), L, norm2, "
            "scaled_norm2, bias2, scaled_bias2, length, norm2_with_own (of InfoNCE over all views, "
            "which the published code measures) and norm2_unaugmented (of L with un-augmented "
            "negatives). grid: method, lr, "
            "L, norm2, scaled_norm2, bias2 of every run. trace: method, step, seconds, L, norm2, "
            "scaled_norm2 of the best. null: not finite. settings: what the numbers depend on. "
            "--quick: 100 pictures, "
            "2,000 steps, two step sizes.",
            NULL},
    CLI_OPTIONS(rows),
};

/* The grids: factors of about three around the best of all methods. */
static const double grids[GRADIENT_NETWORKS][2][GRADIENT_MAX_RATES] = {
    [GRADIENT_LINEAR] = {{0.001, 0.003, 0.01}, {0.0001, 0.0003, 0.001}},
    [GRADIENT_RESNET18] = {{0.001, 0.01, 0.1}, {0.00003, 0.0001, 0.0003}},
};

enum { BIAS_STEPS = 20000, QUICK_BIAS_STEPS = 1000 };

/* ---- settings ---- */

static enum status set_rates(struct gradient_study *g, struct error *err) {
    const struct cli_list *given = &g->o.rates;
    if (given->count > GRADIENT_MAX_RATES) {
        return error_set(err, STATUS_USAGE, "--lr: at most %d step sizes", GRADIENT_MAX_RATES);
    }
    for (size_t i = 0; i < given->count; i++) {
        char *end;
        const double lr = strtod(given->items[i], &end);
        if (*end != '\0' || end == given->items[i] || !(lr > 0.0) || !(lr <= 1e6)) {
            return error_set(err, STATUS_USAGE, "--lr '%s' is not a number in (0, 1e6]",
                             given->items[i]);
        }
        g->rates[g->rate_count++] = lr;
    }
    const double *grid = grids[g->o.network][g->o.optimizer];
    for (size_t i = 0; given->count == 0 && grid[i] > 0.0; i++) {
        if (!g->o.shared.quick || i > 0) {
            g->rates[g->rate_count++] = grid[i];
        }
    }
    return STATUS_OK;
}

static void describe(struct gradient_study *g) {
    const struct gradient_options *o = &g->o;
    int at = snprintf(g->settings, sizeof g->settings,
                      "%s n=%u px=%u batch=%u tau=%g model=%s norm=%s steps=%llu optimizer=%s "
                      "schedule=%s seed=%llu%s lr",
                      o->data != NULL ? o->data : "generated", (unsigned)o->samples,
                      (unsigned)o->size_px, (unsigned)o->batch, o->tau, networks[o->network],
                      norms[o->norm], (unsigned long long)o->steps, optimizers[o->optimizer],
                      schedules[o->schedule], (unsigned long long)o->shared.seed,
                      o->shared.quick ? " quick" : "");
    for (size_t i = 0; i < g->rate_count && at > 0 && (size_t)at < sizeof g->settings; i++) {
        at += snprintf(g->settings + at, sizeof g->settings - (size_t)at, " %g", g->rates[i]);
    }
}

static enum status
settle(struct gradient_study *g, const struct cli_arguments *a, struct error *err) {
    struct gradient_options *o = &g->o;
    const bool linear = o->network == GRADIENT_LINEAR;
    if (o->shared.quick && !cli_given(&program, a, "samples")) {
        o->samples = 100;
    }
    if (o->steps == 0) {
        o->steps = o->shared.quick ? 2000 : linear ? 300000 : 1250;
    }
    if (o->size_px == 0) {
        o->size_px = linear ? 8 : 32;
    }
    if (linear && o->size_px > 16) {
        return error_set(err, STATUS_USAGE,
                         "--image-size %u: the principal components of model linear take pictures "
                         "of at most 16",
                         (unsigned)o->size_px);
    }
    if (o->samples % 2 != 0 || 2 * o->batch > o->samples) {
        return error_set(err, STATUS_USAGE,
                         "--samples %u must be an even number, and at least twice --batch %u",
                         (unsigned)o->samples, (unsigned)o->batch);
    }
    if (o->resume && o->shared.out == NULL) {
        return error_set(err, STATUS_USAGE, "--resume needs --out, the folder of the study");
    }
    TRY(set_rates(g, err));
    describe(g);
    return STATUS_OK;
}

/* ---- the experiment ---- */

static enum status advance(void *cookie, double steps, struct error *err) {
    return study_advance(cookie, steps, err);
}

static enum status
run_all(struct gradient_study *g, struct gradient_problem *p, struct error *err) {
    const size_t runs = GRADIENT_METHODS * g->rate_count;
    struct study_progress line;
    const struct gradient_progress progress = {.advance = advance, .cookie = &line};
    enum status s = STATUS_OK;
    study_begin(&line, (double)(runs - g->run_count) * (double)g->o.steps, g->o.shared.quiet);
    while (g->run_count < runs && s == STATUS_OK) {
        const struct gradient_run run = {.method = &gradient_methods[g->run_count / g->rate_count],
                                         .lr = g->rates[g->run_count % g->rate_count],
                                         .steps = g->o.steps,
                                         .points = GRADIENT_MAX_POINTS,
                                         .decay = g->o.schedule == SCHEDULE_COSINE,
                                         .bias_steps =
                                             g->o.shared.quick ? QUICK_BIAS_STEPS : BIAS_STEPS};
        s = gradient_run(&g->runs[g->run_count], p, &run, &progress, err);
        if (s == STATUS_OK) {
            g->run_count++;
            s = gradient_part_write(g, err);
        }
    }
    study_end(&line);
    return s;
}

static struct gradient_problem_options problem_options(const struct gradient_options *o) {
    struct gradient_problem_options p = {.net = {.network = (enum gradient_network)o->network,
                                                 .norm = norm_kinds[o->norm],
                                                 .seed = o->shared.seed},
                                         .batch = (uint32_t)o->batch,
                                         .tau = o->tau,
                                         .seed = o->shared.seed};
    optimizer_options_default(&p.net.optimizer);
    p.net.optimizer.kind = optimizer_kinds[o->optimizer];
    p.net.optimizer.momentum = 0.0;
    p.net.optimizer.weight_decay = 0.0;
    return p;
}

static enum status experiment(struct gradient_study *g, struct error *err) {
    const struct gradient_options *o = &g->o;
    const struct gradient_problem_options how = problem_options(o);
    struct gradient_data data = {0};
    struct gradient_problem problem = {0};
    struct device *dev = NULL;
    enum status s;
    if (o->data != NULL) {
        TRY(path_check_dataset(o->data, err));
        TRY(gradient_data_read(&data, o->data, (uint32_t)o->samples, (uint32_t)o->size_px,
                               o->shared.seed, err));
    } else {
        TRY(gradient_data_draw(&data, (uint32_t)o->samples, (uint32_t)o->size_px, o->shared.seed,
                               err));
    }
    TRY_OR_FAIL(s, device_open(&dev, "cpu", (int32_t)o->threads, err));
    TRY_OR_FAIL(s, gradient_problem_init(&problem, &data, dev, &how, err));
    s = run_all(g, &problem, err);
fail:
    gradient_problem_fini(&problem);
    device_close(dev);
    gradient_data_fini(&data);
    return s;
}

static void print_table(const struct gradient_study *g) {
    printf("%-12s %8s %8s %10s %12s %12s %8s %8s\n", "method", "lr", "L", "norm2", "scaled",
           "its bias2", "length", "seconds");
    for (int m = 0; m < GRADIENT_METHODS; m++) {
        const struct gradient_curve *c = gradient_best(g, m);
        if (c == NULL) {
            printf("%-12s diverges with every --lr\n", gradient_methods[m].key);
            continue;
        }
        const struct gradient_point *end = gradient_end(c);
        printf("%-12s %8g %8.4f %10.3g %12.3g %12.3g %8.2f %8.1f\n", gradient_methods[m].key, c->lr,
               end->loss, end->norm2, gradient_scaled_norm2(c), gradient_scaled_bias2(c),
               end->length, end->seconds);
    }
}

static enum status
run_study(struct gradient_study *g, const struct cli_arguments *a, struct error *err) {
    const struct study study = {.name = "gradient",
                                .title = "EMC2: the exact gradient of the global loss",
                                .options = &g->o,
                                .shared = &g->o.shared,
                                .result = g,
                                .write_json = gradient_write_json,
                                .draw_page = gradient_draw_page};
    TRY(settle(g, a, err));
    TRY(study_check(&study, err));
    if (g->o.resume) {
        TRY(gradient_part_read(g, err));
    }
    TRY(experiment(g, err));
    if (!g->o.shared.json && !g->o.shared.quiet) {
        print_table(g);
    }
    TRY(study_finish(&study, err));
    return gradient_part_remove(g, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct gradient_study *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the runs");
    }
    g->o = *(const struct gradient_options *)options;
    const enum status s = run_study(g, a, err);
    free(g);
    return s;
}

int ccstudy_gradient(int argc, char **argv) {
    struct gradient_options o;
    return cli_main(&program, &o, run, argc, argv);
}
