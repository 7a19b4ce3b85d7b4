/*
 * image_tower: an encoder's image tower, a ResNet or a vision transformer. Each function is the one
 * of resnet.h or vit.h.
 *
 * Threading : one owner.
 * Ownership : as resnet.h and vit.h.
 */
#ifndef TRAIN_MODEL_IMAGE_TOWER_H
#define TRAIN_MODEL_IMAGE_TOWER_H

#include "train/model/resnet.h"
#include "train/model/vit.h"

/* One of the two, or neither. */
struct image_tower {
    struct resnet *resnet;
    struct vit *vit;
};

/* Creates a vision transformer if vit->layers is not 0. Its image_px, norm, max_batch and training
 * are taken from `resnet` and written to *vit. Returns as resnet_create. */
enum status image_tower_create(struct image_tower *out,
                               struct params *p,
                               const struct resnet_options *resnet,
                               struct vit_options *vit,
                               struct error *err);
void image_tower_destroy(struct image_tower *t);

int32_t image_tower_feature_count(const struct image_tower *t); /* F */

void image_tower_place(const struct image_tower *t,
                       struct device *dev,
                       enum dtype dtype,
                       struct carve *kept,
                       struct carve *workspace);

/* As vit_ready. */
enum status image_tower_ready(const struct image_tower *t, struct error *err);

/* kept: as in vit_forward; omitted for a ResNet. */
enum status image_tower_forward(const struct image_tower *t,
                                struct tensor *features,
                                const struct tensor *images,
                                struct tensor kept,
                                enum resnet_pass pass,
                                struct error *err);

enum status image_tower_backward(const struct image_tower *t,
                                 const struct tensor *dfeatures,
                                 enum write_mode mode,
                                 struct gradients *sums,
                                 struct error *err);

#endif
