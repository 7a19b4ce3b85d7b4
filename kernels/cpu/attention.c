/*
 * attention: out = dropout(softmax(q k^T / sqrt Dh)) v for short sequences, one head at a time.
 *
 * Threads take (sample, head) pairs; the data of one head stays in the cache. All products of both
 * directions have one form, rows of `out` as combinations of rows of `b`, so keys and values are
 * transposed once if they are the right factor of a product over Dh:
 *
 *   forward : S = q K^T            P = softmax(S)       out = (P F) v            F: dropout factors
 *   backward: S and P again        dA = (dout V^T) F    dS = P (dA - <P,dA>)
 *             dq = dS k, dk = dS^T q, dv = (P F)^T dout
 *
 * Rows of matrices of scores are `stride` floats apart, the caption's length rounded up to whole
 * vectors. Only addresses depend on T and on the position of a caption, so results for packed and
 * padded captions are bit-identical.
 */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/exp_negative.h"

enum { LANES = 16 };

static inline int64_t whole_lanes(int64_t count) {
    return (count + LANES - 1) & -LANES;
}

/* One matrix product out (M,N) = a (M,K) b (K,N). `a` is read at m * row + k * column. */
struct product {
    float *out;
    const float *a, *b;
    int64_t m, n, k;
    int64_t out_stride, a_row, a_column, b_stride;
};

#define EACH(i, COUNT) _Pragma("GCC unroll 8") for (int i = 0; i < (COUNT); i++)

/* ROWS rows of out at a time, LANES columns in vectors of WIDTH floats: as many as the registers of
 * the TARGET hold. Every sum is over k in order, for all sizes. */
#define DEFINE_PRODUCT(name, TARGET, WIDTH, ROWS)                                                  \
    TARGET static void name(const struct product *p) {                                             \
        /* Unaligned on purpose: rows of qkv begin wherever a head begins. */                      \
        typedef float part                                                                         \
            __attribute__((vector_size(WIDTH * sizeof(float)), aligned(4), may_alias));            \
        enum { PARTS = LANES / WIDTH };                                                            \
        const int64_t whole = p->n / LANES * LANES;                                                \
        for (int64_t m = 0; m < p->m; m += ROWS) {                                                 \
            const float *a[ROWS]; /* beyond the last row: that row */                              \
            EACH(r, ROWS) a[r] = p->a + (m + r < p->m ? m + r : p->m - 1) * p->a_row;              \
            for (int64_t n = 0; n < whole; n += LANES) {                                           \
                part s[ROWS][PARTS];                                                               \
                EACH(r, ROWS) EACH(i, PARTS) s[r][i] = (part){0};                                  \
                for (int64_t k = 0; k < p->k; k++) {                                               \
                    const part *b = (const part *)(p->b + k * p->b_stride + n);                    \
                    EACH(r, ROWS) {                                                                \
                        const float weight = a[r][k * p->a_column];                                \
                        EACH(i, PARTS) s[r][i] += weight * b[i];                                   \
                    }                                                                              \
                }                                                                                  \
                EACH(r, ROWS) {                                                                    \
                    part *to = (part *)(p->out + (m + r) * p->out_stride + n);                     \
                    EACH(i, PARTS) if (m + r < p->m) to[i] = s[r][i];                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int64_t m = 0; m < p->m; m++) {                                                       \
            for (int64_t n = whole; n < p->n; n++) {                                               \
                float sum = 0.0f;                                                                  \
                for (int64_t k = 0; k < p->k; k++) {                                               \
                    sum += p->a[m * p->a_row + k * p->a_column] * p->b[k * p->b_stride + n];       \
                }                                                                                  \
                p->out[m * p->out_stride + n] = sum;                                               \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_PRODUCT(product_128, , 4, 2)
#ifdef __x86_64__
DEFINE_PRODUCT(product_256, __attribute__((target("avx2,fma"))), 8, 4)
DEFINE_PRODUCT(product_512, __attribute__((target("avx512f"))), 16, 8)
#endif

static void product_run(const struct product *p) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        product_512(p);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        product_256(p);
        return;
    }
#endif
    product_128(p);
}

/* out (COLS, STRIDE) = in (ROWS, COLS)^T, zero beyond the last row; in squares, because rows of
 * `in` may be a power of two apart. */
CPU_CLONES static void transpose(float *restrict out,
                                 const float *restrict in,
                                 int64_t rows,
                                 int64_t cols,
                                 int64_t in_stride,
                                 int64_t out_stride) {
    for (int64_t r0 = 0; r0 < out_stride; r0 += LANES) {
        const int64_t r1 = r0 + LANES < rows ? r0 + LANES : rows;
        for (int64_t c0 = 0; c0 < cols; c0 += LANES) {
            const int64_t c1 = c0 + LANES < cols ? c0 + LANES : cols;
            for (int64_t c = c0; c < c1; c++) {
                for (int64_t r = r0; r < r0 + LANES; r++) {
                    out[c * out_stride + r] = r < r1 ? in[r * in_stride + c] : 0.0f;
                }
            }
        }
    }
}

/* 0, from `length` on the lowest number. Without a comparison: GCC would split the loop in two and
 * not vectorise the second. */
static inline float hidden_from(int32_t length, int32_t i) {
    return FLT_MAX * (float)((length - 1 - i) >> 31);
}

/* probs = softmax(scale * scores), in whole lanes, 0 beyond `length`. Returns the log of the sum of
 * e^(scale * scores). */
CPU_CLONES static float
softmax_row(float *restrict probs, const float *restrict scores, float scale, int32_t length) {
    const int32_t end = (int32_t)whole_lanes(length);
    float largest = scores[0];
#pragma omp simd reduction(max : largest)
    for (int32_t i = 0; i < end; i++) {
        const float s = scores[i] + hidden_from(length, i);
        largest = s > largest ? s : largest;
    }
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int32_t i = 0; i < end; i++) {
        const float e = exp_negative(scale * (scores[i] - largest) + hidden_from(length, i));
        probs[i] = e;
        total += e;
    }
    const float inverse = 1.0f / total;
#pragma omp simd
    for (int32_t i = 0; i < end; i++) {
        probs[i] *= inverse;
    }
    return scale * largest + logf(total);
}

/* The same probabilities, given that log; beyond `length` they are not 0. */
CPU_CLONES static void softmax_again(float *restrict probs,
                                     const float *restrict scores,
                                     float scale,
                                     float lse,
                                     int64_t length) {
    const int64_t end = whole_lanes(length);
#pragma omp simd
    for (int64_t i = 0; i < end; i++) {
        probs[i] = exp_negative(scale * scores[i] - lse);
    }
}

/* In: d = dout V^T of one row. Out: d = scale P (d F - <P, d F>), kept = P F. F may be NULL. */
CPU_CLONES static void softmax_bwd_row(float *restrict d,
                                       float *restrict kept,
                                       const float *restrict probs,
                                       const float *factors,
                                       float scale,
                                       int64_t length) {
    float along = 0.0f;
    if (factors != NULL) {
#pragma omp simd reduction(+ : along)
        for (int64_t i = 0; i < length; i++) {
            d[i] *= factors[i];
            kept[i] = probs[i] * factors[i];
            along += probs[i] * d[i];
        }
    } else {
#pragma omp simd reduction(+ : along)
        for (int64_t i = 0; i < length; i++) {
            kept[i] = probs[i];
            along += probs[i] * d[i];
        }
    }
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        d[i] = scale * probs[i] * (d[i] - along);
    }
}

CPU_CLONES static void
multiply_row(float *out, const float *probs, const float *factors, int64_t length) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        out[i] = probs[i] * factors[i];
    }
}

/* One call's geometry, and one thread's buffers. */
struct heads {
    const struct tensor *qkv; /* (R, 3D) */
    float *lse;               /* (N, heads, T) */
    int64_t count, tokens, width, head_width;
    float scale;
    const int32_t *starts, *lengths;
    bool causal;
    bool dropping;
    struct dropout_stream stream;
    uint32_t threshold;
    float kept_scale;
    const uint64_t *sample_ids;
};

struct head_buffers {
    float *right;   /* (Dh, stride) keys or values, transposed */
    float *scores;  /* (length, stride) */
    float *kept;    /* (length, stride) probabilities after dropout */
    float *probs;   /* (length, stride) before dropout */
    float *factors; /* (stride) of one row */
    float *slices;  /* 7 x (length, Dh): q, k, v, out and dq, dk, dv; BF16 only */
};

/* (length, Dh) of one head: in the tensor, or in a buffer. */
struct slice {
    float *data;
    int64_t row; /* floats from row to row */
};

enum { PART_Q, PART_K, PART_V, SLICES = 7, SLICE_OUT = 3, SLICE_GRADIENT = 4 };

static size_t buffers_floats(const struct heads *h) {
    const int64_t stride = whole_lanes(h->tokens);
    return (size_t)(stride * (h->head_width + 3 * h->tokens + 1) +
                    whole_lanes(SLICES * h->tokens * h->head_width));
}

static struct head_buffers buffers_of(const struct heads *h, float *space) {
    const int64_t stride = whole_lanes(h->tokens);
    struct head_buffers b;
    b.right = space;
    b.scores = b.right + h->head_width * stride;
    b.kept = b.scores + h->tokens * stride;
    b.probs = b.kept + h->tokens * stride;
    b.factors = b.probs + h->tokens * stride;
    b.slices = b.factors + stride;
    return b;
}

/* Columns [at, at + Dh) of the rows of caption n in t (R, W), as a place for f32 values: which of
 * the buffer's slices it is if not in place. */
static struct slice
slice_of(const struct heads *h, const struct tensor *t, int64_t n, int64_t at, float *buffer) {
    if (t->dtype == DTYPE_F32) {
        const int64_t width = t->shape[1];
        return (struct slice){(float *)t->data + h->starts[n] * width + at, width};
    }
    return (struct slice){buffer, h->head_width};
}

static struct slice
read_slice(const struct heads *h, const struct tensor *t, int64_t n, int64_t at, float *buffer) {
    const struct slice s = slice_of(h, t, n, at, buffer);
    for (int64_t r = 0; t->dtype == DTYPE_BF16 && r < h->lengths[n]; r++) {
        (void)cpu_read(t, (h->starts[n] + r) * t->shape[1] + at, h->head_width, s.data + r * s.row);
    }
    return s;
}

static void store_slice(const struct heads *h,
                        const struct tensor *t,
                        int64_t n,
                        int64_t at,
                        const struct slice *s) {
    for (int64_t r = 0; t->dtype == DTYPE_BF16 && r < h->lengths[n]; r++) {
        cpu_store(t, (h->starts[n] + r) * t->shape[1] + at, h->head_width, s->data + r * s->row);
    }
}

static float *slice_buffer(const struct heads *h, const struct head_buffers *b, int which) {
    return b->slices + which * h->tokens * h->head_width;
}

/* b->factors = dropout of one row of probabilities. */
static void row_factors(const struct heads *h,
                        const struct head_buffers *b,
                        int64_t n,
                        int64_t head,
                        int64_t query) {
    cpu_dropout_factors(b->factors, &h->stream, h->sample_ids[n],
                        dropout_attention_element(head, query, 0), h->lengths[n], h->threshold,
                        h->kept_scale);
}

/* Keys that a query of a caption of `length` attends to: [0, this). */
static int64_t seen(const struct heads *h, int64_t query, int64_t length) {
    return h->causal ? query + 1 : length;
}

/* b->probs = softmax(q k^T) over the keys that each query attends to, zero beyond. The forward pass
 * writes lse, the backward pass reads it. */
static void make_probs(const struct heads *h,
                       const struct head_buffers *b,
                       const struct slice *q,
                       const struct slice *k,
                       bool forward,
                       int64_t n,
                       int64_t head) {
    const int64_t length = h->lengths[n];
    const int64_t stride = whole_lanes(length);
    float *lse = h->lse + (n * h->count + head) * h->tokens;
    transpose(b->right, k->data, length, h->head_width, k->row, stride);
    product_run(&(struct product){b->scores, q->data, b->right, length, stride, h->head_width,
                                  stride, q->row, 1, stride});
    for (int64_t t = 0; t < length; t++) {
        const int64_t filled = seen(h, t, length);
        float *to = b->probs + t * stride;
        if (forward) {
            lse[t] = softmax_row(to, b->scores + t * stride, h->scale, (int32_t)filled);
        } else {
            softmax_again(to, b->scores + t * stride, h->scale, lse[t], filled);
        }
        memset(to + filled, 0, (size_t)(stride - filled) * sizeof *to);
    }
    if (forward) {
        memset(lse + length, 0, (size_t)(h->tokens - length) * sizeof *lse);
    }
}

static void head_forward(const struct heads *h,
                         const struct head_buffers *b,
                         const struct tensor *out,
                         int64_t n,
                         int64_t head) {
    const int64_t length = h->lengths[n];
    const int64_t stride = whole_lanes(length);
    const int64_t at = head * h->head_width;
    struct slice part[3];
    for (int i = PART_Q; i <= PART_V; i++) {
        part[i] = read_slice(h, h->qkv, n, i * h->width + at, slice_buffer(h, b, i));
    }
    make_probs(h, b, &part[PART_Q], &part[PART_K], true, n, head);
    const float *weights = b->probs;
    if (h->dropping) {
        for (int64_t t = 0; t < length; t++) {
            row_factors(h, b, n, head, t);
            multiply_row(b->kept + t * stride, b->probs + t * stride, b->factors, length);
        }
        weights = b->kept;
    }
    const struct slice to = slice_of(h, out, n, at, slice_buffer(h, b, SLICE_OUT));
    product_run(&(struct product){to.data, weights, part[PART_V].data, length, h->head_width,
                                  length, to.row, stride, 1, part[PART_V].row});
    store_slice(h, out, n, at, &to);
}

static void head_backward(const struct heads *h,
                          const struct head_buffers *b,
                          const struct tensor *dqkv,
                          const struct tensor *dout,
                          int64_t n,
                          int64_t head) {
    const int64_t length = h->lengths[n];
    const int64_t stride = whole_lanes(length);
    const int64_t at = head * h->head_width;
    struct slice part[3];
    struct slice to[3];
    for (int i = PART_Q; i <= PART_V; i++) {
        const int64_t column = i * h->width + at;
        part[i] = read_slice(h, h->qkv, n, column, slice_buffer(h, b, i));
        to[i] = slice_of(h, dqkv, n, column, slice_buffer(h, b, SLICE_GRADIENT + i));
    }
    const struct slice d = read_slice(h, dout, n, at, slice_buffer(h, b, SLICE_OUT));
    make_probs(h, b, &part[PART_Q], &part[PART_K], false, n, head);
    transpose(b->right, part[PART_V].data, length, h->head_width, part[PART_V].row, stride);
    product_run(&(struct product){b->scores, d.data, b->right, length, stride, h->head_width,
                                  stride, d.row, 1, stride});
    for (int64_t t = 0; t < length; t++) {
        if (h->dropping) {
            row_factors(h, b, n, head, t);
        }
        softmax_bwd_row(b->scores + t * stride, b->kept + t * stride, b->probs + t * stride,
                        h->dropping ? b->factors : NULL, h->scale, h->dropping ? length : stride);
    }
    product_run(&(struct product){to[PART_Q].data, b->scores, part[PART_K].data, length,
                                  h->head_width, length, to[PART_Q].row, stride, 1,
                                  part[PART_K].row});
    product_run(&(struct product){to[PART_K].data, b->scores, part[PART_Q].data, length,
                                  h->head_width, length, to[PART_K].row, 1, stride,
                                  part[PART_Q].row});
    product_run(&(struct product){to[PART_V].data, b->kept, d.data, length, h->head_width, length,
                                  to[PART_V].row, 1, stride, d.row});
    for (int i = PART_Q; i <= PART_V; i++) {
        store_slice(h, dqkv, n, i * h->width + at, &to[i]);
    }
}

static struct heads heads_of(const struct attention *op) {
    struct heads h = {.qkv = &op->qkv,
                      .lse = op->lse.data,
                      .count = op->heads,
                      .tokens = op->lse.shape[2],
                      .width = op->out.shape[1],
                      .head_width = op->out.shape[1] / op->heads,
                      .starts = op->segments.starts.data,
                      .lengths = op->segments.lengths.data,
                      .causal = op->causal};
    h.scale = (float)(1.0 / sqrt((double)h.head_width));
    h.dropping = op->dropout.p > 0.0f;
    if (h.dropping) {
        h.sample_ids = op->dropout.sample_ids;
        h.threshold = dropout_threshold(op->dropout.p);
        h.kept_scale = (float)(1.0 / (1.0 - (double)op->dropout.p));
        dropout_stream_init(&h.stream, op->dropout.seed, op->dropout.values->step,
                            op->dropout.layer);
    }
    return h;
}

/* With a dqkv the backward pass: `out` is dout. */
static enum status attention_walk(struct device *dev,
                                  const struct attention *op,
                                  const struct tensor *dqkv,
                                  struct error *err) {
    const struct heads h = heads_of(op);
    const size_t floats = buffers_floats(&h);
    const int64_t tasks = op->lse.shape[0] * h.count;
    void *space = NULL;
    TRY(cpu_workspace(dev, (size_t)omp_get_max_threads() * floats * sizeof(float), &space, err));
#pragma omp parallel
    {
        const size_t thread = (size_t)omp_get_thread_num();
        const struct head_buffers b = buffers_of(&h, (float *)space + thread * floats);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tasks; i++) {
            if (dqkv == NULL) {
                head_forward(&h, &b, &op->out, i / h.count, i % h.count);
            } else {
                head_backward(&h, &b, dqkv, &op->out, i / h.count, i % h.count);
            }
        }
    }
    cpu_clear_other_rows(dqkv != NULL ? dqkv : &op->out, &op->segments);
    return STATUS_OK;
}

enum status cpu_attention(struct device *dev, const struct attention *op, struct error *err) {
    return attention_walk(dev, op, NULL, err);
}

enum status
cpu_attention_bwd(struct device *dev, const struct attention_bwd *op, struct error *err) {
    const struct attention forward = {.out = op->dout,
                                      .lse = op->lse,
                                      .qkv = op->qkv,
                                      .segments = op->segments,
                                      .heads = op->heads,
                                      .causal = op->causal,
                                      .dropout = op->dropout};
    return attention_walk(dev, &forward, &op->dqkv, err);
}
