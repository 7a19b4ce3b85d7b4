#include "train/model/image_tower.h"

enum status image_tower_create(struct image_tower *out,
                               struct params *p,
                               const struct resnet_options *resnet,
                               struct vit_options *vit,
                               struct error *err) {
    vit->image_px = resnet->image_px;
    vit->norm = resnet->norm;
    vit->max_batch = resnet->max_batch;
    vit->training = resnet->training;
    return vit->layers > 0 ? vit_create(&out->vit, p, vit, err)
                           : resnet_create(&out->resnet, p, resnet, err);
}

void image_tower_destroy(struct image_tower *t) {
    resnet_destroy(t->resnet);
    vit_destroy(t->vit);
}

int32_t image_tower_feature_count(const struct image_tower *t) {
    return t->vit != NULL ? vit_feature_count(t->vit) : resnet_feature_count(t->resnet);
}

void image_tower_place(const struct image_tower *t,
                       struct device *dev,
                       enum dtype dtype,
                       struct carve *kept,
                       struct carve *workspace) {
    if (t->vit != NULL) {
        vit_place(t->vit, dev, dtype, kept, workspace);
    } else if (t->resnet != NULL) {
        resnet_place(t->resnet, dev, dtype, kept, workspace);
    }
}

enum status image_tower_ready(const struct image_tower *t, struct error *err) {
    return t->vit != NULL ? vit_ready(t->vit, err) : resnet_ready(t->resnet, err);
}

enum status image_tower_forward(const struct image_tower *t,
                                struct tensor *features,
                                const struct tensor *images,
                                struct tensor kept,
                                enum resnet_pass pass,
                                struct error *err) {
    return t->vit != NULL
               ? vit_forward(t->vit, features, images, kept, pass != RESNET_INFERENCE, err)
               : resnet_forward(t->resnet, features, images, pass, err);
}

enum status image_tower_backward(const struct image_tower *t,
                                 const struct tensor *dfeatures,
                                 enum write_mode mode,
                                 struct gradients *sums,
                                 struct error *err) {
    return t->vit != NULL ? vit_backward(t->vit, dfeatures, mode, sums, err)
                          : resnet_backward(t->resnet, dfeatures, mode, sums, err);
}
