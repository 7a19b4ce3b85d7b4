/*
 * fuzz_source: any bytes as a source of one kind.
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
#include "pack/source/source.h"

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

/* A number that stands for a row. */
static uint64_t sum_of(const struct source_row *row) {
    uint64_t sum = hash64(row->key, strlen(row->key)) + (uint64_t)row->reason;
    sum = 31 * sum + hash64(row->text.data, row->text.size_bytes);
    sum = 31 * sum + hash64(row->image.data, row->image.size_bytes);
    sum = 31 * sum + hash64(row->json.data, row->json.size_bytes);
    sum = 31 * sum + row->offset_bytes + 3 * row->end_bytes + 5 * row->image_offset_bytes;
    return 31 * sum + hash64(row->path, strlen(row->path)) + (uint64_t)(row->class_index + 1);
}

/* The row that has just been read: what source_next gave, and what source_row_load makes of it.
 * Files that the input names are left alone. */
static uint64_t check_next(struct source *source, struct source_row *row) {
    uint64_t number = source_rows_read(source) - 1;
    uint64_t at, size;
    check_row(row, number);
    source_position(source, &at, &size);
    demand(at <= size);
    demand(row->path[0] == '\0' || row->image.size_bytes == 0);
    demand(row->class_index < 0 || source_class_name(source, (size_t)row->class_index) != NULL);
    if (row->path[0] == '\0') {
        demand(source_row_load(row, NULL) == STATUS_OK);
        check_row(row, number);
    }
    return sum_of(row);
}

enum { FUZZ_MAX_ROWS = 1024 }; /* those that are compared */

/* Reads all rows, or only the even ones and skips the others; returns the last status. sums[i]
 * belongs to row i and is 0 if it was skipped; rows beyond the array have none. */
static enum status read_rows(const char *path,
                             const struct source_options *how,
                             bool skip,
                             uint64_t sums[FUZZ_MAX_ROWS],
                             uint64_t *count) {
    struct source *source = NULL;
    struct source_row row;
    enum status s = source_open(&source, path, how, NULL);
    demand((s == STATUS_OK) == (source != NULL));
    source_row_init(&row);
    *count = 0;
    while (s == STATUS_OK) {
        uint64_t skipped = 0;
        bool pass = skip && *count % 2 == 1;
        s = pass ? source_skip(source, 1, &skipped, NULL) : source_next(source, &row, NULL);
        if (s == STATUS_OK) {
            uint64_t sum = pass ? 0 : check_next(source, &row);
            demand(!pass || skipped == 1);
            if (*count < FUZZ_MAX_ROWS) {
                sums[*count] = sum;
            }
            ++*count;
            demand(source_rows_read(source) == *count);
        }
    }
    demand(s != STATUS_INVALID && s != STATUS_INTERRUPTED && s != STATUS_USAGE);
    source_row_fini(&row);
    source_close(source);
    return s;
}

static void ignore_bytes(void *cookie, const void *data, size_t size_bytes) {
    (void)cookie;
    (void)data;
    (void)size_bytes;
}

/* With a `bytes` callback libarchive reads plain tars; without one source_tar does. Both must give
 * the same rows. */
static void check_readers(const char *path,
                          const struct source_options *how,
                          enum status s,
                          const uint64_t all[FUZZ_MAX_ROWS],
                          uint64_t count) {
    static uint64_t again[FUZZ_MAX_ROWS];
    uint64_t count_again = 0;
    struct source_options bytes = *how;
    bytes.bytes = ignore_bytes;
    demand(read_rows(path, &bytes, false, again, &count_again) == s && count_again == count);
    for (size_t i = 0; i < count && i < FUZZ_MAX_ROWS; i++) {
        demand(all[i] == again[i]);
    }
}

/* Random bytes as a source: rows are as pack/source/source.h promises, the same in a second run,
 * and the same when every other one is skipped. A damaged source may fail later then, because
 * skipped rows are not checked. */
static void fuzz_source(const uint8_t *data, size_t size_bytes, const struct source_options *how) {
    static uint64_t all[FUZZ_MAX_ROWS], again[FUZZ_MAX_ROWS];
    uint64_t count, count_again;
    char path[32];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    demand(fd >= 0 && write(fd, data, size_bytes) == (ssize_t)size_bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    enum source_kind found;
    (void)source_kind_of(&found, path, NULL);
    enum status s = read_rows(path, how, false, all, &count);
    size_t kept = count < FUZZ_MAX_ROWS ? (size_t)count : FUZZ_MAX_ROWS;
    enum status passed = read_rows(path, how, true, again, &count_again);
    demand(s == STATUS_END ? passed == s && count_again == count : count_again >= count);
    for (size_t i = 0; i < kept; i += 2) {
        demand(all[i] == again[i]);
    }
    if (how->kind == SOURCE_WDS || how->kind == SOURCE_FOLDERS) {
        check_readers(path, how, s, all, count);
    }
    close(fd);
}

#endif
