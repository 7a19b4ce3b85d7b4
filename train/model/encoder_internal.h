/*
 * encoder_internal: shared by dual_encoder and view_encoder: the parameter table, the memory plan
 * and its blocks, micro-batches forward and backward with batch norm's running statistics, and the
 * heads. An encoder adds its towers and inputs: two callbacks per micro-batch.
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
    bool fixed_statistics; /* training uses running statistics, and they stay */
    struct comm *comm;     /* NULL: one rank */
    int32_t embed_dim;
    int32_t max_rows; /* embeddings per batch */
    int32_t views;    /* rows per sample in training: 1 or 2 */

    struct params *params;
    int32_t held_rows;  /* rows of a micro-batch */
    struct device *dev; /* NULL when only planned */
    struct dual_encoder_memory memory;
    struct tensor z; /* (held_rows, E): head outputs before the norm, and their gradient */
    int32_t parts;   /* micro-batches of the largest batch */
    struct gradients sums;
    int32_t sum_blocks; /* blocks of gradients for the fixed tree (gradients.h), besides the
                           table's; 0 unless the device's memory is the host's */
    void *kept, *workspace,
        *input; /* activations_bytes, workspace_bytes, input_bytes of the plan */

    /* Batch norm's statistics, one row per micro-batch. At the end of a batch the rows of all ranks
     * are gathered, and the table's running statistics are updated by each, in batch order: running
     * += 0.1 (row - running). So all ranks are bit-identical to one rank with micro-batches of the
     * same size. */
    struct tensor running; /* (ranks * parts, numbers of the running statistics) */
};

/* Placement of a model's activations and inputs. */
struct encoder_carves {
    struct carve kept, workspace, input;
};

/* Checks the fields and creates the table. micro_batch 0: the whole batch. Call encoder_fini even
 * after a failure. Returns OK, NOMEM or USAGE. */
enum status encoder_init(struct encoder *e,
                         int32_t micro_batch,
                         int32_t moments,
                         int32_t slots,
                         struct error *err);
void encoder_fini(struct encoder *e); /* accepts zeroed storage; after the towers */

/* Computes e->memory from what the model placed in the counting carves `used`. host_memory: the
 * device's memory is the host's. */
void encoder_plan(struct encoder *e, const struct encoder_carves *used, bool host_memory);

/* Allocates the planned memory on `dev`; the model then places again in *out. Call encoder_fini
 * even after a failure. Returns OK, NOMEM or DEVICE. */
enum status
encoder_take(struct encoder *e, struct encoder_carves *out, struct device *dev, struct error *err);

/* Fills `to`, in a slot: slot 0 in order with the kernels, the others on the copy queue. Returns OK
 * or what the device returns. */
enum status encoder_copy(struct device *dev,
                         int32_t slot,
                         const struct tensor *to,
                         const void *from,
                         struct error *err);

/* ---- batches ---- */

/* One micro-batch of a batch. */
struct encoder_part {
    int32_t start, count; /* its samples */
    int32_t views;        /* rows per sample: encoder.views, or 1 in evaluation */
    int32_t whole_count;  /* samples of the batch */
    enum resnet_pass pass;
};

/* A batch, and its encoder's functions for a micro-batch. */
struct encoder_batch {
    void *model;
    const void *batch; /* of the model's own type */
    int32_t count;     /* samples */
    bool beside;       /* as in dual_encoder_batch */
    enum status (*forward)(void *model,
                           const void *batch,
                           const struct encoder_part *p,
                           struct error *err);
    /* dout[2] (rows of the batch, E): encoder_backward's. The last forward was of this part. */
    enum status (*backward)(void *model,
                            const void *batch,
                            const struct tensor *const dout[2],
                            const struct encoder_part *p,
                            enum write_mode mode,
                            struct error *err);
};

/* The micro-batch beginning at sample `start` of a batch of `count`. */
struct encoder_part
encoder_part(const struct encoder *e, int32_t count, int32_t start, enum resnet_pass pass);

/* Samples per micro-batch; micro-batches of a batch. */
int32_t encoder_micro_batch(const struct encoder *e);
int32_t encoder_part_count(const struct encoder *e, int32_t count);

/* Runs all micro-batches in order. RESNET_TRAINING updates the running statistics, and is then
 * collective. Returns OK or what the model, device and comm return. */
enum status encoder_forward(struct encoder *e,
                            const struct encoder_batch *b,
                            enum resnet_pass pass,
                            struct error *err);

/* Runs the micro-batches in reverse order, repeating the forward of each except the last one. */
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
    bool fixed_bias;         /* 0, not trained */
    bool normal;             /* initial weight: normal with std 1/sqrt(F) */
    bool zero_bias;          /* initial bias 0 */
    struct tensor features;  /* (n, F), set before forward, unchanged until backward; first views,
                                then second views */
    struct tensor dfeatures; /* (held_rows, F) */
    struct tensor out, norm; /* (max_rows, E), first views of the whole batch, then second ones;
                                (held_rows) */
};

/* Adds MODULE.weight and MODULE.bias, uniform in +-1/sqrt(F) unless the flags above are set.
 */
enum status head_add(struct head *h,
                     const struct encoder *e,
                     const char *module,
                     int32_t feature_count,
                     struct error *err);
/* Adds NAME (F, E), which is W^T, normal with std 1/sqrt(F), without bias: CLIP's. */
enum status head_add_plain(struct head *h,
                           const struct encoder *e,
                           const char *name,
                           int32_t feature_count,
                           struct error *err);
/* Adds no tensor. Requires F == E; not with `raw`. */
void head_add_none(struct head *h, int32_t feature_count);
void head_place(struct head *h, const struct encoder *e, struct carve *kept);

/* h->features -> the part's rows of h->out. */
enum status head_forward(const struct head *h,
                         const struct encoder *e,
                         const struct encoder_part *p,
                         struct error *err);

/* dout, of the whole batch -> *dfeatures (n, F) of the part, set; gradients of W and b, by mode. */
enum status head_backward(const struct head *h,
                          const struct encoder *e,
                          struct tensor *dfeatures,
                          const struct tensor *dout,
                          const struct encoder_part *p,
                          enum write_mode mode,
                          struct error *err);

#endif
