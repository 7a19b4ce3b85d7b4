/*
 * Tars of others: what the index promises is what a reader finds, whatever form the tar has; and
 * what cannot be found in place is not promised.
 */
#include "formats/shard/shard_foreign.h"

#include <string.h>

#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct error err;

struct fixture {
    struct file_system *fs;
    struct byte_buffer tar;
    struct shard_foreign *x;
    struct shard_frame_builder *builder;
    struct shard_frame frame;
};

static void fixture_init(struct fixture *f, const char *name) {
    memset(f, 0, sizeof(*f));
    assert_ok(file_memory_create(&f->fs, &err), err);
    assert_ok(shard_foreign_create(&f->x, name, 3, &err), err);
    assert_ok(shard_frame_builder_create(&f->builder, SHARD_CONTAINER_TAR, 3, &err), err);
}

static void fixture_fini(struct fixture *f) {
    shard_foreign_destroy(f->x);
    shard_frame_builder_destroy(f->builder);
    shard_frame_fini(&f->frame);
    byte_buffer_fini(&f->tar);
    file_memory_destroy(f->fs);
}

static size_t put(struct fixture *f, const char *name, const char *body) {
    static const uint8_t zeros[512];
    uint8_t header[512];
    size_t size = strlen(body);
    tar_header(header, name, size);
    assert_ok(byte_buffer_append(&f->tar, header, 512, &err), err);
    size_t at = f->tar.size_bytes;
    assert_ok(byte_buffer_append(&f->tar, body, size, &err), err);
    assert_ok(byte_buffer_append(&f->tar, zeros, tar_padding(size), &err), err);
    return at;
}

static enum status
add(struct fixture *f, uint64_t id, const char *image, size_t from, size_t image_at) {
    const struct shard_text captions[2] = {{"one", 3}, {"and two", 7}};
    const struct shard_sample sample = {
        .sample_id = id,
        .key = "k",
        .image = image,
        .image_bytes = strlen(image),
        .format = IMAGE_FORMAT_JPEG,
        .label = SHARD_NO_LABEL,
        .captions = captions,
        .caption_count = 2,
    };
    const struct shard_foreign_place place = {from, f->tar.data + from, f->tar.size_bytes - from,
                                              image_at};
    assert_ok(shard_frame_build(f->builder, &f->frame, &sample, &err), err);
    return shard_foreign_add(f->x, &f->frame, &place, &err);
}

/* Writes tar, index and dataset.json; ids begin at 100. */
static void finish(struct fixture *f, const char *name) {
    struct byte_buffer index;
    struct shard_summary summary;
    struct manifest m;
    uint64_t fingerprint = 0;
    char index_name[64];
    assert_ok(shard_foreign_finish(f->x, &index, &summary, f->tar.size_bytes,
                                   hash64(f->tar.data, f->tar.size_bytes), 100, &err),
              err);
    assert_ok(shard_index_name(index_name, sizeof(index_name), name, &err), err);
    assert_ok(file_write_atomic(f->fs, name, f->tar.data, f->tar.size_bytes, &err), err);
    assert_ok(file_write_atomic(f->fs, index_name, index.data, index.size_bytes, &err), err);
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_FOREIGN, "test", &err), err);
    assert_ok(manifest_add_shard(&m, &summary, &err), err);
    assert_ok(dataset_fingerprint_of(&fingerprint, &m, "", f->fs, &err), err);
    assert_ok(manifest_seal(&m, fingerprint, &err), err);
    assert_ok(manifest_write(&m, f->fs, "", &err), err);
    manifest_fini(&m);
    byte_buffer_fini(&index);
}

static void assert_text(const struct shard_text *t, const char *want) {
    assert_int_equal(t->size_bytes, strlen(want));
    assert_memory_equal(t->data, want, t->size_bytes);
}

/* Three samples with other members around and between them. */
static void three(struct fixture *f) {
    put(f, "README", "hello");
    size_t a = f->tar.size_bytes;
    size_t image = put(f, "dir name/a.b.jpg", "picture a");
    put(f, "other.json", "{\"not\":\"mine\"}");
    put(f, "dir name/a.Json", "{\"a\":1}");
    assert_ok(add(f, 7, "picture a", a, image), err);
    put(f, "between", "nothing");
    size_t b = f->tar.size_bytes;
    put(f, "b.json", "\xFF no text");
    image = put(f, "b.png", "picture b");
    assert_ok(add(f, 2, "picture b", b, image), err);
    size_t c = f->tar.size_bytes;
    put(f, "c.json", "");
    image = put(f, "c.png", "picture c");
    assert_ok(add(f, 9, "picture c", c, image), err);
    assert_int_equal(shard_foreign_sample_count(f->x), 3);
}

TEST(samples_are_found_in_place) {
    struct fixture f;
    struct dataset *d = NULL;
    struct shard_reader *r = NULL;
    struct sample_view v;
    struct shard_verify how = {0};
    fixture_init(&f, "other.wds");
    three(&f);
    finish(&f, "other.wds");
    assert_ok(shard_reader_open(&r, f.fs, "other.wds", &err), err);
    assert_int_equal(shard_reader_sample_count(r), 3);
    assert_ok(shard_reader_get(r, 0, &v, &err), err); /* by id */
    assert_int_equal(v.record.sample_id, 102);
    assert_string_equal(v.key, "b");
    assert_null(v.json.data); /* no UTF-8 */
    assert_ok(shard_reader_get(r, 1, &v, &err), err);
    assert_int_equal(v.record.sample_id, 107);
    assert_string_equal(v.key, "dir_name_a");
    assert_text(&v.json, "{\"a\":1}");
    assert_int_equal(v.image_bytes, 9);
    assert_memory_equal(v.image, "picture a", 9);
    assert_int_equal(v.caption_count, 2);
    assert_text(&v.captions[0], "one");
    assert_text(&v.captions[1], "and two");
    assert_memory_equal(r->content.data, "dir name/a.b.jpg", 17);
    assert_int_equal(r->content.size_bytes, 3 * 1024);
    assert_ok(shard_reader_get(r, 2, &v, &err), err);
    assert_string_equal(v.key, "c");
    assert_null(v.json.data); /* empty */
    shard_reader_close(r);
    assert_ok(dataset_open(&d, "", f.fs, &err), err);
    how.expected = &dataset_manifest(d)->shards[0];
    assert_ok(shard_verify(f.fs, "other.wds", &how, &err), err);
    for (uint64_t i = 0; i < 3; i++) { /* the loader's way */
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.image_span_bytes, 9);
        assert_int_equal(hash64(f.tar.data + s.image_offset, 9), s.image_hash);
    }
    dataset_close(d);
    fixture_fini(&f);
}

TEST(only_samples_in_place_are_indexed) {
    struct fixture f;
    fixture_init(&f, "a.tar");
    size_t image = put(&f, "a.jpg", "picture a");
    assert_status(add(&f, 0, "picture a", 0, image + 1), STATUS_CORRUPT, err);
    assert_status(add(&f, 0, "picture b", 0, image), STATUS_CORRUPT, err);
    assert_status(add(&f, 0, "picture", 0, image), STATUS_CORRUPT, err);
    f.tar.data[156] = 'S'; /* sparse, and its checksum wrong with it */
    assert_status(add(&f, 0, "picture a", 0, image), STATUS_CORRUPT, err);
    f.tar.data[156] = '0';
    assert_ok(add(&f, 0, "picture a", 0, image), err);
    put(&f, "b.txt", "behind it");
    f.tar.data[1024 + 3] ^= 1; /* bytes after the image are checked too */
    assert_status(add(&f, 1, "picture a", 0, image), STATUS_CORRUPT, err);
    assert_int_equal(shard_foreign_sample_count(f.x), 1);
    fixture_fini(&f);
}

TEST(a_repeated_or_too_large_id_is_refused) {
    struct fixture f;
    struct byte_buffer index;
    struct shard_summary summary;
    fixture_init(&f, "a.tar");
    size_t image = put(&f, "a.jpg", "picture a");
    assert_ok(add(&f, 5, "picture a", 0, image), err);
    assert_status(
        shard_foreign_finish(f.x, &index, &summary, f.tar.size_bytes, 0, SHARD_MAX_ID - 4, &err),
        STATUS_LIMIT, err);
    byte_buffer_fini(&index);
    assert_status(shard_foreign_finish(f.x, &index, &summary, f.tar.size_bytes - 1, 0, 0, &err),
                  STATUS_CORRUPT, err); /* the tar is shorter than its samples */
    byte_buffer_fini(&index);
    assert_ok(add(&f, 5, "picture a", 0, image), err);
    assert_status(shard_foreign_finish(f.x, &index, &summary, f.tar.size_bytes, 0, 0, &err),
                  STATUS_EXISTS, err);
    byte_buffer_fini(&index);
    fixture_fini(&f);
}

TEST(without_its_index_or_with_another_a_tar_is_refused) {
    struct fixture f;
    struct dataset *d = NULL;
    struct shard_reader *r = NULL;
    struct byte_buffer index;
    fixture_init(&f, "a.tar");
    three(&f);
    finish(&f, "a.tar");
    assert_ok(file_read_all(f.fs, &index, "a.cci", 1 << 20, &err), err);

    assert_ok(f.fs->remove(f.fs->context, "a.cci", &err), err);
    assert_status(shard_reader_open(&r, f.fs, "a.tar", &err), STATUS_CORRUPT, err);
    assert_status(dataset_open(&d, "", f.fs, &err), STATUS_NOTFOUND, err);

    index.data[12] = SHARD_CONTAINER_TAR; /* of another container, with good hashes */
    store_u64(index.data + 120, hash64(index.data, 120));
    assert_ok(file_write_atomic(f.fs, "a.cci", index.data, index.size_bytes, &err), err);
    assert_status(shard_reader_open(&r, f.fs, "a.tar", &err), STATUS_CORRUPT, err);
    assert_status(dataset_open(&d, "", f.fs, &err), STATUS_MISMATCH, err);
    index.data[12] = SHARD_CONTAINER_TAR_FOREIGN;
    index.data[40]++; /* one that dataset.json does not name */
    store_u64(index.data + 120, hash64(index.data, 120));
    assert_ok(file_write_atomic(f.fs, "a.cci", index.data, index.size_bytes, &err), err);
    assert_status(dataset_open(&d, "", f.fs, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "index the tars again"));
    byte_buffer_fini(&index);
    fixture_fini(&f);
}

TEST(a_tar_that_changed_is_named) {
    struct fixture f;
    struct dataset *d = NULL;
    struct manifest m;
    fixture_init(&f, "a.tar");
    three(&f);
    finish(&f, "a.tar");
    assert_ok(manifest_read(&m, f.fs, "", &err), err);
    struct shard_verify how = {.expected = &m.shards[0]};
    put(&f, "more", "grown");
    assert_ok(file_write_atomic(f.fs, "a.tar", f.tar.data, f.tar.size_bytes, &err), err);
    assert_status(dataset_open(&d, "", f.fs, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "index the tars again"));
    assert_status(shard_verify(f.fs, "a.tar", &how, &err), STATUS_CORRUPT, err);
    f.tar.size_bytes -= 1024;
    f.tar.data[600] ^= 1; /* in the README, which is of no sample */
    assert_ok(file_write_atomic(f.fs, "a.tar", f.tar.data, f.tar.size_bytes, &err), err);
    assert_ok(dataset_open(&d, "", f.fs, &err), err);
    dataset_close(d);
    assert_status(shard_verify(f.fs, "a.tar", &how, &err), STATUS_CORRUPT, err);
    manifest_fini(&m);
    fixture_fini(&f);
}
