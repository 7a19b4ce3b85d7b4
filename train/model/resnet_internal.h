/*
 * What resnet.c (description and memory) and resnet_pass.c (forward and backward) share.
 */
#ifndef TRAIN_MODEL_RESNET_INTERNAL_H
#define TRAIN_MODEL_RESNET_INTERNAL_H

#include "train/model/conv_unit_internal.h"

enum { SLOT_COUNT = 4, STEM_MAX_UNITS = 3, BLOCK_MAX_UNITS = 3 };

struct block {
    struct unit units[BLOCK_MAX_UNITS];
    int32_t unit_count;
    bool has_shortcut; /* `shortcut` is used; else the input itself is added */
    bool has_average;  /* `averaged` goes before it */
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

    struct tensor input;             /* (max_batch, S, S, 3) */
    struct tensor pooled;            /* (max_batch, P, P, C) */
    struct tensor pool_places;       /* the same, i32 */
    struct tensor features;          /* (max_batch, F) */
    struct tensor slots[SLOT_COUNT]; /* 1-D, each as large as the largest activation */
};

static const struct pool_params MAX_POOL = {.kernel = 3, .stride = 2, .pad = 1};
static const struct pool_params AVERAGE_POOL = {.kernel = 2, .stride = 2, .pad = 0};

#endif
