/*
 * The table of well-formed byte sequences (Unicode standard, table 3-7), written as code: the
 * second byte's range depends on the first, the later ones are plain continuation bytes.
 */
#include "formats/base/utf8.h"

#include <stdint.h>

static bool continues(uint8_t b) {
    return (b & 0xC0U) == 0x80U;
}

size_t utf8_character(const char *text, size_t size_bytes) {
    const uint8_t *p = (const uint8_t *)text;
    if (size_bytes == 0) {
        return 0;
    }
    uint8_t a = p[0];
    if (a < 0x80) {
        return 1;
    }
    if (a < 0xC2 || a > 0xF4) {
        return 0;
    }
    if (a < 0xE0) {
        return size_bytes >= 2 && continues(p[1]) ? 2 : 0;
    }
    uint8_t low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
    uint8_t high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
    size_t length = a < 0xF0 ? 3 : 4;
    if (size_bytes < length || p[1] < low || p[1] > high || !continues(p[2]) ||
        (length == 4 && !continues(p[3]))) {
        return 0;
    }
    return length;
}

size_t utf8_valid_prefix(const char *text, size_t size_bytes) {
    size_t at = 0;
    while (at < size_bytes) {
        size_t n = utf8_character(text + at, size_bytes - at);
        if (n == 0) {
            break;
        }
        at += n;
    }
    return at;
}
