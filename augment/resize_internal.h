/*
 * resize_internal: the inner loops of resize, in plain C and for vector units, and the tables they
 * share. The plain C functions are the specification; the others are byte-identical.
 */
#ifndef AUGMENT_RESIZE_INTERNAL_H
#define AUGMENT_RESIZE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "augment/resize.h"

/* Taps are padded with zeros to this multiple, so that vector loops need no remainder. */
enum {
    RESIZE_TAP_GROUP = 4,
    RESIZE_ROWS_AT_ONCE = 4,
    RESIZE_OVERREAD_BYTES = 4,
    RESIZE_OVERWRITE_BYTES = 5
};

/* The weighted inputs of each output along one axis: out[i] is the sum over j < taps of
 * weights[i * taps + j] * in[starts[i] + j], in fixed point with `bits` fraction bits. */
struct resize_axis {
    int32_t *starts;
    int16_t *weights;
    int32_t taps; /* a multiple of RESIZE_TAP_GROUP */
    int32_t used; /* of taps, in every window: later weights are zero */
    int32_t bits;
    int32_t count;
    int32_t limit;     /* number of inputs: later ones have zero weights and are not read */
    const void *table; /* made by fill_table; NULL: none */
};

struct resize_kernels {
    const char *name;
    /* Along rows: RESIZE_ROWS_AT_ONCE rows of RGB pixels in, as many out. Pointers may repeat. Up
     * to RESIZE_OVERWRITE_BYTES after a row of `out` may be overwritten. */
    void (*rows)(uint8_t *const *out, const uint8_t *const *in, const struct resize_axis *axis);
    /* Across rows: one output row of size_bytes from axis->used rows that begin at `in`, of which
     * only the first row_count, at least 1, exist; the others have zero weights. The weights are
     * followed by one that is zero. */
    void (*column)(uint8_t *out,
                   const uint8_t *in,
                   size_t stride_bytes,
                   int32_t row_count,
                   size_t size_bytes,
                   const int16_t *weights,
                   const struct resize_axis *axis);
    /* Optional, both or none: a table that `rows` uses for its axis, aligned to 64 bytes.
     * fill_table returns whether there is one for this axis. */
    size_t (*table_bytes)(int32_t count, int32_t taps);
    bool (*fill_table)(void *table, const struct resize_axis *axis);
    /* Whether `rows` reads whole windows of axis->taps pixels, and up to RESIZE_OVERREAD_BYTES
     * after one, regardless of axis->limit. */
    bool reads_windows;
};

const struct resize_kernels *resize_kernels_plain(void);
const struct resize_kernels *resize_kernels_avx2(void);   /* NULL if the CPU lacks AVX2 */
const struct resize_kernels *resize_kernels_avx512(void); /* NULL if it lacks VBMI or VNNI */

const struct resize_kernels *resize_kernels_fastest(void);

/* Makes s->data at least this large; its contents are lost. Returns OK or NOMEM. */
enum status
resize_workspace_reserve(struct resize_workspace *s, size_t size_bytes, struct error *err);

/* resize_image with a chosen set of loops. */
enum status resize_image_with(const struct resize_kernels *kernels,
                              const struct image_view *out,
                              const struct image_view *in,
                              const struct image_box *box,
                              const struct image_box *within,
                              enum resize_filter filter,
                              bool mirror,
                              struct resize_workspace *workspace,
                              struct error *err);

#endif
