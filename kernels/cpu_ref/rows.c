/*
 * rows: row moves, L2 normalisation, vector arithmetic, AdamW and SGD with momentum.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

enum status ref_gather_rows(struct device *dev,
                            const struct tensor *out,
                            const struct tensor *in,
                            const struct tensor *rows,
                            struct error *err) {
    (void)dev;
    TRY(ref_real("gather_rows", in, err));
    TRY(check_rows("gather_rows", out, in, rows, err));
    const int32_t *index = rows->data;
    const int64_t width = in->shape[1];
    for (int64_t i = 0; i < out->shape[0]; i++) {
        for (int64_t d = 0; d < width; d++) {
            put(out, i * width + d, get(in, index[i] * width + d));
        }
    }
    return STATUS_OK;
}

enum status ref_scatter_rows(struct device *dev,
                             const struct tensor *out,
                             enum write_mode mode,
                             const struct tensor *in,
                             const struct tensor *rows,
                             struct error *err) {
    (void)dev;
    TRY(ref_real("scatter_rows", in, err));
    TRY(check_rows("scatter_rows", in, out, rows, err));
    const int32_t *index = rows->data;
    const int64_t width = in->shape[1];
    for (int64_t i = 0; i < in->shape[0]; i++) {
        for (int64_t d = 0; d < width; d++) {
            put_mode(out, index[i] * width + d, get(in, i * width + d), mode);
        }
    }
    return STATUS_OK;
}

static const double smallest_norm = 1e-12;

enum status ref_l2_normalize(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *norm,
                             const struct tensor *in,
                             struct error *err) {
    (void)dev;
    TRY(ref_real("l2_normalize", in, err));
    TRY(check_l2_normalize(out, norm, in, err));
    const int64_t width = in->shape[1];
    for (int64_t r = 0; r < in->shape[0]; r++) {
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            squares += get(in, r * width + d) * get(in, r * width + d);
        }
        put(norm, r, sqrt(squares));
        for (int64_t d = 0; d < width; d++) {
            put(out, r * width + d, get(in, r * width + d) / fmax(sqrt(squares), smallest_norm));
        }
    }
    return STATUS_OK;
}

enum status ref_l2_normalize_bwd(struct device *dev,
                                 const struct tensor *din,
                                 const struct tensor *dout,
                                 const struct tensor *out,
                                 const struct tensor *norm,
                                 struct error *err) {
    (void)dev;
    TRY(ref_real("l2_normalize_bwd", din, err));
    TRY(check_l2_normalize_bwd(din, dout, out, norm, err));
    const int64_t width = out->shape[1];
    for (int64_t r = 0; r < out->shape[0]; r++) {
        double along = 0.0;
        for (int64_t d = 0; d < width; d++) {
            along += get(dout, r * width + d) * get(out, r * width + d);
        }
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(din, e, (get(dout, e) - along * get(out, e)) / fmax(get(norm, r), smallest_norm));
        }
    }
    return STATUS_OK;
}

enum status ref_add(struct device *dev,
                    const struct tensor *out,
                    const struct tensor *in,
                    float alpha,
                    struct error *err) {
    (void)dev;
    TRY(ref_real("add", in, err));
    TRY(check_like("add", "out", out, in, err));
    const int64_t count = tensor_count(in);
    for (int64_t i = 0; i < count; i++) {
        put_mode(out, i, (double)alpha * get(in, i), WRITE_ADD);
    }
    return STATUS_OK;
}

enum status
ref_sum_squares(struct device *dev, double *out, const struct tensor *in, struct error *err) {
    (void)dev;
    TRY(ref_real("sum_squares", in, err));
    const int64_t count = tensor_count(in);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += get(in, i) * get(in, i);
    }
    *out = sum;
    return STATUS_OK;
}

enum status ref_grad_scale(struct device *dev,
                           struct step_values *values,
                           int32_t count,
                           double clip_norm,
                           struct error *err) {
    (void)dev;
    TRY(check_grad_scale(values, count, clip_norm, err));
    const double norm = sqrt(values->squares[0] + (count > 1 ? values->squares[1] : 0.0));
    values->grad_norm = norm;
    values->grad_scale = clip_norm > 0.0 && norm > clip_norm ? clip_norm / norm : 1.0;
    values->sound = isfinite(norm) ? values->sound : 0;
    return STATUS_OK;
}

/* Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2, in PyTorch's form:
 * eps is added to sqrt(v / (1 - beta2^t)). */
enum status ref_adamw(struct device *dev,
                      const struct tensor *value,
                      const struct tensor *working,
                      const struct tensor *grad,
                      const struct tensor *m,
                      const struct tensor *v,
                      const struct adamw_params *p,
                      struct error *err) {
    (void)dev;
    TRY(ref_real("adamw", value, err));
    TRY(check_adamw(value, working, grad, m, v, p, err));
    const struct step_values *now = p->values;
    const double b1 = (double)p->beta1;
    const double b2 = (double)p->beta2;
    const double lr = (double)(float)now->lr;
    const double scale = (double)(float)now->grad_scale;
    const double update = (double)(now->step + 1);
    const double correction1 = 1.0 - pow(b1, update);
    const double correction2 = 1.0 - pow(b2, update);
    const int64_t count = now->sound != 0 ? tensor_count(value) : 0;
    for (int64_t i = 0; i < count; i++) {
        const double g = get(grad, i) * scale;
        const double m_new = b1 * get(m, i) + (1.0 - b1) * g;
        const double v_new = b2 * get(v, i) + (1.0 - b2) * g * g;
        put(m, i, m_new);
        put(v, i, v_new);
        const double decayed = get(value, i) * (1.0 - lr * (double)p->weight_decay);
        const double step =
            lr * (m_new / correction1) / (sqrt(v_new / correction2) + (double)p->eps);
        put(value, i, decayed - step);
        if (tensor_wanted(working)) {
            put(working, i, get(value, i));
        }
    }
    return STATUS_OK;
}

enum status ref_sgdm(struct device *dev,
                     const struct tensor *value,
                     const struct tensor *working,
                     const struct tensor *grad,
                     const struct tensor *m,
                     const struct sgdm_params *p,
                     struct error *err) {
    (void)dev;
    TRY(ref_real("sgdm", value, err));
    TRY(check_sgdm(value, working, grad, m, p, err));
    const struct step_values *now = p->values;
    const double momentum = (double)p->momentum;
    const double lr = (double)(float)now->lr;
    const double scale = (double)(float)now->grad_scale;
    const int64_t count = now->sound != 0 ? tensor_count(value) : 0;
    for (int64_t i = 0; i < count; i++) {
        const double g = get(grad, i) * scale + (double)p->weight_decay * get(value, i);
        const double m_new = momentum * get(m, i) + g;
        put(m, i, m_new);
        put(value, i, get(value, i) - lr * (p->nesterov ? g + momentum * m_new : m_new));
        if (tensor_wanted(working)) {
            put(working, i, get(value, i));
        }
    }
    return STATUS_OK;
}
