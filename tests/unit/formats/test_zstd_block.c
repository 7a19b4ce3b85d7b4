/*
 * Small blocks of zstd: whatever goes in comes out of libzstd's decoder, for every length, for
 * alphabets of every size and skew, and for what stands in front of pictures; which takes about
 * what libzstd makes of it.
 */
#include "formats/shard/zstd_block_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "formats/base/bytes.h"
#include "formats/base/rng.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/test.h"

enum { BEHIND_BYTES = 8, FRAME_EXTRA_BYTES = 32 };

static struct error err;
static struct zstd_block_encoder *encoder;
static uint8_t block[ZSTD_BLOCK_MAX_BYTES + BEHIND_BYTES];
static uint8_t frame[ZSTD_BLOCK_MAX_BYTES + FRAME_EXTRA_BYTES];
static uint8_t back[ZSTD_BLOCK_MAX_BYTES];
static struct zstd_repeat repeats[SHARD_MAX_REPEATS]; /* what the next block is said to repeat */
static size_t repeat_count;

static void open_encoder(void) {
    assert_ok(zstd_block_encoder_create(&encoder, &err), err);
}

static void close_encoder(void) {
    zstd_block_encoder_destroy(encoder);
    encoder = NULL;
}

/* Encodes, and decodes with libzstd. Returns the block's size, or the data's where there is none.
 */
static size_t round_trip(const uint8_t *data, size_t size_bytes) {
    memset(block, 0xA5, sizeof(block));
    size_t n = zstd_block_encode(encoder, block, data, size_bytes, repeats, repeat_count);
    for (size_t i = size_bytes + BEHIND_BYTES; i < sizeof(block); i++) {
        assert_int_equal(block[i], 0xA5); /* nothing is written beyond */
    }
    if (n == 0) {
        return size_bytes;
    }
    assert_true(n < size_bytes);
    store_u32(frame, (uint32_t)ZSTD_FRAME_MAGIC);
    frame[4] = 0xA0; /* single segment, 4-byte content size */
    store_u32(frame + 5, (uint32_t)size_bytes);
    block_header(frame + 9, true, BLOCK_ZSTD, (uint32_t)n);
    memcpy(frame + 12, block, n);
    size_t got = ZSTD_decompress(back, sizeof(back), frame, 12 + n);
    if (ZSTD_isError(got)) {
        fail_msg("%zu bytes: %s", size_bytes, ZSTD_getErrorName(got));
    }
    assert_int_equal(got, size_bytes);
    assert_memory_equal(back, data, size_bytes);
    return n;
}

/* ---- texts and headers ------------------------------------------------------------------------
 */

static const char words[] =
    "{\"caption\":\"a brown dog runs over the grass\",\"url\":\"https://example.org/img/0042.jpg\","
    "\"width\":640,\"height\":480,\"original_width\":1280,\"original_height\":960,\"status\":"
    "\"success\",\"sha256\":\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"}";

TEST(every_length_of_a_text) {
    uint8_t text[2 * sizeof(words)];
    open_encoder();
    memcpy(text, words, sizeof(words) - 1);
    memcpy(text + sizeof(words) - 1, words, sizeof(words) - 1);
    for (size_t n = 1; n <= 2 * (sizeof(words) - 1); n++) {
        round_trip(text, n);
    }
    close_encoder();
}

/* What a shard has in front of a picture. */
static void make_head(struct byte_buffer *out, uint64_t id, size_t captions) {
    char key[16], json[sizeof(words) + 32], texts[4][64];
    struct shard_text all[4];
    snprintf(key, sizeof(key), "%09u", (unsigned)id);
    snprintf(json, sizeof(json), "%.*s,\"key\":\"%s\"}", (int)sizeof(words) - 3, words, key);
    for (size_t i = 0; i < captions; i++) {
        int n = snprintf(texts[i], sizeof(texts[i]), "%zu dogs and %u cats in a picture", i,
                         (unsigned)(id * 7919 % 1000));
        all[i] = (struct shard_text){texts[i], (size_t)n};
    }
    struct shard_sample s = {
        .sample_id = id,
        .key = key,
        .image = "x",
        .image_bytes = 1,
        .format = IMAGE_FORMAT_JPEG,
        .label = SHARD_NO_LABEL,
        .captions = all,
        .caption_count = captions,
        .json = {json, strlen(json)},
    };
    assert_ok(shard_sample_tar(out, &s, &err), err);
    out->size_bytes -= TAR_BLOCK_BYTES; /* the picture and its padding */
    repeat_count = shard_head_repeats(repeats, out->data, &s);
}

TEST(heads_of_samples_take_what_libzstd_takes) {
    struct byte_buffer head;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t own = 0;
    size_t other = 0;
    byte_buffer_init(&head, SHARD_MAX_HEAD_BYTES);
    open_encoder();
    for (uint64_t id = 0; id < 500; id++) {
        make_head(&head, id * 12345, 1 + id % 4);
        size_t helped = round_trip(head.data, head.size_bytes);
        repeat_count = 0;
        assert_true(helped <= round_trip(head.data, head.size_bytes));
        own += helped;
        size_t n = ZSTD_compressCCtx(context, frame, sizeof(frame), head.data, head.size_bytes, 3);
        assert_false(ZSTD_isError(n));
        other += n - 10; /* magic, frame header, block header */
    }
    assert_in_range(own, 1, other * 99 / 100);
    close_encoder();
    ZSTD_freeCCtx(context);
    byte_buffer_fini(&head);
}

/* ---- any data ---------------------------------------------------------------------------------
 */

/* Bytes of `alphabet` values, the small ones more often with `skew`, and copies of earlier ones. */
static void
make_data(uint8_t *data, size_t n, struct rng *r, uint32_t alphabet, int skew, int copies) {
    for (size_t i = 0; i < n;) {
        if (i > 0 && rng_below(r, 100) < (uint32_t)copies) {
            size_t from = rng_below(r, (uint32_t)i);
            size_t length = 1 + rng_below(r, 60);
            for (; length > 0 && i < n; length--) {
                data[i++] = data[from++];
            }
            continue;
        }
        uint32_t v = rng_below(r, alphabet);
        for (int k = 0; k < skew; k++) {
            uint32_t other = rng_below(r, alphabet);
            v = other < v ? other : v;
        }
        data[i++] = (uint8_t)v;
    }
}

TEST(any_data_comes_back) {
    static uint8_t data[ZSTD_BLOCK_MAX_BYTES];
    struct rng r;
    rng_init(&r, 3, RNG_ORDER, 0, 0);
    open_encoder();
    for (int k = 0; k < 3000; k++) {
        uint32_t most = k % 10 == 0 ? ZSTD_BLOCK_MAX_BYTES - 1 : 1500;
        size_t n = 1 + rng_below(&r, most);
        uint32_t alphabet = 1 + rng_below(&r, k % 3 == 0 ? 4 : 256);
        make_data(data, n, &r, alphabet, k % 6, k % 4 * 8);
        round_trip(data, n);
    }
    close_encoder();
}

/* Repeats that are none cost bytes, and nothing else. */
TEST(what_is_said_to_repeat_may_be_wrong) {
    static uint8_t data[4096];
    struct rng r;
    rng_init(&r, 11, RNG_ORDER, 0, 0);
    open_encoder();
    for (int k = 0; k < 3000; k++) {
        size_t n = 1 + rng_below(&r, sizeof(data));
        make_data(data, n, &r, 1 + rng_below(&r, 100), k % 6, k % 4 * 8);
        uint32_t at = 1;
        for (repeat_count = 0; repeat_count < SHARD_MAX_REPEATS && at < n; repeat_count++) {
            uint32_t begin = at + rng_below(&r, (uint32_t)n - at);
            at = begin + rng_below(&r, (uint32_t)n - begin + 1);
            uint32_t offset = k % 2 == 0 ? 1 : 1 + rng_below(&r, begin);
            repeats[repeat_count] = (struct zstd_repeat){begin, at, offset};
        }
        round_trip(data, n);
    }
    repeat_count = 0;
    close_encoder();
}

/* Counts that double make the deepest tree there is, beyond what a code may have. */
TEST(trees_that_are_too_deep_are_made_flatter) {
    static uint8_t data[ZSTD_BLOCK_MAX_BYTES];
    struct rng r;
    rng_init(&r, 5, RNG_ORDER, 0, 0);
    open_encoder();
    for (int symbols = 2; symbols <= 13; symbols++) {
        size_t n = 0;
        for (int s = 0; s < symbols; s++) {
            for (int i = 0; i < 1 << s && n < sizeof(data) - 1; i++) {
                data[n++] = (uint8_t)(s * 17);
            }
        }
        for (size_t i = n - 1; i > 0; i--) { /* no matches to speak of */
            size_t k = rng_below(&r, (uint32_t)i + 1);
            uint8_t v = data[i];
            data[i] = data[k];
            data[k] = v;
        }
        round_trip(data, n);
    }
    close_encoder();
}

TEST(runs_and_noise) {
    static uint8_t data[ZSTD_BLOCK_MAX_BYTES];
    struct rng r;
    rng_init(&r, 7, RNG_ORDER, 0, 0);
    open_encoder();
    for (size_t n = 1; n < sizeof(data); n += 1 + n / 3) {
        memset(data, 'a', n);
        assert_true(n < 32 || round_trip(data, n) < 24);
        for (size_t i = 0; i < n; i++) {
            data[i] = (uint8_t)rng_below(&r, 256);
        }
        round_trip(data, n);
    }
    close_encoder();
}

TEST(too_much_is_left_to_others) {
    static uint8_t data[ZSTD_BLOCK_MAX_BYTES];
    open_encoder();
    assert_int_equal(zstd_block_encode(encoder, block, data, 0, NULL, 0), 0);
    assert_int_equal(zstd_block_encode(encoder, block, data, ZSTD_BLOCK_MAX_BYTES, NULL, 0), 0);
    assert_true(round_trip(data, ZSTD_BLOCK_MAX_BYTES - 1) < 24);
    close_encoder();
}

TEST(what_was_before_makes_no_difference) {
    static uint8_t data[4096], first[4096 + BEHIND_BYTES];
    struct rng r;
    rng_init(&r, 9, RNG_ORDER, 0, 0);
    open_encoder();
    make_data(data, sizeof(data), &r, 40, 2, 20);
    size_t n = zstd_block_encode(encoder, first, data, 3000, NULL, 0);
    assert_true(n > 0);
    for (int k = 0; k < 50; k++) {
        size_t from = rng_below(&r, 1000);
        round_trip(data + from, 1 + rng_below(&r, 3000));
        assert_int_equal(zstd_block_encode(encoder, block, data, 3000, NULL, 0), n);
        assert_memory_equal(block, first, n);
    }
    close_encoder();
}
