/*
 * loss_tiled: two passes over tiles of S = X T^T (kernels/contrast.h). Between them the loss's own
 * step runs on the anchors' sums: with `lines` set, the functions of one anchor (loss_internal.h)
 * read sums and write weights instead of elements of the whole matrix. So each loss is written
 * once.
 *
 *   lines       rate and shift: temperature and zeta of every row
 *   pass 1      largest, sum, weighted, positive
 *   row->step   value, state; weight, positive_gradient, popularity
 *   pass 2      dX, dT, taken
 *   row->finish zeta, from `taken`
 *
 * Only the first row of a repeated id counts: the others are hidden as candidates, have weight 0,
 * and are not among the lines while the loss's step runs.
 *
 * With several ranks each computes the lines of its own samples (their rows and columns of S) and
 * their gradients; sums are gathered:
 *
 *        columns of rank 1
 *        . . # # . .            tiles of both passes, in the order of a single rank for each line:
 *        . . # # . .            bit-identical. The products are 6 / W instead of 4, so ranks
 *        # # # # # #  rows      whose tiles are more than 2/3 of the rows compute everything
 *        # # # # # #  of rank 1
 *        . . # # . .
 *        . . # # . .
 */
#include "train/loss/loss_tiled.h"

#include <stdlib.h>
#include <string.h>

#include "train/loss/loss_internal.h"
#include "train/model/carve.h"

enum { PLANES = sizeof(struct contrast_lines) / sizeof(double *) };

struct loss_tiled {
    struct loss *loss;
    struct device *dev;
    int64_t tile, rows;
    double *planes; /* (2, PLANES, rows), which `lines` divides */
    struct contrast_lines lines[SIDE_COUNT];
    void *copies; /* of the planes in device memory; NULL: it is the host's */
    struct contrast_lines on_device[SIDE_COUNT];
    void *s;            /* (tile, tile) F32, in the device's memory */
    struct comm *comm;  /* NULL: this rank computes all lines */
    int64_t first, own; /* it computes the lines of these samples; all if comm is NULL */
};

/* ---- memory ---- */

bool loss_has_tiles(const struct loss *l, struct error *why) {
    const char *reason = !l->row->tiles          ? "its step"
                         : l->options.beta > 0.0 ? "its second sum of exponentials"
                         : loss_rows_each(l) > 1 ? "--positives above 1"
                                                 : NULL;
    if (reason != NULL) {
        (void)error_set(
            why, STATUS_UNSUPPORTED,
            "loss %s needs the whole matrix of similarities, of at most %d samples, for "
            "%s",
            l->options.name, LOSS_MAX_WHOLE, reason);
    }
    return reason == NULL;
}

size_t loss_tiled_bytes(int64_t batch_count, int64_t tile) {
    return (size_t)(SIDE_COUNT * batch_count) * PLANES * sizeof(double) +
           (size_t)(tile * tile) * sizeof(float);
}

static size_t planes_bytes(const struct loss_tiled *t) {
    return (size_t)(SIDE_COUNT * t->rows) * PLANES * sizeof(double);
}

static void divide_planes(struct contrast_lines lines[2], double *planes, int64_t rows) {
    for (int side = 0; side < SIDE_COUNT; side++) {
        double *own[PLANES];
        for (int k = 0; k < PLANES; k++) {
            own[k] = planes + (side * PLANES + k) * rows;
        }
        memcpy(&lines[side], own, sizeof own);
    }
}

static enum status open_memory(struct loss_tiled *t, struct error *err) {
    const struct ops *ops = t->dev->ops;
    t->planes = malloc(planes_bytes(t));
    TRY_MEMORY(t->planes, err, "loss %s: out of memory", t->loss->options.name);
    TRY(ops->alloc(t->dev, (size_t)(t->tile * t->tile) * sizeof(float), &t->s, err));
    if (t->dev->stream != NULL) {
        TRY(ops->alloc(t->dev, planes_bytes(t), &t->copies, err));
    }
    divide_planes(t->lines, t->planes, t->rows);
    divide_planes(t->on_device, t->copies != NULL ? t->copies : t->planes, t->rows);
    return STATUS_OK;
}

/* Rows of the tiles that contain samples [first, first + count). */
static int64_t rows_of_tiles(const struct loss_tiled *t, int64_t first, int64_t count) {
    const int64_t end = (first + count + t->tile - 1) / t->tile * t->tile;
    return (end < t->rows ? end : t->rows) - first / t->tile * t->tile;
}

/* Divides lines among ranks if that is less work for each of them. */
static void divide(struct loss_tiled *t, struct comm *comm) {
    const int32_t world = comm != NULL ? comm_world(comm) : 1;
    const int64_t each = t->rows / world;
    int64_t most = 0;
    for (int32_t rank = 0; rank < world; rank++) {
        const int64_t rows = rows_of_tiles(t, rank * each, each);
        most = rows > most ? rows : most;
    }
    t->own = t->rows;
    if (world > 1 && 6 * most < 4 * t->rows) {
        t->comm = comm;
        t->first = comm_rank(comm) * each;
        t->own = each;
    }
}

enum status loss_tiled_create(struct loss_tiled **out,
                              struct loss *l,
                              struct device *dev,
                              int64_t batch_count,
                              int64_t tile,
                              struct comm *comm,
                              struct error *err) {
    REQUIRE(out != NULL && l != NULL && dev != NULL && dev->contrasts != NULL);
    REQUIRE(loss_has_tiles(l, NULL) && tile >= 1 && tile <= LOSS_MAX_TILE);
    REQUIRE(comm == NULL || batch_count % comm_world(comm) == 0);
    *out = NULL;
    struct loss_tiled *t = calloc(1, sizeof *t);
    TRY_MEMORY(t, err, "loss %s: out of memory", l->options.name);
    *t = (struct loss_tiled){.loss = l, .dev = dev, .tile = tile, .rows = batch_count};
    divide(t, comm);
    const enum status s = open_memory(t, err);
    RETURN_CREATED(s, out, t, loss_tiled_destroy);
}

void loss_tiled_destroy(struct loss_tiled *t) {
    if (t != NULL) {
        t->dev->ops->free(t->dev, t->s);
        t->dev->ops->free(t->dev, t->copies);
        free(t->planes);
        free(t);
    }
}

/* ---- lines ---- */

/* The batch's entries of the column with this name; NULL: the loss has none. */
static const float *window_of(const struct loss *l, const char *name, int side) {
    for (int k = 0; l->row->columns != NULL && l->row->columns[k].name != NULL; k++) {
        if (strcmp(l->row->columns[k].name, name) == 0) {
            return loss_window(l, k, side);
        }
    }
    return NULL;
}

/* Before the first pass: of `count` distinct samples. */
static void fill_lines(struct loss_tiled *t, int64_t count) {
    const struct loss *l = t->loss;
    const bool own_tau = l->options.temperature == LOSS_TEMPERATURE_INDIVIDUAL;
    memset(t->planes, 0, planes_bytes(t));
    for (int side = 0; side < SIDE_COUNT; side++) {
        const struct contrast_lines *x = &t->lines[side];
        const float *zeta = window_of(l, "zeta", side);
        for (int64_t i = 0; i < t->rows; i++) {
            x->rate[i] = 1.0 / loss_tau(l);
            x->largest[i] = -HUGE_VAL;
            x->shift[i] = -(double)CONTRAST_HIDDEN;
        }
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = l->places[i];
            x->shift[row] = zeta != NULL ? (double)zeta[i] : 0.0;
            x->rate[row] = own_tau ? 1.0 / (double)window_of(l, "tau", side)[i] : x->rate[row];
        }
    }
}

/* Moves the lines of distinct samples to the front of all planes, or back to their rows. */
static void pack_lines(struct loss_tiled *t, int64_t count, bool back) {
    for (int64_t k = 0; count < t->rows && k < SIDE_COUNT * PLANES; k++) {
        double *plane = t->planes + k * t->rows;
        const double hidden = plane == t->lines[k / PLANES].shift ? -(double)CONTRAST_HIDDEN : 0.0;
        for (int64_t i = 0; i < count && !back; i++) {
            plane[i] = plane[t->loss->places[i]];
        }
        int64_t i = count;
        for (int64_t row = t->rows - 1; row >= 0 && back; row--) {
            const bool counts = i > 0 && t->loss->places[i - 1] == row;
            plane[row] = counts ? plane[--i] : hidden;
        }
    }
}

static enum status check_sums(const struct loss_tiled *t, int64_t count, struct error *err) {
    const struct contrast_lines *x = t->lines;
    for (int64_t i = 0; i < count; i++) {
        FAIL_IF(
            !isfinite(x[0].weighted[i] + x[1].weighted[i] + x[0].positive[i]), err, STATUS_CORRUPT,
            "loss %s: a similarity of image or text %lld is not finite; lower the learning rate",
            t->loss->options.name, (long long)t->loss->places[i]);
    }
    return STATUS_OK;
}

/* ---- passes ---- */

/* Whether this rank computes lines among these. */
static bool has_own(const struct loss_tiled *t, int64_t first, int64_t count) {
    return first < t->first + t->own && first + count > t->first;
}

/* dX_r += G T_c, dT_c += G^T X_r, each if this rank has lines in it. */
static enum status add_gradients(struct loss_tiled *t,
                                 const struct contrast_tile *tile,
                                 const struct tensor x[2],
                                 const struct tensor dx[2],
                                 struct error *err) {
    const int64_t *count = tile->s.shape;
    struct matmul m = {.out = rows_from(dx[0], tile->row, count[0]),
                       .a = tile->s,
                       .b = rows_from(x[1], tile->column, count[1]),
                       .mode = WRITE_ADD,
                       .alpha = 1.0f};
    TRY(has_own(t, tile->row, count[0]) ? t->dev->ops->matmul(t->dev, &m, err) : STATUS_OK);
    m.out = rows_from(dx[1], tile->column, count[1]);
    m.b = rows_from(x[0], tile->row, count[0]);
    m.transpose_a = true;
    return has_own(t, tile->column, count[1]) ? t->dev->ops->matmul(t->dev, &m, err) : STATUS_OK;
}

/* All tiles with lines of this rank; dx NULL: computes their sums. */
static enum status each_tile(struct loss_tiled *t,
                             const struct tensor x[2],
                             const struct tensor *dx,
                             struct error *err) {
    const struct device_contrasts *contrasts = t->dev->contrasts;
    struct contrast_tile tile = {.rows = &t->on_device[0], .columns = &t->on_device[1]};
    for (; tile.row < t->rows; tile.row += t->tile) {
        for (tile.column = 0; tile.column < t->rows; tile.column += t->tile) {
            const int64_t r = t->rows - tile.row < t->tile ? t->rows - tile.row : t->tile;
            const int64_t c = t->rows - tile.column < t->tile ? t->rows - tile.column : t->tile;
            tile.s = tensor_2d(t->s, DTYPE_F32, r, c);
            if (!has_own(t, tile.row, r) && !has_own(t, tile.column, c)) {
                continue;
            }
            const struct matmul s = {.out = tile.s,
                                     .a = rows_from(x[0], tile.row, r),
                                     .b = rows_from(x[1], tile.column, c),
                                     .transpose_b = true,
                                     .alpha = 1.0f};
            TRY(t->dev->ops->matmul(t->dev, &s, err));
            TRY((dx == NULL ? contrasts->sums : contrasts->gradient)(t->dev, &tile, err));
            TRY(dx == NULL ? STATUS_OK : add_gradients(t, &tile, x, dx, err));
        }
    }
    return STATUS_OK;
}

/* The same with the host's lines. */
static enum status
pass(struct loss_tiled *t, const struct tensor x[2], const struct tensor *dx, struct error *err) {
    const struct ops *ops = t->dev->ops;
    if (t->copies == NULL) {
        return each_tile(t, x, dx, err);
    }
    TRY(ops->upload(t->dev, t->copies, t->planes, planes_bytes(t), err));
    TRY(each_tile(t, x, dx, err));
    return ops->download(t->dev, t->planes, t->copies, planes_bytes(t), err);
}

/* Gathers each rank's samples in a plane of both sides. */
static enum status gather(struct loss_tiled *t, double *images, double *texts, struct error *err) {
    double *const planes[] = {images, texts};
    for (int side = 0; side < SIDE_COUNT && t->comm != NULL; side++) {
        TRY(comm_gather(t->comm, planes[side], planes[side] + t->first,
                        (size_t)t->own * sizeof(double), err));
    }
    return STATUS_OK;
}

/* ---- a step ---- */

/* Runs the loss's own step on its anchors' sums, from and to the lines. */
static enum status close_sums(struct loss_tiled *t,
                              struct loss_input *in,
                              struct loss_output *out,
                              int64_t count,
                              struct error *err) {
    struct loss *l = t->loss;
    memcpy(t->lines[1].positive, t->lines[0].positive, (size_t)t->rows * sizeof(double));
    TRY(gather(t, t->lines[0].largest, t->lines[1].largest, err));
    TRY(gather(t, t->lines[0].sum, t->lines[1].sum, err));
    TRY(gather(t, t->lines[0].weighted, t->lines[1].weighted, err));
    TRY(gather(t, t->lines[0].positive, t->lines[1].positive, err));
    pack_lines(t, count, false);
    TRY(check_sums(t, count, err));
    loss_count_visits(l, count);
    for (int64_t i = 0; i < count && in->weights != NULL; i++) {
        l->weights[i] = in->weights[l->places[i]];
    }
    in->weights = in->weights != NULL ? l->weights : NULL;
    in->batch_count = count;
    l->lines = t->lines;
    if (count >= 2) {
        loss_run_row(l, in, out);
    }
    l->lines = NULL;
    loss_put_row_values(l, out->row_values, t->rows, count >= 2 ? count : 0);
    for (int64_t i = 0; i < count; i++) { /* one element has both sides' */
        t->lines[0].positive_gradient[i] += t->lines[1].positive_gradient[i];
    }
    pack_lines(t, count, true);
    return STATUS_OK;
}

enum status loss_tiled_step(struct loss_tiled *t,
                            const struct tensor x[2],
                            const struct tensor dx[2],
                            const struct loss_input *in,
                            struct loss_output *out,
                            struct error *err) {
    REQUIRE(t != NULL && x != NULL && dx != NULL && in != NULL && out != NULL);
    REQUIRE(in->batch_count == t->rows && x[0].shape[0] == t->rows && x[1].shape[0] == t->rows);
    struct loss *l = t->loss;
    struct loss_input part = *in; /* of the distinct ids */
    int64_t count;
    for (int side = 0; side < SIDE_COUNT; side++) {
        TRY(t->dev->ops->fill(t->dev, &(struct fill){.out = dx[side]}, err));
    }
    TRY(loss_begin_step(l, in, out, &count, err));
    part.sample_ids = l->ids;
    part.caption_ids = l->caption_ids;
    fill_lines(t, count);
    TRY(pass(t, x, NULL, err));
    TRY(close_sums(t, &part, out, count, err));
    if (count >= 2) {
        TRY(pass(t, x, dx, err));
    }
    if (count >= 2 && l->row->finish != NULL) {
        TRY(gather(t, t->lines[0].taken, t->lines[1].taken, err));
        for (int64_t k = 0; k < SIDE_COUNT * count; k++) {
            l->sums[k / count][k % count] += t->lines[k / count].taken[l->places[k % count]];
        }
        l->row->finish(l, &part);
    }
    return loss_end_step(l, out, count, err);
}
