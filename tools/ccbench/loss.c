/*
 * ccbench loss: a step of a contrastive loss on the CPU, from embeddings to their gradients, with
 * tiles of the similarities or the whole matrix, alternating with only its matrix products in the
 * same shapes: four with tiles (S twice, dX, dT), three with the whole matrix.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "formats/base/clock.h"
#include "formats/base/json_writer.h"
#include "formats/base/rng.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/inspect/samples.h"
#include "train/loss/loss_tiled.h"
#include "train/model/carve.h"

/* Products are timed over rows of tiles with at least this many of them, and counted for all. */
enum { PRODUCT_TILES = 64, MAX_STEPS = 1000 };

struct options {
    uint64_t batch, dim, tile, threads, steps;
    bool json;
};

static const struct cli_option rows[] = {
    {"batch-size", 'b', CLI_U64, CLI_FIELD(struct options, batch), .alias = "batch", .min = "2",
     .max = "1048576", .default_text = "8192", .metavar = "N", .help = "pairs per batch"},
    {"dim", 'd', CLI_U64, CLI_FIELD(struct options, dim), .min = "1", .max = "16384",
     .default_text = "512", .metavar = "D", .help = "embedding dimension"},
    {"loss-tile", 0, CLI_U64, CLI_FIELD(struct options, tile), .min = "0", .max = "32768",
     .default_text = "2048", .metavar = "N",
     .help = "rows and columns per tile; 0: use the whole matrix, for at most 32,768 pairs"},
    {"threads", 't', CLI_U64, CLI_FIELD(struct options, threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N", .help = "compute threads; 0: all CPUs"},
    {"steps", 's', CLI_U64, CLI_FIELD(struct options, steps), .min = "1", .max = "1000",
     .default_text = "3", .metavar = "N", .help = "number of steps to measure"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench loss",
    .purpose = "measures a step of a loss on the CPU against its matrix products alone",
    .usage = CLI_TEXTS("NAME [options]"),
    .examples = CLI_TEXTS("ccbench loss clip --batch-size 16384",
                          "ccbench loss nuclr --batch-size 4096 --loss-tile 0 --json"),
    .notes = CLI_TEXTS(
        "NAME is a loss of ccstream-train --help, which gets its default options and random pairs. "
        "All numbers are medians over the steps, CPU times those of all threads together. "
        "products is the CPU time of the step's matrix products alone: four with tiles, because "
        "the similarities are computed twice, three with the whole matrix. It is measured after "
        "each step; for large batches 64 tiles or more are measured and the result is scaled up. "
        "ratio is the CPU time of the step divided by products. peak_bytes is the peak memory "
        "without the embeddings and their gradients, but with the per-sample state."),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
};

struct bench {
    const struct options *o;
    struct device *dev;
    struct sample_state *state;
    struct loss *loss;
    struct loss_tiled *tiled;  /* NULL: the whole matrix */
    struct tensor x[2], dx[2]; /* (B, D) */
    struct tensor s, g;        /* a tile; or (B, B), and its gradient */
    uint64_t *ids;             /* (B) */
    int64_t peak_kb[2];        /* resident memory before there was a loss, and after a step */
    double value;
};

struct times {
    double step_s[MAX_STEPS], step_cpu_s[MAX_STEPS], products_cpu_s[MAX_STEPS], ratio[MAX_STEPS];
};

static int64_t peak_kb(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* --- memory --- */

static enum status
alloc(struct bench *b, struct tensor *out, int64_t count, int64_t width, struct error *err) {
    void *data;
    TRY(b->dev->ops->alloc(b->dev, (size_t)(count * width) * sizeof(float), &data, err));
    *out = tensor_2d(data, DTYPE_F32, count, width);
    return b->dev->ops->fill(b->dev, &(struct fill){.out = *out}, err);
}

static enum status open_loss(struct bench *b, const char *name, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    struct loss_options options;
    struct error why = {0};
    loss_options_default(&options);
    options.name = name;
    TRY(sample_state_create(&b->state, b->o->batch, NULL, err));
    TRY(loss_create(&b->loss, &options, b->state, b->o->batch, n, err));
    FAIL_IF(loss_uses_self(b->loss) || loss_carries(b->loss), err, STATUS_UNSUPPORTED,
            "loss %s reads more than similarities of images with texts; ccbench step has it", name);
    if (b->o->tile == 0) {
        FAIL_IF(n > LOSS_MAX_WHOLE, err, STATUS_USAGE, "--loss-tile 0 is for at most %d pairs",
                LOSS_MAX_WHOLE);
        TRY(alloc(b, &b->s, n, n, err));
        return alloc(b, &b->g, n, n, err);
    }
    FAIL_IF(!loss_has_tiles(b->loss, &why), err, STATUS_UNSUPPORTED, "%s; add --loss-tile 0",
            why.text);
    return loss_tiled_create(&b->tiled, b->loss, b->dev, n, (int64_t)b->o->tile, NULL, err);
}

/* Vectors of length close to 1; texts near their images. */
static enum status open_bench(struct bench *b, const char *name, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const int64_t dim = (int64_t)b->o->dim;
    const double largest = sqrt(3.0 / (double)dim);
    struct rng r;
    rng_init(&r, 1, RNG_INIT, 0, 0);
    TRY(device_open(&b->dev, "cpu", (int32_t)b->o->threads, err));
    b->ids = calloc(b->o->batch, sizeof *b->ids);
    TRY_MEMORY(b->ids, err, "out of memory for a batch of %lld", (long long)n);
    for (int side = 0; side < 2; side++) {
        TRY(alloc(b, &b->x[side], n, dim, err));
        TRY(alloc(b, &b->dx[side], n, dim, err));
        for (int64_t i = 0; i < n * dim; i++) {
            const double noise = largest * (2.0 * rng_uniform(&r) - 1.0);
            const double image = side == 1 ? (double)((const float *)b->x[0].data)[i] : 0.0;
            ((float *)b->x[side].data)[i] = (float)(side == 1 ? image + 0.05 * noise : noise);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        b->ids[i] = (uint64_t)i;
    }
    b->peak_kb[0] = peak_kb();
    return open_loss(b, name, err);
}

static void close_bench(struct bench *b) {
    const struct tensor all[] = {b->x[0], b->x[1], b->dx[0], b->dx[1], b->s, b->g};
    loss_tiled_destroy(b->tiled);
    loss_destroy(b->loss);
    sample_state_destroy(b->state);
    for (size_t i = 0; b->dev != NULL && i < CLI_COUNT(all); i++) {
        b->dev->ops->free(b->dev, all[i].data);
    }
    device_close(b->dev);
    free(b->ids);
}

/* --- a step and its products --- */

/* out = a c, in one of the shapes of a step. */
enum product { SIMILARITIES, BY_ROWS, BY_COLUMNS }; /* X T^T, G T, G^T X */

static enum status multiply(struct bench *b,
                            enum product kind,
                            struct tensor out,
                            struct tensor a,
                            struct tensor c,
                            struct error *err) {
    const struct matmul m = {.out = out,
                             .a = a,
                             .b = c,
                             .transpose_a = kind == BY_COLUMNS,
                             .transpose_b = kind == SIMILARITIES,
                             .mode = WRITE_SET,
                             .alpha = 1.0F};
    return b->dev->ops->matmul(b->dev, &m, err);
}

static enum status step(struct bench *b, uint64_t number, struct error *err) {
    struct loss_input in = {.sample_ids = b->ids,
                            .similarity = b->s.data,
                            .batch_count = (int64_t)b->o->batch,
                            .step = number,
                            .lr = 1e-3,
                            .zeta_lr_text = 1e-3,
                            .zeta_lr_image = 1e-3};
    struct loss_output out = {.gradient = b->g.data};
    if (b->tiled != NULL) {
        TRY(loss_tiled_step(b->tiled, b->x, b->dx, &in, &out, err));
    } else {
        TRY(multiply(b, SIMILARITIES, b->s, b->x[0], b->x[1], err));
        TRY(loss_step(b->loss, &in, &out, err));
        TRY(multiply(b, BY_ROWS, b->dx[0], b->g, b->x[1], err));
        TRY(multiply(b, BY_COLUMNS, b->dx[1], b->g, b->x[0], err));
    }
    b->value = out.value;
    return STATUS_OK;
}

/* The CPU time of all of a step's products. */
static enum status products(struct bench *b, double *out_s, struct error *err) {
    const int64_t n = (int64_t)b->o->batch;
    const int64_t tile = b->tiled != NULL && b->o->tile < b->o->batch ? (int64_t)b->o->tile : n;
    const int64_t begin_ns = clock_process_cpu_ns();
    int64_t i = 0; /* rows that are done */
    for (int64_t tiles = 0; i < n && tiles < PRODUCT_TILES;) {
        const int64_t r = n - i < tile ? n - i : tile;
        const struct tensor x = rows_from(b->x[0], i, r);
        for (int64_t j = 0; j < n; j += tile, tiles++) {
            const int64_t c = n - j < tile ? n - j : tile;
            const struct tensor s = tensor_2d(b->s.data, DTYPE_F32, r, c);
            const struct tensor t = rows_from(b->x[1], j, c);
            for (int k = 0; k < (b->tiled != NULL ? 2 : 1); k++) {
                TRY(multiply(b, SIMILARITIES, s, x, t, err));
            }
            TRY(multiply(b, BY_ROWS, rows_from(b->dx[0], i, r), s, t, err));
            TRY(multiply(b, BY_COLUMNS, rows_from(b->dx[1], j, c), s, x, err));
        }
        i += r;
    }
    *out_s = (double)(clock_process_cpu_ns() - begin_ns) * 1e-9 * (double)n / (double)i;
    return STATUS_OK;
}

static enum status measure(struct bench *b, struct times *t, struct error *err) {
    const int64_t side = (int64_t)(b->o->tile < b->o->batch ? b->o->tile : b->o->batch);
    for (uint64_t k = 0; k < b->o->steps; k++) {
        const int64_t begin_ns = clock_now_ns();
        const int64_t begin_cpu_ns = clock_process_cpu_ns();
        TRY(step(b, k, err));
        t->step_cpu_s[k] = (double)(clock_process_cpu_ns() - begin_cpu_ns) * 1e-9;
        t->step_s[k] = (double)(clock_now_ns() - begin_ns) * 1e-9;
        b->peak_kb[1] = k == 0 ? peak_kb() : b->peak_kb[1];
        TRY(b->s.data == NULL ? alloc(b, &b->s, side, side, err) : STATUS_OK);
        TRY(products(b, &t->products_cpu_s[k], err));
        t->ratio[k] = t->step_cpu_s[k] / t->products_cpu_s[k];
    }
    return STATUS_OK;
}

static enum status
print_result(const struct bench *b, const char *name, struct times *t, struct error *err) {
    struct json_writer w;
    const size_t steps = (size_t)b->o->steps;
    cli_begin_json(&w);
    json_string(&w, "loss", name);
    json_u64(&w, "batch", b->o->batch);
    json_u64(&w, "dim", b->o->dim);
    json_u64(&w, "tile", b->o->tile);
    json_double(&w, "step_s", bench_median(t->step_s, steps));
    json_double(&w, "step_cpu_s", bench_median(t->step_cpu_s, steps));
    json_double(&w, "products_cpu_s", bench_median(t->products_cpu_s, steps));
    json_double(&w, "ratio", bench_median(t->ratio, steps));
    json_u64(&w, "peak_bytes", (uint64_t)(b->peak_kb[1] - b->peak_kb[0]) * 1024);
    json_double(&w, "value", b->value);
    return end_result(&w, b->o->json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct bench b = {.o = options};
    struct times *t = malloc(sizeof *t);
    TRY_MEMORY(t, err, "out of memory");
    enum status s = open_bench(&b, a->items[0], err);
    THEN(s, measure(&b, t, err));
    THEN(s, print_result(&b, a->items[0], t, err));
    close_bench(&b);
    free(t);
    return s;
}

CLI_MAIN(ccbench_loss, program, struct options, run)
