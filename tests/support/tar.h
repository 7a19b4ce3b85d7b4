/*
 * tar: the regular files of a plain ustar archive in memory, for tests and benchmarks that read
 * sets of images without a library.
 *
 * Threading : one owner. Ownership: borrows the archive's bytes.
 */
#ifndef TESTS_SUPPORT_TAR_H
#define TESTS_SUPPORT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct test_tar {
    const uint8_t *data;
    size_t size_bytes;
    size_t at;
};

struct test_tar_file {
    char name[101]; /* longer names (pax, GNU) are truncated */
    const uint8_t *data;
    size_t size_bytes;
};

void test_tar_init(struct test_tar *t, const void *data, size_t size_bytes);

/* False at the end, or where the archive is damaged. */
bool test_tar_next(struct test_tar *t, struct test_tar_file *out);

/* Whether `name` ends in `suffix`. */
bool test_tar_ends(const char *name, const char *suffix);

#endif
