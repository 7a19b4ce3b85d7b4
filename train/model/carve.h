/*
 * carve: places tensors in one planned block, each aligned to 64 bytes.
 *
 * A layout function runs twice: with base NULL it only counts bytes; then, with the block
 * allocated, it places. So plan and placement cannot differ.
 */
#ifndef TRAIN_MODEL_CARVE_H
#define TRAIN_MODEL_CARVE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

enum { CARVE_ALIGN_BYTES = 64 };

struct carve {
    uint8_t *base; /* NULL: count only */
    size_t used_bytes;
};

/* Places `t`, whose size follows from its dtype and shape. */
static inline struct tensor carve_take(struct carve *c, struct tensor t) {
    t.data = c->base != NULL ? c->base + c->used_bytes : NULL;
    size_t size = tensor_size_bytes(&t);
    c->used_bytes += (size + CARVE_ALIGN_BYTES - 1) / CARVE_ALIGN_BYTES * CARVE_ALIGN_BYTES;
    return t;
}

/* Type of norms, batch statistics and gradients of parameters: BF16 is for activations only.
 */
static inline enum dtype statistics_dtype(enum dtype activations) {
    return activations == DTYPE_BF16 ? DTYPE_F32 : activations;
}

/* An omitted operand. All fields are listed for C++, which warns about missing ones. */
static const struct tensor NOT_WANTED = {NULL, (enum dtype)0, 0, {0}};

/* The first n rows of a tensor planned for the largest batch. */
static inline struct tensor first_rows(struct tensor t, int64_t n) {
    t.shape[0] = n;
    return t;
}

/* Rows [start, start + n) of a tensor. */
static inline struct tensor rows_from(struct tensor t, int64_t start, int64_t n) {
    const struct tensor before = first_rows(t, start);
    t.data = (uint8_t *)t.data + tensor_size_bytes(&before);
    return first_rows(t, n);
}

#endif
