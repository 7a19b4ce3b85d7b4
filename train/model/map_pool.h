/*
 * map_pool: the pooling of SigLIP's image tower: a learned query attends to an image's rows.
 *
 *   x (N, P, D) -> y = proj(attention(q(latent), kv(x)));  out = y + fc2(act(fc1(norm(y)))) (N, D)
 *
 * Names and initial values are timm's (attn_pool...).
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given at placement.
 */
#ifndef TRAIN_MODEL_MAP_POOL_H
#define TRAIN_MODEL_MAP_POOL_H

#include "kernels/ops.h"
#include "train/model/blocks.h"
#include "train/model/params.h"

struct map_pool {
    struct params *params;
    struct device *dev;
    int64_t rows, dim, ffn_dim; /* P, D, F */
    int32_t heads;
    float eps;
    enum activation act;
    int32_t latent, q, proj, fc1, fc2; /* in the table, each followed by its bias; q's by kv */
    struct norm norm;                  /* its sum is y */

    struct tensor x; /* (N P, D) of the last forward */
    struct tensor ones, queries;
    struct tensor qkv_rows, context, lse; /* (N P, 3D), (N P, D), (N, H, P) */
    struct tensor picked, h, pre, hidden, out;
    struct tensor dqkv, dx, drow, dy, dhidden, dpre;
};

/* Positions of the N images' rows, on the device. */
struct map_pool_batch {
    struct segments segments;
    struct tensor queries; /* (N) i32, 3 P n: the first row's q among (3 N P, D) */
};

/* The calls of a tower: add returns as params_add, place as resnet_place. x and *dx (N P, D), out
 * and dout (N, D). x must not change until backward; gradients of parameters are set or added by
 * mode. */
enum status map_pool_add(struct map_pool *a, struct params *p, struct error *err);
void map_pool_place(struct map_pool *a,
                    struct device *dev,
                    enum dtype dtype,
                    int64_t max_batch,
                    bool training,
                    struct carve *kept,
                    struct carve *workspace);
enum status map_pool_forward(struct map_pool *a,
                             struct tensor *out,
                             struct tensor x,
                             const struct map_pool_batch *batch,
                             struct error *err);
enum status map_pool_backward(struct map_pool *a,
                              struct tensor *dx,
                              struct tensor dout,
                              const struct map_pool_batch *batch,
                              enum write_mode mode,
                              struct error *err);

#endif
