/*
 * scores: dot products of many rows with many rows, a block at a time: computed on the device,
 * visited on the host.
 *
 * Threading : as the device. Ownership: everything is borrowed for the call.
 */
#ifndef TRAIN_EVAL_SCORES_H
#define TRAIN_EVAL_SCORES_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"

/* Called for each query in order, with its dot products with all candidates (candidate_count). A
 * status other than OK ends the walk and is returned. */
typedef enum status (*scores_visitor)(void *cookie,
                                      int64_t query,
                                      const float *scores,
                                      struct error *err);

/* queries (Q, D) and candidates (C, D) in host memory, f32. Requires every count at least 1.
 * Returns OK, NOMEM, what the device returns or what the visitor returns. */
enum status scores_visit(struct device *dev,
                         const float *queries,
                         int64_t query_count,
                         const float *candidates,
                         int64_t candidate_count,
                         int64_t dim,
                         scores_visitor visit,
                         void *cookie,
                         struct error *err);

#endif
