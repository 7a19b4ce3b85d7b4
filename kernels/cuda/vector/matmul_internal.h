/*
 * matmul: products of dense row-major matrices by cuBLASLt, one algorithm per shape, found once.
 *
 * Threading : one owner.
 * Ownership : matmul_plans owns its descriptors.
 */
#ifndef KERNELS_CUDA_VECTOR_MATMUL_INTERNAL_H
#define KERNELS_CUDA_VECTOR_MATMUL_INTERNAL_H

#include "kernels/cuda/device/cuda_internal.h"

/* out (m,n) = alpha op(a) op(b) + bias (+ out); op(a) is (m,k), op(b) is (k,n). */
struct product {
    enum dtype in, out; /* both F32, or BF16 to BF16 or F32 */
    int64_t m, n, k;
    bool transpose_a, transpose_b; /* a is stored (k,m), b is stored (n,k) */
    bool add;                      /* out += instead of out = */
    bool bias;                     /* (n) of type `out`, added to every row */
};

enum status matmul_plans_create(struct matmul_plans **out, struct error *err);
void matmul_plans_destroy(struct matmul_plans *p); /* accepts NULL */

/* Returns OK, NOMEM, UNSUPPORTED (cuBLASLt has no algorithm) or DEVICE. */
enum status matmul_run(struct cuda_device *dev,
                       const struct product *p,
                       void *out,
                       const void *a,
                       const void *b,
                       const void *bias,
                       float alpha,
                       struct error *err);

#endif
