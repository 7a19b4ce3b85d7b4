/*
 * retrieval: metrics of the ranks between all images and all captions of a dataset, such as recall
 * at 1.
 *
 * Image to text: the rank of the best of an image's captions; text to image: the rank of a
 * caption's image (the protocol of NUCLR's code, as for COCO and Flickr30k). Ties count as misses,
 * so a model with constant scores has recall 0.
 *
 * Threading : as the model's device.
 */
#ifndef TRAIN_EVAL_RETRIEVAL_H
#define TRAIN_EVAL_RETRIEVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/base/status.h"
#include "kernels/ops.h"

enum retrieval_metric { RETRIEVAL_R1, RETRIEVAL_R5, RETRIEVAL_R10, RETRIEVAL_METRIC_COUNT };

/* One metric: the percentage of queries whose rank is below `within`. */
struct retrieval_metric_row {
    const char *name;  /* in JSON, after the direction: "r1" for i2t_r1 */
    const char *title; /* in text: "R@1" */
    int64_t within;    /* a rank counts incorrect matches that score as high or higher */
};
extern const struct retrieval_metric_row retrieval_metrics[RETRIEVAL_METRIC_COUNT];

enum retrieval_direction {
    RETRIEVAL_I2T,
    RETRIEVAL_T2I,
    RETRIEVAL_MEAN,
    RETRIEVAL_DIRECTION_COUNT
};

struct retrieval_result {
    double value[RETRIEVAL_DIRECTION_COUNT][RETRIEVAL_METRIC_COUNT]; /* recalls in percent */
    uint64_t images, texts;
};

/* From normalised image (I, E) and text (T, E) embeddings in host memory; owner (T): the index of
 * each text's image. Returns OK, NOMEM or what the device returns. */
enum status retrieval_ranks(struct retrieval_result *out,
                            struct device *dev,
                            const float *images,
                            int64_t images_count,
                            const float *texts,
                            int64_t texts_count,
                            const int32_t *owner,
                            int64_t embed_dim,
                            struct error *err);

/* One object {"i2t_r1":..,"i2t_r5":..,...,"t2i_r1":..,...,"mean_r1":..,...,"images":..,"texts":..};
 * key as json_writer's. */
void retrieval_write_json(struct json_writer *w, const char *key, const struct retrieval_result *r);

#endif
