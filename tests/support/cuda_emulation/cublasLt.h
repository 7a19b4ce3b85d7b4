/*
 * cublasLt, emulated: names that headers of kernels/cuda mention. Products are the reference's; see
 * libraries.c.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUBLASLT_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUBLASLT_H

#include <stddef.h>

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 } cublasStatus_t;
typedef struct emulation_blas *cublasLtHandle_t;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
const char *cublasLtGetStatusString(cublasStatus_t status);
size_t cublasLtGetVersion(void);

#ifdef __cplusplus
}
#endif

#endif
