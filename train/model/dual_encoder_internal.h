/*
 * Shared by dual_encoder.c (description and memory) and dual_encoder_pass.c (batches, forward and
 * backward).
 */
#ifndef TRAIN_MODEL_DUAL_ENCODER_INTERNAL_H
#define TRAIN_MODEL_DUAL_ENCODER_INTERNAL_H

#include "train/model/dual_encoder.h"
#include "train/model/encoder_internal.h"
#include "train/model/image_tower.h"

/* The size of the captions of a part. */
struct layout {
    int64_t rows;    /* R */
    int64_t longest; /* T */
};

/* LENGTHS are all max_tokens, with text.whole. */
enum host_array { HOST_TOKENS, HOST_STARTS, HOST_ENDS, HOST_LENGTHS, HOST_KEPT, HOST_ARRAYS };

/* A batch on the device: slot 0 has one part at a time, the others a whole batch, part after part.
 * n is micro_batch in slot 0, max_batch in the others. */
struct input_slot {
    struct tensor images;                /* (n, S, S, 3) u8 */
    struct tensor tokens;                /* (n max_tokens) i32 */
    struct tensor starts, lengths, ends; /* (n) i32 */
    struct tensor sample_ids;            /* (n) u64 */
    struct tensor kept; /* (n, 1 + K) i32 with vit.patch_dropout: kept rows of a part's sequences */
    /* A whole batch, laid out as the tower reads it; alloc_host memory except in slot 0. Each part
     * has its own range, because a device may still copy the previous part. */
    int32_t *host[HOST_ARRAYS];
    struct layout *layouts; /* by part */
    int32_t count;          /* pairs of dual_encoder_put; 0: none */
};

struct dual_encoder {
    struct dual_encoder_options opt;
    struct encoder e;
    struct image_tower image;
    struct transformer *text;
    struct head image_head, text_head;
    struct input_slot slots[1 + DUAL_ENCODER_MAX_SLOTS];
};

#endif
