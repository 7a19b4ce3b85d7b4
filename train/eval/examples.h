/*
 * examples: example queries of a dataset with their nearest results: captions with
 * images, or images with captions, by the scores that retrieval ranks.
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
    int64_t rank;  /* from 1: of its own image, or of the best of its own captions */
    int64_t found[EXAMPLES_FOUND]; /* indices of images or captions, the nearest first */
    float scores[EXAMPLES_FOUND];
};

struct examples {
    bool by_caption; /* captions are the queries, images the candidates */
    struct example *items;
    int64_t count;
    int64_t found_count; /* of every example: EXAMPLES_FOUND, or all candidates where fewer */
};

/* Up to `count` queries, spread evenly over those of `e`, which has texts; the best ranks first. On
 * failure nothing is left to free. Returns OK, NOMEM or what the device returns. */
enum status examples_find(struct examples *out,
                          struct device *dev,
                          const struct embeddings *e,
                          bool by_caption,
                          int64_t count,
                          struct error *err);
void examples_fini(struct examples *x); /* accepts an all-zero one */

/* Which of its image's captions a caption is, from 0. */
int64_t examples_caption_of(const struct embeddings *e, int64_t text);

/* A list: of captions [{"id":SAMPLE,"caption":K,"rank":R,"found":[{"id":SAMPLE,"score":S},..]},..];
 * of images the same, where "caption" is in what is found. */
void examples_write_json(struct json_writer *w,
                         const char *key,
                         const struct examples *x,
                         const struct embeddings *e);

#endif
