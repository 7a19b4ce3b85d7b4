/*
 * Writer and reader of one shard: what goes in comes out, equal input gives equal bytes, limits
 * hold, and stock tools agree.
 */
#include "formats/shard/shard_writer.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

static struct error err;

static const enum shard_container containers[] = {SHARD_CONTAINER_TAR_ZSTD, SHARD_CONTAINER_TAR};

/* A shard of ids 0 .. count-1 in the folder of the case. */
static const char *write_shard(enum shard_container container, uint64_t count) {
    struct make_shards how;
    struct manifest m;
    make_shards_default(&how);
    how.samples = count;
    how.samples_per_shard = (uint32_t)count;
    how.container = container;
    assert_ok(manifest_init(&m, container, "test", &err), err);
    assert_ok(make_shards_into(&m, file_posix(), test_temp_dir(), 0, &how, &err), err);
    const char *path = test_temp_path("%s", m.shards[0].name);
    manifest_fini(&m);
    return path;
}

static void assert_same_sample(const struct sample_view *v, const struct shard_sample *s) {
    assert_int_equal(v->record.sample_id, s->sample_id);
    assert_string_equal(v->key, s->key);
    assert_int_equal(v->image_bytes, s->image_bytes);
    assert_memory_equal(v->image, s->image, s->image_bytes);
    assert_int_equal(v->caption_count, s->caption_count);
    for (size_t k = 0; k < s->caption_count; k++) {
        assert_int_equal(v->captions[k].size_bytes, s->captions[k].size_bytes);
        assert_memory_equal(v->captions[k].data, s->captions[k].data, s->captions[k].size_bytes);
    }
    assert_int_equal(v->json.size_bytes, s->json.size_bytes);
    assert_memory_equal(v->json.data ? v->json.data : "", s->json.data ? s->json.data : "",
                        s->json.size_bytes);
    assert_int_equal(v->record.width_px, s->width_px);
    assert_int_equal(v->record.height_px, s->height_px);
    assert_int_equal(v->record.format, s->format);
    assert_int_equal(v->record.flags, s->flags);
    assert_int_equal(v->record.label, s->label);
}

static void check_samples(enum shard_container container) {
    struct shard_reader *r = NULL;
    assert_ok(shard_reader_open(&r, file_posix(), write_shard(container, 150), &err), err);
    assert_int_equal(shard_reader_sample_count(r), 150);
    for (uint32_t i = 0; i < 150; i++) {
        struct made_sample made;
        struct sample_view view;
        struct shard_text text;
        make_sample(&made, i, 1);
        assert_ok(shard_reader_get(r, i, &view, &err), err);
        assert_same_sample(&view, &made.sample);
        for (uint32_t k = 0; k < made.sample.caption_count; k++) {
            assert_ok(shard_reader_caption(r, i, k, &text, &err), err);
            assert_int_equal(text.size_bytes, made.texts[k].size_bytes);
            assert_memory_equal(text.data, made.texts[k].data, text.size_bytes);
        }
        made_sample_fini(&made);
    }
    shard_reader_close(r);
}

TEST(samples_come_out_as_they_went_in) {
    for (size_t i = 0; i < 2; i++) {
        check_samples(containers[i]);
    }
}

/* The loader's way: one read at the place the index names, no zstd. */
static void check_images(enum shard_container container) {
    struct shard_reader *r = NULL;
    size_t size = 0;
    const char *path = write_shard(container, 100);
    uint8_t *file = test_read_file(path, &size);
    assert_ok(shard_reader_open(&r, file_posix(), path, &err), err);
    for (uint32_t i = 0; i < 100; i++) {
        struct made_sample made;
        struct shard_record record;
        make_sample(&made, i, 1);
        assert_ok(shard_reader_record(r, i, &record, &err), err);
        uint32_t span = shard_image_span_bytes(container, record.image_bytes);
        assert_true(record.image_offset + span <= size);
        assert_ok(shard_image_compact(file + record.image_offset, span, record.image_bytes, &err),
                  err);
        assert_memory_equal(file + record.image_offset, made.image, record.image_bytes);
        assert_int_equal(hash64(made.image, made.sample.image_bytes), record.image_hash);
        made_sample_fini(&made);
    }
    shard_reader_close(r);
    free(file);
}

TEST(images_are_read_without_decompression) {
    for (size_t i = 0; i < 2; i++) {
        check_images(containers[i]);
    }
}

static void check_members(enum shard_container container) {
    struct shard_reader *r = NULL;
    struct byte_buffer tar = {0};
    assert_ok(shard_reader_open(&r, file_posix(), write_shard(container, 100), &err), err);
    for (uint32_t i = 0; i < 100; i++) {
        struct made_sample made;
        struct sample_view view;
        make_sample(&made, i, 1);
        assert_ok(shard_reader_get(r, i, &view, &err), err);
        assert_ok(shard_sample_tar(&tar, &made.sample, &err), err);
        assert_int_equal(tar.size_bytes, r->content.size_bytes);
        assert_memory_equal(tar.data, r->content.data, tar.size_bytes);
        made.sample.key = "a.b";
        assert_status(shard_sample_tar(&tar, &made.sample, &err), STATUS_INVALID, err);
        made_sample_fini(&made);
    }
    byte_buffer_fini(&tar);
    shard_reader_close(r);
}

TEST(the_members_of_a_sample_are_those_of_its_frame) {
    for (size_t i = 0; i < 2; i++) {
        check_members(containers[i]);
    }
}

/* By its end alone: what stands before it may be damaged. */
static void check_recognised(enum shard_container container) {
    bool is_shard = false;
    size_t size = 0;
    const char *path = write_shard(container, 20);
    uint8_t *file = test_read_file(path, &size);
    assert_ok(shard_reader_recognise(&is_shard, file_posix(), path, &err), err);
    assert_true(is_shard);
    memset(file, 0, 1000);
    test_write_file(path, file, size);
    assert_ok(shard_reader_recognise(&is_shard, file_posix(), path, &err), err);
    assert_true(is_shard);
    for (size_t cut = 0; cut < size; cut += size / 16 + 1) {
        test_write_file(path, file, cut);
        assert_ok(shard_reader_recognise(&is_shard, file_posix(), path, &err), err);
        assert_false(is_shard);
    }
    free(file);
    test_remove_tree(path);
    assert_status(shard_reader_recognise(&is_shard, file_posix(), path, &err), STATUS_NOTFOUND,
                  err);
}

TEST(shards_are_recognised_by_their_end) {
    for (size_t i = 0; i < 2; i++) {
        check_recognised(containers[i]);
    }
}

struct seen {
    uint64_t samples, faults;
    enum status answer;
};

static enum status on_sample(void *cookie, const struct sample_view *view, struct error *e) {
    struct seen *s = cookie;
    assert_int_equal(view->record.sample_id, s->samples);
    s->samples++;
    return s->answer == STATUS_OK ? STATUS_OK : error_set(e, s->answer, "not liked");
}

static void
on_fault(void *cookie, enum shard_part part, uint64_t id, uint64_t offset, const char *text) {
    assert_int_equal(part, SHARD_PART_SHARD);
    struct seen *s = cookie;
    (void)offset;
    assert_int_equal(id, s->faults);
    assert_string_equal(text, "not liked");
    s->faults++;
}

static void check_questions(enum shard_container container) {
    struct seen seen = {.answer = STATUS_OK};
    struct shard_verify how = {.sample = on_sample, .fault = on_fault, .cookie = &seen};
    const char *path = write_shard(container, 20);
    assert_ok(shard_verify(file_posix(), path, &how, &err), err);
    assert_int_equal(seen.samples, 20);
    assert_int_equal(seen.faults, 0);
    seen = (struct seen){.answer = STATUS_UNSUPPORTED};
    assert_status(shard_verify(file_posix(), path, &how, &err), STATUS_CORRUPT, err);
    assert_int_equal(seen.faults, 20);
    seen = (struct seen){.answer = STATUS_NOMEM};
    assert_status(shard_verify(file_posix(), path, &how, &err), STATUS_NOMEM, err);
    assert_int_equal(seen.samples, 1);
}

TEST(verify_asks_about_every_sample) {
    for (size_t i = 0; i < 2; i++) {
        check_questions(containers[i]);
    }
}

TEST(span_with_damaged_block_header_is_refused) {
    uint8_t *span = calloc(1, 400000);
    uint32_t span_bytes = shard_image_span_bytes(SHARD_CONTAINER_TAR_ZSTD, 300000);
    assert_int_equal(span_bytes, 300006);
    block_header(span + 131072, false, BLOCK_RAW, 131072);
    block_header(span + 262147, false, BLOCK_RAW, 37856);
    uint8_t *copy = malloc(span_bytes);
    memcpy(copy, span, span_bytes);
    assert_ok(shard_image_compact(copy, span_bytes, 300000, &err), err);
    for (size_t bit = 0; bit < 24; bit++) {
        memcpy(copy, span, span_bytes);
        copy[131072 + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_status(shard_image_compact(copy, span_bytes, 300000, &err), STATUS_CORRUPT, err);
        memcpy(copy, span, span_bytes);
        copy[262147 + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_status(shard_image_compact(copy, span_bytes, 300000, &err), STATUS_CORRUPT, err);
    }
    free(copy);
    free(span);
}

/* What a builder did before must not show in the bytes: that is what makes any number of workers
 * give the same shard. */
TEST(frames_do_not_depend_on_the_builders_past) {
    for (int level = SHARD_LEVEL_MIN; level <= SHARD_LEVEL_MAX; level += 3) {
        struct shard_frame_builder *used = NULL;
        struct shard_frame frame_used = {0};
        assert_ok(shard_frame_builder_create(&used, SHARD_CONTAINER_TAR_ZSTD, level, &err), err);
        for (uint64_t id = 0; id < 40; id++) {
            struct shard_frame_builder *fresh = NULL;
            struct shard_frame frame_fresh = {0};
            struct made_sample made;
            make_sample(&made, id, 1);
            assert_ok(shard_frame_builder_create(&fresh, SHARD_CONTAINER_TAR_ZSTD, level, &err),
                      err);
            assert_ok(shard_frame_build(fresh, &frame_fresh, &made.sample, &err), err);
            assert_ok(shard_frame_build(used, &frame_used, &made.sample, &err), err);
            assert_int_equal(frame_fresh.bytes.size_bytes, frame_used.bytes.size_bytes);
            assert_memory_equal(frame_fresh.bytes.data, frame_used.bytes.data,
                                frame_used.bytes.size_bytes);
            shard_frame_fini(&frame_fresh);
            shard_frame_builder_destroy(fresh);
            made_sample_fini(&made);
        }
        shard_frame_fini(&frame_used);
        shard_frame_builder_destroy(used);
    }
}

/* Heads of every size around the block size, compressible or not, at every level. */
TEST(long_texts_survive) {
    static const size_t sizes[] = {0, 1, 511, 512, 20000, 129000, 130000, 131072, 200000, 262144};
    char *text = malloc(262144);
    for (int noise = 0; noise < 2; noise++) {
        uint32_t x = 1;
        for (size_t i = 0; i < 262144; i++) {
            x = x * 1664525u + 1013904223u;
            text[i] = noise ? (char)(' ' + (x >> 24) % 95) : (char)('a' + i % 17);
        }
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const struct file_system *fs = file_posix();
            struct shard_text caption = {text, sizes[i]};
            struct shard_sample sample = {.sample_id = 5,
                                          .key = "k",
                                          .image = "x",
                                          .image_bytes = 1,
                                          .format = IMAGE_FORMAT_JPEG,
                                          .label = SHARD_NO_LABEL,
                                          .captions = &caption,
                                          .caption_count = 1};
            struct shard_frame_builder *b = NULL;
            struct shard_frame frame = {0};
            struct shard_writer *w = NULL;
            struct shard_reader *r = NULL;
            struct shard_summary summary;
            struct sample_view view;
            int level = 1 + (int)i * 2;
            assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, level, &err), err);
            assert_ok(shard_frame_build(b, &frame, &sample, &err), err);
            assert_ok(shard_writer_open(&w, fs, test_temp_dir(), "long", 0,
                                        SHARD_CONTAINER_TAR_ZSTD, level, &err),
                      err);
            assert_ok(shard_writer_add(w, &frame, &err), err);
            assert_ok(shard_writer_finish(w, &summary, &err), err);
            assert_ok(shard_reader_open(&r, fs, test_temp_path("long-000000.tar.zst"), &err), err);
            assert_ok(shard_reader_get(r, 0, &view, &err), err);
            assert_same_sample(&view, &sample);
            shard_reader_close(r);
            shard_writer_close(w);
            shard_frame_fini(&frame);
            shard_frame_builder_destroy(b);
        }
    }
    free(text);
}

/* Each form of header at its ends: what one writer makes is the only form that readers take. */
TEST(content_sizes_have_one_form_each) {
    static const struct {
        uint32_t content_bytes;
        uint8_t descriptor;
        size_t header_bytes;
    } rows[] = {
        {256, FRAME_DESCRIPTOR_SHORT, 7},      {1024, FRAME_DESCRIPTOR_SHORT, 7},
        {65791, FRAME_DESCRIPTOR_SHORT, 7},    {65792, FRAME_DESCRIPTOR_SINGLE, 9},
        {8 << 20, FRAME_DESCRIPTOR_SINGLE, 9}, {(8 << 20) + 1, FRAME_DESCRIPTOR_WINDOWED, 10},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t frame[FRAME_MAX_HEADER_BYTES] = {0};
        uint32_t content = 0;
        assert_int_equal(frame_header(frame, rows[i].content_bytes), rows[i].header_bytes);
        assert_int_equal(frame[4], rows[i].descriptor);
        assert_true(frame_content_bytes(frame, sizeof(frame), &content));
        assert_int_equal(content, rows[i].content_bytes);
        assert_false(frame_content_bytes(frame, sizeof(frame) - 1, &content));
    }
    uint8_t longer[FRAME_MAX_HEADER_BYTES] = {0x28, 0xB5, 0x2F, 0xFD, FRAME_DESCRIPTOR_SINGLE};
    uint32_t content = 0;
    store_u32(longer + 5, 65791); /* would fit the short form */
    assert_false(frame_content_bytes(longer, sizeof(longer), &content));
    store_u32(longer + 5, 255);
    assert_false(frame_content_bytes(longer, sizeof(longer), &content));
    store_u32(longer + 5, 65792);
    assert_true(frame_content_bytes(longer, sizeof(longer), &content));
}

/* Around the size at which the form changes, zstd reads what was framed. */
TEST(zstd_reads_frames_on_both_sides_of_the_short_form) {
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct zstd_unpacker *u = NULL;
    uint8_t *out = malloc(80000);
    int forms = 0;
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    assert_ok(zstd_unpacker_create(&u, &err), err);
    for (size_t image_bytes = 62000; image_bytes < 67000; image_bytes += 256) {
        struct made_sample made;
        struct byte_buffer bytes = {0};
        uint32_t content = 0;
        make_sample_sized(&made, 7, 1, image_bytes);
        assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
        assert_ok(made_frame_bytes(&bytes, &frame, &err), err);
        made_sample_fini(&made);
        assert_int_equal(bytes.size_bytes, frame.record.frame_bytes);
        assert_true(frame_content_bytes(bytes.data, bytes.size_bytes, &content));
        assert_int_equal(content, frame.content_bytes);
        assert_ok(zstd_unpack(u, out, content, bytes.data, bytes.size_bytes, "x", &err), err);
        byte_buffer_fini(&bytes);
        assert_int_equal((uint32_t)hash64(out, content), frame.content_check);
        forms |= frame.bytes.data[4] == FRAME_DESCRIPTOR_SHORT ? 1 : 2;
    }
    assert_int_equal(forms, 3);
    zstd_unpacker_destroy(u);
    shard_frame_builder_destroy(b);
    shard_frame_fini(&frame);
    free(out);
}

TEST(an_image_above_the_window_is_framed_for_every_decoder) {
    enum { IMAGE_BYTES = 9 << 20 };
    struct made_sample made;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    struct shard_reader *r = NULL;
    struct shard_summary summary;
    struct sample_view view;
    make_sample_sized(&made, 1, 1, IMAGE_BYTES);
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_int_equal(frame.bytes.data[4], FRAME_DESCRIPTOR_WINDOWED);
    assert_ok(shard_writer_open(&w, file_posix(), test_temp_dir(), "big", 7,
                                SHARD_CONTAINER_TAR_ZSTD, 3, &err),
              err);
    assert_ok(shard_writer_add(w, &frame, &err), err);
    assert_ok(shard_writer_finish(w, &summary, &err), err);
    assert_string_equal(summary.name, "big-000007.tar.zst");
    assert_ok(shard_reader_open(&r, file_posix(), test_temp_path("big-000007.tar.zst"), &err), err);
    assert_ok(shard_reader_get(r, 0, &view, &err), err);
    assert_same_sample(&view, &made.sample);
    shard_reader_close(r);
    shard_writer_close(w);
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    made_sample_fini(&made);
}

TEST(ids_may_come_in_any_order) {
    static const uint64_t ids[] = {50, 3, 70, 4, 1, 60};
    static const uint64_t sorted[] = {1, 3, 4, 50, 60, 70};
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    struct shard_reader *r = NULL;
    struct shard_summary summary;
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    assert_ok(shard_writer_open(&w, file_posix(), test_temp_dir(), "ids", 0,
                                SHARD_CONTAINER_TAR_ZSTD, 3, &err),
              err);
    for (size_t i = 0; i < 6; i++) {
        struct made_sample made;
        make_sample(&made, ids[i], 1);
        assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
        assert_ok(shard_writer_add(w, &frame, &err), err);
        made_sample_fini(&made);
    }
    assert_ok(shard_writer_finish(w, &summary, &err), err);
    assert_int_equal(summary.first_id, 1);
    assert_int_equal(summary.last_id, 70);
    const char *path = test_temp_path("ids-000000.tar.zst");
    assert_ok(shard_reader_open(&r, file_posix(), path, &err), err);
    for (uint32_t i = 0; i < 6; i++) {
        struct made_sample made;
        struct sample_view view;
        make_sample(&made, sorted[i], 1);
        assert_ok(shard_reader_get(r, i, &view, &err), err);
        assert_same_sample(&view, &made.sample);
        made_sample_fini(&made);
    }
    shard_reader_close(r);
    struct shard_verify how = {.expected = &summary};
    assert_ok(shard_verify(file_posix(), path, &how, &err), err);
    shard_writer_close(w);
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
}

TEST(a_repeated_id_or_key_is_refused) {
    struct made_sample made;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    struct shard_summary summary;
    make_sample(&made, 9, 1);
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    assert_ok(shard_writer_open(&w, file_posix(), test_temp_dir(), "twice", 0,
                                SHARD_CONTAINER_TAR_ZSTD, 3, &err),
              err);
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_ok(shard_writer_add(w, &frame, &err), err);
    made.sample.sample_id = 10;
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_status(shard_writer_add(w, &frame, &err), STATUS_EXISTS, err);
    made.sample.key = "other";
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_ok(shard_writer_add(w, &frame, &err), err);
    made.sample.key = "third";
    made.sample.sample_id = 9;
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_ok(shard_writer_add(w, &frame, &err), err);
    assert_status(shard_writer_finish(w, &summary, &err), STATUS_EXISTS, err);
    shard_writer_close(w);
    assert_false(file_any_temporary(file_posix(), test_temp_dir(), false));
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    made_sample_fini(&made);
}

TEST(samples_beyond_the_limits_are_refused) {
    struct made_sample made;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    char *large = calloc(1, SHARD_MAX_TEXT_BYTES + 1);
    struct shard_text bad = {"\xFF\xFE", 2};
    struct shard_text long_text = {large, SHARD_MAX_TEXT_BYTES + 1};
    make_sample(&made, 1, 1);
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    struct shard_sample s = made.sample;
    s.captions = &bad;
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_CORRUPT, err);
    s.captions = &long_text;
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_LIMIT, err);
    s = made.sample;
    s.json = bad;
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_CORRUPT, err);
    s.json = (struct shard_text){"", 0};
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_LIMIT, err);
    s = made.sample;
    s.image_bytes = 0;
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_LIMIT, err);
    s = made.sample;
    s.width_px = 65536;
    assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_LIMIT, err);
    static const char *const keys[] = {"", "a.b", "a/b", "a b", "a\\b", "\x7F", "\xC3\xA9"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        s = made.sample;
        s.key = keys[i];
        assert_status(shard_frame_build(b, &frame, &s, &err), STATUS_INVALID, err);
    }
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    made_sample_fini(&made);
    free(large);
}

/* SHARD_FORMAT.md, sections 8 and 9: sizes of 0, 1, the limit and one more; UTF-8, which holds
 * U+0000. */
TEST(texts_follow_one_rule) {
    char *large = calloc(1, SHARD_MAX_JSON_BYTES + 1);
    assert_non_null(large);
    struct shard_text json = {large, 0};
    assert_status(shard_check_json(&json, &err), STATUS_LIMIT, err);
    json.size_bytes = 1; /* a NUL, which is no JSON, but UTF-8 */
    assert_ok(shard_check_json(&json, &err), err);
    json.size_bytes = SHARD_MAX_JSON_BYTES;
    assert_ok(shard_check_json(&json, &err), err);
    json.size_bytes = SHARD_MAX_JSON_BYTES + 1;
    assert_status(shard_check_json(&json, &err), STATUS_LIMIT, err);
    json = (struct shard_text){"{\"a\xC3\": 1}", 9};
    assert_status(shard_check_json(&json, &err), STATUS_CORRUPT, err);
    assert_string_equal(err.text, "JSON not in UTF-8 at byte 3");

    struct shard_text *captions = calloc(SHARD_MAX_CAPTIONS + 1, sizeof(*captions));
    assert_non_null(captions);
    for (size_t i = 0; i <= SHARD_MAX_CAPTIONS; i++) {
        captions[i] = (struct shard_text){large, SHARD_MAX_TEXT_BYTES / SHARD_MAX_CAPTIONS};
    }
    assert_ok(shard_check_captions(captions, 0, &err), err);
    assert_ok(shard_check_captions(captions, SHARD_MAX_CAPTIONS, &err), err);
    assert_status(shard_check_captions(captions, SHARD_MAX_CAPTIONS + 1, &err), STATUS_LIMIT, err);
    captions[5].size_bytes++;
    assert_status(shard_check_captions(captions, SHARD_MAX_CAPTIONS, &err), STATUS_LIMIT, err);
    captions[5].size_bytes = 0;
    assert_ok(shard_check_captions(captions, SHARD_MAX_CAPTIONS, &err), err);
    captions[6] = (struct shard_text){"a\xFF", 2};
    assert_status(shard_check_captions(captions, SHARD_MAX_CAPTIONS, &err), STATUS_CORRUPT, err);
    free(captions);
    free(large);
}

/* A NUL inside a caption and inside the JSON is a character like others. */
TEST(texts_with_nul_come_back) {
    struct made_sample made;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_writer *w = NULL;
    struct shard_reader *r = NULL;
    struct shard_summary summary;
    struct sample_view v;
    struct shard_text text;
    const struct shard_text captions[2] = {{"a\0b", 3}, {"\0", 1}};
    make_sample(&made, 9, 1);
    made.sample.captions = captions;
    made.sample.caption_count = 2;
    made.sample.json = (struct shard_text){"\0{}", 3};
    assert_ok(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, 3, &err), err);
    assert_ok(shard_writer_open(&w, file_posix(), test_temp_dir(), "nul", 0,
                                SHARD_CONTAINER_TAR_ZSTD, 3, &err),
              err);
    assert_ok(shard_frame_build(b, &frame, &made.sample, &err), err);
    assert_ok(shard_writer_add(w, &frame, &err), err);
    assert_ok(shard_writer_finish(w, &summary, &err), err);
    shard_writer_close(w);
    assert_ok(shard_reader_open(&r, file_posix(), test_temp_path("nul-000000.tar.zst"), &err), err);
    assert_ok(shard_reader_get(r, 0, &v, &err), err);
    assert_int_equal(v.json.size_bytes, 3);
    assert_memory_equal(v.json.data, "\0{}", 3);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(v.captions[k].size_bytes, captions[k].size_bytes);
        assert_memory_equal(v.captions[k].data, captions[k].data, captions[k].size_bytes);
        assert_ok(shard_reader_caption(r, 0, k, &text, &err), err);
        assert_int_equal(text.size_bytes, captions[k].size_bytes);
    }
    shard_reader_close(r);
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    made_sample_fini(&made);
}

/* Every write, sync and rename fails once: no half shard under a final name, no temporary left. */
static void check_faults(enum shard_container container) {
    struct make_shards how;
    bool plain = container == SHARD_CONTAINER_TAR;
    const char *path = plain ? "d/made-000000.tar" : "d/made-000000.tar.zst";
    make_shards_default(&how);
    how.samples = 4;
    how.samples_per_shard = 4;
    how.container = container;
    uint64_t calls = 1;
    for (uint64_t nth = 0; nth < calls; nth++) {
        struct file_system *memory = NULL;
        struct file_system *faulty = NULL;
        bool exists = false;
        assert_ok(file_memory_create(&memory, &err), err);
        if (nth == 0) { /* learn how many calls there are */
            assert_ok(file_fault_create(&faulty, memory, UINT64_MAX, FILE_FAULT_ERROR, &err), err);
            assert_ok(make_dataset(faulty, "d", &how, &err), err);
            calls = file_fault_count(faulty);
            file_fault_destroy(faulty);
            file_memory_destroy(memory);
            assert_ok(file_memory_create(&memory, &err), err);
        }
        assert_ok(file_fault_create(&faulty, memory, nth, FILE_FAULT_ERROR, &err), err);
        struct error why = {0};
        enum status s = make_dataset(faulty, "d", &how, &why);
        assert_true(s < STATUS_OK);
        assert_ok(memory->exists(memory->context, path, &exists, &err), err);
        if (exists) {
            struct shard_verify verify = {0};
            assert_ok(shard_verify(memory, path, &verify, &err), err);
        }
        assert_false(file_any_temporary(memory, "d", false));
        file_fault_destroy(faulty);
        file_memory_destroy(memory);
    }
    assert_true(calls > 8);
}

TEST(faults_leave_nothing_half_written) {
    for (size_t i = 0; i < 2; i++) {
        check_faults(containers[i]);
    }
}
