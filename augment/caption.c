/*
 * The cleaning in three passes over the output: letters (lower case, deletions, spaces), then
 * "<person>", then white space and the word limit. Each pass writes at or before where it reads, so
 * they share one buffer; only the first can make text longer.
 */
#include "augment/caption.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "augment/caption_internal.h"

static const uint32_t NOT_UTF8 = UINT32_MAX; /* no code point */

/* The code point at `p` and its size; NOT_UTF8 and 1 for a byte that begins none. */
static uint32_t utf8_decode(const uint8_t *p, size_t left, size_t *size_bytes) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    *size_bytes = 1;
    if (p[0] < 0x80) {
        return p[0];
    }
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n > left) {
        return NOT_UTF8;
    }
    uint32_t c = p[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return NOT_UTF8;
        }
        c = (c << 6) | (p[i] & 0x3F);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
        return NOT_UTF8;
    }
    *size_bytes = n;
    return c;
}

static size_t utf8_encode(uint8_t *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | (c >> 6));
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    size_t n = c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (uint8_t)((n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* Lower case, the deleted characters, - and / to spaces. Returns the new size. */
static size_t clean_letters(uint8_t *out, const uint8_t *in, size_t size_bytes) {
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        size_t n;
        uint32_t c = utf8_decode(in + at, size_bytes - at, &n);
        if (c >= 'A' && c <= 'Z') {
            out[to++] = (uint8_t)(c + ('a' - 'A'));
        } else if (c == '-' || c == '/') {
            out[to++] = ' ';
        } else if (c == 0x130) { /* capital I with a dot: i and a combining dot */
            out[to++] = 'i';
            to += utf8_encode(out + to, 0x307);
        } else if (c == NOT_UTF8) {
            out[to++] = in[at];
        } else if (c >= 0x80) {
            to += utf8_encode(out + to, caption_lower(c));
        } else if (c == 0 || strchr(",.'!?\"()*#:;~", (int)c) == NULL) {
            out[to++] = (uint8_t)c;
        }
        at += n;
    }
    return to;
}

static size_t replace_person(uint8_t *text, size_t size_bytes) {
    static const char tag[] = "<person>";
    const size_t tag_bytes = sizeof(tag) - 1;
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        if (size_bytes - at >= tag_bytes && memcmp(text + at, tag, tag_bytes) == 0) {
            memmove(text + to, text + at + 1, tag_bytes - 2);
            to += tag_bytes - 2;
            at += tag_bytes;
        } else {
            text[to++] = text[at++];
        }
    }
    return to;
}

/* What Python's \s matches. */
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static size_t collapse_spaces(uint8_t *text, size_t size_bytes) {
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        size_t end = at;
        size_t n;
        size_t run = 0;
        while (end < size_bytes && is_space(utf8_decode(text + end, size_bytes - end, &n))) {
            end += n;
            run++;
        }
        if (run >= 2) {
            text[to++] = ' ';
            at = end;
            continue;
        }
        utf8_decode(text + at, size_bytes - at, &n);
        memmove(text + to, text + at, n);
        to += n;
        at += n;
    }
    return to;
}

/* Strips the ends and cuts behind the last allowed word. */
static size_t trim(uint8_t *text, size_t size_bytes) {
    size_t end = size_bytes;
    size_t begin = 0;
    while (end > 0 && text[end - 1] == '\n') {
        end--;
    }
    while (end > 0 && text[end - 1] == ' ') {
        end--;
    }
    while (begin < end && text[begin] == ' ') {
        begin++;
    }
    int words = 1;
    for (size_t i = begin; i < end; i++) {
        if (text[i] == ' ' && words++ == CAPTION_MAX_WORDS) {
            end = i;
        }
    }
    memmove(text, text + begin, end - begin);
    return end - begin;
}

size_t caption_clean(char *out, const char *text, size_t size_bytes) {
    uint8_t *to = (uint8_t *)out;
    size_t n = clean_letters(to, (const uint8_t *)text, size_bytes);
    n = replace_person(to, n);
    n = collapse_spaces(to, n);
    n = trim(to, n);
    to[n] = 0;
    return n;
}
