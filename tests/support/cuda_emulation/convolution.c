/*
 * convolution: replaces cuDNN in the emulated module: the three passes of a convolution as
 * plain loops in f32, rounded once. Tests of the module's own plain kernels switch it off: then
 * there is no engine for any convolution, as for shapes that cuDNN refuses.
 *
 * The order of a sum is always the same: taps, then channels or places.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/cuda/device/cuda_internal.h"
#include "tests/support/cuda_emulation/emulation.h"

static bool offered = true;

void emulation_convolutions(bool on) {
    offered = on;
}

struct convolution {
    struct conv_problem p;
    void *x, *w, *y;
};

static int64_t count_x(const struct conv_problem *p) {
    return p->n * p->h * p->w * p->c;
}

static int64_t count_w(const struct conv_problem *p) {
    return p->k * p->r * p->s * p->c;
}

static int64_t count_y(const struct conv_problem *p) {
    return p->n * p->oh * p->ow * p->k;
}

/* A copy in f32; zeros without `from`. */
static float *widened(const struct conv_problem *p, const void *from, int64_t count) {
    float *out = calloc((size_t)count, sizeof *out);
    if (out == NULL) {
        abort();
    }
    if (from != NULL && p->dtype == DTYPE_F32) {
        memcpy(out, from, (size_t)count * sizeof *out);
    }
    for (int64_t i = 0; from != NULL && p->dtype == DTYPE_BF16 && i < count; i++) {
        out[i] = bf16_to_f32(((const uint16_t *)from)[i]);
    }
    return out;
}

static void narrow(const struct conv_problem *p, void *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (p->dtype == DTYPE_F32) {
            ((float *)to)[i] = from[i];
        } else {
            ((uint16_t *)to)[i] = bf16_from_f32(from[i]);
        }
    }
}

static float dot(const float *a, const float *b, int64_t count) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict from, float by, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        to[i] += by * from[i];
    }
}

/* The products of one pixel of y with one tap of the weights. */
static void
one_tap(const struct conv_problem *p, float *x, float *w, float *y, int64_t pixel, int64_t tap) {
    const int64_t ox = pixel % p->ow;
    const int64_t oy = pixel / p->ow % p->oh;
    const int64_t n = pixel / (p->ow * p->oh);
    const int64_t iy = oy * p->stride - p->pad + tap / p->s;
    const int64_t ix = ox * p->stride - p->pad + tap % p->s;
    if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w) {
        return;
    }
    float *from = x + ((n * p->h + iy) * p->w + ix) * p->c;
    float *to = y + pixel * p->k;
    for (int64_t o = 0; o < p->k; o++) {
        float *weights = w + (o * p->r * p->s + tap) * p->c;
        switch (p->pass) {
        case CONV_FORWARD:
            to[o] += dot(from, weights, p->c);
            break;
        case CONV_DATA:
            add_scaled(from, weights, to[o], p->c);
            break;
        case CONV_WEIGHT:
            add_scaled(weights, from, to[o], p->c);
            break;
        }
    }
}

static void convolve(void *cookie) {
    const struct convolution *c = cookie;
    const struct conv_problem *p = &c->p;
    float *x = widened(p, p->pass == CONV_DATA && !p->add ? NULL : c->x, count_x(p));
    float *w = widened(p, p->pass == CONV_WEIGHT ? NULL : c->w, count_w(p));
    float *y = widened(p, p->pass == CONV_FORWARD ? NULL : c->y, count_y(p));
    for (int64_t tap = 0; tap < p->r * p->s; tap++) {
        for (int64_t pixel = 0; pixel < p->n * p->oh * p->ow; pixel++) {
            one_tap(p, x, w, y, pixel, tap);
        }
    }
    switch (p->pass) {
    case CONV_FORWARD:
        narrow(p, c->y, y, count_y(p));
        break;
    case CONV_DATA:
        narrow(p, c->x, x, count_x(p));
        break;
    case CONV_WEIGHT:
        narrow(p, c->w, w, count_w(p));
        break;
    }
    free(x);
    free(w);
    free(y);
}

enum status conv_run(struct cuda_device *dev,
                     const struct conv_problem *p,
                     void *x,
                     void *w,
                     void *y,
                     struct error *err) {
    if (!offered) {
        return error_set(err, STATUS_UNSUPPORTED, "no convolution library on the emulated device");
    }
    const struct convolution c = {.p = *p, .x = x, .w = w, .y = y};
    cuda_counted(dev);
    emulation_do(dev->stream, convolve, &c, sizeof c, EMULATION_KERNEL_NS);
    return STATUS_OK;
}
