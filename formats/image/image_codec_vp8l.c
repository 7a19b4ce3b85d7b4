/*
 * How many sets of code tables a lossless WebP stream asks for. libwebp allocates them, some 10 KiB
 * each, as soon as it has read their number, and up to 65,536 of them for a file of 300 KiB; it has
 * no limit to set. So the number is read here first: the stream up to the image that gives each
 * tile its set, and of that image which numbers occur. Pixels are not made.
 *
 *     transforms (each with a small image) | cache? | tiles of sets? -> image | sets ...
 *     image  cache? | one set | symbols: literal, copy, cached
 *     set      5 codes: green + copy lengths + cached, red, blue, alpha, distance
 *
 * Bits are read from each byte's low end; codes are canonical, their first bit first.
 */
#include <string.h>

#include "formats/image/image_codec_internal.h"

enum {
    MAX_CODE_BITS = 15,
    LENGTH_SYMBOLS = 19, /* of the code that code lengths are coded by */
    COPY_SYMBOLS = 24,   /* of green, after 256 literals */
    DISTANCE_SYMBOLS = 40,
    MAX_CACHE_BITS = 11,
    MAX_GREEN_SYMBOLS = 256 + COPY_SYMBOLS + (1 << MAX_CACHE_BITS),
    ALL_SETS = 1 << 16,
    SPARSE_SETS = 1000, /* beyond it, libwebp makes only those sets that occur */
    NO_SYMBOL = -1,
};

/* ------------------------------------------------------------------------------------- bits */

struct bits {
    const uint8_t *data;
    size_t size_bytes;
    uint64_t at, end; /* bits */
    bool over;        /* read past the end */
};

static uint32_t read_bits(struct bits *b, unsigned count) {
    if (count > b->end - b->at) {
        b->over = true;
        b->at = b->end;
        return 0;
    }
    uint64_t value = 0;
    size_t byte = (size_t)(b->at >> 3);
    for (unsigned i = 0; i < 5 && byte + i < b->size_bytes; i++) {
        value |= (uint64_t)b->data[byte + i] << (8 * i);
    }
    value >>= b->at & 7;
    b->at += count;
    return (uint32_t)(value & ((UINT64_C(1) << count) - 1));
}

/* ------------------------------------------------------------------------------------ codes */

struct code {
    int only;                          /* the one symbol, which takes no bits, or NO_SYMBOL */
    uint16_t count[MAX_CODE_BITS + 1]; /* codes of each length */
    uint16_t *symbols;                 /* by length, then by symbol */
};

/* False where the lengths are no complete code. */
static bool build_code(struct code *c, const uint8_t *lengths, uint32_t symbol_count) {
    uint16_t next[MAX_CODE_BITS + 2] = {0};
    uint32_t used = 0;
    memset(c->count, 0, sizeof(c->count));
    for (uint32_t s = 0; s < symbol_count; s++) {
        c->count[lengths[s]]++;
        used += lengths[s] != 0;
    }
    c->count[0] = 0;
    int32_t left = 1;
    for (int n = 1; n <= MAX_CODE_BITS; n++) {
        left = 2 * left - c->count[n];
        if (left < 0) {
            return false;
        }
        next[n + 1] = (uint16_t)(next[n] + c->count[n]);
    }
    for (uint32_t s = 0; s < symbol_count; s++) {
        if (lengths[s] != 0) {
            c->symbols[next[lengths[s]]++] = (uint16_t)s;
        }
    }
    c->only = used == 1 ? c->symbols[0] : NO_SYMBOL;
    return used == 1 || (used > 1 && left == 0);
}

static uint32_t read_symbol(struct bits *b, const struct code *c) {
    if (c->only != NO_SYMBOL) {
        return (uint32_t)c->only;
    }
    uint32_t code = 0;
    uint32_t first = 0;
    uint32_t index = 0;
    for (int n = 1; n <= MAX_CODE_BITS; n++) {
        code |= read_bits(b, 1);
        if (code - first < c->count[n]) {
            return c->symbols[index + code - first];
        }
        index += c->count[n];
        first = (first + c->count[n]) << 1;
        code <<= 1;
    }
    b->over = true; /* not reached: the code is complete */
    return 0;
}

/* Code lengths, themselves coded. */
static bool read_lengths(struct bits *b, uint8_t *lengths, uint32_t symbol_count) {
    static const uint8_t order[LENGTH_SYMBOLS] = {17, 18, 0, 1,  2,  3,  4,  5,  16, 6,
                                                  7,  8,  9, 10, 11, 12, 13, 14, 15};
    static const uint8_t extra_bits[3] = {2, 3, 7};
    static const uint8_t extra_from[3] = {3, 3, 11};
    uint8_t own_lengths[LENGTH_SYMBOLS] = {0};
    uint16_t own_symbols[LENGTH_SYMBOLS];
    struct code own = {.symbols = own_symbols};
    uint32_t own_count = read_bits(b, 4) + 4;
    for (uint32_t i = 0; i < own_count; i++) {
        own_lengths[order[i]] = (uint8_t)read_bits(b, 3);
    }
    if (!build_code(&own, own_lengths, LENGTH_SYMBOLS)) {
        return false;
    }
    uint32_t codes = symbol_count;
    if (read_bits(b, 1) != 0) {
        uint32_t width = 2 + 2 * read_bits(b, 3);
        codes = 2 + read_bits(b, width);
        if (codes > symbol_count) {
            return false;
        }
    }
    uint8_t former = 8;
    uint32_t s = 0;
    for (; codes > 0 && s < symbol_count && !b->over; codes--) {
        uint32_t length = read_symbol(b, &own);
        if (length < 16) {
            lengths[s++] = (uint8_t)length;
            former = length != 0 ? (uint8_t)length : former;
            continue;
        }
        uint32_t times = extra_from[length - 16] + read_bits(b, extra_bits[length - 16]);
        if (times > symbol_count - s) {
            return false;
        }
        memset(lengths + s, length == 16 ? former : 0, times);
        s += times;
    }
    return true;
}

static bool read_code(struct bits *b, struct code *c, uint32_t symbol_count) {
    uint8_t lengths[MAX_GREEN_SYMBOLS] = {0};
    if (read_bits(b, 1) != 0) {
        uint32_t symbols = 1 + read_bits(b, 1);
        unsigned width = read_bits(b, 1) != 0 ? 8 : 1;
        lengths[read_bits(b, width)] = 1;
        if (symbols == 2) {
            lengths[read_bits(b, 8)] = 1;
        }
    } else if (!read_lengths(b, lengths, symbol_count)) {
        return false;
    }
    return build_code(c, lengths, symbol_count) && !b->over;
}

/* --------------------------------------------------------------------------------- images */

/* A length or a distance. */
static uint32_t read_copy_value(struct bits *b, uint32_t symbol) {
    if (symbol < 4) {
        return symbol + 1;
    }
    unsigned extra = (symbol - 2) >> 1;
    return ((2 + (symbol & 1)) << extra) + read_bits(b, extra) + 1;
}

/* 0 without a cache. */
static bool read_cache_bits(struct bits *b, uint32_t *cache_bits) {
    *cache_bits = 0;
    if (read_bits(b, 1) == 0) {
        return !b->over;
    }
    *cache_bits = read_bits(b, 4);
    return *cache_bits >= 1 && *cache_bits <= MAX_CACHE_BITS;
}

/* The numbers that an image of tiles names; only its literals can bring new ones. */
struct set_numbers {
    uint32_t largest, count;
    uint8_t seen[ALL_SETS / 8];
};

static void see_number(struct set_numbers *numbers, uint32_t number) {
    uint8_t bit = (uint8_t)(1 << (number & 7));
    numbers->count += (numbers->seen[number >> 3] & bit) == 0;
    numbers->seen[number >> 3] |= bit;
    numbers->largest = number > numbers->largest ? number : numbers->largest;
}

/* Passes over an image inside the stream; `numbers` may be NULL. */
static bool pass_image(struct bits *b, uint64_t pixel_count, struct set_numbers *numbers) {
    uint16_t green[MAX_GREEN_SYMBOLS];
    uint16_t others[3][256];
    uint16_t distance[DISTANCE_SYMBOLS];
    struct code codes[5] = {{.symbols = green},
                            {.symbols = others[0]},
                            {.symbols = others[1]},
                            {.symbols = others[2]},
                            {.symbols = distance}};
    uint32_t cache_bits;
    if (!read_cache_bits(b, &cache_bits)) {
        return false;
    }
    uint32_t green_symbols = 256 + COPY_SYMBOLS + (cache_bits > 0 ? 1U << cache_bits : 0);
    for (int i = 0; i < 5; i++) {
        uint32_t symbol_count = i == 0 ? green_symbols : i == 4 ? DISTANCE_SYMBOLS : 256;
        if (!read_code(b, &codes[i], symbol_count)) {
            return false;
        }
    }
    uint64_t before = UINT64_MAX;
    /* A pixel that took no bits is like all that follow: the work is bounded by the stream. */
    while (pixel_count > 0 && !b->over && b->at != before) {
        before = b->at;
        uint32_t symbol = read_symbol(b, &codes[0]);
        if (symbol < 256) {
            uint32_t red = read_symbol(b, &codes[1]);
            read_symbol(b, &codes[2]);
            read_symbol(b, &codes[3]);
            pixel_count--;
            if (numbers != NULL) {
                see_number(numbers, red << 8 | symbol);
            }
        } else if (symbol < 256 + COPY_SYMBOLS) {
            uint32_t length = read_copy_value(b, symbol - 256);
            read_copy_value(b, read_symbol(b, &codes[4]));
            if (length > pixel_count) {
                return false;
            }
            pixel_count -= length;
        } else {
            pixel_count--;
        }
    }
    return !b->over;
}

static uint32_t tiles(uint32_t side_px, uint32_t tile_bits) {
    return (side_px + (1U << tile_bits) - 1) >> tile_bits;
}

static bool pass_transforms(struct bits *b, uint32_t *width_px, uint32_t height_px) {
    enum { PREDICTOR, CROSS_COLOUR, SUBTRACT_GREEN, COLOUR_INDEX };
    uint32_t seen = 0;
    while (read_bits(b, 1) != 0) {
        uint32_t kind = read_bits(b, 2);
        if ((seen & 1U << kind) != 0) {
            return false;
        }
        seen |= 1U << kind;
        uint64_t pixels = 0;
        if (kind == PREDICTOR || kind == CROSS_COLOUR) {
            uint32_t tile_bits = 2 + read_bits(b, 3);
            pixels = (uint64_t)tiles(*width_px, tile_bits) * tiles(height_px, tile_bits);
        } else if (kind == COLOUR_INDEX) {
            uint32_t colours = 1 + read_bits(b, 8);
            *width_px = tiles(*width_px, colours > 16 ? 0 : colours > 4 ? 1 : colours > 2 ? 2 : 3);
            pixels = colours;
        }
        if (pixels > 0 && !pass_image(b, pixels, NULL)) {
            return false;
        }
    }
    return !b->over;
}

/* Sets and the cache's size; false where the stream is damaged before they are known. */
static bool count_sets(struct bits *b,
                       uint32_t width_px,
                       uint32_t height_px,
                       uint32_t *sets,
                       uint32_t *cache_bits) {
    struct set_numbers numbers = {.largest = 0};
    *sets = 1;
    if (!pass_transforms(b, &width_px, height_px) || !read_cache_bits(b, cache_bits)) {
        return false;
    }
    if (read_bits(b, 1) == 0) {
        return !b->over;
    }
    uint32_t tile_bits = 2 + read_bits(b, 3);
    uint64_t pixels = (uint64_t)tiles(width_px, tile_bits) * tiles(height_px, tile_bits);
    if (!pass_image(b, pixels, &numbers)) {
        return false;
    }
    /* A cached colour that nothing has set yet is number 0. */
    *sets = numbers.largest < SPARSE_SETS ? numbers.largest + 1 : numbers.count + 1;
    return true;
}

bool vp8l_table_bytes(uint64_t *out,
                      const uint8_t *stream,
                      size_t size_bytes,
                      uint32_t width_px,
                      uint32_t height_px) {
    /* libwebp takes the bits that its first 64 lack for zeros. */
    struct bits b = {.data = stream, .size_bytes = size_bytes, .end = (uint64_t)size_bytes * 8};
    b.end = b.end < 64 ? 64 : b.end;
    uint32_t sets, cache_bits;
    *out = 0;
    if (!count_sets(&b, width_px, height_px, &sets, &cache_bits)) {
        return false;
    }
    /* Per set: entries of 4 bytes for five codes, and pointers to them. Where sets are sparse, also
     * a map of their numbers. */
    uint64_t entries = 2960 + (cache_bits > 0 ? UINT64_C(1) << cache_bits : 0);
    *out = sets * (entries * 4 + 640) + (sets > 1 ? ALL_SETS * sizeof(int) : 0);
    return true;
}
