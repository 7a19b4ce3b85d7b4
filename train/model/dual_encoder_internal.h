/*
 * What dual_encoder.c (description and memory) and dual_encoder_pass.c (batches, forward and
 * backward) share.
 */
#ifndef TRAIN_MODEL_DUAL_ENCODER_INTERNAL_H
#define TRAIN_MODEL_DUAL_ENCODER_INTERNAL_H

#include "train/model/dual_encoder.h"
#include "train/model/encoder_internal.h"

/* What the tower is given for a part's captions. */
struct layout {
    int64_t rows;    /* R */
    int64_t longest; /* T */
};

/* A whole batch on the device, its parts one behind the other. */
struct input_slot {
    struct tensor images, tokens, starts, lengths, sample_ids;
    int32_t *host_tokens, *host_starts; /* of alloc_host: what is on its way there */
    struct layout *layouts;             /* by part */
    int32_t count;                      /* pairs; 0: nothing was put yet */
};

/* One side's head: z = features W^T + b, out = z / |z|. */
struct head {
    int32_t weight, bias; /* (E, F), (E) */
    int32_t feature_count;
    struct tensor features;  /* (N, F) of the last forward, in the tower's memory */
    struct tensor out, norm; /* (max_batch, E), (micro_batch) */
};

struct dual_encoder {
    struct dual_encoder_options opt;
    struct params *params;
    struct resnet *image;
    struct transformer *text;
    struct head image_head, text_head;
    struct dual_encoder_memory memory;

    struct device *dev; /* NULL when only planned */
    struct encoder_blocks blocks;
    struct tensor z;               /* (micro_batch, E) before the norm, and its gradient */
    struct tensor dfeatures;       /* (micro_batch, F of the wider tower) as one row of numbers */
    struct tensor images;          /* (micro_batch, S, S, 3) u8 */
    struct tensor tokens;          /* (micro_batch max_tokens) i32 */
    struct tensor starts, lengths; /* (micro_batch) i32 */
    struct tensor sample_ids;      /* (micro_batch) u64 */
    struct input_slot slots[DUAL_ENCODER_MAX_SLOTS];
    int32_t *host_tokens; /* of the whole batch, laid out as the tower takes them */
    int32_t *host_starts; /* (max_batch) */
};

#endif
