/*
 * comm_device: collectives over tensors in device memory: comm's on a device whose memory is the
 * host's; on a GPU NCCL's (kernels/device_ranks.h), in order with its kernels, without waiting.
 *
 * Threading : as the device and the comm.
 */
#ifndef TRAIN_COMM_COMM_DEVICE_H
#define TRAIN_COMM_COMM_DEVICE_H

#include "kernels/ops.h"
#include "train/comm/comm.h"

/* Before the device `name` is opened: sets how->local_rank, so that with "cuda" and "auto" each
 * rank of this host opens a different GPU. Returns OK, or UNSUPPORTED (a name with which all of
 * them open the same GPU). */
enum status comm_device_choose(const struct comm *c,
                               const char *name,
                               struct device_options *how,
                               struct error *err);

/* Once, after the device was opened and before any other call: the ranks' devices become one group.
 * Collective. Returns OK, UNSUPPORTED (the devices differ, or have no collectives, with the
 * reason), or what comm and device return; the same on all ranks. */
enum status comm_device_open(struct comm *c, struct device *dev, struct error *err);

/* Call before the device is closed. Accepts NULL for either, and a device without a group. */
void comm_device_close(struct comm *c, struct device *dev);

/* all (world * own_bytes), the ranks' own_bytes in order; `own` may be this rank's part of `all`,
 * and must be with one rank on a GPU. */
enum status comm_device_gather(struct comm *c,
                               struct device *dev,
                               void *all,
                               const void *own,
                               size_t own_bytes,
                               struct error *err);

/* As comm_begin_sum and comm_finish, in order with the device's kernels: sums follow what was
 * launched before begin, and precede what is launched after finish. The order of additions is fixed
 * on a device whose memory is the host's; NCCL's depends on the group. */
enum status comm_device_begin_sum(struct comm *c,
                                  struct device *dev,
                                  float *data,
                                  int64_t count,
                                  struct error *err);
enum status comm_device_finish(struct comm *c, struct device *dev, struct error *err);

#endif
