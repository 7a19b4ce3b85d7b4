/*
 * text: embedding, means over captions and layer norm.
 *
 * Embedding gradients are split by columns, so every element is summed in batch order.
 * Layer norm sums one row, and the rows of one block, in f32, and blocks in double.
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"

void cpu_clear_other_rows(const struct tensor *t, const struct segments *seg) {
    const int32_t *starts = seg->starts.data;
    const int32_t *lengths = seg->lengths.data;
    const size_t row_bytes = tensor_size_bytes(t) / (size_t)t->shape[0];
    unsigned char *data = t->data;
    int64_t end = 0;
    for (int64_t n = 0; n <= seg->starts.shape[0]; n++) {
        const int64_t next = n < seg->starts.shape[0] ? starts[n] : t->shape[0];
        memset(data + (size_t)end * row_bytes, 0, (size_t)(next - end) * row_bytes);
        end = n < seg->starts.shape[0] ? next + lengths[n] : next;
    }
}

/* sum = a + b (b may be NULL, sum may be a) */
CPU_CLONES static void sum_row(float *sum, const float *a, const float *b, int64_t width) {
    if (b == NULL) {
#pragma omp simd
        for (int64_t d = 0; d < width; d++) {
            sum[d] = a[d];
        }
        return;
    }
#pragma omp simd
    for (int64_t d = 0; d < width; d++) {
        sum[d] = a[d] + b[d];
    }
}

/* Row o of out = row i of a + row j of b. */
static void sum_rows(const struct tensor *out,
                     int64_t o,
                     const struct tensor *a,
                     int64_t i,
                     const struct tensor *b,
                     int64_t j) {
    const int64_t width = out->shape[1];
    const int64_t step = cpu_stretch(out, width);
    float left[CPU_STRETCH];
    float right[CPU_STRETCH];
    float total[CPU_STRETCH];
    for (int64_t e = 0; e < width; e += step) {
        const int64_t size = width - e < step ? width - e : step;
        const float *x = cpu_read(a, i * width + e, size, left);
        const float *y = cpu_read(b, j * width + e, size, right);
        float *to = cpu_target(out, o * width + e, total);
        sum_row(to, x, y, size);
        cpu_store(out, o * width + e, size, to);
    }
}

enum status cpu_embedding(struct device *dev, const struct embedding *op, struct error *err) {
    const int32_t *ids = op->tokens.data;
    const int32_t *starts = op->segments.starts.data;
    const int32_t *lengths = op->segments.lengths.data;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < op->segments.starts.shape[0]; n++) {
        for (int64_t t = 0; t < lengths[n]; t++) {
            const int64_t r = starts[n] + t;
            sum_rows(&op->out, r, &op->table, ids[r], &op->positions, t);
        }
    }
    cpu_clear_other_rows(&op->out, &op->segments);
    return STATUS_OK;
}

enum status
cpu_embedding_bwd(struct device *dev, const struct embedding_bwd *op, struct error *err) {
    enum { CHUNK = 32 }; /* columns: whole cache lines of either type */
    const int32_t *ids = op->tokens.data;
    if (op->mode == WRITE_SET) {
        TRY(ids == NULL ? STATUS_OK : cpu_fill(dev, &(struct fill){.out = op->dtable}, err));
        TRY(cpu_fill(dev, &(struct fill){.out = op->dpositions}, err));
    }
    const int32_t *starts = op->segments.starts.data;
    const int32_t *lengths = op->segments.lengths.data;
    const int64_t width = op->dout.shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t d0 = 0; d0 < width; d0 += CHUNK) {
        const int64_t d1 = d0 + CHUNK < width ? d0 + CHUNK : width;
        for (int64_t n = 0; n < op->segments.starts.shape[0]; n++) {
            for (int64_t t = 0; t < lengths[n]; t++) {
                const int64_t r = starts[n] + t;
                float buffer[CHUNK];
                const float *from = cpu_read(&op->dout, r * width + d0, d1 - d0, buffer);
                float *place = (float *)op->dpositions.data + t * width + d0;
                for (int64_t d = 0; d < d1 - d0; d++) {
                    place[d] += from[d];
                }
                float *word = ids != NULL ? (float *)op->dtable.data + ids[r] * width + d0 : NULL;
                for (int64_t d = 0; d < d1 - d0 && word != NULL; d++) {
                    word[d] += from[d];
                }
            }
        }
    }
    return STATUS_OK;
}

CPU_CLONES static void add_row(float *restrict sum, const float *restrict row, int64_t count) {
    for (int64_t d = 0; d < count; d++) {
        sum[d] += row[d];
    }
}

CPU_CLONES static void
scale_row(float *restrict to, const float *restrict from, float scale, int64_t count) {
    for (int64_t d = 0; d < count; d++) {
        to[d] = from[d] * scale;
    }
}

enum status cpu_segment_mean(struct device *dev, const struct segment_mean *op, struct error *err) {
    const int32_t *starts = op->segments.starts.data;
    const int32_t *lengths = op->segments.lengths.data;
    const int64_t width = op->in.shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < op->out.shape[0]; n++) {
        for (int64_t e = 0; e < width; e += CPU_STRETCH) {
            const int64_t size = width - e < CPU_STRETCH ? width - e : CPU_STRETCH;
            float sum[CPU_STRETCH];
            float row[CPU_STRETCH];
            memset(sum, 0, (size_t)size * sizeof *sum);
            for (int64_t t = 0; t < lengths[n]; t++) {
                add_row(sum, cpu_read(&op->in, (starts[n] + t) * width + e, size, row), size);
            }
            float *to = cpu_target(&op->out, n * width + e, row);
            scale_row(to, sum, 1.0f / (float)lengths[n], size);
            cpu_store(&op->out, n * width + e, size, to);
        }
    }
    return STATUS_OK;
}

enum status
cpu_segment_mean_bwd(struct device *dev, const struct segment_mean_bwd *op, struct error *err) {
    const int32_t *starts = op->segments.starts.data;
    const int32_t *lengths = op->segments.lengths.data;
    const int64_t width = op->din.shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < op->dout.shape[0]; n++) {
        for (int64_t e = 0; e < width; e += CPU_STRETCH) {
            const int64_t size = width - e < CPU_STRETCH ? width - e : CPU_STRETCH;
            float share[CPU_STRETCH];
            float row[CPU_STRETCH];
            scale_row(share, cpu_read(&op->dout, n * width + e, size, row),
                      1.0f / (float)lengths[n], size);
            for (int64_t t = 0; t < lengths[n]; t++) {
                const int64_t at = (starts[n] + t) * width + e;
                float *to = cpu_begin(&op->din, at, size, op->mode, row);
                add_row(to, share, size);
                cpu_store(&op->din, at, size, to);
            }
        }
    }
    if (op->mode == WRITE_SET) {
        cpu_clear_other_rows(&op->din, &op->segments);
    }
    return STATUS_OK;
}

/* ---- layer norm ---- */

/* Mean and 1 / std of a row, computed one after the other, so that f32 is precise enough. */
CPU_CLONES static void
row_statistics(const float *sum, int64_t width, float eps, float *mean, float *rstd) {
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t d = 0; d < width; d++) {
        total += sum[d];
    }
    const float m = total / (float)width;
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t d = 0; d < width; d++) {
        const float centred = sum[d] - m;
        squares += centred * centred;
    }
    *mean = m;
    *rstd = (float)(1.0 / sqrt((double)squares / (double)width + (double)eps));
}

CPU_CLONES static void norm_row(float *restrict out,
                                const float *restrict sum,
                                const float *restrict gamma,
                                const float *restrict beta,
                                int64_t width,
                                float mean,
                                float rstd) {
    for (int64_t d = 0; d < width; d++) {
        out[d] = (sum[d] - mean) * rstd * gamma[d] + beta[d];
    }
}

/* One thread's buffers, for rows in BF16. */
static size_t row_floats(int64_t width) {
    return ((size_t)width + 15) / 16 * 16;
}

enum status cpu_layernorm(struct device *dev, const struct layernorm *op, struct error *err) {
    const int64_t width = op->a.shape[1];
    const size_t floats = row_floats(width);
    void *space;
    TRY(cpu_workspace(dev, (size_t)omp_get_max_threads() * 2 * floats * sizeof(float), &space,
                      err));
#pragma omp parallel
    {
        float *left = (float *)space + (size_t)omp_get_thread_num() * 2 * floats;
        float *right = left + floats;
#pragma omp for schedule(static)
        for (int64_t r = 0; r < op->a.shape[0]; r++) {
            const int64_t at = r * width;
            float *m = (float *)op->mean.data + r;
            float *s = (float *)op->rstd.data + r;
            const float *x = cpu_read(&op->a, at, width, left);
            float *total = cpu_target(&op->sum, at, left);
            sum_row(total, x, tensor_present(&op->b) ? cpu_read(&op->b, at, width, right) : NULL,
                    width);
            cpu_store(&op->sum, at, width, total);
            const float *stored = cpu_read(&op->sum, at, width, left);
            row_statistics(stored, width, op->eps, m, s);
            float *to = cpu_target(&op->out, at, right);
            norm_row(to, stored, op->gamma.data, op->beta.data, width, *m, *s);
            cpu_store(&op->out, at, width, to);
        }
    }
    return STATUS_OK;
}

/* One row: adds to the gradients of gamma and beta, and computes dx without the old value. */
CPU_CLONES static void norm_row_gradient(float *restrict dsum,
                                         bool add,
                                         float *restrict dgamma,
                                         float *restrict dbeta,
                                         const float *restrict dout,
                                         const float *restrict sum,
                                         const float *restrict gamma,
                                         int64_t width,
                                         float mean,
                                         float rstd) {
    float mean_g = 0.0f;
    float mean_g_xhat = 0.0f;
#pragma omp simd reduction(+ : mean_g, mean_g_xhat)
    for (int64_t d = 0; d < width; d++) {
        const float xhat = (sum[d] - mean) * rstd;
        const float g = dout[d] * gamma[d];
        dgamma[d] += dout[d] * xhat;
        dbeta[d] += dout[d];
        mean_g += g;
        mean_g_xhat += g * xhat;
    }
    /* dx = rstd (g - mean_g - xhat mean_g_xhat) = g rstd - (sum - mean) slope - level */
    const float slope = rstd * rstd * (mean_g_xhat / (float)width);
    const float level = rstd * (mean_g / (float)width);
    if (add) {
        for (int64_t d = 0; d < width; d++) {
            dsum[d] += dout[d] * gamma[d] * rstd - (sum[d] - mean) * slope - level;
        }
    } else {
        for (int64_t d = 0; d < width; d++) {
            dsum[d] = dout[d] * gamma[d] * rstd - (sum[d] - mean) * slope - level;
        }
    }
}

enum status
cpu_layernorm_bwd(struct device *dev, const struct layernorm_bwd *op, struct error *err) {
    enum { BLOCK_ROWS = 64 };
    const int64_t width = op->sum.shape[1];
    const int64_t rows = op->sum.shape[0];
    const int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const size_t floats = row_floats(width);
    const size_t sums_floats = (size_t)blocks * 2 * floats;
    void *workspace = NULL;
    TRY(cpu_workspace(dev,
                      (sums_floats + (size_t)omp_get_max_threads() * 3 * floats) * sizeof(float),
                      &workspace, err));
    float *sums = workspace;
    const float *mu = op->mean.data;
    const float *s = op->rstd.data;
#pragma omp parallel
    {
        float *buffer = sums + sums_floats + (size_t)omp_get_thread_num() * 3 * floats;
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++) {
            float *mine = sums + (size_t)b * 2 * floats;
            memset(mine, 0, 2 * floats * sizeof *mine);
            for (int64_t r = b * BLOCK_ROWS; r < rows && r < (b + 1) * BLOCK_ROWS; r++) {
                const int64_t at = r * width;
                const float *dy = cpu_read(&op->dout, at, width, buffer);
                const float *x = cpu_read(&op->sum, at, width, buffer + floats);
                float *dx = cpu_target(&op->dsum, at, buffer + 2 * floats);
                if (op->dsum_mode == WRITE_ADD) {
                    (void)cpu_read(&op->dsum, at, width, dx);
                }
                norm_row_gradient(dx, op->dsum_mode == WRITE_ADD, mine, mine + floats, dy, x,
                                  op->gamma.data, width, mu[r], s[r]);
                cpu_store(&op->dsum, at, width, dx);
            }
        }
    }
    float *parts[] = {op->dgamma.data, op->dbeta.data};
    for (int part = 0; part < 2; part++) {
        for (int64_t d = 0; d < width; d++) {
            double total = op->param_mode == WRITE_ADD ? (double)parts[part][d] : 0.0;
            for (int64_t b = 0; b < blocks; b++) {
                total += (double)sums[(size_t)(2 * b + part) * floats + (size_t)d];
            }
            parts[part][d] = (float)total;
        }
    }
    return STATUS_OK;
}
