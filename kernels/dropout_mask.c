/*
 * dropout_mask: two Philox calls: one turns (seed, step, layer) into a key, the other makes the
 * numbers of four elements of a sample. Only the second is in inner loops.
 */
#include "kernels/dropout_mask.h"

#include <math.h>

#include "formats/base/rng.h"

void dropout_stream_init(struct dropout_stream *s, uint64_t seed, uint64_t step, uint32_t layer) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), layer, RNG_DROPOUT};
    uint32_t words[4];
    rng_block(words, key, counter);
    s->key[0] = words[0];
    s->key[1] = words[1];
    s->tweak = words[2];
}

void dropout_draw(uint32_t out[4],
                  const struct dropout_stream *s,
                  uint64_t sample_id,
                  uint32_t block) {
    const uint32_t counter[4] = {block, (uint32_t)sample_id, (uint32_t)(sample_id >> 32), s->tweak};
    rng_block(out, s->key, counter);
    for (int i = 0; i < 4; i++) {
        out[i] >>= 8;
    }
}

uint32_t dropout_threshold(float p) {
    return (uint32_t)lrintf(p * 16777216.0f);
}
