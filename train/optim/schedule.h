/*
 * schedule: learning rates as functions of the step: linear warmup and cosine decay for the model,
 * a frozen phase and cosine decay for zeta, cosine decay by epoch for gamma.
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
    uint64_t warmup_steps; /* step s < warmup has rate peak (s + 1) / warmup */
    uint64_t frozen_steps; /* rate 0, before the warmup */
    bool plateau;          /* stepwise warmup instead, see schedule_lr */
    uint64_t total_steps;
};

/* Rate of step `step`, 0-based: 0 while frozen; then steps are counted from there. After the warmup
 * final + (peak - final)(1 + cos(pi f))/2, f being the fraction of the steps after the warmup that
 * are done. plateau (NUCLR's code): five equal parts of the warmup (100 steps each there) have
 * 1/20, 4.8/20, 8.6/20, 12.4/20 and 16.2/20 of the peak, each beginning one step late. */
double schedule_lr(const struct schedule *s, uint64_t step);

/* zeta's learning rate: 0 below frozen_steps, then peak (1 + cos(pi f))/2, f being the fraction of
 * the steps after the frozen ones that are done (NUCLR, ICLR 2025, appendix G). */
double schedule_zeta_lr(double peak_lr, uint64_t frozen_steps, uint64_t total_steps, uint64_t step);

/* zeta's learning rate with --zeta-lr auto, at a sample's visit `visit` since zeta was unfrozen,
 * 0-based: lr max(1 / (visit + 2), 0.1), see train/loss/nuclr.c. */
double schedule_zeta_visit_rate(double lr, uint64_t visit);

/* gamma of the moving averages (FastCLIP, Wei et al., 2024): 1 in epoch 0, then last + (1 - last)(1
 * + cos(pi epoch / decay_epochs))/2, and `last` from epoch decay_epochs on. */
double schedule_gamma(double last, uint64_t decay_epochs, uint64_t epoch);

/* The learning rate of NUCLR's code: in epoch 0 stepwise from 1e-5 to the peak, every 100
 * iterations up to 500; then cosine decay by whole epochs to final_lr, not shifted by the warmup.
 * `batch`: 0-based in the epoch. */
double
schedule_reference_lr(const struct schedule *s, uint64_t epochs, uint64_t epoch, uint64_t batch);

/* zeta's learning rate in NUCLR's code, constant within an epoch: 0 before freeze_epochs, then
 * cosine decay to 0 in the last epoch, divided by 10 from half of the epochs on and by 100 from
 * three quarters. */
double
schedule_reference_zeta_lr(double peak_lr, uint64_t freeze_epochs, uint64_t epochs, uint64_t epoch);

#endif
