/*
 * ops_rows: casts, sums of tensors, row moves, L2 normalisation, dropout, means of captions, and
 * the optimisers: each checks its shapes and starts one launcher.
 */
#include "kernels/cuda/device/cuda_internal.h"

static enum status cuda_cast(struct device *device,
                             const struct tensor *out,
                             const struct tensor *in,
                             struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("cast", in, err));
    TRY(check_cast(out, in, err));
    return launched(
        dev, launch_cast(dev->stream, out->dtype, out->data, in->dtype, in->data, tensor_count(in)),
        "cast", err);
}

static enum status cuda_add(struct device *device,
                            const struct tensor *out,
                            const struct tensor *in,
                            float alpha,
                            struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("add", in, err));
    TRY(check_like("add", "out", out, in, err));
    return launched(dev,
                    launch_add(dev->stream, out->dtype, out->data, in->dtype, in->data,
                               tensor_count(in), alpha),
                    "add", err);
}

static enum status
cuda_sum_squares(struct device *device, double *out, const struct tensor *in, struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    void *work;
    TRY(cuda_real("sum_squares", in, err));
    const int64_t count = tensor_count(in);
    TRY(cuda_workspace(dev, launch_sum_squares_workspace_bytes(count), &work, err));
    return launched(dev, launch_sum_squares(dev->stream, in->dtype, out, in->data, count, work),
                    "sum_squares", err);
}

static enum status cuda_grad_scale(struct device *device,
                                   struct step_values *values,
                                   int32_t count,
                                   double clip_norm,
                                   struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_grad_scale(values, count, clip_norm, err));
    return launched(dev, launch_grad_scale(dev->stream, values, count, clip_norm), "grad_scale",
                    err);
}

/* check_rows looks at the indices too, which lie on the device here; the kernels do that. */
static enum status check_row_shapes(const char *op,
                                    const struct tensor *narrow,
                                    const struct tensor *wide,
                                    const struct tensor *rows,
                                    struct error *err) {
    TRY(check_tensor(op, "wide tensor", wide, wide->dtype, 2, ANY_SIZE, ANY_SIZE, 0, 0, err));
    TRY(check_tensor(op, "narrow tensor", narrow, wide->dtype, 2, ANY_SIZE, wide->shape[1], 0, 0,
                     err));
    return check_tensor(op, "rows", rows, DTYPE_I32, 1, narrow->shape[0], 0, 0, 0, err);
}

static enum status cuda_gather_rows(struct device *device,
                                    const struct tensor *out,
                                    const struct tensor *in,
                                    const struct tensor *rows,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("gather_rows", in, err));
    TRY(check_row_shapes("gather_rows", out, in, rows, err));
    return launched(dev,
                    launch_gather_rows(dev->stream, in->dtype, out->data, in->data, rows->data,
                                       out->shape[0], in->shape[1], in->shape[0],
                                       dev->fault_on_device),
                    "gather_rows", err);
}

static enum status cuda_scatter_rows(struct device *device,
                                     const struct tensor *out,
                                     enum write_mode mode,
                                     const struct tensor *in,
                                     const struct tensor *rows,
                                     struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("scatter_rows", in, err));
    TRY(check_row_shapes("scatter_rows", in, out, rows, err));
    return launched(dev,
                    launch_scatter_rows(dev->stream, in->dtype, out->data, mode, in->data,
                                        rows->data, in->shape[0], in->shape[1], out->shape[0],
                                        dev->fault_on_device),
                    "scatter_rows", err);
}

static enum status cuda_l2_normalize(struct device *device,
                                     const struct tensor *out,
                                     const struct tensor *norm,
                                     const struct tensor *in,
                                     struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("l2_normalize", in, err));
    TRY(check_l2_normalize(out, norm, in, err));
    return launched(dev,
                    launch_l2_normalize(dev->stream, in->dtype, out->data, norm->data, in->data,
                                        in->shape[0], in->shape[1]),
                    "l2_normalize", err);
}

static enum status cuda_l2_normalize_bwd(struct device *device,
                                         const struct tensor *din,
                                         const struct tensor *dout,
                                         const struct tensor *out,
                                         const struct tensor *norm,
                                         struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("l2_normalize_bwd", din, err));
    TRY(check_l2_normalize_bwd(din, dout, out, norm, err));
    return launched(dev,
                    launch_l2_normalize_bwd(dev->stream, din->dtype, din->data, dout->data,
                                            out->data, norm->data, out->shape[0], out->shape[1]),
                    "l2_normalize_bwd", err);
}

static enum status cuda_dropout(struct device *device,
                                const struct tensor *out,
                                const struct tensor *in,
                                const struct segments *seg,
                                const struct dropout_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    struct launch_dropout room;
    TRY(cuda_real("dropout", in, err));
    TRY(check_dropout(out, in, seg, p, err));
    struct launch_segments segments = {0};
    if (seg != NULL) {
        segments = cuda_segments(dev, seg, in->shape[0]);
    }
    return launched(dev,
                    launch_dropout(dev->stream, in->dtype, out->data, in->data, in->shape[0],
                                   in->shape[1], seg != NULL ? &segments : NULL,
                                   cuda_dropout_ready(&room, p)),
                    "dropout", err);
}

static enum status cuda_segment_mean(struct device *device,
                                     const struct tensor *out,
                                     const struct tensor *in,
                                     const struct segments *seg,
                                     struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("segment_mean", in, err));
    TRY(check_segment_mean(out, in, seg, err));
    const struct launch_segments segments = cuda_segments(dev, seg, in->shape[0]);
    return launched(
        dev,
        launch_segment_mean(dev->stream, in->dtype, out->data, in->data, in->shape[1], &segments),
        "segment_mean", err);
}

static enum status cuda_segment_mean_bwd(struct device *device,
                                         const struct tensor *din,
                                         enum write_mode mode,
                                         const struct tensor *dout,
                                         const struct segments *seg,
                                         struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("segment_mean_bwd", dout, err));
    TRY(check_segment_mean(dout, din, seg, err));
    const struct launch_segments segments = cuda_segments(dev, seg, din->shape[0]);
    return launched(dev,
                    launch_segment_mean_bwd(dev->stream, dout->dtype, din->data, mode, dout->data,
                                            din->shape[1], &segments),
                    "segment_mean_bwd", err);
}

/* Optimisers keep their masters in f32 whatever the rest computes in. */
static enum status check_master(const char *op, const struct tensor *value, struct error *err) {
    TRY(cuda_real(op, value, err));
    return value->dtype == DTYPE_F32
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "%s: value is %s, expected f32", op,
                           dtype_name(value->dtype));
}

static enum status cuda_adamw(struct device *device,
                              const struct tensor *value,
                              const struct tensor *working,
                              const struct tensor *grad,
                              const struct tensor *m,
                              const struct tensor *v,
                              const struct adamw_params *p,
                              struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_master("adamw", value, err));
    TRY(check_adamw(value, working, grad, m, v, p, err));
    return launched(dev,
                    launch_adamw(dev->stream, value->data,
                                 tensor_wanted(working) ? working->data : NULL, grad->data, m->data,
                                 v->data, tensor_count(value), p),
                    "adamw", err);
}

static enum status cuda_sgdm(struct device *device,
                             const struct tensor *value,
                             const struct tensor *working,
                             const struct tensor *grad,
                             const struct tensor *m,
                             const struct sgdm_params *p,
                             struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(check_master("sgdm", value, err));
    TRY(check_sgdm(value, working, grad, m, p, err));
    return launched(dev,
                    launch_sgdm(dev->stream, value->data,
                                tensor_wanted(working) ? working->data : NULL, grad->data, m->data,
                                tensor_count(value), p),
                    "sgdm", err);
}

void cuda_put_rows(struct ops *t) {
    t->cast = cuda_cast;
    t->add = cuda_add;
    t->sum_squares = cuda_sum_squares;
    t->grad_scale = cuda_grad_scale;
    t->gather_rows = cuda_gather_rows;
    t->scatter_rows = cuda_scatter_rows;
    t->l2_normalize = cuda_l2_normalize;
    t->l2_normalize_bwd = cuda_l2_normalize_bwd;
    t->dropout = cuda_dropout;
    t->segment_mean = cuda_segment_mean;
    t->segment_mean_bwd = cuda_segment_mean_bwd;
    t->adamw = cuda_adamw;
    t->sgdm = cuda_sgdm;
}
