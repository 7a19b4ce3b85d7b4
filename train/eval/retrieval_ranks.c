/*
 * retrieval_ranks: hits counted query by query from the scores against everything.
 */
#include <math.h>
#include <stdlib.h>

#include "train/eval/retrieval.h"
#include "train/eval/scores.h"

/* Best score among a query's own candidates, and how many of the others reach it. */
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

/* Hits of one direction; hits[k]: queries whose rank is below 1, 5, 10. */
struct direction {
    const int32_t *owner_of_text; /* what belongs together */
    bool texts_ask;
    int64_t candidate_count;
    uint8_t *own; /* (candidates) */
    uint64_t hits[3];
    uint64_t asked;
};

static enum status count_hits(void *cookie, int64_t query, const float *scores, struct error *err) {
    static const int64_t limits[3] = {1, 5, 10};
    struct direction *d = cookie;
    bool any = false;
    (void)err;
    for (int64_t c = 0; c < d->candidate_count; c++) {
        d->own[c] = d->texts_ask ? d->owner_of_text[query] == c : d->owner_of_text[c] == query;
        any = any || d->own[c];
    }
    if (!any) {
        return STATUS_OK; /* an image without caption asks nothing */
    }
    const int64_t rank = rank_of(scores, d->own, d->candidate_count);
    for (int k = 0; k < 3; k++) {
        d->hits[k] += rank < limits[k] ? 1 : 0;
    }
    d->asked++;
    return STATUS_OK;
}

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
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
    if (s == STATUS_OK) {
        s = scores_visit(dev, images, images_count, texts, texts_count, embed_dim, count_hits, &i2t,
                         err);
    }
    if (s == STATUS_OK) {
        s = scores_visit(dev, texts, texts_count, images, images_count, embed_dim, count_hits, &t2i,
                         err);
    }
    out->i2t_r1 = percent(i2t.hits[0], i2t.asked);
    out->i2t_r5 = percent(i2t.hits[1], i2t.asked);
    out->i2t_r10 = percent(i2t.hits[2], i2t.asked);
    out->t2i_r1 = percent(t2i.hits[0], t2i.asked);
    out->t2i_r5 = percent(t2i.hits[1], t2i.asked);
    out->t2i_r10 = percent(t2i.hits[2], t2i.asked);
    out->mean_r1 = 0.5 * (out->i2t_r1 + out->t2i_r1);
    out->mean_r5 = 0.5 * (out->i2t_r5 + out->t2i_r5);
    out->mean_r10 = 0.5 * (out->i2t_r10 + out->t2i_r10);
    free(i2t.own);
    free(t2i.own);
    return s;
}

void retrieval_write_json(struct json_writer *w,
                          const char *key,
                          const struct retrieval_result *r) {
    json_open_object(w, key);
    json_double(w, "i2t_r1", r->i2t_r1);
    json_double(w, "i2t_r5", r->i2t_r5);
    json_double(w, "i2t_r10", r->i2t_r10);
    json_double(w, "t2i_r1", r->t2i_r1);
    json_double(w, "t2i_r5", r->t2i_r5);
    json_double(w, "t2i_r10", r->t2i_r10);
    json_double(w, "mean_r1", r->mean_r1);
    json_double(w, "mean_r5", r->mean_r5);
    json_double(w, "mean_r10", r->mean_r10);
    json_u64(w, "images", r->images);
    json_u64(w, "texts", r->texts);
    json_close_object(w);
}
