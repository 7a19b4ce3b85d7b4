/*
 * im2col: cols (M, K) holds for each output pixel the inputs under the kernel, zeros in the
 * padding; M = n out_h out_w, K = kernel_h kernel_w in, the layout of a row of weights (OUT, K).
 * Then
 *
 *     dst = cols weight^T      dweight = ddst^T cols      dcols = ddst weight, summed back to dsrc
 *
 * cols are of the shape's type, dcols always f32: a pixel of dsrc is a sum of several. Pixels are
 * independent in both directions, and within a pixel the order is fixed.
 *
 * Processor time of `ccbench step --tower image -t 1 --steps 3`, setup included, without it: 5 %
 * more in f32 for resnet18 at 112 px with 16 pairs and for resnet50 at 224 px with 2; in bf16 3 %
 * and 0.
 */
#include "kernels/cpu/im2col.h"

#include <string.h>

#include "kernels/cpu/cpu_internal.h"

/* A 1 x 1 kernel at every pixel: the input is its own matrix of columns. */
static bool pointwise(const struct conv_shape *s) {
    return s->kernel_h * s->kernel_w == 1 && s->stride == 1 && s->pad == 0;
}

/* Measured against oneDNN 2.6, bf16 on AMX: the three directions at the shapes of ResNets, planes
 * of 2 x 2 to 56 x 56, 64 to 1024 channels. */
bool im2col_pays(const struct conv_shape *s, enum conv_direction direction) {
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

/* Row q of output pixels of one image: `size` bytes an element. */
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

/* The columns of src: src itself where that is pointwise, else built in scratch. */
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
    TRY(cpu_scratch(dev, (size_t)s->n * columns_bytes, &space, err));
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
    TRY(cpu_scratch(dev, (size_t)(p.m * p.n) * sizeof(float), &dcols, err));
    TRY(matrix_product(onednn, &p, dcols, c->dst, c->weight, NULL, err));
    const struct tensor to = tensor_4d(c->src, (enum dtype)s->dtype, s->n, s->h, s->w, s->in);
    sum_back(&to, c->mode, dcols, s);
    return STATUS_OK;
}

enum status im2col(struct device *dev, const struct convolution *c, struct error *err) {
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
