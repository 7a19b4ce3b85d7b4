/*
 * sha256: the cryptographic hash of FIPS 180-4, where collisions must be infeasible. Checksums of
 * formats are XXH64 (hash.h), for which collisions are easy to construct.
 *
 * Threading : single-owner.
 * Untrusted : the bytes.
 */
#ifndef FORMATS_BASE_SHA256_H
#define FORMATS_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX_BYTES = 65 };

struct sha256 {
    uint32_t state[8];
    uint64_t size_bytes;
    uint8_t block[64];
};

void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *data, size_t size_bytes);
void sha256_final(struct sha256 *h,
                  uint8_t out[SHA256_BYTES]); /* h must be initialised again before reuse */
void sha256_hex(char out[SHA256_HEX_BYTES], const uint8_t digest[SHA256_BYTES]);

#endif
