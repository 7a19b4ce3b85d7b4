/*
 * conv_1x1: convolutions with kernels of 1x1 and no padding, of stride 1 or more, in a half type,
 * as matrix products (gemm.cuh) that do on their way out what would else be passes over memory of
 * their own:
 *
 *   forward  y = x w^T          leaves sums for the statistics of y beside it; may read x as the
 *                               pre of the unit before, normalise it and write it
 *   data     x = y w            set or added; may apply the mask of the ReLU that x came from and
 *                               leave the sums that the backward pass of its batch norm needs
 *   weight   w = y^T x          f32, set or added: pieces of the batch, merged in their order
 *
 * x (n,h,w,c), weight (k,c), y (n,oh,ow,k). Both first products have a row per pixel of y: a block
 * takes one strip of TILE_N columns of a chunk of rows, tile after tile, so that its sums are one
 * partial per column. Strips of the same rows run side by side and find their rows in the cache.
 */
#include "kernels/cuda/vector/columns.cuh"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/conv/wgmma.cuh"

enum { TILE_M = 128 };

enum product { FORWARD, FORWARD_OF_PRE, DATA };

/* forward: a = x (pixels of it; or its pre, of stride 1), b = weight, result y. data: a = y, b =
 * weight, result x. */
struct rows_product {
    struct operand a, b;
    struct pixels pixels; /* of x */
    uint32_t m, n, k;
    uint32_t strips, tiles_per_chunk;
    void *result; /* of the type of a and b */
    bool add;
    float *partials;               /* (chunks, 2, n); NULL: no sums */
    struct launch_handoff handoff; /* data */
    struct prologue prologue;      /* forward, of pre */
};

/* What a thread knows of its CHUNK columns while it writes them. */
struct columns_of_thread {
    uint32_t first; /* column of the whole result */
    bool inside;
    float shift[CHUNK];                /* forward */
    float mean[CHUNK], rstd[CHUNK];    /* data */
    float sum[CHUNK], products[CHUNK]; /* so far, of this tile */
};

template <typename T>
static __device__ __forceinline__ void
put_row(const struct rows_product &g, struct columns_of_thread &c, uint32_t m, const T *row) {
    const uint4 word = *reinterpret_cast<const uint4 *>(row);
    T *const to = static_cast<T *>(g.result) + (int64_t)m * g.n + c.first;
    put_word(reinterpret_cast<uint4 *>(to), word);
    if (g.partials != NULL) {
        float x[CHUNK];
        load(x, row);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const float d = x[i] - c.shift[i];
            c.sum[i] += d;
            c.products[i] += d * d;
        }
    }
}

/* One pixel of x: its gradient so far plus `x`, masked, summed as stored. */
template <typename T>
static __device__ __forceinline__ void put_pixel(const struct rows_product &g,
                                                 struct columns_of_thread &c,
                                                 int64_t pixel,
                                                 float (&x)[CHUNK]) {
    const int64_t e = pixel * g.n + c.first;
    T *const to = static_cast<T *>(g.result) + e;
    if (g.partials != NULL) {
        float pre[CHUNK];
        load(pre, static_cast<const T *>(g.handoff.pre) + e);
        if (g.add) {
            float before[CHUNK];
            load(before, to);
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                x[i] += before[i];
            }
        }
        if (g.handoff.out != NULL) {
            float y[CHUNK];
            load(y, static_cast<const T *>(g.handoff.out) + e);
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                x[i] = y[i] <= 0.0f ? 0.0f : x[i];
            }
        }
        vector<T, CHUNK> stored;
        pack(&stored, x);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const float dy = to_f32(stored.at[i]);
            c.sum[i] += dy;
            c.products[i] += dy * ((pre[i] - c.mean[i]) * c.rstd[i]);
        }
        uint4 word;
        memcpy(&word, &stored, sizeof word);
        put_word(reinterpret_cast<uint4 *>(to), word);
    } else {
        store_mode(to, x, g.add);
    }
}

/* The pixels of x whose gradient row m of y decides: where it was read, and those that the stride
 * passes over between it and the next, which get nothing. */
template <typename T>
static __device__ __forceinline__ void
put_patch(const struct rows_product &g, struct columns_of_thread &c, uint32_t m, const T *row) {
    float x[CHUNK];
    load(x, row);
    if (g.pixels.stride == 1) {
        put_pixel<T>(g, c, m, x);
        return;
    }
    const uint32_t line = m / g.pixels.ow;
    const uint32_t n = line / g.pixels.oh;
    const uint32_t top = (line - n * g.pixels.oh) * g.pixels.stride;
    const uint32_t left = (m - line * g.pixels.ow) * g.pixels.stride;
    for (uint32_t y = top; y < top + g.pixels.stride && y < g.pixels.h; y++) {
        for (uint32_t column = left; column < left + g.pixels.stride && column < g.pixels.w;
             column++) {
            put_pixel<T>(g, c, (int64_t)(n * g.pixels.h + y) * g.pixels.w + column, x);
#pragma unroll
            for (int i = 0; i < CHUNK; i++) {
                x[i] = 0.0f;
            }
        }
    }
}

/* Adds the threads' sums of a tile to *total, of which thread (which, column) has one. */
template <typename OUT, int TILE_N>
static __device__ __forceinline__ void
add_sums(float *total, unsigned char *room, const struct columns_of_thread &c) {
    float *sums = reinterpret_cast<float *>(room + OUT::BYTES); /* (2, ROWS_AT_ONCE, TILE_N) */
    float *mine = sums + OUT::first_row() * TILE_N + OUT::group() * CHUNK;
    put_shared(mine, c.sum);
    put_shared(mine + OUT::ROWS_AT_ONCE * TILE_N, c.products);
    __syncthreads();
    if (threadIdx.x < 2 * TILE_N) {
        const int which = threadIdx.x / TILE_N;
        const float *column = sums + which * OUT::ROWS_AT_ONCE * TILE_N + threadIdx.x % TILE_N;
#pragma unroll
        for (int i = 0; i < OUT::ROWS_AT_ONCE; i++) {
            *total += column[i * TILE_N];
        }
    }
}

/* The tile of rows from `first` on, from shared memory to where it belongs. */
template <typename OUT, int TILE_N, enum product WHAT>
static __device__ __forceinline__ void put_tile(const struct rows_product &g,
                                                struct columns_of_thread &c,
                                                uint32_t first,
                                                const unsigned char *room,
                                                float *shifts,
                                                bool begins) {
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        c.sum[i] = 0.0f;
        c.products[i] = 0.0f;
    }
    if (WHAT != DATA && g.partials != NULL) {
        /* from the chunk's first row, and kept for its next tiles */
        if (begins) {
            load(c.shift, OUT::at(room, 0));
            if (OUT::first_row() == 0) {
                put_shared(shifts + OUT::group() * CHUNK, c.shift);
            }
        } else {
            load_f32(c.shift, shifts + OUT::group() * CHUNK);
        }
    }
    if (!c.inside) {
        return;
    }
    if (WHAT == DATA && g.partials != NULL) {
        load_f32(c.mean, g.handoff.mean + c.first);
        load_f32(c.rstd, g.handoff.rstd + c.first);
    }
    for (int row = OUT::first_row(); row < TILE_M && first + row < g.m; row += OUT::ROWS_AT_ONCE) {
        if (WHAT != DATA) {
            put_row(g, c, first + row, OUT::at(room, row));
        } else {
            put_patch(g, c, first + row, OUT::at(room, row));
        }
    }
}

template <typename BY, enum product WHAT>
struct loader_of_a {
    typedef typename BY::template loader<TILE_M, true> type;
};
template <typename BY> struct loader_of_a<BY, FORWARD_OF_PRE> {
    typedef normalising<typename BY::number, typename BY::template loader<TILE_M, true>> type;
};

/* Shared memory: the stages of the product, and later the result and the sums in the same place;
 * behind them the shifts. */
template <typename BY, int TILE_N, enum product WHAT>
struct rows_kernel_types {
    typedef typename BY::template shares<TILE_M, TILE_N> shares;
    typedef typename loader_of_a<BY, WHAT>::type a;
    typedef typename BY::template loader<TILE_N, WHAT != DATA> b;
    typedef result_tile<typename BY::number, shares> out;
    static constexpr int ROOM_BYTES = BY::template room_bytes<a, b>();
    static constexpr int SHARED_BYTES = ROOM_BYTES + TILE_N * (int)sizeof(float);
    static_assert(out::BYTES + 2 * out::ROWS_AT_ONCE * TILE_N * (int)sizeof(float) <= ROOM_BYTES,
                  "the result and its sums fit where the operands were");
};

template <typename BY, int TILE_N, enum product WHAT>
static __global__ void __launch_bounds__(THREADS, 2) rows_kernel(struct rows_product g) {
    if constexpr (!BY::HERE) {
        return;
    }
    typedef rows_kernel_types<BY, TILE_N, WHAT> types;
    typedef typename types::out out;
    SHARED_OF_LAUNCH(room);
    float *const shifts = reinterpret_cast<float *>(room + types::ROOM_BYTES);
    const uint32_t chunk = blockIdx.x / g.strips;
    const uint32_t first_n = blockIdx.x % g.strips * TILE_N;
    const uint32_t tiles = (g.m + TILE_M - 1) / TILE_M;
    const uint32_t begin = chunk * g.tiles_per_chunk;
    const uint32_t end = begin + g.tiles_per_chunk < tiles ? begin + g.tiles_per_chunk : tiles;
    float total = 0.0f;
    for (uint32_t tile = begin; tile < end; tile++) {
        typename types::shares::sums sums;
        {
            typename types::a a;
            typename types::b b;
            if constexpr (WHAT == FORWARD_OF_PRE) {
                a.begin(g.a, tile * TILE_M, g.prologue, first_n == 0);
            } else {
                a.begin(g.a, tile * TILE_M);
            }
            b.begin(g.b, first_n);
            BY::template multiply<typename types::shares>(sums, room, a, b, 0, g.k);
        }
        out::put(room, sums);
        __syncthreads();
        struct columns_of_thread c;
        c.first = first_n + out::group() * CHUNK;
        c.inside = c.first < g.n;
        put_tile<out, TILE_N, WHAT>(g, c, tile * TILE_M, room, shifts, tile == begin);
        if (g.partials != NULL) {
            add_sums<out, TILE_N>(&total, room, c);
        }
        __syncthreads(); /* the room is the next tile's */
    }
    const uint32_t column = first_n + threadIdx.x % TILE_N;
    if (g.partials != NULL && threadIdx.x < 2 * TILE_N && column < g.n) {
        g.partials[((int64_t)chunk * 2 + threadIdx.x / TILE_N) * g.n + column] = total;
    }
}

/* ---- weight ---- */

struct weight_product {
    struct operand a, b; /* y and x, rows of which are K of this product */
    uint32_t m, n, k;    /* the weight's rows and columns; pixels of y */
    uint32_t strips, tiles, k_per_chunk;
    float *partials; /* (chunks, m, n) */
};

template <typename BY, int TILE_K, int TILE_C>
static __global__ void __launch_bounds__(THREADS, 2) weight_kernel(struct weight_product g) {
    if constexpr (!BY::HERE) {
        return;
    }
    typedef typename BY::template shares<TILE_K, TILE_C> shares;
    SHARED_OF_LAUNCH(room);
    const uint32_t chunk = blockIdx.x / g.tiles;
    const uint32_t tile = blockIdx.x % g.tiles;
    const uint32_t first_m = tile / g.strips * TILE_K;
    const uint32_t first_n = tile % g.strips * TILE_C;
    const uint32_t begin = chunk * g.k_per_chunk;
    const uint32_t end = begin + g.k_per_chunk < g.k ? begin + g.k_per_chunk : g.k;
    typename BY::template loader<TILE_K, false> a;
    typename BY::template loader<TILE_C, false> b;
    typename shares::sums sums;
    a.begin(g.a, first_m);
    b.begin(g.b, first_n);
    BY::template multiply<shares>(sums, room, a, b, begin, end);
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < shares::DOWN; i++) {
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            const uint32_t row = first_m + shares::first_m() + 16 * i + lane / 4 + e / 2 * 8;
#pragma unroll
            for (int j = 0; j < shares::BESIDE; j++) {
                const uint32_t column = first_n + shares::first_n() + 8 * j + lane % 4 * 2;
                if (row < g.m && column < g.n) {
                    const float two[2] = {sums[i][j][e], sums[i][j][e + 1]};
                    store(g.partials + ((int64_t)chunk * g.m + row) * g.n + column, two);
                }
            }
        }
    }
}

/* ---- host side ---- */

static int tile_of(int64_t width) {
    return width <= 64 ? 64 : 128;
}

static int64_t pixels_count(const struct conv_problem *p) {
    return p->n * p->oh * p->ow;
}

bool conv_1x1_fits(const struct conv_problem *p, const void *x, const void *w, const void *y) {
    static const int64_t MOST = 1 << 30; /* rows and columns are counted in 32 bits */
    return dtype_is_half(p->dtype) && p->r == 1 && p->s == 1 && p->pad == 0 && p->c % CHUNK == 0 &&
           p->k % CHUNK == 0 && p->n * p->h * p->w <= MOST && p->c <= MOST && p->k <= MOST &&
           pixels_count(p) > 0 && is_aligned(x) && is_aligned(w) && is_aligned(y);
}

bool conv_1x1_has_wgmma(int32_t sm) {
#ifdef CCS_WGMMA /* the module has code for sm_90a */
    return sm == 90;
#else
    (void)sm;
    return false;
#endif
}

bool conv_1x1_handoff_fits(const void *out, const void *pre, const float *mean, const float *rstd) {
    return is_aligned(out) && is_aligned(pre) && is_aligned(mean) && is_aligned(rstd);
}

bool conv_1x1_take_fits(const struct conv_problem *p, const struct launch_take *t) {
    /* Each strip makes all of x for itself. By count of bytes in shared memory (README.md) that
     * costs more than the pass does as soon as there are more strips than these. */
    static const int64_t MOST_STRIPS = 4;
    return p->stride == 1 && ceil_div(p->k, tile_of(p->k)) <= MOST_STRIPS && is_aligned(t->pre) &&
           is_aligned(t->norm.mean) && is_aligned(t->norm.rstd) && is_aligned(t->norm.gamma) &&
           is_aligned(t->norm.beta);
}

struct conv_1x1_chunks conv_1x1_chunks_of(const struct conv_problem *p) {
    static const int64_t MOST_BLOCKS = 528; /* four to each of 132 processors, two at a time */
    const int64_t width = p->pass == CONV_FORWARD ? p->k : p->c;
    const int64_t strips = ceil_div(width, tile_of(width));
    const int64_t tiles = ceil_div(pixels_count(p), TILE_M);
    const int64_t most = strips < MOST_BLOCKS ? MOST_BLOCKS / strips : 1;
    const int64_t tiles_per_chunk = ceil_div(tiles, most);
    struct conv_1x1_chunks c;
    c.rows_per_chunk = tiles_per_chunk * TILE_M;
    c.count = (int32_t)ceil_div(tiles, tiles_per_chunk);
    return c;
}

size_t conv_1x1_partials_bytes(const struct conv_problem *p) {
    const int64_t width = p->pass == CONV_FORWARD ? p->k : p->c;
    return (size_t)conv_1x1_chunks_of(p).count * 2 * (size_t)width * sizeof(float);
}

static struct pixels pixels_of(const struct conv_problem *p) {
    struct pixels x = {(uint32_t)p->h, (uint32_t)p->w, (uint32_t)p->oh, (uint32_t)p->ow,
                       (uint32_t)p->stride};
    return x;
}

static struct operand operand_of(const void *data, int64_t rows, int64_t width) {
    struct operand o = {};
    o.data = (const uint16_t *)data;
    o.row_end = (uint32_t)rows;
    o.width = (uint32_t)width;
    o.pixels.stride = 1;
    return o;
}

template <typename BY, int TILE_N, enum product WHAT>
static cudaError_t
run_rows(cudaStream_t stream, const struct rows_product &g, const struct conv_1x1_chunks &chunks) {
    return launch_shared(stream, dim3(g.strips * (unsigned)chunks.count),
                         rows_kernel_types<BY, TILE_N, WHAT>::SHARED_BYTES,
                         rows_kernel<BY, TILE_N, WHAT>, g);
}

template <typename BY, enum product WHAT>
static cudaError_t
run_rows_any(cudaStream_t stream, const struct conv_problem *p, struct rows_product &g) {
    const struct conv_1x1_chunks chunks = conv_1x1_chunks_of(p);
    g.m = (uint32_t)pixels_count(p);
    g.pixels = pixels_of(p);
    g.strips = (uint32_t)ceil_div(g.n, tile_of(g.n));
    g.tiles_per_chunk = (uint32_t)(chunks.rows_per_chunk / TILE_M);
    return tile_of(g.n) == 64 ? run_rows<BY, 64, WHAT>(stream, g, chunks)
                              : run_rows<BY, 128, WHAT>(stream, g, chunks);
}

template <enum product WHAT>
static cudaError_t run_rows_by(cudaStream_t stream,
                               enum conv_variant variant,
                               const struct conv_problem *p,
                               struct rows_product &g) {
    if (p->dtype == DTYPE_F16) {
        return variant == VARIANT_WGMMA ? run_rows_any<by_groups<f16>, WHAT>(stream, p, g)
                                        : run_rows_any<by_warps<f16>, WHAT>(stream, p, g);
    }
    return variant == VARIANT_WGMMA ? run_rows_any<by_groups<bf16>, WHAT>(stream, p, g)
                                    : run_rows_any<by_warps<bf16>, WHAT>(stream, p, g);
}

cudaError_t launch_conv_1x1_forward(cudaStream_t stream,
                                    enum conv_variant variant,
                                    const struct conv_problem *p,
                                    void *y,
                                    void *x,
                                    const struct launch_take *take,
                                    const void *w,
                                    float *partials) {
    struct rows_product g = {};
    g.a = operand_of(take != NULL ? take->pre : x, pixels_count(p), p->c);
    g.a.pixels = pixels_of(p);
    g.b = operand_of(w, p->k, p->c);
    g.n = (uint32_t)p->k;
    g.k = (uint32_t)p->c;
    g.result = y;
    g.partials = partials;
    if (take != NULL) {
        g.prologue.norm = take->norm;
        g.prologue.in = x;
        g.prologue.relu = take->act == ACTIVATION_RELU;
        return run_rows_by<FORWARD_OF_PRE>(stream, variant, p, g);
    }
    return run_rows_by<FORWARD>(stream, variant, p, g);
}

cudaError_t launch_conv_1x1_data(cudaStream_t stream,
                                 enum conv_variant variant,
                                 const struct conv_problem *p,
                                 void *x,
                                 bool add,
                                 const void *y,
                                 const void *w,
                                 const struct launch_handoff *handoff,
                                 float *partials) {
    struct rows_product g = {};
    g.a = operand_of(y, pixels_count(p), p->k);
    g.b = operand_of(w, p->k, p->c);
    g.n = (uint32_t)p->c;
    g.k = (uint32_t)p->k;
    g.result = x;
    g.add = add;
    if (handoff != NULL) {
        g.handoff = *handoff;
        g.partials = partials;
    }
    return run_rows_by<DATA>(stream, variant, p, g);
}

cudaError_t launch_conv_1x1_total(cudaStream_t stream,
                                  float *total,
                                  const float *partials,
                                  int64_t width,
                                  int32_t count) {
    return launch_merge_one(stream, total, false, partials, width, count);
}

/* Chunks of the batch for a weight's gradient, whole steps: enough blocks for two on each of 132
 * processors, no chunk shorter than what its own result costs. */
static uint32_t weight_k_per_chunk(enum conv_variant variant, const struct conv_problem *p) {
    static const int64_t BLOCKS = 264;
    static const int64_t LEAST = 8 * STEP;
    const int64_t step = variant == VARIANT_WGMMA ? by_groups<bf16>::DEPTH : STEP;
    const int64_t tiles = ceil_div(p->k, tile_of(p->k)) * ceil_div(p->c, tile_of(p->c));
    const int64_t wanted = ceil_div(pixels_count(p), ceil_div(BLOCKS, tiles));
    return (uint32_t)(ceil_div(wanted > LEAST ? wanted : LEAST, step) * step);
}

size_t launch_conv_1x1_weight_workspace_bytes(const struct conv_problem *p) {
    /* of the shorter steps there are at least as many */
    return (size_t)ceil_div(pixels_count(p), weight_k_per_chunk(VARIANT_OWN, p)) *
           (size_t)(p->k * p->c) * sizeof(float);
}

template <typename BY, int TILE_K, int TILE_C>
static cudaError_t run_weight(cudaStream_t stream, const struct weight_product &g, int64_t chunks) {
    typedef typename BY::template loader<TILE_K, false> a;
    typedef typename BY::template loader<TILE_C, false> b;
    return launch_shared(stream, dim3(g.tiles * (unsigned)chunks), BY::template room_bytes<a, b>(),
                         weight_kernel<BY, TILE_K, TILE_C>, g);
}

typedef cudaError_t weight_run(cudaStream_t, const struct weight_product &, int64_t chunks);

static int weight_tile_k(enum conv_variant variant, const struct conv_problem *p) {
    return variant == VARIANT_WGMMA ? TILE_M : tile_of(p->k); /* two warpgroups have 128 rows */
}

template <typename T>
static weight_run *weight_of(enum conv_variant variant, const struct conv_problem *p) {
    const bool narrow_c = tile_of(p->c) == 64;
    if (variant == VARIANT_WGMMA) {
        return narrow_c ? run_weight<by_groups<T>, 128, 64> : run_weight<by_groups<T>, 128, 128>;
    }
    if (tile_of(p->k) == 64) {
        return narrow_c ? run_weight<by_warps<T>, 64, 64> : run_weight<by_warps<T>, 64, 128>;
    }
    return narrow_c ? run_weight<by_warps<T>, 128, 64> : run_weight<by_warps<T>, 128, 128>;
}

cudaError_t launch_conv_1x1_weight(cudaStream_t stream,
                                   enum conv_variant variant,
                                   const struct conv_problem *p,
                                   float *w,
                                   bool add,
                                   const void *y,
                                   const void *x,
                                   void *workspace) {
    struct weight_product g = {};
    g.a = operand_of(y, pixels_count(p), p->k);
    g.b = operand_of(x, pixels_count(p), p->c);
    g.b.pixels = pixels_of(p);
    g.m = (uint32_t)p->k;
    g.n = (uint32_t)p->c;
    g.k = (uint32_t)pixels_count(p);
    g.strips = (uint32_t)ceil_div(p->c, tile_of(p->c));
    g.tiles = g.strips * (uint32_t)ceil_div(p->k, weight_tile_k(variant, p));
    g.k_per_chunk = weight_k_per_chunk(variant, p);
    g.partials = (float *)workspace;
    const int64_t chunks = ceil_div(g.k, g.k_per_chunk);
    weight_run *const run =
        p->dtype == DTYPE_F16 ? weight_of<f16>(variant, p) : weight_of<bf16>(variant, p);
    TRY_LAUNCH(run(stream, g, chunks));
    return launch_merge_one(stream, w, add, g.partials, p->k * p->c, (int32_t)chunks);
}
