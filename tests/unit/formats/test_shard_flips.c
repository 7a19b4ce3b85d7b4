/*
 * Flips every single bit of a shard and of its sidecar index, and truncates them to every length,
 * in each container: the full check finds each damage, and samples that can still be read are those
 * that were written.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/shard/shard_foreign.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

enum { SAMPLE_COUNT = 3 };

static const char index_path[] = "a-000000.cci";
static const char *const shard_paths[] = {
    [SHARD_CONTAINER_TAR_ZSTD] = "a-000000.tar.zst",
    [SHARD_CONTAINER_TAR] = "a-000000.tar",
    [SHARD_CONTAINER_TAR_FOREIGN] = "a-000000.tar",
};

/* The samples of a shard's frames as the members of somebody's tar: an end, and an index beside. */
static void make_foreign(const struct file_system *fs,
                         struct shard_foreign *x,
                         struct byte_buffer *tar,
                         struct shard_summary *summary) {
    static const uint8_t zeros[1024];
    struct error err = {0};
    struct byte_buffer index;
    assert_ok(byte_buffer_append(tar, zeros, sizeof(zeros), &err), err);
    assert_ok(shard_foreign_finish(x, &index, summary, tar->size_bytes,
                                   hash64(tar->data, tar->size_bytes), 0, &err),
              err);
    assert_ok(file_write_atomic(fs, summary->name, tar->data, tar->size_bytes, &err), err);
    assert_ok(file_write_atomic(fs, index_path, index.data, index.size_bytes, &err), err);
    byte_buffer_fini(&index);
}

static void fill_image(uint8_t image[64], uint32_t i) {
    for (size_t k = 0; k < 64; k++) {
        image[k] = (uint8_t)(k * (i + 3));
    }
}

/* Three samples: captions 0, 1 and 2; one with JSON; images that are no images. */
static void write_shard(const struct file_system *fs,
                        enum shard_container container,
                        struct shard_summary *summary) {
    struct error err = {0};
    struct shard_frame_builder *builder = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    struct shard_foreign *x = NULL;
    struct byte_buffer tar = {0};
    bool foreign = container == SHARD_CONTAINER_TAR_FOREIGN;
    enum shard_container written = foreign ? SHARD_CONTAINER_TAR : container;
    assert_ok(shard_frame_builder_create(&builder, written, SHARD_LEVEL_DEFAULT, &err), err);
    assert_ok(shard_writer_open(&w, fs, "", "a", 0, written, SHARD_LEVEL_DEFAULT, &err), err);
    assert_ok(shard_foreign_create(&x, "a-000000.tar", SHARD_LEVEL_DEFAULT, &err), err);
    for (uint32_t i = 0; i < SAMPLE_COUNT; i++) {
        uint8_t image[64];
        fill_image(image, i);
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
        if (foreign) {
            size_t at = tar.size_bytes;
            assert_ok(made_frame_bytes(&tar, &frame, &err), err);
            const struct shard_foreign_place place = {at, tar.data + at, tar.size_bytes - at,
                                                      at + frame.record.image_offset};
            assert_ok(shard_foreign_add(x, &frame, &place, &err), err);
        }
    }
    if (foreign) {
        make_foreign(fs, x, &tar, summary);
    } else {
        assert_ok(shard_writer_finish(w, summary, &err), err);
    }
    byte_buffer_fini(&tar);
    shard_foreign_destroy(x);
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

static void count_fault(void *cookie,
                        enum shard_part part,
                        uint64_t sample_id,
                        uint64_t offset,
                        const char *text) {
    (void)part;
    (void)sample_id;
    (void)offset;
    (void)text;
    ++*(size_t *)cookie;
}

static void assert_same_sample(const struct sample_view *v) {
    uint32_t i = (uint32_t)v->record.sample_id / 5;
    uint8_t image[64];
    assert_true(v->record.sample_id == 5 * i && i < SAMPLE_COUNT);
    fill_image(image, i);
    assert_int_equal(v->image_bytes, sizeof(image) - i);
    assert_memory_equal(v->image, image, v->image_bytes);
    assert_true(v->key[0] == 'k' && v->key[1] == (char)('0' + i) && v->key[2] == '\0');
    assert_int_equal(v->caption_count, i);
    if (i > 0) {
        assert_int_equal(v->captions[0].size_bytes, 10);
        assert_memory_equal(v->captions[0].data, "a red ball", 10);
    }
    assert_int_equal(v->json.size_bytes, i == 1 ? 7 : 0);
    if (i == 1) {
        assert_memory_equal(v->json.data, "{\"a\":1}", 7);
    }
}

/* Samples that can be read, each checked against its hashes; the sanitizers watch the others. */
static uint32_t readable_samples(const struct file_system *fs, const char *path) {
    struct shard_reader *r = NULL;
    uint32_t count = 0;
    if (shard_reader_open(&r, fs, path, NULL) != STATUS_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
        struct sample_view view;
        if (shard_reader_get(r, i, &view, NULL) == STATUS_OK) {
            assert_same_sample(&view);
            count++;
        }
    }
    shard_reader_close(r);
    return count;
}

static size_t
verify(const struct file_system *fs, const char *path, const struct shard_summary *expected) {
    size_t faults = 0;
    struct shard_verify how = {.expected = expected, .fault = count_fault, .cookie = &faults};
    enum status s = shard_verify(fs, path, &how, NULL);
    if (s != (faults == 0 ? STATUS_OK : STATUS_CORRUPT)) {
        fail_msg("%zu faults reported, and status %s", faults, status_name(s));
    }
    return faults;
}

/* Flips every bit of the shard, or of its sidecar, in turn; of the tars, which are much longer, one
 * bit of every byte unless CCSTREAM_TEST_THOROUGH is set; under sanitizers, a fifth of those. What
 * is not found, where that may be, must do no harm: all samples read, and are what they were. */
static void
flip_every_bit(enum shard_container container, bool sidecar, bool with_manifest, bool must_find) {
    struct error err = {0};
    struct file_system *fs = NULL;
    struct shard_summary summary;
    struct byte_buffer file;
    const char *shard = shard_paths[container];
    const char *path = sidecar ? index_path : shard;
    assert_ok(file_memory_create(&fs, &err), err);
    write_shard(fs, container, &summary);
    const struct shard_summary *expected = with_manifest ? &summary : NULL;
    assert_int_equal(verify(fs, shard, expected), 0);
    assert_ok(file_read_all(fs, &file, path, 1 << 20, &err), err);
    assert_true(file.size_bytes > 200);
    bool all = container == SHARD_CONTAINER_TAR_ZSTD || getenv("CCSTREAM_TEST_THOROUGH");
    uint32_t step = getenv("CCSTREAM_TEST_THOROUGH") ? 1 : test_step(5);
    for (size_t bit = 0; bit < 8 * file.size_bytes; bit += all ? step : 1) {
        if (!all && (bit % 8 != (5 * (bit / 8) + bit / 64) % 8 || bit / 8 % step != 0)) {
            continue;
        }
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        replace(fs, path, &file);
        uint32_t readable = readable_samples(fs, shard);
        if (verify(fs, shard, expected) == 0 && (must_find || readable != SAMPLE_COUNT)) {
            fail_msg("%s: bit %zu of byte %zu flipped, and no fault found", path, bit % 8, bit / 8);
        }
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    replace(fs, path, &file);
    assert_int_equal(verify(fs, shard, expected), 0);
    byte_buffer_fini(&file);
    file_memory_destroy(fs);
}

TEST(every_flipped_bit_of_a_shard_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR_ZSTD, false, true, true);
}

TEST(every_flipped_bit_of_a_plain_tar_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR, false, true, true);
}

TEST(every_flipped_bit_of_a_foreign_tar_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR_FOREIGN, false, true, true);
}

/* Compressed data has bits that no decoder uses, so only the manifest's hash of the whole
 * file finds every flip. Every sample still reads as it was written. */
TEST(without_the_manifest_a_flip_in_a_shard_does_no_harm) {
    flip_every_bit(SHARD_CONTAINER_TAR_ZSTD, false, false, false);
}

/* A plain tar holds no bit that is not compared with something. */
TEST(without_the_manifest_every_flip_in_a_tar_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR, false, false, true);
}

/* A foreign tar has bytes that mean nothing to us. */
TEST(without_the_manifest_a_flip_in_a_foreign_tar_does_no_harm) {
    flip_every_bit(SHARD_CONTAINER_TAR_FOREIGN, false, false, false);
}

TEST(every_flipped_bit_of_the_sidecar_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR_ZSTD, true, false, true);
    flip_every_bit(SHARD_CONTAINER_TAR, true, false, true);
}

/* It is the only copy, so that damage is found where it matters, and in any case by the hash of its
 * header, which covers all of it. */
TEST(every_flipped_bit_of_a_foreign_tars_index_is_found) {
    flip_every_bit(SHARD_CONTAINER_TAR_FOREIGN, true, true, true);
}

/* Cut to every length, 0 included. */
static void cut_everywhere(enum shard_container container, bool sidecar, bool with_manifest) {
    struct error err = {0};
    struct file_system *fs = NULL;
    struct shard_summary summary;
    struct byte_buffer file;
    const char *shard = shard_paths[container];
    const char *path = sidecar ? index_path : shard;
    assert_ok(file_memory_create(&fs, &err), err);
    write_shard(fs, container, &summary);
    const struct shard_summary *expected = with_manifest ? &summary : NULL;
    assert_ok(file_read_all(fs, &file, path, 1 << 20, &err), err);
    size_t whole = file.size_bytes;
    for (uint32_t cut = 1; file.size_bytes > 0; cut = test_step(5)) {
        file.size_bytes -= cut < file.size_bytes ? cut : file.size_bytes;
        replace(fs, path, &file);
        if (verify(fs, shard, expected) == 0) {
            fail_msg("%s: truncated to %zu of %zu bytes, and no fault found", path, file.size_bytes,
                     whole);
        }
        readable_samples(fs, shard);
    }
    byte_buffer_fini(&file);
    file_memory_destroy(fs);
}

TEST(every_truncation_is_found) {
    for (int c = SHARD_CONTAINER_TAR_ZSTD; c <= SHARD_CONTAINER_TAR_FOREIGN; c++) {
        cut_everywhere((enum shard_container)c, false, false);
        cut_everywhere((enum shard_container)c, true, true);
    }
}
