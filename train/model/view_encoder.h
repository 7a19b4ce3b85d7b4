/*
 * view_encoder: one image tower for two views of every image, with the projection head of SimCLR
 * and later methods (linear without bias, batch norm, ReLU, linear), and L2 normalisation.
 *
 *   views u8 (2N, S, S, 3) -> tower -> (2N, F) -> proj.0, proj.1, ReLU -> (2N, H) -> proj.3
 *                                                            -> (2N, E) -> / norm -> X (2N, E)
 *
 * Both views are one batch: batch statistics cover all 2N, or, as in dual_encoder, the 2M views of
 * a micro-batch of M images (with image.bn_group: of all ranks), and backward then repeats each
 * forward. Evaluation uses F, before the head. Names in the table and in checkpoints, in this
 * order: "image." + timm's, proj.0.weight, proj.1.* (batch norm), proj.3.weight, proj.3.bias, as in
 * PyTorch's Sequential. The head's linear layers start uniform in +-1/sqrt(fan_in). The head's norm
 * is the tower's kind (image.norm_layers): without norms proj.1 does not exist, and the hidden
 * layer has no bias (EMC2's code has one).
 *
 * Create plans and allocates all memory; later calls allocate nothing.
 *
 * Threading : one owner.
 * Ownership : the model owns its parameter table and its memory; returned tensors are views until
 *             the next call that writes them. The device is borrowed and must outlive the model.
 */
#ifndef TRAIN_MODEL_VIEW_ENCODER_H
#define TRAIN_MODEL_VIEW_ENCODER_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/dual_encoder.h"
#include "train/model/params.h"
#include "train/model/resnet.h"

struct view_encoder_options {
    struct resnet_options image; /* max_batch and training are set from below */
    struct vit_options vit;      /* layers > 0: the image tower, without patch dropout; of `image`
                                    image_px, norm, norm_layers and bn_group (of the head) are read */
    int32_t hidden_dim;          /* H, [1, 65536] */
    int32_t embed_dim;           /* E, [1, 65536] */
    bool raw;                    /* X is the head's output, not L2-normalised; not with BF16 */
    int32_t max_batch;           /* largest number of images per call: 2N for training */
    int32_t micro_batch;         /* images whose two views the tower holds, [0, N]; 0: all */
    bool training;               /* gradients, moments and a backward pass */
    bool recompute;              /* as in dual_encoder_options */
    bool average;                /* the table keeps a moving average of its values; default false */
    int32_t moments;             /* of the optimiser, 1 or 2 per parameter */
    enum dtype dtype;            /* of activations, as in dual_encoder_options */
    struct comm *comm; /* ranks that share a batch, as in dual_encoder_options; default NULL */
    int32_t slots;     /* memory for whole batches on the device, [0, DUAL_ENCODER_MAX_SLOTS], see
                          view_encoder_put; default 0 */
};

/* As dual_encoder_plan. */
enum status view_encoder_plan(struct dual_encoder_memory *out,
                              const struct view_encoder_options *opt,
                              struct error *err);

struct view_encoder;

/* Builds the model on `dev`; values are zero until params_init or a checkpoint fills them. Returns
 * OK, NOMEM, USAGE (an option out of range), UNSUPPORTED (dtype) or what the device returns. */
enum status view_encoder_create(struct view_encoder **out,
                                struct device *dev,
                                const struct view_encoder_options *opt,
                                struct error *err);
void view_encoder_destroy(struct view_encoder *m); /* accepts NULL */

struct params *view_encoder_params(struct view_encoder *m);
const struct view_encoder_options *view_encoder_get_options(const struct view_encoder *m);
int32_t view_encoder_feature_count(const struct view_encoder *m); /* F */
struct dual_encoder_memory view_encoder_memory_used(const struct view_encoder *m);

/* Two views of every image, in host memory. A device may read the arrays until the next download or
 * sync after the last call that takes the batch. */
struct view_encoder_batch {
    int32_t count;                 /* N; 2N in [2, max_batch] */
    const uint8_t *first, *second; /* (N, S, S, 3) */
    int32_t slot; /* 0: forward and backward copy the arrays to the device; from 1: view_encoder_put
                     has copied them to this slot */
    bool beside;  /* as in dual_encoder_batch */
};

/* Requires options.slots and a device with a stream. Copies the batch to slot batch->slot, in [1,
 * slots], on the queue of copies: forward and backward of that slot must follow a mark put after
 * the copies, and those of its last batch must be complete. The arrays must be memory of the
 * device's alloc_host, unchanged until that mark has been passed. Returns OK or what the device
 * returns. */
enum status
view_encoder_put(struct view_encoder *m, const struct view_encoder_batch *batch, struct error *err);

/* As dual_encoder_shape. */
uint64_t view_encoder_shape(const struct view_encoder *m, int32_t slot);

/* Training: uses batch statistics, and keeps what backward needs. *x (2N, E) is normalised (unless
 * options.raw): the first views, then the second views. Returns OK or what the device returns. */
enum status view_encoder_forward(struct view_encoder *m,
                                 struct tensor *x,
                                 const struct view_encoder_batch *batch,
                                 struct error *err);

/* After forward with the same batch (its arrays still unchanged): gradients of all parameters from
 * dL/dX (2N, E), set or added by mode. `ready` as in dual_encoder_backward. */
enum status view_encoder_backward(struct view_encoder *m,
                                  const struct tensor *dx,
                                  const struct view_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err);

/* For evaluation: running statistics. count in [1, max_batch], or at most 2 micro_batch if that is
 * not 0; *x (count, E); *features (count, F), if not NULL, is the tower's output in its own type.
 * Not between forward and backward. */
enum status view_encoder_encode(struct view_encoder *m,
                                struct tensor *x,
                                struct tensor *features,
                                const uint8_t *images,
                                int32_t count,
                                struct error *err);

#endif
