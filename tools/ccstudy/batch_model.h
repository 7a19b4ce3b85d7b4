/*
 * batch_model: pairs of fixed features, and two heads (a linear layer each, or two with GELU in
 * between) that a loss of train/loss trains on them: what remains of training when the towers are
 * frozen, so that thousands of steps take a second.
 *
 * Threading : the main thread.
 * Ownership : features own their arrays until batch_features_fini; everything else is borrowed for
 *             the call.
 * Untrusted : the .npy files.
 */
#ifndef TOOLS_CCSTUDY_BATCH_MODEL_H
#define TOOLS_CCSTUDY_BATCH_MODEL_H

#include <stdint.h>

#include "formats/base/status.h"
#include "kernels/ops.h"
#include "tools/ccstudy/batch_cells.h"
#include "train/loss/loss.h"

enum {
    BATCH_LARGEST = 128, /* of the batches; training pairs are a multiple of it */
    BATCH_MAX_WIDTH = 2048,
    BATCH_MAX_CLASSES = 4096
};

struct batch_features {
    float *images;   /* (I, image_width) */
    float *texts;    /* (T, text_width) */
    int32_t *owners; /* (T), ascending: the image of each text; every image has one */
    int64_t images_count, texts_count, image_width, text_width;
    /* Instead of texts: (I) of [0, classes). A pair is two images of one label, through one head;
     * NULL: texts. */
    int32_t *labels;
    int32_t classes;
    /* How the images are divided, as rows of `images` in a drawn order: test, validation, then
     * training pairs, a multiple of BATCH_LARGEST. */
    int64_t *order;
    int64_t held_out_count; /* of test, and of validation */
    int64_t train_count;
    int64_t *first_text; /* (I + 1) */
};

/* Draws pairs: points of clusters of unequal size, of which images and texts are two random views
 * with noise of their own. Returns OK or NOMEM. */
enum status
batch_features_draw(struct batch_features *f, int64_t count, uint64_t seed, struct error *err);

/* Reads PREFIX.images.npy (or PREFIX.features.npy where it exists: the image tower's output),
 * PREFIX.texts.npy and PREFIX.owners.npy as `ccstream-eval embed --texts` writes them. Returns OK,
 * NOTFOUND, IO, NOMEM, LIMIT or CORRUPT. */
enum status batch_features_read(struct batch_features *f, const char *prefix, struct error *err);

/* Labelled images: the mixture of blocks_data_draw, 150 points of each of 20 classes. Returns OK or
 * NOMEM. */
enum status
batch_features_draw_labelled(struct batch_features *f, uint64_t seed, struct error *err);

/* Reads PREFIX.images.npy, or PREFIX.features.npy as above, and PREFIX.labels.npy. Returns as
 * batch_features_read. */
enum status
batch_features_read_labelled(struct batch_features *f, const char *prefix, struct error *err);

/* Divides the pairs. Over those of training every column is then shifted to mean 0, and each of
 * images and texts scaled to mean square 1. Returns OK, NOMEM or USAGE (too few pairs). */
enum status batch_features_divide(struct batch_features *f,
                                  int64_t held_out_count,
                                  uint64_t seed,
                                  struct error *err);

/* Reads `prefix`, or draws `count` pairs where it is NULL, and divides. Returns what these return.
 */
enum status batch_features_open(struct batch_features *f,
                                const char *prefix,
                                int64_t count,
                                int64_t held_out,
                                uint64_t seed,
                                struct error *err);
void batch_features_fini(struct batch_features *f); /* accepts an all-zero one */

struct batch_training {
    uint64_t epochs;
    int64_t hidden; /* units of a hidden layer; 0: none */
    int64_t dim;    /* of the shared space */
    uint64_t seed;
};

struct batch_setting {
    struct loss_options loss;
    double zeta_lr; /* peak rate; LOSS_AUTO: as far as on CC3M; 0: the loss has no zeta */
    uint32_t batch; /* [2, BATCH_LARGEST] */
    double rate;    /* peak learning rate */
    double noise;   /* [0, 1]: share of training images with the texts of another one; labelled:
                       with the label of another class */
};

struct batch_outcome {
    struct batch_recall validation, test;
    double gcl; /* the global loss at loss.tau over the training pairs as they belong together */
    /* In percent: the mean recall; labelled, in the place of all that is above: the accuracy of a
     * linear classifier of the embeddings, learned with right labels (batch_labels.h). */
    double validation_score, test_score;
};

/* Trains heads with a caption of each image that changes from epoch to epoch, and measures them.
 * AdamW with weight decay 0.02, cosine rate after 5 % of warm-up; zeta is frozen for a sixth of the
 * epochs. Which images are noisy, and whose texts they have, is drawn by (seed, training image), as
 * by the loader: a higher share keeps the noise of a lower one. `advance` is called with the number
 * of pairs seen since its last call. Returns OK, NOMEM, CORRUPT (not finite), what the device and
 * loss_create return, or what `advance` returns. */
enum status batch_train(struct batch_outcome *out,
                        const struct batch_setting *setting,
                        const struct batch_features *f,
                        const struct batch_training *how,
                        struct device *dev,
                        enum status (*advance)(void *cookie, double pairs, struct error *err),
                        void *cookie,
                        struct error *err);

/* The same in a cell's setting; fills its recalls and gcl. */
enum status batch_train_cell(struct batch_cell *cell,
                             const struct batch_features *f,
                             const struct batch_training *how,
                             struct device *dev,
                             enum status (*advance)(void *cookie, double pairs, struct error *err),
                             void *cookie,
                             struct error *err);

#endif
