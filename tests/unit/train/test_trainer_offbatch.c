/* Similarities with samples outside the batch, and their gradients, against plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tests/support/test.h"
#include "train/run/trainer_internal.h"

enum { B = 3, E = 4, MAX_ROWS = 2 * B, NONE = -1 };

/* As trainer_open_offbatch leaves them, but without files. */
struct fixture {
    struct trainer t;
    struct tensor x[2];
};

static struct tensor random_rows(struct device *dev, struct rng *r, int64_t rows, int64_t columns) {
    struct error err = {0};
    void *data = NULL;
    assert_ok(dev->ops->alloc(dev, (size_t)(rows * columns) * sizeof(float), &data, &err), err);
    for (int64_t k = 0; k < rows * columns; k++) {
        ((float *)data)[k] = (float)rng_normal(r);
    }
    return tensor_2d(data, DTYPE_F32, rows, columns);
}

static double at(const struct tensor *m, int64_t row, int64_t column) {
    return (double)((const float *)m->data)[row * m->shape[1] + column];
}

static double product(const struct tensor *a, int64_t i, const struct tensor *b, int64_t j) {
    double sum = 0.0;
    for (int64_t k = 0; k < E; k++) {
        sum += at(a, i, k) * at(b, j, k);
    }
    return sum;
}

static void open_fixture(struct fixture *f, bool views) {
    struct error err = {0};
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 1, 0);
    memset(f, 0, sizeof *f);
    struct trainer *t = &f->t;
    const int64_t anchors = views ? 2 * B : B;
    assert_ok(device_open(&t->dev, "cpu", 1, &err), err);
    t->options.task = views ? TRAINER_VIEWS : TRAINER_PAIRS;
    t->options.batch_count = B;
    t->offbatch.any = true;
    t->offbatch.rows = views ? B + 1 : B;
    t->offbatch.columns = calloc(2 * B, sizeof *t->offbatch.columns);
    t->offbatch.similarity = calloc(2 * B, sizeof *t->offbatch.similarity);
    t->offbatch.gradient = calloc(2 * B, sizeof *t->offbatch.gradient);
    t->offbatch.matrix = calloc((size_t)(anchors * t->offbatch.rows), sizeof *t->offbatch.matrix);
    t->offbatch.s = random_rows(t->dev, &r, anchors, t->offbatch.rows);
    for (int side = 0; side < 2; side++) {
        t->offbatch.sides[side].x = random_rows(t->dev, &r, t->offbatch.rows, E);
        t->offbatch.sides[side].dx = random_rows(t->dev, &r, t->offbatch.rows, E);
    }
    for (int side = 0; side < 2; side++) {
        f->x[side] = random_rows(t->dev, &r, anchors, E);
        t->dx[side] = random_rows(t->dev, &r, anchors, E);
    }
    static const int64_t columns[2 * B] = {1, NONE, 1, 0, 2, NONE};
    memcpy(t->offbatch.columns, columns, sizeof columns);
    for (int i = 0; i < 2 * B; i++) {
        t->offbatch.gradient[i] = (float)rng_normal(&r);
    }
}

static void close_fixture(struct fixture *f) {
    struct device *dev = f->t.dev;
    for (int side = 0; side < 2; side++) {
        dev->ops->free(dev, f->x[side].data);
        dev->ops->free(dev, f->t.dx[side].data);
    }
    trainer_close_offbatch(&f->t);
    device_close(dev);
}

/* The row of an anchor's sample. */
static int64_t column_of(const struct fixture *f, int side, int64_t anchor) {
    return f->t.offbatch.columns[side * B + anchor];
}

static void check(bool views) {
    struct fixture f;
    struct error err = {0};
    open_fixture(&f, views);
    const struct trainer_offbatch *c = &f.t.offbatch;
    const int64_t anchors = views ? 2 * B : B;
    assert_ok(trainer_offbatch_similarities(&f.t, f.x, &err), err);
    float before[2][MAX_ROWS * E];
    memcpy(before[0], f.t.dx[0].data, (size_t)(anchors * E) * sizeof(float));
    memcpy(before[1], f.t.dx[1].data, (size_t)(anchors * E) * sizeof(float));
    assert_ok(trainer_offbatch_gradients(&f.t, f.x, &err), err);
    for (int side = 0; side < (views ? 1 : 2); side++) {
        const struct tensor *from = &f.x[side];
        const struct tensor *changed = &f.t.dx[side];
        const struct offbatch_side *k = &c->sides[side];
        double expected[MAX_ROWS][E] = {{0}};
        for (int64_t a = 0; a < anchors; a++) {
            const int64_t column = column_of(&f, side, a);
            const double s = column >= 0 ? product(from, a, &k->x, column) : 0.0;
            const double g = column >= 0 ? (double)c->gradient[side * B + a] : 0.0;
            assert_true(fabs((double)c->similarity[side * B + a] - s) < 1e-5);
            for (int64_t d = 0; d < E; d++) {
                const double own = (double)before[side][a * E + d];
                const double want = own + (column >= 0 ? g * at(&k->x, column, d) : 0.0);
                assert_true(fabs(at(changed, a, d) - want) < 1e-5);
                expected[column >= 0 ? column : 0][d] += g * at(from, a, d);
            }
        }
        for (int64_t row = 0; row < c->rows; row++) {
            for (int64_t d = 0; d < E; d++) {
                assert_true(fabs(at(&k->dx, row, d) - expected[row][d]) < 1e-5);
            }
        }
    }
    close_fixture(&f);
}

TEST(pairs_give_gradients_to_anchors_and_carried_samples) {
    check(false);
}

TEST(two_views_give_gradients_to_anchors_and_carried_samples) {
    check(true);
}
