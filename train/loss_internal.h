/*
 * loss_internal: what the loss files share: the method table and one side of the similarity matrix.
 */
#ifndef TRAIN_LOSS_INTERNAL_H
#define TRAIN_LOSS_INTERNAL_H

#include <math.h>

#include "train/loss.h"

/* What a loss keeps on each side, and the columns it uses. */
enum loss_side_index { SIDE_IMAGE, SIDE_TEXT, SIDE_COUNT };

struct loss_method {
    const char *name;
    /* Adds columns and scalars. */
    enum status (*create)(struct loss *l, struct error *err);
    /* Adds its gradient to the zeroed `gradient` and its value to `out`. ids are distinct. */
    void (*step)(struct loss *l, const struct loss_input *in, struct loss_output *out);
};

extern const struct loss_method loss_method_clip;
extern const struct loss_method loss_method_sogclr;
extern const struct loss_method loss_method_nuclr;

struct loss_order {
    uint64_t id;
    int64_t place;
};

struct loss {
    const struct loss_method *method;
    struct loss_options options;
    struct sample_state *state;
    uint64_t samples_count;
    int64_t max_batch_count;

    int32_t log_u[SIDE_COUNT];         /* columns: log of the running mean, by anchor side */
    int32_t zeta[SIDE_COUNT];          /* columns: zeta of the samples of a side */
    int32_t zeta_momentum[SIDE_COUNT]; /* columns */
    double xi[SIDE_COUNT];
    struct loss_scalar scalars[SIDE_COUNT];
    int32_t scalar_count;

    float *gathered[4];       /* (max batch) each: state of the batch's samples */
    double *sums;             /* (max batch) */
    struct loss_order *order; /* (max batch): ids to sort */
    int64_t *places;          /* (max batch): batch positions of the distinct ids */
    uint64_t *ids;            /* (max batch): those ids */
    float *similarity; /* (max batch, max batch): S and its gradient among the distinct ids */
    float *gradient;
};

/* One side of S: element (anchor, contrast). */
struct loss_side {
    const float *similarity;
    float *gradient;
    int64_t count;
    int64_t anchor_stride, contrast_stride;
};

static inline struct loss_side loss_side(const struct loss_input *in,
                                         const struct loss_output *out,
                                         enum loss_side_index anchors) {
    const int64_t b = in->batch_count;
    struct loss_side side = {.similarity = in->similarity, .gradient = out->gradient, .count = b};
    side.anchor_stride = anchors == SIDE_IMAGE ? b : 1;
    side.contrast_stride = anchors == SIDE_IMAGE ? 1 : b;
    return side;
}

static inline int64_t side_place(const struct loss_side *s, int64_t anchor, int64_t contrast) {
    return anchor * s->anchor_stride + contrast * s->contrast_stride;
}

/* Delta: similarity of (anchor, contrast) less that of the anchor's own pair. */
static inline double side_delta(const struct loss_side *s, int64_t anchor, int64_t contrast) {
    return (double)s->similarity[side_place(s, anchor, contrast)] -
           (double)s->similarity[side_place(s, anchor, anchor)];
}

/* (Delta - zeta of the contrast) / tau; zeta may be NULL. */
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

/* The running mean u <- (1 - gamma) u + gamma g in log space; the first visit takes g as it is. */
static inline double log_running_mean(float log_u, double log_g, double gamma) {
    if (!sample_state_visited(log_u) || gamma >= 1.0) {
        return log_g;
    }
    return log_add(log1p(-gamma) + (double)log_u, log(gamma) + log_g);
}

/* Adds a gradient computed in double to an element of the f32 matrix. */
static inline void side_add(const struct loss_side *s, int64_t anchor, int64_t contrast, double g) {
    float *place = &s->gradient[side_place(s, anchor, contrast)];
    *place = (float)((double)*place + g);
}

/* A surrogate with constant weights, mean over anchors of sum_c w_c Delta_c: adds the gradient of
 * one anchor and returns its part of the value. log_norm: weight w_c = exp(exponent(c) - log_norm),
 * where exponent is Delta/tau less zeta/tau of the contrast (zeta may be NULL). */
double side_add_surrogate(const struct loss_side *s,
                          int64_t anchor,
                          double tau,
                          const float *zeta,
                          double log_norm);

/* log of the mean over contrasts c != anchor of exp((Delta_c - zeta_c)/tau); zeta may be NULL. */
double side_log_mean(const struct loss_side *s, int64_t anchor, double tau, const float *zeta);

#endif
