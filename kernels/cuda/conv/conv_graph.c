/*
 * conv_graph: one convolution as an operation graph of cuDNN, y = conv(x, w) or one of its
 * gradients; then the engines, configurations and plans of such a graph. No GPU is needed here.
 *
 * cuDNN expects sizes in the order N, C, H, W; the strides describe NHWC memory. Sums are f32 for
 * every type.
 */
#include <string.h>

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"

static enum status dnn_status(cudnnStatus_t code, const char *what, struct error *err) {
    return code == CUDNN_STATUS_SUCCESS ? STATUS_OK : dnn_failed(code, what, err);
}

static enum status dnn_set(cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type,
                           int64_t count,
                           const void *values,
                           struct error *err) {
    TRY_DNN(cudnnBackendSetAttribute(d, name, type, count, values));
    return STATUS_OK;
}

/* An attribute that is a descriptor. */
static enum status set_part(cudnnBackendDescriptor_t d,
                            cudnnBackendAttributeName_t name,
                            cudnnBackendDescriptor_t value,
                            struct error *err) {
    return dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, err);
}

void dnn_destroy(cudnnBackendDescriptor_t *d) {
    if (*d != NULL) {
        (void)cudnnBackendDestroyDescriptor(*d);
        *d = NULL;
    }
}

/* ---- graphs ---- */

/* Sizes n, c, h, w of a tensor whose memory is n, h, w, c. */
static enum status make_tensor(struct conv_graph *g,
                               enum conv_role role,
                               enum dtype dtype,
                               int64_t n,
                               int64_t c,
                               int64_t h,
                               int64_t w,
                               struct error *err) {
    const cudnnDataType_t type = dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int64_t uid = CONV_UID(role);
    const int64_t sizes[4] = {n, c, h, w};
    const int64_t strides[4] = {h * w * c, 1, w * c, c};
    const int64_t alignment = ALIGNMENT_BYTES;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &g->tensors[role]));
    const cudnnBackendDescriptor_t d = g->tensors[role];
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, err));
    TRY(dnn_set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, err));
    TRY_DNN(cudnnBackendFinalize(d));
    return STATUS_OK;
}

static enum status
make_convolution(struct conv_graph *g, const struct conv_problem *p, struct error *err) {
    const int64_t dims = 2;
    const int64_t pad[2] = {p->pad, p->pad};
    const int64_t stride[2] = {p->stride, p->stride};
    const int64_t dilation[2] = {1, 1};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &g->convolution));
    const cudnnBackendDescriptor_t d = g->convolution;
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride, err));
    TRY(dnn_set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation, err));
    TRY_DNN(cudnnBackendFinalize(d));
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

static enum status
make_operation(struct conv_graph *g, const struct conv_problem *p, struct error *err) {
    const float one = 1.0f;
    const float beta = p->add ? 1.0f : 0.0f;
    TRY_DNN(cudnnBackendCreateDescriptor(passes[p->pass].type, &g->operation));
    const cudnnBackendDescriptor_t d = g->operation;
    TRY(set_part(d, passes[p->pass].x, g->tensors[CONV_X], err));
    TRY(set_part(d, passes[p->pass].w, g->tensors[CONV_W], err));
    TRY(set_part(d, passes[p->pass].y, g->tensors[CONV_Y], err));
    TRY(set_part(d, passes[p->pass].convolution, g->convolution, err));
    TRY(dnn_set(d, passes[p->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one, err));
    TRY(dnn_set(d, passes[p->pass].beta, CUDNN_TYPE_FLOAT, 1, &beta, err));
    TRY_DNN(cudnnBackendFinalize(d));
    return STATUS_OK;
}

static enum status make_graph(struct conv_graph *g,
                              const struct conv_problem *p,
                              const struct conv_gpu *gpu,
                              struct error *err) {
    TRY(make_tensor(g, CONV_X, p->dtype, p->n, p->c, p->h, p->w, err));
    TRY(make_tensor(g, CONV_W, p->dtype, p->k, p->c, p->r, p->s, err));
    TRY(make_tensor(g, CONV_Y, p->dtype, p->n, p->k, p->oh, p->ow, err));
    TRY(make_convolution(g, p, err));
    TRY(make_operation(g, p, err));
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    TRY(set_part(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, g->operation, err));
    if (gpu->handle != NULL) {
        TRY(dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &gpu->handle,
                    err));
    }
    TRY_DNN(cudnnBackendFinalize(g->graph));
    return STATUS_OK;
}

enum status conv_graph_create(struct conv_graph *out,
                              const struct conv_problem *p,
                              const struct conv_gpu *gpu,
                              struct error *err) {
    memset(out, 0, sizeof *out);
    const enum status s = make_graph(out, p, gpu, err);
    if (s != STATUS_OK) {
        conv_graph_destroy(out);
    }
    return s;
}

void conv_graph_destroy(struct conv_graph *g) {
    dnn_destroy(&g->graph);
    dnn_destroy(&g->operation);
    dnn_destroy(&g->convolution);
    for (int i = 0; i < CONV_ROLES_COUNT; i++) {
        dnn_destroy(&g->tensors[i]);
    }
}

/* ---- engines ---- */

static enum status read_results(cudnnBackendDescriptor_t heuristics,
                                cudnnBackendDescriptor_t *out,
                                int64_t room,
                                int64_t *count,
                                struct error *err) {
    int64_t found = 0;
    for (*count = 0; *count < room; ++*count) {
        TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[*count]));
    }
    const cudnnStatus_t code =
        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &found, (void *)out);
    /* Destroys the descriptors that were not filled. */
    const int64_t good = code != CUDNN_STATUS_SUCCESS ? 0 : found < room ? found : room;
    for (; *count > good; --*count) {
        dnn_destroy(&out[*count - 1]);
    }
    TRY_DNN(code);
    return STATUS_OK;
}

/* Sets the GPU's properties of a descriptor; with a handle cuDNN takes them from the graph. */
static enum status set_gpu(cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name,
                           const struct conv_gpu *gpu,
                           struct error *err) {
    return gpu->properties == NULL
               ? STATUS_OK
               : dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu->properties, err);
}

static enum status make_heuristics(cudnnBackendDescriptor_t *out,
                                   const struct conv_graph *g,
                                   const struct conv_gpu *gpu,
                                   cudnnBackendHeurMode_t mode,
                                   struct error *err) {
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &g->graph, err));
    TRY(dnn_set(*out, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, err));
    TRY(set_gpu(*out, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu, err));
    TRY_DNN(cudnnBackendFinalize(*out));
    return STATUS_OK;
}

enum status conv_graph_propose(const struct conv_graph *g,
                               const struct conv_gpu *gpu,
                               cudnnBackendHeurMode_t mode,
                               cudnnBackendDescriptor_t *out,
                               int64_t room,
                               int64_t *count,
                               struct error *err) {
    cudnnBackendDescriptor_t heuristics = NULL;
    *count = 0;
    enum status s = make_heuristics(&heuristics, g, gpu, mode, err);
    THEN(s, read_results(heuristics, out, room, count, err));
    dnn_destroy(&heuristics);
    return s;
}

enum status
conv_gpu_describe(cudnnBackendDescriptor_t *properties, const char *text, struct error *err) {
    *properties = NULL;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, properties));
    enum status s = dnn_set(*properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            (int64_t)strlen(text), text, err);
    THEN(s, dnn_status(cudnnBackendFinalize(*properties), "the properties of a GPU", err));
    if (s != STATUS_OK) {
        dnn_destroy(properties);
    }
    return s;
}

/* The engine of a configuration; the caller destroys it. NULL: cuDNN does not report it. */
static cudnnBackendDescriptor_t engine_of(cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = NULL;
    int64_t got = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS) {
        return NULL;
    }
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &got, (void *)&engine) != CUDNN_STATUS_SUCCESS ||
        got != 1) {
        dnn_destroy(&engine);
    }
    return engine;
}

bool conv_config_allowed(cudnnBackendDescriptor_t config,
                         const struct conv_problem *p,
                         const struct device_options *opt) {
    cudnnBackendDescriptor_t engine = engine_of(config);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (engine == NULL) {
        return false;
    }
    const bool known = cudnnBackendGetAttribute(
                           engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS;
    dnn_destroy(&engine);
    bool allowed = known;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        const bool exact = p->dtype == DTYPE_F32 && !opt->tf32;
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            allowed = allowed && !opt->deterministic;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT: /* both lose precision in every type */
            allowed = false;
            break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* for f32 this is TF32 */
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD:
            allowed = allowed && !exact;
            break;
        default:
            break;
        }
    }
    return allowed;
}

static enum status
read_knob(cudnnBackendDescriptor_t knob, struct conv_choice *out, struct error *err) {
    cudnnBackendKnobType_t type;
    int64_t value;
    int64_t got = 0;
    TRY_DNN(cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                     1, &got, &type));
    TRY_DNN(cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                     &got, &value));
    out->knobs[out->knobs_count].type = (int64_t)type;
    out->knobs[out->knobs_count].value = value;
    out->knobs_count++;
    return STATUS_OK;
}

static enum status
read_knobs(cudnnBackendDescriptor_t config, struct conv_choice *out, struct error *err) {
    cudnnBackendDescriptor_t knobs[CONV_MAX_KNOBS + 1] = {NULL};
    int64_t count = 0;
    enum status s = STATUS_OK;
    for (int i = 0; i <= CONV_MAX_KNOBS && s == STATUS_OK; i++) {
        s = dnn_status(
            cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]),
            "a knob choice", err);
    }
    THEN(s, dnn_status(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, CONV_MAX_KNOBS + 1,
                                                &count, (void *)knobs),
                       "knob choices", err));
    if (s == STATUS_OK && count > CONV_MAX_KNOBS) {
        s = error_set(err, STATUS_LIMIT, "cuDNN: an engine with more than %d knobs",
                      CONV_MAX_KNOBS);
    }
    for (int64_t i = 0; s == STATUS_OK && i < count; i++) {
        s = read_knob(knobs[i], out, err);
    }
    for (int i = 0; i <= CONV_MAX_KNOBS; i++) {
        dnn_destroy(&knobs[i]);
    }
    return s;
}

enum status
conv_choice_of(cudnnBackendDescriptor_t config, struct conv_choice *out, struct error *err) {
    int64_t got = 0;
    memset(out, 0, sizeof *out);
    cudnnBackendDescriptor_t engine = engine_of(config);
    FAIL_IF(engine == NULL, err, STATUS_DEVICE, "cuDNN: a configuration without engine");
    const cudnnStatus_t code = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                        CUDNN_TYPE_INT64, 1, &got, &out->engine);
    dnn_destroy(&engine);
    TRY(dnn_status(code, "an engine's index", err));
    return read_knobs(config, out, err);
}

static enum status make_engine(cudnnBackendDescriptor_t *out,
                               const struct conv_graph *g,
                               const struct conv_gpu *gpu,
                               int64_t index,
                               struct error *err) {
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &g->graph, err));
    TRY(dnn_set(*out, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index, err));
    TRY(set_gpu(*out, CUDNN_ATTR_ENGINE_DEVICEPROP, gpu, err));
    TRY_DNN(cudnnBackendFinalize(*out));
    return STATUS_OK;
}

static enum status
make_knob(cudnnBackendDescriptor_t *out, int64_t type_number, int64_t value, struct error *err) {
    const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)type_number;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type, err));
    TRY(dnn_set(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value, err));
    TRY_DNN(cudnnBackendFinalize(*out));
    return STATUS_OK;
}

enum status conv_config_of(const struct conv_graph *g,
                           const struct conv_gpu *gpu,
                           const struct conv_choice *choice,
                           cudnnBackendDescriptor_t *out,
                           struct error *err) {
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendDescriptor_t knobs[CONV_MAX_KNOBS] = {NULL};
    *out = NULL;
    enum status s = make_engine(&engine, g, gpu, choice->engine, err);
    for (int32_t i = 0; s == STATUS_OK && i < choice->knobs_count; i++) {
        s = make_knob(&knobs[i], choice->knobs[i].type, choice->knobs[i].value, err);
    }
    THEN(s, dnn_status(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, out),
                       "a configuration", err));
    THEN(s, dnn_set(*out, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine,
                    err));
    if (s == STATUS_OK && choice->knobs_count > 0) {
        s = dnn_set(*out, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    choice->knobs_count, knobs, err);
    }
    THEN(s, dnn_status(cudnnBackendFinalize(*out), "finalising a configuration", err));
    for (int32_t i = 0; i < CONV_MAX_KNOBS; i++) {
        dnn_destroy(&knobs[i]);
    }
    dnn_destroy(&engine);
    if (s != STATUS_OK) {
        dnn_destroy(out);
    }
    return s;
}

/* Engines that require a larger workspace are not used. */
static const int64_t max_workspace_bytes = (int64_t)1 << 30;

static enum status make_plan(cudnnBackendDescriptor_t *out,
                             int64_t *workspace_bytes,
                             cudnnBackendDescriptor_t config,
                             const struct conv_gpu *gpu,
                             struct error *err) {
    int64_t got = 0;
    TRY_DNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, out));
    if (gpu->handle != NULL) {
        TRY(dnn_set(*out, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &gpu->handle,
                    err));
    }
    TRY(dnn_set(*out, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &config, err));
    TRY(set_gpu(*out, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu, err));
    TRY_DNN(cudnnBackendFinalize(*out));
    TRY_DNN(cudnnBackendGetAttribute(*out, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &got, workspace_bytes));
    FAIL_IF(*workspace_bytes < 0 || *workspace_bytes > max_workspace_bytes, err, STATUS_LIMIT,
            "cuDNN: an engine requires %lld bytes of workspace", (long long)*workspace_bytes);
    return STATUS_OK;
}

enum status conv_plan_of(cudnnBackendDescriptor_t config,
                         const struct conv_gpu *gpu,
                         cudnnBackendDescriptor_t *out,
                         int64_t *workspace_bytes,
                         struct error *err) {
    *out = NULL;
    const enum status s = make_plan(out, workspace_bytes, config, gpu, err);
    if (s != STATUS_OK) {
        dnn_destroy(out);
    }
    return s;
}
