/*
 * cudnn, emulated: the names that headers of kernels/cuda use, without convolutions. The emulated
 * module has no engine for any shape, so the plain kernels of conv_direct.cu do the work.
 */
#ifndef TESTS_SUPPORT_CUDA_EMULATION_CUDNN_H
#define TESTS_SUPPORT_CUDA_EMULATION_CUDNN_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDNN_MAJOR   9
#define CUDNN_MINOR   8
#define CUDNN_VERSION 90800

typedef enum { CUDNN_STATUS_SUCCESS = 0 } cudnnStatus_t;
typedef enum { CUDNN_HEUR_MODE_A = 3 } cudnnBackendHeurMode_t;
typedef struct emulation_dnn *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

size_t cudnnGetVersion(void);
cudnnStatus_t cudnnCreate(cudnnHandle_t *out);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *out, size_t out_size);

#ifdef __cplusplus
}
#endif

#endif
