/*
 * dropout_mask: which elements dropout keeps; all backends use this definition.
 *
 * The mask is a pure function of (seed, step, layer, sample id, element), so a resumed run, another
 * number of ranks or a replayed micro-batch drops the same elements. It does not depend on the
 * padding of captions: see the two element numberings below.
 *
 * Threading : pure functions; a stream is read-only once made.
 */
#ifndef KERNELS_DROPOUT_MASK_H
#define KERNELS_DROPOUT_MASK_H

#include <stdint.h>

/* Keys of one (seed, step, layer). */
struct dropout_stream {
    uint32_t key[2];
    uint32_t tweak;
};

/* Philox block with key = seed and counter = (step low, step high, layer, RNG_DROPOUT); its first
 * two words are the key, the third the tweak. */
void dropout_stream_init(struct dropout_stream *s, uint64_t seed, uint64_t step, uint32_t layer);

/* Random numbers of elements [4 block, 4 block + 4) of a sample: the upper 24 bits of the words of
 * the Philox block with counter (block, id low, id high, tweak). */
void dropout_draw(uint32_t out[4],
                  const struct dropout_stream *s,
                  uint64_t sample_id,
                  uint32_t block);

/* An element is dropped if its random number is below this: p * 2^24, rounded. */
uint32_t dropout_threshold(float p);

/* Element number in a tensor (N, T, D): t * D + d. In attention probabilities (N, heads, T, T):
 * (head * DROPOUT_MAX_TOKENS + query) * DROPOUT_MAX_TOKENS + key. */
enum { DROPOUT_MAX_TOKENS = 512 };

static inline uint32_t dropout_attention_element(int64_t head, int64_t query, int64_t key) {
    return (uint32_t)((head * DROPOUT_MAX_TOKENS + query) * DROPOUT_MAX_TOKENS + key);
}

#endif
