/*
 * ops_image: pixels to numbers, and pools.
 */
#include "kernels/cuda/device/cuda_internal.h"

static enum status cuda_normalize_u8(struct device *device,
                                     const struct tensor *out,
                                     const struct tensor *in,
                                     const float mean[3],
                                     const float std[3],
                                     struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("normalize_u8", out, err));
    TRY(check_tensor("normalize_u8", "in", in, DTYPE_U8, 4, ANY_SIZE, ANY_SIZE, ANY_SIZE, 3, err));
    TRY(check_tensor("normalize_u8", "out", out, out->dtype, 4, in->shape[0], in->shape[1],
                     in->shape[2], 3, err));
    return launched(dev,
                    launch_normalize_u8(dev->stream, out->dtype, out->data, in->data,
                                        tensor_count(in), mean, std),
                    "normalize_u8", err);
}

/* ---- pools ---- */

static struct launch_plane
plane_of(const struct tensor *in, const struct tensor *out, const struct pool_params *p) {
    return (struct launch_plane){.n = in->shape[0],
                                 .h = in->shape[1],
                                 .w = in->shape[2],
                                 .c = in->shape[3],
                                 .oh = out->ndim == 4 ? out->shape[1] : 1,
                                 .ow = out->ndim == 4 ? out->shape[2] : 1,
                                 .pool = p != NULL ? *p : (struct pool_params){0}};
}

static enum status cuda_maxpool(struct device *device,
                                const struct tensor *out,
                                const struct tensor *argmax,
                                const struct tensor *in,
                                const struct pool_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("maxpool", in, err));
    TRY(check_pool("maxpool", out, argmax, in, p, false, err));
    const struct launch_plane plane = plane_of(in, out, p);
    return launched(
        dev, launch_maxpool(dev->stream, in->dtype, out->data, argmax->data, in->data, &plane),
        "maxpool", err);
}

static enum status cuda_maxpool_bwd(struct device *device,
                                    const struct tensor *din,
                                    enum write_mode mode,
                                    const struct tensor *dout,
                                    const struct tensor *argmax,
                                    const struct pool_params *p,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("maxpool_bwd", dout, err));
    TRY(check_pool("maxpool_bwd", dout, argmax, din, p, false, err));
    const struct launch_plane plane = plane_of(din, dout, p);
    return launched(dev,
                    launch_maxpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data,
                                       argmax->data, &plane),
                    "maxpool_bwd", err);
}

static enum status cuda_avgpool(struct device *device,
                                const struct tensor *out,
                                const struct tensor *in,
                                const struct pool_params *p,
                                struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("avgpool", in, err));
    TRY(check_pool("avgpool", out, NULL, in, p, true, err));
    const struct launch_plane plane = plane_of(in, out, p);
    return launched(dev, launch_avgpool(dev->stream, in->dtype, out->data, in->data, &plane),
                    "avgpool", err);
}

static enum status cuda_avgpool_bwd(struct device *device,
                                    const struct tensor *din,
                                    enum write_mode mode,
                                    const struct tensor *dout,
                                    const struct pool_params *p,
                                    struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("avgpool_bwd", dout, err));
    TRY(check_pool("avgpool_bwd", dout, NULL, din, p, true, err));
    const struct launch_plane plane = plane_of(din, dout, p);
    return launched(
        dev, launch_avgpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data, &plane),
        "avgpool_bwd", err);
}

static enum status cuda_global_avgpool(struct device *device,
                                       const struct tensor *out,
                                       const struct tensor *in,
                                       struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("global_avgpool", in, err));
    TRY(check_global_avgpool(out, in, err));
    const struct launch_plane plane = plane_of(in, out, NULL);
    return launched(dev, launch_global_avgpool(dev->stream, in->dtype, out->data, in->data, &plane),
                    "global_avgpool", err);
}

static enum status cuda_global_avgpool_bwd(struct device *device,
                                           const struct tensor *din,
                                           enum write_mode mode,
                                           const struct tensor *dout,
                                           struct error *err) {
    struct cuda_device *dev = cuda_of(device);
    TRY(cuda_real("global_avgpool_bwd", dout, err));
    TRY(check_global_avgpool(dout, din, err));
    const struct launch_plane plane = plane_of(din, dout, NULL);
    return launched(
        dev,
        launch_global_avgpool_bwd(dev->stream, din->dtype, din->data, mode, dout->data, &plane),
        "global_avgpool_bwd", err);
}

void cuda_put_image(struct ops *t) {
    t->normalize_u8 = cuda_normalize_u8;
    t->maxpool = cuda_maxpool;
    t->maxpool_bwd = cuda_maxpool_bwd;
    t->avgpool = cuda_avgpool;
    t->avgpool_bwd = cuda_avgpool_bwd;
    t->global_avgpool = cuda_global_avgpool;
    t->global_avgpool_bwd = cuda_global_avgpool_bwd;
}
