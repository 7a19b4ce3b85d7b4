/*
 * rows: row moves, L2 normalisation, vector arithmetic, and the optimisers.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

enum status ref_gather_rows(struct device *dev, const struct gather_rows *op, struct error *err) {
    const int32_t *index = op->rows.data;
    const int64_t width = op->in.shape[1];
    for (int64_t i = 0; i < op->out.shape[0]; i++) {
        for (int64_t d = 0; d < width; d++) {
            put(&op->out, i * width + d, get(&op->in, index[i] * width + d));
        }
    }
    return STATUS_OK;
}

enum status ref_scatter_rows(struct device *dev, const struct scatter_rows *op, struct error *err) {
    const int32_t *index = op->rows.data;
    const int64_t width = op->in.shape[1];
    for (int64_t i = 0; i < op->in.shape[0]; i++) {
        for (int64_t d = 0; d < width; d++) {
            put_mode(&op->out, index[i] * width + d, get(&op->in, i * width + d), op->mode);
        }
    }
    return STATUS_OK;
}

static const double smallest_norm = 1e-12;

enum status ref_l2_normalize(struct device *dev, const struct l2_normalize *op, struct error *err) {
    const int64_t width = op->in.shape[1];
    for (int64_t r = 0; r < op->in.shape[0]; r++) {
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            squares += get(&op->in, r * width + d) * get(&op->in, r * width + d);
        }
        put(&op->norm, r, sqrt(squares));
        for (int64_t d = 0; d < width; d++) {
            put(&op->out, r * width + d,
                get(&op->in, r * width + d) / fmax(sqrt(squares), smallest_norm));
        }
    }
    return STATUS_OK;
}

enum status
ref_l2_normalize_bwd(struct device *dev, const struct l2_normalize_bwd *op, struct error *err) {
    const int64_t width = op->out.shape[1];
    for (int64_t r = 0; r < op->out.shape[0]; r++) {
        double along = 0.0;
        for (int64_t d = 0; d < width; d++) {
            along += get(&op->dout, r * width + d) * get(&op->out, r * width + d);
        }
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(&op->din, e,
                (get(&op->dout, e) - along * get(&op->out, e)) /
                    fmax(get(&op->norm, r), smallest_norm));
        }
    }
    return STATUS_OK;
}

enum status ref_add(struct device *dev, const struct add *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    for (int64_t i = 0; i < count; i++) {
        put_mode(&op->out, i, (double)op->alpha * get(&op->in, i), WRITE_ADD);
    }
    return STATUS_OK;
}

enum status ref_sum_squares(struct device *dev, const struct sum_squares *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += get(&op->in, i) * get(&op->in, i);
    }
    *(double *)op->sum.data = sum;
    return STATUS_OK;
}

enum status ref_grad_scale(struct device *dev, const struct grad_scale *op, struct error *err) {
    struct step_values *v = op->values;
    const double norm = sqrt(v->squares[0] + (op->count > 1 ? v->squares[1] : 0.0));
    v->grad_norm = norm;
    v->grad_scale = op->clip_norm > 0.0 && norm > op->clip_norm ? op->clip_norm / norm : 1.0;
    v->sound = isfinite(norm) ? v->sound : 0;
    return STATUS_OK;
}

/* Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2, in PyTorch's form:
 * eps is added to sqrt(v / (1 - beta2^t)). */
enum status ref_adamw(struct device *dev, const struct adamw *op, struct error *err) {
    const struct step_values *now = op->values;
    const double b1 = (double)op->beta1;
    const double b2 = (double)op->beta2;
    const double lr = (double)(float)(now->lr * (double)op->lr_scale);
    const double scale = (double)(float)now->grad_scale;
    const double update = (double)(now->step + 1);
    const double correction1 = 1.0 - pow(b1, update);
    const double correction2 = 1.0 - pow(b2, update);
    const double l2 = op->coupled ? (double)op->weight_decay : 0.0;
    const double keep = op->coupled ? 1.0 : 1.0 - lr * (double)op->weight_decay;
    const int64_t count = now->sound != 0 ? tensor_count(&op->value) : 0;
    for (int64_t i = 0; i < count; i++) {
        const double g = get(&op->grad, i) * scale + l2 * get(&op->value, i);
        const double m_new = b1 * get(&op->m, i) + (1.0 - b1) * g;
        const double v_new = b2 * get(&op->v, i) + (1.0 - b2) * g * g;
        put(&op->m, i, m_new);
        put(&op->v, i, v_new);
        const double decayed = get(&op->value, i) * keep;
        const double step =
            lr * (m_new / correction1) / (sqrt(v_new / correction2) + (double)op->eps);
        put(&op->value, i, decayed - step);
        if (tensor_present(&op->working)) {
            put(&op->working, i, get(&op->value, i));
        }
    }
    return STATUS_OK;
}

enum status ref_sgdm(struct device *dev, const struct sgdm *op, struct error *err) {
    const struct step_values *now = op->values;
    const double momentum = (double)op->momentum;
    const double lr = (double)(float)now->lr;
    const double scale = (double)(float)now->grad_scale;
    const int64_t count = now->sound != 0 ? tensor_count(&op->value) : 0;
    for (int64_t i = 0; i < count; i++) {
        const double g = get(&op->grad, i) * scale + (double)op->weight_decay * get(&op->value, i);
        const double m_new = momentum * get(&op->m, i) + g;
        put(&op->m, i, m_new);
        put(&op->value, i, get(&op->value, i) - lr * (op->nesterov ? g + momentum * m_new : m_new));
        if (tensor_present(&op->working)) {
            put(&op->working, i, get(&op->value, i));
        }
    }
    return STATUS_OK;
}

enum status ref_lars(struct device *dev, const struct lars *op, struct error *err) {
    const struct step_values *now = op->values;
    const double momentum = (double)op->momentum;
    const double decay = (double)op->weight_decay;
    const double lr = (double)(float)now->lr;
    const double scale = (double)(float)now->grad_scale;
    const int64_t count = now->sound != 0 ? tensor_count(&op->value) : 0;
    double values = 0.0;
    double steps = 0.0;
    for (int64_t i = 0; i < count; i++) {
        values += pow(get(&op->value, i), 2.0);
        steps += pow(get(&op->grad, i) * scale + decay * get(&op->value, i), 2.0);
    }
    const double q = values > 0.0 && steps > 0.0 ? (double)op->trust * sqrt(values / steps) : 1.0;
    for (int64_t i = 0; i < count; i++) {
        const double g = get(&op->grad, i) * scale + decay * get(&op->value, i);
        const double m_new = momentum * get(&op->m, i) + q * g;
        put(&op->m, i, m_new);
        put(&op->value, i, get(&op->value, i) - lr * m_new);
        if (tensor_present(&op->working)) {
            put(&op->working, i, get(&op->value, i));
        }
    }
    return STATUS_OK;
}
