/*
 * probe: a linear classifier on fixed features, trained with softmax cross-entropy.
 *
 * Threading : as the device. Ownership: everything is borrowed for the call.
 */
#ifndef TRAIN_EVAL_PROBE_H
#define TRAIN_EVAL_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/eval/classify.h"

/* Defaults: those of CyCLIP's linear probe (AdamW, decay on the weights alone, a cosine to 0
 * without warmup, un-normalised features). */
struct probe_options {
    int32_t epochs;                    /* default 32 */
    int32_t batch_count;               /* default 512; all rows if there are fewer */
    double lr;                         /* default 0.005 */
    double weight_decay;               /* of the weights; default 0.01 */
    uint64_t seed;                     /* of initial weights and order; default 0 */
    bool (*should_stop)(void *cookie); /* asked between epochs; may be NULL */
    void *cookie;
};

void probe_options_default(struct probe_options *opt);

/* Fills weight (class_count, dim) and bias (class_count). *loss, if requested (may be NULL): the
 * mean cross-entropy of the last epoch. Returns OK, USAGE (no row with a label), CORRUPT (the loss
 * is not finite: a smaller lr), NOMEM, INTERRUPTED or what the device returns. */
enum status probe_train(float *weight,
                        float *bias,
                        double *loss,
                        struct device *dev,
                        const struct classify_set *set,
                        int32_t class_count,
                        const struct probe_options *opt,
                        struct error *err);

#endif
