/*
 * npy: "\x93NUMPY", version, u16 length of a Python literal, the literal, padding so that the data
 * begins at a multiple of 64, the data.
 */
#include "tools/cli/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX_BYTES = 10, ALIGN_BYTES = 64, MAX_HEADER_BYTES = 256 };

static size_t
make_header(char out[MAX_HEADER_BYTES], const char *dtype, uint64_t rows, uint64_t columns) {
    char shape[64];
    if (columns == 0) {
        snprintf(shape, sizeof shape, "(%" PRIu64 ",)", rows);
    } else {
        snprintf(shape, sizeof shape, "(%" PRIu64 ", %" PRIu64 ")", rows, columns);
    }
    char text[MAX_HEADER_BYTES - PREFIX_BYTES];
    const int length = snprintf(
        text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", dtype, shape);
    const size_t total =
        (PREFIX_BYTES + (size_t)length + 1 + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    const size_t padded = total - PREFIX_BYTES;
    memset(out, ' ', total);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(padded & 0xFF);
    out[9] = (char)(padded >> 8);
    memcpy(out + PREFIX_BYTES, text, (size_t)length);
    out[total - 1] = '\n';
    return total;
}

enum status npy_write(const char *path,
                      const char *dtype,
                      const void *data,
                      size_t item_bytes,
                      uint64_t rows,
                      uint64_t columns,
                      struct error *err) {
    REQUIRE(path != NULL && dtype != NULL && strlen(dtype) < 8);
    char header[MAX_HEADER_BYTES];
    struct file_draft d;
    const size_t header_bytes = make_header(header, dtype, rows, columns);
    const size_t size_bytes = item_bytes * (size_t)rows * (size_t)(columns > 0 ? columns : 1);
    TRY(file_make_parents(file_posix(), path, err));
    TRY(file_draft_open(&d, file_posix(), path, err));
    enum status s = d.fs->write(d.file, header, header_bytes, err);
    THEN(s, d.fs->write(d.file, data, size_bytes, err));
    return file_draft_close(&d, s, err);
}
