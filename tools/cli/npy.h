/*
 * npy: arrays as NumPy's .npy files, version 1.0, little-endian, row-major.
 *
 * Threading : pure functions.
 * Ownership : what is read belongs to the caller; everything else is borrowed for the call.
 * Untrusted : what is read.
 */
#ifndef TOOLS_CLI_NPY_H
#define TOOLS_CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"

/* Writes PATH atomically. dtype: "<f4", "<u8" or "<i4"; columns 0: an array of one dimension.
 * Returns OK, IO, NOMEM or LIMIT. */
enum status npy_write(const char *path,
                      const char *dtype,
                      const void *data,
                      size_t item_bytes,
                      uint64_t rows,
                      uint64_t columns,
                      struct error *err);

enum { NPY_MAX_BYTES = 1 << 30, NPY_DTYPE_BYTES = 4 };

/* Reads an array of one dimension (*columns 0) or two, of at least one item, whose items are floats
 * of 4 or 8 bytes, integers or bools. *out is the caller's, to free. Returns OK, NOTFOUND, IO,
 * NOMEM, LIMIT (more than NPY_MAX_BYTES) or CORRUPT (another dtype, order or version; a size that
 * is not that of the shape). */
enum status
npy_read(const char *path, double **out, uint64_t *rows, uint64_t *columns, struct error *err);

/* The same of a file in memory, whose items begin at *data; dtype: "<f4". `name` is for messages.
 */
enum status npy_parse(const uint8_t **data,
                      const char *name,
                      const void *file,
                      size_t size_bytes,
                      char dtype[NPY_DTYPE_BYTES],
                      uint64_t *rows,
                      uint64_t *columns,
                      struct error *err);

#endif
