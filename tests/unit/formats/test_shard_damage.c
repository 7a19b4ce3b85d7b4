/*
 * Damaged shards, besides test_shard_flips: truncated ones, a dataset with a damaged sidecar, and
 * wrong indexes with correct hashes.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"
#include "tests/support/test.h"

static struct error err;

enum { SAMPLES = 3 };
static const char shard_path[] = "d/made-000000.tar.zst";
static const char index_path[] = "d/made-000000.cci";

struct fixture {
    struct file_system *fs;
    struct manifest m;
    struct byte_buffer shard;
    struct byte_buffer index;
};

static void fixture_init(struct fixture *f) {
    struct make_shards how;
    make_shards_default(&how);
    how.samples = SAMPLES;
    how.samples_per_shard = SAMPLES;
    how.image_bytes = 100;
    how.first_id = 9; /* five captions, one, none */
    assert_ok(file_memory_create(&f->fs, &err), err);
    assert_ok(make_dataset(f->fs, "d", &how, &err), err);
    assert_ok(manifest_read(&f->m, f->fs, "d", &err), err);
    assert_ok(file_read_all(f->fs, &f->shard, shard_path, 1 << 20, &err), err);
    assert_ok(file_read_all(f->fs, &f->index, index_path, 1 << 20, &err), err);
}

static void fixture_fini(struct fixture *f) {
    byte_buffer_fini(&f->shard);
    byte_buffer_fini(&f->index);
    manifest_fini(&f->m);
    file_memory_destroy(f->fs);
}

static void put_file(struct fixture *f, const char *path, const void *data, size_t size_bytes) {
    assert_ok(file_write_atomic(f->fs, path, data, size_bytes, &err), err);
}

/* Reads all that can be read: what comes must be what was packed. */
static void read_all(struct fixture *f) {
    struct shard_reader *r = NULL;
    struct error why = {0};
    if (shard_reader_open(&r, f->fs, shard_path, &why) != STATUS_OK) {
        return;
    }
    for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
        struct sample_view view;
        if (shard_reader_get(r, i, &view, &why) == STATUS_OK) {
            struct made_sample made;
            assert_in_range(view.record.sample_id, 9, 9 + SAMPLES - 1);
            make_sample_sized(&made, view.record.sample_id, 1, 100);
            assert_int_equal(view.image_bytes, 100);
            assert_memory_equal(view.image, made.image, 100);
            assert_int_equal(view.caption_count, made.sample.caption_count);
            for (uint32_t k = 0; k < view.caption_count; k++) {
                struct shard_text text;
                assert_int_equal(view.captions[k].size_bytes, made.texts[k].size_bytes);
                assert_memory_equal(view.captions[k].data, made.texts[k].data,
                                    made.texts[k].size_bytes);
                if (shard_reader_caption(r, i, k, &text, &why) == STATUS_OK) {
                    assert_int_equal(text.size_bytes, made.texts[k].size_bytes);
                    assert_memory_equal(text.data, made.texts[k].data, text.size_bytes);
                }
            }
            made_sample_fini(&made);
        }
    }
    shard_reader_close(r);
}

TEST(every_truncation_is_found) {
    struct fixture f;
    fixture_init(&f);
    struct shard_verify how = {.expected = &f.m.shards[0]};
    struct dataset *d = NULL;
    for (size_t size = 0; size < f.shard.size_bytes; size++) {
        put_file(&f, shard_path, f.shard.data, size);
        assert_status(shard_verify(f.fs, shard_path, &how, &err), STATUS_CORRUPT, err);
        assert_status(dataset_open(&d, "d", f.fs, &err), STATUS_CORRUPT, err);
        read_all(&f);
    }
    fixture_fini(&f);
}

/* Through the dataset, which trusts the sidecar's header only: a flipped bit in the sidecar either
 * sends it to the shard's own index, or is found by the record or the caption that it is in. */
TEST(flipped_bits_in_the_sidecar_never_give_wrong_samples) {
    struct fixture f;
    fixture_init(&f);
    for (size_t bit = 0; bit < f.index.size_bytes * 8; bit++) {
        struct dataset *d = NULL;
        struct caption_reader *captions = NULL;
        f.index.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put_file(&f, index_path, f.index.data, f.index.size_bytes);
        f.index.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_ok(dataset_open(&d, "d", f.fs, &err), err);
        assert_ok(caption_reader_create(&captions, d, &err), err);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            struct dataset_sample s;
            struct made_sample made;
            if (dataset_sample_at(d, i, &s, &err) != STATUS_OK) {
                continue;
            }
            make_sample_sized(&made, s.sample_id, 1, 100);
            assert_int_equal(s.sample_id, 9 + i);
            assert_int_equal(s.image_hash, hash64(made.image, 100));
            assert_int_equal(s.text_count, made.sample.caption_count);
            for (uint32_t k = 0; k < s.text_count; k++) {
                struct shard_text text;
                if (caption_reader_get(captions, &s, k, &text, &err) == STATUS_OK) {
                    assert_int_equal(text.size_bytes, made.texts[k].size_bytes);
                    assert_memory_equal(text.data, made.texts[k].data, text.size_bytes);
                }
            }
            made_sample_fini(&made);
        }
        caption_reader_destroy(captions);
        dataset_close(d);
    }
    fixture_fini(&f);
}

/* A writer of lies: the index is changed and all hashes made right again. */
TEST(a_wrong_index_with_correct_hashes_is_found) {
    struct fixture f;
    fixture_init(&f);
    for (size_t at = 0; at < INDEX_HEADER_BYTES + SAMPLES * INDEX_RECORD_BYTES; at++) {
        for (unsigned change = 1; change < 256; change = change * 4 + 3) {
            struct byte_buffer b = {0};
            struct shard_verify how = {.expected = NULL};
            uint64_t begin = 0;
            assert_ok(byte_buffer_append(&b, f.shard.data, f.shard.size_bytes, &err), err);
            begin =
                f.shard.size_bytes -
                (SKIPPABLE_HEADER_BYTES + SEEK_FOOTER_BYTES + (SAMPLES + 2) * SEEK_ENTRY_BYTES) -
                f.index.size_bytes;
            uint8_t *index = b.data + begin;
            index[at] ^= (uint8_t)change;
            for (size_t i = 0; i < SAMPLES; i++) {
                uint8_t *record = index + INDEX_HEADER_BYTES + i * INDEX_RECORD_BYTES;
                store_u32(record + 60, (uint32_t)hash64(record, 60));
            }
            store_u64(index + 112,
                      hash64(index + INDEX_HEADER_BYTES, f.index.size_bytes - INDEX_HEADER_BYTES));
            store_u64(index + 120, hash64(index, 120));
            bool same = memcmp(b.data, f.shard.data, b.size_bytes) == 0;
            /* Facts that nothing else in the shard repeats: size, label and flags of the image.
             */
            size_t field = at < INDEX_HEADER_BYTES ? 0 : (at - INDEX_HEADER_BYTES) % 64;
            bool free_field =
                (field >= 48 && field < 52) || (field >= 54 && field < 58) || field == 59;
            bool header_only = at >= 72 && at < 76; /* the largest chunk may be said to be larger */
            put_file(&f, shard_path, b.data, b.size_bytes);
            put_file(&f, index_path, index, f.index.size_bytes);
            enum status s = shard_verify(f.fs, shard_path, &how, &err);
            if (s == STATUS_OK && !same && !free_field && !header_only) {
                fail_msg("byte %zu of the index changed by %02x is not found", at, change);
            }
            byte_buffer_fini(&b);
        }
    }
    fixture_fini(&f);
}

/* A writer that does not check its texts: a plain tar with a byte of the JSON made 0xFF, and every
 * check and hash computed again. */
TEST(json_that_is_not_utf8_is_found_by_reader_and_verify) {
    static const char path[] = "d/made-000000.tar";
    struct make_shards how;
    struct file_system *fs = NULL;
    struct byte_buffer shard = {0};
    struct shard_reader *r = NULL;
    struct sample_view v;
    struct shard_verify check = {.expected = NULL};
    make_shards_default(&how);
    how.samples = 1;
    how.first_id = 10; /* with JSON */
    how.container = SHARD_CONTAINER_TAR;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(make_dataset(fs, "d", &how, &err), err);
    assert_ok(shard_reader_open(&r, fs, path, &err), err);
    assert_ok(shard_reader_get(r, 0, &v, &err), err);
    assert_non_null(v.json.data);
    size_t json_at = (size_t)(v.json.data - (const char *)r->content.data);
    size_t members = r->content.size_bytes;
    shard_reader_close(r);
    assert_ok(file_read_all(fs, &shard, path, 1 << 24, &err), err);
    shard.data[json_at] = 0xFF;
    uint8_t *index = shard.data + members + TAR_BLOCK_BYTES;
    size_t index_bytes = (size_t)load_u64(index + 16);
    store_u32(index + INDEX_HEADER_BYTES + INDEX_RECORD_BYTES,
              (uint32_t)hash64(shard.data, members));
    store_u64(index + 112, hash64(index + INDEX_HEADER_BYTES, index_bytes - INDEX_HEADER_BYTES));
    store_u64(index + 120, hash64(index, 120));
    assert_ok(file_write_atomic(fs, path, shard.data, shard.size_bytes, &err), err);
    assert_ok(file_write_atomic(fs, index_path, index, index_bytes, &err), err);
    assert_ok(shard_reader_open(&r, fs, path, &err), err);
    assert_status(shard_reader_get(r, 0, &v, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "JSON not in UTF-8 at byte 0"));
    shard_reader_close(r);
    assert_status(shard_verify(fs, path, &check, &err), STATUS_CORRUPT, err);
    assert_string_equal(err.text, "d/made-000000.tar: 1 fault found");
    byte_buffer_fini(&shard);
    file_memory_destroy(fs);
}
