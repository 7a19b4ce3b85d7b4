/*
 * order_loss: what each row of a step of a run had of the step's loss. The run is trained again, in
 * memory, from its newest checkpoint before the step (or from its beginning) to the step, which is
 * exact on the same machine.
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
    uint64_t from;       /* step of the checkpoint; 0 may be the beginning */
    double mean, logged; /* that of metrics.jsonl */
};

/* Requires zeroed *out and a part with the step. Returns OK, USAGE (a step that is not logged), or
 * UNSUPPORTED (there is no loss of a row, or no checkpoint of the same data), INTERRUPTED, or what
 * the trainer returns. */
enum status order_loss_compute(struct order_loss *out,
                               const struct run_order *r,
                               const struct run_part *p,
                               const char *run,
                               uint64_t step,
                               struct error *err);
void order_loss_fini(struct order_loss *x);

/* Whether both means agree: by 1e-6, of losses above 1 relatively. */
bool order_loss_agrees(const struct order_loss *x);

#endif
