/*
 * Every single bit of a shard and of its sidecar index, flipped one at a time: the check of
 * everything finds each one, and what can still be read is what was written.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_memory.h"
#include "formats/shard_reader.h"
#include "formats/shard_writer.h"
#include "tests/support/test.h"

#define SHARD "a-000000.tar.zst"
#define INDEX "a-000000.cci"

enum { SAMPLE_COUNT = 3 };

/* Three samples: captions 0, 1 and 2; one with JSON; images that are no pictures. */
static void write_shard(const struct file_system *fs, struct shard_summary *summary) {
    struct error err = {0};
    struct shard_frame_builder *builder = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    assert_ok(
        shard_frame_builder_create(&builder, SHARD_CONTAINER_TAR_ZSTD, SHARD_LEVEL_DEFAULT, &err),
        err);
    assert_ok(
        shard_writer_open(&w, fs, "", "a", 0, SHARD_CONTAINER_TAR_ZSTD, SHARD_LEVEL_DEFAULT, &err),
        err);
    for (uint32_t i = 0; i < SAMPLE_COUNT; i++) {
        uint8_t image[64];
        for (size_t k = 0; k < sizeof image; k++) {
            image[k] = (uint8_t)(k * (i + 3));
        }
        const char key[] = {'k', (char)('0' + i), '\0'};
        const struct shard_text captions[] = {{"a red ball", 10}, {"", 0}};
        struct shard_sample sample = {.sample_id = 5 * i,
                                      .key = key,
                                      .image = image,
                                      .image_bytes = sizeof image - i,
                                      .format = IMAGE_FORMAT_JPEG,
                                      .width_px = 8,
                                      .height_px = 9,
                                      .label = SHARD_NO_LABEL,
                                      .captions = captions,
                                      .caption_count = i};
        if (i == 1) {
            sample.json = (struct shard_text){"{\"a\":1}", 7};
        }
        assert_ok(shard_frame_build(builder, &frame, &sample, &err), err);
        assert_ok(shard_writer_add(w, &frame, &err), err);
    }
    assert_ok(shard_writer_finish(w, summary, &err), err);
    shard_writer_close(w);
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(builder);
}

static void replace(const struct file_system *fs, const char *path, const struct byte_buffer *b) {
    struct error err = {0};
    struct file *f = NULL;
    assert_ok(fs->open(fs->context, &f, path, FILE_REPLACE, &err), err);
    assert_ok(fs->write(f, b->data, b->size_bytes, &err), err);
    fs->close(f);
}

static void count_fault(void *cookie, uint64_t sample_id, uint64_t offset, const char *text) {
    (void)sample_id;
    (void)offset;
    (void)text;
    ++*(size_t *)cookie;
}

/* Samples that can be read, each checked against its hashes; the sanitizers watch the others. */
static uint32_t readable_samples(const struct file_system *fs) {
    struct shard_reader *r = NULL;
    uint32_t count = 0;
    if (shard_reader_open(&r, fs, SHARD, NULL) != STATUS_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
        struct sample_view view;
        count += shard_reader_get(r, i, &view, NULL) == STATUS_OK;
    }
    shard_reader_close(r);
    return count;
}

static size_t verify(const struct file_system *fs, const struct shard_summary *expected) {
    size_t faults = 0;
    struct shard_verify how = {.expected = expected, .fault = count_fault, .cookie = &faults};
    enum status s = shard_verify(fs, SHARD, &how, NULL);
    if (s != (faults == 0 ? STATUS_OK : STATUS_CORRUPT)) {
        fail_msg("%zu faults reported, and status %s", faults, status_name(s));
    }
    return faults;
}

/* Flips every bit of `path` in turn. What is not found, where that may be, must do no harm. */
static void flip_every_bit(const char *path, bool with_manifest, bool must_find) {
    struct error err = {0};
    struct file_system *fs = NULL;
    struct shard_summary summary;
    struct byte_buffer file;
    assert_ok(file_memory_create(&fs, &err), err);
    write_shard(fs, &summary);
    const struct shard_summary *expected = with_manifest ? &summary : NULL;
    assert_int_equal(verify(fs, expected), 0);
    assert_ok(file_read_all(fs, &file, path, 1 << 20, &err), err);
    assert_true(file.size_bytes > 200);
    for (size_t bit = 0; bit < 8 * file.size_bytes; bit++) {
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        replace(fs, path, &file);
        uint32_t readable = readable_samples(fs);
        if (verify(fs, expected) == 0 && (must_find || readable != SAMPLE_COUNT)) {
            fail_msg("%s: bit %zu of byte %zu flipped, and no fault found", path, bit % 8, bit / 8);
        }
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    replace(fs, path, &file);
    assert_int_equal(verify(fs, expected), 0);
    byte_buffer_fini(&file);
    file_memory_destroy(fs);
}

TEST(every_flipped_bit_of_a_shard_is_found) {
    flip_every_bit(SHARD, true, true);
}

/* Compressed data has bits that no decoder looks at, so that only the manifest's hash of the whole
 * file finds all; every sample then still reads as it was written. */
TEST(what_is_not_found_without_the_manifest_does_no_harm) {
    flip_every_bit(SHARD, false, false);
}

TEST(every_flipped_bit_of_the_sidecar_is_found) {
    flip_every_bit(INDEX, false, true);
}
