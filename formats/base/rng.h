/*
 * rng: a counter-based generator: every number is a pure function of a key and a counter, so any
 * thread, rank or resumed run draws the same ones.
 *
 * The function is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), checked against the known answers of its authors.
 *
 * Threading : pure functions; a struct rng has one owner.
 */
#ifndef FORMATS_BASE_RNG_H
#define FORMATS_BASE_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 128 random bits of (key, counter). */
void rng_block(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4]);

/* The purpose of a random stream: streams of one seed never overlap. Runs are reproducible only if
 * these values never change, so they are never reused or renumbered; 17 was used by studies. */
enum rng_purpose {
    RNG_ORDER = 1,          /* (seed, epoch) */
    RNG_AUGMENT = 2,        /* (seed, epoch, sample id): the first view */
    RNG_CAPTION = 3,        /* (seed, epoch, sample id) */
    RNG_INIT = 4,           /* (seed, parameter index) */
    RNG_DROPOUT = 5,        /* (seed, step, sample id, layer, element) */
    RNG_REPLACE = 6,        /* (seed, epoch, sample id): replacement of corrupt samples */
    RNG_AUGMENT_SECOND = 7, /* (seed, epoch, sample id): the second view */
    RNG_CHAIN = 16,         /* (seed, step, 2 * sample id + side): emc2's proposals */
    RNG_CACHE = 18,         /* (seed, step, 2 * sample id + side or view): negcache's negatives */
    RNG_SHOTS = 24,         /* (seed, draw, class): the samples of a few-shot classifier */
    RNG_PAIR_NOISE = 26,    /* (seed, 0, sample id): captions of other samples */
    RNG_PATCHES = 27,       /* (seed, step, sample id): patches that stay (--patch-dropout) */
};

/* A stream keyed by (seed, purpose, a, b): reads the numbers of the counters (0.., a, b). */
struct rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    uint32_t used;
};

void rng_init(struct rng *r, uint64_t seed, enum rng_purpose purpose, uint64_t a, uint64_t b);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
double rng_uniform(struct rng *r);             /* [0, 1), 53 bits */
uint32_t rng_below(struct rng *r, uint32_t n); /* [0, n), unbiased; n > 0 */
double rng_normal(struct rng *r);              /* mean 0, std 1 (Box-Muller) */

/* A keyed permutation of [0, n): bijective for every n in [1, 2^48], O(1) memory. A balanced
 * Feistel network over the next even number of bits, cycle-walking into range. */
struct permutation {
    uint64_t n;
    uint32_t half_bits;
    uint32_t key[2];
};

void permutation_init(struct permutation *p, uint64_t n, uint64_t seed, uint64_t epoch);
/* Independent permutations per `stream` for one (seed, epoch); permutation_init is stream 0. */
void permutation_init_stream(struct permutation *p,
                             uint64_t n,
                             uint64_t seed,
                             uint64_t epoch,
                             uint64_t stream);
uint64_t permutation_at(const struct permutation *p, uint64_t index); /* index < n */
/* The index at which permutation_at gives `value`; value < n. */
uint64_t permutation_inverse(const struct permutation *p, uint64_t value);

#ifdef __cplusplus
}
#endif

#endif
