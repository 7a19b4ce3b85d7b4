/*
 * Steps by tiles (train/loss/loss_tiled.h) against steps of the whole matrix, which specify them:
 * every row of losses that can, for tiles that divide the batch, do not, are one element, or are
 * larger than the batch; over several steps with state, with weights and with ids that occur twice.
 * Ranks have the bits of one. A large batch is compared with sums in double.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "kernels/contrast.h"
#include "tests/support/comm_threads.h"
#include "tests/support/test.h"
#include "train/loss/loss_row.h"
#include "train/loss/loss_tiled.h"

enum { MAX_B = 41, MAX_ROWS = 2 * MAX_B, E = 12, ID_SPACE = 64, SAMPLES = 500, STEPS = 4 };

/* ---- two copies of a loss: whole and by tiles ---- */

struct copy {
    struct sample_state *state;
    struct loss *loss;
    struct loss_tiled *tiled; /* NULL: the whole matrix */
    float dx[2][MAX_ROWS * E];
    struct loss_output out;
};

struct fixture {
    struct device *dev;
    struct loss_options options;
    int b, rows;
    struct copy whole, tiles;
    float x[2][MAX_ROWS * E];
    uint64_t ids[MAX_B];
    float weights[MAX_B];
    bool weighted;
    uint64_t steps;
};

static void copy_open(struct copy *c, struct fixture *f, int64_t tile) {
    struct error err = {0};
    memset(c, 0, sizeof *c);
    assert_ok(sample_state_create(&c->state, ID_SPACE, NULL, &err), err);
    assert_ok(loss_create(&c->loss, &f->options, c->state, SAMPLES, f->b, &err), err);
    if (tile > 0) {
        assert_ok(loss_tiled_create(&c->tiled, c->loss, f->dev, f->b, tile, NULL, &err), err);
    }
}

static void copy_close(struct copy *c) {
    loss_tiled_destroy(c->tiled);
    loss_destroy(c->loss);
    sample_state_destroy(c->state);
}

static void fixture_open(struct fixture *f, const struct loss_row *row, double tau, int b) {
    struct error err = {0};
    memset(f, 0, sizeof *f);
    loss_options_default(&f->options);
    f->options.name = row->name;
    f->options.views = row->views;
    f->options.parity = row->parity;
    f->options.tau = tau;
    f->options.tau_min = 0.001;
    f->options.tau_max = 2.0;
    f->options.gamma = 0.4;
    f->b = b;
    f->rows = row->views ? 2 * b : b;
    assert_ok(device_open(&f->dev, "cpu", 1, &err), err);
}

/* Multiples of 2^-6, so that similarities are exact in whatever order they are added: at tau 0.05 a
 * last bit of theirs is 1e-6 of a gradient. */
static void draw(struct fixture *f, bool repeated) {
    struct rng r;
    rng_init(&r, 77, RNG_INIT, f->steps, 0);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < f->rows; i++) {
            float *x = &f->x[side][i * E];
            double square = 0.0;
            for (int k = 0; k < E; k++) {
                const double near = side == 1 && i < f->b ? (double)f->x[0][i * E + k] : 0.0;
                x[k] = (float)(2.0 * rng_uniform(&r) - 1.0 + near);
                square += (double)x[k] * (double)x[k];
            }
            for (int k = 0; k < E; k++) {
                x[k] = (float)(rint(64.0 * (double)x[k] / sqrt(square)) / 64.0);
            }
        }
    }
    for (int i = 0; i < f->b; i++) {
        f->ids[i] = (uint64_t)((13 * (i + 3 * (int)f->steps)) % ID_SPACE);
        f->weights[i] = (float)(2.0 * rng_uniform(&r));
    }
    if (repeated) {
        f->ids[2] = f->ids[0];
        f->ids[f->b - 1] = f->ids[f->b / 2];
    }
}

/* S of the whole matrix, and from its gradient those of the embeddings. */
static void step_whole(struct fixture *f, struct loss_input *in) {
    static float s[MAX_ROWS * MAX_ROWS], g[MAX_ROWS * MAX_ROWS];
    const int n = f->rows;
    const int last = f->options.views ? 0 : 1;
    struct copy *c = &f->whole;
    struct error err = {0};
    const struct tensor x[2] = {tensor_2d(f->x[0], DTYPE_F32, n, E),
                                tensor_2d(f->x[last], DTYPE_F32, n, E)};
    const struct tensor dx[2] = {tensor_2d(c->dx[0], DTYPE_F32, n, E),
                                 tensor_2d(c->dx[last], DTYPE_F32, n, E)};
    const struct tensor st = tensor_2d(s, DTYPE_F32, n, n);
    const struct tensor gt = tensor_2d(g, DTYPE_F32, n, n);
    const struct matmul products[] = {
        {.out = st, .a = x[0], .b = x[1], .transpose_b = true, .alpha = 1.0f},
        {.out = dx[0], .a = gt, .b = x[1], .alpha = 1.0f},
        {.out = dx[1],
         .a = gt,
         .transpose_a = true,
         .b = x[0],
         .mode = last == 0 ? WRITE_ADD : WRITE_SET,
         .alpha = 1.0f}};
    assert_ok(f->dev->ops->matmul(f->dev, &products[0], &err), err);
    in->similarity = s;
    c->out.gradient = g;
    assert_ok(loss_step(c->loss, in, &c->out, &err), err);
    assert_ok(f->dev->ops->matmul(f->dev, &products[1], &err), err);
    assert_ok(f->dev->ops->matmul(f->dev, &products[2], &err), err);
}

static enum status
step_tiles(struct fixture *f, struct copy *c, struct loss_input *in, struct error *err) {
    const struct tensor x[2] = {tensor_2d(f->x[0], DTYPE_F32, f->rows, E),
                                tensor_2d(f->x[1], DTYPE_F32, f->rows, E)};
    const struct tensor dx[2] = {tensor_2d(c->dx[0], DTYPE_F32, f->rows, E),
                                 tensor_2d(c->dx[1], DTYPE_F32, f->rows, E)};
    in->similarity = NULL;
    return loss_tiled_step(c->tiled, x, dx, in, &c->out, err);
}

static struct loss_input input_of(const struct fixture *f) {
    return (struct loss_input){.sample_ids = f->ids,
                               .weights = f->weighted ? f->weights : NULL,
                               .batch_count = f->b,
                               .step = f->steps,
                               .epoch = f->steps,
                               .lr = 1e-3,
                               .zeta_lr_text = 1e-2,
                               .zeta_lr_image = 2e-2};
}

/* ---- comparison ---- */

static void near(const char *what, double a, double b, double scale, double tolerance) {
    if (!(fabs(a - b) <= tolerance * scale) && !(isnan(a) && isnan(b))) {
        fail_msg("%s: whole %.9g, by tiles %.9g", what, a, b);
    }
}

static void near_all(const char *what, const float *a, const float *b, int count) {
    double largest = 0.0;
    for (int i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)a[i]));
    }
    for (int i = 0; i < count; i++) {
        near(what, (double)a[i], (double)b[i], largest, 1e-6);
    }
}

static void compare(struct fixture *f, const char *title) {
    const struct copy *a = &f->whole;
    const struct copy *b = &f->tiles;
    const struct loss_scalar *x;
    const struct loss_scalar *y;
    char what[200];
    const int sides = f->options.views ? 1 : 2;
    for (int side = 0; side < sides; side++) {
        (void)snprintf(what, sizeof what, "%s, step %d, gradient of side %d", title, (int)f->steps,
                       side);
        near_all(what, a->dx[side], b->dx[side], f->rows * E);
    }
    (void)snprintf(what, sizeof what, "%s, step %d, value", title, (int)f->steps);
    near(what, a->out.value, b->out.value, 1.0 + fabs(a->out.value), 1e-6);
    near(what, a->out.objective, b->out.objective, 1.0 + fabs(a->out.objective), 1e-6);
    near(what, a->out.tau, b->out.tau, 1.0, 1e-7);
    const int32_t scalars = loss_scalars(a->loss, &x);
    assert_int_equal(loss_scalars(b->loss, &y), scalars);
    for (int32_t i = 0; i < scalars; i++) {
        (void)snprintf(what, sizeof what, "%s, step %d, %s", title, (int)f->steps, x[i].name);
        near(what, *x[i].value, *y[i].value, 1.0 + fabs(*x[i].value), 2e-6);
    }
    for (int32_t k = 0; k < sample_state_count(a->state); k++) {
        size_t size_bytes;
        const void *va = sample_state_values(a->state, k, &size_bytes);
        const void *vb = sample_state_values(b->state, k, &size_bytes);
        (void)snprintf(what, sizeof what, "%s, step %d, %s", title, (int)f->steps,
                       sample_state_name(a->state, k));
        if (size_bytes == ID_SPACE * sizeof(uint64_t)) { /* visits */
            assert_memory_equal(va, vb, size_bytes);
            continue;
        }
        for (uint64_t id = 0; id < ID_SPACE; id++) {
            const double v = (double)((const float *)va)[id];
            near(what, v, (double)((const float *)vb)[id], 1.0 + fabs(v), 3e-6);
        }
    }
}

static void run(const struct loss_row *row, double tau, int b, int64_t tile, bool weighted) {
    static struct fixture f;
    struct error err = {0};
    char title[100];
    (void)snprintf(title, sizeof title, "loss %s%s at tau %g, %d by tiles of %d", row->name,
                   row->views ? " of two views" : "", tau, b, (int)tile);
    fixture_open(&f, row, tau, b);
    copy_open(&f.whole, &f, 0);
    copy_open(&f.tiles, &f, tile);
    f.weighted = weighted && loss_takes_weights(f.whole.loss);
    for (; f.steps < STEPS; f.steps++) {
        draw(&f, f.steps == 2 && b > 3);
        struct loss_input in = input_of(&f);
        step_whole(&f, &in);
        assert_ok(step_tiles(&f, &f.tiles, &in, &err), err);
        compare(&f, title);
    }
    copy_close(&f.whole);
    copy_close(&f.tiles);
    device_close(f.dev);
}

static bool has_tiles(const struct loss_row *row) {
    static struct fixture f;
    struct error why = {0};
    fixture_open(&f, row, 0.2, 4);
    copy_open(&f.whole, &f, 0);
    const bool can = loss_has_tiles(f.whole.loss, &why);
    assert_true(can || strstr(why.text, row->name) != NULL);
    copy_close(&f.whole);
    device_close(f.dev);
    return can;
}

TEST(tiles_agree_with_the_whole_matrix) {
    static const char known[] = "clip dcl rince sogclr isogclr nuclr nuclr-frozen nuclr-noxi "
                                "fastclip-v0 fastclip-v1 fastclip-v2 fastclip-v3 scent ";
    char names[256] = "";
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        if (has_tiles(*row)) {
            const double tau = strcmp((*row)->name, "rince") == 0 ? 0.3 : 0.05;
            run(*row, tau, 40, 8, false);
            run(*row, tau, 41, 7, true);
            run(*row, tau, 9, 1, false);
            run(*row, tau, 33, 64, true);
            run(*row, 4.0 * tau, 2, 1, false);
            run(*row, tau, 3, 4, false);
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s ",
                           (*row)->name);
        }
    }
    assert_string_equal(names, known); /* no loss has tiles by accident */
}

/* ---- ranks ---- */

struct ranks {
    const struct loss_row *row;
    int64_t tile;
    double tau;
    int b;
};

/* One rank's fixture, by tiles alone: a rank of `c`, and the same without others. */
static enum status body_of_rank(struct comm *c, void *cookie, struct error *err) {
    const struct ranks *r = cookie;
    struct fixture *f = calloc(1, sizeof *f);
    TRY_MEMORY(f, err, "out of memory");
    fixture_open(f, r->row, r->tau, r->b);
    copy_open(&f->whole, f, r->tile);
    copy_open(&f->tiles, f, 0);
    TRY(loss_tiled_create(&f->tiles.tiled, f->tiles.loss, f->dev, f->b, r->tile, c, err));
    f->weighted = loss_takes_weights(f->tiles.loss);
    const size_t own = (size_t)(r->b / comm_world(c)) * E;
    const size_t first = (size_t)comm_rank(c) * own;
    for (; f->steps < STEPS; f->steps++) {
        draw(f, f->steps == 2);
        struct loss_input in = input_of(f);
        TRY(step_tiles(f, &f->tiles, &in, err));
        TRY(step_tiles(f, &f->whole, &in, err));
        for (int side = 0; side < 2; side++) {
            RANK_CHECK(memcmp(f->whole.dx[side] + first, f->tiles.dx[side] + first,
                              own * sizeof(float)) == 0);
        }
        RANK_CHECK(f->whole.out.value == f->tiles.out.value &&
                   f->whole.out.objective == f->tiles.out.objective &&
                   f->whole.out.tau == f->tiles.out.tau);
        for (int32_t k = 0; k < sample_state_count(f->whole.state); k++) {
            size_t size_bytes;
            const void *values = sample_state_values(f->whole.state, k, &size_bytes);
            RANK_CHECK(memcmp(values, sample_state_values(f->tiles.state, k, &size_bytes),
                              size_bytes) == 0);
        }
    }
    /* they sent sums: of these shapes each rank computes its own lines alone */
    RANK_CHECK(comm_counters(c).messages_count >= 8 * STEPS);
    copy_close(&f->whole);
    copy_close(&f->tiles);
    device_close(f->dev);
    free(f);
    return STATUS_OK;
}

TEST(ranks_divide_the_tiles_and_have_the_bits_of_one) {
    struct error err = {0};
    for (const struct loss_row *const *row = loss_rows(); *row != NULL; row++) {
        if (has_tiles(*row)) {
            struct ranks r = {*row, 4, strcmp((*row)->name, "rince") == 0 ? 0.3 : 0.05, 40};
            assert_ok(comm_threads_run(2, body_of_rank, &r, &err), err);
            assert_ok(comm_threads_run(4, body_of_rank, &r, &err), err);
            r.b = 39;
            r.tile = 5; /* ranks begin within a tile */
            assert_ok(comm_threads_run(3, body_of_rank, &r, &err), err);
        }
    }
}

/* ---- a large batch ---- */

enum { LARGE = 8192, CHECKED = 64 };

static const struct loss_row *row_of_clip(void) {
    const struct loss_row *const *row = loss_rows();
    while (strcmp((*row)->name, "clip") != 0) {
        row++;
    }
    return *row;
}

/* Similarities of these are multiples of 2^-12: exact in f32. */
static void draw_large(float *x[2]) {
    struct rng r;
    rng_init(&r, 5, RNG_INIT, 0, 0);
    for (int64_t i = 0; i < LARGE * E; i++) {
        x[0][i] = (float)rint(60.0 * (rng_uniform(&r) - 0.5)) / 64.0f;
        x[1][i] = x[0][i] + (float)rint(8.0 * (rng_uniform(&r) - 0.5)) / 64.0f;
    }
}

static double similarity(float *const x[2], int64_t i, int64_t j) {
    double sum = 0.0;
    for (int k = 0; k < E; k++) {
        sum += (double)x[0][i * E + k] * (double)x[1][j * E + k];
    }
    return sum;
}

/* clip's gradient of the checked rows, of every LARGE / CHECKED, from the whole matrix in double.
 */
static void clip_gradient(double *out[2], float *const x[2], double tau) {
    static double sums[2][LARGE];
    memset(sums, 0, sizeof sums);
    for (int64_t i = 0; i < LARGE; i++) {
        for (int64_t j = 0; j < LARGE; j++) {
            const double p = exp((similarity(x, i, j) - 2.0) / tau);
            sums[0][i] += p;
            sums[1][j] += p;
        }
    }
    for (int64_t n = 0; n < CHECKED; n++) {
        const int64_t a = n * (LARGE / CHECKED);
        for (int side = 0; side < 2; side++) {
            double *row = out[side] + n * E;
            memset(row, 0, E * sizeof *row);
            for (int64_t c = 0; c < LARGE; c++) {
                const int64_t i = side == 0 ? a : c;
                const int64_t j = side == 0 ? c : a;
                const double p = exp((similarity(x, i, j) - 2.0) / tau);
                const double g =
                    (p / sums[0][i] + p / sums[1][j] - (i == j ? 2.0 : 0.0)) / (2.0 * LARGE * tau);
                for (int k = 0; k < E; k++) {
                    row[k] += g * (double)x[1 - side][c * E + k];
                }
            }
        }
    }
}

TEST(a_batch_of_8192_has_the_gradients_of_the_whole_matrix_in_double) {
    static float room[4][LARGE * E];
    static double expected[2][CHECKED * E];
    static uint64_t ids[LARGE];
    float *x[2] = {room[0], room[1]};
    struct error err = {0};
    static struct fixture f;
    struct loss_tiled *tiled;
    struct loss *loss;
    struct sample_state *samples;
    const double tau = 0.05;
    fixture_open(&f, row_of_clip(), tau, 2);
    assert_ok(sample_state_create(&samples, LARGE, NULL, &err), err);
    assert_ok(loss_create(&loss, &f.options, samples, LARGE, LARGE, &err), err);
    assert_ok(loss_tiled_create(&tiled, loss, f.dev, LARGE, LOSS_TILE, NULL, &err), err);
    draw_large(x);
    for (int i = 0; i < LARGE; i++) {
        ids[i] = (uint64_t)i;
    }
    const struct tensor of[2] = {tensor_2d(x[0], DTYPE_F32, LARGE, E),
                                 tensor_2d(x[1], DTYPE_F32, LARGE, E)};
    const struct tensor dx[2] = {tensor_2d(room[2], DTYPE_F32, LARGE, E),
                                 tensor_2d(room[3], DTYPE_F32, LARGE, E)};
    const struct loss_input in = {.sample_ids = ids, .batch_count = LARGE, .lr = 1e-3};
    struct loss_output out = {0};
    assert_ok(loss_tiled_step(tiled, of, dx, &in, &out, &err), err);
    clip_gradient((double *[]){expected[0], expected[1]}, x, tau);
    for (int side = 0; side < 2; side++) {
        double largest = 0.0;
        for (int i = 0; i < CHECKED * E; i++) {
            largest = fmax(largest, fabs(expected[side][i]));
        }
        for (int i = 0; i < CHECKED * E; i++) {
            const float got = room[2 + side][(i / E * (LARGE / CHECKED)) * E + i % E];
            near("gradient", expected[side][i], (double)got, largest, 1e-6);
        }
    }
    loss_tiled_destroy(tiled);
    loss_destroy(loss);
    sample_state_destroy(samples);
    device_close(f.dev);
}
