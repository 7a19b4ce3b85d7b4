/*
 * dropout_mask: which elements dropout keeps: one definition that every backend follows.
 *
 * The mask is a pure function of (seed, step, sample id, layer, element), so a resumed run, another
 * number of ranks or a replayed micro-batch drops the same elements.
 */
#ifndef KERNELS_DROPOUT_MASK_H
#define KERNELS_DROPOUT_MASK_H

#include <stdint.h>

/* The 24-bit threshold of p: an element is dropped when its draw is below it. */
uint32_t dropout_threshold(float p);

/* Draws of elements [4 block, 4 block + 4) of a sample: Philox block with key (seed) and a counter
 * made of step, sample id, layer and block; each draw is the upper 24 bits of a word. */
void dropout_draw(uint32_t out[4],
                  uint64_t seed,
                  uint64_t step,
                  uint64_t sample_id,
                  uint32_t layer,
                  uint32_t block);

#endif
