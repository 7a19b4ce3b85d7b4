/*
 * wgmma: the product of a tile as in gemm.cuh, by Hopper's instruction (compute capability 9.0,
 * compiled for sm_90a): four warps, a warpgroup, together multiply 64 x TILE_N x 16 of a half
 * type straight out of shared memory, while their threads do other things.
 *
 *            TILE_N          a block of two warpgroups has 128 x TILE_N of c; each has 64 rows
 *         +-----------+      of it and all columns. K goes by in steps of 64, copied ahead as in
 *   group |   0       |      gemm.cuh, in 96 KiB of shared memory: two blocks to a processor.
 *         +-----------+
 *         |   1       |
 *         +-----------+
 *
 * A tile lies in shared memory in lines of 128 bytes, eight of which are one piece of 1024 bytes
 * that the instruction knows ("128-byte swizzle"): chunk c of line r of a piece lies at chunk c ^ r
 * of that line. A tile begins at a multiple of 1024, so r is bits 7 to 9 of the address.
 *
 *   ALONG   line = row of M (or N), along it the 64 of K                  EXTENT lines
 *   ACROSS  line = row of K, along it 64 of M (or N); EXTENT / 64 panels  64 lines each
 *
 * A descriptor tells the instruction where the part of a tile is that it multiplies:
 *
 *   bits 0-13   address / 16        of the first of its lines, at its first k
 *   bits 16-29  leading offset / 16 ACROSS: from panel to panel; ALONG: not used
 *   bits 32-45  stride offset / 16  from piece to piece: of eight rows (ALONG), of eight k (ACROSS)
 *   bits 49-51  base offset         0: pieces begin at multiples of 1024
 *   bits 62-63  1                   128-byte swizzle
 *
 * The next 16 of K are 32 bytes further on (ALONG: the swizzle counts bits of the address), or two
 * pieces (ACROSS).
 *
 * Order: what a thread copied is complete after copy_wait, for this instruction, with what it made
 * of it, only after the thread's proxy_fence, and for all after the barrier. A product is complete
 * after product_wait; then its registers may be read and, after a barrier, its tile overwritten.
 *
 * Compiled for the host, the instructions come from tests/support/cuda_emulation/wgmma.h.
 */
#ifndef KERNELS_CUDA_CONV_WGMMA_CUH
#define KERNELS_CUDA_CONV_WGMMA_CUH

#include "kernels/cuda/conv/gemm.cuh"

enum {
    GROUP = 128, /* threads of a warpgroup */
    LINE_BYTES = 128,
    LINE = LINE_BYTES / HALF_BYTES,
    PIECE_BYTES = 1024
};

#ifdef __CUDACC__

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA_HERE true

/* Makes this thread's completed writes to shared memory visible to products. */
static __device__ __forceinline__ void proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/* Before the first product: registers that it adds to are settled. */
static __device__ __forceinline__ void product_fence() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

/* Ends a group of products. */
static __device__ __forceinline__ void product_group() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/* Waits for all of this warpgroup's products. */
static __device__ __forceinline__ void product_wait() {
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

#define FOUR(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define EIGHT_FOURS(c, j)                                                                          \
    FOUR(c, j), FOUR(c, j + 1), FOUR(c, j + 2), FOUR(c, j + 3), FOUR(c, j + 4), FOUR(c, j + 5),    \
        FOUR(c, j + 6), FOUR(c, j + 7)

/* c += a b, 64 x 64 x 16 and 64 x 128 x 16, begun: a and b are descriptors, ACROSS as told above.
 * With warp w of the group, g = lane / 4 and t = 2 (lane % 4):
 *   c[j][0..1] (16 w + g, 8 j + t..t+1)   c[j][2..3] (16 w + g + 8, 8 j + t..t+1) */
template <typename T, bool A_ACROSS, bool B_ACROSS>
static __device__ __forceinline__ void product_begin(float (&c)[8][4], uint64_t a, uint64_t b) {
#define PRODUCT(TYPE)                                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " "                   \
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                         \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "              \
                 "%32, %33, 1, 1, 1, %34, %35;\n"                                                  \
                 : EIGHT_FOURS(c, 0)                                                               \
                 : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS))
    if constexpr (is_f16<T>::YES) {
        PRODUCT("f16");
    } else {
        PRODUCT("bf16");
    }
#undef PRODUCT
}

template <typename T, bool A_ACROSS, bool B_ACROSS>
static __device__ __forceinline__ void product_begin(float (&c)[16][4], uint64_t a, uint64_t b) {
#define PRODUCT(TYPE)                                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " "                  \
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                         \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "              \
                 "%64, %65, 1, 1, 1, %66, %67;\n"                                                  \
                 : EIGHT_FOURS(c, 0), EIGHT_FOURS(c, 8)                                            \
                 : "l"(a), "l"(b), "n"(A_ACROSS), "n"(B_ACROSS))
    if constexpr (is_f16<T>::YES) {
        PRODUCT("f16");
    } else {
        PRODUCT("bf16");
    }
#undef PRODUCT
}

#undef FOUR
#undef EIGHT_FOURS

#else /* another chip: kernels of by_groups are empty there, and are never launched */

#define WGMMA_HERE false
static __device__ __forceinline__ void proxy_fence() {
}
static __device__ __forceinline__ void product_fence() {
}
static __device__ __forceinline__ void product_group() {
}
static __device__ __forceinline__ void product_wait() {
}
template <typename T, bool A_ACROSS, bool B_ACROSS, typename SUMS>
static __device__ __forceinline__ void product_begin(SUMS &, uint64_t, uint64_t) {
}

#endif
#endif

template <int EXTENT_, bool ALONG_> struct group_layout {
    static constexpr int EXTENT = EXTENT_;
    static constexpr bool ALONG = ALONG_;
    static constexpr int DEPTH = LINE; /* of K in a tile */
    static constexpr int PANEL_BYTES = DEPTH * LINE_BYTES;

    static __device__ __forceinline__ int place(int row, int chunk) {
        return chunk / 8 * PANEL_BYTES + row * LINE_BYTES + (chunk % 8 ^ row % 8) * 16;
    }

    /* Of the part of a tile that begins at `first` of M or N, a multiple of 64, and at k. */
    static __device__ __forceinline__ uint64_t descriptor(uint32_t tile, int first, int k) {
        const uint32_t at = ALONG ? tile + first * LINE_BYTES + k * HALF_BYTES
                                  : tile + first / LINE * PANEL_BYTES + k * LINE_BYTES;
        return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(PANEL_BYTES >> 4) << 16 |
               (uint64_t)(PIECE_BYTES >> 4) << 32 | (uint64_t)1 << 62;
    }
};

template <int TILE_M_, int TILE_N_> struct group_shares {
    static constexpr int TILE_M = TILE_M_;
    static constexpr int TILE_N = TILE_N_;
    static constexpr int DOWN = 1;
    static constexpr int BESIDE = TILE_N / 8;
    typedef float sums[DOWN][BESIDE][4];
    static_assert(TILE_M == THREADS / GROUP * 64 && (TILE_N == 64 || TILE_N == 128),
                  "two warpgroups of 64 rows each");

    static __device__ __forceinline__ int first_m() {
        return threadIdx.x / WARP * 16;
    }
    static __device__ __forceinline__ int first_n() {
        return 0;
    }
};

template <typename T> struct by_groups {
    typedef T number;
    static constexpr bool HERE = WGMMA_HERE;
    static constexpr int DEPTH = LINE;
    template <int EXTENT, bool ALONG> using loader = ::loader<group_layout<EXTENT, ALONG>>;
    template <int TILE_M, int TILE_N> using shares = group_shares<TILE_M, TILE_N>;

    static constexpr int ROOM_BYTES = 96 << 10;
    template <typename A, typename B> static constexpr int room_bytes() {
        return ROOM_BYTES;
    }

    /* As multiply() of gemm.cuh. */
    template <typename SHARES, typename A, typename B>
    static __device__ __forceinline__ void multiply(typename SHARES::sums &c,
                                                    unsigned char *room,
                                                    const A &a,
                                                    const B &b,
                                                    uint32_t k_begin,
                                                    uint32_t k_end) {
        constexpr int STAGE_BYTES = A::BYTES + B::BYTES; /* multiples of PIECE_BYTES */
        constexpr int COUNT = ROOM_BYTES / STAGE_BYTES;
        static_assert(COUNT >= 3, "one stage multiplied, others on their way");
        const int steps = (int)((k_end - k_begin + DEPTH - 1) / DEPTH);
        const int first = threadIdx.x / GROUP * 64;
        const uint32_t room_address = shared_address(room);
#pragma unroll
        for (int j = 0; j < SHARES::BESIDE; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                c[0][j][e] = 0.0f;
            }
        }
        for (int s = 0; s < COUNT - 1; s++) {
            if (s < steps) {
                a.copy(room + s * STAGE_BYTES, k_begin + s * DEPTH);
                b.copy(room + s * STAGE_BYTES + A::BYTES, k_begin + s * DEPTH);
            }
            copy_group();
        }
        for (int s = 0; s < steps; s++) {
            copy_wait<COUNT - 2>();
            a.finish(room + s % COUNT * STAGE_BYTES, k_begin + s * DEPTH);
            proxy_fence();
            __syncthreads(); /* step s is there for all, and products of step s - 1 are complete */
            const uint32_t tile_a = room_address + s % COUNT * STAGE_BYTES;
            const uint32_t tile_b = tile_a + A::BYTES;
            product_fence();
#pragma unroll
            for (int k = 0; k < DEPTH; k += 16) {
                product_begin<T, !A::ALONG, !B::ALONG>(c[0], A::descriptor(tile_a, first, k),
                                                       B::descriptor(tile_b, 0, k));
            }
            product_group();
            const int next = s + COUNT - 1;
            if (next < steps) {
                unsigned char *const to = room + next % COUNT * STAGE_BYTES;
                a.copy(to, k_begin + next * DEPTH);
                b.copy(to + A::BYTES, k_begin + next * DEPTH);
            }
            copy_group();
            product_wait();
        }
        copy_wait<0>();
        __syncthreads();
    }
};

#endif
