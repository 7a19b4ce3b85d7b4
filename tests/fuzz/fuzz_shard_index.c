/*
 * A shard whose index was changed by somebody who can also make hashes: each three bytes of the
 * input change one byte of the index (u16 place, u8 xor), then all hashes are made right again, so
 * that the parsers behind the hashes are reached. Reader, check and dataset answer or refuse; where
 * the check finds no fault, every sample reads.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_memory.h"
#include "formats/dataset.h"
#include "formats/shard_internal.h"
#include "formats/shard_reader.h"
#include "tests/support/make_shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { SAMPLES = 70 }; /* two chunks of captions */

static struct byte_buffer shard, sidecar; /* sound ones, made once */

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
    how.image_bytes = 40;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(make_dataset(fs, "d", &how, NULL) == STATUS_OK);
    demand(file_read_all(fs, &shard, "d/made-000000.tar.zst", 1 << 20, NULL) == STATUS_OK);
    demand(file_read_all(fs, &sidecar, "d/made-000000.cci", 1 << 20, NULL) == STATUS_OK);
    file_memory_destroy(fs);
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

static void read_shard(const struct file_system *fs) {
    struct shard_verify how = {.expected = NULL};
    struct shard_reader *r = NULL;
    enum status verified = shard_verify(fs, "made-000000.tar.zst", &how, NULL);
    if (shard_reader_open(&r, fs, "made-000000.tar.zst", NULL) != STATUS_OK) {
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
    demand(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "fuzz", NULL) == STATUS_OK);
    demand(manifest_add_shard(&m, &s, NULL) == STATUS_OK);
    enum status written = manifest_seal(&m, 0, NULL);
    if (written == STATUS_OK) {
        written = manifest_write(&m, fs, "", NULL);
    }
    manifest_fini(&m);
    return written == STATUS_OK;
}

static void read_dataset(const struct file_system *fs) {
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
        uint64_t position = 0;
        if (dataset_sample_at(d, i, &s, NULL) != STATUS_OK) {
            continue;
        }
        demand(s.image_bytes <= dataset_max_image_bytes(d));
        demand(s.image_offset + s.image_span_bytes <= shard.size_bytes);
        (void)dataset_find(d, s.sample_id, &position, NULL);
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
    if (!shard.data) {
        make_sound();
    }
    uint8_t *copy = malloc(shard.size_bytes);
    demand(copy != NULL);
    memcpy(copy, shard.data, shard.size_bytes);
    size_t tail_bytes =
        SKIPPABLE_HEADER_BYTES + (SAMPLES + 2) * (size_t)SEEK_ENTRY_BYTES + SEEK_FOOTER_BYTES;
    uint8_t *index = copy + shard.size_bytes - tail_bytes - sidecar.size_bytes;
    for (size_t i = 0; i + 3 <= size_bytes; i += 3) {
        size_t place = (size_t)data[i] | (size_t)data[i + 1] << 8;
        index[place % sidecar.size_bytes] ^= data[i + 2];
    }
    seal_index(index, sidecar.size_bytes);
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    put_file(fs, "made-000000.tar.zst", copy, shard.size_bytes);
    put_file(fs, "made-000000.cci", index, sidecar.size_bytes);
    read_shard(fs);
    if (shard_index_parse(&x, "fuzz", index, sidecar.size_bytes, NULL) == STATUS_OK &&
        write_manifest(fs, &x)) {
        read_dataset(fs);
    }
    file_memory_destroy(fs);
    free(copy);
    return 0;
}
