/*
 * distill: a teacher's similarities T of the batch's pairs, MobileCLIP's affinity mimicking (Vasu
 * et al., CVPR 2024, eq. (2) to (4)):
 *
 *   p_a = softmax_j(T_aj / tau_T),  q_a = softmax_j(S_aj / tau)
 *   K   = 1/2 [ mean over images of KL(p_a || q_a)  +  the same of texts, along columns ]
 *   L  <- (1 - W) L + W K,    dK/dS_aj = (q_aj - p_aj) / (2 B tau) of rows, and of columns
 */
#include <math.h>

#include "train/loss/loss.h"

static void scale(float *m, int64_t count, double by) {
    for (int64_t i = 0; m != NULL && i < count; i++) {
        m[i] = (float)((double)m[i] * by);
    }
}

/* log sum_j exp(m[j step] / tau) */
static double log_sum(const float *m, int64_t count, int64_t step, double tau) {
    double largest = -HUGE_VAL;
    double sum = 0.0;
    for (int64_t j = 0; j < count; j++) {
        largest = fmax(largest, (double)m[j * step] / tau);
    }
    for (int64_t j = 0; j < count; j++) {
        sum += exp((double)m[j * step] / tau - largest);
    }
    return largest + log(sum);
}

double distill_add(const struct distill *d, const struct loss_input *in, struct loss_output *out) {
    const int64_t b = in->batch_count;
    double sum = 0.0;
    scale(out->gradient, b * b, 1.0 - d->weight);
    scale(out->image_gradient, b * b, 1.0 - d->weight);
    scale(out->text_gradient, b * b, 1.0 - d->weight);
    scale(out->carried_gradient, 2 * b, 1.0 - d->weight);
    for (int64_t i = 0; i < b && out->row_values != NULL; i++) {
        const double value = out->row_values[i];
        out->row_values[i] = isnan(value) ? 0.0 : (1.0 - d->weight) * value;
    }
    for (int64_t a = 0; a < 2 * b; a++) {
        const bool image = a < b;
        const int64_t row = image ? a : a - b;
        const int64_t first = image ? row * b : row;
        const int64_t step = image ? 1 : b;
        const double weight = in->weights != NULL ? (double)in->weights[row] : 1.0;
        const double share = 0.5 * weight / (double)b;
        const double log_q = log_sum(d->similarity + first, b, step, d->tau);
        const double log_p = log_sum(d->teacher + first, b, step, d->teacher_tau);
        double divergence = 0.0;
        for (int64_t j = 0; j < b; j++) {
            const int64_t at = first + j * step;
            const double q = (double)d->similarity[at] / d->tau - log_q;
            const double p = (double)d->teacher[at] / d->teacher_tau - log_p;
            divergence += exp(p) * (p - q);
            out->gradient[at] =
                (float)((double)out->gradient[at] + d->weight * share / d->tau * (exp(q) - exp(p)));
        }
        sum += share * divergence;
        if (out->row_values != NULL) {
            out->row_values[row] += d->weight * share * divergence;
        }
    }
    out->value = (1.0 - d->weight) * out->value + d->weight * sum;
    out->objective = (1.0 - d->weight) * out->objective + d->weight * sum;
    return sum;
}
