/*
 * The entropy coding of zstd's blocks, RFC 8878 sections 4.1 and 4.2: finite state entropy, and
 * Huffman codes for literals.
 *
 * FSE by its definition: a symbol that owns c of the table's cells has the sub-states c .. 2c - 1,
 * one for each cell in ascending order. From a state x, counted from the table's size on, a step
 * drops low bits until what is left is a sub-state, and goes to the cell of that.
 */
#include <string.h>

#include "formats/shard/zstd_block_internal.h"

static unsigned high_bit(uint32_t v) {
    return 31u - (unsigned)__builtin_clz(v);
}

void fse_build(struct fse_table *t, const int16_t *counts, unsigned symbol_count, unsigned log) {
    uint32_t size = 1u << log;
    uint32_t step = (size >> 1) + (size >> 3) + 3;
    uint32_t high = size;
    uint8_t owner[1 << FSE_MAX_LOG];
    uint16_t next[FSE_MAX_SYMBOLS];
    uint16_t first = 0;
    t->log = log;
    for (unsigned s = 0; s < symbol_count; s++) {
        uint16_t count = (uint16_t)(counts[s] < 0 ? 1 : counts[s]);
        struct fse_symbol *symbol = &t->symbols[s];
        *symbol = (struct fse_symbol){.count = count, .first = first};
        if (count > 0) {
            symbol->bits = (uint16_t)(log - high_bit(count));
            symbol->edge = (uint16_t)(count << symbol->bits);
        }
        next[s] = first;
        first = (uint16_t)(first + count);
        if (counts[s] < 0) {
            owner[--high] = (uint8_t)s;
        }
    }
    uint32_t at = 0;
    for (unsigned s = 0; s < symbol_count; s++) {
        for (int i = 0; i < counts[s]; i++) {
            owner[at] = (uint8_t)s;
            do {
                at = (at + step) & (size - 1);
            } while (at >= high);
        }
    }
    for (uint32_t cell = 0; cell < size; cell++) {
        t->cells[next[owner[cell]]++] = (uint16_t)cell;
    }
}

bool fse_fit(int16_t *cells,
             const uint16_t *counts,
             unsigned symbol_count,
             unsigned total,
             unsigned log) {
    int left = 1 << log;
    unsigned most = 0;
    for (unsigned s = 0; s < symbol_count; s++) {
        unsigned share = ((unsigned)counts[s] << log) + total / 2;
        cells[s] = (int16_t)(counts[s] == 0 ? 0 : share < total ? 1 : share / total);
        left -= cells[s];
        most = cells[s] > cells[most] ? s : most;
        if (counts[s] == total) {
            return false;
        }
    }
    while (left < 0) { /* many rare ones have been given a cell */
        most = 0;
        for (unsigned s = 1; s < symbol_count; s++) {
            most = cells[s] > cells[most] ? s : most;
        }
        cells[most]--;
        left++;
    }
    cells[most] = (int16_t)(cells[most] + left);
    return cells[most] < 1 << log;
}

/* Each count in as few bits as what is left allows. */
void fse_describe(struct bit_writer *w, const int16_t *cells, unsigned log) {
    uint32_t left = 1u << log;
    bits_add(w, log - 5, 4);
    for (unsigned s = 0; left > 0; s++) {
        unsigned bits = high_bit(left + 1) + 1;
        uint32_t half = 1u << (bits - 1);
        uint32_t shorter = 2 * half - 1 - (left + 1); /* values that need one bit less */
        uint32_t count = (uint16_t)cells[s];
        uint32_t value = count + 1;
        left -= count;
        bits_add(w, value < half ? value : value + shorter, value < shorter ? bits - 1 : bits);
        bits_flush(w);
        if (cells[s] == 0) { /* and how many zeros follow */
            unsigned zeros = 0;
            while (cells[s + 1 + zeros] == 0) {
                zeros++;
            }
            s += zeros;
            for (; zeros >= 3; zeros -= 3) {
                bits_add(w, 3, 2);
            }
            bits_add(w, zeros, 2);
            bits_flush(w);
        }
    }
}

/* ---- Huffman codes ----------------------------------------------------------------------------
 */

enum {
    SYMBOLS = 256,
    RARE_COUNT = 64,          /* symbols that come less often are sorted by counting */
    DIRECT_MAX_WEIGHTS = 128, /* that can be stored as they are, two in a byte */
    DIRECT_BASE = 127,
    MAX_DESCRIPTION_BYTES = 128, /* with its first byte */
    WEIGHTS_LOG = 5,
    WEIGHTS_LOG_MANY = 6,
    MANY_WEIGHTS = 128,
    RAW_BELOW = 24,     /* so few literals do not pay a description */
    ONE_STREAM = 1023,  /* literals that may be in a single stream */
    JUMP_BYTES = 6,     /* sizes of the first three streams of four */
    TEN_BITS = 1 << 10, /* sizes below it have the shorter header */
};

enum literals_type { LITERALS_RAW, LITERALS_RLE, LITERALS_COMPRESSED };

struct huffman {
    uint16_t codes[SYMBOLS];
    uint8_t bits[SYMBOLS]; /* 0: the symbol does not come */
    unsigned last;         /* symbol that comes */
    unsigned max_bits;
    uint32_t total_bits; /* of all literals */
};

/* The symbols that come, the rarest first; of equal ones the lower first. */
static unsigned
sort_symbols(uint8_t order[SYMBOLS], const uint32_t counts[SYMBOLS], unsigned last) {
    uint8_t present[SYMBOLS];
    unsigned places[RARE_COUNT + 2] = {0};
    unsigned n = 0;
    for (unsigned s = 0; s <= last; s++) {
        present[n] = (uint8_t)s;
        n += counts[s] > 0;
    }
    for (unsigned i = 0; i < n; i++) {
        uint32_t count = counts[present[i]];
        places[(count < RARE_COUNT ? count : RARE_COUNT) + 1]++;
    }
    for (unsigned i = 1; i <= RARE_COUNT; i++) {
        places[i + 1] += places[i];
    }
    unsigned rare = places[RARE_COUNT];
    for (unsigned i = 0; i < n; i++) {
        uint32_t count = counts[present[i]];
        order[places[count < RARE_COUNT ? count : RARE_COUNT]++] = present[i];
    }
    for (unsigned i = rare + 1; i < n; i++) {
        uint8_t s = order[i];
        unsigned to = i;
        for (; to > rare && counts[order[to - 1]] > counts[s]; to--) {
            order[to] = order[to - 1];
        }
        order[to] = s;
    }
    return n;
}

/* How many codes of each length the best tree has, over counts that ascend: the two smallest nodes
 * of leaves and inner nodes join, again and again; both queues ascend by themselves. Which of the
 * two is next cannot be foretold, so nothing branches on it: behind the last of each is one that is
 * never taken. */
static void tree_lengths(uint16_t lengths[SYMBOLS], uint32_t leaves[SYMBOLS + 1], unsigned n) {
    uint32_t inner[SYMBOLS + 1];
    uint16_t parents[2 * SYMBOLS]; /* of inner nodes, of leaves */
    uint8_t depth[SYMBOLS];
    unsigned leaf = 0;
    unsigned node = 0;
    leaves[n] = UINT32_MAX;
    inner[0] = UINT32_MAX;
    for (unsigned made = 0; made < n - 1; made++) {
        uint32_t sum = 0;
        for (int i = 0; i < 2; i++) {
            uint32_t a = leaves[leaf];
            uint32_t b = inner[node];
            unsigned takes_leaf = a <= b;
            sum += takes_leaf ? a : b;
            parents[takes_leaf ? SYMBOLS + leaf : node] = (uint16_t)made;
            leaf += takes_leaf;
            node += 1 - takes_leaf;
        }
        inner[made] = sum;
        inner[made + 1] = UINT32_MAX;
    }
    depth[n - 2] = 0;
    for (unsigned i = n - 2; i-- > 0;) {
        depth[i] = (uint8_t)(depth[parents[i]] + 1);
    }
    memset(lengths, 0, SYMBOLS * sizeof(*lengths));
    for (unsigned i = 0; i < n; i++) {
        lengths[depth[parents[SYMBOLS + i]] + 1]++;
    }
}

/* Makes lengths beyond the limit shorter: two leaves that are too deep hang below one that is not,
 * and it goes down with them. */
static void limit_lengths(uint16_t lengths[SYMBOLS]) {
    unsigned over = 0;
    for (unsigned i = HUFFMAN_MAX_BITS + 1; i < SYMBOLS; i++) {
        over += lengths[i];
    }
    /* In units of the deepest leaves, what they take beyond the room there is. */
    uint32_t room = 1u << HUFFMAN_MAX_BITS;
    uint32_t taken = over;
    lengths[HUFFMAN_MAX_BITS] = (uint16_t)(lengths[HUFFMAN_MAX_BITS] + over);
    for (unsigned i = 1; i < HUFFMAN_MAX_BITS; i++) {
        taken += (uint32_t)lengths[i] << (HUFFMAN_MAX_BITS - i);
    }
    taken += lengths[HUFFMAN_MAX_BITS] - over;
    while (taken > room) {
        unsigned from = HUFFMAN_MAX_BITS - 1;
        while (lengths[from] == 0) {
            from--;
        }
        lengths[from]--;
        lengths[from + 1] += 2;
        lengths[HUFFMAN_MAX_BITS]--;
        taken--;
    }
}

/* Codes by their lengths: the longest begin at 0, symbols of a length ascend. */
static void assign_codes(struct huffman *h, const uint16_t lengths[SYMBOLS]) {
    uint16_t next[HUFFMAN_MAX_BITS + 2] = {0};
    uint32_t code = 0;
    for (unsigned bits = h->max_bits; bits > 0; bits--) {
        next[bits] = (uint16_t)code;
        code = (code + lengths[bits]) >> 1;
    }
    for (unsigned s = 0; s <= h->last; s++) {
        if (h->bits[s] > 0) {
            h->codes[s] = next[h->bits[s]]++;
        }
    }
}

/* False: fewer than two symbols come. */
static bool huffman_build(struct huffman *h, const uint32_t counts[SYMBOLS], unsigned last) {
    uint8_t order[SYMBOLS];
    uint32_t sorted[SYMBOLS + 1];
    uint16_t lengths[SYMBOLS];
    unsigned n = sort_symbols(order, counts, last);
    if (n < 2) {
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        sorted[i] = counts[order[i]];
    }
    tree_lengths(lengths, sorted, n);
    limit_lengths(lengths);
    h->last = last;
    h->total_bits = 0;
    h->max_bits = 0;
    memset(h->bits, 0, last + 1);
    unsigned bits = HUFFMAN_MAX_BITS;
    unsigned left = lengths[bits];
    for (unsigned i = 0; i < n; i++) {
        while (left == 0) {
            left = lengths[--bits];
        }
        left--;
        h->max_bits = h->max_bits > 0 ? h->max_bits : bits;
        h->bits[order[i]] = (uint8_t)bits;
        h->total_bits += sorted[i] * bits;
    }
    assign_codes(h, lengths);
    return true;
}

/* ---- the description of a code ------------------------------------------------------------------
 */

/* Weights in two interleaved states, behind their table. Returns the size, 0 where it does not
 * work. */
static size_t pack_weights(uint8_t *out, size_t room, const uint8_t *weights, unsigned n) {
    uint16_t counts[HUFFMAN_MAX_BITS + 1] = {0};
    int16_t cells[HUFFMAN_MAX_BITS + 2] = {0};
    struct fse_table table;
    struct bit_writer w;
    unsigned log = n > MANY_WEIGHTS ? WEIGHTS_LOG_MANY : WEIGHTS_LOG;
    for (unsigned i = 0; i < n; i++) {
        counts[weights[i]]++;
    }
    if (n < 3 || !fse_fit(cells, counts, HUFFMAN_MAX_BITS + 1, n, log)) {
        return 0;
    }
    bits_open(&w, out, out + room);
    fse_describe(&w, cells, log);
    uint8_t *begin = w.at + (w.count > 0);
    fse_build(&table, cells, HUFFMAN_MAX_BITS + 1, log);
    bool overflow = w.overflow;
    bits_open(&w, begin, out + room);
    uint32_t states[2]; /* of the weights with even and odd numbers */
    states[(n - 1) & 1] = fse_begin(&table, weights[n - 1]);
    states[n & 1] = fse_begin(&table, weights[n - 2]);
    for (unsigned i = n - 2; i-- > 0;) {
        states[i & 1] = fse_step(&table, &w, states[i & 1], weights[i]);
        if (i % 8 == 0) { /* at most 48 bits */
            bits_flush(&w);
        }
    }
    bits_add(&w, states[1] & ((1u << log) - 1), log);
    bits_add(&w, states[0] & ((1u << log) - 1), log);
    bits_flush(&w);
    uint8_t *end = bits_close(&w);
    return overflow || !end ? 0 : (size_t)(end - out);
}

/* Returns the size; 0: this code cannot be described. */
static size_t write_description(uint8_t out[MAX_DESCRIPTION_BYTES + 8], const struct huffman *h) {
    uint8_t weights[SYMBOLS];
    unsigned n = h->last; /* that of the last symbol follows from the others */
    for (unsigned s = 0; s < n; s++) {
        weights[s] = (uint8_t)(h->bits[s] > 0 ? h->max_bits + 1 - h->bits[s] : 0);
    }
    size_t packed = pack_weights(out + 1, MAX_DESCRIPTION_BYTES - 1, weights, n);
    size_t direct = (n + 1) / 2;
    if (packed > 0 && (packed < direct || n > DIRECT_MAX_WEIGHTS)) {
        out[0] = (uint8_t)packed;
        return 1 + packed;
    }
    if (n > DIRECT_MAX_WEIGHTS) {
        return 0;
    }
    weights[n] = 0;
    out[0] = (uint8_t)(DIRECT_BASE + n);
    for (unsigned i = 0; i < direct; i++) {
        out[1 + i] = (uint8_t)(weights[2 * i] << 4 | weights[2 * i + 1]);
    }
    return 1 + direct;
}

/* ---- literals ---------------------------------------------------------------------------------
 */

/* Returns the end; NULL when it does not fit. */
static uint8_t *write_stream(uint8_t *at,
                             uint8_t *end,
                             const struct huffman *h,
                             const uint8_t *data,
                             size_t size_bytes) {
    enum { GROUP = 5 }; /* as many codes as go between two flushes */
    struct bit_writer w;
    size_t i = size_bytes;
    bits_open(&w, at, end);
    while (i % GROUP != 0) {
        i--;
        bits_add(&w, h->codes[data[i]], h->bits[data[i]]);
    }
    bits_flush(&w);
    while (i > 0) {
        for (int k = 0; k < GROUP; k++) {
            i--;
            bits_add(&w, h->codes[data[i]], h->bits[data[i]]);
        }
        bits_flush(&w);
    }
    return bits_close(&w);
}

/* Description and streams. Returns the size, 0 when it does not fit. */
static size_t write_compressed(uint8_t *out,
                               size_t room,
                               const struct huffman *h,
                               const uint8_t *data,
                               size_t size_bytes) {
    uint8_t description[MAX_DESCRIPTION_BYTES + 8];
    size_t described = write_description(description, h);
    bool one = size_bytes <= ONE_STREAM;
    size_t piece = one ? size_bytes : (size_bytes + 3) / 4;
    if (described == 0 || described + h->total_bits / 8 + (one ? 1 : JUMP_BYTES + 4) > room) {
        return 0;
    }
    memcpy(out, description, described);
    uint8_t *jump = out + described;
    uint8_t *at = jump + (one ? 0 : JUMP_BYTES);
    for (size_t done = 0; done < size_bytes; done += piece) {
        size_t left = size_bytes - done;
        uint8_t *begin = at;
        at = write_stream(begin, out + room, h, data + done, left < piece ? left : piece);
        if (!at) {
            return 0;
        }
        if (left > piece) {
            *jump++ = (uint8_t)((at - begin) & 0xFF);
            *jump++ = (uint8_t)((at - begin) >> 8);
        }
    }
    return (size_t)(at - out);
}

static size_t write_plain(uint8_t *out,
                          size_t room,
                          enum literals_type type,
                          const uint8_t *data,
                          size_t size_bytes) {
    size_t header = size_bytes < 32 ? 1 : size_bytes < 4096 ? 2 : 3;
    size_t body = type == LITERALS_RLE ? 1 : size_bytes;
    if (header + body > room) {
        return 0;
    }
    uint32_t v = header == 1   ? (uint32_t)size_bytes << 3
                 : header == 2 ? (uint32_t)size_bytes << 4 | 1u << 2
                               : (uint32_t)size_bytes << 4 | 3u << 2;
    v |= (uint32_t)type;
    for (size_t i = 0; i < header; i++) {
        out[i] = (uint8_t)(v >> 8 * i);
    }
    memcpy(out + header, data, body);
    return header + body;
}

size_t literals_encode(uint8_t *out, size_t room, const uint8_t *data, size_t size_bytes) {
    uint32_t counts[SYMBOLS] = {0};
    struct huffman h;
    unsigned last = SYMBOLS - 1;
    if (size_bytes < RAW_BELOW) {
        return write_plain(out, room, LITERALS_RAW, data, size_bytes);
    }
    for (size_t i = 0; i < size_bytes; i++) {
        counts[data[i]]++;
    }
    while (counts[last] == 0) {
        last--;
    }
    if (!huffman_build(&h, counts, last)) {
        return write_plain(out, room, LITERALS_RLE, data, size_bytes);
    }
    size_t header = size_bytes < TEN_BITS ? 3 : 4;
    size_t limit = size_bytes < room ? size_bytes : room;
    size_t packed =
        limit > header ? write_compressed(out + header, limit - header, &h, data, size_bytes) : 0;
    if (packed == 0) {
        return write_plain(out, room, LITERALS_RAW, data, size_bytes);
    }
    uint32_t format = size_bytes <= ONE_STREAM ? 0U : 2U;
    uint32_t v = (uint32_t)LITERALS_COMPRESSED | format << 2 | (uint32_t)size_bytes << 4 |
                 (uint32_t)packed << (format == 0 ? 14 : 18);
    for (size_t i = 0; i < header; i++) {
        out[i] = (uint8_t)(v >> 8 * i);
    }
    return header + packed;
}
