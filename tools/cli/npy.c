/*
 * npy: "\x93NUMPY", version, u16 length of a Python literal, the literal, padding so that the data
 * begins at a multiple of 64, the data.
 */
#include "tools/cli/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The header's literal, as NumPy writes it too: keys in alphabetical order. */
static bool parse_header(const char *text, const char *dtype, uint64_t *rows, uint64_t *columns) {
    char found[8] = "";
    char order[8] = "";
    *columns = 0;
    const int count = sscanf(text,
                             " { 'descr' : '%7[^']' , 'fortran_order' : %5[a-zA-Z] , 'shape' : "
                             "( %" SCNu64 " , %" SCNu64 " ) ",
                             found, order, rows, columns);
    return count >= 3 && strcmp(found, dtype) == 0 && strcmp(order, "False") == 0 &&
           (count == 3 || *columns > 0) && *columns <= NPY_MAX_BYTES && *rows > 0;
}

enum status npy_parse(const uint8_t **data,
                      const char *name,
                      const void *file,
                      size_t size_bytes,
                      const char *dtype,
                      uint64_t *rows,
                      uint64_t *columns,
                      struct error *err) {
    REQUIRE(data && name && (file || size_bytes == 0) && strlen(dtype) == 3);
    char text[MAX_HEADER_BYTES + 1];
    const uint8_t *p = file;
    const size_t length = size_bytes >= PREFIX_BYTES ? p[8] + 256u * p[9] : 0;
    FAIL_IF(length == 0 || memcmp(p, "\x93NUMPY\x01\x00", 8) != 0 || length >= sizeof text ||
                PREFIX_BYTES + length > size_bytes,
            err, STATUS_CORRUPT, "%s: not a .npy file of version 1.0", name);
    memcpy(text, p + PREFIX_BYTES, length);
    text[length] = '\0';
    FAIL_IF(!parse_header(text, dtype, rows, columns), err, STATUS_CORRUPT,
            "%s: not an array of one or two dimensions of type %s in row-major order", name, dtype);
    const uint64_t item = (uint64_t)(dtype[2] - '0');
    const uint64_t width = *columns > 0 ? *columns : 1;
    const uint64_t left = size_bytes - PREFIX_BYTES - length;
    FAIL_IF(left / item / width != *rows || left % (item * width) != 0, err, STATUS_CORRUPT,
            "%s: %" PRIu64 " bytes of data are not its shape", name, left);
    *data = p + PREFIX_BYTES + length;
    return STATUS_OK;
}

enum status npy_read(const char *path,
                     const char *dtype,
                     void **out,
                     uint64_t *rows,
                     uint64_t *columns,
                     struct error *err) {
    REQUIRE(path != NULL && dtype != NULL && strlen(dtype) == 3);
    struct byte_buffer file;
    const uint8_t *data = NULL;
    *out = NULL;
    TRY(file_read_all(file_posix(), &file, path, NPY_MAX_BYTES, err));
    enum status s = npy_parse(&data, path, file.data, file.size_bytes, dtype, rows, columns, err);
    if (s == STATUS_OK) {
        const size_t size_bytes = file.size_bytes - (size_t)(data - file.data);
        *out = malloc(size_bytes);
        if (*out == NULL) {
            s = error_set(err, STATUS_NOMEM, "%s: no memory for %zu bytes", path, size_bytes);
        } else {
            memcpy(*out, data, size_bytes);
        }
    }
    byte_buffer_fini(&file);
    return s;
}
