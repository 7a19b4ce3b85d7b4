/*
 * schedule: learning rates as functions of the step: linear warm-up and half a cosine for the
 * model, a frozen phase and half a cosine for zeta.
 *
 * Threading : pure functions.
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdint.h>

struct schedule {
    double peak_lr;
    double final_lr;       /* reached after the last step */
    uint64_t warmup_steps; /* step s < warmup uses peak (s + 1) / warmup */
    uint64_t total_steps;
};

/* Rate of step `step`, from 0: after the warm-up final + (peak - final)(1 + cos(pi f))/2, with f
 * the fraction of the steps behind the warm-up that are done. */
double schedule_lr(const struct schedule *s, uint64_t step);

/* zeta's rate: 0 below frozen_steps, then peak (1 + cos(pi f))/2 with f the fraction of the steps
 * behind the frozen ones that are done (NUCLR, ICLR 2025, appendix G: cosine after the freeze). */
double schedule_zeta_lr(double peak_lr, uint64_t frozen_steps, uint64_t total_steps, uint64_t step);

#endif
