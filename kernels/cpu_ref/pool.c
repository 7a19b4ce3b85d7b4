/*
 * pool: in (N,H,W,C) -> out (N,OH,OW,C): maximum, average, and the average of the whole plane.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

enum status ref_maxpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *argmax,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err) {
    (void)dev;
    TRY(ref_real("maxpool", in, err));
    TRY(check_pool("maxpool", out, argmax, in, p, false, err));
    int32_t *places = argmax->data;
    const int64_t count = tensor_count(out);
    for (int64_t e = 0; e < count; e++) {
        const int64_t c = e % out->shape[3];
        const int64_t ox = e / out->shape[3] % out->shape[2];
        const int64_t oy = e / (out->shape[3] * out->shape[2]) % out->shape[1];
        const int64_t n = e / (out->shape[3] * out->shape[2] * out->shape[1]);
        double best = -INFINITY;
        int32_t place = -1;
        for (int32_t k = 0; k < p->kernel * p->kernel; k++) {
            const int64_t y = oy * p->stride - p->pad + k / p->kernel;
            const int64_t x = ox * p->stride - p->pad + k % p->kernel;
            if (y < 0 || y >= in->shape[1] || x < 0 || x >= in->shape[2]) {
                continue;
            }
            const double value = get(in, at4(in, n, y, x, c));
            if (place < 0 || value > best) {
                best = value;
                place = k;
            }
        }
        put(out, e, best);
        places[e] = place;
    }
    return STATUS_OK;
}

static void clear(const struct tensor *t, enum write_mode mode) {
    const int64_t count = mode == WRITE_SET ? tensor_count(t) : 0;
    for (int64_t i = 0; i < count; i++) {
        put(t, i, 0.0);
    }
}

enum status ref_maxpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct tensor *argmax,
                            const struct pool_params *p,
                            struct error *err) {
    (void)dev;
    TRY(ref_real("maxpool_bwd", dout, err));
    TRY(check_pool("maxpool_bwd", dout, argmax, din, p, false, err));
    clear(din, mode);
    const int32_t *places = argmax->data;
    const int64_t count = tensor_count(dout);
    for (int64_t e = 0; e < count; e++) {
        const int64_t c = e % dout->shape[3];
        const int64_t ox = e / dout->shape[3] % dout->shape[2];
        const int64_t oy = e / (dout->shape[3] * dout->shape[2]) % dout->shape[1];
        const int64_t n = e / (dout->shape[3] * dout->shape[2] * dout->shape[1]);
        const int64_t y = oy * p->stride - p->pad + places[e] / p->kernel;
        const int64_t x = ox * p->stride - p->pad + places[e] % p->kernel;
        put_mode(din, at4(din, n, y, x, c), get(dout, e), WRITE_ADD);
    }
    return STATUS_OK;
}

/* [begin, end) of the inputs under output `o` of an axis of `size`, cut at the borders. */
static void
window(int64_t o, const struct pool_params *p, int64_t size, int64_t *begin, int64_t *end) {
    *begin = o * p->stride - p->pad;
    *end = *begin + p->kernel;
    *begin = *begin < 0 ? 0 : *begin;
    *end = *end > size ? size : *end;
}

/* One walk serves both directions: forward reads the window, backward spreads over it. */
static void avgpool_walk(const struct tensor *wide,
                         const struct tensor *narrow,
                         const struct pool_params *p,
                         bool backward) {
    const int64_t count = tensor_count(narrow);
    for (int64_t e = 0; e < count; e++) {
        const int64_t c = e % narrow->shape[3];
        const int64_t ox = e / narrow->shape[3] % narrow->shape[2];
        const int64_t oy = e / (narrow->shape[3] * narrow->shape[2]) % narrow->shape[1];
        const int64_t n = e / (narrow->shape[3] * narrow->shape[2] * narrow->shape[1]);
        int64_t y0;
        int64_t y1;
        int64_t x0;
        int64_t x1;
        window(oy, p, wide->shape[1], &y0, &y1);
        window(ox, p, wide->shape[2], &x0, &x1);
        const double share = 1.0 / (double)((y1 - y0) * (x1 - x0));
        double sum = 0.0;
        for (int64_t y = y0; y < y1; y++) {
            for (int64_t x = x0; x < x1; x++) {
                if (backward) {
                    put_mode(wide, at4(wide, n, y, x, c), get(narrow, e) * share, WRITE_ADD);
                } else {
                    sum += get(wide, at4(wide, n, y, x, c));
                }
            }
        }
        if (!backward) {
            put(narrow, e, sum * share);
        }
    }
}

enum status ref_avgpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err) {
    (void)dev;
    TRY(ref_real("avgpool", in, err));
    TRY(check_pool("avgpool", out, NULL, in, p, true, err));
    avgpool_walk(in, out, p, false);
    return STATUS_OK;
}

enum status ref_avgpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct pool_params *p,
                            struct error *err) {
    (void)dev;
    TRY(ref_real("avgpool_bwd", dout, err));
    TRY(check_pool("avgpool_bwd", dout, NULL, din, p, true, err));
    clear(din, mode);
    avgpool_walk(din, dout, p, true);
    return STATUS_OK;
}

enum status ref_global_avgpool(struct device *dev,
                               const struct tensor *out,
                               const struct tensor *in,
                               struct error *err) {
    (void)dev;
    TRY(ref_real("global_avgpool", in, err));
    TRY(check_global_avgpool(out, in, err));
    const int64_t pixels = in->shape[1] * in->shape[2];
    const int64_t channels = in->shape[3];
    for (int64_t n = 0; n < in->shape[0]; n++) {
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < pixels; i++) {
                sum += get(in, (n * pixels + i) * channels + c);
            }
            put(out, n * channels + c, sum / (double)pixels);
        }
    }
    return STATUS_OK;
}

enum status ref_global_avgpool_bwd(struct device *dev,
                                   const struct tensor *din,
                                   enum write_mode mode,
                                   const struct tensor *dout,
                                   struct error *err) {
    (void)dev;
    TRY(ref_real("global_avgpool_bwd", dout, err));
    TRY(check_global_avgpool(dout, din, err));
    const int64_t pixels = din->shape[1] * din->shape[2];
    const int64_t channels = din->shape[3];
    const int64_t count = tensor_count(din);
    for (int64_t e = 0; e < count; e++) {
        const int64_t n = e / (pixels * channels);
        put_mode(din, e, get(dout, n * channels + e % channels) / (double)pixels, mode);
    }
    return STATUS_OK;
}
