/*
 * classify: classification of embeddings by the nearest class vector (zero-shot, mean classifier,
 * linear probe) or by nearest neighbours. Queries, vectors and banks are rows in host memory.
 *
 * A query's rank is the number of incorrect classes whose score is at least the correct one's: a
 * tie counts as a miss, except among votes of neighbours.
 *
 * Threading : as the device.
 * Ownership : struct classify_result owns its arrays until classify_result_fini.
 */
#ifndef TRAIN_EVAL_CLASSIFY_H
#define TRAIN_EVAL_CLASSIFY_H

#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/base/status.h"
#include "kernels/ops.h"

enum { CLASSIFY_MAX_CLASSES = 1 << 20, CLASSIFY_MAX_NEIGHBOURS = 1 << 16 };

/* A set of labelled rows. */
struct classify_set {
    const float *rows;     /* (count, dim) */
    const int32_t *labels; /* (count); rows with a label outside [0, classes) are skipped */
    int64_t count;
    int64_t dim;
};

struct classify_result { /* in percent */
    double top1, top5;
    double avg2, avg5, avg10; /* expected accuracy among 2, 5, 10 classes, the correct one and
                                 others at random (AVG-k of Arora et al., "A theoretical analysis of
                                 contrastive unsupervised representation learning", ICML 2019); NaN
                                 with fewer classes, and for neighbours */
    double per_class;         /* mean of class_top1, without NaN */
    uint64_t images;
    int32_t class_count;
    double *class_top1;     /* (class_count); NaN: no image of it */
    uint64_t *class_images; /* (class_count) */
};

void classify_result_fini(struct classify_result *r); /* accepts an all-zero one */

/* score(query, class) = <query, vectors[class]> + bias[class]; bias may be NULL. vectors is
 * (class_count, queries.dim). Returns OK, USAGE (no labelled query), NOMEM or as the device.
 */
enum status classify_by_vectors(struct classify_result *out,
                                struct device *dev,
                                const struct classify_set *queries,
                                const float *vectors,
                                const float *bias,
                                int32_t class_count,
                                struct error *err);

/* Which rows of a bank are nearest to a query, and how they vote. */
struct neighbour_rule {
    enum neighbour_measure {
        NEIGHBOURS_DOT,      /* the largest <query, row> */
        NEIGHBOURS_DISTANCE, /* the smallest |query - row|; a score is <query, row> - |row|^2 / 2 */
        NEIGHBOURS_COSINE    /* the largest <query, row> / (|query| |row|); 0 for rows of zeros */
    } by;
    int32_t neighbours; /* votes: 1 to CLASSIFY_MAX_NEIGHBOURS */
    double temperature; /* a vote has weight exp(score / temperature); 0: weight 1 */
};

/* out[i] by rules[i]; all rules share one pass over the products of queries and bank. Ties:
 * the first of equal scores; the lower of classes with equal votes; a class without votes is last.
 * Returns as above; USAGE also for an empty bank. After a failure there is nothing to free.
 */
enum status classify_by_neighbours(struct classify_result *out,
                                   struct device *dev,
                                   const struct classify_set *queries,
                                   const struct classify_set *bank,
                                   int32_t class_count,
                                   const struct neighbour_rule *rules,
                                   size_t rule_count,
                                   struct error *err);

/* vectors (class_count, dim): per class the mean of `shots` rows, sampled without replacement as a
 * function of (seed, draw, class); of all rows if it has no more; zeros if it has none. */
void classify_means(float *vectors,
                    const struct classify_set *set,
                    int32_t class_count,
                    int64_t shots,
                    uint64_t seed,
                    uint64_t draw);

/* The classifier of those means, over `draws` >= 1 samples of shots (mu-5 of Arora et al.: 5
 * shots): mean and sample standard deviation (NaN with one draw) of every number. Returns as
 * classify_by_vectors. */
enum status classify_by_few(struct classify_result *mean,
                            struct classify_result *deviation,
                            struct device *dev,
                            const struct classify_set *queries,
                            const struct classify_set *train,
                            int32_t class_count,
                            int64_t shots,
                            uint64_t draws,
                            uint64_t seed,
                            struct error *err);

/* L2-normalises rows in place; rows of zeros stay. */
void classify_normalize(float *rows, int64_t count, int64_t dim);

/* Fields of the open object: top1, top5, avg2.. (unless NaN), mean_per_class_recall, images,
 * classes.
 */
void classify_write_json(struct json_writer *w, const struct classify_result *r);

#endif
