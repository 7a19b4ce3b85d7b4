/*
 * Lossless WebP streams of any bytes (the body of a VP8L chunk): our walk that counts the codes
 * accepts every stream that libwebp accepts; otherwise good images would be refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

#include "formats/image/image_codec_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { FILE_HEAD_BYTES = 20, STREAM_HEAD_BYTES = 5, MAX_PIXELS = 1 << 18 };

static void put_le32(uint8_t *out, size_t value) {
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

/* Whether libwebp decodes the stream. */
static bool libwebp_takes(const uint8_t *data, size_t size_bytes, uint32_t w, uint32_t h) {
    size_t padded_bytes = size_bytes + (size_bytes & 1);
    uint8_t *file = calloc(1, FILE_HEAD_BYTES + padded_bytes);
    uint8_t *pixels = malloc((size_t)w * h * 4);
    if (file == NULL || pixels == NULL) {
        abort();
    }
    memcpy(file, "RIFF....WEBPVP8L", 16);
    put_le32(file + 4, 12 + padded_bytes);
    put_le32(file + 16, size_bytes);
    memcpy(file + FILE_HEAD_BYTES, data, size_bytes);
    bool taken = WebPDecodeRGBAInto(file, FILE_HEAD_BYTES + padded_bytes, pixels, (size_t)w * h * 4,
                                    (int)w * 4) != NULL;
    free(pixels);
    free(file);
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    if (size_bytes <= STREAM_HEAD_BYTES || data[0] != 0x2F) {
        return 0;
    }
    uint32_t bits =
        data[1] | (uint32_t)data[2] << 8 | (uint32_t)data[3] << 16 | (uint32_t)data[4] << 24;
    uint32_t w = 1 + (bits & 0x3FFF);
    uint32_t h = 1 + ((bits >> 14) & 0x3FFF);
    uint64_t table_bytes;
    bool known = vp8l_table_bytes(&table_bytes, data + STREAM_HEAD_BYTES,
                                  size_bytes - STREAM_HEAD_BYTES, w, h);
    if ((uint64_t)w * h <= MAX_PIXELS && !known && libwebp_takes(data, size_bytes, w, h)) {
        abort();
    }
    return 0;
}
