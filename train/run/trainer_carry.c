/*
 * trainer_carry: further samples that a loss needs: emc2 those of earlier batches on which its
 * chains stand, negcache those that were drawn (trainer_cache.c). A step with them:
 *
 *   loss_carried -> ids -> loader_fetch -> forward -> C      before the batch's own forward
 *     or the draw                          S_c = X C^T       one number of each row is the loss's
 *                  loss -> G_c:            dX += G_c C, dC = G_c^T X
 *                                          backward(dC)      adds to the gradients of the batch
 *
 * Each of W ranks fetches and encodes N / W of them, and all have C; what is lost of them, S_c and
 * dC are the same on all. The gradients of parameters are summed over ranks apart from the batch's
 * own and then added to those, so that the order of additions is that of one rank.
 *
 * They are un-augmented, as evaluation makes them, and encoded as a batch of its own with today's
 * parameters (`beside`): batch norm takes its statistics over them, and running statistics stay.
 * That batch always has N rows: B pairs; two views: as many as the loss may need, an even number on
 * each rank, so that with two views of emc2 a micro-batch which divides half of a rank's part gives
 * the numbers of one rank.
 * It is filled up with samples of the step's own batch, which get no gradient, so that batch
 * statistics are never those of a few samples. Pairs have one list of texts and one of images in
 * it, which do not belong together.
 *
 * A sample that cannot be read any more (removed, damaged) is not replaced: a chain begins anew, an
 * anchor has no negative in this step.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "kernels/device_stream.h"
#include "loader/fetch.h"
#include "train/comm/comm_device.h"
#include "train/run/trainer_internal.h"

int trainer_carry_sides(const struct trainer_options *o) {
    return o->task == TRAINER_VIEWS ? 1 : 2;
}

/* Both views of a sample share its chain; each draws a negative of its own. */
static int64_t row_count(const struct trainer_options *o, const struct loss *l) {
    const int64_t b = o->batch_count;
    const int64_t pair = 2 * (b / trainer_local_count(o)); /* a row of each half on each rank */
    return o->task == TRAINER_PAIRS      ? b
           : loss_cache_refresh(l) > 0.0 ? 2 * b
                                         : (b + pair - 1) / pair * pair;
}

/* Row k of those that a rank encodes, of two views the first half of them in the first half. */
static int64_t row_of(const struct trainer *t, int32_t rank, int64_t k) {
    const int64_t count = t->carry.rows / comm_world(t->comm);
    if (t->options.task == TRAINER_PAIRS) {
        return rank * count + k;
    }
    const int64_t half = count / 2;
    return k < half ? rank * half + k : t->carry.rows / 2 + rank * half + k - half;
}

static int64_t anchor_count(const struct trainer_options *o) {
    return o->task == TRAINER_VIEWS ? 2 * (int64_t)o->batch_count : o->batch_count;
}

/* ---- memory ---- */

size_t trainer_carry_bytes(const struct trainer_options *o, const struct loss *l) {
    const int64_t rows = row_count(o, l);
    const int64_t own = o->task == TRAINER_VIEWS && trainer_local_count(o) < o->batch_count
                            ? rows * trainer_local_count(o) / o->batch_count
                            : 0;
    const int64_t embedded = 2 * trainer_carry_sides(o) * rows + own;
    return (size_t)(embedded * (int64_t)o->embed_dim + anchor_count(o) * rows) * sizeof(float);
}

/* Texts where images are the anchors, images in all other cases. */
static enum status open_side(struct trainer *t, int side, struct error *err) {
    struct carried_contrasts *c = &t->carry.sides[side];
    const bool views = t->options.task == TRAINER_VIEWS;
    const bool texts = !views && side == 0;
    const int64_t own = t->carry.rows / comm_world(t->comm);
    const bool divided = views && own < t->carry.rows;
    const int64_t rows[] = {t->carry.rows, t->carry.rows, divided ? own : 0};
    struct tensor *const tensors[] = {&c->x, &c->dx, &c->own_dx};
    const struct fetch_options how = {.max_count = (uint32_t)own,
                                      .augment = views ? AUGMENT_EVAL_CROP : AUGMENT_EVAL_SQUASH,
                                      .views = texts ? 0 : 1,
                                      .captions =
                                          texts ? LOADER_CAPTIONS_DRAWN : LOADER_CAPTIONS_NONE};
    TRY(fetcher_open(&c->fetcher, t->loader, &how, err));
    c->ids = calloc(2 * (size_t)t->options.batch_count, sizeof *c->ids);
    c->own_ids = calloc((size_t)own, sizeof *c->own_ids);
    if (c->ids == NULL || c->own_ids == NULL) {
        return error_set(err, STATUS_NOMEM, "trainer: out of memory");
    }
    for (int i = 0; i < 3; i++) {
        *tensors[i] = tensor_2d(NULL, DTYPE_F32, rows[i], t->options.embed_dim);
        if (rows[i] > 0) {
            TRY(t->dev->ops->alloc(t->dev, tensor_size_bytes(tensors[i]), &tensors[i]->data, err));
        }
    }
    return STATUS_OK;
}

enum status trainer_open_carry(struct trainer *t, struct error *err) {
    struct trainer_carry *c = &t->carry;
    const size_t b = t->options.batch_count;
    const int64_t anchors = anchor_count(&t->options);
    if (t->loss == NULL || !loss_carries(t->loss)) {
        return STATUS_OK;
    }
    if (t->dev->stream != NULL) {
        return error_set(err, STATUS_USAGE,
                         "--loss %s encodes further samples, which --device cuda cannot do yet: %s",
                         t->options.loss.name,
                         loss_cache_refresh(t->loss) > 0.0 ? "use --device cpu"
                                                           : "add --emc2-carry skip");
    }
    c->rows = row_count(&t->options, t->loss);
    c->ids = calloc(2 * b, sizeof *c->ids);
    c->columns = calloc(2 * b, sizeof *c->columns);
    c->similarity = calloc(2 * b, sizeof *c->similarity);
    c->gradient = calloc(2 * b, sizeof *c->gradient);
    c->statuses = calloc((size_t)c->rows, sizeof *c->statuses);
    c->matrix = calloc((size_t)(anchors * c->rows), sizeof *c->matrix);
    if (c->ids == NULL || c->columns == NULL || c->similarity == NULL || c->gradient == NULL ||
        c->statuses == NULL || c->matrix == NULL) {
        return error_set(err, STATUS_NOMEM, "trainer: out of memory");
    }
    c->s = tensor_2d(NULL, DTYPE_F32, anchors, c->rows);
    TRY(t->dev->ops->alloc(t->dev, tensor_size_bytes(&c->s), &c->s.data, err));
    c->batch_gradients = gradients_whole(trainer_params(t));
    c->batch_gradients.data = NULL;
    TRY(t->dev->ops->alloc(t->dev, tensor_size_bytes(&c->batch_gradients), &c->batch_gradients.data,
                           err));
    for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
        TRY(open_side(t, side, err));
    }
    return loss_cache_refresh(t->loss) > 0.0 ? trainer_open_cache(t, err) : STATUS_OK;
}

void trainer_close_carry(struct trainer *t) {
    struct trainer_carry *c = &t->carry;
    for (int side = 0; side < 2; side++) {
        fetcher_close(c->sides[side].fetcher);
        feature_cache_destroy(c->sides[side].cache);
        free(c->sides[side].ids);
        free(c->sides[side].own_ids);
        if (t->dev != NULL) {
            t->dev->ops->free(t->dev, c->sides[side].x.data);
            t->dev->ops->free(t->dev, c->sides[side].dx.data);
            t->dev->ops->free(t->dev, c->sides[side].own_dx.data);
        }
    }
    if (t->dev != NULL) {
        t->dev->ops->free(t->dev, c->s.data);
        t->dev->ops->free(t->dev, c->batch_gradients.data);
    }
    free(c->ids);
    free(c->columns);
    free(c->similarity);
    free(c->gradient);
    free(c->statuses);
    free(c->matrix);
    *c = (struct trainer_carry){0};
}

/* ---- which samples ---- */

static int by_id(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The distinct ids that a side needs, then some of the batch; and each anchor's row of them. */
static void list_ids(struct trainer *t, const struct step_flight *f, int side) {
    struct carried_contrasts *c = &t->carry.sides[side];
    const int64_t b = t->options.batch_count;
    const int64_t anchors = anchor_count(&t->options);
    const uint64_t *wanted = t->carry.ids + side * b;
    int64_t *columns = t->carry.columns + side * b;
    int64_t all = 0;
    c->count = 0;
    for (int64_t i = 0; i < anchors; i++) {
        if (wanted[i] != SAMPLE_STATE_NO_ID) {
            c->ids[all++] = wanted[i];
        }
    }
    sort_in_place(c->ids, (size_t)all, sizeof *c->ids, by_id);
    for (int64_t i = 0; i < all; i++) {
        if (i == 0 || c->ids[i] != c->ids[i - 1]) {
            c->ids[c->count++] = c->ids[i];
        }
    }
    for (int64_t i = 0; i < anchors; i++) {
        const uint64_t *at = bsearch(&wanted[i], c->ids, (size_t)c->count, sizeof *c->ids, by_id);
        columns[i] = at != NULL ? at - c->ids : -1;
    }
    for (int64_t i = c->count; i < t->carry.rows; i++) {
        c->ids[i] = f->ids[(i - c->count) % b];
    }
}

/* This rank's rows; and the statuses of all. */
static enum status
fetch_own(struct trainer *t, const struct step_flight *f, int side, struct error *err) {
    struct carried_contrasts *c = &t->carry.sides[side];
    const int32_t rank = comm_rank(t->comm);
    const int64_t count = t->carry.rows / comm_world(t->comm);
    enum status *own = t->carry.statuses + rank * count;
    for (int64_t k = 0; k < count; k++) {
        c->own_ids[k] = c->ids[row_of(t, rank, k)];
    }
    TRY(loader_fetch(c->fetcher, &c->batch, own, c->own_ids, (uint32_t)count, f->batch.epoch, err));
    return comm_gather(t->comm, t->carry.statuses, own, (size_t)count * sizeof *own, err);
}

enum status trainer_carry_fetch(struct trainer *t,
                                const struct step_flight *f,
                                int side,
                                carry_lost_function *lost,
                                struct error *err) {
    struct carried_contrasts *c = &t->carry.sides[side];
    const enum status *statuses = t->carry.statuses;
    const int64_t count = t->carry.rows / comm_world(t->comm);
    bool all = false;
    for (int pass = 0; !all; pass++) {
        TRY(fetch_own(t, f, side, err));
        all = true;
        for (int64_t i = 0; i < t->carry.rows; i++) {
            const int64_t row = row_of(t, (int32_t)(i / count), i % count);
            if (statuses[i] == STATUS_OK) {
                continue;
            }
            if (pass > 0 || row >= c->count) {
                t->failed_together = true;
                return error_set(err, statuses[i],
                                 "sample %" PRIu64 " of the batch cannot be read once more: %s",
                                 c->ids[row], status_text(statuses[i]));
            }
            lost(t, side, row, statuses[i]);
            c->ids[row] = f->ids[row % t->options.batch_count];
            all = false;
        }
    }
    return STATUS_OK;
}

/* Those that need a sample that cannot be read do without. */
static void forget(struct trainer *t, int side, int64_t row, enum status why) {
    const struct carried_contrasts *c = &t->carry.sides[side];
    const int64_t first = side * (int64_t)t->options.batch_count;
    log_write(trainer_is_first(t) ? t->options.log : NULL, LOG_LEVEL_WARN,
              "sample %" PRIu64 " cannot be read any more (%s): %s", c->ids[row], status_text(why),
              c->cache != NULL ? "no anchor has it as its negative"
                               : "chains that stand on it begin anew");
    for (int64_t i = first; i < first + anchor_count(&t->options); i++) {
        if (t->carry.columns[i] == row) {
            t->carry.ids[i] = SAMPLE_STATE_NO_ID;
            t->carry.columns[i] = -1;
        }
    }
    if (c->cache != NULL) {
        feature_cache_put(c->cache, c->ids[row], NULL);
    }
}

/* ---- forward ---- */

static struct dual_encoder_batch pairs_of(const struct trainer *t) {
    const struct carried_contrasts *texts = &t->carry.sides[0];
    const struct carried_contrasts *images = &t->carry.sides[1];
    return (struct dual_encoder_batch){.count = (int32_t)texts->batch.count,
                                       .images = images->batch.images,
                                       .tokens = texts->batch.tokens,
                                       .lengths = texts->batch.lengths,
                                       .sample_ids = texts->batch.sample_ids,
                                       .seed = t->options.seed,
                                       .values = t->values,
                                       .beside = true};
}

/* The first half as first views, the rest as second ones: to the tower they are all images. */
static struct view_encoder_batch views_of(const struct trainer *t) {
    const int64_t half = t->carry.sides[0].batch.count / 2;
    const size_t image_bytes = (size_t)t->options.image_size_px * t->options.image_size_px * 3;
    const uint8_t *images = t->carry.sides[0].batch.images;
    return (struct view_encoder_batch){.count = (int32_t)half,
                                       .first = images,
                                       .second = images + (size_t)half * image_bytes,
                                       .beside = true};
}

static enum status
copy(struct trainer *t, const struct tensor *to, const struct tensor *from, struct error *err) {
    const struct ops *ops = t->dev->ops;
    TRY(ops->fill(t->dev, &(struct fill){.out = *to}, err));
    return ops->add(t->dev, &(struct add){.out = *to, .in = *from, .alpha = 1.0f}, err);
}

enum status trainer_carry_encode(struct trainer *t, struct error *err) {
    struct carried_contrasts *sides = t->carry.sides;
    struct tensor x[2];
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t);
        TRY(view_encoder_forward(t->views, &x[0], &views, err));
        TRY(trainer_gather_views(t, &x[0], &sides[0].x, &x[0], err));
    } else {
        const struct dual_encoder_batch pairs = pairs_of(t);
        TRY(dual_encoder_forward(t->model, &x[1], &x[0], &pairs, true, err));
        TRY(trainer_gather_rows(t, &x[0], &sides[0].x, &x[0], err));
        TRY(trainer_gather_rows(t, &x[1], &sides[1].x, &x[1], err));
    }
    for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
        if (x[side].data != sides[side].x.data) { /* one rank: still the model's */
            TRY(copy(t, &sides[side].x, &x[side], err));
        }
    }
    return STATUS_OK;
}

enum status
trainer_carry_forward(struct trainer *t, const struct step_flight *f, struct error *err) {
    struct trainer_carry *c = &t->carry;
    if (c->ids == NULL) {
        return STATUS_OK;
    }
    c->any = false;
    if (c->sides[0].cache == NULL) {
        TRY(loss_carried(t->loss, c->ids, f->ids, t->options.batch_count, err));
    }
    for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
        list_ids(t, f, side);
        c->any = c->any || c->sides[side].count > 0;
    }
    if (!c->any) {
        return STATUS_OK;
    }
    for (int side = 0; side < trainer_carry_sides(&t->options); side++) {
        TRY(trainer_carry_fetch(t, f, side, forget, err));
    }
    return trainer_carry_encode(t, err);
}

/* ---- similarities and their gradients ---- */

/* The anchors of a side: images or views; texts. */
static const struct tensor *
anchors_of(int side, const struct tensor *x, const struct tensor *text) {
    return side == 0 ? x : text;
}

enum status trainer_carry_scores(struct trainer *t,
                                 const struct tensor *x,
                                 const struct tensor *text,
                                 struct error *err) {
    const struct ops *ops = t->dev->ops;
    struct trainer_carry *c = &t->carry;
    const int64_t b = t->options.batch_count;
    for (int side = 0; c->any && side < trainer_carry_sides(&t->options); side++) {
        const struct matmul s = {.out = c->s,
                                 .a = *anchors_of(side, x, text),
                                 .b = c->sides[side].x,
                                 .transpose_b = true,
                                 .alpha = 1.0f};
        TRY(ops->matmul(t->dev, &s, err));
        TRY(ops->download(t->dev, c->matrix, c->s.data, tensor_size_bytes(&c->s), err));
        for (int64_t i = 0; i < c->s.shape[0]; i++) {
            const int64_t column = c->columns[side * b + i];
            c->similarity[side * b + i] = column >= 0 ? c->matrix[i * c->rows + column] : 0.0f;
        }
    }
    return STATUS_OK;
}

enum status trainer_carry_gradients(struct trainer *t,
                                    const struct tensor *x,
                                    const struct tensor *text,
                                    struct error *err) {
    const struct ops *ops = t->dev->ops;
    struct trainer_carry *c = &t->carry;
    const int64_t b = t->options.batch_count;
    for (int side = 0; c->any && side < trainer_carry_sides(&t->options); side++) {
        const struct carried_contrasts *k = &c->sides[side];
        memset(c->matrix, 0, tensor_size_bytes(&c->s));
        for (int64_t i = 0; i < c->s.shape[0]; i++) {
            const int64_t column = c->columns[side * b + i];
            if (column >= 0) {
                c->matrix[i * c->rows + column] = c->gradient[side * b + i];
            }
        }
        TRY(ops->upload(t->dev, c->s.data, c->matrix, tensor_size_bytes(&c->s), err));
        const struct matmul anchors = {.out = side == 0 ? t->dx : t->dt,
                                       .a = c->s,
                                       .b = k->x,
                                       .mode = WRITE_ADD,
                                       .alpha = 1.0f};
        const struct matmul contrasts = {.out = k->dx,
                                         .a = c->s,
                                         .b = *anchors_of(side, x, text),
                                         .transpose_a = true,
                                         .alpha = 1.0f};
        TRY(ops->matmul(t->dev, &anchors, err));
        TRY(ops->matmul(t->dev, &contrasts, err));
    }
    return STATUS_OK;
}

/* ---- backward ---- */

static enum status
backward(struct trainer *t, const struct gradient_ready *ready, struct error *err) {
    const struct carried_contrasts *sides = t->carry.sides;
    if (t->views != NULL) {
        const struct view_encoder_batch views = views_of(t);
        struct tensor dx;
        TRY(trainer_own_views(t, &dx, &sides[0].own_dx, &sides[0].dx, err));
        return view_encoder_backward(t->views, &dx, &views, WRITE_SET, ready, err);
    }
    const struct dual_encoder_batch pairs = pairs_of(t);
    const struct tensor dx = trainer_own_rows(t, &sides[1].dx);
    const struct tensor dt = trainer_own_rows(t, &sides[0].dx);
    return dual_encoder_backward(t->model, &dx, &dt, &pairs, WRITE_SET, ready, err);
}

enum status
trainer_carry_backward(struct trainer *t, const struct gradient_ready *ready, struct error *err) {
    const struct tensor sum = gradients_whole(trainer_params(t));
    const struct tensor *batch = &t->carry.batch_gradients;
    if (!t->carry.any) {
        return STATUS_OK;
    }
    TRY(comm_device_finish(t->comm, t->dev, err));
    TRY(copy(t, batch, &sum, err));
    TRY(backward(t, ready, err));
    TRY(comm_device_finish(t->comm, t->dev, err));
    return t->dev->ops->add(t->dev, &(struct add){.out = sum, .in = *batch, .alpha = 1.0f}, err);
}
