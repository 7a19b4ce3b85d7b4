/*
 * dnn_graph: see the header. Sizes go to cuDNN as N, C, H, W; the strides describe NHWC memory.
 * Sums are in f32.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/cuda/dnn_graph_internal.h"

enum { MAX_PLANS = 64, ALIGNMENT = 256, WARM_CALLS = 2, ROUNDS = 3 };
static const double ROUND_MS = 5.0;
static const int64_t MOST_WORKSPACE_BYTES = (int64_t)1 << 30;

/* ---- the GPU ---- */

static bool say(char *why, const char *what, const char *reason) {
    (void)snprintf(why, DNN_WHY_CHARS, "%s: %s", what, reason);
    return false;
}

static bool dnn(cudnnStatus_t code, const char *what, char *why) {
    if (code == CUDNN_STATUS_SUCCESS) {
        return true;
    }
    char text[DNN_WHY_CHARS] = "";
    cudnnGetLastErrorString(text, sizeof text);
    for (char *c = text; *c != '\0'; c++) { /* it goes into JSON */
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? ' ' : *c;
    }
    return say(why, what, text[0] != '\0' ? text : cudnnGetErrorString(code));
}

static bool cuda(cudaError_t code, const char *what, char *why) {
    if (code == cudaSuccess) {
        return true;
    }
    (void)cudaGetLastError();
    return say(why, what, cudaGetErrorString(code));
}

/* bf16 numbers of either sign between 1/16 and 2. */
static bool fill(struct dnn_gpu *c, char *why) {
    enum { PIECE = 1 << 22 };
    uint16_t *piece = malloc(PIECE * sizeof *piece);
    if (piece == NULL) {
        return say(why, "operands", "no memory");
    }
    uint32_t state = 1;
    for (int i = 0; i < PIECE; i++) {
        state = state * 1664525u + 1013904223u;
        piece[i] = (uint16_t)((state >> 16 & 0x8000u) | (0x3d80u + (state >> 12) % 0x0280u));
    }
    bool good = true;
    for (size_t at = 0; good && at < c->arena_bytes; at += PIECE * sizeof *piece) {
        const size_t left = c->arena_bytes - at;
        const size_t count = left < PIECE * sizeof *piece ? left : PIECE * sizeof *piece;
        good =
            cuda(cudaMemcpy(c->arena + at, piece, count, cudaMemcpyHostToDevice), "operands", why);
    }
    free(piece);
    return good;
}

static bool open_properties(struct dnn_gpu *c, const char *text, char *why) {
    const int device = 0;
    if (!dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->properties),
             "properties", why)) {
        return false;
    }
    const cudnnStatus_t code =
        text != NULL
            ? cudnnBackendSetAttribute(c->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, (int64_t)strlen(text), text)
            : cudnnBackendSetAttribute(c->properties, CUDNN_ATTR_DEVICEPROP_DEVICE_ID,
                                       CUDNN_TYPE_INT32, 1, &device);
    return dnn(code, "properties", why) &&
           dnn(cudnnBackendFinalize(c->properties), "properties", why);
}

static bool open_device(struct dnn_gpu *c, size_t arena_bytes, char *why) {
    return cuda(cudaSetDevice(0), "no GPU", why) &&
           dnn(cudnnCreate(&c->handle), "cudnnCreate", why) &&
           cuda(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream", why) &&
           dnn(cudnnSetStream(c->handle, c->stream), "cudnnSetStream", why) &&
           cuda(cudaEventCreate(&c->begin), "event", why) &&
           cuda(cudaEventCreate(&c->end), "event", why) &&
           (arena_bytes == 0 || cuda(cudaMalloc((void **)&c->arena, arena_bytes), "memory", why));
}

bool dnn_gpu_open(struct dnn_gpu *out, const char *text, size_t arena_bytes, char *why) {
    memset(out, 0, sizeof *out);
    if (text == NULL) {
        if (!open_device(out, arena_bytes, why)) {
            return false;
        }
        out->arena_bytes = arena_bytes;
        if (arena_bytes > 0 && !fill(out, why)) {
            return false;
        }
    }
    return open_properties(out, text, why);
}

void dnn_gpu_close(struct dnn_gpu *c) {
    if (c->properties != NULL) {
        (void)cudnnBackendDestroyDescriptor(c->properties);
    }
    if (c->handle != NULL) {
        (void)cudaFree(c->arena);
        (void)cudaEventDestroy(c->begin);
        (void)cudaEventDestroy(c->end);
        (void)cudnnDestroy(c->handle);
        (void)cudaStreamDestroy(c->stream);
    }
}

char *dnn_gpu_text(const struct dnn_gpu *c, char *why) {
    enum { ROOM = 1 << 16 };
    int64_t got = 0;
    char *text = calloc(1, ROOM);
    if (text == NULL) {
        (void)say(why, "properties", "no memory");
        return NULL;
    }
    if (!dnn(cudnnBackendGetAttribute(c->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                      CUDNN_TYPE_CHAR, ROOM - 1, &got, text),
             "properties", why)) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- graphs ---- */

static bool ok(struct dnn_graph *g, cudnnStatus_t code, const char *what) {
    g->failed = g->failed || !dnn(code, what, g->why);
    return !g->failed;
}

static void set(struct dnn_graph *g,
                cudnnBackendDescriptor_t d,
                cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type,
                int64_t count,
                const void *values) {
    if (!g->failed) {
        (void)ok(g, cudnnBackendSetAttribute(d, name, type, count, values), "an attribute");
    }
}

static cudnnBackendDescriptor_t
begin(struct dnn_graph *g, cudnnBackendDescriptorType_t type, bool operation) {
    cudnnBackendDescriptor_t d = NULL;
    if (g->parts_count == DNN_MAX_PARTS || g->operations_count == DNN_MAX_OPERATIONS) {
        g->failed = true;
        (void)say(g->why, "graph", "too many parts");
    }
    if (!g->failed && ok(g, cudnnBackendCreateDescriptor(type, &d), "a descriptor")) {
        if (operation) {
            g->operations[g->operations_count++] = d;
        } else {
            g->parts[g->parts_count++] = d;
        }
    }
    return d;
}

static void finish(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *what) {
    if (!g->failed) {
        (void)ok(g, cudnnBackendFinalize(d), what);
    }
}

/* An operand of operation d. */
static void bind_tensor(struct dnn_graph *g,
                        cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name,
                        int tensor) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->tensors[tensor].descriptor);
}

int dnn_tensor(struct dnn_graph *g,
               enum dnn_kind kind,
               cudnnDataType_t type,
               const int64_t sizes[4]) {
    const int64_t c = sizes[1];
    const int64_t strides[4] = {c * sizes[2] * sizes[3], 1, c * sizes[3], c};
    const int64_t alignment = 16;
    const int64_t uid = g->tensors_count + 1;
    const bool yes = true;
    if (g->tensors_count == DNN_MAX_TENSORS) {
        g->failed = true;
        (void)say(g->why, "graph", "too many tensors");
    }
    if (g->failed) {
        return 0;
    }
    struct dnn_tensor *t = &g->tensors[g->tensors_count];
    t->kind = kind;
    const size_t count = (size_t)(sizes[0] * c * sizes[2] * sizes[3]);
    t->size_bytes = type == CUDNN_DATA_BOOLEAN ? (count + 7) / 8
                    : type == CUDNN_DATA_FLOAT ? count * sizeof(float)
                                               : count * sizeof(uint16_t);
    if (!ok(g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t->descriptor),
            "a tensor")) {
        return 0;
    }
    cudnnBackendDescriptor_t d = t->descriptor;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (kind == DNN_VIRTUAL) {
        set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    if (kind == DNN_SCALAR) {
        set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    finish(g, d, "a tensor");
    return g->tensors_count++;
}

static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} passes[] = {
    [DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DNN_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void dnn_convolution(struct dnn_graph *g,
                     enum dnn_pass pass,
                     int x,
                     int w,
                     int y,
                     int64_t stride,
                     int64_t pad) {
    const int64_t dims = 2;
    const int64_t pads[2] = {pad, pad};
    const int64_t strides[2] = {stride, stride};
    const int64_t dilation[2] = {1, 1};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const float one = 1.0f;
    const float zero = 0.0f;
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, false);
    set(g, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(g, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(g, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    set(g, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    set(g, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    finish(g, how, "a convolution");
    cudnnBackendDescriptor_t d = begin(g, passes[pass].type, true);
    bind_tensor(g, d, passes[pass].x, x);
    bind_tensor(g, d, passes[pass].w, w);
    bind_tensor(g, d, passes[pass].y, y);
    set(g, d, passes[pass].convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set(g, d, passes[pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, d, passes[pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(g, d, "a convolution's operation");
}

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, int y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, false);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finish(g, how, "a pointwise form");
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, true);
    set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b >= 0) {
        bind_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    }
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(g, d, "a pointwise operation");
}

void dnn_channel_sums(struct dnn_graph *g, int x, int sum, int square_sum) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, true);
    set(g, d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_sum);
    finish(g, d, "channel sums");
}

void dnn_reduce(struct dnn_graph *g, int x, int y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnReduceTensorOp_t mode = CUDNN_REDUCE_TENSOR_ADD;
    cudnnBackendDescriptor_t how = begin(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, false);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finish(g, how, "a reduction's form");
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, true);
    set(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish(g, d, "a reduction");
}

void dnn_norm(struct dnn_graph *g, const struct dnn_norm *n, int y) {
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, true);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, n->x);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, n->mean);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, n->inv_std);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, n->scale);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, n->bias);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, n->epsilon);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y);
    finish(g, d, "a batch norm");
}

void dnn_norm_backward(struct dnn_graph *g,
                       const struct dnn_norm *n,
                       int dy,
                       int dx,
                       int dscale,
                       int dbias) {
    const cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendDescriptor_t d = begin(g, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, true);
    set(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, n->x);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, n->mean);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, n->inv_std);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, n->scale);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale);
    bind_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, dbias);
    finish(g, d, "a batch norm's gradient");
}

static void drop(cudnnBackendDescriptor_t d) {
    if (d != NULL) {
        (void)cudnnBackendDestroyDescriptor(d);
    }
}

void dnn_graph_destroy(struct dnn_graph *g) {
    drop(g->graph);
    for (int i = 0; i < g->operations_count; i++) {
        drop(g->operations[i]);
    }
    for (int i = 0; i < g->parts_count; i++) {
        drop(g->parts[i]);
    }
    for (int i = 0; i < DNN_MAX_TENSORS; i++) {
        drop(g->tensors[i].descriptor);
    }
    memset(g, 0, sizeof *g);
}

/* ---- plans ---- */

static void make_graph(struct dnn_graph *g, const struct dnn_gpu *c) {
    if (g->failed ||
        !ok(g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph),
            "a graph")) {
        return;
    }
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        g->operations_count, g->operations);
    if (c->handle != NULL) {
        set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle);
    }
    finish(g, g->graph, "a graph");
}

/* Configurations that `mode` proposes, at most room. */
static int propose(struct dnn_graph *g,
                   const struct dnn_gpu *c,
                   cudnnBackendHeurMode_t mode,
                   cudnnBackendDescriptor_t *out,
                   int room) {
    cudnnBackendDescriptor_t h = NULL;
    int64_t got = 0;
    int made = 0;
    char *why = g->why;
    bool good =
        dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h), "heuristics",
            why) &&
        dnn(cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph),
            "heuristics", why) &&
        dnn(cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode),
            "heuristics", why) &&
        (c->handle != NULL ||
         dnn(cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->properties),
             "heuristics", why)) &&
        dnn(cudnnBackendFinalize(h), "heuristics", why);
    for (; good && made < room; made++) {
        good = dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[made]),
                   "a configuration", why);
    }
    good = good && dnn(cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &got, out),
                       "heuristics", why);
    const int count = !good ? 0 : got < room ? (int)got : room;
    for (; made > count; made--) {
        drop(out[made - 1]);
    }
    drop(h);
    return count;
}

static int64_t engine_number(cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = NULL;
    int64_t got = 0;
    int64_t number = -1;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                                  &engine) != CUDNN_STATUS_SUCCESS ||
         cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got,
                                  &number) != CUDNN_STATUS_SUCCESS)) {
        number = -1;
    }
    drop(engine);
    return number;
}

static bool make_plan(cudnnBackendDescriptor_t config,
                      const struct dnn_gpu *c,
                      cudnnBackendDescriptor_t *out,
                      int64_t *workspace_bytes,
                      char *why) {
    int64_t got = 0;
    *out = NULL;
    return dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, out), "a plan",
               why) &&
           (c->handle != NULL
                ? dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                               CUDNN_TYPE_HANDLE, 1, &c->handle),
                      "a plan", why)
                : dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->properties),
                      "a plan", why)) &&
           dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config),
               "a plan", why) &&
           dnn(cudnnBackendFinalize(*out), "a plan", why) &&
           dnn(cudnnBackendGetAttribute(*out, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &got, workspace_bytes),
               "a plan", why);
}

/* Operands and workspace from the arena. The caller destroys *out. */
static bool make_pack(const struct dnn_graph *g,
                      const struct dnn_gpu *c,
                      int64_t workspace_bytes,
                      cudnnBackendDescriptor_t *out,
                      char *why) {
    static float epsilon = 1e-5f;
    void *pointers[DNN_MAX_TENSORS];
    int64_t uids[DNN_MAX_TENSORS];
    int64_t count = 0;
    size_t at = 0;
    *out = NULL;
    for (int i = 0; i < g->tensors_count; i++) {
        const struct dnn_tensor *t = &g->tensors[i];
        if (t->kind == DNN_VIRTUAL) {
            continue;
        }
        pointers[count] = t->kind == DNN_SCALAR ? (void *)&epsilon : (void *)(c->arena + at);
        uids[count++] = i + 1;
        at += t->kind == DNN_SCALAR ? 0 : (t->size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    if (at + (size_t)workspace_bytes > c->arena_bytes) {
        return say(why, "operands", "more than the arena holds");
    }
    void *workspace = c->arena + at;
    return dnn(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, out), "operands",
               why) &&
           dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, count, pointers),
               "operands", why) &&
           dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                        count, uids),
               "operands", why) &&
           dnn(cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &workspace),
               "operands", why) &&
           dnn(cudnnBackendFinalize(*out), "operands", why);
}

struct execution {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t plan, pack;
    char *why;
};

static bool execute(void *cookie) {
    const struct execution *e = cookie;
    return dnn(cudnnBackendExecute(e->handle, e->plan, e->pack), "running a plan", e->why);
}

double dnn_time_ms(struct dnn_gpu *c, bool (*run)(void *cookie), void *cookie) {
    double best_ms = -1.0;
    int calls = 1;
    for (int i = 0; i < WARM_CALLS; i++) {
        if (!run(cookie)) {
            return -1.0;
        }
    }
    for (int round = -1; round < ROUNDS;
         round++) { /* round -1 measures how many calls fill a round */
        float ms = 0.0f;
        bool good = cudaEventRecord(c->begin, c->stream) == cudaSuccess;
        for (int i = 0; good && i < calls; i++) {
            good = run(cookie);
        }
        good = good && cudaEventRecord(c->end, c->stream) == cudaSuccess &&
               cudaEventSynchronize(c->end) == cudaSuccess &&
               cudaEventElapsedTime(&ms, c->begin, c->end) == cudaSuccess;
        if (!good) {
            (void)cudaGetLastError();
            return -1.0;
        }
        const double each_ms = (double)ms / calls;
        if (round < 0) {
            calls = each_ms * 200.0 > ROUND_MS ? (int)(ROUND_MS / each_ms) + 1 : 200;
        } else if (best_ms < 0.0 || each_ms < best_ms) {
            best_ms = each_ms;
        }
    }
    return best_ms;
}

static void try_config(struct dnn_graph *g,
                       struct dnn_gpu *c,
                       cudnnBackendDescriptor_t config,
                       struct dnn_found *out) {
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t pack = NULL;
    int64_t workspace_bytes = 0;
    if (make_plan(config, c, &plan, &workspace_bytes, out->why) &&
        workspace_bytes <= MOST_WORKSPACE_BYTES) {
        double ms = 0.0;
        out->built++;
        if (c->handle != NULL) {
            struct execution e = {c->handle, plan, NULL, out->why};
            ms = -1.0;
            if (make_pack(g, c, workspace_bytes, &pack, out->why)) {
                e.pack = pack;
                ms = dnn_time_ms(c, execute, &e);
            }
        }
        if (ms > 0.0 && out->first_ms <= 0.0) {
            out->first_ms = ms;
        }
        if ((c->handle == NULL && out->built == 1) ||
            (ms > 0.0 && (out->best_ms <= 0.0 || ms < out->best_ms))) {
            out->best_ms = ms;
            out->workspace_bytes = workspace_bytes;
            out->engine = engine_number(config);
        }
    }
    drop(pack);
    drop(plan);
}

void dnn_graph_measure(struct dnn_graph *g, struct dnn_gpu *c, int most, struct dnn_found *out) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t configs[MAX_PLANS];
    memset(out, 0, sizeof *out);
    make_graph(g, c);
    most = most < MAX_PLANS ? most : MAX_PLANS;
    for (int m = 0; m < 2 && !g->failed; m++) {
        const int count = propose(g, c, modes[m], configs, MAX_PLANS);
        for (int i = 0; i < count; i++) {
            if (out->proposed + i < most) {
                try_config(g, c, configs[i], out);
            }
            drop(configs[i]);
        }
        out->proposed += count;
    }
    if (out->built == 0 && out->why[0] == '\0') {
        (void)snprintf(out->why, sizeof out->why, "%s",
                       g->why[0] != '\0' ? g->why : "nothing proposed");
    }
}
