/*
 * text: what a transformer needs beside linear layers: embedding, layer norm, attention, dropout,
 * means over captions.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu_ref/ref_internal.h"
#include "kernels/dropout_mask.h"

static int64_t captions(const struct segments *seg) {
    return seg->starts->shape[0];
}

static int64_t start_of(const struct segments *seg, int64_t n) {
    return ((const int32_t *)seg->starts->data)[n];
}

static int64_t length_of(const struct segments *seg, int64_t n) {
    return ((const int32_t *)seg->lengths->data)[n];
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

/* Zeros in the rows of t (R,D) that belong to no caption. */
static void clear_other_rows(const struct tensor *t, const struct segments *seg) {
    for (int64_t r = 0; r < t->shape[0]; r++) {
        for (int64_t d = 0; caption_of(seg, r) < 0 && d < t->shape[1]; d++) {
            put(t, r * t->shape[1] + d, 0.0);
        }
    }
}

/* out (R,D) = table[tokens] + positions[position] */
enum status ref_embedding(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *tokens,
                          const struct segments *seg,
                          const struct tensor *table,
                          const struct tensor *positions,
                          struct error *err) {
    (void)dev;
    TRY(ref_real("embedding", table, err));
    TRY(check_embedding(out, tokens, seg, table, positions, err));
    TRY(check_token_values("embedding", tokens, seg, table->shape[0], positions->shape[0], err));
    const int32_t *ids = tokens->data;
    const int64_t width = table->shape[1];
    for (int64_t n = 0; n < captions(seg); n++) {
        for (int64_t t = 0; t < length_of(seg, n); t++) {
            const int64_t r = start_of(seg, n) + t;
            for (int64_t d = 0; d < width; d++) {
                put(out, r * width + d,
                    get(table, ids[r] * width + d) + get(positions, t * width + d));
            }
        }
    }
    clear_other_rows(out, seg);
    return STATUS_OK;
}

enum status ref_embedding_bwd(struct device *dev,
                              const struct tensor *dtable,
                              const struct tensor *dpositions,
                              enum write_mode mode,
                              const struct tensor *dout,
                              const struct tensor *tokens,
                              const struct segments *seg,
                              struct error *err) {
    (void)dev;
    TRY(ref_real("embedding_bwd", dout, err));
    TRY(check_embedding_bwd(dtable, dpositions, dout, tokens, seg, err));
    TRY(check_token_values("embedding_bwd", tokens, seg, dtable->shape[0], dpositions->shape[0],
                           err));
    if (mode == WRITE_SET) {
        TRY(ref_fill(dev, dtable, 0.0, err));
        TRY(ref_fill(dev, dpositions, 0.0, err));
    }
    const int32_t *ids = tokens->data;
    const int64_t width = dtable->shape[1];
    for (int64_t n = 0; n < captions(seg); n++) {
        for (int64_t t = 0; t < length_of(seg, n); t++) {
            const int64_t r = start_of(seg, n) + t;
            for (int64_t d = 0; d < width; d++) {
                const double g = get(dout, r * width + d);
                put_mode(dtable, ids[r] * width + d, g, WRITE_ADD);
                put_mode(dpositions, t * width + d, g, WRITE_ADD);
            }
        }
    }
    return STATUS_OK;
}

/* sum = a + b; out = (sum - mean) rstd gamma + beta, statistics along a row. */
enum status ref_layernorm(struct device *dev,
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
    TRY(ref_real("layernorm", a, err));
    TRY(check_layernorm(out, sum, mean, rstd, a, b, gamma, beta, err));
    const int64_t width = a->shape[1];
    for (int64_t r = 0; r < a->shape[0]; r++) {
        double total = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(sum, e, get(a, e) + (tensor_wanted(b) ? get(b, e) : 0.0));
            total += get(sum, e);
        }
        const double m = total / (double)width;
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const double centred = get(sum, r * width + d) - m;
            squares += centred * centred;
        }
        const double s = 1.0 / sqrt(squares / (double)width + (double)eps);
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            put(out, e, (get(sum, e) - m) * s * get(gamma, d) + get(beta, d));
        }
        put(mean, r, m);
        put(rstd, r, s);
    }
    return STATUS_OK;
}

/* With xhat = (sum - mean) rstd and g = dout gamma: dsum = rstd (g - mean(g) - xhat mean(g xhat)).
 */
enum status ref_layernorm_bwd(struct device *dev,
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
    (void)dev;
    TRY(ref_real("layernorm_bwd", sum, err));
    TRY(check_layernorm_bwd(dsum, dgamma, dbeta, dout, sum, mean, rstd, gamma, err));
    const int64_t width = sum->shape[1];
    const int64_t rows = sum->shape[0];
    for (int64_t d = 0; d < width; d++) {
        double dg = 0.0;
        double db = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            const int64_t e = r * width + d;
            dg += get(dout, e) * (get(sum, e) - get(mean, r)) * get(rstd, r);
            db += get(dout, e);
        }
        put_mode(dgamma, d, dg, param_mode);
        put_mode(dbeta, d, db, param_mode);
    }
    for (int64_t r = 0; r < rows; r++) {
        double mean_g = 0.0;
        double mean_g_xhat = 0.0;
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            const double g = get(dout, e) * get(gamma, d);
            mean_g += g / (double)width;
            mean_g_xhat += g * (get(sum, e) - get(mean, r)) * get(rstd, r) / (double)width;
        }
        for (int64_t d = 0; d < width; d++) {
            const int64_t e = r * width + d;
            const double xhat = (get(sum, e) - get(mean, r)) * get(rstd, r);
            const double g = get(dout, e) * get(gamma, d);
            put_mode(dsum, e, get(rstd, r) * (g - mean_g - xhat * mean_g_xhat), dsum_mode);
        }
    }
    return STATUS_OK;
}

/* One head of one caption: where its rows of q, k, v and its probabilities lie. */
struct head {
    const struct tensor *qkv, *probs;
    int64_t width, head_width; /* D, Dh */
    int64_t sample, index;
    int64_t start, length;
    const struct dropout_params *dropout; /* NULL: none */
    struct dropout_stream stream;
    double scale;
    double *gradient; /* (length, 3, Dh), sums of the backward pass */
};

enum { PART_Q, PART_K, PART_V };

static double qkv_at(const struct head *h, int64_t t, int part, int64_t d) {
    const int64_t row = (h->start + t) * 3 + part;
    return get(h->qkv, row * h->width + h->index * h->head_width + d);
}

static int64_t out_place(const struct head *h, int64_t t, int64_t d) {
    return (h->start + t) * h->width + h->index * h->head_width + d;
}

static int64_t prob_place(const struct head *h, int64_t query, int64_t key) {
    return at4(h->probs, h->sample, h->index, query, key);
}

/* 0 for a dropped probability, 1/(1-p) for a kept one, 1 without dropout. */
static double kept(const struct head *h, int64_t query, int64_t key) {
    if (h->dropout == NULL || h->dropout->p == 0.0f) {
        return 1.0;
    }
    uint32_t draws[4];
    const uint32_t e = dropout_attention_element(h->index, query, key);
    dropout_draw(draws, &h->stream, h->dropout->sample_ids[h->sample], e / 4);
    return draws[e % 4] < dropout_threshold(h->dropout->p) ? 0.0
                                                           : 1.0 / (1.0 - (double)h->dropout->p);
}

static void head_softmax(const struct head *h, int64_t query) {
    double scores[DROPOUT_MAX_TOKENS];
    double largest = -INFINITY;
    for (int64_t key = 0; key < h->length; key++) {
        double score = 0.0;
        for (int64_t d = 0; d < h->head_width; d++) {
            score += qkv_at(h, query, PART_Q, d) * qkv_at(h, key, PART_K, d);
        }
        scores[key] = score * h->scale;
        largest = fmax(scores[key], largest);
    }
    double total = 0.0;
    for (int64_t key = 0; key < h->length; key++) {
        total += exp(scores[key] - largest);
    }
    for (int64_t key = 0; key < h->length; key++) {
        put(h->probs, prob_place(h, query, key), exp(scores[key] - largest) / total);
    }
}

static void head_forward(const struct head *h, const struct tensor *out) {
    const int64_t tokens = h->probs->shape[2];
    for (int64_t i = 0; i < tokens * tokens; i++) {
        put(h->probs, prob_place(h, 0, i), 0.0);
    }
    for (int64_t query = 0; query < h->length; query++) {
        head_softmax(h, query);
        for (int64_t d = 0; d < h->head_width; d++) {
            double sum = 0.0;
            for (int64_t key = 0; key < h->length; key++) {
                sum += get(h->probs, prob_place(h, query, key)) * kept(h, query, key) *
                       qkv_at(h, key, PART_V, d);
            }
            put(out, out_place(h, query, d), sum);
        }
    }
}

static double *gradient_of(const struct head *h, int64_t t, int part, int64_t d) {
    return h->gradient + (t * 3 + part) * h->head_width + d;
}

/* One query's share. da = dP kept; softmax: ds = P (da - sum P da); dq = ds k scale, dk = ds^T q
 * scale, dv = (P kept)^T dout. */
static void query_backward(const struct head *h, int64_t query, const struct tensor *dout) {
    double weighted = 0.0;
    double da[DROPOUT_MAX_TOKENS];
    for (int64_t key = 0; key < h->length; key++) {
        double dp = 0.0;
        for (int64_t d = 0; d < h->head_width; d++) {
            dp += get(dout, out_place(h, query, d)) * qkv_at(h, key, PART_V, d);
        }
        da[key] = dp * kept(h, query, key);
        weighted += get(h->probs, prob_place(h, query, key)) * da[key];
    }
    for (int64_t key = 0; key < h->length; key++) {
        const double p = get(h->probs, prob_place(h, query, key));
        const double ds = p * (da[key] - weighted) * h->scale;
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

/* `out` is dout when there is a dqkv. */
static enum status attention_walk(const struct tensor *out,
                                  const struct tensor *dqkv,
                                  const struct tensor *probs,
                                  const struct tensor *qkv,
                                  const struct segments *seg,
                                  const struct attention_params *p,
                                  struct error *err) {
    TRY(ref_real("attention", qkv, err));
    TRY(check_attention(out, probs, qkv, seg, p, err));
    TRY(check_segment_values("attention", seg, out->shape[0], probs->shape[2], err));
    if (dqkv != NULL) {
        TRY(check_like("attention_bwd", "dqkv", dqkv, qkv, err));
    }
    struct head h = {.qkv = qkv,
                     .probs = probs,
                     .width = out->shape[1],
                     .head_width = out->shape[1] / p->heads,
                     .dropout = p->dropout};
    h.scale = 1.0 / sqrt((double)h.head_width);
    if (p->dropout != NULL) {
        dropout_stream_init(&h.stream, p->dropout->seed, p->dropout->values->step,
                            p->dropout->layer);
    }
    h.gradient = calloc((size_t)(probs->shape[2] * 3 * h.head_width), sizeof *h.gradient);
    if (h.gradient == NULL) {
        return error_set(err, STATUS_NOMEM, "attention: no memory for one head");
    }
    for (h.sample = 0; h.sample < captions(seg); h.sample++) {
        h.start = start_of(seg, h.sample);
        h.length = length_of(seg, h.sample);
        for (h.index = 0; h.index < p->heads; h.index++) {
            if (dqkv != NULL) {
                head_backward(&h, dqkv, out);
            } else {
                head_forward(&h, out);
            }
        }
    }
    free(h.gradient);
    clear_other_rows(dqkv != NULL ? dqkv : out, seg);
    return STATUS_OK;
}

enum status ref_attention(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *probs,
                          const struct tensor *qkv,
                          const struct segments *seg,
                          const struct attention_params *p,
                          struct error *err) {
    (void)dev;
    return attention_walk(out, NULL, probs, qkv, seg, p, err);
}

enum status ref_attention_bwd(struct device *dev,
                              const struct tensor *dqkv,
                              const struct tensor *dout,
                              const struct tensor *probs,
                              const struct tensor *qkv,
                              const struct segments *seg,
                              const struct attention_params *p,
                              struct error *err) {
    (void)dev;
    return attention_walk(dout, dqkv, probs, qkv, seg, p, err);
}

enum status ref_dropout(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct segments *seg,
                        const struct dropout_params *p,
                        struct error *err) {
    (void)dev;
    TRY(ref_real("dropout", in, err));
    TRY(check_dropout(out, in, seg, p, err));
    if (seg != NULL) {
        TRY(check_segment_values("dropout", seg, in->shape[0], in->shape[0], err));
    }
    struct dropout_stream stream;
    dropout_stream_init(&stream, p->seed, p->values->step, p->layer);
    const uint32_t threshold = dropout_threshold(p->p);
    const int64_t width = in->shape[1];
    for (int64_t r = 0; r < in->shape[0]; r++) {
        const int64_t n = seg != NULL ? caption_of(seg, r) : r;
        for (int64_t d = 0; d < width && n >= 0; d++) {
            const int64_t e = (seg != NULL ? r - start_of(seg, n) : 0) * width + d;
            const int64_t i = r * width + d;
            uint32_t draws[4];
            dropout_draw(draws, &stream, p->sample_ids[n], (uint32_t)(e / 4));
            put(out, i, draws[e % 4] < threshold ? 0.0 : get(in, i) / (1.0 - (double)p->p));
        }
    }
    if (seg != NULL) {
        clear_other_rows(out, seg);
    }
    return STATUS_OK;
}

enum status ref_segment_mean(struct device *dev,
                             const struct tensor *out,
                             const struct tensor *in,
                             const struct segments *seg,
                             struct error *err) {
    (void)dev;
    TRY(ref_real("segment_mean", in, err));
    TRY(check_segment_mean(out, in, seg, err));
    TRY(check_segment_values("segment_mean", seg, in->shape[0], in->shape[0], err));
    const int64_t width = in->shape[1];
    for (int64_t n = 0; n < captions(seg); n++) {
        for (int64_t d = 0; d < width; d++) {
            double sum = 0.0;
            for (int64_t t = 0; t < length_of(seg, n); t++) {
                sum += get(in, (start_of(seg, n) + t) * width + d);
            }
            put(out, n * width + d, sum / (double)length_of(seg, n));
        }
    }
    return STATUS_OK;
}

enum status ref_segment_mean_bwd(struct device *dev,
                                 const struct tensor *din,
                                 enum write_mode mode,
                                 const struct tensor *dout,
                                 const struct segments *seg,
                                 struct error *err) {
    (void)dev;
    TRY(ref_real("segment_mean_bwd", dout, err));
    TRY(check_segment_mean(dout, din, seg, err));
    TRY(check_segment_values("segment_mean_bwd", seg, din->shape[0], din->shape[0], err));
    const int64_t width = din->shape[1];
    for (int64_t n = 0; n < captions(seg); n++) {
        for (int64_t t = 0; t < length_of(seg, n); t++) {
            for (int64_t d = 0; d < width; d++) {
                put_mode(din, (start_of(seg, n) + t) * width + d,
                         get(dout, n * width + d) / (double)length_of(seg, n), mode);
            }
        }
    }
    if (mode == WRITE_SET) {
        clear_other_rows(din, seg);
    }
    return STATUS_OK;
}
