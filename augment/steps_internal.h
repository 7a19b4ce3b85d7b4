/*
 * steps_internal: applies the random steps of randaugment and simclr.
 */
#ifndef AUGMENT_STEPS_INTERNAL_H
#define AUGMENT_STEPS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "augment/ops_internal.h"
#include "augment/randaugment.h"
#include "augment/simclr.h"

bool randaugment_is_noop(const struct randaugment_step *s);
bool randaugment_works_in_place(const struct randaugment_step *s);

/* If the step works in place, out must be in; otherwise they must not overlap. */
void randaugment_apply(const struct randaugment_step *s, struct op_pass p);

/* In place. Returns OK or NOMEM. */
enum status simclr_apply(const struct simclr_draws *d,
                         const struct simclr_options *opt,
                         const struct op_loops *loops,
                         const struct image_view *v,
                         struct resize_workspace *workspace,
                         struct error *err);

#endif
