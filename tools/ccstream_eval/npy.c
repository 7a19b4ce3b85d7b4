/*
 * npy: "\x93NUMPY", version, u16 length of a Python literal that is padded so that the data begins
 * at a multiple of 64, the data.
 */
#include "tools/ccstream_eval/npy.h"

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

static enum status write_all(const struct file_system *fs,
                             const char *temporary,
                             const char *header,
                             size_t header_bytes,
                             const void *data,
                             size_t size_bytes,
                             struct error *err) {
    struct file *f = NULL;
    TRY(fs->open(fs->context, &f, temporary, FILE_REPLACE, err));
    enum status s = fs->write(f, header, header_bytes, err);
    if (s == STATUS_OK) {
        s = fs->write(f, data, size_bytes, err);
    }
    if (s == STATUS_OK) {
        s = fs->sync(f, err);
    }
    fs->close(f);
    return s;
}

enum status npy_write(const struct file_system *fs,
                      const char *path,
                      const char *dtype,
                      const void *data,
                      size_t item_bytes,
                      uint64_t rows,
                      uint64_t columns,
                      struct error *err) {
    REQUIRE(fs != NULL && path != NULL && dtype != NULL && strlen(dtype) < 8);
    char header[MAX_HEADER_BYTES];
    char temporary[PATH_MAX_BYTES];
    char folder[PATH_MAX_BYTES];
    const size_t header_bytes = make_header(header, dtype, rows, columns);
    const size_t size_bytes = item_bytes * (size_t)rows * (size_t)(columns > 0 ? columns : 1);
    if (strlen(path) + sizeof ".tmp" > sizeof temporary) {
        return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", path);
    }
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    enum status s = write_all(fs, temporary, header, header_bytes, data, size_bytes, err);
    if (s == STATUS_OK) {
        s = fs->rename(fs->context, temporary, path, err);
    }
    if (s != STATUS_OK) {
        fs->remove(fs->context, temporary, NULL);
        return s;
    }
    TRY(path_directory(folder, sizeof folder, path, err));
    return fs->sync_directory(fs->context, folder, err);
}
