/*
 * text: the operators of a transformer except linear layers: embedding, layer norm, attention,
 * dropout, means over captions.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu_ref/ref_internal.h"
#include "kernels/dropout_mask.h"

static int64_t captions(const struct segments *seg) {
    return seg->starts.shape[0];
}

static int64_t start_of(const struct segments *seg, int64_t n) {
    return ((const int32_t *)seg->starts.data)[n];
}

static int64_t length_of(const struct segments *seg, int64_t n) {
    return ((const int32_t *)seg->lengths.data)[n];
}

/* The caption that row r belongs to, or -1. */
static int64_t caption_of(const struct segments *seg, int64_t r) {
    for (int64_t n = 0; n < captions(seg); n++) {
        if (r >= start_of(seg, n) && r < start_of(seg, n) + length_of(seg, n)) {
            return n;
        }
    }
    return -1;
}

/* Zeros in the rows of t (R,D) outside captions. */
static void clear_other_rows(const struct tensor *t, const struct segments *seg) {
    for (int64_t r = 0; r < t->shape[0]; r++) {
        for (int64_t d = 0; caption_of(seg, r) < 0 && d < t->shape[1]; d++) {
            put(t, r * t->shape[1] + d, 0.0);
        }
    }
}

/* out (R,D) = table[tokens] + positions[position] */
enum status ref_embedding(struct device *dev, const struct embedding *op, struct error *err) {
    const int32_t *ids = op->tokens.data;
    const int64_t width = op->table.shape[1];
    for (int64_t n = 0; n < captions(&op->segments); n++) {
        for (int64_t t = 0; t < length_of(&op->segments, n); t++) {
            const int64_t r = start_of(&op->segments, n) + t;
            for (int64_t d = 0; d < width; d++) {
                put(&op->out, r * width + d,
                    get(&op->table, ids[r] * width + d) + get(&op->positions, t * width + d));
            }
        }
    }
    clear_other_rows(&op->out, &op->segments);
    return STATUS_OK;
}

enum status
ref_embedding_bwd(struct device *dev, const struct embedding_bwd *op, struct error *err) {
    const int32_t *ids = op->tokens.data;
    const int64_t width = op->dout.shape[1];
    if (op->mode == WRITE_SET) {
        TRY(ids == NULL ? STATUS_OK : ref_fill(dev, &(struct fill){.out = op->dtable}, err));
        TRY(ref_fill(dev, &(struct fill){.out = op->dpositions}, err));
    }
    for (int64_t n = 0; n < captions(&op->segments); n++) {
        for (int64_t t = 0; t < length_of(&op->segments, n); t++) {
            const int64_t r = start_of(&op->segments, n) + t;
            for (int64_t d = 0; d < width; d++) {
                const double g = get(&op->dout, r * width + d);
                if (ids != NULL) {
                    put_mode(&op->dtable, ids[r] * width + d, g, WRITE_ADD);
                }
                put_mode(&op->dpositions, t * width + d, g, WRITE_ADD);
            }
        }
    }
    return STATUS_OK;
}

/* sum = a + b; out = (sum - mean) rstd gamma + beta, statistics along a row. */
enum status ref_layernorm(struct device *dev, const struct layernorm *op, struct error *err) {
    const int64_t width = op->a.shape[1];
    for (int64_t r = 0; r < op->a.shape[0]; r++) {
        double total = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(&op->sum, e, get(&op->a, e) + (tensor_present(&op->b) ? get(&op->b, e) : 0.0));
            total += get(&op->sum, e);
        }
        const double m = total / (double)width;
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const double centred = get(&op->sum, r * width + d) - m;
            squares += centred * centred;
        }
        const double s = 1.0 / sqrt(squares / (double)width + (double)op->eps);
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(&op->out, e, (get(&op->sum, e) - m) * s * get(&op->gamma, d) + get(&op->beta, d));
        }
        put(&op->mean, r, m);
        put(&op->rstd, r, s);
    }
    return STATUS_OK;
}

/* With xhat = (sum - mean) rstd and g = dout gamma: dsum = rstd (g - mean(g) - xhat mean(g xhat)).
 */
enum status
ref_layernorm_bwd(struct device *dev, const struct layernorm_bwd *op, struct error *err) {
    const int64_t width = op->sum.shape[1];
    const int64_t rows = op->sum.shape[0];
    for (int64_t d = 0; d < width; d++) {
        double dg = 0.0;
        double db = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t e = r * width + d;
            dg += get(&op->dout, e) * (get(&op->sum, e) - get(&op->mean, r)) * get(&op->rstd, r);
            db += get(&op->dout, e);
        }
        put_mode(&op->dgamma, d, dg, op->param_mode);
        put_mode(&op->dbeta, d, db, op->param_mode);
    }
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0.0;
        double mean_g_xhat = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            const double g = get(&op->dout, e) * get(&op->gamma, d);
            mean_g += g / (double)width;
            mean_g_xhat +=
                g * (get(&op->sum, e) - get(&op->mean, r)) * get(&op->rstd, r) / (double)width;
        }
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            const double xhat = (get(&op->sum, e) - get(&op->mean, r)) * get(&op->rstd, r);
            const double g = get(&op->dout, e) * get(&op->gamma, d);
            put_mode(&op->dsum, e, get(&op->rstd, r) * (g - mean_g - xhat * mean_g_xhat),
                     op->dsum_mode);
        }
    }
    return STATUS_OK;
}

/* One head of one caption: the positions of its rows of q, k, v and lse. */
struct head {
    const struct tensor *qkv, *lse;
    int64_t width, head_width; /* D, Dh */
    int64_t sample, index;
    int64_t start, length;
    bool causal;
    const struct dropout_params *dropout;
    struct dropout_stream stream;
    double scale;
    double *probs;    /* (T) of one query, before dropout; 0 where it does not see */
    double *da;       /* (T) */
    double *gradient; /* (length, 3, Dh), sums of the backward pass */
};

enum { PART_Q, PART_K, PART_V };

/* Keys that a query attends to: [0, this). */
static int64_t seen(const struct head *h, int64_t query) {
    return h->causal ? query + 1 : h->length;
}

static double qkv_at(const struct head *h, int64_t t, int part, int64_t d) {
    const int64_t row = (h->start + t) * 3 + part;
    return get(h->qkv, row * h->width + h->index * h->head_width + d);
}

static int64_t out_place(const struct head *h, int64_t t, int64_t d) {
    return (h->start + t) * h->width + h->index * h->head_width + d;
}

static int64_t lse_place(const struct head *h, int64_t query) {
    return (h->sample * h->lse->shape[1] + h->index) * h->lse->shape[2] + query;
}

/* 0 for a dropped probability, 1/(1-p) for a kept one, 1 without dropout. */
static double kept(const struct head *h, int64_t query, int64_t key) {
    if (h->dropout->p == 0.0f) {
        return 1.0;
    }
    uint32_t draws[4];
    const uint32_t e = dropout_attention_element(h->index, query, key);
    dropout_draw(draws, &h->stream, h->dropout->sample_ids[h->sample], e / 4);
    return draws[e % 4] < dropout_threshold(h->dropout->p) ? 0.0
                                                           : 1.0 / (1.0 - (double)h->dropout->p);
}

static double score(const struct head *h, int64_t query, int64_t key) {
    double sum = 0.0;
    for (int64_t d = 0; d < h->head_width; d++) {
        sum += qkv_at(h, query, PART_Q, d) * qkv_at(h, key, PART_K, d);
    }
    return sum * h->scale;
}

/* h->probs of the query, and the log of their common divisor. */
static double head_softmax(const struct head *h, int64_t query) {
    double largest = -INFINITY;
    for (int64_t key = 0; key < h->length; key++) {
        h->probs[key] = key < seen(h, query) ? score(h, query, key) : (double)-INFINITY;
        largest = fmax(h->probs[key], largest);
    }
    double total = 0.0;
    for (int64_t key = 0; key < h->length; key++) {
        h->probs[key] = exp(h->probs[key] - largest);
        total += h->probs[key];
    }
    for (int64_t key = 0; key < h->length; key++) {
        h->probs[key] /= total;
    }
    return largest + log(total);
}

static void head_forward(const struct head *h, const struct tensor *out) {
    for (int64_t t = h->length; t < h->lse->shape[2]; t++) {
        put(h->lse, lse_place(h, t), 0.0);
    }
    for (int64_t query = 0; query < h->length; query++) {
        put(h->lse, lse_place(h, query), head_softmax(h, query));
        for (int64_t d = 0; d < h->head_width; d++) {
            double sum = 0.0;
            for (int64_t key = 0; key < seen(h, query); key++) {
                sum += h->probs[key] * kept(h, query, key) * qkv_at(h, key, PART_V, d);
            }
            put(out, out_place(h, query, d), sum);
        }
    }
}

static double *gradient_of(const struct head *h, int64_t t, int part, int64_t d) {
    return h->gradient + (t * 3 + part) * h->head_width + d;
}

/* One query's part. da = dP kept; softmax: ds = P (da - sum P da); dq = ds k scale, dk = ds^T q
 * scale, dv = (P kept)^T dout. */
static void query_backward(const struct head *h, int64_t query, const struct tensor *dout) {
    double weighted = 0.0;
    (void)head_softmax(h, query);
    for (int64_t key = 0; key < h->length; key++) {
        double dp = 0.0;
        for (int64_t d = 0; d < h->head_width; d++) {
            dp += get(dout, out_place(h, query, d)) * qkv_at(h, key, PART_V, d);
        }
        h->da[key] = dp * kept(h, query, key);
        weighted += h->probs[key] * h->da[key];
    }
    for (int64_t key = 0; key < h->length; key++) {
        const double p = h->probs[key];
        const double ds = p * (h->da[key] - weighted) * h->scale;
        const double pk = p * kept(h, query, key);
        for (int64_t d = 0; d < h->head_width; d++) {
            *gradient_of(h, query, PART_Q, d) += ds * qkv_at(h, key, PART_K, d);
            *gradient_of(h, key, PART_K, d) += ds * qkv_at(h, query, PART_Q, d);
            *gradient_of(h, key, PART_V, d) += pk * get(dout, out_place(h, query, d));
        }
    }
}

static void
head_backward(const struct head *h, const struct tensor *dqkv, const struct tensor *dout) {
    for (int64_t i = 0; i < h->length * 3 * h->head_width; i++) {
        h->gradient[i] = 0.0;
    }
    for (int64_t query = 0; query < h->length; query++) {
        query_backward(h, query, dout);
    }
    for (int64_t t = 0; t < h->length; t++) {
        for (int part = PART_Q; part <= PART_V; part++) {
            for (int64_t d = 0; d < h->head_width; d++) {
                const int64_t row = (h->start + t) * 3 + part;
                put(dqkv, row * h->width + h->index * h->head_width + d,
                    *gradient_of(h, t, part, d));
            }
        }
    }
}

/* Backward, with a dqkv, `out` is dout. */
static enum status
attention_walk(const struct attention *op, const struct tensor *dqkv, struct error *err) {
    struct head h = {.qkv = &op->qkv,
                     .lse = &op->lse,
                     .width = op->out.shape[1],
                     .head_width = op->out.shape[1] / op->heads,
                     .causal = op->causal,
                     .dropout = &op->dropout};
    h.scale = 1.0 / sqrt((double)h.head_width);
    if (op->dropout.p > 0.0f) {
        dropout_stream_init(&h.stream, op->dropout.seed, op->dropout.values->step,
                            op->dropout.layer);
    }
    const int64_t tokens = op->lse.shape[2];
    h.probs = calloc((size_t)(tokens * (2 + 3 * h.head_width)), sizeof *h.probs);
    TRY_MEMORY(h.probs, err, "attention: no memory for one head");
    h.da = h.probs + tokens;
    h.gradient = h.da + tokens;
    for (h.sample = 0; h.sample < captions(&op->segments); h.sample++) {
        h.start = start_of(&op->segments, h.sample);
        h.length = length_of(&op->segments, h.sample);
        for (h.index = 0; h.index < op->heads; h.index++) {
            if (dqkv != NULL) {
                head_backward(&h, dqkv, &op->out);
            } else {
                head_forward(&h, &op->out);
            }
        }
    }
    free(h.probs);
    clear_other_rows(dqkv != NULL ? dqkv : &op->out, &op->segments);
    return STATUS_OK;
}

enum status ref_attention(struct device *dev, const struct attention *op, struct error *err) {
    return attention_walk(op, NULL, err);
}

enum status
ref_attention_bwd(struct device *dev, const struct attention_bwd *op, struct error *err) {
    const struct attention forward = {.out = op->dout,
                                      .lse = op->lse,
                                      .qkv = op->qkv,
                                      .segments = op->segments,
                                      .heads = op->heads,
                                      .causal = op->causal,
                                      .dropout = op->dropout};
    return attention_walk(&forward, &op->dqkv, err);
}

enum status ref_dropout(struct device *dev, const struct dropout *op, struct error *err) {
    const struct segments *seg = tensor_present(&op->segments.starts) ? &op->segments : NULL;
    struct dropout_stream stream;
    dropout_stream_init(&stream, op->dropout.seed, op->dropout.values->step, op->dropout.layer);
    const uint32_t threshold = dropout_threshold(op->dropout.p);
    const int64_t width = op->in.shape[1];
    for (int64_t r = 0; r < op->in.shape[0]; r++) {
        const int64_t n = seg != NULL ? caption_of(seg, r) : r;
        for (int64_t d = 0; d < width && n >= 0; d++) {
            const int64_t e = (seg != NULL ? r - start_of(seg, n) : 0) * width + d;
            const int64_t i = r * width + d;
            uint32_t draws[4];
            dropout_draw(draws, &stream, op->dropout.sample_ids[n], (uint32_t)(e / 4));
            put(&op->out, i,
                draws[e % 4] < threshold ? 0.0 : get(&op->in, i) / (1.0 - (double)op->dropout.p));
        }
    }
    if (seg != NULL) {
        clear_other_rows(&op->out, seg);
    }
    return STATUS_OK;
}

enum status ref_segment_mean(struct device *dev, const struct segment_mean *op, struct error *err) {
    const int64_t width = op->in.shape[1];
    for (int64_t n = 0; n < captions(&op->segments); n++) {
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;
            for (int64_t t = 0; t < length_of(&op->segments, n); t++) {
                sum += get(&op->in, (start_of(&op->segments, n) + t) * width + d);
            }
            put(&op->out, n * width + d, sum / (double)length_of(&op->segments, n));
        }
    }
    return STATUS_OK;
}

enum status
ref_segment_mean_bwd(struct device *dev, const struct segment_mean_bwd *op, struct error *err) {
    const int64_t width = op->din.shape[1];
    for (int64_t n = 0; n < captions(&op->segments); n++) {
        for (int64_t t = 0; t < length_of(&op->segments, n); t++) {
            for (int64_t d = 0; d < width; d++) {
                put_mode(&op->din, (start_of(&op->segments, n) + t) * width + d,
                         get(&op->dout, n * width + d) / (double)length_of(&op->segments, n),
                         op->mode);
            }
        }
    }
    if (op->mode == WRITE_SET) {
        clear_other_rows(&op->din, &op->segments);
    }
    return STATUS_OK;
}
