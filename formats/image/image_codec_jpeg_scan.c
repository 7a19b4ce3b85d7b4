/*
 * Walks the coded data of a JPEG of one scan, code by code, to see that it ends where it must. Of
 * each code only two things count: how many bits it takes with the bits of its value, and by how
 * many coefficients it goes on in its block. A table has both for every possible beginning of
 * WINDOW_BITS bits, for as many codes as fit in there:
 *
 *     bits  101 0110 0 ...        entry  of all codes in the window: bits, coefficients
 *           code value                   of the first alone: the same
 *
 * What libjpeg would accept with a warning, or accept though it is odd, is not sound here: the
 * caller then asks libjpeg. So only one direction must hold, that nothing is called sound in which
 * libjpeg finds damage.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_codec_jpeg_scan_internal.h"

enum {
    WINDOW_BITS = 12,
    WINDOWS = 1 << WINDOW_BITS,
    LONGEST_CODE = 16,
    BLOCK = 64,        /* coefficients */
    REFILL_BELOW = 32, /* bits; the longest code takes 16, its value 15 */
    MAX_DC_BITS = 15,
};

/* Bits 0 to 5 of an entry: taken by all codes. 6 to 12: by how many coefficients they go on. 13 to
 * 19: the same without the last of them. 20 to 24, 25 to 31: bits and coefficients of the first
 * code. 0: the first code is longer than the window, or none. */
typedef uint32_t entry; /* a number with fields, not a struct: one load */

static inline unsigned all_bits(entry e) {
    return e & 63;
}
static inline unsigned all_steps(entry e) {
    return e >> 6 & 127;
}
static inline unsigned steps_before_last(entry e) {
    return e >> 13 & 127;
}
static inline unsigned first_bits(entry e) {
    return e >> 20 & 31;
}
static inline unsigned first_steps(entry e) {
    return e >> 25;
}
static inline entry make_entry(unsigned bits, unsigned steps, unsigned before, entry first) {
    return bits | steps << 6 | before << 13 | (first & ~((UINT32_C(1) << 20) - 1));
}

struct table {
    bool is_made, is_usable;
    struct jpeg_scan_code code; /* that it was made of */
    entry entries[WINDOWS];
    int32_t last[LONGEST_CODE + 1];   /* code of each length; -1: none */
    int32_t offset[LONGEST_CODE + 1]; /* from a code to its symbol */
};

struct jpeg_scan_tables {
    struct table dc[JPEG_SCAN_TABLES], ac[JPEG_SCAN_TABLES];
    entry workspace[WINDOWS];
};

struct jpeg_scan_tables *jpeg_scan_tables_create(void) {
    return calloc(1, sizeof(struct jpeg_scan_tables));
}

void jpeg_scan_tables_destroy(struct jpeg_scan_tables *t) {
    free(t);
}

/* ---- tables --------------------------------------------------------------------------------- */

static unsigned value_bits(unsigned symbol, bool is_ac) {
    return is_ac ? symbol & 15 : symbol;
}

/* A run of zeros and a value; 0xF0: sixteen zeros; another run without a value ends the block. */
static unsigned steps(unsigned symbol, bool is_ac) {
    return !is_ac ? 1 : (symbol & 15) == 0 && symbol >> 4 != 15 ? BLOCK : (symbol >> 4) + 1;
}

/* Entries of one code each. Returns false for codes that libjpeg refuses. */
static bool fill_single(struct table *t, bool is_ac) {
    uint32_t code = 0;
    uint32_t at = 0;
    memset(t->entries, 0, sizeof t->entries);
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        const uint32_t count = t->code.counts[length];
        if (at + count > sizeof t->code.symbols || code + count >= UINT32_C(1) << length) {
            return false; /* also the code of ones alone */
        }
        t->offset[length] = (int32_t)at - (int32_t)code;
        t->last[length] = count > 0 ? (int32_t)(code + count - 1) : -1;
        for (uint32_t i = 0; i < count; i++, code++, at++) {
            const unsigned symbol = t->code.symbols[at];
            if (!is_ac && symbol > MAX_DC_BITS) {
                return false;
            }
            if (length > WINDOW_BITS) {
                continue;
            }
            const unsigned bits = length + value_bits(symbol, is_ac);
            const unsigned on = steps(symbol, is_ac);
            const entry e = make_entry(bits, on, 0, bits << 20 | on << 25);
            entry *first = t->entries + ((size_t)code << (WINDOW_BITS - length));
            for (size_t k = 0; k < (size_t)1 << (WINDOW_BITS - length); k++) {
                first[k] = e;
            }
        }
        code <<= 1;
    }
    return true;
}

/* Adds the codes after the first one, as far as all their bits are in the window. */
static void add_further(struct table *t, entry single[WINDOWS]) {
    memcpy(single, t->entries, sizeof t->entries);
    for (uint32_t window = 0; window < WINDOWS; window++) {
        const entry first = single[window];
        unsigned bits = all_bits(first);
        unsigned on = all_steps(first);
        unsigned before = 0;
        while (first != 0 && bits < WINDOW_BITS && on < BLOCK) {
            const entry next = single[window << bits & (WINDOWS - 1)];
            if (next == 0 || bits + all_bits(next) > WINDOW_BITS) {
                break;
            }
            before = on;
            bits += all_bits(next);
            on += all_steps(next);
        }
        t->entries[window] = first != 0 ? make_entry(bits, on, before, first) : 0;
    }
}

/* Makes the table of a code, unless it is the one that is there. */
static bool make_table(struct table *t,
                       const struct jpeg_scan_code *code,
                       bool is_ac,
                       entry workspace[WINDOWS]) {
    if (!t->is_made || memcmp(&t->code, code, sizeof *code) != 0) {
        t->code = *code;
        t->is_made = true;
        t->is_usable = fill_single(t, is_ac);
        if (t->is_usable && is_ac) {
            add_further(t, workspace);
        }
    }
    return t->is_usable;
}

/* ---- the walk ------------------------------------------------------------------------------- */

struct walk {
    const uint8_t *at, *end;
    uint64_t bits; /* the next ones, from the top */
    int count;     /* of them; negative: beyond the end */
};

static inline uint64_t load_big_endian(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline bool has_ff(uint64_t v) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    return ((~v - ones) & v & (ones << 7)) != 0;
}

/* Up to the next marker. In coded data FF 00 is the byte FF. Returns false beyond the end. */
static inline bool refill(struct walk *w) {
    if (w->count < 0) {
        return false;
    }
    if (w->end - w->at >= 8) {
        const uint64_t v = load_big_endian(w->at);
        if (!has_ff(v)) {
            const int bytes = (63 - w->count) / 8;
            w->bits |= v >> w->count;
            w->at += bytes;
            w->count += 8 * bytes;
            return true;
        }
    }
    while (w->count <= 56 && w->at < w->end) {
        const bool is_ff = *w->at == 0xff;
        if (is_ff && (w->end - w->at < 2 || w->at[1] != 0)) {
            break;
        }
        w->bits |= (uint64_t)*w->at << (56 - w->count);
        w->at += is_ff ? 2 : 1;
        w->count += 8;
    }
    return true;
}

static inline void take(struct walk *w, unsigned bits) {
    w->bits <<= bits;
    w->count -= (int)bits;
}

/* A code that is longer than the window. Returns its steps, 0 where there is none. */
static unsigned take_long(struct walk *w, const struct table *t, bool is_ac) {
    for (unsigned length = WINDOW_BITS + 1; length <= LONGEST_CODE; length++) {
        const int32_t code = (int32_t)(w->bits >> (64 - length));
        if (code <= t->last[length]) {
            const unsigned symbol = t->code.symbols[(code + t->offset[length]) & 255];
            take(w, length + value_bits(symbol, is_ac));
            return steps(symbol, is_ac);
        }
    }
    return 0;
}

static inline bool walk_block(struct walk *w, const struct table *dc, const struct table *ac) {
    if (w->count < REFILL_BELOW && !refill(w)) {
        return false;
    }
    const entry e = dc->entries[w->bits >> (64 - WINDOW_BITS)];
    if (e != 0) {
        take(w, all_bits(e));
    } else if (take_long(w, dc, false) == 0) {
        return false;
    }
    for (unsigned k = 1; k < BLOCK;) {
        if (w->count < REFILL_BELOW && !refill(w)) {
            return false;
        }
        const entry a = ac->entries[w->bits >> (64 - WINDOW_BITS)];
        unsigned on;
        if (a == 0) {
            on = take_long(w, ac, true);
            if (on == 0) {
                return false;
            }
        } else if (k + steps_before_last(a) < BLOCK) {
            take(w, all_bits(a));
            on = all_steps(a);
        } else {
            take(w, first_bits(a));
            on = first_steps(a);
        }
        k += on;
    }
    return true;
}

/* Whether the marker comes next, with no whole byte before it. */
static bool take_marker(struct walk *w, uint8_t marker) {
    if (!refill(w) || w->count >= 8 || w->end - w->at < 2 || w->at[0] != 0xff ||
        w->at[1] != marker) {
        return false;
    }
    w->at += 2;
    w->bits = 0;
    w->count = 0;
    return true;
}

bool jpeg_scan_is_sound(struct jpeg_scan_tables *t, const struct jpeg_scan *s) {
    const struct table *dc[JPEG_SCAN_MAX_BLOCKS];
    const struct table *ac[JPEG_SCAN_MAX_BLOCKS];
    struct walk w = {.at = s->data, .end = s->data + s->size_bytes};
    for (size_t i = 0; i < JPEG_SCAN_TABLES; i++) {
        if ((s->dc[i] != NULL && !make_table(&t->dc[i], s->dc[i], false, t->workspace)) ||
            (s->ac[i] != NULL && !make_table(&t->ac[i], s->ac[i], true, t->workspace))) {
            return false;
        }
    }
    for (size_t i = 0; i < s->block_count; i++) {
        dc[i] = &t->dc[s->blocks[i].dc];
        ac[i] = &t->ac[s->blocks[i].ac];
    }
    uint64_t left = s->restart_interval;
    uint8_t restart = 0;
    for (uint64_t unit = 0; unit < s->unit_count; unit++) {
        if (s->restart_interval > 0 && left-- == 0) {
            if (!take_marker(&w, (uint8_t)(0xd0 + restart))) {
                return false;
            }
            restart = (uint8_t)((restart + 1) % 8);
            left = s->restart_interval - 1;
        }
        for (size_t i = 0; i < s->block_count; i++) {
            if (!walk_block(&w, dc[i], ac[i])) {
                return false;
            }
        }
    }
    return take_marker(&w, 0xd9);
}
