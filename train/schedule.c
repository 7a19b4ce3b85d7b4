/*
 * schedule: cosines.
 */
#include "train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double half_cosine(uint64_t done, uint64_t total) {
    const double fraction = total > 0 ? (double)done / (double)total : 1.0;
    return 0.5 * (1.0 + cos(pi * fmin(fraction, 1.0)));
}

double schedule_lr(const struct schedule *s, uint64_t step) {
    if (step < s->warmup_steps) {
        return s->peak_lr * (double)(step + 1) / (double)s->warmup_steps;
    }
    const uint64_t left = s->total_steps > s->warmup_steps ? s->total_steps - s->warmup_steps : 0;
    return s->final_lr + (s->peak_lr - s->final_lr) * half_cosine(step - s->warmup_steps, left);
}

double
schedule_zeta_lr(double peak_lr, uint64_t frozen_steps, uint64_t total_steps, uint64_t step) {
    if (step < frozen_steps || total_steps <= frozen_steps) {
        return 0.0;
    }
    return peak_lr * half_cosine(step - frozen_steps, total_steps - frozen_steps);
}

double
schedule_reference_lr(const struct schedule *s, uint64_t epochs, uint64_t epoch, uint64_t batch) {
    static const double first_lr = 1e-5;
    static const uint64_t stair_steps = 100;
    static const uint64_t stairs = 5;
    if (epoch > 0) {
        return s->final_lr + (s->peak_lr - s->final_lr) * half_cosine(epoch, epochs);
    }
    /* The code sets the rate after the iterations 0, 100, ... 500: it holds from the next one on.
     */
    const uint64_t stair = batch == 0 ? 0 : (batch - 1) / stair_steps;
    return stair >= stairs ? s->peak_lr
                           : first_lr + (s->peak_lr - first_lr) * (double)stair / (double)stairs;
}

double schedule_reference_zeta_lr(double peak_lr,
                                  uint64_t freeze_epochs,
                                  uint64_t epochs,
                                  uint64_t epoch) {
    if (epoch < freeze_epochs || epochs <= freeze_epochs + 1) {
        return 0.0;
    }
    const double cosine = peak_lr * half_cosine(epoch - freeze_epochs, epochs - 1 - freeze_epochs);
    return epoch < epochs / 2 ? cosine : epoch < epochs * 3 / 4 ? cosine / 10 : cosine / 100;
}
