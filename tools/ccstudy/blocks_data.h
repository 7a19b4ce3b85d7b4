/*
 * blocks_data: labelled points, as contrastive learning sees them in Arora et al. (ICML 2019,
 * section 2): latent classes from which points are drawn; a part to train on, a part to test.
 *
 * Threading : pure functions of their arguments.
 * Ownership : the caller's struct owns the points until blocks_data_fini.
 */
#ifndef TOOLS_CCSTUDY_BLOCKS_DATA_H
#define TOOLS_CCSTUDY_BLOCKS_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "train/eval/classify.h"

enum {
    BLOCKS_MAX_CLASSES = 4096,
    BLOCKS_MAX_POINTS = 1 << 20,
    BLOCKS_TEST_SHARE = 4 /* of a dataset: one in so many to test */
};

/* Rows in the order of their labels; class c has rows first[c] to first[c + 1] - 1. */
struct blocks_part {
    float *rows;     /* (count, dim) */
    int32_t *labels; /* (count) */
    int64_t *first;  /* (classes + 1) */
    int64_t count;
};

struct blocks_data {
    struct blocks_part train, test;
    int64_t dim;
    int32_t classes;
};

/* The part as classifiers expect it. */
struct classify_set blocks_set(const struct blocks_data *d, const struct blocks_part *part);

/* Mixture: 20 classes in 64 dimensions, 50 points of each to train on and 100 to test. Means are
 * normal in 6 of the dimensions, and so are the points around them, with deviation 1; in the other
 * dimensions points of all classes are normal with deviation 2. A random rotation follows. Returns
 * OK or NOMEM. */
enum status blocks_data_draw(struct blocks_data *out, uint64_t seed, struct error *err);

/* Pictures of a packed dataset with labels: pixels in [-1, 1] at size_px, every fourth picture of a
 * class to test. Returns OK, NOMEM, USAGE (no labels, fewer than two classes, a class of fewer than
 * `least` pictures in a part) or what the loader returns. */
enum status blocks_data_read(struct blocks_data *out,
                             const char *directory,
                             uint32_t size_px,
                             int64_t least,
                             struct error *err);

/* Captions of a packed dataset, grouped by topic: a caption belongs to the topic whose word, or its
 * plural in s, it has, if there is exactly one such topic. `topics`: words separated by commas;
 * those with fewer than `least` captions in a part are left out. A point has a number for every
 * other word that five captions have or more (at most 4,096 of them, the commonest): ln(captions /
 * those with the word) if the caption has it, else 0; all scaled to the length sqrt(dim). Captions
 * of every fourth sample are to test. Returns OK, NOMEM, USAGE (fewer than two topics), LIMIT or
 * what reading the dataset returns. */
enum status blocks_data_read_captions(struct blocks_data *out,
                                      const char *directory,
                                      const char *topics,
                                      int64_t least,
                                      struct error *err);

/* Labelled points in any order. */
struct blocks_points {
    float *rows;     /* (count, dim) */
    int32_t *labels; /* (count), 0 to classes - 1 */
    bool *is_test;   /* (count) */
    int64_t count;
};
void blocks_points_fini(struct blocks_points *p);

/* Sorts them into the parts of `out`, which has dim and classes. Returns OK, NOMEM or USAGE (a
 * class with fewer than `least` points in a part). */
enum status blocks_data_divide(struct blocks_data *out,
                               const struct blocks_points *all,
                               int64_t least,
                               struct error *err);

void blocks_data_fini(struct blocks_data *d); /* accepts an all-zero one */

#endif
