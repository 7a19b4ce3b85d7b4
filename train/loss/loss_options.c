/*
 * loss_options: the loss options, one row each, and how a loss's row completes and checks them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/loss/loss_internal.h"

static const char *const temperatures[] = {"own", "constant", "global", "individual", NULL};
static const char *const schedules[] = {"own", "constant", "cosine", NULL};
static const char *const gradients[] = {"paper", "unbiased", NULL};
static const char *const carries[] = {"view", "encode", "skip", NULL};
static const char *const xis[] = {"signed", "norm", "all", NULL};

_Static_assert(LOSS_OPTION_COUNT <= 64, "loss_row.reads has 64 bits");

#define NUMBER(field) .kind = LOSS_OPTION_NUMBER, .offset = offsetof(struct loss_options, field)
#define WHOLE(field)  .kind = LOSS_OPTION_WHOLE, .offset = offsetof(struct loss_options, field)
#define CHOICE(field, names)                                                                       \
    .kind = LOSS_OPTION_CHOICE, .offset = offsetof(struct loss_options, field), .choices = (names)

const struct loss_option_row loss_option_rows[LOSS_OPTION_COUNT] = {
    [LOSS_TAU] = {"tau", NUMBER(tau), .max = 100,
                  .help = "temperature, or its initial value if learned"},
    [LOSS_TEMPERATURE] =
        {"temperature", CHOICE(temperature, temperatures), .common = LOSS_TEMPERATURE_CONSTANT,
         .help = "own: as published; constant: fixed; global: one learned temperature; individual: "
                 "one learned temperature per sample and side"},
    [LOSS_TAU_MIN] = {"tau-min", NUMBER(tau_min), .max = 100, .common = 0.01,
                      .help = "smallest learned temperature"},
    [LOSS_TAU_MAX] = {"tau-max", NUMBER(tau_max), .max = 100, .common = 1,
                      .help = "largest learned temperature"},
    [LOSS_TAU_LR] = {"tau-lr", NUMBER(tau_lr), .max = 100,
                     .help = "learning rate of the temperature (Wei: 0.0001 for fastclip-v3 on "
                             "CC12M, and a third of it for tau up to 0.03)"},
    [LOSS_TAU_MOMENTUM] = {"tau-grad-ema", .alias = "tau-momentum", NUMBER(tau_momentum),
                           .min = 1e-6, .max = 1, .value = 0.9,
                           .help =
                               "moving-average weight of the newest temperature gradient, 1 minus "
                               "the usual momentum (Qiu: 0.9 for pairs, 0.5 for two views)"},
    [LOSS_RHO] = {"rho", NUMBER(rho), .max = 1000, .common = 6.5,
                  .help = "regularisation weight of the temperature (Qiu: isogclr 6; Wei: 8.5 for "
                          "fastclip-v3 on CC12M)"},
    [LOSS_GAMMA] =
        {"gamma", NUMBER(gamma), .max = 1, .common = 0.8,
         .help = "moving-average weight of the new estimate in u (FastCLIP: inner learning rate)"},
    [LOSS_GAMMA_SCHEDULE] = {"gamma-schedule", CHOICE(gamma_schedule, schedules),
                             .common = LOSS_GAMMA_CONSTANT,
                             .help = "own: as published; constant; cosine: 1 in the first epoch, "
                                     "then a cosine schedule down to --gamma, by epochs"},
    [LOSS_GAMMA_EPOCHS] = {"gamma-epochs", WHOLE(gamma_epochs), .max = 1e6,
                           .help = "cosine: first epoch (0-based) in which gamma has reached "
                                   "--gamma; 0: half of --epochs (Wei)"},
    [LOSS_GAMMA_LOG_ALPHA] = {"gamma-log-alpha", NUMBER(gamma_log_alpha), .min = -100, .max = 100,
                              .value = 10,
                              .help =
                                  "an anchor's gamma is 1 / (1 + exp(-(X + --gamma-slope log u))); "
                                  "the larger gamma, the shorter the memory of u (Wei: 10)"},
    [LOSS_GAMMA_SLOPE] = {"gamma-slope", NUMBER(gamma_slope), .max = 10, .value = 1,
                          .help = "how gamma grows with log u (Wei: 1; LibAUC: 0.03); 0: gamma is "
                                  "the same for all anchors"},
    [LOSS_U_EPS] = {"eps", NUMBER(u_eps), .max = 1,
                    .help = "constant added to each estimate before it enters u (Wei: 1e-14 for "
                            "fastclip, 1e-6 on LAION-400M and for scent, 1e-4 with --reference)"},
    [LOSS_MARGIN] =
        {"margin", NUMBER(margin), .max = 2, .value = 0.1,
         .help = "margin of the hinge: candidates whose similarity is lower than the positive "
                 "pair's by more than X have no gradient (TuneCLIP: 0.1, tested 0.01 to 0.5)"},
    [LOSS_FALSE_NEGATIVE_SHARE] =
        {"false-negative-share", NUMBER(false_negative_share), .max = 0.999, .value = 1e-4,
         .help = "fraction of an anchor's candidates to treat as false negatives, those of the "
                 "highest similarity (Balmaseda: 0.0001 on CC3M, batch 1024)"},
    [LOSS_FALSE_NEGATIVE_LR] = {"false-negative-lr", NUMBER(false_negative_lr), .max = 2,
                                .value = 0.05,
                                .help = "learning rate of the thresholds above which candidates "
                                        "are false negatives (Balmaseda: 0.05)"},
    [LOSS_FALSE_NEGATIVE_START] =
        {"false-negative-start", WHOLE(false_negative_start), .max = 1e6, .value = 15,
         .help = "first epoch, from 0, that learns thresholds and omits false negatives "
                 "(Balmaseda: 15 of 37)"},
    [LOSS_ZETA0] = {"zeta0", NUMBER(zeta0), .min = -10, .max = 10, .value = -0.05,
                    .help = "initial zeta (Wang: -0.05 on CC3M, 0 on CC12M)"},
    [LOSS_XI0] = {"xi0", NUMBER(xi0), .min = -10, .max = 10,
                  .help = "initial xi, unless --zeta0 is larger (Wang: 0)"},
    [LOSS_XI] =
        {"xi", CHOICE(xi, xis),
         .help =
             "definition of xi after each step. signed: the largest zeta so far; norm: the largest "
             "|zeta| so far (ICLR paper, line 7); all: the largest current zeta over all samples "
             "(workshop paper, step 10). With norm and all the loss runs on the host"},
    [LOSS_ZETA_LR] =
        {"zeta-lr", NUMBER(zeta_lr), .max = 100, .value = LOSS_AUTO, .automatic = true,
         .help = "peak learning rate of the text zeta, for gradients scaled by the number of "
                 "samples, with a cosine schedule (Wang: 5e-6 on CC3M); auto: tau / (t + 2) at a "
                 "sample's visit t = 0, 1, ..., but at least tau / 10"},
    [LOSS_ZETA_LR_IMAGE_RATIO] = {"zeta-lr-image-ratio", NUMBER(zeta_lr_image_ratio), .max = 1000,
                                  .value = LOSS_AUTO, .automatic = true,
                                  .help = "learning rate of the image zeta relative to that of the "
                                          "text zeta (Wang's code: 0.1); auto: 1 with --zeta-lr "
                                          "auto, otherwise 0.1"},
    [LOSS_ZETA_MOMENTUM] = {"zeta-grad-ema", .alias = "zeta-momentum", NUMBER(zeta_momentum),
                            .min = 1e-6, .max = 1, .value = 0.9,
                            .help = "moving-average weight of the newest gradient in zeta's "
                                    "momentum, 1 minus the usual momentum (Wang's code: 0.9)"},
    [LOSS_ZETA_FREEZE_EPOCHS] = {"zeta-freeze-epochs", WHOLE(zeta_freeze_epochs), .max = 1e6,
                                 .value = 5,
                                 .help = "freeze zeta at --zeta0 for the first N epochs (Wang: 5; "
                                         "0: no freeze, as in the ablation)"},
    [LOSS_ZETA_GRADIENT] = {"zeta-gradient", CHOICE(zeta_gradient, gradients),
                            .value = LOSS_ZETA_UNBIASED,
                            .help = "gradient estimate of zeta. paper: as published; unbiased: "
                                    "without its bias, given that the sample is in the batch"},
    [LOSS_TAU_PLUS] = {"tau-plus", NUMBER(tau_plus), .max = 0.999, .value = 0.1,
                       .help =
                           "class prior: assumed fraction of negatives that are false negatives "
                           "(Chuang 2020, Robinson: 0.1; 0.01 and less with many classes)"},
    [LOSS_BETA] = {"beta", NUMBER(beta), .max = 100, .value = 0.5,
                   .help = "concentration of the hard-negative weighting (Robinson: 1 for two "
                           "views; Qiu's comparison on pairs: 0.5)"},
    [LOSS_BETA_STAIRS] = {"beta-anneal-steps", .alias = "beta-stairs", WHOLE(beta_stairs),
                          .max = 1e6,
                          .help = "anneal beta to 0 in N steps, by epochs (Robinson's code: 9); 0: "
                                  "constant; annealing runs the loss on the host"},
    [LOSS_BETA_EPOCHS] = {"beta-epochs", WHOLE(beta_epochs), .max = 1e6,
                          .help = "epochs over which beta is annealed; 0: --epochs (Robinson)"},
    [LOSS_Q] = {"q", NUMBER(q), .min = 1e-7, .max = 1, .value = 0.1,
                .help =
                    "robustness to noisy pairs: towards 0 the loss becomes InfoNCE, 1 is the most "
                    "robust (Chuang 2022: 0.1 on ImageNet, 0.1 to 0.5 elsewhere, with --tau 0.1)"},
    [LOSS_LAMBDA] = {"lambda", NUMBER(lambda), .min = 1e-7, .max = 1, .value = 0.01,
                     .help = "weight of the sum over all pairs (Chuang 2022: 0.01)"},
    [LOSS_CYCLIC_SELF] = {"cyclic-self", NUMBER(cyclic_self), .max = 1000, .value = 0.1,
                          .help =
                              "weight of the in-modal term, the difference between image-image and "
                              "text-text similarities (Goel: 0.25; Wang's comparison: 0.1)"},
    [LOSS_CYCLIC_CROSS] =
        {"cyclic-cross", NUMBER(cyclic_cross), .max = 1000, .value = 0.1,
         .help = "weight of the cross-modal term, the difference between the similarity matrix and "
                 "its transpose (Goel: 0.25; Wang's comparison: 0.1)"},
    [LOSS_BIAS0] = {"bias0", NUMBER(bias0), .min = -100, .max = 100, .value = -10,
                    .help = "initial value of the learned bias (Zhai: -10)"},
    [LOSS_BURN_IN] = {"burn-in", NUMBER(burn_in), .max = 0.999, .value = 0.5,
                      .help = "fraction of each step's proposals discarded as burn-in (Yau: 0.5)"},
    [LOSS_POSITIVES] =
        {"positives", WHOLE(positives), .min = 1, .max = LOSS_MAX_POSITIVES, .value = 1,
         .help = "N positive pairs per sample, each with its own crop and caption: a batch holds "
                 "--batch-size / N samples, an epoch N times the steps. dcl: M positives (Chuang "
                 "2020); nuclr: Wang's Remark 2, with one zeta per pair. With N > 1 the loss runs "
                 "on the host"},
    [LOSS_EMC2_CARRY] =
        {"emc2-off-batch", .alias = "emc2-carry", CHOICE(emc2_carry, carries),
         .help = "treatment of a chain whose state is a sample outside the batch. view: re-encode "
                 "that view as a negative (Yau's Algorithm 1; up to one more batch per step; CPU "
                 "only); encode: re-encode the un-augmented sample, which is biased; skip: do not "
                 "record it, which underweights hard negatives (0.79 "
                 "instead of 2 for 64 samples, batch 8, tau 0.07)"},
    [LOSS_CACHE_REFRESH] =
        {"cache-refresh", NUMBER(cache_refresh), .min = 1e-6, .max = 1, .value = 0.01,
         .help = "fraction of the cached features re-encoded per step, in addition to the batch; "
                 "all before the first step (Yau: 0.01024 with batch 32, 0.1 with 256); CPU only"},
};

/* ---- fields by row ---- */

double loss_option_value(const struct loss_options *o, const struct loss_option_row *row) {
    const char *field = (const char *)o + row->offset;
    double number;
    uint64_t whole;
    int choice;
    switch (row->kind) {
    case LOSS_OPTION_NUMBER:
        memcpy(&number, field, sizeof number);
        return number;
    case LOSS_OPTION_WHOLE:
        memcpy(&whole, field, sizeof whole);
        return (double)whole;
    default:
        memcpy(&choice, field, sizeof choice);
        return choice;
    }
}

void loss_option_set(struct loss_options *o, const struct loss_option_row *row, double value) {
    char *field = (char *)o + row->offset;
    const uint64_t whole = value > 0.0 ? (uint64_t)value : 0;
    const int choice = (int)value;
    switch (row->kind) {
    case LOSS_OPTION_NUMBER:
        memcpy(field, &value, sizeof value);
        break;
    case LOSS_OPTION_WHOLE:
        memcpy(field, &whole, sizeof whole);
        break;
    default:
        memcpy(field, &choice, sizeof choice);
        break;
    }
}

/* Parses a value. */
static bool parse_value(const struct loss_option_row *row, const char *text, double *out) {
    if (row->kind == LOSS_OPTION_CHOICE) {
        for (int i = 0; row->choices[i] != NULL; i++) {
            if (strcmp(row->choices[i], text) == 0) {
                *out = i;
                return true;
            }
        }
        return false;
    }
    if (row->automatic && strcmp(text, "auto") == 0) {
        *out = LOSS_AUTO;
        return true;
    }
    char *end = NULL;
    const size_t digits = strspn(text, "0123456789");
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out) &&
           (row->kind != LOSS_OPTION_WHOLE || text[digits] == '\0');
}

static enum status
bad_value(const struct loss_option_row *row, const char *text, struct error *err) {
    char names[120] = "a number";
    for (size_t i = 0, used = 0; row->choices != NULL && row->choices[i] != NULL; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                 i == 0 ? "one of " : ", ", row->choices[i]);
    }
    return error_set(err, STATUS_USAGE, "loss option %s: '%.60s', expected %s", row->name, text,
                     row->kind == LOSS_OPTION_WHOLE ? "an integer" : names);
}

static bool is_name(const char *name, const char *text, size_t size) {
    return name != NULL && strlen(name) == size && strncmp(name, text, size) == 0;
}

enum status loss_option_parse(struct loss_options *opt,
                              enum loss_option *which,
                              const char *text,
                              struct error *err) {
    const size_t size = strcspn(text, "=");
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT && text[size] == '='; i++) {
        const struct loss_option_row *row = &loss_option_rows[i];
        double value = 0.0;
        if (!is_name(row->name, text, size) && !is_name(row->alias, text, size)) {
            continue;
        }
        *which = (enum loss_option)i;
        if (!parse_value(row, text + size + 1, &value)) {
            return bad_value(row, text + size + 1, err);
        }
        loss_option_set(opt, row, value);
        return STATUS_OK;
    }
    return text[size] == '='
               ? error_set(err, STATUS_USAGE, "losses have no option %.*s", (int)size, text)
               : error_set(err, STATUS_USAGE, "loss option '%.80s': expected NAME=VALUE", text);
}

void loss_options_default(struct loss_options *opt) {
    *opt = (struct loss_options){.name = "nuclr", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT; i++) {
        loss_option_set(opt, &loss_option_rows[i], loss_option_rows[i].value);
    }
}

void loss_resolve_auto(struct loss_options *opt) {
    if (opt->zeta_lr == LOSS_AUTO) {
        opt->zeta_by_visit = opt->parity == LOSS_PARITY_ALGORITHM;
        opt->zeta_lr = opt->zeta_by_visit ? 1.0 : 5e-6;
    }
    if (opt->zeta_lr_image_ratio == LOSS_AUTO) {
        opt->zeta_lr_image_ratio = opt->zeta_by_visit ? 1.0 : 0.1;
    }
}

/* ---- a row's options ---- */

/* The effective value of an option that the row reads. */
static double value_of(const struct loss_row *row,
                       const struct loss_options *opt,
                       const struct loss_option_row *option) {
    const double value = loss_option_value(opt, option);
    const double own = loss_option_value(&row->defaults, option);
    return value != 0.0 ? value : own != 0.0 ? own : option->common;
}

bool loss_may_read(const struct loss_row *row, enum loss_option option) {
    return ((row->reads | row->reads_learned) & LOSS_BIT(option)) != 0;
}

bool loss_reads(const struct loss_row *row,
                const struct loss_options *opt,
                enum loss_option option) {
    const double temperature = value_of(row, opt, &loss_option_rows[LOSS_TEMPERATURE]);
    const double schedule = value_of(row, opt, &loss_option_rows[LOSS_GAMMA_SCHEDULE]);
    if (temperature == LOSS_TEMPERATURE_CONSTANT && (row->reads & LOSS_BIT(option)) == 0) {
        return false;
    }
    return loss_may_read(row, option) &&
           (option != LOSS_GAMMA_EPOCHS || schedule == LOSS_GAMMA_COSINE) &&
           (option != LOSS_BETA_EPOCHS || opt->beta_stairs > 0);
}

/* The values of a choice that the row supports. */
static uint64_t possible(const struct loss_row *row, const struct loss_option_row *o) {
    if (o == &loss_option_rows[LOSS_TEMPERATURE]) {
        return row->temperatures != 0 ? row->temperatures : LOSS_CONSTANT;
    }
    if (o == &loss_option_rows[LOSS_GAMMA_SCHEDULE] && row->parity == LOSS_PARITY_REFERENCE) {
        return LOSS_BIT(LOSS_GAMMA_CONSTANT); /* used by all published code */
    }
    return UINT64_MAX;
}

uint32_t loss_positives(const struct loss_options *opt) {
    const struct loss_row *row = NULL;
    return opt->positives > 1 && loss_find_row(&row, opt, NULL) == STATUS_OK &&
                   loss_reads(row, opt, LOSS_POSITIVES)
               ? (uint32_t)opt->positives
               : 1;
}

static enum status check_value(const struct loss_row *row,
                               const struct loss_option_row *o,
                               double value,
                               struct error *err) {
    if (o->kind == LOSS_OPTION_CHOICE) {
        return possible(row, o) & LOSS_BIT((unsigned)value)
                   ? STATUS_OK
                   : error_set(err, STATUS_USAGE, "loss %s%s has no --%s %s", row->name,
                               row->parity == LOSS_PARITY_REFERENCE ? " (published code)" : "",
                               o->name, o->choices[(int)value]);
    }
    return (value >= o->min && value <= o->max) || (o->automatic && value == LOSS_AUTO)
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "loss %s: --%s %g is not within %g and %g", row->name,
                           o->name, value, o->min, o->max);
}

enum status
loss_complete_options(struct loss_options *opt, const struct loss_row *row, struct error *err) {
    opt->name = row->name;
    for (int i = LOSS_OPTION_NONE + 1; i < LOSS_OPTION_COUNT;
         i++) { /* choices before the options that depend on them */
        const struct loss_option_row *o = &loss_option_rows[i];
        const bool reads = loss_reads(row, opt, (enum loss_option)i);
        loss_option_set(opt, o, reads ? value_of(row, opt, o) : 0.0);
        TRY(reads ? check_value(row, o, loss_option_value(opt, o), err) : STATUS_OK);
    }
    FAIL_IF(opt->temperature != LOSS_TEMPERATURE_CONSTANT &&
                !(opt->tau_min > 0.0 && opt->tau_min <= opt->tau && opt->tau <= opt->tau_max),
            err, STATUS_USAGE,
            "loss %s: its temperature starts at %g, outside its bounds %g and %g", row->name,
            opt->tau, opt->tau_min, opt->tau_max);
    return row->check == NULL ? STATUS_OK : row->check(opt, err);
}
