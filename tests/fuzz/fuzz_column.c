/*
 * A column of any bytes, with the check of its info recomputed so that the parser after it is
 * reached. The file is refused, or each row is read or refused, and all captions of it are. If
 * everything is right, a copy has the same rows. The bytes are a list of columns too, which is
 * never right without a column, and mended.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/columns/columns.h"
#include "tests/support/file_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { TRAILER_BYTES = 32, MAX_BYTES = 1 << 16 };

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_rows(const struct column *c, struct column_workspace *s) {
    for (uint64_t i = 0; i < column_info(c)->rows; i++) {
        const uint8_t *row = NULL;
        size_t row_bytes = 0;
        struct column_caption caption = {0};
        const enum status status = column_get(c, s, column_row_id(c, i), &row, &row_bytes, NULL);
        demand(status == STATUS_OK || status == STATUS_CORRUPT || status == STATUS_NOTFOUND);
        while (status == STATUS_OK && column_info(c)->kind == COLUMN_CAPTIONS &&
               column_next_caption(&caption, row, row_bytes)) {
            const uint8_t *text = (const uint8_t *)caption.text;
            demand(text >= row && text + caption.size_bytes < row + row_bytes);
        }
        (void)column_has(c, i);
    }
}

static void check_copy(const struct column *c, struct column_workspace *s, struct file_system *fs) {
    static const char *const from[] = {"."};
    const struct column_copy how = {
        .from_fs = fs, .fs = fs, .from = from, .from_count = 1, .to = "./to"};
    struct column *copy = NULL;
    struct column_workspace *other = NULL;
    demand(fs->make_directory(fs->context, "./to", NULL) == STATUS_OK);
    demand(column_copy_all(&how, NULL) == STATUS_OK);
    demand(column_open(&copy, fs, "./to", "x", NULL, NULL) == STATUS_OK);
    demand(column_verify(copy, NULL) == STATUS_OK);
    demand(column_workspace_create(&other, NULL) == STATUS_OK);
    demand(column_info(copy)->rows == column_info(c)->rows);
    for (uint64_t i = 0; i < column_info(c)->rows; i++) {
        const uint8_t *a = NULL;
        const uint8_t *b = NULL;
        size_t a_bytes = 0;
        size_t b_bytes = 0;
        const uint64_t id = column_row_id(c, i);
        demand(column_get(c, s, id, &a, &a_bytes, NULL) == STATUS_OK);
        demand(column_get(copy, other, id, &b, &b_bytes, NULL) == STATUS_OK);
        demand(a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0);
    }
    column_workspace_destroy(other);
    column_close(copy);
}

static void check_list(const uint8_t *data, size_t size_bytes) {
    struct file_system *fs = NULL;
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(fs->make_directory(fs->context, "./columns", NULL) == STATUS_OK);
    demand(file_write_atomic(fs, "./" COLUMN_LIST_NAME, data, size_bytes, NULL) == STATUS_OK);
    const enum status s = column_list_mend(fs, ".", NULL, false, NULL);
    demand(s == STATUS_MISMATCH || s == STATUS_OK); /* OK: it has no line */
    demand(column_list_mend(fs, ".", NULL, true, NULL) == STATUS_OK);
    demand(column_list_mend(fs, ".", NULL, false, NULL) == STATUS_OK);
    file_memory_destroy(fs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static uint8_t bytes[MAX_BYTES];
    struct file_system *fs = NULL;
    struct column *c = NULL;
    struct column_workspace *s = NULL;
    if (size_bytes > MAX_BYTES) {
        return 0;
    }
    check_list(data, size_bytes);
    memcpy(bytes, data, size_bytes);
    if (size_bytes >= TRAILER_BYTES) {
        uint8_t *t = bytes + size_bytes - TRAILER_BYTES;
        const uint64_t info = load_u64(t);
        if (info <= size_bytes - TRAILER_BYTES) {
            store_u64(t + 8, hash64(t - info, (size_t)info));
        }
    }
    demand(file_memory_create(&fs, NULL) == STATUS_OK);
    demand(fs->make_directory(fs->context, "./columns", NULL) == STATUS_OK);
    demand(file_write_atomic(fs, "./columns/x.ccc", bytes, size_bytes, NULL) == STATUS_OK);
    demand(column_workspace_create(&s, NULL) == STATUS_OK);
    if (column_open(&c, fs, ".", "x", NULL, NULL) == STATUS_OK) {
        check_rows(c, s);
        if (column_verify(c, NULL) == STATUS_OK) {
            check_copy(c, s, fs);
        }
        column_close(c);
    }
    column_workspace_destroy(s);
    file_memory_destroy(fs);
    return 0;
}
