/*
 * schedule: cosines.
 */
#include "train/optim/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double half_cosine(uint64_t done, uint64_t total) {
    const double fraction = total > 0 ? (double)done / (double)total : 1.0;
    return 0.5 * (1.0 + cos(pi * fmin(fraction, 1.0)));
}

enum { STAIRS = 5 };

/* The published code sets the rate after steps 0, 100, ... 500: it applies from the next one on.
 */
static uint64_t stair_of(uint64_t step, uint64_t stair_steps) {
    return step == 0 ? 0 : (step - 1) / stair_steps;
}

double schedule_lr(const struct schedule *s, uint64_t step) {
    static const double first = 1.0 / 20.0;
    if (step < s->frozen_steps) {
        return 0.0;
    }
    const uint64_t total = s->total_steps - s->frozen_steps;
    step -= s->frozen_steps;
    if (s->plateau && s->warmup_steps >= STAIRS) {
        const uint64_t stair = stair_of(step, s->warmup_steps / STAIRS);
        if (stair < STAIRS) {
            return s->peak_lr * (first + (1.0 - first) * (double)stair / STAIRS);
        }
    } else if (step < s->warmup_steps) {
        return s->peak_lr * (double)(step + 1) / (double)s->warmup_steps;
    }
    const uint64_t left = total > s->warmup_steps ? total - s->warmup_steps : 0;
    const uint64_t done = step > s->warmup_steps ? step - s->warmup_steps : 0;
    return s->final_lr + (s->peak_lr - s->final_lr) * half_cosine(done, left);
}

double schedule_gamma(double last, uint64_t decay_epochs, uint64_t epoch) {
    if (epoch == 0) {
        return 1.0;
    }
    return epoch >= decay_epochs ? last : last + (1.0 - last) * half_cosine(epoch, decay_epochs);
}

double
schedule_zeta_lr(double peak_lr, uint64_t frozen_steps, uint64_t total_steps, uint64_t step) {
    if (step < frozen_steps || total_steps <= frozen_steps) {
        return 0.0;
    }
    return peak_lr * half_cosine(step - frozen_steps, total_steps - frozen_steps);
}

double schedule_zeta_visit_rate(double lr, uint64_t visit) {
    static const double least = 0.1;
    return lr * fmax(1.0 / ((double)visit + 2.0), least);
}

double
schedule_reference_lr(const struct schedule *s, uint64_t epochs, uint64_t epoch, uint64_t batch) {
    static const double first_lr = 1e-5;
    static const uint64_t stair_steps = 100;
    if (epoch > 0) {
        return s->final_lr + (s->peak_lr - s->final_lr) * half_cosine(epoch, epochs);
    }
    const uint64_t stair = stair_of(batch, stair_steps);
    return stair >= STAIRS ? s->peak_lr
                           : first_lr + (s->peak_lr - first_lr) * (double)stair / STAIRS;
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
