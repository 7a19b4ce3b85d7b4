/*
 * runtime: what translated kernels (translate.py) use: arithmetic as PTX defines it, inline, and
 * memory, barriers and operations of a warp, which runtime.cpp checks.
 *
 * Registers of floats are floats; all others are unsigned integers of their size.
 */
#ifndef TESTS_SUPPORT_PTX_RUNTIME_H
#define TESTS_SUPPORT_PTX_RUNTIME_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tests/support/cuda_emulation/executor.h"

struct ptx_range { /* [begin, end) of shared memory; of a parameter: offset and size */
    uint32_t begin, end;
};

struct ptx_table { /* constants of the compiler's own functions */
    uintptr_t data;
    size_t size_bytes;
};

struct ptx_kernel {
    const char *name;
    void (*run)(const unsigned char *parameters);
    const struct ptx_range *parameters;
    int parameters_count;
    const struct ptx_range *shared;
    int shared_count;
};

struct ptx_chunk {
    const struct ptx_kernel *kernels;
    int kernels_count;
    const struct ptx_table *tables; /* until size 0 */
};

extern const struct executor_host *ptx_host;

/* Ends the program with a message. */
[[noreturn]] void ptx_stop(const char *what);

/* Each access names its line of PTX. A faulty load reads zeros; a faulty store has no effect. */
const unsigned char *ptx_load_global(uint64_t at, unsigned size, unsigned line);
const unsigned char *ptx_load_shared(uint32_t at, unsigned size, unsigned line);
void ptx_store_global(uint64_t at, const void *value, unsigned size, unsigned line);
void ptx_store_shared(uint32_t at, const void *value, unsigned size, unsigned line);
unsigned char *ptx_inside(unsigned char *p, unsigned size, unsigned char *begin, unsigned total);

/* A branch on a predicate, taken. */
void ptx_taken(unsigned line);

void ptx_barrier(unsigned line);
uint32_t
ptx_shuffle_bfly(uint32_t value, uint32_t lanes, uint32_t clamp, uint32_t mask, bool *valid);
uint32_t ptx_shuffle_idx(uint32_t value, uint32_t lane, uint32_t clamp, uint32_t mask, bool *valid);
/* ldmatrix x4: each lane gives the address of a row of 16 bytes. */
void ptx_matrices(uint32_t got[4], uint32_t row, bool transposed, unsigned line);
/* mma.m16n8k16 of bf16: d += a b, ab: a0 a1 a2 a3 b0 b1. */
void ptx_mma(float d[4], const uint32_t ab[6]);
/* cp.async: there after ptx_copies_wait of the thread. */
void ptx_copy_later(uint32_t to, uint64_t from, unsigned size, uint32_t read_bytes, unsigned line);
void ptx_copies_commit();
void ptx_copies_wait(unsigned groups_left);
uint64_t ptx_clock();

static const uint64_t PTX_SHARED_BIT = 1ull << 62; /* of a generic address */

static inline uint32_t ptx_lane() {
    return ptx_host->thread->x % 32;
}

template <typename T> static inline T at(const unsigned char *p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline float f32_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double f64_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint16_t bf16_of(float x) {
    const uint32_t bits = bits_of(x);
    if (std::isnan(x)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float fma_down(float a, float b, float c) {
    const double product = (double)a * (double)b; /* exact */
    const double sum = product + (double)c;
    const double part = sum - product; /* 2Sum (Knuth): sum + rest is exact */
    const double rest = (product - (sum - part)) + ((double)c - part);
    const float near = (float)sum;
    const bool above = (double)near > sum || ((double)near == sum && rest < 0.0);
    return above ? std::nextafterf(near, -std::numeric_limits<float>::infinity()) : near;
}

/* Approximations: exact to double or float, with the flushes and cuts that PTX states. */
static inline float ptx_power_of_two(float x) {
    const float y = std::exp2(std::fabs(x) < 0x1p-126f ? 0.0f : x);
    return y < 0x1p-126f ? 0.0f : y;
}

static inline float ptx_log_of_two(float x) {
    return std::log2(std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x);
}

static inline double ptx_rough_reciprocal(double x) { /* of the upper halves */
    const uint64_t upper = 0xffffffff00000000ull;
    return f64_of(bits_of(1.0 / f64_of(bits_of(x) & upper)) & upper);
}

static inline float ptx_saturate(float x) {
    return std::isnan(x) ? 0.0f : std::fmin(std::fmax(x, 0.0f), 1.0f);
}

template <typename T> static inline T ptx_integer(double x) {
    typedef std::numeric_limits<T> limits;
    if (std::isnan(x)) {
        return 0;
    }
    return x <= (double)limits::min()   ? limits::min()
           : x >= (double)limits::max() ? limits::max()
                                        : (T)x;
}

template <typename T> static inline T ptx_div(T a, T b) {
    if (b == 0) {
        ptx_stop("division by zero");
    }
    return a / b;
}

template <typename T> static inline T ptx_rem(T a, T b) {
    if (b == 0) {
        ptx_stop("division by zero");
    }
    return a % b;
}

template <typename T> static inline T ptx_shl(T a, uint32_t by) {
    return by >= 8 * sizeof(T) ? 0 : (T)(a << by);
}

template <typename T> static inline T ptx_shr(T a, uint32_t by) {
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? (T)-1 : 0;
}

static inline uint32_t ptx_shf_l(uint32_t low, uint32_t high, uint32_t by, bool wraps) {
    by = wraps ? by % 32 : std::min(by, 32u);
    return (uint32_t)(((uint64_t)high << 32 | low) << by >> 32);
}

static inline uint32_t ptx_shf_r(uint32_t low, uint32_t high, uint32_t by, bool wraps) {
    by = wraps ? by % 32 : std::min(by, 32u);
    return (uint32_t)(((uint64_t)high << 32 | low) >> by);
}

template <typename T> static inline T ptx_bfi(T a, T b, uint32_t at, uint32_t count) {
    const T ones = count >= 8 * sizeof(T) ? (T) ~(T)0 : (T)(((T)1 << count) - 1);
    const T mask = ptx_shl<T>(ones, at);
    return (T)((b & (T)~mask) | (ptx_shl<T>(a, at) & mask));
}

template <typename T> static inline T ptx_bfe(T a, uint32_t at, uint32_t count) {
    const uint32_t size = 8 * sizeof(T);
    at &= 0xff;
    count &= 0xff;
    if (count == 0 || at >= size) {
        return count == 0 || a >= 0 ? 0 : (T)-1;
    }
    count = std::min(count, size - at);
    const T left = (T)(a << (size - at - count));
    return (T)(left >> (size - count));
}

template <typename T> static inline uint32_t ptx_clz(T a) {
    return a == 0 ? 8 * sizeof(T) : (uint32_t)__builtin_clzll(a) - (64 - 8 * sizeof(T));
}

static inline uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t how) {
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t select = how >> 4 * i & 15;
        const uint32_t byte = (uint32_t)(all >> 8 * (select & 7)) & 0xff;
        out |= ((select & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xffu : 0) << 8 * i;
    }
    return out;
}

static inline uint32_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (uint32_t row = 0; row < 8; row++) {
        const uint32_t x = (row & 4) != 0 ? a : ~a;
        const uint32_t y = (row & 2) != 0 ? b : ~b;
        const uint32_t z = (row & 1) != 0 ? c : ~c;
        out |= (table >> row & 1) != 0 ? x & y & z : 0;
    }
    return out;
}

#endif
