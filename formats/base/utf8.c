/*
 * The table of well-formed byte sequences (Unicode standard, table 3-7), written as code: the
 * second byte's range depends on the first, the later ones are plain continuation bytes.
 */
#include "formats/base/utf8.h"

#include <string.h>

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

uint32_t utf8_decode(const char *text, size_t size_bytes, size_t *character_bytes) {
    const uint8_t *p = (const uint8_t *)text;
    size_t n = utf8_character(text, size_bytes);
    *character_bytes = n == 0 ? 1 : n;
    switch (n) {
    case 1:
        return p[0];
    case 2:
        return (p[0] & 0x1FU) << 6 | (p[1] & 0x3FU);
    case 3:
        return (p[0] & 0x0FU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU);
    case 4:
        return (p[0] & 0x07U) << 18 | (p[1] & 0x3FU) << 12 | (p[2] & 0x3FU) << 6 | (p[3] & 0x3FU);
    default:
        return UTF8_NO_CHARACTER;
    }
}

size_t utf8_encode(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80U | (c & 0x3FU));
        c >>= 6;
    }
    out[0] = (char)((0xF00U >> n & 0xF0U) | c);
    return n;
}

bool utf8_is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||
           (c >= 0xFFF9 && c <= 0xFFFB);
}

void utf8_clean(char *text) {
    char *out = text;
    size_t n = 0;
    for (size_t left = strlen(text); left > 0; left -= n, text += n) {
        const uint32_t c = utf8_decode(text, left, &n);
        if (c == UTF8_NO_CHARACTER || utf8_is_control(c)) {
            *out++ = c == '\t' ? ' ' : '?';
        } else {
            memmove(out, text, n);
            out += n;
        }
    }
    *out = '\0';
}

/* Bytes of ASCII at the front, in steps of eight. */
static size_t ascii_prefix(const char *text, size_t size_bytes) {
    size_t at = 0;
    uint64_t eight = 0;
    while (size_bytes - at >= sizeof(eight)) {
        memcpy(&eight, text + at, sizeof(eight));
        if ((eight & UINT64_C(0x8080808080808080)) != 0) {
            break;
        }
        at += sizeof(eight);
    }
    return at;
}

size_t utf8_valid_prefix(const char *text, size_t size_bytes) {
    size_t at = ascii_prefix(text, size_bytes);
    while (at < size_bytes) {
        size_t n = utf8_character(text + at, size_bytes - at);
        if (n == 0) {
            break;
        }
        at += n;
    }
    return at;
}
