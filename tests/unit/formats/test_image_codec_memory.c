/*
 * What decoding takes, against what was said beforehand. The images are of one colour, so that
 * a few kilobytes of file make many megabytes of image.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/image/image_codec.h"
#include "tests/support/test.h"

static void put(struct byte_buffer *b, const void *bytes, size_t n) {
    assert_int_equal(byte_buffer_append(b, bytes, n, NULL), STATUS_OK);
}

static void put_byte(struct byte_buffer *b, int value) {
    uint8_t byte = (uint8_t)value;
    put(b, &byte, 1);
}

static void put_repeated(struct byte_buffer *b, int value, size_t n) {
    assert_int_equal(byte_buffer_reserve(b, n, NULL), STATUS_OK);
    memset(b->data + b->size_bytes, value, n);
    b->size_bytes += n;
}

static void put_be16(struct byte_buffer *b, int value) {
    put_byte(b, value >> 8);
    put_byte(b, value & 255);
}

static void put_le(struct byte_buffer *b, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        put_byte(b, (int)(value >> (8 * i)) & 255);
    }
}

/* --------------------------------------------------------------------------------------- JPEG */

/* Zero differences and ends of blocks, both coded as a zero bit. */
static void put_scan(struct byte_buffer *b, int first, int count, bool progressive, size_t blocks) {
    put(b, "\xFF\xDA", 2);
    put_be16(b, 6 + 2 * count);
    put_byte(b, count);
    for (int i = first; i < first + count; i++) {
        put_byte(b, i + 1);
        put_byte(b, 0);
    }
    put(b, progressive ? "\0\0\0" : "\0\x3F\0", 3);
    put_repeated(b, 0, (blocks * (progressive ? 1 : 2) + 7) / 8);
}

enum jpeg_kind { JPEG_ONE_SCAN, JPEG_SCAN_PER_COMPONENT, JPEG_PROGRESSIVE };

/* Three components, chroma halved both ways where `half`; orientation 6 where `turned`. */
static struct byte_buffer
make_jpeg(int width_px, int height_px, enum jpeg_kind kind, bool half, bool turned) {
    static const char table[] = "\0\x14\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    put(&b, "\xFF\xD8", 2);
    if (turned) {
        put(&b,
            "\xFF\xE1\0\x1E"
            "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0",
            32);
    }
    put(&b, "\xFF\xDB\0\x43\0", 5);
    put_repeated(&b, 1, 64);
    put(&b, kind == JPEG_PROGRESSIVE ? "\xFF\xC2\0\x11\x08" : "\xFF\xC0\0\x11\x08", 5);
    put_be16(&b, height_px);
    put_be16(&b, width_px);
    put(&b, half ? "\x03\x01\x22\0\x02\x11\0\x03\x11\0" : "\x03\x01\x11\0\x02\x11\0\x03\x11\0", 10);
    for (int i = 0; i < 2; i++) {
        char segment[22];
        memcpy(segment, table, 21);
        segment[2] = (char)(i << 4);
        put(&b, "\xFF\xC4", 2);
        put(&b, segment, 20);
    }
    size_t side = half ? 16 : 8;
    size_t mcus = ((size_t)width_px + side - 1) / side * (((size_t)height_px + side - 1) / side);
    if (kind == JPEG_SCAN_PER_COMPONENT) {
        size_t luma = ((size_t)width_px + 7) / 8 * (((size_t)height_px + 7) / 8);
        put_scan(&b, 0, 1, false, luma);
        put_scan(&b, 1, 1, false, mcus);
        put_scan(&b, 2, 1, false, mcus);
    } else {
        put_scan(&b, 0, 3, kind == JPEG_PROGRESSIVE, mcus * (half ? 6 : 3));
    }
    put(&b, "\xFF\xD9", 2);
    return b;
}

/* ---------------------------------------------------------------------------------------- PNG */

static uint32_t crc32_of(const uint8_t *data, size_t n) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
        }
    }
    return ~crc;
}

static void put_be32(struct byte_buffer *b, uint32_t value) {
    put_be16(b, (int)(value >> 16));
    put_be16(b, (int)(value & 0xFFFF));
}

static void put_chunk(struct byte_buffer *b, const char *type, const struct byte_buffer *body) {
    put_be32(b, (uint32_t)body->size_bytes);
    size_t from = b->size_bytes;
    put(b, type, 4);
    put(b, body->data, body->size_bytes);
    put_be32(b, crc32_of(b->data + from, b->size_bytes - from));
}

struct bit_writer {
    struct byte_buffer *out;
    uint32_t bits;
    int count;
};

static void put_bits(struct bit_writer *w, uint32_t value, int count) {
    w->bits |= value << w->count;
    w->count += count;
    while (w->count >= 8) {
        put_byte(w->out, (int)(w->bits & 255));
        w->bits >>= 8;
        w->count -= 8;
    }
}

/* A zlib stream of so many zero bytes: one, and copies of 258 of it by fixed codes. */
static void put_zeros(struct byte_buffer *b, uint64_t n) {
    put(b, "\x78\x01", 2);
    struct bit_writer w = {.out = b};
    put_bits(&w, 3, 3);    /* last block, fixed codes */
    put_bits(&w, 0x0C, 8); /* literal 0: 00110000, from its high bit */
    uint64_t left = n - 1;
    for (; left >= 258; left -= 258) {
        put_bits(&w, 0xA3, 8); /* length 258: 11000101, from its high bit */
        put_bits(&w, 0, 5);    /* distance 1 */
    }
    for (; left > 0; left--) {
        put_bits(&w, 0x0C, 8);
    }
    put_bits(&w, 0, 14); /* end of the block, and whole bytes */
    put_be32(b, (uint32_t)(n % 65521) << 16 | 1);
}

static struct byte_buffer
make_png(uint32_t width_px, uint32_t height_px, int depth, int colour_type, bool interlaced) {
    static const uint32_t passes[8][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                          {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}, {0, 0, 1, 1}};
    static const uint32_t channels[7] = {1, 0, 3, 1, 2, 0, 4};
    struct byte_buffer b, body;
    byte_buffer_init(&b, 0);
    byte_buffer_init(&body, 0);
    put(&b, "\x89PNG\r\n\x1a\n", 8);
    put_be32(&body, width_px);
    put_be32(&body, height_px);
    put_byte(&body, depth);
    put_byte(&body, colour_type);
    put_be16(&body, 0);
    put_byte(&body, interlaced);
    put_chunk(&b, "IHDR", &body);
    uint64_t bytes = 0;
    for (int i = interlaced ? 0 : 7; i < (interlaced ? 7 : 8); i++) {
        const uint32_t *p = passes[i];
        uint64_t wide = (width_px - p[0] + p[2] - 1) / p[2];
        uint64_t high = (height_px - p[1] + p[3] - 1) / p[3];
        bytes += high * (1 + wide * channels[colour_type] * (uint32_t)depth / 8);
    }
    body.size_bytes = 0;
    put_zeros(&body, bytes);
    put_chunk(&b, "IDAT", &body);
    body.size_bytes = 0;
    put_chunk(&b, "IEND", &body);
    byte_buffer_fini(&body);
    return b;
}

/* ---------------------------------------------------------------------------------- WebP, GIF */

/* RIFF around a body, whose size is filled in. */
static struct byte_buffer make_riff(const struct byte_buffer *body) {
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    put(&b, "RIFF", 4);
    put_le(&b, (uint32_t)body->size_bytes + 4, 4);
    put(&b, "WEBP", 4);
    put(&b, body->data, body->size_bytes);
    return b;
}

/* An image whose five codes have one symbol each, so that pixels take no bits. The same bytes
 * without the signature are the alpha plane of a lossy image. */
static void put_lossless(struct byte_buffer *b, uint32_t width_px, uint32_t height_px, bool alpha) {
    put(b, "VP8L\x0a\0\0\0\x2f", 9);
    put_le(b, (width_px - 1) | (height_px - 1) << 14 | (uint32_t)alpha << 28, 4);
    /* No transform, cache or second code set (3 bits); five times: simple, one symbol, 0. */
    struct bit_writer w = {.out = b};
    put_bits(&w, 0, 3);
    for (int i = 0; i < 5; i++) {
        put_bits(&w, 1, 4);
    }
    put_bits(&w, 0, 17);
}

static void put_lossy(struct byte_buffer *b, uint32_t width_px, uint32_t height_px) {
    /* Key frame; all modes and coefficients from zero bytes, of which there are plenty. */
    uint32_t blocks = (width_px + 15) / 16 * ((height_px + 15) / 16);
    uint32_t modes_bytes = blocks + 4096;
    uint32_t texture_bytes = blocks * 4 + 4096;
    put(b, "VP8 ", 4);
    put_le(b, 10 + modes_bytes + texture_bytes, 4);
    put_le(b, 1 << 4 | modes_bytes << 5, 3);
    put(b, "\x9d\x01\x2a", 3);
    put_le(b, width_px, 2);
    put_le(b, height_px, 2);
    put_repeated(b, 0, modes_bytes + texture_bytes);
}

static struct byte_buffer make_lossless_webp(uint32_t width_px, uint32_t height_px, bool alpha) {
    struct byte_buffer body;
    byte_buffer_init(&body, 0);
    put_lossless(&body, width_px, height_px, alpha);
    struct byte_buffer b = make_riff(&body);
    byte_buffer_fini(&body);
    return b;
}

static struct byte_buffer make_lossy_webp(uint32_t width_px, uint32_t height_px, bool alpha) {
    struct byte_buffer body;
    byte_buffer_init(&body, 0);
    if (alpha) {
        put(&body, "VP8X\x0a\0\0\0\x10\0\0\0", 12);
        put_le(&body, width_px - 1, 3);
        put_le(&body, height_px - 1, 3);
        put(&body, "ALPH\x06\0\0\0\x01", 9); /* coded as a lossless image is */
        struct bit_writer w = {.out = &body};
        put_bits(&w, 0, 3);
        for (int i = 0; i < 5; i++) {
            put_bits(&w, 1, 4);
        }
        put_bits(&w, 0, 17);
    }
    put_lossy(&body, width_px, height_px);
    struct byte_buffer b = make_riff(&body);
    byte_buffer_fini(&body);
    return b;
}

/* A code of one symbol, which then takes no bits. */
static void put_single_code(struct bit_writer *w, uint32_t symbol) {
    put_bits(w, 1, 2);
    put_bits(w, symbol << 1, 2);
}

/* A code with 8 bits for each of 256 symbols and none for the others. */
static void put_byte_code(struct bit_writer *w, int symbol_count) {
    put_bits(w, 0, 1);
    put_bits(w, 12 - 4, 4);
    static const uint8_t lengths[12] = {0, 0, 1, 0, 0, 0,
                                        0, 0, 0, 0, 0, 1}; /* of lengths 0 and 8 */
    for (int i = 0; i < 12; i++) {
        put_bits(w, lengths[i], 3);
    }
    put_bits(w, 0, 1);
    for (int i = 0; i < symbol_count; i++) {
        put_bits(w, i < 256, 1);
    }
}

static uint32_t reversed(uint32_t byte) {
    uint32_t out = 0;
    for (int i = 0; i < 8; i++) {
        out |= ((byte >> i) & 1) << (7 - i);
    }
    return out;
}

/* A lossless image in which every tile of 4 x 4 has a set of codes of its own. */
static struct byte_buffer make_webp_of_many_codes(uint32_t side_px) {
    struct byte_buffer body, stream;
    byte_buffer_init(&body, 0);
    byte_buffer_init(&stream, 0);
    uint32_t tiles = side_px / 4 * (side_px / 4);
    struct bit_writer w = {.out = &stream};
    put_bits(&w, 4, 6); /* no transform, no cache; sets by tiles of 2^(0 + 2); no cache */
    put_bits(&w, 0, 1);
    put_byte_code(&w, 280);
    put_byte_code(&w, 256);
    for (int i = 0; i < 3; i++) {
        put_single_code(&w, 0);
    }
    for (uint32_t i = 0; i < tiles; i++) {
        put_bits(&w, reversed(i & 255), 8);
        put_bits(&w, reversed((i >> 8) & 255), 8);
    }
    for (uint32_t i = 0; i < 5 * tiles; i++) {
        put_single_code(&w, 0);
    }
    put_bits(&w, 0, 23);
    put(&body, "VP8L", 4);
    put_le(&body, (uint32_t)stream.size_bytes + 5, 4);
    put_byte(&body, 0x2f);
    put_le(&body, (side_px - 1) | (side_px - 1) << 14, 4);
    put(&body, stream.data, stream.size_bytes);
    struct byte_buffer b = make_riff(&body);
    byte_buffer_fini(&stream);
    byte_buffer_fini(&body);
    return b;
}

/* Colour 0 throughout, with the table of codes cleared before every second pixel. */
static struct byte_buffer make_gif(uint32_t width_px, uint32_t height_px, bool interlaced) {
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    put(&b, "GIF89a", 6);
    put_le(&b, width_px, 2);
    put_le(&b, height_px, 2);
    put(&b, "\x81\0\0\1\2\3\4\5\6\7\10\11\12\13\14,\0\0\0\0", 20);
    put_le(&b, width_px, 2);
    put_le(&b, height_px, 2);
    put(&b, interlaced ? "\x40\2" : "\0\2", 2);
    struct byte_buffer codes;
    byte_buffer_init(&codes, 0);
    struct bit_writer w = {.out = &codes};
    for (uint64_t i = 0; i < (uint64_t)width_px * height_px; i += 2) {
        put_bits(&w, 4, 9);
    }
    put_bits(&w, 5, 16); /* the end */
    for (size_t at = 0; at < codes.size_bytes; at += 255) {
        size_t n = codes.size_bytes - at < 255 ? codes.size_bytes - at : 255;
        put_byte(&b, (int)n);
        put(&b, codes.data + at, n);
    }
    put(&b, "\0;", 2);
    byte_buffer_fini(&codes);
    return b;
}

/* ------------------------------------------------------------------------------------ measure */

/* A line of /proc/self/status, in bytes. */
static uint64_t own_memory(const char *name) {
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    char line[256];
    unsigned long long kib = 0;
    bool found = false;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        size_t n = strlen(name);
        found = strncmp(line, name, n) == 0 && sscanf(line + n, ": %llu", &kib) == 1;
    }
    fclose(f);
    assert_true(found);
    return kib * 1024;
}

/* Decodes it, frees the image, and holds the memory that this took at its peak against the
 * estimate; and one byte less than the estimate's own sum must be refused before it is taken. */
static void check_memory(struct byte_buffer *image, const struct image_decode_options *opt) {
    struct image_info info;
    struct error err = {0};
    assert_ok(image_probe(&info, image->data, image->size_bytes, NULL, &err), err);
    uint64_t estimate = image_decode_memory_bytes(&info, opt);
    struct image_limits limits;
    image_limits_default(&limits);
    struct image_view v;
    struct image_decoder *d;

    limits.max_memory_bytes = (size_t)(estimate / 4);
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    uint64_t before = own_memory("VmHWM");
    assert_status(image_decode(d, &v, NULL, image->data, image->size_bytes, opt, &err),
                  STATUS_LIMIT, err);
    image_decoder_destroy(d);
    uint64_t refused = own_memory("VmHWM") - before;

    limits.max_memory_bytes = (size_t)estimate;
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    before = own_memory("VmRSS");
    assert_ok(image_decode(d, &v, NULL, image->data, image->size_bytes, opt, &err), err);
    uint64_t peak = own_memory("VmHWM");
    uint64_t taken = peak > before ? peak - before : 0;
    print_message("%d x %d: took %.1f MiB, estimate %.1f MiB, refusal %.1f MiB\n",
                  (int)info.width_px, (int)info.height_px, (double)taken / 1048576,
                  (double)estimate / 1048576, (double)refused / 1048576);
    image_decoder_destroy(d);
    byte_buffer_fini(image);
    if (test_sanitizer()[0] != 0) {
        return; /* shadow memory counts too */
    }
    assert_true(refused <= estimate / 4 + (1 << 20));
    assert_true(taken <= estimate + (1 << 20));
    assert_true(estimate <= taken + taken / 2 + (8 << 20));
}

static const struct image_decode_options CHECK = {.check_only = true};
static const struct image_decode_options EIGHTH = {.min_width_px = 1, .min_height_px = 1};

TEST(jpeg_of_one_scan) {
    struct byte_buffer b = make_jpeg(5000, 4000, JPEG_ONE_SCAN, true, false);
    check_memory(&b, NULL);
}

TEST(jpeg_turned) {
    struct byte_buffer b = make_jpeg(4000, 3000, JPEG_ONE_SCAN, false, true);
    check_memory(&b, NULL);
}

TEST(jpeg_progressive_444) {
    struct byte_buffer b = make_jpeg(4001, 3003, JPEG_PROGRESSIVE, false, false);
    check_memory(&b, &EIGHTH);
}

TEST(jpeg_progressive_420_check) {
    struct byte_buffer b = make_jpeg(6000, 4000, JPEG_PROGRESSIVE, true, false);
    check_memory(&b, &CHECK);
}

TEST(jpeg_of_three_scans) {
    struct byte_buffer b = make_jpeg(4000, 3000, JPEG_SCAN_PER_COMPONENT, true, true);
    check_memory(&b, NULL);
}

TEST(png_by_rows) {
    struct byte_buffer b = make_png(5000, 4000, 8, 2, false);
    check_memory(&b, NULL);
}

TEST(png_of_16_bits_interlaced) {
    struct byte_buffer b = make_png(3000, 2000, 16, 6, true);
    check_memory(&b, NULL);
}

TEST(png_interlaced_check) {
    struct byte_buffer b = make_png(4000, 3000, 8, 6, true);
    check_memory(&b, &CHECK);
}

TEST(webp_lossy) {
    struct byte_buffer b = make_lossy_webp(5000, 4000, false);
    check_memory(&b, NULL);
}

TEST(webp_lossy_alpha) {
    struct byte_buffer b = make_lossy_webp(4000, 3000, true);
    check_memory(&b, NULL);
}

TEST(webp_lossless) {
    struct byte_buffer b = make_lossless_webp(5000, 4000, false);
    check_memory(&b, NULL);
}

TEST(webp_lossless_alpha) {
    struct byte_buffer b = make_lossless_webp(4000, 3000, true);
    check_memory(&b, NULL);
}

TEST(webp_lossless_check) {
    struct byte_buffer b = make_lossless_webp(5000, 4000, false);
    check_memory(&b, &CHECK);
}

/* 300 KiB that make libwebp take 0.8 GiB. */
TEST(webp_of_many_codes_is_refused) {
    struct byte_buffer few = make_webp_of_many_codes(64);
    struct byte_buffer many = make_webp_of_many_codes(1024);
    struct image_decoder *d;
    struct image_info info;
    struct image_view v;
    struct error err = {0};
    assert_int_equal(image_decoder_create(&d, NULL, NULL), STATUS_OK);
    assert_ok(image_decode(d, &v, NULL, few.data, few.size_bytes, NULL, &err), err);
    assert_ok(image_probe(&info, many.data, many.size_bytes, NULL, &err), err);
    assert_true(image_decode_memory_bytes(&info, &CHECK) > (UINT64_C(700) << 20));
    uint64_t before = own_memory("VmHWM");
    assert_status(image_decode(d, &v, NULL, many.data, many.size_bytes, NULL, &err), STATUS_LIMIT,
                  err);
    assert_true(own_memory("VmHWM") - before < (16 << 20));
    image_decoder_destroy(d);
    byte_buffer_fini(&few);
    byte_buffer_fini(&many);
}

TEST(gif_whole) {
    struct byte_buffer b = make_gif(2500, 2000, true);
    check_memory(&b, NULL);
}

/* Without codecs that keep a whole image, a check takes next to nothing. */
TEST(checks_of_large_images_are_small) {
    struct byte_buffer images[] = {make_jpeg(6000, 5000, JPEG_ONE_SCAN, true, true),
                                   make_png(6000, 5000, 8, 2, false),
                                   make_lossy_webp(6000, 5000, false), make_gif(2500, 2000, false)};
    struct image_limits limits;
    image_limits_default(&limits);
    limits.max_memory_bytes = 12 << 20;
    struct image_decoder *d;
    assert_int_equal(image_decoder_create(&d, &limits, NULL), STATUS_OK);
    uint64_t before = own_memory("VmHWM");
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        const struct byte_buffer *b = &images[i];
        struct image_info info;
        struct image_view v;
        struct error err = {0};
        assert_ok(image_probe(&info, b->data, b->size_bytes, NULL, &err), err);
        assert_true(image_decode_memory_bytes(&info, &CHECK) <= limits.max_memory_bytes);
        assert_ok(image_decode(d, &v, NULL, b->data, b->size_bytes, &CHECK, &err), err);
        assert_null(v.data);
    }
    if (test_sanitizer()[0] == 0) {
        assert_true(own_memory("VmHWM") - before <= limits.max_memory_bytes);
    }
    image_decoder_destroy(d);
    for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
        byte_buffer_fini(&images[i]);
    }
}
