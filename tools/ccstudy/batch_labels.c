/*
 * batch_labels: who is paired with whom, and what the embeddings say of the labels.
 */
#include "tools/ccstudy/batch_labels.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "tools/ccstudy/blocks_data.h"
#include "train/eval/probe.h"

/* ---- features ---- */

static void put_part(struct batch_features *f, int64_t at, const struct blocks_part *part) {
    const int64_t width = f->image_width;
    memcpy(f->images + at * width, part->rows, (size_t)(part->count * width) * sizeof *f->images);
    memcpy(f->labels + at, part->labels, (size_t)part->count * sizeof *f->labels);
}

enum status
batch_features_draw_labelled(struct batch_features *f, uint64_t seed, struct error *err) {
    struct blocks_data d;
    *f = (struct batch_features){0};
    TRY(blocks_data_draw(&d, seed, err));
    f->images_count = d.train.count + d.test.count;
    f->image_width = d.dim;
    f->classes = d.classes;
    f->images = calloc((size_t)(f->images_count * d.dim), sizeof *f->images);
    f->labels = calloc((size_t)f->images_count, sizeof *f->labels);
    enum status s = STATUS_OK;
    if (f->images == NULL || f->labels == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory");
        batch_features_fini(f);
    } else {
        put_part(f, 0, &d.train);
        put_part(f, d.train.count, &d.test);
    }
    blocks_data_fini(&d);
    return s;
}

/* ---- pairs ---- */

enum status batch_partners_init(struct batch_partners *p,
                                const struct batch_features *f,
                                double noise,
                                uint64_t seed,
                                struct error *err) {
    const int64_t count = f->train_count;
    const uint32_t classes = (uint32_t)f->classes;
    *p = (struct batch_partners){.labels = calloc((size_t)count, sizeof *p->labels),
                                 .members = calloc((size_t)count, sizeof *p->members),
                                 .first = calloc((size_t)classes + 2, sizeof *p->first)};
    if (p->labels == NULL || p->members == NULL || p->first == NULL) {
        batch_partners_fini(p);
        return error_set(err, STATUS_NOMEM, "out of memory for %lld labels", (long long)count);
    }
    for (int64_t id = 0; id < count; id++) {
        const uint32_t right = (uint32_t)f->labels[f->order[2 * f->held_out_count + id]];
        struct rng r;
        rng_init(&r, seed, RNG_PAIR_NOISE, 0, (uint64_t)id);
        const bool wrong = rng_uniform(&r) < noise;
        p->labels[id] =
            (int32_t)(wrong ? (right + 1 + rng_below(&r, classes - 1)) % classes : right);
        p->first[p->labels[id] + 2]++;
    }
    for (uint32_t c = 0; c < classes; c++) {
        p->first[c + 2] += p->first[c + 1];
    }
    for (int64_t id = 0; id < count; id++) { /* first[c + 1] moves to the end of label c */
        p->members[p->first[p->labels[id] + 1]++] = id;
    }
    return STATUS_OK;
}

void batch_partners_fini(struct batch_partners *p) {
    free(p->labels);
    free(p->members);
    free(p->first);
    *p = (struct batch_partners){0};
}

uint64_t batch_partner(const struct batch_partners *p, uint64_t seed, uint64_t epoch, uint64_t id) {
    const int64_t first = p->first[p->labels[id]];
    const int64_t count = p->first[p->labels[id] + 1] - first;
    uint64_t partner = id;
    struct rng r;
    rng_init(&r, seed, RNG_CAPTION, epoch, id);
    while (count > 1 && partner == id) {
        partner = (uint64_t)p->members[first + rng_below(&r, (uint32_t)count)];
    }
    return partner;
}

/* ---- the classifier ---- */

/* Images `first` to `first + count - 1` of the order. */
static struct classify_set
part_of(const float *x, const int32_t *labels, int64_t dim, int64_t first, int64_t count) {
    return (struct classify_set){
        .rows = x + first * dim, .labels = labels + first, .count = count, .dim = dim};
}

static enum status accuracy(double *out,
                            struct device *dev,
                            struct classify_set queries,
                            const float *weight,
                            const float *bias,
                            int32_t classes,
                            struct error *err) {
    struct classify_result result = {0};
    TRY(classify_by_vectors(&result, dev, &queries, weight, bias, classes, err));
    *out = result.top1;
    classify_result_fini(&result);
    return STATUS_OK;
}

enum status batch_labels_probe(double *validation,
                               double *test,
                               const struct batch_features *f,
                               const float *x,
                               int64_t dim,
                               struct device *dev,
                               uint64_t seed,
                               struct error *err) {
    const int64_t held_out = f->held_out_count;
    struct probe_options how;
    enum status s;
    float *weight = calloc((size_t)f->classes, (size_t)dim * sizeof *weight);
    float *bias = calloc((size_t)f->classes, sizeof *bias);
    int32_t *labels = calloc((size_t)f->images_count, sizeof *labels);
    if (weight == NULL || bias == NULL || labels == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for a classifier");
        goto fail;
    }
    for (int64_t i = 0; i < f->images_count; i++) {
        labels[i] = f->labels[f->order[i]];
    }
    probe_options_default(&how);
    how.lr = 0.05; /* embeddings of length 1 take larger weights than un-normalised features */
    how.seed = seed;
    const struct classify_set train = part_of(x, labels, dim, 2 * held_out, f->train_count);
    TRY_OR_FAIL(s, probe_train(weight, bias, NULL, dev, &train, f->classes, &how, err));
    TRY_OR_FAIL(s, accuracy(test, dev, part_of(x, labels, dim, 0, held_out), weight, bias,
                            f->classes, err));
    s = accuracy(validation, dev, part_of(x, labels, dim, held_out, held_out), weight, bias,
                 f->classes, err);
fail:
    free(weight);
    free(bias);
    free(labels);
    return s;
}
