/*
 * Philox4x32-10, streams over it, and a keyed permutation.
 *
 * A stream has more to tell apart (seed, purpose, a, b: 224 bits) than a key and a counter have
 * room for beside the number's own index. So one block of the seed's generator maps (purpose, a) to
 * a key and one word, and the counter of the stream is (index, that word, b): streams that differ
 * in b alone can never meet, others only when 96 pseudo-random bits agree.
 *
 * The permutation is a Feistel network: whatever its round function gives, it can be undone, so it
 * is a bijection of [0, 4^half_bits); walking along its cycle until the value is below n makes it
 * one of [0, n). The domain is less than 4n, so the walk takes fewer than 4 steps on average.
 */
#include "formats/base/rng.h"

#include <assert.h>
#include <math.h>

enum { PHILOX_ROUNDS = 10, FEISTEL_ROUNDS = 8 };

void rng_block(uint32_t out[4], const uint32_t key[2], const uint32_t counter[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_init(struct rng *r, uint64_t seed, enum rng_purpose purpose, uint64_t a, uint64_t b) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)purpose, 0, (uint32_t)a, (uint32_t)(a >> 32)};
    uint32_t derived[4];
    rng_block(derived, key, counter);
    *r = (struct rng){
        .key = {derived[0], derived[1]},
        .counter = {0, derived[2], (uint32_t)b, (uint32_t)(b >> 32)},
        .used = 4,
    };
}

uint32_t rng_u32(struct rng *r) {
    if (r->used >= 4) {
        rng_block(r->block, r->key, r->counter);
        if (++r->counter[0] == 0) {
            r->counter[1]++;
        }
        r->used = 0;
    }
    return r->block[r->used++];
}

uint64_t rng_u64(struct rng *r) {
    uint64_t low = rng_u32(r);
    return low | (uint64_t)rng_u32(r) << 32;
}

double rng_uniform(struct rng *r) {
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

uint32_t rng_below(struct rng *r, uint32_t n) {
    /* The high half of a product is uniform once the few low halves that would favour some results
     * are drawn again (Lemire 2019). */
    uint64_t product = (uint64_t)rng_u32(r) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = n ? (0u - n) % n : 0;
        while ((uint32_t)product < threshold) {
            product = (uint64_t)rng_u32(r) * n;
        }
    }
    return (uint32_t)(product >> 32);
}

double rng_normal(struct rng *r) {
    const double two_pi = 6.283185307179586;
    double radius = sqrt(-2.0 * log(1.0 - rng_uniform(r)));
    return radius * cos(two_pi * rng_uniform(r));
}

void permutation_init(struct permutation *p, uint64_t n, uint64_t seed, uint64_t epoch) {
    permutation_init_stream(p, n, seed, epoch, 0);
}

void permutation_init_stream(struct permutation *p,
                             uint64_t n,
                             uint64_t seed,
                             uint64_t epoch,
                             uint64_t stream) {
    struct rng r;
    rng_init(&r, seed, RNG_ORDER, epoch, stream);
    *p = (struct permutation){.n = n, .half_bits = 1};
    p->key[0] = rng_u32(&r);
    p->key[1] = rng_u32(&r);
    while (p->half_bits < 24 && (uint64_t)1 << (2 * p->half_bits) < n) {
        p->half_bits++;
    }
}

static uint32_t round_value(const struct permutation *p, uint32_t half, uint32_t round) {
    const uint32_t counter[4] = {half, round, 0, 0};
    uint32_t mixed[4];
    rng_block(mixed, p->key, counter);
    return mixed[0] & (((uint32_t)1 << p->half_bits) - 1);
}

static uint64_t feistel(const struct permutation *p, uint64_t x) {
    uint32_t left = (uint32_t)(x >> p->half_bits);
    uint32_t right = (uint32_t)(x & (((uint64_t)1 << p->half_bits) - 1));
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t next = left ^ round_value(p, right, round);
        left = right;
        right = next;
    }
    return (uint64_t)left << p->half_bits | right;
}

static uint64_t feistel_inverse(const struct permutation *p, uint64_t x) {
    uint32_t left = (uint32_t)(x >> p->half_bits);
    uint32_t right = (uint32_t)(x & (((uint64_t)1 << p->half_bits) - 1));
    for (uint32_t round = FEISTEL_ROUNDS; round-- > 0;) {
        uint32_t before = right ^ round_value(p, left, round);
        right = left;
        left = before;
    }
    return (uint64_t)left << p->half_bits | right;
}

uint64_t permutation_at(const struct permutation *p, uint64_t index) {
    assert(index < p->n);
    uint64_t x = index;
    do {
        x = feistel(p, x);
    } while (x >= p->n);
    return x;
}

uint64_t permutation_inverse(const struct permutation *p, uint64_t value) {
    assert(value < p->n);
    uint64_t x = value;
    do {
        x = feistel_inverse(p, x);
    } while (x >= p->n);
    return x;
}
