/*
 * loop_sets: the sets of inner loops that this CPU supports, plain first and the fastest last.
 */
#ifndef TESTS_SUPPORT_LOOP_SETS_H
#define TESTS_SUPPORT_LOOP_SETS_H

#include "augment/ops_internal.h"
#include "augment/resize_internal.h"

enum { LOOP_SETS_MAX = 3 };

static inline int op_loop_sets(const struct op_loops *out[LOOP_SETS_MAX]) {
    const struct op_loops *const all[] = {op_loops_plain(), op_loops_avx2(), op_loops_avx512()};
    int n = 0;
    for (int i = 0; i < LOOP_SETS_MAX; i++) {
        out[n] = all[i];
        n += all[i] != NULL;
    }
    return n;
}

static inline int resize_loop_sets(const struct resize_kernels *out[LOOP_SETS_MAX]) {
    const struct resize_kernels *const all[] = {resize_kernels_plain(), resize_kernels_avx2(),
                                                resize_kernels_avx512()};
    int n = 0;
    for (int i = 0; i < LOOP_SETS_MAX; i++) {
        out[n] = all[i];
        n += all[i] != NULL;
    }
    return n;
}

#endif
