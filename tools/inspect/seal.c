#include "tools/inspect/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard.h"
#include "formats/tokenizer/token_cache.h"
#include "tools/cli/cli.h"

enum { PIECE_BYTES = 1 << 20, NAME_BYTES = SHARD_MAX_NAME_BYTES + 8 };

/* Appends the line of one file. NOTFOUND: no such file. */
static enum status
add_file(struct byte_buffer *lines, const char *dataset, const char *name, struct error *err) {
    const struct file_system *fs = file_system_of(dataset);
    char path[PATH_MAX_BYTES];
    char hex[SHA256_HEX_BYTES];
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    struct file *f = NULL;
    size_t got = 0;
    sha256_init(&hash);
    TRY(path_join(path, sizeof path, dataset, name, err));
    uint8_t *piece = malloc(PIECE_BYTES);
    TRY_MEMORY(piece, err, "out of memory for the hash of %s", path);
    enum status s = fs->open(fs->context, &f, path, FILE_READ, err);
    do {
        THEN(s, fs->pread(f, piece, &got, PIECE_BYTES, hash.size_bytes, err));
        sha256_update(&hash, piece, s == STATUS_OK ? got : 0);
        if (s == STATUS_OK && cli_interrupted()) {
            s = error_set(err, STATUS_INTERRUPTED, "%s: not read to the end", dataset);
        }
    } while (s == STATUS_OK && got == PIECE_BYTES);
    fs->close(f);
    free(piece);
    TRY(s);
    sha256_final(&hash, digest);
    sha256_hex(hex, digest);
    TRY(byte_buffer_append(lines, hex, sizeof hex - 1, err));
    TRY(byte_buffer_append(lines, "  ", 2, err));
    TRY(byte_buffer_append(lines, name, strlen(name), err));
    return byte_buffer_append(lines, "\n", 1, err);
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

enum status seal_make(struct byte_buffer *lines,
                      char root[SHA256_HEX_BYTES],
                      const char *dataset,
                      struct error *err) {
    struct manifest m;
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    struct column_names columns;
    byte_buffer_init(lines, SEAL_MAX_BYTES);
    TRY(column_names_read(&columns, file_system_of(dataset), dataset, err));
    TRY(manifest_read(&m, file_system_of(dataset), dataset, err));
    size_t count = 0;
    char(*names)[NAME_BYTES] = calloc(2 * m.shard_count + 4 + columns.count, sizeof *names);
    enum status s = names ? STATUS_OK : error_set(err, STATUS_NOMEM, "%s: out of memory", dataset);
    for (size_t i = 0; s == STATUS_OK && i < m.shard_count; i++) {
        strcpy(names[count++], m.shards[i].name);
        s = shard_index_name(names[count++], NAME_BYTES, m.shards[i].name, err);
    }
    for (size_t i = 0; s == STATUS_OK && i < columns.count; i++) {
        (void)snprintf(names[count++], NAME_BYTES, COLUMNS_FOLDER "/%s.ccc", columns.items[i]);
    }
    if (s == STATUS_OK) {
        strcpy(names[count++], MANIFEST_NAME);
        strcpy(names[count++], DATASET_TOKENIZER_NAME);
        strcpy(names[count++], TOKEN_CACHE_NAME);
        strcpy(names[count++], COLUMN_LIST_NAME);
        qsort(names, count, sizeof *names, by_name);
    }
    for (size_t i = 0; s == STATUS_OK && i < count; i++) {
        struct error why = {0};
        s = add_file(lines, dataset, names[i], &why);
        if (s == STATUS_NOTFOUND) { /* verify reports missing files; others are optional */
            s = STATUS_OK;
        } else if (s != STATUS_OK) {
            *err = why;
        }
    }
    free(names);
    manifest_fini(&m);
    TRY(s);
    sha256_init(&hash);
    sha256_update(&hash, lines->data, lines->size_bytes);
    sha256_final(&hash, digest);
    sha256_hex(root, digest);
    return STATUS_OK;
}
