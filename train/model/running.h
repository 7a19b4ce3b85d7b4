/*
 * running: batch norm's running statistics over the micro-batches of a batch, of all ranks.
 *
 *   running_begin --> for each micro-batch: running_part --> forward --> running_end
 *
 * Forward leaves the statistics of each micro-batch in a row of its own. running_end gathers the
 * rows of all ranks and moves the table's running statistics once for each, in the order of the
 * batch: running += 0.1 (row - running). So every rank ends with the same bits, those of one rank
 * with micro-batches of the same size.
 *
 * Threading : one owner.
 * Ownership : memory belongs to struct running until running_fini; table, device and comm are
 *             borrowed.
 */
#ifndef TRAIN_MODEL_RUNNING_H
#define TRAIN_MODEL_RUNNING_H

#include "kernels/ops.h"
#include "train/comm/comm.h"
#include "train/model/params.h"

struct running {
    struct params *params;
    struct device *dev;
    struct comm *comm;       /* NULL: one rank */
    struct tensor rows;      /* (ranks * parts, numbers of the running statistics) */
    int32_t part, own_count; /* the last part that began; parts of this rank in the batch */
};

/* Rows of batches of part_count micro-batches on each rank. */
int64_t running_rows(const struct comm *comm, int32_t part_count);

/* Takes memory from the device of a table after params_alloc. Returns OK, NOMEM or DEVICE. */
enum status running_init(struct running *r,
                         struct params *p,
                         struct device *dev,
                         struct comm *comm,
                         int32_t part_count,
                         struct error *err);
void running_fini(struct running *r); /* accepts zeroed storage */

/* A training forward of part_count micro-batches begins. */
void running_begin(struct running *r, int32_t part_count);

/* The next micro-batch begins: until running_end params_tensor returns views of its row. */
void running_part(struct running *r);

/* All have run. Collective. Returns OK or what device and comm return. */
enum status running_end(struct running *r, struct error *err);

#endif
