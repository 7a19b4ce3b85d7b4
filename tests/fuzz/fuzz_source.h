/*
 * fuzz_source: any bytes as a source of one kind. Every row that comes out keeps what pack/source.h
 * promises, and reading once more gives the same rows.
 */
#ifndef TESTS_FUZZ_FUZZ_SOURCE_H
#define TESTS_FUZZ_FUZZ_SOURCE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/base/hash.h"
#include "formats/base/utf8.h"
#include "pack/source.h"

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_row(const struct source_row *row, uint64_t number) {
    size_t texts_bytes = 0;
    demand(row->row == number && strlen(row->key) <= SOURCE_MAX_KEY_BYTES);
    demand(row->caption_count <= SOURCE_MAX_CAPTIONS);
    for (uint32_t i = 0; i < row->caption_count; i++) {
        const char *text = (const char *)row->text.data + texts_bytes;
        size_t size_bytes = row->caption_size_bytes[i];
        demand(size_bytes > 0 && utf8_valid_prefix(text, size_bytes) == size_bytes);
        texts_bytes += size_bytes;
    }
    demand(texts_bytes == row->text.size_bytes);
    demand(row->reason != REASON_NONE || row->caption_count > 0 || row->captions_optional ||
           row->caption_member[0] != '\0');
    demand(row->reason >= REASON_NONE && row->reason < REASON_COUNT);
    demand(row->json_problem[0] == '\0' || row->json.size_bytes == 0);
}

/* A number that stands for all rows and the way they end. */
static uint64_t read_rows(const char *path, enum source_kind kind) {
    struct source_options how = {.kind = kind, .images = "pictures"};
    struct source *source = NULL;
    struct source_row row;
    uint64_t sum = 0;
    enum status s = source_open(&source, path, &how, NULL);
    demand((s == STATUS_OK) == (source != NULL));
    source_row_init(&row);
    while (s == STATUS_OK) {
        s = source_next(source, &row, NULL);
        if (s == STATUS_OK) {
            uint64_t at, size;
            check_row(&row, source_rows_read(source) - 1);
            source_position(source, &at, &size);
            demand(at <= size);
            demand(kind == SOURCE_WDS ? row.path[0] == '\0' : row.image.size_bytes == 0);
            demand(source_row_load(&row, NULL) == STATUS_OK);
            check_row(&row, source_rows_read(source) - 1);
            sum = 31 * sum + hash64(row.key, strlen(row.key)) + (uint64_t)row.reason;
            sum = 31 * sum + hash64(row.text.data, row.text.size_bytes);
            sum = 31 * sum + hash64(row.image.data, row.image.size_bytes);
        }
    }
    demand(s != STATUS_INVALID && s != STATUS_INTERRUPTED);
    source_row_fini(&row);
    source_close(source);
    return 31 * sum + (uint64_t)(uint32_t)s;
}

static void fuzz_source(const uint8_t *data, size_t size_bytes, enum source_kind kind) {
    char path[32];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    demand(fd >= 0 && write(fd, data, size_bytes) == (ssize_t)size_bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    enum source_kind found;
    (void)source_kind_of(&found, path, NULL);
    demand(read_rows(path, kind) == read_rows(path, kind));
    close(fd);
}

#endif
