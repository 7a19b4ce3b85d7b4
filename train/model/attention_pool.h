/*
 * attention_pool: the pooling of CLIP's ResNets: the mean of an image's rows attends to itself and
 * to the rows.
 *
 *   x (N, P, P, C) -> [mean, rows] + positions -> attention -> the mean's row (N, C)
 *
 * Names and initial values are open_clip's (attnpool...).
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given at placement.
 */
#ifndef TRAIN_MODEL_ATTENTION_POOL_H
#define TRAIN_MODEL_ATTENTION_POOL_H

#include "kernels/ops.h"
#include "train/model/params.h"
#include "train/model/vit.h"

struct attention_pool {
    struct params *params;
    struct device *dev;
    int64_t rows, channels; /* P^2, C */
    int32_t heads;
    int32_t positions, qkv, qkv_bias; /* in the table; k and v follow q */

    struct patch_rows at;
    struct tensor table;    /* (max N + N P^2, C): means, then the images' rows */
    struct tensor sequence; /* (N (1 + P^2), C) */
    struct tensor qkv_rows, context, lse;
    struct tensor dqkv, dsequence;
};

/* The calls of a tower: add returns as params_add, place as resnet_place. x and dx (N, P, P, C),
 * out and dout (N, C). dx is set, gradients of parameters are set or added by mode. */
enum status attention_pool_add(struct attention_pool *a, struct params *p, struct error *err);
void attention_pool_place(struct attention_pool *a,
                          struct device *dev,
                          enum dtype dtype,
                          int64_t max_batch,
                          bool training,
                          struct carve *kept,
                          struct carve *workspace);
enum status attention_pool_forward(struct attention_pool *a,
                                   struct tensor out,
                                   struct tensor x,
                                   struct error *err);
enum status attention_pool_backward(struct attention_pool *a,
                                    struct tensor dx,
                                    struct tensor dout,
                                    enum write_mode mode,
                                    struct error *err);

#endif
