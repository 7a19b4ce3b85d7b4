/*
 * schedule: learning rates as functions of the step: linear warm-up and half a cosine for the
 * model, a frozen phase and half a cosine for zeta, half a cosine by epochs for gamma.
 *
 * Threading : pure functions.
 */
#ifndef TRAIN_OPTIM_SCHEDULE_H
#define TRAIN_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct schedule {
    double peak_lr;
    double final_lr;       /* reached after the last step */
    uint64_t warmup_steps; /* step s < warmup uses peak (s + 1) / warmup */
    uint64_t frozen_steps; /* rate 0, before the warm-up */
    bool plateau;          /* warm-up in five stairs instead, see schedule_lr */
    uint64_t total_steps;
};

/* Rate of step `step`, from 0: 0 while frozen; steps count from there. After the warm-up final +
 * (peak - final)(1 + cos(pi f))/2, with f the fraction of the steps after the warm-up that are
 * done. plateau: the staircase of NUCLR's published code, five fifths of the warm-up (100 steps
 * each there) at 1/20, 4.8/20, 8.6/20, 12.4/20 and 16.2/20 of the peak, each from the step after
 * its beginning. */
double schedule_lr(const struct schedule *s, uint64_t step);

/* zeta's rate: 0 below frozen_steps, then peak (1 + cos(pi f))/2 with f the fraction of the steps
 * after the frozen ones that are done (NUCLR, ICLR 2025, appendix G: cosine after the freeze). */
double schedule_zeta_lr(double peak_lr, uint64_t frozen_steps, uint64_t total_steps, uint64_t step);

/* zeta's rate for --zeta-lr auto at a sample's visit `visit`, from 0 where zeta begins to move: lr
 * max(1 / (visit + 2), 0.1), see train/loss/nuclr.c. */
double schedule_zeta_visit_rate(double lr, uint64_t visit);

/* gamma of the moving averages, as in FastCLIP (Wei et al., 2024): 1 in epoch 0, then last + (1 -
 * last)(1 + cos(pi epoch / decay_epochs))/2, and `last` from epoch decay_epochs on. */
double schedule_gamma(double last, uint64_t decay_epochs, uint64_t epoch);

/* The learning rate of NUCLR's published code: in epoch 0 a staircase from 1e-5 to the peak, a step
 * every 100 iterations up to 500; then half a cosine by whole epochs down to final_lr, which the
 * warm-up does not shift. `batch` counts in the epoch. */
double
schedule_reference_lr(const struct schedule *s, uint64_t epochs, uint64_t epoch, uint64_t batch);

/* zeta's rate of the published code, constant within an epoch: 0 before freeze_epochs, then half a
 * cosine that reaches 0 in the last epoch, divided by 10 from half of the epochs on and by 100 from
 * three quarters. */
double
schedule_reference_zeta_lr(double peak_lr, uint64_t freeze_epochs, uint64_t epochs, uint64_t epoch);

#endif
