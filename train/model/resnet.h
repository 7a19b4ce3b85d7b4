/*
 * resnet: image towers of timm's ResNet family, forward and backward on the operator table.
 *
 *   images u8 (N, S, S, 3) -> normalise -> stem -> 4 stages of blocks -> global average -> (N, F)
 *
 * Parameter names are timm's (conv1.weight, layer1.0.conv1.weight, layer2.0.downsample.0.weight,
 * ...) after the table's prefix, without classifier and num_batches_tracked. Group norm has the
 * names of batch norm, without running statistics; without norms there are only convolutions.
 * Norms: eps 1e-5, momentum 0.1. Initial values: convolutions normal with std sqrt(2 / fan_out),
 * gamma 0 in the last norm of every block, else 1.
 *
 * Threading : one owner.
 * Ownership : parameters belong to the table, activations to the memory given to place; the tower
 *             owns only its description. Images are the caller's.
 */
#ifndef TRAIN_MODEL_RESNET_H
#define TRAIN_MODEL_RESNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/image_norm.h"
#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/carve.h"
#include "train/model/gradients.h"
#include "train/model/params.h"

enum { RESNET_MAX_BATCH = 1 << 20 };

enum resnet_pass {
    RESNET_INFERENCE, /* running statistics; nothing is kept */
    RESNET_TRAINING,  /* batch statistics; updates the running ones */
    RESNET_REPLAY,    /* repeats a training pass; running statistics stay */
};

enum resnet_stem {
    RESNET_STEM_STANDARD, /* 7x7 stride 2, or the preset's three 3x3, then 3x3 max pool stride 2 */
    RESNET_STEM_SMALL,    /* 3x3 stride 1, or three 3x3 stride 1; no pool: for 32-64 px */
};

enum resnet_norm {
    RESNET_NORM_BATCH,
    RESNET_NORM_GROUP, /* 32 groups, or the most that divide 32 and the channels (24: 8) */
    RESNET_NORM_NONE,  /* no normalisation (EMC2's --disable_batchnorm) */
    RESNET_NORM_COUNT
};

/* "batch", "group", "none"; then NULL. */
extern const char *const RESNET_NORM_NAMES[RESNET_NORM_COUNT + 1];

/* Groups of a layer; 0: not group norm. */
int32_t resnet_group_count(enum resnet_norm norm, int32_t channels);

struct resnet_options {
    bool bottleneck;   /* 1x1, 3x3, 1x1 with expansion 4 (stride on the 3x3); else two 3x3 */
    bool deep_stem;    /* three 3x3 of width 3/8, 1/2 and 1 (timm: deep tiered); else one 7x7 */
    bool average_down; /* shortcut: 2x2 average pool, then 1x1; else 1x1 with stride */
    /* > 0: CLIP's ResNet with so many heads in its attention pool: bottlenecks, a stem of three 3x3
     * (1/2, 1/2, 1) and an average pool, pools instead of strides, open_clip's names and initial
     * values; image_px a multiple of 32. */
    int32_t pool_heads;
    int32_t blocks[4]; /* per stage, each >= 1 */
    int32_t width;     /* channels of the first stage, a multiple of 8 (64) */
    enum resnet_stem stem;
    enum resnet_norm norm_layers; /* default BATCH; others require the operator conv_gn */
    enum image_norm_kind norm;    /* input normalisation; default CLIP */
    int32_t image_px;             /* S, input resolution, >= 8 */
    int32_t max_batch;            /* largest N */
    bool training;                /* false: no backward pass, blocks reuse buffers */
    /* Ranks that run every training pass, replay and backward together: batch statistics cover the
     * images of all of them. Borrowed; NULL: the images of the call; must be NULL without batch
     * norm. In an encoder's options also for the batch norm of its head. */
    const struct batch_norm_group *bn_group;
};

/* Fills *opt for "resnet10t", "resnet18", "resnet34", "resnet50" or "tiny" (ResNet-18 with one
 * block per stage, 16 to 128 channels): standard stem, 224 px, batch 1, training. Returns OK or
 * USAGE (unknown name; the message lists the names). */
enum status resnet_preset(struct resnet_options *opt, const char *name, struct error *err);

struct resnet;

/* Adds the tower's tensors to `p`, which is borrowed until destroy. Returns OK, NOMEM, LIMIT,
 * EXISTS (from the table) or USAGE (an option out of range). */
enum status resnet_create(struct resnet **out,
                          struct params *p,
                          const struct resnet_options *opt,
                          struct error *err);
void resnet_destroy(struct resnet *r); /* accepts NULL */

int32_t resnet_feature_count(const struct resnet *r); /* F */

/* As vit_ready; accepts NULL. */
enum status resnet_ready(struct resnet *r, struct error *err);

/* Places all activations: in `kept` those needed from forward to backward and the features; in
 * `workspace` the others, which other towers may reuse. dtype: the table's. Call it first
 * with empty carves and dev NULL, which counts; then again, with memory, before forward. */
void resnet_place(struct resnet *r,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *workspace);

/* images (N, S, S, 3) u8 on the device, N in [1, max_batch]. Training pass and replay require
 * options.training. *features (N, F) is a view until the next forward. Returns OK or what the
 * device returns. */
enum status resnet_forward(struct resnet *r,
                           struct tensor *features,
                           const struct tensor *images,
                           enum resnet_pass pass,
                           struct error *err);

/* After a training pass or its replay: gradients of all parameters, set or added by mode, each
 * block reported to `sums` (gradients_final; may be NULL). dfeatures (N, F). */
enum status resnet_backward(struct resnet *r,
                            const struct tensor *dfeatures,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err);

#endif
