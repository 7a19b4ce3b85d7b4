/*
 * The tower is a list of units (convolution + norm + residual + activation, one operator)
 * arranged in blocks:
 *
 *   basic       x -> 3x3/s -> 3x3 -> + shortcut -> relu
 *   bottleneck  x -> 1x1 -> 3x3/s -> 1x1 -> + shortcut -> relu
 *   shortcut    x, or 1x1/s, or 2x2 average pool and 1x1
 *
 * Memory. In training a unit keeps its output and the input of its batch norm (`kept`), except
 * outputs that no gradient reads: before a pool, and of shortcuts. The backward pass uses four
 * equal slots of `workspace`: one holds dL/d(output of the block), the others gradients inside it,
 * and at the end of a block one of them holds dL/d(its input). Without training these slots hold
 * the activations, and nothing else is kept.
 *
 * Shapes in comments: N images, P pixels of a side before a unit and P' after it, I channels before
 * and O after.
 */
#include "train/model/resnet.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/model/attention_pool.h"
#include "train/model/carve.h"
#include "train/model/conv_unit_internal.h"

enum { SLOT_COUNT = 4, STEM_MAX_UNITS = 3, BLOCK_MAX_UNITS = 3 };

struct block {
    struct unit units[BLOCK_MAX_UNITS];
    int32_t unit_count;
    bool has_shortcut;   /* `shortcut` is used; else the input itself is added */
    bool has_average;    /* preceded by `averaged` */
    bool has_inner;      /* `inner` precedes the last unit: CLIP's stride */
    struct tensor inner; /* (max_batch, P', P', planes) */
    struct unit shortcut;
    struct tensor averaged; /* (max_batch, P, P, C in) */
};

struct resnet {
    struct resnet_options opt;
    struct unit_owner units;

    struct unit stem[STEM_MAX_UNITS];
    int32_t stem_count;
    bool has_pool;
    int32_t stem_px, pool_px;
    struct block *blocks;
    int32_t block_count;
    int32_t feature_count;
    struct attention_pool attention; /* with pool_heads */
    int64_t largest; /* elements of an image's largest activation, or of its gradient */

    struct tensor input;             /* (max_batch, S, S, 3) */
    struct tensor pooled;            /* (max_batch, P, P, C) */
    struct tensor pool_places;       /* the same, i32 */
    struct tensor features;          /* (max_batch, F) */
    struct tensor slots[SLOT_COUNT]; /* 1-D, each as large as the largest activation */
};

static const struct pool_params MAX_POOL = {.kernel = 3, .stride = 2, .pad = 1};
static const struct pool_params AVERAGE_POOL = {.kernel = 2, .stride = 2, .pad = 0};

enum { BOTTLENECK_EXPANSION = 4, MOST_GROUPS = 32 };

const char *const RESNET_NORM_NAMES[RESNET_NORM_COUNT + 1] = {"batch", "group", "none", NULL};

int32_t resnet_group_count(enum resnet_norm norm, int32_t channels) {
    int32_t groups = norm == RESNET_NORM_GROUP ? MOST_GROUPS : 0;
    while (groups > 0 && channels % groups != 0) {
        groups /= 2;
    }
    return groups;
}

/* ---- description ---- */

enum status resnet_preset(struct resnet_options *opt, const char *name, struct error *err) {
    static const struct {
        const char *name;
        struct resnet_options options;
    } presets[] = {
        {"tiny", {.width = 16, .blocks = {1, 1, 1, 1}}},
        {"resnet10t",
         {.width = 64, .deep_stem = true, .average_down = true, .blocks = {1, 1, 1, 1}}},
        {"resnet18", {.width = 64, .blocks = {2, 2, 2, 2}}},
        {"resnet34", {.width = 64, .blocks = {3, 4, 6, 3}}},
        {"resnet50", {.width = 64, .bottleneck = true, .blocks = {3, 4, 6, 3}}},
    };
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *opt = presets[i].options;
            opt->image_px = 224;
            opt->max_batch = 1;
            opt->training = true;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE,
                     "unknown image tower '%s' (tiny, resnet10t, resnet18, resnet34, resnet50)",
                     name);
}

static enum status check_options(const struct resnet_options *o, struct error *err) {
    FAIL_IF(o->width < 8 || o->width > 1024 || o->width % 8 != 0, err, STATUS_USAGE,
            "image tower width %d is not a multiple of 8 in 8-1024", (int)o->width);
    FAIL_IF(o->image_px < 8 || o->image_px > 4096, err, STATUS_USAGE,
            "image size %d px is not in 8-4096", (int)o->image_px);
    FAIL_IF(o->max_batch < 1 || o->max_batch > RESNET_MAX_BATCH, err, STATUS_USAGE,
            "batch of %d images is not in 1-%d", (int)o->max_batch, RESNET_MAX_BATCH);
    FAIL_IF(o->pool_heads > 0 && o->image_px % 32 != 0, err, STATUS_USAGE,
            "image size %d px is not a multiple of 32, as CLIP's residual networks need",
            (int)o->image_px);
    for (int32_t s = 0; s < 4; s++) {
        FAIL_IF(o->blocks[s] < 1 || o->blocks[s] > 64, err, STATUS_USAGE,
                "stage %d has %d blocks, not 1-64", (int)s + 1, (int)o->blocks[s]);
    }
    return STATUS_OK;
}

/* Adds a unit's tensors under timm's names of its convolution and its batch norm. gamma_init is
 * ZEROS for the last unit of a block, which so begins as its shortcut. */
static enum status add_unit(struct resnet *r,
                            struct unit *u,
                            const char *conv,
                            const char *norm,
                            enum param_init gamma_init,
                            struct error *err) {
    double fan_out = (double)u->out_channels * u->kernel * u->kernel;
    struct param_spec weight = {.module = conv,
                                .name = "weight",
                                .shape = {u->out_channels, u->kernel, u->kernel, u->in_channels},
                                .conv = true,
                                .init = PARAM_INIT_NORMAL,
                                .init_scale = sqrt(2.0 / fan_out)};
    if (r->opt.pool_heads > 0) {
        weight.init = PARAM_INIT_UNIFORM;
        weight.init_scale = 1.0 / sqrt((double)u->in_channels * u->kernel * u->kernel);
    }
    const int64_t out = (int64_t)u->out_px * u->out_px * u->out_channels;
    r->largest = out > r->largest ? out : r->largest;
    TRY(params_add(r->units.params, &u->weight, &weight, err));
    return unit_add_norm(u, &r->units, norm, gamma_init, err);
}

static struct unit describe_unit(int32_t in_channels,
                                 int32_t out_channels,
                                 int32_t kernel,
                                 int32_t stride,
                                 int32_t in_px) {
    int32_t pad = kernel / 2;
    return (struct unit){.in_channels = in_channels,
                         .out_channels = out_channels,
                         .kernel = kernel,
                         .stride = stride,
                         .pad = pad,
                         .in_px = in_px,
                         .out_px = (in_px + 2 * pad - kernel) / stride + 1,
                         .act = ACTIVATION_RELU};
}

/* conv1 + bn1, or conv1.0 .1, conv1.3 .4, conv1.6 + bn1. */
static enum status build_stem(struct resnet *r, struct error *err) {
    const struct resnet_options *o = &r->opt;
    int32_t width = o->width;
    int32_t stride = o->stem == RESNET_STEM_SMALL ? 1 : 2;
    if (o->deep_stem || o->pool_heads > 0) {
        static const char *const names[2][3][2] = {
            {{"conv1.0", "conv1.1"}, {"conv1.3", "conv1.4"}, {"conv1.6", "bn1"}},
            {{"conv1", "bn1"}, {"conv2", "bn2"}, {"conv3", "bn3"}}};
        const int clip = o->pool_heads > 0;
        const int32_t widths[] = {3, clip ? width / 2 : width / 8 * 3, width / 2, width};
        r->stem_count = 3;
        for (int i = 0; i < 3; i++) {
            r->stem[i] = describe_unit(widths[i], widths[i + 1], 3, i == 0 ? stride : 1,
                                       i == 0 ? o->image_px : r->stem[0].out_px);
            TRY(add_unit(r, &r->stem[i], names[clip][i][0], names[clip][i][1], PARAM_INIT_ONES,
                         err));
        }
    } else {
        int32_t kernel = o->stem == RESNET_STEM_SMALL ? 3 : 7;
        r->stem_count = 1;
        r->stem[0] = describe_unit(3, width, kernel, stride, o->image_px);
        TRY(add_unit(r, &r->stem[0], "conv1", "bn1", PARAM_INIT_ONES, err));
    }
    r->stem_px = r->stem[0].out_px;
    r->has_pool = o->stem == RESNET_STEM_STANDARD;
    r->pool_px = o->pool_heads > 0 ? r->stem_px / 2
                 : r->has_pool     ? (r->stem_px + 2 * MAX_POOL.pad - MAX_POOL.kernel) / 2 + 1
                                   : r->stem_px;
    return STATUS_OK;
}

/* One block named `name` ("layer2.0"); returns its output through channels and px. */
static enum status build_block(struct resnet *r,
                               struct block *b,
                               const char *name,
                               int32_t planes,
                               int32_t stride,
                               int32_t *channels,
                               int32_t *px,
                               struct error *err) {
    int32_t in_channels = *channels;
    int32_t out_channels = planes * (r->opt.bottleneck ? BOTTLENECK_EXPANSION : 1);
    const bool clip = r->opt.pool_heads > 0;
    b->unit_count = r->opt.bottleneck ? 3 : 2;
    b->has_inner = clip && stride != 1;
    if (r->opt.bottleneck) {
        b->units[0] = describe_unit(in_channels, planes, 1, 1, *px);
        b->units[1] = describe_unit(planes, planes, 3, clip ? 1 : stride, *px);
        b->units[2] =
            describe_unit(planes, out_channels, 1, 1, clip ? *px / stride : b->units[1].out_px);
    } else {
        b->units[0] = describe_unit(in_channels, planes, 3, stride, *px);
        b->units[1] = describe_unit(planes, planes, 3, 1, b->units[0].out_px);
    }
    char conv[64];
    char norm[64];
    for (int32_t i = 0; i < b->unit_count; i++) {
        snprintf(conv, sizeof(conv), "%s.conv%d", name, (int)i + 1);
        snprintf(norm, sizeof(norm), "%s.bn%d", name, (int)i + 1);
        bool last = i + 1 == b->unit_count;
        TRY(add_unit(r, &b->units[i], conv, norm, last ? PARAM_INIT_ZEROS : PARAM_INIT_ONES, err));
    }
    b->has_shortcut = stride != 1 || in_channels != out_channels;
    if (b->has_shortcut) {
        /* With an average pool before it, timm's names are .1 and .2, even if there is no pool
         * because the stride is 1. */
        bool average = r->opt.average_down && !clip; /* CLIP's names are .0 and .1 */
        b->has_average = (average || clip) && stride != 1;
        b->shortcut = describe_unit(in_channels, out_channels, 1, average || clip ? 1 : stride,
                                    b->has_average ? (*px + 1) / 2 : *px);
        b->shortcut.act = ACTIVATION_NONE;
        snprintf(conv, sizeof(conv), "%s.downsample.%d", name, average ? 1 : 0);
        snprintf(norm, sizeof(norm), "%s.downsample.%d", name, average ? 2 : 1);
        TRY(add_unit(r, &b->shortcut, conv, norm, PARAM_INIT_ONES, err));
    }
    *channels = out_channels;
    *px = b->units[b->unit_count - 1].out_px;
    return STATUS_OK;
}

static enum status build(struct resnet *r, struct error *err) {
    /* a pool's output is smaller than its input, which is a unit's */
    r->largest = (int64_t)r->opt.image_px * r->opt.image_px * 3;
    TRY(build_stem(r, err));
    int32_t channels = r->opt.width;
    int32_t px = r->pool_px;
    int32_t next = 0;
    for (int32_t stage = 0; stage < 4; stage++) {
        int32_t planes = r->opt.width << stage;
        for (int32_t i = 0; i < r->opt.blocks[stage]; i++) {
            char name[32];
            snprintf(name, sizeof(name), "layer%d.%d", (int)stage + 1, (int)i);
            int32_t stride = stage > 0 && i == 0 ? 2 : 1;
            TRY(build_block(r, &r->blocks[next++], name, planes, stride, &channels, &px, err));
        }
    }
    r->feature_count = channels;
    if (r->opt.pool_heads == 0) {
        return STATUS_OK;
    }
    r->attention = (struct attention_pool){
        .rows = (int64_t)px * px, .channels = channels, .heads = r->opt.pool_heads};
    return attention_pool_add(&r->attention, r->units.params, err);
}

enum status resnet_create(struct resnet **out,
                          struct params *p,
                          const struct resnet_options *opt,
                          struct error *err) {
    *out = NULL;
    TRY(check_options(opt, err));
    struct resnet *r = calloc(1, sizeof(*r));
    TRY_MEMORY(r != NULL, err, "out of memory for the image tower");
    enum status s = STATUS_OK;
    r->opt = *opt;
    r->units = (struct unit_owner){.params = p, .norm = opt->norm_layers, .group = opt->bn_group};
    r->block_count = opt->blocks[0] + opt->blocks[1] + opt->blocks[2] + opt->blocks[3];
    r->blocks = calloc((size_t)r->block_count, sizeof(*r->blocks));
    if (r->blocks == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for the image tower");
        goto fail;
    }
    TRY_OR_FAIL(s, build(r, err));
fail:
    RETURN_CREATED(s, out, r, resnet_destroy);
}

void resnet_destroy(struct resnet *r) {
    if (r == NULL) {
        return;
    }
    free(r->blocks);
    free(r);
}

int32_t resnet_feature_count(const struct resnet *r) {
    return r->feature_count;
}

enum status resnet_ready(struct resnet *r, struct error *err) {
    return r != NULL && r->opt.pool_heads > 0
               ? patch_rows_write(&r->attention.at, r->units.dev, err)
               : STATUS_OK;
}

/* ---- memory ---- */

/* State of a layout pass. */
struct layout {
    const struct resnet *r;
    enum dtype dtype;
    struct carve *kept;
    struct tensor mean, rstd; /* shared by all units without training */
};

/* An activation (max_batch, px, px, channels): with its own memory in training, else in the given
 * slot. */
static struct tensor
place_activation(const struct layout *l, int32_t slot, int32_t px, int32_t channels) {
    const struct resnet *r = l->r;
    if (!r->opt.training) {
        return shaped(&r->slots[slot], r->opt.max_batch, px, channels);
    }
    return carve_take(l->kept, tensor_4d(NULL, l->dtype, r->opt.max_batch, px, px, channels));
}

/* passing: no gradient reads the output, so it stays in its slot in training too. If batch norm
 * keeps pre, it is pooled or added right away. */
static void place_unit(const struct layout *l, struct unit *u, bool passing, int32_t slot) {
    const struct resnet *r = l->r;
    u->out = passing && r->opt.norm_layers == RESNET_NORM_BATCH
                 ? shaped(&r->slots[slot], r->opt.max_batch, u->out_px, u->out_channels)
                 : place_activation(l, slot, u->out_px, u->out_channels);
    if (r->opt.norm_layers == RESNET_NORM_NONE) {
        u->pre = u->mean = u->rstd = NOT_WANTED;
        return;
    }
    u->mean = u->rstd = unit_statistics(&r->units, l->dtype, r->opt.max_batch, u->out_channels);
    if (!r->opt.training) {
        u->pre = shaped(&r->units.dpre, r->opt.max_batch, u->out_px, u->out_channels);
        u->mean.data = l->mean.data;
        u->rstd.data = l->rstd.data;
        return;
    }
    u->pre = carve_take(l->kept, u->out);
    u->mean = carve_take(l->kept, u->mean);
    u->rstd = carve_take(l->kept, u->rstd);
}

/* Without training the block's input stays in its slot until it is added to the output; the three
 * other slots suffice for the rest. Returns the slot of the output. */
static int32_t place_block(const struct layout *l, struct block *b, int32_t in) {
    int32_t a = (in + 1) % SLOT_COUNT;
    int32_t c = (in + 2) % SLOT_COUNT;
    int32_t d = (in + 3) % SLOT_COUNT;
    if (b->has_average) {
        b->averaged = place_activation(l, a, b->shortcut.in_px, b->shortcut.in_channels);
    }
    if (b->has_shortcut) {
        place_unit(l, &b->shortcut, true, c);
    }
    place_unit(l, &b->units[0], false, a);
    place_unit(l, &b->units[1], b->has_inner, d);
    if (b->has_inner) {
        b->inner = place_activation(l, a, b->units[2].in_px, b->units[2].in_channels);
        place_unit(l, &b->units[2], false, d);
    }
    if (b->unit_count == 2 || b->has_inner) {
        return d;
    }
    place_unit(l, &b->units[2], false, a);
    return a;
}

void resnet_place(struct resnet *r,
                  struct device *dev,
                  enum dtype dtype,
                  struct carve *kept,
                  struct carve *workspace) {
    int64_t n = r->opt.max_batch;
    struct tensor slot = tensor_1d(NULL, dtype, n * r->largest);
    r->units.dev = dev;
    for (int32_t i = 0; i < SLOT_COUNT; i++) {
        r->slots[i] = carve_take(workspace, slot);
    }
    r->units.dpre = carve_take(workspace, slot);
    struct layout l = {.r = r, .dtype = dtype, .kept = kept};
    if (!r->opt.training && r->opt.norm_layers != RESNET_NORM_NONE) {
        l.mean = carve_take(workspace, unit_statistics(&r->units, dtype, n, r->feature_count));
        l.rstd = carve_take(workspace, l.mean); /* of the most channels */
    }
    int32_t at = 0;
    r->input = place_activation(&l, at, r->opt.image_px, 3);
    for (int32_t i = 0; i < r->stem_count; i++) {
        at = (at + 1) % SLOT_COUNT;
        place_unit(&l, &r->stem[i], r->has_pool && i == r->stem_count - 1, at);
    }
    if (r->has_pool) {
        at = (at + 1) % SLOT_COUNT;
        r->pooled = place_activation(&l, at, r->pool_px, r->opt.width);
        r->pool_places =
            carve_take(r->opt.training ? kept : workspace,
                       tensor_4d(NULL, DTYPE_I32, n, r->pool_px, r->pool_px, r->opt.width));
    }
    for (int32_t k = 0; k < r->block_count; k++) {
        at = place_block(&l, &r->blocks[k], at);
    }
    r->features = carve_take(kept, tensor_2d(NULL, dtype, n, r->feature_count));
    if (r->opt.pool_heads > 0) {
        attention_pool_place(&r->attention, dev, dtype, n, r->opt.training, kept, workspace);
    }
}

/* ---- forward ---- */

/* *x: in, the block's input (N, P, P, I); out, its output (N, P', P', O) */
static enum status
block_forward(const struct resnet *r, const struct block *b, struct tensor *x, struct error *err) {
    int64_t n = x->shape[0];
    struct tensor residual = *x;
    if (b->has_shortcut) {
        struct tensor in = *x;
        if (b->has_average) {
            in = first_rows(b->averaged, n);
            const struct avgpool average = {.out = in, .in = *x, .pool = AVERAGE_POOL};
            TRY(r->units.dev->ops->avgpool(r->units.dev, &average, err));
        }
        TRY(unit_forward(&r->units, &b->shortcut, in, NOT_WANTED, err));
        residual = first_rows(b->shortcut.out, n);
    }
    for (int32_t i = 0; i < b->unit_count; i++) {
        bool last = i + 1 == b->unit_count;
        if (last && b->has_inner) {
            const struct avgpool pool = {
                .out = first_rows(b->inner, n), .in = *x, .pool = AVERAGE_POOL};
            TRY(r->units.dev->ops->avgpool(r->units.dev, &pool, err));
            *x = pool.out;
        }
        TRY(unit_forward(&r->units, &b->units[i], *x, last ? residual : NOT_WANTED, err));
        *x = first_rows(b->units[i].out, n);
    }
    return STATUS_OK;
}

enum status resnet_forward(struct resnet *r,
                           struct tensor *features,
                           const struct tensor *images,
                           enum resnet_pass pass,
                           struct error *err) {
    REQUIRE(r->units.dev != NULL && (pass == RESNET_INFERENCE || r->opt.training));
    REQUIRE(images->ndim == 4 && images->shape[0] >= 1 && images->shape[0] <= r->opt.max_batch);
    const struct ops *ops = r->units.dev->ops;
    int64_t n = images->shape[0];
    r->units.pass = pass;
    struct tensor x = first_rows(r->input, n); /* (N, S, S, 3) */
    const struct normalize_u8 normalize = {
        .out = x, .in = *images, .norm = &IMAGE_NORMS[r->opt.norm], .patch = 1};
    TRY(ops->normalize_u8(r->units.dev, &normalize, err));
    for (int32_t i = 0; i < r->stem_count; i++) {
        TRY(unit_forward(&r->units, &r->stem[i], x, NOT_WANTED, err));
        x = first_rows(r->stem[i].out, n); /* (N, S/2, S/2, width) after the last */
    }
    if (r->opt.pool_heads > 0) {
        const struct avgpool op = {.out = first_rows(r->pooled, n), .in = x, .pool = AVERAGE_POOL};
        TRY(ops->avgpool(r->units.dev, &op, err));
        x = op.out;
    } else if (r->has_pool) {
        const struct maxpool op = {.out = first_rows(r->pooled, n), /* (N, S/4, S/4, width) */
                                   .argmax = first_rows(r->pool_places, n),
                                   .in = x,
                                   .pool = MAX_POOL};
        TRY(ops->maxpool(r->units.dev, &op, err));
        x = op.out;
    }
    for (int32_t k = 0; k < r->block_count; k++) {
        TRY(block_forward(r, &r->blocks[k], &x, err));
    }
    *features = first_rows(r->features, n);
    if (r->opt.pool_heads > 0) {
        return attention_pool_forward(&r->attention, *features, x, err);
    }
    const struct global_avgpool op = {.out = *features, .in = x}; /* (N, S/32, S/32, F) -> (N, F) */
    return ops->global_avgpool(r->units.dev, &op, err);
}

/* ---- backward ---- */

/* dshortcut (N, P', P', O) -> dx (N, P, P, I), set. `spare` is free memory. */
static enum status shortcut_backward(struct resnet *r,
                                     const struct block *b,
                                     struct tensor x,
                                     struct tensor dx,
                                     struct tensor dshortcut,
                                     const struct tensor *spare,
                                     struct error *err) {
    if (!b->has_average) {
        return unit_backward(&r->units, &b->shortcut, x, dx, WRITE_SET, NOT_WANTED, dshortcut, err);
    }
    int64_t n = x.shape[0];
    struct tensor averaged = first_rows(b->averaged, n);
    struct tensor daveraged = shaped(spare, n, b->shortcut.in_px, b->shortcut.in_channels);
    TRY(unit_backward(&r->units, &b->shortcut, averaged, daveraged, WRITE_SET, NOT_WANTED,
                      dshortcut, err));
    const struct avgpool_bwd average = {.din = dx, .dout = daveraged, .pool = AVERAGE_POOL};
    return r->units.dev->ops->avgpool_bwd(r->units.dev, &average, err);
}

/* x is the block's input. *at: in, the slot of dL/d(output); out, the slot of dL/dx. */
static enum status block_backward(struct resnet *r,
                                  const struct block *b,
                                  const struct tensor *x,
                                  int32_t *at,
                                  struct error *err) {
    const struct tensor *free_slot = &r->slots[*at]; /* free once the last unit is done */
    const struct tensor *inner_slot = &r->slots[(*at + 1) % SLOT_COUNT];
    const struct tensor *residual_slot = &r->slots[(*at + 3) % SLOT_COUNT];
    int32_t x_at = (*at + 2) % SLOT_COUNT;
    int64_t n = x->shape[0];
    const struct unit *last = &b->units[b->unit_count - 1];
    struct tensor dout = shaped(free_slot, n, last->out_px, last->out_channels);
    struct tensor dx = shaped(&r->slots[x_at], n, (int64_t)b->units[0].in_px, x->shape[3]);
    struct tensor dshortcut = shaped(residual_slot, n, last->out_px, last->out_channels);
    struct tensor inner = shaped(inner_slot, n, last->in_px, last->in_channels);

    /* The last unit: to the one before it, and to the shortcut (which may be x itself). */
    struct tensor in = first_rows(b->has_inner ? b->inner : last[-1].out, n);
    TRY(unit_backward(&r->units, last, in, inner, WRITE_SET, b->has_shortcut ? dshortcut : dx, dout,
                      err));
    if (b->has_shortcut) {
        TRY(shortcut_backward(r, b, *x, dx, dshortcut, free_slot, err));
    }
    if (b->unit_count == 3) {
        const struct unit *middle = &b->units[1];
        if (b->has_inner) {
            const struct avgpool_bwd pool = {
                .din = shaped(free_slot, n, middle->out_px, middle->out_channels),
                .dout = inner,
                .pool = AVERAGE_POOL};
            TRY(r->units.dev->ops->avgpool_bwd(r->units.dev, &pool, err));
            inner = pool.din;
        }
        struct tensor din =
            shaped(b->has_inner ? inner_slot : free_slot, n, middle->in_px, middle->in_channels);
        in = first_rows(b->units[0].out, n);
        TRY(unit_backward(&r->units, middle, in, din, WRITE_SET, NOT_WANTED, inner, err));
        inner = din;
    }
    *at = x_at;
    return unit_backward(&r->units, &b->units[0], *x, dx, WRITE_ADD, NOT_WANTED, inner, err);
}

/* Backward through pool and stem, from the slot of dL/d(first block's input). */
static enum status stem_backward(struct resnet *r, int64_t n, int32_t at, struct error *err) {
    const struct unit *last = &r->stem[r->stem_count - 1];
    struct tensor dout = shaped(&r->slots[at], n, last->out_px, last->out_channels);
    if (r->opt.pool_heads > 0) {
        const struct tensor dpooled = shaped(&r->slots[at], n, r->pool_px, r->opt.width);
        at = (at + 1) % SLOT_COUNT;
        dout = shaped(&r->slots[at], n, last->out_px, last->out_channels);
        const struct avgpool_bwd op = {.din = dout, .dout = dpooled, .pool = AVERAGE_POOL};
        TRY(r->units.dev->ops->avgpool_bwd(r->units.dev, &op, err));
    } else if (r->has_pool) {
        struct maxpool_bwd op = {.dout = shaped(&r->slots[at], n, r->pool_px, r->opt.width),
                                 .argmax = first_rows(r->pool_places, n),
                                 .pool = MAX_POOL};
        at = (at + 1) % SLOT_COUNT;
        dout = shaped(&r->slots[at], n, last->out_px, last->out_channels);
        op.din = dout;
        TRY(r->units.dev->ops->maxpool_bwd(r->units.dev, &op, err));
    }
    for (int32_t i = r->stem_count - 1; i > 0; i--) {
        const struct unit *u = &r->stem[i];
        struct tensor in = first_rows(r->stem[i - 1].out, n);
        at = (at + 1) % SLOT_COUNT;
        struct tensor din = shaped(&r->slots[at], n, u->in_px, u->in_channels);
        TRY(unit_backward(&r->units, u, in, din, WRITE_SET, NOT_WANTED, dout, err));
        dout = din;
    }
    struct tensor input = first_rows(r->input, n);
    return unit_backward(&r->units, &r->stem[0], input, NOT_WANTED, WRITE_SET, NOT_WANTED, dout,
                         err);
}

enum status resnet_backward(struct resnet *r,
                            const struct tensor *dfeatures,
                            enum write_mode mode,
                            struct gradients *sums,
                            struct error *err) {
    REQUIRE(r->units.dev != NULL && r->opt.training && dfeatures->ndim == 2);
    REQUIRE(dfeatures->shape[0] >= 1 && dfeatures->shape[0] <= r->opt.max_batch);
    int64_t n = dfeatures->shape[0];
    r->units.mode = mode;
    const struct block *b = &r->blocks[r->block_count - 1];
    const struct unit *end = &b->units[b->unit_count - 1];
    int32_t at = 0;
    struct tensor dx = shaped(&r->slots[at], n, end->out_px, end->out_channels);
    const struct global_avgpool_bwd mean = {.din = dx, .dout = *dfeatures};
    TRY(r->opt.pool_heads > 0 ? attention_pool_backward(&r->attention, dx, *dfeatures, mode, err)
                              : r->units.dev->ops->global_avgpool_bwd(r->units.dev, &mean, err));
    for (int32_t k = r->block_count - 1; k >= 0; k--) {
        struct tensor x; /* the block's input */
        if (k > 0) {
            const struct block *up = &r->blocks[k - 1];
            x = first_rows(up->units[up->unit_count - 1].out, n);
        } else {
            x = first_rows(r->has_pool ? r->pooled : r->stem[r->stem_count - 1].out, n);
        }
        TRY(block_backward(r, &r->blocks[k], &x, &at, err));
        TRY(gradients_final(sums, r->blocks[k].units[0].weight, err));
    }
    TRY(stem_backward(r, n, at, err));
    return gradients_final(sums, r->stem[0].weight, err);
}
