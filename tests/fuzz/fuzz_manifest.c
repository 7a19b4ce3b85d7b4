/*
 * Random bytes as dataset.json: if they parse, writing them gives a text that parses to the same,
 * and writing that again gives the same bytes. What can be salvaged of other bytes is within
 * limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/manifest_internal.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

/* Writes `m` and reads the text back into `text`. */
static void write_text(struct file_system *fs, const struct manifest *m, struct byte_buffer *text) {
    demand(manifest_write(m, fs, "d", NULL) == STATUS_OK);
    demand(file_read_all(fs, text, "d/" MANIFEST_NAME, MANIFEST_MAX_BYTES, NULL) == STATUS_OK);
}

static void salvage(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    struct manifest_salvaged read;
    struct manifest m;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(fs->make_directory(fs->context, "d", NULL) == STATUS_OK);
    demand(file_write_atomic(fs, "d/" MANIFEST_NAME, data, size_bytes, NULL) == STATUS_OK);
    if (manifest_salvage(&m, &read, fs, "d", NULL) == STATUS_OK) {
        demand(read.shards || m.shard_count == 0);
        for (size_t i = 0; i < m.shard_count; i++) {
            demand(shard_name_is_valid(m.shards[i].name));
        }
        manifest_fini(&m);
    }
    file_memory_destroy(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct manifest m;
    if (manifest_parse(&m, "fuzz", data, size_bytes, NULL) != STATUS_OK) {
        salvage(data, size_bytes);
        return 0;
    }
    struct file_system *fs = NULL;
    struct byte_buffer first;
    struct byte_buffer second;
    struct manifest again;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(fs->make_directory(fs->context, "d", NULL) == STATUS_OK);
    write_text(fs, &m, &first);
    demand(manifest_parse(&again, "fuzz", first.data, first.size_bytes, NULL) == STATUS_OK);
    demand(again.samples == m.samples && again.texts == m.texts && again.id_space == m.id_space);
    demand(again.fingerprint == m.fingerprint && again.shard_count == m.shard_count);
    write_text(fs, &again, &second);
    demand(first.size_bytes == second.size_bytes &&
           memcmp(first.data, second.data, first.size_bytes) == 0);
    byte_buffer_fini(&first);
    byte_buffer_fini(&second);
    manifest_fini(&again);
    manifest_fini(&m);
    file_memory_destroy(fs);
    return 0;
}
