/*
 * batch_norm_group: merges batch-norm statistics over the rows of all ranks of a struct
 * batch_norm_group (ops.h).
 *
 * A rank has two numbers per channel from its own rows. With the number of rows they are the
 * 2 C + 1 doubles that are gathered: the first number of all channels, the second ones, the rows.
 * Without a group (NULL) a rank's own numbers are already the result.
 *
 *     forward    mean_r, M2_r = sum (x - mean_r)^2     merged
 *     backward   sum dy, sum dy (x - mean)             added
 *
 * Both are computed in rank order, so the results are bit-identical on all ranks.
 *
 * Threading : as the group's gather.
 */
#ifndef KERNELS_BATCH_NORM_GROUP_H
#define KERNELS_BATCH_NORM_GROUP_H

#include "kernels/ops.h"

/* Size of `memory` below, in doubles: a rank's own 2 C + 1, then those of every rank of the group.
 * Results replace the own ones. */
int64_t batch_norm_group_doubles(const struct batch_norm_group *group, int64_t channels);

/* From the own means, M2 and count to those over all rows. Returns OK or the status of gather. */
enum status batch_norm_group_merge(const struct batch_norm_group *group,
                                   double *memory,
                                   int64_t channels,
                                   struct error *err);

/* From the own sums and count to those over all rows. Returns OK or the status of gather. */
enum status batch_norm_group_add(const struct batch_norm_group *group,
                                 double *memory,
                                 int64_t channels,
                                 struct error *err);

#endif
