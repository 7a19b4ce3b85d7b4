/*
 * curl_block: one term compares an anchor with a range of points of its own block and the same
 * range of its k negatives: all b points, or with `pairs` one at a time. Sums are in double, sums
 * of exponentials in log space, because unnormalised embeddings are unbounded.
 *
 *   d/dS_i,ml = w_m / b,  d/dS_i,il = -sum_m w_m / b
 *   logistic: w_m = e^{-v_m} / (1 + sum e^{-v}) / ln 2     hinge: w_m = 1 of the largest -v_m
 */
#include "train/loss/curl_block.h"

#include <math.h>
#include <string.h>

/* The points that a term compares: [first, first + count) of every block. */
struct range {
    int64_t first, count;
};

/* Mean similarity of the anchor, whose row this is, with a block. */
static double
mean_of(const float *row, const struct block_options *o, int64_t block, struct range r) {
    const float *points = row + block * o->size + r.first;
    double sum = 0.0;
    for (int64_t l = 0; l < r.count; l++) {
        sum += (double)points[l];
    }
    return sum / (double)r.count;
}

static void
add_to(float *row, const struct block_options *o, int64_t block, struct range r, double g) {
    float *points = row + block * o->size + r.first;
    for (int64_t l = 0; l < r.count; l++) {
        points[l] = (float)((double)points[l] + g / (double)r.count);
    }
}

static int64_t negative_of(const struct block_options *o, int64_t anchor, int64_t m) {
    return (anchor + 1 + m) % o->blocks;
}

static double logistic(float *gradient,
                       const float *row,
                       const struct block_options *o,
                       int64_t anchor,
                       struct range r,
                       double share) {
    const double own = mean_of(row, o, anchor, r);
    double largest = 0.0; /* of -v_m, and of the 1 */
    for (int64_t m = 0; m < o->negatives; m++) {
        largest = fmax(largest, mean_of(row, o, negative_of(o, anchor, m), r) - own);
    }
    double sum = exp(-largest);
    for (int64_t m = 0; m < o->negatives; m++) {
        sum += exp(mean_of(row, o, negative_of(o, anchor, m), r) - own - largest);
    }
    const double log_sum = largest + log(sum);
    double total = 0.0;
    for (int64_t m = 0; m < o->negatives; m++) {
        const int64_t block = negative_of(o, anchor, m);
        const double w = share / log(2.0) * exp(mean_of(row, o, block, r) - own - log_sum);
        add_to(gradient, o, block, r, w);
        total += w;
    }
    add_to(gradient, o, anchor, r, -total);
    return share * log_sum / log(2.0);
}

static double hinge(float *gradient,
                    const float *row,
                    const struct block_options *o,
                    int64_t anchor,
                    struct range r,
                    double share) {
    const double own = mean_of(row, o, anchor, r);
    int64_t worst = negative_of(o, anchor, 0);
    double largest = mean_of(row, o, worst, r) - own;
    for (int64_t m = 1; m < o->negatives; m++) {
        const int64_t block = negative_of(o, anchor, m);
        const double lost = mean_of(row, o, block, r) - own;
        worst = lost > largest ? block : worst;
        largest = lost > largest ? lost : largest;
    }
    if (!(1.0 + largest > 0.0)) {
        return 0.0;
    }
    add_to(gradient, o, worst, r, share);
    add_to(gradient, o, anchor, r, -share);
    return share * (1.0 + largest);
}

enum status block_loss(double *value,
                       float *gradient,
                       const float *similarity,
                       const struct block_options *o,
                       struct error *err) {
    REQUIRE(o->blocks >= 2 && o->size >= 1);
    REQUIRE(o->negatives >= 1 && o->negatives < o->blocks);
    const int64_t columns = o->blocks * o->size;
    const int64_t terms = o->pairs ? o->size : 1;
    const double share = 1.0 / (double)(o->blocks * terms);
    for (int64_t e = 0; e < o->blocks * columns; e++) {
        FAIL_IF(!isfinite(similarity[e]), err, STATUS_CORRUPT,
                "block loss: similarity of anchor %lld with point %lld of block %lld "
                "is not finite; lower the learning rate",
                (long long)(e / columns), (long long)(e % o->size),
                (long long)(e % columns / o->size));
    }
    memset(gradient, 0, (size_t)(o->blocks * columns) * sizeof *gradient);
    *value = 0.0;
    for (int64_t i = 0; i < o->blocks; i++) {
        for (int64_t t = 0; t < terms; t++) {
            const struct range r = o->pairs ? (struct range){t, 1} : (struct range){0, o->size};
            *value += (o->kind == BLOCK_HINGE ? hinge : logistic)(
                gradient + i * columns, similarity + i * columns, o, i, r, share);
        }
    }
    return STATUS_OK;
}
