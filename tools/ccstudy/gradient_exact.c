/*
 * gradient_exact: similarities and their gradients are two products of matrices; the softmax
 * between them is taken in double.
 */
#include "tools/ccstudy/gradient_exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gradient_exact {
    struct device *dev;
    int64_t count, dim; /* n, E */
    double tau;
    struct tensor x, dx; /* (3n, E) */
    struct tensor s;     /* (2n, 2n): similarities, then their gradient */
    float *host;         /* the same */
};

enum status gradient_exact_create(struct gradient_exact **out,
                                  struct device *dev,
                                  uint32_t count,
                                  int64_t dim,
                                  double tau,
                                  struct error *err) {
    struct gradient_exact *e = calloc(1, sizeof *e);
    const int64_t anchors = 2 * (int64_t)count;
    enum status s;
    *out = NULL;
    if (e == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %u images", count);
    }
    *e = (struct gradient_exact){.dev = dev, .count = count, .dim = dim, .tau = tau};
    e->x = tensor_2d(NULL, DTYPE_F32, 3 * (int64_t)count, dim);
    e->dx = e->x;
    e->s = tensor_2d(NULL, DTYPE_F32, anchors, anchors);
    struct tensor *const all[] = {&e->x, &e->dx, &e->s};
    for (int i = 0; i < 3; i++) {
        TRY_OR_FAIL(s, dev->ops->alloc(dev, tensor_size_bytes(all[i]), &all[i]->data, err));
    }
    e->host = malloc(tensor_size_bytes(&e->s));
    if (e->host == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for %u images", count);
        goto fail;
    }
    *out = e;
    return STATUS_OK;
fail:
    gradient_exact_destroy(e);
    return s;
}

void gradient_exact_destroy(struct gradient_exact *e) {
    if (e != NULL) {
        e->dev->ops->free(e->dev, e->x.data);
        e->dev->ops->free(e->dev, e->dx.data);
        e->dev->ops->free(e->dev, e->s.data);
        free(e->host);
        free(e);
    }
}

static struct tensor rows_from(const struct tensor *t, int64_t first, int64_t count) {
    struct tensor part = *t;
    part.data = (float *)t->data + first * t->shape[1];
    part.shape[0] = count;
    return part;
}

/* One anchor's similarities with `contrasts` rows become their gradient; returns the log of the
 * sum. Columns `a` and, without `with_own`, `own` are no contrasts; of un-augmented images (n
 * columns) that is the anchor's own one. */
static double softmax(float *row,
                      int64_t contrasts,
                      int64_t a,
                      int64_t own,
                      bool with_own,
                      double tau,
                      double share) {
    double high = -HUGE_VAL;
    double sum = 0.0;
    for (int64_t c = 0; c < contrasts; c++) {
        const bool counts = c != a && (c != own || with_own);
        if (!counts) {
            row[c] = -INFINITY;
        }
        high = (double)row[c] > high ? (double)row[c] : high;
    }
    for (int64_t c = 0; c < contrasts; c++) {
        sum += exp(((double)row[c] - high) / tau);
    }
    for (int64_t c = 0; c < contrasts; c++) {
        row[c] = (float)(share * exp(((double)row[c] - high) / tau) / sum);
    }
    return high / tau + log(sum);
}

/* Adds the positives: the value, and share times their gradient. */
static double
add_positives(const struct gradient_exact *e, float *dx, const float *x, double share) {
    const int64_t anchors = 2 * e->count;
    double sum = 0.0;
    for (int64_t a = 0; a < anchors; a++) {
        const int64_t own = (a + e->count) % anchors;
        for (int64_t d = 0; d < e->dim; d++) {
            sum += (double)x[a * e->dim + d] * (double)x[own * e->dim + d];
            /* Each pair is the positive of both of its views. */
            dx[a * e->dim + d] -= (float)(2.0 * share * (double)x[own * e->dim + d]);
        }
    }
    return sum;
}

enum status gradient_exact_evaluate(struct gradient_exact *e,
                                    double *loss,
                                    float *dx,
                                    const float *x,
                                    enum gradient_objective objective,
                                    struct error *err) {
    const struct ops *ops = e->dev->ops;
    const bool plain = objective == GRADIENT_UNAUGMENTED;
    const int64_t anchors = 2 * e->count;
    const int64_t contrasts = plain ? e->count : anchors;
    const int64_t rows = plain ? 3 * e->count : anchors;
    const struct tensor used = rows_from(&e->x, 0, rows);
    const struct tensor x_anchor = rows_from(&e->x, 0, anchors);
    const struct tensor x_contrast = rows_from(&e->x, plain ? anchors : 0, contrasts);
    const struct tensor s = tensor_2d(e->s.data, DTYPE_F32, anchors, contrasts);
    const double share = 1.0 / (e->tau * (double)anchors);
    TRY(ops->upload(e->dev, used.data, x, tensor_size_bytes(&used), err));
    const struct matmul similarity = {
        .out = s, .a = x_anchor, .b = x_contrast, .transpose_b = true, .alpha = 1.0f};
    TRY(ops->matmul(e->dev, &similarity, err));
    TRY(ops->download(e->dev, e->host, s.data, tensor_size_bytes(&s), err));
    *loss = 0.0;
    for (int64_t a = 0; a < anchors; a++) {
        const int64_t own = plain ? a % e->count : (a + e->count) % anchors;
        *loss += softmax(e->host + a * contrasts, contrasts, plain ? own : a, own,
                         objective == GRADIENT_WITH_OWN, e->tau, share);
    }
    TRY(ops->upload(e->dev, s.data, e->host, tensor_size_bytes(&s), err));
    const struct matmul to_anchor = {
        .out = rows_from(&e->dx, 0, anchors), .a = s, .b = x_contrast, .alpha = 1.0f};
    const struct matmul to_contrast = {.out = rows_from(&e->dx, plain ? anchors : 0, contrasts),
                                       .a = s,
                                       .b = x_anchor,
                                       .transpose_a = true,
                                       .mode = plain ? WRITE_SET : WRITE_ADD,
                                       .alpha = 1.0f};
    TRY(ops->matmul(e->dev, &to_anchor, err));
    TRY(ops->matmul(e->dev, &to_contrast, err));
    TRY(ops->download(e->dev, dx, e->dx.data, tensor_size_bytes(&used), err));
    *loss = (*loss - add_positives(e, dx, x, share) / e->tau) / (double)anchors;
    return STATUS_OK;
}
