/*
 * tar_write: plain ustar archives for tests that make their own input.
 *
 * Both return false when a write fails. Equal calls give equal bytes.
 */
#ifndef TESTS_SUPPORT_TAR_WRITE_H
#define TESTS_SUPPORT_TAR_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* One regular file; name of at most 99 bytes. */
bool tar_write_file(FILE *out, const char *name, const void *data, size_t size_bytes);

/* The two zero records that end an archive. */
bool tar_write_end(FILE *out);

#endif
