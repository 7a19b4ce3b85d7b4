/*
 * blocks_data: labelled points, as contrastive learning sees them in Arora et al. (ICML 2019,
 * section 2): latent classes from which points are drawn; a part to train on, a part to test.
 *
 * Threading : pure functions of their arguments.
 * Ownership : the caller's struct owns the points until blocks_data_fini.
 */
#ifndef TOOLS_CCSTUDY_BLOCKS_DATA_H
#define TOOLS_CCSTUDY_BLOCKS_DATA_H

#include <stdint.h>

#include "formats/base/status.h"
#include "train/eval/classify.h"

enum { BLOCKS_MAX_CLASSES = 4096, BLOCKS_MAX_POINTS = 1 << 20 };

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

void blocks_data_fini(struct blocks_data *d); /* accepts an all-zero one */

#endif
