/*
 * XXH64 comes from the xxHash library; this file is the only one that sees it. Only where one pass
 * gives two hashes it is written out: four lanes of 64 bits, each of which takes its word of every
 * stripe of 32 bytes, and half of the work on a word does not depend on the lane.
 */
#include "formats/base/hash.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

struct hasher {
    XXH64_state_t *state;
};

uint64_t hash64(const void *data, size_t size_bytes) {
    return XXH64(data, size_bytes, 0);
}

/* ---- two hashes in one pass -------------------------------------------------------------------
 */

enum { LANES = 4 };

static const uint64_t prime_1 = UINT64_C(0x9E3779B185EBCA87);
static const uint64_t prime_2 = UINT64_C(0xC2B2AE3D27D4EB4F);
static const uint64_t prime_3 = UINT64_C(0x165667B19E3779F9);
static const uint64_t prime_4 = UINT64_C(0x85EBCA77C2B2AE63);
static const uint64_t prime_5 = UINT64_C(0x27D4EB2F165667C5);

static inline uint64_t rotate(uint64_t x, unsigned bits) {
    return x << bits | x >> (64 - bits);
}

static inline uint64_t word_at(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint64_t take_product(uint64_t lane, uint64_t product) {
    return rotate(lane + product, 31) * prime_1;
}

static void begin_lanes(uint64_t lanes[LANES]) {
    lanes[0] = prime_1 + prime_2;
    lanes[1] = prime_2;
    lanes[2] = 0;
    lanes[3] = 0 - prime_1;
}

static void take_stripes(uint64_t lanes[LANES], const uint8_t *p, size_t stripes) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (; stripes > 0; stripes--, p += HASH64_STRIPE_BYTES) {
        a = take_product(a, word_at(p) * prime_2);
        b = take_product(b, word_at(p + 8) * prime_2);
        c = take_product(c, word_at(p + 16) * prime_2);
        d = take_product(d, word_at(p + 24) * prime_2);
    }
    lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
}

static void
take_stripes_twice(uint64_t x[LANES], uint64_t y[LANES], const uint8_t *p, size_t stripes) {
    uint64_t xa = x[0], xb = x[1], xc = x[2], xd = x[3];
    uint64_t ya = y[0], yb = y[1], yc = y[2], yd = y[3];
    for (; stripes > 0; stripes--, p += HASH64_STRIPE_BYTES) {
        uint64_t a = word_at(p) * prime_2;
        uint64_t b = word_at(p + 8) * prime_2;
        uint64_t c = word_at(p + 16) * prime_2;
        uint64_t d = word_at(p + 24) * prime_2;
        xa = take_product(xa, a), ya = take_product(ya, a);
        xb = take_product(xb, b), yb = take_product(yb, b);
        xc = take_product(xc, c), yc = take_product(yc, c);
        xd = take_product(xd, d), yd = take_product(yd, d);
    }
    x[0] = xa, x[1] = xb, x[2] = xc, x[3] = xd;
    y[0] = ya, y[1] = yb, y[2] = yc, y[3] = yd;
}

/* The value of size_bytes in all, of which those at `p` are less than a stripe and not in the
 * lanes. */
static uint64_t
end_lanes(const uint64_t lanes[LANES], uint64_t size_bytes, const uint8_t *p, size_t left) {
    uint64_t h = prime_5;
    if (size_bytes >= HASH64_STRIPE_BYTES) {
        h = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
        for (int i = 0; i < LANES; i++) {
            h = (h ^ take_product(0, lanes[i] * prime_2)) * prime_1 + prime_4;
        }
    }
    h += size_bytes;
    for (; left >= 8; left -= 8, p += 8) {
        h = rotate(h ^ take_product(0, word_at(p) * prime_2), 27) * prime_1 + prime_4;
    }
    if (left >= 4) {
        uint64_t half =
            (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
        h = rotate(h ^ half * prime_1, 23) * prime_2 + prime_3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; left--, p++) {
        h = rotate(h ^ *p * prime_5, 11) * prime_1;
    }
    h = (h ^ h >> 33) * prime_2;
    h = (h ^ h >> 29) * prime_3;
    return h ^ h >> 32;
}

uint64_t hash64_nested(uint64_t *inner, const struct hash64_part parts[3]) {
    const uint8_t *middle = parts[1].data;
    const uint8_t *last = parts[2].data;
    size_t last_bytes = parts[2].size_bytes;
    size_t left = parts[1].size_bytes % HASH64_STRIPE_BYTES;
    uint64_t all_bytes = (uint64_t)parts[0].size_bytes + parts[1].size_bytes + last_bytes;
    uint64_t outer_lanes[LANES], inner_lanes[LANES];
    uint8_t joint[HASH64_STRIPE_BYTES] = {
        0}; /* the last bytes of the middle, and what follows them */
    begin_lanes(outer_lanes);
    begin_lanes(inner_lanes);
    take_stripes(outer_lanes, parts[0].data, parts[0].size_bytes / HASH64_STRIPE_BYTES);
    take_stripes_twice(outer_lanes, inner_lanes, middle, parts[1].size_bytes / HASH64_STRIPE_BYTES);
    middle += parts[1].size_bytes - left;
    *inner = end_lanes(inner_lanes, parts[1].size_bytes, middle, left);
    if (left > 0) {
        size_t more = sizeof(joint) - left < last_bytes ? sizeof(joint) - left : last_bytes;
        memcpy(joint, middle, left);
        memcpy(joint + left, last, more);
        last += more;
        last_bytes -= more;
        if (left + more < sizeof(joint)) {
            return end_lanes(outer_lanes, all_bytes, joint, left + more);
        }
        take_stripes(outer_lanes, joint, 1);
    }
    take_stripes(outer_lanes, last, last_bytes / HASH64_STRIPE_BYTES);
    left = last_bytes % HASH64_STRIPE_BYTES;
    return end_lanes(outer_lanes, all_bytes, last + last_bytes - left, left);
}

/* ---- hashers -----------------------------------------------------------------------------------
 */

enum status hasher_create(struct hasher **out, struct error *err) {
    REQUIRE(out);
    *out = NULL;
    struct hasher *h = calloc(1, sizeof *h);
    if (h) {
        h->state = XXH64_createState();
    }
    if (!h || !h->state) {
        hasher_destroy(h);
        return error_set(err, STATUS_NOMEM, "out of memory for a hasher");
    }
    hasher_reset(h);
    *out = h;
    return STATUS_OK;
}

void hasher_destroy(struct hasher *h) {
    if (h) {
        XXH64_freeState(h->state);
        free(h);
    }
}

void hasher_reset(struct hasher *h) {
    XXH64_reset(h->state, 0);
}

void hasher_update(struct hasher *h, const void *data, size_t size_bytes) {
    if (size_bytes > 0) {
        XXH64_update(h->state, data, size_bytes);
    }
}

uint64_t hasher_value(const struct hasher *h) {
    return XXH64_digest(h->state);
}
