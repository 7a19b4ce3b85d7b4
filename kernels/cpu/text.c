/*
 * text: embedding, means over captions and layer norm.
 *
 * Embedding gradients are split by columns, so that every element is added to in the order of the
 * batch. Layer norm takes the statistics of a row in double; its gradient sums one row, and the
 * rows of one block, in f32, and blocks in double.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"

void cpu_clear_other_rows(const struct tensor *t, const struct segments *seg) {
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    const size_t row_bytes = tensor_size_bytes(t) / (size_t)t->shape[0];
    unsigned char *data = t->data;
    int64_t end = 0;
    for (int64_t n = 0; n <= seg->starts->shape[0]; n++) {
        const int64_t next = n < seg->starts->shape[0] ? starts[n] : t->shape[0];
        memset(data + (size_t)end * row_bytes, 0, (size_t)(next - end) * row_bytes);
        end = n < seg->starts->shape[0] ? next + lengths[n] : next;
    }
}

enum status cpu_embedding(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *tokens,
                          const struct segments *seg,
                          const struct tensor *table,
                          const struct tensor *positions,
                          struct error *err) {
    (void)dev;
    TRY(cpu_real("embedding", table, err));
    TRY(check_embedding(out, tokens, seg, table, positions, err));
    TRY(check_token_values("embedding", tokens, seg, table->shape[0], positions->shape[0], err));
    const int32_t *ids = tokens->data;
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    const int64_t width = table->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < seg->starts->shape[0]; n++) {
        for (int64_t t = 0; t < lengths[n]; t++) {
            const int64_t r = starts[n] + t;
            const float *word = (const float *)table->data + ids[r] * width;
            const float *place = (const float *)positions->data + t * width;
            float *to = (float *)out->data + r * width;
            for (int64_t d = 0; d < width; d++) {
                to[d] = word[d] + place[d];
            }
        }
    }
    cpu_clear_other_rows(out, seg);
    return STATUS_OK;
}

enum status cpu_embedding_bwd(struct device *dev,
                              const struct tensor *dtable,
                              const struct tensor *dpositions,
                              enum write_mode mode,
                              const struct tensor *dout,
                              const struct tensor *tokens,
                              const struct segments *seg,
                              struct error *err) {
    enum { CHUNK = 16 }; /* columns: one cache line */
    TRY(cpu_real("embedding_bwd", dout, err));
    TRY(check_embedding_bwd(dtable, dpositions, dout, tokens, seg, err));
    TRY(check_token_values("embedding_bwd", tokens, seg, dtable->shape[0], dpositions->shape[0],
                           err));
    if (mode == WRITE_SET) {
        TRY(cpu_fill(dev, dtable, 0.0, err));
        TRY(cpu_fill(dev, dpositions, 0.0, err));
    }
    const int32_t *ids = tokens->data;
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    const int64_t width = dtable->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t d0 = 0; d0 < width; d0 += CHUNK) {
        const int64_t d1 = d0 + CHUNK < width ? d0 + CHUNK : width;
        for (int64_t n = 0; n < seg->starts->shape[0]; n++) {
            for (int64_t t = 0; t < lengths[n]; t++) {
                const int64_t r = starts[n] + t;
                const float *from = (const float *)dout->data + r * width;
                float *word = (float *)dtable->data + ids[r] * width;
                float *place = (float *)dpositions->data + t * width;
                for (int64_t d = d0; d < d1; d++) {
                    word[d] += from[d];
                    place[d] += from[d];
                }
            }
        }
    }
    return STATUS_OK;
}

enum status cpu_segment_mean(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const struct segments *seg,
                             struct error *err) {
    (void)dev;
    TRY(cpu_real("segment_mean", in, err));
    TRY(check_segment_mean(out, in, seg, err));
    TRY(check_segment_values("segment_mean", seg, in->shape[0], in->shape[0], err));
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    const int64_t width = in->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < out->shape[0]; n++) {
        const float *from = (const float *)in->data + starts[n] * width;
        float *to = (float *)out->data + n * width;
        const float share = 1.0f / (float)lengths[n];
        memcpy(to, from, (size_t)width * sizeof *to);
        for (int64_t t = 1; t < lengths[n]; t++) {
            for (int64_t d = 0; d < width; d++) {
                to[d] += from[t * width + d];
            }
        }
        for (int64_t d = 0; d < width; d++) {
            to[d] *= share;
        }
    }
    return STATUS_OK;
}

enum status cpu_segment_mean_bwd(struct device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dout,
                                 const struct segments *seg,
                                 struct error *err) {
    (void)dev;
    TRY(cpu_real("segment_mean_bwd", dout, err));
    TRY(check_segment_mean(dout, din, seg, err));
    TRY(check_segment_values("segment_mean_bwd", seg, din->shape[0], din->shape[0], err));
    const int32_t *starts = seg->starts->data;
    const int32_t *lengths = seg->lengths->data;
    const int64_t width = din->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < dout->shape[0]; n++) {
        const float *from = (const float *)dout->data + n * width;
        const float share = 1.0f / (float)lengths[n];
        for (int64_t t = 0; t < lengths[n]; t++) {
            float *to = (float *)din->data + (starts[n] + t) * width;
            for (int64_t d = 0; d < width; d++) {
                to[d] = (mode == WRITE_ADD ? to[d] : 0.0f) + from[d] * share;
            }
        }
    }
    if (mode == WRITE_SET) {
        cpu_clear_other_rows(din, seg);
    }
    return STATUS_OK;
}

/* ---- layer norm ---- */

/* sum = a + b, and its mean and 1 / deviation. */
CPU_CLONES static void row_statistics(float *sum,
                                      const float *a,
                                      const float *b,
                                      int64_t width,
                                      float eps,
                                      float *mean,
                                      float *rstd) {
    double total = 0.0;
    if (b != NULL) {
#pragma omp simd reduction(+ : total)
        for (int64_t d = 0; d < width; d++) {
            const float x = a[d] + b[d];
            sum[d] = x;
            total += (double)x;
        }
    } else {
#pragma omp simd reduction(+ : total)
        for (int64_t d = 0; d < width; d++) {
            sum[d] = a[d];
            total += (double)a[d];
        }
    }
    const double m = total / (double)width;
    double squares = 0.0;
#pragma omp simd reduction(+ : squares)
    for (int64_t d = 0; d < width; d++) {
        const double centred = (double)sum[d] - m;
        squares += centred * centred;
    }
    *mean = (float)m;
    *rstd = (float)(1.0 / sqrt(squares / (double)width + (double)eps));
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

enum status cpu_layernorm(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *sum,
                          const struct tensor *mean,
                          const struct tensor *rstd,
                          const struct tensor *a,
                          const struct tensor *b,
                          const struct tensor *gamma,
                          const struct tensor *beta,
                          float eps,
                          struct error *err) {
    (void)dev;
    TRY(cpu_real("layernorm", a, err));
    TRY(check_layernorm(out, sum, mean, rstd, a, b, gamma, beta, err));
    const int64_t width = a->shape[1];
    const float *second = tensor_wanted(b) ? b->data : NULL;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < a->shape[0]; r++) {
        float *x = (float *)sum->data + r * width;
        float *m = (float *)mean->data + r;
        float *s = (float *)rstd->data + r;
        row_statistics(x, (const float *)a->data + r * width,
                       second != NULL ? second + r * width : NULL, width, eps, m, s);
        norm_row((float *)out->data + r * width, x, gamma->data, beta->data, width, *m, *s);
    }
    return STATUS_OK;
}

CPU_CLONES static void norm_row_gradient(float *restrict dsum,
                                         bool add,
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
        const float g = dout[d] * gamma[d];
        mean_g += g;
        mean_g_xhat += g * ((sum[d] - mean) * rstd);
    }
    mean_g /= (float)width;
    mean_g_xhat /= (float)width;
    for (int64_t d = 0; d < width; d++) {
        const float xhat = (sum[d] - mean) * rstd;
        const float dx = rstd * (dout[d] * gamma[d] - mean_g - xhat * mean_g_xhat);
        dsum[d] = (add ? dsum[d] : 0.0f) + dx;
    }
}

CPU_CLONES static void norm_columns(float *restrict dgamma,
                                    float *restrict dbeta,
                                    const float *restrict dout,
                                    const float *restrict sum,
                                    int64_t width,
                                    float mean,
                                    float rstd) {
    for (int64_t d = 0; d < width; d++) {
        dgamma[d] += dout[d] * ((sum[d] - mean) * rstd);
        dbeta[d] += dout[d];
    }
}

enum status cpu_layernorm_bwd(struct device *dev,
                              const struct tensor *dsum,
                              enum write_mode dsum_mode,
                              const struct tensor *dgamma,
                              const struct tensor *dbeta,
                              enum write_mode param_mode,
                              const struct tensor *dout,
                              const struct tensor *sum,
                              const struct tensor *mean,
                              const struct tensor *rstd,
                              const struct tensor *gamma,
                              struct error *err) {
    enum { BLOCK_ROWS = 64 };
    TRY(cpu_real("layernorm_bwd", sum, err));
    TRY(check_layernorm_bwd(dsum, dgamma, dbeta, dout, sum, mean, rstd, gamma, err));
    const int64_t width = sum->shape[1];
    const int64_t rows = sum->shape[0];
    const int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    void *scratch = NULL;
    TRY(cpu_scratch(dev, (size_t)(blocks * 2 * width) * sizeof(float), &scratch, err));
    float *sums = scratch;
    const float *dy = dout->data;
    const float *x = sum->data;
    const float *mu = mean->data;
    const float *s = rstd->data;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        float *mine = sums + b * 2 * width;
        memset(mine, 0, (size_t)(2 * width) * sizeof *mine);
        for (int64_t r = b * BLOCK_ROWS; r < rows && r < (b + 1) * BLOCK_ROWS; r++) {
            const int64_t at = r * width;
            norm_columns(mine, mine + width, dy + at, x + at, width, mu[r], s[r]);
            norm_row_gradient((float *)dsum->data + at, dsum_mode == WRITE_ADD, dy + at, x + at,
                              gamma->data, width, mu[r], s[r]);
        }
    }
    float *parts[] = {dgamma->data, dbeta->data};
    for (int part = 0; part < 2; part++) {
        for (int64_t d = 0; d < width; d++) {
            double total = param_mode == WRITE_ADD ? (double)parts[part][d] : 0.0;
            for (int64_t b = 0; b < blocks; b++) {
                total += (double)sums[b * 2 * width + part * width + d];
            }
            parts[part][d] = (float)total;
        }
    }
    return STATUS_OK;
}
