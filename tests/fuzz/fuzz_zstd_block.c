/*
 * Any bytes as a small block: libzstd gives back what went in, and the block is the same when the
 * encoder has been used before.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/zstd_block_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { BEHIND_BYTES = 8, HEADER_BYTES = 12, REPEATS = 4 };

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

/* Four repeats that the data's first bytes choose, true or not. */
static size_t
choose_repeats(struct zstd_repeat out[REPEATS], const uint8_t *data, size_t size_bytes) {
    size_t n = 0;
    uint32_t at = 1;
    for (size_t i = 0; i < REPEATS && 3 * i + 2 < size_bytes; i++) {
        uint32_t begin = at + data[3 * i];
        uint32_t end = begin + 4U * data[3 * i + 1];
        if (end > size_bytes) {
            break;
        }
        out[n++] = (struct zstd_repeat){begin, end, 1 + data[3 * i + 2] % begin};
        at = end;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct zstd_repeat repeats[REPEATS];
    static struct zstd_block_encoder *encoder;
    static uint8_t frame[HEADER_BYTES + ZSTD_BLOCK_MAX_BYTES + BEHIND_BYTES];
    static uint8_t again[ZSTD_BLOCK_MAX_BYTES + BEHIND_BYTES];
    static uint8_t back[ZSTD_BLOCK_MAX_BYTES];
    demand(encoder || zstd_block_encoder_create(&encoder, NULL) == STATUS_OK);
    if (size_bytes == 0 || size_bytes >= ZSTD_BLOCK_MAX_BYTES) {
        return 0;
    }
    size_t count = choose_repeats(repeats, data, size_bytes);
    size_t n = zstd_block_encode(encoder, frame + HEADER_BYTES, data, size_bytes, repeats, count);
    zstd_block_encode(encoder, again, data, size_bytes / 2, NULL, 0);
    demand(zstd_block_encode(encoder, again, data, size_bytes, repeats, count) == n);
    demand(memcmp(again, frame + HEADER_BYTES, n) == 0);
    if (n == 0) {
        return 0;
    }
    demand(n < size_bytes);
    store_u32(frame, (uint32_t)ZSTD_FRAME_MAGIC);
    frame[4] = 0xA0; /* single segment, 4-byte content size */
    store_u32(frame + 5, (uint32_t)size_bytes);
    block_header(frame + 9, true, BLOCK_ZSTD, (uint32_t)n);
    demand(ZSTD_decompress(back, sizeof(back), frame, HEADER_BYTES + n) == size_bytes);
    demand(memcmp(back, data, size_bytes) == 0);
    return 0;
}
