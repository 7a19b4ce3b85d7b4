/*
 * ccbench step: the time of only a step's convolutions, as bare oneDNN primitives on the same
 * buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "tools/ccbench/step_internal.h"

static enum status convolve_once(struct onednn *library,
                                 const struct timed_convolution *c,
                                 void *const buffers[3],
                                 struct error *err) {
    struct convolution one = {.shape = c->shape,
                              .direction = CONV_FORWARD,
                              .dst = buffers[0],
                              .src = buffers[1],
                              .weight = buffers[2]};
    if (!c->backward) {
        return convolve(library, &one, err);
    }
    if (c->data) {
        one.direction = CONV_BACKWARD_DATA;
        TRY(convolve(library, &one, err));
    }
    one.direction = CONV_BACKWARD_WEIGHT;
    return convolve(library, &one, err);
}

struct bare_convolutions {
    struct onednn *library;
    const struct timed_convolution *list; /* of the step that was timed */
    size_t count;
    void *buffers[3]; /* output, input, weight: with the largest sizes */
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
        const struct conv_shape *c = &b->list[i].shape;
        const int64_t elements[3] = {c->n * c->out_h * c->out_w * c->out,
                                     c->n * c->h * c->w * c->in,
                                     c->out * c->kernel_h * c->kernel_w * c->in};
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
    TRY_MEMORY(b, err, "no memory for the convolutions alone");
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
fail:
    RETURN_CREATED(s, out, b, bare_convolutions_destroy);
}

enum status bare_convolutions_run(struct bare_convolutions *b, double *seconds, struct error *err) {
    const int64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < b->count; i++) {
        TRY(convolve_once(b->library, &b->list[i], b->buffers, err));
    }
    *seconds = (double)(clock_now_ns() - start_ns) * 1e-9;
    return STATUS_OK;
}
