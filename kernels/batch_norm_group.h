/*
 * batch_norm_group: what the backends do with a struct batch_norm_group of ops.h: they merge
 * statistics over the rows of all ranks.
 *
 * For each of C channels a rank has two numbers of its own rows. With their count they are the
 * 2 C + 1 doubles that it gathers: the first numbers, the second ones, the count. Without a group
 * (NULL) a rank's own numbers are already those of all.
 *
 *     forward    mean_r, M2_r = sum (x - mean_r)^2     merged
 *     backward   sum dy, and that of dy (x - mean)     added
 *
 * Both run through the ranks in order, so that all of them get the same bits.
 *
 * Threading : as the group's gather.
 */
#ifndef KERNELS_BATCH_NORM_GROUP_H
#define KERNELS_BATCH_NORM_GROUP_H

#include "kernels/ops.h"

/* Doubles of the memory that the calls below work in: a rank's own 2 C + 1, then those of every
 * rank of the group. */
int64_t batch_norm_group_doubles(const struct batch_norm_group *group, int64_t channels);

/* Own means, M2 and count -> those of all rows. Returns OK or what gather returns. */
enum status batch_norm_group_merge(const struct batch_norm_group *group,
                                   double *memory,
                                   int64_t channels,
                                   struct error *err);

/* Own sums and count -> those of all rows. Returns OK or what gather returns. */
enum status batch_norm_group_add(const struct batch_norm_group *group,
                                 double *memory,
                                 int64_t channels,
                                 struct error *err);

#endif
