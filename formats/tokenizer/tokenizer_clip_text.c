/*
 * How open_clip cleans a text before CLIP's BPE: each line is mended as the Python package ftfy
 * does (without its repair of texts that were decoded with a wrong encoding, which is guesswork),
 * HTML's names of characters are resolved twice, white space becomes single spaces, letters lower
 * case.
 *
 * A line is mended until nothing changes: names that end with a semicolon, C1 controls, ligatures,
 * width, quotes, terminal escapes, control characters, and the composed normal form (NFC). Texts
 * are arrays of code points in between. Nothing of that makes a text longer than four code points
 * per byte.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/lowercase.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"
#include "formats/tokenizer/tokenizer_words_internal.h"

struct text {
    uint32_t *c;
    size_t count, capacity;
};

static void push(struct text *t, uint32_t c) {
    if (t->count < t->capacity) {
        t->c[t->count++] = c;
    }
}

const uint32_t *unicode_table(enum unicode_section section, size_t *count) {
    const uint32_t *at = clip_unicode;
    while (section-- > 0) {
        at += 1 + at[0];
    }
    *count = at[0];
    return at + 1;
}

/* ---- HTML ---- */

/* U+0080 to U+009F as Windows-1252 has them. */
static const uint16_t windows_1252[32] = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178,
};

enum { MAX_NAME = 32, MAX_MENDED_NAME = 24 };

enum status clip_entities_init(struct piece_map *names, struct error *err) {
    TRY(piece_map_init(names, 4096, err));
    for (size_t at = 0; at < clip_entities_bytes;) {
        const char *name = (const char *)clip_entities + at;
        const size_t n = strlen(name);
        piece_map_add(names, name, n, (int32_t)(at + n + 1));
        at += n + 1 + strlen(name + n + 1) + 1;
    }
    return STATUS_OK;
}

static bool is_alphanumeric(uint32_t c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z' && c < 0x80);
}

/* The value of a digit; 99: none. */
static uint32_t digit(uint32_t c, bool hex) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return hex && (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
}

static void push_number(struct text *out, uint32_t c) {
    if (c == 0 || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) {
        push(out, 0xFFFD);
    } else if (c >= 0x80 && c < 0xA0) {
        push(out, windows_1252[c - 0x80]);
    } else if (!(c < 9 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F ||
                 (c >= 0xFDD0 && c < 0xFDF0) || (c & 0xFFFE) == 0xFFFE)) {
        push(out, c);
    }
}

/* Resolves the number after "&#" in c[0, n); returns the characters that it has, 0: none. */
static size_t resolve_number(struct text *out, const uint32_t *c, size_t n, bool mending) {
    const bool hex = n > 0 && (c[0] | 32) == 'x';
    size_t i = hex;
    uint32_t value = 0;
    for (; i < n && digit(c[i], hex) < 99; i++) {
        value = value > 0x110000 ? value : value * (hex ? 16 : 10) + digit(c[i], hex);
    }
    const bool ends = i < n && c[i] == ';';
    if (i == hex || (mending && (!ends || i > MAX_MENDED_NAME || value == ';'))) {
        return 0;
    }
    push_number(out, value);
    return i + ends;
}

/* The same for a name after "&": the whole one, or when not mending the longest front of it. */
static size_t
resolve_name(struct text *out, const uint32_t *c, size_t n, bool mending, const struct bpe *bpe) {
    char name[MAX_NAME + 1];
    size_t size = 0;
    while (size < n && size < (mending ? MAX_MENDED_NAME : MAX_NAME) && c[size] < 0x80 &&
           (mending ? is_alphanumeric(c[size])
                    : c[size] != 0 && !strchr("\t\n\f <&#;", (int)c[size]))) {
        name[size] = (char)c[size];
        size++;
    }
    const bool ends = size < n && c[size] == ';';
    if (ends) {
        name[size++] = ';';
    } else if (mending) {
        return 0;
    }
    for (size_t used = size; used >= 2; used--) {
        const int32_t at = piece_map_find(&bpe->names, name, used);
        const char *value = (const char *)clip_entities + (at < 0 ? 0 : at);
        if (at >= 0 && (mending || *value != '\1')) {
            value += *value == '\1';
            for (size_t left = strlen(value), bytes; left > 0; value += bytes, left -= bytes) {
                push(out, utf8_decode(value, left, &bytes));
            }
            return used;
        }
        if (mending) {
            break;
        }
    }
    return 0;
}

/* Replaces names and numbers of characters: as html.unescape of Python, or mending. */
static void
unescape(struct text *out, const uint32_t *c, size_t n, bool mending, const struct bpe *bpe) {
    out->count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t used = 0;
        if (c[i] == '&' && i + 1 < n && c[i + 1] == '#') {
            used = resolve_number(out, c + i + 2, n - i - 2, mending);
            used += used > 0;
        } else if (c[i] == '&') {
            used = resolve_name(out, c + i + 1, n - i - 1, mending, bpe);
        }
        if (used == 0) {
            push(out, c[i]);
        }
        i += used;
    }
}

/* ---- single characters ---- */

static void push_mended(struct text *out, uint32_t c) {
    static const struct {
        uint16_t c, parts[3];
    } ligatures[] = {
        {0x132, {'I', 'J'}},       {0x133, {'i', 'j'}},       {0x149, {'\'', 'n'}},
        {0x1C4, {'D', 0x17D}},     {0x1C5, {'D', 0x17E}},     {0x1C6, {'d', 0x17E}},
        {0x1C7, {'L', 'J'}},       {0x1C8, {'L', 'j'}},       {0x1C9, {'l', 'j'}},
        {0x1CA, {'N', 'J'}},       {0x1CB, {'N', 'j'}},       {0x1CC, {'n', 'j'}},
        {0x1F1, {'D', 'Z'}},       {0x1F2, {'D', 'z'}},       {0x1F3, {'d', 'z'}},
        {0xFB00, {'f', 'f'}},      {0xFB01, {'f', 'i'}},      {0xFB02, {'f', 'l'}},
        {0xFB03, {'f', 'f', 'i'}}, {0xFB04, {'f', 'f', 'l'}}, {0xFB05, {0x17F, 't'}},
        {0xFB06, {'s', 't'}},      {0xFFE3, {' ', 0x304}},
    };
    size_t count;
    for (size_t i = 0; c >= 0x132 && i < sizeof(ligatures) / sizeof(ligatures[0]); i++) {
        if (ligatures[i].c == c) {
            for (int part = 0; part < 3 && ligatures[i].parts[part] != 0; part++) {
                push(out, ligatures[i].parts[part]);
            }
            return;
        }
    }
    if (c >= 0x80 && c < 0xA0) {
        c = windows_1252[c - 0x80];
    } else if (c >= 0xFF01 && c <= 0xFF5E) {
        c -= 0xFEE0;
    } else if (c >= 0xFF5F && c <= 0xFFEE) {
        c = unicode_table(UNICODE_WIDTH, &count)[c - 0xFF5F];
    }
    if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) {
        c = '\'';
    } else if (c >= 0x201C && c <= 0x201F) {
        c = '"';
    }
    push(out, c == 0x3000 ? ' ' : c);
}

static bool is_removed(uint32_t c) {
    return c < 9 || c == 0x0B || (c >= 0x0E && c < 0x20) || c == 0x7F ||
           (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

/* Terminal escapes (ESC [ digits and semicolons, a letter), then control characters. */
static void remove_controls(struct text *t) {
    size_t to = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t end = i + 2;
        if (t->c[i] == 0x1B && end <= t->count && t->c[i + 1] == '[') {
            while (end < t->count && (digit(t->c[end], false) < 99 || t->c[end] == ';')) {
                end++;
            }
            if (end < t->count && is_alphanumeric(t->c[end])) {
                i = end;
                continue;
            }
        }
        if (!is_removed(t->c[i])) {
            t->c[to++] = t->c[i];
        }
    }
    t->count = to;
}

/* ---- the composed normal form ---- */

enum { CLASS_SHIFT = 24 }; /* combining class above a code point */

/* The row of three numbers that begins with `first` (and `second`, unless it is 0); NULL: none. */
static const uint32_t *row(enum unicode_section section, uint32_t first, uint32_t second) {
    size_t high;
    const uint32_t *rows = unicode_table(section, &high);
    size_t low = 0;
    for (high /= 3; low < high;) {
        const size_t middle = (low + high) / 2;
        const uint32_t *r = rows + 3 * middle;
        if (r[0] == first && (second == 0 || r[1] == second)) {
            return r;
        }
        if (r[0] < first || (r[0] == first && r[1] < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

void unicode_mark_changes(struct bpe *bpe) {
    size_t count;
    const uint32_t *composed = unicode_table(UNICODE_COMPOSED, &count);
    for (size_t i = 0; i < count; i += 3) {
        unicode_set(bpe, composed[i + 1], UNICODE_MAY_CHANGE);
    }
    const uint32_t *parts = unicode_table(UNICODE_DECOMPOSED, &count);
    for (size_t i = 0; i < count; i += 3) {
        if (parts[i + 2] == 0 || !row(UNICODE_COMPOSED, parts[i + 1], parts[i + 2])) {
            unicode_set(bpe, parts[i], UNICODE_MAY_CHANGE);
        }
    }
    const uint32_t *runs = unicode_table(UNICODE_COMBINING, &count);
    uint32_t at = 0;
    for (size_t i = 0; i < count; i += 2) {
        at += runs[i];
        for (uint32_t n = 0; runs[i + 1] > 0 && n < runs[i + 2]; n++) {
            unicode_set(bpe, at + n, UNICODE_MAY_CHANGE);
        }
    }
    for (uint32_t i = 0; i < HANGUL_VOWELS; i++) {
        unicode_set(bpe, HANGUL_VOWEL + i, UNICODE_MAY_CHANGE);
    }
    for (uint32_t i = 1; i < HANGUL_TAILS; i++) {
        unicode_set(bpe, HANGUL_TAIL + i, UNICODE_MAY_CHANGE);
    }
}

static uint32_t combining_class(uint32_t c) {
    size_t count;
    const uint32_t *runs = unicode_table(UNICODE_COMBINING, &count);
    uint32_t class = 0;
    for (size_t i = 0; i < count && runs[i] <= c; i += 2) {
        c -= runs[i];
        class = runs[i + 1];
    }
    return class;
}

/* Adds a code point with its class; marks go before marks of a higher class. */
static void push_sorted(struct text *out, uint32_t c) {
    const uint32_t class = combining_class(c);
    size_t at = out->count;
    push(out, 0);
    if (at < out->count) {
        for (; class > 0 && at > 0 && out->c[at - 1] >> CLASS_SHIFT > class; at--) {
            out->c[at] = out->c[at - 1];
        }
        out->c[at] = class << CLASS_SHIFT | c;
    }
}

static void decompose(struct text *out, uint32_t c) {
    const uint32_t hangul = c - HANGUL_FIRST;
    if (hangul < HANGUL_COUNT) {
        push_sorted(out, HANGUL_LEAD + hangul / (HANGUL_VOWELS * HANGUL_TAILS));
        push_sorted(out, HANGUL_VOWEL + hangul / HANGUL_TAILS % HANGUL_VOWELS);
        if (hangul % HANGUL_TAILS > 0) {
            push_sorted(out, HANGUL_TAIL + hangul % HANGUL_TAILS);
        }
        return;
    }
    const uint32_t *parts = c < 0xC0 ? NULL : row(UNICODE_DECOMPOSED, c, 0);
    if (!parts) {
        push_sorted(out, c);
        return;
    }
    decompose(out, parts[1]); /* at most four deep */
    if (parts[2] != 0) {
        push_sorted(out, parts[2]);
    }
}

/* What two code points compose to; 0: nothing. */
static uint32_t compose(uint32_t first, uint32_t second) {
    const uint32_t lead = first - HANGUL_LEAD;
    const uint32_t vowel = second - HANGUL_VOWEL;
    const uint32_t syllable = first - HANGUL_FIRST;
    const uint32_t tail = second - HANGUL_TAIL;
    if (lead < HANGUL_LEADS && vowel < HANGUL_VOWELS) {
        return HANGUL_FIRST + (lead * HANGUL_VOWELS + vowel) * HANGUL_TAILS;
    }
    if (syllable < HANGUL_COUNT && syllable % HANGUL_TAILS == 0 && tail - 1 < HANGUL_TAILS - 1) {
        return first + tail;
    }
    const uint32_t *r = row(UNICODE_COMPOSED, first, second);
    return r ? r[2] : 0;
}

static void normalise(struct text *out, const struct text *in, const struct bpe *bpe) {
    bool plain = true;
    out->count = 0;
    for (size_t i = 0; i < in->count; i++) {
        plain = plain && !(unicode_entry(bpe, in->c[i]) & UNICODE_MAY_CHANGE);
    }
    for (size_t i = 0; i < in->count; i++) {
        if (plain) {
            push(out, in->c[i]);
        } else {
            decompose(out, in->c[i]);
        }
    }
    size_t to = 0;
    size_t starter = SIZE_MAX; /* in the output */
    uint32_t last = 0;         /* class of the characters between it and the end */
    for (size_t i = 0; i < out->count && !plain; i++) {
        const uint32_t class = out->c[i] >> CLASS_SHIFT;
        const uint32_t c = out->c[i] & ((1U << CLASS_SHIFT) - 1);
        const bool blocked = starter == SIZE_MAX || (starter + 1 < to && last >= class);
        const uint32_t both = blocked ? 0 : compose(out->c[starter], c);
        if (both != 0) {
            out->c[starter] = both;
            continue;
        }
        if (class == 0) {
            starter = to;
        }
        last = class;
        out->c[to++] = c;
    }
    out->count = plain ? out->count : to;
}

/* ---- the whole ---- */

/* Mends one line in `t`, of which all three have room for the result. */
static void
mend_line(struct text *t, struct text *a, struct text *b, bool names_too, const struct bpe *bpe) {
    for (bool changed = true; changed;) {
        a->count = b->count = 0;
        if (names_too) {
            unescape(b, t->c, t->count, true, bpe);
        }
        const struct text *from = names_too ? b : t;
        for (size_t i = 0; i < from->count; i++) {
            push_mended(a, from->c[i]);
        }
        remove_controls(a);
        normalise(b, a, bpe);
        changed = b->count != t->count || memcmp(b->c, t->c, b->count * sizeof(*b->c)) != 0;
        t->count = b->count < t->capacity ? b->count : t->capacity;
        memcpy(t->c, b->c, t->count * sizeof(*b->c));
    }
}

/* Mends all lines of `text` to `out`; a and b are for the work. */
static void mend(struct text *out,
                 const char *text,
                 size_t size_bytes,
                 struct text *a,
                 struct text *b,
                 const struct bpe *bpe) {
    bool names_too = true;
    for (size_t at = 0, n; at < size_bytes;) {
        struct text line = {out->c + out->count, 0, out->capacity - out->count};
        for (bool ends = false; at < size_bytes && !ends; at += n) {
            const uint32_t c = utf8_decode(text + at, size_bytes - at, &n);
            push(&line, c == UTF8_NO_CHARACTER ? 0xFFFD : c);
            ends = c == '\n';
            names_too = names_too && c != '<';
        }
        mend_line(&line, a, b, names_too, bpe);
        out->count += line.count;
    }
}

/* Single spaces between words, then lower case. canonical: of ASCII's punctuation, _ counts as a
 * space, and the rest is removed. */
static size_t finish(char *out, char *spaced, const struct text *t, bool canonical) {
    size_t n = 0;
    size_t to = 0;
    for (size_t i = 0; i < t->count; i++) {
        const uint32_t c = t->c[i];
        const bool word = c > '~' || c <= ' ' || (c | 32) - 'a' < 26 || c - '0' < 10;
        if (canonical && !word && c != '_') {
            continue;
        }
        if (!unicode_is_space(c) && !(canonical && c == '_')) {
            n += utf8_encode(spaced + n, c);
        } else if (n > 0 && spaced[n - 1] != ' ') {
            spaced[n++] = ' ';
        }
    }
    n -= canonical && n > 0 && spaced[n - 1] == ' ';
    for (size_t at = 0, bytes; at < n; at += bytes) {
        to += lowercase_character(out + to, spaced, n, at, &bytes);
    }
    return to;
}

enum status clip_clean(char **out,
                       size_t *out_size,
                       const char *text,
                       size_t size_bytes,
                       const struct bpe *bpe,
                       bool canonical,
                       struct error *err) {
    const size_t room = 4 * size_bytes + 16;
    uint32_t *all = malloc(3 * room * sizeof(*all));
    char *spaced = NULL;
    *out = NULL;
    if (all) {
        struct text t = {all, 0, room};
        struct text a = {all + room, 0, room};
        struct text b = {all + 2 * room, 0, room};
        mend(&t, text, size_bytes, &a, &b, bpe);
        unescape(&a, t.c, t.count, false, bpe);
        unescape(&b, a.c, a.count, false, bpe);
        spaced = malloc(4 * b.count + 1);
        *out = malloc(6 * b.count + 1); /* lower case: at most half more */
        if (spaced && *out) {
            *out_size = finish(*out, spaced, &b, canonical);
        }
    }
    const bool done = spaced && *out;
    free(all);
    free(spaced);
    if (!done) {
        free(*out);
        *out = NULL;
        return error_set(err, STATUS_NOMEM, "tokenizer: out of memory for a text");
    }
    return STATUS_OK;
}
