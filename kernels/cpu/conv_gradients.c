/*
 * conv_gradients: oneDNN's convolution, its backward convolutions, and three alternatives to them:
 * matrix products (im2col.h), and for stride 1 the gradient of the input as a forward convolution
 * of dpre with the kernel turned around,
 *
 *     din[y, x, i] = sum of dpre[y + pad' - ky', ...] turned[i, ky', kx', o],  pad' = K - 1 - pad,
 *     turned[i, ky, kx, o] = weight[o, KH - 1 - ky, KW - 1 - kx, i].
 *
 * In bf16 oneDNN's forward kernels are faster than its backward ones, and they can add to din as
 * they write it; a backward one needs a second pass over din for that.
 */
#include "kernels/cpu/conv_gradients.h"

#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/im2col.h"

struct conv_shape conv_shape_of(const struct tensor *pre,
                                const struct tensor *in,
                                const struct tensor *weight,
                                const struct conv_params *p) {
    struct conv_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.n = in->shape[0];
    s.h = in->shape[1];
    s.w = in->shape[2];
    s.in = in->shape[3];
    s.out = weight->shape[0];
    s.kernel_h = weight->shape[1];
    s.kernel_w = weight->shape[2];
    s.stride = p->stride;
    s.pad = p->pad;
    s.out_h = pre->shape[1];
    s.out_w = pre->shape[2];
    s.dtype = in->dtype;
    return s;
}

enum status conv_forward(struct device *dev,
                         const struct conv_shape *shape,
                         const struct tensor *pre,
                         const struct tensor *in,
                         const struct tensor *weight,
                         struct error *err) {
    return im2col_pays(shape, CONV_FORWARD)
               ? im2col_forward(dev, shape, pre->data, in->data, weight->data, err)
               : convolve_forward(cpu_device_of(dev)->onednn, shape, pre->data, in->data,
                                  weight->data, err);
}

enum status conv_weight_gradient(struct device *dev,
                                 const struct conv_shape *shape,
                                 const struct tensor *dweight,
                                 enum write_mode mode,
                                 const struct tensor *dpre,
                                 const struct tensor *in,
                                 struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    if (shape->dtype == DTYPE_BF16 && amx_works()) {
        return amx_weight_gradient(dev, shape, dweight->data, mode, dpre->data, in->data, err);
    }
    if (im2col_pays(shape, CONV_BACKWARD_WEIGHT)) {
        return im2col_backward_weight(dev, shape, dweight->data, mode, dpre->data, in->data, err);
    }
    if (mode == WRITE_SET) {
        return convolve_backward_weight(onednn, shape, dweight->data, dpre->data, in->data, err);
    }
    void *scratch;
    TRY(cpu_scratch(dev, tensor_size_bytes(dweight), &scratch, err));
    TRY(convolve_backward_weight(onednn, shape, scratch, dpre->data, in->data, err));
    cpu_add_to(dweight->data, scratch, tensor_count(dweight), 1.0f);
    return STATUS_OK;
}

/* ---- the input ---- */

static bool turning_pays(const struct conv_shape *s, enum write_mode mode) {
    return s->stride == 1 && s->pad < s->kernel_h && s->pad < s->kernel_w &&
           s->kernel_h == s->kernel_w && (s->dtype == DTYPE_BF16 || mode == WRITE_ADD);
}

enum { SQUARE = 8 };

#if defined(__SSE2__)

/* Transposes eight rows of eight: pairs, then pairs of pairs, then halves. */
static void turn_square(uint16_t *out, int64_t to, const uint16_t *in, int64_t from) {
    __m128i r[SQUARE];
    __m128i p[SQUARE];
    for (int k = 0; k < SQUARE; k++) {
        r[k] = _mm_loadu_si128((const __m128i *)(const void *)(in + k * from));
    }
    for (int k = 0; k < SQUARE / 2; k++) { /* p: columns 0-3 of rows 2k, 2k + 1; then 4-7 */
        p[k] = _mm_unpacklo_epi16(r[2 * k], r[2 * k + 1]);
        p[4 + k] = _mm_unpackhi_epi16(r[2 * k], r[2 * k + 1]);
    }
    for (int k = 0; k < SQUARE; k += 4) { /* r: two columns of rows 0-3, of rows 4-7 */
        r[k] = _mm_unpacklo_epi32(p[k], p[k + 1]);
        r[k + 1] = _mm_unpacklo_epi32(p[k + 2], p[k + 3]);
        r[k + 2] = _mm_unpackhi_epi32(p[k], p[k + 1]);
        r[k + 3] = _mm_unpackhi_epi32(p[k + 2], p[k + 3]);
    }
    for (int k = 0; k < SQUARE; k += 2) {
        __m128i *low = (__m128i *)(void *)(out + k * to);
        __m128i *high = (__m128i *)(void *)(out + (k + 1) * to);
        _mm_storeu_si128(low, _mm_unpacklo_epi64(r[k], r[k + 1]));
        _mm_storeu_si128(high, _mm_unpackhi_epi64(r[k], r[k + 1]));
    }
}

#else

static void turn_square(uint16_t *out, int64_t to, const uint16_t *in, int64_t from) {
    for (int64_t r = 0; r < SQUARE; r++) {
        for (int64_t c = 0; c < SQUARE; c++) {
            out[c * to + r] = in[r * from + c];
        }
    }
}

#endif

/* out (columns, rows) = in (rows, columns); their rows are `to` and `from` elements apart. */
static void turn_bf16(uint16_t *out,
                      int64_t to,
                      const uint16_t *in,
                      int64_t from,
                      int64_t rows,
                      int64_t columns) {
    for (int64_t r = 0; r < rows; r += SQUARE) {
        for (int64_t c = 0; c < columns; c += SQUARE) {
            if (rows - r >= SQUARE && columns - c >= SQUARE) {
                turn_square(out + c * to + r, to, in + r * from + c, from);
                continue;
            }
            for (int64_t y = r; y < rows && y < r + SQUARE; y++) {
                for (int64_t x = c; x < columns && x < c + SQUARE; x++) {
                    out[x * to + y] = in[y * from + x];
                }
            }
        }
    }
}

static void turn_f32(float *restrict out,
                     int64_t to,
                     const float *restrict in,
                     int64_t from,
                     int64_t rows,
                     int64_t columns) {
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t r = 0; r < rows; r++) {
            out[c * to + r] = in[r * from + c];
        }
    }
}

static void turn_weights(void *turned, const struct conv_shape *s, const void *weight) {
    enum { BAND = 32 }; /* input channels of one piece of work: a cache line of bf16 */
    const int64_t cells = s->kernel_h * s->kernel_w;
    const int64_t to = cells * s->out;
    const int64_t from = cells * s->in;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t k = 0; k < cells; k++) {
        for (int64_t i = 0; i < s->in; i += BAND) {
            const int64_t count = s->in - i < BAND ? s->in - i : BAND;
            const int64_t first = i * to + (cells - 1 - k) * s->out;
            const int64_t source = k * s->in + i;
            if (s->dtype == DTYPE_BF16) {
                turn_bf16((uint16_t *)turned + first, to, (const uint16_t *)weight + source, from,
                          s->out, count);
            } else {
                turn_f32((float *)turned + first, to, (const float *)weight + source, from, s->out,
                         count);
            }
        }
    }
}

static enum status turned_input_gradient(struct device *dev,
                                         const struct conv_shape *s,
                                         const struct tensor *din,
                                         enum write_mode mode,
                                         const struct tensor *dpre,
                                         const struct tensor *weight,
                                         struct error *err) {
    struct conv_shape t;
    memset(&t, 0, sizeof t); /* compared as bytes */
    t.n = s->n;
    t.h = s->out_h;
    t.w = s->out_w;
    t.in = s->out;
    t.out = s->in;
    t.kernel_h = s->kernel_h;
    t.kernel_w = s->kernel_w;
    t.stride = 1;
    t.pad = s->kernel_h - 1 - s->pad;
    t.out_h = s->h;
    t.out_w = s->w;
    t.dtype = s->dtype;
    t.add = mode == WRITE_ADD ? 1 : 0;
    void *turned;
    TRY(cpu_scratch(dev, tensor_size_bytes(weight), &turned, err));
    turn_weights(turned, s, weight->data);
    return convolve_forward(cpu_device_of(dev)->onednn, &t, din->data, dpre->data, turned, err);
}

enum status conv_input_gradient(struct device *dev,
                                const struct conv_shape *shape,
                                const struct tensor *din,
                                enum write_mode mode,
                                const struct tensor *dpre,
                                const struct tensor *weight,
                                struct error *err) {
    struct onednn *onednn = cpu_device_of(dev)->onednn;
    if (im2col_pays(shape, CONV_BACKWARD_DATA)) {
        return im2col_backward_data(dev, shape, din->data, mode, dpre->data, weight->data, err);
    }
    if (turning_pays(shape, mode)) {
        return turned_input_gradient(dev, shape, din, mode, dpre, weight, err);
    }
    if (mode == WRITE_SET) {
        return convolve_backward_data(onednn, shape, din->data, dpre->data, weight->data, err);
    }
    struct tensor added = *din;
    TRY(cpu_scratch(dev, tensor_size_bytes(din), &added.data, err));
    TRY(convolve_backward_data(onednn, shape, added.data, dpre->data, weight->data, err));
    return cpu_add(dev, &(struct add){.out = *din, .in = added, .alpha = 1.0f}, err);
}
