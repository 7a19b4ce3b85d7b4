/*
 * ranks: collectives of a CUDA device (kernels/device_ranks.h), and the part of them that stream.c
 * uses, because they divide a captured step.
 */
#ifndef KERNELS_CUDA_RANKS_RANKS_INTERNAL_H
#define KERNELS_CUDA_RANKS_RANKS_INTERNAL_H

#include <stdbool.h>

#include "kernels/device_ranks.h"

struct cuda_device;
struct cuda_ranks;

enum collective_kind { COLLECTIVE_GATHER, COLLECTIVE_MERGE, COLLECTIVE_SUM, COLLECTIVE_FINISH };

/* A call of device_ranks, as stored in a captured step. */
struct collective {
    enum collective_kind kind;
    void *out;
    const void *in;
    size_t count; /* bytes of a gather, words or numbers of the others */
};

/* Set in every device that cuda_open opens. */
extern const struct device_ranks cuda_device_ranks;
/* Queues the call, outside a capture. Returns OK or DEVICE. */
enum status
cuda_collective(struct cuda_device *dev, const struct collective *call, struct error *err);
/* Leaves the group, if there is one, after all of its work. */
void cuda_ranks_close(struct cuda_device *dev);

#endif
