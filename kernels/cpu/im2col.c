/*
 * im2col: cols (M, K) holds for each output pixel the inputs under the kernel, zeros in the
 * padding; M = n out_h out_w, K = kernel_h kernel_w in, the layout of a row of weights (OUT, K).
 * Then
 *
 *     dst = cols weight^T      dweight = ddst^T cols      dcols = ddst weight, summed back to dsrc
 *
 * Images are independent in both walks, and within one the order is fixed.
 */
#include "kernels/cpu/im2col.h"

#include <string.h>

#include "kernels/cpu/cpu_internal.h"

/* Measured against oneDNN 2.6: forward, planes of up to 3 x 3; backward, every 1 x 1 kernel too. */
enum { MAX_PIXELS = 9, MIN_CHANNELS = 64 };

/* A 1 x 1 kernel at every pixel: the input is its own matrix of columns. */
static bool pointwise(const struct conv_shape *s) {
    return s->kernel_h * s->kernel_w == 1 && s->stride == 1 && s->pad == 0;
}

bool im2col_pays(const struct conv_shape *s, bool backward) {
    const bool small = s->dtype == DTYPE_F32 && s->out_h * s->out_w <= MAX_PIXELS;
    return (small || (backward && pointwise(s))) && s->in >= MIN_CHANNELS;
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

static void gather_image(float *cols, const float *image, const struct conv_shape *s) {
    const int64_t cells = s->kernel_h * s->kernel_w;
    for (int64_t i = 0; i < s->out_h * s->out_w * cells; i++) {
        const int64_t from = place(s, i / cells, i % cells);
        if (from < 0) {
            memset(cols + i * s->in, 0, (size_t)s->in * sizeof *cols);
        } else {
            memcpy(cols + i * s->in, image + from, (size_t)s->in * sizeof *cols);
        }
    }
}

CPU_CLONES static void add_vector(float *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[i] += in[i];
    }
}

static void scatter_image(float *image, const float *cols, const struct conv_shape *s) {
    const int64_t cells = s->kernel_h * s->kernel_w;
    for (int64_t i = 0; i < s->out_h * s->out_w * cells; i++) {
        const int64_t to = place(s, i / cells, i % cells);
        if (to >= 0) {
            add_vector(image + to, cols + i * s->in, s->in);
        }
    }
}

static enum status
columns(struct device *dev, float **cols, const struct conv_shape *s, struct error *err) {
    const int64_t count = s->n * s->out_h * s->out_w * row_width(s);
    void *scratch;
    TRY(cpu_scratch(dev, (size_t)count * sizeof(float), &scratch, err));
    *cols = scratch;
    return STATUS_OK;
}

/* The columns of src: src itself where that is pointwise, else built in scratch. f32 only then. */
static enum status gather(struct device *dev,
                          const void **cols,
                          const void *src,
                          const struct conv_shape *s,
                          struct error *err) {
    float *to;
    if (pointwise(s)) {
        *cols = src;
        return STATUS_OK;
    }
    TRY(columns(dev, &to, s, err));
    *cols = to;
    const int64_t per_image = s->out_h * s->out_w * row_width(s);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < s->n; n++) {
        gather_image(to + n * per_image, (const float *)src + n * s->h * s->w * s->in, s);
    }
    return STATUS_OK;
}

enum status im2col_forward(struct device *dev,
                           const struct conv_shape *s,
                           void *dst,
                           const void *src,
                           const void *weight,
                           struct error *err) {
    const void *cols;
    const struct product_shape p = {.m = s->n * s->out_h * s->out_w,
                                    .n = s->out,
                                    .k = row_width(s),
                                    .transpose_b = 1,
                                    .dtype = s->dtype,
                                    .out_dtype = s->dtype};
    TRY(gather(dev, &cols, src, s, err));
    return matrix_product(cpu_device_of(dev)->onednn, &p, dst, cols, weight, NULL, err);
}

enum status im2col_backward_weight(struct device *dev,
                                   const struct conv_shape *s,
                                   float *dweight,
                                   enum write_mode mode,
                                   const void *ddst,
                                   const void *src,
                                   struct error *err) {
    const void *cols;
    const struct product_shape p = {.m = s->out,
                                    .n = row_width(s),
                                    .k = s->n * s->out_h * s->out_w,
                                    .transpose_a = 1,
                                    .dtype = s->dtype,
                                    .out_dtype = DTYPE_F32,
                                    .add = mode == WRITE_ADD ? 1 : 0};
    TRY(gather(dev, &cols, src, s, err));
    return matrix_product(cpu_device_of(dev)->onednn, &p, dweight, ddst, cols, NULL, err);
}

enum status im2col_backward_data(struct device *dev,
                                 const struct conv_shape *s,
                                 void *dsrc,
                                 enum write_mode mode,
                                 const void *ddst,
                                 const void *weight,
                                 struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    struct product_shape p = {.m = s->n * s->out_h * s->out_w,
                              .n = row_width(s),
                              .k = s->out,
                              .dtype = s->dtype,
                              .out_dtype = s->dtype};
    if (pointwise(s)) {
        p.add = mode == WRITE_ADD ? 1 : 0;
        return matrix_product(onednn, &p, dsrc, ddst, weight, NULL, err);
    }
    float *cols;
    TRY(columns(dev, &cols, s, err));
    TRY(matrix_product(onednn, &p, cols, ddst, weight, NULL, err));
    const int64_t image = s->h * s->w * s->in;
    const int64_t per_image = s->out_h * s->out_w * row_width(s);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < s->n; n++) {
        float *to = (float *)dsrc + n * image;
        if (mode == WRITE_SET) {
            memset(to, 0, (size_t)image * sizeof *to);
        }
        scatter_image(to, cols + n * per_image, s);
    }
    return STATUS_OK;
}
