/*
 * loss_math: shared by the losses (NAME.c): temperature and gamma, learned scalars, rows of the
 * state, one anchor of two views, and sums over one anchor's negatives.
 */
#include "train/loss/loss_internal.h"
#include "train/optim/schedule.h"

/* ---- scalars ---- */

double loss_tau(const struct loss *l) {
    return l->options.temperature == LOSS_TEMPERATURE_GLOBAL ? exp(-l->scale.value)
                                                             : l->options.tau;
}

double loss_gamma(const struct loss *l, uint64_t epoch) {
    const struct loss_options *o = &l->options;
    if (epoch < o->recover_epochs) {
        return 1.0 / (double)(epoch + 1);
    }
    return o->gamma_schedule == LOSS_GAMMA_COSINE ? schedule_gamma(o->gamma, o->gamma_epochs, epoch)
                                                  : o->gamma;
}

void loss_run_row(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double tau_lr = l->options.tau_lr;
    l->options.tau_lr = in->epoch < l->options.recover_epochs ? 0.0 : tau_lr;
    l->row->step(l, in, out);
    l->options.tau_lr = tau_lr;
}

double loss_scale_gradient(const struct loss *l,
                           const struct loss_input *in,
                           const struct loss_output *out) {
    const int64_t rows = l->options.views ? 2 * in->batch_count : in->batch_count;
    double sum = 0.0;
    for (int64_t i = 0; l->lines != NULL && i < SIDE_COUNT * rows; i++) {
        const struct contrast_lines *x = &l->lines[i / rows];
        sum += x->weight[i % rows] * x->weighted[i % rows] +
               x->positive_gradient[i % rows] * x->positive[i % rows];
    }
    for (int64_t e = 0; e < rows * rows && l->lines == NULL; e++) {
        sum += (double)out->gradient[e] * (double)in->similarity[e];
    }
    return sum;
}

double loss_scalar_lr(const struct loss *l, const struct loss_input *in) {
    const double lr = l->options.tau_lr > 0.0 ? l->options.tau_lr : in->lr;
    return loss_tau(l) <= l->row->slow_tau ? lr / 3.0 : lr;
}

void loss_adam(struct loss_learned *s,
               const struct loss_options *o,
               double gradient,
               double lr,
               double steps) {
    s->m = o->beta1 * s->m + (1.0 - o->beta1) * gradient;
    s->v = o->beta2 * s->v + (1.0 - o->beta2) * gradient * gradient;
    const double m = s->m / (1.0 - pow(o->beta1, steps));
    const double v = s->v / (1.0 - pow(o->beta2, steps));
    s->value -= lr * m / (sqrt(v) + o->eps);
}

void loss_learn_scale(struct loss *l, const struct loss_input *in, double gradient) {
    const struct loss_options *o = &l->options;
    if (o->temperature != LOSS_TEMPERATURE_GLOBAL) {
        return;
    }
    l->learned_steps += 1.0;
    loss_adam(&l->scale, o, gradient, loss_scalar_lr(l, in), l->learned_steps);
    l->scale.value = fmax(-log(o->tau_max), fmin(-log(o->tau_min), l->scale.value));
}

void loss_step_own_tau(const struct loss_options *o,
                       float *tau,
                       float *gradient,
                       double h,
                       double most) {
    const double bounded = fmax(-most, fmin(most, h));
    const double v = (1.0 - o->tau_momentum) * (double)*gradient + o->tau_momentum * bounded;
    *gradient = (float)v;
    *tau = (float)fmax(o->tau_min, fmin(o->tau_max, (double)*tau - o->tau_lr * v));
}

/* ---- rows of the state ---- */

void loss_take_rows(const struct loss *l, float *out, int column, int side, int64_t b) {
    const int64_t each = loss_rows_each(l);
    for (int64_t i = 0; i < b; i++) {
        const int32_t of_pair = l->columns[column][side] + (int32_t)(i % each);
        out[i] = sample_state_window(l->states[side], of_pair)[i / each];
    }
}

void loss_put_rows(struct loss *l, const float *rows, int column, int side, int64_t b) {
    const int64_t each = loss_rows_each(l);
    for (int64_t i = 0; i < b; i++) {
        const int32_t of_pair = l->columns[column][side] + (int32_t)(i % each);
        sample_state_window(l->states[side], of_pair)[i / each] = rows[i];
    }
}

/* ---- two views ---- */

static int64_t partner_of(int64_t anchor, int64_t b) {
    return anchor < b ? anchor + b : anchor - b;
}

struct loss_side loss_take_view(struct loss *l, const struct loss_input *in, int64_t anchor) {
    const int64_t n = 2 * in->batch_count;
    const int64_t partner = partner_of(anchor, in->batch_count);
    const float *from = in->similarity + anchor * n;
    int64_t k = 0;
    l->view_row[0][k++] = from[partner];
    for (int64_t c = 0; c < n; c++) {
        if (c != anchor && c != partner) {
            l->view_row[0][k++] = from[c];
        }
    }
    for (int64_t c = 0; c < k; c++) {
        l->view_row[1][c] = 0.0f;
    }
    return (struct loss_side){
        .similarity = l->view_row[0],
        .gradient = l->view_row[1],
        .count = k,
        .anchor_stride = 1,
        .contrast_stride = 1,
        .positives = 1,
        .weights = in->weights != NULL ? in->weights + anchor % in->batch_count : NULL};
}

void loss_put_view(const struct loss_side *row,
                   const struct loss_input *in,
                   struct loss_output *out,
                   int64_t anchor) {
    const int64_t n = 2 * in->batch_count;
    const int64_t partner = partner_of(anchor, in->batch_count);
    float *to = out->gradient + anchor * n;
    int64_t k = 0;
    to[partner] += row->gradient[k++];
    for (int64_t c = 0; c < n; c++) {
        if (c != anchor && c != partner) {
            to[c] += row->gradient[k++];
        }
    }
}

/* ---- a mean over anchors ---- */

static void step_sides(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const double share = 0.5 / (double)in->batch_count;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct loss_side s = loss_side(l, in, out, (enum loss_side_index)side);
        for (int64_t a = 0; a < s.count; a++) {
            loss_add(out, a, l->row->anchor(l, &s, a, share * side_weight(&s, a)));
        }
    }
}

static void step_views(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    const int64_t n = 2 * in->batch_count;
    for (int64_t a = 0; a < n; a++) {
        const struct loss_side row = loss_take_view(l, in, a);
        loss_add(out, a % in->batch_count,
                 l->row->anchor(l, &row, 0, side_weight(&row, 0) / (double)n));
        loss_put_view(&row, in, out, a);
    }
}

void loss_step_anchors(struct loss *l, const struct loss_input *in, struct loss_output *out) {
    (l->options.views ? step_views : step_sides)(l, in, out);
    out->objective = out->value;
    if (l->options.temperature == LOSS_TEMPERATURE_GLOBAL) {
        loss_learn_scale(l, in, loss_scale_gradient(l, in, out));
    }
}

/* ---- one anchor ---- */

double side_info_nce(const struct loss_side *s, int64_t anchor, double tau) {
    return log_add(0.0, side_log_mean(s, anchor, tau, NULL) + log(side_contrasts(s)));
}

double side_log_mean(const struct loss_side *s, int64_t anchor, double tau, const float *zeta) {
    const int64_t first = side_first(s, anchor);
    double largest = -HUGE_VAL;
    if (s->lines != NULL) {
        return s->lines->largest[anchor] - s->lines->positive[anchor] / tau +
               log(s->lines->sum[anchor]) - log(side_contrasts(s));
    }
    for (int64_t c = 0; c < s->count; c++) {
        const double e = side_exponent(s, anchor, c, tau, zeta);
        largest = !side_is_positive(s, first, c) && e > largest ? e : largest;
    }
    double sum = 0.0;
    for (int64_t c = 0; c < s->count; c++) {
        sum += side_is_positive(s, first, c)
                   ? 0.0
                   : exp(side_exponent(s, anchor, c, tau, zeta) - largest);
    }
    return largest + log(sum) - log(side_contrasts(s));
}

struct side_weights side_add_weights(const struct loss_side *s,
                                     int64_t anchor,
                                     double tau,
                                     const float *zeta,
                                     double log_norm,
                                     double share,
                                     double weight) {
    const int64_t first = side_first(s, anchor);
    struct side_weights w = {0.0, 0.0};
    if (s->lines != NULL) {
        const struct contrast_lines *l = s->lines;
        const double own = l->positive[anchor];
        const double scale = share * exp(l->largest[anchor] - own / tau - log_norm);
        l->weight[anchor] = scale * weight;
        w.total = scale * l->sum[anchor];
        w.moment = scale * (l->weighted[anchor] - own * l->sum[anchor]);
        return w;
    }
    for (int64_t c = 0; c < s->count; c++) {
        if (!side_is_positive(s, first, c)) {
            const double x = exp(side_exponent(s, anchor, c, tau, zeta) - log_norm) * share;
            side_add(s, anchor, c, x * weight);
            w.total += x;
            w.moment += x * side_delta(s, anchor, c);
        }
    }
    return w;
}

double side_add_surrogate(const struct loss_side *s,
                          int64_t anchor,
                          double tau,
                          const float *zeta,
                          double log_norm,
                          double share) {
    const double weight = side_weight(s, anchor);
    const struct side_weights w = side_add_weights(s, anchor, tau, zeta, log_norm, share, weight);
    side_add(s, anchor, anchor, -w.total * weight);
    return w.moment;
}
