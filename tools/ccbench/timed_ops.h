/*
 * timed_ops: an operator table that times another one: calls, time and arithmetic of every
 * operator, and the shapes of its convolutions. Each call is followed by a sync, so that its time
 * is its own.
 *
 * Threading : as the device; one device of the process at a time.
 * Ownership : the table's times are the module's.
 */
#ifndef TOOLS_CCBENCH_TIMED_OPS_H
#define TOOLS_CCBENCH_TIMED_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/conv_gradients.h"
#include "kernels/operands.h"

struct op_time {
    const char *name;
    uint64_t calls;
    int64_t ns;
    double flops; /* two for a multiplication with its addition; 0 for what is not counted */
    double bytes; /* of operands, each read once and written once */
};

/* A convolution of the model, forward or backward. */
struct timed_convolution {
    struct conv_shape shape;
    bool backward;
    bool data; /* backward: gradients of the input too, not of the weights alone */
};

enum {
    TIMED_MAX_OPS = OPS_COUNT + 3, /* and upload, download, the loss */
    TIMED_MAX_CONVOLUTIONS = 512
};

/* From now on `dev` keeps times, from zero on. Its own table must stay until timed_ops_remove. */
void timed_ops_install(struct device *dev);
void timed_ops_remove(struct device *dev);

/* Operators that were called, the most time first; returns how many. */
size_t timed_ops_times(struct op_time out[TIMED_MAX_OPS]);

/* Convolutions in the order of their calls; returns how many, at most TIMED_MAX_CONVOLUTIONS. */
size_t timed_ops_convolutions(const struct timed_convolution **out);

#endif
