/*
 * conv_gradients: a convolution or one of its gradients by the fastest method: oneDNN, a matrix
 * product (im2col.h), own loops on AMX tiles (amx.h), or for the gradient of an input in bf16 and
 * stride 1 a forward convolution of dpre with the kernel reversed,
 *
 *     din[y, x, i] = sum of dpre[y + pad' - ky', ...] reversed[o, ky', kx', i],  pad' = K - 1 -
 * pad, reversed[o, ky, kx, i] = weight[o, K - 1 - ky, K - 1 - kx, i].
 *
 * In bf16 oneDNN's forward kernels are faster than its backward ones (6 % of a step of ResNet-50 at
 * 224 px), and they can add to din as they write it. What else oneDNN cannot add to is computed
 * apart and added.
 */
#include "kernels/cpu/conv_gradients.h"

#include <string.h>

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

static bool reversal_pays(const struct convolution *c) {
    const struct conv_shape *s = &c->shape;
    return c->direction == CONV_BACKWARD_DATA && s->dtype == DTYPE_BF16 && s->stride == 1 &&
           s->kernel_h == s->kernel_w && s->pad < s->kernel_h;
}

static enum status reversed(struct device *dev, const struct convolution *c, struct error *err) {
    const struct conv_shape *s = &c->shape;
    const int64_t cells = s->kernel_h * s->kernel_w;
    const size_t row_bytes = (size_t)s->in * sizeof(uint16_t);
    struct convolution r = {.shape = *s, .direction = CONV_FORWARD, .dst = c->src, .src = c->dst};
    r.shape.h = s->out_h;
    r.shape.w = s->out_w;
    r.shape.in = s->out;
    r.shape.out = s->in;
    r.shape.pad = s->kernel_h - 1 - s->pad;
    r.shape.out_h = s->h;
    r.shape.out_w = s->w;
    r.shape.transpose = 1;
    r.shape.add = c->mode == WRITE_ADD;
    TRY(cpu_scratch(dev, (size_t)(s->out * cells) * row_bytes, &r.weight, err));
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out; o++) {
        for (int64_t k = 0; k < cells; k++) {
            memcpy((char *)r.weight + (size_t)(o * cells + cells - 1 - k) * row_bytes,
                   (const char *)c->weight + (size_t)(o * cells + k) * row_bytes, row_bytes);
        }
    }
    return convolve(cpu_device_of(dev)->onednn, &r, err);
}

enum status cpu_convolve(struct device *dev, const struct convolution *c, struct error *err) {
    if (c->direction == CONV_BACKWARD_WEIGHT && c->shape.dtype == DTYPE_BF16 && amx_works()) {
        return amx_weight_gradient(dev, c, err);
    }
    if (im2col_pays(&c->shape, c->direction)) {
        return im2col(dev, c, err);
    }
    if (reversal_pays(c)) {
        return reversed(dev, c, err);
    }
    return c->mode == WRITE_ADD ? added(dev, c, err) : convolve(cpu_device_of(dev)->onednn, c, err);
}
