/*
 * vit: vision transformers: patches as rows, position embeddings, the blocks of blocks.h; CLIP's,
 * with a class token, or SigLIP's.
 *
 *   images (N, S, S, 3) -> patches (N, G^2, 3 P^2) -> conv1 -> class token before them
 *     -> + positions -> ln_pre -> blocks, pre-norm -> ln_post of the class token's row (N, D)
 *
 *   SigLIP: patches -> proj -> + positions -> blocks -> norm of all rows -> map_pool (N, D)
 *
 * G = S / P. Names and initial values of CLIP's are open_clip's (class_embedding,
 * positional_embedding, conv1.weight, ln_pre, transformer.resblocks.0..., ln_post) after the
 * table's prefix. conv1 is a product with the patches. eps of norms 1e-5, no dropout. SigLIP's have
 * timm's names (patch_embed.proj, pos_embed, blocks.0..., norm, attn_pool...) and eps 1e-6.
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given at placement.
 */
#ifndef TRAIN_MODEL_VIT_H
#define TRAIN_MODEL_VIT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/image_norm.h"
#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/blocks.h"
#include "train/model/carve.h"
#include "train/model/gradients.h"
#include "train/model/params.h"

struct vit_options {
    int32_t patch_px; /* P, a divisor of image_px */
    int32_t layers;   /* >= 1; 0 in an encoder's options: a ResNet instead */
    int32_t dim;      /* D, a multiple of heads */
    int32_t heads;
    int32_t ffn_dim;
    enum activation act;  /* a GELU */
    bool map;             /* SigLIP's */
    double patch_dropout; /* [0, 1): fraction of patches that training drops; not with map */
    /* An encoder sets these from its other options. */
    int32_t image_px; /* S; at most 511 patches */
    enum image_norm_kind norm;
    int32_t max_batch; /* largest N */
    bool training;
};

/* Row indices of N images as sequences of 1 + P rows: a first row for the image, then its patches,
 * gathered (by `embedding`) from a table with the first rows, one per image or one for all, and
 * then the patches. A prefix serves fewer images. Without first rows sequences have P rows. */
struct patch_rows {
    struct tensor index;           /* (N (1 + P)) i32, indices in the table */
    struct tensor starts, lengths; /* (N) i32 */
    struct tensor patches;         /* (N P) i32, the sequences' rows that are patches */
    struct tensor queries;         /* (N) i32, only without first rows: for map_pool */
    int64_t heads;                 /* first rows in the table: N, 1, or 0 */
};

void patch_rows_place(struct patch_rows *r,
                      struct carve *kept,
                      int64_t n,
                      int64_t patches,
                      int64_t heads);

/* Writes the indices, once, after the placement with memory. Returns OK, NOMEM or what the device
 * returns. */
enum status patch_rows_write(const struct patch_rows *r, struct device *dev, struct error *err);

struct vit;

/* Adds the tower's tensors to `p`, which is borrowed until destroy. Returns OK, NOMEM, LIMIT,
 * EXISTS (from the table) or USAGE (an option out of range). */
enum status
vit_create(struct vit **out, struct params *p, const struct vit_options *opt, struct error *err);
void vit_destroy(struct vit *v); /* accepts NULL */

int32_t vit_feature_count(const struct vit *v); /* D */

/* As blocks_set_backward; layers before the blocks count as before block 0. */
void vit_set_backward(struct vit *v, int32_t frozen, enum blocks_keep keep);

/* As resnet_place. */
void vit_place(struct vit *v,
               struct device *dev,
               enum dtype dtype,
               struct carve *kept,
               struct carve *workspace);

/* Call once, after the placement with memory: writes row indices. Returns as patch_rows_write. */
enum status vit_ready(struct vit *v, struct error *err);

/* Patches per image that patch_dropout keeps, >= 1. */
int32_t vit_kept_patches(const struct vit_options *opt);

/* kept (N (1 + K)) i32: the rows kept of N sequences of 1 + P, K = vit_kept_patches; omitted: all.
 * images (N, S, S, 3) u8 on the device. *features (N, D) is a view until the next forward. */
enum status vit_forward(struct vit *v,
                        struct tensor *features,
                        const struct tensor *images,
                        struct tensor kept,
                        bool training,
                        struct error *err);

/* After a training forward: gradients of all parameters, set or added by mode, each block reported
 * to `sums` (gradients_final; may be NULL). dfeatures (N, D). */
enum status vit_backward(struct vit *v,
                         const struct tensor *dfeatures,
                         enum write_mode mode,
                         struct gradients *sums,
                         struct error *err);

#endif
