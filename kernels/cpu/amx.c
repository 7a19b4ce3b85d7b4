/*
 * amx: dweight (O, KH, KW I) = sum over output pixels q of ddst[q, o] cols[q, ky, j], where row ky
 * under q is one stretch of the input: KW adjacent pixels of I channels, truncated at the borders.
 *
 * A product of tiles takes 16 o by 32 q times 32 q by 16 j. Its left side is ddst transposed, its
 * right side the stretches with pairs of pixels interleaved; both are made for a chunk of pixels at
 * a time, ddst's once, the stretches' for 32 columns of one ky, and stay in the second-level cache:
 *
 *     for each chunk: left; for each ky, each 32 columns: right; for each 32 o: 2 x 2 products
 *
 * Threads share the work by pixels if sums of parts are cheap, else by o. A part sums its pixels in
 * order, and parts are added in order: bit-identical for the same number of threads.
 *
 * Processor time of `ccbench step --tower image --precision bf16 -t 1 --steps 3`, setup included,
 * without it: 9 % more for resnet18 at 112 px with 16 pairs, 3 % for resnet50 at 224 px with 2.
 */
#include "kernels/cpu/amx.h"

#include <string.h>

#include "kernels/cpu/cpu_internal.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))

enum {
    TILE = 16,   /* rows of a tile, and its columns of 4 bytes */
    PIXELS = 32, /* of one product */
    WIDE = 32,   /* channels or columns taken at a time: two tiles */
    TILE_BYTES = 1024,
    QUAD_FLOATS = 4 * TILE * TILE, /* 32 o by 32 j: tiles (0,0), (0,1), (1,0), (1,1) */
    MAX_CHUNK = 256,
    LEFT_BYTES = 1 << 20, /* of a chunk: half of the second-level cache */
    SPLIT_BYTES = 1 << 20 /* sums up to here are kept once for each thread */
};

static bool has_tiles(void) {
    enum { BF16_BIT = 22, TILE_BIT = 24 };     /* leaf 7, EDX */
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512bw") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (d >> BF16_BIT & 1) != 0 && (d >> TILE_BIT & 1) != 0 &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

bool amx_works(void) {
    static _Atomic int answer; /* 0: not asked */
    if (answer == 0) {
        answer = has_tiles() ? 1 : -1;
    }
    return answer == 1;
}

struct plan {
    const struct conv_shape *shape;
    const uint16_t *ddst, *src;
    int64_t columns;     /* of one ky: KW I */
    int64_t o_blocks;    /* of 32 */
    int64_t j_blocks;    /* of 32, of one ky */
    int64_t pixel_parts; /* one of these two is 1 */
    int64_t o_parts;
    int64_t chunk; /* pixels */
    float *dweight;
    bool add;    /* to dweight */
    float *sums; /* [pixel part][ky][j block][o block][QUAD_FLOATS]; NULL: dweight itself */
    unsigned char *space; /* of each part: left, right, stretches */
    size_t space_bytes;
};

/* Where the stretch under a pixel begins, and which of its columns exist. */
struct stretch {
    int64_t offset, begin, end, unused; /* half a cache line */
};

/* Stretches of row ky under pixels [from, from + there); none under those up to `padded`. */
static void find_stretches(struct stretch *out,
                           const struct conv_shape *s,
                           int64_t from,
                           int64_t there,
                           int64_t padded,
                           int64_t ky) {
    int64_t ox = from % s->out_w;
    int64_t oy = from / s->out_w % s->out_h;
    int64_t n = from / (s->out_w * s->out_h);
    for (int64_t q = 0; q < there; q++) {
        const int64_t y = oy * s->stride - s->pad + ky;
        const int64_t x = ox * s->stride - s->pad;
        const int64_t cells = s->w - x < s->kernel_w ? s->w - x : s->kernel_w;
        const bool inside = y >= 0 && y < s->h && cells > 0;
        out[q].offset = inside ? ((n * s->h + y) * s->w + x) * s->in : 0;
        out[q].begin = inside && x < 0 ? -x * s->in : 0;
        out[q].end = inside ? cells * s->in : 0;
        ox++;
        if (ox == s->out_w) {
            ox = 0;
            oy++;
            if (oy == s->out_h) {
                oy = 0;
                n++;
            }
        }
    }
    memset(out + there, 0, (size_t)(padded - there) * sizeof *out);
}

/* Bits of the 32 columns from `from` on that are in [begin, end). */
static inline __mmask32 columns_between(int64_t begin, int64_t end, int64_t from) {
    const int64_t low = begin - from < 0 ? 0 : begin - from > WIDE ? WIDE : begin - from;
    const int64_t high = end - from < 0 ? 0 : end - from > WIDE ? WIDE : end - from;
    const uint64_t below = (UINT64_C(1) << low) - 1;
    return (__mmask32)(((UINT64_C(1) << high) - 1) & ~below);
}

/* Two rows of 32 values, interleaved: the first 16 pairs and the last. */
TILES static inline void interleave(__m512i *low, __m512i *high, __m512i even, __m512i odd) {
    static const uint16_t order[2][WIDE] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    *low = _mm512_permutex2var_epi16(even, _mm512_loadu_si512(order[0]), odd);
    *high = _mm512_permutex2var_epi16(even, _mm512_loadu_si512(order[1]), odd);
}

/* Pairs of pixels of the right side: two tiles for each 32 pixels. */
TILES static inline void put_pair(unsigned char *right, int64_t q, __m512i even, __m512i odd) {
    unsigned char *row = right + q / PIXELS * 2 * TILE_BYTES + q % PIXELS / 2 * 64;
    __m512i low;
    __m512i high;
    interleave(&low, &high, even, odd);
    _mm512_store_si512(row, low);
    _mm512_store_si512(row + TILE_BYTES, high);
}

/* The right side: columns [j, j + 32) of `chunk` stretches. */
TILES static void make_right(unsigned char *right,
                             const struct plan *p,
                             const struct stretch *stretches,
                             int64_t chunk,
                             int64_t j) {
    const __mmask32 all = columns_between(0, p->columns, j);
    for (int64_t q = 0; q < chunk; q += 2) {
        __m512i row[2];
        for (int k = 0; k < 2; k++) {
            const struct stretch *s = &stretches[q + k];
            __mmask32 mask = all;
            if (s->begin != 0 || s->end != p->columns) {
                mask = columns_between(s->begin, s->end, j);
            }
            row[k] = _mm512_maskz_loadu_epi16(mask, p->src + s->offset + j);
        }
        put_pair(right, q, row[0], row[1]);
    }
}

/* The same if I is a multiple of 32: these columns are of one pixel, which exists or not. */
TILES static void make_whole_right(unsigned char *right,
                                   const struct plan *p,
                                   const struct stretch *stretches,
                                   int64_t chunk,
                                   int64_t j) {
    static const uint16_t nothing[WIDE];
    for (int64_t q = 0; q < chunk; q += 2) {
        const struct stretch *s = &stretches[q];
        const bool even = j >= s[0].begin && j < s[0].end;
        const bool odd = j >= s[1].begin && j < s[1].end;
        put_pair(right, q, _mm512_loadu_si512(even ? p->src + s[0].offset + j : nothing),
                 _mm512_loadu_si512(odd ? p->src + s[1].offset + j : nothing));
    }
}

/* to = the transpose of 16 x 16 values of 4 bytes */
TILES static void exchange(unsigned char *to, const __m512i in[TILE]) {
    __m512i a[TILE];
    __m512i b[TILE];
    for (int i = 0; i < TILE; i += 4) { /* within 128 bits: 4 x 4 */
        const __m512i x0 = _mm512_unpacklo_epi32(in[i], in[i + 1]);
        const __m512i x1 = _mm512_unpackhi_epi32(in[i], in[i + 1]);
        const __m512i x2 = _mm512_unpacklo_epi32(in[i + 2], in[i + 3]);
        const __m512i x3 = _mm512_unpackhi_epi32(in[i + 2], in[i + 3]);
        a[i] = _mm512_unpacklo_epi64(x0, x2);
        a[i + 1] = _mm512_unpackhi_epi64(x0, x2);
        a[i + 2] = _mm512_unpacklo_epi64(x1, x3);
        a[i + 3] = _mm512_unpackhi_epi64(x1, x3);
    }
    for (int i = 0; i < 4; i++) { /* a[4 g + i], lane l: column 4 l + i of rows 4 g .. 4 g + 3 */
        b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
        b[4 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        b[8 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_store_si512(to + (size_t)i * 64, _mm512_shuffle_i32x4(b[i], b[8 + i], 0x88));
        _mm512_store_si512(to + (size_t)(4 + i) * 64,
                           _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0x88));
        _mm512_store_si512(to + (size_t)(8 + i) * 64, _mm512_shuffle_i32x4(b[i], b[8 + i], 0xdd));
        _mm512_store_si512(to + (size_t)(12 + i) * 64,
                           _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0xdd));
    }
}

/* The left side: the first `out` of 32 o, of `there` pixels at `ddst`, `width` elements apart: over
 * all pixels the tiles of the first 16 o, then the tiles of the others. */
TILES static void make_left(unsigned char *left,
                            const uint16_t *ddst,
                            int64_t width,
                            int64_t out,
                            int64_t chunk,
                            int64_t there) {
    const __mmask32 mask = columns_between(0, out, 0);
    for (int64_t q = 0; q < chunk; q += PIXELS) {
        __m512i low[TILE];
        __m512i high[TILE];
        for (int64_t i = 0; i < TILE; i++) {
            const int64_t pixel = q + 2 * i;
            const __mmask32 even = pixel < there ? mask : 0;
            const __mmask32 odd = pixel + 1 < there ? mask : 0;
            const uint16_t *row = ddst + pixel * width;
            interleave(&low[i], &high[i], _mm512_maskz_loadu_epi16(even, row),
                       _mm512_maskz_loadu_epi16(odd, row + width));
        }
        unsigned char *tile = left + q / PIXELS * TILE_BYTES;
        exchange(tile, low);
        exchange(tile + chunk / PIXELS * TILE_BYTES, high);
    }
}

/* The location of the sums of 32 o by 32 j: four tiles. */
struct place {
    float *at;
    int64_t row_bytes;    /* from a tile's row to the next */
    int64_t right, below; /* from a tile to its neighbours, in floats */
};

/* place = or += left right, over `blocks` times 32 pixels. Not inlined: the compiler does not know
 * what tiles read. */
TILES __attribute__((noinline)) static void multiply(const struct place *to,
                                                     bool set,
                                                     const unsigned char *left,
                                                     const unsigned char *right,
                                                     int64_t blocks) {
    const unsigned char *other = left + blocks * TILE_BYTES;
    if (set) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, to->at, to->row_bytes);
        _tile_loadd(1, to->at + to->right, to->row_bytes);
        _tile_loadd(2, to->at + to->below, to->row_bytes);
        _tile_loadd(3, to->at + to->below + to->right, to->row_bytes);
    }
    for (int64_t k = 0; k < blocks; k++) {
        _tile_loadd(4, left + k * TILE_BYTES, 64);
        _tile_loadd(6, right + 2 * k * TILE_BYTES, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right + (2 * k + 1) * TILE_BYTES, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, other + k * TILE_BYTES, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to->at, to->row_bytes);
    _tile_stored(1, to->at + to->right, to->row_bytes);
    _tile_stored(2, to->at + to->below, to->row_bytes);
    _tile_stored(3, to->at + to->below + to->right, to->row_bytes);
}

TILES static void take_tiles(void) {
    static const struct { /* static: the compiler does not see that it is read */
        uint8_t palette, first_row, zeros[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE}};
    _tile_loadconfig(&config);
}

TILES static void give_tiles_back(void) {
    _tile_release();
}

/* One part's sums: [ky][j block][o block]. */
static int64_t part_floats(const struct plan *p) {
    return p->shape->kernel_h * p->j_blocks * p->o_blocks * QUAD_FLOATS;
}

static struct place
place_of(const struct plan *p, int64_t pixel_part, int64_t ky, int64_t j, int64_t block) {
    if (p->sums == NULL) {
        const int64_t width = p->shape->kernel_h * p->columns;
        return (struct place){.at = p->dweight + block * WIDE * width + ky * p->columns + j * WIDE,
                              .row_bytes = width * (int64_t)sizeof(float),
                              .right = TILE,
                              .below = TILE * width};
    }
    return (struct place){.at = p->sums + pixel_part * part_floats(p) +
                                ((ky * p->j_blocks + j) * p->o_blocks + block) * QUAD_FLOATS,
                          .row_bytes = 64,
                          .right = TILE * TILE,
                          .below = 2 * TILE * TILE};
}

/* The work of one thread: pixels [from, from + there), o blocks [first, end). */
struct chunk {
    int64_t part, from, there, first, end;
    bool set; /* the sums begin here */
};

static void add_chunk(const struct plan *p, const struct chunk *c, unsigned char *space) {
    const struct conv_shape *s = p->shape;
    const int64_t padded = (c->there + PIXELS - 1) / PIXELS * PIXELS;
    const int64_t left_bytes = padded / PIXELS * 2 * TILE_BYTES; /* of 32 o */
    unsigned char *right = space + (c->end - c->first) * left_bytes;
    struct stretch *stretches = (void *)(right + padded / PIXELS * 2 * TILE_BYTES);
    for (int64_t b = c->first; b < c->end; b++) {
        const int64_t out = s->out - b * WIDE < WIDE ? s->out - b * WIDE : WIDE;
        make_left(space + (b - c->first) * left_bytes, p->ddst + c->from * s->out + b * WIDE,
                  s->out, out, padded, c->there);
    }
    for (int64_t ky = 0; ky < s->kernel_h; ky++) {
        find_stretches(stretches, s, c->from, c->there, padded, ky);
        for (int64_t j = 0; j < p->j_blocks; j++) {
            if (s->in % WIDE == 0) {
                make_whole_right(right, p, stretches, padded, j * WIDE);
            } else {
                make_right(right, p, stretches, padded, j * WIDE);
            }
            for (int64_t b = c->first; b < c->end; b++) {
                const struct place to = place_of(p, c->part, ky, j, b);
                multiply(&to, c->set, space + (b - c->first) * left_bytes, right, padded / PIXELS);
            }
        }
    }
}

static void sum_part(const struct plan *p, int64_t part) {
    const int64_t all = p->shape->n * p->shape->out_h * p->shape->out_w;
    const int64_t o_part = part / p->pixel_parts;
    struct chunk c = {.part = part % p->pixel_parts,
                      .first = p->o_blocks * o_part / p->o_parts,
                      .end = p->o_blocks * (o_part + 1) / p->o_parts};
    const int64_t from = all * c.part / p->pixel_parts;
    const int64_t end = all * (c.part + 1) / p->pixel_parts;
    take_tiles();
    for (c.from = from; c.from < end; c.from += c.there) {
        c.there = end - c.from < p->chunk ? end - c.from : p->chunk;
        c.set = c.from == from && (p->sums != NULL || !p->add);
        add_chunk(p, &c, p->space + (size_t)part * p->space_bytes);
    }
    give_tiles_back();
}

/* dweight = or += the parts' sums, 32 rows of one ky. */
CPU_CLONES static void gather_sums(const struct plan *p, int64_t ky, int64_t block) {
    const int64_t floats = part_floats(p);
    const int64_t width = p->shape->kernel_h * p->columns;
    for (int64_t j = 0; j < p->columns; j += TILE) {
        const int64_t count = p->columns - j < TILE ? p->columns - j : TILE;
        const float *quad = p->sums +
                            ((ky * p->j_blocks + j / WIDE) * p->o_blocks + block) * QUAD_FLOATS +
                            j / TILE % 2 * TILE * TILE;
        for (int64_t r = 0; r < WIDE && block * WIDE + r < p->shape->out; r++) {
            const float *row = quad + r / TILE * 2 * TILE * TILE + r % TILE * TILE;
            float *to = p->dweight + (block * WIDE + r) * width + ky * p->columns + j;
            float sum[TILE];
            memcpy(sum, row, sizeof sum);
            for (int64_t part = 1; part < p->pixel_parts; part++) {
                for (int64_t i = 0; i < TILE; i++) {
                    sum[i] += row[part * floats + i];
                }
            }
            for (int64_t i = 0; i < count; i++) {
                to[i] = p->add ? to[i] + sum[i] : sum[i];
            }
        }
    }
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Every part has its own pixels and o blocks. */
static void make_plan(struct plan *p, const struct conv_shape *s) {
    const int64_t threads = omp_get_max_threads();
    const int64_t pixels = s->n * s->out_h * s->out_w;
    p->shape = s;
    p->columns = s->kernel_w * s->in;
    p->o_blocks = (s->out + WIDE - 1) / WIDE;
    p->j_blocks = (p->columns + WIDE - 1) / WIDE;
    const bool by_pixels = part_floats(p) * (int64_t)sizeof(float) <= SPLIT_BYTES;
    p->pixel_parts = by_pixels ? smaller(threads, (pixels + MAX_CHUNK - 1) / MAX_CHUNK) : 1;
    p->o_parts = by_pixels ? 1 : smaller(threads, p->o_blocks);
    const int64_t blocks = (p->o_blocks + p->o_parts - 1) / p->o_parts;
    const int64_t chunk = LEFT_BYTES / (blocks * WIDE * 2) / PIXELS * PIXELS;
    p->chunk = chunk < 2 * PIXELS ? 2 * PIXELS : smaller(chunk, MAX_CHUNK);
    p->space_bytes =
        (size_t)(((blocks + 1) * WIDE * 2 + (int64_t)sizeof(struct stretch)) * p->chunk);
}

enum status
amx_weight_gradient(struct device *dev, const struct convolution *c, struct error *err) {
    const struct conv_shape *shape = &c->shape;
    struct plan p = {
        .ddst = c->dst, .src = c->src, .dweight = c->weight, .add = c->mode == WRITE_ADD};
    make_plan(&p, shape);
    const bool direct = p.pixel_parts == 1 && shape->in % WIDE == 0 && shape->out % WIDE == 0;
    const int64_t parts = p.pixel_parts * p.o_parts;
    const size_t sums_bytes =
        direct ? 0 : (size_t)(p.pixel_parts * part_floats(&p)) * sizeof(float);
    void *workspace;
    TRY(cpu_workspace(dev, sums_bytes + (size_t)parts * p.space_bytes, &workspace, err));
    p.sums = direct ? NULL : workspace;
    p.space = (unsigned char *)workspace + sums_bytes;
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        sum_part(&p, part);
    }
    if (direct) {
        return STATUS_OK;
    }
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t block = 0; block < p.o_blocks; block++) {
        for (int64_t ky = 0; ky < shape->kernel_h; ky++) {
            gather_sums(&p, ky, block);
        }
    }
    return STATUS_OK;
}

#else

bool amx_works(void) {
    return false;
}

enum status
amx_weight_gradient(struct device *dev, const struct convolution *c, struct error *err) {
    (void)dev;
    (void)c;
    return error_set(err, STATUS_UNSUPPORTED, "this processor has no AMX tile registers");
}

#endif
