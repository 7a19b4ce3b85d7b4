/*
 * loss_row: the table of losses. A row describes one loss in one form (pairs, two views, or the
 * published code): its paper, the options that it reads, its own defaults, its state, and its step.
 * List of names, --help, option checks, columns and the work of devices follow from the rows, and
 * so do the tests that every loss must pass (tests/unit/train/test_loss_rows.c).
 *
 * Threading : constant data.
 */
#ifndef TRAIN_LOSS_LOSS_ROW_H
#define TRAIN_LOSS_LOSS_ROW_H

#include "kernels/device_loss.h"
#include "train/loss/loss.h"

/* Options of struct loss_options: row i of loss_option_rows is option i. */
enum loss_option {
    LOSS_OPTION_NONE,
    LOSS_TAU,
    LOSS_TEMPERATURE,
    LOSS_TAU_MIN,
    LOSS_TAU_MAX,
    LOSS_TAU_LR,
    LOSS_TAU_MOMENTUM,
    LOSS_RHO,
    LOSS_GAMMA,
    LOSS_GAMMA_SCHEDULE,
    LOSS_GAMMA_EPOCHS,
    LOSS_GAMMA_LOG_ALPHA,
    LOSS_GAMMA_SLOPE,
    LOSS_U_EPS,
    LOSS_MARGIN,
    LOSS_FALSE_NEGATIVE_SHARE,
    LOSS_FALSE_NEGATIVE_LR,
    LOSS_FALSE_NEGATIVE_START,
    LOSS_ZETA0,
    LOSS_XI0,
    LOSS_XI,
    LOSS_ZETA_LR,
    LOSS_ZETA_LR_IMAGE_RATIO,
    LOSS_ZETA_MOMENTUM,
    LOSS_ZETA_FREEZE_EPOCHS,
    LOSS_ZETA_GRADIENT,
    LOSS_TAU_PLUS,
    LOSS_BETA,
    LOSS_BETA_STAIRS,
    LOSS_BETA_EPOCHS,
    LOSS_Q,
    LOSS_LAMBDA,
    LOSS_CYCLIC_SELF,
    LOSS_CYCLIC_CROSS,
    LOSS_BIAS0,
    LOSS_BURN_IN,
    LOSS_POSITIVES,
    LOSS_EMC2_CARRY,
    LOSS_CACHE_REFRESH,
    LOSS_OPTION_COUNT
};

enum loss_option_kind {
    LOSS_OPTION_NUMBER, /* double */
    LOSS_OPTION_WHOLE,  /* uint64_t */
    LOSS_OPTION_CHOICE, /* enum */
};

struct loss_option_row {
    const char *name; /* on the command line, without dashes: "tau-plus" */
    enum loss_option_kind kind;
    size_t offset;   /* of its field in struct loss_options */
    double min, max; /* range of numbers */
    double value;    /* default; of a choice its index */
    double common;   /* > 0: an option that is 0 becomes the loss's own default, or this */
    bool automatic;  /* LOSS_AUTO, "auto" on the command line, is valid too, and the default */
    const char *const *choices; /* names, NULL at the end */
    const char *help;           /* --help appends the losses that read it, range and default */
    const char *alias;          /* an old name, still accepted; NULL: none */
};

extern const struct loss_option_row loss_option_rows[LOSS_OPTION_COUNT];

/* The option's field; a choice as its index. */
double loss_option_value(const struct loss_options *o, const struct loss_option_row *row);
void loss_option_set(struct loss_options *o, const struct loss_option_row *row, double value);

/* Sets option *which from text such as "tau=0.01", "xi=norm" or "zeta-lr=auto". Returns OK or USAGE
 * (no such option, or not a value of its kind); loss_create checks ranges. */
enum status loss_option_parse(struct loss_options *opt,
                              enum loss_option *which,
                              const char *text,
                              struct error *err);

/* A column of the per-sample state: one per side, "image.NAME" and "text.NAME"; with two views only
 * the first; with m positives one per pair of a sample, the second is "image.NAME.2". */
struct loss_column {
    const char *name; /* NULL ends a list */
    enum sample_state_kind kind;
    float first;                   /* f32: initial value, or */
    enum loss_option first_option; /* unless NONE: this option's value instead */
};

/* A scalar that is saved, in the loss's private state. */
struct loss_private_scalar {
    const char *name; /* NULL ends a list */
    size_t offset;    /* of a double */
};

enum { LOSS_MAX_COLUMNS = 4, LOSS_MAX_SCALARS = 8 };

#define LOSS_BIT(value) (UINT64_C(1) << (value))

/* Combined by rows to `reads` and `reads_learned`. */
#define LOSS_READS_TAU (LOSS_BIT(LOSS_TAU) | LOSS_BIT(LOSS_TEMPERATURE))
#define LOSS_READS_GAMMA                                                                           \
    (LOSS_BIT(LOSS_GAMMA) | LOSS_BIT(LOSS_GAMMA_SCHEDULE) | LOSS_BIT(LOSS_GAMMA_EPOCHS))
#define LOSS_READS_LEARNED_TAU                                                                     \
    (LOSS_BIT(LOSS_TAU_MIN) | LOSS_BIT(LOSS_TAU_MAX) | LOSS_BIT(LOSS_TAU_LR))

/* The temperatures that a row may support. */
#define LOSS_CONSTANT   LOSS_BIT(LOSS_TEMPERATURE_CONSTANT)
#define LOSS_GLOBAL     LOSS_BIT(LOSS_TEMPERATURE_GLOBAL)
#define LOSS_INDIVIDUAL LOSS_BIT(LOSS_TEMPERATURE_INDIVIDUAL)

struct loss_side;

struct loss_row {
    const char *name;
    bool views;
    enum loss_parity parity;
    const char *paper; /* "Radford, ICML 2021"; this and the next only in a name's first row */
    const char *what;  /* one line */

    /* ---- options ---- */
    uint64_t reads;               /* LOSS_BIT of enum loss_option */
    uint64_t reads_learned;       /* read only if the temperature is learned */
    uint64_t temperatures;        /* LOSS_BIT of enum loss_temperature; 0: constant only */
    struct loss_options defaults; /* its own defaults; 0: none */
    /* Rejects values that exclude each other; NULL: none do. */
    enum status (*check)(const struct loss_options *o, struct error *err);

    /* ---- state ---- */
    const struct loss_column *columns; /* up to LOSS_MAX_COLUMNS; NULL: only visits */
    size_t private_bytes;
    const struct loss_private_scalar *scalars; /* NULL: only those of a learned temperature */
    void (*begin)(struct loss *l);             /* initialises the private state; NULL: zeros */

    /* ---- the step ---- */
    bool surrogate; /* at the first visit of all samples the gradient is `objective`'s, not
                       `value`'s */
    bool uses_self;
    /* The off-batch sample that entry `place` of the window, of `count` distinct ids, needs on this
     * side; SAMPLE_STATE_NO_ID: none. *view: see loss_carried. NULL: never one. */
    uint64_t (
        *carried)(const struct loss *l, uint64_t *view, int side, int64_t place, int64_t count);
    /* Adds its gradient to the zeroed `gradient` and its value to `out`. ids are distinct; with
     * several positives they must not be read. */
    void (*step)(struct loss *l, const struct loss_input *in, struct loss_output *out);
    void (*finish)(struct loss *l, const struct loss_input *in); /* after `step`; NULL: nothing */
    /* For loss_step_anchors: adds one anchor's gradient times `share`; returns its value times
     * share. */
    double (*anchor)(const struct loss *l, const struct loss_side *s, int64_t anchor, double share);

    /* ---- differences of rows that share a step ---- */
    bool zeta_frozen;  /* nuclr: zeta is constant */
    bool own_xi;       /* nuclr: the anchor's own zeta instead of xi */
    bool times_tau;    /* fastclip: the loss is multiplied by tau */
    bool finds_false;  /* glofnd: negatives above the anchor's threshold are ignored */
    bool anchor_gamma; /* scent: gamma depends on the anchor's u */
    bool tiles; /* step and anchor also work from an anchor's sums, see loss_tiled.h: with beta 0
                   and one positive */
    double slow_tau; /* tau up to this value is learned at a third of its rate */

    enum device_loss_kind device; /* DEVICE_LOSS_NONE: host only */
};

/* All rows, NULL at the end. Rows of a name are adjacent, pairs first. */
const struct loss_row *const *loss_rows(void);

/* The row of a name, views and parity. Returns OK or USAGE. */
enum status
loss_find_row(const struct loss_row **out, const struct loss_options *opt, struct error *err);

/* Whether the option can have an effect on this row, with some other options; and whether it has
 * one with `opt`. */
bool loss_may_read(const struct loss_row *row, enum loss_option option);
bool loss_reads(const struct loss_row *row,
                const struct loss_options *opt,
                enum loss_option option);

/* Fields that are 0 become the row's own defaults, and fields that it does not read become 0.
 * Returns OK or USAGE (out of range, or a choice that the row does not support). */
enum status
loss_complete_options(struct loss_options *opt, const struct loss_row *row, struct error *err);

#endif
