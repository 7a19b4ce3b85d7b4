/*
 * pool: maximum, average and global average over (N,H,W,C), whole channel vectors at a time.
 */
#include <string.h>

#include "kernels/cpu/cpu_internal.h"

/* Row (n, y, x) of a tensor of channel vectors. */
static float *row(const struct tensor *t, int64_t n, int64_t y, int64_t x) {
    return (float *)t->data + ((n * t->shape[1] + y) * t->shape[2] + x) * t->shape[3];
}

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
                          int32_t *places,
                          const struct tensor *in,
                          const struct pool_params *p,
                          int64_t n,
                          int64_t oy,
                          int64_t ox) {
    const int64_t c = out->shape[3];
    float *best = row(out, n, oy, ox);
    bool first = true;
    for (int32_t k = 0; k < p->kernel * p->kernel; k++) {
        const int64_t y = oy * p->stride - p->pad + k / p->kernel;
        const int64_t x = ox * p->stride - p->pad + k % p->kernel;
        if (y < 0 || y >= in->shape[1] || x < 0 || x >= in->shape[2]) {
            continue;
        }
        const float *from = row(in, n, y, x);
        if (first) {
            memcpy(best, from, (size_t)c * sizeof *best);
            for (int64_t i = 0; i < c; i++) {
                places[i] = k;
            }
            first = false;
        } else {
            take_larger(best, places, from, k, c);
        }
    }
}

enum status cpu_maxpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *argmax,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err) {
    (void)dev;
    TRY(cpu_real("maxpool", in, err));
    TRY(check_pool("maxpool", out, argmax, in, p, false, err));
    const int64_t c = out->shape[3];
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t n = 0; n < out->shape[0]; n++) {
        for (int64_t oy = 0; oy < out->shape[1]; oy++) {
            for (int64_t ox = 0; ox < out->shape[2]; ox++) {
                int32_t *places =
                    (int32_t *)argmax->data + ((n * out->shape[1] + oy) * out->shape[2] + ox) * c;
                maxpool_pixel(out, places, in, p, n, oy, ox);
            }
        }
    }
    return STATUS_OK;
}

static void clear_image(const struct tensor *t, int64_t n, enum write_mode mode) {
    if (mode == WRITE_SET) {
        memset(row(t, n, 0, 0), 0, (size_t)(tensor_count(t) / t->shape[0]) * sizeof(float));
    }
}

enum status cpu_maxpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct tensor *argmax,
                            const struct pool_params *p,
                            struct error *err) {
    (void)dev;
    TRY(cpu_real("maxpool_bwd", dout, err));
    TRY(check_pool("maxpool_bwd", dout, argmax, din, p, false, err));
    const int64_t c = dout->shape[3];
    const int64_t pixels = dout->shape[1] * dout->shape[2];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < dout->shape[0]; n++) {
        clear_image(din, n, mode);
        for (int64_t q = 0; q < pixels; q++) {
            const int64_t oy = q / dout->shape[2];
            const int64_t ox = q % dout->shape[2];
            const float *from = row(dout, n, oy, ox);
            const int32_t *places = (const int32_t *)argmax->data + (n * pixels + q) * c;
            for (int64_t i = 0; i < c; i++) {
                const int64_t y = oy * p->stride - p->pad + places[i] / p->kernel;
                const int64_t x = ox * p->stride - p->pad + places[i] % p->kernel;
                row(din, n, y, x)[i] += from[i];
            }
        }
    }
    return STATUS_OK;
}

CPU_CLONES static void
add_vector(float *restrict out, const float *restrict in, float scale, int64_t c) {
    for (int64_t i = 0; i < c; i++) {
        out[i] += in[i] * scale;
    }
}

static void
window(int64_t o, const struct pool_params *p, int64_t size, int64_t *begin, int64_t *end) {
    *begin = o * p->stride - p->pad;
    *end = *begin + p->kernel;
    *begin = *begin < 0 ? 0 : *begin;
    *end = *end > size ? size : *end;
}

/* Forward gathers windows into narrow, backward spreads narrow over them. */
static void avgpool_image(const struct tensor *wide,
                          const struct tensor *narrow,
                          const struct pool_params *p,
                          int64_t n,
                          bool backward) {
    const int64_t c = narrow->shape[3];
    for (int64_t q = 0; q < narrow->shape[1] * narrow->shape[2]; q++) {
        int64_t y0;
        int64_t y1;
        int64_t x0;
        int64_t x1;
        window(q / narrow->shape[2], p, wide->shape[1], &y0, &y1);
        window(q % narrow->shape[2], p, wide->shape[2], &x0, &x1);
        float *point = row(narrow, n, q / narrow->shape[2], q % narrow->shape[2]);
        const float share = 1.0f / (float)((y1 - y0) * (x1 - x0));
        if (!backward) {
            memset(point, 0, (size_t)c * sizeof *point);
        }
        for (int64_t y = y0; y < y1; y++) {
            for (int64_t x = x0; x < x1; x++) {
                if (backward) {
                    add_vector(row(wide, n, y, x), point, share, c);
                } else {
                    add_vector(point, row(wide, n, y, x), share, c);
                }
            }
        }
    }
}

enum status cpu_avgpool(struct device *dev,
                        const struct tensor *out,
                        const struct tensor *in,
                        const struct pool_params *p,
                        struct error *err) {
    (void)dev;
    TRY(cpu_real("avgpool", in, err));
    TRY(check_pool("avgpool", out, NULL, in, p, true, err));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < in->shape[0]; n++) {
        avgpool_image(in, out, p, n, false);
    }
    return STATUS_OK;
}

enum status cpu_avgpool_bwd(struct device *dev,
                            const struct tensor *din,
                            enum write_mode mode,
                            const struct tensor *dout,
                            const struct pool_params *p,
                            struct error *err) {
    (void)dev;
    TRY(cpu_real("avgpool_bwd", dout, err));
    TRY(check_pool("avgpool_bwd", dout, NULL, din, p, true, err));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < din->shape[0]; n++) {
        clear_image(din, n, mode);
        avgpool_image(din, dout, p, n, true);
    }
    return STATUS_OK;
}

enum status cpu_global_avgpool(struct device *dev,
                               const struct tensor *out,
                               const struct tensor *in,
                               struct error *err) {
    (void)dev;
    TRY(cpu_real("global_avgpool", in, err));
    TRY(check_global_avgpool(out, in, err));
    const int64_t pixels = in->shape[1] * in->shape[2];
    const int64_t c = in->shape[3];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < in->shape[0]; n++) {
        float *to = (float *)out->data + n * c;
        memset(to, 0, (size_t)c * sizeof *to);
        for (int64_t q = 0; q < pixels; q++) {
            add_vector(to, row(in, n, 0, 0) + q * c, 1.0f / (float)pixels, c);
        }
    }
    return STATUS_OK;
}

enum status cpu_global_avgpool_bwd(struct device *dev,
                                   const struct tensor *din,
                                   enum write_mode mode,
                                   const struct tensor *dout,
                                   struct error *err) {
    (void)dev;
    TRY(cpu_real("global_avgpool_bwd", dout, err));
    TRY(check_global_avgpool(dout, din, err));
    const int64_t pixels = din->shape[1] * din->shape[2];
    const int64_t c = din->shape[3];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < din->shape[0]; n++) {
        clear_image(din, n, mode);
        for (int64_t q = 0; q < pixels; q++) {
            add_vector(row(din, n, 0, 0) + q * c, (const float *)dout->data + n * c,
                       1.0f / (float)pixels, c);
        }
    }
    return STATUS_OK;
}
