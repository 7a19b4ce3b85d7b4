/*
 * loss_internal: shared by the loss files: struct loss, the state of a batch, a learned
 * temperature, and one side of the similarity matrix.
 */
#ifndef TRAIN_LOSS_LOSS_INTERNAL_H
#define TRAIN_LOSS_LOSS_INTERNAL_H

#include <math.h>

#include "kernels/contrast.h"
#include "train/loss/loss_row.h"

enum loss_side_index { SIDE_IMAGE, SIDE_TEXT, SIDE_COUNT };

/* One scalar that Adam learns; all of it is saved. */
struct loss_learned {
    double value, m, v;
};

struct loss_order {
    uint64_t id;
    int64_t place;
};

struct loss {
    const struct loss_row *row;
    struct loss_options options;             /* completed; 0: not read by the row */
    struct sample_state *state;              /* of samples */
    struct sample_state *states[SIDE_COUNT]; /* of each side's columns; texts may have another */
    uint64_t samples_count;
    int64_t max_batch_count;

    void *private_state; /* row->private_bytes */
    /* In the order of row->columns; with several positives the first of as many consecutive
     * columns, one per pair of a sample. */
    int32_t columns[LOSS_MAX_COLUMNS][SIDE_COUNT];
    int32_t visits[SIDE_COUNT]; /* steps in which a sample took part; of texts in their state */
    struct loss_learned scale;  /* log(1/tau), if the temperature is global */
    double learned_steps;       /* of Adam */
    struct loss_scalar scalars[LOSS_MAX_SCALARS];
    int32_t scalar_count;

    /* R below: rows of similarities: max batch, or with two views twice that. */
    double *sums[SIDE_COUNT]; /* (R) */
    float *rows[3];           /* (R): see loss_take_rows */
    struct loss_order *order; /* (max batch): ids of the step, sorted, and their positions */
    int64_t order_count;
    bool *is_first;        /* (max batch): whether a row is the first one with its id */
    int64_t *places;       /* (R): rows of the distinct ids; with two views then of second views */
    uint64_t *ids;         /* (max batch): the distinct ids */
    uint64_t *caption_ids; /* (max batch): and their captions */
    float *weights;        /* (max batch): of the distinct rows */
    float *view_row[2];    /* (R): one anchor's similarities and their gradient */
    float *matrix[6];      /* (R, R): in's and out's matrices of the distinct ids */
    /* (2), (R) each: with tiles, the anchors' sums, and the weights that the step returns; see
     * loss_tiled.c. NULL: the whole matrix */
    struct contrast_lines *lines;
    uint64_t *carried_ids; /* (2, max batch): of the distinct rows; if row->carried */
    float *carried[2];     /* (2, max batch): their similarity and gradient */
};

/* One side of S: element (anchor, candidate); with tiles `lines` instead of the elements, which
 * only the functions of an anchor's negatives below read and write. */
struct loss_side {
    const float *similarity;
    float *gradient;
    int64_t count;
    int64_t anchor_stride, contrast_stride;
    int64_t positives;    /* m: an anchor's negatives are the rows of other samples */
    const float *weights; /* of anchors; NULL: 1 */
    const struct contrast_lines *lines;
};

static inline double side_weight(const struct loss_side *s, int64_t anchor) {
    return s->weights != NULL ? (double)s->weights[anchor] : 1.0;
}

/* Rows of a sample in a batch of pairs. */
static inline int64_t loss_rows_each(const struct loss *l) {
    return l->options.positives > 1 ? (int64_t)l->options.positives : 1;
}

static inline struct loss_side loss_side(const struct loss *l,
                                         const struct loss_input *in,
                                         const struct loss_output *out,
                                         enum loss_side_index anchors) {
    const int64_t b = in->batch_count;
    struct loss_side side = {.similarity = in->similarity,
                             .gradient = out->gradient,
                             .count = b,
                             .weights = in->weights,
                             .lines = l->lines != NULL ? &l->lines[anchors] : NULL};
    side.anchor_stride = anchors == SIDE_IMAGE ? b : 1;
    side.contrast_stride = anchors == SIDE_IMAGE ? 1 : b;
    side.positives = loss_rows_each(l);
    return side;
}

/* The first row of the anchor's sample, and whether a row is of that sample. */
static inline int64_t side_first(const struct loss_side *s, int64_t anchor) {
    return s->positives > 1 ? anchor - anchor % s->positives : anchor;
}

static inline bool side_is_positive(const struct loss_side *s, int64_t first, int64_t row) {
    return (uint64_t)(row - first) < (uint64_t)s->positives;
}

/* How many negatives an anchor has. */
static inline double side_contrasts(const struct loss_side *s) {
    return (double)(s->count - s->positives);
}

static inline int64_t side_place(const struct loss_side *s, int64_t anchor, int64_t contrast) {
    return anchor * s->anchor_stride + contrast * s->contrast_stride;
}

static inline double side_positive(const struct loss_side *s, int64_t anchor) {
    return s->lines != NULL ? s->lines->positive[anchor]
                            : (double)s->similarity[side_place(s, anchor, anchor)];
}

/* Delta: the similarity of (anchor, candidate) minus the positive's. */
static inline double side_delta(const struct loss_side *s, int64_t anchor, int64_t contrast) {
    if (s->lines != NULL) {
        return 0.0; /* only of the positive, see above */
    }
    return (double)s->similarity[side_place(s, anchor, contrast)] -
           (double)s->similarity[side_place(s, anchor, anchor)];
}

/* (Delta - zeta of the candidate) / tau; zeta may be NULL. */
static inline double side_exponent(const struct loss_side *s,
                                   int64_t anchor,
                                   int64_t contrast,
                                   double tau,
                                   const float *zeta) {
    const double delta = side_delta(s, anchor, contrast);
    return (zeta != NULL ? delta - (double)zeta[contrast] : delta) / tau;
}

/* log(exp(a) + exp(b)); -inf is log 0. */
static inline double log_add(double a, double b) {
    const double high = a > b ? a : b;
    const double low = a > b ? b : a;
    return high == -HUGE_VAL ? high : high + log1p(exp(low - high));
}

/* The moving average u <- (1 - gamma) u + gamma g in log space; u <- g at the first visit. */
static inline double log_running_mean(float log_u, double log_g, double gamma) {
    if (!sample_state_visited(log_u) || gamma >= 1.0) {
        return log_g;
    }
    return log_add(log1p(-gamma) + (double)log_u, log(gamma) + log_g);
}

/* The moving average of fastclip, scent and hgcl: of eps + g, with gamma or scent's gamma per
 * anchor. */
static inline double loss_updated_u(const struct loss *l, float log_u, double log_g, double gamma) {
    const struct loss_options *o = &l->options;
    const double log_estimate = o->u_eps > 0.0 ? log_add(log_g, log(o->u_eps)) : log_g;
    if (!l->row->anchor_gamma || !sample_state_visited(log_u)) {
        return log_running_mean(log_u, log_estimate, gamma);
    }
    /* log gamma and log (1 - gamma), neither of which rounds to 0. */
    const double logit = o->gamma_log_alpha + o->gamma_slope * (double)log_u;
    return log_add((double)log_u - log_add(0.0, logit), log_estimate - log_add(0.0, -logit));
}

/* Adds a gradient computed in double to an element of the f32 matrix, with tiles the positive's.
 */
static inline void side_add(const struct loss_side *s, int64_t anchor, int64_t contrast, double g) {
    if (s->lines != NULL) {
        s->lines->positive_gradient[anchor] += g;
        return;
    }
    float *place = &s->gradient[side_place(s, anchor, contrast)];
    *place = (float)((double)*place + g);
}

/* Adds the loss of an anchor of this row of the batch. */
static inline void loss_add(struct loss_output *out, int64_t row, double value) {
    out->value += value;
    if (out->row_values != NULL) {
        out->row_values[row] += value;
    }
}

/* Sides that keep state: images and texts, or with two views only images. */
static inline int loss_side_count(const struct loss *l) {
    return l->options.views ? SIDE_TEXT : SIDE_COUNT;
}

/* The position of a sample among the `count` distinct ones of this step; -1: not in it. */
int64_t loss_find_id(const struct loss *l, int64_t count, uint64_t id);

/* ---- state ---- */

/* The batch's entries of a column (index in row->columns) and side, f32 or u64: (B), in the order
 * of sample_ids. The step changes them in place. */
static inline float *loss_window(const struct loss *l, int column, int side) {
    return sample_state_window(l->states[side], l->columns[column][side]);
}

static inline uint64_t *loss_window_u64(const struct loss *l, int column, int side) {
    return sample_state_window_u64(l->states[side], l->columns[column][side]);
}

/* Steps with each of the batch's samples or captions, this one included. */
static inline uint64_t *loss_visits(const struct loss *l, int side) {
    return sample_state_window_u64(l->states[side], l->visits[side]);
}

/* The batch's entries of an f32 column, one per row: copied to `out` (B), and back. */
void loss_take_rows(const struct loss *l, float *out, int column, int side, int64_t b);
void loss_put_rows(struct loss *l, const float *rows, int column, int side, int64_t b);

/* ---- two views ---- */

/* The row of one of the 2B anchors as the functions of one side expect it, as anchor 0: its other
 * view first, then the 2B - 2 views of other samples, in order; count is 2B - 1. loss_put_view adds
 * its gradient to the anchor's row. */
struct loss_side loss_take_view(struct loss *l, const struct loss_input *in, int64_t anchor);
void loss_put_view(const struct loss_side *row,
                   const struct loss_input *in,
                   struct loss_output *out,
                   int64_t anchor);

/* ---- steps ---- */

/* The beginning and end of every step: checks, distinct ids (*count of them, in l->ids and
 * l->places), and their state copied to the window; later copied back, and its means. In between,
 * once nothing can fail, visits are counted. Return as loss_step. */
enum status loss_begin_step(struct loss *l,
                            const struct loss_input *in,
                            struct loss_output *out,
                            int64_t *count,
                            struct error *err);
void loss_count_visits(struct loss *l, int64_t count);
/* The first `count` values move to the rows of the distinct ids, which ascend; NULL: nothing. */
void loss_put_row_values(const struct loss *l, double *values, int64_t b, int64_t count);
enum status
loss_end_step(struct loss *l, struct loss_output *out, int64_t count, struct error *err);

/* A step of losses that are a mean over anchors: row->anchor for every image and text, or every
 * view; then the temperature, if it is learned. */
void loss_step_anchors(struct loss *l, const struct loss_input *in, struct loss_output *out);

/* row->anchor of clip, for losses that add to it. */
double
loss_clip_anchor(const struct loss *l, const struct loss_side *s, int64_t anchor, double share);

/* The temperature of all samples in this step. */
double loss_tau(const struct loss *l);

/* gamma in an epoch. */
double loss_gamma(const struct loss *l, uint64_t epoch);

/* The row's step; temperatures are constant in recover_epochs. */
void loss_run_row(struct loss *l, const struct loss_input *in, struct loss_output *out);

/* dL/dlog(1/tau) of a loss that depends on tau only as S / tau: sum of dL/dS_ij S_ij. */
double loss_scale_gradient(const struct loss *l,
                           const struct loss_input *in,
                           const struct loss_output *out);

/* Learning rate of learned scalars. */
double loss_scalar_lr(const struct loss *l, const struct loss_input *in);

/* If the temperature is global: one step of Adam along the gradient of log(1/tau), bounded by
 * tau_min and tau_max. Else nothing. */
void loss_learn_scale(struct loss *l, const struct loss_input *in, double gradient);

/* Steps one sample's tau, within [tau_min, tau_max], along a moving average of its gradient h,
 * bounded by +-most. */
void loss_step_own_tau(const struct loss_options *o,
                       float *tau,
                       float *gradient,
                       double h,
                       double most);

/* One step of Adam of any learned scalar, without bounds; `steps` counts from 1. */
void loss_adam(struct loss_learned *s,
               const struct loss_options *o,
               double gradient,
               double lr,
               double steps);

/* ---- one anchor ---- */

/* log of the mean over negatives c of exp((Delta_c - zeta_c)/tau); zeta may be NULL. */
double side_log_mean(const struct loss_side *s, int64_t anchor, double tau, const float *zeta);

/* One anchor's InfoNCE loss: -log of the positive's softmax probability among all candidates. */
double side_info_nce(const struct loss_side *s, int64_t anchor, double tau);

/* Adds w_c = exp(exponent(c) - log_norm) share, times `weight`, to the gradient of every negative;
 * exponent as in side_log_mean. Returns the sums of w_c and of w_c Delta_c. */
struct side_weights {
    double total, moment;
};
struct side_weights side_add_weights(const struct loss_side *s,
                                     int64_t anchor,
                                     double tau,
                                     const float *zeta,
                                     double log_norm,
                                     double share,
                                     double weight);

/* A surrogate with constant weights, sum_c w_c Delta_c: adds the gradient of one anchor times
 * `share` and the anchor's weight; returns its value times share. w_c = exp(exponent(c) -
 * log_norm), with the exponent (Delta - zeta of the candidate) / tau (zeta may be NULL). */
double side_add_surrogate(const struct loss_side *s,
                          int64_t anchor,
                          double tau,
                          const float *zeta,
                          double log_norm,
                          double share);

#endif
