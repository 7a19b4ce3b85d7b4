/*
 * timed_ops: an operator table that times another one: calls, time and arithmetic of every
 * operator, and the shapes of its convolutions. A sync follows each call, so that its time is its
 * own.
 *
 * Threading : as the device; one device of the process at a time.
 * Ownership : the module owns the times.
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
    double flops; /* a multiply-add is two; 0: not counted */
    double bytes; /* of operands, each read or written once */
};

/* A convolution of the model, forward or backward. */
struct timed_convolution {
    struct conv_shape shape;
    bool backward;
    bool data; /* backward: gradients of the input too, not only of the weights */
};

enum {
    TIMED_MAX_OPS = OPS_COUNT + 3, /* and upload, download, the loss */
    TIMED_MAX_CONVOLUTIONS = 512
};

/* Starts to time `dev`, from zero. Its own table must stay until timed_ops_remove. */
void timed_ops_install(struct device *dev);
void timed_ops_remove(struct device *dev);

/* Called operators, sorted by time, largest first; returns how many. */
size_t timed_ops_times(struct op_time out[TIMED_MAX_OPS]);

/* Convolutions in call order; returns how many, at most TIMED_MAX_CONVOLUTIONS. */
size_t timed_ops_convolutions(const struct timed_convolution **out);

#endif
