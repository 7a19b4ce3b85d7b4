/*
 * text: what a transformer needs beside linear layers: embedding, layer norm, attention, dropout.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"
#include "kernels/dropout_mask.h"

/* out (N,T,D) = table[tokens] + positions[t] */
enum status ref_embedding(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *tokens,
                          const struct tensor *table,
                          const struct tensor *positions,
                          struct error *err) {
    (void)dev;
    TRY(ref_real("embedding", table, err));
    TRY(check_embedding(out, tokens, table, positions, err));
    TRY(check_tokens(tokens, table->shape[0], err));
    const int32_t *ids = tokens->data;
    const int64_t width = table->shape[1];
    const int64_t rows = tensor_count(tokens);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = r % tokens->shape[1];
        for (int64_t d = 0; d < width; d++) {
            put(out, r * width + d, get(table, ids[r] * width + d) + get(positions, t * width + d));
        }
    }
    return STATUS_OK;
}

enum status ref_embedding_bwd(struct device *dev,
                              const struct tensor *dtable,
                              const struct tensor *dpositions,
                              enum write_mode mode,
                              const struct tensor *dout,
                              const struct tensor *tokens,
                              const struct tensor *lengths,
                              struct error *err) {
    (void)dev;
    TRY(ref_real("embedding_bwd", dtable, err));
    TRY(check_embedding(dout, tokens, dtable, dpositions, err));
    TRY(check_tokens(tokens, dtable->shape[0], err));
    TRY(check_tensor("embedding_bwd", "lengths", lengths, DTYPE_I32, 1, tokens->shape[0], 0, 0, 0,
                     err));
    TRY(check_lengths("embedding_bwd", lengths, tokens->shape[1], err));
    if (mode == WRITE_SET) {
        TRY(ref_fill(dev, dtable, 0.0, err));
        TRY(ref_fill(dev, dpositions, 0.0, err));
    }
    const int32_t *ids = tokens->data;
    const int32_t *length = lengths->data;
    const int64_t width = dtable->shape[1];
    for (int64_t n = 0; n < tokens->shape[0]; n++) {
        for (int64_t t = 0; t < length[n]; t++) {
            const int64_t r = n * tokens->shape[1] + t;
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

/* One head of one sample: where its rows of q, k, v and its probabilities lie. */
struct head {
    const struct tensor *qkv, *probs;
    int64_t tokens, width, head_width; /* T, D, Dh */
    int64_t sample, index;
    int64_t length;
    const struct dropout_params *dropout; /* NULL: none */
    struct dropout_stream stream;
    double scale;
};

enum { PART_Q, PART_K, PART_V };

static int64_t qkv_place(const struct head *h, int64_t t, int part, int64_t d) {
    return ((h->sample * h->tokens + t) * 3 + part) * h->width + h->index * h->head_width + d;
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
    double largest = -INFINITY;
    for (int64_t key = 0; key < h->length; key++) {
        double score = 0.0;
        for (int64_t d = 0; d < h->head_width; d++) {
            score += get(h->qkv, qkv_place(h, query, PART_Q, d)) *
                     get(h->qkv, qkv_place(h, key, PART_K, d));
        }
        score *= h->scale;
        put(h->probs, prob_place(h, query, key), score);
        largest = score > largest ? score : largest;
    }
    double total = 0.0;
    for (int64_t key = 0; key < h->length; key++) {
        total += exp(get(h->probs, prob_place(h, query, key)) - largest);
    }
    for (int64_t key = 0; key < h->tokens; key++) {
        const int64_t e = prob_place(h, query, key);
        put(h->probs, e, key < h->length ? exp(get(h->probs, e) - largest) / total : 0.0);
    }
}

static void head_forward(const struct head *h, const struct tensor *out) {
    for (int64_t query = 0; query < h->tokens; query++) {
        head_softmax(h, query);
        for (int64_t d = 0; d < h->head_width; d++) {
            double sum = 0.0;
            for (int64_t key = 0; key < h->length; key++) {
                sum += get(h->probs, prob_place(h, query, key)) * kept(h, query, key) *
                       get(h->qkv, qkv_place(h, key, PART_V, d));
            }
            put(out, (h->sample * h->tokens + query) * h->width + h->index * h->head_width + d,
                sum);
        }
    }
}

/* da = dP kept; softmax: ds = P (da - sum P da); dq = ds k scale, dk = ds^T q scale, dv = (P
 * kept)^T dout. */
static void
head_backward(const struct head *h, const struct tensor *dqkv, const struct tensor *dout) {
    const int64_t out_base = h->sample * h->tokens * h->width + h->index * h->head_width;
    for (int64_t query = 0; query < h->tokens; query++) {
        double weighted = 0.0;
        double da[DROPOUT_MAX_TOKENS];
        for (int64_t key = 0; key < h->length; key++) {
            double dp = 0.0;
            for (int64_t d = 0; d < h->head_width; d++) {
                dp += get(dout, out_base + query * h->width + d) *
                      get(h->qkv, qkv_place(h, key, PART_V, d));
            }
            da[key] = dp * kept(h, query, key);
            weighted += get(h->probs, prob_place(h, query, key)) * da[key];
        }
        for (int64_t key = 0; key < h->length; key++) {
            const double p = get(h->probs, prob_place(h, query, key));
            const double ds = p * (da[key] - weighted) * h->scale;
            const double pk = p * kept(h, query, key);
            for (int64_t d = 0; d < h->head_width; d++) {
                const double q = get(h->qkv, qkv_place(h, query, PART_Q, d));
                const double k = get(h->qkv, qkv_place(h, key, PART_K, d));
                put_mode(dqkv, qkv_place(h, query, PART_Q, d), ds * k, WRITE_ADD);
                put_mode(dqkv, qkv_place(h, key, PART_K, d), ds * q, WRITE_ADD);
                put_mode(dqkv, qkv_place(h, key, PART_V, d),
                         pk * get(dout, out_base + query * h->width + d), WRITE_ADD);
            }
        }
    }
}

static enum status attention_walk(struct device *dev,
                                  const struct tensor *out,
                                  const struct tensor *dqkv,
                                  const struct tensor *probs,
                                  const struct tensor *qkv,
                                  const struct tensor *lengths,
                                  const struct attention_params *p,
                                  struct error *err) {
    TRY(ref_real("attention", qkv, err));
    TRY(check_attention(out, probs, qkv, lengths, p, err));
    TRY(check_lengths("attention", lengths, out->shape[1], err));
    if (p->dropout != NULL) {
        TRY(check_dropout(out, out, p->dropout, err));
    }
    if (dqkv != NULL) {
        TRY(check_like("attention_bwd", "dqkv", dqkv, qkv, err));
        TRY(ref_fill(dev, dqkv, 0.0, err));
    }
    struct head h = {.qkv = qkv,
                     .probs = probs,
                     .tokens = out->shape[1],
                     .width = out->shape[2],
                     .head_width = out->shape[2] / p->heads,
                     .dropout = p->dropout};
    h.scale = 1.0 / sqrt((double)h.head_width);
    if (p->dropout != NULL) {
        dropout_stream_init(&h.stream, p->dropout->seed, p->dropout->step, p->dropout->layer);
    }
    for (h.sample = 0; h.sample < out->shape[0]; h.sample++) {
        h.length = ((const int32_t *)lengths->data)[h.sample];
        for (h.index = 0; h.index < p->heads; h.index++) {
            if (dqkv != NULL) {
                head_backward(&h, dqkv, out);
            } else {
                head_forward(&h, out);
            }
        }
    }
    return STATUS_OK;
}

enum status ref_attention(struct device *dev,
                          const struct tensor *out,
                          const struct tensor *probs,
                          const struct tensor *qkv,
                          const struct tensor *lengths,
                          const struct attention_params *p,
                          struct error *err) {
    return attention_walk(dev, out, NULL, probs, qkv, lengths, p, err);
}

enum status ref_attention_bwd(struct device *dev,
                              const struct tensor *dqkv,
                              const struct tensor *dout,
                              const struct tensor *probs,
                              const struct tensor *qkv,
                              const struct tensor *lengths,
                              const struct attention_params *p,
                              struct error *err) {
    return attention_walk(dev, dout, dqkv, probs, qkv, lengths, p, err);
}

enum status ref_dropout(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct dropout_params *p,
                        struct error *err) {
    (void)dev;
    TRY(ref_real("dropout", in, err));
    TRY(check_dropout(out, in, p, err));
    struct dropout_stream stream;
    dropout_stream_init(&stream, p->seed, p->step, p->layer);
    const uint32_t threshold = dropout_threshold(p->p);
    const int64_t per_sample = tensor_count(in) / in->shape[0];
    for (int64_t n = 0; n < in->shape[0]; n++) {
        for (int64_t e = 0; e < per_sample; e++) {
            uint32_t draws[4];
            dropout_draw(draws, &stream, p->sample_ids[n], (uint32_t)(e / 4));
            const int64_t i = n * per_sample + e;
            put(out, i, draws[e % 4] < threshold ? 0.0 : get(in, i) / (1.0 - (double)p->p));
        }
    }
    return STATUS_OK;
}
