/*
 * A quick look at JSON text that accepts what is plainly good: metadata of image-text sets is
 * parsed for nothing but to know that it is JSON, and building a tree of it costs several times as
 * much as reading it. Whatever needs thought (escaped keys, \u, long numbers, large objects) is
 * left to the parser; what is accepted here the parser accepts, too.
 */
#include <string.h>

#include "formats/base/utf8.h"
#include "formats/json/json_reader.h"

enum {
    MAX_DEPTH = 32,
    MAX_KEYS = 256, /* of the objects that are open at a time */
    MAX_DIGITS = 18,
    MAX_FRACTION_DIGITS = 40,
    MAX_EXPONENT_DIGITS = 2,
};

struct scan {
    const uint8_t *p, *end;
    uint32_t keys[MAX_KEYS]; /* hashes; equal ones may be equal keys, which are refused */
    size_t key_count;
    uint32_t depth;
    bool beyond_ascii;
};

static bool scan_value(struct scan *s);

static void skip_space(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) {
        s->p++;
    }
}

static bool take(struct scan *s, uint8_t c) {
    if (s->p < s->end && *s->p == c) {
        s->p++;
        return true;
    }
    return false;
}

/* Skips bytes of a string that are not escaped, eight at a time. */
static void pass_plain(struct scan *s) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    uint64_t beyond = 0;
    while (s->end - s->p >= 8) {
        uint64_t v;
        memcpy(&v, s->p, sizeof(v));
        uint64_t quote = v ^ ones * '"';
        uint64_t slash = v ^ ones * '\\';
        /* The top bit of each byte that is a quote, a backslash or below a space; and perhaps of
         * some after the first of these, which is why the rest is checked one by one. */
        uint64_t special = (quote - ones) & ~quote;
        special |= (slash - ones) & ~slash;
        special |= (v - ones * ' ') & ~v;
        if ((special & tops) != 0) {
            break;
        }
        beyond |= v & tops;
        s->p += 8;
    }
    s->beyond_ascii = s->beyond_ascii || beyond != 0;
}

/* The opening quote is taken. `hash` NULL: no key. */
static bool scan_string(struct scan *s, uint32_t *hash) {
    uint32_t h = 2166136261U;
    if (!hash) {
        pass_plain(s);
    }
    while (s->p < s->end) {
        uint8_t c = *s->p++;
        if (c == '"') {
            if (hash) {
                *hash = h;
            }
            return true;
        }
        if (c < ' ') {
            return false;
        }
        if (c == '\\') {
            if (hash || s->p == s->end || !strchr("\"\\/bfnrt", *s->p) || *s->p == '\0') {
                return false;
            }
            s->p++;
            if (!hash) {
                pass_plain(s);
            }
        }
        s->beyond_ascii = s->beyond_ascii || c >= 0x80;
        h = (h ^ c) * 16777619U;
    }
    return false;
}

/* At least one digit, at most `max`. */
static bool scan_digits(struct scan *s, size_t max) {
    size_t n = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        s->p++;
        n++;
    }
    return n > 0 && n <= max;
}

static bool scan_number(struct scan *s) {
    take(s, '-');
    if (!take(s, '0') && !scan_digits(s, MAX_DIGITS)) {
        return false;
    }
    if (take(s, '.') && !scan_digits(s, MAX_FRACTION_DIGITS)) {
        return false;
    }
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '-')) {
            take(s, '+');
        }
        return scan_digits(s, MAX_EXPONENT_DIGITS);
    }
    return true; /* a digit after a 0 may not follow a value */
}

static bool scan_word(struct scan *s, const char *word) {
    size_t size_bytes = strlen(word);
    if ((size_t)(s->end - s->p) < size_bytes || memcmp(s->p, word, size_bytes) != 0) {
        return false;
    }
    s->p += size_bytes;
    return true;
}

static bool scan_key(struct scan *s, size_t first_key) {
    uint32_t hash = 0;
    if (!take(s, '"') || !scan_string(s, &hash) || s->key_count == MAX_KEYS) {
        return false;
    }
    for (size_t i = first_key; i < s->key_count; i++) {
        if (s->keys[i] == hash) {
            return false;
        }
    }
    s->keys[s->key_count++] = hash;
    skip_space(s);
    return take(s, ':');
}

/* What is between the brackets of an object (`close` is '}') or array. */
static bool scan_items(struct scan *s, uint8_t close) {
    size_t first_key = s->key_count;
    if (++s->depth > MAX_DEPTH) {
        return false;
    }
    skip_space(s);
    bool ended = take(s, close);
    while (!ended) {
        skip_space(s);
        if ((close == '}' && !scan_key(s, first_key)) || !scan_value(s)) {
            return false;
        }
        skip_space(s);
        ended = take(s, close);
        if (!ended && !take(s, ',')) {
            return false;
        }
    }
    s->key_count = first_key;
    s->depth--;
    return true;
}

static bool scan_value(struct scan *s) {
    skip_space(s);
    if (s->p == s->end) {
        return false;
    }
    switch (*s->p) {
    case '"':
        s->p++;
        return scan_string(s, NULL);
    case '{':
        s->p++;
        return scan_items(s, '}');
    case '[':
        s->p++;
        return scan_items(s, ']');
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return scan_number(s);
    }
}

bool json_text_is_plain(const void *text, size_t size_bytes) {
    struct scan s = {.p = text, .end = (const uint8_t *)text + size_bytes};
    if (size_bytes == 0 || !scan_value(&s)) {
        return false;
    }
    skip_space(&s);
    return s.p == s.end && (!s.beyond_ascii || utf8_valid_prefix(text, size_bytes) == size_bytes);
}
