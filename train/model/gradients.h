/*
 * gradients: adds up the gradients of a batch's micro-batches in a fixed binary tree, and hands out
 * ranges of the sum as soon as they are final.
 *
 *   gradients_begin --> for each micro-batch, from the last one to 0:
 *                         gradients_part --> backward, with gradients_final --> gradients_part_end
 *
 * M = q 2^k micro-batches, q odd. Groups of q neighbours are accumulated one by one; the sums of
 * the 2^k groups are added as a binary tree, ((0 + 1) + (2 + 3)) + ... Any aligned 1/2^j of the
 * groups is a node of that tree. So 2^j ranks, j <= k, each with its part of the batch, end in the
 * same bits as one process if their sums are added by the same tree (train/comm/comm.h). The order
 * within an addition does not matter, as a + b = b + a.
 *
 * Memory: a binary counter takes k blocks like the table's gradients, as log2(8) = 3 for 8 groups.
 * Block l keeps the sum of 2^l groups:
 *
 *   group          7    6          5    4              3    2          1    0
 *   computed in    b0   b1         b0   b2             b0   b1         b0   table
 *   to which adds       b0              b0, b1              b0              b0, b1, b2
 *
 * With no blocks all micro-batches are one group.
 *
 * Threading : one owner.
 * Ownership : blocks are the caller's storage's until gradients_fini; the table is borrowed.
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

/* Elements of a decayed range that is handed out; the last one may be shorter. In f32 16 MiB: a
 * network reaches its bandwidth with fewer, and a model of 91 M parameters still has 20 of them to
 * overlap with backward. */
enum { GRADIENTS_RANGE_COUNT = 4 << 20 };

enum { GRADIENTS_MAX_BLOCKS = 31 };

struct gradients {
    struct params *params;
    struct device *dev;
    int32_t block_count;
    void *blocks[GRADIENTS_MAX_BLOCKS];

    /* ---- of the pass that runs ---- */
    const struct gradient_ready *ready; /* NULL: nobody asks */
    enum write_mode mode;               /* of the sum */
    int32_t part_count, group_size;     /* M, q */
    int32_t part;
    int64_t done; /* elements of the decayed range that are summed and handed out */
};

/* k of part_count = q 2^k, q odd. */
int32_t gradients_block_count(int32_t part_count);

/* All gradients of a table as one tensor, 1-D. */
struct tensor gradients_whole(const struct params *p);

/* Takes `block_count` blocks from the device of a table after params_alloc. What was taken before a
 * failure is for gradients_fini. Returns OK, NOMEM or DEVICE. */
enum status gradients_init(struct gradients *g,
                           struct params *p,
                           struct device *dev,
                           int32_t block_count,
                           struct error *err);
void gradients_fini(struct gradients *g); /* accepts zeroed storage */

/* Backward of a batch begins. The sum is set, or added to the table's gradients, by mode. `ready`
 * may be NULL. */
void gradients_begin(struct gradients *g,
                     int32_t part_count,
                     enum write_mode mode,
                     const struct gradient_ready *ready);

/* Backward of micro-batch `part` begins; they come in descending order, down to 0. From now on
 * params_grad returns where its gradients go; they are written with the mode that is returned. */
enum write_mode gradients_part(struct gradients *g, int32_t part);

/* Backward has written the micro-batch's gradients of all tensors from `index` on. g may be NULL.
 * Returns OK or what the device and `ready` return. */
enum status gradients_final(struct gradients *g, int32_t index, struct error *err);

/* Backward of the micro-batch is complete. Returns as gradients_final. */
enum status gradients_part_end(struct gradients *g, struct error *err);

#endif
