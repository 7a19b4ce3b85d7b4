/*
 * dnn_graph: cuDNN graphs of any operations, for measurements: a graph is described, planned, and
 * every plan timed.
 *
 * A call that fails marks the graph with cuDNN's own reason; later calls on it do nothing. So a
 * graph is built without checks of each call, and checked once.
 *
 * Threading : one owner.
 * Ownership : a graph owns its descriptors; its tensors borrow memory of the GPU's arena.
 */
#ifndef TESTS_BENCH_CUDA_DNN_GRAPH_INTERNAL_H
#define TESTS_BENCH_CUDA_DNN_GRAPH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/conv/conv_plan_internal.h" /* and with it the headers of CUDA and cuDNN */

enum { DNN_MAX_TENSORS = 24, DNN_MAX_PARTS = 40, DNN_MAX_OPERATIONS = 8, DNN_WHY_CHARS = 160 };

/* A GPU, or only its description: then plans are built and not run. */
struct dnn_gpu {
    cudnnHandle_t handle;                /* NULL: only described */
    cudnnBackendDescriptor_t properties; /* of either */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *arena; /* random numbers, for the operands of one graph after the other */
    size_t arena_bytes;
};

/* text NULL: device 0. Returns false with a reason if there is none. */
bool dnn_gpu_open(struct dnn_gpu *out, const char *text, size_t arena_bytes, char *why);
void dnn_gpu_close(struct dnn_gpu *c);
/* cuDNN's description of the GPU as JSON, which the caller frees; NULL with the reason in why. */
char *dnn_gpu_text(const struct dnn_gpu *c, char *why);

enum dnn_kind { DNN_STORED, DNN_VIRTUAL, DNN_SCALAR /* an f32 by value, 1e-5 */ };

struct dnn_tensor {
    cudnnBackendDescriptor_t descriptor;
    enum dnn_kind kind;
    size_t size_bytes;
};

struct dnn_graph {
    struct dnn_tensor tensors[DNN_MAX_TENSORS];
    int tensors_count;
    cudnnBackendDescriptor_t parts[DNN_MAX_PARTS]; /* what operations are made of */
    int parts_count;
    cudnnBackendDescriptor_t operations[DNN_MAX_OPERATIONS];
    int operations_count;
    cudnnBackendDescriptor_t graph;
    bool failed;
    char why[DNN_WHY_CHARS];
};

/* Sizes n, c, h, w of memory n, h, w, c; BOOLEAN is a bit. Returns its number, for the calls
 * below. */
int dnn_tensor(struct dnn_graph *g,
               enum dnn_kind kind,
               cudnnDataType_t type,
               const int64_t sizes[4]);

enum dnn_pass { DNN_FORWARD, DNN_DATA, DNN_WEIGHT };
void dnn_convolution(struct dnn_graph *g,
                     enum dnn_pass pass,
                     int x,
                     int w,
                     int y,
                     int64_t stride,
                     int64_t pad);
/* y = mode(x), or mode(x, b) where b is not -1. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y);
/* Per channel of x: its sum and the sum of its squares. */
void dnn_channel_sums(struct dnn_graph *g, int x, int sum, int square_sum);
/* y (1,c,1,1) = the sum of x over the rest */
void dnn_reduce(struct dnn_graph *g, int x, int y);
struct dnn_norm {
    int x, scale, bias, epsilon, mean, inv_std;
};
/* Batch norm in training, without running statistics; mean and inv_std are written. */
void dnn_norm(struct dnn_graph *g, const struct dnn_norm *n, int y);
/* Its gradients; bias is not read, mean and inv_std are. */
void dnn_norm_backward(struct dnn_graph *g,
                       const struct dnn_norm *n,
                       int dy,
                       int dx,
                       int dscale,
                       int dbias);

struct dnn_found {
    int proposed, built;             /* configurations, and plans that cuDNN could make of them */
    int64_t workspace_bytes, engine; /* of the fastest, without a GPU of the first */
    double first_ms, best_ms; /* of heuristics' first plan, and of the fastest; 0: none ran */
    char why[DNN_WHY_CHARS];  /* where there is no plan */
};
/* Plans of the first `most` configurations that heuristics A and the fallback list propose, each
 * timed where there is a GPU. */
void dnn_graph_measure(struct dnn_graph *g, struct dnn_gpu *c, int most, struct dnn_found *out);
void dnn_graph_destroy(struct dnn_graph *g);

/* Milliseconds of one call of `run`, which starts work on the GPU's stream: the least of three
 * rounds of 5 ms. Negative: it failed. */
double dnn_time_ms(struct dnn_gpu *c, bool (*run)(void *cookie), void *cookie);

#endif
