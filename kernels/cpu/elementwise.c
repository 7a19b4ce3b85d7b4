/*
 * elementwise: ops that touch each element once: input normalisation, fills, sums, rows,
 * L2 norm, AdamW. Vectorised by the compiler, split over threads in fixed pieces.
 */
#include <math.h>
#include <string.h>

#include "formats/base/image_norm.h"
#include "kernels/bf16.h"
#include "kernels/cpu/cpu_internal.h"

CPU_CLONES static void normalize(float *restrict out,
                                 const uint8_t *restrict in,
                                 int64_t pixels,
                                 const float *scale,
                                 const float *shift) {
    for (int64_t i = 0; i < pixels; i++) {
        for (int c = 0; c < 3; c++) {
            out[3 * i + c] = (float)in[3 * i + c] * scale[c] + shift[c];
        }
    }
}

enum status cpu_normalize_u8(struct device *dev, const struct normalize_u8 *op, struct error *err) {
    float scale[3];
    float shift[3];
    for (int c = 0; c < 3; c++) {
        scale[c] = 1.0f / (255.0f * op->norm->deviation[c]);
        shift[c] = -op->norm->mean[c] / op->norm->deviation[c];
    }
    /* Runs of pixels that are contiguous in both: rows of patches, or whole images. */
    const int64_t side = op->patch;
    const int64_t width = op->in.shape[2];
    const int64_t pixels = side == 1 ? op->in.shape[1] * width : side;
    const int64_t runs = op->in.shape[0] * op->in.shape[1] * width / pixels;
    const int64_t step = cpu_stretch(&op->out, 3 * pixels) / 3;
#pragma omp parallel for schedule(static)
    for (int64_t run = 0; run < runs; run++) {
        float buffer[CPU_STRETCH];
        const int64_t across = side == 1 ? 1 : width / side;
        const int64_t y = run / across; /* of all images below each other */
        const int64_t patch = y / side * across + run % across;
        const int64_t place = side == 1 ? run : patch * side + y % side;
        for (int64_t i = 0; i < pixels; i += step) {
            const int64_t at = 3 * (place * pixels + i);
            const int64_t size = pixels - i < step ? pixels - i : step;
            float *to = cpu_target(&op->out, at, buffer);
            normalize(to, (const uint8_t *)op->in.data + 3 * (run * pixels + i), size, scale,
                      shift);
            cpu_store(&op->out, at, 3 * size, to);
        }
    }
    return STATUS_OK;
}

/* Elements [from, from + size): a piece of a tensor. */
struct piece {
    int64_t from, size;
};

static struct piece piece_of(int64_t p, int64_t count) {
    const int64_t from = p * PARALLEL_MIN_COUNT;
    return (struct piece){from,
                          count - from < PARALLEL_MIN_COUNT ? count - from : PARALLEL_MIN_COUNT};
}

static int64_t pieces_of(int64_t count) {
    return (count + PARALLEL_MIN_COUNT - 1) / PARALLEL_MIN_COUNT;
}

/* For every piece p of `count` elements, on all threads. */
#define PRAGMA(words) _Pragma(#words)
#define FOR_PIECES(p, count)                                                                       \
    PRAGMA(omp parallel for schedule(static) if (pieces_of(count) > 1))                            \
    for (int64_t p = 0; p < pieces_of(count); p++)

CPU_CLONES static void set_floats(float *out, float value, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

CPU_CLONES static void set_halves(uint16_t *out, uint16_t value, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

enum status cpu_fill(struct device *dev, const struct fill *op, struct error *err) {
    const int64_t count = tensor_count(&op->out);
    FOR_PIECES(p, count) {
        const struct piece e = piece_of(p, count);
        if (op->out.dtype == DTYPE_F32) {
            set_floats((float *)op->out.data + e.from, (float)op->value, e.size);
        } else {
            set_halves((uint16_t *)op->out.data + e.from, bf16_from_f32((float)op->value), e.size);
        }
    }
    return STATUS_OK;
}

enum status cpu_cast(struct device *dev, const struct cast *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    FOR_PIECES(p, count) {
        const struct piece e = piece_of(p, count);
        if (op->in.dtype == DTYPE_F32) {
            cpu_narrow((uint16_t *)op->out.data + e.from, (const float *)op->in.data + e.from,
                       e.size);
        } else {
            cpu_widen((float *)op->out.data + e.from, (const uint16_t *)op->in.data + e.from,
                      e.size);
        }
    }
    return STATUS_OK;
}

/* in may be out. */
CPU_CLONES static void add_scaled(float *out, const float *in, int64_t count, float alpha) {
    for (int64_t i = 0; i < count; i++) {
        out[i] += alpha * in[i];
    }
}

/* out[at...] += alpha in[from...], both of one type */
static void add_stretches(const struct tensor *out,
                          int64_t at,
                          const struct tensor *in,
                          int64_t from,
                          int64_t count,
                          float alpha) {
    const int64_t step = cpu_stretch(in, count);
    float old[CPU_STRETCH];
    float added[CPU_STRETCH];
    for (int64_t e = 0; e < count; e += step) {
        const int64_t size = count - e < step ? count - e : step;
        float *to = cpu_begin(out, at + e, size, WRITE_ADD, old);
        add_scaled(to, cpu_read(in, from + e, size, added), size, alpha);
        cpu_store(out, at + e, size, to);
    }
}

void cpu_scale_into(const struct tensor *out,
                    enum write_mode mode,
                    const struct tensor *in,
                    float scale) {
    const int64_t count = tensor_count(in);
    const int64_t step = cpu_stretch(out, PARALLEL_MIN_COUNT);
    FOR_PIECES(p, count) {
        const struct piece whole = piece_of(p, count);
        float buffer[CPU_STRETCH];
        for (int64_t e = whole.from; e < whole.from + whole.size; e += step) {
            const int64_t n =
                whole.from + whole.size - e < step ? whole.from + whole.size - e : step;
            float *to = cpu_begin(out, e, n, mode, buffer);
            add_scaled(to, (const float *)in->data + e, n, scale);
            cpu_store(out, e, n, to);
        }
    }
}

enum status cpu_add(struct device *dev, const struct add *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    FOR_PIECES(p, count) {
        const struct piece e = piece_of(p, count);
        add_stretches(&op->out, e.from, &op->in, e.from, e.size, op->alpha);
    }
    return STATUS_OK;
}

CPU_CLONES static double float_squares(const float *in, int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        sum += (double)in[i] * (double)in[i];
    }
    return sum;
}

static double squares(const struct tensor *in, int64_t from, int64_t count) {
    const int64_t step = cpu_stretch(in, count);
    float buffer[CPU_STRETCH];
    double sum = 0.0;
    for (int64_t e = 0; e < count; e += step) {
        const int64_t size = count - e < step ? count - e : step;
        sum += float_squares(cpu_read(in, from + e, size, buffer), size);
    }
    return sum;
}

/* Pieces have one size for any number of threads, and are added in order: bit-identical. */
enum status cpu_sum_squares(struct device *dev, const struct sum_squares *op, struct error *err) {
    const int64_t count = tensor_count(&op->in);
    const int64_t pieces = pieces_of(count);
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)pieces * sizeof(double), &workspace, err));
    double *sums = workspace;
    FOR_PIECES(p, count) {
        const struct piece e = piece_of(p, count);
        sums[p] = squares(&op->in, e.from, e.size);
    }
    double total = 0.0;
    for (int64_t p = 0; p < pieces; p++) {
        total += sums[p];
    }
    *(double *)op->sum.data = total;
    return STATUS_OK;
}

/* Row r of t, as bytes. */
static void *row_bytes(const struct tensor *t, int64_t r, size_t *size) {
    *size = (size_t)t->shape[1] * dtype_size_bytes(t->dtype);
    return (unsigned char *)t->data + (size_t)r * *size;
}

enum status cpu_gather_rows(struct device *dev, const struct gather_rows *op, struct error *err) {
    const int32_t *index = op->rows.data;
#pragma omp parallel for schedule(static) if (tensor_count(&op->out) > PARALLEL_MIN_COUNT)
    for (int64_t i = 0; i < op->out.shape[0]; i++) {
        size_t size;
        void *to = row_bytes(&op->out, i, &size);
        memcpy(to, row_bytes(&op->in, index[i], &size), size);
    }
    return STATUS_OK;
}

enum status cpu_scatter_rows(struct device *dev, const struct scatter_rows *op, struct error *err) {
    const int64_t width = op->in.shape[1];
    const int32_t *index = op->rows.data;
    for (int64_t i = 0; i < op->in.shape[0]; i++) {
        if (op->mode == WRITE_ADD) {
            add_stretches(&op->out, index[i] * width, &op->in, i * width, width, 1.0f);
        } else {
            size_t size;
            void *to = row_bytes(&op->out, index[i], &size);
            memcpy(to, row_bytes(&op->in, i, &size), size);
        }
    }
    return STATUS_OK;
}

static const double smallest_norm = 1e-12;

enum status cpu_l2_normalize(struct device *dev, const struct l2_normalize *op, struct error *err) {
    const int64_t width = op->in.shape[1];
    const int64_t step = cpu_stretch(&op->in, width);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < op->in.shape[0]; r++) {
        const double length = sqrt(squares(&op->in, r * width, width));
        const float scale = (float)(1.0 / fmax(length, smallest_norm));
        ((float *)op->norm.data)[r] = (float)length;
        float buffer[CPU_STRETCH];
        for (int64_t e = 0; e < width; e += step) {
            const int64_t size = width - e < step ? width - e : step;
            const float *from = cpu_read(&op->in, r * width + e, size, buffer);
            float *to = (float *)op->out.data + r * width + e;
            for (int64_t d = 0; d < size; d++) {
                to[d] = from[d] * scale;
            }
        }
    }
    return STATUS_OK;
}

enum status
cpu_l2_normalize_bwd(struct device *dev, const struct l2_normalize_bwd *op, struct error *err) {
    const int64_t width = op->out.shape[1];
    const int64_t step = cpu_stretch(&op->din, width);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < op->out.shape[0]; r++) {
        const float *y = (const float *)op->out.data + r * width;
        const float *dy = (const float *)op->dout.data + r * width;
        double along = 0.0;
        for (int64_t d = 0; d < width; d++) {
            along += (double)dy[d] * (double)y[d];
        }
        const double scale = 1.0 / fmax((double)((const float *)op->norm.data)[r], smallest_norm);
        float buffer[CPU_STRETCH];
        for (int64_t e = 0; e < width; e += step) {
            const int64_t size = width - e < step ? width - e : step;
            float *dx = cpu_target(&op->din, r * width + e, buffer);
            for (int64_t d = 0; d < size; d++) {
                dx[d] = (float)(((double)dy[e + d] - along * (double)y[e + d]) * scale);
            }
            cpu_store(&op->din, r * width + e, size, dx);
        }
    }
    return STATUS_OK;
}

struct adamw_factors {
    float beta1, beta2, rest1, rest2, eps, grad_scale, l2, keep, rate, root2;
};

CPU_CLONES static void adamw_piece(float *restrict value,
                                   const float *restrict grad,
                                   float *restrict m,
                                   float *restrict v,
                                   int64_t count,
                                   const struct adamw_factors *f) {
    const struct adamw_factors k = *f;
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] * k.grad_scale + k.l2 * value[i];
        m[i] = k.beta1 * m[i] + k.rest1 * g;
        v[i] = k.beta2 * v[i] + k.rest2 * g * g;
        value[i] = value[i] * k.keep - k.rate * m[i] / (sqrtf(v[i]) * k.root2 + k.eps);
    }
}

/* rate = lr / (1 - beta1^t), root2 = 1 / sqrt(1 - beta2^t): bias correction without another
 * division. */
enum status cpu_adamw(struct device *dev, const struct adamw *op, struct error *err) {
    const struct step_values *now = op->values;
    if (now->sound == 0) {
        return STATUS_OK;
    }
    const double lr = (double)(float)(now->lr * (double)op->lr_scale);
    const double update = (double)(now->step + 1);
    const double correction1 = 1.0 - pow((double)op->beta1, update);
    const double correction2 = 1.0 - pow((double)op->beta2, update);
    const struct adamw_factors f = {
        .beta1 = op->beta1,
        .beta2 = op->beta2,
        .rest1 = (float)(1.0 - (double)op->beta1),
        .rest2 = (float)(1.0 - (double)op->beta2),
        .eps = op->eps,
        .grad_scale = (float)now->grad_scale,
        .l2 = op->coupled ? op->weight_decay : 0.0f,
        .keep = op->coupled ? 1.0f : (float)(1.0 - lr * (double)op->weight_decay),
        .rate = (float)(lr / correction1),
        .root2 = (float)(1.0 / sqrt(correction2))};
    const int64_t count = tensor_count(&op->value);
    FOR_PIECES(i, count) {
        const struct piece e = piece_of(i, count);
        adamw_piece((float *)op->value.data + e.from, (const float *)op->grad.data + e.from,
                    (float *)op->m.data + e.from, (float *)op->v.data + e.from, e.size, &f);
        if (tensor_present(&op->working)) {
            cpu_narrow((uint16_t *)op->working.data + e.from,
                       (const float *)op->value.data + e.from, e.size);
        }
    }
    return STATUS_OK;
}

CPU_CLONES static void sgdm_piece(float *restrict value,
                                  const float *restrict grad,
                                  float *restrict m,
                                  int64_t count,
                                  const struct sgdm *op) {
    const float lr = (float)op->values->lr;
    const float scale = (float)op->values->grad_scale;
    const float decay = op->weight_decay;
    const float momentum = op->momentum;
    const float fresh = op->nesterov ? 1.0f : 0.0f; /* value -= lr (fresh g + along m) */
    const float along = op->nesterov ? momentum : 1.0f;
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] * scale + decay * value[i];
        m[i] = momentum * m[i] + g;
        value[i] -= lr * (fresh * g + along * m[i]);
    }
}

enum status cpu_sgdm(struct device *dev, const struct sgdm *op, struct error *err) {
    if (op->values->sound == 0) {
        return STATUS_OK;
    }
    const int64_t count = tensor_count(&op->value);
    FOR_PIECES(i, count) {
        const struct piece e = piece_of(i, count);
        sgdm_piece((float *)op->value.data + e.from, (const float *)op->grad.data + e.from,
                   (float *)op->m.data + e.from, e.size, op);
        if (tensor_present(&op->working)) {
            cpu_narrow((uint16_t *)op->working.data + e.from,
                       (const float *)op->value.data + e.from, e.size);
        }
    }
    return STATUS_OK;
}

/* The step of LARS before its ratio, g = scale grad + decay value. */
struct lars_factors {
    float scale, decay, ratio, momentum, lr;
};

struct lars_squares {
    double value, g;
};

CPU_CLONES static struct lars_squares lars_norms(const float *restrict value,
                                                 const float *restrict grad,
                                                 int64_t count,
                                                 const struct lars_factors *f) {
    const float scale = f->scale;
    const float decay = f->decay;
    double values = 0.0;
    double steps = 0.0;
#pragma omp simd reduction(+ : values, steps)
    for (int64_t i = 0; i < count; i++) {
        const float g = grad[i] * scale + decay * value[i];
        values += (double)value[i] * (double)value[i];
        steps += (double)g * (double)g;
    }
    return (struct lars_squares){values, steps};
}

CPU_CLONES static void lars_piece(float *restrict value,
                                  const float *restrict grad,
                                  float *restrict m,
                                  int64_t count,
                                  const struct lars_factors *f) {
    const struct lars_factors k = *f;
    for (int64_t i = 0; i < count; i++) {
        m[i] = k.momentum * m[i] + k.ratio * (grad[i] * k.scale + k.decay * value[i]);
        value[i] -= k.lr * m[i];
    }
}

enum status cpu_lars(struct device *dev, const struct lars *op, struct error *err) {
    if (op->values->sound == 0) {
        return STATUS_OK;
    }
    const int64_t count = tensor_count(&op->value);
    const int64_t pieces = pieces_of(count);
    float *value = op->value.data;
    const float *grad = op->grad.data;
    struct lars_factors f = {.scale = (float)op->values->grad_scale,
                             .decay = op->weight_decay,
                             .momentum = op->momentum,
                             .lr = (float)op->values->lr};
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)pieces * sizeof(struct lars_squares), &workspace, err));
    struct lars_squares *sums = workspace;
    FOR_PIECES(i, count) {
        const struct piece e = piece_of(i, count);
        sums[i] = lars_norms(value + e.from, grad + e.from, e.size, &f);
    }
    struct lars_squares total = {0.0, 0.0};
    for (int64_t i = 0; i < pieces; i++) {
        total.value += sums[i].value;
        total.g += sums[i].g;
    }
    const bool both = total.value > 0.0 && total.g > 0.0;
    f.ratio = both ? (float)((double)op->trust * sqrt(total.value / total.g)) : 1.0f;
    FOR_PIECES(i, count) {
        const struct piece e = piece_of(i, count);
        lars_piece(value + e.from, grad + e.from, (float *)op->m.data + e.from, e.size, &f);
        if (tensor_present(&op->working)) {
            cpu_narrow((uint16_t *)op->working.data + e.from, value + e.from, e.size);
        }
    }
    return STATUS_OK;
}
