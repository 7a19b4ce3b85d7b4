/*
 * bench_loss NAME BATCH DIM [TILE] [REPEATS]: a step of a loss from embeddings to their gradients,
 * by tiles (TILE, default 2048) or, with TILE 0, from the whole matrix, in turn with its matrix
 * products alone of the same shapes: one line of JSON with the fastest of both (default 3 times
 * each), their ratio, and the most memory beyond embeddings and gradients. Times are of the
 * processor, all threads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "formats/base/rng.h"
#include "kernels/ops.h"
#include "train/loss/loss_tiled.h"

static struct error err;
static struct device *dev;

static void must(enum status s) {
    if (s < STATUS_OK) {
        fprintf(stderr, "bench_loss: %s\n", err.text);
        exit(1);
    }
}

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double peak_mib(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024.0;
}

static struct tensor alloc(int64_t rows, int64_t columns) {
    void *data;
    must(dev->ops->alloc(dev, (size_t)(rows * columns) * sizeof(float), &data, &err));
    memset(data, 0, (size_t)(rows * columns) * sizeof(float));
    return tensor_2d(data, DTYPE_F32, rows, columns);
}

static struct tensor rows_of(struct tensor x, int64_t first, int64_t count) {
    return tensor_2d((float *)x.data + first * x.shape[1], DTYPE_F32, count, x.shape[1]);
}

static void multiply(struct tensor out, struct tensor a, struct tensor b, bool ta, bool tb) {
    const struct matmul m = {.out = out,
                             .a = a,
                             .b = b,
                             .transpose_a = ta,
                             .transpose_b = tb,
                             .mode = WRITE_SET,
                             .alpha = 1.0f};
    must(dev->ops->matmul(dev, &m, &err));
}

/* The products of a step alone: S (by tiles twice), dX and dT. */
static void
products(struct tensor x[2], struct tensor dx[2], struct tensor s, int64_t tile, bool twice) {
    const int64_t n = x[0].shape[0];
    for (int64_t i = 0; i < n; i += tile) {
        for (int64_t j = 0; j < n; j += tile) {
            const int64_t r = n - i < tile ? n - i : tile;
            const int64_t c = n - j < tile ? n - j : tile;
            const struct tensor t = tensor_2d(s.data, DTYPE_F32, r, c);
            for (int k = 0; k < (twice ? 2 : 1); k++) {
                multiply(t, rows_of(x[0], i, r), rows_of(x[1], j, c), false, true);
            }
            multiply(rows_of(dx[0], i, r), t, rows_of(x[1], j, c), false, false);
            multiply(rows_of(dx[1], j, c), t, rows_of(x[0], i, r), true, false);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_loss NAME BATCH DIM [TILE] [REPEATS]\n");
        return 64;
    }
    const int64_t n = strtoll(argv[2], NULL, 10);
    const int64_t dim = strtoll(argv[3], NULL, 10);
    const int64_t tile = argc > 4 ? strtoll(argv[4], NULL, 10) : LOSS_TILE;
    const int repeats = argc > 5 ? atoi(argv[5]) : 3;
    struct loss_options o;
    struct sample_state *state;
    struct loss *loss;
    struct loss_tiled *tiled = NULL;
    struct loss_output out = {0};
    struct rng rng;
    loss_options_default(&o);
    o.name = argv[1];
    must(device_open(&dev, "cpu", 0, &err));
    must(sample_state_create(&state, (uint64_t)n, NULL, &err));
    must(loss_create(&loss, &o, state, (uint64_t)n, n, &err));
    struct tensor x[2] = {alloc(n, dim), alloc(n, dim)};
    struct tensor dx[2] = {alloc(n, dim), alloc(n, dim)};
    uint64_t *ids = calloc((size_t)n, sizeof *ids);
    rng_init(&rng, 1, RNG_INIT, 0, 0);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (uint64_t)i;
        for (int side = 0; side < 2; side++) {
            float *row = (float *)x[side].data + i * dim;
            const float *other = (const float *)x[0].data + i * dim;
            double square = 0.0;
            for (int64_t k = 0; k < dim; k++) {
                row[k] =
                    (float)(2.0 * rng_uniform(&rng) - 1.0) + (side == 1 ? 20.0f * other[k] : 0.0f);
                square += (double)row[k] * (double)row[k];
            }
            for (int64_t k = 0; k < dim; k++) {
                row[k] = (float)((double)row[k] / sqrt(square));
            }
        }
    }
    const double before = peak_mib();
    const int64_t side = tile > 0 ? tile : n;
    struct tensor s = alloc(side, side);
    struct tensor g = tile > 0 ? s : alloc(n, n);
    if (tile > 0) {
        must(loss_tiled_create(&tiled, loss, dev, n, tile, &err));
    }
    double best = 1e18;
    double plain = 1e18;
    for (int k = 0; k < repeats; k++) {
        struct loss_input in = {.sample_ids = ids,
                                .batch_count = n,
                                .step = (uint64_t)k,
                                .lr = 1e-3,
                                .zeta_lr_text = 1e-3,
                                .zeta_lr_image = 1e-3};
        double start = now_s();
        if (tile > 0) {
            must(loss_tiled_step(tiled, x, dx, &in, &out, &err));
        } else {
            multiply(s, x[0], x[1], false, true);
            in.similarity = s.data;
            out.gradient = g.data;
            must(loss_step(loss, &in, &out, &err));
            multiply(dx[0], g, x[1], false, false);
            multiply(dx[1], g, x[0], true, false);
        }
        best = fmin(best, now_s() - start);
        start = now_s();
        products(x, dx, s, side, tile > 0);
        plain = fmin(plain, now_s() - start);
    }
    printf("{\"loss\": \"%s\", \"batch\": %lld, \"dim\": %lld, \"tile\": %lld, \"cpu_s\": %.3f, "
           "\"products_cpu_s\": %.3f, "
           "\"ratio\": %.3f, \"peak_mib\": %.0f, \"value\": %.9g}\n",
           argv[1], (long long)n, (long long)dim, (long long)tile, best, plain, best / plain,
           peak_mib() - before, out.value);
    return 0;
}
