/*
 * conv_bn: oneDNN's convolution, then batch norm + residual + ReLU in two passes over its output:
 * one for the statistics, one that writes the result. The backward pass mirrors it.
 *
 * As a matrix, pre has M = N OH OW rows and C columns. Statistics are taken in a fixed number of
 * row blocks, in f32 over a few rows and in double over those, and added in order: bit-identical
 * for any number of threads. With a group, one exchange with the other ranks follows in each
 * direction.
 */
#include <math.h>
#include <string.h>

#include "kernels/batch_norm_group.h"
#include "kernels/bf16.h"
#include "kernels/cpu/conv_gradients.h"
#include "kernels/cpu/cpu_internal.h"

enum {
    BLOCKS = 64,
    GROUP = 8,     /* rows summed in f32 before they are added to the double sums */
    COLUMNS = 1024 /* of the f32 sums: they fit into the first-level cache */
};

/* ---- loops, written once for both types and compiled for each ---- */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE float load(const void *p, int64_t i, bool bf16) {
    return bf16 ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* Results of a row are computed in stretches: in place for f32; for bf16 in a buffer that is then
 * rounded, which is faster than a loop that does both. */
enum { STRETCH = 512 };

ALWAYS_INLINE float *target(void *to, int64_t at, float *buffer, bool bf16) {
    return bf16 ? buffer : (float *)to + at;
}

ALWAYS_INLINE void finish(void *to, int64_t at, const float *buffer, int64_t count, bool bf16) {
    if (bf16) {
        cpu_narrow((uint16_t *)to + at, buffer, count);
    }
}

/* One block of rows: its start in every tensor, the number of rows, the channels. */
struct rows {
    void *to, *dresidual;                  /* out or dpre; dresidual may be dout itself */
    const void *x, *residual, *dout, *out; /* x: pre */
    const float *mean, *scale, *beta;      /* by channel; scale: gamma rstd */
    const float *b, *k;                    /* factors of the gradient, by channel */
    double *sums;                          /* two per channel: all first ones, then the others */
    int64_t count, c;
    float floor; /* of the activation: 0 or minus infinity */
};

/* dy of element e in column i: dout where out > floor. by_pre: out was omitted and is recomputed.
 * dout is read either way, so that the loops have no branch. */
ALWAYS_INLINE float
gradient_at(const struct rows *w, int64_t e, int64_t i, bool by_pre, bool bf16) {
    const float d = load(w->dout, e, bf16);
    const float y = by_pre ? (load(w->x, e, bf16) - w->mean[i]) * w->scale[i] + w->beta[i]
                           : load(w->out, e, bf16);
    return y > w->floor ? d : 0.0f;
}

/* x - mean, where mean is any number near x, as squares would cancel where x is far from zero; or
 * dy, which OF_DY_STORED also writes to dresidual. */
enum summand { OF_X, OF_DY, OF_DY_STORED, OF_DY_BY_PRE };

ALWAYS_INLINE float
summand_at(const struct rows *w, enum summand what, int64_t e, int64_t i, bool bf16) {
    return what == OF_X ? load(w->x, e, bf16) - w->mean[i]
                        : gradient_at(w, e, i, what == OF_DY_BY_PRE, bf16);
}

/* sums += the summands and their products with x - mean: of a group of rows first in f32, of the
 * rows after the last group in double. Rows are read one after another, so that the processor
 * prefetches them; a column of 8 rows at a time was slower. */
ALWAYS_INLINE void add_sums(const struct rows *rows, enum summand what, bool bf16) {
    const struct rows w = *rows;
    float first[COLUMNS];
    float second[COLUMNS];
    float buffer[COLUMNS];
    for (int64_t r = 0; r < w.count; r += GROUP) {
        const bool whole = r + GROUP <= w.count;
        const int64_t end = whole ? r + GROUP : w.count;
        for (int64_t from = 0; from < w.c; from += COLUMNS) {
            const int64_t size = w.c - from < COLUMNS ? w.c - from : COLUMNS;
            double *restrict sum = w.sums + from;
            double *restrict products = sum + w.c;
            memset(first, 0, (size_t)size * sizeof *first);
            memset(second, 0, (size_t)size * sizeof *second);
            for (int64_t at = r * w.c + from; at < end * w.c; at += w.c) {
                float *to = what == OF_DY_STORED ? target(w.dresidual, at, buffer, bf16) : buffer;
#pragma omp simd
                for (int64_t i = 0; i < size; i++) {
                    const float a = summand_at(&w, what, at + i, from + i, bf16);
                    const float x = load(w.x, at + i, bf16) - w.mean[from + i];
                    if (whole) {
                        first[i] += a;
                        second[i] += a * x;
                    } else {
                        sum[i] += (double)a;
                        products[i] += (double)a * (double)x;
                    }
                    if (what == OF_DY_STORED) {
                        to[i] = a; /* may be the element of dout that was read */
                    }
                }
                if (what == OF_DY_STORED) {
                    finish(w.dresidual, at, to, size, bf16);
                }
            }
#pragma omp simd
            for (int64_t i = 0; i < size; i++) {
                sum[i] += (double)first[i];
                products[i] += (double)second[i];
            }
        }
    }
}

/* out = act((x - mean) scale + beta + residual). The mean is subtracted first: folded into beta it
 * would cancel if it is large compared with the standard deviation. */
ALWAYS_INLINE void apply(const struct rows *rows, bool bf16) {
    const struct rows w = *rows;
    const int64_t step = bf16 ? STRETCH : w.c;
    float buffer[STRETCH];
    for (int64_t e = 0; e < w.count * w.c; e += w.c) {
        for (int64_t from = 0; from < w.c; from += step) {
            const int64_t size = w.c - from < step ? w.c - from : step;
            const float *mean = w.mean + from;
            const float *scale = w.scale + from;
            const float *beta = w.beta + from;
            const int64_t at = e + from;
            float *to = target(w.to, at, buffer, bf16);
            if (w.residual == NULL) {
#pragma omp simd
                for (int64_t i = 0; i < size; i++) {
                    const float y = (load(w.x, at + i, bf16) - mean[i]) * scale[i] + beta[i];
                    to[i] = y > w.floor ? y : w.floor;
                }
            } else {
#pragma omp simd
                for (int64_t i = 0; i < size; i++) {
                    const float y = (load(w.x, at + i, bf16) - mean[i]) * scale[i] + beta[i] +
                                    load(w.residual, at + i, bf16);
                    to[i] = y > w.floor ? y : w.floor;
                }
            }
            finish(w.to, at, to, size, bf16);
        }
    }
}

/* dx = scale dy + b (x - mean) + k per channel */
ALWAYS_INLINE void apply_gradient(const struct rows *rows, bool by_pre, bool bf16) {
    const struct rows w = *rows;
    const int64_t step = bf16 ? STRETCH : w.c;
    float buffer[STRETCH];
    for (int64_t e = 0; e < w.count * w.c; e += w.c) {
        for (int64_t from = 0; from < w.c; from += step) {
            const int64_t size = w.c - from < step ? w.c - from : step;
            const float *mean = w.mean + from;
            const float *scale = w.scale + from;
            const float *b = w.b + from;
            const float *k = w.k + from;
            const int64_t at = e + from;
            float *to = target(w.to, at, buffer, bf16);
#pragma omp simd
            for (int64_t i = 0; i < size; i++) {
                const float dy = gradient_at(&w, at + i, from + i, by_pre, bf16);
                to[i] = scale[i] * dy + b[i] * (load(w.x, at + i, bf16) - mean[i]) + k[i];
            }
            finish(w.to, at, to, size, bf16);
        }
    }
}

/* A loop for both types: name_by_type[0] for f32, [1] for bf16. */
typedef void rows_function(const struct rows *rows);
#define BOTH_TYPES(name, loop, ...)                                                                \
    CPU_CLONES static void name##_f32(const struct rows *rows) {                                   \
        loop(rows, __VA_ARGS__ false);                                                             \
    }                                                                                              \
    CPU_CLONES static void name##_bf16(const struct rows *rows) {                                  \
        loop(rows, __VA_ARGS__ true);                                                              \
    }                                                                                              \
    static rows_function *const name##_by_type[] = {name##_f32, name##_bf16};
BOTH_TYPES(moments, add_sums, OF_X, )
BOTH_TYPES(gradient_moments, add_sums, OF_DY, )
BOTH_TYPES(gradient_moments_stored, add_sums, OF_DY_STORED, )
BOTH_TYPES(gradient_moments_by_pre, add_sums, OF_DY_BY_PRE, )
BOTH_TYPES(output, apply, )
BOTH_TYPES(gradient, apply_gradient, false, )
BOTH_TYPES(gradient_by_pre, apply_gradient, true, )

/* ---- blocks ---- */

/* Rows [*from, *from + rows) of block b of M. */
static int64_t block_rows(int64_t m, int64_t b, int64_t *from) {
    const int64_t size = (m + BLOCKS - 1) / BLOCKS;
    *from = b * size < m ? b * size : m;
    return m - *from < size ? m - *from : size;
}

/* Row `from` of t; NULL if t is omitted. */
static void *row_of(const struct tensor *t, int64_t from, int64_t c) {
    return tensor_present(t)
               ? (unsigned char *)t->data + (size_t)(from * c) * dtype_size_bytes(t->dtype)
               : NULL;
}

/* Adds the blocks' pairs of column sums in order into those of block 0. */
static void add_blocks(double *sums, int64_t c) {
    for (int64_t b = 1; b < BLOCKS; b++) {
        for (int64_t i = 0; i < 2 * c; i++) {
            sums[i] += sums[b * 2 * c + i];
        }
    }
}

/* Doubles of the sums of all blocks, and then of the group. */
static int64_t sums_doubles(const struct batch_norm_group *group, int64_t c) {
    const int64_t doubles = batch_norm_group_doubles(group, c);
    return doubles > BLOCKS * 2 * c ? doubles : BLOCKS * 2 * c;
}

/* From the sums of pre - pivot and of its squares over this call's rows: mean, biased variance and
 * number of the batch's rows. */
static enum status
find_moments(const struct conv_bn *op, double *sums, const float *pivot, struct error *err) {
    const int64_t c = op->pre.shape[3];
    double *rows = sums + 2 * c;
    *rows = (double)(tensor_count(&op->pre) / c);
    for (int64_t i = 0; i < c; i++) {
        const double shift = sums[i] / *rows;
        sums[i] = (double)pivot[i] + shift;
        sums[c + i] = fmax(sums[c + i] / *rows - shift * shift, 0.0);
    }
    if (op->group == NULL) {
        return STATUS_OK;
    }
    for (int64_t i = c; i < 2 * c; i++) {
        sums[i] *= *rows;
    }
    TRY(batch_norm_group_merge(op->group, sums, c, err));
    for (int64_t i = c; i < 2 * c; i++) {
        sums[i] /= *rows;
    }
    return STATUS_OK;
}

/* mean, rstd and the running statistics from those of the batch. */
static void set_statistics(const struct conv_bn *op, const double *moments) {
    const int64_t c = op->pre.shape[3];
    const double rows = moments[2 * c];
    const double fresh = (double)op->momentum;
    float *rm = op->running_mean.data; /* both NULL: none */
    float *rv = op->running_var.data;
    for (int64_t i = 0; i < c; i++) {
        const double mu = moments[i];
        const double variance = moments[c + i];
        const double unbiased = rows > 1.0 ? variance * rows / (rows - 1.0) : variance;
        ((float *)op->mean.data)[i] = (float)mu;
        ((float *)op->rstd.data)[i] = (float)(1.0 / sqrt(variance + (double)op->eps));
        if (rm != NULL) {
            rm[i] = (float)((1.0 - fresh) * (double)rm[i] + fresh * mu);
            rv[i] = (float)((1.0 - fresh) * (double)rv[i] + fresh * unbiased);
        }
    }
}

/* Column sums of pre - pivot and of its squares into sums (2, c), the first of BLOCKS. */
static void sum_moments(double *sums, const float *pivot, const struct tensor *pre) {
    const int64_t c = pre->shape[3];
    rows_function *const run = moments_by_type[pre->dtype == DTYPE_BF16];
    memset(sums, 0, (size_t)(BLOCKS * 2 * c) * sizeof *sums);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        struct rows w = {.sums = sums + b * 2 * c, .mean = pivot, .c = c};
        w.count = block_rows(tensor_count(pre) / c, b, &from);
        w.x = row_of(pre, from, c);
        run(&w);
    }
    add_blocks(sums, c);
}

static void set_scale(float *scale, const struct tensor *gamma, const struct tensor *rstd) {
    for (int64_t i = 0; i < gamma->shape[0]; i++) {
        scale[i] = ((const float *)gamma->data)[i] * ((const float *)rstd->data)[i];
    }
}

/* `how` holds what all blocks share. */
static void normalise(const struct conv_bn *op, const struct rows *how) {
    rows_function *const run = output_by_type[op->pre.dtype == DTYPE_BF16];
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        struct rows w = *how;
        w.count = block_rows(tensor_count(&op->pre) / w.c, b, &from);
        w.x = row_of(&op->pre, from, w.c);
        w.residual = row_of(&op->residual, from, w.c);
        w.to = row_of(&op->out, from, w.c);
        run(&w);
    }
}

enum status cpu_conv_bn(struct device *dev, const struct conv_bn *op, struct error *err) {
    const struct convolution forward =
        cpu_convolution(CONV_FORWARD, WRITE_SET, &op->pre, &op->in, &op->weight, &op->conv);
    TRY(cpu_convolve(dev, &forward, err));
    const int64_t c = op->pre.shape[3];
    const int64_t doubles = sums_doubles(op->group, c);
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)doubles * sizeof(double) + (size_t)c * sizeof(float), &workspace,
                      err));
    double *sums = workspace;
    float *pivot = (float *)(sums + doubles);
    if (op->training) {
        const float *first = cpu_read(&op->pre, 0, c, pivot);
        memmove(pivot, first, (size_t)c * sizeof *pivot);
        sum_moments(sums, pivot, &op->pre);
        TRY(find_moments(op, sums, pivot, err));
        set_statistics(op, sums);
    } else {
        memcpy(op->mean.data, op->running_mean.data, (size_t)c * sizeof(float));
        for (int64_t i = 0; i < c; i++) {
            const double variance = (double)((const float *)op->running_var.data)[i];
            ((float *)op->rstd.data)[i] = (float)(1.0 / sqrt(variance + (double)op->eps));
        }
    }
    float *scale = workspace;
    set_scale(scale, &op->gamma, &op->rstd);
    const struct rows how = {.mean = op->mean.data,
                             .scale = scale,
                             .beta = op->beta.data,
                             .c = c,
                             .floor = op->conv.act == ACTIVATION_RELU ? 0.0f : -INFINITY};
    normalise(op, &how);
    return STATUS_OK;
}

/* dgamma and dbeta from the sums over this call's rows. */
static void set_vector_gradients(const struct conv_bn_bwd *op, const double *sums) {
    const int64_t c = op->pre.shape[3];
    const bool add = op->param_mode == WRITE_ADD;
    float *dg = op->dgamma.data;
    float *db = op->dbeta.data;
    for (int64_t i = 0; i < c; i++) {
        const double r = (double)((const float *)op->rstd.data)[i];
        dg[i] = (float)(sums[c + i] * r + (add ? (double)dg[i] : 0.0));
        db[i] = (float)(sums[i] + (add ? (double)db[i] : 0.0));
    }
}

/* The factors of dx = scale dy + b (x - mean) + k, from the sums over the batch and its m rows:
 * dx = g r (dy - sum_dy/m - (x - mu) r sum_dy_xhat/m), scale = g r. */
static void set_factors(const struct conv_bn_bwd *op, const double *sums, float *b, float *k) {
    const int64_t c = op->pre.shape[3];
    const double m = sums[2 * c];
    for (int64_t i = 0; i < c; i++) {
        const double r = (double)((const float *)op->rstd.data)[i];
        const double g = (double)((const float *)op->gamma.data)[i];
        const double sum_dy = sums[i];
        const double sum_dy_xhat = sums[c + i] * r;
        b[i] = (float)(-g * r * r * sum_dy_xhat / m);
        k[i] = (float)(-g * r * sum_dy / m);
    }
}

/* One pass over the rows: `run` adds to the sums of its block, or computes `to`. */
static void each_row(const struct conv_bn_bwd *op,
                     const struct rows *how,
                     rows_function *run,
                     double *sums,
                     const struct tensor *to,
                     const struct tensor *dout,
                     const struct tensor *mask) {
    const int64_t c = how->c;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < BLOCKS; b++) {
        int64_t from;
        struct rows w = *how;
        w.count = block_rows(tensor_count(&op->pre) / c, b, &from);
        w.to = row_of(to, from, c);
        w.dresidual = row_of(&op->dresidual, from, c);
        w.dout = row_of(dout, from, c);
        w.out = row_of(mask, from, c);
        w.x = row_of(&op->pre, from, c);
        w.sums = sums + b * 2 * c;
        run(&w);
    }
}

/* Both passes over dout. Each tensor is read as rarely as possible: pre, which is read anyway,
 * gives the mask if there is no activation or `out` was omitted; and dy, once stored as dresidual,
 * serves both passes. */
static enum status backward_batch_norm(const struct conv_bn_bwd *op,
                                       const struct rows *how,
                                       double *sums,
                                       float *b,
                                       float *k,
                                       struct error *err) {
    const bool half = op->pre.dtype == DTYPE_BF16;
    const bool stored = tensor_present(&op->dresidual);
    const bool linear = how->floor < 0.0f;
    const bool by_pre = !linear && !tensor_present(&op->out);
    const struct tensor *mask = linear ? &op->pre : &op->out;
    memset(sums, 0, (size_t)(BLOCKS * 2 * how->c) * sizeof *sums);
    each_row(op, how,
             (stored   ? gradient_moments_stored_by_type
              : by_pre ? gradient_moments_by_pre_by_type
                       : gradient_moments_by_type)[half],
             sums, &op->dpre, &op->dout, mask);
    add_blocks(sums, how->c);
    set_vector_gradients(op, sums);
    sums[2 * how->c] = (double)(tensor_count(&op->pre) / how->c);
    TRY(batch_norm_group_add(op->group, sums, how->c, err));
    set_factors(op, sums, b, k);
    struct rows again = *how;
    again.floor = stored ? -INFINITY : how->floor;
    each_row(op, &again, (by_pre ? gradient_by_pre_by_type : gradient_by_type)[half], sums,
             &op->dpre, stored ? &op->dresidual : &op->dout, stored ? &op->pre : mask);
    return STATUS_OK;
}

enum status cpu_conv_bn_bwd(struct device *dev, const struct conv_bn_bwd *op, struct error *err) {
    const int64_t c = op->pre.shape[3];
    const int64_t doubles = sums_doubles(op->group, c);
    void *workspace;
    TRY(cpu_workspace(dev, (size_t)doubles * sizeof(double) + (size_t)(3 * c) * sizeof(float),
                      &workspace, err));
    double *sums = workspace;
    float *scale = (float *)(sums + doubles);
    float *b = scale + c;
    float *k = b + c;
    set_scale(scale, &op->gamma, &op->rstd);
    const struct rows how = {.mean = op->mean.data,
                             .scale = scale,
                             .beta = op->beta.data,
                             .b = b,
                             .k = k,
                             .c = c,
                             .floor = op->conv.act == ACTIVATION_RELU ? 0.0f : -INFINITY};
    TRY(backward_batch_norm(op, &how, sums, b, k, err));
    const struct convolution by_weight = cpu_convolution(
        CONV_BACKWARD_WEIGHT, op->param_mode, &op->dpre, &op->in, &op->dweight, &op->conv);
    TRY(cpu_convolve(dev, &by_weight, err));
    if (!tensor_present(&op->din)) {
        return STATUS_OK;
    }
    const struct convolution by_data = cpu_convolution(CONV_BACKWARD_DATA, op->din_mode, &op->dpre,
                                                       &op->din, &op->weight, &op->conv);
    return cpu_convolve(dev, &by_data, err);
}
