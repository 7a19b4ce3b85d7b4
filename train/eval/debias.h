/*
 * debias: removes from class vectors of text what should not matter, such as the background
 * (Chuang et al., "Debiasing vision-language models via biased prompts", 2023). With A the
 * embeddings of prompts that describe only the spurious thing, and S pairs of prompts that differ
 * in nothing but it:
 *
 *   P0 = I - A (A^T A)^-1 A^T,   P = P0 (I + lambda/|S| sum (z_i - z_j)(z_i - z_j)^T)^-1,
 *   z <- P z / |P z|
 *
 * Threading : pure function. Ownership: everything is borrowed for the call.
 */
#ifndef TRAIN_EVAL_DEBIAS_H
#define TRAIN_EVAL_DEBIAS_H

#include <stdint.h>

#include "formats/base/status.h"

enum { DEBIAS_MAX_PROMPTS = 4096 }; /* spurious ones, and pairs */

struct debias_prompts {
    const float *spurious; /* (spurious_count, dim) */
    int64_t spurious_count;
    const float *pairs; /* (2 pair_count, dim): rows 2k and 2k + 1 are a pair */
    int64_t pair_count;
    double lambda; /* at least 0; the paper: 1000 for classification */
};

/* vectors (count, dim) in place. Either list may be empty. Returns OK, NOMEM, LIMIT (more than
 * DEBIAS_MAX_PROMPTS) or USAGE (*of, if not NULL, is the vector of which nothing remains). */
enum status debias_vectors(float *vectors,
                           int64_t count,
                           int64_t dim,
                           const struct debias_prompts *prompts,
                           int64_t *of,
                           struct error *err);

#endif
