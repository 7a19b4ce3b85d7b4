/*
 * dual_encoder: an image tower and a text tower, each with a linear projection (with bias) into a
 * shared embedding space, and L2 normalisation.
 *
 *   images u8 (N, S, S, 3) -> resnet, vit  -> (N, F) -> image_proj -> (N, E) -> / norm -> X (N, E)
 *   tokens    (N, T)       -> transformer  -> (N, D) -> text_proj  -> (N, E) -> / norm -> T (N, E)
 *
 * A model of captions only (texts_alone) has just the second line: no parameters of the first, no
 * images, X and dL/dX. With `raw` embeddings are the projections' outputs, not normalised.
 *
 * Names in the table and in checkpoints, in this order: "image." + timm's, "text." + Hugging
 * Face's, image_proj.weight, image_proj.bias, text_proj.weight, text_proj.bias. Projections start
 * uniform in +-1/sqrt(fan_in), weight and bias.
 *
 * SigLIP's names (vit.map, text.whole) begin with "visual.trunk.", whose features are the
 * embeddings, and "text."; text.text_projection has a bias.
 *
 * With CLIP's text tower the model is open_clip's: its names ("visual." before the image tower's,
 * no prefix for the text tower's), visual.proj and text_projection (F, E) without biases; for a
 * ResNet visual.attnpool.c_proj.weight (E, F) and bias.
 *
 * Micro-batches (gradient caching). The towers may hold fewer pairs than the batch. A training
 * forward then runs micro-batch by micro-batch and keeps only the embeddings; backward repeats each
 * forward (with the same dropout, because its keys are the same) and sums the gradients. So the
 * loss is over the whole batch. Batch norm uses the statistics of a micro-batch (with
 * image.bn_group: of those that the ranks compute at the same time), and running statistics are
 * updated once per micro-batch, in order; nothing else depends on the size.
 *
 * On a device whose memory is the host's the gradients of M = q 2^k micro-batches, q odd, are added
 * in a fixed binary tree (gradients.h), so that 2^j ranks, j <= k, with micro-batches of equal size
 * are bit-identical to one. That takes k more blocks of gradients: 3 for batch 512 in micro-batches
 * of 64, 1 in micro-batches of 96 (6 of them). Other devices add micro-batches one by one.
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
    struct resnet_options image; /* max_batch and training are set from below */
    struct vit_options vit; /* layers > 0: image tower; of `image` only image_px, norm are read */
    struct transformer_options text; /* max_batch and training are set from below */
    int32_t embed_dim;               /* E; default 256 */
    int32_t max_batch;               /* largest N; default 1 */
    int32_t micro_batch; /* pairs that the towers hold, [0, max_batch]; 0: max_batch, which
                            dual_encoder_get_options returns */
    bool training;       /* gradients, moments and a backward pass; default true */
    enum dtype dtype; /* of activations: F32; F64 or BF16 if the device has it. Embeddings, values
                         and gradients of a BF16 model are f32 */
    bool padded; /* captions are padded to the longest; default false: packed. Same results, for
                    more work */
    struct comm *comm; /* the ranks that share a batch, each with as many micro-batches: training
                          forwards are collective, and all ranks' micro-batches update everyone's
                          running statistics, in batch order; NULL: this rank */
    int32_t moments;   /* of the optimiser: 2 or 1 (optimizer_moments); default 2 */
    int32_t slots;     /* memory for whole batches on the device, [0, DUAL_ENCODER_MAX_SLOTS], see
                          dual_encoder_put; default 0 */
    struct tuning tuning; /* what is trained, at which rates; default: everything, at one rate. A
                             frozen tower computes as in evaluation */
    bool recompute; /* activations of transformer blocks in the backward pass (blocks_set_backward);
                       default false */
    bool average;   /* the table keeps a moving average of its values; default false */
    bool no_projection_bias; /* projection biases start at 0 and are not trained; default false */
    bool texts_alone; /* no image tower: of `image` only image_px (>= 1) is read; default false */
    bool raw;         /* embeddings are not normalised; not BF16; default false */
};

/* Fills *opt from two presets (resnet_preset, transformer_preset) and defaults; image_tower NULL:
 * captions only (texts_alone). To be set by the caller: image.image_px, image.stem,
 * text.vocab_count, text.max_tokens, text.dropout, max_batch. Returns OK or USAGE. */
enum status dual_encoder_preset(struct dual_encoder_options *opt,
                                const char *image_tower,
                                const char *text_tower,
                                struct error *err);

struct dual_encoder_memory {
    size_t values_bytes; /* parameters and running statistics, with BF16 copies; with training also
                            the statistics of all ranks' micro-batches */
    size_t gradients_bytes;   /* of the parameters, with the blocks for the tree of micro-batches */
    size_t moments_bytes;     /* of the optimiser: m, and v if it has two */
    size_t activations_bytes; /* kept from forward to backward, for one micro-batch */
    size_t workspace_bytes;   /* workspace, reused */
    size_t input_bytes; /* images, tokens, lengths of a micro-batch; with slots of whole batches */
    size_t loss_bytes;  /* by trainer_plan: similarities, gradients of them and of embeddings */
    size_t state_bytes; /* by trainer_plan: per-sample state */
    size_t process_bytes; /* by trainer_plan, on a CPU: code, libraries, and the loader's batches */
    size_t total_bytes;
    int64_t parameter_count; /* trained parameters */
};

/* Only plans the device memory that create would allocate: with slots on a device with a stream,
 * else on one whose memory is the host's. Returns OK, NOMEM or USAGE. */
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
int32_t dual_encoder_feature_count(const struct dual_encoder *m); /* F; 0: no image tower */
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
    uint64_t step;                    /* third key of patch dropout */
    const struct step_values *values; /* of the step, in device memory: third key of dropout */
    int32_t slot; /* 0: forward and backward copy the arrays to the device; from 1: dual_encoder_put
                     has copied them to this slot */
    bool beside;  /* not the step's own batch: running statistics stay, and backward repeats
                     every forward, so another batch's passes may run in between. Requires slot 0 */
};

/* Requires options.slots and a device with a stream. Checks the batch and copies it to slot
 * batch->slot, in [1, slots], on the queue of copies: forward and backward of that slot must follow
 * a mark put after the copies, and those of its last batch must be complete. images, lengths and
 * sample_ids must be memory of the device's alloc_host, unchanged until that mark has been passed.
 * Returns OK, INVALID (which token or length is out of range) or what the device returns. */
enum status
dual_encoder_put(struct dual_encoder *m, const struct dual_encoder_batch *batch, struct error *err);

/* A hash of the shape of the batch in a slot. Batches of equal shape run the same ops on the same
 * addresses. */
uint64_t dual_encoder_shape(const struct dual_encoder *m, int32_t slot);

/* training: uses batch statistics and dropout, and keeps what backward needs; else running
 * statistics, no dropout. *image, *text (N, E) are normalised (unless options.raw); image is NULL
 * with options.texts_alone. Returns OK, INVALID (which token or length is out of range) or what the
 * device returns. */
enum status dual_encoder_forward(struct dual_encoder *m,
                                 struct tensor *image,
                                 struct tensor *text,
                                 const struct dual_encoder_batch *batch,
                                 bool training,
                                 struct error *err);

/* Encode one side for evaluation: running statistics, no dropout. count in [1, micro_batch]. They
 * use forward's buffers: not between forward and backward. *features (N, F), if not NULL, is the
 * tower's output in its own type, before the projection. */
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
 * `ready`, which may be NULL, receives them while backward still runs: the text tower's during the
 * image tower's backward pass. */
enum status dual_encoder_backward(struct dual_encoder *m,
                                  const struct tensor *dimage,
                                  const struct tensor *dtext,
                                  const struct dual_encoder_batch *batch,
                                  enum write_mode mode,
                                  const struct gradient_ready *ready,
                                  struct error *err);

#endif
