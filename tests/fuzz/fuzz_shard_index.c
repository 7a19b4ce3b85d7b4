/*
 * A shard with a changed index and correct hashes: every three bytes of the input change one byte
 * of the index (u16 place, u8 xor), then all hashes are recomputed, so that the parsers after the
 * hash checks are reached. The input's size modulo three selects the container. Reader, check and
 * dataset succeed or refuse; if the check finds no fault, every sample can be read.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_foreign.h"
#include "formats/shard/shard_internal.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { SAMPLES = 70 }; /* two chunks of captions */

/* A sound shard of each container, made once. */
struct sound {
    const char *name;
    struct byte_buffer shard, index;
    size_t index_offset; /* in the shard; of a foreign tar there is none */
};

static struct sound sounds[] = {{.name = "made-000000.tar.zst"},
                                {.name = "made-000000.tar"},
                                {.name = "made-000000.tar"}};

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void make_own(struct sound *out, enum shard_container container) {
    struct make_shards how;
    struct file_system *fs = NULL;
    char path[64];
    make_shards_default(&how);
    how.samples = SAMPLES;
    how.image_bytes = 40;
    how.container = container;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(make_dataset(fs, "d", &how, NULL) == STATUS_OK);
    demand(path_join(path, sizeof(path), "d", out->name, NULL) == STATUS_OK);
    demand(file_read_all(fs, &out->shard, path, 1 << 20, NULL) == STATUS_OK);
    demand(file_read_all(fs, &out->index, "d/made-000000.cci", 1 << 20, NULL) == STATUS_OK);
    file_memory_destroy(fs);
    size_t after =
        container == SHARD_CONTAINER_TAR
            ? tar_padding(out->index.size_bytes) + TRAILER_BYTES + TAR_END_BYTES
            : SKIPPABLE_HEADER_BYTES + (SAMPLES + 2) * (size_t)SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES;
    out->index_offset = out->shard.size_bytes - after - out->index.size_bytes;
}

/* The samples of the plain tar as a user's tar. */
static void make_foreign(struct sound *out, const struct sound *plain) {
    struct shard_frame_builder *b = NULL;
    struct shard_foreign *x = NULL;
    struct shard_frame frame = {0};
    struct shard_summary summary;
    struct shard_index index;
    demand(shard_index_parse(&index, "sound", plain->index.data, plain->index.size_bytes, NULL) ==
           STATUS_OK);
    demand(byte_buffer_append(&out->shard, plain->shard.data, (size_t)index.data_bytes, NULL) ==
           STATUS_OK);
    demand(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR, 3, NULL) == STATUS_OK);
    demand(shard_foreign_create(&x, out->name, 3, NULL) == STATUS_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct made_sample made;
        struct shard_record r;
        make_sample_sized(&made, i, 1, 40);
        demand(shard_frame_build(b, &frame, &made.sample, NULL) == STATUS_OK);
        demand(shard_index_record(&index, i, &r, NULL) == STATUS_OK);
        const struct shard_foreign_place place = {r.frame_offset, out->shard.data + r.frame_offset,
                                                  r.frame_bytes, r.image_offset};
        demand(shard_foreign_add(x, &frame, &place, NULL) == STATUS_OK);
        made_sample_fini(&made);
    }
    demand(shard_foreign_finish(x, &out->index, &summary, out->shard.size_bytes, 0, 0, NULL) ==
           STATUS_OK);
    shard_foreign_destroy(x);
    shard_frame_builder_destroy(b);
    shard_frame_fini(&frame);
}

/* All hashes of the index as if it had been written so. */
static void
seal_index(uint8_t *index, size_t size_bytes, const uint8_t *shard, size_t shard_bytes) {
    uint8_t *records = index + INDEX_HEADER_BYTES;
    for (size_t i = 0; i < SAMPLES; i++) {
        uint8_t *record = records + i * INDEX_RECORD_BYTES;
        uint64_t offset = load_u64(record + 8);
        uint32_t frame_bytes = load_u32(record + 32);
        store_u32(record + 60, (uint32_t)hash64(record, 60));
        if (index[12] != SHARD_CONTAINER_TAR_ZSTD && offset <= shard_bytes &&
            frame_bytes <= shard_bytes - offset) {
            store_u32(records + SAMPLES * INDEX_RECORD_BYTES + 4 * i,
                      (uint32_t)hash64(shard + offset, frame_bytes));
        }
    }
    store_u64(index + 112, hash64(records, size_bytes - INDEX_HEADER_BYTES));
    store_u64(index + 120, hash64(index, 120));
}

static void put_file(struct file_system *fs, const char *path, const void *data, size_t n) {
    struct file *f = NULL;
    demand(fs->open(fs->context, &f, path, FILE_REPLACE, NULL) == STATUS_OK);
    demand(fs->write(f, data, n, NULL) == STATUS_OK);
    fs->close(f);
}

static void read_shard(const struct file_system *fs, const char *name) {
    struct shard_verify how = {.expected = NULL};
    struct shard_reader *r = NULL;
    enum status verified = shard_verify(fs, name, &how, NULL);
    if (shard_reader_open(&r, fs, name, NULL) != STATUS_OK) {
        demand(verified != STATUS_OK);
        return;
    }
    for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
        struct sample_view view;
        enum status s = shard_reader_get(r, i, &view, NULL);
        demand(s == STATUS_OK || verified != STATUS_OK);
    }
    shard_reader_close(r);
}

/* A manifest that believes the index, so that the dataset has only the records to doubt. */
static bool
write_manifest(struct file_system *fs, const struct shard_index *x, const struct sound *sound) {
    struct manifest m;
    struct shard_summary s = {
        .size_bytes = sound->shard.size_bytes,
        .index_hash = x->hash,
        .image_bytes = x->image_bytes,
        .first_id = x->first_id,
        .last_id = x->last_id,
        .sample_count = x->sample_count,
        .text_count = x->text_count,
    };
    memcpy(s.name, sound->name, strlen(sound->name));
    demand(manifest_init(&m, x->container, "fuzz", NULL) == STATUS_OK);
    demand(manifest_add_shard(&m, &s, NULL) == STATUS_OK);
    enum status written = manifest_seal(&m, 0, NULL);
    if (written == STATUS_OK) {
        written = manifest_write(&m, fs, "", NULL);
    }
    manifest_fini(&m);
    return written == STATUS_OK;
}

static void read_dataset(const struct file_system *fs, uint64_t shard_bytes) {
    struct dataset *d = NULL;
    struct caption_reader *captions = NULL;
    uint64_t fingerprint = 0;
    if (dataset_open(&d, "", fs, NULL) != STATUS_OK) {
        demand(d == NULL);
        return;
    }
    demand(caption_reader_create(&captions, d, NULL) == STATUS_OK);
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        if (dataset_sample_at(d, i, &s, NULL) != STATUS_OK) {
            continue;
        }
        demand(s.image_span_bytes <= dataset_max_image_span_bytes(d));
        demand(s.image_offset + s.image_span_bytes <= shard_bytes);
        for (uint32_t k = 0; k < s.text_count; k++) {
            struct shard_text text;
            (void)caption_reader_get(captions, &s, k, &text, NULL);
        }
    }
    (void)dataset_compute_fingerprint(d, &fingerprint, NULL);
    caption_reader_destroy(captions);
    dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    struct shard_index x;
    if (!sounds[0].shard.data) {
        make_own(&sounds[0], SHARD_CONTAINER_TAR_ZSTD);
        make_own(&sounds[1], SHARD_CONTAINER_TAR);
        make_foreign(&sounds[2], &sounds[1]);
    }
    const struct sound *sound = &sounds[size_bytes % 3];
    size_t index_bytes = sound->index.size_bytes;
    uint8_t *copy = malloc(sound->shard.size_bytes + index_bytes);
    demand(copy != NULL);
    memcpy(copy, sound->shard.data, sound->shard.size_bytes);
    uint8_t *index = copy + sound->index_offset;
    if (sound->index_offset == 0) {
        index = copy + sound->shard.size_bytes;
        memcpy(index, sound->index.data, index_bytes);
    }
    for (size_t i = 0; i + 3 <= size_bytes; i += 3) {
        size_t place = (size_t)data[i] | (size_t)data[i + 1] << 8;
        index[place % index_bytes] ^= data[i + 2];
    }
    seal_index(index, index_bytes, sound->shard.data, sound->shard.size_bytes);
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    put_file(fs, sound->name, copy, sound->shard.size_bytes);
    put_file(fs, "made-000000.cci", index, index_bytes);
    read_shard(fs, sound->name);
    if (shard_index_parse(&x, "fuzz", index, index_bytes, NULL) == STATUS_OK &&
        write_manifest(fs, &x, sound)) {
        read_dataset(fs, sound->shard.size_bytes);
    }
    file_memory_destroy(fs);
    free(copy);
    return 0;
}
