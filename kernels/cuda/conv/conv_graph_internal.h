/*
 * What conv_operations.c (what is computed) and conv_graph.c (by which engine) share: attributes
 * and lifetimes of cuDNN's backend descriptors.
 */
#ifndef KERNELS_CUDA_CONV_CONV_GRAPH_INTERNAL_H
#define KERNELS_CUDA_CONV_CONV_GRAPH_INTERNAL_H

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

static inline enum status dnn_set(cudnnBackendDescriptor_t d,
                                  cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type,
                                  int64_t count,
                                  const void *values,
                                  struct error *err) {
    TRY_DNN(cudnnBackendSetAttribute(d, name, type, count, values));
    return STATUS_OK;
}

/* Leaves NULL. */
static inline void dnn_destroy(cudnnBackendDescriptor_t *d) {
    if (*d != NULL) {
        (void)cudnnBackendDestroyDescriptor(*d);
        *d = NULL;
    }
}

#endif
