/*
 * order_loss: the loss of each row of a run's step. The run is trained again, in memory, from its
 * newest checkpoint before the step (or from its beginning) to the step, which is exact on the same
 * machine.
 *
 * Threading : single-owner.
 * Ownership : owns its arrays until fini.
 * Untrusted : the run and its datasets.
 */
#ifndef TOOLS_CCDUMP_ORDER_LOSS_H
#define TOOLS_CCDUMP_ORDER_LOSS_H

#include "tools/inspect/run_order.h"

struct order_loss {
    struct trainer_rows rows; /* (count); losses: their mean is `mean`; NaN: the row is ignored */
    uint32_t count;
    uint64_t from;       /* step of the checkpoint, or 0: the beginning */
    double mean, logged; /* logged: in metrics.jsonl */
};

/* Requires zeroed *out and a part with the step. Returns OK, USAGE (the step is not logged),
 * UNSUPPORTED (the loss has no value per row, or there is no checkpoint of the same data),
 * INTERRUPTED, or what the trainer returns. */
enum status order_loss_compute(struct order_loss *out,
                               const struct run_order *r,
                               const struct run_part *p,
                               const char *run,
                               uint64_t step,
                               struct error *err);
void order_loss_fini(struct order_loss *x);

/* Whether both means agree within 1e-6, relative for losses above 1. */
bool order_loss_agrees(const struct order_loss *x);

#endif
