/*
 * retrieval_ranks: the rank of every query from its scores with all candidates, and the metrics.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/eval/retrieval.h"
#include "train/eval/scores.h"

const struct retrieval_metric_row retrieval_metrics[RETRIEVAL_METRIC_COUNT] = {
    [RETRIEVAL_R1] = {"r1", "R@1", 1},
    [RETRIEVAL_R5] = {"r5", "R@5", 5},
    [RETRIEVAL_R10] = {"r10", "R@10", 10},
};

/* Best score of a query's own candidates, and how many others reach it. */
static int64_t rank_of(const float *scores, const uint8_t *own, int64_t count) {
    float best = -INFINITY;
    for (int64_t c = 0; c < count; c++) {
        best = own[c] && scores[c] > best ? scores[c] : best;
    }
    int64_t rank = 0;
    for (int64_t c = 0; c < count; c++) {
        rank += !own[c] && !(scores[c] < best) ? 1 : 0;
    }
    return rank;
}

struct direction {
    const int32_t *owner_of_text; /* the image of each text */
    bool texts_ask;
    int64_t candidate_count;
    uint8_t *own; /* (candidates) */
    double sums[RETRIEVAL_METRIC_COUNT];
    uint64_t asked;
};

static enum status add_query(void *cookie, int64_t query, const float *scores, struct error *err) {
    struct direction *d = cookie;
    bool any = false;
    (void)err;
    for (int64_t c = 0; c < d->candidate_count; c++) {
        d->own[c] = d->texts_ask ? d->owner_of_text[query] == c : d->owner_of_text[c] == query;
        any = any || d->own[c];
    }
    if (!any) {
        return STATUS_OK; /* an image without caption is no query */
    }
    const int64_t rank = rank_of(scores, d->own, d->candidate_count);
    for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
        d->sums[k] += rank < retrieval_metrics[k].within ? 100.0 : 0.0;
    }
    d->asked++;
    return STATUS_OK;
}

static double mean_of(const struct direction *d, int metric) {
    return d->asked > 0 ? d->sums[metric] / (double)d->asked : 0.0;
}

enum status retrieval_ranks(struct retrieval_result *out,
                            struct device *dev,
                            const float *images,
                            int64_t images_count,
                            const float *texts,
                            int64_t texts_count,
                            const int32_t *owner,
                            int64_t embed_dim,
                            struct error *err) {
    REQUIRE(out != NULL && dev != NULL && images_count > 0 && texts_count > 0 && embed_dim > 0);
    *out =
        (struct retrieval_result){.images = (uint64_t)images_count, .texts = (uint64_t)texts_count};
    struct direction i2t = {.owner_of_text = owner, .candidate_count = texts_count};
    struct direction t2i = {
        .owner_of_text = owner, .texts_ask = true, .candidate_count = images_count};
    i2t.own = malloc((size_t)texts_count);
    t2i.own = malloc((size_t)images_count);
    enum status s = i2t.own != NULL && t2i.own != NULL
                        ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "retrieval: out of memory");
    THEN(s, scores_visit(dev, images, images_count, texts, texts_count, embed_dim, add_query, &i2t,
                         err));
    THEN(s, scores_visit(dev, texts, texts_count, images, images_count, embed_dim, add_query, &t2i,
                         err));
    for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
        const double by_image = mean_of(&i2t, k);
        const double by_text = mean_of(&t2i, k);
        out->value[RETRIEVAL_I2T][k] = by_image;
        out->value[RETRIEVAL_T2I][k] = by_text;
        out->value[RETRIEVAL_MEAN][k] = 0.5 * (by_image + by_text);
    }
    free(i2t.own);
    free(t2i.own);
    return s;
}

void retrieval_write_json(struct json_writer *w,
                          const char *key,
                          const struct retrieval_result *r) {
    static const char *const directions[RETRIEVAL_DIRECTION_COUNT] = {
        [RETRIEVAL_I2T] = "i2t", [RETRIEVAL_T2I] = "t2i", [RETRIEVAL_MEAN] = "mean"};
    json_open_object(w, key);
    for (int d = 0; d < RETRIEVAL_DIRECTION_COUNT; d++) {
        for (int k = 0; k < RETRIEVAL_METRIC_COUNT; k++) {
            char name[32];
            (void)snprintf(name, sizeof name, "%s_%s", directions[d], retrieval_metrics[k].name);
            json_rounded(w, name, r->value[d][k]);
        }
    }
    json_u64(w, "images", r->images);
    json_u64(w, "texts", r->texts);
    json_close_object(w);
}
