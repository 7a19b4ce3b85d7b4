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
static bool
parse_header(const char *text, char found[NPY_DTYPE_BYTES], uint64_t *rows, uint64_t *columns) {
    static const char *const dtypes[] = {"<f4", "<f8", "<i8", "<u8", "<i4", "<u4",
                                         "<i2", "<u2", "|i1", "|u1", "|b1"};
    bool known = false;
    char order[8] = "";
    *columns = 0;
    const int count = sscanf(text,
                             " { 'descr' : '%3[^']' , 'fortran_order' : %5[a-zA-Z] , 'shape' : "
                             "( %" SCNu64 " , %" SCNu64 " ) ",
                             found, order, rows, columns);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        known = known || (count >= 1 && strcmp(found, dtypes[i]) == 0);
    }
    return count >= 3 && known && strcmp(order, "False") == 0 && (count == 3 || *columns > 0) &&
           *columns <= NPY_MAX_BYTES && *rows > 0;
}

enum status npy_parse(const uint8_t **data,
                      const char *name,
                      const void *file,
                      size_t size_bytes,
                      char dtype[NPY_DTYPE_BYTES],
                      uint64_t *rows,
                      uint64_t *columns,
                      struct error *err) {
    REQUIRE(data && name && (file || size_bytes == 0));
    char text[MAX_HEADER_BYTES + 1];
    const uint8_t *p = file;
    const size_t length = size_bytes >= PREFIX_BYTES ? p[8] + 256u * p[9] : 0;
    FAIL_IF(length == 0 || memcmp(p, "\x93NUMPY\x01\x00", 8) != 0 || length >= sizeof text ||
                PREFIX_BYTES + length > size_bytes,
            err, STATUS_CORRUPT, "%s: not a .npy file of version 1.0", name);
    memcpy(text, p + PREFIX_BYTES, length);
    text[length] = '\0';
    FAIL_IF(
        !parse_header(text, dtype, rows, columns), err, STATUS_CORRUPT,
        "%s: not an array of one or two dimensions in row-major order of f4, f8, integers or bool, "
        "little-endian; in NumPy: numpy.save(FILE, numpy.float64(x))",
        name);
    const uint64_t item = (uint64_t)(dtype[2] - '0');
    const uint64_t width = *columns > 0 ? *columns : 1;
    const uint64_t left = size_bytes - PREFIX_BYTES - length;
    FAIL_IF(left / item / width != *rows || left % (item * width) != 0, err, STATUS_CORRUPT,
            "%s: %" PRIu64 " bytes of data are not its shape", name, left);
    *data = p + PREFIX_BYTES + length;
    return STATUS_OK;
}

/* Item `i` as a number. */
static double number_at(const uint8_t *items, const char *dtype, uint64_t i) {
    const size_t size_bytes = (size_t)(dtype[2] - '0');
    uint64_t bits = 0;
    for (size_t k = 0; k < size_bytes; k++) {
        bits |= (uint64_t)items[i * size_bytes + k] << 8 * k;
    }
    const uint32_t half = (uint32_t)bits;
    float single;
    double value;
    memcpy(&single, &half, sizeof single);
    memcpy(&value, &bits, sizeof value);
    const uint64_t sign = UINT64_C(1) << (8 * size_bytes - 1);
    return dtype[1] == 'f'   ? (size_bytes == 4 ? (double)single : value)
           : dtype[1] == 'i' ? (double)(int64_t)((bits ^ sign) - sign)
                             : (double)bits;
}

enum status
npy_read(const char *path, double **out, uint64_t *rows, uint64_t *columns, struct error *err) {
    REQUIRE(path != NULL);
    struct byte_buffer file;
    char dtype[NPY_DTYPE_BYTES];
    const uint8_t *data = NULL;
    *out = NULL;
    TRY(file_read_all(file_posix(), &file, path, NPY_MAX_BYTES, err));
    enum status s = npy_parse(&data, path, file.data, file.size_bytes, dtype, rows, columns, err);
    if (s == STATUS_OK) {
        const uint64_t count = *rows * (*columns > 0 ? *columns : 1); /* as many as bytes at most */
        *out = malloc((size_t)count * sizeof **out);
        if (*out == NULL) {
            s = error_set(err, STATUS_NOMEM, "%s: no memory for %" PRIu64 " numbers", path, count);
        }
        for (uint64_t i = 0; *out != NULL && i < count; i++) {
            (*out)[i] = number_at(data, dtype, i);
        }
    }
    byte_buffer_fini(&file);
    return s;
}
