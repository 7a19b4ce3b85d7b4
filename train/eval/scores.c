/*
 * scores: candidates stay on the device, queries pass through in blocks.
 */
#include "train/eval/scores.h"

#include <stdlib.h>

enum { BLOCK_ROWS = 256 };

struct walk {
    struct device *dev;
    void *candidates, *queries, *products; /* on the device */
    float *scores;                         /* (BLOCK_ROWS, C) */
};

static enum status
take_memory(struct walk *w, int64_t rows, int64_t candidate_count, int64_t dim, struct error *err) {
    const struct ops *ops = w->dev->ops;
    const size_t row_bytes = (size_t)dim * sizeof(float);
    const size_t score_bytes = (size_t)(rows * candidate_count) * sizeof(float);
    TRY(ops->alloc(w->dev, (size_t)candidate_count * row_bytes, &w->candidates, err));
    TRY(ops->alloc(w->dev, (size_t)rows * row_bytes, &w->queries, err));
    TRY(ops->alloc(w->dev, score_bytes, &w->products, err));
    w->scores = malloc(score_bytes);
    return w->scores != NULL ? STATUS_OK
                             : error_set(err, STATUS_NOMEM, "no memory for %lld scores",
                                         (long long)(rows * candidate_count));
}

enum status scores_visit(struct device *dev,
                         const float *queries,
                         int64_t query_count,
                         const float *candidates,
                         int64_t candidate_count,
                         int64_t dim,
                         scores_visitor visit,
                         void *cookie,
                         struct error *err) {
    REQUIRE(dev != NULL && queries != NULL && candidates != NULL && visit != NULL);
    REQUIRE(query_count >= 1 && candidate_count >= 1 && dim >= 1);
    const struct ops *ops = dev->ops;
    const int64_t most = query_count < BLOCK_ROWS ? query_count : BLOCK_ROWS;
    struct walk w = {.dev = dev};
    enum status s;
    TRY_OR_FAIL(s, take_memory(&w, most, candidate_count, dim, err));
    const struct tensor c = tensor_2d(w.candidates, DTYPE_F32, candidate_count, dim);
    TRY_OR_FAIL(s, ops->upload(dev, w.candidates, candidates, tensor_size_bytes(&c), err));
    for (int64_t first = 0; first < query_count; first += most) {
        const int64_t rows = query_count - first < most ? query_count - first : most;
        const struct tensor q = tensor_2d(w.queries, DTYPE_F32, rows, dim);
        const struct tensor p = tensor_2d(w.products, DTYPE_F32, rows, candidate_count);
        TRY_OR_FAIL(s,
                    ops->upload(dev, w.queries, queries + first * dim, tensor_size_bytes(&q), err));
        const struct matmul op = {.out = p, .a = q, .b = c, .transpose_b = true, .alpha = 1.0f};
        TRY_OR_FAIL(s, ops->matmul(dev, &op, err));
        TRY_OR_FAIL(s, ops->download(dev, w.scores, w.products, tensor_size_bytes(&p), err));
        for (int64_t r = 0; r < rows; r++) {
            TRY_OR_FAIL(s, visit(cookie, first + r, w.scores + r * candidate_count, err));
        }
    }
    s = STATUS_OK;
fail:
    ops->free(dev, w.candidates);
    ops->free(dev, w.queries);
    ops->free(dev, w.products);
    free(w.scores);
    return s;
}
