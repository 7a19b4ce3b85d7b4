/*
 * retrieval_ranks: scores of a block of queries against everything are one matrix product on the
 * device; ranks are counted on the host.
 */
#include <math.h>
#include <stdlib.h>

#include "train/retrieval.h"

enum { BLOCK_ROWS = 256 };

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

/* Ranks of all rows of `queries` among `candidates`; hits[k]: queries whose rank is below 1, 5, 10.
 * owner_of_text tells what belongs together; texts are the queries or the candidates. */
static enum status count_hits(uint64_t hits[3],
                              uint64_t *asked,
                              struct device *dev,
                              const struct tensor *queries,
                              const struct tensor *candidates,
                              const int32_t *owner_of_text,
                              bool texts_ask,
                              struct error *err) {
    static const int64_t limits[3] = {1, 5, 10};
    const int64_t width = queries->shape[1];
    const int64_t count = candidates->shape[0];
    void *device_scores = NULL;
    float *scores = malloc((size_t)(BLOCK_ROWS * count) * sizeof *scores);
    uint8_t *own = malloc((size_t)count);
    enum status s = scores != NULL && own != NULL
                        ? dev->ops->alloc(dev, (size_t)(BLOCK_ROWS * count) * sizeof *scores,
                                          &device_scores, err)
                        : error_set(err, STATUS_NOMEM, "retrieval: no memory for %lld scores",
                                    (long long)count);
    for (int64_t q0 = 0; s == STATUS_OK && q0 < queries->shape[0]; q0 += BLOCK_ROWS) {
        const int64_t rows =
            queries->shape[0] - q0 < BLOCK_ROWS ? queries->shape[0] - q0 : BLOCK_ROWS;
        const struct tensor out = tensor_2d(device_scores, DTYPE_F32, rows, count);
        const struct tensor block =
            tensor_2d((float *)queries->data + q0 * width, DTYPE_F32, rows, width);
        s = dev->ops->matmul(dev, &out, WRITE_SET, &block, false, candidates, true, 1.0f, err);
        if (s == STATUS_OK) {
            s = dev->ops->download(dev, scores, device_scores, tensor_size_bytes(&out), err);
        }
        for (int64_t r = 0; s == STATUS_OK && r < rows; r++) {
            const int64_t q = q0 + r;
            bool any = false;
            for (int64_t c = 0; c < count; c++) {
                own[c] = texts_ask ? owner_of_text[q] == c : owner_of_text[c] == q;
                any = any || own[c];
            }
            if (!any) {
                continue; /* an image without caption asks nothing */
            }
            const int64_t rank = rank_of(scores + r * count, own, count);
            for (int k = 0; k < 3; k++) {
                hits[k] += rank < limits[k] ? 1 : 0;
            }
            *asked += 1;
        }
    }
    dev->ops->free(dev, device_scores);
    free(scores);
    free(own);
    return s;
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
    const size_t image_bytes = (size_t)(images_count * embed_dim) * sizeof(float);
    const size_t text_bytes = (size_t)(texts_count * embed_dim) * sizeof(float);
    void *x = NULL;
    void *t = NULL;
    uint64_t i2t[3] = {0};
    uint64_t t2i[3] = {0};
    uint64_t asked[2] = {0};
    enum status s;
    TRY_OR_FAIL(s, dev->ops->alloc(dev, image_bytes, &x, err));
    TRY_OR_FAIL(s, dev->ops->alloc(dev, text_bytes, &t, err));
    TRY_OR_FAIL(s, dev->ops->upload(dev, x, images, image_bytes, err));
    TRY_OR_FAIL(s, dev->ops->upload(dev, t, texts, text_bytes, err));
    const struct tensor image = tensor_2d(x, DTYPE_F32, images_count, embed_dim);
    const struct tensor text = tensor_2d(t, DTYPE_F32, texts_count, embed_dim);
    TRY_OR_FAIL(s, count_hits(i2t, &asked[0], dev, &image, &text, owner, false, err));
    TRY_OR_FAIL(s, count_hits(t2i, &asked[1], dev, &text, &image, owner, true, err));
    out->i2t_r1 = percent(i2t[0], asked[0]);
    out->i2t_r5 = percent(i2t[1], asked[0]);
    out->i2t_r10 = percent(i2t[2], asked[0]);
    out->t2i_r1 = percent(t2i[0], asked[1]);
    out->t2i_r5 = percent(t2i[1], asked[1]);
    out->t2i_r10 = percent(t2i[2], asked[1]);
    out->mean_r1 = 0.5 * (out->i2t_r1 + out->t2i_r1);
fail:
    dev->ops->free(dev, x);
    dev->ops->free(dev, t);
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
    json_u64(w, "images", r->images);
    json_u64(w, "texts", r->texts);
    json_close_object(w);
}
