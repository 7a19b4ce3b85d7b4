/*
 * Single zstd blocks: a block starts a frame that libzstd's decoder accepts, data that does not
 * shrink gives none, and no bytes depend on what a packer compressed before.
 */
#include "formats/shard/zstd_codec_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "formats/base/rng.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/test.h"

enum { MAX_DATA_BYTES = SHARD_BLOCK_BYTES, FRAME_EXTRA_BYTES = 32 };

static struct error err;
static uint8_t data[MAX_DATA_BYTES];
static uint8_t frame[MAX_DATA_BYTES + FRAME_EXTRA_BYTES];
static uint8_t back[MAX_DATA_BYTES + 1];

/* Bytes of `alphabet` values and, `copies` times in 100, copies of earlier bytes. */
static void make_data(size_t n, struct rng *r, uint32_t alphabet, uint32_t copies) {
    for (size_t i = 0; i < n;) {
        if (i > 0 && rng_below(r, 100) < copies) {
            size_t from = rng_below(r, (uint32_t)i);
            for (size_t length = 1 + rng_below(r, 60); length > 0 && i < n; length--) {
                data[i++] = data[from++];
            }
        } else {
            data[i++] = (uint8_t)rng_below(r, alphabet);
        }
    }
}

/* Tar headers and texts, as they precede an image in a shard. Returns their size. */
static size_t make_head(uint64_t id) {
    static const char text[] = "a brown dog runs over the grass";
    const struct shard_text captions[2] = {{text, 31}, {text + 2, 20}};
    const char json[] =
        "{\"url\":\"https://example.org/img/0042.jpg\",\"width\":640,\"height\":480}";
    char key[16];
    struct byte_buffer head;
    snprintf(key, sizeof(key), "%09u", (unsigned)id);
    byte_buffer_init(&head, SHARD_MAX_HEAD_BYTES);
    struct shard_sample s = {
        .sample_id = id,
        .key = key,
        .image = "x",
        .image_bytes = 1,
        .format = IMAGE_FORMAT_JPEG,
        .label = SHARD_NO_LABEL,
        .captions = captions,
        .caption_count = id % 3,
        .json = {json, sizeof(json) - 1},
    };
    assert_ok(shard_sample_tar(&head, &s, &err), err);
    size_t size_bytes = head.size_bytes - TAR_BLOCK_BYTES; /* without the image */
    memcpy(data, head.data, size_bytes);
    byte_buffer_fini(&head);
    return size_bytes;
}

/* Appends the block of data[0..n) to `out`, and decodes it at the start of a frame that continues
 * with a raw block. Returns the block's size. */
static size_t check_block(struct zstd_packer *p, struct byte_buffer *out, size_t n) {
    size_t before = out->size_bytes;
    size_t block_bytes = 0;
    assert_ok(zstd_packer_block(p, out, &block_bytes, data, n, &err), err);
    assert_int_equal(out->size_bytes - before, block_bytes);
    if (block_bytes == 0) {
        return 0;
    }
    assert_true(block_bytes < n);
    size_t at = 9;
    store_u32(frame, (uint32_t)ZSTD_FRAME_MAGIC);
    frame[4] = 0xA0; /* single segment, 4-byte content size, no checksum */
    store_u32(frame + 5, (uint32_t)n + 1);
    block_header(frame + at, false, BLOCK_ZSTD, (uint32_t)block_bytes);
    memcpy(frame + at + SHARD_BLOCK_HEADER_BYTES, out->data + before, block_bytes);
    at += SHARD_BLOCK_HEADER_BYTES + block_bytes;
    block_header(frame + at, true, BLOCK_RAW, 1);
    frame[at + SHARD_BLOCK_HEADER_BYTES] = '!';
    at += SHARD_BLOCK_HEADER_BYTES + 1;
    size_t got = ZSTD_decompress(back, sizeof(back), frame, at);
    if (ZSTD_isError(got)) {
        fail_msg("%zu bytes: %s", n, ZSTD_getErrorName(got));
    }
    assert_int_equal(got, n + 1);
    assert_memory_equal(back, data, n);
    assert_int_equal(back[n], '!');
    return block_bytes;
}

static const int levels[] = {1, 3, 4, 5, 9, 13, 19};

TEST(a_block_decodes_at_the_start_of_another_frame) {
    struct rng r;
    struct byte_buffer out;
    rng_init(&r, test_seed(), RNG_ORDER, 0, 0);
    byte_buffer_init(&out, 1 << 24);
    for (size_t k = 0; k < sizeof(levels) / sizeof(levels[0]); k++) {
        struct zstd_packer *p = NULL;
        size_t blocks = 0;
        assert_ok(zstd_packer_create(&p, levels[k], &err), err);
        for (uint32_t i = 0; i < 60; i++) {
            size_t n = 1 + rng_below(&r, i % 10 == 0 ? MAX_DATA_BYTES : 6000);
            make_data(n, &r, 1 + rng_below(&r, 200), i % 4 * 8);
            blocks += check_block(p, &out, n) > 0;
            blocks += check_block(p, &out, make_head(i * 7919)) > 0;
            out.size_bytes = 0;
        }
        assert_in_range(blocks, 70, 120);
        make_data(MAX_DATA_BYTES, &r, 40, 20);
        check_block(p, &out, MAX_DATA_BYTES); /* the largest allowed */
        zstd_packer_destroy(p);
    }
    byte_buffer_fini(&out);
}

/* Strong levels split an input like this into several blocks when they may. */
TEST(a_head_is_compressed_to_one_block_at_every_level) {
    struct rng r;
    struct byte_buffer out;
    byte_buffer_init(&out, 1 << 24);
    for (int level = SHARD_LEVEL_MIN; level <= SHARD_LEVEL_MAX; level++) {
        struct zstd_packer *p = NULL;
        rng_init(&r, 3, RNG_ORDER, 0, 0);
        make_data(MAX_DATA_BYTES - 1, &r, 20, 0);
        for (size_t i = 0; i < MAX_DATA_BYTES / 2; i++) {
            data[i] = (uint8_t)(data[i] % 3 + 'a');
        }
        assert_ok(zstd_packer_create(&p, level, &err), err);
        assert_in_range(check_block(p, &out, MAX_DATA_BYTES - 1), 1, MAX_DATA_BYTES * 2 / 3);
        zstd_packer_destroy(p);
        out.size_bytes = 0;
    }
    byte_buffer_fini(&out);
}

TEST(incompressible_data_gives_no_block) {
    struct rng r;
    struct byte_buffer out;
    struct zstd_packer *p = NULL;
    rng_init(&r, 5, RNG_ORDER, 0, 0);
    byte_buffer_init(&out, 1 << 24);
    for (size_t k = 0; k < sizeof(levels) / sizeof(levels[0]); k++) {
        assert_ok(zstd_packer_create(&p, levels[k], &err), err);
        make_data(5000, &r, 256, 0);
        assert_int_equal(check_block(p, &out, 5000), 0);
        assert_int_equal(check_block(p, &out, 1), 0);
        assert_int_equal(check_block(p, &out, 0), 0);
        memset(data, 'a', 5000);
        check_block(p, &out,
                    5000); /* zstd may choose an RLE block, which is not a compressed one */
        zstd_packer_destroy(p);
    }
    byte_buffer_fini(&out);
}

/* A block and a frame of the same 8 inputs, by one packer that has compressed much else and by new
 * ones. */
TEST(bytes_do_not_depend_on_earlier_input) {
    struct rng r, same;
    struct byte_buffer fresh, used;
    byte_buffer_init(&fresh, 1 << 24);
    byte_buffer_init(&used, 1 << 24);
    rng_init(&r, test_seed(), RNG_ORDER, 1, 0);
    for (int level = SHARD_LEVEL_MIN; level <= SHARD_LEVEL_MAX; level++) {
        struct zstd_packer *old = NULL, *new = NULL;
        assert_ok(zstd_packer_create(&old, level, &err), err);
        for (uint64_t i = 0; i < 8; i++) {
            size_t n = 1 + rng_below(&r, i % 4 == 0 ? 40000 : 4000);
            make_data(n, &r, 1 + rng_below(&r, 100), 10); /* what comes before */
            check_block(old, &used, n);
            assert_ok(zstd_packer_frame(old, &used, data, n, &err), err);
            rng_init(&same, 7, RNG_ORDER, i, 0);
            n = 3000 + rng_below(&same, 30000);
            make_data(n, &same, 60, 15);
            used.size_bytes = 0;
            fresh.size_bytes = 0;
            assert_ok(zstd_packer_create(&new, level, &err), err);
            check_block(new, &fresh, n);
            assert_ok(zstd_packer_frame(new, &fresh, data, n, &err), err);
            check_block(old, &used, n);
            assert_ok(zstd_packer_frame(old, &used, data, n, &err), err);
            assert_int_equal(used.size_bytes, fresh.size_bytes);
            assert_memory_equal(used.data, fresh.data, used.size_bytes);
            zstd_packer_destroy(new);
        }
        zstd_packer_destroy(old);
    }
    byte_buffer_fini(&fresh);
    byte_buffer_fini(&used);
}

TEST(levels_that_zstd_does_not_have_are_refused) {
    struct zstd_packer *p = NULL;
    assert_status(zstd_packer_create(&p, 0, &err), STATUS_INVALID, err);
    assert_null(p);
    assert_status(zstd_packer_create(&p, ZSTD_maxCLevel() + 1, &err), STATUS_INVALID, err);
    assert_null(p);
}
