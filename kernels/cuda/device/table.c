/*
 * table: the CUDA backend's operators, put together once. Operators are checked and started in
 * ops_*.c; what they launch lies in the .cu files, in cuDNN (conv_*.c) and in cuBLASLt (matmul.c).
 */
#include <pthread.h>

#include "kernels/cuda/device/cuda_internal.h"

static struct ops table;

static void make_table(void) {
    table.name = "cuda";
    cuda_put_memory(&table);
    cuda_put_image(&table);
    cuda_put_conv(&table);
    cuda_put_linear(&table);
    cuda_put_text(&table);
    cuda_put_rows(&table);
}

const struct ops *ops_cuda(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_table);
    return &table;
}
