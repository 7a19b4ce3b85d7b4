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

/* Element e of a tensor (N,H,W,C). */
struct place {
    int64_t n, y, x, c;
};

static struct place place_of(const struct tensor *t, int64_t e) {
    return (struct place){.c = e % t->shape[3],
                          .x = e / t->shape[3] % t->shape[2],
                          .y = e / (t->shape[3] * t->shape[2]) % t->shape[1],
                          .n = e / (t->shape[3] * t->shape[2] * t->shape[1])};
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
    const int32_t *chosen = argmax->data;
    const int64_t count = tensor_count(din);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(din, e);
        double sum = 0.0;
        for (int64_t oy = 0; oy < dout->shape[1]; oy++) {
            for (int64_t ox = 0; ox < dout->shape[2]; ox++) {
                const int64_t ky = at.y + p->pad - oy * p->stride;
                const int64_t kx = at.x + p->pad - ox * p->stride;
                const int64_t o = at4(dout, at.n, oy, ox, at.c);
                if (ky >= 0 && ky < p->kernel && kx >= 0 && kx < p->kernel &&
                    chosen[o] == ky * p->kernel + kx) {
                    sum += get(dout, o);
                }
            }
        }
        put_mode(din, e, sum, mode);
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

enum status ref_avgpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err) {
    (void)dev;
    TRY(ref_real("avgpool", in, err));
    TRY(check_pool("avgpool", out, NULL, in, p, true, err));
    const int64_t count = tensor_count(out);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(out, e);
        int64_t y0;
        int64_t y1;
        int64_t x0;
        int64_t x1;
        window(at.y, p, in->shape[1], &y0, &y1);
        window(at.x, p, in->shape[2], &x0, &x1);
        double sum = 0.0;
        for (int64_t y = y0; y < y1; y++) {
            for (int64_t x = x0; x < x1; x++) {
                sum += get(in, at4(in, at.n, y, x, at.c));
            }
        }
        put(out, e, sum / (double)((y1 - y0) * (x1 - x0)));
    }
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
    const int64_t count = tensor_count(din);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(din, e);
        double sum = 0.0;
        for (int64_t oy = 0; oy < dout->shape[1]; oy++) {
            for (int64_t ox = 0; ox < dout->shape[2]; ox++) {
                int64_t y0;
                int64_t y1;
                int64_t x0;
                int64_t x1;
                window(oy, p, din->shape[1], &y0, &y1);
                window(ox, p, din->shape[2], &x0, &x1);
                if (at.y >= y0 && at.y < y1 && at.x >= x0 && at.x < x1) {
                    sum +=
                        get(dout, at4(dout, at.n, oy, ox, at.c)) / (double)((y1 - y0) * (x1 - x0));
                }
            }
        }
        put_mode(din, e, sum, mode);
    }
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
