/*
 * encoder_internal: what dual_encoder and view_encoder have in common: the sum of a memory plan,
 * and the blocks that are taken for it.
 */
#ifndef TRAIN_MODEL_ENCODER_INTERNAL_H
#define TRAIN_MODEL_ENCODER_INTERNAL_H

#include "train/model/dual_encoder.h"

/* Device memory beside the parameter table's. */
struct encoder_blocks {
    void *kept;    /* activations_bytes of the plan */
    void *scratch; /* scratch_bytes */
    void *input;   /* input_bytes */
};

/* The parameters' part of the plan and its total; activations_bytes, scratch_bytes and input_bytes
 * are the caller's. */
void encoder_memory_sum(struct dual_encoder_memory *m,
                        const struct params *p,
                        enum dtype dtype,
                        bool training);

/* Takes all of the plan from `dev`. What was taken before a failure is for free. Returns OK, NOMEM
 * or DEVICE. */
enum status encoder_blocks_take(struct encoder_blocks *b,
                                struct params *p,
                                struct device *dev,
                                enum dtype dtype,
                                bool training,
                                const struct dual_encoder_memory *m,
                                struct error *err);
void encoder_blocks_free(struct encoder_blocks *b, struct device *dev); /* accepts a NULL dev */

/* Fills `to`, which lies in a slot of a batch: slot 0 in order with the kernels, the others on the
 * queue of copies. Returns OK or what the device returns. */
enum status encoder_copy(struct device *dev,
                         int32_t slot,
                         const struct tensor *to,
                         const void *from,
                         struct error *err);

#endif
