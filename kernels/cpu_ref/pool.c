/*
 * pool: in (N,H,W,C) -> out (N,OH,OW,C): maximum, average, and the average of the whole plane.
 */
#include <math.h>

#include "kernels/cpu_ref/ref_internal.h"

enum status ref_maxpool(struct device *dev, const struct maxpool *op, struct error *err) {
    int32_t *places = op->argmax.data;
    const int64_t count = tensor_count(&op->out);
    for (int64_t e = 0; e < count; e++) {
        const int64_t c = e % op->out.shape[3];
        const int64_t ox = e / op->out.shape[3] % op->out.shape[2];
        const int64_t oy = e / (op->out.shape[3] * op->out.shape[2]) % op->out.shape[1];
        const int64_t n = e / (op->out.shape[3] * op->out.shape[2] * op->out.shape[1]);
        double best = -INFINITY;
        int32_t place = -1;
        for (int32_t k = 0; k < op->pool.kernel * op->pool.kernel; k++) {
            const int64_t y = oy * op->pool.stride - op->pool.pad + k / op->pool.kernel;
            const int64_t x = ox * op->pool.stride - op->pool.pad + k % op->pool.kernel;
            if (y < 0 || y >= op->in.shape[1] || x < 0 || x >= op->in.shape[2]) {
                continue;
            }
            const double value = get(&op->in, at4(&op->in, n, y, x, c));
            if (place < 0 || value > best) {
                best = value;
                place = k;
            }
        }
        put(&op->out, e, best);
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

enum status ref_maxpool_bwd(struct device *dev, const struct maxpool_bwd *op, struct error *err) {
    const int32_t *chosen = op->argmax.data;
    const int64_t count = tensor_count(&op->din);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(&op->din, e);
        double sum = 0.0;
        for (int64_t oy = 0; oy < op->dout.shape[1]; oy++) {
            for (int64_t ox = 0; ox < op->dout.shape[2]; ox++) {
                const int64_t ky = at.y + op->pool.pad - oy * op->pool.stride;
                const int64_t kx = at.x + op->pool.pad - ox * op->pool.stride;
                const int64_t o = at4(&op->dout, at.n, oy, ox, at.c);
                if (ky >= 0 && ky < op->pool.kernel && kx >= 0 && kx < op->pool.kernel &&
                    chosen[o] == ky * op->pool.kernel + kx) {
                    sum += get(&op->dout, o);
                }
            }
        }
        put_mode(&op->din, e, sum, op->mode);
    }
    return STATUS_OK;
}

/* [begin, end) of the inputs of output `o` along an axis of `size`, truncated at the borders. */
static void
window(int64_t o, const struct pool_params *p, int64_t size, int64_t *begin, int64_t *end) {
    *begin = o * p->stride - p->pad;
    *end = *begin + p->kernel;
    *begin = *begin < 0 ? 0 : *begin;
    *end = *end > size ? size : *end;
}

enum status ref_avgpool(struct device *dev, const struct avgpool *op, struct error *err) {
    const int64_t count = tensor_count(&op->out);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(&op->out, e);
        int64_t y0;
        int64_t y1;
        int64_t x0;
        int64_t x1;
        window(at.y, &op->pool, op->in.shape[1], &y0, &y1);
        window(at.x, &op->pool, op->in.shape[2], &x0, &x1);
        double sum = 0.0;
        for (int64_t y = y0; y < y1; y++) {
            for (int64_t x = x0; x < x1; x++) {
                sum += get(&op->in, at4(&op->in, at.n, y, x, at.c));
            }
        }
        put(&op->out, e, sum / (double)((y1 - y0) * (x1 - x0)));
    }
    return STATUS_OK;
}

enum status ref_avgpool_bwd(struct device *dev, const struct avgpool_bwd *op, struct error *err) {
    const int64_t count = tensor_count(&op->din);
    for (int64_t e = 0; e < count; e++) {
        const struct place at = place_of(&op->din, e);
        double sum = 0.0;
        for (int64_t oy = 0; oy < op->dout.shape[1]; oy++) {
            for (int64_t ox = 0; ox < op->dout.shape[2]; ox++) {
                int64_t y0;
                int64_t y1;
                int64_t x0;
                int64_t x1;
                window(oy, &op->pool, op->din.shape[1], &y0, &y1);
                window(ox, &op->pool, op->din.shape[2], &x0, &x1);
                if (at.y >= y0 && at.y < y1 && at.x >= x0 && at.x < x1) {
                    sum += get(&op->dout, at4(&op->dout, at.n, oy, ox, at.c)) /
                           (double)((y1 - y0) * (x1 - x0));
                }
            }
        }
        put_mode(&op->din, e, sum, op->mode);
    }
    return STATUS_OK;
}

enum status
ref_global_avgpool(struct device *dev, const struct global_avgpool *op, struct error *err) {
    const int64_t pixels = op->in.shape[1] * op->in.shape[2];
    const int64_t channels = op->in.shape[3];
    for (int64_t n = 0; n < op->in.shape[0]; n++) {
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < pixels; i++) {
                sum += get(&op->in, (n * pixels + i) * channels + c);
            }
            put(&op->out, n * channels + c, sum / (double)pixels);
        }
    }
    return STATUS_OK;
}

enum status
ref_global_avgpool_bwd(struct device *dev, const struct global_avgpool_bwd *op, struct error *err) {
    const int64_t pixels = op->din.shape[1] * op->din.shape[2];
    const int64_t channels = op->din.shape[3];
    const int64_t count = tensor_count(&op->din);
    for (int64_t e = 0; e < count; e++) {
        const int64_t n = e / (pixels * channels);
        put_mode(&op->din, e, get(&op->dout, n * channels + e % channels) / (double)pixels,
                 op->mode);
    }
    return STATUS_OK;
}
