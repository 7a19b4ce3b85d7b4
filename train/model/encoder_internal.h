/*
 * encoder_internal: what dual_encoder and view_encoder have in common: the sum of a memory plan,
 * the blocks that are taken for it, and running statistics.
 */
#ifndef TRAIN_MODEL_ENCODER_INTERNAL_H
#define TRAIN_MODEL_ENCODER_INTERNAL_H

#include "train/comm/comm.h"
#include "train/model/carve.h"
#include "train/model/dual_encoder.h"
#include "train/model/gradients.h"

/* ---- batch norm's running statistics over the micro-batches of a batch, of all ranks ----
 *
 *   running_begin --> for each micro-batch: running_part --> forward --> running_end
 *
 * Forward leaves the statistics of each micro-batch in a row of its own. running_end gathers the
 * rows of all ranks and moves the table's running statistics once for each, in the order of the
 * batch: running += 0.1 (row - running). So every rank ends with the same bits, those of one rank
 * with micro-batches of the same size.
 */
struct running {
    struct params *params;
    struct device *dev;
    struct comm *comm;       /* NULL: one rank */
    struct tensor rows;      /* (ranks * parts, numbers of the running statistics) */
    int32_t part, own_count; /* the last part that began; parts of this rank in the batch */
};

/* A training forward of part_count micro-batches begins. */
void running_begin(struct running *r, int32_t part_count);

/* The next micro-batch begins: until running_end params_tensor returns views of its row. */
void running_part(struct running *r);

/* All have run. Collective. Returns OK or what device and comm return. */
enum status running_end(struct running *r, struct error *err);

/* ---- memory ---- */

/* Device memory beside the parameter table's. */
struct encoder_blocks {
    /* Set before encoder_plan. */
    struct params *params;
    enum dtype dtype;
    bool training;
    struct comm *comm;
    int32_t parts; /* micro-batches of the largest batch */

    int32_t sum_blocks; /* of gradients, beside the table's: those of the fixed tree (gradients.h),
                           which only devices promise whose memory is the host's */
    struct gradients sums;
    struct running running;
    void *kept, *scratch, *input; /* activations_bytes, scratch_bytes, input_bytes of the plan */
};

/* Where a model's activations and inputs lie. */
struct encoder_carves {
    struct carve kept, scratch, input;
};

/* *m from what the model has placed in `used`, which only counts. host_memory: of the device. */
void encoder_plan(struct encoder_blocks *b,
                  struct dual_encoder_memory *m,
                  const struct encoder_carves *used,
                  bool host_memory);

/* Takes all of the plan from `dev`; *out is where the model is to place once more. What was taken
 * before a failure is for free. Returns OK, NOMEM or DEVICE. */
enum status encoder_blocks_take(struct encoder_blocks *b,
                                struct encoder_carves *out,
                                struct device *dev,
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
