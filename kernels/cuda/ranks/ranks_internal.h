/*
 * ranks: collectives of a CUDA device, see kernels/device_ranks.h; and what stream.c needs of them,
 * because they divide a recorded step.
 */
#ifndef KERNELS_CUDA_RANKS_RANKS_INTERNAL_H
#define KERNELS_CUDA_RANKS_RANKS_INTERNAL_H

#include <stdbool.h>

#include "kernels/device_ranks.h"

struct cuda_device;
struct cuda_ranks;

enum collective_kind { COLLECTIVE_GATHER, COLLECTIVE_MERGE, COLLECTIVE_SUM, COLLECTIVE_FINISH };

/* A call of device_ranks, as a recording keeps it. */
struct collective {
    enum collective_kind kind;
    void *out;
    const void *in;
    size_t count; /* bytes of a gather, words or numbers of the others */
};

/* Put into every device that cuda_open opens. */
extern const struct device_ranks cuda_device_ranks;
/* Queues the call, outside of a recording. Returns OK or DEVICE. */
enum status
cuda_collective(struct cuda_device *dev, const struct collective *call, struct error *err);
/* Leaves the group, if there is one, after all of its work. */
void cuda_ranks_close(struct cuda_device *dev);

#endif
