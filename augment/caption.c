/*
 * caption: cleans in passes over the output: letters (lower case, deletions, spaces), "<person>",
 * white space, the word limit. Only the first can make text longer; the others write at or before
 * the position that they read from, so they share one buffer.
 */
#include "augment/caption.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "formats/base/lowercase.h"
#include "formats/base/utf8.h"

/* ---- the passes ---- */

static bool is_deleted(uint8_t c) {
    static const bool deleted[128] = {
        [','] = true, ['.'] = true, ['\''] = true, ['!'] = true, ['?'] = true,
        ['"'] = true, ['('] = true, [')'] = true,  ['*'] = true, ['#'] = true,
        [':'] = true, [';'] = true, ['~'] = true,
    };
    return deleted[c];
}

/* Converts to lower case, removes characters, and replaces - and / by spaces. Returns the new
 * size. */
static size_t clean_letters(char *out, const char *in, size_t size_bytes) {
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        uint8_t first = (uint8_t)in[at];
        size_t n = 1;
        if (first < 0x80) {
            if (!is_deleted(first)) {
                bool upper = first >= 'A' && first <= 'Z';
                out[to++] = first == '-' || first == '/' ? ' ' : (char)(first + (upper ? 32 : 0));
            }
        } else {
            to += lowercase_character(out + to, in, size_bytes, at, &n);
        }
        at += n;
    }
    return to;
}

static size_t replace_person(char *text, size_t size_bytes) {
    static const char tag[] = "<person>";
    const size_t tag_bytes = sizeof(tag) - 1;
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        if (text[at] == tag[0] && size_bytes - at >= tag_bytes &&
            memcmp(text + at, tag, tag_bytes) == 0) {
            memmove(text + to, text + at + 1, tag_bytes - 2);
            to += tag_bytes - 2;
            at += tag_bytes;
        } else {
            text[to++] = text[at++];
        }
    }
    return to;
}

static size_t collapse_spaces(char *text, size_t size_bytes) {
    size_t to = 0;
    for (size_t at = 0; at < size_bytes;) {
        if ((uint8_t)text[at] > ' ' && (uint8_t)text[at] < 0x80) {
            text[to++] = text[at++];
            continue;
        }
        size_t end = at;
        size_t n;
        size_t run = 0;
        while (end < size_bytes &&
               unicode_is_space(utf8_decode(text + end, size_bytes - end, &n))) {
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

/* Strips the ends and truncates after the last allowed word. */
static size_t trim(char *text, size_t size_bytes) {
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
    size_t n = clean_letters(out, text, size_bytes);
    n = replace_person(out, n);
    n = collapse_spaces(out, n);
    n = trim(out, n);
    out[n] = '\0';
    return n;
}
