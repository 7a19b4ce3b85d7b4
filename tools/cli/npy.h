/*
 * npy: arrays as NumPy's .npy files, version 1.0, little-endian, row-major.
 *
 * Threading : pure functions.
 * Ownership : everything is borrowed for the call.
 */
#ifndef TOOLS_CLI_NPY_H
#define TOOLS_CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/file_io.h"

/* Writes `path` atomically, and makes its missing folders. dtype: "<f4", "<u8" or "<i4"; columns 0:
 * an array of one dimension. Returns OK, LIMIT (path is too long) or a failure of writing. */
enum status npy_write(const char *path,
                      const char *dtype,
                      const void *data,
                      size_t item_bytes,
                      uint64_t rows,
                      uint64_t columns,
                      struct error *err);

#endif
