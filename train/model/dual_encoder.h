/*
 * dual_encoder: an image tower and a text tower, each with a linear projection (with bias) into one
 * space, and L2 normalisation.
 *
 *   images u8 (N, S, S, 3) -> resnet, vit  -> (N, F) -> image_proj -> (N, E) -> / norm -> X (N, E)
 *   tokens    (N, T)       -> transformer  -> (N, D) -> text_proj  -> (N, E) -> / norm -> T (N, E)
 *
 * A model of captions alone (texts_alone) has the second line only: no parameter of the first, and
 * no images, X and dL/dX. With `raw` embeddings are z = what the projection gives, not divided by
 * their length.
 *
 * Names in the table and in checkpoints, in this order: "image." + timm's, "text." + Hugging
 * Face's, image_proj.weight, image_proj.bias, text_proj.weight, text_proj.bias. Projections start
 * uniform in +-1/sqrt(fan_in), weight and bias.
 *
 * SigLIP's (vit.map, text.whole) has "visual.trunk.", whose features are the embeddings, "text.",
 * and text.text_projection with a bias.
 *
 * A text tower of CLIP's kind makes the model open_clip's: its names ("visual." before the image
 * tower's, none before the text tower's), visual.proj and text_projection (F, E) without biases; of
 * a residual network visual.attnpool.c_proj.weight (E, F) and bias.
 *
 * Micro-batches. The towers may hold fewer pairs than the batch has. A training forward then runs
 * micro-batch by micro-batch and keeps the embeddings alone; backward runs each forward once more
 * (the same dropout, because its keys are the same) and adds up the gradients. So the loss sees the
 * whole batch. Batch norm takes its statistics over a micro-batch (with image.bn_group, over those
 * that the ranks compute at the same time), and the running statistics move once per micro-batch,
 * in order; nothing else depends on the size.
 *
 * On a device whose memory is the host's the gradients of M = q 2^k micro-batches, q odd, are added
 * in a fixed binary tree (gradients.h), so that 2^j ranks, j <= k, with micro-batches of equal size
 * give the bits of one. That takes k blocks of gradients more: batch 512 in micro-batches of 64
 * takes 3 of them, of 96 (6 micro-batches) 1. Other devices add the micro-batches one by one.
 *
 * Create plans and allocates all memory; later calls allocate nothing.
 *
 * Threading : one owner.
 * Ownership : the model owns its parameter table and its memory; returned tensors are views until
 *             the next call that writes them. The device is borrowed and must outlive the model.
 */
#ifndef TRAIN_MODEL_DUAL_ENCODER_H
#define TRAIN_MODEL_DUAL_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/gradients.h"
#include "train/model/params.h"
#include "train/model/resnet.h"
#include "train/model/transformer.h"
#include "train/model/tuning.h"
#include "train/model/vit.h"

enum { DUAL_ENCODER_MAX_SLOTS = 2 };

struct dual_encoder_options {
    struct resnet_options image; /* max_batch and training are taken from below */
    struct vit_options vit; /* with layers > 0 the image tower, instead of a resnet: of `image` only
                               image_px and norm are read */
    struct transformer_options text; /* max_batch and training are taken from below */
    int32_t embed_dim;               /* E, 256 */
    int32_t max_batch;               /* N at most, 1 */
    int32_t micro_batch; /* pairs that the towers hold, [0, max_batch]; 0: all. Never 0 in what
                            dual_encoder_get_options returns */
    bool training;       /* gradients, moments and a backward pass; default true */
    enum dtype dtype;    /* of activations: F32; F64 or BF16 where the device has it. Embeddings,
                            values and gradients of a BF16 model are f32 */
    bool padded; /* captions as in the batch, padded to the longest; false: packed. Same results,
                    for more work */
    struct comm *comm; /* the ranks that share a batch, each with as many micro-batches: training
                          forwards are collective, and the running statistics of all ranks move by
                          the micro-batches of all, in the order of the batch; NULL: this one */
    int32_t moments;   /* of the optimiser: 2, or 1 (optimizer_moments) */
    int32_t slots;     /* places for whole batches on the device, [0, DUAL_ENCODER_MAX_SLOTS], see
                          dual_encoder_put; default 0 */
    struct tuning tuning; /* what trains, at which rates. A tower that is frozen computes as in
                             evaluation, and its running statistics stay; default: all at one */
    bool recompute; /* activations of transformer blocks in the backward pass (blocks_set_backward);
                       false */
    bool average;   /* the table keeps an average of its values; default false */
    bool no_projection_bias; /* the biases of the projections start at 0 and are not trained; false
                              */
    bool texts_alone; /* no image tower: of `image` only image_px (>= 1) is read; default false */
    bool raw;         /* embeddings as the projection gives them, not of length 1; not BF16; false
                       */
};

/* Fills *opt from two presets (see resnet_preset and transformer_preset); image_tower NULL: of
 * captions alone, with texts_alone set. The rest: embed_dim 256, batch 1,
 * training, F32, packed, two moments. To be set after: image.image_px, image.stem,
 * text.vocab_count, text.max_tokens, text.dropout, max_batch. Returns OK or USAGE. */
enum status dual_encoder_preset(struct dual_encoder_options *opt,
                                const char *image_tower,
                                const char *text_tower,
                                struct error *err);

struct dual_encoder_memory {
    size_t values_bytes;      /* parameters and running statistics, with copies in BF16, and with
                                 training the statistics of a batch's micro-batches, of all ranks */
    size_t gradients_bytes;   /* of the parameters, with the blocks of the tree of micro-batches */
    size_t moments_bytes;     /* of the optimiser: m, and v where it has one */
    size_t activations_bytes; /* kept from forward to backward, for one micro-batch */
    size_t scratch_bytes;     /* reused all the time */
    size_t input_bytes;       /* one micro-batch of images, tokens, lengths; whole ones in slots */
    size_t loss_bytes;    /* of trainer_plan: similarities, their gradients, those of embeddings */
    size_t state_bytes;   /* of trainer_plan: the columns of samples */
    size_t process_bytes; /* of trainer_plan, on a CPU: code, libraries, and the loader's batches */
    size_t total_bytes;
    int64_t parameter_count; /* trained elements */
};

/* The plan alone: the device memory that create would allocate; with slots on a device with a
 * stream, else on one whose memory is the host's. Returns OK, NOMEM or USAGE. */
enum status dual_encoder_plan(struct dual_encoder_memory *out,
                              const struct dual_encoder_options *opt,
                              struct error *err);

struct dual_encoder;

/* Builds the model on `dev`; values are zero until params_init or a checkpoint fills them. Returns
 * OK, NOMEM, USAGE (an option out of range), UNSUPPORTED (dtype) or what the device returns. */
enum status dual_encoder_create(struct dual_encoder **out,
                                struct device *dev,
                                const struct dual_encoder_options *opt,
                                struct error *err);
void dual_encoder_destroy(struct dual_encoder *m); /* accepts NULL */

struct params *dual_encoder_params(struct dual_encoder *m);
const struct dual_encoder_options *dual_encoder_get_options(const struct dual_encoder *m);
int32_t dual_encoder_feature_count(const struct dual_encoder *m); /* F of images; 0 without them */
struct dual_encoder_memory dual_encoder_memory_used(const struct dual_encoder *m);

/* A batch in host memory, as the loader delivers it. A device may read the arrays until the next
 * download or sync after the last call that takes the batch. */
struct dual_encoder_batch {
    int32_t count;                    /* N in [1, max_batch] */
    const uint8_t *images;            /* (N, S, S, 3) */
    const int32_t *tokens;            /* (N, max_tokens), each in [0, vocab_count) */
    const int32_t *lengths;           /* (N), each in [1, max_tokens] */
    const uint64_t *sample_ids;       /* (N) keys of dropout; NULL in evaluation */
    uint64_t seed;                    /* key of dropout */
    uint64_t step;                    /* the third key of patch dropout */
    const struct step_values *values; /* of the step, on the DEVICE: the third key of dropout */
    int32_t slot; /* 0: forward and backward copy the arrays to the device; from 1: dual_encoder_put
                     has copied them to this slot */
    bool beside;  /* not the step's own batch: running statistics stay, and backward runs every
                     forward  once more, so that the passes of another batch may come between.
                     Requires slot 0 */
};

/* Requires options.slots and a device with a stream. Checks the batch and copies it to slot
 * batch->slot, in [1, slots], on the queue of copies: forward and backward of that slot must follow
 * a mark put after the copies, and those of its last batch must be complete. images, lengths and
 * sample_ids must be memory of the device's alloc_host, unchanged until that mark has been passed.
 * Returns OK, INVALID (a token or length out of range, which one) or what the device returns. */
enum status
dual_encoder_put(struct dual_encoder *m, const struct dual_encoder_batch *batch, struct error *err);

/* A number of the shape of the batch in a slot. Batches of equal shape run the same ops on the same
 * addresses. Equal numbers mean equal shapes, but for one chance in 2^64. */
uint64_t dual_encoder_shape(const struct dual_encoder *m, int32_t slot);

/* training: batch statistics, dropout, and what backward needs is kept; else running statistics
 * and no dropout. *image, *text (N, E) have rows of length 1 (unless options.raw); image is NULL
 * with options.texts_alone. Returns OK, INVALID (a token or
 * length out of range, which one) or what the device returns. */
enum status dual_encoder_forward(struct dual_encoder *m,
                                 struct tensor *image,
                                 struct tensor *text,
                                 const struct dual_encoder_batch *batch,
                                 bool training,
                                 struct error *err);

/* One side alone, for evaluation: running statistics, no dropout. count in [1, micro_batch]. They
 * use the buffers of forward: not between forward and backward. *features (N, F), if requested (may
 * be NULL), is the tower's output in its type, before the projection. */
enum status dual_encoder_encode_images(struct dual_encoder *m,
                                       struct tensor *image,
                                       struct tensor *features,
                                       const uint8_t *images,
                                       int32_t count,
                                       struct error *err);
enum status dual_encoder_encode_texts(struct dual_encoder *m,
                                      struct tensor *text,
                                      const int32_t *tokens,
                                      const int32_t *lengths,
                                      int32_t count,
                                      struct error *err);

/* After a training forward with the same batch (its arrays still unchanged): gradients of all
 * parameters from dL/dX (NULL with options.texts_alone) and dL/dT (N, E), set or added by mode.
 * `ready`, which may be NULL, receives them while backward still runs: those of the text tower
 * during backward of the image tower. */
enum status dual_encoder_backward(struct dual_encoder *m,
                                  const struct tensor *dimage,
                                  const struct tensor *dtext,
                                  const struct dual_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err);

#endif
