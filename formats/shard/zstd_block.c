/*
 * A small block of zstd: what repeats is found with one table of hashes, the rest is literals.
 *
 *     literals section    every byte that no match covers           zstd_entropy.c
 *     number of sequences
 *     modes               the standard's own tables; one that fits better for the offsets
 *     sequences           (literals in front, offset, length) each, written from the last one on
 *
 * A match is looked for at the last two offsets first, which cost least, and then at the last
 * place that had the same hash. Where the caller knows what repeats, nothing is looked for.
 */
#include "formats/shard/zstd_block_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    HASH_LOG = 11,
    MIN_REPEAT = 3,   /* of a match at a repeated offset */
    MIN_FOLLOWED = 6, /* at another one, of a repeat that is known */
    FIRST_AT = 8,     /* of a match: behind the offsets that a frame begins with */
    REPEATS = 2,      /* offsets at which a match is looked for; the third is worth 3 bytes */
    LONG_ENOUGH = 32, /* then none is looked for at another place */
    OFFSET_CODES = 29,
    LITERAL_CODES = 36,
    LENGTH_CODES = 53,
    OFFSET_LOG = 5,
    LITERAL_LOG = 6,
    LENGTH_LOG = 6,
    LENGTH_BASE = 3,
    OFFSET_BASE = 3, /* what is added to an offset that is none of the last three */
    MAX_SEQUENCES = ZSTD_BLOCK_MAX_BYTES / MIN_REPEAT + 1,
    WORD_BYTES = 8, /* that are looked at together */
    PAD_BYTES = 16, /* that may be read, and of the literals written, behind the end */
};

struct sequence {
    uint16_t literals, length;
    uint16_t offset; /* as stored: 1 to 3 are the last ones */
};

/* The number of extra bits of each code, and what the code stands for without them. */
struct code_book {
    uint32_t base[LENGTH_CODES];
    uint8_t extra[LENGTH_CODES];
};

struct zstd_block_encoder {
    struct fse_table literal_table, length_table, offset_table; /* the standard's */
    struct fse_table own_offset_table;
    uint8_t log_16[(1 << OFFSET_LOG) + 1]; /* 16 times the logarithm of 0 (none), 1, 2, ... */
    struct code_book literal_book, length_book;
    uint8_t small_literals[64], small_lengths[128]; /* codes of the first values */
    uint16_t places[1 << HASH_LOG]; /* where what has the hash came last; 0: perhaps nowhere */
    struct sequence sequences[MAX_SEQUENCES];
    uint8_t data[ZSTD_BLOCK_MAX_BYTES + PAD_BYTES];
    uint8_t literals[ZSTD_BLOCK_MAX_BYTES + PAD_BYTES];
};

/* ---- the standard's tables ----------------------------------------------------------------------
 */

static void fill_book(struct code_book *b, uint32_t base, const uint8_t *extra, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        b->base[i] = base;
        b->extra[i] = extra[i];
        base += 1u << extra[i];
    }
}

static void fill_codes(uint8_t *codes, unsigned count, const struct code_book *b) {
    unsigned code = 0;
    for (unsigned v = 0; v < count; v++) {
        while (v + b->base[0] >= b->base[code] + (1u << b->extra[code])) {
            code++;
        }
        codes[v] = (uint8_t)code;
    }
}

/* By squaring: a bit of the logarithm for each. */
static uint8_t log_16_of(uint32_t v) {
    uint32_t x = v << (16 - (31 - (unsigned)__builtin_clz(v))); /* 1 to 2, with 16 bits behind */
    uint32_t log = 31u - (unsigned)__builtin_clz(v);
    for (int bit = 0; bit < 4; bit++) {
        x = (uint32_t)((uint64_t)x * x >> 16);
        log = log << 1 | x >> 17;
        x >>= x >> 17;
    }
    return (uint8_t)log;
}

static void fill_tables(struct zstd_block_encoder *e) {
    static const uint8_t literal_extra[LITERAL_CODES] = {0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0,
                                                         0, 0, 0, 0, 1, 1,  1,  1,  2,  2,  3,  3,
                                                         4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const uint8_t length_extra[LENGTH_CODES] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0, 0,
        0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const int16_t literal_counts[LITERAL_CODES] = {4, 3, 2, 2, 2, 2, 2, 2, 2,  2,  2,  2,
                                                          2, 1, 1, 1, 2, 2, 2, 2, 2,  2,  2,  2,
                                                          2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
    static const int16_t length_counts[LENGTH_CODES] = {
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
    static const int16_t offset_counts[OFFSET_CODES] = {
        1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
    fill_book(&e->literal_book, 0, literal_extra, LITERAL_CODES);
    fill_book(&e->length_book, LENGTH_BASE, length_extra, LENGTH_CODES);
    fill_codes(e->small_literals, sizeof(e->small_literals), &e->literal_book);
    fill_codes(e->small_lengths, sizeof(e->small_lengths), &e->length_book);
    for (uint32_t v = 1; v < sizeof(e->log_16); v++) {
        e->log_16[v] = log_16_of(v);
    }
    fse_build(&e->literal_table, literal_counts, LITERAL_CODES, LITERAL_LOG);
    fse_build(&e->length_table, length_counts, LENGTH_CODES, LENGTH_LOG);
    fse_build(&e->offset_table, offset_counts, OFFSET_CODES, OFFSET_LOG);
}

enum status zstd_block_encoder_create(struct zstd_block_encoder **out, struct error *err) {
    REQUIRE(out);
    *out = calloc(1, sizeof(**out));
    if (!*out) {
        return error_set(err, STATUS_NOMEM, "out of memory for a compressor");
    }
    fill_tables(*out);
    return STATUS_OK;
}

void zstd_block_encoder_destroy(struct zstd_block_encoder *e) {
    free(e);
}

/* ---- matches ----------------------------------------------------------------------------------
 */

/* Where the search stands. */
struct search {
    const uint8_t *data;
    size_t size_bytes;
    uint32_t offsets[3]; /* the last ones, the latest first */
    size_t anchor;       /* literals begin here */
    size_t sequence_count;
    size_t literal_count;
};

struct match {
    size_t at, length;
    uint32_t offset;
    int gain; /* in bits, about */
};

/* The first byte in memory is the lowest, whatever the machine's order. */
static inline uint64_t load_le64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint32_t load_le32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline size_t common_bytes(const struct search *s, size_t a, size_t b) {
    size_t n = 0;
    size_t room = s->size_bytes - b;
    while (n < room) {
        uint64_t difference = load_le64(s->data + a + n) ^ load_le64(s->data + b + n);
        if (difference != 0) {
            n += (unsigned)__builtin_ctzll(difference) >> 3;
            break;
        }
        n += 8;
    }
    return n < room ? n : room;
}

static inline uint32_t hash4(uint32_t bytes) {
    return bytes * UINT32_C(2654435761) >> (32 - HASH_LOG);
}

/* Whether the first MIN_REPEAT of four bytes are those at `p`. */
static inline bool has_repeat(uint32_t bytes, const uint8_t *p) {
    return (bytes ^ load_le32(p)) << 8 == 0;
}

/* Bits, about: a literal takes 5, a sequence 13, an offset that is not one of the last its own. */
static int gain_of(size_t length, unsigned offset_bits) {
    return (int)length * 5 - 13 - (int)offset_bits;
}

/* The best of the matches at the last offsets and at a place before. */
static inline __attribute__((always_inline)) struct match
choose_match(const struct search *s, size_t at, size_t place) {
    const uint32_t bytes = load_le32(s->data + at);
    struct match best = {.at = at};
    for (int i = 0; i < REPEATS; i++) {
        size_t length = 0;
        if (has_repeat(bytes, s->data + at - s->offsets[i])) {
            length = common_bytes(s, at - s->offsets[i], at);
        }
        if (length > best.length) {
            best = (struct match){at, length, s->offsets[i], gain_of(length, 0)};
        }
    }
    if (best.length < LONG_ENOUGH && load_le32(s->data + place) == bytes) {
        uint32_t offset = (uint32_t)(at - place);
        size_t length = common_bytes(s, place, at);
        int gain = gain_of(length, 31u - (unsigned)__builtin_clz(offset + OFFSET_BASE));
        if (gain > best.gain) {
            best = (struct match){at, length, offset, gain};
        }
    }
    return best;
}

/* `at` becomes the latest place of its four bytes. Returns the one before. */
static inline size_t take_place(uint16_t *places, const uint8_t *data, size_t at) {
    uint16_t *slot = &places[hash4(load_le32(data + at))];
    size_t before = *slot;
    *slot = (uint16_t)at;
    return before;
}

/* Passes over places where there is no match at all: three looks and one branch, because that is
 * the most common case. Returns the place where one is, or `end`. */
static size_t pass_literals(uint16_t *places, const struct search *s, size_t at, size_t end) {
    const uint8_t *data = s->data;
    for (; at < end; at++) {
        const uint8_t *here = data + at;
        uint32_t bytes = load_le32(here);
        uint16_t *slot = &places[hash4(bytes)];
        if (has_repeat(bytes, here - s->offsets[0]) | has_repeat(bytes, here - s->offsets[1]) |
            (bytes == load_le32(data + *slot))) {
            break;
        }
        *slot = (uint16_t)at;
    }
    return at;
}

/* The number that is stored for an offset, and the last offsets behind it. */
static uint32_t offset_value(struct search *s, uint32_t offset, bool literals) {
    uint32_t *last = s->offsets;
    uint32_t value = offset + OFFSET_BASE;
    int from = 2; /* of the last ones, the one that goes */
    if (offset == last[0] && literals) {
        return 1;
    }
    if (offset == last[1]) {
        value = literals ? 2 : 1;
        from = 1;
    } else if (offset == last[2]) {
        value = literals ? 3 : 2;
    } else if (!literals && offset == last[0] - 1) {
        value = 3;
    }
    for (int i = from; i > 0; i--) {
        last[i] = last[i - 1];
    }
    last[0] = offset;
    return value;
}

/* Those from the anchor on; in steps, because most are few. */
static inline void take_literals(struct zstd_block_encoder *e, struct search *s, size_t count) {
    const uint8_t *from = s->data + s->anchor;
    uint8_t *to = e->literals + s->literal_count;
    for (size_t done = 0; done < count; done += PAD_BYTES) {
        memcpy(to + done, from + done, PAD_BYTES);
    }
    s->literal_count += count;
}

static void take_match(struct zstd_block_encoder *e, struct search *s, const struct match *m) {
    size_t literals = m->at - s->anchor;
    struct sequence *q = &e->sequences[s->sequence_count++];
    take_literals(e, s, literals);
    q->literals = (uint16_t)literals;
    q->length = (uint16_t)m->length;
    q->offset = (uint16_t)offset_value(s, m->offset, literals > 0);
    s->anchor = m->at + m->length;
}

/* Bytes in front of both ends that are equal as well. */
static void extend_back(const struct search *s, struct match *m) {
    while (m->at > s->anchor && m->at > m->offset &&
           s->data[m->at - 1] == s->data[m->at - 1 - m->offset]) {
        m->at--;
        m->length++;
    }
}

/* Takes the matches at one offset, from `at` to the end of the repeat or beyond it. Returns where
 * that is. */
static size_t
follow(struct zstd_block_encoder *e, struct search *s, const struct zstd_repeat *r, size_t at) {
    while (at < r->end) {
        struct match m = {.at = at, .offset = r->offset};
        m.length = common_bytes(s, at - r->offset, at);
        size_t least = r->offset == s->offsets[0] ? MIN_REPEAT : MIN_FOLLOWED;
        if (m.length >= least) {
            take_match(e, s, &m);
        }
        at += m.length + (m.length < least);
    }
    return at;
}

static void find_matches(struct zstd_block_encoder *e,
                         struct search *s,
                         const struct zstd_repeat *repeats,
                         size_t repeat_count) {
    size_t end = s->size_bytes < WORD_BYTES ? 0 : s->size_bytes - WORD_BYTES + 1;
    memset(e->places, 0, sizeof(e->places));
    for (size_t at = 1; at < FIRST_AT && at < end; at++) {
        take_place(e->places, s->data, at);
    }
    for (size_t at = FIRST_AT; at < end;) {
        for (; repeat_count > 0 && repeats->end <= at; repeat_count--) {
            repeats++;
        }
        if (repeat_count > 0 && repeats->begin <= at) {
            at = follow(e, s, repeats, at);
            continue;
        }
        size_t stop = repeat_count > 0 && repeats->begin < end ? repeats->begin : end;
        at = pass_literals(e->places, s, at, stop);
        if (at == stop) {
            continue;
        }
        struct match m = choose_match(s, at, take_place(e->places, s->data, at));
        if (m.gain <= 0) {
            at++;
            continue;
        }
        extend_back(s, &m);
        take_match(e, s, &m);
        at = s->anchor;
        if (at < end) { /* what follows a match is a good place to find again */
            take_place(e->places, s->data, at - 2);
        }
    }
    take_literals(e, s, s->size_bytes - s->anchor);
}

/* ---- sequences --------------------------------------------------------------------------------
 */

static unsigned code_of(const struct code_book *b,
                        unsigned code_count,
                        const uint8_t *small,
                        size_t small_count,
                        uint32_t value) {
    if (value - b->base[0] < small_count) {
        return small[value - b->base[0]];
    }
    unsigned code = code_count - 1;
    while (b->base[code] > value) {
        code--;
    }
    return code;
}

/* The three codes of a sequence, and their extra bits. */
struct coded {
    unsigned literal, length, offset;
    uint32_t literal_bits, length_bits, offset_bits;
};

static struct coded code_sequence(const struct zstd_block_encoder *e, const struct sequence *q) {
    struct coded c;
    c.literal = code_of(&e->literal_book, LITERAL_CODES, e->small_literals,
                        sizeof(e->small_literals), q->literals);
    c.length = code_of(&e->length_book, LENGTH_CODES, e->small_lengths, sizeof(e->small_lengths),
                       q->length);
    c.offset = 31u - (unsigned)__builtin_clz(q->offset);
    c.literal_bits = q->literals - e->literal_book.base[c.literal];
    c.length_bits = q->length - e->length_book.base[c.length];
    c.offset_bits = q->offset - (1u << c.offset);
    return c;
}

static void add_extra(const struct zstd_block_encoder *e, struct bit_writer *w, struct coded c) {
    bits_add(w, c.literal_bits, e->literal_book.extra[c.literal]);
    bits_add(w, c.length_bits, e->length_book.extra[c.length]);
    bits_add(w, c.offset_bits, c.offset);
    bits_flush(w);
}

/* What the offsets' codes cost with a table, in sixteenths of a bit. */
static uint32_t cost_of(const struct zstd_block_encoder *e,
                        const struct fse_table *t,
                        const uint16_t counts[OFFSET_CODES]) {
    uint32_t cost = 0;
    for (unsigned c = 0; c < OFFSET_CODES; c++) {
        cost += counts[c] * (16u * OFFSET_LOG - e->log_16[t->symbols[c].count]);
    }
    return cost;
}

/* A table for these very offsets, where it and its description take less than the standard's. The
 * description goes to `at`. Returns its end; `at` where the standard's is better. */
static uint8_t *fit_offsets(struct zstd_block_encoder *e, size_t count, uint8_t *at, uint8_t *end) {
    enum { WORTH_IT = 24, DESCRIPTION_BYTES = 24 };
    uint16_t counts[OFFSET_CODES] = {0};
    int16_t cells[OFFSET_CODES + 1] = {0};
    struct bit_writer w;
    if (count < WORTH_IT || end - at < DESCRIPTION_BYTES) {
        return at;
    }
    for (size_t i = 0; i < count; i++) {
        counts[31u - (unsigned)__builtin_clz(e->sequences[i].offset)]++;
    }
    if (!fse_fit(cells, counts, OFFSET_CODES, (unsigned)count, OFFSET_LOG)) {
        return at;
    }
    bits_open(&w, at, end);
    fse_describe(&w, cells, OFFSET_LOG);
    uint8_t *behind = w.at + (w.count > 0);
    fse_build(&e->own_offset_table, cells, OFFSET_CODES, OFFSET_LOG);
    uint32_t own = cost_of(e, &e->own_offset_table, counts) + 16 * 8 * (uint32_t)(behind - at);
    return own < cost_of(e, &e->offset_table, counts) ? behind : at;
}

/* Returns the end, NULL when it does not fit. */
static uint8_t *
write_sequences(struct zstd_block_encoder *e, size_t count, uint8_t *at, uint8_t *end) {
    enum { ONE_BYTE = 128, OWN_OFFSETS = 2 << 4 };
    if (end - at < 4) {
        return NULL;
    }
    if (count >= ONE_BYTE) {
        *at++ = (uint8_t)((count >> 8) + ONE_BYTE);
    }
    *at++ = (uint8_t)(count & 0xFF);
    if (count == 0) {
        return at;
    }
    uint8_t *modes = at++;
    uint8_t *tables_end = fit_offsets(e, count, at, end);
    const struct fse_table *offsets = tables_end > at ? &e->own_offset_table : &e->offset_table;
    *modes = tables_end > at ? OWN_OFFSETS : 0; /* 0: the standard's for all three */
    at = tables_end;
    struct bit_writer w;
    bits_open(&w, at, end);
    struct coded c = code_sequence(e, &e->sequences[count - 1]);
    uint32_t literal = fse_begin(&e->literal_table, c.literal);
    uint32_t length = fse_begin(&e->length_table, c.length);
    uint32_t offset = fse_begin(offsets, c.offset);
    add_extra(e, &w, c);
    for (size_t i = count - 1; i-- > 0;) {
        c = code_sequence(e, &e->sequences[i]);
        offset = fse_step(offsets, &w, offset, c.offset);
        length = fse_step(&e->length_table, &w, length, c.length);
        literal = fse_step(&e->literal_table, &w, literal, c.literal);
        bits_flush(&w);
        add_extra(e, &w, c);
    }
    bits_add(&w, length & ((1u << LENGTH_LOG) - 1), LENGTH_LOG);
    bits_add(&w, offset & ((1u << OFFSET_LOG) - 1), OFFSET_LOG);
    bits_add(&w, literal & ((1u << LITERAL_LOG) - 1), LITERAL_LOG);
    bits_flush(&w);
    return bits_close(&w);
}

size_t zstd_block_encode(struct zstd_block_encoder *e,
                         uint8_t *out,
                         const uint8_t *data,
                         size_t size_bytes,
                         const struct zstd_repeat *repeats,
                         size_t repeat_count) {
    struct search s = {.data = e->data, .size_bytes = size_bytes, .offsets = {1, 4, 8}};
    if (size_bytes == 0 || size_bytes >= ZSTD_BLOCK_MAX_BYTES) {
        return 0;
    }
    memcpy(e->data, data, size_bytes);
    memset(e->data + size_bytes, 0, PAD_BYTES);
    find_matches(e, &s, repeats, repeat_count);
    size_t literals = literals_encode(out, size_bytes - 1, e->literals, s.literal_count);
    if (literals == 0) {
        return 0;
    }
    uint8_t *end = write_sequences(e, s.sequence_count, out + literals, out + size_bytes - 1);
    return end ? (size_t)(end - out) : 0;
}
