/*
 * batch_labels: pairs of two images of one label, some labels of which are wrong, and a classifier
 * with the right ones: supervised contrastive learning with label noise (RINCE: Chuang et al., CVPR
 * 2022, section 5.1).
 *
 * Threading : the main thread.
 */
#ifndef TOOLS_CCSTUDY_BATCH_LABELS_H
#define TOOLS_CCSTUDY_BATCH_LABELS_H

#include "tools/ccstudy/batch_model.h"

/* Training images by the label that they have for the losses. */
struct batch_partners {
    int32_t *labels;  /* (train_count) */
    int64_t *members; /* (train_count) ids of training images, in the order of their labels */
    int64_t *first;   /* (classes + 1) of each label in members */
};

/* With probability `noise`, by (seed, id), an image has the label of another class, each of them as
 * often. Returns OK or NOMEM. */
enum status batch_partners_init(struct batch_partners *p,
                                const struct batch_features *f,
                                double noise,
                                uint64_t seed,
                                struct error *err);
void batch_partners_fini(struct batch_partners *p); /* accepts an all-zero one */

/* Another training image with the label of `id`, drawn by (seed, epoch, id); itself where there is
 * no other. */
uint64_t batch_partner(const struct batch_partners *p, uint64_t seed, uint64_t epoch, uint64_t id);

/* Accuracy in percent of a linear classifier on embeddings of all images, in the order of
 * f->order: learned from those of training, all with their right labels; on those of validation and
 * of test. Returns OK, NOMEM, CORRUPT or what the device returns. */
enum status batch_labels_probe(double *validation,
                               double *test,
                               const struct batch_features *f,
                               const float *x,
                               int64_t dim,
                               struct device *dev,
                               uint64_t seed,
                               struct error *err);

#endif
