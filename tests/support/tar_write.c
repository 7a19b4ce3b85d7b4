/*
 * tar_write: 512-byte headers by hand (POSIX ustar), bodies padded with zeros.
 */
#include "tests/support/tar_write.h"

#include <string.h>

enum { RECORD_BYTES = 512 };

bool tar_write_file(FILE *out, const char *name, const void *data, size_t size_bytes) {
    static const char zeros[RECORD_BYTES];
    char header[RECORD_BYTES] = {0};
    (void)snprintf(header, 100, "%s", name);
    memcpy(header + 100,
           "0000644\0"
           "0000000\0"
           "0000000\0",
           24);
    (void)snprintf(header + 124, 12, "%011llo", (unsigned long long)size_bytes);
    (void)snprintf(header + 136, 12, "%011o", 0u);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    unsigned sum = 0;
    for (int i = 0; i < RECORD_BYTES; i++) {
        sum += (unsigned char)header[i];
    }
    (void)snprintf(header + 148, 8, "%06o", sum);
    const size_t padding = (RECORD_BYTES - size_bytes % RECORD_BYTES) % RECORD_BYTES;
    return fwrite(header, 1, RECORD_BYTES, out) == RECORD_BYTES &&
           (size_bytes == 0 || fwrite(data, 1, size_bytes, out) == size_bytes) &&
           fwrite(zeros, 1, padding, out) == padding;
}

bool tar_write_end(FILE *out) {
    static const char zeros[2 * RECORD_BYTES];
    return fwrite(zeros, 1, sizeof zeros, out) == sizeof zeros;
}
