/*
 * zstd_block: one compressed block of RFC 8878 from a small input, for what stands in front of the
 * pictures of a shard: a few tar headers and texts, for every sample anew. libzstd takes 13 us for
 * one of 3 KiB and most of them for setting up; this takes a quarter of that for the same size.
 *
 * Threading : an encoder has one owner; distinct ones are independent.
 * Ownership : create/destroy; the bytes are the caller's.
 * Untrusted : the data: any bytes will do.
 * Repeats   : the same input gives the same block, however the encoder was used before and
 *             whatever libzstd is installed.
 */
#ifndef FORMATS_SHARD_ZSTD_BLOCK_INTERNAL_H
#define FORMATS_SHARD_ZSTD_BLOCK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

enum { ZSTD_BLOCK_MAX_BYTES = 16 << 10 };

/* A part of the data that is, but for a few bytes, what stands `offset` bytes before it: known
 * beforehand of tar headers and padding, and so not searched for. */
struct zstd_repeat {
    uint32_t begin, end, offset;
};

struct zstd_block_encoder;

/* Returns OK or NOMEM. */
enum status zstd_block_encoder_create(struct zstd_block_encoder **out, struct error *err);
void zstd_block_encoder_destroy(struct zstd_block_encoder *e); /* accepts NULL */

/* The content of a compressed block, without its header, that stands for `data` when it is the
 * first block of a frame. Returns its size, less than size_bytes; 0 when it would be as large as
 * the data. `repeats` (may be NULL with 0) ascend and do not overlap; they only make it faster and
 * smaller, whatever is said there. Requires 1 <= offset <= begin <= end <= size_bytes of each,
 * 1 <= size_bytes < ZSTD_BLOCK_MAX_BYTES and room for size_bytes + 8 at `out`. */
size_t zstd_block_encode(struct zstd_block_encoder *e,
                         uint8_t *out,
                         const uint8_t *data,
                         size_t size_bytes,
                         const struct zstd_repeat *repeats,
                         size_t repeat_count);

/* ---- entropy coding: zstd_entropy.c -----------------------------------------------------------
 */

enum {
    FSE_MAX_LOG = 6,
    FSE_MAX_SYMBOLS = 53, /* of match lengths */
    HUFFMAN_MAX_BITS = 11,
};

/* Bits from the low end on; an encoder writes backwards, so that the decoder begins at the end. */
struct bit_writer {
    uint64_t bits;
    unsigned count; /* below 8 after a flush */
    uint8_t *at;
    uint8_t *end; /* 8 bytes must be there behind it */
    bool overflow;
};

/* At most 56 bits between two flushes. */
static inline void bits_add(struct bit_writer *w, uint64_t value, unsigned count) {
    w->bits |= value << w->count;
    w->count += count;
}

static inline void bits_flush(struct bit_writer *w) {
    unsigned bytes = w->count >> 3;
    if (w->at >= w->end) {
        w->overflow = true;
        w->at = w->end;
    }
    for (int i = 0; i < 8; i++) {
        w->at[i] = (uint8_t)(w->bits >> 8 * i);
    }
    w->at += bytes;
    w->bits >>= 8 * bytes;
    w->count &= 7u;
}

/* A table of finite state entropy: what each symbol does to a state. */
struct fse_table {
    unsigned log;
    uint16_t cells[1 << FSE_MAX_LOG]; /* of symbol 0 in ascending order, of symbol 1, ... */
    struct fse_symbol {
        uint16_t count; /* of cells; at least 1 where the symbol may come */
        uint16_t first; /* index of its first in cells */
        uint16_t bits;  /* that a step to it writes; one less from a state below `edge` */
        uint16_t edge;
    } symbols[FSE_MAX_SYMBOLS];
};

/* `counts` add up to 1 << log; -1 is a symbol that is rarer than a cell and gets one. */
void fse_build(struct fse_table *t, const int16_t *counts, unsigned symbol_count, unsigned log);

/* Cells for the symbols that come, each at least one, by how often they do. False: it is only one.
 * Requires no more of them than cells. */
bool fse_fit(int16_t *cells,
             const uint16_t *counts,
             unsigned symbol_count,
             unsigned total,
             unsigned log);

/* Writes what a decoder makes the table from; the writer is flushed. Requires cells that add up to
 * 1 << log. */
void fse_describe(struct bit_writer *w, const int16_t *cells, unsigned log);

/* The state behind which nothing but `symbol` comes. */
static inline uint32_t fse_begin(const struct fse_table *t, unsigned symbol) {
    return (1u << t->log) + t->cells[t->symbols[symbol].first];
}

/* The state before it, from which the decoder gets `symbol` and with the bits written `state`. */
static inline uint32_t
fse_step(const struct fse_table *t, struct bit_writer *w, uint32_t state, unsigned symbol) {
    const struct fse_symbol *s = &t->symbols[symbol];
    unsigned bits = (unsigned)s->bits - (state < s->edge ? 1U : 0U);
    bits_add(w, state & ((1u << bits) - 1), bits);
    return (1u << t->log) + t->cells[s->first + (state >> bits) - s->count];
}

static inline void bits_open(struct bit_writer *w, uint8_t *at, uint8_t *end) {
    *w = (struct bit_writer){.at = at, .end = end};
}

/* Ends with the bit that tells a decoder where to begin. Returns the byte behind the last; NULL:
 * there was not enough room. */
static inline uint8_t *bits_close(struct bit_writer *w) {
    bits_add(w, 1, 1);
    bits_flush(w);
    uint8_t *end = w->at + (w->count > 0);
    return w->overflow || end > w->end ? NULL : end;
}

/* Writes the literals section of a block: header and literals, compressed where that is shorter.
 * Returns its size; 0 when it does not fit into `room`. 8 bytes behind the room may be written.
 * Requires size_bytes < ZSTD_BLOCK_MAX_BYTES. */
size_t literals_encode(uint8_t *out, size_t room, const uint8_t *data, size_t size_bytes);

#endif
