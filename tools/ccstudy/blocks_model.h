/*
 * blocks_model: trains a tower with the block loss (train/loss/block.h), and measures what Arora et
 * al. (ICML 2019) measure of it.
 *
 *   f(x) = W2 gelu(W1 x + b1) + b2: 256 hidden units, 32 numbers, not normalised; AdamW without
 *   decay
 *
 * A step draws N classes with replacement and of each an anchor and b other training points, all
 * different: a function of (seed, step, block). So two blocks of a batch may have the same class,
 * as in the paper.
 *
 * Threading : a model has one owner.
 */
#ifndef TOOLS_CCSTUDY_BLOCKS_MODEL_H
#define TOOLS_CCSTUDY_BLOCKS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "tools/ccstudy/blocks_data.h"
#include "train/loss/block.h"

/* Sizes of blocks with which losses are measured. */
enum { BLOCKS_SIZES = 4, BLOCKS_LARGEST = 10, BLOCKS_SHOTS = 5, BLOCKS_HIDDEN = 256 };
extern const int32_t BLOCKS_SIZE[BLOCKS_SIZES]; /* 1, 2, 5, 10 */

struct blocks_setting {
    struct block_options loss; /* blocks: N */
    int64_t steps;
    double lr;
    uint64_t seed; /* of the first weights, the draws, and the classifiers */
};

struct blocks_result {
    double avg2, top1;         /* of the mean classifier, in percent, on the test points */
    double avg2_few, top1_few; /* of mu-5, over 10 draws */
    /* On the test points, with one negative: the block loss over the size of blocks, and the mean
     * classifier's own average loss over pairs of classes, with the means of the test points. */
    double block_loss[BLOCKS_SIZES], mean_loss;
};

/* Returns OK, NOMEM, USAGE, CORRUPT (the loss is not finite), what the device returns, or what
 * `advance` returned, which is called after every step with its number of points (NULL: never). */
enum status blocks_run(struct blocks_result *out,
                       const struct blocks_data *data,
                       const struct blocks_setting *setting,
                       enum status (*advance)(void *cookie, double points, struct error *err),
                       void *cookie,
                       struct error *err);

#endif
