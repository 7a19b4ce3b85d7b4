#include "formats/shard/tar.h"

#include <string.h>

static void put_octal(uint8_t *field, int digits, uint64_t v) {
    for (int i = digits - 1; i >= 0; i--) {
        field[i] = (uint8_t)('0' + (v & 7u));
        v >>= 3;
    }
}

enum { TAR_FIELDS_END = 265 }; /* of the magic and version */

void tar_header(uint8_t out[TAR_BLOCK_BYTES], const char *name, uint64_t size_bytes) {
    memset(out, 0, TAR_BLOCK_BYTES);
    size_t name_bytes = strlen(name);
    memcpy(out, name, name_bytes < TAR_NAME_BYTES ? name_bytes : TAR_NAME_BYTES);
    put_octal(out + 100, 7, 0644);
    put_octal(out + 108, 7, 0); /* uid */
    put_octal(out + 116, 7, 0); /* gid */
    put_octal(out + 124, 11, size_bytes);
    put_octal(out + 136, 11, 0); /* mtime */
    out[156] = '0';              /* a plain file */
    memcpy(out + 257, "ustar\00000", 8);
    uint64_t sum = 8 * ' '; /* the rest of the bytes are zero */
    for (size_t i = 0; i < name_bytes && i < TAR_NAME_BYTES; i++) {
        sum += out[i];
    }
    for (size_t i = TAR_NAME_BYTES; i < TAR_FIELDS_END; i++) {
        sum += out[i];
    }
    put_octal(out + 148, 6, sum);
    out[155] = ' ';
}
