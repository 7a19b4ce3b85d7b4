/*
 * pool: maximum, average and global average over (N,H,W,C), stretches of channels at a time.
 *
 * Backward passes gather: every input pixel adds the windows that contain it, in order. So no
 * memory is cleared first, each value is rounded once, and no address depends on data.
 */
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/cpu/cpu_internal.h"

/* Channels are taken CPU_STRETCH at a time. */
static int64_t channels_at(int64_t i, int64_t c) {
    return c - i < CPU_STRETCH ? c - i : CPU_STRETCH;
}

/* First element of pixel (n, y, x). */
static int64_t pixel(const struct tensor *t, int64_t n, int64_t y, int64_t x) {
    return ((n * t->shape[1] + y) * t->shape[2] + x) * t->shape[3];
}

/* A rectangle of pixels. */
struct cells {
    int64_t y0, y1, x0, x1;
};

static struct cells within(const struct tensor *t, struct cells c) {
    c.y0 = c.y0 < 0 ? 0 : c.y0;
    c.x0 = c.x0 < 0 ? 0 : c.x0;
    c.y1 = c.y1 > t->shape[1] ? t->shape[1] : c.y1;
    c.x1 = c.x1 > t->shape[2] ? t->shape[2] : c.x1;
    return c;
}

/* The inputs in the window of output (oy, ox). */
static struct cells
window(const struct tensor *in, const struct pool_params *p, int64_t oy, int64_t ox) {
    const int64_t y = oy * p->stride - p->pad;
    const int64_t x = ox * p->stride - p->pad;
    return within(in, (struct cells){y, y + p->kernel, x, x + p->kernel});
}

static float share_of(const struct cells *w) {
    return 1.0f / (float)((w->y1 - w->y0) * (w->x1 - w->x0));
}

/* The outputs whose windows contain input (y, x). */
static struct cells
covering(const struct tensor *out, const struct pool_params *p, int64_t y, int64_t x) {
    const int64_t above = y + p->pad - p->kernel; /* the last one before the window */
    const int64_t left = x + p->pad - p->kernel;
    return within(
        out, (struct cells){above < 0 ? 0 : above / p->stride + 1, (y + p->pad) / p->stride + 1,
                            left < 0 ? 0 : left / p->stride + 1, (x + p->pad) / p->stride + 1});
}

/* For every pixel (n, y, x) of t, on all threads. */
#define FOR_PIXELS(t, n, y, x)                                                                     \
    _Pragma(                                                                                       \
        "omp parallel for collapse(2) schedule(static)") for (int64_t n = 0; n < (t)->shape[0];    \
                                                              n++) for (int64_t y = 0;             \
                                                                        y < (t)->shape[1];         \
                                                                        y++) for (int64_t x = 0;   \
                                                                                  x <              \
                                                                                  (t)->shape[2];   \
                                                                                  x++)

CPU_CLONES static void take_larger(float *restrict best,
                                   int32_t *restrict place,
                                   const float *restrict in,
                                   int32_t k,
                                   int64_t c) {
    for (int64_t i = 0; i < c; i++) {
        const bool larger = in[i] > best[i];
        best[i] = larger ? in[i] : best[i];
        place[i] = larger ? k : place[i];
    }
}

static void maxpool_pixel(const struct tensor *out,
                          const struct tensor *argmax,
                          const struct tensor *in,
                          const struct pool_params *p,
                          int64_t n,
                          int64_t oy,
                          int64_t ox) {
    const int64_t to = pixel(out, n, oy, ox);
    for (int64_t i = 0; i < out->shape[3]; i += CPU_STRETCH) {
        const int64_t c = channels_at(i, out->shape[3]);
        float values[CPU_STRETCH];
        float largest[CPU_STRETCH];
        float *best = cpu_target(out, to + i, largest);
        int32_t *places = (int32_t *)argmax->data + to + i;
        bool first = true;
        for (int32_t k = 0; k < p->kernel * p->kernel; k++) {
            const int64_t y = oy * p->stride - p->pad + k / p->kernel;
            const int64_t x = ox * p->stride - p->pad + k % p->kernel;
            if (y < 0 || y >= in->shape[1] || x < 0 || x >= in->shape[2]) {
                continue;
            }
            const float *from = cpu_read(in, pixel(in, n, y, x) + i, c, values);
            if (first) {
                memcpy(best, from, (size_t)c * sizeof *best);
                for (int64_t e = 0; e < c; e++) {
                    places[e] = k;
                }
                first = false;
            } else {
                take_larger(best, places, from, k, c);
            }
        }
        cpu_store(out, to + i, c, best);
    }
}

enum status cpu_maxpool(struct device *dev, const struct maxpool *op, struct error *err) {
    FOR_PIXELS(&op->out, n, oy, ox) {
        maxpool_pixel(&op->out, &op->argmax, &op->in, &op->pool, n, oy, ox);
    }
    return STATUS_OK;
}

/* sum += dout where the window chose cell k */
CPU_CLONES static void add_chosen(float *restrict sum,
                                  const float *restrict dout,
                                  const int32_t *restrict place,
                                  int32_t k,
                                  int64_t c) {
    for (int64_t i = 0; i < c; i++) {
        const float d = dout[i];
        sum[i] += place[i] == k ? d : 0.0f;
    }
}

CPU_CLONES static void add_chosen_bf16(float *restrict sum,
                                       const uint16_t *restrict dout,
                                       const int32_t *restrict place,
                                       int32_t k,
                                       int64_t c) {
    for (int64_t i = 0; i < c; i++) {
        const float d = bf16_to_f32(dout[i]);
        sum[i] += place[i] == k ? d : 0.0f;
    }
}

CPU_CLONES static void
add_scaled(float *restrict out, const float *restrict in, float s, int64_t c) {
    for (int64_t i = 0; i < c; i++) {
        out[i] += in[i] * s;
    }
}

static void maxpool_collect(float *sum,
                            const struct tensor *dout,
                            const struct tensor *argmax,
                            const struct pool_params *p,
                            int64_t n,
                            int64_t y,
                            int64_t x,
                            int64_t first_channel,
                            int64_t c) {
    const struct cells w = covering(dout, p, y, x);
    for (int64_t oy = w.y0; oy < w.y1; oy++) {
        for (int64_t ox = w.x0; ox < w.x1; ox++) {
            const int64_t from = pixel(dout, n, oy, ox) + first_channel;
            const int64_t k =
                (y + p->pad - oy * p->stride) * p->kernel + (x + p->pad - ox * p->stride);
            const int32_t *places = (const int32_t *)argmax->data + from;
            if (dout->dtype == DTYPE_F32) {
                add_chosen(sum, (const float *)dout->data + from, places, (int32_t)k, c);
            } else {
                add_chosen_bf16(sum, (const uint16_t *)dout->data + from, places, (int32_t)k, c);
            }
        }
    }
}

enum status cpu_maxpool_bwd(struct device *dev, const struct maxpool_bwd *op, struct error *err) {
    const int64_t width = op->din.shape[3];
    FOR_PIXELS(&op->din, n, y, x) {
        float buffer[CPU_STRETCH];
        for (int64_t i = 0; i < width; i += CPU_STRETCH) {
            const int64_t c = channels_at(i, width);
            const int64_t at = pixel(&op->din, n, y, x) + i;
            float *sum = cpu_begin(&op->din, at, c, op->mode, buffer);
            maxpool_collect(sum, &op->dout, &op->argmax, &op->pool, n, y, x, i, c);
            cpu_store(&op->din, at, c, sum);
        }
    }
    return STATUS_OK;
}

static void avgpool_pixel(const struct tensor *out,
                          const struct tensor *in,
                          const struct pool_params *p,
                          int64_t n,
                          int64_t oy,
                          int64_t ox) {
    const struct cells w = window(in, p, oy, ox);
    const float share = share_of(&w);
    const int64_t to = pixel(out, n, oy, ox);
    for (int64_t i = 0; i < out->shape[3]; i += CPU_STRETCH) {
        const int64_t c = channels_at(i, out->shape[3]);
        float values[CPU_STRETCH];
        float buffer[CPU_STRETCH];
        float *sum = cpu_begin(out, to + i, c, WRITE_SET, buffer);
        for (int64_t y = w.y0; y < w.y1; y++) {
            for (int64_t x = w.x0; x < w.x1; x++) {
                add_scaled(sum, cpu_read(in, pixel(in, n, y, x) + i, c, values), share, c);
            }
        }
        cpu_store(out, to + i, c, sum);
    }
}

enum status cpu_avgpool(struct device *dev, const struct avgpool *op, struct error *err) {
    FOR_PIXELS(&op->out, n, oy, ox) {
        avgpool_pixel(&op->out, &op->in, &op->pool, n, oy, ox);
    }
    return STATUS_OK;
}

static void avgpool_collect(const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct pool_params *p,
                            int64_t n,
                            int64_t y,
                            int64_t x) {
    const struct cells w = covering(dout, p, y, x);
    const int64_t at = pixel(din, n, y, x);
    for (int64_t i = 0; i < din->shape[3]; i += CPU_STRETCH) {
        const int64_t c = channels_at(i, din->shape[3]);
        float values[CPU_STRETCH];
        float buffer[CPU_STRETCH];
        float *sum = cpu_begin(din, at + i, c, mode, buffer);
        for (int64_t oy = w.y0; oy < w.y1; oy++) {
            for (int64_t ox = w.x0; ox < w.x1; ox++) {
                const float *from = cpu_read(dout, pixel(dout, n, oy, ox) + i, c, values);
                const struct cells in = window(din, p, oy, ox);
                add_scaled(sum, from, share_of(&in), c);
            }
        }
        cpu_store(din, at + i, c, sum);
    }
}

enum status cpu_avgpool_bwd(struct device *dev, const struct avgpool_bwd *op, struct error *err) {
    FOR_PIXELS(&op->din, n, y, x) {
        avgpool_collect(&op->din, op->mode, &op->dout, &op->pool, n, y, x);
    }
    return STATUS_OK;
}

/* The global average is an average pool whose one window is the whole plane. */
static struct pool_params whole_plane(const struct tensor *in) {
    const int64_t h = in->shape[1];
    const int64_t w = in->shape[2];
    return (struct pool_params){.kernel = (int32_t)(h > w ? h : w), .stride = 1};
}

/* (N,C) as (N,1,1,C) */
static struct tensor as_plane(const struct tensor *t) {
    return tensor_4d(t->data, t->dtype, t->shape[0], 1, 1, t->shape[1]);
}

enum status
cpu_global_avgpool(struct device *dev, const struct global_avgpool *op, struct error *err) {
    const struct avgpool whole = {
        .out = as_plane(&op->out), .in = op->in, .pool = whole_plane(&op->in)};
    return cpu_avgpool(dev, &whole, err);
}

enum status
cpu_global_avgpool_bwd(struct device *dev, const struct global_avgpool_bwd *op, struct error *err) {
    const struct avgpool_bwd whole = {.din = op->din,
                                      .dout = as_plane(&op->dout),
                                      .mode = op->mode,
                                      .pool = whole_plane(&op->din)};
    return cpu_avgpool_bwd(dev, &whole, err);
}
