/*
 * Reading images at the offsets in an index, as the loader does. Every three bytes of the input
 * change one byte of the index (u16 place, u8 xor), then all hashes are recomputed. Every span is
 * inside the shard and fits the buffer for the largest one; a record with the same image fields as
 * the sound one gives that image.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_internal.h"
#include "tests/support/file_memory.h"
#include "tests/support/make_shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { SAMPLES = 12 }; /* sizes below, at and above a block: make_sample's own */

static struct byte_buffer shard, sidecar; /* sound ones, made once */
static struct shard_record sound[SAMPLES];

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void make_sound(void) {
    struct make_shards how;
    struct file_system *fs = NULL;
    make_shards_default(&how);
    how.samples = SAMPLES;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(make_dataset(fs, "d", &how, NULL) == STATUS_OK);
    demand(file_read_all(fs, &shard, "d/made-000000.tar.zst", 64 << 20, NULL) == STATUS_OK);
    demand(file_read_all(fs, &sidecar, "d/made-000000.cci", 1 << 20, NULL) == STATUS_OK);
    file_memory_destroy(fs);
    struct shard_index x;
    demand(shard_index_parse(&x, "sound", sidecar.data, sidecar.size_bytes, NULL) == STATUS_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        demand(shard_index_record(&x, i, &sound[i], NULL) == STATUS_OK);
    }
}

static void seal_index(uint8_t *index, size_t size_bytes) {
    for (size_t i = 0; i < SAMPLES; i++) {
        uint8_t *record = index + INDEX_HEADER_BYTES + i * INDEX_RECORD_BYTES;
        store_u32(record + 60, (uint32_t)hash64(record, 60));
    }
    store_u64(index + 112, hash64(index + INDEX_HEADER_BYTES, size_bytes - INDEX_HEADER_BYTES));
    store_u64(index + 120, hash64(index, 120));
}

static void put_file(struct file_system *fs, const char *path, const void *data, size_t n) {
    struct file *f = NULL;
    demand(fs->open(fs->context, &f, path, FILE_REPLACE, NULL) == STATUS_OK);
    demand(fs->write(f, data, n, NULL) == STATUS_OK);
    fs->close(f);
}

/* A manifest that believes the index. */
static bool write_manifest(struct file_system *fs, const struct shard_index *x) {
    struct manifest m;
    struct shard_summary s = {
        .name = "made-000000.tar.zst",
        .size_bytes = shard.size_bytes,
        .index_hash = x->hash,
        .image_bytes = x->image_bytes,
        .first_id = x->first_id,
        .last_id = x->last_id,
        .sample_count = x->sample_count,
        .text_count = x->text_count,
    };
    demand(manifest_init(&m, x->container, "fuzz", NULL) == STATUS_OK);
    demand(manifest_add_shard(&m, &s, NULL) == STATUS_OK);
    enum status written = manifest_seal(&m, 0, NULL);
    if (written == STATUS_OK) {
        written = manifest_write(&m, fs, "", NULL);
    }
    manifest_fini(&m);
    return written == STATUS_OK;
}

static bool is_sound(const struct dataset_sample *s) {
    for (size_t i = 0; i < SAMPLES; i++) {
        if (sound[i].image_offset == s->image_offset && sound[i].image_bytes == s->image_bytes &&
            sound[i].image_hash == s->image_hash) {
            return true;
        }
    }
    return false;
}

static void read_spans(const struct dataset *d) {
    size_t room = dataset_max_image_span_bytes(d);
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        if (dataset_sample_at(d, i, &s, NULL) != STATUS_OK) {
            continue;
        }
        demand(s.image_span_bytes >= s.image_bytes && s.image_span_bytes <= room);
        demand(s.image_offset <= shard.size_bytes &&
               s.image_span_bytes <= shard.size_bytes - s.image_offset);
        uint8_t *span = malloc(s.image_span_bytes); /* exactly, so that a step outside is seen */
        demand(span != NULL);
        memcpy(span, shard.data + s.image_offset, s.image_span_bytes);
        enum status put = shard_image_compact(span, s.image_span_bytes, s.image_bytes, NULL);
        if (is_sound(&s)) {
            demand(put == STATUS_OK && hash64(span, s.image_bytes) == s.image_hash);
        }
        free(span);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    struct dataset *d = NULL;
    struct shard_index x;
    if (!shard.data) {
        make_sound();
    }
    uint8_t *index = malloc(sidecar.size_bytes);
    demand(index != NULL);
    memcpy(index, sidecar.data, sidecar.size_bytes);
    for (size_t i = 0; i + 3 <= size_bytes; i += 3) {
        size_t place = (size_t)data[i] | (size_t)data[i + 1] << 8;
        index[place % sidecar.size_bytes] ^= data[i + 2];
    }
    seal_index(index, sidecar.size_bytes);
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    put_file(fs, "made-000000.tar.zst", shard.data, shard.size_bytes);
    put_file(fs, "made-000000.cci", index, sidecar.size_bytes);
    if (shard_index_parse(&x, "fuzz", index, sidecar.size_bytes, NULL) == STATUS_OK &&
        write_manifest(fs, &x) && dataset_open(&d, "", fs, NULL) == STATUS_OK) {
        read_spans(d);
    }
    dataset_close(d);
    file_memory_destroy(fs);
    free(index);
    return 0;
}
