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
    /* Ranks that divide the work, borrowed; NULL: one. All call with the same options and get the
     * same bits, those of one rank whose towers hold as many. *failed_together becomes true where
     * all of them return the same failure; borrowed, not NULL with a comm. */
    struct comm *comm;
    bool *failed_together;
    bool features;  /* of images also the tower's own output; default false */
    bool texts;     /* all captions as well; needs the tokenizer; default false */
    bool no_images; /* images are not encoded; always so of a model without a tower for them;
                       default false */
    enum augment_kind augment; /* how images become S x S; AUGMENT_EVAL_SQUASH */
    bool as_stored; /* EXIF orientation and transparency are ignored, as in loader_options; default
                       false */
    const void *tokenizer; /* model bytes */
    size_t tokenizer_size_bytes;
    bool clean_captions;
    uint32_t threads; /* decode threads; 0: one per CPU */
    const struct log_sink *log;
    bool (*should_stop)(void *cookie); /* called between batches; may be NULL */
    /* At the beginning and after each batch, of images, then of captions. `what`: "images" or
     * "captions"; done: those up to the batch's end in the order of ids, of the dataset's `total`.
     * May be NULL. */
    void (*progress)(void *cookie, const char *what, uint64_t done, uint64_t total);
    void *cookie;
};

void embed_options_default(struct embed_options *opt);

struct embeddings {
    float *images;   /* (I, E), of length 1 unless the model's are raw; in the order of ids; NULL
                        with no_images */
    float *features; /* (I, F) */
    uint64_t *sample_ids; /* (I), ascending */
    int32_t *labels;      /* (I), -1 without */
    float *texts;         /* (T, E), in the order of text ids */
    int32_t *owner;       /* (T): index of the text's image */
    int64_t images_count, texts_count, embed_dim, feature_dim;
    uint64_t unturned_count, opaque_count; /* as in loader_stats, of this rank */
};

/* Every image, and what is asked for beside it; a damaged image ends it. Zeroes *out first; on
 * failure nothing is left to free. Of several ranks: collective, and a failure is that of all.
 * Returns OK, USAGE (no samples; texts without captions, tokenizer
 * or text tower), NOMEM, INTERRUPTED, or what loader and device return. */
enum status embed_dataset(struct embeddings *out,
                          const struct embed_model *model,
                          struct device *dev,
                          const char *dataset_dir,
                          const struct embed_options *opt,
                          struct error *err);
void embeddings_fini(struct embeddings *e); /* accepts an all-zero one */

#endif
