/*
 * gemm: one tile of a matrix product on tensor cores: c (M x N, f32 in registers) = a (M x K) times
 * b (K x N), both of a half type T, bf16 or f16. conv_1x1.cu makes convolutions of it.
 *
 *            N                  a block of 8 warps, THREADS threads, has TILE_M x TILE_N of c,
 *         +-----+-----+--       128 or 64 each; a warp has WARP_M x WARP_N of that, in pieces
 *       M |  c  |     |         of 16 x 8, the size of one instruction
 *         +-----+-----+
 *
 * K goes by in steps of STEP. Tiles of a and b for STAGES steps lie in shared memory, copied there
 * asynchronously STAGES - 1 steps ahead. A matrix lies in global memory in rows of whole 16-byte
 * chunks, and a tile of it in shared memory as it lies there:
 *
 *   ALONG   rows are M (or N), and K runs along them:   EXTENT rows of STEP elements,  64 bytes
 *   ACROSS  rows are K, and M (or N) runs along them:   STEP rows of EXTENT elements, 128 or 256 B
 *
 * ldmatrix reads 8 rows of one 16-byte chunk at once and wants them in 8 different groups of banks,
 * of which a row of 128 bytes holds each once. So chunk c of row r lies at chunk
 *
 *   ALONG   c ^ (r / 2 % 4)   two rows to 128 bytes: 4 pairs of rows, 4 places of a chunk
 *   ACROSS  c ^ (r % 8)
 *
 * What an ACROSS tile gives is transposed by ldmatrix. After the product the same memory holds the
 * result on its way out (struct result_tile): rows of TILE_N elements and 16 bytes more, by which
 * the 8 rows that a warp writes at once fall into different banks.
 */
#ifndef KERNELS_CUDA_CONV_GEMM_CUH
#define KERNELS_CUDA_CONV_GEMM_CUH

#include "kernels/cuda/conv/normalise.cuh"
#include "kernels/cuda/conv/tensor_core.cuh"

enum { STEP = 32, STAGES = 4, HALF_BYTES = 2, CHUNK = 16 / HALF_BYTES };

/* Rows of a picture that a strided 1x1 convolution reads: row m of the result is pixel (n, oy, ox),
 * and takes pixel (n, oy stride, ox stride). */
struct pixels {
    uint32_t h, w, oh, ow, stride;
};

static __device__ __forceinline__ uint32_t pixel_of(const struct pixels &p, uint32_t m) {
    if (p.stride == 1) {
        return m;
    }
    const uint32_t line = m / p.ow;
    const uint32_t n = line / p.oh;
    return (n * p.h + (line - n * p.oh) * p.stride) * p.w + (m - line * p.ow) * p.stride;
}

/* A matrix in global memory: rows of `width` elements, a multiple of CHUNK. Rows from row_end on
 * and columns from `width` on count as zeros. Of which half type they are, products alone know. */
struct operand {
    const uint16_t *data;
    uint32_t row_end, width;
    struct pixels pixels; /* which row of memory is row m */
};

/* Where a chunk of a tile lies in shared memory, as told above. */
template <int EXTENT_, bool ALONG_> struct warp_layout {
    static constexpr int EXTENT = EXTENT_;
    static constexpr bool ALONG = ALONG_;
    static constexpr int DEPTH = STEP; /* of K in a tile */

    static __device__ __forceinline__ int place(int row, int chunk) {
        return ALONG ? row * (STEP * HALF_BYTES) + (chunk ^ (row / 2 % 4)) * 16
                     : row * (EXTENT * HALF_BYTES) + (chunk ^ (row % 8)) * 16;
    }
};

/* A thread's part in copying the tiles of one operand. */
template <typename LAYOUT> struct loader : LAYOUT {
    static constexpr int EXTENT = LAYOUT::EXTENT;
    static constexpr int DEPTH = LAYOUT::DEPTH;
    static constexpr bool ALONG = LAYOUT::ALONG;
    static constexpr int CHUNKS = (ALONG ? DEPTH : EXTENT) / CHUNK; /* of a row */
    static constexpr int ROWS_AT_ONCE = THREADS / CHUNKS;
    static constexpr int PIECES = (ALONG ? EXTENT : DEPTH) / ROWS_AT_ONCE;
    static constexpr int BYTES = EXTENT * DEPTH * HALF_BYTES;

    struct operand from;
    uint32_t column;              /* of this thread's chunk, at step 0 */
    const uint16_t *rows[PIECES]; /* ALONG: of this tile; NULL: beyond the last */

    /* The tile that begins at `first` of M or N. */
    __device__ __forceinline__ void begin(const struct operand &o, uint32_t first) {
        from = o;
        column = threadIdx.x % CHUNKS * CHUNK + (ALONG ? 0 : first);
        if (ALONG) {
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                const uint32_t row = first + threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
                rows[i] = row < o.row_end
                              ? o.data + (int64_t)pixel_of(o.pixels, row) * o.width + column
                              : NULL;
            }
        }
    }

    /* Starts copying step k, k + 1, ... k + DEPTH - 1 of K. */
    __device__ __forceinline__ void copy(unsigned char *tile, uint32_t k) const {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int row = threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
            unsigned char *to = tile + LAYOUT::place(row, threadIdx.x % CHUNKS);
            if (ALONG) {
                const bool there = rows[i] != NULL && k + column < from.width;
                copy_async(to, there ? rows[i] + k : from.data, there);
            } else {
                const bool there = k + row < from.row_end && column < from.width;
                const int64_t at =
                    there ? (int64_t)pixel_of(from.pixels, k + row) * from.width + column : 0;
                copy_async(to, from.data + at, there);
            }
        }
    }

    /* What else a thread does to its chunks of a tile that has come, before others read them. */
    __device__ __forceinline__ void finish(unsigned char *, uint32_t) const {
    }
};

/* How rows that are the pre of a unit with batch norm become its out: in(row, k), like the operand.
 */
struct prologue {
    struct launch_norm norm;
    void *in;
    bool relu;
};

/* The same of an ALONG operand of type T and stride 1 that is yet to be normalised, rounded as it
 * would have been stored. Each thread does it to the chunks that it copied itself: those it sees
 * without a barrier. What is zero because it lies beyond the operand remains so. */
template <typename T, typename LOADER> struct normalising : LOADER {
    static_assert(LOADER::ALONG, "channels run along the rows");
    using LOADER::column;
    using LOADER::from;
    struct prologue by;
    bool writes; /* in too */
    int64_t at;  /* in the operand, of this thread's first chunk, at step 0 */
    int rows_left;

    __device__ __forceinline__ void
    begin(const struct operand &o, uint32_t first, const struct prologue &p, bool writes_in) {
        from = o;
        by = p;
        writes = writes_in;
        column = threadIdx.x % LOADER::CHUNKS * CHUNK;
        const uint32_t row = first + threadIdx.x / LOADER::CHUNKS;
        at = (int64_t)row * o.width + column;
        rows_left = (int)(o.row_end - row);
    }

    /* One pointer for all rows leaves registers for the coefficients. */
    __device__ __forceinline__ void copy(unsigned char *tile, uint32_t k) const {
#pragma unroll
        for (int i = 0; i < LOADER::PIECES; i++) {
            const bool there = i * LOADER::ROWS_AT_ONCE < rows_left && k + column < from.width;
            copy_async(chunk(tile, i), there ? from.data + place_of(i, k) : from.data, there);
        }
    }

    __device__ __forceinline__ void finish(unsigned char *tile, uint32_t k) const {
        if (k + column >= from.width) {
            return;
        }
        columns_norm<CHUNK> norm;
        load_norm(&norm, by.norm, k + column);
#pragma unroll
        for (int i = 0; i < LOADER::PIECES; i++) {
            if (i * LOADER::ROWS_AT_ONCE >= rows_left) {
                return;
            }
            float x[CHUNK];
            vector<T, CHUNK> stored;
            uint4 word;
            load(x, static_cast<const T *>(chunk(tile, i)));
            normalise(x, norm);
            activate(x, by.relu);
            pack(&stored, x);
            memcpy(&word, &stored, sizeof word);
            put_chunk(chunk(tile, i), word);
            if (writes) {
                uint16_t *const in = static_cast<uint16_t *>(by.in) + place_of(i, k);
                put_word(reinterpret_cast<uint4 *>(in), word);
            }
        }
    }

    /* Where this thread's i-th chunk lies in a tile, and in the operand. */
    static __device__ __forceinline__ void *chunk(unsigned char *tile, int i) {
        const int row = threadIdx.x / LOADER::CHUNKS + i * LOADER::ROWS_AT_ONCE;
        return tile + LOADER::place(row, threadIdx.x % LOADER::CHUNKS);
    }
    __device__ __forceinline__ int64_t place_of(int i, uint32_t k) const {
        return at + (int64_t)(i * LOADER::ROWS_AT_ONCE) * from.width + k;
    }
};

/* Registers of the 16 x 16 piece of a at (m, k) of its tile, as multiply_add wants them. */
template <typename LOADER>
static __device__ __forceinline__ void
load_a(uint32_t (&r)[4], const unsigned char *tile, int m, int k) {
    const int lane = threadIdx.x % WARP;
    if (LOADER::ALONG) {
        load_matrices(r, tile + LOADER::place(m + lane % 16, k / CHUNK + lane / 16));
    } else {
        const int row = k + lane % 8 + lane / 16 * 8;
        load_matrices_transposed(r, tile + LOADER::place(row, m / CHUNK + lane / 8 % 2));
    }
}

/* Registers of the two 16 x 8 pieces of b at (k, n) and (k, n + 8). */
template <typename LOADER>
static __device__ __forceinline__ void
load_b(uint32_t (&r)[4], const unsigned char *tile, int n, int k) {
    const int lane = threadIdx.x % WARP;
    if (LOADER::ALONG) {
        const int row = n + lane % 8 + lane / 16 * 8;
        load_matrices(r, tile + LOADER::place(row, k / CHUNK + lane / 8 % 2));
    } else {
        load_matrices_transposed(r, tile + LOADER::place(k + lane % 16, n / CHUNK + lane / 16));
    }
}

/* How 8 warps share a tile, and where in it the numbers of a thread lie. */
template <int TILE_M_, int TILE_N_> struct shares {
    static constexpr int TILE_M = TILE_M_;
    static constexpr int TILE_N = TILE_N_;
    static constexpr int WARPS_DOWN = TILE_M > TILE_N ? 4 : 2;
    static constexpr int WARP_M = TILE_M / WARPS_DOWN;
    static constexpr int WARP_N = TILE_N / (WARPS / WARPS_DOWN);
    static constexpr int DOWN = WARP_M / 16;
    static constexpr int BESIDE = WARP_N / 8;
    typedef float sums[DOWN][BESIDE][4];

    static __device__ __forceinline__ int first_m() {
        return threadIdx.x / WARP % WARPS_DOWN * WARP_M;
    }
    static __device__ __forceinline__ int first_n() {
        return threadIdx.x / WARP / WARPS_DOWN * WARP_N;
    }
};

template <typename A, typename B> static constexpr int stages_bytes() {
    return STAGES * (A::BYTES + B::BYTES);
}

/* c = the sum over K from k_begin to k_end: multiples of STEP, or the end of the operands. `room`
 * is stages_bytes() of shared memory, free again when this returns. */
template <typename T, typename SHARES, typename A, typename B>
static __device__ __forceinline__ void multiply(typename SHARES::sums &c,
                                                unsigned char *room,
                                                const A &a,
                                                const B &b,
                                                uint32_t k_begin,
                                                uint32_t k_end) {
    const int steps = (int)((k_end - k_begin + STEP - 1) / STEP);
    unsigned char *const tiles_b = room + STAGES * A::BYTES;
#pragma unroll
    for (int i = 0; i < SHARES::DOWN; i++) {
#pragma unroll
        for (int j = 0; j < SHARES::BESIDE; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                c[i][j][e] = 0.0f;
            }
        }
    }
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            a.copy(room + s * A::BYTES, k_begin + s * STEP);
            b.copy(tiles_b + s * B::BYTES, k_begin + s * STEP);
        }
        copy_group();
    }
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        a.finish(room + s % STAGES * A::BYTES, k_begin + s * STEP);
        __syncthreads(); /* step s is there for all, and nobody reads step s - 1 any more */
        const int next = s + STAGES - 1;
        if (next < steps) {
            a.copy(room + next % STAGES * A::BYTES, k_begin + next * STEP);
            b.copy(tiles_b + next % STAGES * B::BYTES, k_begin + next * STEP);
        }
        copy_group();
        const unsigned char *tile_a = room + s % STAGES * A::BYTES;
        const unsigned char *tile_b = tiles_b + s % STAGES * B::BYTES;
#pragma unroll
        for (int k = 0; k < STEP; k += 16) {
            uint32_t pieces_b[SHARES::BESIDE / 2][4];
#pragma unroll
            for (int j = 0; j < SHARES::BESIDE / 2; j++) {
                load_b<B>(pieces_b[j], tile_b, SHARES::first_n() + 16 * j, k);
            }
#pragma unroll
            for (int i = 0; i < SHARES::DOWN; i++) {
                uint32_t piece_a[4];
                load_a<A>(piece_a, tile_a, SHARES::first_m() + 16 * i, k);
#pragma unroll
                for (int j = 0; j < SHARES::BESIDE; j++) {
                    multiply_add<T>(c[i][j], piece_a, pieces_b[j / 2][j % 2 * 2],
                                    pieces_b[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_wait<0>();
    __syncthreads();
}

/* The product of a tile as a type that kernels take: by warps, everywhere. */
template <typename T> struct by_warps {
    typedef T number;
    static constexpr bool HERE = true; /* on the chip that is compiled for */
    template <int EXTENT, bool ALONG> using loader = ::loader<warp_layout<EXTENT, ALONG>>;
    template <int TILE_M, int TILE_N> using shares = ::shares<TILE_M, TILE_N>;

    template <typename A, typename B> static constexpr int room_bytes() {
        return stages_bytes<A, B>();
    }

    template <typename SHARES, typename A, typename B>
    static __device__ __forceinline__ void multiply(typename SHARES::sums &c,
                                                    unsigned char *room,
                                                    const A &a,
                                                    const B &b,
                                                    uint32_t k_begin,
                                                    uint32_t k_end) {
        ::multiply<T, SHARES>(c, room, a, b, k_begin, k_end);
    }
};

/* The result on its way out, in type T: from the registers in pieces, to be read again in rows. */
template <typename T, typename SHARES> struct result_tile {
    typedef T number;
    static constexpr int PITCH = SHARES::TILE_N * HALF_BYTES + 16; /* bytes of a row */
    static constexpr int BYTES = SHARES::TILE_M * PITCH;
    /* Reading, a thread has CHUNK columns and every ROWS_AT_ONCE-th row. */
    static constexpr int GROUPS = SHARES::TILE_N / CHUNK;
    static constexpr int ROWS_AT_ONCE = THREADS / GROUPS;

    static __device__ __forceinline__ int group() {
        return threadIdx.x % GROUPS;
    }
    static __device__ __forceinline__ int first_row() {
        return threadIdx.x / GROUPS;
    }
    static __device__ __forceinline__ const T *at(const unsigned char *room, int row) {
        return reinterpret_cast<const T *>(room + row * PITCH) + group() * CHUNK;
    }

    static __device__ __forceinline__ void put(unsigned char *room,
                                               const typename SHARES::sums &c) {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < SHARES::DOWN; i++) {
#pragma unroll
            for (int j = 0; j < SHARES::BESIDE; j++) {
                const int row = SHARES::first_m() + 16 * i + lane / 4;
                const int column = SHARES::first_n() + 8 * j + lane % 4 * 2;
                unsigned char *to = room + row * PITCH + column * HALF_BYTES;
                put_pair(reinterpret_cast<T *>(to), c[i][j][0], c[i][j][1]);
                put_pair(reinterpret_cast<T *>(to + 8 * PITCH), c[i][j][2], c[i][j][3]);
            }
        }
    }
};

#endif
