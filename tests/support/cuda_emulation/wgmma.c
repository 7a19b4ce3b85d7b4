/*
 * wgmma, emulated, from PTX's description of it (ISA 8.0 and later, "Asynchronous Warpgroup Level
 * Matrix Instructions"), apart from the kernels that use it:
 *
 *   descriptor    "Matrix Descriptor Format": start address, leading and stride dimension byte
 *                 offset in units of 16 bytes, base offset, swizzling mode. Only the 128-byte
 *                 swizzle with base offset 0 is known here; all else ends the program.
 *   place         "Shared Memory Matrix Layout" and "Strides"; CUTLASS states the same as canonical
 *                 layouts (cute/atom/mma_traits_sm90_gmma.hpp, B128). In bytes from the start, with
 *                 elements of two bytes:
 *                   K-major    (row, k)  row % 8 * 128 + row / 8 * stride + 2 k
 *                   MN-major   (row, k)  row % 64 * 2 + row / 64 * leading + k % 8 * 128
 *                                        + k / 8 * stride
 *                 then bits 4 to 6 of the address are xored with bits 7 to 9.
 *   accumulator   "Register Fragments", D of m64nNk16: number 4 j + 2 h + i of a thread is row
 *                 16 (warp % 4) + lane / 4 + 8 h, column 8 j + 2 (lane % 4) + i.
 *   fences        "Async proxy": writes through the generic proxy, of which cp.async is one, are
 *                 seen by the product only after fence.proxy.async of the thread that wrote;
 *                 wgmma.fence comes before the first product of a group.
 *   completion    after wgmma.wait_group and not before: products are done at the wait while
 *                 threads run backwards, and when they begin while these run forwards. Copies are
 *                 the other way round (tensor_core.h), so of a tile that is overwritten too early,
 *                 and of one that is read too early, each shows in one of the two orders.
 */
#include "tests/support/cuda_emulation/wgmma.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "tests/support/cuda_emulation/emulation.h"

enum { GROUP = 128, MAX_THREADS = 1024, MAX_PENDING = 64, SEEN = 64 };

struct product {
    float *c;
    unsigned columns;
    bool f16;
    uint64_t a, b;
    bool a_across, b_across;
};

static struct {
    uint64_t block; /* to which this belongs */
    bool fenced;
    unsigned count;
    uint64_t begun; /* since the block began */
    struct product pending[MAX_PENDING];
} threads[MAX_THREADS];

/* The last products that a warpgroup began, as its first thread to come said. */
static struct { uint64_t block, number, a, b; } seen[MAX_THREADS / GROUP][SEEN];

static unsigned self(void) {
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    if (threads[t].block != emulation_block()) {
        threads[t].block = emulation_block();
        threads[t].fenced = false;
        threads[t].count = 0;
        threads[t].begun = 0;
    }
    return t;
}

static float element(bool f16, uint64_t descriptor, bool across, unsigned row, unsigned k) {
    const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4;
    const uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    const uint32_t offset = across
                                ? row % 64 * 2 + row / 64 * leading + k % 8 * 128 + k / 8 * stride
                                : row % 8 * 128 + row / 8 * stride + k * 2;
    uint32_t at = start + offset;
    at ^= (at >> 7 & 7) << 4;
    uint16_t bits;
    memcpy(&bits, emulation_shared_seen_by_products(at, sizeof bits), sizeof bits);
    return f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static void check_descriptor(uint64_t d) {
    static const uint64_t unused =
        (uint64_t)3 << 14 | (uint64_t)3 << 30 | (uint64_t)7 << 46 | (uint64_t)0x3ff << 52;
    if (d >> 62 != 1 || (d >> 49 & 7) != 0 || (d & unused) != 0) {
        emulation_stop("a descriptor of another kind than 128-byte swizzle with base offset 0");
    }
}

/* The part of the product that this thread's registers hold. */
static void multiply(unsigned thread, const struct product *p) {
    const unsigned lane = thread % 32;
    const unsigned first = thread % GROUP / 32 * 16 + lane / 4;
    float a[2][16];
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned k = 0; k < 16; k++) {
            a[h][k] = element(p->f16, p->a, p->a_across, first + 8 * h, k);
        }
    }
    for (unsigned j = 0; j < p->columns / 8; j++) {
        for (unsigned i = 0; i < 2; i++) {
            double sums[2] = {p->c[4 * j + i], p->c[4 * j + 2 + i]};
            for (unsigned k = 0; k < 16; k++) {
                const float b = element(p->f16, p->b, p->b_across, 8 * j + 2 * (lane % 4) + i, k);
                sums[0] += (double)a[0][k] * (double)b;
                sums[1] += (double)a[1][k] * (double)b;
            }
            p->c[4 * j + i] = (float)sums[0];
            p->c[4 * j + 2 + i] = (float)sums[1];
        }
    }
}

/* All threads of a warpgroup begin the same products in the same order. */
static void check_same(unsigned thread, const struct product *p) {
    const uint64_t number = threads[thread].begun++;
    const unsigned group = thread / GROUP;
    const unsigned place = (unsigned)(number % SEEN);
    const bool known =
        seen[group][place].block == emulation_block() && seen[group][place].number == number;
    if (!known) {
        seen[group][place].block = emulation_block();
        seen[group][place].number = number;
        seen[group][place].a = p->a;
        seen[group][place].b = p->b;
    } else if (seen[group][place].a != p->a || seen[group][place].b != p->b) {
        emulation_stop("threads of a warpgroup that begin different products");
    }
}

void emulation_product_begin(float *c,
                             unsigned columns,
                             bool f16,
                             uint64_t a,
                             uint64_t b,
                             bool a_across,
                             bool b_across) {
    const unsigned t = self();
    const struct product p = {c, columns, f16, a, b, a_across, b_across};
    check_descriptor(a);
    check_descriptor(b);
    check_same(t, &p);
    if (!threads[t].fenced) {
        emulation_stop("a product begun without a fence before its group");
    }
    if (!emulation_is_backwards()) {
        multiply(t, &p);
    } else if (threads[t].count < MAX_PENDING) {
        threads[t].pending[threads[t].count++] = p;
    } else {
        emulation_stop("too many products on their way");
    }
}

void emulation_product_fence(void) {
    threads[self()].fenced = true;
}

void emulation_product_group(void) {
    threads[self()].fenced = false;
}

void emulation_product_wait(void) {
    const unsigned t = self();
    if (threads[t].fenced) {
        emulation_stop("a wait for products that are not in a group");
    }
    for (unsigned i = 0; i < threads[t].count; i++) {
        multiply(t, &threads[t].pending[i]);
    }
    threads[t].count = 0;
}
