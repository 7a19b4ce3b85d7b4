/*
 * ccbench convolutions: how many images a second the convolutions of a ResNet alone would allow
 * on this processor: each direction that a training step needs, as bare oneDNN primitives over
 * plain NHWC, one convolution after the other. What a step reaches is measured against this.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/cpu/onednn.h"
#include "kernels/operands.h"
#include "tools/ccbench/ccbench_internal.h"

enum { MAX_CONVOLUTIONS = 64, STEM_PX = 7 };

struct network {
    struct conv_shape items[MAX_CONVOLUTIONS];
    int32_t count;
    int64_t batch, px, channels, dtype; /* of what the next convolution reads */
};

/* Adds a convolution of the current image; `next`: its output becomes the current one. */
static void add(struct network *n, int64_t out, int64_t kernel, int64_t stride, bool next) {
    struct conv_shape *s = &n->items[n->count++];
    const int64_t pad = kernel / 2;
    const int64_t out_px = conv_out_size(n->px, kernel, stride, pad);
    memset(s, 0, sizeof *s); /* shapes are compared as bytes */
    s->n = n->batch;
    s->h = s->w = n->px;
    s->in = n->channels;
    s->out = out;
    s->kernel_h = s->kernel_w = kernel;
    s->stride = stride;
    s->pad = pad;
    s->out_h = s->out_w = out_px;
    s->dtype = n->dtype;
    if (next) {
        n->px = out_px;
        n->channels = out;
    }
}

/* v1.5: a bottleneck's stride is in its 3 x 3. */
static void add_block(struct network *n, bool bottleneck, int64_t width, int64_t stride) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (stride != 1 || n->channels != out) {
        add(n, out, 1, stride, false);
    }
    if (bottleneck) {
        add(n, width, 1, 1, true);
        add(n, width, 3, stride, true);
        add(n, out, 1, 1, true);
    } else {
        add(n, width, 3, stride, true);
        add(n, width, 3, 1, true);
    }
}

static const struct {
    const char *name;
    bool bottleneck;
    int32_t blocks[4];
} networks[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
};

static enum status describe(struct network *n,
                            const char *name,
                            int64_t px,
                            int64_t batch,
                            enum dtype dtype,
                            struct error *err) {
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (strcmp(networks[i].name, name) != 0) {
            continue;
        }
        *n = (struct network){.batch = batch, .px = px, .channels = 3, .dtype = (int64_t)dtype};
        add(n, 64, STEM_PX, 2, true);
        n->px = conv_out_size(n->px, 3, 2, 1); /* max pool */
        for (int stage = 0; stage < 4; stage++) {
            for (int32_t b = 0; b < networks[i].blocks[stage]; b++) {
                add_block(n, networks[i].bottleneck, (int64_t)64 << stage,
                          b == 0 && stage > 0 ? 2 : 1);
            }
        }
        return STATUS_OK;
    }
    return error_set(err, STATUS_USAGE, "unknown network '%s' (resnet18, resnet34, resnet50)",
                     name);
}

/* The largest input and output, in bytes. */
static void sizes(const struct network *n, size_t *src, size_t *dst) {
    *src = *dst = 0;
    for (int32_t i = 0; i < n->count; i++) {
        const struct conv_shape *s = &n->items[i];
        const size_t element = dtype_size_bytes((enum dtype)s->dtype);
        const size_t in = (size_t)(s->n * s->h * s->w * s->in) * element;
        const size_t out = (size_t)(s->n * s->out_h * s->out_w * s->out) * element;
        *src = in > *src ? in : *src;
        *dst = out > *dst ? out : *dst;
    }
}

/* One walk over the network in one direction. The first convolution needs no gradient of its input.
 */
static enum status walk(const struct network *n,
                        struct onednn *o,
                        enum conv_direction direction,
                        void *src,
                        void *dst,
                        double *seconds,
                        struct error *err) {
    const int64_t begin = clock_now_ns();
    for (int32_t i = direction == CONV_BACKWARD_DATA ? 1 : 0; i < n->count; i++) {
        const struct convolution c = {
            .shape = n->items[i], .direction = direction, .src = src, .dst = dst};
        TRY(convolve_bare(o, &c, err));
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "stopped on request");
    }
    const double took = (double)(clock_now_ns() - begin) * 1e-9;
    *seconds = *seconds == 0.0 || took < *seconds ? took : *seconds;
    return STATUS_OK;
}

static double flops(const struct network *n, enum conv_direction direction) {
    double sum = 0.0;
    for (int32_t i = direction == CONV_BACKWARD_DATA ? 1 : 0; i < n->count; i++) {
        const struct conv_shape *s = &n->items[i];
        sum += 2.0 * (double)(s->n * s->out_h * s->out_w * s->out) *
               (double)(s->kernel_h * s->kernel_w * s->in);
    }
    return sum;
}

enum status bench_convolutions(struct bench_convolutions *out,
                               const char *network,
                               int64_t px,
                               int64_t batch,
                               enum dtype dtype,
                               struct error *err) {
    enum { REPEATS = 4 }; /* the first makes the primitives; the best of the others counts */
    struct network n;
    struct onednn *o = NULL;
    void *src = NULL;
    void *dst = NULL;
    size_t src_bytes;
    size_t dst_bytes;
    double total_s = 0.0;
    enum status s = STATUS_OK;
    *out = (struct bench_convolutions){0};
    TRY(describe(&n, network, px, batch, dtype, err));
    sizes(&n, &src_bytes, &dst_bytes);
    src = aligned_alloc(64, (src_bytes + 63) / 64 * 64);
    dst = aligned_alloc(64, (dst_bytes + 63) / 64 * 64);
    if (src == NULL || dst == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for %zu bytes of activations",
                      src_bytes + dst_bytes);
        goto fail;
    }
    memset(src, 0, src_bytes);
    memset(dst, 0, dst_bytes);
    TRY_OR_FAIL(s, onednn_create(&o, err));
    for (int d = 0; d < CONV_DIRECTIONS; d++) {
        for (int r = 0; r < REPEATS; r++) {
            out->seconds[d] = r == 1 ? 0.0 : out->seconds[d];
            TRY_OR_FAIL(s, walk(&n, o, (enum conv_direction)d, src, dst, &out->seconds[d], err));
        }
        total_s += out->seconds[d];
        out->flops += flops(&n, (enum conv_direction)d);
    }
    out->images_per_s = (double)batch / total_s;
    out->gflops = out->flops / total_s * 1e-9;
    out->count = n.count;
fail:
    onednn_destroy(o);
    free(src);
    free(dst);
    return s;
}
