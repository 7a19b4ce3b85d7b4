/*
 * encoder_internal: the frame of dual_encoder and view_encoder: the parameter table, the memory
 * plan and the blocks taken for it, micro-batches forward and backward with batch norm's running
 * statistics, and the heads. An encoder adds its towers and inputs: two callbacks for a
 * micro-batch.
 */
#ifndef TRAIN_MODEL_ENCODER_INTERNAL_H
#define TRAIN_MODEL_ENCODER_INTERNAL_H

#include "train/comm/comm.h"
#include "train/model/carve.h"
#include "train/model/dual_encoder.h"
#include "train/model/gradients.h"

/* ---- description and memory ---- */

struct encoder {
    /* Set before encoder_init. */
    enum dtype dtype;
    bool training, raw;
    bool fixed_statistics; /* running statistics are read in training, and stay */
    struct comm *comm;     /* NULL: one rank */
    int32_t embed_dim;
    int32_t max_rows; /* embeddings of a batch */
    int32_t views;    /* rows of each sample in training: 1 or 2 */

    struct params *params;
    int32_t held_rows;  /* rows that the towers hold: those of a micro-batch */
    struct device *dev; /* NULL when only planned */
    struct dual_encoder_memory memory;
    struct tensor z; /* (held_rows, E): head outputs before the norm, and their gradient */
    int32_t parts;   /* micro-batches of the largest batch */
    struct gradients sums;
    int32_t sum_blocks; /* blocks of gradients for the fixed tree (gradients.h), in addition to the
                           table's; only on devices whose memory is the host's */
    void *kept, *scratch, *input; /* activations_bytes, scratch_bytes, input_bytes of the plan */

    /* Batch norm's statistics. The forward of each micro-batch leaves its own in one row. At the
     * end of a batch the rows of all ranks are gathered, and the table's running statistics move
     * once for each, in the order of the batch: running += 0.1 (row - running). So every rank ends
     * with the same bits, those of one rank with micro-batches of the same size. */
    struct tensor running; /* (ranks * parts, numbers of the running statistics) */
};

/* Where a model's activations and inputs lie. */
struct encoder_carves {
    struct carve kept, scratch, input;
};

/* Checks what is set and creates the table. micro_batch 0: the whole batch. What was taken before a
 * failure is for encoder_fini. Returns OK, NOMEM or USAGE. */
enum status encoder_init(struct encoder *e,
                         int32_t micro_batch,
                         int32_t moments,
                         int32_t slots,
                         struct error *err);
void encoder_fini(struct encoder *e); /* accepts zeroed storage; after the towers */

/* e->memory from what the model has placed in `used`, which only counts. host_memory: whether the
 * device's memory is the host's. */
void encoder_plan(struct encoder *e, const struct encoder_carves *used, bool host_memory);

/* Takes all of the plan from `dev`; *out is where the model is to place once more. What was taken
 * before a failure is for encoder_fini. Returns OK, NOMEM or DEVICE. */
enum status
encoder_take(struct encoder *e, struct encoder_carves *out, struct device *dev, struct error *err);

/* Fills `to`, which lies in a slot of a batch: slot 0 in order with the kernels, the others on the
 * queue of copies. Returns OK or what the device returns. */
enum status encoder_copy(struct device *dev,
                         int32_t slot,
                         const struct tensor *to,
                         const void *from,
                         struct error *err);

/* ---- batches ---- */

/* One micro-batch of a batch. */
struct encoder_part {
    int32_t start, count; /* its samples */
    int32_t views;        /* rows of each sample: encoder.views, or 1 in evaluation */
    int32_t whole_count;  /* samples of the batch */
    enum resnet_pass pass;
};

/* A batch, and what its encoder does with a micro-batch of it. */
struct encoder_batch {
    void *model;
    const void *batch; /* of the model's own type */
    int32_t count;     /* samples */
    bool beside;       /* as in dual_encoder_batch */
    enum status (*forward)(void *model,
                           const void *batch,
                           const struct encoder_part *p,
                           struct error *err);
    /* dout[2] (rows of the batch, E), as encoder_backward was given them. The micro-batch's forward
     * was the last one. */
    enum status (*backward)(void *model,
                            const void *batch,
                            const struct tensor *const dout[2],
                            const struct encoder_part *p,
                            enum write_mode mode,
                            struct error *err);
};

/* The micro-batch that begins with sample `start` of a batch of `count`. */
struct encoder_part
encoder_part(const struct encoder *e, int32_t count, int32_t start, enum resnet_pass pass);

/* Samples of a micro-batch; micro-batches of a batch. */
int32_t encoder_micro_batch(const struct encoder *e);
int32_t encoder_part_count(const struct encoder *e, int32_t count);

/* All micro-batches in order. RESNET_TRAINING moves the running statistics, and is collective then.
 * Returns OK or what the model, device and comm return. */
enum status encoder_forward(struct encoder *e,
                            const struct encoder_batch *b,
                            enum resnet_pass pass,
                            struct error *err);

/* The micro-batches in the opposite order, each but the last after its forward once more. */
enum status encoder_backward(struct encoder *e,
                             const struct encoder_batch *b,
                             const struct tensor *const dout[2],
                             enum write_mode mode,
                             const struct gradient_ready *ready,
                             struct error *err);

/* ---- heads: z = features W^T + b, b not in every head, out = z / |z|, or z with `raw` ---- */

struct head {
    int32_t weight, bias; /* (E, F), (E); bias -1: none; weight -1: z = features */
    int32_t feature_count;
    bool fixed_bias;         /* starts at 0 and is not trained */
    bool normal;             /* the weight starts normal with deviation 1/sqrt(F) */
    bool zero_bias;          /* starts at 0 */
    struct tensor features;  /* (n, F), set before forward, unchanged until backward; first views,
                                then second ones */
    struct tensor dfeatures; /* (held_rows, F) */
    struct tensor out, norm; /* (max_rows, E), first views of the whole batch, then second ones;
                                (held_rows) */
};

/* Adds MODULE.weight and MODULE.bias, uniform in +-1/sqrt(F). fixed_bias, normal and zero_bias are
 * set before.
 */
enum status head_add(struct head *h,
                     const struct encoder *e,
                     const char *module,
                     int32_t feature_count,
                     struct error *err);
/* Adds NAME (F, E), which is W^T, normal with deviation 1/sqrt(F), and no bias: CLIP's. */
enum status head_add_plain(struct head *h,
                           const struct encoder *e,
                           const char *name,
                           int32_t feature_count,
                           struct error *err);
/* No tensor: F must be E. Not with `raw`. */
void head_add_none(struct head *h, int32_t feature_count);
void head_place(struct head *h, const struct encoder *e, struct carve *kept);

/* h->features -> the part's rows of h->out. */
enum status head_forward(const struct head *h,
                         const struct encoder *e,
                         const struct encoder_part *p,
                         struct error *err);

/* dout, of the whole batch -> *dfeatures (n, F) of the part, set; gradients of W and b by mode. */
enum status head_backward(const struct head *h,
                          const struct encoder *e,
                          struct tensor *dfeatures,
                          const struct tensor *dout,
                          const struct encoder_part *p,
                          enum write_mode mode,
                          struct error *err);

#endif
