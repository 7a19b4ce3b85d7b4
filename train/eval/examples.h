/*
 * examples: example queries of a dataset with their nearest results: images for captions, or
 * captions for images, by the scores that retrieval ranks.
 *
 * Threading : as the device.
 * Ownership : struct examples owns its items until examples_fini; embeddings are borrowed.
 */
#ifndef TRAIN_EVAL_EXAMPLES_H
#define TRAIN_EVAL_EXAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/json_writer.h"
#include "formats/base/status.h"
#include "kernels/ops.h"
#include "train/eval/embed.h"

enum { EXAMPLES_FOUND = 6 };

struct example {
    int64_t query; /* index of the caption or of the image in the embeddings */
    int64_t rank;  /* 1-based, of its own image, or of the best of its own captions */
    int64_t found[EXAMPLES_FOUND]; /* indices of images or captions, nearest first */
    float scores[EXAMPLES_FOUND];
};

struct examples {
    bool by_caption; /* captions are the queries, images the candidates */
    struct example *items;
    int64_t count;
    int64_t found_count; /* per example: EXAMPLES_FOUND, or all candidates if there are fewer */
};

/* Up to `count` >= 1 queries, evenly spaced over those of `e`, which has texts; sorted by rank. On
 * failure there is nothing to free. Returns OK, NOMEM or what the device returns. */
enum status examples_find(struct examples *out,
                          struct device *dev,
                          const struct embeddings *e,
                          bool by_caption,
                          int64_t count,
                          struct error *err);
void examples_fini(struct examples *x); /* accepts an all-zero one */

/* A caption's 0-based number among its image's captions. */
int64_t examples_caption_of(const struct embeddings *e, int64_t text);

/* A list: of captions [{"id":SAMPLE,"caption":K,"rank":R,"found":[{"id":SAMPLE,"score":S},..]},..];
 * for images the same, with "caption" in the found items. */
void examples_write_json(struct json_writer *w,
                         const char *key,
                         const struct examples *x,
                         const struct embeddings *e);

#endif
