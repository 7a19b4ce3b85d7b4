/*
 * A walk over 512-byte records; everything that is no regular file is stepped over.
 */
#include "tests/support/tar.h"

#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = 512 };

void test_tar_init(struct test_tar *t, const void *data, size_t size_bytes) {
    *t = (struct test_tar){.data = data, .size_bytes = size_bytes};
}

bool test_tar_next(struct test_tar *t, struct test_tar_file *out) {
    while (t->size_bytes - t->at >= RECORD_BYTES) {
        const uint8_t *header = t->data + t->at;
        if (header[0] == 0) {
            return false;
        }
        char octal[13] = {0};
        memcpy(octal, header + 124, 12);
        size_t size = strtoull(octal, NULL, 8);
        size_t body = t->at + RECORD_BYTES;
        if (size > t->size_bytes - body) {
            return false;
        }
        size_t room = (size + RECORD_BYTES - 1) / RECORD_BYTES * RECORD_BYTES;
        t->at = room > t->size_bytes - body ? t->size_bytes : body + room;
        if (header[156] == '0' || header[156] == 0) {
            memcpy(out->name, header, 100);
            out->name[100] = 0;
            out->data = t->data + body;
            out->size_bytes = size;
            return true;
        }
    }
    return false;
}

bool test_tar_ends(const char *name, const char *suffix) {
    size_t n = strlen(name);
    size_t m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}
