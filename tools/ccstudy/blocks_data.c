/*
 * blocks_data: a mixture of Gaussians, or the pictures of a dataset through the loader; captions
 * are in blocks_captions.c.
 */
#include "tools/ccstudy/blocks_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "loader/loader.h"

enum { CLASSES = 20, TRAIN_EACH = 50, TEST_EACH = 100, DIM = 64, SIGNAL = 6, LOADER_BATCH = 64 };
static const double noise = 2.0;

struct classify_set blocks_set(const struct blocks_data *d, const struct blocks_part *part) {
    return (struct classify_set){
        .rows = part->rows, .labels = part->labels, .count = part->count, .dim = d->dim};
}

static void part_fini(struct blocks_part *p) {
    free(p->rows);
    free(p->labels);
    free(p->first);
}

void blocks_data_fini(struct blocks_data *d) {
    part_fini(&d->train);
    part_fini(&d->test);
    memset(d, 0, sizeof *d);
}

static enum status
take_part(struct blocks_part *p, const struct blocks_data *d, int64_t count, struct error *err) {
    p->count = count;
    p->rows = calloc((size_t)count, (size_t)d->dim * sizeof *p->rows);
    p->labels = calloc((size_t)count, sizeof *p->labels);
    p->first = calloc((size_t)d->classes + 1, sizeof *p->first);
    return p->rows != NULL && p->labels != NULL && p->first != NULL
               ? STATUS_OK
               : error_set(err, STATUS_NOMEM, "no memory for %lld points", (long long)count);
}

/* ---- mixture ---- */

/* Rows of an orthogonal matrix, by Gram-Schmidt. */
static void draw_rotation(double rotation[DIM][DIM], struct rng *r) {
    for (int i = 0; i < DIM; i++) {
        double norm = 0.0;
        for (int d = 0; d < DIM; d++) {
            rotation[i][d] = rng_normal(r);
        }
        for (int j = 0; j < i; j++) {
            double product = 0.0;
            for (int d = 0; d < DIM; d++) {
                product += rotation[i][d] * rotation[j][d];
            }
            for (int d = 0; d < DIM; d++) {
                rotation[i][d] -= product * rotation[j][d];
            }
        }
        for (int d = 0; d < DIM; d++) {
            norm += rotation[i][d] * rotation[i][d];
        }
        for (int d = 0; d < DIM; d++) {
            rotation[i][d] /= sqrt(norm);
        }
    }
}

static void draw_part(struct blocks_part *p,
                      double means[CLASSES][SIGNAL],
                      double rotation[DIM][DIM],
                      int each,
                      struct rng *r) {
    for (int i = 0; i < CLASSES * each; i++) {
        float *row = p->rows + (int64_t)i * DIM;
        double sum[DIM] = {0};
        p->labels[i] = i / each;
        for (int k = 0; k < DIM; k++) {
            const double x =
                k < SIGNAL ? means[i / each][k] + rng_normal(r) : noise * rng_normal(r);
            for (int d = 0; d < DIM; d++) {
                sum[d] += x * rotation[k][d];
            }
        }
        for (int d = 0; d < DIM; d++) {
            row[d] = (float)sum[d];
        }
    }
    for (int c = 0; c <= CLASSES; c++) {
        p->first[c] = (int64_t)c * each;
    }
}

enum status blocks_data_draw(struct blocks_data *out, uint64_t seed, struct error *err) {
    double means[CLASSES][SIGNAL];
    double(*rotation)[DIM] = calloc(DIM, sizeof *rotation);
    struct rng r;
    memset(out, 0, sizeof *out);
    out->dim = DIM;
    out->classes = CLASSES;
    enum status s = rotation != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK) {
        s = take_part(&out->train, out, CLASSES * TRAIN_EACH, err);
    }
    if (s == STATUS_OK) {
        s = take_part(&out->test, out, CLASSES * TEST_EACH, err);
    }
    if (s == STATUS_OK) {
        rng_init(&r, seed, RNG_STUDY, 0, 0); /* steps of blocks_model have 1 and more */
        draw_rotation(rotation, &r);
        for (int i = 0; i < CLASSES * SIGNAL; i++) {
            means[i / SIGNAL][i % SIGNAL] = rng_normal(&r);
        }
        draw_part(&out->train, means, rotation, TRAIN_EACH, &r);
        draw_part(&out->test, means, rotation, TEST_EACH, &r);
    } else {
        blocks_data_fini(out);
    }
    free(rotation);
    return s;
}

/* ---- points of a dataset ---- */

void blocks_points_fini(struct blocks_points *p) {
    free(p->rows);
    free(p->labels);
    free(p->is_test);
    memset(p, 0, sizeof *p);
}

/* The rows of every class in each part, in `first`; a class with too few is an error. */
static enum status count_parts(struct blocks_data *out,
                               const struct blocks_points *all,
                               int64_t *sizes[2],
                               int64_t least,
                               struct error *err) {
    for (int64_t i = 0; i < all->count; i++) {
        sizes[all->is_test[i]][all->labels[i]]++;
    }
    for (int32_t c = 0; c < out->classes; c++) {
        const int64_t fewest = sizes[0][c] < sizes[1][c] ? sizes[0][c] : sizes[1][c];
        if (fewest < least) {
            return error_set(err, STATUS_USAGE,
                             "class %d has %lld points; blocks need about %lld of every class",
                             (int)c, (long long)(sizes[0][c] + sizes[1][c]),
                             (long long)(least * BLOCKS_TEST_SHARE));
        }
    }
    return STATUS_OK;
}

enum status blocks_data_divide(struct blocks_data *out,
                               const struct blocks_points *all,
                               int64_t least,
                               struct error *err) {
    int64_t *counts = calloc(2 * (size_t)out->classes, sizeof *counts);
    if (counts == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    int64_t *sizes[2] = {counts, counts + out->classes};
    struct blocks_part *const parts[2] = {&out->train, &out->test};
    enum status s = count_parts(out, all, sizes, least, err);
    for (int p = 0; p < 2 && s == STATUS_OK; p++) {
        int64_t count = 0;
        for (int32_t c = 0; c < out->classes; c++) {
            count += sizes[p][c];
        }
        s = take_part(parts[p], out, count, err);
        for (int32_t c = 0; c < out->classes && s == STATUS_OK; c++) {
            parts[p]->first[c + 1] = parts[p]->first[c] + sizes[p][c];
            sizes[p][c] = parts[p]->first[c]; /* where the next row goes */
        }
    }
    for (int64_t i = 0; i < all->count && s == STATUS_OK; i++) {
        struct blocks_part *p = parts[all->is_test[i]];
        const int64_t to = sizes[all->is_test[i]][all->labels[i]]++;
        p->labels[to] = all->labels[i];
        memcpy(p->rows + to * out->dim, all->rows + i * out->dim,
               (size_t)out->dim * sizeof *p->rows);
    }
    free(counts);
    return s;
}

/* ---- pictures ---- */

static enum status read_all(struct blocks_points *all,
                            int64_t dim,
                            struct loader *l,
                            const struct loader_info *info,
                            struct error *err) {
    all->rows = calloc((size_t)info->sample_count, (size_t)dim * sizeof *all->rows);
    all->labels = calloc((size_t)info->sample_count, sizeof *all->labels);
    all->is_test = calloc((size_t)info->sample_count, sizeof *all->is_test);
    if (all->rows == NULL || all->labels == NULL || all->is_test == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for %llu pictures",
                         (unsigned long long)info->sample_count);
    }
    for (uint64_t step = 0; step < info->steps_per_epoch; step++) {
        struct loader_batch batch;
        TRY(loader_acquire(l, &batch, err));
        for (int64_t e = 0; e < (int64_t)batch.count * dim; e++) {
            all->rows[all->count * dim + e] = (float)batch.images[e] / 127.5f - 1.0f;
        }
        memcpy(all->labels + all->count, batch.labels, batch.count * sizeof *batch.labels);
        all->count += batch.count;
        loader_release(l, &batch);
    }
    return STATUS_OK;
}

/* Every fourth picture of a class. */
static enum status choose_tests(struct blocks_points *all, int32_t classes, struct error *err) {
    int64_t *seen = calloc((size_t)classes, sizeof *seen);
    if (seen == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    for (int64_t i = 0; i < all->count; i++) {
        all->is_test[i] = ++seen[all->labels[i]] % BLOCKS_TEST_SHARE == 0;
    }
    free(seen);
    return STATUS_OK;
}

static enum status count_classes(struct blocks_data *out,
                                 const struct blocks_points *all,
                                 const char *directory,
                                 struct error *err) {
    for (int64_t i = 0; i < all->count; i++) {
        if (all->labels[i] < 0) {
            return error_set(err, STATUS_USAGE,
                             "%s has pictures without labels; ccpack gives them to class folders "
                             "and CIFAR files",
                             directory);
        }
        out->classes = all->labels[i] >= out->classes ? all->labels[i] + 1 : out->classes;
    }
    return out->classes >= 2 && out->classes <= BLOCKS_MAX_CLASSES
               ? STATUS_OK
               : error_set(err, STATUS_USAGE, "%s has %d classes, not 2 to %d", directory,
                           (int)out->classes, BLOCKS_MAX_CLASSES);
}

enum status blocks_data_read(struct blocks_data *out,
                             const char *directory,
                             uint32_t size_px,
                             int64_t least,
                             struct error *err) {
    struct loader_options o;
    struct loader_info info;
    struct loader *l = NULL;
    struct blocks_points all = {0};
    memset(out, 0, sizeof *out);
    out->dim = 3 * (int64_t)size_px * size_px;
    loader_options_default(&o);
    o.batch_count = LOADER_BATCH;
    o.image_size_px = size_px;
    o.augment = AUGMENT_EVAL_CROP;
    o.captions = LOADER_CAPTIONS_NONE;
    o.order = LOADER_ORDER_SEQUENTIAL;
    o.drop_last = false;
    o.epochs = 1;
    o.max_corrupt_count = 0;
    enum status s = loader_open(&l, directory, &o, err);
    if (s == STATUS_OK) {
        loader_info(l, &info);
        s = info.sample_count <= BLOCKS_MAX_POINTS
                ? read_all(&all, out->dim, l, &info, err)
                : error_set(err, STATUS_LIMIT, "%s has more than %d pictures", directory,
                            BLOCKS_MAX_POINTS);
    }
    loader_close(l);
    if (s == STATUS_OK) {
        s = count_classes(out, &all, directory, err);
    }
    if (s == STATUS_OK) {
        s = choose_tests(&all, out->classes, err);
    }
    if (s == STATUS_OK) {
        s = blocks_data_divide(out, &all, least, err);
    }
    blocks_points_fini(&all);
    if (s != STATUS_OK) {
        blocks_data_fini(out);
    }
    return s;
}
