/*
 * conv_gradients: a convolution or one of its gradients by the fastest method: oneDNN, a matrix
 * product (im2col.h), or own loops on AMX tiles (amx.h). What oneDNN cannot add to is computed
 * apart and added.
 */
#include "kernels/cpu/conv_gradients.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/im2col.h"

struct convolution cpu_convolution(enum conv_direction direction,
                                   enum write_mode mode,
                                   const struct tensor *out,
                                   const struct tensor *in,
                                   const struct tensor *weight,
                                   const struct conv_params *p) {
    return (struct convolution){.shape = {.n = in->shape[0],
                                          .h = in->shape[1],
                                          .w = in->shape[2],
                                          .in = in->shape[3],
                                          .out = weight->shape[0],
                                          .kernel_h = weight->shape[1],
                                          .kernel_w = weight->shape[2],
                                          .stride = p->stride,
                                          .pad = p->pad,
                                          .out_h = out->shape[1],
                                          .out_w = out->shape[2],
                                          .dtype = in->dtype},
                                .direction = direction,
                                .mode = mode,
                                .dst = out->data,
                                .src = in->data,
                                .weight = weight->data};
}

/* oneDNN's gradient, added to what is there. */
static enum status added(struct device *dev, const struct convolution *c, struct error *err) {
    const struct conv_shape *s = &c->shape;
    const bool weight = c->direction == CONV_BACKWARD_WEIGHT;
    const int64_t rows = weight ? s->out * s->kernel_h * s->kernel_w : s->n * s->h * s->w;
    struct convolution apart = *c;
    void **result = weight ? &apart.weight : &apart.src;
    struct add sum = {.alpha = 1.0f};
    sum.out = tensor_1d(*result, weight ? DTYPE_F32 : (enum dtype)s->dtype, rows * s->in);
    TRY(cpu_scratch(dev, tensor_size_bytes(&sum.out), result, err));
    sum.in = tensor_1d(*result, sum.out.dtype, rows * s->in);
    TRY(convolve(cpu_device_of(dev)->onednn, &apart, err));
    return cpu_add(dev, &sum, err);
}

enum status cpu_convolve(struct device *dev, const struct convolution *c, struct error *err) {
    if (c->direction == CONV_BACKWARD_WEIGHT && c->shape.dtype == DTYPE_BF16 && amx_works()) {
        return amx_weight_gradient(dev, c, err);
    }
    if (im2col_pays(&c->shape, c->direction)) {
        return im2col(dev, c, err);
    }
    return c->mode == WRITE_ADD ? added(dev, c, err) : convolve(cpu_device_of(dev)->onednn, c, err);
}
