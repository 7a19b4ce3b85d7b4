/*
 * gradients: sums the gradients of a batch's micro-batches in a fixed binary tree, and passes on
 * ranges of the sum as soon as they are final.
 *
 *   gradients_begin --> for each micro-batch, from the last one to 0:
 *                         gradients_part --> backward, with gradients_final --> gradients_part_end
 *
 * M = q 2^k micro-batches, q odd. Groups of q neighbours are accumulated one by one; the sums of
 * the 2^k groups are added as a binary tree, ((0 + 1) + (2 + 3)) + ... Any aligned 1/2^j of the
 * groups is a node of that tree. So 2^j ranks, j <= k, each with its part of the batch, are
 * bit-identical to one process if their sums are added by the same tree (train/comm/comm.h). The
 * order within an addition does not matter, as a + b = b + a.
 *
 * Memory: like a binary counter it takes k blocks as large as the table's gradients: log2(8) = 3
 * for 8 groups. Block l holds the sum of 2^l groups:
 *
 *   group          7    6          5    4              3    2          1    0
 *   computed in    b0   b1         b0   b2             b0   b1         b0   table
 *   to which adds       b0              b0, b1              b0              b0, b1, b2
 *
 * Without blocks all micro-batches are one group.
 *
 * Threading : one owner.
 * Ownership : struct gradients owns its blocks until gradients_fini; the table is borrowed.
 */
#ifndef TRAIN_MODEL_GRADIENTS_H
#define TRAIN_MODEL_GRADIENTS_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/model/params.h"

/* Receives the gradients of a step while backward still runs: 1-D views of params_range(p,
 * PARAM_GRAD, true) in order, then of params_range(p, PARAM_GRAD, false), each element once.
 * Backward does not touch an element after its call. The lengths depend on the model alone. On a
 * device with a stream a call follows the launch of the work, not its end. */
struct gradient_ready {
    enum status (*call)(void *cookie, const struct tensor *range, struct error *err);
    void *cookie;
};

/* Elements per range of the decayed gradients; the last one may be shorter. 16 MiB in f32: enough
 * for a network's full bandwidth, and a model of 91 M parameters still has 20 of them to overlap
 * with backward. */
enum { GRADIENTS_RANGE_COUNT = 4 << 20 };

enum { GRADIENTS_MAX_BLOCKS = 31 };

struct gradients {
    struct params *params;
    struct device *dev;
    int32_t block_count;
    void *blocks[GRADIENTS_MAX_BLOCKS];

    /* ---- of the current pass ---- */
    const struct gradient_ready *ready; /* NULL: not requested */
    enum write_mode mode;               /* how the sum is written */
    int32_t part_count, group_size;     /* M, q */
    int32_t part;
    int64_t done; /* elements of the decayed range summed and passed on */
};

/* k of part_count = q 2^k, q odd. */
int32_t gradients_block_count(int32_t part_count);

/* All gradients of a table as one tensor, 1-D. */
struct tensor gradients_whole(const struct params *p);

/* Allocates `block_count` blocks on the device of a table, after params_alloc. Call gradients_fini
 * even after a failure. Returns OK, NOMEM or DEVICE. */
enum status gradients_init(struct gradients *g,
                           struct params *p,
                           struct device *dev,
                           int32_t block_count,
                           struct error *err);
void gradients_fini(struct gradients *g); /* accepts zeroed storage */

/* Call at the beginning of a batch's backward pass. The sum is set, or added to the table's
 * gradients, by mode. `ready` may be NULL. */
void gradients_begin(struct gradients *g,
                     int32_t part_count,
                     enum write_mode mode,
                     const struct gradient_ready *ready);

/* Call at the beginning of micro-batch `part`, in descending order, down to 0. From now on
 * params_grad returns where its gradients go, to be written with the returned mode. */
enum write_mode gradients_part(struct gradients *g, int32_t part);

/* Call when backward has written the micro-batch's gradients of all tensors from `index` on. g may
 * be NULL. Returns OK or what the device and `ready` return. */
enum status gradients_final(struct gradients *g, int32_t index, struct error *err);

/* Call at the end of the micro-batch. Returns as gradients_final. */
enum status gradients_part_end(struct gradients *g, struct error *err);

#endif
