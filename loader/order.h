/*
 * order: which samples a step of a run has, and in which steps a sample is: the order of a loader
 * with the same options, without reading images.
 *
 * Threading : immutable after order_open.
 * Ownership : owns the datasets it opens.
 * Untrusted : the datasets.
 */
#ifndef LOADER_ORDER_H
#define LOADER_ORDER_H

#include "loader/sampler.h"
#include "loader/sources.h"

struct order {
    struct sources *sources;
    struct classes *classes; /* CLASSES only */
    struct sampler sampler;  /* of all ranks together */
};

/* Uses batch_count, positives, order, block_count, block_window, drop_last, seed, epochs and filter
 * of `opt`. Returns OK, or what loader_open_mix returns for the datasets and the order. */
enum status order_open(struct order **out,
                       const struct loader_source *list,
                       uint32_t count,
                       const struct loader_options *opt,
                       struct error *err);
void order_close(struct order *o); /* accepts NULL */

#endif
