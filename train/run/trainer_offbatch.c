/*
 * trainer_offbatch: off-batch samples, for losses that need them: emc2 the states of its chains,
 * from earlier batches; negcache samples chosen by features of all samples. A step with them:
 *
 *   loss_carried -> ids -> loader_fetch -> forward -> C      before the batch's own forward
 *     or the draw                          S_c = X C^T       one number of each row is the loss's
 *                  loss -> G_c:            dX += G_c C, dC = G_c^T X
 *                                          backward(dC)      adds to the gradients of the batch
 *
 * Each of W ranks loads and encodes N / W of them, and all have C; unreadable samples, S_c and dC
 * are equal on all. The gradients of parameters are summed over ranks separately from the batch's
 * own and then added, so that the order of additions is the same as with one rank.
 *
 * They are the views of emc2's chain states, or, as in evaluation, without augmentation, and are
 * encoded as a separate batch with the current parameters (`beside`): batch norm uses their
 * statistics, and running statistics stay. That batch always has N rows: B pairs; two views: as
 * many as the loss may need, an even number on each rank, so that with two views of emc2 a
 * micro-batch that divides half of a rank's part gives the same numbers as one rank. It is filled
 * up with samples of the step's own batch, without gradient, so that batch statistics never cover
 * only a few samples. For pairs it has a list of texts and a list of images, which do not match.
 *
 * A sample that cannot be read (removed, damaged) is not replaced: a chain restarts, an anchor has
 * no negative in this step.
 *
 * negcache chooses samples by a feature_cache, of texts for image anchors and of images for text
 * anchors, or of images for two views. At the beginning of a step:
 *
 *   ids that are due -> loader_fetch -> forward -> rows of the cache     N samples at a time
 *   batch            -> forward      -> draw    -> ids
 *
 * Every rank has the whole cache, and draws for all anchors. In a new run, or with other data than
 * the checkpoint's, all samples are due at once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "kernels/device_stream.h"
#include "loader/fetch.h"
#include "train/run/trainer_internal.h"

static int side_count(const struct trainer *t) {
    return trainer_task(&t->options)->sides;
}

/* emc2: both views of a sample share its chain; negcache: each has its own negative. */
static int64_t row_count(const struct trainer_options *o, const struct loss *l) {
    const int64_t b = o->batch_count;
    const int64_t pair = 2 * (b / trainer_local_count(o)); /* one row per half and rank */
    return o->task == TRAINER_PAIRS      ? b
           : loss_cache_refresh(l) > 0.0 ? 2 * b
                                         : (b + pair - 1) / pair * pair;
}

/* Row k of those that a rank encodes; with two views a rank's first half is in the first half. */
static int64_t row_of(const struct trainer *t, int32_t rank, int64_t k) {
    const int64_t count = t->offbatch.rows / comm_world(t->comm);
    if (t->options.task == TRAINER_PAIRS) {
        return rank * count + k;
    }
    const int64_t half = count / 2;
    return k < half ? rank * half + k : t->offbatch.rows / 2 + rank * half + k - half;
}

/* Whether they are views from earlier batches. */
static bool as_seen(const struct trainer *t) {
    return loss_cache_refresh(t->loss) == 0.0 && t->options.loss.emc2_carry == LOSS_EMC2_VIEW;
}

/* ---- memory ---- */

size_t trainer_offbatch_bytes(const struct trainer_options *o, const struct loss *l) {
    const int64_t rows = row_count(o, l);
    const int64_t own = o->task == TRAINER_VIEWS && trainer_local_count(o) < o->batch_count
                            ? rows * trainer_local_count(o) / o->batch_count
                            : 0;
    const int64_t embedded = 2 * trainer_task(o)->sides * rows + own;
    return (size_t)(embedded * (int64_t)o->embed_dim + trainer_rows(o) * rows) * sizeof(float);
}

static enum status open_cache(struct trainer *t, struct offbatch_side *s, struct error *err) {
    const struct feature_cache_options how = {.id_count = t->data.id_space,
                                              .dim = t->options.embed_dim,
                                              .share = loss_cache_refresh(t->loss),
                                              .max_anchors = t->options.batch_count};
    return how.share > 0.0 ? feature_cache_create(&s->cache, t->dev, &how, err) : STATUS_OK;
}

/* Texts if images are the anchors, else images. */
static enum status open_side(struct trainer *t, int side, struct error *err) {
    struct offbatch_side *s = &t->offbatch.sides[side];
    const bool views = t->options.task == TRAINER_VIEWS;
    const bool texts = !views && side == 0;
    const int64_t own = t->offbatch.rows / comm_world(t->comm);
    const int64_t dim = t->options.embed_dim;
    const bool seen = as_seen(t);
    const struct fetch_options how = {.max_count = (uint32_t)own,
                                      .augment = seen    ? t->options.augment
                                                 : views ? AUGMENT_EVAL_CROP
                                                         : AUGMENT_EVAL_SQUASH,
                                      .views = texts  ? 0
                                               : seen ? trainer_task(&t->options)->views
                                                      : 1,
                                      .captions =
                                          texts ? LOADER_CAPTIONS_DRAWN : LOADER_CAPTIONS_NONE};
    TRY(fetcher_open(&s->fetcher, t->loader, &how, err));
    s->samples = calloc(2 * (size_t)t->options.batch_count, sizeof *s->samples);
    s->own_ids = calloc((size_t)own, sizeof *s->own_ids);
    s->own_views = calloc((size_t)own, sizeof *s->own_views);
    FAIL_IF(s->samples == NULL || s->own_ids == NULL || s->own_views == NULL, err, STATUS_NOMEM,
            "trainer: out of memory");
    TRY(trainer_alloc_matrix(t, &s->x, t->offbatch.rows, dim, err));
    TRY(trainer_alloc_matrix(t, &s->dx, t->offbatch.rows, dim, err));
    if (views && own < t->offbatch.rows) {
        TRY(trainer_alloc_matrix(t, &s->own_dx, own, dim, err));
    }
    return open_cache(t, s, err);
}

enum status trainer_open_offbatch(struct trainer *t, struct error *err) {
    struct trainer_offbatch *c = &t->offbatch;
    const size_t b = t->options.batch_count;
    const int64_t anchors = trainer_rows(&t->options);
    if (t->loss == NULL || !loss_carries(t->loss)) {
        return STATUS_OK;
    }
    FAIL_IF(t->dev->stream != NULL, err, STATUS_USAGE,
            "--loss %s encodes further samples, which --device cuda cannot do yet: %s",
            t->options.loss.name,
            loss_cache_refresh(t->loss) > 0.0 ? "use --device cpu" : "add --emc2-off-batch skip");
    FAIL_IF(t->loader == NULL, err, STATUS_USAGE,
            "--loss %s encodes further samples of a dataset; add --data DIR", t->options.loss.name);
    c->rows = row_count(&t->options, t->loss);
    c->ids = calloc(2 * b, sizeof *c->ids);
    c->views = calloc(2 * b, sizeof *c->views);
    c->columns = calloc(2 * b, sizeof *c->columns);
    c->similarity = calloc(2 * b, sizeof *c->similarity);
    c->gradient = calloc(2 * b, sizeof *c->gradient);
    c->statuses = calloc((size_t)c->rows, sizeof *c->statuses);
    c->matrix = calloc((size_t)(anchors * c->rows), sizeof *c->matrix);
    FAIL_IF(c->ids == NULL || c->views == NULL || c->columns == NULL || c->similarity == NULL ||
                c->gradient == NULL || c->statuses == NULL || c->matrix == NULL,
            err, STATUS_NOMEM, "trainer: out of memory");
    TRY(trainer_alloc_matrix(t, &c->s, anchors, c->rows, err));
    c->batch_gradients = gradients_whole(trainer_params(t));
    c->batch_gradients.data = NULL;
    TRY(t->dev->ops->alloc(t->dev, tensor_size_bytes(&c->batch_gradients), &c->batch_gradients.data,
                           err));
    for (int side = 0; side < side_count(t); side++) {
        TRY(open_side(t, side, err));
    }
    return STATUS_OK;
}

void trainer_close_offbatch(struct trainer *t) {
    struct trainer_offbatch *c = &t->offbatch;
    for (int side = 0; side < 2; side++) {
        struct offbatch_side *s = &c->sides[side];
        fetcher_close(s->fetcher);
        feature_cache_destroy(s->cache);
        free(s->samples);
        free(s->own_ids);
        free(s->own_views);
        trainer_free_matrix(t, &s->x);
        trainer_free_matrix(t, &s->dx);
        trainer_free_matrix(t, &s->own_dx);
    }
    trainer_free_matrix(t, &c->s);
    trainer_free_matrix(t, &c->batch_gradients);
    free(c->ids);
    free(c->views);
    free(c->columns);
    free(c->similarity);
    free(c->gradient);
    free(c->statuses);
    free(c->matrix);
    *c = (struct trainer_offbatch){0};
}

size_t trainer_cache_bytes(const struct trainer_options *o, uint64_t id_space_count) {
    return (size_t)trainer_task(o)->sides * (size_t)id_space_count * o->embed_dim * sizeof(float);
}

/* With pairs, images are the candidates of texts. */
struct feature_cache *trainer_cache(const struct trainer *t, bool images) {
    const bool views = t->options.task == TRAINER_VIEWS;
    return views && !images ? NULL : t->offbatch.sides[images && !views ? 1 : 0].cache;
}

/* ---- which samples ---- */

static int compare_samples(const void *a, const void *b) {
    const struct offbatch_sample *x = a;
    const struct offbatch_sample *y = b;
    const int by_id = compare_u64(&x->id, &y->id);
    return by_id != 0 ? by_id : compare_u64(&x->view, &y->view);
}

/* The sample that anchor i of a side needs. */
static struct offbatch_sample wanted_by(const struct trainer *t, int64_t i) {
    return (struct offbatch_sample){t->offbatch.ids[i], as_seen(t) ? t->offbatch.views[i] : 0};
}

/* Sample i of the step's own batch, in its first view. */
static struct offbatch_sample
of_batch(const struct trainer *t, const struct step_flight *f, int64_t i) {
    return (struct offbatch_sample){f->ids[i % t->options.batch_count], 2 * f->batch.epoch};
}

/* The distinct samples that a side needs, then fillers from the batch; and each anchor's row of
 * them. */
static void list_wanted(struct trainer *t, const struct step_flight *f, int side) {
    struct offbatch_side *s = &t->offbatch.sides[side];
    const int64_t b = t->options.batch_count;
    const int64_t anchors = trainer_rows(&t->options);
    const int64_t first = side * b;
    int64_t *columns = t->offbatch.columns + side * b;
    int64_t all = 0;
    s->count = 0;
    for (int64_t i = 0; i < anchors; i++) {
        if (t->offbatch.ids[first + i] != SAMPLE_STATE_NO_ID) {
            s->samples[all++] = wanted_by(t, first + i);
        }
    }
    sort_in_place(s->samples, (size_t)all, sizeof *s->samples, compare_samples);
    for (int64_t i = 0; i < all; i++) {
        if (i == 0 || compare_samples(&s->samples[i], &s->samples[i - 1]) != 0) {
            s->samples[s->count++] = s->samples[i];
        }
    }
    for (int64_t i = 0; i < anchors; i++) {
        const struct offbatch_sample wanted = wanted_by(t, first + i);
        const struct offbatch_sample *at =
            bsearch(&wanted, s->samples, (size_t)s->count, sizeof *s->samples, compare_samples);
        columns[i] = at != NULL ? at - s->samples : -1;
    }
    for (int64_t i = s->count; i < t->offbatch.rows; i++) {
        s->samples[i] = of_batch(t, f, i - s->count);
    }
}

/* ---- reading them ---- */

/* Loads this rank's rows, and exchanges the statuses of all. */
static enum status
fetch_own(struct trainer *t, const struct step_flight *f, int side, struct error *err) {
    struct offbatch_side *s = &t->offbatch.sides[side];
    const int32_t rank = comm_rank(t->comm);
    const int64_t count = t->offbatch.rows / comm_world(t->comm);
    enum status *own = t->offbatch.statuses + rank * count;
    for (int64_t k = 0; k < count; k++) {
        s->own_ids[k] = s->samples[row_of(t, rank, k)].id;
        s->own_views[k] = s->samples[row_of(t, rank, k)].view;
    }
    TRY(loader_fetch(s->fetcher, &s->batch, own, s->own_ids, as_seen(t) ? s->own_views : NULL,
                     (uint32_t)count, f->batch.epoch, err));
    return comm_gather(t->comm, t->offbatch.statuses, own, (size_t)count * sizeof *own, err);
}

/* Loads this rank's part of the N samples of a side. On every rank `lost` is called for every row
 * among the first s->count whose sample cannot be read, before a filler replaces it. */
typedef void lost_function(struct trainer *t, int side, int64_t row, enum status why);
static enum status fetch(struct trainer *t,
                         const struct step_flight *f,
                         int side,
                         lost_function *lost,
                         struct error *err) {
    struct offbatch_side *s = &t->offbatch.sides[side];
    const enum status *statuses = t->offbatch.statuses;
    const int64_t count = t->offbatch.rows / comm_world(t->comm);
    bool all = false;
    for (int pass = 0; !all; pass++) {
        TRY(fetch_own(t, f, side, err));
        all = true;
        for (int64_t i = 0; i < t->offbatch.rows; i++) {
            const int64_t row = row_of(t, (int32_t)(i / count), i % count);
            if (statuses[i] == STATUS_OK) {
                continue;
            }
            if (pass > 0 || row >= s->count) {
                t->failed_together = true;
                return error_set(err, statuses[i],
                                 "sample %" PRIu64 " of the batch cannot be read again: %s",
                                 s->samples[row].id, status_text(statuses[i]));
            }
            lost(t, side, row, statuses[i]);
            s->samples[row] = of_batch(t, f, row);
            all = false;
        }
    }
    return STATUS_OK;
}

/* Anchors whose sample cannot be read have none. */
static void forget(struct trainer *t, int side, int64_t row, enum status why) {
    const struct offbatch_side *s = &t->offbatch.sides[side];
    const int64_t first = side * (int64_t)t->options.batch_count;
    log_write(
        trainer_is_first(t) ? t->options.log : NULL, LOG_LEVEL_WARN,
        "sample %" PRIu64 " cannot be read any more (%s): %s", s->samples[row].id, status_text(why),
        s->cache != NULL ? "no anchor has it as its negative" : "chains at this sample restart");
    for (int64_t i = first; i < first + trainer_rows(&t->options); i++) {
        if (t->offbatch.columns[i] == row) {
            t->offbatch.ids[i] = SAMPLE_STATE_NO_ID;
            t->offbatch.columns[i] = -1;
        }
    }
    if (s->cache != NULL) {
        feature_cache_put(s->cache, s->samples[row].id, NULL);
    }
}

/* Rows `first` to `first + count - 1` of the due samples, then fillers from the batch. */
static void
list_due(struct trainer *t, const struct step_flight *f, int side, uint64_t first, uint64_t count) {
    struct offbatch_side *s = &t->offbatch.sides[side];
    s->count = count < (uint64_t)t->offbatch.rows ? (int64_t)count : t->offbatch.rows;
    for (int64_t i = 0; i < t->offbatch.rows; i++) {
        s->samples[i] = i < s->count
                            ? (struct offbatch_sample){(first + (uint64_t)i) % t->data.id_space, 0}
                            : of_batch(t, f, i - s->count);
    }
}

/* A sample that cannot be read is not chosen until it is due again. Ids without a sample are
 * normal. */
static void report_lost(struct trainer *t, int side, int64_t row, enum status why) {
    if (why != STATUS_NOTFOUND && trainer_is_first(t)) {
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "sample %" PRIu64 " cannot be read (%s) and is not used as a negative",
                  t->offbatch.sides[side].samples[row].id, status_text(why));
    }
}

/* Rows whose id has changed could not be read. */
static void put_due(struct trainer *t, int side, uint64_t first) {
    const struct offbatch_side *s = &t->offbatch.sides[side];
    for (int64_t i = 0; i < s->count; i++) {
        const uint64_t id = (first + (uint64_t)i) % t->data.id_space;
        const float *feature = (const float *)s->x.data + i * s->x.shape[1];
        feature_cache_put(s->cache, id, s->samples[i].id == id ? feature : NULL);
    }
}

/* ---- forward ---- */

/* A tower of views encodes images only. */
static struct tower_input input_of(const struct trainer *t) {
    const struct loader_batch *texts = &t->offbatch.sides[0].batch;
    const struct loader_batch *images = &t->offbatch.sides[side_count(t) - 1].batch;
    return (struct tower_input){.count = texts->count,
                                .images = images->images,
                                .tokens = texts->tokens,
                                .lengths = texts->lengths,
                                .dropout_keys = texts->sample_ids,
                                .step = t->step,
                                .beside = true};
}

static enum status
copy(struct trainer *t, const struct tensor *to, const struct tensor *from, struct error *err) {
    const struct ops *ops = t->dev->ops;
    TRY(ops->fill(t->dev, &(struct fill){.out = *to}, err));
    return ops->add(t->dev, &(struct add){.out = *to, .in = *from, .alpha = 1.0f}, err);
}

/* Encodes what all ranks loaded to x of the sides; with pairs images are compared with texts. */
static enum status encode(struct trainer *t, struct error *err) {
    const struct tower_input in = input_of(t);
    const int sides = side_count(t);
    struct tensor x[2];
    TRY(trainer_forward(t, x, &in, err));
    for (int side = 0; side < sides; side++) {
        struct tensor *from = &x[sides - 1 - side];
        const struct tensor *to = &t->offbatch.sides[side].x;
        TRY(trainer_gather_rows(t, from, to, err));
        if (from->data != to->data) { /* one rank: still the model's */
            TRY(copy(t, to, from, err));
        }
    }
    return STATUS_OK;
}

/* Encodes the samples whose features are due. */
static enum status refresh(struct trainer *t, const struct step_flight *f, struct error *err) {
    const uint64_t rows = (uint64_t)t->offbatch.rows;
    uint64_t first;
    uint64_t count;
    feature_cache_due(t->offbatch.sides[0].cache, f->step, &first, &count);
    for (uint64_t done = 0; done < count; done += rows) {
        for (int side = 0; side < side_count(t); side++) {
            list_due(t, f, side, first + done, count - done);
            TRY(fetch(t, f, side, report_lost, err));
        }
        TRY(encode(t, err));
        for (int side = 0; side < side_count(t); side++) {
            put_due(t, side, first + done);
        }
    }
    return STATUS_OK;
}

/* Chooses samples by the batch's own embeddings, which requires an extra forward pass with the same
 * results. Pairs: for images and for texts; two views: for first and second views. */
static enum status draw(struct trainer *t,
                        const struct step_flight *f,
                        const struct tower_input *in,
                        struct error *err) {
    const int64_t b = t->options.batch_count;
    const double tau = loss_temperature_now(t->loss);
    const bool pairs = side_count(t) == 2;
    struct tower_input batch = *in;
    struct tensor x[2];
    batch.beside = true;
    TRY(refresh(t, f, err));
    TRY(trainer_forward(t, x, &batch, err));
    TRY(trainer_gather(t, x, err));
    for (int k = 0; k < 2; k++) {
        const struct tensor anchors = pairs ? x[k] : rows_from(x[0], k * b, b);
        TRY(feature_cache_draw(t->offbatch.sides[pairs ? k : 0].cache, t->offbatch.ids + k * b,
                               &anchors, f->ids, tau, t->options.loss.seed, f->step, k, err));
    }
    return STATUS_OK;
}

enum status trainer_offbatch_forward(struct trainer *t,
                                     const struct step_flight *f,
                                     const struct tower_input *in,
                                     struct error *err) {
    struct trainer_offbatch *c = &t->offbatch;
    if (c->ids == NULL) {
        return STATUS_OK;
    }
    TRY(c->sides[0].cache != NULL
            ? draw(t, f, in, err)
            : loss_carried(t->loss, c->ids, c->views, f->ids, t->options.batch_count, err));
    c->any = false;
    for (int side = 0; side < side_count(t); side++) {
        list_wanted(t, f, side);
        c->any = c->any || c->sides[side].count > 0;
    }
    for (int side = 0; side < side_count(t) && c->any; side++) {
        TRY(fetch(t, f, side, forget, err));
    }
    return c->any ? encode(t, err) : STATUS_OK;
}

/* ---- similarities and their gradients ---- */

enum status
trainer_offbatch_similarities(struct trainer *t, const struct tensor x[2], struct error *err) {
    const struct ops *ops = t->dev->ops;
    struct trainer_offbatch *c = &t->offbatch;
    const int64_t b = t->options.batch_count;
    for (int side = 0; c->any && side < side_count(t); side++) {
        const struct matmul s = {
            .out = c->s, .a = x[side], .b = c->sides[side].x, .transpose_b = true, .alpha = 1.0f};
        TRY(ops->matmul(t->dev, &s, err));
        TRY(ops->download(t->dev, c->matrix, c->s.data, tensor_size_bytes(&c->s), err));
        for (int64_t i = 0; i < c->s.shape[0]; i++) {
            const int64_t column = c->columns[side * b + i];
            c->similarity[side * b + i] = column >= 0 ? c->matrix[i * c->rows + column] : 0.0f;
        }
    }
    return STATUS_OK;
}

enum status
trainer_offbatch_gradients(struct trainer *t, const struct tensor x[2], struct error *err) {
    const struct ops *ops = t->dev->ops;
    struct trainer_offbatch *c = &t->offbatch;
    const int64_t b = t->options.batch_count;
    for (int side = 0; c->any && side < side_count(t); side++) {
        const struct offbatch_side *s = &c->sides[side];
        memset(c->matrix, 0, tensor_size_bytes(&c->s));
        for (int64_t i = 0; i < c->s.shape[0]; i++) {
            const int64_t column = c->columns[side * b + i];
            if (column >= 0) {
                c->matrix[i * c->rows + column] = c->gradient[side * b + i];
            }
        }
        TRY(ops->upload(t->dev, c->s.data, c->matrix, tensor_size_bytes(&c->s), err));
        const struct matmul anchors = {
            .out = t->dx[side], .a = c->s, .b = s->x, .mode = WRITE_ADD, .alpha = 1.0f};
        const struct matmul contrasts = {
            .out = s->dx, .a = c->s, .b = x[side], .transpose_a = true, .alpha = 1.0f};
        TRY(ops->matmul(t->dev, &anchors, err));
        TRY(ops->matmul(t->dev, &contrasts, err));
    }
    return STATUS_OK;
}

/* ---- backward ---- */

enum status trainer_offbatch_backward(struct trainer *t, struct error *err) {
    const struct tensor sum = gradients_whole(trainer_params(t));
    const struct tensor *batch = &t->offbatch.batch_gradients;
    const struct offbatch_side *sides = t->offbatch.sides;
    if (!t->offbatch.any) {
        return STATUS_OK;
    }
    const bool pairs = side_count(t) == 2;
    const struct tower_input in = input_of(t);
    const struct tensor dx[2] = {sides[pairs ? 1 : 0].dx, sides[0].dx};
    TRY(copy(t, batch, &sum, err));
    TRY(trainer_backward(t, dx, &sides[0].own_dx, &in, err));
    return t->dev->ops->add(t->dev, &(struct add){.out = sum, .in = *batch, .alpha = 1.0f}, err);
}
