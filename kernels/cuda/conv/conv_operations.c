/*
 * conv_operations: one convolution, alone or with what cuDNN does beside it in the same plan, as an
 * operation graph. No GPU is needed here.
 *
 *     CONV_ALONE         y = conv(x, w), or one of its gradients
 *     CONV_STATISTICS    y = conv(x, w);  sum = sum of y;  squares = sum of y^2     per channel
 *     CONV_HANDOVER      act = (pre - mean) rstd gamma + beta
 *                        x = the data gradient (+ branch), where act > 0, else 0
 *                        dbeta = sum of x;  dgamma = sum of x (pre - mean) rstd     per channel
 *     CONV_HANDOVER_OUT  the same with act + out for act: where gamma and beta hold zeros, the
 *                        mask is that of out
 *
 * These are the forms for which cuDNN has engines (in fp16): the mask has to be computed out of
 * pre, and the coefficients of the batch norm's backward pass come with its sums, wanted or not.
 *
 * cuDNN names sizes in the order N, C, H, W; NHWC is said by the strides. Sums are f32 in every
 * type.
 */
#include <string.h>

#include "kernels/cuda/conv/conv_graph_internal.h"

/* Numbers of tensors that exist inside a plan alone; the others have those of their role. */
enum { FIRST_VIRTUAL = 100 };

static cudnnDataType_t dnn_type(enum dtype t) {
    return t == DTYPE_BF16  ? CUDNN_DATA_BFLOAT16
           : t == DTYPE_F16 ? CUDNN_DATA_HALF
                            : CUDNN_DATA_FLOAT;
}

/* A descriptor that the graph keeps until it goes. */
static enum status keep_part(struct conv_graph *g,
                             cudnnBackendDescriptorType_t type,
                             cudnnBackendDescriptor_t *out,
                             struct error *err) {
    REQUIRE(g->parts_count < CONV_MAX_PARTS);
    TRY_DNN(cudnnBackendCreateDescriptor(type, out));
    g->parts[g->parts_count++] = *out;
    return STATUS_OK;
}

static enum status keep_operation(struct conv_graph *g,
                                  cudnnBackendDescriptorType_t type,
                                  cudnnBackendDescriptor_t *out,
                                  struct error *err) {
    REQUIRE(g->operations_count < CONV_MAX_OPERATIONS);
    TRY_DNN(cudnnBackendCreateDescriptor(type, out));
    g->operations[g->operations_count++] = *out;
    return STATUS_OK;
}

/* Attributes of an operation that are descriptors. */
static enum status set_part(cudnnBackendDescriptor_t d,
                            cudnnBackendAttributeName_t name,
                            cudnnBackendDescriptor_t value,
                            struct error *err) {
    return dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, err);
}

/* ---- tensors ---- */

/* Sizes n, c, h, w of a tensor that lies in memory as n, h, w, c. */
struct extent {
    int64_t n, c, h, w;
};

static enum status fill_tensor(cudnnBackendDescriptor_t d,
                               int64_t uid,
                               cudnnDataType_t type,
                               struct extent e,
                               bool is_virtual,
                               struct error *err) {
    const int64_t sizes[4] = {e.n, e.c, e.h, e.w};
    const int64_t strides[4] = {e.h * e.w * e.c, 1, e.w * e.c, e.c};
    const int64_t alignment = ALIGNMENT_BYTES;
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, err));
    TRY_DNN(cudnnBackendFinalize(d));
    return STATUS_OK;
}

static enum status make_tensor(struct conv_graph *g,
                               enum conv_role role,
                               enum dtype dtype,
                               struct extent e,
                               struct error *err) {
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &g->tensors[role]));
    return fill_tensor(g->tensors[role], CONV_UID(role), dnn_type(dtype), e, false, err);
}

/* f32 between two operations. */
static enum status make_virtual(struct conv_graph *g,
                                cudnnBackendDescriptor_t *out,
                                struct extent e,
                                struct error *err) {
    const int64_t uid = FIRST_VIRTUAL + g->parts_count;
    TRY(keep_part(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, err));
    return fill_tensor(*out, uid, CUDNN_DATA_FLOAT, e, true, err);
}

static enum status make_vectors(struct conv_graph *g,
                                enum conv_role first,
                                enum conv_role last,
                                int64_t channels,
                                struct error *err) {
    const struct extent e = {1, channels, 1, 1};
    for (int role = first; role <= (int)last; role++) {
        TRY(make_tensor(g, (enum conv_role)role, DTYPE_F32, e, err));
    }
    return STATUS_OK;
}

/* ---- operations ---- */

static enum status make_convolution(struct conv_graph *g,
                                    cudnnBackendDescriptor_t *out,
                                    const struct conv_problem *p,
                                    struct error *err) {
    const int64_t dims = 2;
    const int64_t pad[2] = {p->pad, p->pad};
    const int64_t stride[2] = {p->stride, p->stride};
    const int64_t dilation[2] = {1, 1};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    TRY(keep_part(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode,
                err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride, err));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation, err));
    TRY_DNN(cudnnBackendFinalize(*out));
    return STATUS_OK;
}

/* The attribute names of each pass, in the order x, w, y, convolution, alpha, beta. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
} passes[] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* x: where the data gradient goes, or what is convolved. */
static enum status convolve(struct conv_graph *g,
                            const struct conv_problem *p,
                            cudnnBackendDescriptor_t x,
                            bool add,
                            struct error *err) {
    const float one = 1.0f;
    const float beta = add ? 1.0f : 0.0f;
    cudnnBackendDescriptor_t convolution;
    cudnnBackendDescriptor_t op;
    TRY(make_convolution(g, &convolution, p, err));
    TRY(keep_operation(g, passes[p->pass].type, &op, err));
    TRY(set_part(op, passes[p->pass].x, x, err));
    TRY(set_part(op, passes[p->pass].w, g->tensors[CONV_W], err));
    TRY(set_part(op, passes[p->pass].y, g->tensors[CONV_Y], err));
    TRY(set_part(op, passes[p->pass].convolution, convolution, err));
    TRY(dnn_set(op, passes[p->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one, err));
    TRY(dnn_set(op, passes[p->pass].beta, CUDNN_TYPE_FLOAT, 1, &beta, err));
    TRY_DNN(cudnnBackendFinalize(op));
    return STATUS_OK;
}

/* *y = a + by b, or a b with CUDNN_POINTWISE_MUL, in f32 between operations. */
static enum status combine(struct conv_graph *g,
                           cudnnPointwiseMode_t mode,
                           cudnnBackendDescriptor_t *y,
                           struct extent e,
                           cudnnBackendDescriptor_t a,
                           cudnnBackendDescriptor_t b,
                           float by,
                           struct error *err) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const float one = 1.0f;
    cudnnBackendDescriptor_t how;
    cudnnBackendDescriptor_t op;
    TRY(make_virtual(g, y, e, err));
    TRY(keep_part(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &how, err));
    TRY(dnn_set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, err));
    TRY(dnn_set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, err));
    TRY_DNN(cudnnBackendFinalize(how));
    TRY(keep_operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &op, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y, err));
    TRY(dnn_set(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one, err));
    TRY(dnn_set(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &by, err));
    TRY_DNN(cudnnBackendFinalize(op));
    return STATUS_OK;
}

/* x = gradient where act > 0, else 0. */
static enum status mask(struct conv_graph *g,
                        cudnnBackendDescriptor_t gradient,
                        cudnnBackendDescriptor_t act,
                        struct error *err) {
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_BWD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how;
    cudnnBackendDescriptor_t op;
    TRY(keep_part(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &how, err));
    TRY(dnn_set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, err));
    TRY(dnn_set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, err));
    TRY_DNN(cudnnBackendFinalize(how));
    TRY(keep_operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &op, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, gradient, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, act, err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, g->tensors[CONV_X], err));
    TRY_DNN(cudnnBackendFinalize(op));
    return STATUS_OK;
}

static enum status statistics(struct conv_graph *g, struct error *err) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t op;
    TRY(keep_operation(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, &op, err));
    TRY(dnn_set(op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode, err));
    TRY(dnn_set(op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute,
                err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, g->tensors[CONV_Y], err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, g->tensors[CONV_SUM], err));
    TRY(set_part(op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, g->tensors[CONV_SQUARES], err));
    TRY_DNN(cudnnBackendFinalize(op));
    return STATUS_OK;
}

static enum status sums_of_taker(struct conv_graph *g, struct error *err) {
    static const struct {
        cudnnBackendAttributeName_t name;
        enum conv_role role;
    } parts[] = {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, CONV_PRE},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, CONV_X},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, CONV_MEAN},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, CONV_RSTD},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, CONV_GAMMA},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CONV_DGAMMA},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, CONV_DBETA},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CONV_DY_SCALE},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, CONV_PRE_SCALE},
                 {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, CONV_BIAS}};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t op;
    TRY(keep_operation(g, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, &op, err));
    TRY(dnn_set(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
                &compute, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        TRY(set_part(op, parts[i].name, g->tensors[parts[i].role], err));
    }
    TRY_DNN(cudnnBackendFinalize(op));
    return STATUS_OK;
}

/* ---- graphs ---- */

static enum status
make_handover(struct conv_graph *g, const struct conv_problem *p, struct error *err) {
    const struct extent x = {p->n, p->c, p->h, p->w};
    cudnnBackendDescriptor_t gradient;
    cudnnBackendDescriptor_t act;
    TRY(make_tensor(g, CONV_PRE, p->dtype, x, err));
    TRY(make_vectors(g, CONV_MEAN, CONV_BIAS, p->c, err));
    TRY(make_virtual(g, &gradient, x, err));
    TRY(convolve(g, p, gradient, false, err));
    if (p->add) {
        TRY(make_tensor(g, CONV_BRANCH, p->dtype, x, err));
        TRY(combine(g, CUDNN_POINTWISE_ADD, &gradient, x, gradient, g->tensors[CONV_BRANCH], 1.0f,
                    err));
    }
    TRY(combine(g, CUDNN_POINTWISE_ADD, &act, x, g->tensors[CONV_PRE], g->tensors[CONV_MEAN], -1.0f,
                err));
    TRY(combine(g, CUDNN_POINTWISE_MUL, &act, x, act, g->tensors[CONV_RSTD], 1.0f, err));
    TRY(combine(g, CUDNN_POINTWISE_MUL, &act, x, act, g->tensors[CONV_GAMMA], 1.0f, err));
    TRY(combine(g, CUDNN_POINTWISE_ADD, &act, x, act, g->tensors[CONV_BETA], 1.0f, err));
    if (p->fusion == CONV_HANDOVER_OUT) {
        TRY(make_tensor(g, CONV_OUT, p->dtype, x, err));
        TRY(combine(g, CUDNN_POINTWISE_ADD, &act, x, act, g->tensors[CONV_OUT], 1.0f, err));
    }
    TRY(mask(g, gradient, act, err));
    return sums_of_taker(g, err);
}

static enum status
make_operations(struct conv_graph *g, const struct conv_problem *p, struct error *err) {
    const struct extent x = {p->n, p->c, p->h, p->w};
    const struct extent w = {p->k, p->c, p->r, p->s};
    const struct extent y = {p->n, p->k, p->oh, p->ow};
    TRY(make_tensor(g, CONV_X, p->dtype, x, err));
    TRY(make_tensor(g, CONV_W, p->dtype, w, err));
    TRY(make_tensor(g, CONV_Y, p->dtype, y, err));
    switch (p->fusion) {
    case CONV_ALONE:
        return convolve(g, p, g->tensors[CONV_X], p->add, err);
    case CONV_STATISTICS:
        TRY(make_vectors(g, CONV_SUM, CONV_SQUARES, p->k, err));
        TRY(convolve(g, p, g->tensors[CONV_X], false, err));
        return statistics(g, err);
    case CONV_HANDOVER:
    case CONV_HANDOVER_OUT:
        return make_handover(g, p, err);
    }
    return error_set(err, STATUS_DEVICE, "no graph for the fusion %d", (int)p->fusion);
}

static enum status make_graph(struct conv_graph *g,
                              const struct conv_problem *p,
                              const struct conv_chip *chip,
                              struct error *err) {
    TRY(make_operations(g, p, err));
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    TRY(dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                g->operations_count, g->operations, err));
    if (chip->handle != NULL) {
        TRY(dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &chip->handle,
                    err));
    }
    TRY_DNN(cudnnBackendFinalize(g->graph));
    return STATUS_OK;
}

enum status conv_graph_create(struct conv_graph *out,
                              const struct conv_problem *p,
                              const struct conv_chip *chip,
                              struct error *err) {
    memset(out, 0, sizeof *out);
    const enum status s = make_graph(out, p, chip, err);
    if (s != STATUS_OK) {
        conv_graph_destroy(out);
    }
    return s;
}

void conv_graph_destroy(struct conv_graph *g) {
    dnn_destroy(&g->graph);
    for (int i = 0; i < CONV_MAX_OPERATIONS; i++) {
        dnn_destroy(&g->operations[i]);
    }
    for (int i = 0; i < CONV_MAX_PARTS; i++) {
        dnn_destroy(&g->parts[i]);
    }
    for (int i = 0; i < CONV_ROLES_COUNT; i++) {
        dnn_destroy(&g->tensors[i]);
    }
}
