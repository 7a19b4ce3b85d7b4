/*
 * embed: encodes a whole dataset with a model, the first step of every evaluation.
 *
 * Threading : as the model's device.
 * Ownership : struct embeddings owns its arrays until embeddings_fini.
 */
#ifndef TRAIN_EVAL_EMBED_H
#define TRAIN_EVAL_EMBED_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/log.h"
#include "formats/base/status.h"
#include "loader/loader.h"
#include "train/comm/comm.h"
#include "train/model/dual_encoder.h"
#include "train/model/view_encoder.h"

/* The model that encodes: one of the two; the other is NULL. A view encoder has no text tower. */
struct embed_model {
    struct dual_encoder *pairs;
    struct view_encoder *views;
};

struct embed_options {
    /* Ranks that divide the work, borrowed; NULL: one. All call with the same options and get
     * results that are bit-identical to one rank's with equal micro-batches. *failed_together
     * becomes true if all of them return the same failure; borrowed, not NULL with a comm. */
    struct comm *comm;
    bool *failed_together;
    bool features;  /* also the image tower's output; default false */
    bool texts;     /* all captions as well; needs the tokenizer; default false */
    bool no_images; /* images are not encoded, as with a model without image tower; default false */
    enum augment_kind augment; /* how images become S x S; default AUGMENT_EVAL_SQUASH */
    bool as_stored; /* EXIF orientation and transparency are ignored, as in loader_options; default
                       false */
    const void *tokenizer; /* model bytes */
    size_t tokenizer_size_bytes;
    bool clean_captions;
    uint32_t threads; /* decode threads; 0: one per CPU */
    const struct log_sink *log;
    bool (*should_stop)(void *cookie); /* called between batches; may be NULL */
    /* Called at the beginning and after each batch, first of images, then of captions; may be NULL.
     * `what`: "images" or "captions"; done: the number up to the batch's end, of `total`. */
    void (*progress)(void *cookie, const char *what, uint64_t done, uint64_t total);
    void *cookie;
};

void embed_options_default(struct embed_options *opt);

struct embeddings {
    float *images;        /* (I, E), normalised unless the model is raw; NULL with no_images */
    float *features;      /* (I, F) */
    uint64_t *sample_ids; /* (I), ascending: the order of images */
    int32_t *labels;      /* (I), -1: no label */
    float *texts;         /* (T, E), in text id order */
    int32_t *owner;       /* (T): index of the text's image */
    int64_t images_count, texts_count, embed_dim, feature_dim;
    uint64_t unturned_count, opaque_count; /* as in loader_stats, of this rank */
};

/* Encodes every image and what else is requested; fails at a damaged image. On failure there is
 * nothing to free. With several ranks: collective, and a failure is returned by all. Returns OK,
 * USAGE (no samples; texts without captions, tokenizer or text tower), NOMEM, INTERRUPTED, CORRUPT
 * (an embedding is not finite), or as loader and device. */
enum status embed_dataset(struct embeddings *out,
                          const struct embed_model *model,
                          struct device *dev,
                          const char *dataset_dir,
                          const struct embed_options *opt,
                          struct error *err);
void embeddings_fini(struct embeddings *e); /* accepts an all-zero one */

#endif
