/*
 * ops_text: embedding, layer norm, attention. Token ids and captions lie on the device: their
 * values are checked by the kernels, and what they found is told by the next sync or download.
 */
#include "kernels/cuda/device/cuda_internal.h"

static enum status cuda_embedding(struct device *device,
                                  const struct tensor *out,
                                  const struct tensor *tokens,
                                  const struct segments *seg,
                                  const struct tensor *table,
                                  const struct tensor *positions,
                                  struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("embedding", table, err));
    TRY(check_embedding(out, tokens, seg, table, positions, err));
    const struct launch_segments segments = cuda_segments(dev, seg, tokens->shape[0]);
    return launched(dev,
                    launch_embedding(dev->stream, table->dtype, out->data, tokens->data,
                                     table->data, positions->data, table->shape[1], table->shape[0],
                                     positions->shape[0], &segments),
                    "embedding", err);
}

static enum status cuda_embedding_bwd(struct device *device,
                                      const struct tensor *dtable,
                                      const struct tensor *dpositions,
                                      enum write_mode mode,
                                      const struct tensor *dout,
                                      const struct tensor *tokens,
                                      const struct segments *seg,
                                      struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    void *work;
    TRY(cuda_real("embedding_bwd", dout, err));
    TRY(check_embedding_bwd(dtable, dpositions, dout, tokens, seg, err));
    if (dtable->dtype != DTYPE_F32) {
        return error_set(err, STATUS_INVALID, "embedding_bwd: dtable is %s, expected f32",
                         dtype_name(dtable->dtype));
    }
    const struct launch_segments segments = cuda_segments(dev, seg, tokens->shape[0]);
    TRY(cuda_workspace(dev, launch_embedding_bwd_workspace_bytes(tokens->shape[0]), &work, err));
    return launched(dev,
                    launch_embedding_bwd(dev->stream, dout->dtype, dtable->data, dpositions->data,
                                         mode, dout->data, tokens->data, dtable->shape[1],
                                         dtable->shape[0], dpositions->shape[0], &segments, work),
                    "embedding_bwd", err);
}

static enum status cuda_layernorm(struct device *device,
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
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("layernorm", a, err));
    TRY(check_layernorm(out, sum, mean, rstd, a, b, gamma, beta, err));
    return launched(dev,
                    launch_layernorm(dev->stream, a->dtype, out->data, sum->data, mean->data,
                                     rstd->data, a->data, tensor_wanted(b) ? b->data : NULL,
                                     gamma->data, beta->data, a->shape[0], a->shape[1], eps),
                    "layernorm", err);
}

static enum status cuda_layernorm_bwd(struct device *device,
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
    struct cuda_device *dev = cuda_of(device);
    void *work;
    TRY(cuda_real("layernorm_bwd", sum, err));
    TRY(check_layernorm_bwd(dsum, dgamma, dbeta, dout, sum, mean, rstd, gamma, err));
    const int64_t rows = sum->shape[0];
    const int64_t width = sum->shape[1];
    TRY(cuda_workspace(dev, launch_layernorm_bwd_workspace_bytes(rows, width), &work, err));
    return launched(dev,
                    launch_layernorm_bwd(dev->stream, sum->dtype, dsum->data, dsum_mode,
                                         dgamma->data, dbeta->data, param_mode, dout->data,
                                         sum->data, mean->data, rstd->data, gamma->data, rows,
                                         width, work),
                    "layernorm_bwd", err);
}

static enum status cuda_attention(struct device *device,
                                  const struct tensor *out,
                                  const struct tensor *probs,
                                  const struct tensor *qkv,
                                  const struct segments *seg,
                                  const struct attention_params *p,
                                  struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_dropout room;
    TRY(cuda_real("attention", qkv, err));
    TRY(check_attention(out, probs, qkv, seg, p, err));
    const struct launch_dropout *dropout = cuda_dropout_ready(&room, p->dropout);
    const struct launch_segments segments = cuda_segments(dev, seg, out->shape[0]);
    return launched(dev,
                    launch_attention(dev->stream, qkv->dtype, out->data, probs->data, qkv->data,
                                     probs->shape[2], p->heads, out->shape[1] / p->heads, &segments,
                                     dropout),
                    "attention", err);
}

static enum status cuda_attention_bwd(struct device *device,
                                      const struct tensor *dqkv,
                                      const struct tensor *dout,
                                      const struct tensor *probs,
                                      const struct tensor *qkv,
                                      const struct segments *seg,
                                      const struct attention_params *p,
                                      struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_dropout room;
    void *work;
    TRY(cuda_real("attention_bwd", qkv, err));
    TRY(check_attention(dout, probs, qkv, seg, p, err));
    TRY(check_like("attention_bwd", "dqkv", dqkv, qkv, err));
    const struct launch_dropout *dropout = cuda_dropout_ready(&room, p->dropout);
    const struct launch_segments segments = cuda_segments(dev, seg, dout->shape[0]);
    const int64_t head_width = dout->shape[1] / p->heads;
    TRY(cuda_workspace(dev,
                       launch_attention_bwd_workspace_bytes(probs->shape[0], probs->shape[2],
                                                            p->heads, head_width),
                       &work, err));
    return launched(dev,
                    launch_attention_bwd(dev->stream, qkv->dtype, dqkv->data, dout->data,
                                         probs->data, qkv->data, probs->shape[2], p->heads,
                                         head_width, &segments, dropout, work),
                    "attention_bwd", err);
}

void cuda_put_text(struct ops *t) {
    t->embedding = cuda_embedding;
    t->embedding_bwd = cuda_embedding_bwd;
    t->layernorm = cuda_layernorm;
    t->layernorm_bwd = cuda_layernorm_bwd;
    t->attention = cuda_attention;
    t->attention_bwd = cuda_attention_bwd;
}
