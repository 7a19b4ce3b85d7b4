/*
 * conv_gradients: a convolution or one of its gradients by the fastest method: oneDNN, a matrix
 * product (im2col), own loops on AMX tiles (amx.h), or for the gradient of an input in bf16 and
 * stride 1 a forward convolution of dpre with the kernel reversed,
 *
 *     din[y, x, i] = sum of dpre[y + pad' - ky', ...] reversed[o, ky', kx', i]
 *     pad' = K - 1 - pad,  reversed[o, ky, kx, i] = weight[o, K - 1 - ky, K - 1 - kx, i]
 *
 * In bf16 oneDNN's forward kernels are faster than its backward ones (6 % of a step of ResNet-50 at
 * 224 px), and they can add to din as they write it. Other gradients that oneDNN cannot add are
 * computed separately and then added.
 */
#include "kernels/cpu/conv_gradients.h"

#include <string.h>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/onednn.h"
#include "kernels/ops.h"

/*
 * im2col: cols (M, K) holds for each output pixel the inputs under the kernel, zeros in the
 * padding; M = n out_h out_w, K = kernel_h kernel_w in, the layout of a row of weights (OUT, K).
 * Then
 *
 *     dst = cols weight^T      dweight = ddst^T cols      dcols = ddst weight, summed back to dsrc
 *
 * cols have the shape's type, dcols are f32: a pixel of dsrc is a sum of several. Pixels are
 * independent in both directions, and within a pixel the order is fixed.
 *
 * Processor time of `ccbench step --tower image -t 1 --steps 3`, setup included, without it: 5 %
 * more in f32 for resnet18 at 112 px with 16 pairs and for resnet50 at 224 px with 2; in bf16 3 %
 * and 0.
 */

/* A 1 x 1 kernel at every pixel: the input is its own matrix of columns. */
static bool pointwise(const struct conv_shape *s) {
    return s->kernel_h * s->kernel_w == 1 && s->stride == 1 && s->pad == 0;
}

/* Measured against oneDNN 2.6, bf16 on AMX: the three directions at the shapes of ResNets, planes
 * of 2 x 2 to 56 x 56, 64 to 1024 channels. */
static bool im2col_pays(const struct conv_shape *s, enum conv_direction direction) {
    const int64_t pixels = s->out_h * s->out_w;
    const bool weight = direction == CONV_BACKWARD_WEIGHT;
    const bool single = s->kernel_h * s->kernel_w == 1;
    if (s->in < 64) {
        return false;
    }
    if (pixels <= 9) {
        return true;
    }
    if (s->dtype == DTYPE_F32) {
        const bool deep = s->in >= 512 && pixels <= 49 && !single;
        return (direction != CONV_FORWARD && pointwise(s)) ||
               (direction != CONV_BACKWARD_DATA && deep);
    }
    return (weight && (single || s->in >= 256 || (s->stride > 1 && pixels <= 64))) ||
           (direction == CONV_BACKWARD_DATA && single && s->stride > 1);
}

static int64_t row_width(const struct conv_shape *s) {
    return s->kernel_h * s->kernel_w * s->in;
}

/* Input vector under kernel cell k of output pixel q, as an offset into its image; -1: padding. */
static int64_t place(const struct conv_shape *s, int64_t q, int64_t k) {
    const int64_t y = q / s->out_w * s->stride - s->pad + k / s->kernel_w;
    const int64_t x = q % s->out_w * s->stride - s->pad + k % s->kernel_w;
    return y < 0 || y >= s->h || x < 0 || x >= s->w ? -1 : (y * s->w + x) * s->in;
}

/* Row q of output pixels of one image: `size` bytes per element. */
static void gather_row(unsigned char *cols,
                       const unsigned char *image,
                       const struct conv_shape *s,
                       int64_t oy) {
    const size_t size = dtype_size_bytes((enum dtype)s->dtype);
    const size_t vector = (size_t)s->in * size;
    const int64_t cells = s->kernel_h * s->kernel_w;
    for (int64_t q = oy * s->out_w; q < (oy + 1) * s->out_w; q++) {
        for (int64_t k = 0; k < cells; k++) {
            unsigned char *to = cols + (size_t)(q * cells + k) * vector;
            const int64_t from = place(s, q, k);
            if (from < 0) {
                memset(to, 0, vector);
            } else {
                memcpy(to, image + (size_t)from * size, vector);
            }
        }
    }
}

/* The columns of src: src itself if the kernel is pointwise, else built in the workspace. */
static enum status gather(struct device *dev,
                          const void **cols,
                          const void *src,
                          const struct conv_shape *s,
                          struct error *err) {
    if (pointwise(s)) {
        *cols = src;
        return STATUS_OK;
    }
    const size_t size = dtype_size_bytes((enum dtype)s->dtype);
    const size_t columns_bytes = (size_t)(s->out_h * s->out_w * row_width(s)) * size;
    const size_t image_bytes = (size_t)(s->h * s->w * s->in) * size;
    void *space;
    TRY(cpu_workspace(dev, (size_t)s->n * columns_bytes, &space, err));
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t oy = 0; oy < s->out_h; oy++) {
            gather_row((unsigned char *)space + (size_t)n * columns_bytes,
                       (const unsigned char *)src + (size_t)n * image_bytes, s, oy);
        }
    }
    *cols = space;
    return STATUS_OK;
}

/* ---- summing back ---- */

CPU_CLONES static void add_vector(float *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] += in[i];
    }
}

/* sum (count) += channels [from, from + count) of every column that holds input pixel (y, x). */
static void collect(float *sum,
                    const float *dcols,
                    const struct conv_shape *s,
                    int64_t y,
                    int64_t x,
                    int64_t from,
                    int64_t count) {
    for (int64_t k = 0; k < s->kernel_h * s->kernel_w; k++) {
        const int64_t sy = y + s->pad - k / s->kernel_w;
        const int64_t sx = x + s->pad - k % s->kernel_w;
        if (sy < 0 || sx < 0 || sy % s->stride != 0 || sx % s->stride != 0 ||
            sy / s->stride >= s->out_h || sx / s->stride >= s->out_w) {
            continue;
        }
        const int64_t q = sy / s->stride * s->out_w + sx / s->stride;
        add_vector(sum, dcols + q * row_width(s) + k * s->in + from, count);
    }
}

static void sum_back(const struct tensor *dsrc,
                     enum write_mode mode,
                     const float *dcols,
                     const struct conv_shape *s) {
    const int64_t per_image = s->out_h * s->out_w * row_width(s);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t y = 0; y < s->h; y++) {
            float buffer[CPU_STRETCH];
            for (int64_t x = 0; x < s->w; x++) {
                for (int64_t i = 0; i < s->in; i += CPU_STRETCH) {
                    const int64_t count = s->in - i < CPU_STRETCH ? s->in - i : CPU_STRETCH;
                    const int64_t at = ((n * s->h + y) * s->w + x) * s->in + i;
                    float *sum = cpu_begin(dsrc, at, count, mode, buffer);
                    collect(sum, dcols + n * per_image, s, y, x, i, count);
                    cpu_store(dsrc, at, count, sum);
                }
            }
        }
    }
}

static enum status
input_gradient(struct device *dev, const struct convolution *c, struct error *err) {
    const struct conv_shape *s = &c->shape;
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    struct product_shape p = {.m = s->n * s->out_h * s->out_w,
                              .n = row_width(s),
                              .k = s->out,
                              .dtype = s->dtype,
                              .out_dtype = s->dtype};
    if (pointwise(s)) {
        p.add = c->mode == WRITE_ADD ? 1 : 0;
        return matrix_product(onednn, &p, c->src, c->dst, c->weight, NULL, err);
    }
    void *dcols;
    p.out_dtype = DTYPE_F32;
    TRY(cpu_workspace(dev, (size_t)(p.m * p.n) * sizeof(float), &dcols, err));
    TRY(matrix_product(onednn, &p, dcols, c->dst, c->weight, NULL, err));
    const struct tensor to = tensor_4d(c->src, (enum dtype)s->dtype, s->n, s->h, s->w, s->in);
    sum_back(&to, c->mode, dcols, s);
    return STATUS_OK;
}

/* Any direction and mode. Uses the device's workspace. Returns OK, NOMEM or DEVICE. */
static enum status im2col(struct device *dev, const struct convolution *c, struct error *err) {
    const struct conv_shape *s = &c->shape;
    const int64_t pixels = s->n * s->out_h * s->out_w;
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    const void *cols;
    if (c->direction == CONV_BACKWARD_DATA) {
        return input_gradient(dev, c, err);
    }
    TRY(gather(dev, &cols, c->src, s, err));
    if (c->direction == CONV_FORWARD) {
        const struct product_shape p = {.m = pixels,
                                        .n = s->out,
                                        .k = row_width(s),
                                        .transpose_b = 1,
                                        .dtype = s->dtype,
                                        .out_dtype = s->dtype};
        return matrix_product(onednn, &p, c->dst, cols, c->weight, NULL, err);
    }
    const struct product_shape p = {.m = s->out,
                                    .n = row_width(s),
                                    .k = pixels,
                                    .transpose_a = 1,
                                    .dtype = s->dtype,
                                    .out_dtype = DTYPE_F32,
                                    .add = c->mode == WRITE_ADD ? 1 : 0};
    return matrix_product(onednn, &p, c->weight, c->dst, cols, NULL, err);
}

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
    TRY(cpu_workspace(dev, tensor_size_bytes(&sum.out), result, err));
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
    TRY(cpu_workspace(dev, (size_t)(s->out * cells) * row_bytes, &r.weight, err));
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
