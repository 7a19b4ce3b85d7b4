#include "formats/shard/tar.h"

#include <string.h>

static void put_octal(uint8_t *field, int digits, uint64_t v) {
    for (int i = digits - 1; i >= 0; i--) {
        field[i] = (uint8_t)('0' + (v & 7u));
        v >>= 3;
    }
}

void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes) {
    enum { FIELDS_END = TAR_MAGIC_AT + TAR_MAGIC_BYTES };
    memset(out, 0, TAR_BLOCK_BYTES);
    size_t name_bytes = strlen(name);
    memcpy(out, name, name_bytes < TAR_NAME_BYTES ? name_bytes : TAR_NAME_BYTES);
    put_octal(out + TAR_MODE_AT, TAR_ID_BYTES - 1, 0644);
    put_octal(out + TAR_UID_AT, TAR_ID_BYTES - 1, 0);
    put_octal(out + TAR_GID_AT, TAR_ID_BYTES - 1, 0);
    put_octal(out + TAR_SIZE_AT, TAR_SIZE_BYTES - 1, size_bytes);
    put_octal(out + TAR_MTIME_AT, TAR_MTIME_BYTES - 1, 0);
    out[TAR_TYPE_AT] = '0';
    memcpy(out + TAR_MAGIC_AT, "ustar\00000", TAR_MAGIC_BYTES);
    uint64_t sum = TAR_SUM_BYTES * ' '; /* as tar_header_sum, without the bytes that are zero */
    for (size_t i = 0; i < name_bytes && i < TAR_NAME_BYTES; i++) {
        sum += out[i];
    }
    for (size_t i = TAR_NAME_BYTES; i < FIELDS_END; i++) {
        sum += out[i];
    }
    put_octal(out + TAR_SUM_AT, 6, sum);
    out[TAR_SUM_AT + 7] = ' ';
}

uint32_t tar_header_sum(const uint8_t header[TAR_BLOCK_BYTES]) {
    uint32_t sum = TAR_SUM_BYTES * ' ';
    for (size_t i = 0; i < TAR_BLOCK_BYTES; i++) {
        sum += header[i];
    }
    for (size_t i = TAR_SUM_AT; i < TAR_SUM_AT + TAR_SUM_BYTES; i++) {
        sum -= header[i];
    }
    return sum;
}

bool tar_read_octal(uint64_t *out, const uint8_t *field, size_t digits) {
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        if (field[i] < '0' || field[i] > '7') {
            return false;
        }
        *out = *out << 3 | (uint64_t)(field[i] - '0');
    }
    return true;
}
