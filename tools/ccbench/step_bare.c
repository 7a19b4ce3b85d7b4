/*
 * ccbench step: what the convolutions of a step cost alone, as bare oneDNN primitives over the same
 * buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "kernels/cpu/onednn.h"
#include "tools/ccbench/step_internal.h"

static struct conv_shape onednn_shape(const struct timed_convolution *c) {
    struct conv_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.n = c->n;
    s.h = c->h;
    s.w = c->w;
    s.in = c->in;
    s.out = c->out;
    s.kernel_h = c->kernel;
    s.kernel_w = c->kernel;
    s.stride = c->stride;
    s.pad = c->pad;
    s.out_h = c->out_h;
    s.out_w = c->out_w;
    s.dtype = c->dtype;
    return s;
}

static enum status convolve(struct onednn *library,
                            const struct timed_convolution *c,
                            void *const buffers[3],
                            struct error *err) {
    const struct conv_shape s = onednn_shape(c);
    if (!c->backward) {
        return convolve_forward(library, &s, buffers[0], buffers[1], buffers[2], err);
    }
    if (c->data) {
        TRY(convolve_backward_data(library, &s, buffers[1], buffers[0], buffers[2], err));
    }
    return convolve_backward_weight(library, &s, buffers[2], buffers[0], buffers[1], err);
}

struct bare_convolutions {
    struct onednn *library;
    const struct timed_convolution *list; /* of the step that was timed */
    size_t count;
    void *buffers[3]; /* output, input, weight: of the largest one */
};

void bare_convolutions_destroy(struct bare_convolutions *b) {
    if (b == NULL) {
        return;
    }
    for (int k = 0; k < 3; k++) {
        free(b->buffers[k]);
    }
    onednn_destroy(b->library);
    free(b);
}

static void largest(const struct bare_convolutions *b, size_t sizes[3]) {
    for (size_t i = 0; i < b->count; i++) {
        const struct timed_convolution *c = &b->list[i];
        const int64_t elements[3] = {c->n * c->out_h * c->out_w * c->out,
                                     c->n * c->h * c->w * c->in,
                                     c->out * c->kernel * c->kernel * c->in};
        for (int k = 0; k < 3; k++) {
            const size_t size = ((size_t)elements[k] * sizeof(float) + 63) / 64 * 64;
            sizes[k] = size > sizes[k] ? size : sizes[k];
        }
    }
}

enum status bare_convolutions_create(struct bare_convolutions **out, struct error *err) {
    struct bare_convolutions *b = calloc(1, sizeof *b);
    size_t sizes[3] = {64, 64, 64};
    enum status s = STATUS_OK;
    *out = NULL;
    if (b == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for the convolutions alone");
    }
    b->count = timed_ops_convolutions(&b->list);
    largest(b, sizes);
    for (int k = 0; k < 3; k++) {
        b->buffers[k] = aligned_alloc(64, sizes[k]);
        if (b->buffers[k] == NULL) {
            s = error_set(err, STATUS_NOMEM, "no memory for the convolutions alone");
            goto fail;
        }
        memset(b->buffers[k], 0, sizes[k]);
    }
    TRY_OR_FAIL(s, onednn_create(&b->library, err));
    *out = b;
    return STATUS_OK;
fail:
    bare_convolutions_destroy(b);
    return s;
}

enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < b->count; i++) {
        TRY(convolve(b->library, &b->list[i], b->buffers, err));
    }
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}
