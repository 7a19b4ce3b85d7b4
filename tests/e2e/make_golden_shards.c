/*
 * make_golden_shards OUT: remakes what is under tests/golden/shard/v1 into the folder OUT: for each
 * container a dataset of two samples that reads, and files that are refused. By hand, and only when
 * the format gets a new version: files of an old version stay as they are.
 * ok-removed is a copy of ok after `ccpack remove` of sample 5.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_foreign.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/tar_write.h"

static struct error err;

static void must(bool holds) {
    if (!holds) {
        fprintf(stderr, "make_golden_shards: %s\n", err.text);
        exit(1);
    }
}

/* PNGs of one pixel. */
static const uint8_t red[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
    0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0xf8, 0xcf, 0xc0, 0x00, 0x00, 0x03, 0x01, 0x01, 0x00, 0xf7, 0x03, 0x41,
    0x43, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
static const uint8_t blue[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
    0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00,
    0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78,
    0xda, 0x63, 0x60, 0x60, 0xf8, 0x0f, 0x00, 0x01, 0x03, 0x01, 0x00, 0x36, 0x74, 0x11,
    0x40, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static const struct shard_text red_captions[] = {{"a red dot", 9}, {"one red pixel", 13}};
static const struct shard_text blue_captions[] = {{"a blue dot", 10}};
static const char red_json[] = "{\"url\":\"red.png\"}";

static const struct shard_sample samples[2] = {
    {.sample_id = 3,
     .key = "000000003",
     .image = red,
     .image_bytes = sizeof(red),
     .format = IMAGE_FORMAT_PNG,
     .width_px = 1,
     .height_px = 1,
     .label = SHARD_NO_LABEL,
     .captions = red_captions,
     .caption_count = 2,
     .json = {red_json, sizeof(red_json) - 1}},
    {.sample_id = 5,
     .key = "000000005",
     .image = blue,
     .image_bytes = sizeof(blue),
     .format = IMAGE_FORMAT_PNG,
     .width_px = 1,
     .height_px = 1,
     .label = SHARD_NO_LABEL,
     .captions = blue_captions,
     .caption_count = 1},
};

static void write_manifest(const char *directory,
                           enum shard_container container,
                           const struct shard_summary *shard,
                           const char *source) {
    struct manifest m;
    uint64_t fingerprint = 0;
    must(manifest_init(&m, container, "ccpack 0.1.0", &err) == STATUS_OK);
    must(manifest_add_shard(&m, shard, &err) == STATUS_OK);
    must(manifest_add_source(&m, source, 6, &err) == STATUS_OK);
    must(manifest_add_option(&m, "ids", "row", &err) == STATUS_OK);
    must(manifest_add_option(&m, "resize", "none", &err) == STATUS_OK);
    must(dataset_fingerprint_of(&fingerprint, &m, directory, NULL, &err) == STATUS_OK);
    must(manifest_seal(&m, fingerprint, &err) == STATUS_OK);
    must(manifest_write(&m, file_posix(), directory, &err) == STATUS_OK);
    manifest_fini(&m);
}

static void make_own(const char *directory, enum shard_container container) {
    struct shard_frame_builder *b = NULL;
    struct shard_writer *w = NULL;
    struct shard_frame frame = {0};
    struct shard_summary summary;
    const int level = 3;
    must(file_posix()->make_directory(NULL, directory, &err) == STATUS_OK);
    must(shard_frame_builder_create(&b, container, level, &err) == STATUS_OK);
    must(shard_writer_open(&w, file_posix(), directory, "example", 0, container, level, &err) ==
         STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        must(shard_frame_build(b, &frame, &samples[i], &err) == STATUS_OK);
        must(shard_writer_add(w, &frame, &err) == STATUS_OK);
    }
    must(shard_writer_finish(w, &summary, &err) == STATUS_OK);
    write_manifest(directory, container, &summary, "dots.tsv");
    shard_writer_close(w);
    shard_frame_builder_destroy(b);
    shard_frame_fini(&frame);
}

/* A tar as others write them: image first, a folder, a member of no sample, one caption each. */
static void make_foreign(const char *directory) {
    struct shard_frame_builder *b = NULL;
    struct shard_foreign *x = NULL;
    struct shard_frame frame = {0};
    struct shard_summary summary;
    struct byte_buffer tar;
    struct byte_buffer index;
    char path[PATH_MAX_BYTES];
    must(file_posix()->make_directory(NULL, directory, &err) == STATUS_OK);
    must(path_join(path, sizeof(path), directory, "dots.tar", &err) == STATUS_OK);
    FILE *f = fopen(path, "wb");
    must(f && tar_write_file(f, "README", "two dots", 8) &&
         tar_write_file(f, "dots/3.png", red, sizeof(red)) &&
         tar_write_file(f, "dots/3.txt", "a red dot\n", 10) &&
         tar_write_file(f, "dots/3.json", red_json, sizeof(red_json) - 1) &&
         tar_write_file(f, "dots/5.txt", "a blue dot", 10) &&
         tar_write_file(f, "dots/5.png", blue, sizeof(blue)) && tar_write_end(f) && fclose(f) == 0);
    must(file_read_all(file_posix(), &tar, path, 1 << 20, &err) == STATUS_OK);
    must(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR, 3, &err) == STATUS_OK);
    must(shard_foreign_create(&x, "dots.tar", 3, &err) == STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        struct shard_sample sample = samples[i];
        sample.caption_count = 1;
        const struct shard_foreign_place place = {
            .offset = i == 0 ? 1024 : 4096,
            .members = tar.data + (i == 0 ? 1024 : 4096),
            .size_bytes = i == 0 ? 3072 : 2048,
            .image_offset = i == 0 ? 1536 : 5632,
        };
        must(shard_frame_build(b, &frame, &sample, &err) == STATUS_OK);
        must(shard_foreign_add(x, &frame, &place, &err) == STATUS_OK);
    }
    must(shard_foreign_finish(x, &index, &summary, tar.size_bytes, hash64(tar.data, tar.size_bytes),
                              0, &err) == STATUS_OK);
    must(path_join(path, sizeof(path), directory, "dots.cci", &err) == STATUS_OK);
    must(file_write_atomic(file_posix(), path, index.data, index.size_bytes, &err) == STATUS_OK);
    write_manifest(directory, SHARD_CONTAINER_TAR_FOREIGN, &summary, "dots.tar");
    byte_buffer_fini(&tar);
    byte_buffer_fini(&index);
    shard_foreign_destroy(x);
    shard_frame_builder_destroy(b);
    shard_frame_fini(&frame);
}

/* ---- bad ones ---------------------------------------------------------------------------------
 */

enum { RECORDS = 2 };

/* A sound shard, and where its index is. */
struct shard {
    struct byte_buffer bytes;
    uint8_t *index;
    size_t index_bytes;
};

/* What is made wrong. `seal` says which hashes are then made right again, so that not every file is
 * refused for a hash. */
enum seal { NO_SEAL, SEAL_HEADER, SEAL_BODY, SEAL_RECORDS };

static void seal_index(struct shard *s, enum seal seal) {
    for (size_t i = 0; seal >= SEAL_RECORDS && i < RECORDS; i++) {
        uint8_t *record = s->index + INDEX_HEADER_BYTES + i * INDEX_RECORD_BYTES;
        store_u32(record + 60, (uint32_t)hash64(record, 60));
    }
    if (seal >= SEAL_BODY) {
        store_u64(s->index + 112,
                  hash64(s->index + INDEX_HEADER_BYTES, s->index_bytes - INDEX_HEADER_BYTES));
    }
    if (seal >= SEAL_HEADER) {
        store_u64(s->index + 120, hash64(s->index, 120));
    }
}

static void write_bad(const char *out,
                      const char *name,
                      const char *expected,
                      const struct byte_buffer *bytes,
                      size_t size_bytes) {
    char path[PATH_MAX_BYTES];
    must(path_join(path, sizeof(path), out, name, &err) == STATUS_OK);
    must(file_write_atomic(file_posix(), path, bytes->data, size_bytes, &err) == STATUS_OK);
    must(path_join(path, sizeof(path), out, "expected", &err) == STATUS_OK);
    FILE *f = fopen(path, "ab");
    must(f && fprintf(f, "%s %s\n", name, expected) > 0 && fclose(f) == 0);
}

static struct shard load(const char *directory, enum shard_container container) {
    struct shard s = {0};
    char path[PATH_MAX_BYTES];
    const char *name =
        container == SHARD_CONTAINER_TAR ? "example-000000.tar" : "example-000000.tar.zst";
    must(path_join(path, sizeof(path), directory, name, &err) == STATUS_OK);
    must(file_read_all(file_posix(), &s.bytes, path, 1 << 20, &err) == STATUS_OK);
    for (size_t i = 0; i + sizeof(index_magic) < s.bytes.size_bytes; i++) {
        if (memcmp(s.bytes.data + i, index_magic, sizeof(index_magic)) == 0) {
            s.index = s.bytes.data + i;
            s.index_bytes = (size_t)load_u64(s.index + 16);
            return s;
        }
    }
    must(false);
    return s;
}

/* One byte of the file, or of the index, changed. */
static void make_bad(const char *out,
                     const char *ok,
                     enum shard_container container,
                     const char *name,
                     const char *expected,
                     bool in_index,
                     size_t at,
                     unsigned change,
                     enum seal seal) {
    struct shard s = load(ok, container);
    uint8_t *from = in_index ? s.index : s.bytes.data;
    must(at < (in_index ? s.index_bytes : s.bytes.size_bytes));
    from[at] ^= (uint8_t)change;
    seal_index(&s, seal);
    write_bad(out, name, expected, &s.bytes, s.bytes.size_bytes);
    byte_buffer_fini(&s.bytes);
}

static void make_cut(const char *out,
                     const char *ok,
                     enum shard_container container,
                     const char *name,
                     size_t cut_bytes) {
    struct shard s = load(ok, container);
    write_bad(out, name, "CORRUPT", &s.bytes, s.bytes.size_bytes - cut_bytes);
    byte_buffer_fini(&s.bytes);
}

static void make_bad_zst(const char *out, const char *ok) {
    const enum shard_container c = SHARD_CONTAINER_TAR_ZSTD;
    struct shard s = load(ok, c);
    size_t image = (size_t)load_u32(s.index + INDEX_HEADER_BYTES + 36);
    size_t seek = (size_t)(s.index - s.bytes.data) + s.index_bytes + SKIPPABLE_HEADER_BYTES;
    size_t chunk = s.index_bytes - 10;
    byte_buffer_fini(&s.bytes);
    make_bad(out, ok, c, "caption_chunk.tar.zst", "CORRUPT", true, chunk, 0x40, SEAL_BODY);
    make_cut(out, ok, c, "cut.tar.zst", 1);
    make_bad(out, ok, c, "frame_elsewhere.tar.zst", "CORRUPT", true, INDEX_HEADER_BYTES + 8, 1,
             SEAL_RECORDS);
    make_bad(out, ok, c, "image_bit.tar.zst", "CORRUPT", false, image + 30, 1, NO_SEAL);
    make_bad(out, ok, c, "next_version.tar.zst", "VERSION", true, 8, 3, SEAL_HEADER);
    make_bad(out, ok, c, "other_container.tar.zst", "CORRUPT", true, 12, 3, SEAL_HEADER);
    make_bad(out, ok, c, "record_check.tar.zst", "CORRUPT", true, INDEX_HEADER_BYTES + 60, 1,
             SEAL_BODY);
    make_bad(out, ok, c, "reserved_not_zero.tar.zst", "CORRUPT", true, 100, 1, SEAL_HEADER);
    make_bad(out, ok, c, "seek_entry.tar.zst", "CORRUPT", false, seek + 4, 1, NO_SEAL);
    make_bad(out, ok, c, "unknown_container.tar.zst", "VERSION", true, 12, 8, SEAL_HEADER);
}

static void make_bad_tar(const char *out, const char *ok) {
    const enum shard_container c = SHARD_CONTAINER_TAR;
    struct shard s = load(ok, c);
    size_t image = (size_t)load_u32(s.index + INDEX_HEADER_BYTES + 36);
    size_t index = (size_t)(s.index - s.bytes.data);
    size_t padding = index + s.index_bytes;
    size_t trailer = s.bytes.size_bytes - TAR_END_BYTES - TRAILER_BYTES;
    byte_buffer_fini(&s.bytes);
    make_cut(out, ok, c, "cut.tar", 1);
    make_bad(out, ok, c, "caption_header.tar", "CORRUPT", false, 100, 1, NO_SEAL);
    make_bad(out, ok, c, "caption_padding.tar", "CORRUPT", false, 1000, 1, NO_SEAL);
    make_bad(out, ok, c, "end.tar", "CORRUPT", false, trailer + TRAILER_BYTES + 900, 1, NO_SEAL);
    make_bad(out, ok, c, "image_bit.tar", "CORRUPT", false, image + 30, 1, NO_SEAL);
    make_bad(out, ok, c, "index_header.tar", "CORRUPT", false, index - TAR_BLOCK_BYTES + 100, 1,
             NO_SEAL);
    make_bad(out, ok, c, "index_padding.tar", "CORRUPT", false, padding + 7, 1, NO_SEAL);
    make_bad(out, ok, c, "members_elsewhere.tar", "CORRUPT", true, INDEX_HEADER_BYTES + 9, 2,
             SEAL_RECORDS);
    make_cut(out, ok, c, "no_end.tar", TAR_END_BYTES);
    make_cut(out, ok, c, "no_trailer.tar", TAR_END_BYTES + TRAILER_BYTES);
    make_bad(out, ok, c, "trailer.tar", "CORRUPT", false, trailer + 9, 1, NO_SEAL);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"ok", "ok-tar", "ok-tar-foreign", "bad"};
    static char paths[4][PATH_MAX_BYTES];
    if (argc != 2) {
        fprintf(stderr, "usage: make_golden_shards OUT\n");
        return 64;
    }
    must(file_posix()->make_directory(NULL, argv[1], &err) == STATUS_OK);
    for (size_t i = 0; i < 4; i++) {
        must(path_join(paths[i], sizeof(paths[i]), argv[1], names[i], &err) == STATUS_OK);
    }
    make_own(paths[0], SHARD_CONTAINER_TAR_ZSTD);
    make_own(paths[1], SHARD_CONTAINER_TAR);
    make_foreign(paths[2]);
    must(file_posix()->make_directory(NULL, paths[3], &err) == STATUS_OK);
    make_bad_zst(paths[3], paths[0]);
    make_bad_tar(paths[3], paths[1]);
    return 0;
}
