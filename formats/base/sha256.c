/* FIPS 180-4, section 6.2. */
#include "formats/base/sha256.h"

#include <stdio.h>
#include <string.h>

/* Fractions of the cube roots of the first 64 primes, and of the square roots of the first 8. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const uint32_t first_state[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static uint32_t turn(uint32_t x, unsigned n) {
    return x >> n | x << (32 - n);
}

static void add_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64];
    uint32_t v[8];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15];
        const uint32_t b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t sum = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) +
                             ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + w[i];
        const uint32_t other = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) +
                               ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += sum;
        v[0] = sum + other;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += v[i];
    }
}

void sha256_init(struct sha256 *h) {
    memcpy(h->state, first_state, sizeof h->state);
    h->size_bytes = 0;
}

void sha256_update(struct sha256 *h, const void *data, size_t size_bytes) {
    const uint8_t *p = data;
    while (size_bytes > 0) {
        const size_t used = h->size_bytes % sizeof h->block;
        const size_t room = sizeof h->block - used;
        const size_t n = size_bytes < room ? size_bytes : room;
        memcpy(h->block + used, p, n);
        h->size_bytes += n;
        p += n;
        size_bytes -= n;
        if (n == room) {
            add_block(h->state, h->block);
        }
    }
}

void sha256_final(struct sha256 *h, uint8_t out[SHA256_BYTES]) {
    static const uint8_t padding[64] = {0x80};
    const uint64_t bits = 8 * h->size_bytes;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    sha256_update(h, padding, 1 + (119 - h->size_bytes % 64) % 64);
    sha256_update(h, length, sizeof length);
    for (int i = 0; i < SHA256_BYTES; i++) {
        out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void sha256_hex(char out[SHA256_HEX_BYTES], const uint8_t digest[SHA256_BYTES]) {
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}
