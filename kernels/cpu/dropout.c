/*
 * dropout: the mask of kernels/dropout_mask.h, sixteen Philox blocks at a time. One block is a
 * chain of dependent multiplications; blocks are independent, so they fill a vector.
 */
#include "kernels/cpu/cpu_internal.h"

enum {
    LANES = 16,
    ROUNDS = 10,
    FEW = 16 /* elements that are quicker one block at a time */
};

/* rng_block of formats/base/rng.h for counters (first + lane, low, high, tweak), shifted as
 * dropout_draw does. */
CPU_CLONES static void
draw_lanes(uint32_t *restrict out, const struct dropout_stream *s, uint64_t id, uint32_t first) {
    uint32_t words[4][LANES];
    for (uint32_t l = 0; l < LANES; l++) {
        uint32_t c0 = first + l;
        uint32_t c1 = (uint32_t)id;
        uint32_t c2 = (uint32_t)(id >> 32);
        uint32_t c3 = s->tweak;
        uint32_t k0 = s->key[0];
        uint32_t k1 = s->key[1];
#pragma GCC unroll 10
        for (int i = 0; i < ROUNDS; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[0][l] = c0 >> 8;
        words[1][l] = c1 >> 8;
        words[2][l] = c2 >> 8;
        words[3][l] = c3 >> 8;
    }
    for (int l = 0; l < LANES; l++) {
        for (int w = 0; w < 4; w++) {
            out[4 * l + w] = words[w][l];
        }
    }
}

void cpu_dropout_factors(float *factors,
                         const struct dropout_stream *s,
                         uint64_t sample_id,
                         uint32_t first_element,
                         int64_t count,
                         uint32_t threshold,
                         float kept) {
    uint32_t draws[4 * LANES];
    for (int64_t from = 0; from < count; from += 4 * LANES) {
        const int64_t size = count - from < 4 * LANES ? count - from : 4 * LANES;
        const uint32_t block = (first_element + (uint32_t)from) / 4;
        if (size > FEW) {
            draw_lanes(draws, s, sample_id, block);
        } else {
            for (uint32_t b = 0; 4 * b < (uint32_t)size; b++) {
                dropout_draw(draws + 4 * b, s, sample_id, block + b);
            }
        }
        for (int64_t i = 0; i < size; i++) {
            factors[from + i] = draws[i] < threshold ? 0.0f : kept;
        }
    }
}

CPU_CLONES static void
multiply(float *out, const float *in, const float *restrict factors, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        /* selected, not multiplied: a dropped element is zero even if it was NaN */
        const float v = in[i] * factors[i];
        out[i] = factors[i] > 0.0f ? v : 0.0f;
    }
}

/* `size` elements of sample n from `at`, numbered from 0. */
static void mask_sample(const struct tensor *out,
                        const struct tensor *in,
                        int64_t at,
                        int64_t size,
                        const struct dropout_stream *stream,
                        uint64_t sample_id,
                        const struct dropout_params *p) {
    const uint32_t threshold = dropout_threshold(p->p);
    const float scale = 1.0f / (1.0f - p->p);
    float factors[CPU_STRETCH];
    float values[CPU_STRETCH];
    for (int64_t e = 0; e < size; e += CPU_STRETCH) {
        const int64_t count = size - e < CPU_STRETCH ? size - e : CPU_STRETCH;
        cpu_dropout_factors(factors, stream, sample_id, (uint32_t)e, count, threshold, scale);
        const float *from = cpu_read(in, at + e, count, values);
        float *to = cpu_target(out, at + e, values);
        multiply(to, from, factors, count);
        cpu_store(out, at + e, count, to);
    }
}

enum status cpu_dropout(struct device *dev, const struct dropout *op, struct error *err) {
    const bool captions = tensor_present(&op->segments.starts);
    struct dropout_stream stream;
    dropout_stream_init(&stream, op->dropout.seed, op->dropout.values->step, op->dropout.layer);
    const int64_t width = op->in.shape[1];
    const int64_t samples = captions ? op->segments.starts.shape[0] : op->in.shape[0];
    const int32_t *starts = op->segments.starts.data;
    const int32_t *lengths = op->segments.lengths.data;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < samples; n++) {
        const int64_t at = (captions ? starts[n] : n) * width;
        const int64_t rows = captions ? lengths[n] : 1;
        mask_sample(&op->out, &op->in, at, rows * width, &stream, op->dropout.sample_ids[n],
                    &op->dropout);
    }
    if (captions) {
        cpu_clear_other_rows(&op->out, &op->segments);
    }
    return STATUS_OK;
}
